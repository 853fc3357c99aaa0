//! The record of a shared timer. Its state says which thread may access the value.
//!
//! ```text
//!            arm                     expiry            callback ends
//!   at rest -----> ARMING --> ARMED --------> RUNNING ---------------> FIRED
//!                              | |               | \ periodic
//!                              | | cancel        |  `--> RESTORING --> ARMED
//!                              | `-> TAKING --> CANCELLED
//!                              | revoke          | cancel
//!                              |                 `--> STOPPING ----> FIRED
//!                              `---> REVOKED --> CANCELLED
//! ```
//!
//! A thread that resets an ARMED timer sets a bit, the lock, writes the new schedule, and changes the state to ARMED of
//! the next generation. A cancellation does not wait for the lock: the bit stays until the thread that has set it
//! clears it. STOPPING becomes WAITED when a canceller sleeps until the callback has ended.
//!
//! "At rest" is any of IDLE, FIRED, CANCELLED and GONE. Each arming has its own generation, which is a part of the
//! state. So the owner can tell that an entry in the wheel belongs to an earlier arming.

use core::num::NonZeroU64;
use std::sync::Arc;

use super::home::Home;
use crate::timer::busted::{self, Variant};
use crate::timer::orders;
use crate::timer::wheel::{Schedule, PERIODIC, RELATIVE};
use stillpoint_sys::sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use stillpoint_sys::sync::UnsafeCell;

const PHASES: u64 = 15;
/// The thread that has set this bit writes the schedule of a timer that is armed, or was armed when the bit was set.
const LOCKED: u64 = 16;
const GENERATION: u32 = 5;

const IDLE: u64 = 0;
/// The thread that arms the timer writes the value.
const ARMING: u64 = 1;
/// The first thread to change the state gets the value.
const ARMED: u64 = 2;
/// The owner has the value.
const RUNNING: u64 = 3;
/// As RUNNING, and the timer was cancelled meanwhile.
const STOPPING: u64 = 4;
const FIRED: u64 = 5;
/// The thread that has cancelled the timer takes the value.
const TAKING: u64 = 6;
/// The owner will take the value, after it gets the hint.
const REVOKED: u64 = 7;
const CANCELLED: u64 = 8;
const GONE: u64 = 9;
/// The owner puts the value of a periodic timer back.
const RESTORING: u64 = 10;

/// As STOPPING, and a canceller sleeps until the callback has ended.
const WAITED: u64 = 11;

/// One callback, in [`Record::beyond`].
const BEYOND: u32 = 2;
/// A canceller sleeps, in [`Record::beyond`].
const WAITS: u32 = 1;

/// Why a timer cannot be armed, or reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occupied {
    Armed,
    Busy,
    AtRest,
}

pub(super) struct Record<T> {
    state: AtomicU64,
    /// These three fields are written by the thread that arms or resets the timer. They belong to the generation in the
    /// state: see `schedule`.
    deadline: AtomicU64,
    period: AtomicU64,
    flags: AtomicU32,
    /// Whether the record is on the stack of hints, or about to be.
    pub(super) hinted: AtomicBool,
    /// The key in the owner's wheel; 0 for none. Only the owner uses it.
    pub(super) key: AtomicU64,
    /// The generation that the owner has taken into its wheel last. Only the owner uses it.
    pub(super) taken: AtomicU64,
    /// Two for each callback of the timer that is running and has armed it again, and one if a canceller sleeps until one of them has ended.
    beyond: AtomicU32,
    /// The next hint. Written by the thread that has set `hinted`.
    pub(super) next: AtomicPtr<Record<T>>,
    value: UnsafeCell<Option<T>>,
    home: Arc<Home<T>>,
}

// SAFETY: the value passes from thread to thread, and only one thread has it at a time. Only the thread to which the
// state gives the value writes or takes it. All such changes of the state are ordered: see the methods. All other
// fields are atomic, or never change.
unsafe impl<T: Send> Send for Record<T> {}
// SAFETY: only one thread has the value at a time, as for `Send`, and no thread gets a reference to it while another
// thread accesses it.
unsafe impl<T: Send> Sync for Record<T> {}

