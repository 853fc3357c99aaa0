//! What a thread keeps for its boosters, whichever domains it reads in.
//!
//! Each thread has a word that says who may do what with its scheduling:
//!
//! ```text
//!            booster                 booster, before the system call        booster, after it
//!   IDLE ------------> STARTING ------------------------> RAISING|ACTIVE -----------------> ACTIVE
//!    ^                    |                                     |                              |
//!    |  no boost needed    |                                     | the reader (OWN),            | the same
//!    +--------------------+                                     | or any other (ENDING)        |
//!    |                                                          v                              v
//!    +--- the last of them takes off its bit ---- any of RAISING, OWN, ENDING <----------------+
//! ```
//!
//! `RAISING`, `OWN` and `ENDING` are one thread's each, from setting the bit to taking it off. Who ends the boost while
//! the booster is still in its system call cannot know which of the two calls comes last: so the booster, when it finds
//! that the boost has been ended meanwhile, restores once more. And a reader restores itself whatever the others are
//! at: they may be waiting for the very CPU that it has. Nobody boosts again before all are through.
//!
//! A thread that ends, or forks, first keeps others from beginning (`CLOSED`, beside whatever is under way), ends its
//! boost, and waits until those who are at it are through: so nobody ever changes a thread that has ended, the only
//! thread of a forked child is as it was, and boosters who come one after the other do not keep it waiting.
//!
//! Boost states are slots of a registry that lives for ever, so that boosters may look at one at any time. A boost state is held by its
//! thread and by each record of the thread; whoever of them goes last gives it back, for another thread. So it does not
//! matter whether a thread's last reader or its `OwnState` is destroyed first.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32 as PlainU32, AtomicU64 as PlainU64, AtomicUsize as PlainUsize};
#[cfg(not(loom))]
use std::sync::Once;
use std::sync::OnceLock;
#[cfg(not(loom))]
use std::time::Duration;
use std::time::Instant;

use crate::busted::{self, Variant};
use crate::rcu::engine::core::registry::Claim;
#[cfg(not(loom))]
use crate::rcu::engine::core::registry::Registry;
use crate::rcu::orders;
use stillpoint_sys::linux::sched::{Before, Finding, Subject, Way};
use stillpoint_sys::sync::atomic::{AtomicU32, Ordering};
use stillpoint_sys::sync::UnsafeCell;

const IDLE: u32 = 0;
/// A booster looks at the thread.
const STARTING: u32 = 1;
/// The booster has not come back from the system call that raises.
const RAISING: u32 = 2;
/// Nobody has begun to end the boost.
const ACTIVE: u32 = 4;
/// Another thread restores.
const ENDING: u32 = 8;
/// The thread restores itself.
const OWN: u32 = 16;
/// Nobody may begin to boost: the thread has ended, or is forking.
const CLOSED: u32 = 32;

/// For what is not modelled: statistics, times, and hints.
const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

/// Threads of the process whose word is not idle because of a boost.
static GIVEN: PlainU32 = PlainU32::new(0);
/// Those of them whose boost nobody has begun to end. The others may be preempted in the middle of ending it, the very
/// moment that they are lowered, and keep nobody from being boosted.
static UNDER_WAY: PlainU32 = PlainU32::new(0);

/// How many threads of the process are being boosted. A hint: models, of which several run at a time, do without it.
pub(crate) fn given() -> u32 {
    if cfg!(loom) {
        1
    } else {
        GIVEN.load(RELAXED)
    }
}

/// How many threads of the process are raised or moved, as far as is known.
pub(crate) fn under_way() -> u32 {
    UNDER_WAY.load(RELAXED)
}

/// Nanoseconds on the clock of all boost states.
pub(crate) fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    // 584 years.
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

