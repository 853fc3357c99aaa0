//! Races in a table: a reader that looks the same keys up over and over, and a writer that changes them, or lets the
//! table grow, and that parks the reader now and then, wherever it is, while it goes on.

use std::ops::Add;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::Domain;

use super::content::{Content, Entries, Key, builder};
use crate::output::say;
use crate::torture::actor::{is_over, join, run_on};
use crate::torture::arena::{Context, Hold, Identity, Kind, Maker};
use crate::torture::counts::least;
use crate::torture::looks::Looks;
use crate::torture::park::Parked;
use crate::torture::part::{Part, Stage};
use crate::torture::roll::own_id;
use crate::torture::stores::Stores;

/// Keys that the reader looks up: few where the two are to meet in one bucket.
const FEW: u64 = 2;
const MANY: u64 = 64;
/// Entries after which a table has grown twice.
const ENTRIES: u64 = 4000;
/// Changes of the reader's keys for each one that only lets the table grow.
const CHANGES_IN: u32 = 4;
/// Most stores before a lookup: about what a store buffer holds.
const MOST_STORES: usize = 60;
/// Lookups between two looks at the stop flag.
const BATCH: u64 = 16;
/// Tries in a second of a race, at the least: less proves nothing.
const LEAST: f64 = 300.0;

/// What the writer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Against {
    Replace,
    Growth,
}

/// One race.
#[derive(Debug, Clone, Copy)]
struct Race {
    against: Against,
    kind: Kind,
    mode: Mode,
}

const ALL: &[Race] = &[
    race(Kind::Protected, Against::Replace, Mode::Symmetric),
    race(Kind::Protected, Against::Growth, Mode::Symmetric),
    race(Kind::Guard, Against::Growth, Mode::Asymmetric),
    race(Kind::Protected, Against::Replace, Mode::Asymmetric),
    race(Kind::Qsbr, Against::Growth, Mode::Symmetric),
    race(Kind::Protected, Against::Growth, Mode::Asymmetric),
];

const fn race(kind: Kind, against: Against, mode: Mode) -> Race {
    Race { against, kind, mode }
}

/// How often a race was run.
#[derive(Debug, Clone, Copy, Default)]
struct Runs {
    lookups: u64,
    changes: u64,
    parkings: u64,
}

impl Add for Runs {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            lookups: self.lookups + more.lookups,
            changes: self.changes + more.changes,
            parkings: self.parkings + more.parkings,
        }
    }
}

/// All of them, one after the other, and what they have done so far.
pub(in crate::torture) struct TableRaces {
    races: Vec<(Race, Runs)>,
    /// Of each.
    time: Duration,
    /// The reader's, which takes too long to make for each table.
    stores: Stores,
}

impl TableRaces {
    /// Those that these fence modes allow.
    pub(in crate::torture) fn new(modes: &[Mode]) -> Self {
        let races = ALL.iter().filter(|race| modes.contains(&race.mode));
        let races = races.map(|&race| (race, Runs::default())).collect();
        Self { races, time: Duration::ZERO, stores: Stores::new() }
    }
}

impl Part for TableRaces {
    fn share(&self) -> u32 {
        15
    }

    fn run(&mut self, stage: &Stage<'_>, time: Duration, rng: &mut Rng) -> Result<(), String> {
        let time = time.div_f64(self.races.len() as f64);
        for (race, runs) in &mut self.races {
            if is_over(stage.context) {
                break;
            }
            stage.enter(&race.title(), time);
            let begun = Instant::now();
            // A table for each growth, or for some milliseconds.
            while begun.elapsed() < time && !is_over(stage.context) {
                *runs = *runs + race.run(stage, begun + time, &mut self.stores, rng)?;
            }
            stage.context.audit();
        }
        self.time += time;
        Ok(())
    }

    fn missing(&self) -> Vec<String> {
        let least = least(LEAST, self.time);
        let few = self
            .races
            .iter()
            .filter(|(_, runs)| runs.lookups.min(runs.changes) < least || runs.parkings == 0);
        few.map(|(race, runs)| format!("races of {}: {runs:?}", race.title())).collect()
    }

    fn show(&self) {
        say("Races in tables                                    lookups       changes   parked");
        for (race, Runs { lookups, changes, parkings }) in &self.races {
            say(format!("  {:<42} {lookups:>13} {changes:>13} {parkings:>8}", race.title()));
        }
    }
}

impl Race {
    fn title(&self) -> String {
        let what = match self.against {
            Against::Replace => "replace",
            Against::Growth => "growth",
        };
        format!("table: {} against {what} ({})", self.kind.text(), self.mode)
    }

