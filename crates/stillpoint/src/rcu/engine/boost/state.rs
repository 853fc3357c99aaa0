//! What a thread keeps for its boosters, common to all domains that it reads in.
//!
//! Each thread has a word that says which thread may change its scheduling, and how:
//!
//! ```text
//!            booster                 booster, before the system call        booster, after it
//!   IDLE ------------> STARTING ------------------------> RAISING|ACTIVE -----------------> ACTIVE
//!    ^                    |                                     |                              |
//!    |  no boost needed    |                                     | the reader (OWN),            | the same
//!    +--------------------+                                     | or any other (ENDING)        |
//!    |                                                          v                              v
//!    +--- the last of them clears its bit ------- any of RAISING, OWN, ENDING <----------------+
//! ```
//!
//! `RAISING`, `OWN` and `ENDING` each belong to one thread, from setting the bit to clearing it. A thread that ends the boost
//! while the booster is still in its system call cannot know which of the two calls takes effect last. So the booster restores
//! once more if it finds that the boost has been ended meanwhile. A reader restores itself whatever the others are doing: they
//! may be waiting for its very CPU. No boost begins before all have finished.
//!
//! A thread that ends, or forks, first keeps others from beginning (`CLOSED`, in addition to the other bits). Then it ends its
//! boost, and waits until the threads that are at work on it have finished. So no thread that has ended is ever changed, the
//! only thread of a forked child is as it was, and a succession of boosters does not keep the thread waiting.
//!
//! Boost states are slots of a registry that lives for ever, so that boosters may read one at any time. A boost state is held by
//! its thread and by each record of the thread. The last of these to go gives it back, for another thread. So it does not
//! matter whether a thread's last reader is dropped first, or the thread gives up its boost state.

use std::cell::Cell;
#[cfg(not(stillpoint_loom))]
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32 as PlainU32, AtomicU64 as PlainU64, AtomicUsize as PlainUsize};
#[cfg(not(stillpoint_loom))]
use std::time::Duration;
use std::time::Instant;

use crate::busted::{self, Variant};
use crate::rcu::engine::core::registry::Claim;
#[cfg(not(stillpoint_loom))]
use crate::rcu::engine::core::registry::Registry;
use crate::rcu::orders;
use stillpoint_sys::linux::sched::{Before, Finding, Subject, Way};
#[cfg(not(stillpoint_loom))]
use stillpoint_sys::marks::MARKS;
#[cfg(not(stillpoint_loom))]
use stillpoint_sys::os::ThreadEnd;
use stillpoint_sys::sync::atomic::{AtomicU32, Ordering};
use stillpoint_sys::sync::{Lasting, UnsafeCell};

const IDLE: u32 = 0;
/// A booster inspects the thread.
const STARTING: u32 = 1;
/// The booster has not returned from the system call that raises.
const RAISING: u32 = 2;
/// No thread has begun to end the boost.
const ACTIVE: u32 = 4;
/// Another thread restores.
const ENDING: u32 = 8;
/// The thread restores itself.
const OWN: u32 = 16;
/// No boost may begin: the thread has ended, or is forking.
const CLOSED: u32 = 32;

/// For values that are not modelled: statistics, times, and hints.
const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

/// Threads of the process whose word is not idle because of a boost.
static GIVEN: PlainU32 = PlainU32::new(0);
/// Of these threads, those whose boost no thread has begun to end. The others may be preempted as soon as they are lowered, before
/// they have ended the boost. They must not keep other threads from being boosted.
static UNDER_WAY: PlainU32 = PlainU32::new(0);

/// Never below 0: after a fork in a signal handler, the interrupted call may lower a count that the child has reset.
fn lower(count: &PlainU32) {
    let _ = count.fetch_update(RELAXED, RELAXED, |count| count.checked_sub(1));
}

/// How many threads of the process are being boosted. A hint, which models ignore, since several models run at a time.
pub(crate) fn given() -> u32 {
    if cfg!(stillpoint_loom) {
        1
    } else {
        GIVEN.load(RELAXED)
    }
}

/// How many threads of the process are raised or moved, as far as is known.
pub(crate) fn under_way() -> u32 {
    UNDER_WAY.load(RELAXED)
}

/// Counts one more thread as raised or moved, unless `most` are: boosters that look at the same time cannot exceed that.
pub(crate) fn reserve(most: u32) -> bool {
    UNDER_WAY.fetch_update(RELAXED, RELAXED, |count| (count < most).then_some(count + 1)).is_ok()
}

