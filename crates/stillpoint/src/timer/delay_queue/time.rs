//! Instants, and the ticks of the wheel.

use std::time::{Duration, Instant};

/// A tick is 2¹⁰ ns: two levels of the wheel less than with nanoseconds.
const SHIFT: u32 = 10;
/// The time that no clock reaches, and the deadline of what is never due.
pub(super) const NEVER: u64 = u64::MAX;
/// In place of instants that the system cannot name: a hundred years.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

type Now = dyn Fn() -> Instant + Send + Sync;

/// The time of a queue: ticks since its beginning.
pub(super) struct Time {
    begin: Instant,
    /// What tells the time in place of [`Instant::now`].
    clock: Option<Box<Now>>,
}

stillpoint_sys::debug!(|this| Time { begin: this.begin, .. });

impl Time {
    pub(super) fn of_system() -> Self {
        Self { begin: Instant::now(), clock: None }
    }

    pub(super) fn of(clock: Box<Now>) -> Self {
        Self { begin: clock(), clock: Some(clock) }
    }

    #[inline]
    pub(super) fn now(&self) -> Instant {
        self.clock.as_ref().map_or_else(Instant::now, |clock| clock())
    }

    /// The present tick. Rounded down, so that nothing is early.
    #[inline]
    pub(super) fn tick(&self) -> u64 {
        self.passed(self.now())
    }

    /// The last tick at `now` or before.
    #[inline]
    pub(super) fn passed(&self, now: Instant) -> u64 {
        ticks(now.saturating_duration_since(self.begin), false).min(NEVER - 1)
    }

    /// The first tick at `at` or after. What was before the beginning is due at once.
    #[inline]
    pub(super) fn tick_of(&self, at: Instant) -> u64 {
        ticks(at.saturating_duration_since(self.begin), true)
    }

    /// The first tick that is `delay` or more after `now`.
    #[inline]
    pub(super) fn tick_after(&self, now: Instant, delay: Duration) -> u64 {
        ticks(now.saturating_duration_since(self.begin).saturating_add(delay), true)
    }

    /// When a tick begins.
    pub(super) fn instant(&self, tick: u64) -> Instant {
        let since = match tick.checked_shl(SHIFT).filter(|ns| ns >> SHIFT == tick) {
            Some(nanoseconds) => Duration::from_nanos(nanoseconds),
            None => {
                let nanoseconds = u128::from(tick) << SHIFT;
                Duration::new((nanoseconds / NANOS) as u64, (nanoseconds % NANOS) as u32)
            }
        };
        let far = || self.begin.checked_add(FAR);
        self.begin.checked_add(since).or_else(far).unwrap_or(self.begin)
    }
}

const NANOS: u128 = 1_000_000_000;

/// A duration in ticks; [`NEVER`] if it has more.
#[inline]
fn ticks(duration: Duration, is_rounded_up: bool) -> u64 {
    let nanoseconds = duration.as_nanos();
    let part = if is_rounded_up { (1 << SHIFT) - 1 } else { 0 };
    u64::try_from((nanoseconds + part) >> SHIFT).unwrap_or(NEVER)
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_rounded_up_and_the_time_is_rounded_down() {
        let time = Time::of_system();
        let after = |ns| time.begin + Duration::from_nanos(ns);
        for (ns, up, down) in [(0, 0, 0), (1, 1, 0), (1_023, 1, 0), (1_024, 1, 1), (1_025, 2, 1)] {
            assert_eq!((time.tick_of(after(ns)), time.passed(after(ns))), (up, down), "{ns} ns");
            assert_eq!(time.tick_after(time.begin, Duration::from_nanos(ns)), up, "{ns} ns");
        }
        assert_eq!(time.tick_of(time.begin - Duration::from_nanos(1)), 0);
        assert_eq!(time.instant(3), after(3_072));
    }

    #[test]
    fn the_farthest_times_are_no_overflow() {
        let time = Time::of_system();
        assert_eq!(time.tick_after(time.begin, Duration::MAX), NEVER);
        assert!(time.instant(NEVER) >= time.begin + FAR);
        let shifted = 1 << (64 - SHIFT);
        for tick in [shifted - 1, shifted, shifted + 1] {
            let since = time.instant(tick) - time.begin;
            assert_eq!(since.as_nanos(), u128::from(tick) << SHIFT);
        }
    }
}
