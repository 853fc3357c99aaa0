//! The threads of a part: what they use, how they pass time, how they end.
//!
//! - The [`Roll`] has the ids of the threads, for those that park them.
//! - The [`Sections`] are the open sections of region readers, to check the promises of tokens. A reader numbers its
//!   sections, and publishes the number *after* it has begun a section and *before* it ends it: the number is odd while it
//!   is certainly inside. A thread that starts a grace period notes the open sections. When the library says that the grace
//!   period is over, all of them must have ended.
//! - Futures have no executor: the thread itself waits for the waker. The waker is slow to clone, as those of some executors are.
//!   A future that clones it after its last look, instead of before, then often misses a wake-up. With a fast waker, it would hardly
//!   ever miss one.
//! - [`Stores`] keep a store buffer busy.

use std::cell::Cell;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{self, Poll, RawWaker, RawWakerVTable, Waker};
use std::thread::{self, Scope, ScopedJoinHandle, Thread};
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::cpus::run_on;

use crate::arena::{Context, Maker};
use crate::counts::{Count, SECTIONS, Tally};

/// One thread of the mixed part.
pub(crate) struct Actor<'s> {
    /// The actor's slot in the sections of each world.
    pub(crate) slot: usize,
    pub(crate) maker: Maker,
    pub(crate) rng: Rng,
    pub(crate) tally: Tally,
    shared: &'s Shared<'s>,
}

/// Shared by the actors of a part.
pub(crate) struct Shared<'p> {
    stop: AtomicBool,
    pub(crate) roll: Roll,
    pub(crate) cpus: &'p [usize],
}

impl<'p> Shared<'p> {
    pub(crate) fn new(slots: usize, cpus: &'p [usize]) -> Self {
        Self { stop: AtomicBool::new(false), roll: Roll::new(slots), cpus }
    }

    pub(crate) fn stop(&self) {
        // Relaxed: a flag; the threads are joined.
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        // Relaxed: see `stop`.
        self.stop.load(Ordering::Relaxed)
    }

    /// Starts a thread for each slot, with a maker of its own.
    pub(crate) fn crew<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        context: &'static Context,
        rng: &mut Rng,
        work: impl Fn(Actor<'s>) -> Tally + Copy + Send + 's,
    ) -> Vec<ScopedJoinHandle<'s, Tally>> {
        let start = |slot| {
            let actor = Actor::new(slot, Maker::new(context, slot), rng.fork(), self);
            scope.spawn(move || work(actor))
        };
        (0..self.roll.0.len()).map(start).collect()
    }
}

impl<'s> Actor<'s> {
    pub(crate) fn new(slot: usize, maker: Maker, rng: Rng, shared: &'s Shared<'s>) -> Self {
        Self { slot, maker, rng, tally: Tally::default(), shared }
    }

    /// Makes the calling thread the actor's thread until the result is dropped.
    pub(crate) fn appear(&self) -> Present<'s> {
        self.shared.roll.enter(self.slot)
    }

    /// At the end of the thread, lets it run on all CPUs again, and counts how often it was preempted.
    pub(crate) fn settle(&mut self) {
        // The kernel may refuse this, as any change of the CPUs.
        let _ = run_on(self.shared.cpus);
        self.tally.counts.add_many(Count::Preempted, preemptions());
    }

    /// Notes that the actor has begun a section.
    pub(crate) fn begin(&self, sections: &Sections) -> Instant {
        sections.begin(self.slot);
        Instant::now()
    }

    /// Notes that the actor is about to end the section that it began at `begun`.
    pub(crate) fn end(&mut self, sections: &Sections, begun: Instant) {
        self.tally.times[SECTIONS].add(begun.elapsed());
        sections.end(self.slot);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.is_stopped()
    }

    /// True in one of `number` calls, on average.
    pub(crate) fn once_in(&mut self, number: u32) -> bool {
        self.rng.u32(0..number) == 0
    }

    /// Passes time: none, some, or a lot.
    pub(crate) fn pause(&mut self) {
        match self.rng.u32(0..1000) {
            0..600 => {}
            600..850 => spin(&mut self.rng, 1..14),
            850..966 => thread::yield_now(),
            966..980 => self.move_away(),
            980..998 => self.sleep(Duration::from_micros(200)),
            _ => self.sleep(Duration::from_millis(4)),
        }
    }

    pub(crate) fn sleep(&mut self, longest: Duration) {
        self.tally.count(Count::Slept);
        thread::sleep(longest.mul_f64(self.rng.f64()));
    }

    /// Moves to another CPU, or allows all CPUs again.
    fn move_away(&mut self) {
        let cpus = self.shared.cpus;
        let moved = match cpus.get(self.rng.usize(0..=cpus.len())) {
            Some(&cpu) => run_on(&[cpu]),
            None => run_on(cpus),
        };
        if moved.is_ok() {
            self.tally.count(Count::Moved);
        }
    }
}

