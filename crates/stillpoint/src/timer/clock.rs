//! Time from a counter of the processor, or from the system.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use stillpoint_sys::os::ticks as counter;
#[cfg(any(not(target_os = "linux"), stillpoint_portable))]
use stillpoint_sys::portable::nanoseconds;

/// How long the counter is compared with the system's clock, by default. The error at each end is about 50 ns, five
/// millionths of this time.
const CALIBRATION: Duration = Duration::from_millis(10);
/// Number of attempts to read counter and clock together. The pair with the shortest time between them is used.
const TRIES: usize = 16;

/// A monotonic clock for wheels. Where the time stamp counter (on aarch64 the virtual counter) runs at a constant speed
/// on all processors, the clock reads that. This takes half the time of `clock_gettime(2)`. Elsewhere it reads
/// `CLOCK_MONOTONIC`. On x86-64, the counter is used if the processor reports it as invariant and the kernel uses it
/// for its own time. On systems other than Linux, no counter is read. [`Instant`](std::time::Instant), counted from the
/// first use in the process, replaces `CLOCK_MONOTONIC`.
///
/// The unit is nanoseconds, cycles of the counter, or ticks of 2ⁿ cycles. A multiplication and a shift convert cycles
/// to nanoseconds. The clock is calibrated only when it is made. So it may drift by some millionths against the
/// system's clock, which is corrected all the time.
///
/// # Suspension
///
/// Programs usually expect the behaviour of `CLOCK_MONOTONIC`: it stands still while the machine is suspended, and
/// timers keep their remaining delay. [`of_system`](Self::of_system) does that, and so does every clock where there is
/// no steady counter. The behaviour of a counter depends on the machine:
///
/// - It continues: on resumption, the time has jumped by the length of the suspension. Due timers fire, in polls that
///   are as short as their [`Limit`](super::Limit). Missed beats of a periodic timer are skipped and counted.
/// - It restarts: the time goes back. Nanoseconds go back to the time when the clock was made. They stand still until
///   the counter has the value that it had then, and go on from there. Cycles and ticks go back with the counter. A
///   wheel counts such polls, and nothing fires until the time has caught up with that of the wheel.
///
/// A program that detects the resumption before its next poll can make a new clock. The nanoseconds of a new clock are
/// those of `CLOCK_MONOTONIC`, so the program's wheels go on where they were.
///
/// A clone shows the same time. It is a copy of a few words, or, for a [mock](Self::mock) clock, a reference. One clock
/// serves all threads.
///
/// ```
/// use std::time::Duration;
/// use stillpoint::timer::{Clock, Schedule, Wheel};
///
/// let clock = Clock::new();
/// let mut wheel = Wheel::new(clock.now());
/// wheel.add(Schedule::after(clock.ticks_of(Duration::from_millis(5))), "timeout")?;
/// # Ok::<(), stillpoint::timer::Full<&str>>(())
/// ```
///
/// Other clocks have other units. Each converts in both directions:
///
/// ```
/// use std::time::Duration;
/// use stillpoint::timer::Clock;
///
/// let system = Clock::of_system(); // nanoseconds
/// assert!(!system.has_counter());
/// assert_eq!(system.ticks_of(Duration::from_micros(3)), 3_000);
///
/// let precise = Clock::calibrated_for(Duration::from_millis(1)); // also nanoseconds; the thread spins for that long
/// let timeout = Duration::from_millis(5);
/// for clock in [system, precise, Clock::of_cycles(), Clock::of_ticks(10)] {
///     let ticks = clock.ticks_of(timeout); // rounded up
///     assert!(clock.duration_of(ticks) >= timeout);
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Clock {
    source: Source,
    unit: Unit,
}

#[derive(Debug, Clone)]
enum Source {
    /// The counter of the processor.
    Counter {
        hertz: u64,
    },
    /// `CLOCK_MONOTONIC`.
    System,
    Mock(Arc<AtomicU64>),
}

#[derive(Debug, Clone, Copy)]
enum Unit {
    /// `(cycles - base) * factor / 2^32 + begin` nanoseconds.
    Nanoseconds { base: u64, begin: u64, factor: u64 },
    /// `cycles / 2^shift`, or nanoseconds where there is no counter.
    Cycles { shift: u32 },
}

