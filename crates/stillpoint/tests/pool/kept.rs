//! Pools that threads refer to without a scope: for ever, but not lost, which is what leak checkers look for.

use std::sync::Mutex;

/// An address that nobody uses.
struct Address(#[expect(dead_code, reason = "for leak checkers")] *const ());

// SAFETY: a number to the program.
unsafe impl Send for Address {}

/// Keeps a value until the process ends.
pub(crate) fn for_ever<T>(value: T) -> &'static T {
    static KEPT: Mutex<Vec<Address>> = Mutex::new(Vec::new());
    let kept: &'static T = Box::leak(Box::new(value));
    KEPT.lock().unwrap().push(Address(std::ptr::from_ref(kept).cast()));
    kept
}
