use std::error::Error;
use std::fmt;
use std::mem::ManuallyDrop;
use std::num::NonZero;
use std::ops::Deref;
use std::ptr;
use std::time::Duration;

use super::engine::arena::Pair;
use super::engine::{Inner, Owned};
use super::foreign::{verify_reader, verify_reclaimer};
use super::full::Full;
use super::RandomState;
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::retired::{is_free, wait_until_free};
use crate::rcu::wait::{SynchronizeError, Token};
use crate::rcu::{Reclaimer, Region, RetireHandle};

/// The result of a write that may replace an entry: the old entry, if there was one, or the new pair if the table is
/// full.
pub type Replaced<'t, K, V, S = RandomState> = Result<Option<Removed<'t, K, V, S>>, Full<K, V>>;

/// An entry that was unlinked from its table, and that readers may still hold. It dereferences to the value.
///
/// When dropped, it is retired: the table frees it when no reader can hold it any more. When forgotten (`mem::forget`),
/// its key and value are leaked, and its memory is freed with the table.
///
/// ```
/// use stillpoint::table::Table;
///
/// let sessions: Table<u64, &str> = Table::new();
/// sessions.insert(7, "login")?;
/// let removed = sessions.remove(&7).expect("inserted above");
/// assert_eq!((removed.key(), removed.value()), (&7, &"login"));
/// assert_eq!(*removed, "login");
/// drop(removed); // freed when no reader can hold it
/// # Ok::<(), stillpoint::table::Full<u64, &str>>(())
/// ```
pub struct Removed<'t, K, V, S = RandomState> {
    inner: &'t Inner<K, V, S>,
    owned: Owned,
    /// The token of the grace period that the first call of `token` or `try_into_entry` started.
    token: Option<NonZero<u64>>,
}

impl<'t, K, V, S> Removed<'t, K, V, S> {
    pub(super) fn new(inner: &'t Inner<K, V, S>, owned: Owned) -> Self {
        Self { inner, owned, token: None }
    }

    fn pair(&self) -> &Pair<K, V> {
        // SAFETY: the entry is retired only by the drop of this value.
        unsafe { self.inner.arena().pair(self.owned.entry()).as_ref() }
    }

    /// Where the pair is: what readers' slots hold.
    fn address(&self) -> usize {
        ptr::from_ref(self.pair()).addr()
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.pair().key
    }

    /// The token of the grace period that the entry waits for, so that the caller can wait for it, too. The first call
    /// of this method or of [`try_into_entry`](Removed::try_into_entry) starts the grace period. When it is over,
    /// `try_into_entry` fails only while a protected lookup holds the entry.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<&str, u64> = Table::new_in(&domain);
    /// table.insert("a", 1).unwrap();
    /// let mut removed = table.remove("a").unwrap();
    /// domain.wait(removed.token())?;
    /// assert_eq!(removed.try_into_entry().unwrap(), ("a", 1));
    /// # Ok::<(), stillpoint::rcu::wait::SynchronizeError>(())
    /// ```
    pub fn token(&mut self) -> Token {
        Token::new(self.inner.core(), self.started())
    }

    fn started(&mut self) -> u64 {
        let core = self.inner.core();
        let start = || NonZero::new(core.protocol.start()).expect("tokens begin at 1");
        self.token.get_or_insert_with(start).get()
    }

    /// The key and the value, if no reader can hold the entry any more; otherwise hands the removed entry back. Never
    /// waits.
    ///
    /// The first call starts a grace period and later ones check it. Each call may issue a heavy fence, and scans all
    /// readers.
    ///
    /// # Errors
    /// The entry, when a reader may still hold it, or the kernel refuses the fence.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<&str, String> = Table::new_in(&domain);
    /// table.insert("a", "kept".to_owned()).unwrap();
    /// let mut reader = domain.reader();
    /// let mut lookup = table.reader(&mut reader);
    /// let entry = lookup.get("a");
    /// let removed = table.remove("a").unwrap();
    /// let removed = removed.try_into_entry().expect_err("the reader holds it");
    /// drop(entry);
    /// let (_, value) = removed.try_into_entry().expect("no reader holds it");
    /// assert_eq!(value, "kept");
    /// ```
    pub fn try_into_entry(mut self) -> Result<(K, V), Self> {
        let (token, inner) = (self.started(), self.inner);
        if !is_free(inner.core(), token, self.address()) {
            return Err(self);
        }
        let entry = ManuallyDrop::new(self).owned.entry();
        // SAFETY: the entry is unlinked, this value owned it, and no reader can hold it any more.
        Ok(unsafe { inner.take_pair(entry) })
    }