impl Unit {
    /// The time at this value of the counter.
    #[inline]
    fn time(self, count: u64) -> u64 {
        match self {
            Self::Nanoseconds { base, begin, factor } => {
                // Saturating: the counters of two processors may differ by some cycles.
                let cycles = u128::from(count.saturating_sub(base));
                begin.saturating_add(capped((cycles * u128::from(factor)) >> 32))
            }
            Self::Cycles { shift } => count >> shift,
        }
    }
}

fn capped(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A clock that counts nanoseconds, close to `CLOCK_MONOTONIC`.
    ///
    /// On x86-64 this takes 10 ms of the processor's time to calibrate; see
    /// [`calibrated_for`](Self::calibrated_for).
    pub fn new() -> Self {
        Self::calibrated_for(CALIBRATION)
    }

    /// A clock that counts nanoseconds, calibrated for `duration`: the relative error is about 50 ns divided by
    /// `duration`. The calling thread spins meanwhile.
    pub fn calibrated_for(duration: Duration) -> Self {
        Self::of_nanoseconds(is_steady().then(|| calibrate(duration)).flatten())
    }

    fn of_nanoseconds(counter: Option<Calibration>) -> Self {
        let Some(Calibration { base, begin, hertz }) = counter else {
            return Self::of_system();
        };
        // Below 2^32 for a counter above 1 GHz, and below 2^42 for one above 1 MHz.
        let factor = ((1_000_000_000u128 << 32) / u128::from(hertz)) as u64;
        Self { source: Source::Counter { hertz }, unit: Unit::Nanoseconds { base, begin, factor } }
    }

    /// A clock that counts nanoseconds and reads `CLOCK_MONOTONIC`.
    pub fn of_system() -> Self {
        Self { source: Source::System, unit: Unit::Cycles { shift: 0 } }
    }

    /// A clock that counts cycles of the counter; nanoseconds where there is none.
    pub fn of_cycles() -> Self {
        Self::of_ticks(0)
    }

    /// A clock that counts ticks of `2^shift` cycles each. It needs no multiplication, and a wheel uses fewer levels.
    ///
    /// # Panics
    /// If `shift` is 64 or more.
    #[track_caller]
    pub fn of_ticks(shift: u32) -> Self {
        assert!(shift < 64, "a tick of 2^{shift} cycles is impossible: the shift must be below 64");
        Self::of_shifted(is_steady().then(|| calibrate(CALIBRATION)).flatten(), shift)
    }

    fn of_shifted(counter: Option<Calibration>, shift: u32) -> Self {
        let source = counter.map_or(Source::System, |Calibration { hertz, .. }| Source::Counter { hertz });
        Self { source, unit: Unit::Cycles { shift } }
    }

    /// A clock for tests, in nanoseconds. It changes only through its [`MockTime`]. See the [example](MockTime).
    pub fn mock(now: u64) -> (Self, MockTime) {
        let time = Arc::new(AtomicU64::new(now));
        let clock = Self { source: Source::Mock(Arc::clone(&time)), unit: Unit::Cycles { shift: 0 } };
        (clock, MockTime(time))
    }

    /// The time, in the clock's unit.
    #[inline]
    pub fn now(&self) -> u64 {
        let count = match &self.source {
            Source::Counter { .. } => counter(),
            Source::System => nanoseconds(),
            // Relaxed: only the time itself is exchanged.
            Source::Mock(time) => time.load(Ordering::Relaxed),
        };
        self.unit.time(count)
    }

    /// The time, in the clock's unit, at which the counter had this value, which the caller has read: on x86-64 by `rdtsc`, on aarch64
    /// from `cntvct_el0`. Where the clock [reads no counter](Self::has_counter), the value is in nanoseconds.
    ///
    /// ```
    /// let clock = stillpoint::timer::Clock::of_ticks(4);
    /// assert_eq!(clock.time_at(160), 10);
    /// ```
    #[inline]
    pub fn time_at(&self, count: u64) -> u64 {
        self.unit.time(count)
    }

    /// A duration in the clock's unit, rounded up; `u64::MAX` for a longer one.
    pub fn ticks_of(&self, duration: Duration) -> u64 {
        let nanoseconds = duration.as_nanos();
        let ticks = match (&self.source, self.unit) {
            (Source::Counter { hertz }, Unit::Cycles { shift }) => {
                (nanoseconds * u128::from(*hertz)).div_ceil(1_000_000_000u128 << shift)
            }
            (_, Unit::Cycles { shift }) => nanoseconds.div_ceil(1u128 << shift),
            (_, Unit::Nanoseconds { .. }) => nanoseconds,
        };
        capped(ticks)
    }

    /// The length of time in which the counter counts so far, in the clock's unit, rounded up; `u64::MAX` for a longer one. As for
    /// [`time_at`](Self::time_at).
    ///
    /// ```
    /// let clock = stillpoint::timer::Clock::of_ticks(4);
    /// assert_eq!((clock.length_of(160), clock.length_of(161)), (10, 11));
    /// ```
    #[inline]
    pub fn length_of(&self, count: u64) -> u64 {
        let count = u128::from(count);
        capped(match self.unit {
            Unit::Nanoseconds { factor, .. } => (count * u128::from(factor)).div_ceil(1 << 32),
            Unit::Cycles { shift } => count.div_ceil(1 << shift),
        })
    }

    /// The duration of a number of ticks; [`Duration::MAX`] for a longer one.
    pub fn duration_of(&self, ticks: u64) -> Duration {
        // `count / each` is in seconds. `count` is below 2^127, since a shift is below 64.
        let (count, each) = match (&self.source, self.unit) {
            (Source::Counter { hertz }, Unit::Cycles { shift }) => {
                (u128::from(ticks) << shift, u128::from(*hertz))
            }
            (_, Unit::Cycles { shift }) => (u128::from(ticks) << shift, 1_000_000_000),
            (_, Unit::Nanoseconds { .. }) => (u128::from(ticks), 1_000_000_000),
        };
        match u64::try_from(count / each) {
            Ok(seconds) => Duration::new(seconds, (count % each * 1_000_000_000 / each) as u32),
            Err(_) => Duration::MAX,
        }
    }

    /// Whether the clock reads a counter of the processor.
    pub fn has_counter(&self) -> bool {
        matches!(self.source, Source::Counter { .. })
    }
}

