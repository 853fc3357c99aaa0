//! Futures without an executor: the thread itself waits for the waker. And [`Stores`] that keep a store buffer busy.
//!
//! The waker is slow to clone, as those of some executors are. A future that clones it after its last look, instead of
//! before, then often misses a wake-up. With a fast waker, it would hardly ever miss one.

use std::cell::Cell;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

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
            && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
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
    let mut context = Context::from_waker(Waker::noop());
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
