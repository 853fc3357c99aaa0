//! Multicasts whose initiator gives up.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use super::super::operation::Call;
use super::super::{Core, Missing, Options};
use super::{beside_a_member, members, serve, LONG};
use crate::transport::{Polled, Transport};
use crate::Strategy;

#[test]
fn one_operation_at_most_is_left_behind_by_who_resumes() {
    let core = &*Core::new(Polled);
    beside_a_member(core, |poll| {
        let runs = Arc::new(AtomicUsize::new(0));
        let mut looks = 0;
        for round in 0..10 {
            let mut look = |missing: &Missing| {
                assert_eq!((missing.receivers, missing.threads.len()), (1, 1));
                looks += 1;
                // The initiator waits once more, without success.
                (looks % 2 == 1).then(Instant::now)
            };
            let resumed = core.resume(Some(Instant::now()), &mut look);
            assert_eq!(resumed.is_some(), round > 0);
            let outcome = resumed.unwrap_or_else(|| {
                let runs = Arc::clone(&runs);
                let call = Call::owned(move || _ = runs.fetch_add(1, Ordering::Relaxed));
                let call = Call { is_resumable: true, ..call };
                // SAFETY: the operation owns the function, which does not panic.
                unsafe { core.run_with(Options::default(), call, Some(Instant::now()), look) }
            });
            assert!(outcome.missing.is_some());
            assert_eq!(core.operations(), 1, "round {round}");
        }
        assert_eq!((runs.load(Ordering::Relaxed), Arc::strong_count(&runs)), (0, 2));
        poll();
        // There is nothing to wait for: the function ran, and was dropped by the member.
        assert!(core.resume(None, |_| None).is_none());
        assert_eq!((runs.load(Ordering::Relaxed), Arc::strong_count(&runs)), (1, 1));
        let call = Call::owned(|| {});
        // SAFETY: the operation owns the function, which does not panic.
        unsafe { core.run(Options::default(), call, Some(Instant::now())) };
        assert_eq!(core.operations(), 1);
    });
}

/// A function of the program may have left its thread for good, without an acknowledgement. No fence waits for that.
#[test]
fn what_may_never_end_is_resumed_by_nobody() {
    let core = &*Core::new(Polled);
    beside_a_member(core, |poll| {
        let runs = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&runs);
        let call = Call::owned(move || _ = counting.fetch_add(1, Ordering::Relaxed));
        // SAFETY: the operation owns the function, which does not panic.
        let outcome = unsafe { core.run(Options::default(), call, Some(Instant::now())) };
        assert!(outcome.missing.is_some());
        assert!(core.resume(Some(Instant::now()), |_| None).is_none());
        poll();
        assert_eq!((runs.load(Ordering::Relaxed), Arc::strong_count(&runs)), (1, 1));
    });
}

/// The member panics between the initiator's last look and its giving up.
#[test]
fn a_panic_at_the_last_moment_is_not_lost() {
    let core = &*Core::new(Polled);
    beside_a_member(core, |poll| {
        let call = Call::owned(|| std::panic::resume_unwind(Box::new("late")));
        let look = |_: &Missing| {
            poll();
            None
        };
        // SAFETY: the operation owns the function; its panics are caught.
        let outcome = unsafe { core.run_with(Options::default(), call, Some(Instant::now()), look) };
        assert!(outcome.missing.is_none());
        assert_eq!(outcome.panic.expect("it was caught").downcast_ref(), Some(&"late"));
    });
}

/// One member panics in time, and another one does not process its message.
#[test]
fn a_panic_in_time_is_not_lost_for_one_who_is_late() {
    let core = &*Core::new(Polled);
    beside_a_member(core, |poll| {
        beside_a_member(core, |_| {
            let call = Call::owned(|| std::panic::resume_unwind(Box::new("in time")));
            let mut looks = 0;
            let look = |missing: &Missing| {
                looks += 1;
                if looks == 1 {
                    poll();
                    return Some(Instant::now() + Duration::from_millis(1));
                }
                assert_eq!(missing.threads.len(), 1);
                None
            };
            let options = Options { strategy: Strategy::Flat, ..Options::default() };
            // SAFETY: the operation owns the function; its panics are caught.
            let outcome = unsafe { core.run_with(options, call, Some(Instant::now()), look) };
            assert!(outcome.missing.is_some());
            assert_eq!(outcome.panic.expect("it was caught").downcast_ref(), Some(&"in time"));
        });
    });
}

