//! Futures without an executor: the thread itself waits for the waker.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long the thread sleeps at a time. If it sleeps for longer than twice this, because the machine stood still,
/// only twice this counts.
const SLICE: Duration = Duration::from_millis(50);

struct Unpark {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        // Release: pairs with the acquire in `block_on`: the poll sees what happened before the wake-up.
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Waits for a future, and polls it only after a wake-up, so that a lost wake-up is noticed. `None` if it is not
/// ready within `limit`. Time in which the machine stood still does not count.
pub(crate) fn block_on<F: Future>(future: F, limit: Duration) -> Option<F::Output> {
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark { thread: thread::current(), is_woken: AtomicBool::new(true) });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut waited = Duration::ZERO;
    while waited < limit {
        // Acquire: pairs with the release in `wake`.
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
