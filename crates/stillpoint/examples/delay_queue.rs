//! A queue of delayed items for a task, in place of `tokio_util::time::DelayQueue`: items may also come from other threads, by a
//! mailbox each, and every one of them can be cancelled or delayed again by anybody who has its handle.
//!
//! `poll_expired` is what `poll_next` of a `Stream` asks for: an `impl Stream for DelayQueue` calls it and nothing else.
//!
//! Run it with `cargo run --example delay_queue`.

use std::error::Error;
use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use stillpoint::timer::{Clock, Full, Key, Limit, Remote, TimerService};

/// Yields its items when their time has come, in the time of a tokio runtime.
struct DelayQueue<T> {
    service: TimerService<T>,
    clock: Clock,
    /// Wakes the task at the service's next deadline; other threads do when they add an earlier one.
    sleep: Pin<Box<tokio::time::Sleep>>,
}

impl<T: Unpin> DelayQueue<T> {
    /// Within a runtime.
    fn new() -> Self {
        let clock = Clock::new();
        let service = TimerService::new(clock.now()).sleeping();
        Self { service, clock, sleep: Box::pin(tokio::time::sleep(Duration::ZERO)) }
    }

    fn insert(&mut self, item: T, delay: Duration) -> Result<Key, Full<T>> {
        self.service.add(self.clock.now() + self.clock.ticks_of(delay), item)
    }

    fn remove(&mut self, key: Key) -> Option<T> {
        self.service.cancel(key)
    }

    /// The way in for other threads.
    fn remote(&self) -> (Remote<T>, Clock) {
        (self.service.remote(), self.clock.clone())
    }

    /// The next item that is due. It never ends: other threads may add one at any time.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        loop {
            let mut item = None;
            // One at a time: the next call takes the next one.
            let one = Limit::expiries(1).moves(64);
            let polled =
                self.service.poll_run(self.clock.now(), one, cx, |_, event| item = event.into_value());
            match (item, polled) {
                (Some(item), _) => return Poll::Ready(item),
                // Nothing but moves, or the end of a timer that was cancelled.
                (None, Poll::Ready(_)) => continue,
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

    /// A future of the next item.
    async fn next(&mut self) -> T {
        poll_fn(|cx| self.poll_expired(cx)).await
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
    runtime.block_on(async {
        let mut queue = DelayQueue::new();
        queue.insert("second", Duration::from_millis(40))?;
        let never = queue.insert("never", Duration::from_millis(30))?;
        assert_eq!(queue.remove(never), Some("never"));

        // Another thread adds one that comes first: the task that sleeps is woken.
        let (remote, clock) = queue.remote();
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            let deadline = clock.now() + clock.ticks_of(Duration::from_millis(5));
            remote.mailbox(4).add(&remote.timer(), deadline, "first").map_err(|error| error.kind())
        });
        let items = [queue.next().await, queue.next().await];
        println!("{items:?}");
        assert_eq!(items, ["first", "second"]);
        assert!(other.join().is_ok_and(|added| added.is_ok()));
        Ok(())
    })
}
