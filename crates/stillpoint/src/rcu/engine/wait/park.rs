//! How a thread waits for a reader: a short spin, then the futex of the domain.
//!
//! The waiter asks the reader that holds it up for attention, and sleeps. The reader publishes its
//! next state; if it then finds the request, it wakes the sleepers. Nothing orders the reader's two accesses against the
//! waiter's, since each section of each reader would pay for such a fence. So a request can come just too
//! late to be seen, and the waiter bounds its sleep: [`FIRST_SLEEP`] at first, then twice as long each time.
//!
//! The release of a protected load is a single store, and notifies no thread. A thread that waits for one sleeps for at most
//! [`LONGEST_FOR_RELEASE`]. So it is late by no more than that, and the time that it takes to get a CPU.

use std::time::{Duration, Instant};

use crossbeam_utils::Backoff;

use crate::frames::is_foreign;
use crate::rcu::engine::boost::Booster;
use crate::rcu::engine::core::grace::{Grace, Outlook, Terms};
use crate::rcu::engine::core::record::Record;
use crate::rcu::engine::wait::error::SynchronizeError;
use crate::rcu::engine::Core;
use stillpoint_sys::sync::atomic::{fence, AtomicU32, Ordering};

// Not modelled: models do not fork.
use std::sync::atomic::AtomicU32 as PlainU32;

const FIRST_SLEEP: Duration = Duration::from_micros(50);
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(10);
const LONGEST_FOR_RELEASE: Duration = Duration::from_millis(1);

/// Most threads that a reader wakes, and that each woken thread wakes in turn.
const SHARE: u32 = super::wakers::SHARE as u32;

/// Where threads sleep until something in the domain has changed.
pub(crate) struct Event {
    /// Changes with each notification.
    generation: AtomicU32,
    sleepers: AtomicU32,
    /// How often the count of sleepers was reset.
    resets: PlainU32,
    /// The longest sleep of a thread that waits for a reader that may not notify.
    longest_sleep: Duration,
}

impl Event {
    pub(crate) fn new(longest_sleep: Duration) -> Self {
        let (generation, sleepers) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { generation, sleepers, resets: PlainU32::new(0), longest_sleep }
    }

    /// Sleeps until the next notification or for `limit`, unless `changed` returns true.
    ///
    /// A notification that comes after `changed` has returned false is not missed.
    pub(crate) fn sleep_unless(&self, limit: Option<Duration>, changed: impl FnOnce() -> bool) {
        // Relaxed: only a handler of this thread, in the child of a `fork`, changes it meanwhile.
        let resets = self.resets.load(Ordering::Relaxed);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `notify`: either `notify` sees a sleeper, or `changed` sees the change.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the release in `notify_some`, so that `changed` sees what came before this generation.
        let generation = self.generation.load(Ordering::Acquire);
        let mut is_told = false;
        // After a reset, this thread is not counted any more, and nobody would wake it.
        let is_reset = || self.resets.load(Ordering::Relaxed) != resets;
        if !is_reset() && !changed() {
            stillpoint_sys::os::wait(&self.generation, generation, limit);
            // Relaxed: a thread that sleeps on the old generation was there before the notification.
            is_told = self.generation.load(Ordering::Relaxed) != generation;
        }
        if is_reset() {
            return;
        }
        // Never below 0, if a reset comes just now: the next sleeper would not be counted.
        let lower = |count: u32| count.checked_sub(1);
        let sleepers = self.sleepers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
        if is_told && sleepers.is_ok_and(|sleepers| sleepers > 1) {
            // Wakes the next share: see `notify_by_shares`.
            stillpoint_sys::os::wake(&self.generation, SHARE);
        }
    }

    /// Wakes all sleepers. Their `changed` sees what the caller did before.
    pub(crate) fn notify(&self) {
        self.notify_some(i32::MAX as u32);
    }

    /// As [`notify`](Event::notify), for readers, which should not wake a thousand threads. Wakes [`SHARE`] of the sleepers;
    /// each of them wakes as many when it has found the notification. A sleeper that is late, because another one lacks a
    /// CPU, looks again on its own.
    pub(crate) fn notify_by_shares(&self) {
        self.notify_some(SHARE);
    }

