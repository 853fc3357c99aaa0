//! Code that the library runs for others never waits in the library. Otherwise two threads could wait for each other, and no reader
//! would be in the way.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::Duration;

use stillpoint::rcu::limits::{RetireErrorKind, WhenFull};
use stillpoint::rcu::raw::{self, Callback, CallbackQueue};
use stillpoint::rcu::wait::SynchronizeError;
use stillpoint::rcu::{Domain, Retired};

use super::until;
use crate::then::Then;
use crate::{eager, LONG};

fn retired<T: Send + Sync + 'static>(domain: &Domain, object: T) -> Retired<T> {
    domain.cell(object).take().expect("the cell is full")
}

/// A callback that calls a function of the test.
#[repr(C)]
struct Call {
    callback: Callback,
    function: Box<dyn FnOnce()>,
}

fn push(queue: &CallbackQueue, function: impl FnOnce() + Send + 'static) {
    unsafe extern "C-unwind" fn call(callback: NonNull<Callback>) {
        // SAFETY: it is the first field of a value that was leaked.
        let this = unsafe { Box::from_raw(callback.cast::<Call>().as_ptr()) };
        (this.function)();
    }
    let this = Box::leak(Box::new(Call { callback: Callback::new(), function: Box::new(function) }));
    // SAFETY: the value is new, and freed by its callback.
    unsafe { queue.push(NonNull::from(this).cast(), call) };
}

fn is_refused(answer: Result<(), SynchronizeError>) -> bool {
    matches!(answer, Err(SynchronizeError::Reentrant { .. }))
}

/// Panics unless each call that may wait is refused at once, in any domain, with any limit.
#[track_caller]
fn nothing_waits(domain: &Domain) {
    assert!(raw::is_within_foreign_code());
    assert!(is_refused(domain.synchronize()) && is_refused(domain.synchronize_timeout(LONG)));
    let token = domain.start();
    assert!(is_refused(domain.wait(token)) && is_refused(domain.wait_timeout(token, LONG)));
    assert!(is_refused(domain.barrier()) && is_refused(domain.barrier_timeout(LONG)));
    let mut reclaimer = domain.reclaimer();
    assert!(is_refused(reclaimer.flush()) && is_refused(reclaimer.flush_timeout(LONG)));
    let (old, cause) = retired(domain, 1).free().expect_err("it must not wait").into_parts();
    assert!(is_refused(Err(cause)));
    let (old, cause) = old.free_timeout(LONG).expect_err("it must not wait").into_parts();
    assert!(is_refused(Err(cause)) && old.try_free().is_ok(), "what does not wait is allowed");
    let mut qsbr = domain.qsbr_reader();
    assert!(is_refused(qsbr.synchronize()));
    drop(qsbr);

    let (queue, other) = (CallbackQueue::new(domain), CallbackQueue::new(domain));
    assert!(is_refused(queue.barrier()) && is_refused(queue.barrier_timeout(LONG)));
    let panics = |function: &dyn Fn()| catch_unwind(AssertUnwindSafe(function)).is_err();
    assert!(panics(&|| queue.run()) && panics(&|| drop(queue.pause())) && panics(&|| queue.pass_to(&other)));
    assert!(catch_unwind(AssertUnwindSafe(|| domain.background().run())).is_err());
    assert_eq!((queue.poll(1), reclaimer.poll_at_once(0)), (0, 0), "what does not wait is allowed");

    let reader = domain.reader();
    let guard = reader.pin();
    for wait in [Duration::MAX, LONG] {
        let patient = WhenFull::Wait(wait);
        let mut full = domain.reclaimer_builder().max_pending(1).when_full(patient).build();
        full.retire(retired(domain, 1)).expect("there is room");
        let error = full.retire(retired(domain, 2)).expect_err("the guard is in the way");
        assert_eq!(error.kind(), RetireErrorKind::WouldDeadlock);
        let error = full.retire_timeout(error.into_inner(), wait).expect_err("the guard is in the way");
        assert_eq!(error.kind(), RetireErrorKind::WouldDeadlock);
        let background = domain.reclaimer_builder().max_pending(1).when_full(patient).build_background();
        let handle = background.retire_handle();
        handle.retire(retired(domain, 1)).expect("there is room");
        let error = handle.retire(error.into_inner()).expect_err("no thread runs the reclaimer");
        assert_eq!(error.kind(), RetireErrorKind::WouldDeadlock);
    }
    drop(guard);
    let text = domain.synchronize().expect_err("it must not wait").to_string();
    assert!(text.contains("must not wait") && text.contains(domain.name()), "{text}");
}

#[test]
fn a_destructor_and_a_deferred_call_never_wait() {
    let (domain, done) = (Domain::new(), Arc::new(AtomicBool::new(false)));
    let (own, other, is_done) = (domain.clone(), Domain::new(), Arc::clone(&done));
    let mut reclaimer = eager(&domain);
    let waits = Then::new(move || {
        nothing_waits(&own);
        nothing_waits(&other);
        is_done.store(true, Ordering::Relaxed);
    });
    reclaimer.retire(retired(&domain, waits)).expect("there is room");
    let own = domain.clone();
    reclaimer.defer(move || nothing_waits(&own));
    assert_eq!(reclaimer.poll(), 2);
    assert!(done.load(Ordering::Relaxed) && !raw::is_within_foreign_code());
    domain.synchronize().expect("the destructor has ended");
    // The end of a domain runs destructors, too.
    let (last, other) = (Domain::new(), domain.clone());
    drop(retired(&last, Then::new(move || nothing_waits(&other))));
    drop(last);
}

