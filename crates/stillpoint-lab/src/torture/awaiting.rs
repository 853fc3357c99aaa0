//! Futures without an executor: the thread itself waits for the waker.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future that tells when it can go on; `None` if it does not for so long.
pub(super) fn block_on<F: Future>(future: F, limit: Duration) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        // Not looked at again before it wakes this thread: a wake-up that is lost must not go unnoticed.
        thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
    }
    None
}

/// Polls a future once or a few times, and drops it half-way if it is not ready.
pub(super) fn poll_and_drop<F: Future>(future: F, polls: u32) -> Option<F::Output> {
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
