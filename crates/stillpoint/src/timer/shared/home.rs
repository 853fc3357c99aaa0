//! The state that all handles of a service share: hints about cancelled timers, and rings that the owner does not know
//! yet.
//!
//! The hints are a stack of records. The owner takes it as a whole. A mark in each record keeps the record from being
//! on the stack twice. When the service is gone, the stack stays closed, so that records and service do not keep each
//! other alive.

use std::sync::atomic::AtomicU64 as PlainU64;
use std::sync::{Arc, PoisonError, TryLockError};

use crossbeam_utils::CachePadded;

use super::alarm::Bed;
use super::record::Record;
use super::ring::{ring, Sink, Source};
use crate::timer::busted::{self, Variant};
use crate::timer::orders;
use crate::timer::wheel::WheelStats;
use stillpoint_sys::os::{thread_handle, wait, wake_all};
use stillpoint_sys::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use stillpoint_sys::sync::Mutex;

pub(super) struct Home<T> {
    hints: AtomicPtr<Record<T>>,
    /// Rings that the owner does not know yet; `None` once the service is gone.
    rings: Mutex<Option<Vec<Sink<T>>>>,
    /// Whether there are such rings.
    has_rings: AtomicBool,
    /// The thread that runs callbacks, or ran them last.
    runner: CachePadded<AtomicUsize>,
    /// Count of callbacks that have ended while a canceller waited: a futex.
    ended: AtomicU32,
    /// The counts of the wheel. Not modelled: statistics, which order nothing.
    counts: CachePadded<[PlainU64; 5]>,
    /// Set only in a service that sleeps between its calls.
    pub(super) bed: Option<Bed>,
}

/// The top of a closed stack: no record has this address.
fn closed<T>() -> *mut Record<T> {
    std::ptr::without_provenance_mut(std::mem::align_of::<Record<T>>())
}

impl<T> Home<T> {
    pub(super) fn new() -> Self {
        Self {
            hints: AtomicPtr::new(std::ptr::null_mut()),
            rings: Mutex::new(Some(Vec::new())),
            has_rings: AtomicBool::new(false),
            runner: CachePadded::new(AtomicUsize::new(0)),
            ended: AtomicU32::new(0),
            counts: CachePadded::default(),
            bed: None,
        }
    }

    /// Shows the counts of the wheel to other threads. Called by the owner.
    pub(super) fn show(&self, stats: WheelStats) {
        let WheelStats { timers, capacity, moved, levels, time_went_back } = stats;
        let numbers = [timers as u64, capacity as u64, moved, levels.into(), time_went_back];
        self.counts.iter().zip(numbers).for_each(|(count, number)| count.store(number, Ordering::Relaxed));
    }

    /// Whether these counts were [shown](Home::show) last: what a call may change without a step. Reads two words, for each call of the
    /// owner.
    #[inline]
    pub(super) fn shows(&self, timers: usize, time_went_back: u64) -> bool {
        let [shown, .., went_back] = &*self.counts;
        shown.load(Ordering::Relaxed) == timers as u64 && went_back.load(Ordering::Relaxed) == time_went_back
    }

    /// What was [shown](Home::show) last.
    pub(super) fn shown(&self) -> WheelStats {
        let [timers, capacity, moved, levels, time_went_back] =
            std::array::from_fn(|number| self.counts[number].load(Ordering::Relaxed));
        let (timers, capacity) = (timers as usize, capacity as usize);
        WheelStats { timers, capacity, moved, levels: levels as u32, time_went_back }
    }

    /// Wakes the owner if it sleeps beyond `deadline`. The owner then sees what the caller published before.
    #[inline]
    pub(super) fn rouse(&self, deadline: u64) {
        if let Some(bed) = &self.bed {
            bed.rouse(deadline);
        }
    }

    /// As `rouse`, for the owner itself: its own change of the wheel needs no fence.
    #[cold]
    pub(super) fn rouse_owner(&self, deadline: u64) {
        if let Some(bed) = &self.bed {
            bed.rouse_beyond(deadline);
        }
    }

    /// Whether there are neither unknown rings nor hints.
    pub(super) fn is_quiet(&self) -> bool {
        // Relaxed: ordered by the fence in `Bed::lie_down`.
        !self.has_rings.load(Ordering::Relaxed) && self.has_no_hints()
    }

    /// Stores that the calling thread, whose number is `me`, is about to run a callback.
    #[inline]
    pub(super) fn run_in(&self, me: usize) {
        // Relaxed, both: the release that begins a callback publishes this. The thread rarely changes, so the cache
        // line is written only if the number differs.
        if self.runner.load(Ordering::Relaxed) != me {
            self.runner.store(me, Ordering::Relaxed);
        }
    }