/// Sets the time of a [mock clock](Clock::mock).
///
/// ```
/// use std::time::Duration;
/// use stillpoint::timer::{Clock, Limit, Schedule, Wheel};
///
/// let (clock, time) = Clock::mock(1_000);
/// let mut wheel = Wheel::new(clock.now());
/// wheel.add(Schedule::after(clock.ticks_of(Duration::from_secs(3_600))), "session 7")?;
///
/// time.advance(Duration::from_secs(3_600)); // the test does not sleep
/// assert_eq!(clock.now(), 3_600_000_001_000);
/// assert_eq!(wheel.poll(clock.now(), Limit::NONE, |_, _| {}).expired(), 1);
///
/// time.set(0); // as when a clock is set back
/// let _ = wheel.poll(clock.now(), Limit::NONE, |_, _| {});
/// assert_eq!(wheel.stats().time_went_back, 1);
/// # Ok::<(), stillpoint::timer::Full<&str>>(())
/// ```
#[derive(Debug, Clone)]
pub struct MockTime(Arc<AtomicU64>);

impl MockTime {
    /// Advances the time, to `u64::MAX` at most.
    pub fn advance(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: only the time itself is exchanged.
        let advance = |now: u64| Some(now.saturating_add(nanoseconds));
        let advanced = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance);
        debug_assert!(advanced.is_ok());
    }

    /// Sets the time, also to an earlier one, to test how a wheel handles that.
    pub fn set(&self, now: u64) {
        // Relaxed: only the time itself is exchanged.
        self.0.store(now, Ordering::Relaxed);
    }
}

