//! Background reclaimers that are full, or are stopped, abandoned, closed or dropped at a bad moment.

use std::panic::{catch_unwind, panic_any, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::rcu::limits::RetireErrorKind;
use stillpoint::rcu::{BackgroundReclaimer, Domain, Retired};

use super::until;
use crate::census::{Census, Object};
use crate::other::silent;
use crate::then::Then;
use crate::{LONG, SHORT};

fn retired(domain: &Domain, census: &Census) -> Retired<Object> {
    domain.cell(census.object()).take().expect("the cell is full")
}

/// Runs `background` on a new thread, which sends it back over the channel when the run has returned.
///
/// The thread is not joined, so that a run that never returns makes the waiting test fail instead of hang.
fn spawn(mut background: BackgroundReclaimer) -> mpsc::Receiver<BackgroundReclaimer> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        background.run();
        let _ = sender.send(background);
    });
    receiver
}

#[test]
fn a_full_channel_hands_the_object_back() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut background = domain.reclaimer_builder().max_pending(2).build_background();
    let handle = background.retire_handle();
    handle.retire(retired(&domain, &census)).expect("there is room");
    handle.clone().retire(retired(&domain, &census)).expect("there is room");
    let error = handle.retire(retired(&domain, &census)).expect_err("no thread takes anything out");
    assert_eq!(error.kind(), RetireErrorKind::Full);
    let old = error.into_inner();
    old.verify();

    let asked = Instant::now();
    let error = handle.retire_timeout(old, SHORT).expect_err("no thread takes anything out");
    assert_eq!(error.kind(), RetireErrorKind::Full);
    assert!(asked.elapsed() >= SHORT);
    assert_eq!((handle.pending(), census.freed()), (2, 0));

    handle.stop();
    background.run();
    assert_eq!((handle.pending(), census.freed()), (0, 2));
    handle.retire(error.into_inner()).expect("there is room again");
}

/// What fills a limit is less than a batch, and the next fence for less is an hour away: the thread that was refused asks for it.
#[test]
fn a_full_reclaimer_waits_for_no_pace() {
    let (domain, census) = (Domain::new(), Census::default());
    let _silent = silent(&domain);
    let background = domain
        .reclaimer_builder()
        .max_pending(8)
        .fence_interval(Duration::from_secs(3600))
        .build_background();
    let handle = background.retire_handle();
    let run = spawn(background);
    for _ in 0..64 {
        handle.retire_timeout(retired(&domain, &census), LONG).expect("the reclaimer makes room");
    }
    assert!(census.freed() >= 56, "{} freed", census.freed());
    handle.stop();
    run.recv_timeout(LONG).expect("it returns");
}

#[test]
fn a_channel_full_of_bytes_hands_the_object_back() {
    let domain = Domain::new();
    let mut background = domain.reclaimer_builder().max_pending_bytes(1000).build_background();
    let handle = background.retire_handle();
    let retired = |byte: u8| domain.cell([byte; 400]).take().expect("the cell is full");
    handle.retire(retired(1)).expect("there is room");
    handle.retire(retired(2)).expect("there is room");
    let error = handle.retire(retired(3)).expect_err("200 bytes are left");
    assert_eq!(error.kind(), RetireErrorKind::Full);
    let third = error.into_inner();
    assert_eq!(third[0], 3);
    handle.retire(domain.cell([4_u8; 200]).take().expect("the cell is full")).expect("it fits exactly");
    handle.stop();
    background.run();
    handle.retire(third).expect("there is room again");
    assert_eq!((handle.pending(), domain.stats().freed), (1, 3));
}

