use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;

use equivalent::Equivalent;

use super::engine::search::search;
use super::engine::store::Store;
use super::engine::write::{Only, Put};
use super::engine::Inner;
use super::foreign::verify_reader;
use super::full::OutOfMemory;
use super::removed::{Removed, Replaced};
use super::RandomState;
use crate::rcu::engine::Core;
use crate::rcu::{self, Domain};
use stillpoint_sys::sync::atomic::Ordering;

/// A hash table of a domain, shared by any number of readers and writers. See the [module](super) for an overview.
///
/// Keys and values are `Send + Sync + 'static`, since any thread may read and free them at any later time: whatever makes a table demands
/// it. A table counts as a handle of its domain.
///
/// ```
/// use stillpoint::table::Table;
///
/// let sessions: Table<u64, String> = Table::new(); // in the default domain
/// sessions.insert(7, "login".into())?;
/// let session = sessions.get(&7).expect("inserted above");
///
/// sessions.insert(7, "order".into())?; // replaces; the old entry is freed when no reader can hold it
/// assert_eq!((session.as_str(), sessions.get(&7).unwrap().as_str()), ("login", "order"));
/// sessions.remove(&7);
/// assert!(!sessions.contains_key(&7) && sessions.is_empty());
/// # Ok::<(), stillpoint::table::Full<u64, String>>(())
/// ```
pub struct Table<K, V, S = RandomState> {
    /// Made from a box, and freed by the drop of the table. A raw pointer, because readers refer to the `Inner`. The
    /// pointer makes this type, and that of each reader, guard, iterator and removed entry, invariant in `K` and `V`:
    /// see `Inner::entries`.
    inner: NonNull<Inner<K, V, S>>,
}

// SAFETY: a table owns its `Inner`, which is `Send` if the hasher is.
unsafe impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Send> Send for Table<K, V, S> {}
// SAFETY: a shared table gives shared access only to its `Inner`.
unsafe impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Sync> Sync for Table<K, V, S> {}

/// In the [default domain](crate::rcu::default_domain), in which each thread has a reader already.
impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Table<K, V> {
    /// An empty table of the [default domain](crate::rcu::default_domain), as by [`new_in`](Table::new_in).
    ///
    /// # Panics
    /// If there is no memory: see [`builder_in`](Table::builder_in).
    ///
    /// ```
    /// use stillpoint::table::Table;
    ///
    /// let table: Table<&str, u64> = Table::new();
    /// table.insert("a", 1).expect("there is room");
    /// assert_eq!(table.copied("a"), Some(1));
    /// ```
    pub fn new() -> Self {
        Self::new_in(rcu::default_domain())
    }

    /// An empty table of the [default domain](crate::rcu::default_domain), as by [`with_capacity_in`](Table::with_capacity_in).
    ///
    /// # Panics
    /// As [`new`](Table::new).
    ///
    /// ```
    /// use stillpoint::table::Table;
    ///
    /// let table: Table<u64, u64> = Table::with_capacity(10_000);
    /// assert!(table.is_empty());
    /// ```
    pub fn with_capacity(entries: usize) -> Self {
        Self::with_capacity_in(rcu::default_domain(), entries)
    }
}

