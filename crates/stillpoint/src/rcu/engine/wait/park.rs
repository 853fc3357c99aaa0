//! How a thread waits for a reader: a short spin, then the futex of the domain.
//!
//! The waiter asks the reader that holds it up for attention, and sleeps; the reader, when it has published its
//! next state and finds the request, wakes the sleepers. Nothing orders the reader's two accesses against the
//! waiter's, since a fence for it would be paid by each section of each reader. So a request can come just too
//! late to be seen, and the waiter bounds its sleep: from [`FIRST_SLEEP`] on, doubled each time.
//!
//! The release of a protected load tells nobody at all: it is one store. Who waits for one sleeps for
//! [`LONGEST_FOR_RELEASE`] at the most, and so is late by no more than that, and the time that it takes to get a CPU.

use std::time::{Duration, Instant};

use crossbeam_utils::Backoff;

use crate::fence::FenceError;
use crate::rcu::engine::boost::Booster;
use crate::rcu::engine::core::grace::Grace;
use crate::rcu::engine::core::record::Record;
use crate::rcu::engine::Core;
use stillpoint_sys::sync::atomic::{fence, AtomicU32, Ordering};

const FIRST_SLEEP: Duration = Duration::from_micros(50);
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(10);
const LONGEST_FOR_RELEASE: Duration = Duration::from_millis(1);

/// Threads that a reader wakes, at the most, and each of those after it.
const SHARE: u32 = super::wakers::SHARE as u32;

/// Where threads sleep until something in the domain has changed.
#[derive(Debug)]
pub(crate) struct Event {
    /// Changes with each notification.
    generation: AtomicU32,
    sleepers: AtomicU32,
    /// For who waits for a reader that may not tell.
    longest_sleep: Duration,
}

impl Event {
    pub(crate) fn new(longest_sleep: Duration) -> Self {
        Self { generation: AtomicU32::new(0), sleepers: AtomicU32::new(0), longest_sleep }
    }

    /// Sleeps until the next notification or for `limit`, unless `changed` says that there is no need to.
    ///
    /// A notification that comes after `changed` has returned false is not missed.
    pub(crate) fn sleep_unless(&self, limit: Option<Duration>, changed: impl FnOnce() -> bool) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `notify`: either it sees a sleeper, or `changed` sees the change.
        fence(Ordering::SeqCst);
        // Acquire: a generation newer than the change is not mistaken for an older one.
        let generation = self.generation.load(Ordering::Acquire);
        let mut is_told = false;
        if !changed() {
            stillpoint_sys::os::wait(&self.generation, generation, limit);
            // Relaxed: whoever sleeps on the old generation was there before the notification.
            is_told = self.generation.load(Ordering::Relaxed) != generation;
        }
        let sleepers = self.sleepers.fetch_sub(1, Ordering::Relaxed);
        if is_told && sleepers > 1 {
            // In its turn: see `notify_by_shares`.
            stillpoint_sys::os::wake(&self.generation, SHARE);
        }
    }

    /// Wakes all sleepers. What the caller did before is seen by their `changed`.
    pub(crate) fn notify(&self) {
        self.notify_some(i32::MAX as u32);
    }

    /// As [`notify`](Event::notify), for readers, which should not wake a thousand threads: wakes [`SHARE`] of the sleepers,
    /// each of which wakes as many when it has found the notification. A sleeper that is late for another one's lack of a
    /// CPU looks again by itself.
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
        // Relaxed: called when there is one thread alone.
        self.sleepers.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
impl Event {
    /// Whether `action` wakes whoever sleeps, of whom there seems to be one meanwhile. Sleeps of waiters are bounded, so that
    /// a notification that is forgotten shows nowhere else.
    pub(crate) fn is_notified_by(&self, action: impl FnOnce()) -> bool {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let before = self.generation.load(Ordering::Relaxed);
        action();
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        self.generation.load(Ordering::Relaxed) != before
    }
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Next<'r> {
    /// That this region reader passes. It is asked to tell.
    Passage(&'r Record),
    /// That a protected load is released, of which nobody tells.
    Release,
    /// That somebody notifies the event.
    News,
}

/// How patiently a thread waits.
#[derive(Debug)]
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

    /// Waits a little for what comes `next` (or for any notification), a little longer each time, and not beyond
    /// `deadline`.
    pub(crate) fn wait(
        &mut self,
        event: &Event,
        next: Next<'_>,
        deadline: Option<Instant>,
        changed: impl FnOnce() -> bool,
    ) {
        if cfg!(loom) {
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

    /// How long the next sleep is at the most; the one after it is twice as long, up to `longest`.
    fn next_sleep(&mut self, next: Next<'_>, longest: Duration) -> Duration {
        let longest = if matches!(next, Next::Release) { LONGEST_FOR_RELEASE.min(longest) } else { longest };
        let sleep = self.sleep.min(longest);
        self.sleep = (sleep * 2).min(longest);
        sleep
    }
}

/// Why a wait ended before the grace period.
#[derive(Debug)]
pub(crate) enum Interrupted<'c> {
    /// The calling thread itself holds the token up.
    ByCaller(&'c Record),
    /// The time is up, and this reader holds the token up.
    Late(&'c Record),
    /// The kernel refuses the fence.
    Fence(FenceError),
}

/// The boost that readers get from one wait, which does not outlive it.
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
    /// Waits until `token` is over.
    ///
    /// # Panics
    /// With a panic of the stall hook.
    pub(crate) fn wait(&self, token: u64, deadline: Option<Instant>) -> Result<(), Interrupted<'_>> {
        if let Some(record) = self.protocol.held_up_by_caller(token) {
            return Err(Interrupted::ByCaller(record));
        }
        let begun = self.age();
        let mut patience = Patience::new();
        let mut boost = Boost { core: self, booster: Booster::new() };
        let mut dated = None;
        loop {
            let laggard = match self.protocol.check(token).map_err(Interrupted::Fence)? {
                Grace::Over => return Ok(()),
                Grace::HeldUp(laggard) => laggard,
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
                return Err(Interrupted::Late(laggard));
            }
            let passed = || !matches!(self.protocol.check(token), Ok(Grace::HeldUp(_)));
            patience.wait(&self.event, Next::Passage(laggard), wake_up, passed);
        }
    }
}

/// The earlier of two points in time that may not be there.
pub(crate) fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

#[cfg(all(test, not(loom)))]
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
                        // Without a limit: a wake-up that does not come is a test that does not end.
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
