//! Times work by a read of the time stamp counter before and after it.

/// Cycles of the time stamp counter; nanoseconds where there is none.
///
/// Everything before it in the program is complete, and nothing after it has begun.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn read() -> u64 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 processor has these instructions.
    unsafe {
        _mm_lfence();
        let cycles = _rdtsc();
        _mm_lfence();
        cycles
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn read() -> u64 {
    static BEGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    BEGIN.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}

/// Two reads of the counter around some work. Their cost is measured, and subtracted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bracket {
    empty: u64,
}

impl Bracket {
    pub(super) fn new() -> Self {
        let empty = (0..1_000).map(|_| {
            let begin = read();
            read() - begin
        });
        Self { empty: empty.min().unwrap_or(0) }
    }

    /// How long `work` takes.
    #[inline(always)]
    pub(super) fn time<R>(self, work: impl FnOnce() -> R) -> (f64, R) {
        let begin = read();
        let result = work();
        let end = read();
        ((end - begin).saturating_sub(self.empty) as f64, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_bracket_takes_next_to_nothing() {
        let bracket = Bracket::new();
        let least = (0..1_000).map(|_| bracket.time(|| ()).0).fold(f64::MAX, f64::min);
        assert!(least < 100.0, "{least}");
        let busy = bracket.time(|| {
            let begin = std::time::Instant::now();
            while begin.elapsed().as_micros() < 100 {}
        });
        assert!(busy.0 > 10_000.0, "{}", busy.0);
    }
}
