//! The child of a `fork` has one thread: the readers of the other threads are copies that never end by themselves.

#![cfg(not(any(stillpoint_loom, miri)))]

#[path = "support/census.rs"]
mod census;
#[path = "support/child.rs"]
mod child;
#[path = "support/forked.rs"]
mod forked;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Barrier, LazyLock};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::rcu::raw::{self, Callback, CallbackQueue, Spare};
use stillpoint::rcu::wait::{ReaderKind, Stall, SynchronizeError};
use stillpoint::rcu::{self, Domain, RcuCell, Reclaimer};

use census::Census;
use child::in_child;
use forked::in_fork;

/// A limit for waits that are expected to fail.
const SHORT: Duration = Duration::from_millis(20);

fn eager(domain: &Domain) -> Reclaimer {
    domain.reclaimer_builder().fence_interval(Duration::ZERO).build()
}

/// How another thread of the parent reads during the fork.
#[derive(Debug, Clone, Copy)]
enum Held {
    Guard,
    Protected,
    Qsbr,
}

/// Forks while another thread holds an object. Runs `body` in the child with a reclaimer that waits for the object, and
/// asserts that the parent is as before.
fn fork_while_held(held: Held, body: impl Fn(&Domain, &mut Reclaimer, &Census)) {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let mut reclaimer = eager(&domain);
    let (taken, forked) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let wait = || {
                taken.wait();
                forked.wait();
            };
            let reader = domain.reader();
            match held {
                Held::Guard => {
                    let guard = reader.pin();
                    let object = cell.load(&guard).expect("never empty");
                    wait();
                    object.verify();
                }
                Held::Protected => {
                    let object = cell.protect(&reader).expect("never empty");
                    wait();
                    object.verify();
                }
                Held::Qsbr => {
                    let reader = domain.qsbr_reader();
                    let object = cell.load(&reader).expect("never empty");
                    wait();
                    object.verify();
                }
            }
        });
        taken.wait();
        reclaimer.retire(cell.replace(census.object()).expect("never empty")).expect("there is room");
        assert_eq!(reclaimer.poll(), 0, "{held:?}");
        in_fork(|| body(&domain, &mut reclaimer, &census));
        assert_eq!((reclaimer.poll(), census.freed()), (0, 0), "{held:?}: the parent knows nothing of it");
        forked.wait();
    });
    assert_eq!((reclaimer.poll(), census.freed(), census.alive()), (1, 1, 1), "{held:?}");
}

#[test]
fn a_child_that_resets_reclaims_what_threads_of_the_parent_held() {
    in_child("a_child_that_resets_reclaims_what_threads_of_the_parent_held", || {
        for held in [Held::Guard, Held::Protected, Held::Qsbr] {
            fork_while_held(held, |domain, reclaimer, census| {
                assert_eq!(reclaimer.poll(), 0, "{held:?}");
                // SAFETY: this is the only thread of the child, and it has borrowed nothing from the others.
                unsafe { domain.reset_after_fork() };
                assert_eq!(domain.stats().readers, 0, "{held:?}");
                assert_eq!((reclaimer.poll(), census.freed()), (1, 1), "{held:?}");
                assert_eq!(domain.synchronize(), Ok(()), "{held:?}");
            });
        }
    });
}

#[test]
fn a_child_that_does_not_reset_is_told_of_a_thread_that_has_ended() {
    in_child("a_child_that_does_not_reset_is_told_of_a_thread_that_has_ended", || {
        for (held, kind) in [(Held::Guard, ReaderKind::Guard), (Held::Qsbr, ReaderKind::Qsbr)] {
            fork_while_held(held, |domain, reclaimer, census| {
                for answer in [domain.synchronize_timeout(SHORT), reclaimer.flush_timeout(SHORT)] {
                    let Err(SynchronizeError::Stalled(stall)) = answer else { panic!("{answer:?}") };
                    assert_eq!((stall.reader, stall.thread_name), (kind, None));
                }
                assert_eq!(census.freed(), 0);
            });
        }
    });
}

