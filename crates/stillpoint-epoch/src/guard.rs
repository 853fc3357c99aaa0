use std::fmt;
use std::ptr::{self, NonNull};

use stillpoint::rcu::raw::Object;

use crate::cells::{self, Cells};
use crate::collector::Collector;
use crate::local::Local;

/// Keeps its thread pinned: an object that the thread may have reached under the guard is not destroyed.
///
/// Made by [`pin`](crate::pin), or by [`LocalHandle::pin`](crate::LocalHandle::pin). A thread is pinned as long as it
/// has a guard, whatever the order in which guards are dropped:
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
/// A guard gives its lifetime to the pointers that are loaded under it, stays on its thread, and holds up everything
/// that is deferred meanwhile. A guard that is forgotten (`mem::forget`) holds it up for ever.
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
/// The drop of a thread's last guard may run deferred functions: 512 at most, unless more and more are deferred. If
/// functions panic, it panics with the first of these panics, after the others have run.
pub struct Guard {
    /// `None` for the guard of [`unprotected`].
    local: Option<NonNull<Local>>,
}

impl Guard {
    /// # Safety
    /// [`Local::pin`] has counted the guard.
    #[inline]
    pub(crate) unsafe fn of(local: NonNull<Local>) -> Self {
        Self { local: Some(local) }
    }

    #[inline]
    pub(crate) fn local(&self) -> Option<&Local> {
        // SAFETY: a local is alive as long as it has guards.
        self.local.map(|local| unsafe { local.as_ref() })
    }

    /// Calls `f` when every guard that exists now has been dropped, including this one. If this guard is
    /// [`unprotected`], calls `f` at once.
    ///
    /// Any thread of the collector may call `f`, when it drops its last guard or [flushes](Guard::flush). If none has
    /// done so, `f` is called when the last handle, guard or clone of the collector is dropped. There is no promise
    /// about the time. This call neither waits nor fails. Closures of three words or less share blocks: one block is
    /// allocated for each 63 of them. A closure that is larger, or aligned to more than a word, gets an allocation of
    /// its own. Apart from that, this call allocates only when the thread's list of deferred functions begins or grows, and when
    /// the domain has limits, and is full.
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
    /// drop(handle); // nothing else keeps the collector alive
    /// assert_eq!(receiver.recv(), Ok(7));
    /// ```
    ///
    /// # Panics
    /// If `f` is called at once, and panics. In a domain with limits, also if this call runs another function to make
    /// room, and that function panics; `f` is then deferred nevertheless.
    pub fn defer<F, R>(&self, f: F)
    where
        F: FnOnce() -> R,
        F: Send + 'static,
    {
        // SAFETY: `f` is `Send` and `'static`, so any thread may call it at any time.
        unsafe { self.defer_unchecked(f) };
    }

