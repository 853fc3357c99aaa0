//! One race in a table: a reader looks the same keys up over and over, and a writer changes them, or makes the table grow.
//!
//! From time to time, one of the two parks the other in a signal handler, at any instruction, and continues. So it meets windows
//! of a few instructions, and can stay in them for as long as it needs.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fastrand::Rng;
use stillpoint::rcu::Domain;

use super::content::{Content, Entries, Key};
use super::races::Runs;
use crate::actor::{is_over, run_on};
use crate::arena::{Context, Identity, Maker};
use crate::hold::{Hold, Kind};
use crate::looks::Looks;
use crate::park::Parked;
use crate::roll::Roll;
use crate::stores::Stores;

/// The entries after which a table has grown twice, including changes of the reader's keys.
const ENTRIES: u64 = 5000;
/// In a growth, one of this many insertions changes one of the reader's keys.
const CHANGES_IN: u32 = 4;
/// Most stores before a lookup: about what a store buffer holds.
const MOST_STORES: usize = 60;
/// Lookups, or insertions, between two looks at the flag or the clock.
const BATCH: u64 = 16;
/// The lookups while the writer is parked: each key several times.
const WHILE_PARKED: u32 = 300;
/// The writer parks the reader once in this many insertions.
const PARKED_IN: u32 = 1000;

/// What the writer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Against {
    Replace,
    Growth,
}

/// One of the two threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Reader = 0,
    Writer = 1,
}

/// Two threads and a table.
#[derive(Clone, Copy)]
pub(super) struct Bout<'b> {
    pub(super) context: &'static Context,
    pub(super) domain: &'b Domain,
    pub(super) table: &'b Entries,
    /// The reader looks up the keys below this number, which are always in the table.
    pub(super) keys: u64,
    pub(super) hold: Hold,
    pub(super) against: Against,
    /// The thread that the other one parks from time to time.
    pub(super) parked: Slot,
    pub(super) roll: &'b Roll,
    pub(super) stop: &'b AtomicBool,
}

