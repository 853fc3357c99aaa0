//! What a thread is in the middle of: the calls further up its stack that a later call has to find, and foreign code that the library
//! runs: a destructor, a deferred call, a callback of a queue, a stall hook, or the comparison or the hash of a key under a table's lock.
//!
//! One list has frames of all kinds, so that the library takes one thread-local for them. All thread-locals of a library that is loaded
//! late come from a small supply: see `docs/design/capi.md`.
//!
//! What waits elsewhere may wait for the end of foreign code: the rest of its list, the next callback of its queue, a barrier of
//! another thread. So nothing waits in the library on its behalf: two threads that do would wait for each other, without a
//! reader that a report could name. Calls that may wait are refused at once, whether or not they would have to wait this time.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{compiler_fence, Ordering};

use stillpoint_sys::marks::MARKS;
use stillpoint_sys::panics::{self, Panic};

/// What kind of struct a frame begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// [`Watch`](crate::own_writes::Watch).
    Watch,
    /// A call that wakes futures.
    Waking,
    /// A call that frees objects, one after the other.
    Freeing,
    /// A function that makes the value of a table's entry.
    Making,
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

    /// Runs a function while the frame is in the list, also if it panics.
    #[inline(always)]
    pub(crate) fn during<T, R>(&self, whole: &T, function: impl FnOnce() -> R) -> R {
        struct Leave<'f>(&'f Frame);

        impl Drop for Leave<'_> {
            #[inline(always)]
            fn drop(&mut self) {
                self.0.leave();
            }
        }

        self.enter(whole);
        let _leave = Leave(self);
        function()
    }

    /// Takes the frame out of the list.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        INNERMOST.with(|innermost| innermost.set(self.outer.get()));
        // From here on, a signal handler does not find the frame: what it has left there before this is seen.
        compiler_fence(Ordering::SeqCst);
    }
}

/// Runs a function within a frame of this kind.
#[inline(always)]
pub(crate) fn within<R>(kind: Kind, function: impl FnOnce() -> R) -> R {
    let frame = Frame::new(kind);
    frame.during(&frame, function)
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

/// As [`panics::keep_first`], for payloads of foreign code: a payload that is discarded runs a destructor, which must not wait.
pub(crate) fn keep_first(first: &mut Option<Panic>, panic: Panic) {
    let _foreign = Foreign::begin();
    panics::keep_first(first, panic);
}

/// As [`panics::keeping`], for foreign code.
pub(crate) fn keeping<R>(first: &mut Option<Panic>, function: impl FnOnce() -> R) -> Option<R> {
    panics::catch(function).map_err(|panic| keep_first(first, panic)).ok()
}

/// Whether this call comes from any foreign code that the library runs, in any domain: then it must not wait.
pub(crate) fn is_foreign() -> bool {
    // The threads of a model share their thread-locals, so one would be refused because of another one's destructor.
    !cfg!(stillpoint_loom) && mark() != Within::Own as u8
}

/// Marks the thread as running such code, as long as this value exists.
#[derive(Debug)]
pub(crate) struct Foreign {
    outer: u8,
}

impl Foreign {
    #[inline(always)]
    fn mark(mark: u8) -> Self {
        Self { outer: MARKS.with(|marks| marks.within.replace(mark)) }
    }

    /// For a destructor, a stall hook, or code under a lock.
    #[inline]
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

impl Drop for Foreign {
    #[inline]
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
        let callback = Foreign::begin_callback();
        assert_eq!(now(), (true, false));
        let destructor = Foreign::begin();
        let inner = Foreign::begin_callback();
        assert_eq!(now(), (true, true), "a callback within a destructor must not free");
        let lifted = Foreign::lift();
        assert_eq!(now(), (false, false));
        drop(lifted);
        assert_eq!(now(), (true, true));
        drop(inner);
        drop(destructor);
        assert_eq!(now(), (true, false));
        drop(callback);
        assert_eq!(now(), (false, false));
    }

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
