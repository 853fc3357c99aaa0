//! Readers in thread-local storage that outlive the registration of their thread: no signal reaches them any more, but they are
//! still used.

use std::cell::RefCell;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::fence::Mode;
use stillpoint::rcu::{Domain, RcuCell, Reader};
use stillpoint_multicast::signals;

use crate::census::{Census, Object};
use crate::child::in_child;

/// The reader in thread-local storage is dropped after the thread's record of its registrations: no fence reaches it any more, but it
/// is still used.
#[test]
fn a_reader_that_outlives_the_registration_of_its_thread() {
    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }
    struct Late {
        domain: Domain,
        reader: Reader,
        cell: Arc<RcuCell<Object>>,
        over: Arc<AtomicBool>,
    }
    impl Drop for Late {
        fn drop(&mut self) {
            assert_eq!(signals::members(), 0, "the thread has left");
            assert_eq!(signals::join().map(drop), Err(signals::SignalError::Ending));
            while !self.over.load(Ordering::Relaxed) {
                self.cell.protect(&self.reader).expect("never empty").verify();
                let guard = self.reader.pin();
                self.cell.load(&guard).expect("never empty").verify();
            }
            // A reader that is made now also issues fences itself.
            let reader = self.domain.reader();
            self.cell.protect(&reader).expect("never empty").verify();
        }
    }
    in_child("outliving::a_reader_that_outlives_the_registration_of_its_thread", || {
        let domain =
            Domain::builder().fence(Mode::Provided(signals::PROVIDER)).build().expect("the signal is free");
        let census = Census::default();
        let (cell, over) = (Arc::new(domain.cell(census.object())), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (domain, cell, over) = (domain.clone(), Arc::clone(&cell), Arc::clone(&over));
            thread::spawn(move || {
                // Used first, dropped last.
                LATE.with(|late| *late.borrow_mut() = None);
                let reader = domain.reader();
                assert_eq!(signals::members(), 1);
                LATE.with(|late| *late.borrow_mut() = Some(Late { domain, reader, cell, over }));
            })
        };
        let mut reclaimer = domain.reclaimer_builder().fence_interval(Duration::ZERO).build();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            let mut old = cell.replace(census.object()).expect("never empty");
            // A reader that is preempted under its guard may hold up as many objects as fit.
            while let Err(full) = reclaimer.retire(old) {
                old = full.into_inner();
                reclaimer.poll();
                thread::yield_now();
            }
            reclaimer.poll();
        }
        over.store(true, Ordering::Relaxed);
        thread.join().expect("nothing was read after it was freed");
        reclaimer.flush().expect("no reader is left");
        assert!(census.freed() > 0 && census.alive() == 1, "only the object in the cell is alive");
    });
}

/// A future waits for a section at the very end of a thread, when signals do not reach its readers any more.
#[test]
fn a_future_is_woken_by_a_reader_that_outlives_the_registration_of_its_thread() {
    /// Sends a message when it is woken.
    struct Bell(Mutex<mpsc::Sender<()>>);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.lock().unwrap().send(()).expect("the test waits for it");
        }
    }

    /// Takes its turns when it is dropped.
    struct Late {
        domain: Domain,
        reader: Reader,
        turns: mpsc::Receiver<()>,
        ready: mpsc::Sender<()>,
    }

    impl Late {
        /// Holds up grace periods until its turn is over.
        fn turn(&self, end: impl FnOnce()) {
            self.ready.send(()).expect("the test waits for it");
            self.turns.recv().expect("the test goes on");
            end();
            // The future ends before the next turn begins.
            self.turns.recv().expect("the test goes on");
        }
    }

    impl Drop for Late {
        fn drop(&mut self) {
            assert_eq!(signals::members(), 0, "the thread has left");
            for _ in 0..50 {
                let guard = self.reader.pin();
                self.turn(|| drop(guard));
                let mut qsbr = self.domain.qsbr_reader();
                self.turn(|| qsbr.quiescent());
                self.turn(|| drop(qsbr));
                let reader = self.domain.reader();
                std::mem::forget(reader.pin());
                self.turn(|| drop(reader));
            }
        }
    }

    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }

    in_child("outliving::a_future_is_woken_by_a_reader_that_outlives_the_registration_of_its_thread", || {
        let domain =
            Domain::builder().fence(Mode::Provided(signals::PROVIDER)).build().expect("the signal is free");
        let ((turn, turns), (ready, is_ready)) = (mpsc::channel(), mpsc::channel());
        let inside = domain.clone();
        let thread = thread::spawn(move || {
            // Used first, dropped last.
            LATE.with(|late| *late.borrow_mut() = None);
            let reader = inside.reader();
            let late = Late { domain: inside, reader, turns, ready };
            LATE.with(|own| *own.borrow_mut() = Some(late));
        });
        for round in 0..4 * 50 {
            is_ready.recv().expect("the thread takes its turn");
            let (woken, is_woken) = mpsc::channel();
            let waker = Waker::from(Arc::new(Bell(Mutex::new(woken))));
            let mut context = Context::from_waker(&waker);
            let mut over = std::pin::pin!(domain.grace_period(domain.start()));
            // Polled at the same time as the end of the section.
            let both = round % 2 == 0;
            if both {
                turn.send(()).expect("the thread waits for it");
            }
            let mut is_over = over.as_mut().poll(&mut context).is_ready();
            if !both {
                assert!(!is_over, "the section has not ended");
                turn.send(()).expect("the thread waits for it");
            }
            while !is_over {
                is_woken.recv_timeout(crate::LONG).expect("a wake-up is not lost");
                is_over = match over.as_mut().poll(&mut context) {
                    Poll::Ready(answer) => answer.is_ok(),
                    Poll::Pending => false,
                };
            }
            turn.send(()).expect("the thread waits for it");
        }
        thread.join().expect("it does not panic");
    });
}
