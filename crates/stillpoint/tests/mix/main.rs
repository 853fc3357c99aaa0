//! Everything that safe code may do, at random: guards, protected loads, QSBR readers, nested cells, limits, futures,
//! background reclaimers, tables, pools, and handles that are dropped in any order. Objects are verified at each
//! access, and counted when they are freed. AddressSanitizer and Miri, which run this test as well, see errors that the
//! counts do not.
//!
//! A seed determines a round. A round with a single thread can be repeated exactly. With several threads, each thread
//! repeats its own part. `STILLPOINT_MIX_SEED=7` runs the round with this seed, and `STILLPOINT_MIX_ROUNDS=5000` runs
//! the seeds from 1 to 5000.

#![cfg(not(stillpoint_loom))]

mod chest;
#[cfg(all(stillpoint_busted, not(miri)))]
mod controls;
mod hands;
mod session;
mod world;

#[path = "../support/census.rs"]
mod census;
#[path = "../support/modes.rs"]
mod modes;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/skip.rs"]
mod skip;

use std::io::Write;
use std::thread;

use hands::Hands;
use modes::modes;
use random::Random;
use world::World;

const ROUNDS: u64 = if cfg!(miri) { 3 } else { 30 };
/// The number of sessions of a thread in a round.
const SESSIONS: usize = if cfg!(miri) { 1 } else { 12 };

/// Names the round if the test panics.
struct Round(u64);

impl Drop for Round {
    fn drop(&mut self) {
        if thread::panicking() {
            say(&format!("STILLPOINT_MIX_SEED={} runs this round again", self.0));
        }
    }
}

/// Prints even if the test passes: a sanitizer ends the program without any output of the test.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "mix: {text}");
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: a number")))
}

#[test]
fn whatever_is_done_in_whatever_order_nothing_is_freed_too_early_or_twice_or_never() {
    let rounds = variable("STILLPOINT_MIX_ROUNDS");
    let seeds = match variable("STILLPOINT_MIX_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=rounds.unwrap_or(ROUNDS),
    };
    let modes: Vec<_> = modes().collect();
    for seed in seeds {
        if rounds.is_some() {
            say(&format!("seed {seed}"));
        }
        let _round = Round(seed);
        round(seed, modes[seed as usize % modes.len()]);
    }
    stillpoint_sys::busted::assert_reached();
}

fn round(seed: u64, mode: stillpoint::fence::Mode) {
    let mut random = Random::new(seed);
    let world = World::new(&mut random, mode);
    let census = world.census.clone();
    let threads = random.below(4);
    thread::scope(|scope| {
        let world = &world;
        let background =
            world.domain.reclaimer_builder().max_pending(1 + random.below(100)).build_background();
        let handles: Vec<_> = (0..threads + 2).map(|_| background.retire_handle()).collect();
        // If no thread runs the background reclaimer, it is soon full, or is dropped during the round.
        let running = random.below(3) > 0;
        let mut rest = Some(background);
        if running {
            let mut background = rest.take().expect("it was put there");
            scope.spawn(move || background.run());
        }
        let last = handles.last().expect("there are two at least").clone();
        let parts: Vec<_> = handles
            .into_iter()
            .take(threads + 1)
            .enumerate()
            .map(|(number, handle)| {
                move || {
                    let mut random = Random::new(seed << 8 | number as u64 | 1 << 40);
                    let mut hands = Hands::new(handle);
                    for _ in 0..SESSIONS {
                        session::any(world, &mut hands, &mut random, 0);
                    }
                }
            })
            .collect();
        let mut parts = parts.into_iter();
        let own = parts.next().expect("one at least");
        let others: Vec<_> = parts.map(|part| scope.spawn(part)).collect();
        own();
        if random.below(2) == 0 {
            drop(rest.take());
        }
        let failed = others.into_iter().filter_map(|other| other.join().err()).last();
        if random.below(2) == 0 {
            last.stop();
        } else {
            last.abandon();
        }
        drop((last, rest));
        if let Some(panic) = failed {
            std::panic::resume_unwind(panic);
        }
    });
    drop(world);
    assert_eq!(census.alive(), 0, "lost");
}
