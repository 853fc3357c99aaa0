//! An unlinked object, its type erased.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr::NonNull;

/// What a destructor panicked with.
pub(crate) type Panic = Box<dyn std::any::Any + Send>;

/// Goes on with the panic of a destructor, unless the thread is unwinding already: a second panic would abort.
pub(crate) fn resume(panic: Option<Panic>) {
    match panic {
        Some(panic) if !std::thread::panicking() => resume_unwind(panic),
        _ => {}
    }
}

/// An unlinked object that waits for its readers. Dropping it leaks the object: call [`free`](Garbage::free).
#[derive(Debug)]
pub(crate) struct Garbage {
    object: NonNull<()>,
    bytes: usize,
    destroy: unsafe fn(NonNull<()>),
}

// SAFETY: made from values that are `Send` only (see the constructors), and it owns its object.
unsafe impl Send for Garbage {}

impl Garbage {
    /// The object behind `pointer`, which came from `Box::into_raw` and is owned by the caller.
    pub(crate) fn object<T: Send + Sync + 'static>(pointer: NonNull<T>) -> Self {
        unsafe fn destroy<T>(object: NonNull<()>) {
            // SAFETY: `free` is called once, with the pointer that `object` was given.
            drop(unsafe { Box::from_raw(object.cast::<T>().as_ptr()) });
        }
        Self { object: pointer.cast(), bytes: size_of::<T>(), destroy: destroy::<T> }
    }

    /// A function to be called when the region readers have passed.
    pub(crate) fn callback<F: FnOnce() + Send + 'static>(function: F) -> Self {
        unsafe fn call<F: FnOnce()>(object: NonNull<()>) {
            // SAFETY: as in `destroy`.
            let function = unsafe { Box::from_raw(object.cast::<F>().as_ptr()) };
            function();
        }
        let pointer = NonNull::from(Box::leak(Box::new(function)));
        Self { object: pointer.cast(), bytes: size_of::<F>(), destroy: call::<F> }
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
        // SAFETY: the constructors paired `object` with its `destroy`, and `self` is consumed; no reader is
        // left, by the caller's promise. Unwind safety: nothing of the engine is borrowed here.
        catch_unwind(AssertUnwindSafe(|| unsafe { (self.destroy)(self.object) }))
    }
}