    /// Whether the running callback runs on the calling thread.
    pub(super) fn runs_here(&self) -> bool {
        // Relaxed: the caller has seen by an acquire that a callback has begun. Only this thread stores its own number.
        self.runner.load(Ordering::Relaxed) == thread_handle()
    }

    /// The count of callbacks that have ended while a canceller waited.
    pub(super) fn ended(&self) -> u32 {
        self.ended.load(orders::await_end())
    }

    pub(super) fn tell_end(&self) {
        if busted::is(Variant::EndUntold) {
            return;
        }
        self.ended.fetch_add(1, orders::end());
        wake_all(&self.ended);
    }

    /// Sleeps while the count is `seen`. May return early.
    pub(super) fn await_end(&self, seen: u32) {
        wait(&self.ended, seen, None);
    }

    /// Makes a ring that the owner will serve. The ring is closed if the service is gone.
    pub(super) fn ring(&self, capacity: usize) -> Source<T> {
        let (source, sink) = ring(capacity);
        let refused = match &mut *self.rings.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(rings) => {
                rings.push(sink);
                None
            }
            None => Some(sink),
        };
        if let Some(sink) = refused {
            sink.close();
        }
        // Relaxed: the lock orders the rings; the flag only says when to look. It is set after the ring was pushed, and
        // `take_rings` clears it before it looks. So a ring that `take_rings` misses is announced afterwards.
        self.has_rings.store(true, Ordering::Relaxed);
        source
    }

    /// Takes the new rings. Returns whether there may be more. Never waits: while another thread is making a ring, all
    /// new rings are left for the next call.
    #[inline]
    pub(super) fn take_rings(&self, into: &mut Vec<Sink<T>>) -> bool {
        // Relaxed: the lock orders the rings; the flag only says when to look. See `ring`.
        if !self.has_rings.load(Ordering::Relaxed) {
            return false;
        }
        // Relaxed: the lock orders the rings; the flag only says when to look. See `ring`.
        self.has_rings.store(false, Ordering::Relaxed);
        let mut rings = match self.rings.try_lock() {
            Ok(rings) => rings,
            // The list is valid even after a panic.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // Relaxed: the lock orders the rings; the flag only says when to look. See `ring`.
                self.has_rings.store(true, Ordering::Relaxed);
                return true;
            }
        };
        into.extend(rings.iter_mut().flat_map(std::mem::take));
        false
    }

    /// Closes the list: later rings are refused. Returns the rings that the owner does not know.
    pub(super) fn close_rings(&self) -> Vec<Sink<T>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }

    /// Gives the owner the hint that a timer was cancelled. Wakes the owner if it has a callback to run for that.
    pub(super) fn hint(&self, record: &Arc<Record<T>>) {
        // AcqRel: pairs with the exchange in `Hints::pop`. If the mark is set here, the owner clears it later, and then
        // sees the cancellation. Otherwise the mark is clear, and the record is pushed.
        if record.hinted.swap(true, Ordering::AcqRel) {
            return;
        }
        let pushed = Arc::into_raw(Arc::clone(record)).cast_mut();
        // Relaxed: the exchange below publishes.
        let mut top = self.hints.load(Ordering::Relaxed);
        loop {
            if top == closed() {
                // SAFETY: the pointer was made from an `Arc` above, and was not pushed.
                drop(unsafe { Arc::from_raw(pushed) });
                return;
            }
            // Relaxed: published by the exchange below.
            record.next.store(top, Ordering::Relaxed);
            match self.hints.compare_exchange_weak(top, pushed, orders::hint(), Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => top = other,
            }
        }
        // The timer may have been armed and revoked since the mark was set: that thread has found the mark, and the owner no hint. Pairs
        // with the fence of `revoke`, besides: either this thread sees the revocation, or that one comes after the push.
        if let Some(bed) = self.bed.as_ref().filter(|_| !busted::is(Variant::HintUntold)) {
            bed.rouse_if(0, || record.is_revoked());
        }
    }

    pub(super) fn has_no_hints(&self) -> bool {
        // Relaxed: only says whether it is worth looking again.
        self.hints.load(Ordering::Relaxed).is_null()
    }

    /// Takes all hints.
    #[inline]
    pub(super) fn take_hints(&self) -> Hints<T> {
        if self.has_no_hints() {
            return Hints::default();
        }
        // Acquire: pairs with the release in `hint`.
        Hints { top: self.hints.swap(std::ptr::null_mut(), Ordering::Acquire) }
    }

    /// Whether the service is gone, or is being closed.
    pub(super) fn is_gone(&self) -> bool {
        // Relaxed: the answer may be out of date.
        self.hints.load(Ordering::Relaxed) == closed()
    }

    /// Takes the last hints, and closes the stack: later hints are dropped.
    pub(super) fn close_hints(&self) -> Hints<T> {
        // Acquire: pairs with the release in `hint`.
        let top = self.hints.swap(closed(), Ordering::Acquire);
        Hints { top: if top == closed() { std::ptr::null_mut() } else { top } }
    }
}

