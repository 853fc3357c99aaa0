use std::fmt;
use std::ptr::{self, NonNull};

use stillpoint::rcu::raw::Object;

use crate::cells::{self, Cells};
use crate::collector::Collector;
use crate::local::Local;
use crate::pointable::{Pointable, Pointer};
use crate::shared::Shared;
use crate::word;

/// Keeps its thread pinned: no object is destroyed that may have been reached under it.
///
/// Made by [`pin`](crate::pin), or by [`LocalHandle::pin`](crate::LocalHandle::pin). A thread is pinned from its first guard to its last
/// one, in whichever order they are dropped:
///
/// ```
/// use stillpoint_epoch as epoch;
///
/// let (first, second) = (epoch::pin(), epoch::pin());
/// drop(first);
/// assert!(epoch::is_pinned());
/// drop(second);
/// assert!(!epoch::is_pinned());
/// ```
///
/// A guard lends its lifetime to what is loaded under it, stays on its thread, and holds up everything that is deferred meanwhile. If it
/// is forgotten (`mem::forget`), it does so for ever.
///
/// ```compile_fail,E0505
/// # use std::sync::atomic::Ordering::Acquire;
/// # use stillpoint_epoch::{self as epoch, Atomic};
/// # let link = Atomic::new(7);
/// let guard = epoch::pin();
/// let shared = link.load(Acquire, &guard);
/// drop(guard);
/// shared.is_null(); // used after the guard
/// ```
///
/// # Panics
/// The drop of a thread's last guard may run deferred functions, and panics with the first panic of one, after the others have run.
pub struct Guard {
    /// `None` for that of [`unprotected`].
    local: Option<NonNull<Local>>,
}

impl Guard {
    /// # Safety
    /// The guard was counted for it: [`Local::pin`].
    #[inline]
    pub(crate) unsafe fn of(local: NonNull<Local>) -> Self {
        Self { local: Some(local) }
    }

    #[inline]
    fn local(&self) -> Option<&Local> {
        // SAFETY: it is alive as long as it has guards.
        self.local.map(|local| unsafe { local.as_ref() })
    }

    /// Calls `f` when every guard has gone that exists now, this one included: at once, if this guard is [`unprotected`].
    ///
    /// Some thread of the collector calls it, when it drops its last guard or [flushes](Guard::flush); or whoever drops the last handle, guard
    /// or clone of the collector. Nothing is said about when. This call neither waits nor fails, and allocates nothing for closures of
    /// three words or less, but for a block that 63 of them share.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use stillpoint_epoch::Collector;
    ///
    /// let (sender, receiver) = mpsc::channel();
    /// let handle = Collector::new().register();
    /// let guard = handle.pin();
    /// guard.defer(move || sender.send(7));
    /// assert!(receiver.try_recv().is_err());
    /// drop(guard);
    /// drop(handle); // the last one
    /// assert_eq!(receiver.recv(), Ok(7));
    /// ```
    ///
    /// # Panics
    /// With a panic of `f`, if it is called at once. In a domain that has limits, with the panic of another function that is ready; `f` was
    /// deferred then.
    pub fn defer<F, R>(&self, f: F)
    where
        F: FnOnce() -> R,
        F: Send + 'static,
    {
        // SAFETY: any thread may call it, at any time.
        unsafe { self.defer_unchecked(f) };
    }

