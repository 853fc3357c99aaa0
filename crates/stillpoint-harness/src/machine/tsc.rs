//! The frequency of the time stamp counter, measured against the system's clock.

/// Ticks a second, or `None` where the processor has no such counter.
#[cfg(target_arch = "x86_64")]
pub fn frequency() -> Option<u64> {
    use std::time::{Duration, Instant};

    // Long enough that the cost of the two clock reads (some 50 ns) stays below a hundred-thousandth.
    const INTERVAL: Duration = Duration::from_millis(10);
    // SAFETY: reading the counter has no precondition on x86-64; where the kernel forbids it the process ends.
    let read = || unsafe { core::arch::x86_64::_rdtsc() };
    let measure = || {
        let (clock, ticks) = (Instant::now(), read());
        while clock.elapsed() < INTERVAL {
            std::hint::spin_loop();
        }
        let (ticks, elapsed) = (read() - ticks, clock.elapsed());
        ticks as f64 / elapsed.as_secs_f64()
    };
    // The median of three: a preemption between two reads makes one interval wrong.
    let mut hertz = [measure(), measure(), measure()];
    hertz.sort_by(f64::total_cmp);
    Some((hertz[1] / 1e6).round() as u64 * 1_000_000)
}

/// Ticks a second, or `None` where the processor has no such counter.
#[cfg(not(target_arch = "x86_64"))]
pub fn frequency() -> Option<u64> {
    None
}
