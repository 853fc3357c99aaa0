use std::hash::{BuildHasher, Hash};
use std::iter::FusedIterator;
use std::marker::PhantomData;

use super::busted::{self, Variant};
use super::engine::array::Array;
use super::engine::bucket::MOVED;
use super::engine::sole::Cursor;
use super::engine::Inner;
use super::table::Table;
use super::RandomState;

/// Every entry of a table, in arbitrary order: see [`TableGuard::iter`](super::TableGuard::iter).
///
/// A chain of buckets is read as a whole, and again in the next array if it moves meanwhile. So an entry that is in the
/// table from beginning to end is seen exactly once, even while the table grows or shrinks.
pub struct Iter<'g, K, V, S = RandomState> {
    inner: &'g Inner<K, V, S>,
    /// The array that was current at the beginning, and the next of its chains.
    array: &'g Array,
    chain: usize,
    /// Chains of later arrays that a chain of `array` has moved to. They are read first.
    moved: Vec<Chain<'g>>,
    /// Entries of the chain that was read last.
    entries: Vec<u32>,
    /// [`hash_of`], for chains that several others have moved to. Its types are erased, so that `Iter` stays covariant
    /// in the hasher.
    hash: unsafe fn(*const (), u32) -> u64,
}

/// The hash of an entry's key.
///
/// # Safety
/// `inner` is an `Inner<K, V, S>`, and the entry was linked during a region that has not ended.
unsafe fn hash_of<K: Hash, V, S: BuildHasher>(inner: *const (), entry: u32) -> u64 {
    // SAFETY: the address is that of an `Inner` of these types, by the caller's promise.
    let inner = unsafe { &*inner.cast::<Inner<K, V, S>>() };
    // SAFETY: the entry was linked during the region, so it is alive until the region ends.
    inner.hash(unsafe { &inner.arena().pair(entry).as_ref().key })
}

/// A chain to be read.
struct Chain<'g> {
    array: &'g Array,
    index: usize,
    /// If set, a larger array and the index of one of its chains. Only entries that were in that chain are taken; the
    /// others come with their own chains.
    of: Option<(&'g Array, usize)>,
}

impl<'g, K: Hash, V, S: BuildHasher> Iter<'g, K, V, S> {
    /// # Safety
    /// The caller is in a region of the table's domain during `'g`.
    pub(super) unsafe fn new(inner: &'g Inner<K, V, S>) -> Self {
        // SAFETY: the caller is in a region of the table's domain during `'g`, by its promise.
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
            // A mover marks a bucket before it clears the first word. The loads of the words above are acquire, so this
            // load of the link comes after them. If it finds no mark, none of the words had been cleared.
            if bucket.link() == MOVED {
                self.entries.clear();
                // The region covers the buckets of the next array, too.
                let next = array.next().expect("a moved bucket has a next array");
                // The largest array on the way distinguishes the most chains.
                let of = match of {
                    Some((largest, _)) if largest.len() > array.len() => of,
                    _ => (of.is_some() || next.len() < array.len()).then_some((array, index)),
                };
                // Only the chains that entries of `of` can be in.
                let targets = array.targets(index, next).filter(|&target| {
                    of.is_none_or(|(of, at)| (target ^ at) & (of.len().min(next.len()) - 1) == 0)
                });
                self.moved.extend(targets.map(|index| Chain { array: next, index, of }));
                return true;
            }
        }
        if let Some((array, index)) = of.filter(|_| !busted::is(Variant::IterTakesAll)) {
            let (inner, hash) = (std::ptr::from_ref(self.inner).cast(), self.hash);
            // SAFETY: `inner` is the table that `hash` was made for, and the entries were linked during the region.
            let is_of = |&entry: &u32| array.index_of(unsafe { hash(inner, entry) }) == index;
            // Taken out: if `Hash` panics, no unfiltered entry may stay in `self.entries`.
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
        // SAFETY: the entry was linked during the region, which lasts for `'g`.
        let pair = unsafe { self.inner.arena().pair(entry).as_ref() };
        Some((&pair.key, &pair.value))
    }
}