/// Spins for a random number of turns, up to two to the power of a random one of `magnitudes`.
pub(crate) fn spin(rng: &mut Rng, magnitudes: impl std::ops::RangeBounds<u32>) {
    let longest = 1 << rng.u32(magnitudes);
    (0..rng.u32(0..longest)).for_each(|_| std::hint::spin_loop());
}

/// How often the calling thread was preempted.
fn preemptions() -> u64 {
    // SAFETY: all zeroes are a valid `rusage`, which the call fills.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is alive for the call.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    u64::try_from(usage.ru_nivcsw).unwrap_or(0)
}

/// Whether the run must end early.
pub(crate) fn is_over(context: &Context) -> bool {
    context.findings.any() || interrupt::requested()
}

/// Sleeps while the others work, unless the run ends early.
pub(crate) fn rest(context: &Context, duration: Duration) {
    let end = Instant::now() + duration;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || is_over(context) {
            return;
        }
        thread::sleep(left.min(Duration::from_millis(5)));
    }
}

/// Joins threads that count.
pub(crate) fn join_all(context: &Context, threads: Vec<ScopedJoinHandle<'_, Tally>>) -> Tally {
    let mut tally = Tally::default();
    threads.into_iter().for_each(|thread| tally.merge(&join(context, thread)));
    tally
}

/// Joins a thread. A panic of the thread is a finding.
pub(crate) fn join<T: Default>(context: &Context, thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        context.find(|| format!("a thread panicked: {}", text.unwrap_or("without a message")));
        T::default()
    })
}

/// One place for each slot.
#[derive(Debug)]
pub(crate) struct Roll(Box<[AtomicU32]>);

/// A thread on the roll, until this is dropped.
#[derive(Debug)]
pub(crate) struct Present<'r>(&'r AtomicU32);

