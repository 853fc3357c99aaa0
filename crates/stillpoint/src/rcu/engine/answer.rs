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
        let (claim, fence, wants_attention) = self.protocol.register(kind, boost_state);
        if wants_attention {
            // Answers requests to the record's last holder. SAFETY: the registry is alive.
            self.answer(unsafe { claim.slot() });
        }
        (claim, fence)
    }

    /// Ends a reader, and wakes what waits for it.
    pub(crate) fn unregister(&self, claim: &Claim<Record>) {
        // SAFETY: the registry is alive.
        let record: &Record = unsafe { claim.slot() };
        if self.protocol.sign_off(record) {
            self.answer(record);
        }
        self.protocol.unregister(claim).inspect(|boost_state: &&BoostState| boost_state.remove_holder());
    }

    /// Gives back a slot that belongs to no thread.
    #[cfg(not(stillpoint_loom))]
    pub(crate) fn give_slot_back(&self, claim: &Claim<Record>) {
        // SAFETY: the registry is alive.
        let record: &Record = unsafe { claim.slot() };
        if self.protocol.sign_off(record) {
            // Answers requests to the record's last reader.
            self.answer(record);
        }
        self.protocol.release(claim);
    }

    /// Registers the calling thread in a record that was [reserved](super::core::Protocol::reserve). The reader cannot be
    /// boosted, since what boosters need would be allocated.
    pub(crate) fn register_in(&self, record: &Record) -> ReaderFence {
        let (fence, wants_attention) = self.protocol.register_in(record, ReaderKind::Guard, None);
        if wants_attention {
            self.answer(record);
        }
        fence
    }

    /// Ends a reader whose record stays reserved by the caller.
    pub(crate) fn vacate(&self, record: &Record) {
        if self.protocol.sign_off(record) {
            self.answer(record);
        }
        self.protocol.vacate(record).inspect(|boost_state: &&BoostState| boost_state.remove_holder());
        record.belong_to_nobody();
    }

    /// Begins a section of a guard.
    #[inline(always)]
    pub(crate) fn enter(&self, fence: ReaderFence, record: &Record) {
        self.protocol.enter(fence, record);
    }

    /// Ends a section of a guard.
    #[inline(always)]
    pub(crate) fn leave(&self, record: &Record) {
        if self.protocol.leave(record) {
            self.answer(record);
        }
    }

    /// Reports a quiescent state of a QSBR reader.
    #[inline(always)]
    pub(crate) fn report(&self, record: &Record) {
        if self.protocol.report(record) {
            self.answer(record);
        }
    }

    /// Takes a QSBR reader offline: it promises not to read until [`online`](Core::online).
    pub(crate) fn offline(&self, record: &Record) {
        if self.protocol.offline(record) {
            self.answer(record);
        }
    }

    /// Brings a QSBR reader back online.
    pub(crate) fn online(&self, record: &Record) {
        if self.protocol.online(record) {
            self.answer(record);
        }
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

    #[cold]
    pub(crate) fn answer(&self, record: &Record) {
        if record.fences() {
            // SeqCst: pairs with the fence in `end_missed_boost` of a symmetric domain.
            fence(Ordering::SeqCst);
        }
        if record.take_request() {
            self.event.notify_by_shares();
            self.tasks.wake();
        }
        self.end_own_boost(record);
    }
}