pub(crate) struct BoostState {
    word: AtomicU32,
    /// Address of the record whose section is boosted.
    record: PlainUsize,
    /// Who gave the boost.
    booster: PlainU64,
    begun: PlainU64,
    /// When the boost is to end.
    until: PlainU64,
    /// The thread is not looked at again before.
    not_before: PlainU64,
    /// The thread, and records that it holds. Changed by the thread, and in the child of a fork by the only one there is.
    holders: Cell<usize>,
    /// The slot that this is. Used as `holders` is; taken by who goes last.
    claim: Cell<Option<Claim<BoostState>>>,
    /// The thread. Written by itself while the word is `CLOSED`, read by who has one of the lower bits.
    subject: UnsafeCell<Option<Subject>>,
    /// Written by who is `STARTING`, read by who has one of the later bits.
    before: UnsafeCell<Option<Before>>,
}

// SAFETY: the cells are accessed as their comments say; the word is changed by acquire and release operations, and the
// cells that are the thread's own pass to another thread by the release and the claim of the slot.
unsafe impl Send for BoostState {}
// SAFETY: what threads share of a boost state is its word, plain atomics, and the cells that the word guards.
unsafe impl Sync for BoostState {}

/// Nobody's, and closed.
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
    /// Begins to look at the thread.
    pub(crate) fn start(&self, now: u64) -> bool {
        // A model does not depend on the time.
        if cfg!(not(loom)) && self.not_before.load(RELAXED) > now {
            return false;
        }
        self.word.compare_exchange(IDLE, STARTING, orders::boost_start(), Ordering::Relaxed).is_ok()
    }

    /// Does not boost, and does not look again before that time.
    pub(crate) fn abandon(&self, not_before: u64) {
        self.not_before.store(not_before, RELAXED);
        // Release: pairs with the acquire in `start` and `close`.
        self.word.fetch_and(!STARTING, Ordering::Release);
    }

    /// Looks whether the thread waits for a CPU. `Err` when that cannot be found out.
    ///
    /// # Safety
    /// The caller is `STARTING`.
    pub(crate) unsafe fn examine(&self, way: Way) -> Result<Finding, ()> {
        // SAFETY: the thread writes it in another state.
        let subject =
            |cell: *const Option<Subject>| unsafe { (*cell).as_ref().map(|subject| subject.examine(way)) };
        self.subject.with(subject).ok_or(())?.map_err(drop)
    }

    /// Raises the thread, for the sake of a section of the record at this address. `tell` tells the reader before.
    /// Returns whether the boost is under way, and whether the kernel refused.
    ///
    /// # Safety
    /// The caller is `STARTING`.
    pub(crate) unsafe fn raise(&self, before: Before, boost: Given, tell: impl FnOnce()) -> (bool, bool) {
        // SAFETY: the caller alone is `STARTING`, and nobody has a later bit.
        self.before.with_mut(|cell| unsafe { *cell = Some(before) });
        self.record.store(boost.record, RELAXED);
        self.booster.store(boost.booster, RELAXED);
        self.begun.store(boost.begun, RELAXED);
        self.until.store(boost.until, RELAXED);
        GIVEN.fetch_add(1, RELAXED);
        UNDER_WAY.fetch_add(1, RELAXED);
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
                // SAFETY: as above.
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
        // Also when the reader has restored itself and the booster's system call may still come.
        let unended = |word| word & (RAISING | ACTIVE) != 0 && word & ENDING == 0;
        if self.take_part(ENDING, unended) {
            // SAFETY: this thread has `ENDING`.
            if unsafe { self.restore() } {
                self.finish(ENDING);
            } else {
                // The thread itself may, at the end of its section: it has been told.
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

    /// Sets the bit of somebody who restores, if the word is as wanted.
    fn take_part(&self, bit: u32, wanted: impl Fn(u32) -> bool) -> bool {
        // Acquire, and on success release, too: pairs with the release in `raise`, whose cells are used then, and with
        // the others who restore.
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

    /// The boost has come to its end, but for what is to be restored: who restores itself may be preempted there.
    fn count_end(&self) {
        UNDER_WAY.fetch_sub(1, RELAXED);
        let now = now();
        // One sixth of the time at the most: a section that is boosted often is a long one.
        let pause = now.saturating_sub(self.begun.load(RELAXED)).saturating_mul(5);
        self.not_before.store(now.saturating_add(pause), RELAXED);
    }

    /// Takes off the caller's bit. Returns what is left of the others'.
    fn finish(&self, mine: u32) -> u32 {
        let left = self.word.fetch_and(!mine, orders::boost_finish()) & !(mine | CLOSED);
        if left == IDLE {
            GIVEN.fetch_sub(1, RELAXED);
        }
        left
    }

    /// # Safety
    /// The caller has `RAISING`, `OWN` or `ENDING`.
    unsafe fn with_both<R>(&self, function: impl FnOnce(&Subject, &Before) -> R) -> Option<R> {
        self.subject.with(|subject| {
            // SAFETY: both cells are written in no other state.
            self.before.with(|before| unsafe { Some(function((*subject).as_ref()?, (*before).as_ref()?)) })
        })
    }

    /// Whether the thread is as it was, or somebody else has changed it.
    ///
    /// # Safety
    /// As for [`with_both`](BoostState::with_both).
    unsafe fn restore(&self) -> bool {
        // SAFETY: the caller's promise.
        let answer = unsafe { self.with_both(Subject::restore) };
        answer.is_none_or(|answer| answer.is_ok())
    }
}

/// What is written down about a boost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given {
    pub(crate) record: usize,
    pub(crate) booster: u64,
    pub(crate) begun: u64,
    pub(crate) until: u64,
}

/// For the thread itself.
impl BoostState {
    /// Restores the thread, whatever others are at. Returns whether somebody may still raise it: then the reader is to
    /// look again at the end of its next section.
    pub(crate) fn end_own(&self) -> bool {
        if self.take_part(OWN, |word| word & (RAISING | ACTIVE | ENDING) != 0) {
            // To lower oneself is always allowed.
            // SAFETY: this thread has `OWN`.
            unsafe { self.restore() };
            return self.finish(OWN) != IDLE;
        }
        false
    }

    /// The calling thread may be boosted from now on.
    fn open(&self) {
        let subject = Subject::current().ok();
        // SAFETY: the word is closed, by this thread.
        self.subject.with_mut(|cell| unsafe { *cell = subject });
        self.not_before.store(0, RELAXED);
        // Release: pairs with the acquire in `start`.
        self.word.store(IDLE, Ordering::Release);
    }

    /// Closes the file by which boosters see the thread.
    #[cfg(not(loom))]
    fn forget_subject(&self) {
        // SAFETY: the word is closed, by this thread, or its thread does not exist here and there is no other.
        self.subject.with_mut(|cell| unsafe { *cell = None });
    }

    /// Nobody boosts the calling thread from now on. Waits for those who are at it, for a few system calls.
    #[cfg(any(not(loom), test))]
    pub(crate) fn close(&self) {
        // Relaxed: what others have written is acquired below.
        self.word.fetch_or(CLOSED, Ordering::Relaxed);
        loop {
            self.end_own();
            // Acquire: pairs with the release in `abandon` and `finish`.
            let seen = self.word.load(Ordering::Acquire);
            if seen == CLOSED || busted::is(Variant::BoostCloseHasty) {
                return;
            }
            // A real sleep: they may be waiting for this CPU. Nobody wakes it, so that they need not look.
            #[cfg(not(loom))]
            stillpoint_sys::os::wait(&self.word, seen, Some(Duration::from_micros(50)));
            #[cfg(loom)]
            loom::thread::yield_now();
        }
    }

    /// A record of the thread holds the boost state from now on; or its `OwnState`.
    pub(crate) fn add_holder(&self) {
        self.holders.set(self.holders.get() + 1);
    }

    /// One of the holders goes. The last one gives the boost state back.
    pub(crate) fn remove_holder(&self) {
        self.holders.set(self.holders.get() - 1);
        if self.holders.get() == 0 {
            self.give_back();
        }
    }

    /// In the child of a fork: the thread does not exist here. Its records hold the boost state until their domains are reset.
    #[cfg(not(loom))]
    fn lose_thread(&self, claim: Claim<BoostState>) {
        // Closed already, if the thread was about to end, or to begin: then it does not hold the boost state.
        let was_open = self.word.swap(CLOSED, Ordering::Relaxed) & CLOSED == 0;
        self.forget_subject();
        self.claim.set(Some(claim));
        if was_open {
            self.remove_holder();
        } else if self.holders.get() == 0 {
            self.give_back();
        }
    }

    fn give_back(&self) {
        // In a model nobody takes it again.
        let _claim = self.claim.take();
        #[cfg(not(loom))]
        _claim.inspect(|claim| AIDS.release(claim));
    }
}

/// The boost state of the calling thread; `None` when the thread is about to end.
#[cfg(not(loom))]
pub(crate) fn own() -> Option<&'static BoostState> {
    static AT_FORK: Once = Once::new();
    AT_FORK.call_once(|| {
        // SAFETY: the handlers are functions of the program. It fails for want of memory alone: then the child of a
        // fork may stay raised.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork_in_child)) };
    });
    OWN_AID.try_with(|own| own.0.get().unwrap_or_else(|| own.take_one())).ok()
}

/// In a model every reader is a thread's only one.
#[cfg(loom)]
pub(crate) fn own() -> Option<&'static BoostState> {
    let boost_state = Box::leak(Box::new(BoostState::default()));
    boost_state.open();
    Some(boost_state)
}

