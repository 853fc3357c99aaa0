//! The rows of the table in `docs/guide/operation.md`: what to call where others own the threads. Each test has a control, in which the call
//! is missing.
//!
//! A process has one default domain, so the tests run one after the other, or in processes of their own.

#![cfg(all(target_os = "linux", not(any(miri, stillpoint_loom, stillpoint_portable))))]

#[path = "support/asleep.rs"]
mod asleep;
#[path = "support/child.rs"]
mod child;
#[path = "support/forked.rs"]
mod forked;
#[path = "support/skip.rs"]
mod skip;

use std::future::poll_fn;
use std::sync::{mpsc, Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::fence::Mode;
use stillpoint::rcu::{self, RcuCell};
use tokio::runtime::Builder;

/// Longer than any of this takes, on a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// Gives the caller exclusive use of the domain; `None` if its readers need no fences, and so need not go offline.
fn own() -> Option<MutexGuard<'static, ()>> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let own = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if rcu::default_domain().fence_mode() == Mode::Symmetric {
        skip::skipped("readers need no fences here");
        return None;
    }
    Some(own)
}

fn within(limit: Duration, is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > limit {
            return false;
        }
        thread::yield_now();
    }
    true
}

/// The number of threads for which writers have to fence from now on.
fn silent() -> usize {
    let domain = rcu::default_domain();
    let _ = domain.start();
    domain.stats().silent
}

/// A task that waits until it is told to go on, and tells the id of its thread before.
#[derive(Default)]
struct Gate(Mutex<(bool, Option<Waker>)>);

impl Gate {
    async fn pass(&self) {
        poll_fn(|context| {
            let mut gate = self.0.lock().unwrap();
            gate.1 = Some(context.waker().clone());
            if gate.0 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    fn open(&self) {
        let mut gate = self.0.lock().unwrap();
        gate.0 = true;
        gate.1.take().expect("the task waits").wake();
    }
}

/// Runs a task on an executor, on a thread of its own, until it waits, and the executor's thread sleeps. Returns what `look` finds then.
fn while_parked<R>(mut executor: Builder, look: impl FnOnce() -> R) -> R {
    let gate = Arc::new(Gate::default());
    let (tell, told) = mpsc::channel();
    let task = Arc::clone(&gate);
    let runs = thread::spawn(move || {
        let executor = executor.build().expect("the system has threads");
        let work = async move {
            assert_eq!(RcuCell::new(1).get().as_deref(), Some(&1));
            tell.send(asleep::own()).unwrap();
            task.pass().await;
        };
        // A task, and not the future of `block_on`, which would run on this thread.
        executor.block_on(async { tokio::spawn(work).await.expect("it does not panic") });
    });
    asleep::wait_until_asleep(told.recv().unwrap());
    let found = look();
    // It may have slept before it was parked.
    assert!(within(LONG, || gate.0.lock().unwrap().1.is_some()));
    gate.open();
    runs.join().unwrap();
    found
}

fn goes_offline() {
    rcu::offline();
}

#[test]
fn an_executor_of_one_thread_goes_offline_when_it_parks() {
    let Some(_own) = own() else { return };
    let mut executor = Builder::new_current_thread();
    executor.on_thread_park(goes_offline);
    assert!(while_parked(executor, || within(LONG, || silent() == 0)));
    assert!(
        while_parked(Builder::new_current_thread(), || within(LONG, || silent() == 1)),
        "without the call"
    );
}

#[test]
fn an_executor_of_many_threads_goes_offline_when_they_park() {
    let Some(_own) = own() else { return };
    let mut executor = Builder::new_multi_thread();
    executor.worker_threads(2).on_thread_park(goes_offline);
    assert!(while_parked(executor, || within(LONG, || silent() == 0)));
    let mut executor = Builder::new_multi_thread();
    executor.worker_threads(2);
    assert!(while_parked(executor, || within(LONG, || silent() == 1)), "without the call");
}

/// The threads of blocking calls are kept for a while, and call no hook when they sleep.
#[test]
fn a_blocking_call_goes_offline_at_its_end() {
    let Some(_own) = own() else { return };
    for (ends_offline, expected) in [(true, 0), (false, 1)] {
        let executor =
            Builder::new_multi_thread().worker_threads(1).on_thread_park(goes_offline).build().unwrap();
        let call = executor.spawn_blocking(move || {
            assert_eq!(RcuCell::new(1).get().as_deref(), Some(&1));
            if ends_offline {
                goes_offline();
            }
        });
        executor.block_on(call).expect("it does not panic");
        assert!(within(LONG, || silent() == expected), "{ends_offline}: {}", silent());
    }
}

/// There is nothing to call where threads end.
#[test]
fn what_an_ended_thread_of_a_pool_has_replaced_is_freed() {
    let Some(_own) = own() else { return };
    let domain = rcu::default_domain();
    let readers = domain.stats().readers;
    let executor = Builder::new_multi_thread()
        .worker_threads(1)
        .on_thread_park(goes_offline)
        .thread_keep_alive(Duration::from_millis(1))
        .build()
        .unwrap();
    let cell = Arc::new(RcuCell::new(String::from("first")));
    let replaced = Arc::clone(&cell);
    let call = executor.spawn_blocking(move || replaced.set(String::from("second")));
    executor.block_on(call).expect("it does not panic");
    assert!(within(LONG, || domain.stats().readers <= readers), "the thread of the call has ended");
    rcu::barrier().expect("no reader is in the way");
    assert_eq!((domain.stats().pending, domain.stats().silent), (0, 0));
}

#[test]
fn workers_are_forked_before_the_first_use() {
    child::in_child("workers_are_forked_before_the_first_use", || {
        for worker in 0..2 {
            forked::in_fork(|| {
                let cell = RcuCell::new(0);
                cell.set(worker);
                assert_eq!(cell.get().as_deref(), Some(&worker));
                rcu::barrier().expect("no reader is in the way");
                assert_eq!(rcu::default_domain().stats().pending, 0);
            });
        }
    });
}

#[test]
fn workers_that_are_forked_later_release_the_readers_of_other_threads() {
    child::in_child("workers_that_are_forked_later_release_the_readers_of_other_threads", || {
        let (opened, is_open) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let reads = thread::spawn(move || {
            let _region = rcu::pin();
            opened.send(()).unwrap();
            let _ = ends.recv();
        });
        is_open.recv().unwrap();
        forked::in_fork(|| {
            let cell = RcuCell::new(0);
            cell.set(1);
            let limit = Duration::from_millis(10);
            rcu::barrier_timeout(limit).expect_err("the copy of the other thread's region is in the way");
            // SAFETY: this is the only thread of the process, and uses no reference that another one has lent it.
            unsafe { rcu::reset_after_fork() };
            rcu::barrier().expect("no reader is in the way");
            assert_eq!(rcu::default_domain().stats().pending, 0);
        });
        drop(end);
        reads.join().unwrap();
    });
}
