//! Values that live until the process ends, for threads without a scope. They stay reachable, so leak checkers do not
//! report them.

use std::sync::Mutex;

/// An address that is not used.
struct Address(#[expect(dead_code, reason = "for leak checkers")] *const ());

// SAFETY: it is never dereferenced.
unsafe impl Send for Address {}

/// Keeps a value until the process ends.
pub(crate) fn for_ever<T>(value: T) -> &'static T {
    static KEPT: Mutex<Vec<Address>> = Mutex::new(Vec::new());
    let kept: &'static T = Box::leak(Box::new(value));
    KEPT.lock().unwrap().push(Address(std::ptr::from_ref(kept).cast()));
    kept
}
