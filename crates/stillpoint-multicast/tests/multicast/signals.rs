//! Threads that are interrupted.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use stillpoint_multicast::signals::{self, SignalError};
use stillpoint_multicast::{Late, Strategy};

use crate::asleep;
use crate::child::in_child;
use crate::forked::in_fork;
use crate::waking::or_hang;
use crate::{ways, End, Ending};

/// What a receiver does meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Spinning,
    Sleeping,
}

/// Starts registered threads, and calls `body` when all have joined. This runs in a separate process, so that there
/// are no other members.
fn with_threads(threads: usize, doing: Doing, body: impl FnOnce()) {
    let (there, flag) = (Barrier::new(threads + 1), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..threads {
            let (there, end) = (&there, End(&flag));
            scope.spawn(move || {
                let _member = signals::join().expect("the signal is free");
                there.wait();
                while !end.has_come() {
                    match doing {
                        Doing::Spinning => std::hint::spin_loop(),
                        Doing::Sleeping => thread::sleep(Duration::from_millis(20)),
                    }
                }
            });
        }
        there.wait();
        let _ending = Ending(&flag);
        assert_eq!(signals::members(), threads);
        body();
    });
    assert_eq!(signals::members(), 0);
}

#[test]
fn every_thread_is_interrupted_once_before_the_return() {
    in_child("signals::every_thread_is_interrupted_once_before_the_return", || {
        for (threads, doing) in [(2, Doing::Spinning), (9, Doing::Sleeping)] {
            with_threads(threads, doing, || {
                for (strategy, acknowledgement, helps) in ways() {
                    let runs = AtomicUsize::new(0);
                    let multicast = signals::multicast().expect("it has been started");
                    let multicast =
                        multicast.strategy(strategy).acknowledgement(acknowledgement).helping(helps);
                    // SAFETY: an atomic addition may be done anywhere.
                    let report =
                        unsafe { multicast.trace(true).run(|| _ = runs.fetch_add(1, Ordering::Relaxed)) };
                    assert_eq!((report.receivers, runs.into_inner()), (threads, threads), "{strategy:?}");
                    let (shape, planned) = (report.shape.unwrap(), strategy.shape(threads as u32));
                    assert!(shape.sends == planned.sends && (helps || shape == planned), "{shape:?}");
                    let fence = signals::multicast().unwrap().strategy(strategy).helping(helps).fence();
                    assert_eq!(fence.expect("no thread blocks the signal").receivers, threads);
                }
            });
        }
    });
}

/// The thread is in the middle of a system call that is not restarted, and keeps its error number.
#[test]
fn a_handler_leaves_the_error_number_alone() {
    in_child("signals::a_handler_leaves_the_error_number_alone", || {
        let (joined, seen, flag) = (Barrier::new(2), AtomicI32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _member = signals::join().expect("the signal is free");
                // SAFETY: the address belongs to the calling thread.
                unsafe { *libc::__errno_location() = 12345 };
                joined.wait();
                while !End(&flag).has_come() {
                    std::hint::spin_loop();
                }
                // SAFETY: the address belongs to the calling thread.
                seen.store(unsafe { *libc::__errno_location() }, Ordering::Relaxed);
            });
            joined.wait();
            for _ in 0..100 {
                // SAFETY: a system call that fails is async-signal-safe, and the handler restores the error number.
                let report = unsafe { signals::multicast().unwrap().run(|| _ = libc::close(-1)) };
                assert_eq!(report.receivers, 1);
            }
            flag.store(true, Ordering::Relaxed);
        });
        assert_eq!(seen.into_inner(), 12345);
    });
}

#[test]
fn a_thread_that_blocks_the_signal_cannot_join() {
    in_child("signals::a_thread_that_blocks_the_signal_cannot_join", || {
        drop(signals::join().expect("the signal is free"));
        block(libc::SIGURG, libc::SIG_BLOCK);
        let error = signals::join().expect_err("the signal is blocked");
        assert_eq!(error, SignalError::Blocked { signal: libc::SIGURG });
        assert!(error.to_string().contains("pthread_sigmask"), "{error}");
        block(libc::SIGURG, libc::SIG_UNBLOCK);
        drop(signals::join().expect("it is not blocked any more"));
    });
}

