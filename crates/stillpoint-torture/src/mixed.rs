//! The mixed part: all readers, all writers, two domains, more threads than cores.

use std::panic::resume_unwind;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use stillpoint_harness::gate::{FailOnPanic, Gate};

use crate::actor::{Actor, Shared, join, join_all, rest};
use crate::arena::Maker;
use crate::counts::{Count, Tally};
use crate::part::{Setting, Stage, World};
use crate::writer::Writer;
use crate::{reader, trouble};

/// Runs one round, and checks at the end that nothing is left.
pub(crate) fn run(stage: &Stage<'_>, duration: Duration, rng: &mut Rng) -> Result<Tally, String> {
    let Stage { context, threads, .. } = *stage;
    // Relaxed, here and below: a count, read while there is no other thread.
    let called = context.called.load(Ordering::Relaxed);
    let mut first = Maker::new(context, threads);
    let (mut worlds, mut backgrounds) = (Vec::new(), Vec::new());
    let mut modes = stage.modes.to_vec();
    rng.shuffle(&mut modes);
    for mode in [modes[0], modes[modes.len() - 1]] {
        let setting = Setting::random(mode, rng);
        let (world, background) = World::new(context, &setting, threads, &mut first, rng)?;
        worlds.push(world);
        backgrounds.push(background);
    }
    drop(first);

    // At the gate, the threads still exist, but no longer do anything.
    let (shared, gate) = (Shared::new(threads, stage.cpus), Gate::default());
    let mut tally = thread::scope(|scope| {
        let backgrounds: Vec<_> =
            backgrounds.into_iter().map(|mut background| scope.spawn(move || background.run())).collect();
        let (worlds, gate) = (&worlds, &gate);
        let workers = shared.crew(scope, context, rng, move |actor| {
            let _failing = FailOnPanic(gate);
            let tally = work(worlds, actor);
            gate.pass();
            tally
        });
        let is_inside = |slot| worlds.iter().any(|world| world.sections.is_inside(slot));
        let trouble = trouble::start(scope, &shared, rng, is_inside);
        rest(context, duration);
        shared.stop();

        let mut tally = join_all(context, trouble);
        // A thread that panicked is a finding. The others may still be at work then.
        if gate.gathered(threads) {
            tally.counts.add_many(Count::Standing, stage.ordinary.check_all(context.findings));
        }
        gate.open();
        tally.merge(&join_all(context, workers));
        for world in worlds {
            if rng.bool() { world.handle.stop() } else { world.handle.abandon() }
        }
        for background in backgrounds {
            join(context, background);
        }
        tally
    });

    for World { domain, reports, .. } in &worlds {
        let stats = domain.stats();
        let counts = &mut tally.counts;
        counts.add_many(Count::Boosted, stats.boosted);
        counts.add_many(Count::HandedBack, stats.handed_back);
        counts.add_many(Count::WaitedForRoom, stats.waits);
        counts.add_many(Count::Assisted, stats.reclaims_by_retirers);
        counts.add_many(Count::Reports, reports.load(Ordering::Relaxed));
    }
    worlds.into_iter().for_each(|world| world.close(rng.bool()));
    let called = context.called.load(Ordering::Relaxed) - called;
    let deferred = tally.counts.of(Count::Deferred);
    if called != deferred {
        context.find(|| format!("{deferred} callbacks were deferred, but {called} called"));
    }
    Ok(tally)
}

/// Of every four threads, one writes, two read, and one starts threads that write or read for a moment.
pub(crate) fn work(worlds: &[World], mut actor: Actor<'_>) -> Tally {
    if actor.slot % 4 == 3 {
        return churn(worlds, actor);
    }
    let present = actor.appear();
    match actor.slot % 4 {
        0 => write(worlds, &mut actor, u32::MAX),
        _ => read(worlds, &mut actor, u32::MAX),
    }
    drop(present);
    actor.settle();
    actor.tally
}

/// Writes to all worlds in turn, at most `turns` times.
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

/// Reads from one world at a time, sometimes from two at once, at most `turns` times.
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

/// Starts threads that work for only some turns.
fn churn(worlds: &[World], mut actor: Actor<'_>) -> Tally {
    thread::scope(|scope| {
        while !actor.is_stopped() {
            actor.tally.count(Count::Threads);
            let child = scope.spawn(move || {
                let _present = actor.appear();
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
