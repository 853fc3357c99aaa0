use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::domain;
use crate::guard::Guard;
use crate::local::Local;
use crate::rounds::Shared;

/// The guards and the deferred functions that belong together: a function waits only for guards of its collector.
///
/// A clone is the same collector. Handles and guards keep the collector alive. When the last clone, handle and guard
/// has been dropped, the functions that are still deferred run.
///
/// ```
/// use stillpoint_epoch::Collector;
///
/// let collector = Collector::new();
/// let handle = collector.register();
/// drop(collector); // the handle keeps the collector alive
/// let guard = handle.pin();
/// drop(handle); // the guard keeps the collector alive
/// guard.defer(|| println!("runs at the latest when the guard is dropped: it is the last one"));
/// ```
#[derive(Clone)]
pub struct Collector {
    shared: Arc<Shared>,
}

impl Collector {
    /// A new collector.
    ///
    /// ```
    /// use stillpoint_epoch::Collector;
    ///
    /// assert!(Collector::new() != Collector::new());
    /// ```
    pub fn new() -> Self {
        Self::of(Shared::new(domain::builder().build().expect("nothing was chosen that may be refused")))
    }

    pub(crate) fn of(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

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

impl Default for Collector {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether both are the same collector.
impl PartialEq for Collector {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Collector {}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Collector { .. }")
    }
}

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