#[cfg(all(target_os = "linux", not(stillpoint_portable)))]
fn nanoseconds() -> u64 {
    let time = stillpoint_sys::linux::time(libc::CLOCK_MONOTONIC).expect("every Linux has this clock");
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}

/// A value of the counter, the time in nanoseconds at that moment, and the counter's cycles per second.
#[derive(Debug, Clone, Copy)]
struct Calibration {
    base: u64,
    begin: u64,
    hertz: u64,
}

/// Calibrates a steady counter. `None` if it cannot be used.
fn calibrate(duration: Duration) -> Option<Calibration> {
    let (base, begin) = both()?;
    if let Some(hertz) = known_frequency() {
        return Some(Calibration { base, begin, hertz });
    }
    let long = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).max(1_000);
    loop {
        let (cycles, now) = both()?;
        let elapsed = now.saturating_sub(begin);
        if elapsed >= long {
            let hertz = u128::from(cycles.checked_sub(base)?) * 1_000_000_000 / u128::from(elapsed);
            // A counter below 1 MHz is too slow.
            return u64::try_from(hertz).ok().filter(|hertz| *hertz >= 1_000_000).map(|hertz| Calibration {
                base,
                begin,
                hertz,
            });
        }
        std::hint::spin_loop();
    }
}

/// The counter and the system's clock at the same time, as closely as possible.
fn both() -> Option<(u64, u64)> {
    let reads = (0..TRIES).map(|_| {
        let before = counter();
        let now = nanoseconds();
        let after = counter();
        (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), now)
    });
    reads.min_by_key(|read| read.0).map(|(_, cycles, now)| (cycles, now))
}

/// Whether the counter is invariant, as the manuals call it, and the kernel uses it for its own time. An invariant
/// counter runs at a constant speed in all states of the processor. The kernel does not use a counter that differs
/// between processors or has jumped.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unused_unsafe, reason = "safe in newer versions of the standard library")]
fn is_steady() -> bool {
    use core::arch::x86_64::__cpuid;
    // SAFETY: every x86-64 processor has this instruction.
    let (most, power) = unsafe { (__cpuid(0x8000_0000).eax, __cpuid(0x8000_0007).edx) };
    let is_invariant = most >= 0x8000_0007 && power & (1 << 8) != 0;
    is_trusted(is_invariant, || std::fs::read_to_string(KERNEL_S_CHOICE))
}

/// Whether the counter may be used. The kernel's choice is read only if the counter is invariant.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_trusted(is_invariant: bool, kernel_s_choice: impl FnOnce() -> std::io::Result<String>) -> bool {
    is_invariant && kernel_s_choice().is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
const KERNEL_S_CHOICE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn known_frequency() -> Option<u64> {
    None
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline]
fn counter() -> u64 {
    let count: u64;
    // SAFETY: the register can be read at any privilege under Linux, and reading it changes nothing.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags))
    };
    count
}

