use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::engine::arena::Pair;
use super::engine::store::Store;
use super::engine::Inner;
use super::error::Full;
use super::RandomState;
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::Core;
use crate::rcu::{Reclaimer, RetireHandle};

/// What a write returns that may replace an entry: the old one, if there was any, or the new pair if the table is full.
pub type Replaced<'t, K, V, S = RandomState> = Result<Option<Removed<'t, K, V, S>>, Full<K, V>>;

/// An entry that was unlinked from its table, and that readers may still hold. It dereferences to the value.
///
/// When dropped, it is retired: the table frees it when no reader can hold it any more. When forgotten
/// (`mem::forget`), its key and value are leaked, and its memory comes back with the table.
pub struct Removed<'t, K: Send + Sync + 'static, V: Send + Sync + 'static, S = RandomState> {
    inner: &'t Inner<K, V, S>,
    entry: u32,
}

impl<'t, K: Send + Sync + 'static, V: Send + Sync + 'static, S> Removed<'t, K, V, S> {
    /// The entry was unlinked by the caller, who owns it.
    pub(super) fn new(inner: &'t Inner<K, V, S>, entry: u32) -> Self {
        Self { inner, entry }
    }

    fn pair(&self) -> &Pair<K, V> {
        // SAFETY: the entry is retired by the drop of this value alone.
        unsafe { self.inner.arena().pair(self.entry).as_ref() }
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.pair().key
    }

    /// Hands the entry to a reclaimer of the writer's own, which frees it in its polls: no other writer's destructors run
    /// there, and no lock is looked at. An entry that waits there keeps the memory of the table's entries.
    ///
    /// # Errors
    /// When the reclaimer is full of objects that readers hold up: the entry is handed back.
    ///
    /// # Panics
    /// If the reclaimer belongs to another domain; and as [`Reclaimer::retire`], if it was full. The entry is retired
    /// to the table then.
    ///
    /// ```
    /// # use stillpoint::{rcu::Domain, table::Table};
    /// # let domain = Domain::new();
    /// # let table: Table<u64, u64> = Table::new(&domain);
    /// # table.insert(1, 1).unwrap();
    /// let mut reclaimer = domain.reclaimer();
    /// if let Some(removed) = table.remove(&1) {
    ///     removed.retire_to(&mut reclaimer).expect("there is room");
    /// }
    /// while reclaimer.pending() > 0 {
    ///     reclaimer.poll();
    /// }
    /// ```
    pub fn retire_to(self, reclaimer: &mut Reclaimer) -> Result<(), Self> {
        self.verify(reclaimer.core());
        self.hand_over(|bytes, garbage| reclaimer.offer(bytes, garbage))
    }

    /// Hands the entry to a background reclaimer, which the table need not be attached to. An entry that waits there keeps
    /// the memory of the table's entries.
    ///
    /// # Errors
    /// When the reclaimer is full, or gone: the entry is handed back.
    ///
    /// # Panics
    /// If the reclaimer belongs to another domain. The entry is retired to the table then.
    ///
    /// ```
    /// # use stillpoint::{rcu::Domain, table::Table};
    /// # let domain = Domain::new();
    /// # let table: Table<u64, u64> = Table::new(&domain);
    /// # table.insert(1, 1).unwrap();
    /// let mut background = domain.background();
    /// let handle = background.retire_handle();
    /// if let Some(removed) = table.remove(&1) {
    ///     removed.submit_to(&handle).expect("there is room");
    /// }
    /// handle.stop();
    /// background.run();
    /// ```
    pub fn submit_to(self, handle: &RetireHandle) -> Result<(), Self> {
        self.verify(handle.core());
        self.hand_over(|bytes, garbage| handle.offer(bytes, garbage))
    }

    fn verify(&self, other: &Arc<Core>) {
        let own = self.inner.core();
        assert!(
            Arc::ptr_eq(own, other),
            "a reclaimer of domain `{}` was used with a table of domain `{}`",
            other.name(),
            own.name()
        );
    }

    /// `offer` makes garbage of the entry if it takes it, and says whether it does.
    fn hand_over(self, offer: impl FnOnce(usize, &dyn Fn() -> Garbage) -> bool) -> Result<(), Self> {
        let (store, entry) = (self.inner.store(), self.entry);
        // SAFETY: the entry is unlinked, and this value's, which is forgotten once it is taken in; its parts are as
        // asked (see `Table`).
        let garbage = || unsafe { store.entry_counted(entry) };
        if offer(Store::<K, V>::BYTES, &garbage) {
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

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Deref for Removed<'_, K, V, S> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value()
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for Removed<'_, K, V, S> {
    fn drop(&mut self) {
        self.inner.retire(self.entry);
        if !std::thread::panicking() {
            self.inner.poll();
        }
    }
}

impl<K, V, S> fmt::Debug for Removed<'_, K, V, S>
where
    K: Send + Sync + fmt::Debug + 'static,
    V: Send + Sync + fmt::Debug + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Removed").field("key", self.key()).field("value", self.value()).finish()
    }
}