/// A thread lends a reference that its guard protects to another thread, which forks. Until the child resets, it may
/// use the reference, and frees nothing that the guard holds. By resetting, it promises not to use the reference any
/// more.
#[test]
fn what_another_thread_has_lent_is_valid_until_the_child_resets() {
    in_child("what_another_thread_has_lent_is_valid_until_the_child_resets", || {
        let (domain, census) = (Domain::new(), Census::default());
        let cells = [domain.cell(census.object()), domain.cell(census.object())];
        let reader = domain.reader();
        let guard = reader.pin();
        let (lent, protected) = (cells[0].load(&guard).expect("never empty"), cells[1].protect(&reader));
        let lent = [lent, protected.as_deref().expect("never empty")];
        thread::scope(|scope| {
            scope.spawn(|| {
                let own = domain.reader();
                let own_cell = domain.cell(census.object());
                let own_object = own_cell.protect(&own).expect("never empty");
                let mut reclaimer = eager(&domain);
                for cell in cells.iter().chain([&own_cell]) {
                    reclaimer.retire(cell.take().expect("never empty")).expect("there is room");
                }
                in_fork(|| {
                    assert_eq!(reclaimer.poll(), 0);
                    lent.into_iter().for_each(|object| object.verify());
                    // SAFETY: this is the only thread of the child, and what was lent to it is not used any more.
                    unsafe { domain.reset_after_fork() };
                    assert_eq!((reclaimer.poll(), census.freed()), (2, 2));
                    own_object.verify();
                });
                lent.into_iter().for_each(|object| object.verify());
            });
        });
    });
}

/// The thread that forks goes on in the child, with what it held.
#[test]
fn a_child_keeps_the_readers_of_its_own_thread() {
    in_child("a_child_keeps_the_readers_of_its_own_thread", || {
        let (domain, census) = (Domain::new(), Census::default());
        let cells = [domain.cell(census.object()), domain.cell(census.object())];
        let mut reclaimer = eager(&domain);
        let (reader, mut qsbr) = (domain.reader(), domain.qsbr_reader());
        let mut guard = Some(reader.pin());
        let mut protected = cells[0].protect(&reader);
        for cell in &cells {
            reclaimer.retire(cell.replace(census.object()).expect("never empty")).expect("there is room");
        }
        in_fork(|| {
            // SAFETY: this is the only thread of the child, and it has borrowed nothing from the others.
            unsafe { domain.reset_after_fork() };
            assert_eq!(domain.stats().readers, 2);
            let answer = domain.synchronize();
            assert!(matches!(answer, Err(SynchronizeError::WouldDeadlock { .. })), "{answer:?}");
            qsbr.quiescent();
            assert_eq!(reclaimer.poll(), 0, "a guard is held");
            guard = None;
            assert_eq!(reclaimer.poll(), 0, "the QSBR reader is older than the token");
            qsbr.quiescent();
            assert_eq!(reclaimer.poll(), 1, "the one that is not protected");
            protected.as_ref().expect("never empty").verify();
            protected = None;
            assert_eq!(reclaimer.poll(), 1);
            assert_eq!(qsbr.synchronize(), Ok(()));
            cells[1].load(&reader.pin()).expect("never empty").verify();
        });
        assert_eq!((reclaimer.poll(), census.freed()), (0, 0), "the parent knows nothing of it");
    });
}

/// A reader that relies on no light fences does not count as one that does.
#[test]
fn a_child_with_only_qsbr_readers_issues_no_heavy_fence() {
    in_child("a_child_with_only_qsbr_readers_issues_no_heavy_fence", || {
        let domain = Domain::new();
        let mut qsbr = domain.qsbr_reader();
        let mut reclaimer = eager(&domain);
        in_fork(|| {
            // SAFETY: this is the only thread of the child, and it has borrowed nothing from the others.
            unsafe { domain.reset_after_fork() };
            for _ in 0..3 {
                reclaimer.retire(domain.cell(1).take().expect("never empty")).expect("there is room");
                assert_eq!(reclaimer.poll(), 0, "the reader has not reported");
                qsbr.quiescent();
                assert_eq!(reclaimer.poll(), 1);
            }
            assert_eq!(domain.stats().heavy_fences, 0);
        });
    });
}

