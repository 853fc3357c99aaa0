//! Readers of a table: every kind of lookup.

use std::thread;

use stillpoint::rcu::Reader;

use crate::actor::Actor;
use crate::arena::Identity;
use crate::counts::{Count, Hold, Kind};
use crate::table::world::{Content, REPLACED, RESIDENT, World};

/// The keys of a burst.
const BURST: usize = 8;
/// The entries that are checked again after an iteration.
const REMEMBERED: usize = 16;

/// One thread's reading side.
pub(super) struct Reading<'w> {
    world: &'w World,
    /// The last version of each replaced key that this thread has seen.
    seen: [u64; REPLACED as usize],
}

impl<'w> Reading<'w> {
    pub(super) fn new(world: &'w World) -> Self {
        Self { world, seen: [0; REPLACED as usize] }
    }

    /// Registers as a reader of some kind and reads for a while.
    pub(super) fn visit(&mut self, actor: &mut Actor<'_>) {
        match actor.rng.u32(0..8) {
            0..4 => self.get(actor),
            4..7 => self.pin(actor),
            _ => self.get_in(actor),
        }
    }

    /// Protected lookups.
    fn get(&mut self, actor: &mut Actor<'_>) {
        let (world, hold) = (self.world, self.world.hold(Kind::Protected));
        let mut reader = world.domain.reader();
        let mut lookup = world.table.reader(&mut reader);
        for _ in 0..actor.rng.u32(1..=256) {
            let number = world.any(&mut actor.rng);
            actor.tally.count(Count::Gets);
            let found = lookup.get(&world.key(number));
            let Some(entry) = found else {
                self.expect_absence(number, hold);
                continue;
            };
            if let Some(identity) = self.meet(actor, &entry, number, hold) {
                if actor.once_in(4) {
                    actor.pause();
                }
                world.context.meet_again(&entry.handle, identity, hold, &mut actor.tally.looks);
            }
        }
    }

    /// Lookups, bursts and iterations under a guard.
    fn pin(&mut self, actor: &mut Actor<'_>) {
        let (world, hold) = (self.world, self.world.hold(Kind::Guard));
        let mut reader = world.domain.reader();
        if actor.once_in(4) {
            return self.iterate(actor, &reader);
        }
        let mut lookup = world.table.reader(&mut reader);
        for _ in 0..actor.rng.u32(1..=16) {
            let guard = lookup.pin();
            let since = actor.begin(&world.sections);
            let numbers: [u64; BURST] = std::array::from_fn(|_| world.any(&mut actor.rng));
            let keys = numbers.map(|number| world.key(number));
            let found = if actor.rng.bool() {
                actor.tally.count(Count::GetMany);
                guard.get_many(&keys)
            } else {
                actor.tally.counts.add_many(Count::GuardGets, BURST as u64);
                std::array::from_fn(|at| guard.get(&keys[at]))
            };
            self.hold(actor, numbers.into_iter().zip(found), hold);
            actor.end(&world.sections, since);
            drop(guard);
        }
    }

    /// Iterates over all entries. Resident keys must come exactly once.
    fn iterate(&mut self, actor: &mut Actor<'_>, reader: &Reader) {
        let (world, hold) = (self.world, self.world.hold(Kind::Guard));
        let guard = reader.pin();
        let since = actor.begin(&world.sections);
        let mut times = [0; RESIDENT as usize];
        let mut remembered: Vec<(&Content, Identity)> = Vec::new();
        let view = world.table.within(&guard);
        for (key, content) in &view {
            let Some(number) = key.number() else {
                world.context.find(|| "an iteration found a key that had been freed".to_owned());
                break;
            };
            let Some(identity) = self.meet(actor, content, number, hold) else { break };
            if let Some(times) = times.get_mut(number as usize) {
                *times += 1;
            }
            if remembered.len() < REMEMBERED {
                remembered.push((content, identity));
            } else if actor.once_in(64) {
                remembered[actor.rng.usize(0..REMEMBERED)] = (content, identity);
            }
            if actor.once_in(256) {
                thread::yield_now();
            }
        }
        for (content, identity) in remembered {
            world.context.meet_again(&content.handle, identity, hold, &mut actor.tally.looks);
        }
        if let Some(number) = times.iter().position(|&times| times != 1) {
            let times = times[number];
            world.context.find(|| {
                format!("an iteration found key {number}, which was there all the time, {times} times")
            });
        }
        actor.tally.count(Count::Iterations);
        actor.end(&world.sections, since);
        drop(guard);
    }

    /// Lookups in sections between quiescent states.
    fn get_in(&mut self, actor: &mut Actor<'_>) {
        let (world, hold) = (self.world, self.world.hold(Kind::Qsbr));
        let mut reader = world.domain.qsbr_reader();
        for _ in 0..actor.rng.u32(1..=64) {
            let since = actor.begin(&world.sections);
            let numbers: [u64; BURST] = std::array::from_fn(|_| world.any(&mut actor.rng));
            let view = world.table.within(&reader);
            let found = numbers.map(|number| (number, view.get(&world.key(number))));
            actor.tally.counts.add_many(Count::QsbrGets, BURST as u64);
            self.hold(actor, found.into_iter(), hold);
            actor.end(&world.sections, since);
            reader.quiescent();
        }
    }

    /// Checks an entry that was found, twice.
    fn hold<'g>(
        &mut self,
        actor: &mut Actor<'_>,
        found: impl Iterator<Item = (u64, Option<&'g Content>)>,
        hold: Hold,
    ) {
        let mut held = [None; BURST];
        for (held, (number, content)) in held.iter_mut().zip(found) {
            match content {
                Some(content) => {
                    *held = self.meet(actor, content, number, hold).map(|identity| (content, identity))
                }
                None => self.expect_absence(number, hold),
            }
        }
        actor.pause();
        for (content, identity) in held.into_iter().flatten() {
            self.world.context.meet_again(&content.handle, identity, hold, &mut actor.tally.looks);
        }
    }

    fn meet(
        &mut self,
        actor: &mut Actor<'_>,
        content: &Content,
        number: u64,
        hold: Hold,
    ) -> Option<Identity> {
        let context = self.world.context;
        let identity = content.meet(context, number, hold, &mut actor.tally.looks)?;
        let replaced = number.checked_sub(RESIDENT).and_then(|index| self.seen.get_mut(index as usize));
        if let Some(seen) = replaced {
            let (before, now) = (*seen, content.version);
            if now < before {
                context.find(|| format!("{hold} found version {now} of key {number} after version {before}"));
            }
            *seen = now;
        }
        Some(identity)
    }

    fn expect_absence(&self, number: u64, hold: Hold) {
        if World::is_there(number) {
            self.world.miss(number, hold);
        }
    }
}
