//! Store buffering: two sides try to pass an entrance. The fast side stores `fast` and loads `slow`, with only a compiler barrier
//! in between. The slow side stores `slow`, fences by signals, and loads `fast`. If both get inside, one of them has missed the
//! other.
//!
//! The power of this test is limited: a fence by signals takes microseconds, and a store buffer drains in a fraction of one. It
//! finds a fence that returns early, or that does not wait for a thread. Other tests count that each thread executes a barrier.

use std::sync::atomic::{compiler_fence, fence, AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint_multicast::{signals, Acknowledgement, Strategy};

use crate::child::{in_child, note};
use crate::skip::skipped;
use crate::{strategies, End, Ending};

/// The threads that a fence has to reach, including the fast side: enough for trees with inner nodes.
const MEMBERS: usize = 4;
/// The entries of the slow side with each strategy. `STILLPOINT_LITMUS_ENTRIES` changes it.
const ENTRIES: u32 = 1_000;
/// A control that has seen nothing after this many entries fails the test.
const MANY: u32 = 100_000;
/// The number of violations that is enough for a control.
const ENOUGH: u32 = 20;
/// The minimum time limit of a control.
const PATIENCE: Duration = Duration::from_secs(2);
/// Cache lines, and the most stores to them before an announcement.
const COLD: usize = 1 << 16;
const FILL: usize = 16;
/// Turns of the fast side between two entries, so that the slow side gets in as well.
const OUTSIDE: u32 = 12;
/// How long the slow side stays, in turns of an empty loop: longer than a store stays in a store buffer.
const STAY: u32 = 2_000;

fn entries() -> u32 {
    let asked = std::env::var("STILLPOINT_LITMUS_ENTRIES").ok();
    asked.map_or(ENTRIES, |text| text.parse().expect("a number of entries"))
}

/// Each in its own cache line.
#[repr(align(128))]
#[derive(Default)]
struct Word(AtomicU32);

impl Word {
    fn set(&self, value: u32) {
        // Relaxed, here and below: only the fences under test may order them.
        self.0.store(value, Ordering::Relaxed);
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Entrance {
    fast: Word,
    slow: Word,
    /// Changes when the fast side is inside.
    inside: Word,
    cold: Cold,
}

/// More memory than the caches hold, to fill a store buffer: a later store then stays in the buffer for longer.
struct Cold(Box<[Word]>);

impl Cold {
    fn new() -> Self {
        Self((0..COLD).map(|_| Word::default()).collect())
    }

    fn fill(&self, turn: u32) {
        let place = turn.wrapping_mul(0x9e37_79b9) as usize;
        (0..turn as usize % FILL).for_each(|store| self.0[(place + store * 4099) % COLD].set(turn));
    }
}

fn idle(turns: u32) {
    (0..turns).for_each(|turn| _ = std::hint::black_box(turn));
}

impl Entrance {
    fn new() -> Self {
        Self { fast: Word::default(), slow: Word::default(), inside: Word::default(), cold: Cold::new() }
    }

    fn pass_fast(&self, turn: u32) {
        self.cold.fill(turn);
        self.fast.set(1);
        compiler_fence(Ordering::SeqCst);
        if self.slow.get() == 0 {
            self.inside.set(self.inside.get().wrapping_add(1));
        }
        compiler_fence(Ordering::SeqCst);
        self.fast.set(0);
        idle(OUTSIDE);
    }

    /// Whether the slow side got inside, and if so, whether the fast side was inside too.
    fn pass_slow(&self, turn: u32, fence: impl FnOnce()) -> Option<bool> {
        self.slow.set(1);
        compiler_fence(Ordering::SeqCst);
        fence();
        compiler_fence(Ordering::SeqCst);
        let met = (self.fast.get() == 0).then(|| {
            let before = self.inside.get();
            idle(STAY);
            self.inside.get() != before
        });
        compiler_fence(Ordering::SeqCst);
        self.slow.set(0);
        idle(turn % 256);
        met
    }
}

#[derive(Debug, Default)]
struct Passed {
    entries: u32,
    violations: u32,
}

/// The processors that the process may use, before a thread was kept on one.
fn cpus() -> &'static [usize] {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    CPUS.get_or_init(|| {
        // SAFETY: all zeros are a valid set, which the call writes.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set), 0);
            (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
        }
    })
}

