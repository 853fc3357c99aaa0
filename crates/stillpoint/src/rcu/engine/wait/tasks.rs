//! How a future waits for a reader: no thread sleeps, and none looks again.
//!
//! The future leaves its waker in a queue (`wakers.rs`), and asks the reader in its way for attention. The reader publishes its
//! next state; if it then finds the request, it lets the queue wake a share. If the reader missed a request, the future would
//! never be woken. So a heavy fence follows the request: either the reader finds it, or the requester sees the reader's
//! next state. One fence serves all futures that wait for the same reader. The first one to ask issues it, and has the others
//! woken if it finds that the reader has gone on. The argument is in `docs/design/rcu.md`.

use std::task::Waker;

use super::wakers::Place;
use crate::busted::{self, Variant};
use crate::fence::FenceError;
use crate::rcu::engine::core::grace::Grace;
use crate::rcu::engine::core::record::{blocks, Record};
use crate::rcu::engine::Core;
use stillpoint_sys::sync::atomic::Ordering;

/// What a future waits for: a section of a reader.
#[derive(Clone, Copy)]
pub(crate) struct Awaited<'c> {
    pub(crate) laggard: &'c Record,
    pub(crate) state: u64,
}

impl Core {
    /// Whether requests may be missed, so that a waiting future must look again.
    pub(crate) fn may_miss_requests(&self) -> bool {
        // Relaxed: the future that sets it wakes all others afterwards.
        self.request_refused.load(Ordering::Relaxed)
    }

    /// Whether `token` is over. If not, `waker` is left in `place`, and woken when the token may be over. A call that follows a
    /// wake-up passes on its share.
    pub(crate) fn poll_token(
        &self,
        token: u64,
        place: &Place,
        waker: &Waker,
    ) -> Result<Option<Awaited<'_>>, FenceError> {
        if !busted::is(Variant::WakerAfterCheck) {
            self.wakers.set(place, waker.clone());
        }
        loop {
            // Comes after the waker was left, under the lock: either a thread that wakes finds the waker, or this look sees its
            // state.
            let Grace::Blocked(laggard) = self.protocol.check(token)? else { return Ok(None) };
            let state = laggard.observe();
            if !blocks(state, token) {
                continue;
            }
            let is_first = laggard.request();
            if is_first && self.protocol.fence_request().is_err() {
                // Relaxed: see `may_miss_requests`.
                self.request_refused.store(true, Ordering::Relaxed);
                self.wakers.wake_all();
            }
            // Comes after the request: if the reader had gone on when the first future asked, this look sees that, too.
            if laggard.observe() == state {
                if busted::is(Variant::WakerAfterCheck) {
                    self.wakers.set(place, waker.clone());
                }
                return Ok(Some(Awaited { laggard, state }));
            }
            // The reader may have missed the request, on which other futures rely.
            if is_first && !busted::is(Variant::RequestNotPassedOn) {
                laggard.withdraw_request();
                self.wakers.wake_all();
            }
        }
    }
}