/// The architecture requires a steady counter, and Linux lets programs read it.
#[cfg(all(target_arch = "aarch64", not(miri)))]
fn is_steady() -> bool {
    cfg!(target_os = "linux")
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
fn known_frequency() -> Option<u64> {
    let hertz: u64;
    // SAFETY: the register can be read at any privilege under Linux, and reading it changes nothing.
    unsafe {
        core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack, preserves_flags))
    };
    Some(hertz).filter(|hertz| *hertz >= 1_000_000)
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn counter() -> u64 {
    nanoseconds()
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn is_steady() -> bool {
    false
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn known_frequency() -> Option<u64> {
    None
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    /// The clocks of a machine whose counter is not invariant.
    fn without_counter() -> [Clock; 3] {
        [Clock::of_nanoseconds(None), Clock::of_shifted(None, 0), Clock::of_shifted(None, 10)]
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn a_counter_is_trusted_that_is_invariant_and_that_the_kernel_uses() {
        let says = |name: &str| Ok(name.to_owned());
        assert!(is_trusted(true, || says("tsc\n")));
        assert!(!is_trusted(false, || says("tsc\n")), "its speed changes");
        assert!(!is_trusted(true, || says("hpet\n")), "the kernel does not use it");
        assert!(!is_trusted(true, || says("kvm-clock\n")), "its speed may change on another host");
        assert!(
            !is_trusted(true, || Err(std::io::ErrorKind::NotFound.into())),
            "the kernel's choice is unknown"
        );
    }

    #[test]
    fn without_a_steady_counter_time_is_the_system_s() {
        for clock in without_counter() {
            assert!(!clock.has_counter(), "a counter is used: {clock:?}");
            let (before, now, after) = (nanoseconds(), clock.now(), nanoseconds());
            let shift = if matches!(clock.unit, Unit::Cycles { shift: 10 }) { 10 } else { 0 };
            assert!(
                before >> shift <= now && now <= after >> shift,
                "{now} is not from {before} to {after}: {clock:?}"
            );
        }
    }

    #[test]
    fn without_a_steady_counter_cycles_are_nanoseconds() {
        let [nanoseconds, cycles, ticks] = without_counter();
        let second = Duration::from_secs(1);
        assert_eq!(nanoseconds.ticks_of(second), 1_000_000_000);
        assert_eq!(cycles.ticks_of(second), 1_000_000_000);
        assert_eq!(ticks.ticks_of(second), 976_563, "rounded up");
        assert_eq!(ticks.duration_of(1_000_000), Duration::from_nanos(1_024_000_000));
    }

    #[test]
    fn a_counter_that_begins_anew_takes_nanoseconds_back_to_when_the_clock_was_made() {
        let calibration = Calibration { base: 7_000_000, begin: 5_000, hertz: 1_000_000_000 };
        let unit = Clock::of_nanoseconds(Some(calibration)).unit;
        assert_eq!(unit.time(8_000_000), 1_005_000, "before the suspension");
        // The time stands still, and then goes on.
        assert_eq!([0, 6_999_999, 7_000_001].map(|count| unit.time(count)), [5_000, 5_000, 5_001]);
    }

    #[test]
    fn ticks_of_a_counter_are_converted_by_its_frequency() {
        let calibration = Calibration { base: 7, begin: 5_000, hertz: 24_000_000 };
        let [cycles, ticks] = [0, 4].map(|shift| Clock::of_shifted(Some(calibration), shift));
        assert!(cycles.has_counter() && ticks.has_counter());
        assert_eq!(cycles.ticks_of(Duration::from_micros(1)), 24);
        assert_eq!(ticks.ticks_of(Duration::from_micros(1)), 2, "rounded up");
        assert_eq!(cycles.ticks_of(Duration::from_nanos(42)), 2, "rounded up");
        assert_eq!(cycles.duration_of(36_000_000), Duration::from_millis(1_500));
        assert_eq!(ticks.duration_of(3), Duration::from_micros(2));
    }

    #[test]
    fn counters_of_any_speed_tell_the_time_for_years() {
        for hertz in [1_000_000, 24_000_000, 999_999_999, 1_000_000_000, 3_000_000_001] {
            let calibration = Calibration { base: 7, begin: 5_000, hertz };
            let unit = Clock::of_nanoseconds(Some(calibration)).unit;
            for seconds in [1, 3_600, 10 * 365 * 86_400] {
                let (cycles, right) = (seconds * hertz, 5_000 + seconds * 1_000_000_000);
                let time = unit.time(7 + cycles);
                // Each cycle is counted too short by less than 2^-32 ns.
                assert!(
                    time <= right && right - time <= 1 + (cycles >> 32),
                    "after {seconds} s at {hertz} Hz: {time} in place of {right}"
                );
            }
        }
    }

    #[test]
    fn a_counter_s_time_ends_with_the_greatest_number() {
        let calibration = Calibration { base: 0, begin: u64::MAX - 5, hertz: 1_000_000_000 };
        let unit = Clock::of_nanoseconds(Some(calibration)).unit;
        assert_eq!([4, 5, 6].map(|count| unit.time(count)), [u64::MAX - 1, u64::MAX, u64::MAX]);
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn a_calibration_takes_as_long_as_was_asked_for() {
        let begin = nanoseconds();
        let _ = calibrate(Duration::from_millis(2));
        assert!(nanoseconds() - begin >= 2_000_000);
    }
}
