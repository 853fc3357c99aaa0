//! A process that is refused membarrier, from the beginning or later on. It works with the fallback, or says why it
//! cannot go on. In no case is an object freed too early.
//!
//! Each test runs in its own process, under a seccomp filter.

#![cfg(not(any(stillpoint_loom, miri)))]

#[path = "support/census.rs"]
mod census;
#[path = "support/child.rs"]
mod child;
#[path = "support/filter.rs"]
mod filter;
#[path = "support/other.rs"]
mod other;
#[path = "support/skip.rs"]
mod skip;

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::fence::{self, asymmetric_supported, FenceError, Mode, SetHeavyError};
use stillpoint::rcu::wait::SynchronizeError;
use stillpoint::rcu::{self, BuildError, Domain, Reclaimer, Retired};
use stillpoint_multicast::{signals, Strategy};

use census::{Census, Object};
use child::in_child;
use filter::refuse_if;
use other::{silent, Other};

/// A limit for waits that are expected to end at once. It is long enough for a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// From now on, the kernel refuses membarrier to this thread and to threads that it starts, with `errno`.
fn refuse_membarrier(errno: i32) {
    refuse_if(libc::SYS_membarrier, None, errno);
}

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`
const PRIVATE_EXPEDITED: u32 = 8;

fn eager(domain: &Domain) -> Reclaimer {
    domain.reclaimer_builder().fence_interval(Duration::ZERO).build()
}

fn fence_error<T: std::fmt::Debug>(answer: Result<T, SynchronizeError>) -> FenceError {
    match answer {
        Err(SynchronizeError::Fence(error)) => error,
        other => panic!("expected an error of the fence: {other:?}"),
    }
}

#[test]
fn a_process_that_is_refused_from_the_beginning_works_on_the_fallback() {
    in_child("a_process_that_is_refused_from_the_beginning_works_on_the_fallback", || {
        refuse_membarrier(libc::EPERM);
        assert_eq!(Mode::best(), Mode::Symmetric);
        let (domain, census) = (Domain::new(), Census::default());
        assert_eq!(domain.fence_mode(), Mode::Symmetric);

        let cell = domain.cell(census.object());
        let mut reclaimer = eager(&domain);
        let reader = domain.reader();
        let object = cell.protect(&reader).expect("never empty");
        let guard = reader.pin();
        reclaimer.retire(cell.replace(census.object()).expect("never empty")).expect("there is room");
        assert_eq!(reclaimer.poll(), 0);
        drop(guard);
        assert_eq!(reclaimer.poll(), 0);
        drop(object);
        assert_eq!(reclaimer.poll(), 1);
        assert_eq!(domain.synchronize(), Ok(()));
        assert_eq!((domain.stats().heavy_fences, domain.stats().fence_error), (0, None));
    });
}

#[test]
fn the_asymmetric_mode_is_refused_with_an_error_that_says_what_to_do() {
    in_child("the_asymmetric_mode_is_refused_with_an_error_that_says_what_to_do", || {
        refuse_membarrier(libc::ENOSYS);
        let error = Domain::builder().fence(Mode::Asymmetric).build().expect_err("membarrier is refused");
        let BuildError::Asymmetric(cause) = &error else { panic!("{error:?}") };
        assert_eq!(cause.raw_os_error(), libc::ENOSYS);
        let text = error.to_string();
        assert!(text.contains("seccomp") && text.contains("symmetric mode"), "{text}");
        assert!(text.contains("not implemented"), "the cause is named: {text}");
        assert_eq!(asymmetric_supported(), Err(*cause));
        assert_eq!(fence::heavy(), Err(*cause));
        Domain::builder().fence(Mode::Symmetric).build().expect("as the error says");
    });
}

/// As `in_child`, where the system has membarrier, so that it can be refused later on. Otherwise the test is skipped.
fn in_child_with_membarrier(name: &str, body: impl FnOnce()) {
    match asymmetric_supported() {
        Ok(()) => in_child(name, body),
        // Here, since the output of a child is shown only when it fails.
        Err(error) => skip::skipped(&format!("there is nothing to refuse: {error}")),
    }
}

/// A domain that is made while membarrier is allowed.
fn asymmetric() -> Domain {
    Domain::builder().fence(Mode::Asymmetric).build().expect("it was probed")
}

#[test]
fn a_domain_that_is_refused_later_frees_nothing_and_says_why() {
    in_child_with_membarrier("a_domain_that_is_refused_later_frees_nothing_and_says_why", || {
        let domain = asymmetric();
        let census = Census::default();
        let cell = domain.cell(census.object());
        let (reader, silent) = (domain.reader(), silent(&domain));
        let mut reclaimer = eager(&domain);
        let before = domain.start();
        assert!(domain.check(before));
        refuse_membarrier(libc::EPERM);

        let fences = domain.stats().heavy_fences;
        let token = domain.start();
        assert!(!domain.check(token), "no reader is active, but a store may still be in a store buffer");
        assert!(domain.check(before), "what was over stays over");
        let begun = Instant::now();
        for answer in [
            domain.synchronize(),
            domain.synchronize_timeout(LONG),
            domain.wait(token),
            domain.wait_timeout(token, LONG),
        ] {
            assert_eq!(fence_error(answer).raw_os_error(), libc::EPERM);
        }
        assert!(begun.elapsed() < LONG, "there is nothing to wait for");

        reclaimer.retire(cell.replace(census.object()).expect("never empty")).expect("there is room");
        for _ in 0..10 {
            assert_eq!(reclaimer.poll(), 0);
        }
        assert_eq!(fence_error(reclaimer.flush()).raw_os_error(), libc::EPERM);
        assert_eq!(fence_error(reclaimer.flush_timeout(LONG)).raw_os_error(), libc::EPERM);
        assert_eq!(domain.stats().heavy_fences, fences, "none was issued");
        let error = domain.stats().fence_error.expect("it was refused");
        assert_eq!(error.raw_os_error(), libc::EPERM);
        let text = domain.synchronize().expect_err("it is refused").to_string();
        assert!(text.contains("Operation not permitted") && text.contains("seccomp"), "{text}");

        let old = cell.replace(census.object()).expect("never empty");
        let old =
            old.try_free().expect_err("there is no fence").try_into_box().expect_err("there is no fence");
        drop(old);
        assert_eq!((census.freed(), domain.stats().pending), (0, 2));

        // Readers go on, and retired objects are not lost.
        cell.protect(&reader).expect("never empty").verify();
        cell.load(&reader.pin()).expect("never empty").verify();
        drop((silent, reader, reclaimer, domain));
        assert_eq!((census.freed(), census.alive()), (2, 1));
    });
}

/// The process uses the other mode from then on, also where its first domains go on asking.
#[test]
fn a_domain_that_is_made_after_the_refusal_works_on_the_fallback() {
    in_child_with_membarrier("a_domain_that_is_made_after_the_refusal_works_on_the_fallback", || {
        let early = asymmetric();
        assert_eq!(Mode::best(), Mode::Asymmetric);
        refuse_membarrier(libc::EPERM);
        let (domain, census) = (Domain::new(), Census::default());
        assert_eq!((domain.fence_mode(), Mode::best()), (Mode::Symmetric, Mode::Symmetric));
        let error = Domain::builder().fence(Mode::Asymmetric).build().expect_err("membarrier is refused");
        assert!(matches!(error, BuildError::Asymmetric(cause) if cause.raw_os_error() == libc::EPERM));
        let _silent = (silent(&early), silent(&domain));
        let mut reclaimer = eager(&domain);
        reclaimer.retire(domain.cell(census.object()).take().expect("it was full")).expect("there is room");
        assert_eq!(reclaimer.poll(), 1);
        assert_eq!(rcu::default_domain().fence_mode(), Mode::Symmetric);
        assert_eq!(early.fence_mode(), Mode::Asymmetric);
        assert!(early.synchronize().is_err());
    });
}

/// As above, if a filter forbids the barrier alone: only a fence notices that.
#[test]
fn a_refused_fence_is_the_answer_for_later_domains() {
    in_child_with_membarrier("a_refused_fence_is_the_answer_for_later_domains", || {
        let early = asymmetric();
        let _silent = silent(&early);
        refuse_if(libc::SYS_membarrier, Some((0, PRIVATE_EXPEDITED)), libc::EPERM);
        assert_eq!(Mode::best(), Mode::Asymmetric, "nothing was refused yet");
        assert_eq!(fence_error(early.synchronize()).raw_os_error(), libc::EPERM);
        assert_eq!(asymmetric_supported().map_err(FenceError::raw_os_error), Err(libc::EPERM));
        assert_eq!((Mode::best(), Domain::new().fence_mode()), (Mode::Symmetric, Mode::Symmetric));
    });
}

/// Filters are per thread: a domain goes on while one of its threads may fence. While none does, it tells the hook, once.
#[test]
fn what_is_refused_for_long_is_reported_until_a_thread_fences() {
    in_child_with_membarrier("what_is_refused_for_long_is_reported_until_a_thread_fences", || {
        let (told, reports) = std::sync::mpsc::channel();
        let domain = Domain::builder()
            .name("default")
            .stall_hook(Duration::from_millis(2), move |stall| {
                told.send(stall.clone()).expect("the test receives")
            })
            .build_default()
            .expect("nothing has used it");
        let census = Census::default();
        let cell = &rcu::RcuCell::new(census.object());
        let (ask, asked) = std::sync::mpsc::channel::<()>();
        let (answer, answered) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                // Each thread is silent to the other one.
                cell.get().expect("never empty").verify();
                answer.send(Ok(())).expect("the test receives");
                for () in asked {
                    answer.send(domain.synchronize()).expect("the test receives");
                }
            });
            cell.get().expect("never empty").verify();
            assert_eq!(answered.recv().expect("the thread answers"), Ok(()));
            refuse_membarrier(libc::EPERM);
            for _ in 0..2 {
                // No call says that it is refused.
                let begun = Instant::now();
                let report = loop {
                    assert!(begun.elapsed() < LONG, "the hook was not called");
                    cell.set(census.object());
                    if let Ok(report) = reports.try_recv() {
                        break report;
                    }
                };
                let error = report.fence_error.expect("no reader is in the way");
                assert_eq!(error.raw_os_error(), libc::EPERM);
                // SAFETY: no pointers are passed.
                assert_eq!(i64::from(report.thread_id), unsafe { libc::syscall(libc::SYS_gettid) });
                assert!(report.waited >= Duration::from_millis(2) && report.pending > 0, "{report:?}");
                let text = report.to_string();
                assert!(text.contains("was refused the fence in domain `default`"), "{text}");
                assert!(text.contains("seccomp"), "{text}");
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(4) {
                    cell.set(census.object());
                }
                assert!(reports.try_recv().is_err(), "it is reported once");
                assert_eq!(domain.stats().fence_error, Some(error));
                // The thread that no filter stops fences for all. Then the reports begin anew.
                ask.send(()).expect("the thread runs");
                assert_eq!(answered.recv().expect("the thread answers"), Ok(()));
                assert_eq!(domain.stats().fence_error, None);
            }
            drop(ask);
        });
        assert_eq!(asymmetric_supported().map_err(FenceError::raw_os_error), Err(libc::EPERM));
        assert_eq!(Domain::new().fence_mode(), Mode::Symmetric);
    });
}

/// Without a reader that relies on light fences no heavy one is needed.
#[test]
fn a_domain_that_is_refused_later_goes_on_without_its_light_readers() {
    in_child_with_membarrier("a_domain_that_is_refused_later_goes_on_without_its_light_readers", || {
        let domain = asymmetric();
        let census = Census::default();
        let cell = domain.cell(census.object());
        let (silent, mut qsbr) = (silent(&domain), domain.qsbr_reader());
        let mut reclaimer = eager(&domain);
        refuse_membarrier(libc::EPERM);
        reclaimer.retire(cell.replace(census.object()).expect("never empty")).expect("there is room");
        qsbr.quiescent();
        assert_eq!(reclaimer.poll(), 0);
        qsbr.quiescent();
        assert_eq!(reclaimer.poll(), 0);
        assert!(domain.stats().fence_error.is_some());
        drop(silent);
        qsbr.quiescent();
        assert_eq!(reclaimer.poll(), 1);
        qsbr.synchronize().expect("no heavy fence is needed");
        assert_eq!(domain.stats().fence_error, None);
    });
}

/// Readers that load need no fence of the writer.
#[test]
fn a_domain_that_is_refused_later_frees_what_its_readers_vouch_for() {
    in_child_with_membarrier("a_domain_that_is_refused_later_frees_what_its_readers_vouch_for", || {
        let domain = asymmetric();
        let own = domain.clone();
        let running = Other::start(move |turns| {
            let reader = own.reader();
            turns.for_each(|()| drop(reader.pin()));
        });
        running.turn();
        let (mut patient, mut eager) = (domain.reclaimer(), eager(&domain));
        refuse_membarrier(libc::EPERM);
        for reclaimer in [&mut patient, &mut eager] {
            for _ in 0..10 {
                reclaimer.retire(domain.cell(1).take().expect("it was full")).expect("there is room");
                assert!((0..100).all(|_| reclaimer.poll() == 0));
                while reclaimer.poll() == 0 {
                    running.turn();
                }
            }
        }
        assert_eq!(domain.stats().heavy_fences, 0);
    });
}

/// A refused fence is not the domain's last one, for which others would wait an interval.
#[test]
fn a_thread_that_is_refused_does_not_hold_up_another_one() {
    in_child_with_membarrier("a_thread_that_is_refused_does_not_hold_up_another_one", || {
        let (domain, census) = (asymmetric(), Census::default());
        let _silent = silent(&domain);
        let retired = || -> Retired<Object> { domain.cell(census.object()).take().expect("it was full") };
        let mut reclaimer = domain.reclaimer_builder().fence_interval(Duration::from_secs(3600)).build();
        thread::scope(|scope| {
            let refused = scope.spawn(|| {
                refuse_membarrier(libc::EPERM); // to this thread only
                let mut reclaimer = domain.reclaimer_builder().batch(1).build();
                reclaimer.retire(retired()).expect("there is room");
                while domain.stats().fence_error.is_none() {
                    assert_eq!(reclaimer.poll(), 0);
                }
                reclaimer
            });
            let refused = refused.join().expect("it is refused");
            reclaimer.retire(retired()).expect("there is room");
            let begun = Instant::now();
            while reclaimer.poll() == 0 {
                assert!(begun.elapsed() < LONG, "it waits for the interval of a fence that there was not");
            }
            drop(refused);
        });
    });
}

#[test]
fn a_full_reclaimer_that_is_refused_hands_objects_back() {
    in_child_with_membarrier("a_full_reclaimer_that_is_refused_hands_objects_back", || {
        let domain = asymmetric();
        let census = Census::default();
        let _silent = silent(&domain);
        let mut reclaimer = domain.reclaimer_builder().max_pending(2).build();
        refuse_membarrier(libc::EPERM);
        let retired = || -> Retired<Object> { domain.cell(census.object()).take().expect("it was full") };
        reclaimer.retire(retired()).expect("there is room");
        reclaimer.retire(retired()).expect("there is room");
        let error = reclaimer.retire(retired()).expect_err("nothing can be freed");
        let error = reclaimer
            .retire_timeout(error.into_inner(), Duration::from_millis(5))
            .expect_err("it is still refused");
        error.into_inner().verify();
        assert_eq!(census.freed(), 0);
    });
}

#[test]
fn a_background_reclaimer_that_is_refused_can_be_abandoned() {
    in_child_with_membarrier("a_background_reclaimer_that_is_refused_can_be_abandoned", || {
        let domain = asymmetric();
        let census = Census::default();
        let silent = silent(&domain);
        let mut background = domain.background();
        let handle = background.retire_handle();
        refuse_membarrier(libc::EPERM); // before the thread is started, which inherits the filter
        thread::scope(|scope| {
            let run = scope.spawn(|| background.run());
            handle.retire(domain.cell(census.object()).take().expect("it was full")).expect("there is room");
            while domain.stats().fence_error.is_none() {
                thread::yield_now();
            }
            handle.stop();
            thread::sleep(Duration::from_millis(5));
            assert!(!run.is_finished(), "it may neither free the object nor forget it");
            handle.abandon();
            run.join().expect("nothing panics");
        });
        assert_eq!(census.freed(), 0);
        drop((background, handle, silent, domain));
        assert_eq!((census.freed(), census.alive()), (1, 0));
    });
}

/// A reader leaves while a future waits for it. The future is polled only when its waker was called. Returns how often
/// that was.
fn a_future_ends(domain: &Domain) -> usize {
    let (wakes, waker) = Unpark::this_thread();
    let mut context = Context::from_waker(&waker);
    thread::scope(|scope| {
        let (held, is_held) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let reader = domain.reader();
            let guard = reader.pin();
            held.send(()).expect("the test waits for it");
            thread::sleep(Duration::from_millis(50));
            drop(guard);
            // The end of the thread would wake the future, too.
            thread::sleep(Duration::from_millis(50));
        });
        is_held.recv().expect("the thread runs");
        let mut over = std::pin::pin!(domain.grace_period(domain.start()));
        let begun = Instant::now();
        loop {
            if let Poll::Ready(answer) = over.as_mut().poll(&mut context) {
                break assert_eq!(answer, Ok(()));
            }
            assert!(begun.elapsed() < LONG, "it was woken too often, or never");
            thread::park_timeout(LONG);
        }
    });
    wakes.taken()
}

/// Wakes a thread, and counts.
struct Unpark(thread::Thread, AtomicUsize);

impl Unpark {
    fn this_thread() -> (Arc<Self>, Waker) {
        let this = Arc::new(Self(thread::current(), AtomicUsize::new(0)));
        (Arc::clone(&this), Waker::from(this))
    }

    /// How often it has woken the thread since it was asked last.
    fn taken(&self) -> usize {
        self.1.swap(0, Ordering::Relaxed)
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.unpark();
    }
}

const ASKS: &str = "without the fence the future asks for further polls";

#[test]
fn a_future_needs_no_membarrier() {
    in_child("a_future_needs_no_membarrier", || {
        refuse_membarrier(libc::EPERM);
        assert!(a_future_ends(&Domain::new()) > 1, "{ASKS}");
    });
}

#[test]
fn a_future_of_a_symmetric_domain_ends_when_membarrier_is_refused_later() {
    in_child_with_membarrier("a_future_of_a_symmetric_domain_ends_when_membarrier_is_refused_later", || {
        assert_eq!(asymmetric_supported(), Ok(()));
        refuse_membarrier(libc::EPERM);
        let domain = Domain::builder().fence(Mode::Symmetric).build();
        assert!(a_future_ends(&domain.expect("it is always available")) > 1, "{ASKS}");
    });
}

/// Filters are per thread. A thread that may fence does so, and its future is woken once.
#[test]
fn a_refusal_of_another_thread_makes_no_future_ask() {
    in_child_with_membarrier("a_refusal_of_another_thread_makes_no_future_ask", || {
        let early = asymmetric();
        let other = thread::spawn(|| {
            refuse_membarrier(libc::EPERM);
            assert!(fence::heavy().is_err());
        });
        other.join().expect("it was refused");
        assert_eq!((fence::heavy(), a_future_ends(&early)), (Ok(()), 1));
    });
}

/// This includes a future that finds a request to the reader by an earlier one.
#[test]
fn every_future_asks_for_further_polls_when_membarrier_is_refused() {
    in_child("every_future_asks_for_further_polls_when_membarrier_is_refused", || {
        refuse_membarrier(libc::EPERM);
        let domain = Domain::new();
        let reader = domain.reader();
        let _guard = reader.pin();
        let token = domain.start();
        let mut futures = [(); 3].map(|()| Box::pin(domain.grace_period(token)));
        for future in &mut futures {
            let (wakes, waker) = Unpark::this_thread();
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            assert!(wakes.taken() > 0, "{ASKS}");
        }
        // It asks again as long as the reader may not have seen its request. It does not if this thread is preempted
        // meanwhile.
        let asks_again = || {
            let (wakes, waker) = Unpark::this_thread();
            let mut future = std::pin::pin!(domain.grace_period(token));
            [(); 2].map(|()| {
                assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                wakes.taken()
            })[1]
                > 0
        };
        assert!((0..10_000).any(|_| asks_again()), "{ASKS}");
    });
}

#[test]
fn a_future_of_an_asymmetric_domain_says_why_it_cannot_end() {
    in_child_with_membarrier("a_future_of_an_asymmetric_domain_says_why_it_cannot_end", || {
        let domain = asymmetric();
        let _silent = silent(&domain);
        refuse_membarrier(libc::EPERM);
        let mut over = std::pin::pin!(domain.grace_period(domain.start()));
        let Poll::Ready(answer) = over.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("there is nothing to wait for")
        };
        assert_eq!(fence_error(answer).raw_os_error(), libc::EPERM);
    });
}

static FENCES: AtomicUsize = AtomicUsize::new(0);
static REFUSES: AtomicBool = AtomicBool::new(false);

/// Fences as the library does, and counts.
fn counted() -> Result<(), i32> {
    FENCES.fetch_add(1, Ordering::SeqCst);
    // SAFETY: no pointers are passed.
    match unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) } {
        0 if !REFUSES.load(Ordering::SeqCst) => Ok(()),
        _ => Err(libc::EPROTO),
    }
}

/// All fences go to a function that was set in time: those of `heavy`, and those of domains.
#[test]
fn a_process_fences_by_the_function_that_it_has_set() {
    in_child("a_process_fences_by_the_function_that_it_has_set", || {
        const REGISTER: u32 = PRIVATE_EXPEDITED << 1;
        // Not by the library, which would keep to membarrier then. SAFETY: no pointers are passed.
        if unsafe { libc::syscall(libc::SYS_membarrier, REGISTER, 0, 0) } != 0 {
            return skip::skipped(&format!("membarrier: {}", io::Error::last_os_error()));
        }
        // SAFETY: the system call reaches every thread of the process.
        assert_eq!(unsafe { fence::set_heavy(counted) }, Ok(()));
        // SAFETY: as above.
        let late: SetHeavyError = unsafe { fence::set_heavy(counted) }.expect_err("it was set before");
        assert!(late.to_string().contains("before the first domain"), "{late}");
        let before = FENCES.load(Ordering::SeqCst);
        assert_eq!((fence::heavy(), FENCES.load(Ordering::SeqCst)), (Ok(()), before + 1));
        assert_eq!(Mode::best(), Mode::Asymmetric);
        let domain = Domain::new();
        let _silent = silent(&domain);
        let before = FENCES.load(Ordering::SeqCst);
        assert_eq!((domain.synchronize(), FENCES.load(Ordering::SeqCst)), (Ok(()), before + 1));
        REFUSES.store(true, Ordering::SeqCst);
        let error = fence_error(domain.synchronize());
        assert_eq!(error.raw_os_error(), libc::EPROTO);
        assert!(error.to_string().contains("that the program has set failed (Protocol error"), "{error}");
    });
}

#[test]
fn a_function_that_is_set_after_the_first_fence_is_refused() {
    in_child("a_function_that_is_set_after_the_first_fence_is_refused", || {
        let _ = asymmetric_supported();
        // SAFETY: the system call reaches every thread of the process.
        assert!(unsafe { fence::set_heavy(counted) }.is_err());
        let _ = fence::heavy();
        assert_eq!(FENCES.load(Ordering::SeqCst), 0);
    });
}

/// The kernel forbids the initiator to send signals after a member has joined.
#[test]
fn a_signal_that_cannot_be_sent_makes_the_fence_fail() {
    in_child("a_signal_that_cannot_be_sent_makes_the_fence_fail", || {
        let barrier = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _member = signals::join().expect("the signal has no handler");
                barrier.wait();
                barrier.wait();
            });
            barrier.wait();
            refuse_if(libc::SYS_tgkill, None, libc::EPERM);
            let late = signals::multicast().expect("it was started").fence().expect_err("it is refused");
            assert!(late.to_string().contains("allow tgkill"), "{late}");
            barrier.wait();
        });
    });
}

/// A receiver may not signal the threads that were delegated to it. The initiator may, and does. Otherwise it would
/// wait for ever.
#[test]
fn an_initiator_makes_up_for_signals_that_its_receivers_may_not_send() {
    in_child("an_initiator_makes_up_for_signals_that_its_receivers_may_not_send", || {
        // SAFETY: no pointers are passed. The signal ends the process if it hangs.
        unsafe { libc::alarm(2 * LONG.as_secs() as u32) };
        let (joined, runs) = (std::sync::Barrier::new(4), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let _member = signals::join().expect("the signal has no handler");
                    refuse_if(libc::SYS_tgkill, None, libc::EPERM);
                    joined.wait();
                    joined.wait();
                });
            }
            joined.wait();
            let multicast = signals::multicast().expect("it was started");
            let multicast = multicast.strategy(Strategy::Tree).helping(false);
            // SAFETY: an atomic addition may be done anywhere.
            let report = unsafe { multicast.run(|| _ = runs.fetch_add(1, Ordering::Relaxed)) };
            assert_eq!((report.receivers, report.sends, runs.load(Ordering::Relaxed)), (3, 2, 3));
            joined.wait();
        });
    });
}
