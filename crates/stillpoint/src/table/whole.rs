//! Operations on a table as a whole. Each reads through the thread's reader in the default domain, or through a new
//! reader in another one.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::sync::Arc;

use super::table::Table;
use crate::rcu::default_domain::reader_in;
use crate::rcu::{Domain, Reader};

impl<K, V, S> Table<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// A reader for a call that has none.
    #[inline(always)]
    pub(super) fn own_reader(&self) -> OwnReader {
        let core = self.inner().core();
        match reader_in(core) {
            Some(reader) => OwnReader::OfThread(reader),
            None => OwnReader::New(Reader::new(Arc::clone(core))),
        }
    }
}

/// In the default domain the thread has a reader already; in any other domain a new one is made.
pub(super) enum OwnReader {
    OfThread(&'static Reader),
    New(Reader),
}

impl Deref for OwnReader {
    type Target = Reader;

    #[inline(always)]
    fn deref(&self) -> &Reader {
        match self {
            Self::OfThread(reader) => reader,
            Self::New(reader) => reader,
        }
    }
}

/// In the [default domain](crate::rcu::default_domain). A later entry replaces an earlier one with the same key.
///
/// # Panics
/// If there is no memory.
///
/// ```
/// use stillpoint::table::Table;
///
/// let table: Table<_, _> = [("a", 1), ("b", 2)].into_iter().collect();
/// assert_eq!(table.len(), 2);
/// ```
impl<K, V, S> FromIterator<(K, V)> for Table<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        let mut table = Self::with_hasher(entries.size_hint().0);
        table.extend(entries);
        table
    }
}

/// In the [default domain](crate::rcu::default_domain), as by [`from_iter`](FromIterator::from_iter).
///
/// ```
/// let table = stillpoint::table::Table::from([("a", 1), ("b", 2)]);
/// assert_eq!(table.copied("b"), Some(2));
/// ```
impl<K, V, const N: usize> From<[(K, V); N]> for Table<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K, V> Table<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// A table of `domain` with these entries. A later entry replaces an earlier one with the same key.
    ///
    /// # Panics
    /// If there is no memory.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let table = Table::from_iter_in(&Domain::new(), [("a", 1), ("b", 2)]);
    /// assert_eq!(table.len(), 2);
    /// ```
    pub fn from_iter_in(domain: &Domain, entries: impl IntoIterator<Item = (K, V)>) -> Self {
        let entries = entries.into_iter();
        let mut table = Self::with_capacity_in(domain, entries.size_hint().0);
        table.extend(entries);
        table
    }
}

/// Inserts the entries. An entry whose key is in the table is replaced.
///
/// # Panics
/// When the table is full.
impl<K, V, S> Extend<(K, V)> for Table<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        (&*self).extend(entries);
    }
}

/// As for `Table`, but by a shared reference.
///
/// # Panics
/// When the table is full.
impl<K, V, S> Extend<(K, V)> for &Table<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value).unwrap_or_else(|full| panic!("{full}"));
        }
    }
}

/// The entries, in arbitrary order. Not a snapshot.
impl<K, V, S> fmt::Debug for Table<K, V, S>
where
    K: Hash + Eq + fmt::Debug,
    V: fmt::Debug,
    S: BuildHasher,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reader = self.own_reader();
        let guard = reader.pin();
        f.debug_map().entries(self.within(&guard).iter()).finish()
    }
}

#[cfg(feature = "serde")]
mod serde {
    use std::hash::{BuildHasher, Hash};
    use std::marker::PhantomData;

    use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
    use serde::{Deserialize, Serialize, Serializer};

    use super::Table;
    use crate::rcu::default_domain;
    use crate::table::TableBuilder;

    /// As a map.
    ///
    /// Not a snapshot, and without a length in advance, which some formats need. A region holds up the domain until the serializer
    /// has returned: serialize into memory what goes to a peer.
    impl<K, V, S> Serialize for Table<K, V, S>
    where
        K: Serialize + Hash + Eq,
        V: Serialize,
        S: BuildHasher,
    {
        fn serialize<F: Serializer>(&self, serializer: F) -> Result<F::Ok, F::Error> {
            let reader = self.own_reader();
            let guard = reader.pin();
            // The length is not given in advance: it may change while the entries are written.
            serializer.collect_map(self.within(&guard).iter())
        }
    }

    /// Into the [default domain](crate::rcu::default_domain).
    ///
    /// ```
    /// use stillpoint::table::Table;
    ///
    /// let table: Table<String, u64> = serde_json::from_str(r#"{"a": 1}"#)?;
    /// assert_eq!(table.pin().get("a"), Some(&1));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    impl<'de, K, V> Deserialize<'de> for Table<K, V>
    where
        K: Deserialize<'de> + Hash + Eq + Send + Sync + 'static,
        V: Deserialize<'de> + Send + Sync + 'static,
    {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            Table::builder_in(default_domain()).deserialize(deserializer)
        }
    }

    /// Into any domain: the builder is the seed.
    ///
    /// ```
    /// use serde::de::DeserializeSeed;
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let seed = Table::<String, u64>::builder_in(&domain).max_len(10);
    /// let table = seed.deserialize(&mut serde_json::Deserializer::from_str(r#"{"a": 1}"#))?;
    /// assert_eq!(table.len(), 1);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    impl<'de, K, V, S> DeserializeSeed<'de> for TableBuilder<K, V, S>
    where
        K: Deserialize<'de> + Hash + Eq + Send + Sync + 'static,
        V: Deserialize<'de> + Send + Sync + 'static,
        S: BuildHasher,
    {
        type Value = Table<K, V, S>;

        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            struct Entries<K, V, S>(Table<K, V, S>, PhantomData<fn() -> (K, V)>)
            where
                V: Send + Sync + 'static;

            impl<'de, K, V, S> Visitor<'de> for Entries<K, V, S>
            where
                K: Deserialize<'de> + Hash + Eq + Send + Sync + 'static,
                V: Deserialize<'de> + Send + Sync + 'static,
                S: BuildHasher,
            {
                type Value = Table<K, V, S>;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("a map")
                }

                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                    while let Some((key, value)) = map.next_entry()? {
                        drop(self.0.insert(key, value).map_err(A::Error::custom)?);
                    }
                    Ok(self.0)
                }
            }

            deserializer.deserialize_map(Entries(self.build().map_err(D::Error::custom)?, PhantomData))
        }
    }
}
