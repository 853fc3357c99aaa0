//! What the threads of the experiments have in common.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::machine::cpus;
use crate::random::Random;

/// Pins the calling thread, a writer or one that works for it, with the least timer slack, for every contender alike:
/// the usual 50 µs would be added to each of its sleeps. Threads that start from this one inherit both.
pub(crate) fn prepare_writer_thread(cpu: usize) -> Result<(), String> {
    cpus::pin(cpu)?;
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))
        .map_err(|error| format!("cannot set the timer slack: {error}"))
}

/// The seed of one reader's keys.
pub(crate) fn reader_seed(seed: u64, index: usize) -> u64 {
    Random::new(seed).nth(index + 1)
}

/// User and system time of all threads, those that have ended included.
pub(crate) fn process_cpu_time() -> Duration {
    cpu_time(ClockId::ProcessCPUTime)
}

/// User and system time of the calling thread.
pub(crate) fn thread_cpu_time() -> Duration {
    cpu_time(ClockId::ThreadCPUTime)
}

fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_uses_no_cpu_time() {
        let (before, busy_before) = (thread_cpu_time(), process_cpu_time());
        std::thread::sleep(Duration::from_millis(50));
        assert!(thread_cpu_time() - before < Duration::from_millis(40));
        let begun = thread_cpu_time();
        while thread_cpu_time() - begun < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        assert!(process_cpu_time() - busy_before >= Duration::from_millis(5));
    }
}