/// The limit also counts objects that the reclaimer has accepted.
#[test]
fn objects_that_readers_hold_up_fill_a_background_reclaimer() {
    let (domain, census) = (Domain::new(), Census::default());
    let reader = domain.reader();
    let guard = reader.pin();
    let background = domain.reclaimer_builder().max_pending(2).build_background();
    let handle = background.retire_handle();
    let returned = spawn(background);
    handle.retire_timeout(retired(&domain, &census), LONG).expect("there is room");
    handle.retire_timeout(retired(&domain, &census), LONG).expect("there is room");
    let error = handle.retire_timeout(retired(&domain, &census), SHORT).expect_err("a guard is held");
    assert_eq!((error.kind(), census.freed()), (RetireErrorKind::Full, 0));
    drop(guard);
    handle.retire_timeout(error.into_inner(), LONG).expect("the guard is gone");
    handle.stop();
    returned.recv_timeout(LONG).expect("everything can be freed");
    assert_eq!((handle.pending(), census.freed()), (0, 3));
}

#[test]
fn a_closed_background_reclaimer_hands_the_object_back() {
    let (domain, census) = (Domain::new(), Census::default());
    let background = domain.background();
    let handle = background.retire_handle();
    drop(background);
    let error = handle.retire(retired(&domain, &census)).expect_err("the reclaimer is gone");
    assert_eq!(error.kind(), RetireErrorKind::Closed);
    let error = handle.retire_timeout(error.into_inner(), LONG).expect_err("the reclaimer is gone");
    assert_eq!(error.kind(), RetireErrorKind::Closed);
    assert!(error.to_string().contains("gone"), "{error}");
    domain.reclaimer().retire(error.into_inner()).expect("it was handed back");
}

#[test]
fn stop_waits_until_everything_is_freed() {
    let (domain, census) = (Domain::new(), Census::default());
    let reader = domain.reader();
    let guard = reader.pin();
    let background = domain.background();
    let handle = background.retire_handle();
    let returned = spawn(background);
    for _ in 0..100 {
        handle.retire(retired(&domain, &census)).expect("there is room");
    }
    handle.stop();
    assert!(returned.recv_timeout(SHORT).is_err(), "a guard is held");
    drop(guard);
    returned.recv_timeout(LONG).expect("the guard is gone");
    assert_eq!((census.freed(), handle.pending()), (100, 0));
}

/// More dropped retirements are left to the domain's reclaimers than one poll adopts.
#[test]
fn a_run_that_has_ended_sits_on_nothing_that_was_left_to_the_domain() {
    let left = if cfg!(miri) { 150 } else { 1000 };
    let (domain, census) = (Domain::new(), Census::default());
    for _ in 0..left {
        drop(retired(&domain, &census));
    }
    let mut background = domain.background();
    background.retire_handle().stop();
    background.run();
    assert_eq!(
        (census.freed(), domain.stats().pending),
        (left, 0),
        "`stop` waits for what was left to the domain, too"
    );
    let mut other = domain.reclaimer();
    while other.poll() > 0 {}
    assert_eq!((census.freed(), domain.stats().pending), (left, 0));
}

#[test]
fn abandon_returns_whatever_waits_and_loses_nothing() {
    let (domain, census) = (Domain::new(), Census::default());
    let reader = domain.reader();
    let guard = reader.pin();
    let background = domain.background();
    let handle = background.retire_handle();
    let returned = spawn(background);
    for _ in 0..100 {
        handle.retire(retired(&domain, &census)).expect("there is room");
    }
    handle.abandon();
    let background = returned.recv_timeout(LONG).expect("it does not wait for the guard");
    assert_eq!(census.freed(), 0);
    drop(background);
    drop(guard);
    let mut reclaimer = domain.reclaimer();
    reclaimer.flush().expect("nothing is in the way");
    assert_eq!(census.freed(), 100, "left to the domain, and adopted");
}

#[test]
fn a_run_ends_with_its_last_handle() {
    let (domain, census) = (Domain::new(), Census::default());
    let background = domain.background();
    let handle = background.retire_handle();
    let second = handle.clone();
    let returned = spawn(background);
    handle.retire(retired(&domain, &census)).expect("there is room");
    drop(handle);
    second.retire(retired(&domain, &census)).expect("it is still running");
    drop(second);
    returned.recv_timeout(LONG).expect("no thread can submit any more");
    assert_eq!(census.freed(), 2);
}

