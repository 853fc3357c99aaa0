//! Many futures on several threads, among readers that come and go.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;

use stillpoint::fence::{asymmetric_supported, Mode};
use stillpoint::rcu::wait::GracePeriod;

use super::{block_on, poll, while_held, Alarm, End};
use crate::ending::Ending;
use crate::modes::in_each_mode;

#[test]
fn one_reader_wakes_all_and_one_fence_serves_all() {
    in_each_mode(|domain| {
        const FUTURES: usize = 300;
        while_held(&domain, End::Report, |leave| {
            let token = domain.start();
            assert!(!domain.check(token));
            let before = domain.stats().heavy_fences;
            let mut waiting: Vec<_> =
                (0..FUTURES).map(|_| (Alarm::new(), Box::pin(domain.grace_period(token)))).collect();
            for (alarm, future) in &mut waiting {
                assert!(poll(future.as_mut(), alarm).is_pending());
            }
            // A symmetric domain issues a heavy fence only where the system has one.
            let fences = u64::from(domain.fence_mode() != Mode::Symmetric || asymmetric_supported().is_ok());
            assert_eq!(domain.stats().heavy_fences, before + fences);
            drop(leave);
            for (alarm, future) in &mut waiting {
                alarm.wait_beyond(0);
                assert!(poll(future.as_mut(), alarm).is_ready());
            }
        });
    });
}

/// A task that its waker polls in place.
struct InPlace {
    future: Mutex<Option<Pin<Box<GracePeriod>>>>,
    ended: Arc<AtomicUsize>,
}

impl Wake for InPlace {
    fn wake(self: Arc<Self>) {
        let taken = self.future.lock().expect("no thread panics while it holds the lock").take();
        let Some(mut future) = taken else { return };
        let waker = Waker::from(Arc::clone(&self));
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.ended.fetch_add(1, Ordering::Relaxed);
        } else {
            *self.future.lock().expect("no thread panics while it holds the lock") = Some(future);
        }
    }
}

/// Each of them comes back to the library within the wake by the reader that leaves. The stack does not grow with their number.
#[test]
fn wakers_that_poll_in_place_do_not_recurse() {
    const FUTURES: usize = if cfg!(miri) { 200 } else { 20_000 };
    in_each_mode(|domain| {
        if asymmetric_supported().is_err() {
            return; // each future asks for another poll at once
        }
        let run = move || {
            let reader = domain.reader();
            let guard = reader.pin();
            let (token, ended) = (domain.start(), Arc::new(AtomicUsize::new(0)));
            let poll = |_| {
                let future = Mutex::new(Some(Box::pin(domain.grace_period(token))));
                let task = Arc::new(InPlace { future, ended: Arc::clone(&ended) });
                Arc::clone(&task).wake();
                task
            };
            let tasks: Vec<_> = (0..FUTURES).map(poll).collect();
            assert_eq!(ended.load(Ordering::Relaxed), 0);
            drop(guard);
            assert_eq!(ended.load(Ordering::Relaxed), FUTURES);
            drop(tasks);
        };
        let thread = thread::Builder::new().stack_size(256 << 10).spawn(run);
        thread.expect("there is memory for a thread").join().expect("it does not panic");
    });
}

#[test]
fn every_future_ends_among_readers_that_come_and_go() {
    let rounds = if cfg!(miri) { 10 } else { 1000 };
    in_each_mode(|domain| {
        let (done, waiters) = (AtomicBool::new(false), AtomicUsize::new(3));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let reader = domain.reader();
                    for _ in 0..50 {
                        drop(reader.pin());
                    }
                }
            });
            scope.spawn(|| {
                let mut reader = domain.qsbr_reader();
                while !done.load(Ordering::Relaxed) {
                    reader.quiescent();
                    reader = reader.go_offline().go_online();
                    thread::yield_now();
                }
            });
            for _ in 0..waiters.load(Ordering::Relaxed) {
                scope.spawn(|| {
                    let _ending = Ending(|| {
                        if waiters.fetch_sub(1, Ordering::Relaxed) == 1 {
                            done.store(true, Ordering::Relaxed);
                        }
                    });
                    let alarm = Alarm::new();
                    for round in 0..rounds {
                        let token = domain.start();
                        if round % 3 == 0 {
                            let _ = poll(std::pin::pin!(domain.grace_period(token)), &alarm);
                        }
                        assert_eq!(block_on(domain.grace_period(token)).0, Ok(()));
                    }
                });
            }
        });
    });
}
