//! crossbeam's own structures: a queue of blocks of 31 values, and a skip list.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::SegQueue;
use crossbeam_skiplist::SkipMap;

use super::{Ordered, OrderedThread, PushPop, PushPopThread, value_of};

/// crossbeam's `SegQueue`. It uses no scheme of reclamation: the last thread that leaves a block frees it.
#[derive(Default)]
pub(super) struct Seg(SegQueue<u64>);

impl PushPop for Seg {
    fn thread(&self) -> Box<dyn PushPopThread + '_> {
        Box::new(SegThread(&self.0))
    }
}

struct SegThread<'s>(&'s SegQueue<u64>);

impl PushPopThread for SegThread<'_> {
    #[inline(always)]
    fn push(&mut self, value: u64) {
        self.0.push(value);
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<u64> {
        self.0.pop()
    }
}

/// crossbeam's `SkipMap`, over crossbeam-epoch's collector of the process. Its insertion does not return whether the key was there;
/// the value of the entry shows that.
#[derive(Default)]
pub(super) struct Skip {
    map: SkipMap<u64, (u64, u64)>,
    threads: AtomicU64,
}

impl Drop for Skip {
    /// Empties the collector of the process, so that its garbage does not count for the next structure.
    fn drop(&mut self) {
        self.map.clear();
        (0..1024).for_each(|_| crossbeam_epoch::pin().flush());
    }
}

impl Ordered for Skip {
    /// Not exact: with two threads, there were more entries than the reported insertions minus the reported removals.
    fn is_exact(&self) -> bool {
        false
    }

    fn thread(&self) -> Box<dyn OrderedThread + '_> {
        // Relaxed: the number only has to be unique.
        Box::new(SkipThread { map: &self.map, serial: self.threads.fetch_add(1, Ordering::Relaxed) << 40 })
    }
}

struct SkipThread<'s> {
    map: &'s SkipMap<u64, (u64, u64)>,
    /// The serial number of the last insertion, which is the value of its entry.
    serial: u64,
}

impl OrderedThread for SkipThread<'_> {
    #[inline(always)]
    fn get(&mut self, key: u64) -> Option<u64> {
        self.map.get(&key).map(|entry| entry.value().0)
    }

    #[inline(always)]
    fn insert(&mut self, key: u64) -> bool {
        self.serial += 1;
        self.map.get_or_insert(key, (value_of(key), self.serial)).value().1 == self.serial
    }

    #[inline(always)]
    fn remove(&mut self, key: u64) -> bool {
        self.map.remove(&key).is_some()
    }

    /// Keeps the thread pinned until the lookup ends. `meanwhile` stands for a preemption inside the map's call, where the thread is pinned.
    /// The entry that the call returns would hold only one node, by its reference count.
    fn inside(&mut self, key: u64, meanwhile: &mut dyn FnMut()) -> bool {
        let _guard = crossbeam_epoch::pin();
        let entry = self.map.get(&key);
        meanwhile();
        entry.is_some()
    }
}