/// Hints that the owner has taken.
pub(super) struct Hints<T> {
    top: *mut Record<T>,
}

// SAFETY: this value owns the records that it links. Records can be sent and shared if their values can be sent.
unsafe impl<T: Send> Send for Hints<T> {}

impl<T> Default for Hints<T> {
    fn default() -> Self {
        Self { top: std::ptr::null_mut() }
    }
}

impl<T> Hints<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.top.is_null()
    }

    /// Takes the next record. Clears its mark, so that a later cancellation gives another hint.
    pub(super) fn pop(&mut self) -> Option<Arc<Record<T>>> {
        if self.top.is_null() {
            return None;
        }
        // SAFETY: a pushed record was made from an `Arc`, and is popped once.
        let record = unsafe { Arc::from_raw(self.top.cast_const()) };
        // Relaxed: ordered by `take_hints`; the record is not pushed again before its mark is cleared.
        self.top = record.next.load(Ordering::Relaxed);
        if busted::is(Variant::HintByStore) {
            record.hinted.store(false, Ordering::Relaxed);
        } else if !busted::is(Variant::HintMarkLate) {
            // AcqRel: pairs with the exchange in `Home::hint`.
            record.hinted.swap(false, Ordering::AcqRel);
        }
        Some(record)
    }
}

impl<T> Drop for Hints<T> {
    fn drop(&mut self) {
        while let Some(record) = self.pop() {
            drop(record);
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use std::num::NonZeroU64;

    use crate::timer::shared::{Cause, TimerService};
    use crate::timer::{Limit, Progress, Schedule};

    /// Revocations by threads that have not given their hint yet: the service has the value all the same.
    #[test]
    fn a_revoked_timer_is_kept_until_its_hint_comes_or_its_service_is_closed() {
        let schedules = [Schedule::at(5), Schedule::at(5).every(NonZeroU64::MIN), Schedule::after(5)];
        let cases = [false, true].map(|is_hinted| {
            schedules.map(|schedule| [false, true].map(|is_taken_in| (schedule, is_taken_in, is_hinted)))
        });
        for (schedule, is_taken_in, is_hinted) in cases.into_iter().flatten().flatten() {
            let mut service = TimerService::new(0);
            let timer = service.remote().timer();
            service.remote().mailbox(1).add(&timer, schedule, 7).unwrap();
            if is_taken_in {
                let _ = service.run(0, Limit::NONE, |_, _| {});
            }
            assert!(timer.0.revoke().is_cancelled());
            let progress = service.run(10, Limit::NONE, |_, _| panic!("it has fired"));
            assert_eq!((progress.expired(), service.stats().timers), (0, 1));
            let mut values = Vec::new();
            if is_hinted {
                service.home.hint(&timer.0);
                let _ = service.process(usize::MAX, |_, event| {
                    assert_eq!(event.cause(), Cause::Revoked);
                    values.extend(event.into_value());
                });
                assert_eq!(service.stats().timers, 0);
            }
            service.close(|value| values.push(value));
            assert_eq!(values, [7], "{schedule:?}, taken in: {is_taken_in}, hinted: {is_hinted}");
        }
    }

    /// Armed in its own beat, and revoked by a thread that has not given its hint yet.
    #[test]
    fn a_timer_that_is_revoked_in_its_beat_is_kept() {
        let mut service = TimerService::new(0);
        let timer = service.remote().timer();
        service.arm(&timer, Schedule::at(5).every(NonZeroU64::MIN), 7).unwrap();
        let _ = service.run(5, Limit::NONE, |_, _| {
            // Only the state, as if the wheel had not been told.
            assert!(timer.0.arm(Schedule::at(9), 8, true).is_ok());
            assert!(timer.0.revoke().is_cancelled());
        });
        let mut values = Vec::new();
        service.close(|value| values.push(value));
        assert_eq!(values, [8]);
    }

    /// The test holds the lock, as a thread does that is making a mailbox.
    #[test]
    fn mailboxes_that_cannot_be_looked_at_are_left_for_the_next_call() {
        let mut service = TimerService::new(0);
        let remote = service.remote();
        let mut mailbox = remote.mailbox(1);
        mailbox.add(&remote.timer(), 5, 1).unwrap();
        let making = remote.home.rings.lock().unwrap();
        assert_eq!(service.process(usize::MAX, |_, _| {}), Progress::More(0));
        assert_eq!(service.run(5, Limit::NONE, |_, _| {}), Progress::More(0));
        drop(making);
        assert_eq!(service.run(5, Limit::NONE, |_, _| {}), Progress::Done(1));
    }
}