    fn notify_some(&self, most: u32) {
        // SeqCst: pairs with the fence in `sleep_unless`.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            // Release: pairs with the acquire load in `sleep_unless`.
            self.generation.fetch_add(1, Ordering::Release);
            stillpoint_sys::os::wake(&self.generation, most);
        }
    }

    pub(crate) fn reset(&self) {
        // Relaxed, all: called while there is only one thread. If that is a handler which has interrupted a sleep, the sleep ends.
        self.sleepers.store(0, Ordering::Relaxed);
        self.resets.fetch_add(1, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
impl Event {
    /// Whether `action` wakes sleepers, of which this call simulates one. Sleeps of waiters are bounded, so
    /// a missing notification shows nowhere else.
    pub(crate) fn is_notified_by(&self, action: impl FnOnce()) -> bool {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let before = self.generation.load(Ordering::Relaxed);
        action();
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        self.generation.load(Ordering::Relaxed) != before
    }
}

/// What a thread waits for.
#[derive(Clone, Copy)]
pub(crate) enum Next<'r> {
    /// This region reader passes. It is asked to notify.
    Passage(&'r Record),
    /// A protected load is released, which notifies no thread.
    Release,
    /// A thread notifies the event.
    News,
}

/// When a caller looks again at a reader that is silent. Each look takes the line to which the reader writes, so the distances
/// double.
#[derive(Default)]
pub(crate) struct Looks {
    number: u32,
    /// Age of the domain.
    next: Option<Duration>,
}

impl Looks {
    /// Time between the first two looks.
    const FIRST_DISTANCE: Duration = Duration::from_nanos(200);

    /// Notes that the reader is silent at this age of the domain, and that the fence is due at another. Returns when to look again.
    pub(crate) fn put_off(&mut self, now: Duration, due: Duration) -> Duration {
        let distance = Self::FIRST_DISTANCE.saturating_mul(1 << self.number.min(16));
        self.number += 1;
        *self.next.insert(due.min(now + distance))
    }

    /// When to look again, if that is later than now.
    pub(crate) fn later(&self, now: Duration) -> Option<Duration> {
        self.next.filter(|&next| next > now)
    }

    pub(crate) fn are_put_off(&self) -> bool {
        self.next.is_some()
    }
}

/// How long a thread spins and sleeps in one wait.
pub(crate) struct Patience {
    spin: Backoff,
    sleep: Duration,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self { spin: Backoff::new(), sleep: FIRST_SLEEP }
    }

    /// Whether the next wait is a sleep.
    pub(crate) fn is_about_to_sleep(&self) -> bool {
        self.spin.is_completed()
    }

    /// Waits a little for `next` (or for any notification), longer each time, but not beyond
    /// `deadline`.
    pub(crate) fn wait(
        &mut self,
        event: &Event,
        next: Next<'_>,
        deadline: Option<Instant>,
        changed: impl FnOnce() -> bool,
    ) {
        if cfg!(stillpoint_loom) {
            return stillpoint_sys::sync::spin();
        }
        if !self.spin.is_completed() {
            return self.spin.snooze();
        }
        if let Next::Passage(laggard) = next {
            laggard.ask_for_attention();
        }
        let sleep = self.next_sleep(next, event.longest_sleep);
        let left = deadline.map_or(sleep, |deadline| deadline.saturating_duration_since(Instant::now()));
        event.sleep_unless(Some(left.min(sleep)), changed);
    }

    /// The limit of the next sleep. The limit after it is twice as long, up to `longest`.
    fn next_sleep(&mut self, next: Next<'_>, longest: Duration) -> Duration {
        let longest = if matches!(next, Next::Release) { LONGEST_FOR_RELEASE.min(longest) } else { longest };
        let sleep = self.sleep.min(longest);
        self.sleep = (sleep * 2).min(longest);
        sleep
    }
}

/// The boosts that one wait gives to readers. They end with the wait.
struct Boost<'c> {
    core: &'c Core,
    booster: Booster,
}

impl Drop for Boost<'_> {
    fn drop(&mut self) {
        self.booster.end(self.core);
    }
}

impl Core {
    pub(crate) fn event(&self) -> &Event {
        &self.event
    }

