//! Full queues hand the object back.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::rcu::limits::{RetireErrorKind, WhenFull};
use stillpoint::rcu::{Domain, Retired};

use super::in_region;
use crate::census::Census;
use crate::{LONG, SHORT};

/// The number of dropped retirements: more than one poll adopts.
const LEFT: usize = if cfg!(miri) { 150 } else { 1000 };

fn retired<T: Send + Sync + 'static>(domain: &Domain, object: T) -> Retired<T> {
    domain.cell(object).take().expect("the cell is full")
}

#[test]
fn a_reclaimer_full_of_objects_hands_the_next_one_back() {
    let (domain, census) = (Domain::new(), Census::default());
    let reader = domain.reader();
    let guard = reader.pin();
    let mut reclaimer = domain.reclaimer_builder().max_pending(3).fence_interval(Duration::ZERO).build();
    for _ in 0..3 {
        reclaimer.retire(retired(&domain, census.object())).expect("there is room");
    }
    let error = reclaimer.retire(retired(&domain, census.object())).expect_err("the queue is full");
    assert_eq!(error.kind(), RetireErrorKind::Full);
    assert!(error.to_string().contains("full"), "{error}");
    let old = error.into_inner();
    old.verify();
    assert_eq!((reclaimer.pending(), census.freed()), (3, 0));

    drop(guard);
    reclaimer.retire(old).expect("a full queue polls first, and nothing is in the way");
    assert_eq!((reclaimer.pending(), census.freed()), (1, 3));
}

/// A wait for room would never end.
#[test]
fn an_object_larger_than_a_limit_is_handed_back_at_once() {
    let limited = Domain::builder().max_pending_bytes(100).build().unwrap();
    for (domain, own) in [(Domain::new(), 100), (limited, usize::MAX)] {
        let when_full = WhenFull::Wait(Duration::MAX);
        let builder = domain.reclaimer_builder().max_pending_bytes(own).when_full(when_full);
        let (mut reclaimer, background) = (builder.clone().build(), builder.build_background());
        let handle = background.retire_handle();

        let error = reclaimer.retire(retired(&domain, [1_u8; 101])).unwrap_err();
        assert_eq!((error.kind(), error.kind().is_full()), (RetireErrorKind::TooLarge, false));
        assert!(error.to_string().contains("max_pending_bytes"), "{error}");
        let error = handle.retire(error.into_inner()).unwrap_err();
        assert_eq!(error.kind(), RetireErrorKind::TooLarge);
        let error = handle.retire_timeout(error.into_inner(), Duration::MAX).unwrap_err();
        assert_eq!(error.kind(), RetireErrorKind::TooLarge);
        error.into_inner().free().unwrap();
        assert_eq!(domain.stats().handed_back, 3);

        reclaimer.retire(retired(&domain, [1_u8; 100])).expect("it fits exactly");
        reclaimer.flush().unwrap();
        handle.retire(retired(&domain, [1_u8; 100])).expect("it fits exactly");
    }
}

#[test]
fn a_reclaimer_full_of_bytes_hands_the_next_one_back() {
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    let mut reclaimer =
        domain.reclaimer_builder().max_pending_bytes(1000).fence_interval(Duration::ZERO).build();
    reclaimer.retire(retired(&domain, [1_u8; 600])).expect("there is room");
    let error = reclaimer.retire(retired(&domain, [2_u8; 401])).expect_err("the queue is full");
    assert_eq!(error.kind(), RetireErrorKind::Full);
    let second = error.into_inner();
    assert_eq!(second[0], 2);
    reclaimer.retire(retired(&domain, [3_u8; 400])).expect("it fits exactly");
    assert_eq!((reclaimer.pending(), reclaimer.pending_bytes()), (2, 1000));
    reclaimer.retire(retired(&domain, ())).expect("it takes no room");
    drop(guard);
    reclaimer.retire(second).expect("there is room again");
    assert_eq!((reclaimer.pending(), reclaimer.pending_bytes()), (1, 401));
}