/// Keeps the calling thread on the first processor or on the second one, so that the two sides run at the same time.
fn pin(to: usize) {
    let cpus = cpus();
    // SAFETY: all zeros are a valid set. If the call fails, the sides meet less often, and the control shows that.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpus[to % cpus.len()], &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// The fast side has its own processor. If the machine allows it, the other threads get the other processor as soon
/// as they are woken; otherwise each of them may wait for some milliseconds.
fn place(is_fast: bool) {
    pin(usize::from(is_fast));
    if !is_fast {
        let first = libc::sched_param { sched_priority: 1 };
        // SAFETY: the parameter is alive for the call, which may be refused.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) };
    }
}

/// Runs the slow side until it was inside often enough, saw enough violations, or the time is over. The fast side is a member, the
/// first or the last one to register; the other members sleep.
fn pass(first: bool, wanted: u32, limit: Duration, fence: impl Fn(u32)) -> Passed {
    let (entrance, there, flag) = (Entrance::new(), Barrier::new(MEMBERS + 1), AtomicBool::new(false));
    let turn = AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..MEMBERS {
            let (entrance, there, turn, end) = (&entrance, &there, &turn, End(&flag));
            scope.spawn(move || {
                while turn.load(Ordering::Acquire) != number {
                    thread::yield_now();
                }
                let _member = signals::join().expect("the signal is free");
                turn.store(number + 1, Ordering::Release);
                there.wait();
                let is_fast = number == if first { 0 } else { MEMBERS - 1 };
                place(is_fast);
                for turn in 0u32.. {
                    if end.has_come() {
                        break;
                    }
                    if is_fast {
                        entrance.pass_fast(turn);
                    } else {
                        thread::sleep(Duration::from_millis(20));
                    }
                }
            });
        }
        there.wait();
        let _ending = Ending(&flag);
        pin(0);
        let (mut passed, mut turn, begun) = (Passed::default(), 0u32, Instant::now());
        while passed.entries < wanted && passed.violations < ENOUGH && begun.elapsed() < limit {
            turn = turn.wrapping_add(1);
            if let Some(met) = entrance.pass_slow(turn, || fence(turn)) {
                passed.entries += 1;
                passed.violations += u32::from(met);
            }
        }
        passed
    })
}

/// Fences with one strategy, both kinds of acknowledgement, with and without help.
fn by(strategy: Strategy, turn: u32) {
    let acknowledgement =
        if turn % 2 == 0 { Acknowledgement::Combining } else { Acknowledgement::SharedCounter };
    let multicast = signals::multicast().expect("it has been started").strategy(strategy);
    let report = multicast.acknowledgement(acknowledgement).helping(turn % 4 < 2).fence();
    assert_eq!(report.expect("no thread blocks the signal").receivers, MEMBERS);
}

/// The control: a fence on one side only. Its violations show the power of the test on this machine.
fn control(entries: u32) {
    let patience = PATIENCE.max(Duration::from_micros(200) * entries);
    let control = pass(true, u32::MAX, patience, |_| fence(Ordering::SeqCst));
    let Passed { entries: came, violations } = control;
    note(&format!(
        "litmus control: {violations} violations in {came} entries, with a fence on one side only"
    ));
    if violations == 0 {
        assert!(entries < MANY, "a control that sees nothing: {came} entries");
        skipped("the litmus shows nothing on this machine, now: its control sees nothing");
    }
}

#[test]
fn a_fence_by_signals_orders_those_who_do_not_fence() {
    in_child("litmus::a_fence_by_signals_orders_those_who_do_not_fence", || {
        let wanted = entries();
        control(wanted);
        for strategy in strategies() {
            let halves = [true, false]
                .map(|first| pass(first, wanted.div_ceil(2), Duration::MAX, |turn| by(strategy, turn)));
            let entries: u32 = halves.iter().map(|half| half.entries).sum();
            note(&format!("litmus: {entries} entries by {strategy:?}, {MEMBERS} receivers: {halves:?}"));
            assert!(halves.iter().all(|half| half.violations == 0) && entries >= wanted, "{strategy:?}");
        }
    });
}
