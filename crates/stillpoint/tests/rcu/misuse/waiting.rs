//! A thread that would wait for itself gets an error, and no deadlock.

use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::rcu::wait::{ReaderKind, SynchronizeError};
use stillpoint::rcu::{Domain, RcuCell};

use super::{in_region, message_of};
use crate::census::{Census, Object};
use crate::ending::Ending;
use crate::other::Other;
use crate::{eager, LONG, SHORT};

fn would_deadlock(domain: &Domain, reader: ReaderKind) -> Result<(), SynchronizeError> {
    Err(SynchronizeError::WouldDeadlock { domain: domain.name().to_owned(), reader })
}

#[test]
fn synchronize_under_a_guard_is_an_error() {
    let domain = Domain::new();
    let reader = domain.reader();
    let outer = reader.pin();
    let inner = reader.pin();
    assert_eq!(domain.synchronize(), would_deadlock(&domain, ReaderKind::Guard));
    drop(outer);
    assert_eq!(domain.synchronize_timeout(LONG), would_deadlock(&domain, ReaderKind::Guard));
    assert_eq!(domain.wait(domain.start()), would_deadlock(&domain, ReaderKind::Guard));
    drop(inner);
    assert_eq!(domain.synchronize(), Ok(()));
    mem::forget(reader.pin());
    assert_eq!(domain.synchronize(), would_deadlock(&domain, ReaderKind::Guard), "a forgotten one");
}

#[test]
fn the_error_tells_what_to_do() {
    let domain = Domain::builder().name("routes").build().expect("the default mode is always available");
    let reader = domain.reader();
    let guard = reader.pin();
    let text = domain.synchronize().expect_err("a guard is held").to_string();
    assert!(text.contains("`routes`") && text.contains("leave the region"), "{text}");
    drop(guard);
    let _qsbr = domain.qsbr_reader();
    let text = domain.synchronize().expect_err("a reader is online").to_string();
    assert!(text.contains("`routes`") && text.contains("go offline"), "{text}");
}

#[test]
fn synchronize_with_an_online_qsbr_reader_is_an_error() {
    let domain = Domain::new();
    let mut reader = domain.qsbr_reader();
    assert_eq!(domain.synchronize(), would_deadlock(&domain, ReaderKind::Qsbr));
    reader.quiescent();
    assert_eq!(domain.synchronize(), would_deadlock(&domain, ReaderKind::Qsbr));
    assert_eq!(reader.offline(|| domain.synchronize()), Ok(()));
    assert_eq!(reader.synchronize(), Ok(()));
    drop(reader);
    assert_eq!(domain.synchronize(), Ok(()));
}

#[test]
fn a_qsbr_reader_that_synchronizes_counts_itself_alone_as_quiescent() {
    let domain = Domain::new();
    let mut first = domain.qsbr_reader();
    let second = domain.qsbr_reader();
    assert_eq!(first.synchronize(), would_deadlock(&domain, ReaderKind::Qsbr));
    drop(second);
    let reader = domain.reader();
    let guard = reader.pin();
    assert_eq!(first.synchronize(), would_deadlock(&domain, ReaderKind::Guard));
    drop(guard);
    assert_eq!(first.synchronize(), Ok(()));
}

/// A flush also waits for objects that it adopts, by the same rule.
#[test]
fn flush_under_a_guard_is_an_error_and_keeps_the_objects() {
    for is_adopted in [false, true] {
        let (domain, census) = (Domain::new(), Census::default());
        let reader = domain.reader();
        let guard = reader.pin();
        let mut reclaimer = eager(&domain);
        let old = domain.cell(census.object()).take().expect("it was full");
        if is_adopted {
            drop(old);
        } else {
            reclaimer.retire(old).expect("there is room");
            assert_eq!(reclaimer.flush(), would_deadlock(&domain, ReaderKind::Guard));
        }
        // With a limit, so that a deadlock fails the test instead of hanging it.
        let answer = reclaimer.flush_timeout(Duration::from_secs(1));
        assert_eq!(answer, would_deadlock(&domain, ReaderKind::Guard), "adopted: {is_adopted}");
        assert_eq!((domain.stats().pending, census.freed()), (1, 0), "adopted: {is_adopted}");
        drop(guard);
        assert_eq!(reclaimer.flush(), Ok(()), "adopted: {is_adopted}");
        assert_eq!(census.freed(), 1, "adopted: {is_adopted}");
    }
}

