//! Single operations, and bad input.

use std::time::{Duration, Instant};

use stillpoint::timer::delay_queue::{DelayQueue, InsertError};
use stillpoint::timer::Key;

use super::allocated::set_hook;
use super::mock::{due, insert, queue, timed, HOUR, MS};

const TICK: Duration = Duration::from_nanos(1_024);

#[test]
fn each_look_finds_all_that_is_due() {
    let (queue, mock) = queue();
    // Far apart and near, in every level that an hour has; added in an order that is not theirs.
    let delays = (0..5_000_u64).map(|number| number * 7_919 % 5_003 * (number % 7 + 1) * 1_000_000 / 17);
    let mut left: Vec<u64> = delays.collect();
    for &delay in &left {
        insert(&queue, delay, Duration::from_nanos(delay));
    }
    left.sort_unstable();
    for _ in 0..100 {
        mock.set(Duration::from_nanos(left[49]) + TICK);
        let passed = mock.passed().as_nanos() as u64;
        let mut found = due(&queue);
        found.sort_unstable();
        let rest = left.split_off(left.partition_point(|delay| delay.div_ceil(1_024) <= passed / 1_024));
        assert_eq!(found, std::mem::replace(&mut left, rest));
        if left.len() < 50 {
            break;
        }
    }
}

#[test]
fn a_call_at_each_deadline_gets_the_items_in_order() {
    let (queue, mock) = queue();
    for number in 0..1_000_u64 {
        insert(&queue, number, Duration::from_nanos((number * 7_919 % 1_009) * 1_024 * 37));
    }
    let mut before = None;
    for _ in 0..1_000 {
        let next = queue.peek().unwrap();
        let deadline = queue.deadline(&next).unwrap();
        mock.set(deadline - mock.begin());
        let item = queue.try_next().unwrap();
        assert_eq!((item.key(), item.deadline()), (next, deadline));
        assert!(before.replace(deadline) < Some(deadline));
    }
}

#[test]
fn equal_deadlines_come_in_the_order_of_insertion_or_of_the_last_reset() {
    let (queue, mock) = queue();
    let at = mock.now() + 40 * MS;
    let keys: Vec<_> = (0..10)
        .map(|number| {
            let key = queue.insert_at(number, at).unwrap();
            insert(&queue, 100, HOUR);
            mock.advance(3 * MS); // so that they are added to several levels
            assert!(due(&queue).is_empty());
            key
        })
        .collect();
    assert!(queue.reset_at(&keys[3], at));
    mock.advance(20 * MS);
    assert_eq!(due(&queue), [0, 1, 2, 4, 5, 6, 7, 8, 9, 3]);
}

#[test]
fn nothing_is_early() {
    let (queue, mock) = queue();
    mock.advance(Duration::from_nanos(1)); // in the middle of a tick
    for nanoseconds in [1, 1_000, 1_023, 1_024, 1_025, 5_000, 1_000_000, 3_000_000_001] {
        let begin = mock.now();
        let delay = Duration::from_nanos(nanoseconds);
        let key = insert(&queue, nanoseconds, delay);
        let deadline = queue.deadline(&key).unwrap();
        assert!(deadline >= begin + delay && deadline < begin + delay + TICK, "{delay:?}");
        mock.advance(deadline - mock.now() - Duration::from_nanos(1));
        assert_eq!(due(&queue), [], "{delay:?}");
        mock.advance(Duration::from_nanos(1));
        let item = queue.try_next().expect("it is due");
        assert_eq!((item.deadline(), item.key(), *item.get_ref()), (deadline, key, nanoseconds));
    }
}

#[test]
fn a_delay_of_zero_and_a_time_that_has_passed_are_due_at_once() {
    let (queue, mock) = queue();
    insert(&queue, 1, Duration::ZERO);
    assert_eq!(due(&queue), [1]);
    mock.advance(HOUR);
    queue.insert_at(2, mock.now() - HOUR - HOUR).unwrap();
    queue.insert_at(3, mock.now()).unwrap();
    assert_eq!(due(&queue), [2, 3]);
    // The time is between two ticks: it is due at the next one, not before.
    mock.advance(Duration::from_nanos(1));
    insert(&queue, 4, Duration::ZERO);
    mock.advance(TICK);
    assert_eq!(due(&queue), [4]);
}

#[test]
fn the_farthest_deadlines_are_never_due() {
    let (queue, mock) = queue();
    let keys = [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(1 << 60)]
        .map(|delay| insert(&queue, 1, delay));
    mock.advance(Duration::from_nanos(u64::MAX / 2));
    assert_eq!(queue.try_next(), None);
    assert_eq!(queue.len(), 3);
    assert!(keys.iter().all(|key| queue.deadline(key).is_some_and(|at| at > mock.now())));
    assert!(queue.reset(&keys[1], Duration::ZERO) && queue.reset(&keys[0], Duration::MAX));
    mock.advance(TICK);
    assert_eq!(due(&queue).len(), 1);
}

