//! Threads that keep CPUs busy: on the host, to take the CPUs away from a guest, and inside a guest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use stillpoint_harness::experiment::threads::StopOnDrop;
use stillpoint_harness::machine::cpus;

/// Runs `work` while one thread repeats `step` on each of `cpus`.
///
/// # Errors
/// When a thread cannot run where it should; `work` has run nevertheless.
pub(super) fn beside<T>(
    cpus: &[usize],
    step: &(dyn Fn() + Sync),
    work: impl FnOnce() -> T,
) -> Result<T, String> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let shared = &stop;
        let hogs: Vec<_> = cpus.iter().map(|&cpu| scope.spawn(move || repeat(cpu, step, shared))).collect();
        let result = {
            let _stop = StopOnDrop(&stop);
            work()
        };
        for hog in hogs {
            hog.join().unwrap_or_else(|_| Err("a thread that keeps a CPU busy panicked".to_owned()))?;
        }
        Ok(result)
    })
}

fn repeat(cpu: usize, step: &(dyn Fn() + Sync), stop: &AtomicBool) -> Result<(), String> {
    cpus::pin(cpu)?;
    // Relaxed: nothing is published with the flag.
    while !stop.load(Ordering::Relaxed) {
        step();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn they_end_with_the_work_however_it_ends() {
        let cpus = cpus::allowed();
        let spin = &std::hint::spin_loop;
        assert_eq!(beside(&cpus[..1], spin, || 7), Ok(7));
        let panics = || beside(&cpus[..1], spin, || panic!("as asked"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(beside(&[], spin, || 8), Ok(8));
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error() {
        let missing = cpus::online().last().unwrap() + 1;
        let refused = beside(&[missing], &std::hint::spin_loop, || ()).unwrap_err();
        assert!(refused.contains(&format!("CPU {missing}")));
    }
}