#[test]
fn being_without_handles_is_a_state_and_not_an_end() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut background = domain.background();
    for round in 1..=3 {
        drop(background.retire_handle());
        let handle = background.retire_handle();
        drop(background.retire_handle());
        let returned = spawn(background);
        handle.retire(retired(&domain, &census)).expect("there is room");
        until("it is freed", || census.freed() == round);
        assert!(returned.try_recv().is_err(), "round {round}: there is a handle");
        drop(handle);
        background = returned.recv_timeout(LONG).expect("no thread can submit any more, or stop it");
    }
    background.run();
    background.retire_handle().stop();
    let handle = background.retire_handle();
    spawn(background).recv_timeout(LONG).expect("a stop is an end");
    drop(handle);
}

/// After a panic, the run goes on to the other panicking objects, and to objects that are retired later. A retirement
/// that waits for room gets the room of a panicking object.
#[test]
fn a_panicking_destructor_does_not_end_a_run() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut background = domain.reclaimer_builder().max_pending(1).build_background();
    let handle = background.retire_handle();
    let running = thread::spawn(move || {
        let answer = catch_unwind(AssertUnwindSafe(|| background.run()));
        (
            background,
            answer
                .expect_err("destructors panicked")
                .downcast::<usize>()
                .expect("the payload is the number of the object"),
        )
    });
    for number in 0..10_usize {
        let object = census.object();
        let bomb = Then::new(move || {
            drop(object);
            panic_any(number);
        });
        let bomb = domain.cell(bomb).take().expect("the cell is full");
        handle.retire_timeout(bomb, LONG).expect("the one before it is freed");
        handle.retire_timeout(retired(&domain, &census), LONG).expect("the panicking one is freed");
    }
    until("everything is freed", || handle.pending() == 0);
    assert!(!running.is_finished());
    handle.stop();
    let (mut background, first) = running.join().expect("the panic was caught");
    assert_eq!((*first, census.freed(), domain.stats().freed), (0, 20, 20));
    background.run();
    assert_eq!(census.alive(), 0);
}

/// A stop may come at any point of the run, even between its check of the phase and its sleep.
#[test]
fn a_stop_is_never_missed() {
    let rounds: usize = if cfg!(miri) { 30 } else { 50_000 };
    let domain = Domain::new();
    let begun = Arc::new(AtomicUsize::new(0));
    let (work, to_run) = mpsc::channel::<BackgroundReclaimer>();
    let (done, has_run) = mpsc::channel();
    let runs = Arc::clone(&begun);
    thread::spawn(move || {
        for mut background in to_run {
            // Relaxed, here and below: a flag that orders nothing.
            runs.fetch_add(1, Ordering::Relaxed);
            background.run();
            if done.send(()).is_err() {
                return;
            }
        }
    });
    for round in 0..rounds {
        let background = domain.background();
        let handle = background.retire_handle();
        work.send(background).expect("the thread is waiting");
        while begun.load(Ordering::Relaxed) <= round {
            thread::yield_now();
        }
        let seen = Instant::now();
        while seen.elapsed() < Duration::from_nanos(10) * (round as u32 % 200) {
            std::hint::spin_loop();
        }
        handle.stop();
        has_run.recv_timeout(LONG).unwrap_or_else(|_| panic!("round {round}: the run did not see the stop"));
    }
}

#[test]
fn what_is_handed_in_after_the_end_of_a_run_waits_for_another_one() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut background = domain.background();
    let handle = background.retire_handle();
    handle.stop();
    background.run();
    handle.retire(retired(&domain, &census)).expect("it is not closed");
    assert_eq!((handle.pending(), census.freed()), (1, 0));
    background.run();
    assert_eq!((handle.pending(), census.freed()), (0, 1));
}