/// In the [default domain](crate::rcu::default_domain).
impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Default> Default for Table<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(0)
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Default> Table<K, V, S> {
    /// Of the default domain.
    pub(super) fn with_hasher(capacity: usize) -> Self {
        let builder = Table::builder_in(rcu::default_domain()).capacity(capacity).hasher(S::default());
        builder.build().unwrap_or_else(|error| panic!("{error}"))
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Table<K, V> {
    /// An empty table of `domain`. It takes about 7 KiB until it grows.
    ///
    /// # Panics
    /// If there is no memory: see [`builder_in`](Table::builder_in).
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let table: Table<&str, u64> = Table::new_in(&Domain::new());
    /// assert!(table.is_empty());
    /// ```
    pub fn new_in(domain: &Domain) -> Self {
        Self::with_capacity_in(domain, 0)
    }

    /// An empty table of `domain`. Until it has `entries` entries, it does not grow, and allocates only overflow buckets for unusually long
    /// chains, and room for removed entries that wait, if these are more than 1,024 (or `entries`, if that is less). The memory for the entries is allocated now, in huge pages where the system has some: with millions of entries, TLB misses
    /// cost as much as cache misses.
    ///
    /// # Panics
    /// If there is no memory: see [`builder_in`](Table::builder_in).
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let table: Table<u64, u64> = Table::with_capacity_in(&Domain::new(), 10_000);
    /// let empty = table.stats();
    /// for key in 0..10_000 {
    ///     table.insert(key, key).unwrap();
    /// }
    /// assert_eq!(table.stats().growths, empty.growths);
    /// ```
    pub fn with_capacity_in(domain: &Domain, entries: usize) -> Self {
        Self::builder_in(domain).capacity(entries).build().unwrap_or_else(|error| panic!("{error}"))
    }
}

impl<K, V, S> Table<K, V, S> {
    pub(super) fn from_inner(inner: Inner<K, V, S>) -> Self
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        Self { inner: NonNull::from(Box::leak(Box::new(inner))) }
    }

    #[inline(always)]
    pub(super) fn inner(&self) -> &Inner<K, V, S> {
        // SAFETY: the `Inner` is freed only by the drop of the table.
        unsafe { self.inner.as_ref() }
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn verify(&self, core: &Core) {
        verify_reader(self.inner().core(), core);
    }

    /// The hasher.
    ///
    /// ```
    /// use std::hash::BuildHasher;
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let (first, second) = (Table::<u64, u64>::new_in(&Domain::new()), Table::<u64, u64>::new_in(&Domain::new()));
    /// assert_ne!(first.hasher().hash_one(1), second.hasher().hash_one(1)); // each table's hasher has another key
    /// ```
    pub fn hasher(&self) -> &S {
        &self.inner().hasher
    }

    /// Number of entries. Not a snapshot: writers go on during the count.
    pub fn len(&self) -> usize {
        self.inner().len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frees the removed entries and old arrays that no reader can hold any more, and returns their number. Never
    /// waits. It begins a grace period for what was removed since the last one, unless another one has begun in the domain just
    /// now, and entries are few: the pace is that of a [reclaimer](crate::rcu::ReclaimerBuilder::batch).
    ///
    /// Writers do a share of this work with each removal, and whoever writes or polls in the domain does it when they are silent. Call it
    /// from a thread that has time, or after the last removal.
    ///
    /// # Panics
    /// With the panic of a destructor, after everything that was ready has been freed.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<u64, u64> = Table::new_in(&domain);
    /// table.insert(1, 1).unwrap();
    /// table.remove(&1);
    /// while table.pending() > 0 {
    ///     table.poll();
    /// }
    /// ```
    pub fn poll(&self) -> usize {
        self.inner().poll_all()
    }

    /// What waits to be freed on the table's own shelves: removed entries and old arrays, and what the table's polls have taken over of what
    /// others had left to the domain. A barrier, or a writer beside many others, may have taken some away, which are not counted.
    pub fn pending(&self) -> usize {
        self.inner().places.pending()
    }

    /// The name that the [builder](Table::builder_in) was given; empty without one.
    ///
    /// ```
    /// use stillpoint::{rcu, table::Table};
    ///
    /// let users: Table<u64, String> = Table::builder_in(rcu::default_domain()).name("users").build()?;
    /// assert_eq!(users.name(), "users");
    /// # Ok::<(), stillpoint::table::OutOfMemory>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.inner().name
    }

    /// What the table has done so far. Takes no lock.
    pub fn stats(&self) -> TableStats {
        self.inner().stats()
    }
}

impl<K, V, S> Table<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// A mutable reference to the value of a key. No thread reads meanwhile: the table is borrowed exclusively.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let mut table: Table<&str, u64> = Table::new_in(&Domain::new());
    /// table.extend([("a", 1)]);
    /// *table.get_mut("a").unwrap() += 1;
    /// assert_eq!(table.get_mut("a"), Some(&mut 2));
    /// assert_eq!(table.get_mut("b"), None);
    /// ```
    pub fn get_mut<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<&mut V> {
        let inner = self.inner();
        // SAFETY: the table is borrowed exclusively, so nothing is freed meanwhile.
        let pair = unsafe { search(inner.lens(), inner.view_in_region(), inner.hash(key), key) }?;
        let entry = inner.arena().index_of(NonNull::from(pair));
        // SAFETY: the table is borrowed exclusively as long as the result is used, and the reference above is not used again.
        Some(unsafe { &mut inner.arena().pair(entry).as_mut().value })
    }

    /// Inserts an entry. If the table has an entry with the same key, the new one replaces it, and the old one is
    /// returned.
    ///
    /// # Errors
    /// When the table is full: the pair is handed back. A full table still replaces entries, unless too many replaced
    /// ones wait for readers: see [`TableBuilder::max_len`](super::TableBuilder::max_len).
    ///
    /// # Panics
    /// With the panic of the destructor of an entry that was removed before. The insertion has then taken place, unless
    /// the table was full.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<&str, u64> = Table::new_in(&domain);
    /// assert!(table.insert("a", 1)?.is_none());
    /// assert_eq!(table.insert("a", 2)?.as_deref(), Some(&1));
    /// # Ok::<(), stillpoint::table::Full<&str, u64>>(())
    /// ```
    pub fn insert(&self, key: K, value: V) -> Replaced<'_, K, V, S> {
        match self.inner().put_and_poll(key, value, Only::Always)? {
            Put::Inserted { .. } => Ok(None),
            Put::Replaced { old, .. } => Ok(Some(Removed::new(self.inner(), old))),
            Put::Refused { .. } => unreachable!("the present entry is replaced"),
        }
    }

    /// Removes the entry of a key, and returns it.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<&str, u64> = Table::new_in(&domain);
    /// table.insert("a", 1).unwrap();
    /// assert_eq!(table.remove("a").as_deref(), Some(&1));
    /// assert!(table.remove("a").is_none());
    /// ```
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<Removed<'_, K, V, S>> {
        self.inner().remove(key).map(|old| Removed::new(self.inner(), old))
    }

    /// Removes every entry. Not atomic: an entry that is inserted meanwhile may stay.
    /// See the [example](Table::reserve).
    ///
    /// # Panics
    /// With the first panic of a destructor, after everything has been removed. If `Hash` panics, some entries stay.
    pub fn clear(&self) {
        self.inner().clear();
    }

    /// Entries that the table takes before it grows. Takes no lock.
    pub fn capacity(&self) -> usize {
        self.inner().capacity()
    }

    /// Makes room for `additional` more entries, so that their insertions do not grow the table. They cause no page faults either, as far as
    /// this call allocates memory: of what the table had before, the pages that were never used are not touched now. Readers and other writers
    /// go on meanwhile. Removed entries that no reader keeps alive are freed first, and their memory
    /// counts as room.
    ///
    /// # Errors
    /// When there is no memory, or the limit is lower. The table stays as it is, and keeps memory for entries that the call has got.
    ///
    /// # Panics
    /// With the panic of a destructor, before any room has been made.
    ///
    /// ```
    /// use stillpoint::table::Table;
    ///
    /// let routes: Table<u32, &str> = Table::new();
    /// routes.reserve(10_000)?; // a peer is about to send 10,000 routes
    /// let capacity = routes.capacity();
    /// (&routes).extend((0..10_000).map(|prefix| (prefix, "eth0")));
    /// assert_eq!((routes.len(), routes.capacity()), (10_000, capacity)); // it has not grown
    ///
    /// routes.clear(); // the peer is gone
    /// assert!(routes.is_empty());
    /// # Ok::<(), stillpoint::table::OutOfMemory>(())
    /// ```
    pub fn reserve(&self, additional: usize) -> Result<(), OutOfMemory> {
        if self.inner().reserve(additional) {
            Ok(())
        } else {
            Err(OutOfMemory { entries: additional, each: Store::<K, V>::BYTES })
        }
    }
}

