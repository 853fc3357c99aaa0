//! One thread at a time, nobody waits, and nobody's call is lost.
//!
//! Whoever finds the turn taken leaves word and goes on; the holder then does the work once more before it gives the
//! turn back. So the work that follows a call sees what was done before the call, whoever does it; and a call from
//! within the work does not recurse.
//!
//! ```text
//!   FREE --call--> ASKED --begin--> TAKEN --end--> FREE
//!                    ^                |
//!                    +-----call-------+
//! ```

use crate::busted::{self, Variant};
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::sync::UnsafeCell;

const FREE: u32 = 0;
/// Somebody has the turn, and has seen what all callers so far did.
const TAKEN: u32 = 1;
/// Somebody has the turn, and there was a call since the work began.
const ASKED: u32 = 2;

/// A value that one thread at a time works on.
#[derive(Debug)]
pub(crate) struct Turn<T> {
    phase: AtomicU32,
    /// The handle of the thread that has the turn.
    holder: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the holder of the turn alone, one thread at a time, which comes after the one before
// it (see `call`).
unsafe impl<T: Send> Sync for Turn<T> {}

impl<T: Default> Turn<T> {
    pub(crate) fn new() -> Self {
        Self {
            phase: AtomicU32::new(FREE),
            holder: AtomicUsize::new(0),
            value: UnsafeCell::new(T::default()),
        }
    }

    /// Does `work`, or leaves it to the thread that is at it.
    ///
    /// When `work` panics, calls that came meanwhile are forgotten.
    pub(crate) fn call(&self, mut work: impl FnMut(&mut T)) {
        // AcqRel: pairs with itself, below, and in `Holder::drop`. The holder sees what callers did; a new holder, what
        // the old one did.
        if self.phase.swap(ASKED, Ordering::AcqRel) != FREE {
            return;
        }
        // Relaxed: read in the child of a `fork` alone.
        self.holder.store(crate::sys::thread_handle(), Ordering::Relaxed);
        let holder = Holder(self);
        loop {
            // Acquire: pairs with the swap above, of whoever called meanwhile.
            self.phase.swap(TAKEN, Ordering::AcqRel);
            // SAFETY: this thread has the turn, so that no other one is here; the work itself cannot get here again, as
            // its calls find the turn taken.
            self.value.with_mut(|value| work(unsafe { &mut *value }));
            if busted::is(Variant::TurnLost) {
                return;
            }
            // Release: pairs with the swap above, of the next holder. Acquire is not needed: the loop begins with one.
            let free = self.phase.compare_exchange(TAKEN, FREE, Ordering::Release, Ordering::Relaxed).is_ok();
            if free {
                std::mem::forget(holder);
                return;
            }
        }
    }

    /// In the child of a `fork`: gives back the turn that another thread of the parent had, with a new value.
    ///
    /// # Safety
    /// The calling thread is the only one of the process.
    pub(super) unsafe fn reset_after_fork(&self) {
        // Relaxed throughout: there is one thread alone.
        let is_taken = self.phase.load(Ordering::Relaxed) != FREE;
        if is_taken && self.holder.load(Ordering::Relaxed) != crate::sys::thread_handle() {
            // SAFETY: the thread that had the turn does not exist here. The old value, which it may have left
            // half-changed, is not dropped.
            self.value.with_mut(|value| unsafe { value.write(T::default()) });
            self.phase.store(FREE, Ordering::Relaxed);
        }
    }
}

/// Gives the turn back, also when the work panics.
struct Holder<'t, T>(&'t Turn<T>);

impl<T> Drop for Holder<'_, T> {
    fn drop(&mut self) {
        // Release: pairs with the swap in `call`, of the next holder.
        self.0.phase.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_call_from_within_is_done_after() {
        let turn = Turn::<Vec<&str>>::new();
        let mut first = true;
        turn.call(|done| {
            done.push("begin");
            if std::mem::take(&mut first) {
                turn.call(|_| unreachable!("the turn is taken"));
            }
            done.push("end");
        });
        turn.call(|done| assert_eq!(done[..], ["begin", "end", "begin", "end"]));
    }

    #[test]
    fn a_panic_gives_the_turn_back() {
        let turn = Turn::<u32>::new();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            turn.call(|_| panic!("in the work"));
        }));
        assert!(caught.is_err());
        turn.call(|count| *count += 1);
        turn.call(|count| assert_eq!(*count, 1));
    }
}
