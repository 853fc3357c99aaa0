//! Groups whose members poll.

use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use stillpoint_multicast::{Group, Member, Shape, Strategy};

use crate::{ways, End, Ending, LONG};

const MEMBERS: usize = if cfg!(miri) { 3 } else { 9 };

/// Starts `members` threads that poll, or sleep until there is a message, and calls `body` when all have joined.
fn with_members(members: usize, sleep: bool, body: impl FnOnce(&Group)) {
    let (group, there, flag) = (Group::new(), Barrier::new(members + 1), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..members {
            let (group, there, end) = (&group, &there, End(&flag));
            scope.spawn(move || {
                let member = group.join();
                there.wait();
                while !end.has_come() {
                    if sleep {
                        member.wait_timeout(Duration::from_millis(20));
                    } else {
                        member.poll();
                        thread::yield_now();
                    }
                }
            });
        }
        there.wait();
        let _ending = Ending(&flag);
        assert_eq!(group.members(), members);
        body(&group);
    });
    assert_eq!(group.members(), 0);
}

#[test]
fn every_member_runs_the_function_once_before_the_return() {
    for sleep in [false, true] {
        with_members(MEMBERS, sleep, |group| {
            for (strategy, acknowledgement, helps) in ways() {
                // Not atomic: the return orders it.
                let runs: Vec<AtomicUsize> = (0..MEMBERS).map(|_| AtomicUsize::new(0)).collect();
                let (next, threads) = (AtomicUsize::new(0), Mutex::new(HashSet::new()));
                let multicast = group.multicast().strategy(strategy).acknowledgement(acknowledgement);
                let report = multicast.helping(helps).run(|| {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    runs[number].fetch_add(1, Ordering::Relaxed);
                    threads.lock().unwrap().insert(thread::current().id());
                });
                assert_eq!((report.receivers, report.ran_here, report.adopted), (MEMBERS, false, 0));
                assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1), "{strategy:?}");
                let threads = threads.into_inner().unwrap();
                assert!(threads.len() == MEMBERS && !threads.contains(&thread::current().id()));
            }
        });
    }
}

/// Without help, the messages have exactly the shape of the plan.
#[test]
fn what_is_sent_has_the_shape_that_was_planned() {
    for members in [0, 1, 3, 7, if cfg!(miri) { 4 } else { 31 }] {
        with_members(members, true, |group| {
            for (strategy, acknowledgement, helps) in ways() {
                let multicast = group.multicast().strategy(strategy).acknowledgement(acknowledgement);
                let report = multicast.helping(helps).trace(true).run(|| {});
                let (shape, planned) = (report.shape.expect("traced"), strategy.shape(members as u32));
                assert_eq!((shape.sends, report.sends), (planned.sends, planned.sends as usize));
                if helps {
                    assert!(report.sends + report.helped <= members);
                    assert!(shape.depth <= planned.depth, "{strategy:?}");
                } else {
                    assert_eq!((shape, report.helped), (planned, 0), "{strategy:?} to {members}");
                }
            }
        });
    }
}

#[test]
fn an_empty_group_takes_no_time() {
    let group = Group::new();
    let report = group.multicast().trace(true).run(|| unreachable!("there is no member"));
    assert_eq!((report.receivers, report.sends, report.ran_here), (0, 0, false));
    assert_eq!(report.shape, Some(Shape::default()));
    assert_eq!(group.multicast().run(|| {}).shape, None, "not traced");
}

#[test]
fn a_member_that_multicasts_runs_the_function_itself() {
    let group = Group::new();
    let member = group.join();
    let runs = AtomicU32::new(0);
    let report = member.group().multicast().run(|| _ = runs.fetch_add(1, Ordering::Relaxed));
    assert!(report.ran_here && report.receivers == 0);
    assert_eq!(runs.into_inner(), 1);
}

#[test]
fn a_thread_that_joins_twice_is_one_member() {
    let group = Group::new();
    let (first, second) = (group.join(), group.join());
    assert_eq!(group.members(), 1);
    drop(first);
    assert_eq!(group.members(), 1);
    drop(second);
    assert_eq!(group.members(), 0);
}

/// All members multicast to all others at the same time, and none polls: they serve their mailboxes while they wait.
#[test]
fn members_multicast_to_each_other() {
    let rounds = if cfg!(miri) { 2 } else { 200 };
    let (group, runs) = (Group::new(), AtomicUsize::new(0));
    let (there, done) = (Barrier::new(4), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..4 {
            let (group, runs, there, done) = (&group, &runs, &there, &done);
            scope.spawn(move || {
                let member = group.join();
                there.wait();
                for round in 0..rounds {
                    let (strategy, acknowledgement, helps) = ways()[(round + number) % ways().len()];
                    let multicast = group.multicast().strategy(strategy).acknowledgement(acknowledgement);
                    let report = multicast.helping(helps).run(|| _ = runs.fetch_add(1, Ordering::Relaxed));
                    assert_eq!((report.receivers, report.ran_here), (3, true));
                }
                done.fetch_add(1, Ordering::Relaxed);
                while done.load(Ordering::Relaxed) < 4 {
                    member.poll();
                    thread::yield_now();
                }
            });
        }
    });
    assert_eq!(runs.into_inner(), 4 * 4 * rounds);
}

