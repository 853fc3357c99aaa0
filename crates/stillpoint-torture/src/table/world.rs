//! One table, its entries, and the state that its threads share. Keys detect a comparison after they were freed, and values
//! are objects of the arena.
//!
//! Each kind of key has its own promise:
//!
//! - *Resident* keys are in the table from the beginning, and never change: each lookup finds them, each iteration exactly once.
//! - *Replaced* keys are in the table all the time, and one writer gives them one value after the other: each lookup finds a
//!   value, and never an older one than before.
//! - *Owned* keys are inserted and removed only by one writer, which knows at any time what it must find.
//! - *Shared* keys are inserted and removed by all writers.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::Domain;
use stillpoint::table::Table;

use crate::actor::Sections;
use crate::arena::{Context, Handle, Identity, Maker};
use crate::counts::{Hold, Kind, Looks};
use crate::part::Setting;

/// Relates a key to its seal, so that freed memory does not match.
const SEAL: u64 = 0x5ea1_ed4b_57a9_0f10;
const POISON: u64 = 0xdead_dead_dead_dead;

// Relaxed throughout: as for the records of the arena.
const RELAXED: Ordering = Ordering::Relaxed;

pub(super) type Entries = Table<Key, Content>;

/// A key. A comparison with it after it was freed is a finding.
#[derive(Debug)]
pub(super) struct Key {
    number: AtomicU64,
    seal: AtomicU64,
    context: &'static Context,
}

impl Key {
    pub(super) fn new(number: u64, context: &'static Context) -> Self {
        Self { number: AtomicU64::new(number), seal: AtomicU64::new(number ^ SEAL), context }
    }

    /// The key's number, unless the memory no longer holds a key.
    pub(super) fn number(&self) -> Option<u64> {
        let number = self.number.load(RELAXED);
        (number ^ SEAL == self.seal.load(RELAXED)).then_some(number)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        match (self.number(), other.number()) {
            (Some(own), Some(others)) => own == others,
            (None, None) => false,
            // The key that is still alive is the one that was looked up.
            (Some(number), None) | (None, Some(number)) => {
                let context = if self.number().is_some() { self.context } else { other.context };
                context.find(|| format!("key {number} was compared with one that had been freed"));
                false
            }
        }
    }
}

impl Eq for Key {}

impl Clone for Key {
    fn clone(&self) -> Self {
        Self::new(self.number.load(RELAXED), self.context)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.number.load(RELAXED));
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.seal.store(POISON, RELAXED);
    }
}

/// A value: an object, its key, and the number of earlier values of the key.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) handle: Handle,
    key: u64,
    pub(super) version: u64,
}

impl Content {
    /// `None` when too many objects are alive.
    pub(super) fn make(maker: &mut Maker, key: u64, version: u64) -> Option<Self> {
        maker.make().map(|handle| Self { handle: *handle, key, version })
    }

    /// Checks the entry that was found for a key, for the first time.
    #[inline]
    pub(super) fn meet(
        &self,
        context: &Context,
        key: u64,
        hold: Hold,
        looks: &mut Looks,
    ) -> Option<Identity> {
        let identity = context.meet(&self.handle, hold, looks)?;
        if self.key != key {
            context.find(|| format!("{hold} found the entry of key {} for key {key}", self.key));
            return None;
        }
        Some(identity)
    }
}

/// Inserts the first version of the keys below a number.
pub(super) fn fill(
    table: &Entries,
    keys: u64,
    context: &'static Context,
    maker: &mut Maker,
) -> Result<(), String> {
    (0..keys).try_for_each(|key| {
        let content = Content::make(maker, key, 0).ok_or("too many objects are alive")?;
        table.insert(Key::new(key, context), content).map(drop).map_err(|error| error.to_string())
    })
}

pub(super) const RESIDENT: u64 = 32;
pub(super) const REPLACED: u64 = 32;
/// The owned keys of each writer.
pub(super) const OWNED: u64 = 1024;
const SHARED: u64 = 2048;
/// The maximum of a limited table: a number of entries that the writers reach.
const MAXIMUM: usize = 1500;

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
        let builder = Table::builder_in(&domain);
        let builder =
            if is_limited { builder.max_len(MAXIMUM) } else { builder.capacity(rng.usize(0..2000)) };
        let table = builder.build().map_err(|error| error.to_string())?;
        fill(&table, RESIDENT + REPLACED, context, maker)?;
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
        self.context.find(|| {
            format!("{hold} did not find key {key}, which was there all the time: {:?}", self.table.stats())
        });
    }
}