/// Nanoseconds on the clock of all boost states.
pub(crate) fn now() -> u64 {
    static START: Lasting<Instant> = Lasting::new();
    // Overflows after 584 years.
    START.get_or_make(Instant::now).elapsed().as_nanos() as u64
}

pub(crate) struct BoostState {
    word: AtomicU32,
    /// Address of the record whose section is boosted.
    record: PlainUsize,
    /// The number of the booster that gave the boost.
    booster: PlainU64,
    begun: PlainU64,
    /// When the boost should end.
    until: PlainU64,
    /// No booster inspects the thread before this time.
    not_before: PlainU64,
    /// Number of holders: the thread, and its records. Changed only by the thread, or by the only thread of a forked child.
    holders: Cell<usize>,
    /// The claim of this slot. Accessed as `holders` is; taken by the last holder.
    claim: Cell<Option<Claim<BoostState>>>,
    /// The thread. Written by the thread itself while the word is `CLOSED`, read by a thread that has one of the lower bits.
    subject: UnsafeCell<Option<Subject>>,
    /// The scheduling before the boost. Written by the thread that is `STARTING`, read by a thread that has one of the later
    /// bits.
    before: UnsafeCell<Option<Before>>,
}

// SAFETY: the cells are accessed as their comments say. The word is changed by acquire and release operations. The
// cells that only the thread itself uses pass to another thread by the release and the claim of the slot.
unsafe impl Send for BoostState {}
// SAFETY: threads share only the word, plain atomics, and the cells that the word guards.
unsafe impl Sync for BoostState {}

/// A boost state without a thread, closed.
impl Default for BoostState {
    fn default() -> Self {
        Self {
            word: AtomicU32::new(CLOSED),
            record: PlainUsize::new(0),
            booster: PlainU64::new(0),
            begun: PlainU64::new(0),
            until: PlainU64::new(0),
            not_before: PlainU64::new(0),
            holders: Cell::new(0),
            claim: Cell::new(None),
            subject: UnsafeCell::new(None),
            before: UnsafeCell::new(None),
        }
    }
}

/// For boosters.
impl BoostState {
    /// Begins to inspect the thread. Returns whether the caller may.
    pub(crate) fn start(&self, now: u64) -> bool {
        // A model does not depend on the time.
        if cfg!(not(stillpoint_loom)) && self.not_before.load(RELAXED) > now {
            return false;
        }
        self.word.compare_exchange(IDLE, STARTING, orders::boost_start(), Ordering::Relaxed).is_ok()
    }

    /// Ends the inspection without a boost. No booster inspects the thread again before `not_before`.
    pub(crate) fn abandon(&self, not_before: u64) {
        self.not_before.store(not_before, RELAXED);
        // Release: pairs with the acquire in `start` and `close`.
        self.word.fetch_and(!STARTING, Ordering::Release);
    }

    /// Inspects whether the thread waits for a CPU. `Err` if that cannot be found out.
    ///
    /// # Safety
    /// The caller is `STARTING`.
    pub(crate) unsafe fn examine(&self, way: Way) -> Result<Finding, ()> {
        // SAFETY: the caller is `STARTING`; the thread writes the cell only while the word is `CLOSED`.
        let subject =
            |cell: *const Option<Subject>| unsafe { (*cell).as_ref().map(|subject| subject.examine(way)) };
        self.subject.with(subject).ok_or(())?.map_err(drop)
    }

