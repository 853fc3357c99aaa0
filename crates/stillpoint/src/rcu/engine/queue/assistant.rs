//! A retire list that retire handles share: each in turn, and nobody waits for it.
//!
//! A retire handle that finds no room takes a share of what has been submitted, and frees it if no reader is in the way.
//! What a reader holds up stays here, with its grace period, for the next one; the background reclaimer takes it over
//! when it comes by. So no more than a share is ever here, and a retire handle that is preempted in its turn holds
//! up no more than that.

use std::cell::UnsafeCell;
use std::sync::Arc;

use super::retire_list::{Limits, Pace, RetireList};
use crate::rcu::engine::Core;
use stillpoint_sys::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct Assistant {
    /// One of the constants below.
    state: AtomicUsize,
    /// Made by the first one.
    list: UnsafeCell<Option<RetireList>>,
}

/// Nobody is at it, and there is nothing.
const IDLE: usize = 0;
/// Nobody is at it, and there is something.
const LEFT: usize = 1;
/// Somebody is at it.
const TAKEN: usize = 2;

// SAFETY: the retire list, which is `Send`, is used only by the holder of the turn.
unsafe impl Sync for Assistant {}

impl Assistant {
    pub(crate) fn new() -> Self {
        Self { state: AtomicUsize::new(IDLE), list: UnsafeCell::new(None) }
    }

    /// Takes the turn, unless somebody has it.
    pub(crate) fn begin(&self) -> Option<Turn<'_>> {
        self.begin_at(IDLE).or_else(|| self.begin_at(LEFT))
    }

    /// As [`begin`](Assistant::begin), but only if something was left.
    pub(crate) fn begin_on_leftovers(&self) -> Option<Turn<'_>> {
        self.begin_at(LEFT)
    }

    fn begin_at(&self, state: usize) -> Option<Turn<'_>> {
        // Acquire: pairs with the release in `Turn`'s drop.
        let answer = self.state.compare_exchange(state, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        answer.is_ok().then(|| Turn(self))
    }

    /// Whether something was left and nobody is at it.
    pub(crate) fn has_leftovers(&self) -> bool {
        // Acquire: who finds nothing comes after those who freed it.
        self.state.load(Ordering::Acquire) == LEFT
    }

    /// Whether there is nothing, and nobody is at it.
    pub(crate) fn is_idle(&self) -> bool {
        // Acquire: as above.
        self.state.load(Ordering::Acquire) == IDLE
    }
}

/// The right to use the retire list of an [`Assistant`].
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Assistant);

impl Turn<'_> {
    /// The retire list. Its pace does not matter: who assists starts his grace periods himself.
    pub(crate) fn list(&mut self, core: &Arc<Core>) -> &mut RetireList {
        self.slot().get_or_insert_with(|| RetireList::new(Arc::clone(core), Pace::DEFAULT, Limits::NONE))
    }

    /// The retire list, if there is one.
    pub(crate) fn slot(&mut self) -> &mut Option<RetireList> {
        // SAFETY: the turn is taken, and `self` borrowed exclusively.
        unsafe { &mut *self.0.list.get() }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let is_empty = self.slot().as_ref().is_none_or(|list| list.len() == 0);
        // Release: pairs with the acquire operations above.
        self.0.state.store(if is_empty { IDLE } else { LEFT }, Ordering::Release);
    }
}
