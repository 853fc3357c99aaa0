//! Help comes soon: that is all it is for.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::rcu::{Domain, Help};

use super::crowd::{beside, read};

/// Readers on the crowded CPU, each inside a section whenever it is preempted.
const READERS: usize = 8;
const WAITS: u32 = 20;
/// Another program may take the helper's CPU away for as long as readers are preempted.
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

/// A helper that is itself held up, by a reader which was preempted on its way out of help, for one, waits as long as one
/// that helps nobody. Both are measured here, on the same crowd.
#[test]
fn readers_that_take_turns_are_waited_for_a_fraction_of_their_turn() {
    for help in [Help::Realtime, Help::Migrate] {
        let mut seen = Vec::new();
        let soon = (0..TRIES).any(|_| {
            let Some(helping) = super::domain(help) else { return true };
            let (Some(alone), Some(helped)) = (mean_wait(&Domain::new()), mean_wait(&helping)) else {
                return true;
            };
            seen.push((helped, alone));
            helped * 4 < alone
        });
        assert!(soon, "{help:?}: mean waits with help, and without: {seen:?}");
    }
}