    /// Raises or moves the thread, on behalf of a section of the record that `boost` names, in the place that the caller has
    /// [reserved](reserve). Before the system call, `tell` notifies
    /// the reader.
    /// Returns whether the boost is under way, and whether the kernel refused.
    ///
    /// # Safety
    /// The caller is `STARTING`.
    pub(crate) unsafe fn raise(&self, before: Before, boost: Given, tell: impl FnOnce()) -> (bool, bool) {
        // SAFETY: only the caller is `STARTING`, and no thread has a later bit.
        self.before.with_mut(|cell| unsafe { *cell = Some(before) });
        self.record.store(boost.record, RELAXED);
        self.booster.store(boost.booster, RELAXED);
        self.begun.store(boost.begun, RELAXED);
        self.until.store(boost.until, RELAXED);
        GIVEN.fetch_add(1, RELAXED);
        // Release: pairs with the acquire in `take_part`, whose caller uses what was written here.
        self.word.fetch_xor(STARTING | RAISING | ACTIVE, Ordering::Release);
        tell();
        // SAFETY: this thread has `RAISING`.
        let refused =
            unsafe { self.with_both(|subject, before| subject.boost(before).is_err()) } != Some(false);
        if refused && self.word.fetch_and(!ACTIVE, Ordering::AcqRel) & ACTIVE != 0 {
            self.count_end();
        }
        // AcqRel: the system call comes before whatever ends the boost from now on.
        let settled = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            (word & !CLOSED == RAISING | ACTIVE).then_some(word & !RAISING)
        });
        if settled.is_err() {
            if !busted::is(Variant::BoostNoSecondRestore) {
                // SAFETY: this thread has `RAISING`.
                unsafe { self.restore() };
            }
            self.finish(RAISING);
        }
        (settled.is_ok(), refused)
    }

    /// Ends the boost for this record, if it is under way.
    pub(crate) fn end(&self, record: usize) {
        if self.record.load(RELAXED) != record {
            return;
        }
        // Includes RAISING on its own: the system call may still raise a reader that has already restored itself.
        let unended = |word| word & (RAISING | ACTIVE) != 0 && word & ENDING == 0;
        if self.take_part(ENDING, unended) {
            // SAFETY: this thread has `ENDING`.
            if unsafe { self.restore() } {
                self.finish(ENDING);
            } else {
                // The thread itself may still restore, at the end of its section: it was notified.
                self.until.store(u64::MAX, RELAXED);
                if self.word.fetch_or(ACTIVE, Ordering::AcqRel) & ACTIVE == 0 {
                    UNDER_WAY.fetch_add(1, RELAXED);
                }
                self.finish(ENDING);
            }
        }
    }

    pub(crate) fn is_given_by(&self, booster: u64) -> bool {
        self.is_active() && self.booster.load(RELAXED) == booster
    }

    pub(crate) fn is_overdue(&self, now: u64) -> bool {
        self.is_active() && self.until.load(RELAXED) <= now
    }

    fn is_active(&self) -> bool {
        // Relaxed: a hint, checked by `end`.
        self.word.load(Ordering::Relaxed) & (RAISING | ACTIVE) != 0
    }

    /// Sets the bit of a thread that restores, if the word is as wanted.
    fn take_part(&self, bit: u32, wanted: impl Fn(u32) -> bool) -> bool {
        // Acquire, and on success release, too: pairs with the release in `raise`, which published the cells that are used
        // next, and with the other threads that restore.
        let mut word = self.word.load(Ordering::Acquire);
        while wanted(word) {
            let new = (word & !ACTIVE) | bit;
            match self.word.compare_exchange(word, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    if word & ACTIVE != 0 {
                        self.count_end();
                    }
                    return true;
                }
                Err(now) => word = now,
            }
        }
        false
    }

    /// Counts the boost as ended, although the thread is not restored yet: a thread that restores itself may be preempted there.
    fn count_end(&self) {
        lower(&UNDER_WAY);
        let now = now();
        // No booster inspects the thread for five times as long as this boost lasted. So a thread is boosted for at most one
        // sixth of the time: a section that needs one boost after another is itself a long one.
        let pause = now.saturating_sub(self.begun.load(RELAXED)).saturating_mul(5);
        self.not_before.store(now.saturating_add(pause), RELAXED);
    }

    /// Clears the caller's bit. Returns the bits that other threads still have.
    fn finish(&self, mine: u32) -> u32 {
        let left = self.word.fetch_and(!mine, orders::boost_finish()) & !(mine | CLOSED);
        if left == IDLE {
            lower(&GIVEN);
        }
        left
    }

    /// # Safety
    /// The caller has `RAISING`, `OWN` or `ENDING`.
    unsafe fn with_both<R>(&self, function: impl FnOnce(&Subject, &Before) -> R) -> Option<R> {
        self.subject.with(|subject| {
            // SAFETY: both cells are written only while no thread has one of these bits.
            self.before.with(|before| unsafe { Some(function((*subject).as_ref()?, (*before).as_ref()?)) })
        })
    }

    /// Restores the thread. Returns whether the thread is as it was before the boost, or another program has changed it.
    ///
    /// # Safety
    /// As for [`with_both`](BoostState::with_both).
    unsafe fn restore(&self) -> bool {
        // SAFETY: the caller has `RAISING`, `OWN` or `ENDING`.
        let answer = unsafe { self.with_both(Subject::restore) };
        answer.is_none_or(|answer| answer.is_ok())
    }
}

