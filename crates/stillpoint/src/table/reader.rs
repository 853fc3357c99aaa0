use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use equivalent::Equivalent;

use super::compute::{Compute, TryInsertError};
use super::engine::arena::Lens;
use super::engine::change::{Deciding, Found, Operation, Protecting};
use super::engine::search::{Held, Home, Located, Pins};
use super::engine::Inner;
use super::error::{InitError, UpdateError};
use super::full::Full;
use super::guard::TableGuard;
use super::methods::deciding;
use super::removed::{Removed, Replaced};
use super::table::Table;
use super::RandomState;
use crate::rcu::owned::Hold;
use crate::rcu::{default_domain, OnThread, OwnedProtected, Reader};

/// A [`Table`](super::Table) as one reader sees it: made by [`Table::reader`](super::Table::reader), or by
/// [`TableHandle::reader`](super::TableHandle::reader).
///
/// It borrows the reader exclusively, and hands out one entry, or one guard, at a time. As long as it exists, it pins
/// the array of buckets that its last lookup saw. So after the table has grown, a `TableReader` that is no longer used
/// keeps alive the memory of an old array. Drop it when the thread stops reading for a long time.
pub struct TableReader<'a, K, V, S = RandomState> {
    inner: &'a Inner<K, V, S>,
    lens: OnThread<Lens<'a, K, V>>,
    pins: OnThread<Pins<'a>>,
    reader: &'a Reader,
    exclusive: PhantomData<&'a mut Reader>,
}

impl<K, V, S> Table<K, V, S> {
    /// Binds a reader to the table. The domain is checked here, not at each lookup.
    ///
    /// # Panics
    /// If `reader` belongs to another domain.
    #[inline(always)]
    #[track_caller]
    pub fn reader<'a>(&'a self, reader: &'a mut Reader) -> TableReader<'a, K, V, S> {
        self.verify(reader.core());
        // SAFETY: the domain was checked.
        unsafe { TableReader::new(self.inner(), reader, None) }
    }
}

