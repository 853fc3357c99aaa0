use std::fmt;

use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use super::busted::{self, Variant};
use super::engine::array::Array;
use super::engine::bucket::MOVED;
use super::engine::sole::Cursor;
use super::engine::Inner;
use super::table::Table;
use super::RandomState;

/// Every entry of a table, in no order: see [`TableGuard::iter`](super::TableGuard::iter).
///
/// A chain of buckets is read as a whole, and again in the next array when it moves meanwhile: so an entry that is
/// there from beginning to end is seen exactly once, even while the table grows or shrinks.
pub struct Iter<'g, K, V, S = RandomState> {
    inner: &'g Inner<K, V, S>,
    /// The array that was current at the beginning, and the next of its chains.
    array: &'g Array,
    chain: usize,
    /// Chains of later arrays to be looked at first, which one of `array` has moved to.
    moved: Vec<Chain<'g>>,
    /// Entries of the chain that was read last.
    entries: Vec<u32>,
    /// [`hash_of`], for chains that several others have moved to. Its types are erased, so that this type stays covariant in the
    /// hasher.
    hash: unsafe fn(*const (), u32) -> u64,
}

/// The hash of an entry's key.
///
/// # Safety
/// `inner` is an `Inner<K, V, S>`, and the entry was linked in a region that lasts.
unsafe fn hash_of<K: Hash, V, S: BuildHasher>(inner: *const (), entry: u32) -> u64 {
    // SAFETY: the caller's promise.
    let inner = unsafe { &*inner.cast::<Inner<K, V, S>>() };
    // SAFETY: linked in the region, so alive until its end.
    inner.hash(unsafe { &inner.arena().pair(entry).as_ref().key })
}

/// A chain to be read.
struct Chain<'g> {
    array: &'g Array,
    index: usize,
    /// If set, only entries that were in this chain of this larger array are read: the others are read in their turn.
    of: Option<(&'g Array, usize)>,
}

impl<'g, K: Hash, V, S: BuildHasher> Iter<'g, K, V, S> {
    /// # Safety
    /// The caller is in a region of the table's domain during `'g`.
    pub(super) unsafe fn new(inner: &'g Inner<K, V, S>) -> Self {
        // SAFETY: the caller's promise.
        let array = unsafe { inner.view_in_region() }.array;
        Self { inner, array, chain: 0, moved: Vec::new(), entries: Vec::new(), hash: hash_of::<K, V, S> }
    }
}

impl<'g, K, V, S> Iter<'g, K, V, S> {
    /// Reads the next chain; false when there is none.
    fn read_chain(&mut self) -> bool {
        let Chain { array, index, of } = match self.moved.pop() {
            Some(chain) => chain,
            None if self.chain == self.array.len() => return false,
            None => {
                self.chain += 1;
                Chain { array: self.array, index: self.chain - 1, of: None }
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
                // The largest array on the way tells its chains apart best.
                let of = match of {
                    Some((largest, _)) if largest.len() > array.len() => of,
                    _ => (of.is_some() || next.len() < array.len()).then_some((array, index)),
                };
                // Of these chains, only those that such entries can be in.
                let targets = array.targets(index, next).filter(|&target| {
                    of.is_none_or(|(of, at)| (target ^ at) & (of.len().min(next.len()) - 1) == 0)
                });
                self.moved.extend(targets.map(|index| Chain { array: next, index, of }));
                return true;
            }
        }
        if let Some((array, index)) = of.filter(|_| !busted::is(Variant::IterTakesAll)) {
            let (inner, hash) = (std::ptr::from_ref(self.inner).cast(), self.hash);
            // SAFETY: the table that it was made for, and entries that were linked in the region.
            let is_of = |&entry: &u32| array.index_of(unsafe { hash(inner, entry) }) == index;
            // Taken: a panic of `Hash` must not leave behind anything that was not looked at.
            self.entries = std::mem::take(&mut self.entries).into_iter().filter(is_of).collect();
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

/// Every entry of a table that nobody else uses, in no order: see [`Table::iter_mut`].
pub struct IterMut<'a, K, V, S = RandomState> {
    inner: &'a Inner<K, V, S>,
    cursor: Cursor,
    pairs: PhantomData<&'a mut (K, V)>,
}

impl<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S> IterMut<'a, K, V, S> {
    pub(super) fn new(table: &'a mut Table<K, V, S>) -> Self {
        let inner = table.inner();
        Self { inner, cursor: Cursor::new(inner), pairs: PhantomData }
    }
}

impl<'a, K, V, S> Iterator for IterMut<'a, K, V, S> {
    type Item = (&'a K, &'a mut V);

    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: the table is borrowed exclusively during `'a`: no reader has an entry, and nobody else links or unlinks
        // one. Each pair comes once, so no pair gets two references.
        let pair = unsafe { self.cursor.next_pair(self.inner)?.as_mut() };
        Some((&pair.key, &mut pair.value))
    }
}

impl<K, V, S> fmt::Debug for IterMut<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterMut").finish_non_exhaustive()
    }
}

/// The entries of a table that is taken apart, in no order: see [`Table::into_iter`]. What is left is dropped with it.
///
/// ```
/// use stillpoint::table::{IntoIter, Table};
///
/// let entries: IntoIter<&str, u64> = Table::from_iter([("a", 1)]).into_iter();
/// assert_eq!(entries.collect::<Vec<_>>(), [("a", 1)]);
/// ```
pub struct IntoIter<K: Send + Sync + 'static, V: Send + Sync + 'static, S = RandomState> {
    table: Table<K, V, S>,
    cursor: Cursor,
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> IntoIter<K, V, S> {
    pub(super) fn new(table: Table<K, V, S>) -> Self {
        Self { cursor: Cursor::new(table.inner()), table }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Iterator for IntoIter<K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        // SAFETY: this value has the table, which was moved here: nobody borrows it, so no reader holds an entry.
        unsafe { self.cursor.take(self.table.inner()) }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> fmt::Debug for IntoIter<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoIter").finish_non_exhaustive()
    }
}
