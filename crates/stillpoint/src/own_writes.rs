//! Notices when a function that is to decide about an entry or an object writes to it itself, each time that it is
//! called: its call would never end. The argument is in `docs/design/table.md`.
//!
//! Each run of such a function has a [`Watch`] on the stack, which all writes of the thread can find through a
//! thread-local. A write says what it has linked and unlinked; writes of other threads do not come here.

use std::cell::Cell;
use std::ptr;

use crate::frames::{self, Frame, Kind};

/// What a function is to decide about, and what it has done to it. Entries and objects have numbers: their indices or
/// addresses, which are not used again while a reader protects them.
#[repr(C)]
pub(crate) struct Watch {
    frame: Frame,
    /// The address of the table or the cell.
    place: *const (),
    found: Found,
    /// Whether the thread is about to link an entry with the key that was not found.
    announced: Cell<bool>,
    /// The entry with this key that the function has linked last.
    linked: Cell<Option<usize>>,
    /// Whether the function has unlinked what was found.
    has_unlinked: Cell<bool>,
}

/// What was found before the function runs.
enum Found {
    This(usize),
    /// Nothing: only the entries of one key in a table have to do with that.
    NoEntryOf(*const (), unsafe fn(*const (), *const ()) -> bool),
}

impl Watch {
    /// The entry or object `found` is protected until [`is_own`](Watch::is_own) was asked.
    pub(crate) fn of(place: *const (), found: usize) -> Self {
        Self::new(place, Found::This(found))
    }

    /// # Safety
    /// The keys of the table `place` are of type `K`. The key stays where it is as long as the value is used.
    pub(crate) unsafe fn of_absent<K: Eq>(place: *const (), key: *const K) -> Self {
        /// # Safety
        /// Both point to a `K`.
        unsafe fn equal<K: Eq>(one: *const (), other: *const ()) -> bool {
            // SAFETY: both point to a `K`, by the caller's promise.
            unsafe { *one.cast::<K>() == *other.cast::<K>() }
        }
        Self::new(place, Found::NoEntryOf(key.cast(), equal::<K>))
    }

    fn new(place: *const (), found: Found) -> Self {
        Self {
            frame: Frame::new(Kind::Watch),
            place,
            found,
            announced: Cell::new(false),
            linked: Cell::new(None),
            has_unlinked: Cell::new(false),
        }
    }

    /// Runs the function.
    #[inline(always)]
    pub(crate) fn run<R>(&self, function: impl FnOnce() -> R) -> R {
        // The threads of a model share their thread-locals.
        if cfg!(stillpoint_loom) {
            return function();
        }
        self.frame.during(self, function)
    }

    /// Whether the function has changed what it was to decide about: it has unlinked what was found; or nothing was
    /// found, and `now` there is what it has linked.
    pub(crate) fn is_own(&self, now: Option<usize>) -> bool {
        self.has_unlinked.get() || (now.is_some() && self.linked.get() == now)
    }
}

/// Whether the last run of a function had its own writes in the way. If another thread's writes were, the function may
/// find something else in its next run, and leave it alone.
#[derive(Default)]
pub(crate) struct OwnRuns(bool);

impl OwnRuns {
    /// # Panics
    /// The second time in a row.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(crate) fn count(&mut self, watch: &Watch, now: Option<usize>, call: &str) {
        let is_own = watch.is_own(now);
        if std::mem::replace(&mut self.0, is_own) && is_own {
            panic!(
                "the function that was passed to `{call}` has changed what it was called with for the second time: \
                 `{call}` would call it again and again; write to other keys or cells in it, or return what is to be \
                 written"
            );
        }
    }
}

/// Whether a function is watched on this thread.
#[inline(always)]
pub(crate) fn is_watched() -> bool {
    !cfg!(stillpoint_loom) && !frames::is_empty() && frames::of(Kind::Watch).next().is_some()
}

/// Calls `each` with every watch of the place on this thread.
fn for_each(place: *const (), mut each: impl FnMut(&Watch)) {
    for found in frames::of(Kind::Watch) {
        // SAFETY: a frame of this kind begins a watch on the stack of this thread: `run` borrows it, and takes it out before it returns.
        let watch = unsafe { &*found.cast::<Watch>() };
        if ptr::eq(watch.place, place) {
            each(watch);
        }
    }
}

/// The thread is about to link an entry with this key in a table, or to give up.
#[cold]
#[inline(never)]
pub(crate) fn announce<K>(table: *const (), key: &K) {
    for_each(table, |watch| {
        if let Found::NoEntryOf(absent, equal) = watch.found {
            // SAFETY: the table has the same address, and is not dropped in a call. So both keys are of its type. The
            // absent one stays where it is, by the promise for `of_absent`.
            watch.announced.set(unsafe { equal(absent, ptr::from_ref(key).cast()) });
        }
    });
}

/// The thread has just linked and unlinked these.
#[cold]
#[inline(never)]
pub(crate) fn note(place: *const (), linked: Option<usize>, unlinked: Option<usize>) {
    for_each(place, |watch| match watch.found {
        Found::This(found) => watch.has_unlinked.set(watch.has_unlinked.get() || unlinked == Some(found)),
        Found::NoEntryOf(..) => {
            if unlinked.is_some() && watch.linked.get() == unlinked {
                watch.linked.set(None);
            }
            if linked.is_some() && watch.announced.take() {
                watch.linked.set(linked);
            }
        }
    });
}
