//! The entries of the tables of a run: keys that detect a comparison after they were freed, and values that are
//! objects of the arena.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use stillpoint::rcu::Domain;
use stillpoint::table::{Table, TableBuilder};

use crate::arena::{Context, Handle, Identity, Maker};
use crate::hold::Hold;
use crate::looks::Looks;

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
                context.findings.add(|| format!("key {number} was compared with one that had been freed"));
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
    handle: Handle,
    key: u64,
    pub(super) version: u64,
}

impl Content {
    /// `None` when too many objects are alive.
    pub(super) fn make(maker: &mut Maker, key: u64, version: u64) -> Option<Self> {
        maker.make().map(|handle| Self { handle: *handle, key, version })
    }

    /// The identity of the object, unless the memory no longer holds one.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.handle.identity()
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
            context.findings.add(|| format!("{hold} found the entry of key {} for key {key}", self.key));
            return None;
        }
        Some(identity)
    }

    /// Checks the entry again.
    #[inline]
    pub(super) fn meet_again(
        &self,
        context: &Context,
        known: Identity,
        hold: Hold,
        looks: &mut Looks,
    ) -> bool {
        context.meet_again(&self.handle, known, hold, looks)
    }
}

/// A table of this domain.
pub(super) fn builder(domain: &Domain) -> TableBuilder<Key, Content> {
    Table::builder_in(domain)
}