/// No wait lasts for ever; the error names the thread; and the thread runs what was sent when it unblocks the signal.
#[test]
fn a_thread_that_blocks_the_signal_later_is_named() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    in_child("signals::a_thread_that_blocks_the_signal_later_is_named", || {
        let (blocked, named) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let member = signals::join().expect("the signal is free");
                block(libc::SIGURG, libc::SIG_BLOCK);
                blocked.wait();
                named.wait();
                assert_eq!(member.poll(), 2, "a fence, and a function");
                block(libc::SIGURG, libc::SIG_UNBLOCK);
                blocked.wait();
                named.wait();
            });
            blocked.wait();
            let begun = Instant::now();
            let late = signals::multicast().unwrap().fence().expect_err("the signal is blocked");
            assert!(begun.elapsed() > Duration::from_millis(200), "it may have been for a moment");
            assert_eq!((late.receivers(), late.threads().len()), (1, 1));
            assert_eq!(late.blocked(), late.threads());
            let text = late.to_string();
            assert!(text.contains("blocks signal") && text.contains("unblock"), "{text}");
            let count = || _ = RUNS.fetch_add(1, Ordering::Relaxed);
            let multicast = signals::multicast().unwrap();
            // SAFETY: an atomic addition may be done anywhere.
            let answer =
                unsafe { multicast.run_timeout(Duration::from_millis(5), &*Box::leak(Box::new(count))) };
            assert_eq!(answer.expect_err("the signal is blocked").blocked().len(), 1);
            named.wait();
            blocked.wait();
            assert_eq!(RUNS.load(Ordering::Relaxed), 1, "late, but not lost");
            assert_eq!(
                signals::multicast().unwrap().fence().expect("no thread blocks the signal").receivers,
                1
            );
            named.wait();
        });
    });
}

#[test]
fn fences_that_fail_leave_one_operation_behind() {
    in_child("signals::fences_that_fail_leave_one_operation_behind", || {
        let (joined, flag) = (Barrier::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let member = signals::join().expect("the signal is free");
                block(libc::SIGURG, libc::SIG_BLOCK);
                joined.wait();
                while !End(&flag).has_come() {
                    thread::sleep(Duration::from_millis(1));
                }
                member.poll()
            });
            joined.wait();
            {
                let _ending = Ending(&flag);
                for _ in 0..4 {
                    let late = signals::multicast().unwrap().fence().expect_err("the signal is blocked");
                    assert_eq!((late.receivers(), late.blocked().len()), (1, 1));
                }
            }
            assert_eq!(
                thread.join().unwrap(),
                1,
                "what the first fence sent, which the later ones waited for"
            );
        });
        assert_eq!(signals::multicast().unwrap().fence().expect("no thread is registered").receivers, 0);
    });
}

/// The error of a fence beside a registered thread that blocks the signal, and does this over and over.
fn late_beside(what: impl Fn() + Sync) -> Late {
    let (joined, flag) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _member = signals::join().expect("the signal is free");
            block(libc::SIGURG, libc::SIG_BLOCK);
            joined.wait();
            while !End(&flag).has_come() {
                what();
            }
        });
        joined.wait();
        let _ending = Ending(&flag);
        signals::multicast().unwrap().fence().expect_err("no handler runs")
    })
}

/// The thread neither answers nor sleeps.
#[test]
fn a_thread_that_computes_with_the_signal_blocked_is_named() {
    in_child("signals::a_thread_that_computes_with_the_signal_blocked_is_named", || {
        let late = late_beside(std::hint::spin_loop);
        assert_eq!(late.blocked(), late.threads());
    });
}

/// The thread blocks the signal and waits for it: while it sleeps, `/proc` does not show that it blocks it, and no handler runs.
#[test]
fn a_thread_that_waits_for_the_signal_is_named() {
    or_hang("signals::a_thread_that_waits_for_the_signal_is_named", || {
        let late = late_beside(|| wait_for(libc::SIGURG, Duration::from_millis(50)));
        assert_eq!((late.receivers(), late.threads().len()), (1, 1));
        assert_eq!(late.blocked(), late.threads());
    });
}

