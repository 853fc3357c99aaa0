//! Counts what a call looks at, for the tests that show that this is bounded. Nothing elsewhere.

/// The calling thread looks at a place, a word of places, a chunk, a node, or an operation.
#[inline(always)]
pub(super) fn look() {
    #[cfg(all(test, not(loom)))]
    LOOKS.set(LOOKS.get() + 1);
}

#[cfg(all(test, not(loom)))]
std::thread_local! {
    static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How many looks of the calling thread `function` takes.
#[cfg(all(test, not(loom)))]
pub(super) fn looks_of(function: impl FnOnce()) -> usize {
    let before = LOOKS.get();
    function();
    LOOKS.get() - before
}