    /// As [`defer`](Guard::defer), for a function that is not `Send` or not `'static`, for example because it has a
    /// [`Shared`](crate::Shared).
    ///
    /// ```
    /// use std::sync::atomic::Ordering::AcqRel;
    /// use stillpoint_epoch::{self as epoch, Atomic, Owned};
    ///
    /// let link = Atomic::new(String::from("first"));
    /// let guard = &epoch::pin();
    /// let old = link.swap(Owned::new(String::from("second")), AcqRel, guard);
    /// // SAFETY: the object was unlinked just now, so no thread can reach it once all these guards are dropped.
    /// unsafe { guard.defer_unchecked(move || println!("{} goes", *old.into_owned())) };
    /// # drop(unsafe { link.into_owned() });
    /// ```
    ///
    /// # Panics
    /// As [`defer`](Guard::defer).
    ///
    /// # Safety
    /// Any thread may call `f` at any time after the guards have been dropped. So `f` borrows nothing that ends before
    /// it is called, and another thread may use what `f` owns or borrows. In a domain that others use, too, that may be after the
    /// end of the collector: see [`domain::collector`](crate::domain::collector).
    pub unsafe fn defer_unchecked<F, R>(&self, f: F)
    where
        F: FnOnce() -> R,
    {
        /// # Safety
        /// `cell` and `block` are the place of a function of this type, which is called once.
        unsafe extern "C-unwind" fn of_cell<F: FnOnce() -> R, R>(cell: NonNull<()>, block: *const ()) {
            // SAFETY: this is the place of a function of this type, which is called once, by the caller's promise.
            let function = unsafe { cells::take::<F>(cell, block) };
            function();
        }
        /// # Safety
        /// As for `of_cell`.
        unsafe extern "C-unwind" fn of_box<F: FnOnce() -> R, R>(function: NonNull<()>, _: *const ()) {
            // SAFETY: the address came from `Box::into_raw` below.
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
        // SAFETY: the function is called once. By the caller's promise, what it uses is alive then.
        unsafe { local.defer(object) };
    }

    /// Runs functions that are ready: first those that this thread has deferred, then those of other threads. Does the
    /// same once more when the thread's last guard is dropped, and then lets any thread run what is left. Runs at most
    /// 512 functions each time, unless more and more are deferred. So after a flush and the end of the region, all
    /// functions that this thread has deferred since its last round have run, if these are at most 512, and no other
    /// thread is pinned. Those that a round has let any thread run wait behind older ones of others. A program that waits
    /// for many functions flushes in a loop, and pins itself anew each time.
    ///
    /// Does nothing if this guard is [`unprotected`]. Within a deferred function, leaves what is ready to the next
    /// region.
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
    /// If functions panic: with the first of these panics, after the others have run.
    pub fn flush(&self) {
        if let Some(local) = self.local() {
            local.flush();
        }
    }

    /// Ends the region and begins another one at once, so that what was deferred before need not wait for this guard.
    /// Does nothing if the thread has another guard, or if this guard is [`unprotected`].
    ///
    /// Pointers that were loaded under the guard cannot be used afterwards:
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
    /// As the drop of a guard. The thread is then pinned.
    pub fn repin(&mut self) {
        if self.local().is_some_and(Local::has_one_guard) {
            self.repin_after(|| ());
        }
    }

    /// Calls `f` without this guard: if it is the thread's only guard, the thread is not pinned meanwhile. Afterwards
    /// the thread is pinned again, even if `f` panics. If this guard is [`unprotected`], only calls `f`.
    ///
    /// ```
    /// use stillpoint_epoch as epoch;
    ///
    /// let mut guard = epoch::pin();
    /// let sum = guard.repin_after(|| {
    ///     assert!(!epoch::is_pinned()); // do something here that takes a long time
    ///     (1..=10).sum::<u64>()
    /// });
    /// assert!(sum == 55 && epoch::is_pinned());
    /// ```
    ///
    /// # Panics
    /// If `f` panics, and as the drop of a guard. The thread is then pinned.
    pub fn repin_after<F, R>(&mut self, f: F) -> R
    where
        F: FnOnce() -> R,
    {
        match self.local {
            // SAFETY: this value owns one of the local's guards, and is borrowed exclusively.
            Some(local) => unsafe { Local::repin_after(local, f) },
            None => f(),
        }
    }

    /// The collector; `None` if this guard is [`unprotected`]. For structures that check whether a guard belongs to
    /// their collector.
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
            // SAFETY: this value owns one of the local's guards, and is on the local's thread.
            unsafe { Local::unpin(local) };
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Guard { .. }")
    }
}

/// A guard that protects nothing, for loads while no other thread uses the structure, as in its destructor. Functions
/// that are deferred under it run at once.
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
///         // SAFETY: the thread that drops the stack is the only one that has it.
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
/// A pointer that was loaded under it is dereferenced only while no other thread changes the links that lead to the
/// object, or destroys the object.
#[inline]
pub unsafe fn unprotected() -> &'static Guard {
    struct Everywhere(Guard);

    // SAFETY: the guard has no local, so its methods touch nothing that belongs to a thread.
    unsafe impl Sync for Everywhere {}

    static UNPROTECTED: Everywhere = Everywhere(Guard { local: None });
    &UNPROTECTED.0
}
