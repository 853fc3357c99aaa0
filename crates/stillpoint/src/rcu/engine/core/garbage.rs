//! An unlinked object, its type erased.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem::{self, ManuallyDrop};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{self, NonNull};

use stillpoint_sys::panics::{keep_first, resume, Panic};
use stillpoint_sys::tsan;

/// Contents of cells that are dropped one within the other, as in any other tree of owners. Deeper ones are dropped one
/// after the other.
const DEEPEST: u32 = 32;

thread_local! {
    /// Objects that are to be freed when the one that this thread is freeing is gone. Whoever puts the queue here takes it
    /// out. So it needs no destructor, and serves in the destructors of other thread locals, too.
    static LEFT: RefCell<Option<ManuallyDrop<VecDeque<Garbage>>>> = const { RefCell::new(None) };
    /// Contents of cells that this thread is dropping, each within the one before.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Drops what a cell held. A long chain of objects, each of which owns the cell of the next one, does not recurse.
///
/// # Panics
/// With the panic of a destructor. Of objects that are nested deeper than [`DEEPEST`], all are dropped before.
#[inline]
pub(crate) fn drop_content<T: Send + Sync + 'static>(object: Box<T>) {
    struct Deeper;

    impl Drop for Deeper {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }

    if !mem::needs_drop::<T>() {
        drop(object);
    } else if DEPTH.get() < DEEPEST {
        DEPTH.set(DEPTH.get() + 1);
        let _deeper = Deeper;
        drop(object);
    } else {
        // SAFETY: the caller owns the object, so that no reader holds it; the same goes for cells in it. What its
        // destructor retires comes here only if its domain is gone.
        resume(unsafe { free_left(Garbage::object(NonNull::from(Box::leak(object)))) });
    }
}

/// Frees an object that no reader can hold, and then what its destructor left here in the same way, one after the other:
/// a chain of objects, each of which leaves the next one, does not recurse. Returns the first panic.
///
/// Within another call of this thread, the object is left to that one.
///
/// # Safety
/// No reader can hold the object any more, nor what its destructor retires to domains that are gone.
pub(crate) unsafe fn free_left(garbage: Garbage) -> Option<Panic> {
    let mut next = Some(garbage);
    LEFT.with_borrow_mut(|left| match left {
        Some(queue) => queue.extend(next.take()),
        none => *none = Some(ManuallyDrop::new(VecDeque::new())),
    });
    let is_outermost = next.is_some();
    let mut first = None;
    while let Some(garbage) = next {
        // SAFETY: the caller's promise.
        if let Err(panic) = unsafe { garbage.free() } {
            keep_first(&mut first, panic);
        }
        next = LEFT.with_borrow_mut(|left| left.as_mut()?.pop_front());
    }
    if is_outermost {
        // The queue is empty.
        drop(LEFT.take().map(ManuallyDrop::into_inner));
    }
    first
}

/// A function that destroys an object in a context: called with both, by any thread. Other languages can supply one; it may panic.
pub(crate) type Destroy = unsafe extern "C-unwind" fn(NonNull<()>, *const ());

/// An unlinked object that waits for its readers. Dropping it leaks the object: call [`free`](Garbage::free).
#[derive(Debug)]
pub(crate) struct Garbage {
    object: NonNull<()>,
    bytes: usize,
    /// Where the object's memory belongs; null for one that came from `Box`.
    context: *const (),
    destroy: Destroy,
}

// SAFETY: made from values that are `Send` only (see the constructors), and it owns its object.
unsafe impl Send for Garbage {}

impl Garbage {
    /// The object behind `pointer`, which came from `Box::into_raw` and is owned by the caller.
    pub(crate) fn object<T: Send + Sync + 'static>(pointer: NonNull<T>) -> Self {
        unsafe extern "C-unwind" fn destroy<T>(object: NonNull<()>, _context: *const ()) {
            // SAFETY: `free` is called once, with the pointer that `object` was given.
            drop(unsafe { Box::from_raw(object.cast::<T>().as_ptr()) });
        }
        Self { object: pointer.cast(), bytes: size_of::<T>(), context: ptr::null(), destroy: destroy::<T> }
    }

    /// An object whose memory belongs to `context`: `destroy` is called with both.
    ///
    /// # Safety
    /// The caller owns the object, which may be dropped by any thread. Once no reader can hold it, `destroy` may be
    /// called with it, and `context` is alive then: its owner takes back by
    /// [`RetireList::free_unreachable`](crate::rcu::engine::queue::retire_list::RetireList::free_unreachable) what is left, or it is counted for this
    /// object, and `destroy` gives that up.
    pub(crate) unsafe fn in_context(
        object: NonNull<()>,
        bytes: usize,
        context: *const (),
        destroy: Destroy,
    ) -> Self {
        // For the destructor.
        tsan::release(object.as_ptr());
        Self { object, bytes, context, destroy }
    }

    /// Whether the object's memory belongs to `context`.
    pub(crate) fn is_of(&self, context: *const ()) -> bool {
        ptr::eq(self.context, context)
    }

    /// A function to be called when the region readers have passed.
    pub(crate) fn callback<F: FnOnce() + Send + 'static>(function: F) -> Self {
        /// Not of size zero, so that it has an address of its own, which no hazard slot holds.
        struct Callback<F> {
            function: F,
            _address: u8,
        }
        unsafe extern "C-unwind" fn call<F: FnOnce()>(object: NonNull<()>, _context: *const ()) {
            // SAFETY: as in `destroy`.
            let callback = unsafe { Box::from_raw(object.cast::<Callback<F>>().as_ptr()) };
            (callback.function)();
        }
        let callback = Box::leak(Box::new(Callback { function, _address: 0 }));
        Self {
            object: NonNull::from(callback).cast(),
            bytes: size_of::<F>(),
            context: ptr::null(),
            destroy: call::<F>,
        }
    }

    /// The address that hazard slots are compared with.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.object.as_ptr().addr()
    }

    /// Size of the object itself, without what it owns elsewhere.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Runs the destructor and frees the memory. A panic of the destructor is returned.
    ///
    /// # Safety
    /// No reader can hold the object any more.
    pub(crate) unsafe fn free(self) -> Result<(), Panic> {
        if tsan::is_there() {
            // SAFETY: the caller's promise.
            return unsafe { self.free_heeded() };
        }
        // SAFETY: the constructors paired `object` with its `destroy`, and `self` is consumed; no reader is
        // left, by the caller's promise. Unwind safety: nothing of the engine is borrowed here.
        catch_unwind(AssertUnwindSafe(|| unsafe { (self.destroy)(self.object, self.context) }))
    }

    /// # Safety
    /// As for [`free`](Garbage::free).
    #[cold]
    #[inline(never)]
    unsafe fn free_heeded(self) -> Result<(), Panic> {
        tsan::acquire(self.object.as_ptr());
        let _heeded = tsan::heed();
        // SAFETY: as in `free`. Unwind safety: as there.
        catch_unwind(AssertUnwindSafe(|| unsafe { (self.destroy)(self.object, self.context) }))
    }
}
