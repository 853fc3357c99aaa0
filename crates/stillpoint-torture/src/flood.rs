//! Floods: writers retire as fast as they can while readers keep coming and going.
//!
//! No reader stays for long, so everything must be freed at the rate at which it is retired, and the backlog must
//! never exceed its limit. A writer that finds it full must have room again within a bounded time. The objects that
//! are left at the end must be freed while readers still come and go.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::rcu::{Domain, RcuCell, RetireError, RetireHandle, Retired};

use crate::actor::{Actor, Shared, join, join_all, rest};
use crate::arena::{Context, Handle, Maker};
use crate::counts::{Count, Hold, Kind, Tally};
use crate::findings::PATIENCE;
use crate::part::{Setting, Stage, look, when_full};

const CELLS: usize = 8;
/// One writer retires to a reclaimer, the other one to a background thread.
const WRITERS: usize = 2;
/// Retirements between two looks at the stop flag.
const BURST: u32 = 64;

/// Retirements between two looks at the whole domain.
const LOOK_AT_DOMAIN: u64 = 16;

/// The times of this part: how long a retirement waited for room, and how long it took to free the backlog at the end.
const WAITS: usize = 0;
const DRAINS: usize = 1;

/// Runs for a time, and frees what is left.
pub(crate) fn run(stage: &Stage<'_>, duration: Duration, rng: &mut Rng) -> Result<Tally, String> {
    let Stage { context, cpus, .. } = *stage;
    let setting = Setting::random(stage.mode(rng), rng);
    let domain = setting.build("flood")?;
    let mut first = Maker::new(context, WRITERS);
    let cells: Vec<_> =
        (0..CELLS).filter_map(|_| first.make()).map(|first| RcuCell::new_in(&domain, *first)).collect();
    let waters = Waters { context, domain: &domain, cells: &cells, capacity: setting.capacity };
    let readers = cpus.len().max(2);
    let (writing, reading) = (Shared::new(WRITERS, cpus), Shared::new(readers, cpus));
    let (limit, batch) = (1 << rng.u32(4..11), 1 << rng.u32(0..7));
    let mut background = domain
        .reclaimer_builder()
        .max_pending(limit)
        .batch(batch)
        .when_full(when_full(rng))
        .build_background();
    let handle = background.retire_handle();
    Ok(thread::scope(|scope| {
        let runner = scope.spawn(move || background.run());
        let readers: Vec<_> = (0..readers)
            .map(|slot| {
                let actor = Actor::new(slot, Maker::none(context), rng.fork(), &reading);
                scope.spawn(move || waters.visit(actor))
            })
            .collect();
        let mut writer = |slot| Actor::new(slot, Maker::new(context, slot), rng.fork(), &writing);
        let (polling, submitting) = (writer(0), writer(1));
        let polling = scope.spawn(move || waters.retire(polling, limit, batch));
        let submitting = scope.spawn(move || waters.submit(submitting, &handle));
        rest(context, duration);
        writing.stop();
        let mut tally = join(context, polling);
        tally.merge(&join(context, submitting));
        reading.stop();
        tally.merge(&join_all(context, readers));
        join(context, runner);
        tally
    }))
}

#[derive(Clone, Copy)]
struct Waters<'f> {
    context: &'static Context,
    domain: &'f Domain,
    cells: &'f [RcuCell<Handle>],
    /// The domain's limit, if it has one.
    capacity: Option<usize>,
}