/// Protected loads fill a queue just as guards do.
#[test]
fn a_reclaimer_full_of_protected_objects_hands_the_next_one_back() {
    let (domain, census) = (Domain::new(), Census::default());
    let reader = domain.reader();
    let cells: Vec<_> = (0..4).map(|_| domain.cell(census.object())).collect();
    let mut held: Vec<_> = cells.iter().map(|cell| cell.protect(&reader)).collect();
    let mut reclaimer = domain.reclaimer_builder().max_pending(3).fence_interval(Duration::ZERO).build();
    for cell in &cells[..3] {
        reclaimer.retire(cell.take().expect("the cell is full")).expect("there is room");
    }
    let error = reclaimer.retire(cells[3].take().expect("the cell is full")).expect_err("the queue is full");
    held.swap_remove(1);
    reclaimer.retire(error.into_inner()).expect("one object was released");
    assert_eq!((reclaimer.pending(), census.freed()), (3, 1));
}

#[test]
fn retire_timeout_hands_the_object_back_when_its_time_is_up() {
    let (domain, census) = (Domain::new(), Census::default());
    let reader = domain.reader();
    let _guard = reader.pin();
    let mut reclaimer = domain.reclaimer_builder().max_pending(1).build();
    reclaimer.retire(retired(&domain, census.object())).expect("there is room");
    let asked = Instant::now();
    let error =
        reclaimer.retire_timeout(retired(&domain, census.object()), SHORT).expect_err("a guard is held");
    assert_eq!(error.kind(), RetireErrorKind::Full);
    assert!(asked.elapsed() >= SHORT);
    error.into_inner().verify();
}

#[test]
fn retire_timeout_waits_for_room() {
    let (domain, census) = (Domain::new(), Census::default());
    let other = in_region(&domain);
    let mut reclaimer = domain.reclaimer_builder().max_pending(1).build();
    reclaimer.retire(retired(&domain, census.object())).expect("there is room");
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(SHORT);
            drop(other);
        });
        let next = retired(&domain, census.object());
        reclaimer.retire_timeout(next, LONG).expect("the guard is dropped in time");
    });
    assert_eq!((reclaimer.pending(), census.freed()), (1, 1));
}

#[test]
fn a_capacity_of_nothing_holds_one() {
    let domain = Domain::new();
    let mut reclaimer = domain.reclaimer_builder().max_pending(0).batch(0).build();
    reclaimer.retire(retired(&domain, 1)).expect("there is room for one");
    assert_eq!(reclaimer.poll(), 1);
}

#[test]
fn a_deferred_call_is_taken_in_by_a_full_queue() {
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    let mut reclaimer = domain.reclaimer_builder().max_pending(1).fence_interval(Duration::ZERO).build();
    let (sender, receiver) = mpsc::channel();
    for number in 0..3 {
        let sender = sender.clone();
        reclaimer.defer(move || sender.send(number).expect("the receiver is alive"));
    }
    assert_eq!((reclaimer.pending(), reclaimer.poll()), (3, 0));
    drop(guard);
    assert_eq!(reclaimer.poll(), 3);
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [0, 1, 2], "in the order in which they came");
}

#[test]
fn poll_at_most_frees_no_more_and_keeps_the_order() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut reclaimer = domain.reclaimer();
    for _ in 0..10 {
        reclaimer.retire(retired(&domain, census.object())).expect("there is room");
    }
    assert_eq!((reclaimer.poll_at_most(0), census.freed()), (0, 0));
    assert_eq!((reclaimer.poll_at_most(4), census.freed()), (4, 4));
    assert_eq!((reclaimer.poll_at_most(4), census.freed()), (4, 8));
    assert_eq!((reclaimer.poll_at_most(4), census.freed()), (2, 10));
}

/// Each poll adopts a bounded share; a flush goes on until all is done.
#[test]
fn flush_frees_everything_that_was_left_to_the_domain() {
    let (domain, census) = (Domain::new(), Census::default());
    for _ in 0..LEFT {
        drop(retired(&domain, census.object()));
    }
    let mut reclaimer = domain.reclaimer();
    reclaimer.flush().expect("nothing is in the way");
    assert_eq!((census.freed(), domain.stats().pending), (LEFT, 0));
}

