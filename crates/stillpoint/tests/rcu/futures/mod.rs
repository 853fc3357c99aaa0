//! Grace periods that are awaited, with a small executor.

mod dropping;
mod many;
mod waking;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use stillpoint::rcu::Domain;

use crate::LONG;

/// Unparks the thread that made it, and counts the calls.
pub(crate) struct Alarm {
    thread: Thread,
    wakes: AtomicUsize,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        // Release: pairs with the acquire in `wakes`.
        self.wakes.fetch_add(1, Ordering::Release);
        self.thread.unpark();
    }
}

impl Alarm {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { thread: thread::current(), wakes: AtomicUsize::new(0) })
    }

    fn wakes(&self) -> usize {
        // Acquire: pairs with the release in `wake`.
        self.wakes.load(Ordering::Acquire)
    }

    /// Sleeps until there have been more than `seen` wake-ups.
    pub(crate) fn wait_beyond(&self, seen: usize) -> usize {
        let begun = Instant::now();
        loop {
            let wakes = self.wakes();
            if wakes > seen {
                return wakes;
            }
            assert!(begun.elapsed() < LONG, "the wake-up does not come");
            thread::park_timeout(LONG);
        }
    }
}

pub(crate) fn poll<F: Future>(future: Pin<&mut F>, alarm: &Arc<Alarm>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(alarm));
    future.poll(&mut Context::from_waker(&waker))
}

/// Polls only when it is woken. Returns the output and the number of polls.
fn block_on<F: Future>(future: F) -> (F::Output, usize) {
    let alarm = Alarm::new();
    let mut future = std::pin::pin!(future);
    let (mut polls, mut wakes) = (0, 0);
    loop {
        polls += 1;
        if let Poll::Ready(output) = poll(future.as_mut(), &alarm) {
            return (output, polls);
        }
        wakes = alarm.wait_beyond(wakes);
    }
}

/// How a reader stops delaying the future.
#[derive(Debug, Clone, Copy)]
enum End {
    Guard,
    Report,
    Offline,
    Reader,
}

const ENDS: [End; 4] = [End::Guard, End::Report, End::Offline, End::Reader];

/// Runs `test` while a reader on another thread is in the way. It leaves on request, and its thread then goes on for a
/// while without touching the domain.
fn while_held<R>(domain: &Domain, end: End, test: impl FnOnce(mpsc::Sender<()>) -> R) -> R {
    let (held, is_held) = mpsc::channel();
    let (leave, leaves) = mpsc::channel();
    let (finish, finishes) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let is_held = || held.send(()).expect("the test waits for it");
            let stay = || {
                let _ = finishes.recv();
            };
            match end {
                End::Guard => {
                    let reader = domain.reader();
                    let guard = reader.pin();
                    is_held();
                    let _ = leaves.recv();
                    drop(guard);
                    stay();
                }
                End::Report => {
                    let mut reader = domain.qsbr_reader();
                    is_held();
                    let _ = leaves.recv();
                    reader.quiescent();
                    stay();
                }
                End::Offline => {
                    let reader = domain.qsbr_reader();
                    is_held();
                    let _ = leaves.recv();
                    let reader = reader.go_offline();
                    stay();
                    drop(reader.go_online());
                }
                End::Reader => {
                    let reader = domain.reader();
                    std::mem::forget(reader.pin());
                    is_held();
                    let _ = leaves.recv();
                    drop(reader);
                    stay();
                }
            }
        });
        is_held.recv().expect("the thread runs");
        let answer = test(leave);
        drop(finish);
        answer
    })
}
