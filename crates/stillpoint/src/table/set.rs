use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::{Deref, DerefMut};

use super::engine::write::{Only, Put};
use super::full::Full;
use super::table::Table;
use super::RandomState;
use crate::rcu::Domain;

/// A set: a [`Table`] whose values are empty and cost nothing. It is used like a table, except for its [`insert`](Set::insert).
///
/// ```
/// use stillpoint::{rcu::Domain, table::Set};
///
/// let domain = Domain::new();
/// let seen: Set<&str> = Set::new_in(&domain);
/// assert!(seen.insert("a")?);
/// assert!(!seen.insert("a")?);
///
/// let mut reader = domain.reader();
/// assert!(seen.reader(&mut reader).contains_key("a"));
/// assert!(seen.within(&reader.pin()).keys().eq(["a"].iter()));
/// assert!(seen.remove("a").is_some());
/// # Ok::<(), stillpoint::table::Full<&str, ()>>(())
/// ```
///
/// To make a set with a capacity, with a limit, or with another hasher, convert a table:
///
/// ```
/// use stillpoint::{rcu::Domain, table::{Set, Table}};
///
/// let few: Set<u64> = Table::builder_in(&Domain::new()).max_len(1).build()?.into();
/// assert_eq!((few.insert(1).is_ok(), few.insert(2).is_ok()), (true, false));
/// # Ok::<(), stillpoint::table::OutOfMemory>(())
/// ```
pub struct Set<K, S = RandomState> {
    table: Table<K, (), S>,
}

/// In the [default domain](crate::rcu::default_domain).
impl<K: Send + Sync + 'static> Set<K> {
    /// An empty set of the [default domain](crate::rcu::default_domain).
    ///
    /// # Panics
    /// As [`Table::new`].
    ///
    /// ```
    /// use stillpoint::table::Set;
    ///
    /// let seen: Set<u64> = Set::new();
    /// assert!(seen.is_empty());
    /// ```
    pub fn new() -> Self {
        Table::new().into()
    }

    /// An empty set of the [default domain](crate::rcu::default_domain), with memory for this many keys: see
    /// [`Table::with_capacity_in`].
    ///
    /// # Panics
    /// As [`Table::with_capacity`].
    ///
    /// ```
    /// use stillpoint::table::Set;
    ///
    /// let seen: Set<u64> = Set::with_capacity(10_000);
    /// assert!(seen.insert(7).expect("there is memory") && seen.contains_key(&7));
    /// ```
    pub fn with_capacity(keys: usize) -> Self {
        Table::with_capacity(keys).into()
    }
}

/// In the [default domain](crate::rcu::default_domain).
impl<K: Send + Sync + 'static, S: Default> Default for Set<K, S> {
    fn default() -> Self {
        Table::default().into()
    }
}

/// In the [default domain](crate::rcu::default_domain).
impl<K: Hash + Eq + Send + Sync + 'static, S: BuildHasher + Default> FromIterator<K> for Set<K, S> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let keys = keys.into_iter();
        let mut set = Self::from(Table::with_hasher(keys.size_hint().0));
        set.extend(keys);
        set
    }
}

/// In the [default domain](crate::rcu::default_domain).
impl<K: Hash + Eq + Send + Sync + 'static, const N: usize> From<[K; N]> for Set<K> {
    fn from(keys: [K; N]) -> Self {
        keys.into_iter().collect()
    }
}

impl<K: Send + Sync + 'static> Set<K> {
    /// An empty set of `domain`.
    ///
    /// # Panics
    /// As [`Table::new_in`].
    pub fn new_in(domain: &Domain) -> Self {
        Table::new_in(domain).into()
    }

    /// An empty set of `domain`, with memory for this many keys: see [`Table::with_capacity_in`].
    ///
    /// # Panics
    /// As [`Table::with_capacity_in`].
    pub fn with_capacity_in(domain: &Domain, keys: usize) -> Self {
        Table::with_capacity_in(domain, keys).into()
    }
}

