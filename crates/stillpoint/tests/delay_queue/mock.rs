//! A queue whose time stands still until the test advances it, and futures that the test polls by hand.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use stillpoint::timer::delay_queue::{DelayQueue, Delayed};
use stillpoint::timer::Key;

/// About a millisecond, and a whole number of ticks.
pub(crate) const MS: Duration = Duration::from_nanos(1_000 * 1_024);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// The time of a queue.
#[derive(Clone)]
pub(crate) struct Mock {
    begin: Instant,
    nanoseconds: Arc<AtomicU64>,
}

impl Mock {
    pub(crate) fn now(&self) -> Instant {
        self.begin + self.passed()
    }

    pub(crate) fn begin(&self) -> Instant {
        self.begin
    }

    /// The time since the queue was made.
    pub(crate) fn passed(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::SeqCst))
    }

    pub(crate) fn advance(&self, time: Duration) {
        self.nanoseconds.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::SeqCst);
    }

    pub(crate) fn set(&self, passed: Duration) {
        self.nanoseconds.store(u64::try_from(passed.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

pub(crate) fn timed<T>(queue: DelayQueue<T>) -> (DelayQueue<T>, Mock) {
    let mock = Mock { begin: Instant::now(), nanoseconds: Arc::default() };
    let clock = mock.clone();
    (queue.timed_by(move || clock.now()), mock)
}

pub(crate) fn queue<T>() -> (DelayQueue<T>, Mock) {
    timed(DelayQueue::new())
}

/// A waker that counts.
#[derive(Default)]
pub(crate) struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    pub(crate) fn rung(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// What a call sleeps in. It ends only when it is polled.
struct Sleep {
    at: Instant,
    mock: Mock,
    current: Rc<Cell<Option<Instant>>>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.mock.now() >= self.at {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.current.set(None);
    }
}

type Next<'q, T> = Pin<Box<dyn Future<Output = Option<Delayed<T>>> + 'q>>;

/// A call of `next`.
pub(crate) struct Call<'q, T> {
    future: Next<'q, T>,
    pub(crate) bell: Arc<Bell>,
    /// The times until which it was told to sleep.
    pub(crate) sleeps: Rc<RefCell<Vec<Instant>>>,
    asleep: Rc<Cell<Option<Instant>>>,
}

impl<'q, T> Call<'q, T> {
    pub(crate) fn new(queue: &'q DelayQueue<T>, mock: &Mock) -> Self {
        let (sleeps, asleep) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(None)));
        let (log, current, mock) = (Rc::clone(&sleeps), Rc::clone(&asleep), mock.clone());
        let sleep = move |at| {
            log.borrow_mut().push(at);
            // The sleep before is gone.
            assert_eq!(current.replace(Some(at)), None);
            Sleep { at, mock: mock.clone(), current: Rc::clone(&current) }
        };
        Self { future: Box::pin(queue.next(sleep)), bell: Arc::default(), sleeps, asleep }
    }

    /// A call that waits already.
    pub(crate) fn waiting(queue: &'q DelayQueue<T>, mock: &Mock) -> Self {
        let mut call = Self::new(queue, mock);
        assert!(call.poll().is_pending());
        call
    }

    pub(crate) fn poll(&mut self) -> Poll<Option<T>> {
        self.poll_by(&Waker::from(Arc::clone(&self.bell)))
    }

    pub(crate) fn poll_by(&mut self, waker: &Waker) -> Poll<Option<T>> {
        let item = self.future.as_mut().poll(&mut Context::from_waker(waker));
        item.map(|item| item.map(Delayed::into_inner))
    }

    pub(crate) fn rung(&self) -> usize {
        self.bell.rung()
    }

    pub(crate) fn leads(&self) -> bool {
        !self.sleeps.borrow().is_empty()
    }

    /// When it wakes up by itself.
    pub(crate) fn asleep_until(&self) -> Option<Instant> {
        self.asleep.get()
    }
}

/// Inserts an item that has room.
pub(crate) fn insert<T>(queue: &DelayQueue<T>, value: T, delay: Duration) -> Key {
    queue.insert(value, delay).expect("there is room")
}

/// All items that are due.
pub(crate) fn due<T>(queue: &DelayQueue<T>) -> Vec<T> {
    std::iter::from_fn(|| queue.try_next()).map(Delayed::into_inner).collect()
}
