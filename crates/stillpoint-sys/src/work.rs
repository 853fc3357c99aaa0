//! Counts the steps of calls that promise a bound: objects, readers, slots and wakers that a call looks at. Tests compare
//! the count with the bound; on a busy machine no clock can do that. Other builds count nothing.

#[cfg(all(feature = "count", not(stillpoint_loom)))]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    /// Counts one step of a bounded call on this thread.
    pub fn step() {
        // A thread that ends may do steps after its thread-locals are gone.
        let _ = STEPS.try_with(|steps| steps.set(steps.get() + 1));
    }

    /// The number of steps of `call` on this thread.
    pub fn steps_of<R>(call: impl FnOnce() -> R) -> (usize, R) {
        let before = STEPS.with(Cell::get);
        let answer = call();
        (STEPS.with(Cell::get) - before, answer)
    }
}

#[cfg(all(feature = "count", not(stillpoint_loom)))]
pub use counted::{step, steps_of};

#[cfg(not(all(feature = "count", not(stillpoint_loom))))]
/// This build counts nothing.
#[inline(always)]
pub fn step() {}