fn phase(state: u64) -> u64 {
    state & PHASES
}

fn generation(state: u64) -> u64 {
    state >> GENERATION
}

fn state(generation: u64, phase: u64) -> u64 {
    generation << GENERATION | phase
}

/// The answer to a cancellation.
///
/// ```
/// use stillpoint::timer::shared::{Outcome, TimerService};
///
/// let mut service = TimerService::new(0);
/// let timer = service.remote().timer();
/// service.arm(&timer, 10, "session 7").expect("it is at rest");
/// assert_eq!(timer.cancel().into_value(), Some("session 7"));
/// assert!(!timer.cancel().is_cancelled()); // only one call gets the value
/// assert_eq!(timer.cancel(), Outcome::Gone);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only this answer says whether the timer has fired"]
pub enum Outcome<T> {
    /// The timer has not fired, and will not. The caller gets the value. A callback that has armed its timer again may still be running:
    /// see [`SharedTimer::cancel_wait`](super::SharedTimer::cancel_wait).
    Cancelled(T),
    /// The timer's callback is running. It does not run again, unless the timer is armed again.
    Running,
    /// The timer's callback has run. The caller sees what the callback did.
    Fired,
    /// There was nothing to cancel. The timer was not armed, another thread was still arming it, it was cancelled
    /// before, or its service is gone.
    Gone,
}

impl<T> Outcome<T> {
    /// Whether the timer was cancelled by this call.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled(_))
    }

    /// The value, if the timer was cancelled by this call.
    pub fn into_value(self) -> Option<T> {
        match self {
            Self::Cancelled(value) => Some(value),
            _ => None,
        }
    }
}

impl<T> Record<T> {
    pub(super) fn new(home: Arc<Home<T>>) -> Self {
        Self {
            state: AtomicU64::new(state(0, IDLE)),
            deadline: AtomicU64::new(0),
            period: AtomicU64::new(0),
            flags: AtomicU32::new(0),
            hinted: AtomicBool::new(false),
            key: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            beyond: AtomicU32::new(0),
            next: AtomicPtr::new(std::ptr::null_mut()),
            value: UnsafeCell::new(None),
            home,
        }
    }

    pub(super) fn home(&self) -> &Arc<Home<T>> {
        &self.home
    }

    /// Takes the value, which the state gives to the caller.
    fn take(&self) -> Option<T> {
        // SAFETY: callers have changed the state to one that gives them the value, with an ordering that makes earlier
        // writes of it visible.
        self.value.with_mut(|value| unsafe { (*value).take() })
    }

    fn put(&self, new: T) {
        // SAFETY: callers have changed the state to one that gives them the value, with an ordering that makes earlier
        // writes of it visible.
        let old = self.value.with_mut(|value| unsafe { (*value).replace(new) });
        debug_assert!(old.is_none());
    }

    fn move_on(&self, from: u64, to: u64, success: Ordering) -> Result<u64, u64> {
        // Acquire on failure: as for the first load in `cancel`, the value or what the callback did is visible.
        self.state.compare_exchange(from, to, success, Ordering::Acquire)
    }

