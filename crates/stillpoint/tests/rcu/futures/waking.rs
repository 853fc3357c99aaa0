//! A future is woken by the reader in its way, and never without a reason.

use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::pin;
use std::sync::{mpsc, Arc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use stillpoint::rcu::wait::GracePeriod;
use stillpoint::rcu::Domain;

use super::{block_on, poll, while_held, Alarm, End, ENDS};
use crate::modes::in_each_mode;

#[test]
fn a_future_goes_where_its_task_goes() {
    fn is_send_and_sync<T: Send + Sync + 'static>() {}
    is_send_and_sync::<GracePeriod>();
}

#[test]
fn without_a_reader_it_is_over_at_once() {
    in_each_mode(|domain| {
        assert_eq!(block_on(domain.grace_period(domain.start())), (Ok(()), 1));
        let (idle, qsbr) = (domain.reader(), domain.qsbr_reader().go_offline());
        assert_eq!(block_on(domain.grace_period(domain.start())), (Ok(()), 1));
        drop((idle, qsbr));
    });
}

#[test]
fn every_way_to_leave_wakes_it_once() {
    in_each_mode(|domain| {
        for end in ENDS {
            while_held(&domain, end, |leave| {
                let alarm = Alarm::new();
                let mut over = pin!(domain.grace_period(domain.start()));
                assert!(poll(over.as_mut(), &alarm).is_pending(), "{end:?}");
                assert_eq!(alarm.wakes(), 0, "{end:?}");
                drop(leave);
                alarm.wait_beyond(0);
                assert_eq!(poll(over.as_mut(), &alarm), Poll::Ready(Ok(())), "{end:?}");
                assert_eq!(alarm.wakes(), 1, "{end:?}");
                assert_eq!(poll(over.as_mut(), &alarm), Poll::Ready(Ok(())), "it stays over");
            });
        }
    });
}

#[test]
fn it_waits_for_one_reader_after_the_other() {
    in_each_mode(|domain| {
        let mut woken_by_the_first = 0;
        thread::scope(|scope| {
            let readers = [Sections::start(scope, &domain), Sections::start(scope, &domain)];
            // It is unspecified which of the two is asked. So each of them leaves first once.
            for [first, last] in [[0, 1], [1, 0]] {
                readers.iter().for_each(Sections::enter);
                let alarm = Alarm::new();
                let mut over = pin!(domain.grace_period(domain.start()));
                assert!(poll(over.as_mut(), &alarm).is_pending());
                readers[first].leave();
                woken_by_the_first += alarm.wakes();
                assert!(poll(over.as_mut(), &alarm).is_pending(), "the other one is in the way");
                let seen = alarm.wakes();
                readers[last].leave();
                assert!(alarm.wakes() > seen, "the last one wakes it");
                assert_eq!(poll(over.as_mut(), &alarm), Poll::Ready(Ok(())));
            }
        });
        assert!(woken_by_the_first > 0, "the one that is asked wakes it, whether it is the last or not");
    });
}

/// A reader on its own thread, which enters and leaves a section on request.
struct Sections {
    next: mpsc::Sender<()>,
    done: mpsc::Receiver<()>,
}

impl Sections {
    fn start<'s>(scope: &'s thread::Scope<'s, '_>, domain: &'s Domain) -> Self {
        let (next, is_next) = mpsc::channel();
        let (is_done, done) = mpsc::channel();
        scope.spawn(move || {
            let reader = domain.reader();
            let mut guard = None;
            for () in is_next {
                guard = if guard.is_none() { Some(reader.pin()) } else { None };
                if is_done.send(()).is_err() {
                    break; // the test has failed
                }
            }
        });
        Self { next, done }
    }

    /// Returns when the reader is inside.
    fn enter(&self) {
        self.next.send(()).expect("the thread waits for it");
        self.done.recv().expect("the thread goes on");
    }

    /// Returns when the reader has left, and has called the waker that it must call.
    fn leave(&self) {
        self.enter();
    }
}

