//! The list of races in tables, and their counts. [`bout`](super::bout) has the two threads.

use std::ops::Add;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::Domain;
use stillpoint_harness::output::say;

use super::bout::{Against, Bout, Slot};
use super::content::{Content, Key, builder};
use crate::actor::{is_over, join};
use crate::arena::Maker;
use crate::counts::least;
use crate::hold::{Hold, Kind};
use crate::part::{Part, Stage};
use crate::roll::Roll;
use crate::stores::Stores;

/// The number of keys that the reader looks up: few, so that the threads meet in one bucket, or many.
const FEW: u64 = 2;
const MANY: u64 = 64;
/// The least number of tries per second of a race: less proves nothing.
const LEAST: f64 = 300.0;

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

/// The counts of a race.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Runs {
    pub(super) lookups: u64,
    pub(super) changes: u64,
    pub(super) parkings: u64,
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

/// All races, which run one after the other, and their counts.
pub(crate) struct TableRaces {
    races: Vec<(Race, Runs)>,
    /// The time of each race.
    time: Duration,
    /// For the reader. Shared by the tables, because it takes long to make.
    stores: Stores,
}

impl TableRaces {
    /// The races that these fence modes allow.
    pub(crate) fn new(modes: &[Mode]) -> Self {
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
        let have_run = self.races.iter().filter(|(_, runs)| runs.lookups + runs.changes != 0);
        for (race, Runs { lookups, changes, parkings }) in have_run {
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

    /// Runs a race in one table.
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
            roll: &Roll::new(2),
            stop: &AtomicBool::new(false),
        };
        let (own, others) = cpus.split_first().ok_or("no CPU is allowed")?;
        let other = *others.first().unwrap_or(own);
        Ok(thread::scope(|scope| {
            let (readers, writers) = (rng.fork(), rng.fork());
            let reader = scope.spawn(move || bout.read(*own, stores, readers));
            let writer = scope.spawn(move || bout.write(other, maker, end, writers));
            let writer = join(context, writer);
            // Relaxed: a flag; the thread is joined.
            bout.stop.store(true, Ordering::Relaxed);
            join(context, reader) + writer
        }))
    }
}
