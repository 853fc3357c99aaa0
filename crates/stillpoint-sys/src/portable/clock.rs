//! A clock that costs less than `clock_gettime(2)`, for decisions that may be wrong.

/// The approximate number of [`ticks`] in a microsecond. The true number may differ by a factor of three.
pub const TICKS_PER_MICRO: u64 = if cfg!(all(target_arch = "x86_64", not(miri))) { 2_500 } else { 1_000 };

/// A count that grows steadily: on x86-64 the time stamp counter, elsewhere nanoseconds.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has the instruction.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    return nanoseconds();
}

/// A time that changes every few milliseconds. Unlike [`ticks`], for which the processor waits until all loads before are complete, it is only
/// read from memory.
#[inline]
pub fn coarse() -> u64 {
    #[cfg(all(target_os = "linux", not(miri)))]
    return time_of(libc::CLOCK_MONOTONIC_COARSE);
    #[cfg(not(all(target_os = "linux", not(miri))))]
    return nanoseconds() >> 22;
}

#[cfg(target_os = "linux")]
#[inline]
fn time_of(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable. Every Linux has these clocks.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds: on Linux those of `CLOCK_MONOTONIC`, without a lock, which a child of a `fork` during the first call would find held; elsewhere
/// since the first call in this process.
pub fn nanoseconds() -> u64 {
    #[cfg(target_os = "linux")]
    return time_of(libc::CLOCK_MONOTONIC);
    #[cfg(not(target_os = "linux"))]
    {
        static BEGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        BEGIN.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_of_the_order_that_is_said() {
        let per_micro = || {
            let (begin, before) = (std::time::Instant::now(), ticks());
            while begin.elapsed() < std::time::Duration::from_millis(2) {}
            (ticks() - before) / begin.elapsed().as_micros() as u64
        };
        // The thread may be preempted between the two clocks, but not each time.
        let expected = TICKS_PER_MICRO / 3..=TICKS_PER_MICRO * 3;
        assert!((0..100).any(|_| expected.contains(&per_micro())), "{} ticks", per_micro());
    }
}
