//! Futures that wait for readers: a lost wake-up is a deadlock.

use std::future::Future;
use std::pin::{pin, Pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::{domain, explore, EVERY};
use crate::fence::model::HAS_REQUESTS;
use crate::rcu::engine::wait::wakers::{Place, Wakers};
use crate::rcu::wait::{GracePeriod, SynchronizeError, Token};
use crate::rcu::Domain;

/// A thread that sleeps until its task is woken.
struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Parker {
    fn wait(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !std::mem::take(&mut *woken) {
            woken = self.changed.wait(woken).unwrap();
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

/// An executor of one task.
fn block_on<F: Future>(future: F) -> F::Output {
    let (parker, waker) = parker();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        parker.wait();
    }
}

/// As [`explore`], with the fences of requests.
fn explore_requests(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    explore(preemptions, move || {
        HAS_REQUESTS.set(true);
        model();
    });
}

fn wait(domain: &Domain, token: Token) {
    assert_eq!(block_on(domain.grace_period(token)), Ok(()));
}

/// A reader that enters and leaves one section.
fn one_section(domain: &Domain) {
    let reader = domain.reader();
    drop(reader.pin());
    // A reader that is dropped would answer once more.
    std::mem::forget(reader);
}

fn spawn(domain: &Domain, function: impl FnOnce(&Domain) + 'static) -> thread::JoinHandle<()> {
    let domain = domain.clone();
    thread::spawn(move || function(&domain))
}

/// Explores a future that waits for what another thread reads.
fn wait_for(preemptions: usize, reads: fn(&Domain)) {
    explore_requests(preemptions, move || {
        let domain = domain();
        let reader = spawn(&domain, reads);
        wait(&domain, domain.start());
        reader.join().unwrap();
    });
}

/// The reader's only section ends while the future is polled.
#[test]
fn a_guard_wakes_a_future() {
    wait_for(3, one_section);
}

/// The reader reports once, then never again.
#[test]
fn a_report_wakes_a_future() {
    explore_requests(3, || {
        let domain = domain();
        let token = Arc::new(AtomicBool::new(false));
        let started = Arc::clone(&token);
        let reader = spawn(&domain, move |domain| {
            let mut reader = domain.qsbr_reader();
            while !started.load(Ordering::Acquire) {
                thread::yield_now();
            }
            reader.quiescent();
            std::mem::forget(reader);
        });
        let over = domain.start();
        token.store(true, Ordering::Release);
        wait(&domain, over);
        reader.join().unwrap();
    });
}

/// The end of a reader answers as the end of a section does.
#[test]
fn the_end_of_a_reader_wakes_a_future() {
    wait_for(3, |domain| {
        let reader = domain.reader();
        std::mem::forget(reader.pin());
    });
}

/// Explores two threads that wait for one section: this one by a future, and another one by `other`.
fn wait_beside(other: fn(&Domain, Token)) {
    explore_requests(2, move || {
        let domain = domain();
        let reader = spawn(&domain, one_section);
        let token = domain.start();
        let other = spawn(&domain, move |domain| other(domain, token));
        wait(&domain, token);
        other.join().unwrap();
        reader.join().unwrap();
    });
}

/// The second future relies on the fence of the first.
#[test]
fn futures_share_a_request() {
    wait_beside(wait);
}

/// A future that is dropped while the reader wakes it takes away nothing that the other future needs.
#[test]
fn a_dropped_future_leaves_the_others_alone() {
    wait_beside(|domain, token| {
        let mut future = pin!(domain.grace_period(token));
        let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    });
}

/// A thread that waits for its task to be woken, and the task's waker.
fn parker() -> (Arc<Parker>, Waker) {
    let parker = Arc::new(Parker { woken: Mutex::new(false), changed: Condvar::new() });
    (Arc::clone(&parker), Waker::from(parker))
}

fn poll(future: Pin<&mut Option<GracePeriod>>, waker: &Waker) -> Poll<Result<(), SynchronizeError>> {
    let future = future.as_pin_mut().expect("the future was not dropped");
    future.poll(&mut Context::from_waker(waker))
}

/// Three futures wait for one reader, which wakes at most two of them when it leaves. The first one is never polled again. `next`
/// says what becomes of the second one when it is woken. The third one is woken in any case.
fn the_third_is_woken(next: fn(Pin<&mut Option<GracePeriod>>, &Waker)) {
    explore_requests(2, move || {
        let domain = domain();
        let reader = spawn(&domain, one_section);
        let token = domain.start();
        let mut first = pin!(domain.grace_period(token));
        let _ = first.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let (second_parker, second_waker) = parker();
        let mut second = pin!(Some(domain.grace_period(token)));
        let is_pending = poll(second.as_mut(), &second_waker).is_pending();
        let (third_parker, third_waker) = parker();
        let mut third = pin!(domain.grace_period(token));
        let mut is_over = third.as_mut().poll(&mut Context::from_waker(&third_waker)).is_ready();
        if is_pending {
            second_parker.wait();
            next(second.as_mut(), &second_waker);
        }
        while !is_over {
            third_parker.wait();
            is_over = third.as_mut().poll(&mut Context::from_waker(&third_waker)).is_ready();
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_woken_future_that_is_polled_passes_on_its_share() {
    the_third_is_woken(|second, waker| _ = poll(second, waker));
}

#[test]
fn a_woken_future_that_is_dropped_passes_on_its_share() {
    the_third_is_woken(|mut second, _| second.set(None));
}

/// The record of the awaited reader changes hands. The new holder may still load the old token, since it
/// registers before its fence.
#[test]
fn a_request_stays_when_the_record_changes_hands() {
    wait_for(4, |domain| {
        drop(domain.qsbr_reader());
        drop(domain.qsbr_reader());
    });
}

/// A reader that leaves while another future is at the queue leaves the wake-ups to that future.
#[test]
fn a_reader_that_finds_the_queue_locked_leaves_word() {
    explore_requests(EVERY, || {
        let wakers = loom::sync::Arc::new(Wakers::new());
        let (woken, waker) = parker();
        let place = || Place::new(1, Duration::ZERO);
        let (first, second) = (place(), place());
        wakers.set(&first, waker);
        let leaving = wakers.clone();
        let reader = thread::spawn(move || leaving.wake_all());
        wakers.set(&second, Waker::noop().clone());
        reader.join().unwrap();
        woken.wait();
        [first, second].into_iter().for_each(|place| wakers.remove(place));
    });
}

/// A waker that polls its future in place, and drops it when it is ready.
struct InPlace(loom::sync::Arc<Wakers>);

impl Wake for InPlace {
    fn wake(self: Arc<Self>) {
        let place = Place::new(1, Duration::ZERO);
        self.0.set(&place, Waker::noop().clone());
        self.0.remove(place);
    }
}

/// The reader wakes two futures. The first one is polled within that call, which then wakes the third one, too.
#[test]
fn a_waker_polls_its_future_in_place() {
    explore_requests(3, || {
        let wakers = loom::sync::Arc::new(Wakers::new());
        let place = || Place::new(1, Duration::ZERO);
        let (first, second, third) = (place(), place(), place());
        wakers.set(&first, Waker::from(Arc::new(InPlace(wakers.clone()))));
        wakers.set(&second, Waker::noop().clone());
        let (woken, waker) = parker();
        wakers.set(&third, waker);
        let leaving = wakers.clone();
        let reader = thread::spawn(move || leaving.wake_all());
        let other = place();
        wakers.set(&other, Waker::noop().clone());
        woken.wait();
        reader.join().unwrap();
        [first, second, third, other].into_iter().for_each(|place| wakers.remove(place));
    });
}

/// A future that leaves a waker after a reader's look for wakers sees what was done before that look.
#[test]
fn a_waker_is_found_or_its_owner_sees_why_it_need_not_be() {
    explore_requests(EVERY, || {
        let shared = loom::sync::Arc::new((Wakers::new(), AtomicBool::new(false)));
        let (woken, waker) = parker();
        let place = Place::new(1, Duration::ZERO);
        let leaving = shared.clone();
        let reader = thread::spawn(move || {
            let (wakers, has_passed) = &*leaving;
            has_passed.store(true, Ordering::Relaxed);
            wakers.wake_all();
        });
        let (wakers, has_passed) = &*shared;
        wakers.set(&place, waker);
        if !has_passed.load(Ordering::Relaxed) {
            woken.wait();
        }
        wakers.remove(place);
        reader.join().unwrap();
    });
}