#[test]
fn a_callback_never_waits() {
    let (domain, other) = (Domain::new(), Domain::new());
    let queue = CallbackQueue::new(&domain);
    let own = domain.clone();
    push(&queue, move || {
        nothing_waits(&own);
        nothing_waits(&other);
        raw::let_wait(|| own.synchronize()).expect("the caller knows better");
        assert!(is_refused(own.synchronize()));
    });
    assert_eq!(queue.poll(1), 1);
    assert!(!raw::is_within_foreign_code());
}

#[test]
fn a_stall_hook_never_waits() {
    let (calls, called) = mpsc::channel();
    let other = Domain::new();
    let other = Mutex::new((other, calls));
    let hook = move |_: &stillpoint::rcu::wait::Stall| {
        let other = other.lock().expect("the hook does not panic");
        nothing_waits(&other.0);
        other.1.send(()).expect("the test waits for it");
    };
    let domain = Domain::builder().stall_hook(Duration::ZERO, hook).build().expect("it needs no right");
    let reader = domain.reader();
    let guard = reader.pin();
    let waits = domain.clone();
    thread::spawn(move || waits.synchronize_timeout(Duration::ZERO)).join().unwrap().unwrap_err();
    called.try_recv().expect("the stall was reported, and the hook has not panicked");
    drop(guard);
}

/// Runs each queue on its own thread during a test. A test that fails leaves the threads alone: callbacks may wait for each other.
fn served(queues: &[&CallbackQueue], test: impl FnOnce()) {
    let threads = queues.iter().map(|&queue| queue.clone()).map(|queue| thread::spawn(move || queue.run()));
    let threads: Vec<_> = threads.collect();
    test();
    queues.iter().for_each(|queue| queue.stop());
    threads.into_iter().for_each(|thread| thread.join().expect("no callback panics"));
}

/// Both callbacks are running when each calls the barrier of the other queue.
#[test]
fn barriers_of_two_queues_do_not_wait_for_each_other() {
    let (one, other) = (CallbackQueue::new(&Domain::new()), CallbackQueue::new(&Domain::new()));
    let (answers, answer) = mpsc::channel();
    let both = Arc::new(std::sync::Barrier::new(2));
    served(&[&one, &other], || {
        for (own, foreign) in [(&one, &other), (&other, &one)] {
            let (foreign, answers, both) = (foreign.clone(), answers.clone(), Arc::clone(&both));
            push(own, move || {
                both.wait();
                answers.send(foreign.barrier()).expect("the test waits for it");
            });
        }
        assert!((0..2).all(|_| is_refused(answer.recv_timeout(LONG).expect("neither waits"))));
        one.barrier().expect("no callback runs");
    });
}

/// A barrier of the domain waits for a destructor, which must not wait for the callback that calls the barrier.
#[test]
fn a_destructor_and_a_callback_do_not_wait_for_each_other() {
    let domain = Domain::new();
    let queue = CallbackQueue::new(&domain);
    let (answers, answer) = mpsc::channel();
    let both = Arc::new(std::sync::Barrier::new(2));
    served(&[&queue], || {
        let (foreign, to, meet) = (queue.clone(), answers.clone(), Arc::clone(&both));
        let waits = Then::new(move || {
            meet.wait();
            to.send(foreign.barrier()).expect("the test waits for it");
        });
        drop(retired(&domain, waits)); // left to the domain
        let other = domain.clone();
        let frees = thread::spawn(move || other.synchronize().expect("no region is in the way"));
        let other = domain.clone();
        push(&queue, move || {
            both.wait();
            answers.send(other.barrier()).expect("the test waits for it");
        });
        assert!((0..2).all(|_| is_refused(answer.recv_timeout(LONG).expect("neither waits"))));
        frees.join().expect("the destructor does not panic");
    });
}

/// The room that the destructor wants is that of its own object, or comes only from the thread that runs it.
#[test]
fn a_background_thread_is_not_lost_in_a_destructor_that_retires() {
    for is_shared in [false, true] {
        let domain = Domain::builder().max_pending(if is_shared { 1 } else { 9 }).build().expect("no right");
        let mut background = domain
            .reclaimer_builder()
            .max_pending(1)
            .when_full(WhenFull::Wait(Duration::MAX))
            .build_background();
        let handle = background.retire_handle();
        let (kinds, kind) = mpsc::channel();
        let (own, inner) = (domain.clone(), handle.clone());
        let retires = Then::new(move || {
            let refused = inner.retire(retired(&own, 1)).expect_err("its own object has the room");
            kinds.send(refused.kind()).expect("the test waits for it");
        });
        handle.retire(retired(&domain, retires)).expect("there is room");
        let thread = thread::spawn(move || background.run());
        assert_eq!(kind.recv_timeout(LONG), Ok(RetireErrorKind::WouldDeadlock));
        handle.retire(retired(&domain, 1)).expect("the thread goes on");
        handle.stop();
        until("the run ends", || thread.is_finished());
        domain.barrier().expect("nothing is in the way");
        assert_eq!(domain.stats().pending, 0, "{is_shared}");
    }
}

/// Callbacks may free what they retire; only destructors do not nest.
#[test]
fn a_write_within_a_callback_frees_what_is_ready() {
    let (domain, queue) = (Domain::new(), CallbackQueue::new(&Domain::new()));
    let (freed, is_freed) = mpsc::channel();
    push(&queue, move || {
        let mut reclaimer = eager(&domain);
        let tells = Then::new(move || {
            freed.send(raw::is_within_foreign_code()).expect("the test waits for it");
        });
        reclaimer.retire(retired(&domain, tells)).expect("there is room");
        assert_eq!(reclaimer.poll(), 1);
        assert!(is_refused(domain.synchronize()), "the callback goes on");
    });
    assert_eq!((queue.poll(1), is_freed.try_recv()), (1, Ok(true)));
}