impl<K, V, S> Table<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Moves everything to the smallest array of buckets that has room for the present entries, if it is smaller than
    /// the present array. Readers and other writers go on meanwhile. What no reader can hold any more is freed first, except for what was
    /// left to the domain; the old array is freed as after a growth.
    ///
    /// Entries never move. The memory of those that were freed goes back to the system in blocks of 2 MiB in which no entry is left, nor one of the few
    /// slots that are ready for the next ones; the rest stays with the table, and is used again. So a few entries here and there keep
    /// nearly all of it: then make a new table.
    ///
    /// Takes time in proportion to the number of buckets, and to the most entries that there ever were. It locks out a writer at
    /// most while it handles 64 chains to move and 64 that have moved, or 256 free slots. A writer that finds no free slot waits
    /// until the free slots are sorted. It holds its stripe, one of up to 256, so writers of other keys there wait, too. Each call that
    /// shrinks the table leaves a few hundred bytes with it until the table is dropped.
    ///
    /// If there is no memory, it does nothing, or leaves the rest to later writers. If the table shrinks during an
    /// iteration, the iteration has to hash keys, and reads each chain of the smaller array once for each chain that
    /// has moved to it.
    ///
    /// # Panics
    /// With the panic of a destructor, before anything is moved.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let table: Table<u64, u64> = Table::with_capacity_in(&Domain::new(), 100_000);
    /// table.insert(1, 1).unwrap();
    /// table.shrink_to_fit();
    /// assert!(table.capacity() < 2_000);
    /// ```
    pub fn shrink_to_fit(&self) {
        self.poll();
        // Without a pace. What waits elsewhere in the domain is looked at in the same number.
        self.inner().press(self.pending());
        self.inner().shrink();
        self.inner().arena().shrink();
    }
}

