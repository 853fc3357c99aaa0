//! Threads of the host that take its CPUs away from a guest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use stillpoint_harness::machine::cpus;

/// Runs `work` while one thread spins on each of `cpus`.
///
/// # Errors
/// When a thread cannot run where it should; `work` has run nevertheless.
pub(super) fn beside<T>(cpus: &[usize], work: impl FnOnce() -> T) -> Result<T, String> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let shared = &stop;
        let hogs: Vec<_> = cpus.iter().map(|&cpu| scope.spawn(move || spin(cpu, shared))).collect();
        let result = {
            let _stop = StopOnDrop(&stop);
            work()
        };
        for hog in hogs {
            hog.join().unwrap_or_else(|_| Err("a thread that spins panicked".to_owned()))?;
        }
        Ok(result)
    })
}

fn spin(cpu: usize, stop: &AtomicBool) -> Result<(), String> {
    cpus::pin(cpu)?;
    // Relaxed: nothing is published with the flag.
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    Ok(())
}

/// Ends the threads also when the work panics: the scope would wait for them forever.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        // Relaxed: see `spin`.
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn they_end_with_the_work_however_it_ends() {
        let cpus = cpus::allowed();
        assert_eq!(beside(&cpus[..1], || 7), Ok(7));
        assert!(catch_unwind(AssertUnwindSafe(|| beside(&cpus[..1], || panic!("as asked")))).is_err());
        assert_eq!(beside(&[], || 8), Ok(8));
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error() {
        let missing = cpus::online().last().unwrap() + 1;
        assert!(beside(&[missing], || ()).unwrap_err().contains(&format!("CPU {missing}")));
    }
}