/// Runs `test` while another thread holds the cell's object in a protected load.
fn while_protected<R>(domain: &Domain, cell: &Arc<RcuCell<Object>>, test: impl FnOnce() -> R) -> R {
    let (domain, cell) = (domain.clone(), Arc::clone(cell));
    let _other = Other::start(move |turns| {
        let reader = domain.reader();
        let object = cell.protect(&reader).expect("the cell is full");
        turns.for_each(drop);
        object.verify();
    });
    test()
}

#[test]
fn flush_reports_objects_that_protected_loads_hold() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = Arc::new(domain.cell(census.object()));
    let mut reclaimer = eager(&domain);
    while_protected(&domain, &cell, || {
        reclaimer.retire(cell.replace(census.object()).expect("it was full")).expect("there is room");
        reclaimer.retire(cell.replace(census.object()).expect("it was full")).expect("there is room");
        let pinned = SynchronizeError::Pinned { domain: domain.name().to_owned(), objects: 1, owned: 0 };
        assert_eq!(reclaimer.flush_timeout(SHORT), Err(pinned));
    });
    assert_eq!(reclaimer.flush_timeout(LONG), Ok(()));
}

#[test]
fn the_message_about_held_objects_reads_for_one_and_for_several() {
    for (objects, start) in [
        (1, "1 retired object of domain `routes` is held by protected loads"),
        (2, "2 retired objects of domain `routes` are held by protected loads"),
    ] {
        let text = SynchronizeError::Pinned { domain: "routes".to_owned(), objects, owned: 1 }.to_string();
        assert!(text.starts_with(start) && text.contains("release what they hold"), "{text}");
    }
}

#[test]
fn a_retired_object_that_a_protected_load_holds_is_handed_back() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = Arc::new(domain.cell(census.object()));
    let error = while_protected(&domain, &cell, || {
        cell.take().expect("never empty").free_timeout(SHORT).expect_err("it is protected")
    });
    assert_eq!(
        *error.cause(),
        SynchronizeError::Pinned { domain: domain.name().to_owned(), objects: 1, owned: 0 }
    );
    let old = error.into_inner();
    old.verify();
    old.free_timeout(LONG).expect("there is no reader");
    assert_eq!((census.freed(), census.alive()), (1, 0));
}

#[test]
fn what_a_wait_is_not_about_is_not_in_its_way() {
    let (domain, other) = (Domain::new(), Domain::new());
    let (reader, elsewhere) = (domain.reader(), other.reader());
    let cell = domain.cell(1);
    let object = cell.protect(&reader);
    assert_eq!(domain.synchronize(), Ok(()), "a protected load of the caller");
    assert_eq!(object.as_deref(), Some(&1));
    let _regions = (elsewhere.pin(), other.qsbr_reader());
    assert_eq!(domain.synchronize_timeout(LONG), Ok(()), "regions of another domain");
    let token = domain.start();
    let _guard = reader.pin();
    assert_eq!(domain.wait(token), Ok(()), "a guard that came after the token");
}

#[test]
fn a_background_run_under_a_guard_panics_with_the_name_of_the_domain() {
    let domain = Domain::builder().name("routes").build().expect("the default mode is always available");
    let mut background = domain.background();
    let reader = domain.reader();
    let guard = reader.pin();
    assert!(message_of(|| background.run()).contains("`routes`"));
    drop(guard);
    let qsbr = domain.qsbr_reader();
    assert!(message_of(|| background.run()).contains("`routes`"));
    drop(qsbr);
    background.retire_handle().stop();
    background.run();
}