    /// Arms the timer, and returns the generation of this arming. The owner may do so from the timer's own callback, too.
    #[inline]
    pub(super) fn arm(&self, schedule: Schedule, value: T, owner: bool) -> Result<u64, (Occupied, T)> {
        // Relaxed: the exchange below acquires.
        let mut found = self.state.load(Ordering::Relaxed);
        let armed = loop {
            match phase(found) {
                ARMED => return Err((Occupied::Armed, value)),
                RUNNING if owner => match self.arm_again(found) {
                    Ok(armed) => break armed,
                    Err(other) => {
                        found = other;
                        continue;
                    }
                },
                ARMING | RUNNING | STOPPING | WAITED | RESTORING | TAKING | REVOKED => {
                    return Err((Occupied::Busy, value));
                }
                // Another thread may still be writing the schedule of an arming that is over.
                _ if found & LOCKED != 0 => return Err((Occupied::Busy, value)),
                _ => {}
            }
            let next = generation(found) + 1;
            let claim = orders::claim();
            match self.state.compare_exchange(found, state(next, ARMING), claim, Ordering::Relaxed) {
                Ok(_) => break state(next, ARMED),
                Err(other) => found = other,
            }
        };
        // Relaxed: ordered by the state.
        self.deadline.store(schedule.deadline, Ordering::Relaxed);
        if schedule.flags != 0 {
            self.period.store(schedule.period.map_or(0, NonZeroU64::get), Ordering::Relaxed);
        }
        self.flags.store(schedule.flags, Ordering::Relaxed);
        self.put(value);
        self.state.store(armed, orders::arm());
        Ok(generation(armed))
    }

    /// Claims the timer for an arming by its own callback, which goes on. Returns the new state, or as an error the one found
    /// instead.
    #[cold]
    fn arm_again(&self, found: u64) -> Result<u64, u64> {
        let next = generation(found) + 1;
        if !busted::is(Variant::RearmedUnseen) {
            // Relaxed: published by the fence.
            self.beyond.fetch_add(BEYOND, Ordering::Relaxed);
            // Release: pairs with the acquire by which a canceller finds the state of this arming.
            fence(Ordering::Release);
        }
        match self.state.compare_exchange(found, state(next, ARMING), orders::claim(), Ordering::Relaxed) {
            Ok(_) => Ok(state(next, ARMED)),
            Err(other) => {
                self.end_beyond();
                Err(other)
            }
        }
    }

    /// Ends what [`arm_again`](Record::arm_again) began.
    #[cold]
    fn end_beyond(&self) {
        let end = |count: u32| (count >= BEYOND).then(|| (count & !WAITS) - BEYOND);
        // Release: pairs with the acquire in `await_end`. Relaxed on failure: nothing is read after it.
        if self
            .beyond
            .fetch_update(Ordering::Release, Ordering::Relaxed, end)
            .is_ok_and(|count| count & WAITS != 0)
        {
            self.home.tell_end();
        }
    }

    /// Gives an armed timer another deadline, or delay. The value stays in its place, and the timer can be cancelled at
    /// any time.
    pub(super) fn reset(&self, to: Schedule) -> Result<(), Occupied> {
        // Relaxed: the exchange below acquires.
        let mut found = self.state.load(Ordering::Relaxed);
        loop {
            match phase(found) {
                ARMED if found & LOCKED == 0 => {}
                IDLE | FIRED | CANCELLED | GONE => return Err(Occupied::AtRest),
                _ => return Err(Occupied::Busy),
            }
            match self.state.compare_exchange(found, found | LOCKED, orders::lock(), Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => found = other,
            }
        }
        // Relaxed, all: no other thread writes these fields before the lock is cleared, and the state orders them.
        self.deadline.store(to.deadline, Ordering::Relaxed);
        let flags = self.flags.load(Ordering::Relaxed) & !RELATIVE;
        self.flags.store(flags | to.flags & RELATIVE, Ordering::Relaxed);
        let armed = state(generation(found) + 1, ARMED);
        if busted::is(Variant::ResetByStore) {
            self.state.store(armed, Ordering::Release);
            return Ok(());
        }
        // Relaxed on failure: nothing is read after it.
        let done = self.state.compare_exchange(found | LOCKED, armed, orders::reset(), Ordering::Relaxed);
        done.map(drop).map_err(|_| {
            // The timer was cancelled meanwhile. Release: pairs with the acquire that claims the timer in `arm`, after
            // which the schedule is written anew.
            self.state.fetch_and(!LOCKED, Ordering::Release);
            Occupied::AtRest
        })
    }