/// Lookups that protect one entry. A thread that is preempted in such a call, or while it holds the [`Ref`], keeps this entry alive, and
/// during the call at most two arrays of buckets.
impl<K, V, S> Table<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Looks a key up, with the reader of the calling thread: the entry is not freed as long as the result exists. For tables of the
    /// [default domain](crate::rcu::default_domain); in others, see [`protect`](Table::protect).
    ///
    /// Never waits, and takes no lock. In a large table, it has two cache misses: the bucket and the entry. Any number of results may
    /// exist at a time. Each stays on its thread. Not for signal handlers: see [`try_pin`](crate::rcu::try_pin).
    ///
    /// # Panics
    /// If the table is of another domain; the message names both. With a panic of the user's `Hash` or `Eq`.
    ///
    /// ```
    /// use stillpoint::table::Table;
    ///
    /// let flows: Table<u64, String> = Table::new();
    /// flows.insert(7, "https".into())?;
    /// let flow = flows.get(&7).expect("inserted above");
    /// flows.remove(&7); // freed by a later write, once `flow` is dropped
    /// assert_eq!(*flow, "https");
    /// assert!(flows.get(&7).is_none());
    /// # Ok::<(), stillpoint::table::Full<u64, String>>(())
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>> {
        self.protect(default_domain::reader(), key)
    }

    /// As [`get`](Table::get), with this reader.
    ///
    /// # Panics
    /// If the reader is of another domain. With a panic of the user's `Hash` or `Eq`.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let flows: Table<u64, &str> = Table::from_iter_in(&domain, [(1, "http"), (2, "dns")]);
    /// let reader = domain.reader(); // one for each thread, kept
    /// let (first, second) = (flows.protect(&reader, &1), flows.protect(&reader, &2));
    /// assert_eq!((first.as_deref(), second.as_deref()), (Some(&"http"), Some(&"dns")));
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn protect<'a, Q: Hash + Equivalent<K> + ?Sized>(
        &'a self,
        reader: &'a Reader,
        key: &Q,
    ) -> Option<Ref<'a, K, V>> {
        self.protect_hashed(reader, self.hash(key), key)
    }

    /// As [`protect`](Table::protect), with the [hash](Table::hash) of the key. With any other hash, the key is not found.
    ///
    /// # Panics
    /// As [`protect`](Table::protect), but for those of `Hash`.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let flows: Table<u64, &str> = Table::from_iter_in(&domain, [(1, "http")]);
    /// let hash = flows.hash(&1); // once, for several lookups
    /// let reader = domain.reader();
    /// assert_eq!(flows.protect_hashed(&reader, hash, &1).as_deref(), Some(&"http"));
    /// assert_eq!(flows.within(&reader.pin()).get_hashed(hash, &1), Some(&"http"));
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn protect_hashed<'a, Q: Equivalent<K> + ?Sized>(
        &'a self,
        reader: &'a Reader,
        hash: u64,
        key: &Q,
    ) -> Option<Ref<'a, K, V>> {
        self.verify(reader.core());
        self.inner().search_unbound::<_, Held<'_, K, V>>(reader, hash, key).map(Ref::new)
    }

    /// The hash of a key in this table, for the lookups by a hash that is known.
    ///
    /// # Panics
    /// With a panic of the user's `Hash`.
    ///
    /// ```
    /// use stillpoint::table::Table;
    ///
    /// let flows: Table<u64, &str> = Table::from([(1, "http")]);
    /// let hash = flows.hash(&1);
    /// assert_eq!(flows.pin().get_hashed(hash, &1), Some(&"http"));
    /// ```
    #[inline(always)]
    pub fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.inner().hash(key)
    }

    /// Looks a key up in a table of any domain, with a result that is bound to no thread: it may be sent, and held across an `.await`. From a
    /// `&'static` table it is `'static`; from an `Arc`, see [`get_arc`](Table::get_arc).
    ///
    /// In the default domain it costs about as much as [`get`](Table::get), if it is the only one that the thread has at the time. See
    /// [`OwnedProtected`] for further ones. In another domain it also registers a reader for this call.
    ///
    /// # Panics
    /// With a panic of the user's `Hash` or `Eq`.
    ///
    /// ```
    /// use std::sync::LazyLock;
    /// use stillpoint::table::Table;
    ///
    /// static USERS: LazyLock<Table<u64, String>> = LazyLock::new(|| Table::from([(7, "Ada".to_owned())]));
    ///
    /// async fn greet(id: u64) -> Option<String> {
    ///     let user = USERS.get_owned(&id)?;
    ///     // ... other tasks run meanwhile, and the user may be removed ...
    ///     # async fn pause() {}
    ///     pause().await;
    ///     Some(format!("hello {}", *user))
    /// }
    /// # fn run<T>(task: impl Future<Output = T> + Send + 'static) -> T {
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     match std::pin::pin!(task).poll(&mut context) {
    /// #         std::task::Poll::Ready(found) => found,
    /// #         std::task::Poll::Pending => unreachable!(),
    /// #     }
    /// # }
    /// # use std::future::Future;
    /// assert_eq!(run(greet(7)).as_deref(), Some("hello Ada"));
    /// ```
    #[doc(alias = "protect_owned")]
    pub fn get_owned<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<OwnedProtected<'_, V>> {
        let (value, hold) = self.search_owned(key)?;
        // SAFETY: the entry is held, and its memory is the table's.
        Some(unsafe { OwnedProtected::new(value, hold, None) })
    }

    /// As [`get_owned`](Table::get_owned), but the result shares ownership of the table, and may outlive the borrow.
    ///
    /// # Panics
    /// As [`get_owned`](Table::get_owned).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use stillpoint::table::Table;
    ///
    /// let users = Arc::new(Table::from([(7, "Ada".to_owned())]));
    /// let user = users.get_arc(&7).expect("inserted above");
    /// users.remove(&7);
    /// drop(users);
    /// std::thread::spawn(move || assert_eq!(*user, "Ada")).join().unwrap();
    /// ```
    pub fn get_arc<Q: Hash + Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
    ) -> Option<OwnedProtected<'static, V>>
    where
        Self: Send + Sync + 'static,
    {
        let (value, hold) = self.search_owned(key)?;
        let table: Arc<dyn Send + Sync> = Arc::clone(self) as _;
        // SAFETY: the entry is held, and its memory is that of the table, which the result shares.
        Some(unsafe { OwnedProtected::new(value, hold, Some(table)) })
    }

    #[inline(always)]
    fn search_owned<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<(NonNull<V>, Hold)> {
        let (pair, hold) = self.inner().search_owned(&self.own_reader(), self.hash(key), key)?;
        // SAFETY: the entry is held.
        Some((NonNull::from(unsafe { &pair.as_ref().value }), hold))
    }

    /// Whether the key is in the table, by a lookup as [`get`](Table::get).
    ///
    /// # Panics
    /// As [`get`](Table::get).
    #[inline(always)]
    #[track_caller]
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.get(key).is_some()
    }

    /// A copy of the value, by a lookup as [`get`](Table::get).
    ///
    /// # Panics
    /// As [`get`](Table::get).
    ///
    /// ```
    /// let ports = stillpoint::table::Table::from([("ssh", 22), ("dns", 53)]);
    /// assert_eq!((ports.copied("dns"), ports.copied("ntp")), (Some(53), None));
    /// assert!(ports.contains_key("ssh"));
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn copied<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Copy,
    {
        self.get(key).map(|entry| *entry)
    }

    /// A clone of the value, by a lookup as [`get`](Table::get).
    ///
    /// # Panics
    /// As [`get`](Table::get), and with a panic of `clone`.
    #[inline]
    #[track_caller]
    pub fn cloned<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Clone,
    {
        self.get(key).map(|entry| entry.value().clone())
    }
}