#[cfg(not(loom))]
std::thread_local! {
    static OWN_AID: OwnState = const { OwnState(Cell::new(None)) };
}

/// Those of all threads. Without a lock, which the child of a fork might find held.
#[cfg(not(loom))]
static AIDS: Registry<BoostState> = Registry::new();

#[cfg(not(loom))]
struct OwnState(Cell<Option<&'static BoostState>>);

#[cfg(not(loom))]
impl OwnState {
    fn take_one(&self) -> &'static BoostState {
        let claim = AIDS.claim();
        // SAFETY: the registry lives for ever.
        let boost_state: &'static BoostState = unsafe { claim.slot() };
        boost_state.claim.set(Some(claim));
        boost_state.add_holder();
        boost_state.open();
        self.0.set(Some(boost_state));
        boost_state
    }
}

#[cfg(not(loom))]
impl Drop for OwnState {
    fn drop(&mut self) {
        let Some(boost_state) = self.0.get() else { return };
        boost_state.close();
        boost_state.forget_subject();
        // Readers that outlive this value hold the boost state, which stays closed.
        boost_state.remove_holder();
    }
}

/// Calls `function` with the boost state of the calling thread, if it has one.
#[cfg(not(loom))]
fn with_own(function: impl FnOnce(&BoostState)) {
    let _ = OWN_AID.try_with(|own| own.0.get().map(function));
}

#[cfg(not(loom))]
extern "C" fn before_fork() {
    with_own(BoostState::close);
}

#[cfg(not(loom))]
extern "C" fn after_fork() {
    // Release: as in `open`.
    with_own(|boost_state| boost_state.word.store(IDLE, Ordering::Release));
}

/// The others who were boosted do not exist here, nor do those who boosted; the subject of this thread is its parent.
#[cfg(not(loom))]
extern "C" fn after_fork_in_child() {
    GIVEN.store(0, RELAXED);
    UNDER_WAY.store(0, RELAXED);
    let own = OWN_AID.try_with(|own| own.0.get()).unwrap_or(None);
    for (boost_state, claim) in AIDS.claims() {
        if own.is_some_and(|own| std::ptr::eq(own, boost_state)) {
            boost_state.open();
        } else {
            boost_state.lose_thread(claim);
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