// Relaxed throughout: an id that is out of date does no harm; its signal reaches no thread, or another thread.
impl Roll {
    pub(crate) fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| AtomicU32::new(0)).collect())
    }

    /// Gives this slot to the calling thread.
    pub(crate) fn enter(&self, slot: usize) -> Present<'_> {
        self.0[slot].store(own_id(), Ordering::Relaxed);
        Present(&self.0[slot])
    }

    /// A random slot, and its thread.
    pub(crate) fn pick(&self, rng: &mut Rng) -> Option<(usize, u32)> {
        let slot = rng.usize(0..self.0.len());
        Some((slot, self.thread_of(slot)?))
    }

    /// The thread of this slot, if there is one.
    pub(crate) fn thread_of(&self, slot: usize) -> Option<u32> {
        let thread = self.0[slot].load(Ordering::Relaxed);
        (thread != 0).then_some(thread)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// The kernel's id of the calling thread.
pub(crate) fn own_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// The sections of one domain, one slot for each thread.
#[derive(Debug)]
pub(crate) struct Sections(Box<[Slot]>);

/// A slot in its own cache line: a reader's store must not wait for another reader's.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(AtomicU64);

impl Sections {
    pub(crate) fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| Slot::default()).collect())
    }

    /// Notes that the thread of this slot has begun a section.
    pub(crate) fn begin(&self, slot: usize) {
        self.step(slot);
    }

    /// Notes that the thread of this slot is about to end its section.
    pub(crate) fn end(&self, slot: usize) {
        self.step(slot);
    }

    /// Whether the thread of this slot is inside a section.
    pub(crate) fn is_inside(&self, slot: usize) -> bool {
        // Relaxed: for statistics.
        self.0[slot].0.load(Ordering::Relaxed) % 2 == 1
    }

    fn step(&self, slot: usize) {
        let Slot(number) = &self.0[slot];
        // Relaxed: the thread reads its own store. Release: pairs with the acquire load in `now`: the section began before a
        // thread that sees its number started its token.
        number.store(number.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// The open sections. Take them before you start the grace period.
    pub(crate) fn now(&self) -> Snapshot {
        let inside = self.0.iter().enumerate().filter_map(|(slot, Slot(number))| {
            // Acquire: pairs with the release in `step`.
            let number = number.load(Ordering::Acquire);
            (number % 2 == 1).then_some((slot, number))
        });
        Snapshot(inside.collect())
    }
}

/// The sections that were open at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot(Vec<(usize, u64)>);

impl Snapshot {
    /// Checks that all of them have ended. `what` names what claims to be over, for the finding.
    pub(crate) fn verify(&self, sections: &Sections, context: &Context, what: &str) {
        for &(slot, number) in &self.0 {
            // Relaxed: the reader's store before the end of its section happens before the claim that the grace period is over.
            if sections.0[slot].0.load(Ordering::Relaxed) == number {
                context.find(|| {
                    format!("{what} was over although section {number} of thread {slot}, which began before it, had not ended")
                });
            }
        }
    }
}

/// How long the thread sleeps at a time. If it sleeps for longer than twice this, because the machine stood still,
/// only twice this counts.
const SLICE: Duration = Duration::from_millis(50);

/// The most turns of a spinning loop in one clone of a waker.
const LONGEST_CLONE: u32 = 256;

struct Unpark {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Unpark {
    fn new() -> Arc<Self> {
        Arc::new(Self { thread: thread::current(), is_woken: AtomicBool::new(true) })
    }

    fn wake(&self) {
        // Release: pairs with the acquire in `block_on`: the poll sees what happened before the wake-up.
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }

    fn waker(self: Arc<Self>) -> Waker {
        // SAFETY: the functions of `FUNCTIONS` expect such a pointer, and may be called by any thread, since `Unpark` is `Send`
        // and `Sync`.
        unsafe { Waker::from_raw(raw(Arc::into_raw(self))) }
    }
}

/// The data of each waker is a counted reference: what `Arc::into_raw` returned.
const FUNCTIONS: RawWakerVTable = RawWakerVTable::new(
    |data| {
        (0..fastrand::u32(0..LONGEST_CLONE)).for_each(|_| std::hint::spin_loop());
        let unpark = data.cast::<Unpark>();
        // SAFETY: `data` is a counted reference, which the caller keeps. The new waker has one of its own.
        unsafe { Arc::increment_strong_count(unpark) };
        raw(unpark)
    },
    // SAFETY: `data` is a counted reference, which the caller gives up.
    |data| unsafe { Arc::from_raw(data.cast::<Unpark>()) }.wake(),
    // SAFETY: `data` is a counted reference, which the caller keeps.
    |data| unsafe { &*data.cast::<Unpark>() }.wake(),
    // SAFETY: `data` is a counted reference, which the caller gives up.
    |data| drop(unsafe { Arc::from_raw(data.cast::<Unpark>()) }),
);

fn raw(unpark: *const Unpark) -> RawWaker {
    RawWaker::new(unpark.cast(), &FUNCTIONS)
}

/// Waits for a future, and polls it only after a wake-up, so that a lost wake-up is noticed. `None` if it is not
/// ready within `limit`. Time in which the machine stood still does not count.
pub(crate) fn block_on<F: Future>(future: F, limit: Duration) -> Option<F::Output> {
    let mut future = pin!(future);
    let unpark = Unpark::new();
    let waker = Arc::clone(&unpark).waker();
    let mut waited = Duration::ZERO;
    while waited < limit {
        // Acquire: pairs with the release in `Unpark::wake`.
        if unpark.is_woken.swap(false, Ordering::Acquire)
            && let Poll::Ready(output) = future.as_mut().poll(&mut task::Context::from_waker(&waker))
        {
            return Some(output);
        }
        let begun = Instant::now();
        thread::park_timeout(SLICE);
        waited += begun.elapsed().min(2 * SLICE);
    }
    None
}

/// Polls a future once or a few times, and drops it if it is not ready.
pub(crate) fn poll_and_drop<F: Future>(future: F, polls: u32) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut context = task::Context::from_waker(Waker::noop());
    (0..polls).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

/// Lines: 16 MiB, more than the caches of a core hold, so that a store has to wait for its line.
const LINES: usize = 1 << 18;
/// The distance in lines from one store to the next: an odd number, so that all lines are reached, and more than a page, so that
/// no prefetcher helps.
const STRIDE: usize = 4099;

/// Memory to which one thread stores only to keep its store buffer busy.
#[derive(Debug)]
pub(crate) struct Stores {
    lines: Box<[Line]>,
    next: Cell<usize>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

impl Stores {
    pub(crate) fn new() -> Self {
        let lines = (0..LINES).map(|_| Line::default()).collect();
        // The compiler must assume that the stores are read; otherwise it may omit them, and has done so.
        Self { lines: black_box(lines), next: Cell::new(0) }
    }

    /// Stores to `number` lines that are probably in no near cache.
    #[inline]
    pub(crate) fn fill(&self, number: usize) {
        for _ in 0..number {
            let next = (self.next.get() + STRIDE) % LINES;
            self.next.set(next);
            // Relaxed: no thread reads it.
            self.lines[next].0.store(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Findings;

    #[test]
    fn a_section_that_goes_on_is_found() {
        let (sections, context) = (Sections::new(2), Context::leak(1, Findings::leak()));
        sections.begin(1);
        let snapshot = sections.now();
        snapshot.verify(&sections, context, "token");
        assert_eq!(context.findings.number(), 1);
        assert!(context.findings.texts()[0].contains("token was over although section 1 of thread 1"));
    }

    #[test]
    fn sections_that_ended_or_began_later_are_not() {
        let (sections, context) = (Sections::new(2), Context::leak(1, Findings::leak()));
        sections.begin(0);
        let snapshot = sections.now();
        sections.end(0);
        sections.begin(0);
        sections.begin(1);
        snapshot.verify(&sections, context, "token");
        assert!(!context.findings.any());
    }

    #[test]
    fn a_future_that_wakes_nobody_is_given_up() {
        let limit = Duration::from_millis(5);
        assert_eq!(block_on(std::future::ready(1), limit), Some(1));
        assert_eq!(block_on(std::future::pending::<()>(), limit), None);
        assert_eq!(poll_and_drop(std::future::pending::<()>(), 3), None);
    }

    #[test]
    fn a_future_that_is_woken_by_another_thread_goes_on() {
        let mut woken = false;
        let future = std::future::poll_fn(|context| {
            if std::mem::replace(&mut woken, true) {
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            thread::spawn(move || waker.wake());
            Poll::Pending
        });
        assert_eq!(block_on(future, Duration::from_secs(60)), Some(()));
    }
}