    /// As [`defer`](Guard::defer), for a function that the compiler would not let another thread call later: [`Shared`] is not `Send`,
    /// and lives no longer than its guard.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::AcqRel;
    /// use stillpoint_epoch::{self as epoch, Atomic, Owned};
    ///
    /// let link = Atomic::new(String::from("first"));
    /// let guard = &epoch::pin();
    /// let old = link.swap(Owned::new(String::from("second")), AcqRel, guard);
    /// // SAFETY: unlinked just now, so nobody can reach it when all guards have gone.
    /// unsafe { guard.defer_unchecked(move || println!("{} goes", *old.into_owned())) };
    /// # drop(unsafe { link.into_owned() });
    /// ```
    ///
    /// # Panics
    /// As [`defer`](Guard::defer).
    ///
    /// # Safety
    /// Any thread may call `f` at any time from when the guards have gone: it borrows nothing that ends before, and what it owns or uses may be
    /// used by another thread.
    pub unsafe fn defer_unchecked<F, R>(&self, f: F)
    where
        F: FnOnce() -> R,
    {
        /// # Safety
        /// The place is that of such a function, which is called once.
        unsafe extern "C-unwind" fn of_cell<F: FnOnce() -> R, R>(cell: NonNull<()>, block: *const ()) {
            // SAFETY: the caller's promise.
            let function = unsafe { cells::take::<F>(cell, block) };
            function();
        }
        /// # Safety
        /// As for `of_cell`.
        unsafe extern "C-unwind" fn of_box<F: FnOnce() -> R, R>(function: NonNull<()>, _: *const ()) {
            // SAFETY: it came from `Box::into_raw` below.
            let function = unsafe { Box::from_raw(function.cast::<F>().as_ptr()) };
            function();
        }

        let Some(local) = self.local() else {
            f();
            return;
        };
        let bytes = size_of::<F>();
        let object = if Cells::fits::<F>() {
            let place = local.cells().put(f);
            Object { address: place.address, bytes, context: place.block, destroy: of_cell::<F, R> }
        } else {
            let address = NonNull::from(Box::leak(Box::new(f))).cast();
            Object { address, bytes, context: ptr::null(), destroy: of_box::<F, R> }
        };
        // SAFETY: the function is called once. What it uses is alive then, by the caller's promise.
        unsafe { local.defer(object) };
    }

    /// Destroys the object when every guard has gone that exists now: at once, if this guard is [`unprotected`]. Allocates nothing.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::AcqRel;
    /// use stillpoint_epoch::{self as epoch, Atomic, Shared};
    ///
    /// let link = Atomic::new(7);
    /// let guard = &epoch::pin();
    /// let old = link.swap(Shared::null(), AcqRel, guard);
    /// // SAFETY: unlinked just now, by this thread.
    /// unsafe { guard.defer_destroy(old) };
    /// ```
    ///
    /// # Panics
    /// As [`defer`](Guard::defer). With debug assertions, if the pointer is null.
    ///
    /// # Safety
    /// - The pointer is not null, and the object is alive, and owned by the caller.
    /// - No thread that pins itself from now on can reach the object.
    /// - Any thread may drop the object.
    pub unsafe fn defer_destroy<T: ?Sized + Pointable>(&self, ptr: Shared<'_, T>) {
        /// # Safety
        /// The address is that of such an object, which is destroyed once.
        unsafe extern "C-unwind" fn destroy<T: ?Sized + Pointable>(object: NonNull<()>, _: *const ()) {
            // SAFETY: the caller's promise.
            unsafe { T::drop(object.as_ptr().expose_provenance()) };
        }

        let Some(local) = self.local() else {
            // SAFETY: the caller's promise.
            drop(unsafe { ptr.into_owned() });
            return;
        };
        let address = word::address::<T>(ptr.into_usize());
        debug_assert_ne!(address, 0, "there is nothing to destroy behind a null pointer");
        if let Some(object) = NonNull::new(ptr::with_exposed_provenance_mut(address)) {
            let bytes = T::STILLPOINT_BYTES;
            let object = Object { address: object, bytes, context: ptr::null(), destroy: destroy::<T> };
            // SAFETY: the caller's promise.
            unsafe { local.defer(object) };
        }
    }

    /// Runs what is ready: what this thread has deferred, and a share of what others have; does the same once more when the last guard is dropped,
    /// and then lets any thread run what is left. So after a flush, and the end of the region, everything has run that this thread has deferred in
    /// it, unless another thread is pinned.
    ///
    /// Does nothing if this guard is [`unprotected`]; within a deferred function, what is ready is left to the next region. Takes as long as
    /// the functions that this thread has deferred lately, and as 32,768 functions of others, or twice its own, if that is more.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use stillpoint_epoch::Collector;
    ///
    /// let (sender, receiver) = mpsc::channel();
    /// let handle = Collector::new().register();
    /// let guard = handle.pin();
    /// guard.defer(move || sender.send(7));
    /// guard.flush();
    /// drop(guard);
    /// assert_eq!(receiver.try_recv(), Ok(7));
    /// ```
    ///
    /// # Panics
    /// With the first panic of a function, after the others have run.
    pub fn flush(&self) {
        if let Some(local) = self.local() {
            local.flush();
        }
    }

