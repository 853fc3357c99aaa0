//! A `Sleep` future, served by a wheel inside a small executor for one thread.
//!
//! The executor polls the tasks that were woken. When there are none, it sleeps until the wheel's next deadline, or until another
//! thread wakes a task. A future that is dropped cancels its timer.
//!
//! Run it with `cargo run --example sleep`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::error::Error;
use std::future::Future;
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use stillpoint::timer::{Clock, Key, Limit, Wheel};

/// The executor's timers, shared by its tasks, which are all on one thread.
#[derive(Clone)]
struct Timers {
    wheel: Rc<RefCell<Wheel<Waker>>>,
    clock: Clock,
}

impl Timers {
    fn new(clock: Clock) -> Self {
        Self { wheel: Rc::new(RefCell::new(Wheel::new(clock.now()))), clock }
    }

    /// A future that is ready after `duration`.
    fn sleep(&self, duration: Duration) -> Sleep {
        let deadline = self.clock.now().saturating_add(self.clock.ticks_of(duration));
        Sleep { timers: self.clone(), deadline, key: None }
    }

    /// Wakes the tasks that are due, and returns the time until the next deadline, or `None` if there is none.
    fn advance(&self) -> Option<Duration> {
        let now = self.clock.now();
        let mut due = Vec::new();
        let mut wheel = self.wheel.borrow_mut();
        let progress = wheel.poll(now, Limit::NONE, |_, expired| due.extend(expired.into_value()));
        assert!(progress.is_done());
        let next = wheel.next_deadline();
        // Wakers are foreign code, which may use the wheel.
        drop(wheel);
        due.into_iter().for_each(Waker::wake);
        next.map(|next| self.clock.duration_of(next - now))
    }
}

/// A future that is ready at its deadline.
struct Sleep {
    timers: Timers,
    deadline: u64,
    key: Option<Key>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let timers = self.timers.clone();
        let mut wheel = timers.wheel.borrow_mut();
        if wheel.now() >= self.deadline {
            return Poll::Ready(());
        }
        // The waker is the timer's value: the latest one replaces it.
        match self.key.and_then(|key| wheel.get_mut(key)) {
            Some(waker) => waker.clone_from(context.waker()),
            None => {
                let added = wheel.add(self.deadline, context.waker().clone());
                self.key = Some(added.expect("a wheel without a limit, and there is memory"));
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.timers.wheel.borrow_mut().cancel(key);
        }
    }
}

/// The numbers of tasks that were woken.
type Queue = Arc<Mutex<VecDeque<usize>>>;

struct Task {
    number: usize,
    queue: Queue,
    executor: Thread,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.number);
        // It may be asleep. If not, its next sleep ends at once.
        self.executor.unpark();
    }
}

/// Runs the futures to completion on this thread.
fn run(timers: &Timers, futures: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    let queue: Queue = Arc::new(Mutex::new((0..futures.len()).collect()));
    let mut futures: Vec<_> = futures.into_iter().map(Some).collect();
    let mut left = futures.len();
    while left > 0 {
        // At each turn, so that tasks that wake each other all the time do not hold timers up.
        let idle = timers.advance();
        let woken = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(number) = woken else {
            match idle {
                Some(idle) => thread::park_timeout(idle),
                None => thread::park(),
            }
            continue;
        };
        let waker =
            Waker::from(Arc::new(Task { number, queue: Arc::clone(&queue), executor: thread::current() }));
        let finished = futures[number]
            .as_mut()
            .is_some_and(|future| future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        if finished {
            futures[number] = None;
            left -= 1;
        }
    }
}

/// Whether the future completes before the deadline.
async fn timeout(sleep: Sleep, future: impl Future<Output = ()>) -> bool {
    let (mut sleep, mut future) = (pin!(sleep), pin!(future));
    std::future::poll_fn(|context| {
        if future.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        sleep.as_mut().poll(context).map(|()| false)
    })
    .await
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let timers = Timers::new(Clock::new());
    let begin = Instant::now();
    let slept = Cell::new(0);
    let mut futures: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
    for number in 0..100u64 {
        let (timers, slept) = (&timers, &slept);
        futures.push(Box::pin(async move {
            // Ten tasks share each deadline.
            let time = Duration::from_millis(10 + number / 10 * 10);
            timers.sleep(time).await;
            assert!(begin.elapsed() >= time, "it woke early");
            slept.set(slept.get() + 1);
        }));
    }
    futures.push(Box::pin(async {
        let hour = timers.sleep(Duration::from_secs(3_600));
        assert!(
            !timeout(timers.sleep(Duration::from_millis(30)), hour).await,
            "an hour is longer than 30 ms"
        );
    }));
    run(&timers, futures);

    assert_eq!(slept.get(), 100);
    assert!(timers.wheel.borrow().is_empty(), "the timers of futures that were dropped are cancelled");
    println!("{} tasks have slept", slept.get());
    Ok(())
}