#[test]
fn a_child_that_resets_can_start_threads_and_a_background_reclaimer() {
    in_child("a_child_that_resets_can_start_threads_and_a_background_reclaimer", || {
        fork_while_held(Held::Guard, |domain, _, census| {
            // SAFETY: this is the only thread of the child, and it has borrowed nothing from the others.
            unsafe { domain.reset_after_fork() };
            let cell = domain.cell(census.object());
            let mut background = domain.background();
            let handle = background.retire_handle();
            thread::scope(|scope| {
                scope.spawn(|| background.run());
                for _ in 0..100 {
                    let reader = domain.reader();
                    let object = cell.protect(&reader).expect("never empty");
                    handle
                        .retire(cell.replace(census.object()).expect("never empty"))
                        .expect("there is room");
                    object.verify();
                }
                handle.stop();
            });
            assert_eq!(census.freed(), 100);
        });
    });
}

/// The hook runs on another thread of the parent when it forks.
#[test]
fn a_child_that_resets_reports_stalls_of_its_own() {
    in_child("a_child_that_resets_reports_stalls_of_its_own", || {
        let (called, forked) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let calls = Arc::new(AtomicUsize::new(0));
        let hook = {
            let (called, forked, calls) = (Arc::clone(&called), Arc::clone(&forked), Arc::clone(&calls));
            move |_: &Stall| {
                if calls.fetch_add(1, Ordering::Relaxed) == 0 {
                    called.wait();
                    forked.wait();
                }
            }
        };
        let domain = Domain::builder().stall_hook(Duration::from_millis(2), hook).build();
        let domain = domain.expect("the default mode is always available");
        let reader = domain.reader();
        let guard = reader.pin();
        thread::scope(|scope| {
            scope.spawn(|| domain.synchronize().expect("the guard is dropped"));
            called.wait();
            in_fork(|| {
                // SAFETY: this is the only thread of the child, and it has borrowed nothing from the others.
                unsafe { domain.reset_after_fork() };
                let mut reclaimer = eager(&domain);
                reclaimer.retire(domain.cell(1).take().expect("never empty")).expect("there is room");
                let begun = Instant::now();
                while calls.load(Ordering::Relaxed) < 2 && begun.elapsed() < Duration::from_secs(20) {
                    reclaimer.poll();
                }
                assert_eq!(calls.load(Ordering::Relaxed), 2);
            });
            forked.wait();
            drop(guard);
        });
    });
}

/// The reader in the way of the parent's future does not exist in the child.
#[test]
fn a_future_of_the_parent_is_polled_again_in_the_child() {
    in_child("a_future_of_the_parent_is_polled_again_in_the_child", || {
        fork_while_held(Held::Qsbr, |domain, _, _| {
            let mut context = Context::from_waker(Waker::noop());
            let mut over = std::pin::pin!(domain.grace_period(domain.start()));
            assert!(over.as_mut().poll(&mut context).is_pending());
            // SAFETY: this is the only thread of the child, and it has borrowed nothing from the others.
            unsafe { domain.reset_after_fork() };
            assert_eq!(over.as_mut().poll(&mut context), Poll::Ready(Ok(())));
        });
    });
}

/// A callback that counts.
#[repr(C)]
struct Counted(Callback, Arc<AtomicUsize>);

impl Counted {
    fn push(queue: &CallbackQueue, count: &Arc<AtomicUsize>) {
        let counted = Box::leak(Box::new(Self(Callback::new(), Arc::clone(count))));
        // SAFETY: the value is new, and freed by its callback.
        unsafe { queue.push(std::ptr::NonNull::from(counted).cast(), Self::call) };
    }

