//! The scheduling of threads: a reclaimer that boosts readers must restore it.

use std::fs;
use std::time::{Duration, Instant};

use stillpoint_harness::machine::cpus;

/// How long a booster may take to restore a thread.
const PATIENCE: Duration = Duration::from_secs(2);

/// A scheduling policy of the kernel, such as `SCHED_OTHER`.
pub(super) type Policy = i32;

/// The policy of the calling thread.
pub(super) fn of_this_thread() -> Result<Policy, String> {
    of(0)
}

fn of(tid: libc::pid_t) -> Result<Policy, String> {
    // SAFETY: takes a number and returns one.
    let policy = unsafe { libc::sched_getscheduler(tid) };
    match policy {
        -1 => Err(format!("cannot read the scheduling policy: {}", std::io::Error::last_os_error())),
        policy => Ok(policy),
    }
}

/// Waits until the calling thread has its `usual` policy and may run only on its CPU. If a booster has raised it, the
/// booster may still be about to restore it.
pub(super) fn check_this_thread(usual: Policy, cpu: usize) -> Result<(), String> {
    patiently(PATIENCE, || look_at_this_thread(usual, cpu))
}

fn look_at_this_thread(usual: Policy, cpu: usize) -> Result<(), String> {
    if of_this_thread()? != usual {
        return Err("the thread was left with another scheduling policy".to_owned());
    }
    match cpus::allowed() == [cpu] {
        true => Ok(()),
        false => Err("the thread was left on other CPUs".to_owned()),
    }
}

/// Waits until every thread of the process has the `usual` policy.
pub(super) fn check_all_threads(usual: Policy) -> Result<(), String> {
    patiently(PATIENCE, || match others_than(usual)?.as_slice() {
        [] => Ok(()),
        raised => Err(format!("threads {raised:?} were left with another scheduling policy")),
    })
}

/// The threads of the process with another policy.
fn others_than(usual: Policy) -> Result<Vec<libc::pid_t>, String> {
    let threads = fs::read_dir("/proc/self/task").map_err(|error| format!("/proc/self/task: {error}"))?;
    let tids = threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok());
    // A thread that has ended meanwhile has no policy.
    Ok(tids.filter(|&tid| of(tid).is_ok_and(|policy| policy != usual)).collect())
}

fn patiently(patience: Duration, check: impl Fn() -> Result<(), String>) -> Result<(), String> {
    let end = Instant::now() + patience;
    loop {
        match check() {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_with_another_policy_or_more_cpus_is_noticed() {
        let usual = of_this_thread().unwrap();
        let cpu = cpus::allowed()[0];
        std::thread::spawn(move || {
            cpus::pin(cpu).unwrap();
            look_at_this_thread(usual, cpu).unwrap();
            assert!(look_at_this_thread(usual, cpu + 1).unwrap_err().contains("CPUs"));
            // The idle policy needs no right.
            let none = libc::sched_param { sched_priority: 0 };
            // SAFETY: the parameters outlive the call.
            assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &none) }, 0);
            assert!(look_at_this_thread(usual, cpu).unwrap_err().contains("policy"));
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            assert!(others_than(usual).unwrap().contains(&tid));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_booster_has_time_to_give_back() {
        let begin = Instant::now();
        let soon = || match begin.elapsed() > Duration::from_millis(20) {
            true => Ok(()),
            false => Err("not yet".to_owned()),
        };
        assert_eq!(patiently(Duration::from_secs(60), soon), Ok(()));
        assert!(patiently(Duration::ZERO, || Err("never".to_owned())).is_err());
    }
}