/// Then the same reclaimer goes on, or another one does: what a poll takes from the domain and does not look at is left to others.
#[test]
fn a_poll_adopts_a_bounded_share_of_what_was_left_to_the_domain() {
    for is_idle_then in [false, true] {
        let (domain, census) = (Domain::new(), Census::default());
        for _ in 0..LEFT {
            drop(retired(&domain, census.object()));
        }
        let (mut first, mut second) = (domain.reclaimer(), domain.reclaimer());
        let freed = first.poll();
        assert!((1..=100).contains(&freed), "one poll has freed {freed} objects");
        let busy = if is_idle_then { &mut second } else { &mut first };
        while busy.poll() > 0 {}
        assert_eq!((census.freed(), first.pending()), (LEFT, 0), "idle then: {is_idle_then}");
    }
}

/// Each error names the cause and what to do, and hands the same object back.
#[test]
fn a_refused_retirement_says_what_to_do() {
    let domain = Domain::builder().name("routes").max_pending(2).build().expect("it has the default mode");
    let reader = domain.reader();
    let guard = reader.pin();
    let mut small = domain.reclaimer_builder().max_pending(1).build();
    small.retire(retired(&domain, 0)).expect("there is room");
    let full = small.retire(retired(&domain, 1)).expect_err("it may hold one");
    let mut endless =
        domain.reclaimer_builder().max_pending(1).when_full(WhenFull::Wait(Duration::MAX)).build();
    endless.retire(retired(&domain, 0)).expect("there is room");
    let deadlock = endless.retire(retired(&domain, 5)).expect_err("the guard is its own");
    let mut large = domain.reclaimer();
    let domain_full = large.retire(retired(&domain, 2)).expect_err("the domain may hold two");
    let foreign = Domain::new().reclaimer().retire(retired(&domain, 3)).expect_err("of another domain");
    let handle = domain.background().retire_handle();
    let closed = handle.retire(retired(&domain, 4)).expect_err("its reclaimer is gone");
    drop(guard);
    let expected = [
        (RetireErrorKind::Full, "retire the object later"),
        (
            RetireErrorKind::DomainFull,
            "the domain is full of objects that wait to be freed: poll its reclaimers",
        ),
        (RetireErrorKind::ForeignDomain, "retire it to a reclaimer of its own domain"),
        (RetireErrorKind::Closed, "retire the object to another reclaimer of its domain"),
        (RetireErrorKind::WouldDeadlock, "drop its guards and protected loads, or take its reader offline"),
    ];
    for (number, (error, (kind, remedy))) in
        [full, domain_full, foreign, closed, deadlock].into_iter().zip(expected).enumerate()
    {
        let text = error.to_string();
        assert_eq!(error.kind(), kind);
        assert!(
            text.contains(remedy) && text.contains("domain `routes`") && text.lines().count() == 1,
            "{text}"
        );
        assert!(format!("{error:?}").contains(&format!("cause: {kind:?}")));
        assert_eq!(*error.into_inner(), number + 1);
    }
}

/// A wait without a limit is refused to a thread that is itself in the way, and works once it is not.
#[test]
fn nobody_waits_for_room_that_it_takes_up_itself() {
    let domain = Domain::new();
    let reader = domain.reader();
    let endless = WhenFull::Wait(Duration::MAX);
    let mut own = domain.reclaimer_builder().max_pending(1).when_full(endless).build();

    let cell = domain.cell(1);
    let held = cell.protect(&reader).expect("it is there");
    own.retire(cell.take().expect("it is there")).expect("there is room");
    let error = own.retire(retired(&domain, 2)).expect_err("its protected load holds all that waits");
    assert_eq!(error.kind(), RetireErrorKind::WouldDeadlock);
    drop(held);
    own.retire(error.into_inner()).expect("nothing holds the first one");

    let background = domain.reclaimer_builder().max_pending(1).when_full(endless).build_background();
    let handle = background.retire_handle();
    let guard = reader.pin();
    handle.retire(retired(&domain, 3)).expect("there is room");
    let error = handle.retire(retired(&domain, 4)).expect_err("the guard is its own");
    assert_eq!(error.kind(), RetireErrorKind::WouldDeadlock);
    drop(guard);
}