    /// Waits until no reader can hold the entry any more, without a limit, and returns key and value.
    ///
    /// A result of [`get_owned`](super::Table::get_owned) belongs to no thread: a thread that has one of this entry itself waits for ever.
    ///
    /// The end of a protected lookup wakes no thread. This call looks again after 50 µs, then after twice as long, and so on, up to 1 ms.
    ///
    /// # Errors
    /// As [`Domain::synchronize`](crate::rcu::Domain::synchronize); [`WouldDeadlock`](SynchronizeError::WouldDeadlock) also if a protected
    /// lookup of the calling thread holds the entry. The error hands the entry back.
    ///
    /// ```
    /// use stillpoint::rcu::wait::SynchronizeError;
    /// use stillpoint::table::Table;
    ///
    /// let table = Table::from([("a", String::from("kept"))]);
    /// let held = table.get("a");
    /// let refused = table.remove("a").unwrap().into_entry().unwrap_err();
    /// assert!(matches!(refused.cause, SynchronizeError::WouldDeadlock { .. })); // this thread holds it
    /// drop(held);
    /// let (_, value) = refused.removed.into_entry().unwrap();
    /// assert_eq!(value, "kept");
    /// ```
    pub fn into_entry(self) -> Result<(K, V), StillHeld<'t, K, V, S>> {
        self.into_entry_within(None)
    }

    /// As [`into_entry`](Removed::into_entry), for at most `limit`.
    ///
    /// # Errors
    /// Also [`Stalled`](SynchronizeError::Stalled), with a report on the region in the way, and [`Pinned`](SynchronizeError::Pinned) if a
    /// protected lookup holds the entry. The error hands the entry back.
    pub fn into_entry_timeout(self, limit: Duration) -> Result<(K, V), StillHeld<'t, K, V, S>> {
        self.into_entry_within(Some(limit))
    }

    fn into_entry_within(mut self, limit: Option<Duration>) -> Result<(K, V), StillHeld<'t, K, V, S>> {
        let (token, inner) = (self.started(), self.inner);
        if let Err(cause) = wait_until_free(inner.core(), token, self.address(), limit) {
            return Err(StillHeld { removed: self, cause });
        }
        let entry = ManuallyDrop::new(self).owned.entry();
        // SAFETY: the entry is unlinked, this value owned it, and no reader can hold it any more.
        Ok(unsafe { inner.take_pair(entry) })
    }

    /// Retires the entry, and returns its key and value for as long as the region lasts.
    ///
    /// # Panics
    /// If the region's domain is not the table's. Like each write, with the panic of another removed entry's destructor.
    ///
    /// ```
    /// use stillpoint::{rcu, table::Table};
    ///
    /// let table = Table::from([("a", String::from("old"))]);
    /// let guard = rcu::pin();
    /// let (_, old) = table.remove("a").unwrap().within(&guard);
    /// assert_eq!(old, "old");
    /// ```
    #[track_caller]
    pub fn within<'g, R: Region>(self, region: &'g R) -> (&'g K, &'g V)
    where
        't: 'g,
    {
        verify_reader(self.inner.core(), region.core());
        // SAFETY: the entry is retired below, during the region, which is borrowed for `'g`: its grace period comes later. The table,
        // whose memory it is in, is borrowed for longer.
        let pair = unsafe { self.inner.arena().pair(self.owned.entry()).as_ref() };
        drop(self);
        (&pair.key, &pair.value)
    }

    /// Hands the entry to a reclaimer of the calling thread, which frees it in its polls. These polls take no lock, and
    /// run no destructors of other writers' entries. An entry that waits there keeps the memory of all the table's
    /// entries allocated.
    ///
    /// # Errors
    /// When the reclaimer is full, and readers hold its objects up: the entry is handed back.
    ///
    /// # Panics
    /// If the reclaimer belongs to another domain. If it was full, also as [`Reclaimer::retire`]. In either case, the
    /// table retires the entry.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<u64, u64> = Table::new_in(&domain);
    /// table.insert(1, 1).unwrap();
    /// let mut reclaimer = domain.reclaimer();
    /// if let Some(removed) = table.remove(&1) {
    ///     removed.retire_to(&mut reclaimer).expect("there is room");
    /// }
    /// while reclaimer.pending() > 0 {
    ///     reclaimer.poll();
    /// }
    /// ```
    #[track_caller]
    pub fn retire_to(self, reclaimer: &mut Reclaimer) -> Result<(), Self> {
        verify_reclaimer(self.inner.core(), reclaimer.core(), "used with");
        self.hand_over(|bytes, garbage| reclaimer.offer(bytes, garbage))
    }

    /// Hands the entry to a background reclaimer; the table need not be attached to it. An entry that waits there keeps
    /// the memory of all the table's entries allocated.
    ///
    /// # Errors
    /// When the reclaimer is full, or gone: the entry is handed back.
    ///
    /// # Panics
    /// If the reclaimer belongs to another domain. The table then retires the entry.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<u64, u64> = Table::new_in(&domain);
    /// table.insert(1, 1).unwrap();
    /// let mut background = domain.background();
    /// let handle = background.retire_handle();
    /// if let Some(removed) = table.remove(&1) {
    ///     removed.submit_to(&handle).expect("there is room");
    /// }
    /// handle.stop();
    /// background.run();
    /// ```
    #[track_caller]
    pub fn submit_to(self, handle: &RetireHandle) -> Result<(), Self> {
        verify_reclaimer(self.inner.core(), handle.core(), "used with");
        self.hand_over(|bytes, garbage| handle.offer(bytes, garbage))
    }

    fn hand_over(self, offer: impl FnOnce(usize, &dyn Fn() -> Garbage) -> bool) -> Result<(), Self> {
        if self.inner.retire_to(self.owned.entry(), offer) {
            std::mem::forget(self);
            Ok(())
        } else {
            Err(self)
        }
    }

    /// The value.
    pub fn value(&self) -> &V {
        &self.pair().value
    }
}

