//! The end of a test's helpers, also if the test fails: a scope waits for them, and shows no message before.

/// Calls a function when it is dropped.
pub(crate) struct Ending<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for Ending<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
