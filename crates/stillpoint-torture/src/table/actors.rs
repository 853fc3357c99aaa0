//! Readers of a table, with every kind of lookup; and its writers, with every operation, on their own keys and on shared keys.

use std::thread;

use stillpoint::rcu::Reader;
use stillpoint::table::{Full, Removed};

use crate::actor::Actor;
use crate::arena::Identity;
use crate::counts::{Count, Hold, Kind};
use crate::table::world::{Content, Key, OWNED, REPLACED, RESIDENT, World};
use crate::writer::Pipe;

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

/// The most removed entries that a writer keeps for a while.
const MOST_KEPT: usize = 32;

type Gone<'w> = Removed<'w, Key, Content>;

/// One thread's writing side.
pub(super) struct Writing<'w> {
    world: &'w World,
    writer: u64,
    /// The version of each of its owned keys that is in the table.
    own: Vec<Option<u64>>,
    next_version: u64,
    /// Entries that are unlinked and not yet retired.
    kept: Vec<Gone<'w>>,
    pipe: Pipe,
}

impl<'w> Writing<'w> {
    pub(super) fn new(world: &'w World, writer: u64) -> Self {
        Self {
            world,
            writer,
            own: vec![None; OWNED as usize],
            next_version: 1,
            kept: Vec::new(),
            pipe: Pipe::default(),
        }
    }

    /// Does one random thing.
    pub(super) fn turn(&mut self, actor: &mut Actor<'_>) {
        match actor.rng.u32(0..1000) {
            0..300 => self.insert_own(actor),
            300..450 => self.remove_own(actor),
            450..550 => self.look_up_own(actor),
            550..650 => self.replace(actor),
            650..700 => self.update(actor),
            700..800 => self.insert_shared(actor),
            800..850 => self.remove_shared(actor),
            850..900 => self.get_or_insert(actor),
            900..940 => self.remove_if(actor),
            940..941 => self.retain(actor),
            941..942 => self.reserve(actor),
            942..970 => {
                self.world.table.poll();
            }
            970..990 => drop(self.kept.pop()),
            _ => actor.pause(),
        }
        self.pipe.advance(self.world.context, &self.world.domain, actor);
    }

    fn find(&self, what: impl FnOnce() -> String) {
        self.world.context.find(what);
    }

    fn version(&mut self) -> u64 {
        self.next_version += 1;
        self.next_version
    }