stillpoint_sys::debug!([K, V, S] Iter<'_, K, V, S> { .. });

/// Every entry of a table that is borrowed exclusively, in arbitrary order: see [`Table::iter_mut`].
pub struct IterMut<'a, K, V, S = RandomState> {
    inner: &'a Inner<K, V, S>,
    cursor: Cursor,
    left: usize,
    pairs: PhantomData<&'a mut (K, V)>,
}

impl<K, V, S> Table<K, V, S> {
    /// Every entry, in arbitrary order, with a mutable reference to its value. No thread reads meanwhile: the table is
    /// borrowed exclusively.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let mut table: Table<u64, u64> = Table::new_in(&Domain::new());
    /// table.extend([(1, 1), (2, 2)]);
    /// for (key, value) in &mut table {
    ///     *value += 10 * key;
    /// }
    /// let mut values: Vec<_> = table.values_mut().map(|value| *value).collect();
    /// values.sort();
    /// assert_eq!(values, [11, 22]);
    /// ```
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V, S> {
        let inner = self.inner();
        IterMut { inner, cursor: Cursor::new(inner), left: inner.len(), pairs: PhantomData }
    }

    /// Every value; see [`iter_mut`](Table::iter_mut).
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }
}

impl<K, V, S> IntoIterator for Table<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V, S>;

    /// Takes the table apart. It allocates nothing. Entries that are not taken from the iterator are dropped with it.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let table: Table<u64, String> = Table::new_in(&Domain::new());
    /// table.insert(1, "one".to_owned()).unwrap();
    /// let pairs: std::collections::HashMap<u64, String> = table.into_iter().collect();
    /// assert_eq!(pairs[&1], "one");
    /// ```
    fn into_iter(self) -> IntoIter<K, V, S> {
        IntoIter { cursor: Cursor::new(self.inner()), left: self.len(), table: self }
    }
}

impl<'a, K, V, S> IntoIterator for &'a mut Table<K, V, S> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = IterMut<'a, K, V, S>;

    fn into_iter(self) -> IterMut<'a, K, V, S> {
        self.iter_mut()
    }
}

impl<'a, K, V, S> Iterator for IterMut<'a, K, V, S> {
    type Item = (&'a K, &'a mut V);

    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: the table is borrowed exclusively for `'a`: no reader holds an entry, and no other thread links or
        // unlinks one. Each pair is returned once, so there is only one reference to it.
        let pair = unsafe { self.cursor.next_pair(self.inner)?.as_mut() };
        self.left = self.left.saturating_sub(1);
        Some((&pair.key, &mut pair.value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K, V, S> ExactSizeIterator for IterMut<'_, K, V, S> {}

impl<K, V, S> FusedIterator for IterMut<'_, K, V, S> {}

stillpoint_sys::debug!([K, V, S] IterMut<'_, K, V, S> { .. });

/// The entries of a table that is taken apart, in arbitrary order: see [`Table::into_iter`]. Entries that are left are dropped
/// with the iterator.
///
/// ```
/// use stillpoint::table::{IntoIter, Table};
///
/// let entries: IntoIter<&str, u64> = Table::from([("a", 1)]).into_iter();
/// assert_eq!(entries.collect::<Vec<_>>(), [("a", 1)]);
/// ```
pub struct IntoIter<K, V, S = RandomState> {
    table: Table<K, V, S>,
    cursor: Cursor,
    left: usize,
}

impl<K, V, S> Iterator for IntoIter<K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        // SAFETY: this value owns the table, which was moved here: nothing borrows the table, so no reader holds an
        // entry.
        let entry = unsafe { self.cursor.take(self.table.inner()) }?;
        self.left = self.left.saturating_sub(1);
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K, V, S> ExactSizeIterator for IntoIter<K, V, S> {}

impl<K, V, S> FusedIterator for IntoIter<K, V, S> {}

stillpoint_sys::debug!([K, V, S] IntoIter<K, V, S> { .. });
