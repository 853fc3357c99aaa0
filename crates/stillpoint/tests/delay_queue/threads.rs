//! Threads, tasks of tokio, and both at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::timer::delay_queue::{DelayQueue, Delayed};

use super::mock::{insert, HOUR, MS};

const ITEMS: usize = if cfg!(miri) { 50 } else { 10_000 };

async fn sleep_until(at: Instant) {
    tokio::time::sleep_until(at.into()).await;
}

/// A delay of up to 4 ms.
fn delay(number: usize) -> Duration {
    Duration::from_micros(number as u64 * 7_919 % 4_000)
}

/// Checks that nothing was early, and returns the value.
fn in_time(item: Delayed<usize>) -> usize {
    assert!(Instant::now() >= item.deadline(), "early");
    item.into_inner()
}

fn assert_each_once(mut out: Vec<usize>) {
    out.sort_unstable();
    assert!(out.iter().copied().eq(0..ITEMS), "{} items", out.len());
}

/// Sleeping threads are woken by insertions, or the test does not end.
#[test]
fn an_earlier_insertion_wakes_a_thread() {
    let queue = DelayQueue::new();
    insert(&queue, 0, HOUR);
    thread::scope(|scope| {
        let waits = scope.spawn(|| queue.wait().map(in_time));
        insert(&queue, 1, MS);
        assert_eq!(waits.join().unwrap(), Some(1));
        let waits = [(); 3].map(|()| scope.spawn(|| queue.wait().map(in_time)));
        for number in 2..5 {
            insert(&queue, number, Duration::ZERO);
        }
        let mut got = waits.map(|waits| waits.join().unwrap());
        got.sort_unstable();
        assert_eq!(got, [Some(2), Some(3), Some(4)]);
        let waits = [(); 3].map(|()| scope.spawn(|| queue.wait().map(in_time)));
        queue.close();
        queue.clear();
        assert!(waits.into_iter().all(|waits| waits.join().unwrap().is_none()));
    });
}

#[test]
fn a_wait_ends_with_its_time() {
    let queue = DelayQueue::new();
    insert(&queue, 0, HOUR);
    let begin = Instant::now();
    assert_eq!(queue.wait_timeout(3 * MS), None);
    assert!(begin.elapsed() >= 3 * MS);
    insert(&queue, 1, 2 * MS);
    assert_eq!(queue.wait_timeout(HOUR).map(in_time), Some(1));
    insert(&queue, 2, MS);
    assert_eq!(queue.wait_timeout(Duration::MAX).map(in_time), Some(2));
}

/// A leader whose time is over passes its place on.
#[test]
fn a_wait_that_ends_promotes_another() {
    let queue = DelayQueue::new();
    let (ended, end) = mpsc::channel();
    thread::scope(|scope| {
        let (queue, ended) = (&queue, &ended);
        for wait in [MS, 2 * MS, 3 * MS] {
            scope.spawn(move || ended.send(queue.wait_timeout(wait).is_none()).unwrap());
        }
        let last = scope.spawn(|| queue.wait().map(in_time));
        insert(queue, 1, 20 * MS);
        assert_eq!(last.join().unwrap(), Some(1));
        assert!((0..3).all(|_| end.recv().unwrap()));
    });
}

#[test]
fn threads_get_each_item_once() {
    let queue = DelayQueue::new();
    let out = thread::scope(|scope| {
        let servers = [(); 3]
            .map(|()| scope.spawn(|| std::iter::from_fn(|| queue.wait()).map(in_time).collect::<Vec<_>>()));
        let adders: [_; 2] = std::array::from_fn(|adder| {
            let queue = &queue;
            scope.spawn(move || {
                for number in (adder..ITEMS).step_by(2) {
                    insert(queue, number, delay(number));
                }
            })
        });
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        queue.close();
        servers.into_iter().flat_map(|server| server.join().unwrap()).collect()
    });
    assert_each_once(out);
}

fn runtime(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_time().build().unwrap()
}

/// Half of the tasks give up after a short time and begin again, as a `select!` in a loop; and one thread waits beside them.
#[test]
#[cfg_attr(miri, ignore = "tokio's time")]
fn tasks_and_threads_get_each_item_once() {
    let queue = Arc::new(DelayQueue::new());
    let dropped = Arc::new(AtomicUsize::new(0));
    let runtime = runtime(2);
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let (queue, dropped) = (Arc::clone(&queue), Arc::clone(&dropped));
            runtime.spawn(async move {
                let mut out = Vec::new();
                loop {
                    let next = queue.next(sleep_until);
                    let item = if task % 2 == 0 {
                        next.await
                    } else {
                        match tokio::time::timeout(MS, next).await {
                            Ok(item) => item,
                            Err(_) => {
                                dropped.fetch_add(1, Ordering::Relaxed);
                                continue;
                            }
                        }
                    };
                    let Some(item) = item else { break out };
                    out.push(in_time(item));
                }
            })
        })
        .collect();
    let beside = thread::spawn({
        let queue = Arc::clone(&queue);
        move || std::iter::from_fn(|| queue.wait()).map(in_time).collect::<Vec<_>>()
    });
    for number in 0..ITEMS {
        let key = insert(&queue, number, HOUR);
        assert!(queue.reset(&key, delay(number)));
        if number % 1_000 == 0 {
            // The queue runs empty.
            while !queue.is_empty() {
                thread::yield_now();
            }
        }
    }
    queue.close();
    let mut out = beside.join().unwrap();
    for task in tasks {
        out.extend(runtime.block_on(task).unwrap());
    }
    assert_each_once(out);
}

/// Futures can be sent, as `spawn` needs it.
#[test]
#[cfg_attr(miri, ignore = "tokio's time")]
fn a_task_that_waits_is_woken_by_a_thread() {
    let queue = Arc::new(DelayQueue::new());
    let runtime = runtime(1);
    insert(&queue, 0, HOUR);
    for number in 1..100 {
        let task = runtime.spawn({
            let queue = Arc::clone(&queue);
            async move { queue.next(sleep_until).await.map(in_time) }
        });
        insert(&queue, number, Duration::ZERO);
        assert_eq!(runtime.block_on(task).unwrap(), Some(number));
    }
}
