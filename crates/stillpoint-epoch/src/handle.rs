use std::fmt;
use std::ptr::NonNull;

use crate::collector::Collector;
use crate::guard::Guard;
use crate::local::Local;

/// A thread's right to pin itself in a [`Collector`]. It stays on its thread, as its guards do.
///
/// See [`Collector::register`] for an example.
///
/// ```compile_fail,E0277
/// # use stillpoint_epoch::Collector;
/// let handle = Collector::new().register();
/// std::thread::spawn(move || drop(handle)); // `LocalHandle` cannot be sent
/// ```
/// ```
/// # use stillpoint_epoch::Collector;
/// let collector = Collector::new();
/// std::thread::spawn(move || drop(collector.register())); // make the handle on the thread that uses it
/// ```
pub struct LocalHandle {
    local: NonNull<Local>,
}

impl Collector {
    /// Registers the calling thread, even if it was registered before. Lock-free. There is no limit to the number of
    /// handles. Keep the handle: making one costs an allocation and a fence.
    ///
    /// ```
    /// use stillpoint_epoch::Collector;
    ///
    /// let collector = Collector::new();
    /// let (one, another) = (collector.register(), collector.register());
    /// let guard = one.pin();
    /// assert!(one.is_pinned() && !another.is_pinned());
    /// ```
    pub fn register(&self) -> LocalHandle {
        LocalHandle { local: Local::register(self) }
    }
}

impl LocalHandle {
    /// The local, which stays alive at least as long as this borrow.
    #[inline]
    fn local(&self) -> &Local {
        // SAFETY: this value owns one of the local's handles.
        unsafe { self.local.as_ref() }
    }

    /// The local's address.
    pub(crate) fn address(&self) -> NonNull<Local> {
        self.local
    }

    /// Pins the thread: objects that are unlinked from now on are not destroyed before the guard is dropped. The guard
    /// may outlive the handle. Guards nest. The outermost guard costs a sequentially consistent fence.
    ///
    /// ```
    /// use stillpoint_epoch::Collector;
    ///
    /// let handle = Collector::new().register();
    /// let outer = handle.pin();
    /// drop(handle.pin());
    /// assert!(handle.is_pinned());
    /// drop(outer);
    /// assert!(!handle.is_pinned());
    /// ```
    ///
    /// # Panics
    /// If the number of guards overflows a `usize`.
    #[inline]
    pub fn pin(&self) -> Guard {
        self.local().pin();
        // SAFETY: `Local::pin` has counted the guard.
        unsafe { Guard::of(self.local) }
    }

    /// Whether a guard of this handle exists.
    ///
    /// ```
    /// use stillpoint_epoch::Collector;
    ///
    /// assert!(!Collector::new().register().is_pinned());
    /// ```
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.local().is_pinned()
    }

    /// The collector that the handle is registered in.
    ///
    /// ```
    /// use stillpoint_epoch::Collector;
    ///
    /// let collector = Collector::new();
    /// assert!(collector.register().collector() == &collector);
    /// ```
    #[inline]
    pub fn collector(&self) -> &Collector {
        self.local().collector()
    }
}

impl Drop for LocalHandle {
    fn drop(&mut self) {
        // SAFETY: this value owns one of the local's handles, and is on the local's thread.
        unsafe { Local::release(self.local) };
    }
}

impl fmt::Debug for LocalHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("LocalHandle { .. }")
    }
}
