//! A boost shortens the wait, which is its whole purpose.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{clock_gettime, ClockId};
use stillpoint::rcu::{Boost, Domain};

use super::crowd::{beside, read};
use super::skipped;

/// Readers on the crowded CPU, each inside a section whenever it is preempted.
const READERS: usize = 8;
const WAITS: u32 = 20;
/// Another program may take the booster's CPU away for as long as readers are preempted.
const TRIES: usize = 5;
/// A try says nothing if other programs had more than this share of a CPU.
const FOREIGN: f64 = 0.1;

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

/// The CPU time of other programs, and of the host's other guests, since some moment in the past.
fn foreign() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let all = stat.lines().next().unwrap().split_whitespace().skip(1);
    // User, nice, system, idle, waiting for a disk, interrupts (two kinds), stolen. Guests are part of user.
    let busy = all.take(8).enumerate().filter(|&(field, _)| field != 3 && field != 4);
    let ticks: u64 = busy.map(|(_, ticks)| ticks.parse::<u64>().unwrap()).sum();
    let own = clock_gettime(ClockId::ProcessCPUTime);
    let own = Duration::new(own.tv_sec as u64, own.tv_nsec as u32);
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64).saturating_sub(own)
}

/// A booster can be delayed itself, for example by a reader that was preempted on its way out of a boost. Then it waits
/// as long as without boosts. So both waits are measured here, beside the same crowd.
#[test]
fn readers_that_take_turns_are_waited_for_a_fraction_of_their_turn() {
    for boost in [Boost::Realtime, Boost::Migrate] {
        let (mut seen, mut disturbed) = (Vec::new(), 0);
        let soon = (0..TRIES).any(|_| {
            let Some(boosting) = super::domain(boost) else { return true };
            let (begun, before) = (Instant::now(), foreign());
            let (Some(alone), Some(boosted)) = (mean_wait(&Domain::new()), mean_wait(&boosting)) else {
                return true;
            };
            let foreign = foreign().saturating_sub(before).as_secs_f64() / begun.elapsed().as_secs_f64();
            disturbed += usize::from(foreign > FOREIGN);
            seen.push((boosted, alone));
            boosted * 4 < alone
        });
        if !soon && disturbed == TRIES {
            skipped("other programs ran on these CPUs all the time");
            continue;
        }
        assert!(soon, "{boost:?}: mean waits with boost, and without: {seen:?}");
    }
}
