//! A process forks while multicasts are under way: the child has only the thread that forked.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use stillpoint_multicast::signals::SignalError;
use stillpoint_multicast::{signals, Group};

use crate::child::in_child;
use crate::forked::in_fork;
use crate::{End, Ending};

#[test]
fn the_child_has_the_thread_that_forked_alone() {
    in_child("forks::the_child_has_the_thread_that_forked_alone", || {
        let (group, flag, there) = (Group::new(), AtomicBool::new(false), Barrier::new(7));
        thread::scope(|scope| {
            // Two that wait for messages, two that multicast, and two that are interrupted.
            for number in 0..6 {
                let (group, there, end) = (&group, &there, End(&flag));
                scope.spawn(move || {
                    let polled = (number < 4).then(|| group.join());
                    let interrupted = (number >= 4).then(|| signals::join().expect("the signal is free"));
                    there.wait();
                    while !end.has_come() {
                        match (&polled, number) {
                            (Some(member), 0 | 1) => _ = member.wait_timeout(Duration::from_micros(100)),
                            (Some(_), _) => {
                                _ = group.multicast().run_timeout(Duration::from_millis(1), || {})
                            }
                            (None, _) => {
                                assert!(interrupted.is_some());
                                signals::multicast().unwrap().fence().expect("no thread blocks the signal");
                            }
                        }
                    }
                });
            }
            there.wait();
            let _ending = Ending(&flag);
            let member = group.join();
            let _interrupted = signals::join().expect("the signal is free");
            for _ in 0..30 {
                member.poll();
                in_fork(|| {
                    assert_eq!((group.members(), signals::members()), (1, 1));
                    let runs = AtomicUsize::new(0);
                    let report = group.multicast().run(|| _ = runs.fetch_add(1, Ordering::Relaxed));
                    assert_eq!((report.receivers, report.ran_here, runs.into_inner()), (0, true, 1));
                    let report = signals::multicast().unwrap().fence().expect("no thread blocks the signal");
                    assert_eq!((report.receivers, report.ran_here), (0, true));
                    // New threads take part, and reach the thread that forked by its new id.
                    let joined = Barrier::new(2);
                    thread::scope(|scope| {
                        let reached = scope.spawn(|| {
                            let _another = signals::join().expect("the signal is free");
                            signals::multicast()
                                .unwrap()
                                .fence()
                                .expect("no thread blocks the signal")
                                .receivers
                        });
                        assert_eq!(reached.join().unwrap(), 1);
                        scope.spawn(|| {
                            let another = group.join();
                            joined.wait();
                            while another.wait() == 0 {}
                        });
                        joined.wait();
                        assert_eq!(group.multicast().run(|| {}).receivers, 1);
                    });
                });
            }
        });
    });
}

/// The child continues in the middle of a multicast whose receivers it does not have.
#[test]
fn a_function_that_forks_does_not_wait_in_the_child() {
    in_child("forks::a_function_that_forks_does_not_wait_in_the_child", || {
        let (group, flag, there) = (Group::new(), AtomicBool::new(false), Barrier::new(3));
        thread::scope(|scope| {
            for _ in 0..2 {
                let (group, there, end) = (&group, &there, End(&flag));
                scope.spawn(move || {
                    let member = group.join();
                    there.wait();
                    while !end.has_come() {
                        member.wait_timeout(Duration::from_millis(1));
                    }
                });
            }
            there.wait();
            let _ending = Ending(&flag);
            let _member = group.join();
            let here = thread::current().id();
            // SAFETY: no preconditions.
            let parent = unsafe { libc::getpid() };
            let child = AtomicUsize::new(0);
            group.multicast().run(|| {
                if thread::current().id() == here {
                    // SAFETY: the child returns from the multicast, starts another one, and ends.
                    let forked = unsafe { libc::fork() };
                    assert!(forked >= 0, "{}", io::Error::last_os_error());
                    child.store(forked as usize, Ordering::Relaxed);
                }
            });
            // SAFETY: no preconditions.
            if unsafe { libc::getpid() } != parent {
                let ran = group.multicast().run(|| {}).ran_here;
                // SAFETY: no preconditions. No destructor runs.
                unsafe { libc::_exit((!ran).into()) }
            }
            let mut status = 0;
            // SAFETY: `status` is alive for the call.
            let waited = unsafe { libc::waitpid(child.load(Ordering::Relaxed) as i32, &raw mut status, 0) };
            assert!(waited > 0 && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
        });
    });
}

/// A fence resumes an operation that an earlier fence has given up. In the child, that operation would never end.
#[test]
fn the_child_does_not_wait_for_what_was_given_up() {
    in_child("forks::the_child_does_not_wait_for_what_was_given_up", || {
        let (joined, flag) = (Barrier::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _member = signals::join().expect("the signal is free");
                // SAFETY: the set is writable, and the signal valid.
                unsafe {
                    let mut set = std::mem::zeroed();
                    libc::sigemptyset(&raw mut set);
                    libc::sigaddset(&raw mut set, libc::SIGURG);
                    libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
                }
                joined.wait();
                while !End(&flag).has_come() {
                    thread::sleep(Duration::from_millis(1));
                }
            });
            joined.wait();
            let _ending = Ending(&flag);
            let fence = || signals::multicast().expect("it has been started").fence();
            assert_eq!(fence().expect_err("the signal is blocked").blocked().len(), 1);
            in_fork(|| assert_eq!(fence().expect("no other thread is there").receivers, 0));
            assert_eq!(fence().expect_err("as before").blocked().len(), 1);
        });
    });
}