#[test]
fn the_waker_of_the_last_poll_counts() {
    in_each_mode(|domain| {
        while_held(&domain, End::Guard, |leave| {
            let (first, second) = (Alarm::new(), Alarm::new());
            let mut over = pin!(domain.grace_period(domain.start()));
            assert!(poll(over.as_mut(), &first).is_pending());
            assert!(poll(over.as_mut(), &second).is_pending());
            assert_eq!(Arc::strong_count(&first), 1, "the first one is forgotten");
            drop(leave);
            second.wait_beyond(0);
            assert_eq!(first.wakes(), 0);
            assert_eq!(poll(over.as_mut(), &first), Poll::Ready(Ok(())));
            assert_eq!(Arc::strong_count(&first), 1, "and so is the last one");
        });
    });
}

#[test]
fn sections_that_begin_later_do_not_wake_it() {
    in_each_mode(|domain| {
        while_held(&domain, End::Guard, |_leave| {
            let alarm = Alarm::new();
            let mut over = pin!(domain.grace_period(domain.start()));
            assert!(poll(over.as_mut(), &alarm).is_pending());
            let reader = domain.reader();
            for _ in 0..1000 {
                drop(reader.pin());
            }
            assert_eq!(alarm.wakes(), 0);
        });
    });
}

/// The reader leaves while the future makes its request, and never comes back, so a lost wake-up would end the test.
#[test]
fn a_reader_that_leaves_meanwhile_is_not_missed() {
    let rounds = if cfg!(miri) { 20 } else { 2000 };
    in_each_mode(|domain| {
        for round in 0..rounds {
            thread::scope(|scope| {
                let (ready, is_ready) = std::sync::mpsc::channel();
                let (finish, finished) = std::sync::mpsc::channel::<()>();
                let leaves = &domain;
                scope.spawn(move || {
                    let reader = leaves.reader();
                    let guard = reader.pin();
                    ready.send(()).expect("the test waits for it");
                    for _ in 0..(round % 64) * 16 {
                        std::hint::spin_loop();
                    }
                    drop(guard);
                    let _ = finished.recv();
                });
                is_ready.recv().expect("the thread runs");
                let (answer, _) = block_on(domain.grace_period(domain.start()));
                assert_eq!(answer, Ok(()));
                drop(finish);
            });
        }
    });
}

/// A waker that panics does not harm the reader, and other wakers are still called.
#[test]
fn a_waker_that_panics_stays_alone() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker");
        }
    }
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    let token = domain.start();
    let waker = Waker::from(Arc::new(Panics));
    let alarm = Alarm::new();
    let mut bad: Vec<_> = (0..2).map(|_| Box::pin(domain.grace_period(token))).collect();
    assert!(bad[0].as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mut good = pin!(domain.grace_period(token));
    assert!(poll(good.as_mut(), &alarm).is_pending());
    assert!(bad[1].as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(guard))).is_ok());
    assert_eq!(alarm.wakes(), 1);
    assert_eq!(poll(good.as_mut(), &alarm), Poll::Ready(Ok(())));
}

/// A waker may poll at once, on the reader's thread.
#[test]
fn a_waker_may_use_the_domain() {
    struct Inline(Domain, std::sync::Mutex<bool>);
    impl Wake for Inline {
        fn wake(self: Arc<Self>) {
            let mut own = pin!(self.0.grace_period(self.0.start()));
            let answer = own.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            *self.1.lock().expect("nothing panics here") = answer == Poll::Ready(Ok(()));
        }
    }
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    let inline = Arc::new(Inline(domain.clone(), std::sync::Mutex::new(false)));
    let mut over = pin!(domain.grace_period(domain.start()));
    let waker = Waker::from(Arc::clone(&inline));
    assert!(over.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(guard);
    assert!(*inline.1.lock().expect("nothing panics here"));
}

#[test]
#[should_panic(expected = "a token of domain number")]
fn a_token_of_another_domain_is_refused() {
    let (one, other) = (Domain::new(), Domain::new());
    drop(one.grace_period(other.start()));
}
