//! The interface for bindings: when objects are freed, by which call, and that none is lost.

mod callbacks;
mod parts;
mod records;
mod retired;
mod slots;

use std::ptr::{self, NonNull};

use stillpoint::rcu::raw;

use crate::census::{Census, Object};

/// An object of a census, in the form in which it is retired without its type.
fn object(census: &Census) -> (NonNull<Object>, raw::Object) {
    unsafe extern "C-unwind" fn destroy(object: NonNull<()>, _context: *const ()) {
        // SAFETY: it came from `Box` below, and is destroyed once.
        drop(unsafe { Box::from_raw(object.cast::<Object>().as_ptr()) });
    }

    let object = NonNull::from(Box::leak(Box::new(census.object())));
    let retired =
        raw::Object { address: object.cast(), bytes: size_of::<Object>(), context: ptr::null(), destroy };
    (object, retired)
}
