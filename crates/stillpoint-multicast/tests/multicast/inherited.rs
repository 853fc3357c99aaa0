//! A thread that was ended behind the C library's back, and another that gets its id: no destructor has run, so its registrations
//! are still there.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use stillpoint_multicast::{signals, Group};

use crate::child::in_child;
use crate::skip::skipped;
use crate::LONG;

const LAST_ID: &str = "/proc/sys/kernel/ns_last_pid";

fn id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }.unsigned_abs()
}

fn is_gone(id: u32) -> bool {
    // SAFETY: no pointers are passed, and nothing is sent.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, 0) };
    answer != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Starts a thread that calls `register`, and ends without leaving. Returns its id.
fn end_without_a_word(register: impl FnOnce() + Send + 'static) -> u32 {
    let ended = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&ended);
    thread::spawn(move || {
        register();
        told.store(id(), Ordering::Release);
        crate::end_without_a_word();
    });
    loop {
        let id = ended.load(Ordering::Acquire);
        if id != 0 && is_gone(id) {
            return id;
        }
        thread::yield_now();
    }
}

/// Runs `body` on a new thread with this id. Other processes also start threads, and may get the id first.
fn with_id<R: Send>(wanted: u32, body: impl Fn() -> R + Sync) -> R {
    let begun = Instant::now();
    loop {
        std::fs::write(LAST_ID, (wanted - 1).to_string()).expect("it was probed");
        let answer = thread::scope(|scope| scope.spawn(|| (id() == wanted).then(&body)).join());
        if let Some(answer) = answer.expect("it does not panic") {
            return answer;
        }
        assert!(begun.elapsed() < LONG, "no thread got the id {wanted}");
    }
}

/// Whether this process can set the next thread id; prints a note if not.
fn can_ask_for_ids() -> bool {
    let can = std::fs::read(LAST_ID).and_then(|last| std::fs::write(LAST_ID, last));
    can.inspect_err(|error| skipped(&format!("{LAST_ID}: {error}: ids cannot be asked for"))).is_ok()
}

#[test]
fn a_thread_that_inherits_an_id_is_interrupted_itself() {
    if !can_ask_for_ids() {
        return;
    }
    in_child("inherited::a_thread_that_inherits_an_id_is_interrupted_itself", || {
        // SAFETY: no pointers are passed. The signal ends a process that hangs.
        unsafe { libc::alarm(2 * LONG.as_secs() as u32) };
        for registrations in 1..=3 {
            let ended = end_without_a_word(move || {
                (0..registrations).for_each(|_| {
                    std::mem::forget(signals::join().expect("the signal is free"));
                });
            });
            assert_eq!(signals::members(), 1);
            let fence = || signals::multicast().unwrap().fence();
            assert_eq!(fence().expect_err("it is gone").threads(), [ended]);
            with_id(ended, || {
                let member = signals::join().expect("the signal is free");
                assert_eq!(signals::members(), 1, "the one before is gone");
                let runs = AtomicUsize::new(0);
                thread::scope(|scope| {
                    let initiator = scope.spawn(|| {
                        for _ in 0..100 {
                            assert_eq!(fence().expect("no thread blocks the signal").receivers, 1);
                            let multicast = signals::multicast().unwrap();
                            let count = || _ = runs.fetch_add(usize::from(id() == ended), Ordering::Relaxed);
                            // SAFETY: an atomic addition, and a system call, may be done anywhere.
                            unsafe { multicast.run(count) };
                        }
                    });
                    while !initiator.is_finished() {
                        thread::sleep(Duration::from_millis(1));
                    }
                    initiator.join().expect("it is reached");
                });
                assert_eq!(runs.into_inner(), 100, "each of them once, and on this very thread");
                drop(member);
                assert_eq!(signals::members(), 0, "and leaves when it says so");
            });
            assert_eq!(fence().expect("no thread is registered").receivers, 0);
        }
    });
}

/// A thread that has not joined has the id, and answers in place of the one that has ended.
#[test]
fn a_thread_that_inherits_an_id_and_does_not_join_answers_for_the_one_before() {
    if !can_ask_for_ids() {
        return;
    }
    in_child("inherited::a_thread_that_inherits_an_id_and_does_not_join_answers_for_the_one_before", || {
        let ended = end_without_a_word(|| {
            std::mem::forget(signals::join().expect("the signal is free"));
        });
        with_id(ended, || {
            thread::scope(|scope| {
                let initiator = scope.spawn(|| signals::multicast().unwrap().fence());
                while !initiator.is_finished() {
                    thread::sleep(Duration::from_millis(1));
                }
                assert!(initiator.join().expect("it does not panic").is_ok());
            });
        });
    });
}

#[test]
fn a_thread_that_inherits_an_id_is_a_member_as_long_as_it_says() {
    if !can_ask_for_ids() {
        return;
    }
    in_child("inherited::a_thread_that_inherits_an_id_is_a_member_as_long_as_it_says", || {
        let group = Group::new();
        let inside = group.clone();
        let ended = end_without_a_word(move || std::mem::forget((inside.join(), inside.join())));
        let counter = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&counter);
        let late = group
            .multicast()
            .run_timeout(Duration::ZERO, move || _ = counting.fetch_add(1, Ordering::Relaxed));
        assert_eq!(late.expect_err("it is gone").threads(), [ended]);
        with_id(ended, || {
            let member = group.join();
            assert_eq!(counter.load(Ordering::Relaxed), 1, "what was sent before is done with");
            let report = member.group().multicast().run(|| {});
            assert_eq!((report.receivers, report.ran_here, group.members()), (0, true, 1));
            drop(member);
            assert_eq!((group.members(), group.multicast().run(|| {}).receivers), (0, 0));
        });
    });
}
