//! The hash table under torture: more threads than CPUs, and every operation. [`races`] has a reader and a writer that meet
//! in one bucket, or in a growth.
//!
//! One table after the other: each grows, or is full, while readers and writers use it, and is then cleared and dropped.

mod actors;
mod races;
mod world;

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::actor::{Actor, Shared, is_over, join_all, rest};
use crate::arena::{Context, Maker};
use crate::counts::{Count, Kind, Tally};
use crate::findings::PATIENCE;
use crate::part::Stage;
use crate::table::actors::{Reading, Writing};
pub(crate) use crate::table::races::{Against, TableRace};
use crate::table::world::World;
use crate::trouble;

/// The life of one table.
const LIFE: Duration = Duration::from_millis(150);

/// One table after the other.
pub(crate) fn run(stage: &Stage<'_>, time: Duration, rng: &mut Rng) -> Result<Tally, String> {
    let (begun, mut tally) = (Instant::now(), Tally::default());
    loop {
        tally.merge(&life(stage, LIFE.min(time), rng)?);
        stage.context.audit();
        if is_over(stage.context) || begun.elapsed() + LIFE / 2 >= time {
            return Ok(tally);
        }
    }
}

/// One table, from its first entry to its last.
fn life(stage: &Stage<'_>, duration: Duration, rng: &mut Rng) -> Result<Tally, String> {
    let Stage { context, threads, cpus, .. } = *stage;
    let mut first = Maker::new(context, threads);
    let writers = threads.div_ceil(2).min(8);
    let world = World::new(context, stage.mode(rng), (threads, writers as u64), &mut first, rng)?;
    drop(first);
    let shared = Shared::new(threads, cpus);
    let mut tally = thread::scope(|scope| {
        let world = &world;
        let workers = shared.crew(scope, context, rng, move |actor| {
            if actor.slot < writers { write(world, actor) } else { read(world, actor) }
        });
        let trouble = trouble::start(scope, &shared, rng, |slot| world.sections.is_inside(slot));
        rest(context, duration);
        shared.stop();
        let mut tally = join_all(context, trouble);
        tally.merge(&join_all(context, workers));
        tally
    });
    let troubled = tally.counts.of(Count::Bursts) + tally.counts.of(Count::Parked);
    tally.counts.add_many(Count::Troubled, troubled);
    tally.count(Count::Tables);
    tally.counts.add_many(Count::Growths, world.table.stats().growths as u64);
    end(context, world);
    Ok(tally)
}

fn read(world: &World, mut actor: Actor<'_>) -> Tally {
    let present = actor.appear();
    let mut reading = Reading::new(world);
    while !actor.is_stopped() {
        reading.visit(&mut actor);
    }
    drop(present);
    actor.tally
}

fn write(world: &World, mut actor: Actor<'_>) -> Tally {
    let present = actor.appear();
    let mut writing = Writing::new(world, actor.slot as u64);
    while !actor.is_stopped() {
        writing.turn(&mut actor);
    }
    drop(present);
    writing.finish();
    actor.tally
}

/// Checks a table that no thread uses any more: its entries are right, it is empty after a clear, and nothing is pending.
fn end(context: &Context, world: World) {
    let World { domain, table, .. } = &world;
    let reader = domain.reader();
    let entries = table.within(&reader.pin()).iter().count();
    let stats = table.stats();
    if entries != table.len() || (0..64).any(|key| table.within(&reader.pin()).get(&world.key(key)).is_none())
    {
        let hold = world.hold(Kind::Guard);
        context.find(|| format!("{hold} counted {entries} entries in a table at rest, {stats:?}"));
    }
    table.clear();
    let deadline = Instant::now() + PATIENCE;
    while table.pending() != 0 && Instant::now() < deadline {
        table.poll();
    }
    if table.pending() != 0 || !table.is_empty() {
        context.find(|| format!("a table that was cleared is not empty: {:?}", table.stats()));
    }
}
