//! Futures that wait for readers: a wake-up that is lost is a deadlock.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::explore;
use crate::fence::model::HAS_REQUESTS;
use crate::rcu::{Domain, Token};

/// A thread that sleeps until its task is woken.
struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

/// An executor of one task.
fn block_on<F: Future>(future: F) -> F::Output {
    let parker = Arc::new(Parker { woken: Mutex::new(false), changed: Condvar::new() });
    let waker = Waker::from(Arc::clone(&parker));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut woken = parker.woken.lock().unwrap();
        while !std::mem::take(&mut *woken) {
            woken = parker.changed.wait(woken).unwrap();
        }
    }
}

/// As [`explore`], with the fences of requests.
fn explore_requests(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    explore(preemptions, move || {
        HAS_REQUESTS.set(true);
        model();
    });
}

fn domain() -> Domain {
    let mode = super::MODE.with(Cell::get);
    Domain::builder().fence(mode).build().expect("a model may do what it likes")
}

fn wait(domain: &Domain, token: Token) {
    assert_eq!(block_on(domain.grace_period(token)), Ok(()));
}

/// The one section of the reader is left while the future is polled.
#[test]
fn a_guard_wakes_a_future() {
    explore_requests(3, || {
        let domain = domain();
        let other = domain.clone();
        let reader = thread::spawn(move || {
            let reader = other.reader();
            drop(reader.pin());
            // A reader that is dropped is asked once more.
            std::mem::forget(reader);
        });
        wait(&domain, domain.start());
        reader.join().unwrap();
    });
}

/// The reader reports once, and then never again.
#[test]
fn a_report_wakes_a_future() {
    explore_requests(3, || {
        let domain = domain();
        let other = domain.clone();
        let token = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let started = Arc::clone(&token);
        let reader = thread::spawn(move || {
            let mut reader = other.qsbr_reader();
            while !started.load(loom::sync::atomic::Ordering::Acquire) {
                thread::yield_now();
            }
            reader.quiescent();
            std::mem::forget(reader);
        });
        let over = domain.start();
        token.store(true, loom::sync::atomic::Ordering::Release);
        wait(&domain, over);
        reader.join().unwrap();
    });
}

/// The end of a reader answers as the end of a section does.
#[test]
fn the_end_of_a_reader_wakes_a_future() {
    explore_requests(3, || {
        let domain = domain();
        let other = domain.clone();
        let reader = thread::spawn(move || {
            let reader = other.reader();
            std::mem::forget(reader.pin());
        });
        wait(&domain, domain.start());
        reader.join().unwrap();
    });
}

/// The second future relies on the fence of the first.
#[test]
fn futures_share_a_request() {
    explore_requests(2, || {
        let domain = domain();
        let [for_reader, for_future] = [domain.clone(), domain.clone()];
        let reader = thread::spawn(move || {
            let reader = for_reader.reader();
            drop(reader.pin());
            std::mem::forget(reader);
        });
        let token = domain.start();
        let future = thread::spawn(move || wait(&for_future, token));
        wait(&domain, token);
        future.join().unwrap();
        reader.join().unwrap();
    });
}

/// A future that is dropped while the reader wakes it takes nothing with it that the other one needs.
#[test]
fn a_dropped_future_leaves_the_others_alone() {
    explore_requests(2, || {
        let domain = domain();
        let [for_reader, for_future] = [domain.clone(), domain.clone()];
        let reader = thread::spawn(move || {
            let reader = for_reader.reader();
            drop(reader.pin());
            std::mem::forget(reader);
        });
        let token = domain.start();
        let dropped = thread::spawn(move || {
            let mut future = pin!(for_future.grace_period(token));
            let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        });
        wait(&domain, token);
        dropped.join().unwrap();
        reader.join().unwrap();
    });
}
