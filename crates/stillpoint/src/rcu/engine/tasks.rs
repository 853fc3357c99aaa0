//! How a future waits for a reader: nobody sleeps, and no thread is there to look again.
//!
//! The future leaves its waker in a slot, and asks the reader in its way for attention; the reader, when it has
//! published its next state and finds the request, wakes every waker. A request that the reader misses would be a
//! wake-up that never comes. So a heavy fence follows the request: either the reader's look finds it, or the reader's
//! next state is seen by who asked. One fence serves all futures that wait for the same reader: the first one to ask
//! issues it, and wakes the others if it finds that the reader has gone on. The argument is in `docs/design/rcu.md`.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::task::Waker;

use super::grace::{blocks, Grace};
use super::record::Record;
use super::registry::{Claim, Registry};
use super::Core;
use crate::busted::{self, Variant};
use crate::fence::FenceError;
use crate::sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// The futures that wait in a domain.
#[derive(Debug)]
pub(crate) struct Tasks {
    slots: Registry<Slot>,
    /// Number of slots that are claimed.
    waiting: AtomicUsize,
    /// Whether the kernel has refused a fence for a request.
    refused: AtomicBool,
}

/// The waker of one future: a box, or null. Whoever takes it out owns it; the future alone puts one in.
#[derive(Debug)]
pub(crate) struct Slot {
    waker: AtomicPtr<Waker>,
}

impl Default for Slot {
    fn default() -> Self {
        Self { waker: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl Slot {
    fn set(&self, waker: &Waker) {
        let mut new = self.take().unwrap_or_else(|| Box::new(waker.clone()));
        // Costs nothing when it wakes the same task.
        (*new).clone_from(waker);
        // Release: pairs with the acquire in `take`.
        self.waker.store(Box::into_raw(new), Ordering::Release);
    }

    fn take(&self) -> Option<Box<Waker>> {
        // Acquire: pairs with the release in `set`. Who sets next does not read what was here before.
        let waker = self.waker.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: it came from `Box::into_raw`, and was taken out by this exchange alone.
        (!waker.is_null()).then(|| unsafe { Box::from_raw(waker) })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl Tasks {
    pub(super) fn new() -> Self {
        Self { slots: Registry::new(), waiting: AtomicUsize::new(0), refused: AtomicBool::new(false) }
    }

    pub(crate) fn claim(&self) -> Claim<Slot> {
        // Relaxed: made visible by the fence in `poll_token`.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.slots.claim()
    }

    pub(crate) fn release(&self, claim: &Claim<Slot>) {
        // SAFETY: the registry is alive.
        let waker = unsafe { claim.slot() }.take();
        self.slots.release(claim);
        // Relaxed: one too many costs a look at the slots.
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        // Last: a waker's destructor is not ours.
        drop(waker);
    }

    /// Wakes everybody, who then looks for himself. A waker that panics does not keep the others from being woken, and
    /// its panic goes no further: the reader that calls this has nothing to do with it.
    pub(super) fn wake_all(&self) {
        if !busted::is(Variant::AnswerNoFence) {
            // SeqCst: pairs with the fence in `poll_token`: either the waker is seen here, or the state that the
            // caller published, or has seen, is seen there.
            fence(Ordering::SeqCst);
        }
        // Relaxed, both: as the fence says.
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        for slot in self.slots.iter().filter(|slot| !slot.waker.load(Ordering::Relaxed).is_null()) {
            let Some(waker) = slot.take() else { continue };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                // Its destructor may panic as well.
                std::mem::forget(panic);
            }
        }
    }

    /// Whether requests may be missed, so that who waits must look again.
    pub(crate) fn may_be_missed(&self) -> bool {
        // Relaxed: whoever sets it wakes everybody after.
        self.refused.load(Ordering::Relaxed)
    }

    /// In the child of a `fork`: forgets the wakers, which speak to threads of the parent.
    pub(super) fn reset_after_fork(&self) {
        for slot in self.slots.iter_all() {
            // Relaxed: there is one thread alone. Not dropped: another thread may have been at it.
            slot.waker.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }
}

/// What a future waits for: a section of a reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Awaited<'c> {
    pub(crate) laggard: &'c Record,
    pub(crate) state: u64,
}

impl Core {
    /// Whether `token` is over. If not, `waker` is woken when it may be, from `slot`, which the caller has claimed.
    pub(crate) fn poll_token(
        &self,
        token: u64,
        slot: &Slot,
        waker: &Waker,
    ) -> Result<Option<Awaited<'_>>, FenceError> {
        if !busted::is(Variant::WakerAfterCheck) {
            slot.set(waker);
        }
        loop {
            // SeqCst: pairs with the fence in `wake_all`.
            fence(Ordering::SeqCst);
            let Grace::HeldUp(laggard) = self.check(token)? else { return Ok(None) };
            let state = laggard.observe();
            if !blocks(state, token) {
                continue;
            }
            let is_first = laggard.request();
            if is_first && self.fence_request().is_err() {
                // Relaxed: see `may_be_missed`.
                self.tasks.refused.store(true, Ordering::Relaxed);
                self.tasks.wake_all();
            }
            // After the request: that a reader had gone on when the first one asked is seen here, too.
            if laggard.observe() == state {
                if busted::is(Variant::WakerAfterCheck) {
                    slot.set(waker);
                }
                return Ok(Some(Awaited { laggard, state }));
            }
            // The reader may have missed the request, on which others rely.
            if is_first && !busted::is(Variant::RequestNotPassedOn) {
                laggard.withdraw_request();
                self.tasks.wake_all();
            }
        }
    }
}
