//! One race in a table: a reader looks the same keys up over and over, and a writer changes them, or makes the table grow.
//!
//! From time to time, one of the two parks the other in a signal handler, at any instruction, and continues. So it meets windows
//! of a few instructions, and can stay in them for as long as it needs.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::Domain;
use stillpoint::table::Table;
use stillpoint_harness::machine::cpus::run_on;

use crate::actor::{Shared, Stores, is_over, join};
use crate::arena::{Context, Maker};
use crate::counts::{Hold, Kind, Looks, Runs};
use crate::part::plain;
use crate::table::world::{Content, Entries, Key, fill};
use crate::trouble::Parked;

/// The number of keys that the reader looks up: few, so that the threads meet in one bucket, or many.
const FEW: u64 = 2;
const MANY: u64 = 64;
/// One race.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableRace {
    pub(crate) against: Against,
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
}

impl TableRace {
    pub(crate) fn title(&self) -> String {
        let what = match self.against {
            Against::Replace => "replace",
            Against::Growth => "growth",
        };
        format!("table: {} against {what} ({})", self.kind.text(), self.mode)
    }

    /// Runs a race in one table after the other: each has a growth, or some milliseconds.
    pub(crate) fn run(
        &self,
        context: &'static Context,
        cpus: &[usize],
        time: Duration,
        stores: &mut Stores,
        rng: &mut Rng,
    ) -> Result<Runs, String> {
        let (end, mut runs) = (Instant::now() + time, Runs::default());
        while Instant::now() < end && !is_over(context) {
            runs = runs + self.in_one(context, cpus, end, stores, rng)?;
        }
        Ok(runs)
    }

    /// Runs a race in one table.
    fn in_one(
        &self,
        context: &'static Context,
        cpus: &[usize],
        end: Instant,
        stores: &mut Stores,
        rng: &mut Rng,
    ) -> Result<Runs, String> {
        let domain = plain(self.mode)?;
        let table = Table::builder_in(&domain).build().map_err(|error| error.to_string())?;
        let mut maker = Maker::new(context, 0);
        let keys = if self.against == Against::Replace { FEW } else { MANY };
        fill(&table, keys, context, &mut maker)?;
        // Only one of the two parks the other: otherwise they would park each other for ever.
        let parked = if self.against == Against::Growth && rng.bool() { Slot::Writer } else { Slot::Reader };
        let bout = Bout {
            context,
            domain: &domain,
            table: &table,
            keys,
            hold: Hold { kind: self.kind, mode: self.mode },
            against: self.against,
            parked,
            shared: &Shared::new(2, cpus),
        };
        let (own, others) = cpus.split_first().ok_or("no CPU is allowed")?;
        let other = *others.first().unwrap_or(own);
        Ok(thread::scope(|scope| {
            let (readers, writers) = (rng.fork(), rng.fork());
            let reader = scope.spawn(move || bout.read(*own, stores, readers));
            let writer = scope.spawn(move || bout.write(other, maker, end, writers));
            let writer = join(context, writer);
            bout.shared.stop();
            join(context, reader) + writer
        }))
    }
}

/// The entries after which a table has grown three times, including changes of the reader's keys.
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
pub(crate) enum Against {
    Replace,
    Growth,
}

/// One of the two threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Reader = 0,
    Writer = 1,
}

/// Two threads and a table.
#[derive(Clone, Copy)]
struct Bout<'b> {
    context: &'static Context,
    domain: &'b Domain,
    table: &'b Entries,
    /// The reader looks up the keys below this number, which are always in the table.
    keys: u64,
    hold: Hold,
    against: Against,
    /// The thread that the other one parks from time to time.
    parked: Slot,
    shared: &'b Shared<'b>,
}

impl Bout<'_> {
    /// The body of the reader. Returns its counts.
    fn read(self, cpu: usize, stores: &mut Stores, mut rng: Rng) -> Runs {
        // If it is refused, the threads meet less often. The counts show if that is too rarely.
        let _ = run_on(&[cpu]);
        let keys: Vec<Key> = (0..self.keys).map(|key| Key::new(key, self.context)).collect();
        let mut seeing = Seeing { bout: self, looks: Looks::default(), versions: vec![0; keys.len()] };
        let mut runs = Runs::default();
        let mut reader = self.domain.reader();
        let mut qsbr = (self.hold.kind == Kind::Qsbr).then(|| self.domain.qsbr_reader());
        let mut lookup = self.table.reader(&mut reader);
        let present = self.shared.roll.enter(Slot::Reader as usize);
        let mut look_up = |key: &Key, again| match (&mut qsbr, self.hold.kind) {
            (Some(qsbr), _) => {
                seeing.see(key, again, self.table.within(qsbr).get(key));
                qsbr.quiescent();
            }
            (None, Kind::Guard) => seeing.see(key, again, lookup.pin().get(key)),
            (None, _) => seeing.see(key, again, lookup.get(key).as_deref()),
        };
        while !self.shared.is_stopped() {
            // Many lookups meet a growth; slow lookups meet a missing fence.
            let is_quick = self.against == Against::Growth && rng.u32(0..4) != 0;
            let fill = if is_quick || rng.bool() { 0 } else { rng.usize(0..MOST_STORES) };
            let magnitude = if is_quick { 0 } else { rng.u32(0..10) };
            for _ in 0..BATCH {
                stores.fill(fill);
                look_up(&keys[rng.usize(0..keys.len())], rng.u32(0..1 << magnitude));
            }
            runs.tries += BATCH;
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
        self.shared.roll.thread_of(slot as usize).and_then(Parked::park)
    }

    /// The body of the writer, until the table has grown twice. Returns its counts.
    fn write(self, cpu: usize, mut maker: Maker, end: Instant, mut rng: Rng) -> Runs {
        // If it is refused: see `read`.
        let _ = run_on(&[cpu]);
        let present = self.shared.roll.enter(Slot::Writer as usize);
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
            runs.over += u64::from(self.change(&mut maker, number, &mut rng));
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
                self.context.find(|| format!("a writer did not find key {key}, which was there"));
            }
            // The drop retires the old entry, and mostly frees it.
            Ok(old) => drop(old),
            Err(_) => self.context.find(|| "a table without a maximum was full".to_owned()),
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
            context.find(|| {
                format!("{hold} did not find key {number}, which is always there: {:?}", table.stats())
            });
            return;
        };
        let Some(identity) = content.meet(context, number, hold, &mut self.looks) else {
            return;
        };
        let (before, now) = (&mut self.versions[number as usize], content.version);
        if now < *before {
            context.find(|| format!("{hold} found version {now} of key {number} after {before}"));
        }
        *before = now;
        for _ in 0..again {
            if !context.meet_again(&content.handle, identity, hold, &mut self.looks) {
                break;
            }
        }
    }
}
