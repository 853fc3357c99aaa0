//! One table, its keys, and the state that its threads share.
//!
//! Each kind of key has its own promise:
//!
//! - *Resident* keys are in the table from the beginning, and never change: each lookup finds them, each iteration exactly once.
//! - *Replaced* keys are in the table all the time, and one writer gives them one value after the other: each lookup finds a
//!   value, and never an older one than before.
//! - *Owned* keys are inserted and removed only by one writer, which knows at any time what it must find.
//! - *Shared* keys are inserted and removed by all writers.

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::Domain;

use super::content::{Content, Entries, Key, builder};
use crate::arena::{Context, Maker};
use crate::counts::events;
use crate::hold::{Hold, Kind};
use crate::section::Sections;
use crate::setting::Setting;

pub(super) const RESIDENT: u64 = 32;
pub(super) const REPLACED: u64 = 32;
/// The owned keys of each writer.
pub(super) const OWNED: u64 = 1024;
const SHARED: u64 = 2048;
/// The maximum of a limited table: a number of entries that the writers reach.
const MAXIMUM: usize = 1500;

events! {
    /// The events of tables.
    Event {
        Tables = "tables made and ended", 2;
        Growths = "growths", 1;
        Gets = "protected lookups", 1000;
        GuardGets = "lookups under a guard", 500;
        Bursts = "bursts of lookups", 50;
        QsbrGets = "lookups in a QSBR section", 200;
        Iterations = "iterations", 1;
        Inserted = "entries inserted", 1000;
        Replaced = "entries replaced", 200;
        Removed = "entries removed", 500;
        GotOrInserted = "entries got or inserted", 50;
        Updated = "entries updated", 20;
        RemovedIf = "conditional removals", 50;
        Retained = "sweeps by a condition", 0.5;
        Reserved = "reservations", 0.5;
        Full = "entries handed back by a full table", 0.1;
        Known = "lookups of what a writer knows", 200;
        Troubled = "threads parked or preempted by the hog", 5;
    }
}

pub(super) struct World {
    pub(super) context: &'static Context,
    pub(super) domain: Domain,
    pub(super) table: Entries,
    pub(super) sections: Sections,
    pub(super) writers: u64,
    /// Whether the table can be full.
    pub(super) is_limited: bool,
}

impl World {
    pub(super) fn new(
        context: &'static Context,
        mode: Mode,
        (slots, writers): (usize, u64),
        maker: &mut Maker,
        rng: &mut Rng,
    ) -> Result<Self, String> {
        let domain = Setting::unlimited(mode, rng).build("tables")?;
        let is_limited = rng.u32(0..4) == 0;
        let builder = builder(&domain);
        let builder =
            if is_limited { builder.max_len(MAXIMUM) } else { builder.capacity(rng.usize(0..2000)) };
        let table = builder.build().map_err(|error| error.to_string())?;
        for key in 0..RESIDENT + REPLACED {
            let content = Content::make(maker, key, 0).ok_or("too many objects are alive")?;
            table.insert(Key::new(key, context), content).map_err(|error| error.to_string())?;
        }
        Ok(Self { context, domain, table, sections: Sections::new(slots), writers, is_limited })
    }

    pub(super) fn hold(&self, kind: Kind) -> Hold {
        Hold { kind, mode: self.domain.fence_mode() }
    }

    pub(super) fn key(&self, number: u64) -> Key {
        Key::new(number, self.context)
    }

    /// A replaced key of this writer.
    pub(super) fn replaced_by(&self, writer: u64, rng: &mut Rng) -> u64 {
        let number = (REPLACED - writer).div_ceil(self.writers);
        RESIDENT + writer + self.writers * rng.u64(0..number)
    }

    /// The keys of one writer.
    pub(super) fn owned(&self, writer: u64, index: u64) -> u64 {
        RESIDENT + REPLACED + SHARED + writer * OWNED + index
    }

    pub(super) fn shared(&self, rng: &mut Rng) -> u64 {
        RESIDENT + REPLACED + rng.u64(0..SHARED)
    }

    /// A random key, mostly one that is in the table.
    pub(super) fn any(&self, rng: &mut Rng) -> u64 {
        match rng.u32(0..4) {
            0 => rng.u64(0..RESIDENT),
            1 => RESIDENT + rng.u64(0..REPLACED),
            2 => self.shared(rng),
            _ => self.owned(rng.u64(0..self.writers), rng.u64(0..OWNED)),
        }
    }

    /// Whether the key is in the table all the time.
    pub(super) fn is_there(key: u64) -> bool {
        key < RESIDENT + REPLACED
    }

    pub(super) fn miss(&self, key: u64, hold: Hold) {
        self.context.findings.add(|| {
            format!("{hold} did not find key {key}, which was there all the time: {:?}", self.table.stats())
        });
    }
}