impl<'a, K, V, S> TableReader<'a, K, V, S> {
    /// `home` has the array that stays pinned from one reader to the next, if it does.
    ///
    /// # Safety
    /// The reader is of the table's domain. As long as `home` exists, the reader is used for nothing else, and `home` only
    /// with this reader and this table.
    #[inline(always)]
    pub(super) unsafe fn new(
        inner: &'a Inner<K, V, S>,
        reader: &'a mut Reader,
        home: Option<&'a mut Home>,
    ) -> Self {
        let reader = &*reader;
        // SAFETY: by the caller's promise, the reader is of the table's domain, and `home` belongs to both. This value
        // borrows all three, the reader exclusively.
        let pins = OnThread::new(unsafe { Pins::new(inner, reader.record(), reader.fence(), home) });
        Self { inner, lens: OnThread::new(inner.lens()), pins, reader, exclusive: PhantomData }
    }

    /// Begins a region in which the table is read. A preempted thread that holds the guard keeps alive everything retired
    /// since, as for [`Reader::pin`].
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<u64, u64> = Table::new_in(&domain);
    /// for key in 0..100 { table.insert(key, key * key).unwrap(); }
    /// let mut reader = domain.reader();
    /// let mut lookup = table.reader(&mut reader);
    /// let guard = lookup.pin();
    /// assert_eq!((guard.get(&4), guard.get(&5)), (Some(&16), Some(&25)));
    /// assert_eq!(guard.get_many(&[6, 7, 700]), [Some(&36), Some(&49), None]);
    /// ```
    #[inline(always)]
    pub fn pin(&mut self) -> TableGuard<'_, K, V, S> {
        // SAFETY: the reader is of the table's domain.
        unsafe { TableGuard::new(self.inner, self.reader.pin()) }
    }
}

