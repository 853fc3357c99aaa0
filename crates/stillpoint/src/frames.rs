//! What a thread is in the middle of: the calls further up its stack that a later call has to find.
//!
//! One list has frames of all kinds, so that the library takes one thread-local for them. All thread-locals of a library that is loaded
//! late come from a small supply: see `docs/design/capi.md`.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{compiler_fence, Ordering};

/// What kind of struct a frame begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// [`Watch`](crate::own_writes::Watch).
    Watch,
    /// A call that wakes futures.
    Waking,
    /// A call that frees objects, one after the other.
    Freeing,
}

/// The first field of a struct on the stack that is in the list from [`enter`](Frame::enter) to [`leave`](Frame::leave). Frames leave in
/// the opposite order, because calls return in that order. A signal handler enters and leaves in between.
#[derive(Debug)]
pub(crate) struct Frame {
    kind: Kind,
    /// The next one further up the stack.
    outer: Cell<*const Frame>,
}

#[cfg(not(stillpoint_loom))]
std::thread_local! {
    /// It has no destructor, so it can be used until the thread has ended.
    static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}
#[cfg(stillpoint_loom)]
loom::thread_local! {
    static INNERMOST: Cell<*const Frame> = Cell::new(ptr::null());
}

impl Frame {
    #[inline(always)]
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind, outer: Cell::new(ptr::null()) }
    }

    /// Puts the frame into the list. It is the first field of `whole`, which stays where it is until the frame has left.
    #[inline(always)]
    pub(crate) fn enter<T>(&self, whole: &T) {
        let own = ptr::from_ref(whole).cast();
        debug_assert!(ptr::eq(own, self));
        INNERMOST.with(|innermost| {
            self.outer.set(innermost.get());
            // A signal handler finds a complete frame.
            compiler_fence(Ordering::SeqCst);
            innermost.set(own);
        });
    }

    /// Takes the frame out of the list.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        INNERMOST.with(|innermost| innermost.set(self.outer.get()));
        // From here on, a signal handler does not find the frame: what it has left there before this is seen.
        compiler_fence(Ordering::SeqCst);
    }
}

/// Whether the thread has no frame of any kind.
#[inline(always)]
pub(crate) fn is_empty() -> bool {
    INNERMOST.with(|innermost| innermost.get().is_null())
}

/// The frames of this kind, with the innermost first. Each is valid as long as the call that has made it.
#[inline]
pub(crate) fn of(kind: Kind) -> impl Iterator<Item = *const Frame> {
    let mut next = INNERMOST.with(Cell::get);
    std::iter::from_fn(move || loop {
        let found = next;
        // SAFETY: null, or a frame further up the stack of this thread, which leaves before its call returns.
        let frame = unsafe { found.as_ref() }?;
        next = frame.outer.get();
        if frame.kind == kind {
            return Some(found);
        }
    })
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn frames_of_a_kind_are_found_among_others_from_the_inside() {
        let frames = [Kind::Watch, Kind::Freeing, Kind::Watch, Kind::Waking].map(Frame::new);
        assert!(is_empty());
        frames.iter().for_each(|frame| frame.enter(frame));
        let found =
            |kind| of(kind).map(|found| frames.iter().position(|frame| ptr::eq(frame, found)).unwrap());
        assert_eq!(found(Kind::Watch).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(found(Kind::Freeing).collect::<Vec<_>>(), [1]);
        std::thread::spawn(|| assert!(is_empty())).join().unwrap();
        frames.iter().rev().for_each(Frame::leave);
        assert!(is_empty() && of(Kind::Waking).next().is_none());
    }
}