    /// Panics if a run on the calling thread of `what`, which frees objects of the domain, could wait for the thread itself.
    #[track_caller]
    pub(crate) fn assert_may_run(&self, what: &str) {
        let name = self.name();
        assert!(
            !is_foreign(),
            "a destructor, a callback or a stall hook cannot run {what} of domain `{name}`: it could wait for its own end"
        );
        assert!(
            self.protocol.blocked_by_caller(u64::MAX).is_none(),
            "this thread holds a guard or an online QSBR reader of domain `{name}`, so it would wait for itself if it ran {what} of \
             the domain; drop the guard, or go offline first"
        );
    }

    /// Waits until `token` is over, for at most `limit`.
    ///
    /// # Panics
    /// With a panic of the stall hook.
    pub(in crate::rcu) fn wait_for(
        &self,
        token: u64,
        limit: Option<Duration>,
    ) -> Result<(), SynchronizeError> {
        SynchronizeError::unless_foreign(self)?;
        SynchronizeError::unless_own_region(self, token)?;
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let begun = self.age();
        let mut patience = Patience::new();
        let mut boost = Boost { core: self, booster: Booster::default() };
        let mut dated = None;
        let mut looks = Looks::default();
        let terms = Terms { begun, interval: Duration::ZERO, gathers: false, earliest: Duration::ZERO };
        loop {
            // In models, which know no time, it fences at once.
            let look = self.protocol.look(token, (!cfg!(stillpoint_loom)).then_some(terms));
            let laggard = match look.map_err(SynchronizeError::Fence)? {
                Outlook::Known(Grace::Over) => return Ok(()),
                Outlook::Known(Grace::Blocked(laggard)) => laggard,
                Outlook::Silent(due) => {
                    // Nobody is asked: a reader that is silent holds nothing up. The fence is due soon.
                    looks.put_off(self.protocol.age(), due);
                    while looks.later(self.protocol.age()).is_some() {
                        // The silent reader may need this processor.
                        stillpoint_sys::os::yield_cpu();
                    }
                    continue;
                }
            };
            boost.booster.boost(self, token, begun);
            let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let mut wake_up = deadline;
            if is_late || patience.is_about_to_sleep() {
                dated.get_or_insert_with(|| self.date(token, begun));
                self.report_stall(laggard, token, begun, || self.all_pending());
                wake_up = earliest(deadline, self.stall_is_due(Some(begun)));
            }
            if is_late {
                return Err(SynchronizeError::stalled(self, laggard, begun));
            }
            let passed = || self.protocol.in_the_way(token).is_none();
            patience.wait(&self.event, Next::Passage(laggard), wake_up, passed);
        }
    }
}

/// The earlier of two times, each of which may be missing.
pub(crate) fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn those_that_are_woken_by_shares_wake_the_others() {
        const THREADS: u32 = if cfg!(miri) { 4 } else { 100 };
        let (event, is_over) = (Event::new(LONGEST_SLEEP), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        // No limit: if the wake-up is missing, the test does not end.
                        event.sleep_unless(None, || is_over.load(Ordering::Relaxed));
                    }
                });
            }
            while event.sleepers.load(Ordering::Relaxed) < THREADS {
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
            event.notify_by_shares();
        });
        assert_eq!(event.sleepers.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn sleeps_double_up_to_their_bound() {
        let sleeps = |next: Next<'_>, longest: Duration| {
            let mut patience = Patience::new();
            std::array::from_fn::<u128, 10, _>(|_| patience.next_sleep(next, longest).as_micros())
        };
        let released = sleeps(Next::Release, LONGEST_SLEEP);
        assert_eq!(released, [50, 100, 200, 400, 800, 1000, 1000, 1000, 1000, 1000]);
        let told = sleeps(Next::News, LONGEST_SLEEP);
        assert_eq!(told, [50, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(sleeps(Next::Release, Duration::from_micros(75))[..3], [50, 75, 75]);

        let mut patience = Patience::new();
        for _ in 0..10 {
            patience.next_sleep(Next::News, LONGEST_SLEEP);
        }
        assert_eq!(patience.next_sleep(Next::Release, LONGEST_SLEEP), LONGEST_FOR_RELEASE);
    }
}
