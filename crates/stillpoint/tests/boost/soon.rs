//! A boost shortens the wait, which is its whole purpose.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::rcu::{Boost, Domain};

use super::crowd::{beside, read};

/// Readers on the crowded CPU, each inside a section whenever it is preempted.
const READERS: usize = 8;
const WAITS: u32 = 20;
/// Another program may take the booster's CPU away for as long as readers are preempted.
const TRIES: usize = 5;

/// The mean wait for a grace period; `None` without a second CPU.
fn mean_wait(domain: &Domain) -> Option<Duration> {
    let mean = Mutex::new(None);
    beside(
        domain,
        |domain, stage, _| {
            thread::scope(|scope| {
                (1..READERS).for_each(|_| _ = scope.spawn(|| read(domain, stage)));
                read(domain, stage);
            });
        },
        |domain, stage, _| {
            stage.reader();
            super::until("all readers", || domain.stats().readers == READERS);
            let begun = Instant::now();
            (0..WAITS).for_each(|_| domain.synchronize().unwrap());
            *mean.lock().unwrap() = Some(begun.elapsed() / WAITS);
        },
    );
    mean.into_inner().unwrap()
}

/// A booster can be delayed itself, for example by a reader that was preempted on its way out of a boost. Then it waits
/// as long as without boosts. So both waits are measured here, beside the same crowd.
#[test]
fn readers_that_take_turns_are_waited_for_a_fraction_of_their_turn() {
    for boost in [Boost::Realtime, Boost::Migrate] {
        let mut seen = Vec::new();
        let soon = (0..TRIES).any(|_| {
            let Some(boosting) = super::domain(boost) else { return true };
            let (Some(alone), Some(boosted)) = (mean_wait(&Domain::new()), mean_wait(&boosting)) else {
                return true;
            };
            seen.push((boosted, alone));
            boosted * 4 < alone
        });
        assert!(soon, "{boost:?}: mean waits with boost, and without: {seen:?}");
    }
}
