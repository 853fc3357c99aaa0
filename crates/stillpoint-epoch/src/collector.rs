use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::domain;
use crate::guard::Guard;
use crate::local::{Local, Shared};

/// What guards and deferred functions belong to: a function waits for the guards of its own collector.
///
/// Clones are the same collector. Handles and guards keep it; when the last of all has gone, what is still deferred is run.
///
/// ```
/// use stillpoint_epoch::Collector;
///
/// let collector = Collector::new();
/// let handle = collector.register();
/// drop(collector); // the handle keeps it
/// let guard = handle.pin();
/// drop(handle); // the guard keeps it
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

    /// Registers the calling thread, once more if it was registered before. Lock-free; there is no upper limit. Keep the handle: to make one
    /// costs an allocation and a fence.
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

/// Whether they are the same collector.
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
/// std::thread::spawn(move || drop(collector.register())); // made where it is used
/// ```
pub struct LocalHandle {
    local: NonNull<Local>,
}

impl LocalHandle {
    /// The local, which stays alive for this borrow at least.
    #[inline]
    fn local(&self) -> &Local {
        // SAFETY: this value owns one of its handles.
        unsafe { self.local.as_ref() }
    }

    /// The local's address.
    pub(crate) fn address(&self) -> NonNull<Local> {
        self.local
    }

    /// Pins: what is unlinked from now on is not destroyed before the guard is dropped. The guard may outlive the handle. Guards
    /// nest; the outermost one costs a sequentially consistent fence.
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
    /// If there are as many guards as addresses.
    #[inline]
    pub fn pin(&self) -> Guard {
        self.local().pin();
        // SAFETY: the guard was counted for it.
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

    /// The collector in which it was registered.
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
        // SAFETY: this value owns one of its handles, and is on its thread.
        unsafe { Local::release(self.local) };
    }
}

impl fmt::Debug for LocalHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("LocalHandle { .. }")
    }
}