    /// Changes the phase of an arming whose value the caller has taken. If another thread has the lock, the bit stays,
    /// since that thread may be clearing it at this moment. No thread sets the bit any more.
    fn settle(&self, found: u64, to: u64, order: Ordering) {
        if found & LOCKED == 0 || busted::is(Variant::SettleByStore) {
            self.state.store(state(generation(found), to), order);
        } else {
            self.state.fetch_xor(phase(found) ^ to, order);
        }
    }

    /// The present arming's generation and schedule, or `None` when the timer is not armed.
    ///
    /// If the timer is cancelled and armed again meanwhile, the schedule may be that of another arming, or mixed from
    /// two. In this case, the present arming is over, and nothing fires for it. So only values that would harm the
    /// wheel are corrected.
    #[inline]
    pub(super) fn schedule(&self) -> Option<(u64, Schedule)> {
        // Acquire: pairs with the releases in `arm` and `reset`: the loads below see what this arming has stored, or a
        // later one.
        let found = self.state.load(Ordering::Acquire);
        // If the lock is set, its thread will send a message when the schedule is complete.
        if found & (PHASES | LOCKED) != ARMED {
            return None;
        }
        // Relaxed: ordered by the state.
        let deadline = self.deadline.load(Ordering::Relaxed);
        let flags = self.flags.load(Ordering::Relaxed);
        let period = NonZeroU64::new(self.period.load(Ordering::Relaxed));
        let flags = if period.is_none() { flags & !PERIODIC } else { flags };
        Some((generation(found), Schedule { deadline, period, flags }))
    }

    /// Cancels the timer. The caller gets the value.
    pub(super) fn cancel(&self) -> Outcome<T> {
        let mut found = self.state.load(orders::find());
        loop {
            if phase(found) != ARMED {
                match self.cancel_elsewhere(found) {
                    Ok(outcome) => return outcome,
                    Err(other) => found = other,
                }
                continue;
            }
            let taking = if busted::is(Variant::TakeLate) { CANCELLED } else { TAKING };
            let taking = state(generation(found), taking) | found & LOCKED;
            if busted::is(Variant::CancelByStore) {
                self.state.store(taking, Ordering::Release);
            } else {
                if let Err(other) = self.move_on(found, taking, orders::cancel()) {
                    found = other;
                    continue;
                }
            }
            let value = self.take();
            self.settle(taking, CANCELLED, orders::taken());
            return value.map_or(Outcome::Gone, Outcome::Cancelled);
        }
    }

    /// Cancels the timer, and leaves the value to the owner.
    pub(super) fn revoke(&self) -> Outcome<()> {
        let mut found = self.state.load(orders::find());
        loop {
            let attempt = if phase(found) == ARMED {
                // Release: pairs with the acquire in `take_revoked`: the owner sees what the caller did before. As a
                // read-modify-write, it continues the release sequence of `arm`.
                let revoked = state(generation(found), REVOKED) | found & LOCKED;
                self.move_on(found, revoked, Ordering::Release).map(|_| Outcome::Cancelled(()))
            } else {
                self.cancel_elsewhere(found)
            };
            match attempt {
                Ok(outcome) => return outcome,
                Err(other) => found = other,
            }
        }
    }

    /// The answer for a timer that is not armed; the new state as an error if the state has changed. Marks a running
    /// callback as the last.
    fn cancel_elsewhere<U>(&self, found: u64) -> Result<Outcome<U>, u64> {
        Ok(match phase(found) {
            RUNNING | RESTORING => {
                // Relaxed: publishes only the state itself.
                self.move_on(found, state(generation(found), STOPPING), Ordering::Relaxed)?;
                Outcome::Running
            }
            STOPPING | WAITED => Outcome::Running,
            FIRED => Outcome::Fired,
            _ => Outcome::Gone,
        })
    }

    /// Begins the callback: takes the value, if the arming of this generation has not been cancelled.
    ///
    /// Fails if the lock is set: the reset will send a message.
    #[inline]
    pub(super) fn begin(&self, of: u64) -> Option<T> {
        // No acquire is needed: the owner has synchronized with the value by the acquire in `schedule`, when it took
        // this arming in, or has written the value itself.
        self.move_on(state(of, ARMED), state(of, RUNNING), orders::begin()).ok()?;
        self.take()
    }

