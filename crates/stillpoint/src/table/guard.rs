use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use super::compute::{Compute, TryInsertError};
use super::engine::arena::Lens;
use super::engine::array::View;
use super::engine::change::{Deciding, Found, InRegion, Operation, Seen};
use super::engine::search::{search, search_many};
use super::engine::write::Pinned;
use super::engine::Inner;
use super::error::UpdateError;
use super::full::Full;
use super::iter::Iter;
use super::methods::deciding;
use super::removed::{Removed, Replaced};
use super::table::Table;
use super::RandomState;
use crate::frames::keeping;
use crate::rcu::engine::Core;
use crate::rcu::region::sealed::Sealed;
use crate::rcu::{self, Guard, OnThread, Region};
use stillpoint_sys::panics::resume;

/// Access to a table in a region. Plain references to entries are valid as long as the guard.
/// [`TableReader::pin`](super::TableReader::pin) begins a region for it; [`Table::within`](super::Table::within) uses a
/// region of the caller. The guard is also a region for cells of the domain.
///
/// A thread that is preempted in a region keeps alive everything retired since. Functions that are passed to its methods
/// run in the region.
///
/// ```
/// use stillpoint::{rcu::Domain, table::Table};
///
/// let domain = Domain::new();
/// let flows = Table::from_iter_in(&domain, [(1, "http"), (2, "dns"), (3, "ssh")]);
/// let reader = domain.reader();
/// let guard = reader.pin();
/// let view = flows.within(&guard);
/// assert_eq!((view.get(&2), view.contains_key(&9)), (Some(&"dns"), false));
/// assert_eq!(view.get_many(&[1, 3, 9]), [Some(&"http"), Some(&"ssh"), None]);
/// assert_eq!(view.get_key_value(&1), Some((&1, &"http"))); // the table's own key
///
/// assert!(view.iter().all(|(number, name)| *number <= 3 && name.len() >= 3));
/// assert_eq!((view.keys().sum::<u32>(), view.values().count()), (6, 3));
/// view.retain(|number, _| *number > 1);
/// assert_eq!(flows.len(), 2);
/// ```
///
/// Changes in the region:
///
/// ```
/// use stillpoint::table::Table;
///
/// let hits: Table<&str, u64> = Table::new();
/// let view = hits.pin();
/// assert_eq!(view.get_or_insert("index", 1)?, (&1, true));
/// assert_eq!(view.update_or_insert("index", |hits| hits + 1, 1)?, &2);
/// let old = view.update("index", |hits| hits + 1)?;
/// assert_eq!((old.as_deref(), view.get("index")), (Some(&2), Some(&3)));
/// assert!(view.try_insert("index", 1).is_err());
/// assert!(matches!(view.remove_if("index", |_, hits| *hits == 3), Ok(Some(_))));
/// # Ok::<(), stillpoint::table::Full<&str, u64>>(())
/// ```
#[must_use = "the region ends when the guard is dropped, if the guard began it"]
pub struct TableGuard<'g, K, V, S = RandomState, R = Guard<'g>> {
    inner: &'g Inner<K, V, S>,
    lens: OnThread<Lens<'g, K, V>>,
    view: OnThread<View<'g>>,
    region: OnThread<R>,
}

