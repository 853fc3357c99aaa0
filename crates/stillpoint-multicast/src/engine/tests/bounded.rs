//! The steps of each call, counted: they depend on the present members, and not on former ones.

use std::sync::Arc;
use std::time::Instant;

use super::super::operation::Call;
use super::super::{Core, Missing, Options};
use super::{leave, members, serve};
use crate::plan::Share;
use crate::transport::{Polled, Transport};
use crate::Strategy;
use stillpoint_sys::work::steps_of;

/// The steps of the calling thread during a call.
fn looks_of(function: impl FnOnce()) -> usize {
    steps_of(function).0
}

/// The members of a group that is or was large.
const MANY: u32 = 4000;

/// Receivers that drop no functions, as in signal handlers: who looks for an operation gives back those that are over.
struct Interrupted;

impl Transport for Interrupted {
    const CATCHES: bool = false;

    fn notify(&self, _tid: u32) {}

    fn alone<R>(&self, function: impl FnOnce() -> R) -> R {
        function()
    }
}

/// Multicasts, and gives up at once, or when `look` returns `None`.
fn run<T: Transport>(
    core: &Core<T>,
    options: Options,
    look: impl FnMut(&Missing) -> Option<Instant>,
) -> bool {
    // SAFETY: the function is a constant, and does not panic.
    unsafe { core.run_with(options, Call::resumable(&|| {}), Some(Instant::now()), look) }.missing.is_none()
}

/// The steps of joining, multicasting, counting and leaving.
fn round(core: &Core<Polled>) -> [usize; 4] {
    let mut own = None;
    [
        // SAFETY: places live as long as their group.
        looks_of(|| own = Some(unsafe { core.join().as_ref() })),
        looks_of(|| assert!(run(core, Options::default(), |_| None))),
        looks_of(|| assert_eq!(core.members(), 1)),
        looks_of(|| assert!(core.leave(own.expect("it has joined")))),
    ]
}

#[test]
fn a_group_that_was_large_is_as_quick_as_one_that_never_was() {
    let (large, small) = (&*Core::new(Polled), &*Core::new(Polled));
    let _grown = round(small);
    let before = round(small);
    let left = members(large, MANY);
    assert!(looks_of(|| _ = large.members()) > MANY as usize);
    left.iter().for_each(|member| leave(large, member));
    // Some more steps for each further chunk. The number of chunks is logarithmic in the number of places.
    let after = round(large);
    for (before, after) in before.into_iter().zip(after) {
        assert!(after <= before + 8 * 12, "{after} looks, {before} in a group that was never large");
    }
}

/// The initiator claims every range, since no receiver processes its message. Then it waits for some turns.
#[test]
fn an_initiator_that_helps_looks_at_each_receiver_some_times() {
    let split = |percent| Strategy::Split(Share::percent(percent).expect("from 1 to 99"));
    for strategy in [Strategy::Flat, Strategy::Tree, split(30), split(99)] {
        let core = &*Core::new(Polled);
        let members = members(core, MANY);
        let helped = looks_of(|| assert!(!run(core, Options { strategy, ..Options::default() }, |_| None)));
        // The walk, the ranges, the check whether all are claimed, and the missing receivers.
        assert!(helped < 8 * MANY as usize, "{strategy:?}: {helped} looks");
        assert!(members.iter().all(|member| serve(core, member) == 1));
        // While it waits, it does not check claimed ranges again.
        let mut turns = 0;
        let waited = looks_of(|| {
            run(core, Options { strategy, ..Options::default() }, |_| {
                turns += 1;
                (turns < 2).then(|| Instant::now() + std::time::Duration::from_millis(30))
            });
        });
        assert!(waited < 14 * MANY as usize, "{strategy:?}: {waited} looks");
    }
}

/// Many multicasts were under way at the same time, and are over. A fence looks for one that was given up.
#[test]
fn operations_that_are_over_are_not_looked_at() {
    let core = &*Core::new(Interrupted);
    let member = members(core, 1)[0];
    assert!((0..MANY).all(|_| !run(core, Options::default(), |_| None)));
    assert_eq!(core.operations(), MANY as usize);
    assert_eq!(serve(core, member), MANY as usize);
    leave(core, member);
    // The first search for an operation to resume gives back all of them. The receivers have not: they may be signal handlers.
    let first = looks_of(|| assert!(core.resume(None, |_| None).is_none()));
    assert!((MANY as usize..=4 * MANY as usize).contains(&first), "{first} looks");
    assert_eq!(looks_of(|| assert!(core.resume(None, |_| None).is_none())), 0);
    assert!(looks_of(|| assert!(run(core, Options::default(), |_| None))) < 100);
    assert_eq!(core.operations(), MANY as usize);
}

/// However many multicasts were given up, and although none follows.
#[test]
fn what_was_given_up_is_dropped_by_its_last_receiver() {
    let (core, owned) = (&*Core::new(Polled), Arc::new(()));
    let members = members(core, 2);
    let give_up = || {
        let inside = Arc::clone(&owned);
        let call = Call::owned(move || assert!(Arc::strong_count(&inside) > 1));
        // SAFETY: the operation owns the function.
        assert!(unsafe { core.run(Options::default(), call, Some(Instant::now())) }.missing.is_some());
    };
    (0..100).for_each(|_| give_up());
    assert_eq!((Arc::strong_count(&owned), serve(core, members[0])), (101, 100));
    assert!(
        !run(core, Options::default(), |_| None),
        "a multicast ended although its second receiver had not polled"
    );
    assert_eq!(Arc::strong_count(&owned), 101, "a function was dropped while a receiver may still run it");
    assert!(looks_of(|| assert_eq!(serve(core, members[1]), 101)) < 10 * 101);
    assert_eq!(Arc::strong_count(&owned), 1);
    members.iter().for_each(|member| leave(core, member));
    assert!(looks_of(|| assert!(run(core, Options::default(), |_| None))) < 100);
    assert_eq!(core.operations(), 101);
}

/// Each way in which an operation can end that was given up, or nearly given up.
#[test]
fn who_finds_nothing_to_resume_has_looked_at_nothing() {
    let core = &*Core::new(Interrupted);
    let member = members(core, 1)[0];
    let nothing = || looks_of(|| assert!(core.resume(None, |_| None).is_none()));
    assert_eq!(nothing(), 0);
    for _ in 0..3 {
        // All receivers are done when the initiator is about to give up.
        assert!(run(core, Options::default(), |_| {
            serve(core, member);
            None
        }));
        assert_eq!(nothing(), 0);
        // The next multicast uses the operation again.
        assert!(!run(core, Options::default(), |_| None));
        assert_eq!(serve(core, member), 1);
        assert!(run(core, Options::default(), |_| {
            serve(core, member);
            None
        }));
        assert_eq!(nothing(), 0);
        // The operation is resumed, and ends.
        assert!(!run(core, Options::default(), |_| None));
        let resumed = core.resume(Some(Instant::now()), |_| {
            serve(core, member);
            Some(Instant::now())
        });
        assert!(resumed.expect("it lingers").missing.is_none());
        assert_eq!(nothing(), 0);
        // The operation is resumed, and given up again.
        assert!(!run(core, Options::default(), |_| None));
        assert!(core.resume(Some(Instant::now()), |_| None).expect("it lingers").missing.is_some());
        assert!(looks_of(|| assert!(core.resume(Some(Instant::now()), |_| None).is_some())) > 0);
        assert_eq!(serve(core, member), 1);
        nothing();
        assert_eq!((nothing(), core.operations()), (0, 1));
    }
}