    /// The callback has ended, and does not run again for this arming.
    #[inline]
    pub(super) fn finish(&self, of: u64) {
        let mut found = state(of, RUNNING);
        while generation(found) == of && matches!(phase(found), RUNNING | STOPPING | WAITED) {
            match self.move_on(found, state(of, FIRED), orders::finish()) {
                Ok(_) if phase(found) == WAITED => return self.home.tell_end(),
                Ok(_) => return,
                Err(other) => found = other,
            }
        }
        // The callback has armed the timer again.
        self.end_beyond();
    }

    /// Whether a callback of the timer is running on another thread. If so, sleeps until a callback of this service has ended since `seen` was
    /// read. May return early.
    pub(super) fn await_end(&self, seen: u32) -> bool {
        // Acquire: pairs with the release in `end_beyond`.
        let mut beyond = self.beyond.load(Ordering::Acquire);
        if beyond >= BEYOND && !self.home.runs_here() {
            // Relaxed: publishes only the bit itself.
            beyond = match self.beyond.compare_exchange(
                beyond,
                beyond | WAITS,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => beyond | WAITS,
                Err(other) => other,
            };
            if beyond & WAITS != 0 {
                self.home.await_end(seen);
            }
            return true;
        }
        let mut found = self.state.load(Ordering::Acquire);
        if phase(found) == STOPPING {
            // Relaxed: publishes only the state itself.
            match self.move_on(found, state(generation(found), WAITED), Ordering::Relaxed) {
                Ok(_) => found = state(generation(found), WAITED),
                Err(other) => found = other,
            }
        }
        if phase(found) == WAITED && !self.home.runs_here() {
            self.home.await_end(seen);
        }
        matches!(phase(found), RUNNING | STOPPING | WAITED | RESTORING) && !self.home.runs_here()
    }

    /// The callback of a periodic timer has ended. Puts the value back until the next beat, unless the timer was cancelled or armed anew
    /// meanwhile; then the value is the error, and the callback has yet to [finish](Record::finish).
    pub(super) fn finish_beat(&self, of: u64, value: T) -> Result<(), Option<T>> {
        // Relaxed: this only keeps other threads from the value's place.
        if self.move_on(state(of, RUNNING), state(of, RESTORING), Ordering::Relaxed).is_err() {
            return Err(Some(value));
        }
        self.put(value);
        if self.move_on(state(of, RESTORING), state(of, ARMED), orders::finish_beat()).is_ok() {
            return Ok(());
        }
        // The state is STOPPING or WAITED, which only the owner changes to FIRED.
        Err(self.take())
    }

    /// Whether the timer needs no entry in the wheel any more.
    pub(super) fn is_over(&self) -> bool {
        // Relaxed: the exchange of `hinted` orders the cancellation before this.
        matches!(phase(self.state.load(Ordering::Relaxed)), CANCELLED | TAKING | FIRED | GONE)
    }

    /// For the owner: takes the value of a revoked timer. Also returns its generation, and the schedule it was armed
    /// with.
    pub(super) fn take_revoked(&self) -> Option<(T, u64, Schedule)> {
        // Acquire: pairs with the release in `revoke`, and with those in `arm` and `finish_beat`, whose release
        // sequences `revoke` continues.
        let found = self.state.load(Ordering::Acquire);
        if phase(found) != REVOKED {
            return None;
        }
        let value = self.take();
        // Relaxed: no thread arms the timer before `settle` below.
        let deadline = self.deadline.load(Ordering::Relaxed);
        let flags = self.flags.load(Ordering::Relaxed);
        self.settle(found, CANCELLED, orders::revoked());
        Some((value?, generation(found), Schedule { deadline, period: None, flags }))
    }