    /// One table.
    fn run(
        &self,
        stage: &Stage<'_>,
        end: Instant,
        stores: &mut Stores,
        rng: &mut Rng,
    ) -> Result<Runs, String> {
        let Stage { context, cpus, .. } = *stage;
        let domain = Domain::builder().fence(self.mode).build().map_err(|error| error.to_string())?;
        let table = builder(&domain).build().map_err(|error| error.to_string())?;
        let mut maker = Maker::new(context, 0);
        let keys = if self.against == Against::Replace { FEW } else { MANY };
        for key in 0..keys {
            let content = Content::make(&mut maker, key, 0).ok_or("too many objects are alive")?;
            table.insert(Key::new(key, context), content).map_err(|error| error.to_string())?;
        }
        let hold = Hold { kind: self.kind, mode: self.mode };
        let (thread, stop) = (AtomicU32::new(0), AtomicBool::new(false));
        let bout = Bout { context, domain: &domain, table: &table, keys, hold, thread: &thread, stop: &stop };
        let (own, others) = cpus.split_first().ok_or("no CPU is allowed")?;
        let other = *others.first().unwrap_or(own);
        Ok(thread::scope(|scope| {
            let (readers, writers) = (rng.fork(), rng.fork());
            let reader = scope.spawn(move || bout.read(*own, stores, readers));
            let writer = scope.spawn(move || bout.write(other, maker, self.against, end, writers));
            let (changes, parkings) = join(context, writer);
            // Relaxed: a flag; the thread is joined.
            stop.store(true, Ordering::Relaxed);
            Runs { lookups: join(context, reader), changes, parkings }
        }))
    }
}

/// Two threads and a table.
#[derive(Clone, Copy)]
struct Bout<'b> {
    context: &'static Context,
    domain: &'b Domain,
    table: &'b Entries,
    keys: u64,
    hold: Hold,
    /// The kernel's id of the reader.
    thread: &'b AtomicU32,
    stop: &'b AtomicBool,
}

impl Bout<'_> {
    /// Returns the number of lookups.
    fn read(self, cpu: usize, stores: &mut Stores, mut rng: Rng) -> u64 {
        // Where it is refused, the threads meet less often: the run will tell if it was too rarely.
        let _ = run_on(&[cpu]);
        // Relaxed: an id, and below a flag.
        self.thread.store(own_id(), Ordering::Relaxed);
        let keys: Vec<Key> = (0..self.keys).map(|key| Key::new(key, self.context)).collect();
        let mut seeing = Seeing { bout: self, looks: Looks::default(), versions: vec![0; keys.len()] };
        let mut lookups = 0;
        let mut reader = self.domain.reader();
        let mut qsbr = (self.hold.kind == Kind::Qsbr).then(|| self.domain.qsbr_reader());
        let mut lookup = self.table.reader(&mut reader);
        while !self.stop.load(Ordering::Relaxed) {
            let fill = if rng.bool() { 0 } else { rng.usize(0..MOST_STORES) };
            let magnitude = rng.u32(0..10);
            let again = rng.u32(0..1 << magnitude);
            for _ in 0..BATCH {
                let key = &keys[rng.usize(0..keys.len())];
                stores.fill(fill);
                match (&mut qsbr, self.hold.kind) {
                    (Some(qsbr), _) => {
                        seeing.see(key, again, self.table.get_in(qsbr, key));
                        qsbr.quiescent();
                    }
                    (None, Kind::Guard) => seeing.see(key, again, lookup.pin().get(key)),
                    (None, _) => seeing.see(key, again, lookup.get(key).as_deref()),
                }
            }
            lookups += BATCH;
        }
        lookups
    }

    /// Returns the numbers of changes and of parkings.
    fn write(self, cpu: usize, mut maker: Maker, against: Against, end: Instant, mut rng: Rng) -> (u64, u64) {
        // As above.
        let _ = run_on(&[cpu]);
        let (mut changes, mut parkings) = (0, 0);
        let mut parked = None;
        for number in 0..ENTRIES {
            if is_over(self.context) || (number % BATCH == 0 && Instant::now() > end) {
                break;
            }
            // It stays for up to all of the rest.
            if parked.is_none() && rng.u32(0..1000) == 0 {
                // Relaxed: see `read`.
                let thread = self.thread.load(Ordering::Relaxed);
                parked = (thread != 0).then(|| Parked::park(thread)).flatten();
                parkings += u64::from(parked.is_some());
            } else if parked.is_some() && rng.u32(0..1000) == 0 {
                parked = None;
            }
            let is_change = against == Against::Replace || rng.u32(0..CHANGES_IN) == 0;
            let key = if is_change { rng.u64(0..self.keys) } else { self.keys + number };
            let Some(content) = Content::make(&mut maker, key, number + 1) else { continue };
            match self.table.insert(Key::new(key, self.context), content) {
                Ok(None) if is_change => {
                    self.context.findings.add(|| format!("a writer did not find key {key}, which was there"));
                }
                // Retired, and mostly freed, when it is dropped here.
                Ok(_) => changes += 1,
                Err(_) => self.context.findings.add(|| "a table without a maximum was full".to_owned()),
            }
            if is_change && rng.bool() {
                self.table.poll();
            }
        }
        (changes, parkings)
    }
}

/// What the reader checks.
struct Seeing<'b> {
    bout: Bout<'b>,
    looks: Looks,
    /// The versions that were seen last.
    versions: Vec<u64>,
}

impl Seeing<'_> {
    /// Looks at what was found, `again` times more.
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