/// Replaces the C library's function, and counts its calls.
#[no_mangle]
extern "C" fn pthread_atfork(
    before: Option<extern "C" fn()>,
    after: Option<extern "C" fn()>,
    after_in_child: Option<extern "C" fn()>,
) -> libc::c_int {
    extern "C" {
        fn __register_atfork(
            before: Option<extern "C" fn()>,
            after: Option<extern "C" fn()>,
            after_in_child: Option<extern "C" fn()>,
            library: *const libc::c_void,
        ) -> libc::c_int;
    }
    REGISTRATIONS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: what the C library's function does, for a program that is never unloaded.
    unsafe { __register_atfork(before, after, after_in_child, std::ptr::null()) }
}

static REGISTRATIONS: AtomicUsize = AtomicUsize::new(0);

/// Handlers that are registered during a fork would miss it. A fork during the registration would leave a `Once` that never
/// ends.
#[test]
fn a_fork_finds_its_handlers_whenever_it_comes() {
    in_child("forks::a_fork_finds_its_handlers_whenever_it_comes", || {
        // A sanitizer has its own handlers.
        let before = REGISTRATIONS.load(Ordering::Relaxed);
        assert!(before > 0, "before anything is used");
        drop((Group::new(), signals::join().expect("the signal is free")));
        assert_eq!(REGISTRATIONS.load(Ordering::Relaxed), before);
    });
}

#[test]
fn a_fork_may_come_while_groups_come_and_go() {
    in_child("forks::a_fork_may_come_while_groups_come_and_go", || {
        let (group, flag) = (Group::new(), AtomicBool::new(false));
        let _member = group.join();
        thread::scope(|scope| {
            for _ in 0..2 {
                let end = End(&flag);
                scope.spawn(move || {
                    let mut groups: Vec<Group> = Vec::new();
                    while !end.has_come() {
                        groups.push(Group::new());
                        // From the middle, the end, and the beginning of the list.
                        if groups.len() > 8 {
                            groups.swap_remove(groups.len() / 2);
                            groups.pop();
                            groups.swap_remove(0);
                        }
                    }
                });
            }
            let _ending = Ending(&flag);
            for _ in 0..50 {
                in_fork(|| {
                    let another = Group::new();
                    let _member = another.join();
                    for group in [&group, &another] {
                        let report = group.multicast().run(|| {});
                        assert_eq!((report.receivers, report.ran_here, group.members()), (0, true, 1));
                    }
                });
            }
        });
    });
}

#[test]
fn threads_that_start_the_service_at_the_same_time_agree_on_the_signal() {
    in_child("forks::threads_that_start_the_service_at_the_same_time_agree_on_the_signal", || {
        // The service starts once in a process.
        for _ in 0..40 {
            in_fork(|| {
                let there = Barrier::new(8);
                let choices = [None, Some(libc::SIGUSR1), Some(libc::SIGUSR2), None];
                thread::scope(|scope| {
                    for choice in choices.into_iter().cycle().take(8) {
                        let there = &there;
                        scope.spawn(move || {
                            there.wait();
                            signals::probe().expect("the signal is free");
                            let chosen = choice.map_or_else(|| signals::join().map(drop), signals::choose);
                            let signal = signals::signal().expect("it was started");
                            let lost = Err(SignalError::Started { signal });
                            assert!(chosen == Ok(()) || choice != Some(signal) && chosen == lost);
                        });
                    }
                });
                for signal in [libc::SIGURG, libc::SIGUSR1, libc::SIGUSR2] {
                    assert_eq!(is_handled(signal), signals::signal() == Some(signal));
                }
            });
        }
    });
}

fn is_handled(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the call writes the action, and changes nothing.
    let action = unsafe {
        assert_eq!(libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()), 0);
        action.assume_init()
    };
    action.sa_sigaction != libc::SIG_DFL
}
