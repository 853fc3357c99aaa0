//! Time from a counter of the processor.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

#[cfg(any(not(target_os = "linux"), stillpoint_portable))]
use stillpoint_sys::portable::nanoseconds;

/// How long the counter is compared with the system's clock, unless the caller says otherwise. The two reads at each end are
/// some 50 ns apart: five millionths of it.
const CALIBRATION: Duration = Duration::from_millis(10);
/// Pairs of reads of which the closest counts.
const TRIES: usize = 16;

/// A monotonic clock for wheels: reads the time stamp counter (on aarch64 the virtual counter) where that runs at one
/// speed on all processors, which takes half of the time of `clock_gettime(2)`; `CLOCK_MONOTONIC` elsewhere. On x86-64 that
/// is where the processor says so and the kernel also tells the time by the counter. On systems other than Linux no counter is
/// read, and [`Instant`](std::time::Instant), counted from the first use in the process, takes the place of `CLOCK_MONOTONIC`.
///
/// The unit is nanoseconds, or cycles of the counter, or ticks of a power of two of cycles. A counter is turned into
/// nanoseconds by a multiplication and a shift. It is calibrated when the clock is made, and not afterwards: against the
/// system's clock, which is corrected all the time, it may drift by some millionths.
///
/// # Suspension
///
/// What a program expects is what `CLOCK_MONOTONIC` does: it stands still while the machine is suspended, and all timers have
/// their remaining delay afterwards. [`of_system`](Self::of_system) does that, and so does every clock where there is no
/// steady counter. A counter does what the machine does with it:
///
/// - It goes on: the time has jumped on resumption by what the suspension took. What is due fires, in polls that are as
///   short as their [`Limit`](super::Limit); of a periodic timer the missed beats are left out, and counted.
/// - It begins anew: the time goes back. Nanoseconds go back to when the clock was made, stand still until the counter has come
///   to where it was then, and go on from there; cycles and ticks go back with the counter. A wheel counts such polls, and
///   stands still: nothing fires until the time has caught up with that of the wheel.
///
/// A program that learns of the resumption before its next poll makes its clock anew: the nanoseconds of a new clock are
/// those of `CLOCK_MONOTONIC`, so that its wheels go on where they were.
///
/// A clone shows the same time, and is a copy of some words (of a [mock](Self::mock) clock, a reference): one clock, made once,
/// serves all threads.
///
/// ```
/// use std::time::Duration;
/// use stillpoint::timer::{Clock, Wheel};
///
/// let clock = Clock::new();
/// let mut wheel = Wheel::new(clock.now());
/// wheel.add_after(clock.ticks_of(Duration::from_millis(5)), "timeout")?;
/// # Ok::<(), stillpoint::timer::Full<&str>>(())
/// ```
///
/// Other clocks have other units; both directions are there for each:
///
/// ```
/// use std::time::Duration;
/// use stillpoint::timer::Clock;
///
/// let system = Clock::of_system(); // nanoseconds
/// assert!(!system.has_counter());
/// assert_eq!(system.ticks_of(Duration::from_micros(3)), 3_000);
///
/// let precise = Clock::calibrated_for(Duration::from_millis(1)); // nanoseconds, too; the thread is busy that long
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
    /// The time when the counter is there.
    #[inline]
    fn time(self, count: u64) -> u64 {
        match self {
            Self::Nanoseconds { base, begin, factor } => {
                // Saturating: the counters of two processors may differ by some cycles.
                let cycles = u128::from(count.saturating_sub(base));
                begin.saturating_add(((cycles * u128::from(factor)) >> 32) as u64)
            }
            Self::Cycles { shift } => count >> shift,
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A clock that counts nanoseconds, about as `CLOCK_MONOTONIC` does.
    ///
    /// On x86-64 this takes 10 ms of the processor's time to calibrate; see
    /// [`calibrated_for`](Self::calibrated_for).
    pub fn new() -> Self {
        Self::calibrated_for(CALIBRATION)
    }

    /// A clock that counts nanoseconds, calibrated for `duration`: the error of its speed is about 50 ns divided by `duration`. The
    /// calling thread is busy meanwhile.
    pub fn calibrated_for(duration: Duration) -> Self {
        Self::of_nanoseconds(is_steady().then(|| calibrate(duration)).flatten())
    }

    fn of_nanoseconds(counter: Option<Calibration>) -> Self {
        let Some(Calibration { base, begin, hertz }) = counter else {
            return Self::of_system();
        };
        // Below 2^32 for any counter of more than 1 GHz, and below 2^42 for one of more than 1 MHz.
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

    /// A clock that counts ticks of `2^shift` cycles each: no multiplication, and fewer levels of a wheel in use.
    ///
    /// # Panics
    /// If `shift` is 64 or more.
    pub fn of_ticks(shift: u32) -> Self {
        assert!(shift < 64, "a tick of 2^{shift} cycles");
        Self::of_shifted(is_steady().then(|| calibrate(CALIBRATION)).flatten(), shift)
    }

    fn of_shifted(counter: Option<Calibration>, shift: u32) -> Self {
        let source = counter.map_or(Source::System, |Calibration { hertz, .. }| Source::Counter { hertz });
        Self { source, unit: Unit::Cycles { shift } }
    }

    /// A clock for tests, of nanoseconds, that stands still until it is told otherwise: see the [example](MockTime).
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
            // Relaxed: the time alone is told.
            Source::Mock(time) => time.load(Ordering::Relaxed),
        };
        self.unit.time(count)
    }

    /// A duration in the clock's unit, rounded up; the greatest number there is for one that is longer.
    pub fn ticks_of(&self, duration: Duration) -> u64 {
        let nanoseconds = duration.as_nanos();
        let ticks = match (&self.source, self.unit) {
            (Source::Counter { hertz }, Unit::Cycles { shift }) => {
                (nanoseconds * u128::from(*hertz)).div_ceil(1_000_000_000u128 << shift)
            }
            (_, Unit::Cycles { shift }) => nanoseconds.div_ceil(1u128 << shift),
            (_, Unit::Nanoseconds { .. }) => nanoseconds,
        };
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// How long that many ticks last, rounded down to nanoseconds; [`Duration::MAX`] if it is longer than that.
    pub fn duration_of(&self, ticks: u64) -> Duration {
        // What is divided by so many of them makes a second. Below 2^127, since a shift is below 64.
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
/// use stillpoint::timer::{Clock, Limit, Wheel};
///
/// let (clock, time) = Clock::mock(1_000);
/// let mut wheel = Wheel::new(clock.now());
/// wheel.add_after(clock.ticks_of(Duration::from_secs(3_600)), "session 7")?;
///
/// time.advance(Duration::from_secs(3_600)); // no test has to sleep
/// assert_eq!(clock.now(), 3_600_000_001_000);
/// assert_eq!(wheel.poll(clock.now(), Limit::NONE, |_, _| {}).expired(), 1);
///
/// time.set(0); // as after a correction
/// let _ = wheel.poll(clock.now(), Limit::NONE, |_, _| {});
/// assert_eq!(wheel.stats().time_went_back, 1);
/// # Ok::<(), stillpoint::timer::Full<&str>>(())
/// ```
#[derive(Debug, Clone)]
pub struct MockTime(Arc<AtomicU64>);

impl MockTime {
    /// Lets time pass, up to the greatest number there is.
    pub fn advance(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: the time alone is told.
        let advance = |now: u64| Some(now.saturating_add(nanoseconds));
        let advanced = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance);
        debug_assert!(advanced.is_ok());
    }

    /// Sets the time, which may go back: what a wheel does about that can be tested so.
    pub fn set(&self, now: u64) {
        // Relaxed: as above.
        self.0.store(now, Ordering::Relaxed);
    }
}

#[cfg(all(target_os = "linux", not(stillpoint_portable)))]
fn nanoseconds() -> u64 {
    let time = stillpoint_sys::linux::time(libc::CLOCK_MONOTONIC).expect("every Linux has this clock");
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}

/// The counter, the time in nanoseconds then, and its cycles in a second.
#[derive(Debug, Clone, Copy)]
struct Calibration {
    base: u64,
    begin: u64,
    hertz: u64,
}

/// `None` where time cannot be told by the counter, which is steady.
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
            // A counter slower than that is none that time can be told by.
            return u64::try_from(hertz).ok().filter(|hertz| *hertz >= 1_000_000).map(|hertz| Calibration {
                base,
                begin,
                hertz,
            });
        }
        std::hint::spin_loop();
    }
}

