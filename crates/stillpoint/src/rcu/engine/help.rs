//! Help for a region reader that holds a token up because it waits for a CPU.
//!
//! A helper gets the reader to run: raised to a real-time policy, or moved to the helper's CPU. The reader lets go of
//! that at the end of its section, where it looks at one word of its own line anyway. Everything else here is about
//! one promise: *no thread stays raised or moved*. It is kept by whoever comes first: the reader at the end of its
//! section or of its registration, the helper that finds the section over, any reclaimer or waiting thread of the
//! domain when the time limit has passed, the helper's own end.
//!
//! Each record has a word that says who may do what with the thread:
//!
//! ```text
//!            helper                 helper, before the system call        helper, after it
//!   IDLE ------------> STARTING ------------------------> RAISING|ACTIVE -----------------> ACTIVE
//!    ^                    |                                     |                              |
//!    |  no help needed    |                                     | reader, or any other         | the same
//!    +--------------------+                                     v                              v
//!    +-------------------------------------------------- RAISING|ENDING, RAISING, ENDING <-----+
//!         the last of the two, when both have restored
//! ```
//!
//! `RAISING` and `ENDING` are one thread's each, from setting the bit to taking it off. A thread that ends help while
//! the helper is still in its system call cannot know which of the two system calls comes last; so the helper, when it
//! finds that the help has been ended meanwhile, restores once more. Nobody helps again before both are through.
//!
//! [`HELPED`] in the record's `attention` tells the reader to look. It is set before the system call that raises, and
//! taken off before the word becomes `IDLE`. The argument is in `docs/design/rcu.md`.

use std::sync::atomic::{AtomicU32 as PlainU32, AtomicU64 as PlainU64};
use std::time::Duration;

use crossbeam_utils::Backoff;

use super::grace::blocks;
use super::record::Record;
use super::Core;
use crate::busted::{self, Variant};
use crate::fence;
use crate::sync::atomic::{fence as atomic_fence, AtomicU32, Ordering};
use crate::sync::UnsafeCell;
use crate::sys::sched::{Before, Subject, Way};
use crate::sys::slice::Slice;

const IDLE: u32 = 0;
/// A helper looks at the thread.
const STARTING: u32 = 1;
/// The helper has not come back from the system call that raises.
const RAISING: u32 = 2;
/// Nobody has begun to end the help.
const ACTIVE: u32 = 4;
/// Somebody restores.
const ENDING: u32 = 8;

/// The longest that a thread stays raised or moved.
pub(super) const LIMIT: Duration =
    if cfg!(loom) { Duration::from_secs(3600) } else { Duration::from_millis(2) };
/// The time from there to more help for the same reader, whose section is a long one: a share of one in six.
const COOLDOWN: Duration = Duration::from_millis(10);

/// What a domain does about preempted readers.
#[derive(Debug)]
pub(crate) struct Helping {
    pub(crate) way: Way,
    /// How long a token is held up before readers are helped.
    pub(crate) after: Duration,
    /// Threads that are being helped. Statistics, and a hint where there is nothing to end.
    given: PlainU32,
    helped: PlainU64,
    refused: PlainU64,
}

impl Helping {
    pub(crate) fn new(way: Way, after: Duration) -> Self {
        Self { way, after, given: PlainU32::new(0), helped: PlainU64::new(0), refused: PlainU64::new(0) }
    }

    fn is_given(&self) -> bool {
        self.given.load(RELAXED) != 0
    }

    pub(super) fn reset_after_fork(&self) {
        self.given.store(0, RELAXED);
    }

    /// How often readers were helped, and how often the kernel refused.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.helped.load(RELAXED), self.refused.load(RELAXED))
    }
}

// For what is not modelled: statistics and hints.
const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

/// What one reader's record keeps for its helpers.
#[derive(Debug)]
pub(crate) struct Aid {
    word: AtomicU32,
    /// Age of the domain in nanoseconds when the help is to end.
    until: PlainU64,
    /// Age of the domain in nanoseconds before which the reader is not looked at again.
    not_before: PlainU64,
    /// The thread. Written by its reader while it is outside any section, read by who is `STARTING` inside one, or
    /// has one of the later bits.
    subject: UnsafeCell<Option<Subject>>,
    /// Written by who is `STARTING`, read by who has one of the later bits.
    before: UnsafeCell<Option<Before>>,
    /// The reader's own.
    slice: UnsafeCell<Option<Slice>>,
}