/// A function may multicast: all members wait for each other in the middle of a function.
#[test]
fn a_function_multicasts() {
    let (outer, inner) = (AtomicUsize::new(0), AtomicUsize::new(0));
    with_members(3, true, |group| {
        group.multicast().strategy(Strategy::Tree).run(|| {
            outer.fetch_add(1, Ordering::Relaxed);
            group.multicast().strategy(Strategy::Tree).run(|| _ = inner.fetch_add(1, Ordering::Relaxed));
        });
    });
    assert_eq!((outer.into_inner(), inner.into_inner()), (3, 9));
}

#[test]
fn a_panic_comes_back_to_the_initiator_and_to_nobody_else() {
    with_members(MEMBERS, false, |group| {
        for (strategy, acknowledgement, _) in ways() {
            let runs = AtomicUsize::new(0);
            let panicking = || {
                runs.fetch_add(1, Ordering::Relaxed);
                std::panic::resume_unwind(Box::new("the function's own"));
            };
            let multicast = group.multicast().strategy(strategy).acknowledgement(acknowledgement);
            let panic = catch_unwind(AssertUnwindSafe(|| multicast.run(panicking))).expect_err("it panics");
            assert_eq!(panic.downcast_ref(), Some(&"the function's own"));
            assert_eq!(runs.into_inner(), MEMBERS, "no member is left out");
        }
        assert_eq!(group.multicast().run(|| {}).receivers, MEMBERS, "all members are still there");
    });
}

/// The multicast owns the function until the last thread has run it, or has left.
#[test]
fn a_time_limit_names_who_does_not_poll() {
    let (group, counted) = (Group::new(), Arc::new(AtomicUsize::new(0)));
    let (joined, late, left) = (Barrier::new(2), Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let member = group.join();
            joined.wait();
            late.wait();
            assert_eq!(member.poll(), ways().len());
            drop(member);
            left.wait();
        });
        joined.wait();
        for (strategy, acknowledgement, helps) in ways() {
            let counted = Arc::clone(&counted);
            let multicast = group.multicast().strategy(strategy).acknowledgement(acknowledgement);
            let answer = multicast.helping(helps).run_timeout(Duration::from_millis(2), move || {
                counted.fetch_add(1, Ordering::Relaxed);
            });
            let error = answer.expect_err("no member polls");
            assert_eq!((error.receivers(), error.threads().len(), error.blocked().len()), (1, 1, 0));
            let text = error.to_string();
            assert!(text.contains("1 of 1") && text.contains("does not poll"), "{text}");
        }
        assert_eq!(counted.load(Ordering::Relaxed), 0);
        late.wait();
        left.wait();
        assert_eq!(counted.load(Ordering::Relaxed), ways().len(), "late, but not lost");
        // Each claim of an operation ends one that has lingered.
        for _ in ways() {
            assert!(group.multicast().run_timeout(LONG, || {}).is_ok());
        }
    });
    drop(group);
    assert_eq!(Arc::strong_count(&counted), 1, "every function has been dropped");
}

/// The last member drops the function: otherwise the function would keep the group, and the group the function.
#[test]
fn a_function_that_keeps_its_group_is_dropped_by_its_last_member() {
    let (group, there, owned) = (Group::new(), Barrier::new(2), Arc::new(()));
    thread::scope(|scope| {
        scope.spawn(|| {
            let member = group.join();
            there.wait();
            there.wait();
            assert_eq!(member.poll(), 1);
        });
        there.wait();
        let (inside, held) = (group.clone(), Arc::clone(&owned));
        let function = move || assert_eq!((inside.members(), Arc::strong_count(&held)), (1, 2));
        let late = group.multicast().run_timeout(Duration::ZERO, function);
        assert_eq!(late.expect_err("it does not poll").receivers(), 1);
        there.wait();
    });
    assert_eq!(Arc::strong_count(&owned), 1);
}

#[test]
fn a_limit_that_is_long_enough_changes_nothing() {
    with_members(MEMBERS, true, |group| {
        let counted = Arc::new(AtomicUsize::new(0));
        for limit in [LONG, Duration::MAX] {
            let counting = Arc::clone(&counted);
            let answer =
                group.multicast().run_timeout(limit, move || _ = counting.fetch_add(1, Ordering::Relaxed));
            assert_eq!(answer.expect("all members poll").receivers, MEMBERS);
        }
        assert_eq!(counted.load(Ordering::Relaxed), 2 * MEMBERS);
        assert_eq!(Arc::strong_count(&counted), 1);
    });
}