impl Waters<'_> {
    /// Reads for a moment, again and again, each time as a new reader.
    fn visit(self, mut actor: Actor<'_>) -> Tally {
        let Self { context, domain, cells, .. } = self;
        while !actor.is_stopped() {
            let cell = &cells[actor.rng.usize(0..CELLS)];
            let kind = Kind::ALL[actor.rng.usize(0..Kind::ALL.len())];
            let hold = Hold { kind, mode: domain.fence_mode() };
            look(domain, cell, kind, |object| {
                let Some(object) = object else { return };
                let Some(identity) = context.meet(object, hold, &mut actor.tally.looks) else { return };
                actor.pause();
                context.meet_again(object, identity, hold, &mut actor.tally.looks);
            });
            actor.tally.count(Count::Visits);
        }
        actor.tally
    }

    /// Unlinks one object after the other, until stopped, and hands each to `dispose`.
    fn unlink(&self, actor: &mut Actor<'_>, mut dispose: impl FnMut(Retired<Handle>)) {
        while !actor.is_stopped() {
            for _ in 0..BURST {
                let new = actor.maker.make();
                if let Some(old) = self.cells[actor.rng.usize(0..CELLS)].swap(new) {
                    dispose(old);
                }
            }
        }
    }

    fn retire(self, mut actor: Actor<'_>, limit: usize, batch: usize) -> Tally {
        let mut tally = Tally::default();
        let builder = self.domain.reclaimer_builder().batch(batch).when_full(when_full(&mut actor.rng));
        let by_bytes = actor.rng.bool();
        let builder = if by_bytes {
            builder.max_pending_bytes(limit * size_of::<Handle>())
        } else {
            builder.max_pending(limit)
        };
        let mut reclaimer = builder.build();
        self.unlink(&mut actor, |old| {
            let answer = reclaimer.retire(old);
            self.wait_for_room(&mut tally, answer, |old| reclaimer.retire_timeout(old, PATIENCE));
            tally.count(Count::Polled);
            self.look_at(&mut tally, reclaimer.pending(), limit);
            if let (Some(capacity), 0) = (self.capacity, tally.counts.of(Count::Polled) % LOOK_AT_DOMAIN) {
                self.look_at(&mut tally, self.domain.stats().pending as usize, capacity);
            }
        });
        let begun = Instant::now();
        match reclaimer.flush_timeout(PATIENCE) {
            Ok(()) => drained(&mut tally, begun),
            Err(error) => {
                self.context.find(|| format!("the backlog of a flood was not freed at its end: {error}"))
            }
        }
        tally
    }

    fn submit(self, mut actor: Actor<'_>, handle: &RetireHandle) -> Tally {
        let mut tally = Tally::default();
        self.unlink(&mut actor, |old| {
            let answer = handle.retire(old);
            self.wait_for_room(&mut tally, answer, |old| handle.retire_timeout(old, PATIENCE));
            tally.count(Count::FloodSubmitted);
        });
        let begun = Instant::now();
        while handle.pending() != 0 && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_micros(100));
        }
        match handle.pending() {
            0 => drained(&mut tally, begun),
            left => self.context.find(|| format!("{left} objects of a flood were not freed at its end")),
        }
        handle.stop();
        tally
    }

    fn wait_for_room(
        &self,
        tally: &mut Tally,
        answer: Result<(), RetireError<Handle>>,
        again: impl FnOnce(Retired<Handle>) -> Result<(), RetireError<Handle>>,
    ) {
        let Err(error) = answer else { return };
        let kind = error.kind();
        if !kind.is_full() {
            self.context.find(|| format!("a retirement was refused: {kind:?}"));
        }
        tally.count(Count::Waits);
        let begun = Instant::now();
        if let Err(error) = again(error.into_inner()) {
            let kind = error.kind();
            self.context.find(|| {
                format!(
                    "a retirement was refused ({kind:?}) for {PATIENCE:?}, although no reader stays: {:?}",
                    self.domain.stats()
                )
            });
        }
        tally.times[WAITS].add(begun.elapsed());
    }

    fn look_at(&self, tally: &mut Tally, pending: usize, limit: usize) {
        tally.fullest = tally.fullest.max(pending * 100 / limit);
        if pending > limit {
            self.context.find(|| format!("{pending} objects are pending where {limit} is the limit"));
        }
    }
}

fn drained(tally: &mut Tally, begun: Instant) {
    tally.count(Count::Drained);
    tally.times[DRAINS].add(begun.elapsed());
}