#[test]
fn a_retirement_that_waits_for_its_own_thread_is_handed_back() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let reader = domain.reader();
    let object = cell.protect(&reader).expect("never empty");
    let guard = reader.pin();
    let error = cell.take().expect("never empty").free().expect_err("a guard is held");
    assert_eq!(Err(error.cause().clone()), would_deadlock(&domain, ReaderKind::Guard));
    assert!(error.to_string().contains("leave the region"), "{error}");
    drop(guard);
    let error = error.into_inner().free_timeout(SHORT).expect_err("it is protected");
    assert_eq!(Err(error.cause().clone()), would_deadlock(&domain, ReaderKind::ProtectedLoad));
    let old = error.into_inner();
    old.verify();
    drop(object);
    old.free_timeout(LONG).expect("there is no reader");
    assert_eq!((census.freed(), census.alive()), (1, 0));
}

#[test]
fn a_retirement_without_a_domain_is_freed_at_once() {
    let census = Census::default();
    let old = Domain::new().cell(census.object()).take().expect("never empty");
    old.free().expect("without a handle there is no reader");
    assert_eq!(census.freed(), 1);
}

/// This is no error, since another thread holds the guard: the wait goes on until that thread drops it.
#[test]
fn a_guard_of_another_thread_only_delays() {
    let domain = Domain::new();
    let other = in_region(&domain);
    let asked = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(SHORT);
            drop(other);
        });
        assert_eq!(domain.synchronize(), Ok(()));
    });
    assert!(asked.elapsed() < LONG);
}

#[test]
fn a_stalled_wait_ends_with_its_limit() {
    let domain = Domain::new();
    let other = in_region(&domain);
    let asked = Instant::now();
    let answer = domain.synchronize_timeout(SHORT);
    assert!(asked.elapsed() >= SHORT);
    assert!(matches!(answer, Err(SynchronizeError::Stalled(_))), "{answer:?}");
    drop(other);
    assert_eq!(domain.synchronize_timeout(LONG), Ok(()));
}

/// The system may give a new thread all the identification of an ended one, but it has its own reader.
#[test]
#[cfg_attr(miri, ignore = "has no thread ids")]
fn a_reader_that_a_dead_thread_forgot_is_not_taken_for_the_callers() {
    let domain = Domain::new();
    let forgets = || {
        let reader = Box::leak(Box::new(domain.reader()));
        mem::forget(reader.pin());
    };
    thread::scope(|scope| scope.spawn(forgets).join().expect("it does not panic"));
    for _ in 0..10 {
        let answer = thread::scope(|scope| {
            scope.spawn(|| domain.synchronize_timeout(SHORT)).join().expect("it does not panic")
        });
        let Err(SynchronizeError::Stalled(stall)) = answer else { panic!("{answer:?}") };
        assert_eq!((stall.reader, stall.thread_name), (ReaderKind::Guard, None));
    }
}

/// A slot that changes owners is never seen with its old owner and its new state.
#[test]
fn a_reader_of_another_thread_is_never_taken_for_the_callers() {
    let rounds = if cfg!(miri) { 20 } else { 100_000 };
    let domain = Domain::new();
    let done = std::sync::atomic::AtomicBool::new(false);
    // Relaxed, both: a flag that orders nothing.
    let order = std::sync::atomic::Ordering::Relaxed;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(order) {
                drop(domain.qsbr_reader());
            }
        });
        let _ending = Ending(|| done.store(true, order));
        for _ in 0..rounds {
            drop(domain.qsbr_reader()); // the slot that the other thread claims next was this thread's
            assert_eq!(domain.synchronize(), Ok(()));
        }
    });
}

#[test]
fn an_object_that_was_not_freed_comes_with_the_cause() {
    use std::error::Error;

    let domain = Domain::builder().name("routes").build().expect("the default mode is always available");
    let cell = domain.cell(7);
    let reader = domain.reader();
    let guard = reader.pin();
    let error = cell.take().expect("never empty").free().expect_err("a guard is held");
    let text = error.to_string();
    assert!(
        text.contains("free it later, or retire it") && text.contains("leave the region first"),
        "{text}"
    );
    assert_eq!(error.source().expect("it has a cause").to_string(), error.cause().to_string());
    let (old, cause) = error.into_parts();
    assert_eq!((*old, Err(cause)), (7, would_deadlock(&domain, ReaderKind::Guard)));
    drop(guard);
    old.free().expect("there is no reader");
}