impl<K, V, S> Table<K, V, S> {
    /// Access to the table in a region of the caller: a guard, or a QSBR reader between two quiescent states. The
    /// domain is checked here, not at each lookup.
    ///
    /// # Panics
    /// If `region` belongs to another domain.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<String, u64> = Table::new_in(&domain);
    /// table.insert("a".to_owned(), 1).unwrap();
    /// let mut reader = domain.qsbr_reader();
    /// assert_eq!(table.within(&reader).get("a"), Some(&1));
    /// reader.quiescent();
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn within<'g, R: Region>(&'g self, region: &'g R) -> TableGuard<'g, K, V, S, &'g R> {
        self.verify(region.core());
        // SAFETY: the region is of the table's domain, and borrowed.
        unsafe { TableGuard::new(self.inner(), region) }
    }

    /// Begins a region of the calling thread, and gives access to the table in that region: see
    /// [`rcu::pin`](crate::rcu::pin). Only for tables of the [default domain](crate::rcu::default_domain).
    ///
    /// # Panics
    /// If the table belongs to another domain.
    ///
    /// ```
    /// use stillpoint::table::Table;
    ///
    /// let table: Table<u64, &str> = Table::new();
    /// table.insert(1, "one").expect("there is room");
    /// assert_eq!(table.pin().get(&1), Some(&"one"));
    /// ```
    #[doc(alias = "iter")]
    #[inline]
    #[track_caller]
    pub fn pin(&self) -> TableGuard<'_, K, V, S, Guard<'static>> {
        let guard = rcu::pin();
        self.verify(Sealed::core(&guard));
        // SAFETY: the region is of the table's domain.
        unsafe { TableGuard::new(self.inner(), guard) }
    }
}

impl<'g, K, V, S, R: Region> TableGuard<'g, K, V, S, R> {
    /// # Safety
    /// The region is of the table's domain.
    #[inline(always)]
    pub(super) unsafe fn new(inner: &'g Inner<K, V, S>, region: R) -> Self {
        // SAFETY: the region is of the table's domain, and lasts as long as the guard, which every result borrows.
        let view = unsafe { inner.view_in_region() };
        let lens = OnThread::new(inner.lens());
        Self { inner, lens, view: OnThread::new(view), region: OnThread::new(region) }
    }
}

/// The methods of a guard whose results live for `$life`: as long as the region that the guard borrows, or, if it owns its region, as the
/// borrow of the guard.
macro_rules! in_region {
    ($life:lifetime, $region:ty $(, $parameter:ident)?) => {
        impl<'g, K, V, S $(, $parameter: Region)?> TableGuard<'g, K, V, S, $region>
        where
            K: Hash + Eq,
            S: BuildHasher,
        {
            /// Looks a key up.
            #[inline(always)]
            pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&$life V> {
                self.get_hashed(self.inner.hash(key), key)
            }

            /// As [`get`](TableGuard::get), with the [hash](Table::hash) of the key. With any other hash, the key is not found.
            #[inline(always)]
            pub fn get_hashed<Q: Equivalent<K> + ?Sized>(&self, hash: u64, key: &Q) -> Option<&$life V> {
                // SAFETY: the view was taken in this region.
                unsafe { search(*self.lens, *self.view, hash, key) }.map(|pair| &pair.value)
            }

            /// Looks a key up, and returns the key in the table as well.
            #[inline]
            pub fn get_key_value<Q: Hash + Equivalent<K> + ?Sized>(
                &self,
                key: &Q,
            ) -> Option<(&$life K, &$life V)> {
                // SAFETY: the view was taken in this region.
                let pair = unsafe { search(*self.lens, *self.view, self.inner.hash(key), key) }?;
                Some((&pair.key, &pair.value))
            }

            /// Looks up several keys at once, so that their cache misses overlap. In a large table, 32 keys take between a
            /// third and a half of the time of 32 single lookups.
            #[inline]
            pub fn get_many<Q: Hash + Equivalent<K>, const N: usize>(
                &self,
                keys: &[Q; N],
            ) -> [Option<&$life V>; N] {
                let hashes: [u64; N] = std::array::from_fn(|at| self.inner.hash(&keys[at]));
                let mut found = [None; N];
                // SAFETY: the view was taken in this region.
                unsafe {
                    search_many(*self.lens, *self.view, hashes, |at| &keys[at], |at, pair| {
                        found[at] = pair.map(|pair| &pair.value);
                    });
                }
                found
            }

            /// Every entry, in arbitrary order.
            ///
            /// An entry that is in the table from beginning to end is seen exactly once. An entry that is inserted, removed or
            /// replaced meanwhile may or may not be seen. A key that is removed and inserted again may be seen twice.
            pub fn iter(&self) -> Iter<$life, K, V, S> {
                // SAFETY: the region lasts as long as the result.
                unsafe { Iter::new(self.inner) }
            }

            /// Every key; see [`iter`](TableGuard::iter).
            pub fn keys(&self) -> impl Iterator<Item = &$life K> {
                self.iter().map(|(key, _)| key)
            }

            /// Every value; see [`iter`](TableGuard::iter).
            pub fn values(&self) -> impl Iterator<Item = &$life V> {
                self.iter().map(|(_, value)| value)
            }

            #[inline(always)]
            fn finder(&self) -> (&'g Inner<K, V, S>, InRegion<$life, K, V>) {
                // SAFETY: the view was taken in this region, which lasts as long as the results.
                (self.inner, unsafe { InRegion::new(*self.lens, *self.view) })
            }

            deciding!(pub self, [&self], 'g, &$life V = Seen::value, (&$life K, &$life V) = Seen::key_value,
                (&$life K, &$life V) = Seen::lend);
        }
    };
}

