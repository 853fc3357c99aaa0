//! Random programs, compared with a simple model.

use std::time::Duration;

use proptest::prelude::*;
use stillpoint::rcu::limits::{RetireErrorKind, WhenFull};
use stillpoint::rcu::Domain;

use super::{retired, troubles};
use crate::census::{Census, Object};

const SIZE: usize = size_of::<Object>();

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Retires an object to one of the two reclaimers.
    Retire(usize),
    Submit,
    Drop,
    Defer,
    Poll(usize),
    /// Takes the guard, or drops it.
    Pin,
    /// Drops a reclaimer, and makes a new one.
    Replace(usize),
    Synchronize,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..2_usize).prop_map(Step::Retire),
        3 => Just(Step::Submit),
        1 => Just(Step::Drop),
        1 => Just(Step::Defer),
        2 => (0..2_usize).prop_map(Step::Poll),
        2 => Just(Step::Pin),
        1 => (0..2_usize).prop_map(Step::Replace),
        1 => Just(Step::Synchronize),
    ];
    prop::collection::vec(step, 1..60)
}

fn run(steps: &[Step], capacity: usize, when_full: WhenFull) {
    let bytes = 2 * capacity * SIZE;
    let domain =
        Domain::builder().max_pending(capacity).max_pending_bytes(bytes).build().expect("always available");
    let census = Census::default();
    let make = || domain.reclaimer_builder().fence_interval(Duration::ZERO).when_full(when_full).build();
    let mut reclaimers = [make(), make()];
    let background = domain.reclaimer_builder().when_full(when_full).build_background();
    let handle = background.retire_handle();
    let reader = domain.reader();
    let mut guard = None;
    let (mut kept, mut forced, mut handed_back) = (0, 0, 0);
    for &step in steps {
        let before = domain.stats();
        let mut answer = Ok(());
        match step {
            Step::Retire(which) => answer = reclaimers[which].retire(retired(&domain, census.object())),
            Step::Submit => answer = handle.retire(retired(&domain, census.object())),
            Step::Drop => drop(retired(&domain, census.object())),
            Step::Defer => {
                let object = census.object();
                reclaimers[0].defer(move || drop(object));
            }
            Step::Poll(which) => drop(reclaimers[which].poll()),
            Step::Pin if guard.is_some() => guard = None,
            Step::Pin => guard = Some(reader.pin()),
            Step::Replace(which) => reclaimers[which] = make(),
            Step::Synchronize => assert_eq!(domain.synchronize().is_ok(), guard.is_none()),
        }
        let stats = domain.stats();
        match answer {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), RetireErrorKind::DomainFull);
                assert!(stats.pending >= capacity as u64, "there was room: {stats:?}");
                std::mem::forget(error.into_inner());
                (kept, handed_back) = (kept + 1, handed_back + 1);
            }
        }
        let is_forced = matches!(step, Step::Drop | Step::Defer);
        if is_forced && before.pending >= capacity as u64 {
            forced += 1;
        }
        if !is_forced {
            assert!(stats.pending <= before.pending.max(capacity as u64), "{step:?}: {before:?}, {stats:?}");
        }
        if guard.is_some() {
            assert!(stats.freed == before.freed || !matches!(step, Step::Synchronize), "{step:?}");
        }
        assert_eq!(stats.beyond_limits, forced);
        assert_eq!(stats.retired - stats.freed, stats.pending, "exact, as there is no other thread");
        assert_eq!(census.alive() as u64, stats.pending + kept);
        assert_eq!(troubles(&stats)[0], handed_back);
    }
    drop((guard, reclaimers, handle, background));
    domain.synchronize().expect("nothing is in the way");
    assert_eq!((domain.stats().pending, domain.stats().pending_bytes), (0, 0));
    assert_eq!(census.alive() as u64, kept);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 300 }, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_object_has_its_room_and_is_freed_once(
        steps in steps(),
        capacity in 1..8_usize,
        when_full in prop_oneof![
            Just(WhenFull::HandBack),
            Just(WhenFull::Reclaim),
            Just(WhenFull::Wait(Duration::from_micros(1))),
        ],
    ) {
        run(&steps, capacity, when_full);
    }
}
