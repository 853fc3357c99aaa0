//! The small marks of a thread, of all modules, side by side: a thread-local of their own would take each of them a word.
//!
//! The thread-locals of a library that is loaded late come from a small supply: see `docs/design/capi.md`.

use std::cell::Cell;

/// Their modules say what they mean.
#[derive(Debug)]
pub struct Marks {
    /// For reports to ThreadSanitizer.
    pub ignored: Cell<u8>,
    /// For the engine of rcu: the foreign code that the thread runs.
    pub within: Cell<u8>,
    /// For boosting: whether the thread has given up its boost state, because it ends.
    pub is_closed: Cell<bool>,
    /// For the C interface: how many rounds of destructors have begun.
    pub rounds: Cell<u8>,
}

std::thread_local! {
    /// It has no destructor, so it can be used until the end of the thread.
    pub static MARKS: Marks = const {
        Marks {
            ignored: Cell::new(0),
            within: Cell::new(0),
            is_closed: Cell::new(false),
            rounds: Cell::new(0),
        }
    };
}