    /// For the owner, in whose wheel the entry of this arming was due: if the arming was revoked, its callback gets this deadline, and not that
    /// of the entry, which may be a later beat.
    pub(super) fn note_deadline(&self, of: u64, deadline: u64) {
        // Relaxed, all: from this state, in which no thread has the lock, only the owner goes on. So no other writes these fields.
        let is_first = self.taken.load(Ordering::Relaxed) == of;
        if is_first && self.state.load(Ordering::Relaxed) == state(of, REVOKED) {
            self.deadline.store(deadline, Ordering::Relaxed);
            self.flags.store(self.flags.load(Ordering::Relaxed) & !RELATIVE, Ordering::Relaxed);
            self.taken.store(0, Ordering::Relaxed);
        }
    }

    /// Ends a timer of a service that is being closed. Takes the value, if the timer is armed or revoked.
    pub(super) fn abandon(&self) -> Option<T> {
        let mut found = self.state.load(Ordering::Acquire);
        loop {
            match phase(found) {
                // Acquire: pairs with the release in `arm`.
                ARMED | REVOKED => match self.move_on(found, found & !PHASES | TAKING, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(other) => found = other,
                },
                _ => return None,
            }
        }
        let value = self.take();
        // Release: pairs with the acquire in `arm`.
        self.settle(found & !PHASES | TAKING, GONE, Ordering::Release);
        value
    }

    /// Ends an arming that no wheel has, and takes its value back; `None` if another thread has ended, reset or taken it
    /// meanwhile.
    #[cold]
    pub(super) fn take_back(&self, of: u64) -> Option<T> {
        // Acquire: pairs with the release in `finish_beat`: the owner may have had the value, if the timer is periodic.
        self.move_on(state(of, ARMED), state(of, TAKING), Ordering::Acquire).ok()?;
        let value = self.take();
        // Release: pairs with the acquire in `arm`.
        self.settle(state(of, TAKING), GONE, Ordering::Release);
        value
    }

    pub(super) fn is_revoked(&self) -> bool {
        // Relaxed: the fence before it orders it. See `Home::hint`.
        phase(self.state.load(Ordering::Relaxed)) == REVOKED
    }

    /// Whether the wheel keeps an entry for it: it is armed, also if it is being reset, or revoked, and its value was not taken. A hint may be
    /// too late to lead the owner there.
    pub(super) fn is_kept(&self) -> bool {
        // Relaxed: as in `is_armed`.
        match phase(self.state.load(Ordering::Relaxed)) {
            ARMED => true,
            REVOKED => !busted::is(Variant::RevokedUnheld),
            _ => false,
        }
    }

    /// False while the timer is still being armed: a caller that gets true can cancel the timer.
    pub(super) fn is_armed(&self) -> bool {
        // Relaxed: the answer may be out of date. A later operation of the same thread finds this state or a later one.
        phase(self.state.load(Ordering::Relaxed)) == ARMED
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    /// However an arming ends: what is said of its generation afterwards is not taken for another arming.
    #[test]
    fn no_arming_has_the_generation_of_an_earlier_one() {
        let record = Record::new(Arc::new(Home::new()));
        let ends: [&dyn Fn(u64) -> bool; 6] = [
            &|_| record.cancel() == Outcome::Cancelled(7),
            &|_| record.revoke() == Outcome::Cancelled(()) && record.take_revoked().is_some(),
            &|of| record.begin(of).inspect(|_| record.finish(of)) == Some(7),
            &|of| record.take_back(of) == Some(7),
            &|_| record.abandon() == Some(7),
            &|_| record.revoke() == Outcome::Cancelled(()) && record.abandon() == Some(7),
        ];
        let schedule = Schedule { deadline: 1, period: None, flags: 0 };
        let mut last = 0;
        for (number, end) in ends.into_iter().chain(ends).enumerate() {
            let generation = record.arm(schedule, 7, false).expect("it is at rest");
            assert!(generation > last, "{generation} after {last}, number {number}");
            assert!(end(generation), "number {number}");
            last = generation;
        }
    }
}
