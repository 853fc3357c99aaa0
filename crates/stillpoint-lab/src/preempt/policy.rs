//! The scheduling of threads: a reclaimer that boosts readers must restore it.

use std::time::Duration;

use stillpoint_harness::experiment::threads::{self, Standing, patiently};

/// How long a booster may take to restore a thread.
const PATIENCE: Duration = Duration::from_secs(2);

/// How the calling thread is scheduled.
pub(super) fn of_this_thread() -> Result<Standing, String> {
    Standing::of(0).ok_or_else(|| "cannot read the scheduling policy".to_owned())
}

/// Waits until the calling thread has its `usual` policy and may run only on its CPU. If a booster has raised it, the
/// booster may still be about to restore it.
pub(super) fn check_this_thread(usual: &Standing, cpu: usize) -> Result<(), String> {
    patiently(PATIENCE, || look_at_this_thread(usual, cpu))
}

fn look_at_this_thread(usual: &Standing, cpu: usize) -> Result<(), String> {
    match of_this_thread()? {
        now if now.policy != usual.policy => {
            Err("the thread was left with another scheduling policy".to_owned())
        }
        now if now.cpus != [cpu] => Err("the thread was left on other CPUs".to_owned()),
        _ => Ok(()),
    }
}

/// Waits until every thread of the process has the `usual` policy.
pub(super) fn check_all_threads(usual: &Standing) -> Result<(), String> {
    patiently(PATIENCE, || match others_than(usual)?.as_slice() {
        [] => Ok(()),
        raised => Err(format!("threads {raised:?} were left with another scheduling policy")),
    })
}

/// The threads of the process with another policy.
fn others_than(usual: &Standing) -> Result<Vec<u32>, String> {
    // A thread that has ended meanwhile has no policy.
    Ok(threads::ids()?.filter(|&id| Standing::of(id).is_some_and(|now| now.policy != usual.policy)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stillpoint_harness::machine::cpus;

    #[test]
    fn a_thread_with_another_policy_or_more_cpus_is_noticed() {
        let usual = of_this_thread().unwrap();
        let cpu = cpus::allowed()[0];
        std::thread::spawn(move || {
            cpus::pin(cpu).unwrap();
            look_at_this_thread(&usual, cpu).unwrap();
            assert!(look_at_this_thread(&usual, cpu + 1).unwrap_err().contains("CPUs"));
            // The idle policy needs no right.
            let none = libc::sched_param { sched_priority: 0 };
            // SAFETY: the parameters outlive the call.
            assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &none) }, 0);
            assert!(look_at_this_thread(&usual, cpu).unwrap_err().contains("policy"));
            let id = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            assert!(others_than(&usual).unwrap().contains(&id));
        })
        .join()
        .unwrap();
    }
}
