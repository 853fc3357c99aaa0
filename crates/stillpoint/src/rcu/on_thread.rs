use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

/// The compiler's message names this when a reader, a guard, or what they protect would leave its thread: in a `spawn`, or at an `.await` of
/// a task that other threads may go on with. Across those, hold an [`OwnedProtected`](super::OwnedProtected), which is bound to no thread.
pub(crate) trait StaysOnItsThread: Unpin + UnwindSafe + RefUnwindSafe {}

/// Keeps a value on its thread, whatever its parts are: one reason for the compiler's message, instead of one for each pointer in it.
#[derive(Clone, Copy)]
pub(crate) struct OnThread<T> {
    value: Sendable<T>,
    _stays: PhantomData<dyn StaysOnItsThread>,
}

#[derive(Clone, Copy)]
struct Sendable<T>(T);

// SAFETY: it is only part of an `OnThread`, which is neither `Send` nor `Sync`.
unsafe impl<T> Send for Sendable<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Sendable<T> {}

impl<T> OnThread<T> {
    #[inline(always)]
    pub(crate) fn new(value: T) -> Self {
        Self { value: Sendable(value), _stays: PhantomData }
    }
}

impl<T> Deref for OnThread<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value.0
    }
}

impl<T> DerefMut for OnThread<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value.0
    }
}
