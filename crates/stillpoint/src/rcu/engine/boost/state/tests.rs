//! What helpers and threads may do with an aid, one step after the other. Interleavings are the models'.

use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};

use rustix::thread::sched_getaffinity;

use super::*;
use crate::rcu::{Domain, Help};

/// For tests that look at the counts of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn opened() -> Aid {
    let aid = Aid::default();
    aid.open();
    aid
}

#[test]
fn one_helper_looks_at_a_time_and_not_too_soon() {
    let aid = opened();
    assert!(aid.start(10));
    assert!(!aid.start(10), "somebody looks");
    aid.abandon(20);
    assert!(!aid.start(19) && aid.start(20));
    aid.abandon(u64::MAX);
    aid.close();
    assert!(!aid.start(u64::MAX), "the thread has ended, or forks");
    aid.open();
    assert!(aid.start(0), "for the next thread the time begins anew");
    aid.abandon(0);
    aid.close();
}

/// Moves the calling thread, as a helper would, for the sake of this record. Returns when it began.
fn move_for(aid: &Aid, record: usize, until: u64) -> u64 {
    let allowed = sched_getaffinity(None).expect("it is always told");
    let moved_to = (0..).find(|&cpu| allowed.is_set(cpu)).expect("the thread runs somewhere");
    let given = Given { record, giver: 5, begun: now(), until };
    assert!(aid.start(now()));
    // SAFETY: this thread has started.
    let answer = unsafe { aid.raise(Before::Affinity { allowed, moved_to }, given, || ()) };
    assert_eq!(answer, (true, false));
    given.begun
}

#[test]
fn help_is_counted_and_ends_once() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (aid, was_allowed) = (opened(), sched_getaffinity(None).expect("it is always told"));
    for by_itself in [false, true, false] {
        aid.not_before.store(0, RELAXED);
        let counts = (given(), under_way());
        let begun = move_for(&aid, 1, 1000);
        assert_eq!((given(), under_way()), (counts.0 + 1, counts.1 + 1));
        assert!(aid.is_given_by(5) && !aid.is_given_by(6));
        assert!(aid.is_overdue(1000) && !aid.is_overdue(999));
        assert!(!aid.start(u64::MAX), "it is under way");
        aid.end(2);
        assert!(aid.is_given_by(5), "for another record");
        let earliest = now();
        if by_itself {
            assert!(!aid.end_own(), "nobody is at it any more");
            assert!(!aid.end_own());
        } else {
            aid.end(1);
            aid.end(1);
        }
        assert_eq!((given(), under_way()), counts);
        assert!(!aid.is_given_by(5) && !aid.is_overdue(u64::MAX));
        assert_eq!(sched_getaffinity(None).expect("it is always told"), was_allowed);
        // A section that is helped often is a long one: five times as long nobody looks.
        let (latest, again) = (now(), aid.not_before.load(RELAXED));
        let pause = |end| end + 5 * (end - begun);
        assert!((pause(earliest)..=pause(latest)).contains(&again));
        assert!(!aid.start(again - 1) && aid.start(again));
        aid.abandon(0);
    }
    move_for_then_close(&aid);
    assert_eq!(sched_getaffinity(None).expect("it is always told"), was_allowed);
}

fn move_for_then_close(aid: &Aid) {
    aid.not_before.store(0, RELAXED);
    let counts = (given(), under_way());
    let _ = move_for(aid, 1, 1000);
    aid.close();
    assert_eq!((given(), under_way()), counts);
}

/// However many readers a thread makes and drops, it keeps its aid to itself until it ends.
#[test]
fn a_thread_has_one_aid_and_shares_it_with_nobody() {
    let domain = Domain::builder().help(Help::Migrate).build().expect("every process may move its threads");
    let aid_of = |domain: &Domain| {
        let reader = domain.reader();
        let aid = reader.record().aid().expect("the domain helps");
        std::ptr::from_ref(aid).addr()
    };
    let own = aid_of(&domain);
    let threads: Vec<_> = (0..20)
        .map(|_| {
            let (domain, (told, is_told), (go_on, stays)) = (domain.clone(), channel(), channel::<()>());
            let thread = std::thread::spawn(move || {
                let first = aid_of(&domain);
                told.send(first).expect("it is waited for");
                let _ = stays.recv();
                assert_eq!(aid_of(&domain), first);
            });
            (is_told.recv().expect("it is sent"), go_on, thread)
        })
        .collect();
    let mut aids: Vec<_> = threads.iter().map(|(aid, ..)| *aid).chain([own]).collect();
    aids.sort_unstable();
    aids.dedup();
    assert_eq!((aids.len(), aid_of(&domain)), (threads.len() + 1, own));
    for (_, go_on, thread) in threads {
        drop(go_on);
        thread.join().expect("it does not panic");
    }
}

/// On both sides of a fork the thread is open to helpers again, and as it was.
#[test]
fn a_thread_that_has_forked_may_be_helped_again() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let aid = own().expect("the thread does not end");
    let was_allowed = sched_getaffinity(None).expect("it is always told");
    aid.not_before.store(0, RELAXED);
    let _ = move_for(aid, 1, 1000);
    // SAFETY: the child makes system calls, and touches what is this thread's own.
    let child = unsafe { libc::fork() };
    let is_as_before = sched_getaffinity(None).is_ok_and(|allowed| allowed == was_allowed);
    let is_open = aid.start(u64::MAX);
    if child == 0 {
        let nobody_else = given() == 0 && under_way() == 0;
        // SAFETY: no preconditions.
        unsafe { libc::_exit(i32::from(!(is_as_before && is_open && nobody_else))) };
    }
    assert!(child > 0 && is_as_before && is_open);
    aid.abandon(0);
    let mut status = 0;
    // SAFETY: `status` is alive for the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}