/// A wait for the readers of a [`Removed`] entry ended before they had released it: see [`Removed::into_entry`].
///
/// ```
/// use std::time::Duration;
/// use stillpoint::table::Table;
///
/// let table = Table::from([("a", 1)]);
/// let held = table.get("a");
/// let limit = Duration::from_millis(1);
/// let refused = table.remove("a").unwrap().into_entry_timeout(limit).unwrap_err();
/// assert_eq!(*refused.removed, 1);
/// println!("{refused}");
/// ```
pub struct StillHeld<'t, K, V, S = RandomState> {
    /// The entry. When dropped, it is retired.
    pub removed: Removed<'t, K, V, S>,
    /// Why the wait ended.
    pub cause: SynchronizeError,
}

stillpoint_sys::debug!([K, V, S] |this| StillHeld<'_, K, V, S> { cause: this.cause, .. });

impl<K, V, S> fmt::Display for StillHeld<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the entry was not taken apart (try again later, or drop it): {}", self.cause)
    }
}

impl<K, V, S> Error for StillHeld<'_, K, V, S> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

impl<K, V, S> Deref for Removed<'_, K, V, S> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value()
    }
}

impl<K, V, S> Drop for Removed<'_, K, V, S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.inner.retire(self.owned);
        } else {
            self.inner.retire_and_poll(self.owned);
        }
    }
}

impl<K, V, S> fmt::Debug for Removed<'_, K, V, S>
where
    K: fmt::Debug,
    V: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Removed").field("key", self.key()).field("value", self.value()).finish()
    }
}