/// Two initiators that both block the signal serve each other while they wait.
#[test]
fn initiators_that_block_the_signal_do_not_wait_for_each_other() {
    in_child("signals::initiators_that_block_the_signal_do_not_wait_for_each_other", || {
        let (there, done) = (Barrier::new(2), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let member = signals::join().expect("the signal is free");
                    block(libc::SIGURG, libc::SIG_BLOCK);
                    there.wait();
                    for _ in 0..100 {
                        // SAFETY: the function does nothing.
                        let report = unsafe { signals::multicast().unwrap().run(|| {}) };
                        assert!(report.ran_here);
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                    while done.load(Ordering::Relaxed) < 2 {
                        member.poll();
                    }
                });
            }
        });
    });
}

/// Members multicast to each other. One of them stops, and computes: it is still notified of messages.
#[test]
fn an_initiator_that_goes_on_with_something_else_is_told() {
    in_child("signals::an_initiator_that_goes_on_with_something_else_is_told", || {
        const OTHERS: usize = 3;
        let (fences, flag, ended) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            let member = signals::join().expect("the signal is free");
            for _ in 0..OTHERS {
                scope.spawn(|| {
                    let _member = signals::join().expect("the signal is free");
                    while !End(&flag).has_come() {
                        signals::multicast().unwrap().fence().expect("no thread blocks the signal");
                        fences.fetch_add(1, Ordering::Relaxed);
                    }
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
            let _ending = Ending(&flag);
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(3) {
                signals::multicast().unwrap().fence().expect("no thread blocks the signal");
                // The signal is not blocked, and the thread does not poll.
                let (before, waiting) = (fences.load(Ordering::Relaxed), Instant::now());
                while fences.load(Ordering::Relaxed) < before + OTHERS + 1 {
                    std::hint::spin_loop();
                    if waiting.elapsed() > crate::LONG {
                        flag.store(true, Ordering::Relaxed);
                        let lost = member.poll();
                        while ended.load(Ordering::Relaxed) < OTHERS {
                            member.poll();
                        }
                        panic!("{lost} messages were not announced");
                    }
                }
            }
        });
    });
}

/// Joining in the destructor of a thread-local value, after the thread has left for good.
#[test]
fn a_thread_that_has_left_for_good_cannot_join() {
    use std::cell::RefCell;
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            assert_eq!(signals::join().map(std::mem::forget), Err(SignalError::Ending));
            assert!(SignalError::Ending.to_string().contains("join before"));
        }
    }
    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }
    in_child("signals::a_thread_that_has_left_for_good_cannot_join", || {
        let thread = thread::spawn(|| {
            LATE.with(|late| *late.borrow_mut() = Some(Late));
            std::mem::forget(signals::join().expect("the signal is free"));
        });
        thread.join().expect("it is refused");
        assert_eq!(signals::members(), 0);
        assert_eq!(signals::multicast().unwrap().fence().expect("no thread is registered").receivers, 0);
    });
}

/// A thread that ends itself behind the C library's back is named; what is retired stays.
#[test]
fn a_thread_that_is_gone_makes_the_fence_fail() {
    in_child("signals::a_thread_that_is_gone_makes_the_fence_fail", || {
        let id = std::sync::Arc::new(AtomicI32::new(0));
        let told = std::sync::Arc::clone(&id);
        thread::spawn(move || {
            std::mem::forget(signals::join().expect("the signal is free"));
            // SAFETY: no preconditions.
            told.store(unsafe { libc::gettid() }, Ordering::Relaxed);
            crate::end_without_a_word();
        });
        while signals::members() == 0 || id.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        let late = signals::multicast().unwrap().fence().expect_err("it is gone");
        assert_eq!(late.threads(), [id.load(Ordering::Relaxed).unsigned_abs()]);
        assert!(late.to_string().contains("has ended without leaving"), "{late}");
    });
}

/// An ended main thread stays, and can be sent signals, as long as the process has others. In a child, it is the one that has forked.
#[test]
fn a_main_thread_that_is_gone_makes_the_fence_fail() {
    let fence_fails = |main: u32| {
        let stat = format!("/proc/self/task/{main}/stat");
        while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
            thread::yield_now();
        }
        let late = signals::multicast().unwrap().fence().expect_err("it is gone");
        assert_eq!(late.threads(), [main]);
        assert!(late.to_string().contains("has ended without leaving"), "{late}");
    };
    in_child("signals::a_main_thread_that_is_gone_makes_the_fence_fail", || {
        in_fork(|| {
            std::mem::forget(signals::join().expect("the signal is free"));
            let main = asleep::own().unsigned_abs();
            thread::spawn(move || {
                let failed = catch_unwind(|| fence_fails(main)).is_err();
                // SAFETY: no preconditions. No destructor runs.
                unsafe { libc::_exit(failed.into()) }
            });
            crate::end_without_a_word();
        });
    });
}