/// An object comes back from its retire handle, is freed, or is left to the domain, whenever the reclaimer is dropped.
#[test]
fn nothing_is_lost_when_the_reclaimer_goes_while_others_submit() {
    let rounds = if cfg!(miri) { 10 } else { 200 };
    for _ in 0..rounds {
        let (domain, census) = (Domain::new(), Census::default());
        let mut background = domain.background();
        let handle = background.retire_handle();
        thread::scope(|scope| {
            for handle in [handle.clone(), handle.clone()] {
                let (domain, census) = (&domain, &census);
                scope.spawn(move || {
                    // Enough turns for the other threads to have begun, as a rule.
                    let _ = (0..500).try_for_each(|_| handle.retire(retired(domain, census)));
                });
            }
            scope.spawn(move || {
                handle.abandon();
                background.run();
            });
        });
        assert_eq!(domain.stats().readers, 0);
        let made = census.freed() + census.alive();
        drop(domain);
        assert_eq!((census.freed(), census.alive()), (made, 0));
    }
}

/// The objects of a dropped reclaimer wait in the domain, and not in a handle that happens to live on.
#[test]
fn what_was_submitted_to_a_reclaimer_that_goes_can_be_adopted_at_once() {
    let (domain, census) = (Domain::new(), Census::default());
    let background = domain.background();
    let handle = background.retire_handle();
    for _ in 0..10 {
        handle.retire(retired(&domain, &census)).expect("there is room");
    }
    drop(background);
    assert_eq!(domain.reclaimer().poll(), 10);
    drop(handle);
}

#[test]
fn a_call_deferred_to_a_reclaimer_that_is_gone_is_left_to_the_domain() {
    let domain = Domain::new();
    let background = domain.background();
    let handle = background.retire_handle();
    drop(background);
    let (sender, receiver) = mpsc::channel();
    handle.defer(move || sender.send(5).expect("the receiver is alive"));
    assert_eq!(domain.reclaimer().poll(), 1);
    assert_eq!(receiver.try_recv(), Ok(5));
}

/// A retirement that waits for room fails at once when there will never be any. The error does not say that the
/// reclaimer is full.
#[test]
fn a_handle_that_waits_for_room_is_told_that_the_reclaimer_is_gone() {
    let (domain, census) = (Domain::new(), Census::default());
    let background = domain.reclaimer_builder().max_pending(1).build_background();
    let handle = background.retire_handle();
    handle.retire(retired(&domain, &census)).expect("there is room");
    thread::scope(|scope| {
        let waits = scope.spawn(|| handle.retire_timeout(retired(&domain, &census), LONG));
        until("it waits for room", || domain.stats().waits == 1);
        drop(background);
        let error = waits.join().expect("it does not panic").expect_err("no thread accepts it");
        assert_eq!(error.kind(), RetireErrorKind::Closed);
        error.into_inner().verify();
    });
    assert_eq!(domain.stats().handed_back, 0, "this counts what was refused for want of room");
}

/// A stop does not depend on the pace, which may be arbitrarily slow.
#[test]
fn a_stop_does_not_wait_for_the_fence_interval() {
    let (domain, census) = (Domain::new(), Census::default());
    let _silent = silent(&domain);
    let slow = domain.reclaimer_builder().batch(usize::MAX).fence_interval(Duration::from_secs(1000));
    let mut background = slow.build_background();
    for round in 1..=3 {
        let handle = background.retire_handle();
        handle.retire(retired(&domain, &census)).expect("there is room");
        if round == 3 {
            handle.stop();
        } else {
            drop(handle);
        }
        background = spawn(background).recv_timeout(LONG).expect("it frees what there is, and returns");
        assert_eq!(census.freed(), round);
    }
}

/// A reclaimer that has waited for a full batch is woken for a smaller one when it sleeps and has nothing to do.
#[test]
fn a_reclaimer_that_has_waited_for_a_batch_is_woken_for_one_object_again() {
    let (domain, census) = (Domain::new(), Census::default());
    let _silent = silent(&domain);
    let builder = domain.reclaimer_builder().batch(1000).fence_interval(Duration::from_millis(2));
    let background = builder.build_background();
    let handle = background.retire_handle();
    let returned = spawn(background);
    for round in 1..=30 {
        handle.retire(retired(&domain, &census)).expect("there is room");
        until("it is freed", || census.freed() == round);
        if round % 3 == 0 {
            // The reclaimer has nothing to do now.
            thread::sleep(Duration::from_millis(3));
        }
    }
    handle.stop();
    drop(returned.recv_timeout(LONG).expect("everything is freed"));
}
