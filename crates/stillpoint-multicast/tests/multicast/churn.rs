//! Threads join and leave while multicasts are under way: no acknowledgement is lost, nothing hangs, and no function is used
//! after its multicast.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use stillpoint_multicast::{signals, Group, Report};

use crate::child::in_child;
use crate::{ways, End, Ending};

const CHURNERS: usize = 64;
const INITIATORS: usize = 3;
/// The duration of each kind. `STILLPOINT_CHURN_SECONDS` changes it.
const DURATION: Duration = Duration::from_secs(3);

fn duration() -> Duration {
    let asked = std::env::var("STILLPOINT_CHURN_SECONDS").ok();
    asked.map_or(DURATION, |text| Duration::from_secs(text.parse().expect("a number of seconds")))
}

/// A function's data, on the initiator's stack, so that a late use hits other data.
struct Target {
    alive: AtomicU64,
    runs: AtomicUsize,
}

const ALIVE: u64 = 0x5711_1b0e_a15e_0001;

impl Target {
    fn new() -> Self {
        Self { alive: AtomicU64::new(ALIVE), runs: AtomicUsize::new(0) }
    }

    fn run(&self, misused: &AtomicUsize) {
        if self.alive.load(Ordering::Relaxed) != ALIVE {
            misused.fetch_add(1, Ordering::Relaxed);
        }
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    /// Every receiver that had not left has run the function, some of them more than once: a thread that leaves and joins again
    /// may be reached at both places.
    fn verify(&self, report: &Report) {
        let runs = self.runs.load(Ordering::Relaxed);
        let least = report.receivers - report.adopted + usize::from(report.ran_here);
        assert!(runs == least, "{runs} runs: {report:?}");
        self.alive.store(0, Ordering::Relaxed);
    }
}

/// Runs churners and initiators. `live` is what a churner does from one join to the next.
fn churn(multicast: impl Fn(usize, &Target, &AtomicUsize) -> Report + Sync, live: impl Fn(u64) + Sync) {
    let (flag, there) = (AtomicBool::new(false), Barrier::new(CHURNERS + INITIATORS));
    let (joins, multicasts, adopted) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let misused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..CHURNERS {
            let (there, joins, live, end) = (&there, &joins, &live, End(&flag));
            scope.spawn(move || {
                there.wait();
                let mut random = number as u64 + 1;
                while !end.has_come() {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    live(random >> 33);
                    joins.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let initiators: Vec<_> = (0..INITIATORS)
            .map(|number| {
                let (there, multicast, multicasts) = (&there, &multicast, &multicasts);
                let (adopted, misused) = (&adopted, &misused);
                scope.spawn(move || {
                    there.wait();
                    let begun = Instant::now();
                    let mut round = number;
                    while begun.elapsed() < duration() {
                        let target = Target::new();
                        let report = multicast(round, &target, misused);
                        target.verify(&report);
                        adopted.fetch_add(report.adopted, Ordering::Relaxed);
                        multicasts.fetch_add(1, Ordering::Relaxed);
                        round += 1;
                    }
                })
            })
            .collect();
        let _ending = Ending(&flag);
        for initiator in initiators {
            initiator.join().expect("no acknowledgement is lost");
        }
    });
    let (joins, multicasts) = (joins.into_inner(), multicasts.into_inner());
    println!("{multicasts} multicasts, {joins} joins, {} adopted", adopted.into_inner());
    assert_eq!(misused.into_inner(), 0, "a function was run after its multicast");
    assert!(joins > CHURNERS && multicasts > 10, "{joins} joins, {multicasts} multicasts");
}

#[test]
fn members_that_poll_join_and_leave() {
    let group = Group::new();
    churn(
        |round, target, misused| {
            let (strategy, acknowledgement, helps) = ways()[round % ways().len()];
            let multicast = group.multicast().strategy(strategy).acknowledgement(acknowledgement);
            multicast.helping(helps).run(|| target.run(misused))
        },
        |random| {
            let member = group.join();
            for _ in 0..random % 4 {
                member.wait_timeout(Duration::from_micros(random % 200));
            }
            if random % 16 == 0 {
                std::mem::forget(member.group().join());
            }
        },
    );
    // A scope does not wait for the destructors of thread-local values.
    while group.members() > 0 {
        thread::yield_now();
    }
}

#[test]
fn threads_with_signals_join_and_leave() {
    in_child("churn::threads_with_signals_join_and_leave", || {
        churn(
            |round, target, misused| {
                let (strategy, acknowledgement, helps) = ways()[round % ways().len()];
                let multicast = signals::multicast().expect("the signal is free");
                let multicast = multicast.strategy(strategy).acknowledgement(acknowledgement).helping(helps);
                // SAFETY: atomic operations may be done anywhere.
                unsafe { multicast.run(|| target.run(misused)) }
            },
            |random| {
                let _member = signals::join().expect("the signal is free");
                match random % 4 {
                    0 => {}
                    1 => (0..random % 4000).for_each(|_| std::hint::spin_loop()),
                    _ => thread::sleep(Duration::from_micros(random % 200)),
                }
            },
        );
        assert_eq!(signals::members(), 0);
    });
}