/// The first of several panics is kept.
#[test]
fn the_first_panic_is_the_initiators() {
    let core = &*Core::new(Polled);
    let (members, calls) = (members(core, 3), AtomicUsize::new(0));
    let call = Call::owned(move || {
        std::panic::resume_unwind(Box::new(calls.fetch_add(1, Ordering::Relaxed)));
    });
    let look = |_: &Missing| {
        members.iter().for_each(|member| _ = serve(core, member));
        Some(Instant::now())
    };
    // SAFETY: the operation owns the function; its panics are caught.
    let outcome = unsafe { core.run_with(Options::default(), call, Some(Instant::now()), look) };
    assert_eq!(outcome.panic.expect("it was caught").downcast_ref(), Some(&0usize));
}

/// The usual case of a fence: nothing to resume.
#[test]
fn to_find_nothing_to_resume_costs_nothing() {
    #[derive(Default)]
    struct Counting(AtomicUsize);
    impl Transport for Counting {
        const CATCHES: bool = true;

        fn notify(&self, _tid: u32) {}

        fn alone<R>(&self, function: impl FnOnce() -> R) -> R {
            self.0.fetch_add(1, Ordering::Relaxed);
            function()
        }
    }
    let core = &*Core::new(Counting::default());
    // SAFETY: places live as long as their group.
    let own = unsafe { core.join().as_ref() };
    assert!(core.resume(None, |_| None).is_none());
    assert_eq!(
        core.transport.0.load(Ordering::Relaxed),
        0,
        "the signal was blocked and unblocked, although there was nothing to resume"
    );
    core.leave(own);
}

/// One of three members does not forward to another member, as it has to, and that other member leaves.
#[test]
fn who_was_never_told_is_not_missing() {
    let core = &*Core::new(Polled);
    let members = members(core, 3);
    let options = Options { strategy: Strategy::Tree, helps: false, ..Options::default() };
    let call = Call::resumable(&|| {});
    // SAFETY: the function is a constant, and does not panic.
    let outcome = unsafe { core.run(options, call, Some(Instant::now())) };
    let missing = outcome.missing.expect("no receiver has begun").threads;
    let told = members.iter().filter(|member| !member.mailbox.is_empty()).map(|member| member.tid());
    let told: Vec<u32> = told.collect();
    assert_eq!((missing.len(), told.len()), (2, 2), "{missing:?}, {told:?}");
    assert!(missing.iter().all(|thread| told.contains(thread)));
    // The member without a message leaves, and another thread gets its place.
    let untold = members.iter().find(|member| member.mailbox.is_empty()).expect("one of three");
    let tid = untold.tid();
    untold.mailbox.close();
    core.slots.release(untold);
    for is_taken in [false, true] {
        let look = |missing: &Missing| {
            assert!(missing.threads.iter().all(|thread| told.contains(thread)), "{missing:?}");
            None
        };
        assert!(core.resume(Some(Instant::now()), look).is_some(), "{is_taken}");
        if !is_taken {
            assert!(
                std::ptr::eq(core.slots.claim(tid, 9), *untold),
                "the next thread did not get the place that was released"
            );
        }
    }
}

/// A place has no thread any more, but its message is not acknowledged yet.
#[test]
fn who_is_just_leaving_has_no_name() {
    let core = &*Core::new(Polled);
    let member = members(core, 1)[0];
    let mut looks = 0;
    let look = |missing: &Missing| {
        looks += 1;
        assert_eq!(missing.threads, [1][..2 - looks]);
        (looks == 1).then(|| {
            core.slots.release(member);
            Instant::now()
        })
    };
    // SAFETY: the operation owns the function.
    let outcome =
        unsafe { core.run_with(Options::default(), Call::owned(|| {}), Some(Instant::now()), look) };
    assert_eq!(outcome.missing.expect("no receiver has begun").receivers, 1);
    assert_eq!(serve(core, member), 1);
}