/// A record of one boost.
#[derive(Clone, Copy)]
pub(crate) struct Given {
    pub(crate) record: usize,
    pub(crate) booster: u64,
    pub(crate) begun: u64,
    pub(crate) until: u64,
}

/// For the thread itself.
impl BoostState {
    /// Restores the thread, whatever others are doing. Returns whether a booster may still raise it: then the reader must
    /// look again at the end of its next section. In a signal handler that has interrupted this call, the bit stays with the interrupted
    /// call.
    pub(crate) fn end_own(&self) -> bool {
        // Relaxed: only this thread sets and clears the bit.
        if self.word.load(Ordering::Relaxed) & OWN != 0 {
            // SAFETY: this thread has `OWN`.
            unsafe { self.restore() };
            return true;
        }
        if self.take_part(OWN, |word| word & (RAISING | ACTIVE | ENDING) != 0) {
            // A thread may always lower itself.
            // SAFETY: this thread has `OWN`.
            unsafe { self.restore() };
            return self.finish(OWN) != IDLE;
        }
        false
    }

    /// Opens the calling thread to boosters.
    fn open(&self) {
        let subject = Subject::current().ok();
        // SAFETY: this thread has closed the word, so no other thread accesses the cell.
        self.subject.with_mut(|cell| unsafe { *cell = subject });
        self.not_before.store(0, RELAXED);
        // Release: pairs with the acquire in `start`. `OWN` stays, after a fork in a handler that has interrupted `end_own`.
        self.word.fetch_and(!CLOSED, Ordering::Release);
    }

    /// The file through which boosters see the thread.
    #[cfg(not(stillpoint_loom))]
    fn take_subject(&self) -> Option<Subject> {
        // SAFETY: this thread has closed the word; or, in the child of a fork, the word's thread does not exist and there is no
        // other.
        self.subject.with_mut(|cell| unsafe { (*cell).take() })
    }

    /// Closes the calling thread to boosters. Waits for those at work on it, for a few system calls.
    #[cfg(any(not(stillpoint_loom), test))]
    pub(crate) fn close(&self) {
        // Relaxed: what others have written is acquired below.
        self.word.fetch_or(CLOSED, Ordering::Relaxed);
        loop {
            self.end_own();
            // Acquire: pairs with the release in `abandon` and `finish`. `OWN`: this is a signal handler that has interrupted `end_own`.
            let seen = self.word.load(Ordering::Acquire);
            if seen & !OWN == CLOSED || busted::is(Variant::BoostCloseHasty) {
                return;
            }
            // Sleeps, because they may be waiting for this CPU. No thread wakes it, so that they need not check for sleepers.
            #[cfg(not(stillpoint_loom))]
            stillpoint_sys::os::wait(&self.word, seen, Some(Duration::from_micros(50)));
            #[cfg(stillpoint_loom)]
            loom::thread::yield_now();
        }
    }

    /// Adds a holder: the thread, or a record of it.
    pub(crate) fn add_holder(&self) {
        self.holders.set(self.holders.get() + 1);
    }

    /// Removes a holder. The last one gives the boost state back.
    pub(crate) fn remove_holder(&self) {
        self.holders.set(self.holders.get() - 1);
        if self.holders.get() == 0 {
            self.give_back();
        }
    }

    /// In the child of a fork: the thread does not exist here. Its records hold the boost state until their domains are reset.
    #[cfg(not(stillpoint_loom))]
    fn lose_thread(&self, claim: Claim<BoostState>) {
        // It was closed already if the thread was about to end, or to begin: then the thread does not hold the boost state.
        let was_open = self.word.swap(CLOSED, Ordering::Relaxed) & CLOSED == 0;
        if let Some(subject) = self.take_subject() {
            subject.lose();
        }
        self.claim.set(Some(claim));
        if was_open {
            self.remove_holder();
        } else if self.holders.get() == 0 {
            self.give_back();
        }
    }

    fn give_back(&self) {
        // In a model, no other thread takes it again.
        let _claim = self.claim.take();
        #[cfg(not(stillpoint_loom))]
        _claim.inspect(|claim| STATES.release(claim));
    }
}

/// The boost state of the calling thread; `None` if the thread is about to end.
#[cfg(not(stillpoint_loom))]
pub(crate) fn own() -> Option<&'static BoostState> {
    // This refers to `AT_START`, so that a linker that takes single object files out of an archive also takes the one that
    // contains `AT_START`.
    #[cfg(not(miri))]
    std::hint::black_box(&AT_START);
    present().or_else(|| MARKS.with(|marks| !marks.is_closed.get()).then(take_one).flatten())
}