    unsafe extern "C-unwind" fn call(callback: std::ptr::NonNull<Callback>) {
        // SAFETY: it is the first field of a value that was leaked.
        let counted = unsafe { Box::from_raw(callback.cast::<Self>().as_ptr()) };
        counted.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// Callbacks that wait in a queue are called in the child as well, by a thread of the child, although the thread that
/// served the queue is missing.
#[test]
fn callbacks_of_the_parent_are_called_in_the_child_and_in_the_parent() {
    in_child("callbacks_of_the_parent_are_called_in_the_child_and_in_the_parent", || {
        for is_served in [false, true] {
            let (domain, count) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
            let queue = CallbackQueue::new(&domain);
            let (taken, forked) = (Barrier::new(2), Barrier::new(2));
            thread::scope(|scope| {
                scope.spawn(|| {
                    let reader = domain.reader();
                    let guard = reader.pin();
                    taken.wait();
                    forked.wait();
                    drop(guard);
                });
                taken.wait();
                let server = is_served.then(|| scope.spawn(|| queue.run()));
                for number in 0..1_000 {
                    Counted::push(&queue, &count);
                    if number % 100 == 0 {
                        thread::sleep(Duration::from_micros(100));
                        queue.poll(usize::MAX);
                    }
                }
                let pause = queue.pause();
                in_fork(|| {
                    Counted::push(&queue, &count);
                    assert_eq!(queue.poll(usize::MAX), 0, "it is paused");
                    // SAFETY: this is the only thread of the child, it has borrowed nothing from the others, and the queue
                    // is paused.
                    unsafe {
                        domain.reset_after_fork();
                        queue.reset_after_fork();
                    }
                    drop(pause);
                    thread::scope(|scope| {
                        scope.spawn(|| queue.run());
                        queue.barrier().expect("nothing is in the way");
                        queue.stop();
                    });
                    assert_eq!((count.load(Ordering::Relaxed), queue.pending()), (1_001, 0));
                    assert_eq!(domain.stats().pending, 0);
                });
                assert_eq!(
                    (count.load(Ordering::Relaxed), queue.pending()),
                    (0, 1_000),
                    "the parent knows nothing of it"
                );
                drop(queue.pause());
                forked.wait();
                queue.stop();
                match server {
                    Some(server) => server.join().expect("no callback panics"),
                    None => queue.barrier().expect("nothing is in the way"),
                }
                assert_eq!(count.load(Ordering::Relaxed), 1_000);
            });
        }
    });
}

/// In the default domain, threads lend a slot again and again. The child has the object, and not the thread.
#[test]
fn a_child_keeps_what_other_threads_have_lent() {
    in_child("a_child_keeps_what_other_threads_have_lent", || {
        static FIRST: LazyLock<RcuCell<u64>> = LazyLock::new(|| RcuCell::new(1));
        let mine = FIRST.protect_owned().expect("never empty");
        let (send, receive) = mpsc::channel();
        let (end, wait) = mpsc::channel::<()>();
        thread::spawn(move || {
            send.send(FIRST.protect_owned().expect("never empty")).expect("it is received");
            let _ = wait.recv();
        });
        let held = receive.recv().expect("it is sent");
        let domain = rcu::default_domain();
        assert_eq!(domain.stats().owned, 2);
        in_fork(|| {
            // SAFETY: this is the only thread of the child, and it has borrowed nothing from the others.
            unsafe { rcu::reset_after_fork() };
            assert_eq!(domain.stats().owned, 2);
            FIRST.set(2);
            assert!(rcu::barrier_timeout(Duration::from_millis(1)).is_err(), "it is held");
            assert_eq!((*mine, *held), (1, 1));
            let next = thread::spawn(|| FIRST.protect_owned().expect("never empty")).join().unwrap();
            drop((mine, held));
            rcu::barrier().expect("nothing is in the way");
            assert_eq!((*next, domain.stats().owned), (2, 1));
        });
        drop(end);
    });
}

/// Such records belong to no thread, so the child cannot know whether they are still used.
#[test]
fn a_child_keeps_records_that_belong_to_no_thread() {
    in_child("a_child_keeps_records_that_belong_to_no_thread", || {
        let (domain, census) = (Domain::new(), Census::default());
        let cell = domain.cell(census.object());
        let link = {
            let reader = domain.reader();
            let address = std::ptr::from_ref(&*cell.protect(&reader).expect("never empty")).cast_mut();
            std::sync::atomic::AtomicPtr::new(address)
        };
        let (_, held) = raw::protect_owned(&domain, &link).expect("it is not null");
        let spare = Spare::new(&domain);
        let mut reclaimer = eager(&domain);
        reclaimer.retire(cell.take().expect("never empty")).expect("there is room");
        assert_eq!(reclaimer.poll(), 0);
        in_fork(|| {
            // SAFETY: this is the only thread of the child, and it has borrowed nothing from the others.
            unsafe { domain.reset_after_fork() };
            assert_eq!((reclaimer.poll(), census.freed()), (0, 0), "the child holds it, too");
            drop(held);
            assert_eq!((reclaimer.poll(), census.freed()), (1, 1));
            let reader = spare.into_reader();
            let guard = reader.pin();
            assert!(!domain.check(domain.start()));
            drop(guard);
            let others = [(); 20].map(|()| domain.reader());
            drop(reader);
            assert_eq!(domain.stats().readers, 20);
            drop(others);
            assert_eq!(domain.stats().readers, 0);
        });
    });
}
