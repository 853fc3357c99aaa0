//! Code of users that panics: destructors, wakers, clocks, sleeps.

use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

use stillpoint::timer::delay_queue::DelayQueue;

use super::mock::{due, insert, queue, Call, HOUR, MS};

fn panics<R>(call: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(call()))).is_err()
}

/// Panics in its destructor, once.
#[derive(Debug)]
struct Bomb(u32, Arc<AtomicBool>);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.1.swap(false, Ordering::SeqCst) {
            panic!("on purpose");
        }
    }
}

#[test]
fn a_destructor_that_panics_leaves_the_rest_in_the_queue() {
    let (queue, mock) = queue();
    let armed = Arc::new(AtomicBool::new(false));
    for number in 0..10 {
        insert(&queue, Bomb(number, Arc::clone(&armed)), MS);
    }
    let mut leader = Call::waiting(&queue, &mock);
    armed.store(true, Ordering::SeqCst);
    assert!(panics(|| queue.clear()));
    assert_eq!(queue.len(), 9);
    mock.advance(MS);
    assert!(leader.poll().is_ready());
    armed.store(true, Ordering::SeqCst);
    assert!(panics(|| drop(queue.try_next())));
    assert_eq!(queue.len(), 7);
    // The iterator is dropped, too, and the rest with it.
    armed.store(true, Ordering::SeqCst);
    assert!(panics(|| queue.drain().nth(3)));
    assert!(queue.is_empty());
    insert(&queue, Bomb(10, armed), Duration::ZERO);
    assert_eq!(due(&queue)[0].0, 10);
}

/// A destructor that uses the queue: values are dropped outside of the lock.
#[test]
fn destructors_may_use_the_queue() {
    struct Again(Arc<DelayQueue<Again>>, u32);

    impl Drop for Again {
        fn drop(&mut self) {
            if self.1 > 0 {
                let again = Again(Arc::clone(&self.0), self.1 - 1);
                assert!(self.0.insert_at(again, Instant::now() - HOUR).is_ok());
            }
            assert!(self.0.len() < 10);
        }
    }

    let queue = Arc::new(DelayQueue::new());
    for _ in 0..3 {
        insert(&queue, Again(Arc::clone(&queue), 2), HOUR);
    }
    queue.clear();
    while let Some(item) = queue.try_next() {
        drop(item);
    }
    assert!(queue.is_empty());
    queue.close();
    let key = DelayQueue::new().insert(0, HOUR).unwrap();
    assert!(queue.remove(&key).is_none());
    assert!(queue.insert(Again(Arc::clone(&queue), 0), HOUR).is_err());
}

#[test]
fn a_waker_that_panics_takes_no_answer_away() {
    struct Broken(AtomicUsize);

    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("on purpose");
        }
    }

    let (queue, mock) = queue();
    let broken = Arc::new(Broken(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&broken));
    let mut calls = [(); 2].map(|()| Call::new(&queue, &mock));
    assert!(calls.iter_mut().all(|call| call.poll_by(&waker).is_pending()));
    let key = insert(&queue, 1, HOUR);
    assert_eq!(broken.0.load(Ordering::SeqCst), 1);
    assert!(calls[0].poll_by(&waker).is_pending());
    assert!(queue.reset(&key, Duration::ZERO));
    assert_eq!(calls[0].poll_by(&waker), Poll::Ready(Some(1))); // wakes the other
    assert_eq!(broken.0.load(Ordering::SeqCst), 3);
    assert_eq!(calls[1].poll_by(&waker), Poll::Pending);
    queue.close();
    assert_eq!(broken.0.load(Ordering::SeqCst), 4);
}

static ARMED: AtomicBool = AtomicBool::new(false);

