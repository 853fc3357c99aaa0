//! Values that come back to a wheel that was moved away in their callback.
//!
//! A poll lends the value of a periodic timer to the callback, and the callback may put another wheel in the place of the
//! timer's own (`mem::swap`). That one may then be anywhere: in a local variable, on another thread, or gone. So a wheel and
//! those who have values of it share a stack. A value waits on it until its wheel takes it.
//!
//! The stack does not name the type of the values: a wheel is `Send`, `Sync` and covariant as its values are, and may be
//! dropped after what they borrow, if dropping them does not look at it.

use alloc::boxed::Box;
use core::ptr;

use super::Key;
#[cfg(feature = "std")]
use crate::timer::orders;
#[cfg(not(feature = "std"))]
use core::sync::atomic::{AtomicPtr, Ordering};
#[cfg(feature = "std")]
use stillpoint_sys::sync::atomic::{AtomicPtr, Ordering};

#[cfg(not(feature = "std"))]
pub(super) use alloc::sync::Arc;
#[cfg(feature = "std")]
pub(super) use stillpoint_sys::sync::Arc;

/// The table of orderings, and the variants, need the standard library.
#[cfg(not(feature = "std"))]
mod orders {
    use super::Ordering;

    pub(super) fn bring() -> Ordering {
        Ordering::Release
    }
}

/// The stack of a wheel.
#[derive(Debug)]
pub(super) struct Returns {
    /// A parcel from [`bring`](Self::bring), or null.
    top: AtomicPtr<Parcel>,
}

/// The part of a parcel that is the same for all types of values.
struct Parcel {
    next: *mut Parcel,
    /// Frees the parcel and drops its value.
    free: unsafe fn(*mut Parcel),
}

/// A parcel. Its first field has its address.
#[repr(C)]
struct Of<T> {
    parcel: Parcel,
    key: Key,
    value: T,
}

impl Returns {
    pub(super) fn new() -> Self {
        Self { top: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Puts the value of a timer on the stack. All values of a stack have one type, apart from lifetimes.
    #[cold]
    pub(super) fn bring<T>(&self, key: Key, value: T) {
        let parcel = Parcel { next: ptr::null_mut(), free: free::<T> };
        let parcel = Box::into_raw(Box::new(Of { parcel, key, value })).cast::<Parcel>();
        // Relaxed: the exchange below publishes.
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // SAFETY: the parcel was made above, and is not on the stack yet.
            unsafe { (*parcel).next = top };
            match self.top.compare_exchange_weak(top, parcel, orders::bring(), Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => top = other,
            }
        }
    }

    /// Takes a value from the stack.
    ///
    /// # Safety
    /// `T` is the type of the values, or the same type with lifetimes to which a value may be shortened. One thread at a time
    /// takes values, and each such call comes after the one before.
    pub(super) unsafe fn take<T>(&self) -> Option<(Key, T)> {
        // SAFETY: as the caller promises.
        let parcel = unsafe { self.pop() };
        // SAFETY: `bring` has made each parcel by this cast from a box of this type, and `pop` gives it to one caller.
        let of = (!parcel.is_null()).then(|| unsafe { Box::from_raw(parcel.cast::<Of<T>>()) })?;
        Some((of.key, of.value))
    }

    /// Takes a parcel from the stack; null if it is empty.
    ///
    /// # Safety
    /// One thread at a time calls this, and each call comes after the one before. So a parcel that is seen on top stays on
    /// the stack until the exchange, and keeps its link.
    unsafe fn pop(&self) -> *mut Parcel {
        // Acquire, both: pairs with the release in `bring`. Every change of the top is a read-modify-write, so this also comes
        // after the parcels below were brought.
        let mut top = self.top.load(Ordering::Acquire);
        while !top.is_null() {
            // SAFETY: the parcel is on the stack, and only this caller takes it.
            let next = unsafe { (*top).next };
            // Relaxed on success: the parcel was seen by an acquire.
            match self.top.compare_exchange(top, next, Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => break,
                Err(other) => top = other,
            }
        }
        top
    }
}

/// Frees a parcel.
///
/// # Safety
/// [`Returns::bring`] has made it for a value of this type, and the caller has taken it from the stack.
unsafe fn free<T>(parcel: *mut Parcel) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(parcel.cast::<Of<T>>()) });
}

impl Drop for Returns {
    /// Drops the values that no wheel has taken. Their type may have lifetimes that are over by then: who shares this stack
    /// has such values otherwise, too, so the compiler lets it be dropped only when they may be.
    fn drop(&mut self) {
        loop {
            // SAFETY: `self` is borrowed exclusively.
            let parcel = unsafe { self.pop() };
            if parcel.is_null() {
                return;
            }
            // SAFETY: the parcel was taken from the stack, and holds the function for its type.
            unsafe { ((*parcel).free)(parcel) };
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use alloc::rc::Rc;

    #[test]
    fn values_come_back_once_each_and_are_dropped_with_the_stack() {
        let counted = Rc::new(());
        let returns = Returns::new();
        let keys = [1, 2, 3].map(|bits| Key::from_bits(bits).unwrap());
        for key in keys {
            returns.bring(key, (key, counted.clone()));
        }
        // SAFETY: the type is that of the values, on one thread.
        let take = || unsafe { returns.take::<(Key, Rc<()>)>() };
        for key in [keys[2], keys[1]] {
            let (of, (inner, _)) = take().unwrap();
            assert_eq!((of, inner), (key, key));
        }
        assert_eq!(Rc::strong_count(&counted), 2);
        drop(returns);
        assert_eq!(Rc::strong_count(&counted), 1);
    }
}
