//! How a future waits for a reader: nobody sleeps, and no thread is there to look again.
//!
//! The future leaves its waker in a queue (`wakers.rs`), and asks the reader in its way for attention; the reader, when it
//! has published its next state and finds the request, lets the queue wake a share. A request that the reader misses would
//! be a wake-up that never comes. So a heavy fence follows the request: either the reader's look finds it, or the reader's
//! next state is seen by who asked. One fence serves all futures that wait for the same reader: the first one to ask
//! issues it, and has the others woken if it finds that the reader has gone on. The argument is in `docs/design/rcu.md`.

use std::task::Waker;
use std::time::Duration;

use super::wakers::{Place, Wakers};
use crate::busted::{self, Variant};
use crate::fence::FenceError;
use crate::rcu::engine::core::grace::{blocks, Grace};
use crate::rcu::engine::core::record::Record;
use crate::rcu::engine::Core;
use stillpoint_sys::sync::atomic::{AtomicBool, Ordering};

/// The futures that wait in a domain.
#[derive(Debug)]
pub(crate) struct Tasks {
    wakers: Wakers,
    /// Whether the kernel has refused a fence for a request.
    refused: AtomicBool,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self { wakers: Wakers::new(), refused: AtomicBool::new(false) }
    }

    /// The future of `place` no longer waits. If it was woken, it passes on its share.
    pub(crate) fn leave(&self, place: Place) {
        self.wakers.remove(place);
    }

    /// Everybody who waits now is woken, a share by this call and the others by those that are woken; each then looks for
    /// himself.
    pub(crate) fn wake(&self) {
        self.wakers.wake_all();
    }

    /// Whether requests may be missed, so that who waits must look again.
    pub(crate) fn may_be_missed(&self) -> bool {
        // Relaxed: whoever sets it wakes everybody after.
        self.refused.load(Ordering::Relaxed)
    }

    /// Since when a future waits for a reader in this state, as far as those know that have waited longest.
    pub(crate) fn in_the_way_since(&self, state: u64) -> Option<Duration> {
        self.wakers.in_the_way_since(state)
    }

    /// In the child of a `fork`: forgets the wakers, which speak to threads of the parent.
    ///
    /// # Safety
    /// The calling thread is the only one of the process.
    pub(crate) unsafe fn reset_after_fork(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.wakers.reset_after_fork() };
    }
}

/// What a future waits for: a section of a reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Awaited<'c> {
    pub(crate) laggard: &'c Record,
    pub(crate) state: u64,
}

impl Core {
    /// Whether `token` is over. If not, `waker` is woken when it may be, from `place`. A call that comes after a wake-up
    /// passes on its share.
    pub(crate) fn poll_token(
        &self,
        token: u64,
        place: &Place,
        waker: &Waker,
    ) -> Result<Option<Awaited<'_>>, FenceError> {
        if !busted::is(Variant::WakerAfterCheck) {
            self.tasks.wakers.set(place, waker.clone());
        }
        loop {
            // After the waker was left, under the lock: whoever wakes finds it there, or what he has seen is seen here.
            let Grace::HeldUp(laggard) = self.protocol.check(token)? else { return Ok(None) };
            let state = laggard.observe();
            if !blocks(state, token) {
                continue;
            }
            let is_first = laggard.request();
            if is_first && self.protocol.fence_request().is_err() {
                // Relaxed: see `may_be_missed`.
                self.tasks.refused.store(true, Ordering::Relaxed);
                self.tasks.wake();
            }
            // After the request: that a reader had gone on when the first one asked is seen here, too.
            if laggard.observe() == state {
                if busted::is(Variant::WakerAfterCheck) {
                    self.tasks.wakers.set(place, waker.clone());
                }
                return Ok(Some(Awaited { laggard, state }));
            }
            // The reader may have missed the request, on which others rely.
            if is_first && !busted::is(Variant::RequestNotPassedOn) {
                laggard.withdraw_request();
                self.tasks.wake();
            }
        }
    }
}