in_region!('g, &'g R, R);
in_region!('_, Guard<'g>);

impl<K, V, S, R> TableGuard<'_, K, V, S, R>
where
    K: Hash + Eq,
    S: BuildHasher,
    R: Region,
{
    /// Whether the key is in the table.
    #[inline(always)]
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        // SAFETY: the view was taken in this region.
        unsafe { search(*self.lens, *self.view, self.inner.hash(key), key) }.is_some()
    }

    /// Removes the entries for which `keep` returns false. As with [`iter`](TableGuard::iter), an entry that is
    /// inserted meanwhile may or may not be passed to `keep`. An entry that is replaced between the call of `keep` and
    /// its removal stays.
    ///
    /// # Panics
    /// With the first panic of a destructor, after all entries have been looked at. If `keep` or `Hash` panics, the others stay.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        let mut entries = self.into_iter();
        let mut first = None;
        while let Some(entry) = entries.next_entry() {
            // SAFETY: the entry was linked during the region. Until the region ends, it is alive, and its index is not
            // used again.
            let pair = unsafe { self.lens.pair(entry).as_ref() };
            if keep(&pair.key, &pair.value) {
                continue;
            }
            let hash = self.inner.hash(&pair.key);
            // SAFETY: the index is not used again before the region ends.
            let pinned = unsafe { Pinned::new(entry, None) };
            if let Some(old) = self.inner.remove_entry(hash, pinned) {
                // The destructor of an entry that was removed before, perhaps by another thread.
                keeping(&mut first, || drop(Removed::new(self.inner, old)));
            }
        }
        resume(first);
    }
}

impl<'s, K, V, S, R> IntoIterator for &'s TableGuard<'_, K, V, S, R>
where
    K: Hash + Eq,
    S: BuildHasher,
    R: Region,
{
    type Item = (&'s K, &'s V);
    type IntoIter = Iter<'s, K, V, S>;

    fn into_iter(self) -> Iter<'s, K, V, S> {
        // SAFETY: the guard's region lasts as long as the result, which borrows the guard.
        unsafe { Iter::new(self.inner) }
    }
}

impl<K, V, S, R: Region> Region for TableGuard<'_, K, V, S, R> {}

// SAFETY: the guard owns or borrows a region, which keeps this promise as long as the guard exists.
unsafe impl<K, V, S, R: Region> Sealed for TableGuard<'_, K, V, S, R> {
    #[inline(always)]
    fn core(&self) -> &Core {
        self.region.core()
    }
}

stillpoint_sys::debug!([K, V, S, R: Region] |this| TableGuard<'_, K, V, S, R> {
    domain: this.region.core().name(), ..
});