/// A panic after the initiator has given up is discarded: neither the next user of the operation nor the group gets it.
#[test]
fn a_panic_that_comes_too_late_reaches_nobody() {
    struct Panics(Arc<()>);
    impl Drop for Panics {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(Arc::clone(&self.0)));
        }
    }
    let core = &*Core::new(Polled);
    let member = members(core, 1)[0];
    let payload = Arc::new(());
    for round in 0..3 {
        let (panics, inside) = (Panics(Arc::clone(&payload)), Arc::clone(&payload));
        let call = Call::owned(move || {
            let _owned = &panics;
            std::panic::resume_unwind(Box::new(Arc::clone(&inside)));
        });
        // SAFETY: the operation owns the function; its panics are caught.
        let outcome = unsafe { core.run(Options::default(), call, Some(Instant::now())) };
        assert!(outcome.missing.is_some() && outcome.panic.is_none(), "round {round}");
        assert_eq!(serve(core, member), 1);
        assert_eq!(Arc::strong_count(&payload), 1, "a panic that came too late was kept");
        let look = |_: &Missing| {
            serve(core, member);
            None
        };
        // SAFETY: the function needs nothing.
        let outcome =
            unsafe { core.run_with(Options::default(), Call::owned(|| {}), Some(Instant::now()), look) };
        assert!(outcome.missing.is_none() && outcome.panic.is_none(), "round {round}");
        assert_eq!((Arc::strong_count(&payload), core.operations()), (1, 1));
    }
}

/// A thread that waits in another initiator's place sleeps on the bell of that initiator. It must still process its
/// own messages.
#[test]
fn who_resumes_serves_its_own_mailbox() {
    let core = &*Core::new(Polled);
    // This member does not process its message before the end.
    let late = members(core, 1)[0];
    let call = Call::resumable(&|| {});
    // SAFETY: the function needs nothing.
    assert!(unsafe { core.run(Options::default(), call, Some(Instant::now())) }.missing.is_some());
    let (told, ran) = mpsc::channel();
    thread::scope(|scope| {
        let (joined, has_joined) = mpsc::channel();
        scope.spawn(move || {
            // SAFETY: places live as long as their group.
            let own = unsafe { core.join().as_ref() };
            joined.send(thread::current().id()).expect("the test waits for it");
            assert!(core.resume(None, |_| None).expect("it lingers").missing.is_none());
            core.leave(own);
        });
        let resumer = has_joined.recv().expect("it joins");
        // When it sleeps, and again when it has slept for longer.
        for pause in [Duration::from_millis(20), Duration::from_millis(50)] {
            thread::sleep(pause);
            let told = std::sync::Mutex::new(told.clone());
            let call = Call::owned(move || told.lock().unwrap().send(thread::current().id()).expect("alive"));
            // SAFETY: the operation owns the function.
            unsafe { core.run(Options { helps: false, ..Options::default() }, call, Some(Instant::now())) };
        }
        let answers = [ran.recv_timeout(LONG), ran.recv_timeout(LONG)];
        // Lets it continue in any case.
        serve(core, late);
        assert_eq!(answers, [Ok(resumer), Ok(resumer)]);
    });
}

/// The initiator of the next multicast drops the function: the receiver has acknowledged, and has not come to that.
#[test]
fn who_joins_when_it_drops_a_function_does_not_wait_for_itself() {
    struct Joins(Arc<Core<Polled>>);
    impl Drop for Joins {
        fn drop(&mut self) {
            self.0.join();
        }
    }
    let core = Core::new(Polled);
    let member = members(&core, 1)[0];
    let joins = Joins(Arc::clone(&core));
    let call = Call::owned(move || _ = &joins);
    // SAFETY: the operation owns the function, which does not panic.
    assert!(unsafe { core.run(Options::default(), call, Some(Instant::now())) }.missing.is_some());
    member.mailbox.close();
    let node = member.mailbox.next().expect("it was sent a message");
    // SAFETY: its part is not acknowledged.
    let operation = unsafe { node.as_ref().operation() };
    // AcqRel: the member's acknowledgement.
    operation.root().pending().fetch_sub(1, Ordering::AcqRel);
    // SAFETY: the function needs nothing.
    let outcome = unsafe { core.run(Options::default(), Call::owned(|| {}), Some(Instant::now())) };
    assert!(outcome.missing.is_none(), "the initiator has sent a message to itself");
    assert_eq!((outcome.tally.ran_here, core.members(), Arc::strong_count(&core)), (true, 1, 1));
}