/// A registration that was forgotten ends with its thread.
#[test]
fn a_thread_that_ends_with_a_forgotten_registration_is_not_waited_for() {
    for times in 1..=3 {
        let group = Group::new();
        thread::scope(|scope| {
            scope.spawn(|| (0..times).for_each(|_| std::mem::forget(group.join())));
        });
        // A scope does not wait for the destructors of thread-local values.
        while group.members() > 0 {
            thread::yield_now();
        }
        assert_eq!(group.multicast().run(|| {}).receivers, 0);
    }
}

/// A registration that outlives its thread's record of registrations.
#[test]
fn a_registration_that_is_dropped_last_of_all_does_no_harm() {
    thread_local! {
        static LATE: RefCell<Option<Member>> = const { RefCell::new(None) };
    }
    let group = Group::new();
    for early in [true, false] {
        thread::scope(|scope| {
            scope.spawn(|| {
                let registered = early.then(|| group.join());
                // Used first, so dropped last; or the other way round.
                LATE.with(|late| *late.borrow_mut() = None);
                LATE.with(|late| *late.borrow_mut() = Some(group.join()));
                drop(registered);
            });
        });
        while group.members() > 0 {
            thread::yield_now();
        }
        assert_eq!(group.multicast().run(|| {}).receivers, 0);
    }
}

/// A registration after the thread has left for good: no multicast waits for the thread.
#[test]
fn a_registration_that_comes_too_late_has_no_mail() {
    struct Late(Group, mpsc::Sender<(usize, usize, Option<usize>)>);
    impl Drop for Late {
        fn drop(&mut self) {
            let member = self.0.join();
            let members = self.0.members();
            let waited = (members == 0).then(|| member.wait());
            self.1.send((members, member.poll(), waited)).expect("the test waits for it");
        }
    }
    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }
    let (group, (say, said)) = (Group::new(), mpsc::channel());
    thread::spawn(move || {
        // Used first, dropped last.
        LATE.with(|late| *late.borrow_mut() = Some(Late(group.clone(), say)));
        drop(group.join());
    });
    assert_eq!(said.recv_timeout(LONG), Ok((0, 0, Some(0))));
}

/// What a function may do if a thread runs it while it leaves.
#[test]
fn a_function_that_runs_while_its_thread_leaves() {
    for kind in 0..4 {
        let (group, ran) = (Group::new(), Arc::new(AtomicUsize::new(0)));
        let (joined, posted) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let member = group.join();
                joined.wait();
                posted.wait();
                drop(member);
                assert_eq!(group.members(), usize::from(kind == 2), "kind {kind}");
            });
            joined.wait();
            let (inside, counter) = (group.clone(), Arc::clone(&ran));
            let late = group.multicast().run_timeout(Duration::ZERO, move || {
                counter.fetch_add(1, Ordering::Relaxed);
                match kind {
                    0 => _ = inside.multicast().run(|| {}),
                    1 => drop(inside.join()),
                    2 => std::mem::forget(inside.join()),
                    _ => {
                        let member = inside.join();
                        inside.multicast().run(|| {});
                        member.poll();
                    }
                }
            });
            assert!(late.is_err());
            posted.wait();
        });
        assert_eq!(ran.load(Ordering::Relaxed), 1, "kind {kind}");
        // A registration that was forgotten ends with its thread.
        while group.members() > 0 {
            thread::yield_now();
        }
    }
}

/// At its thread's end, the function drops a registration that is left in another thread-local: the place is given back once.
#[test]
fn a_function_drops_a_registration_at_its_threads_end() {
    thread_local! {
        static OWN: RefCell<Option<Member>> = const { RefCell::new(None) };
    }
    let group = Group::new();
    let (joined, posted) = (Barrier::new(2), Barrier::new(2));
    let own = group.join();
    thread::scope(|scope| {
        scope.spawn(|| {
            // Made before the thread is registered, and so dropped after its registrations have ended.
            OWN.with(|own| *own.borrow_mut() = Some(group.join()));
            joined.wait();
            posted.wait();
        });
        joined.wait();
        let drops = || drop(OWN.with(|own| own.borrow_mut().take()));
        assert!(group.multicast().run_timeout(Duration::ZERO, drops).is_err());
        posted.wait();
    });
    while group.members() > 1 {
        thread::yield_now();
    }
    assert_eq!(group.members(), 1);
    assert!(group.multicast().run(|| {}).ran_here);
    drop(own);
}

/// The function drops its thread's own registration.
#[test]
fn a_function_that_lets_its_thread_leave() {
    thread_local! {
        static OWN: RefCell<Option<Member>> = const { RefCell::new(None) };
    }
    let group = Group::new();
    OWN.with(|own| *own.borrow_mut() = Some(group.join()));
    let report = group.multicast().run(|| drop(OWN.with(|own| own.borrow_mut().take())));
    assert!(report.ran_here);
    assert_eq!(group.members(), 0);
}
