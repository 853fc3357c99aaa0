//! A queue of delayed items for a task, like `tokio_util::time::DelayQueue`. Here other threads can add items as well,
//! through mailboxes, and any code that has an item's handle can cancel it or delay it again.
//!
//! `poll_expired` does what `poll_next` of a `Stream` should: an `impl Stream for DelayQueue` only has to call it.
//!
//! Run it with `cargo run --example delay_queue`.

use std::error::Error;
use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use stillpoint::timer::shared::{Cause, Remote, TimerService};
use stillpoint::timer::{Clock, Full, Key, Limit};

/// Yields its items when their time has come, by the clock of a tokio runtime.
struct DelayQueue<T> {
    service: TimerService<T>,
    clock: Clock,
    /// Wakes the task at the service's next deadline. If an earlier item is added meanwhile, by this task or by another
    /// thread, the service wakes the task.
    sleep: Pin<Box<tokio::time::Sleep>>,
}

impl<T: Unpin> DelayQueue<T> {
    /// Must be called within a runtime.
    fn new() -> Self {
        let clock = Clock::new();
        let service = TimerService::new(clock.now()).sleeping();
        Self { service, clock, sleep: Box::pin(tokio::time::sleep(Duration::ZERO)) }
    }

    fn insert(&mut self, item: T, delay: Duration) -> Result<Key, Full<T>> {
        // A delay that is too long for the clock never ends.
        self.service.add(self.clock.now().saturating_add(self.clock.ticks_of(delay)), item)
    }

    fn remove(&mut self, key: Key) -> Option<T> {
        self.service.cancel(key)
    }

    /// What another thread needs to add items.
    fn remote(&self) -> (Remote<T>, Clock) {
        (self.service.remote(), self.clock.clone())
    }

    /// The next item that is due. The queue never ends: other threads may add an item at any time.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        loop {
            let mut item = None;
            // One at a time: the next call takes the next one. What was revoked comes here as well, as many as there are, and is dropped.
            let one = Limit::expiries(1).moves(64);
            let polled = self.service.poll_run(self.clock.now(), one, cx, |_, event| {
                if event.cause() == Cause::Expired {
                    item = event.into_value();
                }
            });
            match (item, polled) {
                (Some(item), _) => return Poll::Ready(item),
                // Only moves, the end of a cancelled timer, or a mailbox that another thread is just making: other tasks come first.
                (None, Poll::Ready(_)) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                (None, Poll::Pending) => {}
            }
            let Some(deadline) = self.service.next_deadline() else { return Poll::Pending };
            let left = deadline.saturating_sub(self.clock.now());
            let wake_at = tokio::time::Instant::now() + self.clock.duration_of(left);
            self.sleep.as_mut().reset(wake_at);
            if self.sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Waits for the next item.
    async fn next(&mut self) -> T {
        poll_fn(|cx| self.poll_expired(cx)).await
    }
}

/// Runs the example. One test runs all files of this folder.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
    runtime.block_on(async {
        let mut queue = DelayQueue::new();
        queue.insert("second", Duration::from_millis(40))?;
        let never = queue.insert("never", Duration::from_millis(30))?;
        assert_eq!(queue.remove(never), Some("never"));

        // Another thread adds an item that is due first, which wakes the sleeping task.
        let (remote, clock) = queue.remote();
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            let deadline = clock.now() + clock.ticks_of(Duration::from_millis(5));
            remote.mailbox(4).add(&remote.timer(), deadline, "first")
        });
        let items = [queue.next().await, queue.next().await];
        println!("{items:?}");
        assert_eq!(items, ["first", "second"]);
        assert!(other.join().is_ok_and(|added| added.is_ok()));
        Ok(())
    })
}