// SAFETY: the cells are accessed as their comments say; the word is changed by acquire and release operations.
unsafe impl Send for Aid {}
// SAFETY: as above.
unsafe impl Sync for Aid {}

impl Aid {
    pub(super) fn new() -> Self {
        Self {
            word: AtomicU32::new(IDLE),
            until: PlainU64::new(0),
            not_before: PlainU64::new(0),
            subject: UnsafeCell::new(None),
            before: UnsafeCell::new(None),
            slice: UnsafeCell::new(None),
        }
    }

    /// The reader's thread is `subject` from now on.
    ///
    /// # Safety
    /// Called by the reader's thread, in no section, and no help is under way: at registration, or after
    /// [`Core::settle_help`].
    pub(super) unsafe fn set_subject(&self, subject: Option<Subject>) {
        // SAFETY: a helper looks at the subject only if it sees a section while it is `STARTING`, and there is none.
        self.subject.with_mut(|cell| unsafe { *cell = subject });
        self.not_before.store(0, RELAXED);
    }

    /// Looks whether the thread waits for a CPU, and keeps what is to be restored.
    ///
    /// # Safety
    /// The caller is `STARTING`, and has seen the reader inside a section since.
    unsafe fn examine(&self, way: Way) -> bool {
        // SAFETY: the reader cannot unregister before the word is idle.
        let before = self.subject.with(|cell| unsafe { (*cell).as_ref()?.examine(way).ok()? });
        let found = before.is_some();
        // SAFETY: the caller alone is `STARTING`, and nobody has a later bit.
        self.before.with_mut(|cell| unsafe { *cell = before });
        found
    }

    /// Runs `function` with the thread and what it had before.
    ///
    /// # Safety
    /// The caller has `RAISING` or `ENDING`.
    unsafe fn with_both<R>(&self, function: impl FnOnce(&Subject, &Before) -> R) -> Option<R> {
        self.subject.with(|subject| {
            // SAFETY: both cells are written in no other state.
            self.before.with(|before| unsafe { Some(function((*subject).as_ref()?, (*before).as_ref()?)) })
        })
    }

    /// # Safety
    /// As for [`with_both`](Aid::with_both).
    unsafe fn restore(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.with_both(|subject, before| subject.restore(before)) };
    }

    /// In the child of a `fork`, for the record of its only thread.
    ///
    /// # Safety
    /// There is no other thread.
    pub(super) unsafe fn reset_after_fork(&self, mine: bool) {
        // Relaxed: there is no other thread.
        let word = self.word.swap(IDLE, Ordering::Relaxed);
        if mine && word & (RAISING | ACTIVE | ENDING) != 0 {
            // SAFETY: there is no other thread.
            self.before
                .with(|before| unsafe { (*before).as_ref().map(crate::sys::sched::restore_after_fork) });
        }
    }

    /// Asks the kernel for time slice extensions. Returns whether it has them.
    ///
    /// # Safety
    /// Called by the reader's thread, as are the two methods below.
    pub(super) unsafe fn enable_slices(&self) -> bool {
        let slice = Slice::enable();
        // SAFETY: the cell is used by this thread alone.
        self.slice.with_mut(|cell| unsafe { *cell = slice });
        slice.is_some()
    }

    /// # Safety
    /// See [`enable_slices`](Aid::enable_slices).
    pub(super) unsafe fn request_slice(&self) {
        // SAFETY: the cell is used by this thread alone.
        self.slice.with(|slice| unsafe { (*slice).map(Slice::request) });
    }

    /// # Safety
    /// See [`enable_slices`](Aid::enable_slices).
    pub(super) unsafe fn release_slice(&self) {
        // SAFETY: the cell is used by this thread alone.
        self.slice.with(|slice| unsafe { (*slice).map(Slice::release) });
    }
}

/// For helpers: called by any thread.
impl Core {
    pub(crate) fn helping(&self) -> Option<&Helping> {
        self.help.as_ref()
    }

