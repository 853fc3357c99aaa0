//! Watching for stalls: whom the hook is told of, and when.
//!
//! A *stall* is one section of one region reader in the way of a grace period that a reclaimer, a wait or a future has
//! had under way for the threshold. A section is told by its record and the token in the record's state: once a later
//! token was started, and it is in the way of one, the record does not publish the same state for another section (but for
//! one that loaded the token just before, which is in the way of the same grace periods all the same).
//!
//! The reader with the oldest token is in the way of everything that any other reader is in the way of, so this one is
//! followed until it has passed; then the next one is.
//!
//! Whoever polls or waits looks, under a [`Turn`]: so one thread at a time calls the hook, never from within itself.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ledger::Ledger;
use super::record::{Record, PASSIVE};
use super::registry::Claim;
use super::turn::Turn;
use super::Core;
use crate::rcu::stall::{Stall, StallReport};

pub(crate) type StallHook = Arc<dyn Fn(&StallReport) + Send + Sync>;

/// The least threshold: intervals double, so it must not be 0.
const LEAST: Duration = Duration::from_micros(1);

pub(crate) struct Watch {
    threshold: Duration,
    hook: StallHook,
    followed: Turn<Option<Followed>>,
    /// Whether a stall is followed. What of it is known outside the turn is a hint, not modelled.
    is_following: AtomicBool,
    /// Age of the domain, in nanoseconds, when the followed stall is to be reported next.
    due: AtomicU64,
}

/// A stall that the hook was told of.
#[derive(Debug)]
struct Followed {
    record: NonNull<Record>,
    state: u64,
    /// Age of the domain when the wait for it began.
    since: Duration,
    /// How long it must have been waited for when it is reported next.
    next: Duration,
    /// The last report.
    report: StallReport,
}

// SAFETY: records are shared by all threads; the pointer is followed while their core is alive.
unsafe impl Send for Followed {}

impl Watch {
    pub(crate) fn new(threshold: Duration, hook: StallHook) -> Self {
        Self {
            threshold: threshold.max(LEAST),
            hook,
            followed: Turn::new(),
            is_following: AtomicBool::new(false),
            due: AtomicU64::new(0),
        }
    }

    /// # Safety
    /// As [`Turn::reset_after_fork`].
    pub(super) unsafe fn reset_after_fork(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.followed.reset_after_fork() };
    }

    fn is_following(&self) -> bool {
        // Relaxed: a hint; a stall that has just begun to be followed has not ended.
        self.is_following.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("threshold", &self.threshold).finish_non_exhaustive()
    }
}

impl Core {
    /// Calls the stall hook if there is news: for who has had a grace period under way since `oldest` (an age of the
    /// domain), or has none.
    ///
    /// # Panics
    /// As the hook does.
    pub(crate) fn look_for_stalls(&self, oldest: Option<Duration>) {
        let Some(watch) = &self.watch else { return };
        let is_late = || oldest.is_some_and(|oldest| self.age().saturating_sub(oldest) >= watch.threshold);
        if watch.is_following() || is_late() {
            watch.followed.call(|followed| self.follow(watch, followed));
        }
    }

    /// When a sleep must end so that a stall is reported in time: for who waits since `oldest`.
    pub(crate) fn stall_is_due(&self, oldest: Option<Duration>) -> Option<Instant> {
        let watch = self.watch.as_ref()?;
        let due = if watch.is_following() {
            // Relaxed: a hint, as above.
            Duration::from_nanos(watch.due.load(Ordering::Relaxed))
        } else {
            oldest?.saturating_add(watch.threshold)
        };
        // What is overdue was left to the thread that is at it.
        (due > self.age()).then(|| self.made.checked_add(due))?
    }