#[test]
fn stale_and_foreign_keys_are_harmless() {
    let (queue, _mock) = queue();
    let (other, _) = super::mock::queue();
    let foreign = insert(&other, 9, MS);
    let stale = insert(&queue, 1, HOUR);
    assert_eq!(queue.remove(&stale), Some(1));
    let present = insert(&queue, 2, HOUR); // takes the same place
    for key in [stale, foreign, Key::from_bits(u64::MAX).unwrap(), Key::from_bits(1).unwrap()] {
        assert_eq!((queue.remove(&key), queue.deadline(&key)), (None, None));
        assert!(!queue.reset(&key, MS) && !queue.reset_at(&key, Instant::now()));
    }
    assert_eq!((queue.len(), queue.remove(&present)), (1, Some(2)));
}

#[test]
fn a_due_item_can_be_removed_and_put_off() {
    let (queue, mock) = queue();
    let keys: Vec<_> = (0..4).map(|number| insert(&queue, number, MS)).collect();
    mock.advance(2 * MS);
    assert_eq!(queue.try_next().map(|item| item.into_inner()), Some(0)); // the others are ready
    assert_eq!(queue.remove(&keys[1]), Some(1));
    assert!(queue.reset(&keys[2], MS));
    assert_eq!(due(&queue), [3]);
    mock.advance(MS);
    assert_eq!(due(&queue), [2]);
    assert!(keys.iter().all(|key| !queue.reset(key, MS)));
}

#[test]
fn peek_names_the_earliest() {
    let (queue, mock) = queue();
    assert_eq!(queue.peek(), None);
    let mut earliest = None;
    for delay in [9 * HOUR, 5 * HOUR, HOUR, HOUR / 2, 70 * MS, 50 * MS, 3 * TICK, 2 * TICK] {
        let key = insert(&queue, 0, delay);
        assert_eq!(queue.peek(), Some(key), "{delay:?}");
        insert(&queue, 0, delay + delay);
        earliest = Some((key, delay));
    }
    let (key, delay) = earliest.unwrap();
    mock.advance(delay);
    assert_eq!(queue.peek(), Some(key)); // also when it is due
    assert!(queue.reset(&key, 10 * HOUR) && queue.peek() != Some(key));
}

thread_local! {
    static ALLOCATIONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[test]
fn a_full_queue_hands_the_value_back_and_no_call_that_fails_allocates() {
    let (queue, mock) = timed(DelayQueue::with_max_len(3));
    let keys: Vec<_> = (0..3).map(|number| insert(&queue, number, MS)).collect();
    queue.remove(&keys[1]);
    set_hook(Some(|| ALLOCATIONS.set(ALLOCATIONS.get() + 1)));
    let before = ALLOCATIONS.get();
    assert!(queue.insert(3, MS).is_ok(), "a place was free");
    for _ in 0..3 {
        assert_eq!(queue.insert(4, MS), Err(InsertError::Full(4)));
        assert_eq!(queue.insert_at(4, mock.now()), Err(InsertError::Full(4)));
        assert_eq!(queue.remove(&keys[1]), None);
        assert!(!queue.reset(&keys[1], MS));
        assert_eq!(queue.try_next(), None);
        assert_eq!(queue.wait_timeout(Duration::ZERO), None);
    }
    queue.close();
    assert_eq!(queue.insert(4, MS), Err(InsertError::Closed(4)));
    let allocations = ALLOCATIONS.get() - before;
    set_hook(None);
    assert_eq!(allocations, 0);
    mock.advance(MS);
    assert_eq!(due(&queue), [0, 2, 3]);
    assert!(InsertError::Full(4).to_string().contains("no room"));
    assert!(format!("{:?}", InsertError::Closed(4)).contains("closed"));
}

#[test]
fn capacity_is_kept_and_given_back() {
    let queue = DelayQueue::with_capacity(1_000);
    let keys: Vec<_> = (0..1_000).map(|number| insert(&queue, number, HOUR)).collect();
    keys[1..].iter().for_each(|key| assert!(queue.remove(key).is_some()));
    queue.shrink_to_fit();
    assert_eq!(queue.remove(&keys[0]), Some(0));
    assert!(keys.iter().all(|key| queue.remove(key).is_none()));
    assert!(format!("{queue:?}").starts_with("DelayQueue { items: 0, is_closed: false"));
}

#[test]
#[should_panic(expected = "set the clock first")]
fn the_clock_of_a_queue_with_items_stays() {
    let queue = DelayQueue::new();
    insert(&queue, 1, HOUR);
    drop(queue.timed_by(Instant::now));
}

/// A clock that is set back. Items may be due too early, but all come out.
#[test]
fn a_time_that_goes_back_loses_nothing() {
    let (queue, mock) = queue();
    insert(&queue, 1, 2 * HOUR);
    mock.advance(HOUR);
    assert!(due(&queue).is_empty());
    mock.set(Duration::ZERO);
    insert(&queue, 2, 90 * HOUR / 60);
    assert!(due(&queue).is_empty());
    mock.set(3 * HOUR);
    assert_eq!(due(&queue), [2, 1]);
}