#[test]
fn a_signal_that_the_program_handles_is_not_taken_away() {
    extern "C" fn own(_: libc::c_int) {}
    in_child("signals::a_signal_that_the_program_handles_is_not_taken_away", || {
        handle(libc::SIGURG, own);
        for error in
            [signals::join().map(drop), signals::multicast().map(drop), signals::choose(libc::SIGURG)]
        {
            assert_eq!(error, Err(SignalError::Taken { signal: libc::SIGURG }));
        }
        assert!(signals::choose(libc::SIGURG).unwrap_err().to_string().contains("signals::choose"));
        assert_eq!(signals::signal(), None);
        for signal in [libc::SIGKILL, libc::SIGSEGV, 32, libc::SIGRTMIN() + 3, 64, 65, i32::MAX] {
            assert_eq!(signals::choose(signal), Err(SignalError::Unsuitable { signal }));
        }
        for signal in [0, -1] {
            let answer = signals::choose(signal);
            assert!(matches!(answer, Err(SignalError::Refused { errno: libc::EINVAL, .. })), "{answer:?}");
        }
        signals::choose(libc::SIGUSR2).expect("the signal is free");
        assert_eq!(signals::signal(), Some(libc::SIGUSR2));
        assert_eq!(signals::choose(libc::SIGUSR1), Err(SignalError::Started { signal: libc::SIGUSR2 }));
        assert_eq!(signals::choose(libc::SIGUSR2), Ok(()));
        with_threads(3, Doing::Sleeping, || {
            assert_eq!(
                signals::multicast().unwrap().fence().expect("no thread blocks the signal").receivers,
                3
            );
            // A signal from elsewhere: the mailbox is empty.
            // SAFETY: no pointers are passed.
            assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGUSR2) }, 0);
            assert_eq!(
                signals::multicast().unwrap().fence().expect("no thread blocks the signal").receivers,
                3
            );
        });
    });
}

#[test]
fn a_handler_that_is_replaced_is_noticed() {
    extern "C" fn other(_: libc::c_int) {}
    in_child("signals::a_handler_that_is_replaced_is_noticed", || {
        let (there, flag) = (Barrier::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _member = signals::join().expect("the signal is free");
                there.wait();
                while !End(&flag).has_come() {
                    thread::sleep(Duration::from_millis(1));
                }
            });
            there.wait();
            handle(libc::SIGURG, other);
            let late = signals::multicast().unwrap().strategy(Strategy::Tree).fence();
            let text = late.expect_err("no thread answers").to_string();
            flag.store(true, Ordering::Relaxed);
            assert!(text.contains("another handler"), "{text}");
        });
    });
}

/// The thread ends in the middle, without leaving.
#[test]
fn a_thread_that_ends_with_a_forgotten_registration_is_not_waited_for() {
    in_child("signals::a_thread_that_ends_with_a_forgotten_registration_is_not_waited_for", || {
        for _ in 0..50 {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| std::mem::forget(signals::join().expect("the signal is free")));
                }
                for _ in 0..20 {
                    signals::multicast()
                        .unwrap()
                        .strategy(Strategy::Tree)
                        .fence()
                        .expect("no thread blocks the signal");
                }
            });
        }
        while signals::members() > 0 {
            thread::yield_now();
        }
        assert_eq!(signals::multicast().unwrap().fence().expect("no thread is registered").receivers, 0);
    });
}

fn block(signal: i32, how: i32) {
    // SAFETY: the set is writable, and the signal valid.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

/// Waits until the signal comes, and takes it away, for at most `limit`.
fn wait_for(signal: i32, limit: Duration) {
    let limit = libc::timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() };
    // SAFETY: the set is writable, the signal valid, and the time in range.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const limit);
    }
}

fn handle(signal: i32, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: the handler does nothing.
    assert_ne!(unsafe { libc::signal(signal, handler as libc::sighandler_t) }, libc::SIG_ERR);
}