    /// Ends the region and begins another one at once, so that what was deferred before need not wait for this guard. Does nothing if the thread
    /// has another guard, or this one is [`unprotected`].
    ///
    /// What was loaded under the guard cannot be used afterwards:
    ///
    /// ```compile_fail,E0502
    /// # use std::sync::atomic::Ordering::Acquire;
    /// # use stillpoint_epoch::{self as epoch, Atomic};
    /// # let link = Atomic::new(7);
    /// let mut guard = epoch::pin();
    /// let shared = link.load(Acquire, &guard);
    /// guard.repin();
    /// shared.is_null(); // loaded in the region before
    /// ```
    /// ```
    /// # use std::sync::atomic::Ordering::Acquire;
    /// # use stillpoint_epoch::{self as epoch, Atomic};
    /// # let link = Atomic::new(7);
    /// let mut guard = epoch::pin();
    /// for _ in 0..3 {
    ///     assert!(!link.load(Acquire, &guard).is_null());
    ///     guard.repin(); // between two rounds of work
    /// }
    /// # drop(unsafe { link.into_owned() });
    /// ```
    ///
    /// # Panics
    /// As the drop of a guard; the thread is pinned then.
    pub fn repin(&mut self) {
        if self.local().is_some_and(Local::has_one_guard) {
            self.repin_after(|| ());
        }
    }

    /// Calls `f` without this guard: if it is the thread's only one, the thread is not pinned meanwhile. It is pinned again afterwards, also if `f`
    /// panics. Only calls `f` if this guard is [`unprotected`].
    ///
    /// ```
    /// use stillpoint_epoch as epoch;
    ///
    /// let mut guard = epoch::pin();
    /// let sum = guard.repin_after(|| {
    ///     assert!(!epoch::is_pinned()); // time for something that takes long
    ///     (1..=10).sum::<u64>()
    /// });
    /// assert!(sum == 55 && epoch::is_pinned());
    /// ```
    ///
    /// # Panics
    /// As `f` does, and as the drop of a guard; the thread is pinned then.
    pub fn repin_after<F, R>(&mut self, f: F) -> R
    where
        F: FnOnce() -> R,
    {
        match self.local {
            // SAFETY: this value owns a guard, and is borrowed exclusively.
            Some(local) => unsafe { Local::repin_after(local, f) },
            None => f(),
        }
    }

    /// The collector; `None` if this guard is [`unprotected`]. For structures that check whether a guard is one of theirs.
    ///
    /// ```
    /// use stillpoint_epoch as epoch;
    ///
    /// assert!(epoch::pin().collector() == Some(epoch::default_collector()));
    /// ```
    pub fn collector(&self) -> Option<&Collector> {
        self.local().map(Local::collector)
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if let Some(local) = self.local {
            // SAFETY: this value owns a guard, and is on its thread.
            unsafe { Local::unpin(local) };
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Guard { .. }")
    }
}

/// A guard that protects nothing: for loads where no other thread has the structure, as in its destructor. What is deferred under it is
/// done at once.
///
/// ```
/// use std::sync::atomic::Ordering::Relaxed;
/// use stillpoint_epoch::{self as epoch, Atomic, Owned};
///
/// struct Node {
///     next: Atomic<Node>,
/// }
///
/// struct Stack {
///     top: Atomic<Node>,
/// }
///
/// impl Drop for Stack {
///     fn drop(&mut self) {
///         // SAFETY: whoever drops the stack is the only one who has it.
///         unsafe {
///             let guard = epoch::unprotected();
///             let mut top = self.top.load(Relaxed, guard);
///             while let Some(node) = top.try_into_owned() {
///                 top = node.next.load(Relaxed, guard);
///             }
///         }
///     }
/// }
/// # let bottom = Owned::new(Node { next: Atomic::null() });
/// # drop(Stack { top: Atomic::new(Node { next: Atomic::from(bottom) }) });
/// ```
///
/// # Safety
/// What is loaded under it is dereferenced only while no other thread changes the links that lead there, nor destroys what they lead to.
#[inline]
pub unsafe fn unprotected() -> &'static Guard {
    struct Everywhere(Guard);

    // SAFETY: without a local, its methods touch nothing that belongs to a thread.
    unsafe impl Sync for Everywhere {}

    static UNPROTECTED: Everywhere = Everywhere(Guard { local: None });
    &UNPROTECTED.0
}
