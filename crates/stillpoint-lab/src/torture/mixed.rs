//! The mixed part: all readers, all writers, two domains, more threads than cores.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use stillpoint::fence::Mode;

use super::actor::{Actor, join, rest};
use super::arena::{Context, Maker};
use super::reader;
use super::tally::{Count, Tally};
use super::world::World;
use super::writer::Writer;

/// What a round of the mixed part is run with.
pub(super) struct Mixed<'p> {
    /// The fence modes of its domains.
    pub(super) worlds: [Mode; 2],
    pub(super) threads: usize,
    pub(super) cpus: &'p [usize],
}

impl Mixed<'_> {
    /// Runs one round, and checks at its end that nothing is left.
    pub(super) fn run(
        &self,
        context: &'static Context,
        duration: Duration,
        rng: &mut Rng,
    ) -> Result<Tally, String> {
        context.findings.enter("mixed");
        // Relaxed, here and below: a count, read while no other thread is there.
        let called = context.called.load(Ordering::Relaxed);
        let mut first = Maker::new(context, self.threads);
        let (mut worlds, mut backgrounds) = (Vec::new(), Vec::new());
        for mode in self.worlds {
            let (world, background) = World::new(context, mode, self.threads, &mut first, rng)?;
            worlds.push(world);
            backgrounds.push(background);
        }
        drop(first);

        let stop = AtomicBool::new(false);
        let tally = thread::scope(|scope| {
            let backgrounds: Vec<_> =
                backgrounds.into_iter().map(|mut background| scope.spawn(move || background.run())).collect();
            let workers: Vec<_> = (0..self.threads)
                .map(|slot| {
                    let maker = Maker::new(context, slot);
                    let actor = Actor::new(slot, maker, rng.fork(), &stop, self.cpus);
                    let worlds = &worlds;
                    scope.spawn(move || work(worlds, actor))
                })
                .collect();
            rest(context, duration);
            // Relaxed: a flag; the threads are joined.
            stop.store(true, Ordering::Relaxed);

            let mut tally = Tally::default();
            for worker in workers {
                tally.merge(&join(context, worker));
            }
            for world in &worlds {
                if rng.bool() { world.submitter.stop() } else { world.submitter.abandon() }
            }
            for background in backgrounds {
                join(context, background);
            }
            tally
        });

        worlds.into_iter().for_each(|world| world.close(rng.bool()));
        let called = context.called.load(Ordering::Relaxed) - called;
        if called != tally.of(Count::Deferred) {
            let deferred = tally.of(Count::Deferred);
            context.findings.add(|| format!("{deferred} callbacks were deferred, but {called} called"));
        }
        Ok(tally)
    }
}

/// Of each four threads, one writes, two read, and one starts threads that do either for a moment.
fn work(worlds: &[World], mut actor: Actor<'_>) -> Tally {
    match actor.slot % 4 {
        0 => write(worlds, &mut actor, u32::MAX),
        1 | 2 => read(worlds, &mut actor, u32::MAX),
        _ => return churn(worlds, actor),
    }
    actor.tally
}

/// Writes to all worlds in turns, `turns` times at the most.
fn write(worlds: &[World], actor: &mut Actor<'_>, turns: u32) {
    let mut writers: Vec<_> = worlds.iter().map(|world| Writer::new(world, &mut actor.rng)).collect();
    for _ in 0..turns {
        if actor.is_stopped() {
            break;
        }
        let writer = actor.rng.usize(0..writers.len());
        writers[writer].turn(actor);
    }
}

/// Reads from one world or another, now and then from two at once, `turns` times at the most.
fn read(worlds: &[World], actor: &mut Actor<'_>, turns: u32) {
    for _ in 0..turns {
        if actor.is_stopped() {
            break;
        }
        let world = actor.rng.usize(0..worlds.len());
        let other = worlds.iter().enumerate().find(|&(other, _)| other != world).map(|(_, other)| other);
        let other = other.filter(|_| actor.once_in(8));
        reader::visit(actor, &worlds[world], other);
    }
}

/// Lets threads do the work that live for some turns only.
fn churn(worlds: &[World], mut actor: Actor<'_>) -> Tally {
    thread::scope(|scope| {
        while !actor.is_stopped() {
            actor.tally.count(Count::Threads);
            let child = scope.spawn(move || {
                let turns = actor.rng.u32(1..8);
                if actor.once_in(4) {
                    write(worlds, &mut actor, 16 * turns);
                } else {
                    read(worlds, &mut actor, turns);
                }
                actor
            });
            actor = match child.join() {
                Ok(actor) => actor,
                Err(panic) => resume_unwind(panic),
            };
        }
        actor.tally
    })
}