impl<K, S> Set<K, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Inserts a key, and returns whether it was new. If the set has the key, the present key stays, and the new one is
    /// dropped.
    ///
    /// # Errors
    /// If the set is full and does not have the key: the key is handed back.
    ///
    /// # Panics
    /// As [`Table::insert`].
    pub fn insert(&self, key: K) -> Result<bool, Full<K, ()>> {
        let put = self.inner().put_and_poll(key, (), Only::New)?;
        Ok(!matches!(put, Put::Refused { .. }))
    }
}

impl<K, S> Deref for Set<K, S> {
    type Target = Table<K, (), S>;

    fn deref(&self) -> &Table<K, (), S> {
        &self.table
    }
}

impl<K, S> DerefMut for Set<K, S> {
    fn deref_mut(&mut self) -> &mut Table<K, (), S> {
        &mut self.table
    }
}

impl<K, S> From<Table<K, (), S>> for Set<K, S> {
    fn from(table: Table<K, (), S>) -> Self {
        Self { table }
    }
}

/// # Panics
/// When the set is full.
impl<K, S> Extend<K> for Set<K, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        for key in keys {
            self.insert(key).unwrap_or_else(|full| panic!("{full}"));
        }
    }
}

/// The keys, in arbitrary order. Not a snapshot.
impl<K, S> fmt::Debug for Set<K, S>
where
    K: Hash + Eq + fmt::Debug,
    S: BuildHasher,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reader = self.own_reader();
        let guard = reader.pin();
        f.debug_set().entries(self.within(&guard).keys()).finish()
    }
}

impl<K, S> IntoIterator for Set<K, S> {
    type Item = K;
    type IntoIter = std::iter::Map<super::IntoIter<K, (), S>, fn((K, ())) -> K>;

    /// Takes the set apart.
    ///
    /// ```
    /// use stillpoint::table::Set;
    ///
    /// let keys: Vec<_> = Set::from([7]).into_iter().collect();
    /// assert_eq!(keys, [7]);
    /// ```
    fn into_iter(self) -> Self::IntoIter {
        self.table.into_iter().map(|(key, ())| key)
    }
}

#[cfg(feature = "serde")]
mod serde {
    use std::fmt;
    use std::hash::{BuildHasher, Hash};
    use std::marker::PhantomData;

    use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
    use serde::{Serialize, Serializer};

    use super::Set;

    /// As a sequence.
    ///
    /// Not a snapshot, and without a length in advance, which some formats need. A region holds up the domain until the serializer
    /// has returned: serialize into memory what goes to a peer.
    impl<K, S> Serialize for Set<K, S>
    where
        K: Serialize + Hash + Eq,
        S: BuildHasher,
    {
        fn serialize<F: Serializer>(&self, serializer: F) -> Result<F::Ok, F::Error> {
            let reader = self.own_reader();
            let guard = reader.pin();
            serializer.collect_seq(self.within(&guard).keys())
        }
    }

    /// Into the [default domain](crate::rcu::default_domain). (For another domain, deserialize a vector, and extend
    /// a set of [`Set::new_in`] by it.)
    ///
    /// ```
    /// use stillpoint::table::Set;
    ///
    /// let keys: Set<u64> = serde_json::from_str("[1, 2, 2]")?;
    /// assert_eq!(keys.len(), 2);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    impl<'de, K> Deserialize<'de> for Set<K>
    where
        K: Deserialize<'de> + Hash + Eq + Send + Sync + 'static,
    {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Keys<K>(PhantomData<fn() -> K>);

            impl<'de, K: Deserialize<'de> + Hash + Eq + Send + Sync + 'static> Visitor<'de> for Keys<K> {
                type Value = Set<K>;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a sequence")
                }

                fn visit_seq<A: SeqAccess<'de>>(self, mut keys: A) -> Result<Set<K>, A::Error> {
                    let set = Set::new();
                    while let Some(key) = keys.next_element()? {
                        set.insert(key).map_err(A::Error::custom)?;
                    }
                    Ok(set)
                }
            }

            deserializer.deserialize_seq(Keys(PhantomData))
        }
    }
}
