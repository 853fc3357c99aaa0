//! The threads of the experiments.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::Pid;
use rustix::time::{ClockId, clock_gettime};

use crate::machine::{cpus, load};

/// Pins the calling thread, a writer or one that works for it, and sets the least timer slack, for every contender alike:
/// the default of 50 µs would lengthen each of its sleeps. Threads that start from this one inherit both.
pub fn prepare_writer_thread(cpu: usize) -> Result<(), String> {
    cpus::pin(cpu)?;
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))
        .map_err(|error| format!("cannot set the timer slack: {error}"))
}

/// Runs `work` on a new thread that is prepared as the writer.
pub fn as_writer<R: Send>(cpu: usize, work: impl FnOnce() -> Result<R, String> + Send) -> Result<R, String> {
    thread::scope(|scope| {
        let writer = thread::Builder::new().name("writer".to_owned());
        match writer.spawn_scoped(scope, || prepare_writer_thread(cpu).and_then(|()| work())) {
            Ok(writer) => writer.join().unwrap_or_else(|_| Err("the writer panicked".to_owned())),
            Err(error) => Err(format!("cannot start the writer's thread: {error}")),
        }
    })
}

/// Starts `count` threads, which call `work` with their numbers. If one of them cannot be started, none calls it: no thread waits at a
/// barrier for one that never comes. Each thread that is joined has a result then.
pub fn start_all<'scope, R: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    count: usize,
    work: impl Fn(usize) -> R + Clone + Send + 'scope,
) -> Result<Vec<thread::ScopedJoinHandle<'scope, Option<R>>>, String> {
    let start = |number| {
        let (begin, begins) = mpsc::channel();
        let work = work.clone();
        let run = move || begins.recv().ok().map(|()| work(number));
        let thread = thread::Builder::new().spawn_scoped(scope, run);
        thread.map(|thread| (thread, begin)).map_err(|error| format!("cannot start {count} threads: {error}"))
    };
    let started = (0..count).map(start).collect::<Result<Vec<_>, _>>()?;
    let begun = started.into_iter().map(|(thread, begin)| {
        // The thread waits for this.
        let _ = begin.send(());
        thread
    });
    Ok(begun.collect())
}

/// Calls `work` on a thread for each of `cpus` at the same time, with its number and a barrier of all of them.
pub fn on_each<R: Send>(
    cpus: &[usize],
    work: impl Fn(usize, &Barrier) -> R + Sync,
) -> Result<Vec<R>, String> {
    let barrier = Barrier::new(cpus.len());
    let on_its_cpu = |index: usize| {
        // A thread that cannot be pinned still works: the others wait for it at the barrier.
        let pinned = cpus::pin(cpus[index]);
        let done = work(index, &barrier);
        pinned.map(|()| done)
    };
    thread::scope(|scope| {
        let threads = start_all(scope, cpus.len(), on_its_cpu)?;
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().ok().flatten().unwrap_or_else(|| Err("a thread panicked".to_owned()))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Sets a flag for the end when it is dropped, even by a panic: threads of a scope that wait for the flag end, and the scope does.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        // Relaxed: nothing is published with it.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How the kernel schedules a thread: what a booster that raises it must restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Such as `SCHED_OTHER`.
    pub policy: i32,
    /// The nice value.
    pub nice: i32,
    /// The CPUs that it may run on, in order.
    pub cpus: Vec<usize>,
}

impl Standing {
    /// That of a thread, or of the calling one if `thread` is 0; `None` if the thread has ended.
    pub fn of(thread: u32) -> Option<Self> {
        let raw = i32::try_from(thread).ok()?;
        // SAFETY: no memory is passed.
        let policy = unsafe { libc::sched_getscheduler(raw) };
        // SAFETY: no memory is passed. -1 may be a nice value or an error; a thread that is gone has no policy.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, thread) };
        let cpus = cpus::of(Pid::from_raw(raw)).ok()?;
        (policy >= 0).then_some(Self { policy, nice, cpus })
    }
}

/// The ids of the threads of this process.
pub fn ids() -> Result<impl Iterator<Item = u32>, String> {
    let threads = fs::read_dir("/proc/self/task").map_err(|error| format!("/proc/self/task: {error}"))?;
    Ok(threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok()))
}

/// Repeats a check until it succeeds, or time is up: a booster may be about to restore a thread.
pub fn patiently<E>(patience: Duration, check: impl Fn() -> Result<(), E>) -> Result<(), E> {
    let end = Instant::now() + patience;
    loop {
        match check() {
            Err(_) if Instant::now() < end => thread::sleep(Duration::from_millis(1)),
            answer => return answer,
        }
    }
}

/// The CPU time of this process since the account was opened, and that of everything else on the CPUs of a round.
pub struct Account {
    cpus: Vec<usize>,
    begin: Instant,
    own: Duration,
    busy: Option<Duration>,
}

/// What an account has counted.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    /// The CPU time of this process.
    pub own: Duration,
    /// The same, as a number of CPUs: divided by the time that passed.
    pub cpus: f64,
    /// The CPUs that everything else took; 0 where that is not known.
    pub foreign_cpus: f64,
}

impl Account {
    /// Begins to count now, on the CPUs of the readers and of the writer.
    pub fn open(readers: &[usize], writer: usize) -> Self {
        let mut cpus: Vec<usize> = readers.iter().copied().chain([writer]).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let (begin, own, busy) = (Instant::now(), process_cpu_time(), load::busy(&cpus));
        Self { cpus, begin, own, busy }
    }

    /// What was used until now.
    pub fn close(self) -> Used {
        let own = process_cpu_time() - self.own;
        let busy = load::busy(&self.cpus).zip(self.busy);
        let busy = busy.map_or(Duration::ZERO, |(now, before)| now.saturating_sub(before));
        let elapsed = self.begin.elapsed().as_secs_f64();
        let cpus = |time: Duration| time.as_secs_f64() / elapsed;
        Used { own, cpus: cpus(own), foreign_cpus: cpus(busy.saturating_sub(own)) }
    }
}

/// User and system time of all threads, those that have ended included.
pub(crate) fn process_cpu_time() -> Duration {
    cpu_time(ClockId::ProcessCPUTime)
}

/// User and system time of the calling thread.
pub fn thread_cpu_time() -> Duration {
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
    fn a_booster_has_time_to_give_back() {
        let begin = Instant::now();
        let soon = || match begin.elapsed() > Duration::from_millis(20) {
            true => Ok(()),
            false => Err("not yet".to_owned()),
        };
        assert_eq!(patiently(Duration::from_secs(60), soon), Ok(()));
        assert!(patiently(Duration::ZERO, || Err("never".to_owned())).is_err());
    }

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
