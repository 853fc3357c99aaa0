//! An unlinked object with its type erased.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{self, NonNull};

use stillpoint_sys::panics::{resume, Panic};
use stillpoint_sys::tsan;

use crate::frames::{self, keep_first, Frame, Kind};

/// Contents of cells are dropped recursively up to this depth, as in any other tree of owners. Deeper ones are dropped one
/// after the other.
const DEEPEST: u32 = 32;

std::thread_local! {
    /// Depth of the nested contents of cells that this thread is dropping.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A call of [`free_left`] on this thread, which is not within another one.
#[repr(C)]
struct Outermost {
    frame: Frame,
    /// Objects that are freed after the one that the call is freeing.
    left: RefCell<VecDeque<Garbage>>,
}

impl Outermost {
    fn here<'f>() -> Option<&'f Self> {
        // SAFETY: a frame of this kind begins such a struct on the stack of this thread, which takes itself out before it is gone.
        frames::of(Kind::Freeing).next().map(|found| unsafe { &*found.cast::<Self>() })
    }
}

impl Drop for Outermost {
    fn drop(&mut self) {
        self.frame.leave();
    }
}

/// Drops the content of a cell. A long chain of objects, each of which owns the cell of the next one, does not recurse.
///
/// # Panics
/// With the panic of a destructor. Objects that are nested deeper than [`DEEPEST`] are all dropped first.
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
        // SAFETY: the caller owns the object, so no reader holds it, nor the contents of cells in it. What its
        // destructor retires comes here only if the object's domain is gone.
        resume(unsafe { free_left(Garbage::object(NonNull::from(Box::leak(object)))) });
    }
}

/// Frees an object that no reader can hold. Then frees what its destructor left here in the same way, one after the other:
/// a chain of objects, each of which leaves the next one, does not recurse. Returns the first panic.
///
/// A call that is nested in another call of this thread leaves the object to the outer call.
///
/// # Safety
/// No reader can hold the object any more, nor what its destructor retires to domains that are gone.
pub(crate) unsafe fn free_left(garbage: Garbage) -> Option<Panic> {
    if let Some(outermost) = Outermost::here() {
        outermost.left.borrow_mut().push_back(garbage);
        return None;
    }
    let own = Outermost { frame: Frame::new(Kind::Freeing), left: RefCell::new(VecDeque::new()) };
    own.frame.enter(&own);
    let mut next = Some(garbage);
    let mut first = None;
    while let Some(garbage) = next {
        // SAFETY: no reader can hold the object, by the caller's promise.
        if let Err(panic) = unsafe { garbage.free() } {
            keep_first(&mut first, panic);
        }
        next = own.left.borrow_mut().pop_front();
    }
    first
}

/// A function that destroys an object in a context. Any thread may call it. It may come from another language, and may panic.
pub(crate) type Destroy = unsafe extern "C-unwind" fn(NonNull<()>, *const ());

/// An unlinked object that waits for its readers. Dropping it leaks the object: call [`free`](Garbage::free).
pub(crate) struct Garbage {
    object: NonNull<()>,
    bytes: usize,
    /// The owner of the object's memory; null for an object from `Box`.
    context: *const (),
    destroy: Destroy,
}

// SAFETY: it owns its object, and is made only from values that are `Send` (see the constructors).
unsafe impl Send for Garbage {}

impl Garbage {
    /// The object behind `pointer`, which came from `Box::into_raw` and which the caller owns.
    pub(crate) fn object<T: Send + Sync + 'static>(pointer: NonNull<T>) -> Self {
        unsafe extern "C-unwind" fn destroy<T>(object: NonNull<()>, _context: *const ()) {
            // SAFETY: `free` calls this once, with the pointer that `object` was given.
            drop(unsafe { Box::from_raw(object.cast::<T>().as_ptr()) });
        }
        Self { object: pointer.cast(), bytes: size_of::<T>(), context: ptr::null(), destroy: destroy::<T> }
    }

    /// An object whose memory belongs to `context`: `destroy` is called with both.
    ///
    /// # Safety
    /// The caller owns the object, and any thread may drop it. Once no reader can hold the object, `destroy` may be
    /// called with it. `context` is alive until then: either the lease of the [shelf](crate::rcu::engine::queue::shelf::Tenant)
    /// where it waits keeps it alive, or this object holds a reference count of the context, which `destroy` gives up.
    #[inline]
    pub(crate) unsafe fn in_context(
        object: NonNull<()>,
        bytes: usize,
        context: *const (),
        destroy: Destroy,
    ) -> Self {
        // Pairs with the acquire before the destructor runs.
        tsan::release(object.as_ptr());
        Self { object, bytes, context, destroy }
    }

    /// Whether the object's memory belongs to `context`.
    pub(crate) fn is_of(&self, context: *const ()) -> bool {
        ptr::eq(self.context, context)
    }

    /// A function that is called when the region readers have passed.
    pub(crate) fn callback<F: FnOnce() + Send + 'static>(function: F) -> Self {
        /// Not of size zero, so that it has its own address, which no hazard slot holds.
        struct Callback<F> {
            function: F,
            _address: u8,
        }
        unsafe extern "C-unwind" fn call<F: FnOnce()>(object: NonNull<()>, _context: *const ()) {
            // SAFETY: `free` calls this once, with the pointer that came from `Box` below.
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

    /// The address of the object, with the right to use it.
    pub(crate) fn pointer(&self) -> NonNull<()> {
        self.object
    }

    /// The address to compare with hazard slots.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.object.as_ptr().addr()
    }

    /// Size of the object itself, without what it owns elsewhere.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Runs the destructor and frees the memory. Returns the panic of the destructor, if any.
    ///
    /// # Safety
    /// No reader can hold the object any more.
    pub(crate) unsafe fn free(self) -> Result<(), Panic> {
        if tsan::is_there() {
            // SAFETY: no reader can hold the object, by the caller's promise.
            return unsafe { self.free_heeded() };
        }
        // SAFETY: the constructors paired `object` with its `destroy`, and `self` is consumed. No reader is
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
        // SAFETY, and unwind safety: as in `free`.
        catch_unwind(AssertUnwindSafe(|| unsafe { (self.destroy)(self.object, self.context) }))
    }
}