impl Bout<'_> {
    /// The body of the reader. Returns its counts.
    pub(super) fn read(self, cpu: usize, stores: &mut Stores, mut rng: Rng) -> Runs {
        // If it is refused, the threads meet less often. The counts show if that is too rarely.
        let _ = run_on(&[cpu]);
        let keys: Vec<Key> = (0..self.keys).map(|key| Key::new(key, self.context)).collect();
        let mut seeing = Seeing { bout: self, looks: Looks::default(), versions: vec![0; keys.len()] };
        let mut runs = Runs::default();
        let mut reader = self.domain.reader();
        let mut qsbr = (self.hold.kind == Kind::Qsbr).then(|| self.domain.qsbr_reader());
        let mut lookup = self.table.reader(&mut reader);
        let present = self.roll.enter(Slot::Reader as usize);
        let mut look_up = |key: &Key, again| match (&mut qsbr, self.hold.kind) {
            (Some(qsbr), _) => {
                seeing.see(key, again, self.table.within(qsbr).get(key));
                qsbr.quiescent();
            }
            (None, Kind::Guard) => seeing.see(key, again, lookup.pin().get(key)),
            (None, _) => seeing.see(key, again, lookup.get(key).as_deref()),
        };
        // Relaxed: a flag; the thread is joined.
        while !self.stop.load(Ordering::Relaxed) {
            // Many lookups meet a growth; slow lookups meet a missing fence.
            let is_quick = self.against == Against::Growth && rng.u32(0..4) != 0;
            let fill = if is_quick || rng.bool() { 0 } else { rng.usize(0..MOST_STORES) };
            let magnitude = if is_quick { 0 } else { rng.u32(0..10) };
            for _ in 0..BATCH {
                stores.fill(fill);
                look_up(&keys[rng.usize(0..keys.len())], rng.u32(0..1 << magnitude));
            }
            runs.lookups += BATCH;
            if self.parked == Slot::Writer
                && rng.u32(0..16) == 0
                && let Some(_parked) = self.park(Slot::Writer)
            {
                (0..WHILE_PARKED).for_each(|_| look_up(&keys[rng.usize(0..keys.len())], 0));
                runs.parkings += 1;
            }
        }
        drop(present);
        runs
    }

    fn park(&self, slot: Slot) -> Option<Parked> {
        self.roll.thread_of(slot as usize).and_then(Parked::park)
    }

    /// The body of the writer, until the table has grown twice. Returns its counts.
    pub(super) fn write(self, cpu: usize, mut maker: Maker, end: Instant, mut rng: Rng) -> Runs {
        // If it is refused: see `read`.
        let _ = run_on(&[cpu]);
        let present = self.roll.enter(Slot::Writer as usize);
        let mut runs = Runs::default();
        let mut parked: Option<Parked> = None;
        for number in 0..ENTRIES {
            if number % BATCH == 0 && (is_over(self.context) || Instant::now() > end) {
                break;
            }
            if self.parked == Slot::Reader {
                let is_moment = match (&parked, self.against) {
                    (_, Against::Replace) => rng.u32(0..PARKED_IN) == 0,
                    // During a growth, and afterwards, until the table grows once more.
                    (None, Against::Growth) => {
                        number % BATCH == 0 && rng.u32(0..4) == 0 && self.table.stats().growing
                    }
                    (Some(_), Against::Growth) => false,
                };
                if is_moment {
                    parked = if parked.is_none() { self.park(Slot::Reader) } else { None };
                    runs.parkings += u64::from(parked.is_some());
                }
            }
            if parked.is_some() && number % BATCH == 0 {
                scribble(&mut rng);
            }
            runs.changes += u64::from(self.change(&mut maker, number, &mut rng));
        }
        drop((parked, present));
        runs
    }

    /// Changes one entry, or inserts one.
    fn change(&self, maker: &mut Maker, number: u64, rng: &mut Rng) -> bool {
        let is_change = self.against == Against::Replace || rng.u32(0..CHANGES_IN) == 0;
        let key = if is_change { rng.u64(0..self.keys) } else { self.keys + number };
        let Some(content) = Content::make(maker, key, number + 1) else { return false };
        match self.table.insert(Key::new(key, self.context), content) {
            Ok(None) if is_change => {
                self.context.findings.add(|| format!("a writer did not find key {key}, which was there"));
            }
            // The drop retires the old entry, and mostly frees it.
            Ok(old) => drop(old),
            Err(_) => self.context.findings.add(|| "a table without a maximum was full".to_owned()),
        }
        if is_change && rng.bool() {
            self.table.poll();
        }
        true
    }
}

/// Allocates and overwrites memory that may just have been freed: an array of buckets, which then looks empty.
fn scribble(rng: &mut Rng) {
    let size = 1_usize << rng.u32(14..17);
    drop(black_box(vec![0_u8; size]));
}

/// The checks of the reader.
struct Seeing<'b> {
    bout: Bout<'b>,
    looks: Looks,
    /// The last version of each key that the reader has seen.
    versions: Vec<u64>,
}

impl Seeing<'_> {
    /// Checks an entry that was found, and again `again` times.
    #[inline]
    fn see(&mut self, key: &Key, again: u32, found: Option<&Content>) {
        let Bout { context, hold, table, .. } = self.bout;
        let number = key.number().unwrap_or_default();
        let Some(content) = found else {
            context.findings.add(|| {
                format!("{hold} did not find key {number}, which is always there: {:?}", table.stats())
            });
            return;
        };
        let Some(identity): Option<Identity> = content.meet(context, number, hold, &mut self.looks) else {
            return;
        };
        let (before, now) = (&mut self.versions[number as usize], content.version);
        if now < *before {
            context.findings.add(|| format!("{hold} found version {now} of key {number} after {before}"));
        }
        *before = now;
        for _ in 0..again {
            if !content.meet_again(context, identity, hold, &mut self.looks) {
                break;
            }
        }
    }
}
