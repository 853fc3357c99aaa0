//! The readers' calls. At the end of each, a reader whose record wants attention wakes the threads and futures that wait for it,
//! and ends its boost.

use super::boost::{self, BoostState};
use super::core::record::{ReaderKind, Record};
use super::core::registry::Claim;
use super::Core;
use crate::fence::ReaderFence;
use stillpoint_sys::sync::atomic::{fence, Ordering};

impl Core {
    /// Registers the calling thread as a reader. Returns how the reader must fence.
    pub(crate) fn register(&self, kind: ReaderKind) -> (Claim<Record>, ReaderFence) {
        let boost_state = if self.boosting().is_some() { boost::own() } else { None };
        boost_state.inspect(|boost_state| boost_state.add_holder());
        let claim = self.protocol.records.claim();
        // SAFETY: the registry is alive.
        let fence = self.register_in(unsafe { claim.slot() }, kind, boost_state);
        (claim, fence)
    }

    /// Registers the calling thread in a record of its own. In one that was [reserved](super::core::Protocol::reserve) it cannot
    /// be boosted, since what boosters need would be allocated.
    pub(crate) fn register_in(
        &self,
        record: &Record,
        kind: ReaderKind,
        boost_state: Option<&'static BoostState>,
    ) -> ReaderFence {
        let (fence, wants_attention) = self.protocol.register_in(record, kind, boost_state);
        // Answers requests to the record's last holder.
        self.answer_if(wants_attention, record);
        fence
    }

    /// Ends a reader, or gives back a slot that belongs to no thread, and wakes what waits for it.
    pub(crate) fn unregister(&self, claim: &Claim<Record>) {
        // SAFETY: the registry is alive.
        let boost_state = self.sign_off(unsafe { claim.slot() });
        self.protocol.records.release(claim);
        boost_state.inspect(|boost_state| boost_state.remove_holder());
    }

    /// Ends a reader whose record stays reserved by the caller.
    pub(crate) fn vacate(&self, record: &Record) {
        self.sign_off(record).inspect(|boost_state| boost_state.remove_holder());
        record.belong_to_nobody();
    }

    fn sign_off(&self, record: &Record) -> Option<&'static BoostState> {
        self.answer_if(self.protocol.sign_off(record), record);
        record.abandon()
    }

    /// Ends a section of a guard.
    #[inline(always)]
    pub(crate) fn leave(&self, record: &Record) {
        self.answer_if(self.protocol.leave(record), record);
    }

    /// Reports a quiescent state of a QSBR reader.
    #[inline(always)]
    pub(crate) fn report(&self, record: &Record) {
        self.answer_if(self.protocol.report(record), record);
    }

    /// Takes a QSBR reader offline: it promises not to read until [`online`](Core::online).
    pub(crate) fn offline(&self, record: &Record) {
        self.answer_if(self.protocol.offline(record), record);
    }

    /// Brings a QSBR reader back online.
    pub(crate) fn online(&self, record: &Record) {
        self.answer_if(self.protocol.online(record), record);
    }

    /// Runs `function` offline, and comes back online also if `function` panics.
    pub(crate) fn while_offline<R>(&self, record: &Record, function: impl FnOnce() -> R) -> R {
        struct Online<'c>(&'c Core, &'c Record);

        impl Drop for Online<'_> {
            fn drop(&mut self) {
                self.0.online(self.1);
            }
        }

        self.offline(record);
        let _online = Online(self, record);
        function()
    }

    #[inline(always)]
    fn answer_if(&self, wants_attention: bool, record: &Record) {
        if wants_attention {
            self.answer(record);
        }
    }

    #[cold]
    pub(crate) fn answer(&self, record: &Record) {
        if record.fences() {
            // SeqCst: pairs with the fence in `end_missed_boost` of a symmetric domain.
            fence(Ordering::SeqCst);
        }
        let is_asked = record.take_request();
        if is_asked {
            self.event.notify_by_shares();
        }
        // Before the wakers, which are foreign code: they may start threads, which would inherit the boost.
        self.end_own_boost(record);
        if is_asked {
            self.wakers.wake_all();
        }
    }
}