impl<'a, K, V, S> TableReader<'a, K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Looks a key up, and pins its entry: the entry is not freed as long as the result exists. A preempted thread
    /// keeps only this entry alive.
    ///
    /// In a large table, a lookup has two cache misses: the bucket and the entry.
    #[inline(always)]
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<Ref<'_, K, V>> {
        self.get_hashed(self.inner.hash(key), key)
    }

    /// As [`get`](TableReader::get), with the [hash](Table::hash) of the key. With any other hash, the key is not found.
    #[inline(always)]
    pub fn get_hashed<Q: Equivalent<K> + ?Sized>(&mut self, hash: u64, key: &Q) -> Option<Ref<'_, K, V>> {
        self.pins.search(self.inner, &self.lens, hash, key).map(Ref::new)
    }

    /// A copy of the value.
    ///
    /// ```
    /// let ports = std::sync::Arc::new(stillpoint::table::Table::from([("ssh", 22), ("dns", 53)]));
    /// let mut handle = ports.handle();
    /// let mut lookup = handle.reader();
    /// assert_eq!((lookup.copied("dns"), lookup.copied("ntp")), (Some(53), None));
    /// ```
    #[inline(always)]
    pub fn copied<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        V: Copy,
    {
        self.get(key).map(|entry| *entry)
    }

    /// Whether the key is in the table.
    #[inline(always)]
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> bool {
        self.get(key).is_some()
    }

    #[inline(always)]
    fn finder(&mut self) -> (&'a Inner<K, V, S>, Protecting<'_, 'a, K, V, S>) {
        (self.inner, Protecting { inner: self.inner, pins: &mut self.pins, lens: *self.lens })
    }

    /// As [`Table::get_or_init`](super::Table::get_or_init).
    ///
    /// # Errors
    /// When this call would have to wait, but must not: the key is handed back. When the table is full: the pair is handed back.
    pub fn get_or_init(
        &mut self,
        key: K,
        init: impl FnOnce() -> V,
    ) -> Result<Ref<'_, K, V>, InitError<K, V>> {
        let (inner, mut finder) = self.finder();
        Ok(Ref::new(inner.get_or_init(&mut finder, key, init)?))
    }

    deciding!(pub self, [&mut self], 'a, Ref<'_, K, V> = Ref::new, Ref<'_, K, V> = Ref::new, (&K, &V) = Located::key_value);
}

stillpoint_sys::debug!([K, V, S] |this| TableReader<'_, K, V, S> { domain: this.reader.core().name(), .. });

/// An entry that is not freed as long as this value exists: see [`Table::get`]. It dereferences to the value.
///
/// ```
/// use stillpoint::table::Table;
///
/// let flows: Table<u64, &str> = Table::new();
/// flows.insert(7, "https")?;
/// let flow = flows.get(&7).expect("inserted above");
/// flows.remove(&7); // freed by a later write, once `flow` is dropped
/// assert_eq!((flow.key(), flow.value()), (&7, &"https"));
/// assert_eq!(*flow, "https");
/// # Ok::<(), stillpoint::table::Full<u64, &str>>(())
/// ```
#[must_use = "the entry is protected until this value is dropped"]
pub struct Ref<'a, K, V> {
    held: OnThread<Held<'a, K, V>>,
}

impl<'a, K, V> Ref<'a, K, V> {
    #[inline(always)]
    pub(super) fn new(held: impl Into<Held<'a, K, V>>) -> Self {
        Self { held: OnThread::new(held.into()) }
    }

    /// The key.
    #[inline(always)]
    pub fn key(&self) -> &K {
        &self.held.get().key
    }

    /// The value.
    #[inline(always)]
    pub fn value(&self) -> &V {
        &self.held.get().value
    }
}

impl<K, V> Deref for Ref<'_, K, V> {
    type Target = V;

    #[inline(always)]
    fn deref(&self) -> &V {
        self.value()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Ref<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ref").field("key", self.key()).field("value", self.value()).finish()
    }
}
