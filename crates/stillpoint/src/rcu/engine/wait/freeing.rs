//! Whether a thread is within a destructor or a stall hook.

use std::cell::Cell;

std::thread_local! {
    /// Whether the thread runs destructors of a list, or a stall hook.
    static FREEING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this call comes from a destructor that a list of any domain runs, or from a stall hook: then a list
/// cannot go on before the call returns.
pub(crate) fn is_freeing() -> bool {
    FREEING.get()
}

/// Marks the thread as running such code, as long as this value exists.
pub(crate) struct Freeing {
    outer: bool,
}

impl Freeing {
    pub(crate) fn begin() -> Self {
        Self { outer: FREEING.replace(true) }
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        FREEING.set(self.outer);
    }
}
