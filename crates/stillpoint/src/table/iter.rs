use std::fmt;

use super::engine::array::Array;
use super::engine::bucket::MOVED;
use super::engine::Inner;
use super::RandomState;

/// Every entry of a table, in no order: see [`Table::iter`](super::Table::iter).
///
/// A chain of buckets is read as a whole, and again in the next array when it moves meanwhile: so an entry that is
/// there all the while is seen exactly once, also during a growth.
pub struct Iter<'g, K, V, S = RandomState> {
    inner: &'g Inner<K, V, S>,
    /// The array that was current at the beginning, and the next of its chains.
    array: &'g Array,
    chain: usize,
    /// Chains of later arrays to be looked at first, which one of `array` has moved to.
    moved: Vec<(&'g Array, usize)>,
    /// Entries of the chain that was read last.
    entries: Vec<u32>,
}

impl<'g, K, V, S> Iter<'g, K, V, S> {
    /// # Safety
    /// The caller is in a region of the table's domain during `'g`.
    pub(super) unsafe fn new(inner: &'g Inner<K, V, S>) -> Self {
        // SAFETY: the caller's promise.
        let array = unsafe { inner.view_in_region() }.array;
        Self { inner, array, chain: 0, moved: Vec::new(), entries: Vec::new() }
    }

    /// Reads the next chain; false when there is none.
    fn read_chain(&mut self) -> bool {
        let (array, index) = match self.moved.pop() {
            Some(place) => place,
            None if self.chain == self.array.len() => return false,
            None => {
                self.chain += 1;
                (self.array, self.chain - 1)
            }
        };
        for bucket in array.chain(index) {
            self.entries.extend(bucket.entries().map(|(_, entry)| entry));
            // A mover marks a bucket before it clears the first word. Not marked now, it had all its entries above;
            // the words are acquire loads, so that this one is not earlier.
            if bucket.link() == MOVED {
                self.entries.clear();
                // The region covers its buckets as it does these.
                let next = array.next().expect("a moved bucket has a next array");
                self.moved.extend((index..next.len()).step_by(array.len()).map(|target| (next, target)));
                break;
            }
        }
        true
    }

    /// The next entry.
    pub(super) fn next_entry(&mut self) -> Option<u32> {
        while self.entries.is_empty() {
            if !self.read_chain() {
                return None;
            }
        }
        self.entries.pop()
    }
}

impl<'g, K, V, S> Iterator for Iter<'g, K, V, S> {
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.next_entry()?;
        // SAFETY: it was linked in the region, which lasts during `'g`.
        let pair = unsafe { self.inner.arena().pair(entry).as_ref() };
        Some((&pair.key, &pair.value))
    }
}

impl<K, V, S> fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}
