//! A CPU with more threads than it can run.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet, Pid};
use stillpoint::rcu::Domain;

/// The number of threads that compute beside the reader.
const HOGS: usize = 5;

/// How a thread is scheduled: its policy, and the number of CPUs on which it may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scheduling {
    pub(crate) policy: i32,
    pub(crate) cpus: u32,
}

impl Scheduling {
    /// The scheduling of an ordinary thread in the crowd.
    pub(crate) const ORDINARY: Self = Self { policy: libc::SCHED_OTHER, cpus: 1 };

    /// The scheduling of the thread with this id. 0 stands for the caller.
    pub(crate) fn of(tid: i32) -> Self {
        // SAFETY: no pointers are passed.
        let policy = unsafe { libc::sched_getscheduler(tid) } & !libc::SCHED_RESET_ON_FORK;
        Self { policy, cpus: sched_getaffinity(Pid::from_raw(tid)).map_or(0, |set| set.count()) }
    }

    /// Whether the thread has been raised, or moved away from `cpu`.
    pub(crate) fn is_boosted(tid: i32, cpu: usize) -> bool {
        let moved = sched_getaffinity(Pid::from_raw(tid)).is_ok_and(|set| !set.is_set(cpu));
        Self::of(tid).policy == libc::SCHED_FIFO || moved
    }
}

/// Shared by the test and its reader.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    /// The reader's thread id, once it is on its CPU.
    reader: AtomicI32,
    /// Tells the reader to go on.
    pub(crate) go_on: AtomicBool,
    end: AtomicBool,
}

impl Stage {
    /// The reader's thread id.
    pub(crate) fn reader(&self) -> i32 {
        super::until("the reader begins", || self.reader.load(Ordering::Relaxed) != 0);
        self.reader.load(Ordering::Relaxed)
    }

    /// Waits until the calling thread has been boosted, unless it is told to go on.
    pub(crate) fn until_boosted(&self, cpu: usize) {
        super::until("boost", || Scheduling::is_boosted(0, cpu) || self.go_on.load(Ordering::Relaxed));
    }

    /// Computes until told to go on.
    pub(crate) fn compute(&self) {
        while !self.go_on.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }

    pub(crate) fn go_on(&self) {
        self.go_on.store(true, Ordering::Relaxed);
    }
}

/// Enters one section after the other until told to go on.
pub(crate) fn read(domain: &Domain, stage: &Stage) {
    let reader = domain.reader();
    while !stage.go_on.load(Ordering::Relaxed) {
        let _guard = reader.pin();
        work();
    }
}

/// Some 100 µs of work.
pub(crate) fn work() {
    let end = Instant::now() + Duration::from_micros(100);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Runs `read` on a crowded CPU, and `test` on the others. With only one CPU, says that the test is skipped.
///
/// `read` is called with the CPU. When both functions have returned, no thread may be boosted any more.
pub(crate) fn beside(
    domain: &Domain,
    read: impl FnOnce(&Domain, &Stage, usize) + Send,
    test: impl FnOnce(&Domain, &Stage, usize),
) {
    let allowed = sched_getaffinity(None).unwrap();
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let (Some(cpu), Some(_)) = (cpus.next(), cpus.next()) else {
        super::skipped("a reader and its booster need two CPUs");
        return;
    };
    let mut others = allowed;
    others.unset(cpu);
    sched_setaffinity(None, &others).unwrap();
    let stage = Stage::default();
    thread::scope(|scope| {
        let mut crowd: Vec<_> = (0..HOGS)
            .map(|_| {
                scope.spawn(|| {
                    run_on(cpu);
                    while !stage.end.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        crowd.push(scope.spawn(|| {
            run_on(cpu);
            stage.reader.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
            read(domain, &stage, cpu);
            assert!(!Scheduling::is_boosted(0, cpu), "the reader was left as {:?}", Scheduling::of(0));
        }));
        let _end = End(&stage);
        test(domain, &stage, cpu);
    });
    sched_setaffinity(None, &allowed).unwrap();
}

/// Ends the crowd, also when the test fails.
struct End<'s>(&'s Stage);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.go_on();
        self.0.end.store(true, Ordering::Relaxed);
    }
}

fn run_on(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).unwrap();
}