/// In a model, each thread has one reader.
#[cfg(stillpoint_loom)]
pub(crate) fn own() -> Option<&'static BoostState> {
    let boost_state = Box::leak(Box::new(BoostState::default()));
    boost_state.open();
    Some(boost_state)
}

/// The boost state of each thread that has one: a key, not a thread-local variable, of which a library gets few.
#[cfg(not(stillpoint_loom))]
static OWN_STATE: ThreadEnd = ThreadEnd::new(end);

/// The boost states of all threads. It has no lock, which the child of a fork might find held.
#[cfg(not(stillpoint_loom))]
static STATES: Registry<BoostState> = Registry::new();

/// `None` if the process has used up its keys.
#[cfg(not(stillpoint_loom))]
#[cold]
fn take_one() -> Option<&'static BoostState> {
    let claim = STATES.claim();
    // SAFETY: the registry lives for ever.
    let boost_state: &'static BoostState = unsafe { claim.slot() };
    boost_state.claim.set(Some(claim));
    // Relaxed: no other thread uses a closed state. Its last thread may have ended in a handler, with `OWN` set.
    boost_state.word.store(CLOSED, Ordering::Relaxed);
    boost_state.add_holder();
    // SAFETY: `end` accepts the address of a boost state of the calling thread.
    if !unsafe { OWN_STATE.call_with(std::ptr::from_ref(boost_state).cast_mut().cast()) } {
        // Nobody would close it when the thread ends.
        boost_state.remove_holder();
        return None;
    }
    boost_state.open();
    Some(boost_state)
}

/// Runs when a thread ends. A reader that is made in a later destructor is not boosted.
///
/// # Safety
/// `own` is the address of the calling thread's boost state.
#[cfg(not(stillpoint_loom))]
unsafe extern "C" fn end(own: *mut c_void) {
    MARKS.with(|marks| marks.is_closed.set(true));
    // SAFETY: the boost state of this thread, by the caller's promise: the registry lives for ever.
    let boost_state = unsafe { &*own.cast::<BoostState>() };
    boost_state.close();
    drop(boost_state.take_subject());
    // Readers that outlive this call hold the boost state, which stays closed.
    boost_state.remove_holder();
}

/// The boost state of the calling thread, if it has one.
#[cfg(not(stillpoint_loom))]
fn present() -> Option<&'static BoostState> {
    // SAFETY: null, or what `take_one` has put there for this thread: the registry lives for ever.
    unsafe { OWN_STATE.value().cast::<BoostState>().as_ref() }
}

/// Runs before `main`, or when the library is loaded: handlers that are registered later would miss a fork that is under way.
#[cfg(not(any(stillpoint_loom, miri)))]
#[used]
#[link_section = ".init_array"]
static AT_START: extern "C" fn() = handle_forks;

#[cfg(not(stillpoint_loom))]
#[cfg_attr(miri, expect(dead_code, reason = "Miri has neither `fork` nor its handlers"))]
extern "C" fn handle_forks() {
    // SAFETY: the handlers are functions of the program. The call fails only for lack of memory; then the child of a
    // fork may stay raised.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork_in_child)) };
}

#[cfg(not(stillpoint_loom))]
extern "C" fn before_fork() {
    if let Some(boost_state) = present() {
        boost_state.close();
    }
}

#[cfg(not(stillpoint_loom))]
extern "C" fn after_fork() {
    // Release: as in `open`.
    if let Some(boost_state) = present() {
        boost_state.word.fetch_and(!CLOSED, Ordering::Release);
    }
}

/// The other boosted threads and the boosters do not exist in the child. The subject of this thread is still the parent's thread.
#[cfg(not(stillpoint_loom))]
extern "C" fn after_fork_in_child() {
    let own = present();
    // Relaxed: there is no other thread.
    let is_ending = own.is_some_and(|own| own.word.load(Ordering::Relaxed) & OWN != 0);
    GIVEN.store(is_ending.into(), RELAXED);
    UNDER_WAY.store(0, RELAXED);
    for (boost_state, claim) in STATES.claims() {
        if own.is_some_and(|own| std::ptr::eq(own, boost_state)) {
            // Not while the interrupted call uses what `open` replaces: the child is not boosted then.
            if !is_ending {
                boost_state.open();
            }
        } else {
            boost_state.lose_thread(claim);
        }
    }
}

#[cfg(all(test, not(any(stillpoint_loom, miri))))]
mod tests;