/// The counter and the system's clock at the same time, as far as that can be had.
fn both() -> Option<(u64, u64)> {
    let reads = (0..TRIES).map(|_| {
        let before = counter();
        let now = nanoseconds();
        let after = counter();
        (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), now)
    });
    reads.min_by_key(|read| read.0).map(|(_, cycles, now)| (cycles, now))
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether the counter runs at one speed whatever the processor does, which its manuals call invariant, and the kernel has found
/// nothing else: it tells the time by it itself. It does not where the processors' counters differ, or have jumped.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unused_unsafe, reason = "safe in newer versions of the standard library")]
fn is_steady() -> bool {
    use core::arch::x86_64::__cpuid;
    // SAFETY: every x86-64 processor has the instruction.
    let (most, power) = unsafe { (__cpuid(0x8000_0000).eax, __cpuid(0x8000_0007).edx) };
    let is_invariant = most >= 0x8000_0007 && power & (1 << 8) != 0;
    is_trusted(is_invariant, || std::fs::read_to_string(KERNEL_S_CHOICE))
}

/// Whether time may be told by a counter that is invariant or not; the kernel's choice is looked at if it is.
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

/// The architecture demands it, and Linux lets programs read it.
#[cfg(all(target_arch = "aarch64", not(miri)))]
fn is_steady() -> bool {
    cfg!(target_os = "linux")
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
fn known_frequency() -> Option<u64> {
    let hertz: u64;
    // SAFETY: as for the counter.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// As on a machine whose counter is not invariant.
    fn without_counter() -> [Clock; 3] {
        [Clock::of_nanoseconds(None), Clock::of_shifted(None, 0), Clock::of_shifted(None, 10)]
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn a_counter_is_trusted_that_is_invariant_and_that_the_kernel_uses() {
        let says = |name: &str| Ok(name.to_owned());
        assert!(is_trusted(true, || says("tsc\n")));
        assert!(!is_trusted(false, || says("tsc\n")), "it changes its speed");
        assert!(!is_trusted(true, || says("hpet\n")), "the kernel has found it unsteady");
        assert!(!is_trusted(true, || says("kvm-clock\n")), "a move to another host may change it");
        assert!(
            !is_trusted(true, || Err(std::io::ErrorKind::NotFound.into())),
            "nobody says that it is steady"
        );
    }

    #[test]
    fn without_a_steady_counter_time_is_the_system_s() {
        for clock in without_counter() {
            assert!(!clock.has_counter(), "{clock:?}");
            let (before, now, after) = (nanoseconds(), clock.now(), nanoseconds());
            let shift = if matches!(clock.unit, Unit::Cycles { shift: 10 }) { 10 } else { 0 };
            assert!(before >> shift <= now && now <= after >> shift, "{before} {clock:?} {now} {after}");
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
        // It stands still, and goes on from there.
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
                // Each cycle is too short by less than 2^-32 ns.
                assert!(time <= right && right - time <= 1 + (cycles >> 32), "{hertz} {seconds}: {time}");
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