/// Panics when it is cloned, or dropped, if that is armed.
const FRAGILE: RawWakerVTable = {
    fn burst() {
        if ARMED.swap(false, Ordering::SeqCst) {
            panic!("on purpose");
        }
    }
    RawWakerVTable::new(
        |data| {
            burst();
            RawWaker::new(data, &FRAGILE)
        },
        |_| {},
        |_| {},
        |_| burst(),
    )
};

#[test]
fn a_waker_that_panics_when_it_is_cloned_or_dropped_leaves_the_queue_valid() {
    // SAFETY: the functions do nothing with their data.
    let fragile = [1, 2].map(|data| unsafe { Waker::new(std::ptr::without_provenance(data), &FRAGILE) });
    let (queue, mock) = queue();
    let key = insert(&queue, 1, HOUR);
    let mut call = Call::new(&queue, &mock);
    ARMED.store(true, Ordering::SeqCst);
    assert!(panics(|| call.poll_by(&fragile[0])));
    let mut call = Call::new(&queue, &mock);
    assert!(call.poll_by(&fragile[0]).is_pending());
    ARMED.store(true, Ordering::SeqCst);
    assert!(queue.reset(&key, Duration::ZERO));
    assert!(!ARMED.load(Ordering::SeqCst) || call.poll_by(&fragile[1]).is_ready());
    drop(call);
    ARMED.store(false, Ordering::SeqCst);
    // The item comes with the drop of the waker that was registered.
    insert(&queue, 2, MS);
    let mut call = Call::new(&queue, &mock);
    assert!(call.poll_by(&fragile[0]).is_pending());
    mock.advance(MS);
    ARMED.store(true, Ordering::SeqCst);
    let polled = call.poll_by(&fragile[0]);
    ARMED.store(false, Ordering::SeqCst);
    assert!(matches!(polled, Poll::Ready(Some(1 | 2))), "{polled:?}");
}

#[test]
fn a_clock_or_a_sleep_that_panics_leaves_the_queue_valid() {
    let broken = Arc::new(AtomicBool::new(false));
    let is_broken = Arc::clone(&broken);
    let queue = DelayQueue::new().timed_by(move || {
        assert!(!is_broken.load(Ordering::SeqCst), "on purpose");
        Instant::now()
    });
    let key = insert(&queue, 1, HOUR);
    broken.store(true, Ordering::SeqCst);
    assert!(
        panics(|| queue.insert(2, HOUR)) && panics(|| queue.reset(&key, HOUR)) && panics(|| queue.try_next())
    );
    broken.store(false, Ordering::SeqCst);

    let mut cx = Context::from_waker(Waker::noop());
    {
        let mut next = pin!(queue.next(|_| -> std::future::Pending<()> { panic!("on purpose") }));
        assert!(panics(|| next.as_mut().poll(&mut cx)));
        // The future is not dropped, but it has left the queue: another leads.
        assert!(queue.reset_at(&key, Instant::now() - HOUR));
        let mut other = pin!(queue.next(|_| std::future::pending()));
        assert!(other.as_mut().poll(&mut cx).is_ready());
    }
    assert!(queue.is_empty());
}

/// Only the call that has taken an item can return it.
#[test]
fn a_sleep_that_panics_when_it_is_dropped_takes_no_item_away() {
    struct Bomb;

    impl Future for Bomb {
        type Output = ();

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a sleep that is not over");
        }
    }

    let queue = DelayQueue::new();
    queue.insert(1, Duration::from_secs(3_600)).expect("there is room");
    let mut next = pin!(queue.next(|_| Bomb));
    let mut context = Context::from_waker(Waker::noop());
    assert!(next.as_mut().poll(&mut context).is_pending());
    let begun = Instant::now();
    queue.insert_at(2, begun).expect("there is room");
    while begun.elapsed() < Duration::from_micros(10) {} // longer than a tick, so it is due
    let Poll::Ready(item) = next.as_mut().poll(&mut context) else { panic!("it is due") };
    assert_eq!(item.map(|item| item.into_inner()), Some(2));
}
