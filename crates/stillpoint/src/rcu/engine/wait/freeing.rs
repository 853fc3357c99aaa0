//! Whether a thread is within foreign code that the library runs: a destructor, a deferred call, a callback of a queue, a stall
//! hook, or the comparison or the hash of a key under a table's lock.
//!
//! What waits elsewhere may wait for the end of such code: the rest of its list, the next callback of its queue, a barrier of
//! another thread. So nothing waits in the library on its behalf: two threads that do would wait for each other, without a
//! reader that a report could name. Calls that may wait are refused at once, whether or not they would have to wait this time.

use stillpoint_sys::marks::MARKS;

/// What a thread runs, with the outermost first.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Within {
    /// Its own code.
    Own = 0,
    /// A callback of a queue. What it retires may be freed within it: destructors do not retire callbacks, so this does not nest
    /// without end.
    Callback = 1,
    /// A destructor, a stall hook, or code under a lock: what it retires waits for a later poll.
    Destructor = 2,
}

/// The thread's mark, which is one of [`Within`].
fn mark() -> u8 {
    MARKS.with(|marks| marks.within.get())
}

/// Whether this call comes from a destructor that a list of any domain runs, from a stall hook, or from under a table's lock:
/// then it must not free.
pub(crate) fn is_freeing() -> bool {
    mark() == Within::Destructor as u8
}

/// Whether this call comes from any foreign code that the library runs, in any domain: then it must not wait.
pub(crate) fn is_foreign() -> bool {
    // The threads of a model share their thread-locals, so one would be refused because of another one's destructor.
    !cfg!(stillpoint_loom) && mark() != Within::Own as u8
}

/// Marks the thread as running such code, as long as this value exists.
#[derive(Debug)]
pub(crate) struct Freeing {
    outer: u8,
}

impl Freeing {
    #[inline(always)]
    fn mark(mark: u8) -> Self {
        Self { outer: MARKS.with(|marks| marks.within.replace(mark)) }
    }

    /// For a destructor, a stall hook, or code under a lock.
    pub(crate) fn begin() -> Self {
        Self::mark(Within::Destructor as u8)
    }

    /// For callbacks of a queue.
    pub(crate) fn begin_callback() -> Self {
        Self::mark(mark().max(Within::Callback as u8))
    }

    /// For code that may wait although foreign code calls it: see [`raw::let_wait`](crate::rcu::raw::let_wait).
    #[cfg(not(stillpoint_loom))]
    pub(crate) fn lift() -> Self {
        Self::mark(Within::Own as u8)
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        MARKS.with(|marks| marks.within.set(self.outer));
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_runs_within_a_destructor_is_within_it_and_marks_end_in_order() {
        let now = || (is_foreign(), is_freeing());
        assert_eq!(now(), (false, false));
        let callback = Freeing::begin_callback();
        assert_eq!(now(), (true, false));
        let destructor = Freeing::begin();
        let inner = Freeing::begin_callback();
        assert_eq!(now(), (true, true), "a callback within a destructor must not free");
        let lifted = Freeing::lift();
        assert_eq!(now(), (false, false));
        drop(lifted);
        assert_eq!(now(), (true, true));
        drop(inner);
        drop(destructor);
        assert_eq!(now(), (true, false));
        drop(callback);
        assert_eq!(now(), (false, false));
    }
}