    fn follow(&self, watch: &Watch, followed: &mut Option<Followed>) {
        if followed.as_ref().is_some_and(|stall| !self.is_held_up_by(stall)) {
            let ended = followed.take().map(|stall| self.end(stall));
            watch.is_following.store(false, Ordering::Relaxed);
            ended.iter().for_each(|report| (watch.hook)(report));
        }
        let is_due = match followed {
            Some(stall) => self.advance(stall),
            None => {
                *followed = self.find_stall(watch.threshold);
                watch.is_following.store(followed.is_some(), Ordering::Relaxed);
                true
            }
        };
        let Some(stall) = followed else { return };
        let due = stall.since.saturating_add(stall.next).as_nanos();
        watch.due.store(due.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
        if is_due {
            // Last: the hook may panic.
            (watch.hook)(&stall.report);
        }
    }

    /// Whether the section goes on.
    fn is_held_up_by(&self, stall: &Followed) -> bool {
        // SAFETY: the registry frees no record as long as the core lives.
        let record = unsafe { stall.record.as_ref() };
        record.observe() == stall.state
    }

    /// The section with the oldest token, if it has been waited for so long.
    fn find_stall(&self, threshold: Duration) -> Option<Followed> {
        let (record, state) = self.region_readers_in_the_way().min_by_key(|&(_, state)| state)?;
        let waited = self.waited_for(state).filter(|&waited| waited >= threshold)?;
        let report = StallReport { stall: Stall::new(self, record, waited), number: 1, ended: false };
        let since = self.age().saturating_sub(waited);
        let next = beyond(waited, threshold);
        Some(Followed { record: NonNull::from(record), state, since, next, report })
    }

    /// Makes the next report, if it is due.
    fn advance(&self, followed: &mut Followed) -> bool {
        let age = self.age();
        // Whoever waited longest may have given up; the stall goes on.
        let longest = self.waited_for(followed.state).unwrap_or_default();
        followed.since = followed.since.min(age.saturating_sub(longest));
        let waited = age.saturating_sub(followed.since);
        let is_due = waited >= followed.next;
        if is_due {
            // SAFETY: as in `is_held_up_by`.
            let record = unsafe { followed.record.as_ref() };
            let number = followed.report.number.saturating_add(1);
            followed.report = StallReport { stall: Stall::new(self, record, waited), number, ended: false };
            followed.next = beyond(waited, followed.next);
        }
        is_due
    }

    fn end(&self, followed: Followed) -> StallReport {
        let mut report = followed.report;
        let sum = self.sum();
        report.stall.waited = self.age().saturating_sub(followed.since);
        report.stall.others = self.region_readers_in_the_way().count();
        (report.stall.pending, report.stall.pending_bytes) = (sum.pending, sum.pending_bytes);
        report.number = report.number.saturating_add(1);
        report.ended = true;
        report
    }

    /// Every region reader that has not passed the newest token, with its state.
    pub(crate) fn region_readers_in_the_way(&self) -> impl Iterator<Item = (&Record, u64)> {
        // Relaxed: for reports; a token started meanwhile is another matter.
        let newest = self.token.load(crate::sync::atomic::Ordering::Relaxed);
        self.records
            .iter()
            .map(|record| (record, record.observe()))
            .filter(move |&(_, state)| state != PASSIVE && state < newest)
    }

    /// How long a section with this state has been waited for; `None` when nobody has anything under way that it is in
    /// the way of.
    pub(crate) fn waited_for(&self, state: u64) -> Option<Duration> {
        let oldest = self.ledgers.iter().filter_map(|ledger| ledger.in_the_way_since(state)).min()?;
        Some(self.age().saturating_sub(oldest))
    }

    /// The stall of the moment, however short.
    pub(crate) fn stall(&self) -> Option<Stall> {
        let (record, state) = self.region_readers_in_the_way().min_by_key(|&(_, state)| state)?;
        Some(Stall::new(self, record, self.waited_for(state).unwrap_or_default()))
    }

    /// Makes it known that the caller has the grace period of `token` under way since `since`, an age of the domain.
    pub(crate) fn date(&self, token: u64, since: Duration) -> Dated<'_> {
        Dated { core: self, date: Date::new(self, token, since) }
    }
}

/// The first of `next` and its doubles that is later than `waited`.
fn beyond(waited: Duration, mut next: Duration) -> Duration {
    while next <= waited {
        next = next.saturating_mul(2);
    }
    next
}

/// That somebody has a grace period under way, in a ledger of its own. To be given back to the core.
#[derive(Debug)]
pub(crate) struct Date(Claim<Ledger>);

impl Date {
    pub(crate) fn new(core: &Core, token: u64, since: Duration) -> Self {
        let claim = core.ledgers.claim();
        // SAFETY: the core is alive.
        unsafe { claim.slot() }.set_under_way(Some((token, since)));
        Self(claim)
    }

    pub(crate) fn clear(&self, core: &Core) {
        // SAFETY: the core is alive.
        unsafe { self.0.slot() }.set_under_way(None);
        core.ledgers.release(&self.0);
    }
}

/// A [`Date`] of a call.
#[derive(Debug)]
pub(crate) struct Dated<'c> {
    core: &'c Core,
    date: Date,
}

impl Drop for Dated<'_> {
    fn drop(&mut self) {
        self.date.clear(self.core);
    }
}
