//! Lookups of objects that a table's values point to, for bindings to other languages.
//!
//! Here the table's values are addresses of objects that the program retires itself, as in [`rcu::raw`](crate::rcu::raw). A lookup holds the
//! object, not the entry.
//!
//! # The contract
//!
//! An object that was found may be used until its slot is released, if
//!
//! - it is alive as long as its address is the value of an entry;
//! - whoever has taken its last entry out of the table (a removal, or a replacement by another value) retires it afterwards, to the
//!   table's domain and by exactly this address. To wait for a grace period is not enough: that waits for regions, not for slots.
//!
//! The slot is released on the reader's thread, while the reader is alive.

use std::hash::{BuildHasher, Hash};
use std::ptr::{self, NonNull};

use equivalent::Equivalent;

use super::engine::arena::Pair;
use super::engine::search;
use super::Table;
use crate::rcu::raw::Slot;
use crate::rcu::{Reader, Region};

/// The address that is the value of an entry, and the slot that holds it. `None` if the address is null: nothing is held.
pub type Address = Option<(NonNull<()>, Slot)>;

/// Why a table was [full](super::Full): true if its limit is reached, and false if there was no memory. A guess, since others may have freed
/// entries meanwhile: it is true if at least half of the slots are taken.
///
/// ```
/// use stillpoint::table::{raw, Table};
/// use stillpoint::rcu;
///
/// let table = Table::builder_in(rcu::default_domain()).max_len(1).build()?;
/// assert!(!raw::is_at_limit(&table));
/// table.insert("a", 1).unwrap();
/// assert!(table.insert("b", 2).is_err() && raw::is_at_limit(&table));
/// # Ok::<(), stillpoint::table::OutOfMemory>(())
/// ```
pub fn is_at_limit<K, V, S>(table: &Table<K, V, S>) -> bool {
    table.inner().arena().is_at_limit()
}

/// The first step of a lookup, for `stillpoint.h`: it settles most of them, and calls nothing but `Hash` and `Eq`. `None` if it does not tell
/// whether the table has the key, or if the region is of another domain.
///
/// ```
/// use stillpoint::rcu::Domain;
/// use stillpoint::table::{raw, Table};
///
/// let (domain, other) = (Domain::new(), Domain::new());
/// let table = Table::builder_in(&domain).build()?;
/// table.insert("a", 1).unwrap();
/// let (reader, foreign) = (domain.reader(), other.reader());
/// assert_eq!(raw::glance(&table, &reader.pin(), &"a"), Some(Some(&1)));
/// assert_eq!(raw::glance(&table, &foreign.pin(), &"a"), None);
/// # Ok::<(), stillpoint::table::OutOfMemory>(())
/// ```
#[doc(hidden)]
#[inline(always)]
pub fn glance<'g, K, V, S, Q>(
    table: &'g Table<K, V, S>,
    region: &'g impl Region,
    key: &Q,
) -> Option<Option<&'g V>>
where
    S: BuildHasher,
    Q: Hash + Equivalent<K> + ?Sized,
{
    let inner = table.inner();
    if !ptr::eq(&**inner.core(), region.core()) {
        return None;
    }
    // SAFETY: the region is of the table's domain, and borrowed as long as the pair.
    let pair = unsafe {
        search::glance(|entry| inner.arena().pair(entry), inner.view_in_region(), inner.hash(key), key)
    }?;
    Some(pair.map(|pair| &pair.value))
}

/// As [`get_many`](super::TableGuard::get_many), for `stillpoint.h`. Calls `found` with the number of each key, in order, and what was found.
///
/// # Panics
/// If the region is of another domain. With a panic of the user's `Hash` or `Eq`.
#[doc(hidden)]
#[inline]
#[track_caller]
pub fn get_many<K, V, S, Q, const N: usize>(
    table: &Table<K, V, S>,
    region: &impl Region,
    keys: &[Q; N],
    mut found: impl FnMut(usize, Option<&V>),
) where
    S: BuildHasher,
    Q: Hash + Equivalent<K>,
{
    table.verify(region.core());
    let inner = table.inner();
    let hashes: [u64; N] = std::array::from_fn(|at| inner.hash(&keys[at]));
    let each = |at, pair: Option<&Pair<K, V>>| found(at, pair.map(|pair| &pair.value));
    // SAFETY: the region is of the table's domain, and borrowed during the call.
    unsafe { search::search_many(inner.lens(), inner.view_in_region(), hashes, |at| &keys[at], each) };
}

/// The most keys of one call of [`protect_many`].
pub const MOST: usize = 64;

fn address(found: search::Address<'_>) -> Address {
    found.map(|(object, slot)| (object, Slot::new(slot)))
}

/// Looks a key up, and protects the object that its value points to: see [the contract](self). `of` returns the address that a value
/// consists of. `None` if the key is absent. Lock-free: begins again if the entry has changed meanwhile.
///
/// # Panics
/// If the reader is of another domain. With a panic of the user's `Hash` or `Eq`, or of `of`.
///
/// ```
/// use stillpoint::{rcu::Domain, table::{raw, Table}};
///
/// let domain = Domain::new();
/// let table: Table<u64, usize> = Table::from_iter_in(&domain, [(1, 64), (2, 0)]);
/// let reader = domain.reader();
/// let of = |value: &usize| std::ptr::without_provenance_mut(*value);
/// let (object, slot) = raw::protect(&table, &reader, &1, of).unwrap().unwrap();
/// assert_eq!(object.addr().get(), 64);
/// // SAFETY: this thread has the reader, and the slot is released once.
/// unsafe { slot.release() };
/// assert_eq!(raw::protect(&table, &reader, &2, of), Some(None)); // null
/// assert_eq!(raw::protect(&table, &reader, &3, of), None);
/// ```
#[inline]
#[track_caller]
pub fn protect<K, V, S, Q>(
    table: &Table<K, V, S>,
    reader: &Reader,
    key: &Q,
    of: impl Fn(&V) -> *mut () + Copy,
) -> Option<Address>
where
    S: BuildHasher,
    Q: Hash + Equivalent<K> + ?Sized,
{
    table.verify(reader.core());
    let inner = table.inner();
    let mut answer = None;
    inner.search_objects(reader, &[inner.hash(key)], |_| key, of, |_, found| answer = found.map(address));
    answer
}

/// As [`protect`], for `count` keys, [`MOST`] at most. Calls `found` with the number of each key, in order, and what was found. The cache
/// misses of the lookups overlap.
///
/// # Panics
/// As [`protect`]. If there are too many keys. With a panic of `found`: what it was given is not released.
#[track_caller]
pub fn protect_many<'k, K, V, S, Q>(
    table: &Table<K, V, S>,
    reader: &Reader,
    count: usize,
    key: impl Fn(usize) -> &'k Q,
    of: impl Fn(&V) -> *mut () + Copy,
    mut found: impl FnMut(usize, Option<Address>),
) where
    S: BuildHasher,
    Q: Hash + Equivalent<K> + ?Sized + 'k,
{
    table.verify(reader.core());
    let inner = table.inner();
    let mut hashes = [0; MOST];
    let hashes = &mut hashes[..count];
    for (at, hash) in hashes.iter_mut().enumerate() {
        *hash = inner.hash(key(at));
    }
    inner.search_objects(reader, hashes, key, of, |at, answer| found(at, answer.map(address)));
}