    /// Inserts an entry. `None` when there is no room for it.
    fn insert(&mut self, actor: &mut Actor<'_>, key: u64, version: u64) -> Option<Option<Gone<'w>>> {
        let content = Content::make(&mut actor.maker, key, version)?;
        match self.world.table.insert(self.world.key(key), content) {
            Ok(old) => {
                actor.tally.count(if old.is_some() { Count::Replaced } else { Count::Inserted });
                Some(old)
            }
            Err(full) => {
                self.expect_own(actor, full, key, version);
                None
            }
        }
    }

    /// Checks that a full table hands back the entry that it was given.
    fn expect_own(
        &self,
        actor: &mut Actor<'_>,
        Full(back, content): Full<Key, Content>,
        key: u64,
        version: u64,
    ) {
        actor.tally.count(Count::Refunded);
        if !self.world.is_limited {
            self.find(|| "a table without a maximum was full".to_owned());
        }
        if back.number() != Some(key) || content.version != version {
            self.find(|| format!("a full table handed back another entry for key {key}"));
        }
    }

    /// Notes that an entry was just unlinked.
    fn unlinked(&mut self, actor: &mut Actor<'_>, old: &Gone<'_>) {
        let Some(identity) = old.handle.identity() else {
            return self.find(|| "an entry was destroyed before it was retired".to_owned());
        };
        self.world.context.unlink(identity);
        if self.pipe.has_room() && actor.once_in(4) {
            self.pipe.enter(&self.world.domain, identity, None);
        }
    }

    /// Retires such an entry, at once or later.
    fn dispose(&mut self, actor: &mut Actor<'_>, old: Gone<'w>) {
        self.unlinked(actor, &old);
        if self.kept.len() < MOST_KEPT && actor.once_in(4) {
            self.kept.push(old);
        }
    }

    /// Checks the answer for an owned key.
    fn expect(&self, key: u64, known: Option<u64>, found: Option<u64>) {
        if found != known {
            self.find(|| format!("its only writer found {found:?} for key {key}, not {known:?}"));
        }
    }

    fn insert_own(&mut self, actor: &mut Actor<'_>) {
        let (index, version) = (actor.rng.u64(0..OWNED), self.version());
        let key = self.world.owned(self.writer, index);
        let Some(old) = self.insert(actor, key, version) else { return };
        let known = self.own[index as usize].replace(version);
        self.expect(key, known, old.as_ref().map(|old| old.version));
        old.into_iter().for_each(|old| self.dispose(actor, old));
    }

    fn remove_own(&mut self, actor: &mut Actor<'_>) {
        let index = actor.rng.u64(0..OWNED);
        let key = self.world.owned(self.writer, index);
        let old = self.world.table.remove(&self.world.key(key));
        let known = self.own[index as usize].take();
        self.expect(key, known, old.as_ref().map(|old| old.version));
        if let Some(old) = old {
            actor.tally.count(Count::Removed);
            self.dispose(actor, old);
        }
    }

    fn look_up_own(&mut self, actor: &mut Actor<'_>) {
        let mut reader = self.world.domain.reader();
        let mut lookup = self.world.table.reader(&mut reader);
        for _ in 0..8 {
            let index = actor.rng.u64(0..OWNED);
            let key = self.world.owned(self.writer, index);
            let found = lookup.get(&self.world.key(key)).map(|entry| entry.version);
            self.expect(key, self.own[index as usize], found);
            actor.tally.count(Count::Known);
        }
    }

    /// Gives a replaced key a new value.
    fn replace(&mut self, actor: &mut Actor<'_>) {
        let (key, version) = (self.world.replaced_by(self.writer, &mut actor.rng), self.version());
        match self.insert(actor, key, version) {
            Some(Some(old)) => self.dispose(actor, old),
            Some(None) => self.world.miss(key, self.world.hold(Kind::Protected)),
            None => {}
        }
    }

    /// As [`replace`](Writing::replace), by an update of the old value.
    fn update(&mut self, actor: &mut Actor<'_>) {
        let (key, version) = (self.world.replaced_by(self.writer, &mut actor.rng), self.version());
        let Some(content) = Content::make(&mut actor.maker, key, version) else { return };
        let mut new = Some(content);
        let mut reader = self.world.domain.reader();
        let mut lookup = self.world.table.reader(&mut reader);
        let answer = lookup.update(&self.world.key(key), |_| {
            new.take().expect("an update calls its function once if no other thread changes the key")
        });
        match answer {
            Ok(Some(old)) => {
                actor.tally.count(Count::Updated);
                self.unlinked(actor, &old);
            }
            Ok(None) => self.world.miss(key, self.world.hold(Kind::Protected)),
            Err(full) => self.expect_own(actor, full, key, version),
        }
    }

    fn insert_shared(&mut self, actor: &mut Actor<'_>) {
        let (key, version) = (self.world.shared(&mut actor.rng), self.version());
        if let Some(Some(old)) = self.insert(actor, key, version) {
            self.dispose(actor, old);
        }
    }

    fn remove_shared(&mut self, actor: &mut Actor<'_>) {
        let key = self.world.shared(&mut actor.rng);
        if let Some(old) = self.world.table.remove(&self.world.key(key)) {
            actor.tally.count(Count::Removed);
            self.dispose(actor, old);
        }
    }

    fn get_or_insert(&mut self, actor: &mut Actor<'_>) {
        let (key, version) = (self.world.shared(&mut actor.rng), self.version());
        let Some(content) = Content::make(&mut actor.maker, key, version) else { return };
        let (context, hold) = (self.world.context, self.world.hold(Kind::Protected));
        let mut reader = self.world.domain.reader();
        let mut lookup = self.world.table.reader(&mut reader);
        match lookup.get_or_insert_with(self.world.key(key), || content) {
            Ok((entry, _)) => {
                actor.tally.count(Count::GotOrInserted);
                let looks = &mut actor.tally.looks;
                if let Some(identity) = entry.meet(context, key, hold, looks) {
                    context.meet_again(&entry.handle, identity, hold, looks);
                }
            }
            Err(full) => self.expect_own(actor, full, key, version),
        }
    }

    fn remove_if(&mut self, actor: &mut Actor<'_>) {
        let key = self.world.shared(&mut actor.rng);
        let mut reader = self.world.domain.reader();
        let mut lookup = self.world.table.reader(&mut reader);
        let old = lookup.remove_if(&self.world.key(key), |_, content| content.version % 2 == 0);
        actor.tally.count(Count::RemovedIf);
        if let Ok(Some(old)) = old {
            if old.version % 2 != 0 {
                self.find(|| {
                    format!(
                        "version {} of key {key} was removed, although the condition was false for it",
                        old.version
                    )
                });
            }
            self.unlinked(actor, &old);
        }
    }

    /// Removes half of its own entries in one sweep.
    fn retain(&mut self, actor: &mut Actor<'_>) {
        let world = self.world;
        let first = world.owned(self.writer, 0);
        let index = |key: &Key| key.number()?.checked_sub(first).filter(|&index| index < OWNED);
        let reader = world.domain.reader();
        let guard = reader.pin();
        let since = actor.begin(&world.sections);
        let own = &mut self.own;
        let mut gone = Vec::new();
        world.table.within(&guard).retain(|key, content| {
            let Some(index) = index(key).filter(|_| content.version % 2 == 0) else { return true };
            own[index as usize] = None;
            gone.extend(content.handle.identity());
            false
        });
        actor.end(&world.sections, since);
        drop(guard);
        actor.tally.count(Count::Retained);
        actor.tally.counts.add_many(Count::Removed, gone.len() as u64);
        let left = self.own.iter().flatten().filter(|&&version| version % 2 == 0).count();
        if left != 0 {
            self.find(|| format!("a sweep left {left} entries that only its caller changes"));
        }
    }

    fn reserve(&mut self, actor: &mut Actor<'_>) {
        if self.world.table.reserve(actor.rng.usize(0..4000)).is_ok() {
            actor.tally.count(Count::Reserved);
        } else if !self.world.is_limited {
            self.find(|| "a table without a maximum has no room".to_owned());
        }
    }

    /// At the end of the thread: checks its owned keys, and retires the entries that it keeps.
    pub(super) fn finish(&mut self) {
        self.kept.clear();
        let mut reader = self.world.domain.reader();
        let mut lookup = self.world.table.reader(&mut reader);
        for (index, &known) in self.own.iter().enumerate() {
            let key = self.world.owned(self.writer, index as u64);
            self.expect(key, known, lookup.get(&self.world.key(key)).map(|entry| entry.version));
        }
    }
}