impl<K, V, S> Drop for Table<K, V, S> {
    fn drop(&mut self) {
        // SAFETY: `from_inner` made the pointer from a box. Nothing refers to the `Inner` any more: every reader
        // borrows the table.
        drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
    }
}

/// What a table has done so far, and the memory it takes. See [`Table::stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// Entries.
    pub entries: usize,
    /// Buckets of the array that entries are in, or are being moved to. A bucket has room for eight entries.
    pub buckets: usize,
    /// Buckets appended to chains whose buckets were full.
    pub overflow_buckets: usize,
    /// Buckets of the longest chain; 1 if there are no overflow buckets. A lookup reads one chain, and a writer moves up
    /// to three in a call. In a table of random hashes, this stays below four; more means that many keys have the same
    /// hash. Costs nothing: it is noted when a chain is lengthened.
    pub longest_chain: usize,
    /// Whether entries are being moved to another array.
    pub growing: bool,
    /// How often the table has grown.
    pub growths: usize,
    /// How often an entry found no room, and was handed back.
    pub refused: usize,
    /// How often [`Table::shrink_to_fit`] has made it smaller.
    pub shrinks: usize,
    /// The most buckets that a single attempt of a writer's call has moved, overflow buckets included: those of three chains at
    /// most. Calls of [`Table::reserve`] and [`Table::shrink_to_fit`] do not count.
    pub most_buckets_moved_by_a_call: usize,
    /// The most bytes of old arrays that a single call of a writer has unmapped.
    pub most_bytes_unmapped_by_a_call: usize,
    /// Address space for buckets and entries, in bytes: during a growth, of both arrays, but not of arrays that wait to be unmapped. Parts
    /// that were never used may take no memory.
    pub bytes: usize,
    /// Bytes of old arrays that no reader can reach any more, and that writers unmap in their next calls.
    pub bytes_to_unmap: usize,
}

impl<K, V, S> Inner<K, V, S> {
    fn capacity(&self) -> usize {
        let (current, next) = self.arrays();
        next.unwrap_or(current).capacity()
    }

    fn stats(&self) -> TableStats {
        let entries = self.len();
        let (current, next) = self.arrays();
        let array = next.unwrap_or(current);
        TableStats {
            entries,
            buckets: array.len(),
            overflow_buckets: array.overflowed(),
            longest_chain: current.longest_chain().max(array.longest_chain()),
            growing: next.is_some(),
            // Relaxed, all three: for statistics.
            growths: self.growths.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            shrinks: self.shrinks.load(Ordering::Relaxed),
            most_buckets_moved_by_a_call: self.stripes.most_moved(),
            most_bytes_unmapped_by_a_call: self.store.scrap.most(),
            bytes: current.bytes() + next.map_or(0, |next| next.bytes()) + self.arena().bytes(),
            bytes_to_unmap: self.store.scrap.waiting(),
        }
    }
}