    /// Helps the readers that hold up `token`, if it was started when the domain had the age `started`, long enough
    /// ago. Returns whether one was helped; the caller then owes an [`end_all_help`](Core::end_all_help) when it stops
    /// looking after the token.
    #[inline]
    pub(crate) fn help(&self, token: u64, started: Duration) -> bool {
        self.help.as_ref().is_some_and(|helping| self.help_by(helping, token, started))
    }

    #[cold]
    fn help_by(&self, helping: &Helping, token: u64, started: Duration) -> bool {
        let now = self.age();
        self.end_overdue_help(now);
        if now.saturating_sub(started) < helping.after {
            return false;
        }
        let until = nanoseconds(now + LIMIT);
        let mut helped = false;
        for record in self.records.iter().filter(|record| blocks(record.observe(), token)) {
            helped |=
                record.aid().is_some_and(|aid| self.help_one(helping, record, aid, token, (now, until)));
        }
        if helped {
            self.end_missed_help(token, until);
            self.tend_help();
        }
        helped
    }

    fn help_one(
        &self,
        helping: &Helping,
        record: &Record,
        aid: &Aid,
        token: u64,
        time: (Duration, u64),
    ) -> bool {
        let (now, until) = time;
        if aid.not_before.load(RELAXED) > nanoseconds(now) {
            return false;
        }
        // Acquire: pairs with the release in `finish`: those who have restored are through with both cells.
        if aid.word.compare_exchange(IDLE, STARTING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        // SeqCst: pairs with the fence in `settle_help`: either that reader sees this helper and waits for it, or its
        // section is seen to be over.
        atomic_fence(Ordering::SeqCst);
        // SAFETY: this thread is `STARTING`; the reader is looked at after that, first of all.
        if !(blocks(record.observe(), token) && unsafe { aid.examine(helping.way) }) {
            aid.not_before.store(nanoseconds(now + helping.after), RELAXED);
            // Release: pairs with the acquire above, and in `settle_help`.
            aid.word.store(IDLE, Ordering::Release);
            return false;
        }
        aid.until.store(until, RELAXED);
        helping.given.fetch_add(1, RELAXED);
        // Release: pairs with the acquire in `end_help` and `end_own_help`: they use what was examined.
        aid.word.store(RAISING | ACTIVE, Ordering::Release);
        record.tell_helped();
        // SAFETY: this thread has `RAISING`.
        let answer = unsafe { aid.with_both(|subject, before| subject.help(helping.way, before)) };
        if matches!(answer, Some(Ok(()))) {
            helping.helped.fetch_add(1, RELAXED);
        } else {
            helping.refused.fetch_add(1, RELAXED);
            // AcqRel: as everywhere where the word changes hands.
            aid.word.fetch_and(!ACTIVE, Ordering::AcqRel);
        }
        // AcqRel: the system call comes before whatever ends the help from now on.
        let settled =
            aid.word.compare_exchange(RAISING | ACTIVE, ACTIVE, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !settled {
            if !busted::is(Variant::HelpNoSecondRestore) {
                // SAFETY: this thread has `RAISING`.
                unsafe { aid.restore() };
            }
            self.finish(record, aid, RAISING);
        }
        settled
    }

    /// Ends the help that its readers have not noticed: they had left their sections a moment before.
    fn end_missed_help(&self, token: u64, until: u64) {
        if busted::is(Variant::HelpNoRecheck) {
            return;
        }
        if !busted::is(Variant::HelpNoHeavy) {
            // Pairs with the `light` in `notice`: either the reader sees that it was helped, or its section is seen to
            // be over. Where the kernel refuses, its next section or the time limit ends the help.
            let _ = fence::heavy();
        }
        for record in self.records.iter() {
            if let Some(aid) = record.aid() {
                if aid.until.load(RELAXED) == until && !blocks(record.observe(), token) {
                    self.end_help(record, aid);
                }
            }
        }
    }

    /// What every poll does: ends help that has lasted too long, and gives way to readers that were moved here.
    #[inline]
    pub(crate) fn tend_help(&self) {
        if let Some(helping) = self.help.as_ref().filter(|helping| helping.is_given()) {
            self.tend_help_by(helping);
        }
    }

    #[cold]
    fn tend_help_by(&self, helping: &Helping) {
        self.end_overdue_help(self.age());
        if helping.way == Way::Migrate {
            crate::sys::yield_cpu();
        }
    }

    /// Ends all help that has lasted too long.
    pub(crate) fn end_overdue_help(&self, now: Duration) {
        self.end_help_if(|aid| {
            let overdue = aid.until.load(RELAXED) <= nanoseconds(now);
            if overdue {
                aid.not_before.store(nanoseconds(now + COOLDOWN), RELAXED);
            }
            overdue
        });
    }

    /// Ends all help: who has given some, and will not look at the readers again, cannot leave it as it is.
    pub(crate) fn end_all_help(&self) {
        self.end_help_if(|_| true);
    }

    fn end_help_if(&self, condition: impl Fn(&Aid) -> bool) {
        if !self.help.as_ref().is_some_and(Helping::is_given) {
            return;
        }
        for record in self.records.iter() {
            if let Some(aid) = record.aid() {
                // Relaxed: a hint, checked by `end_help`.
                if aid.word.load(Ordering::Relaxed) & ACTIVE != 0 && condition(aid) {
                    self.end_help(record, aid);
                }
            }
        }
    }

    fn end_help(&self, record: &Record, aid: &Aid) {
        self.end_help_in(record, aid, |word| word & ACTIVE != 0);
    }

    /// Takes the part of who restores, if the word is as wanted, and restores.
    fn end_help_in(&self, record: &Record, aid: &Aid, wanted: impl Fn(u32) -> bool) {
        // Acquire, and on success release, too: pairs with the release in `help_one`, whose cells are used here, and
        // with the acquire of the other one of the two.
        let mut word = aid.word.load(Ordering::Acquire);
        while wanted(word) {
            let ending = (word & !ACTIVE) | ENDING;
            match aid.word.compare_exchange(word, ending, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    // SAFETY: this thread has `ENDING`.
                    unsafe { aid.restore() };
                    return self.finish(record, aid, ENDING);
                }
                Err(now) => word = now,
            }
        }
    }

    /// Takes off the caller's bit. The last one of the two leaves the word idle.
    fn finish(&self, record: &Record, aid: &Aid, mine: u32) {
        // Acquire: what the other one did happens before the word is idle.
        let mut word = aid.word.load(Ordering::Acquire);
        loop {
            let last = word == mine;
            let late = busted::is(Variant::HelpClearLate);
            if last && !late {
                // Before the word is idle: the next helper sets it again.
                record.tell_not_helped();
            }
            // Release: pairs with the acquire in `help_one` and `settle_help`.
            let release = busted::order(Variant::HelpWordRelaxed, Ordering::AcqRel);
            match aid.word.compare_exchange(word, word & !mine, release, Ordering::Acquire) {
                Ok(_) => {
                    if last {
                        if late {
                            record.tell_not_helped();
                        }
                        if let Some(helping) = &self.help {
                            helping.given.fetch_sub(1, RELAXED);
                        }
                    }
                    return;
                }
                Err(now) => word = now,
            }
        }
    }
}

/// For the reader itself.
impl Core {
    /// The reader, which was told that it is helped, has ended its section.
    #[cold]
    pub(super) fn end_own_help(&self, record: &Record) {
        if let Some(aid) = record.aid() {
            // Also after the help was ended, as long as the helper's system call may still come.
            self.end_help_in(record, aid, |word| word & (RAISING | ACTIVE) != 0 && word & ENDING == 0);
        }
    }

    /// The reader ends: waits until nobody helps it any more. A helper is in the way for a few system calls.
    pub(super) fn settle_help(&self, record: &Record) {
        let Some(aid) = record.aid() else { return };
        // SeqCst: pairs with the fence in `help_one`.
        atomic_fence(Ordering::SeqCst);
        let backoff = Backoff::new();
        loop {
            self.end_own_help(record);
            // Acquire: pairs with the release in `finish` and `help_one`.
            if aid.word.load(Ordering::Acquire) == IDLE || busted::is(Variant::HelpNoSettle) {
                break;
            }
            if cfg!(loom) {
                crate::sync::spin();
            } else {
                backoff.snooze();
            }
        }
        // SAFETY: this is the reader's thread, which has left its last section; nobody is helping it.
        unsafe { aid.set_subject(None) };
    }
}

fn nanoseconds(age: Duration) -> u64 {
    // 584 years.
    age.as_nanos() as u64
}
