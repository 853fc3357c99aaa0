//! What boosters and threads may do with a boost state, one step after the other. The models cover interleavings.

use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};

use rustix::thread::sched_getaffinity;

use super::*;
use crate::rcu::{Boost, Domain};

/// Held by tests that look at the counts of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn opened() -> BoostState {
    let boost_state = BoostState::default();
    boost_state.open();
    boost_state
}

#[test]
fn one_booster_looks_at_a_time_and_not_too_soon() {
    let boost_state = opened();
    assert!(boost_state.start(10));
    assert!(!boost_state.start(10), "another booster looks");
    boost_state.abandon(20);
    assert!(!boost_state.start(19) && boost_state.start(20));
    boost_state.abandon(u64::MAX);
    boost_state.close();
    assert!(!boost_state.start(u64::MAX), "the thread has ended, or forks");
    boost_state.open();
    assert!(boost_state.start(0), "the time starts anew for the next thread");
    boost_state.abandon(0);
    boost_state.close();
}

/// Moves the calling thread, as a booster would, on behalf of this record. Returns when the boost began.
fn move_for(boost_state: &BoostState, record: usize, until: u64) -> u64 {
    let cpus = sched_getaffinity(None).expect("a thread may read its own CPU mask");
    let moved_to = (0..).find(|&cpu| cpus.is_set(cpu)).expect("the thread runs somewhere");
    // One bit after the other.
    let word = |first| (0..64).filter(|bit| cpus.is_set(first + bit)).map(|bit| 1 << bit).sum();
    let allowed = std::array::from_fn(|index| word(64 * index));
    let given = Given { record, booster: 5, begun: now(), until };
    assert!(boost_state.start(now()) && !reserve(under_way()) && reserve(u32::MAX));
    // SAFETY: this thread has started.
    let answer = unsafe { boost_state.raise(Before::Affinity { allowed, moved_to }, given, || ()) };
    assert_eq!(answer, (true, false));
    given.begun
}

#[test]
fn boost_is_counted_and_ends_once() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (boost_state, was_allowed) =
        (opened(), sched_getaffinity(None).expect("a thread may read its own CPU mask"));
    for by_itself in [false, true, false] {
        boost_state.not_before.store(0, RELAXED);
        let counts = (given(), under_way());
        let begun = move_for(&boost_state, 1, 1000);
        assert_eq!((given(), under_way()), (counts.0 + 1, counts.1 + 1));
        assert!(boost_state.is_given_by(5) && !boost_state.is_given_by(6));
        assert!(boost_state.is_overdue(1000) && !boost_state.is_overdue(999));
        assert!(!boost_state.start(u64::MAX), "it is under way");
        boost_state.end(2);
        assert!(boost_state.is_given_by(5), "for another record");
        let earliest = now();
        if by_itself {
            assert!(!boost_state.end_own(), "no booster is at work any more");
            assert!(!boost_state.end_own());
        } else {
            boost_state.end(1);
            boost_state.end(1);
        }
        assert_eq!((given(), under_way()), counts);
        assert!(!boost_state.is_given_by(5) && !boost_state.is_overdue(u64::MAX));
        assert_eq!(sched_getaffinity(None).expect("a thread may read its own CPU mask"), was_allowed);
        // A section that is boosted often is a long one: it is not inspected for five times as long as the boost lasted.
        let (latest, again) = (now(), boost_state.not_before.load(RELAXED));
        let pause = |end| end + 5 * (end - begun);
        assert!((pause(earliest)..=pause(latest)).contains(&again));
        assert!(!boost_state.start(again - 1) && boost_state.start(again));
        boost_state.abandon(0);
    }
    move_for_then_close(&boost_state);
    assert_eq!(sched_getaffinity(None).expect("a thread may read its own CPU mask"), was_allowed);
}

/// A handler that ends a section has no part of its own: if it gave the thread's part back, the boost would be counted as ended twice.
#[test]
fn a_handler_leaves_the_end_to_the_call_that_it_has_interrupted() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (boost_state, counts) = (opened(), (given(), under_way()));
    let was_allowed = sched_getaffinity(None).expect("a thread may read its own CPU mask");
    let _ = move_for(&boost_state, 1, 1000);
    assert!(boost_state.take_part(OWN, |_| true), "as the thread does in `end_own`");
    assert!(boost_state.end_own(), "the thread looks again");
    assert_eq!(boost_state.word.load(Ordering::Relaxed), OWN);
    assert_eq!(sched_getaffinity(None).expect("a thread may read its own CPU mask"), was_allowed);
    // As for a fork in a handler.
    boost_state.close();
    boost_state.open();
    assert!(!boost_state.start(u64::MAX), "the interrupted call is not over");
    assert_eq!(boost_state.finish(OWN), IDLE);
    assert_eq!((given(), under_way()), counts);
    boost_state.close();
}

fn move_for_then_close(boost_state: &BoostState) {
    boost_state.not_before.store(0, RELAXED);
    let counts = (given(), under_way());
    let _ = move_for(boost_state, 1, 1000);
    boost_state.close();
    assert_eq!((given(), under_way()), counts);
}

/// A thread keeps one boost state until it ends, however many readers it makes and drops.
#[test]
fn a_thread_has_one_boost_state_and_shares_it_with_nobody() {
    let domain = Domain::builder().boost(Boost::Migrate).build().expect("every process may move its threads");
    let boost_state_of = |domain: &Domain| {
        let reader = domain.reader();
        let boost_state = reader.record().boost_state().expect("the domain boosts");
        std::ptr::from_ref(boost_state).addr()
    };
    let own = boost_state_of(&domain);
    let threads: Vec<_> = (0..20)
        .map(|_| {
            let (domain, (told, is_told), (go_on, stays)) = (domain.clone(), channel(), channel::<()>());
            let thread = std::thread::spawn(move || {
                let first = boost_state_of(&domain);
                told.send(first).expect("it is waited for");
                let _ = stays.recv();
                assert_eq!(boost_state_of(&domain), first);
            });
            (is_told.recv().expect("it is sent"), go_on, thread)
        })
        .collect();
    let mut boost_states: Vec<_> =
        threads.iter().map(|(boost_state, ..)| *boost_state).chain([own]).collect();
    boost_states.sort_unstable();
    boost_states.dedup();
    assert_eq!((boost_states.len(), boost_state_of(&domain)), (threads.len() + 1, own));
    for (_, go_on, thread) in threads {
        drop(go_on);
        thread.join().expect("it does not panic");
    }
}

/// After a fork, the thread on either side is open to boosters again, and has its old scheduling.
#[test]
fn a_thread_that_has_forked_may_be_boosted_again() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let boost_state = own().expect("the thread does not end");
    let was_allowed = sched_getaffinity(None).expect("a thread may read its own CPU mask");
    boost_state.not_before.store(0, RELAXED);
    let _ = move_for(boost_state, 1, 1000);
    // SAFETY: the child makes system calls, and accesses only what belongs to this thread.
    let child = unsafe { libc::fork() };
    let is_as_before = sched_getaffinity(None).is_ok_and(|allowed| allowed == was_allowed);
    let is_open = boost_state.start(u64::MAX);
    if child == 0 {
        let nobody_else = given() == 0 && under_way() == 0;
        // SAFETY: no preconditions.
        unsafe { libc::_exit(i32::from(!(is_as_before && is_open && nobody_else))) };
    }
    assert!(child > 0 && is_as_before && is_open);
    boost_state.abandon(0);
    let mut status = 0;
    // SAFETY: `status` is alive for the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}
