//! The end of a queue.

use std::task::Poll;
use std::time::Duration;

use stillpoint::timer::delay_queue::InsertError;

use super::mock::{due, insert, queue, Call, HOUR, MS};

#[test]
fn a_closed_queue_hands_out_what_is_left_at_its_time() {
    let (queue, mock) = queue();
    insert(&queue, 1, MS);
    let second = insert(&queue, 2, HOUR);
    let mut leader = Call::waiting(&queue, &mock);
    queue.close();
    assert!(queue.is_closed() && leader.poll().is_pending());
    assert_eq!(leader.rung(), 0);
    assert_eq!(queue.insert(3, MS), Err(InsertError::Closed(3)));
    assert_eq!(queue.insert_at(3, mock.now()), Err(InsertError::Closed(3)));
    mock.advance(MS);
    assert_eq!(leader.poll(), Poll::Ready(Some(1)));
    assert!(queue.reset(&second, MS)); // what is left may be reset
    let mut next = Call::waiting(&queue, &mock);
    mock.advance(MS);
    assert_eq!(next.poll(), Poll::Ready(Some(2)));
    assert_eq!(Call::new(&queue, &mock).poll(), Poll::Ready(None));
    assert_eq!((queue.wait(), queue.wait_timeout(HOUR), queue.try_next()), (None, None, None));
}

/// Each is woken once, by the one before.
#[test]
fn all_who_wait_see_the_end() {
    type End = fn(&stillpoint::timer::delay_queue::DelayQueue<i32>, &stillpoint::timer::Key);
    let ends: [(&str, End); 4] = [
        ("remove", |queue, key| assert!(queue.remove(key).is_some())),
        ("clear", |queue, _| queue.clear()),
        ("drain", |queue, _| assert_eq!(queue.drain().count(), 1)),
        ("reset and try_next", |queue, key| {
            assert!(queue.reset(key, Duration::ZERO) && queue.try_next().is_some());
        }),
    ];
    for (name, end) in ends {
        for close_first in [false, true] {
            let (queue, mock) = queue();
            let key = insert(&queue, 1, HOUR);
            let mut calls = [(); 3].map(|()| Call::waiting(&queue, &mock));
            if close_first {
                queue.close();
                end(&queue, &key);
            } else {
                end(&queue, &key);
                queue.close();
            }
            for call in &mut calls {
                assert_eq!((call.rung(), call.poll()), (1, Poll::Ready(None)), "{name}");
            }
            assert_eq!(calls.each_ref().map(Call::rung), [1, 1, 1], "{name}");
        }
    }
}

#[test]
fn the_last_item_of_a_closed_queue_ends_the_others() {
    for taken_by_follower in [false, true] {
        let (queue, mock) = queue();
        insert(&queue, 1, MS);
        let (mut leader, mut follower) = (Call::waiting(&queue, &mock), Call::waiting(&queue, &mock));
        queue.close();
        mock.advance(MS);
        let (first, second) =
            if taken_by_follower { (&mut follower, &mut leader) } else { (&mut leader, &mut follower) };
        assert_eq!((first.poll(), first.rung()), (Poll::Ready(Some(1)), 0));
        assert_eq!((second.rung(), second.poll()), (1, Poll::Ready(None)));
    }
}

#[test]
fn a_queue_that_is_closed_and_empty_ends_at_once() {
    let (queue, mock) = queue::<i32>();
    queue.close();
    queue.close();
    assert_eq!(Call::new(&queue, &mock).poll(), Poll::Ready(None));
    assert_eq!(queue.wait(), None);
}

#[test]
fn clear_leaves_the_queue_open() {
    let (queue, mock) = queue();
    let keys: Vec<_> = (1..101).map(|number| insert(&queue, number, number as u32 * MS)).collect();
    let mut leader = Call::waiting(&queue, &mock);
    assert_eq!(leader.poll(), Poll::Pending);
    queue.clear();
    assert!(queue.is_empty() && keys.iter().all(|key| queue.remove(key).is_none()));
    assert_eq!((leader.rung(), queue.peek()), (0, None));
    insert(&queue, 7, Duration::ZERO);
    assert_eq!((leader.rung(), leader.poll()), (1, Poll::Ready(Some(7))));
}

#[test]
fn drain_takes_what_is_due_and_what_is_not() {
    let (queue, mock) = queue();
    for number in 0..10_u32 {
        insert(&queue, number, number * MS);
    }
    mock.advance(3 * MS);
    assert_eq!(queue.try_next().map(|item| item.into_inner()), Some(0)); // others are ready then
    let mut left: Vec<_> = queue.drain().take(5).map(|item| item.into_inner()).collect();
    assert!(queue.is_empty(), "what the iterator had left is dropped");
    left.sort_unstable();
    left.dedup();
    assert_eq!(left.len(), 5);
    assert!(due(&queue).is_empty());
}

/// Of an iterator that has ended, only the drop is left to come.
#[test]
fn an_iterator_that_has_ended_drops_nothing_that_comes_later() {
    let (queue, _mock) = queue();
    // More than one look at free places.
    let keys: Vec<_> = (0..3_000).map(|value| insert(&queue, value, HOUR)).collect();
    keys[..2_999].iter().for_each(|key| assert!(queue.remove(key).is_some()));
    let mut left = queue.drain();
    assert_eq!(left.next().map(|item| item.into_inner()), Some(2_999));
    assert!(left.next().is_none());
    insert(&queue, 1, HOUR);
    assert!(left.next().is_none());
    drop(left);
    assert_eq!(queue.len(), 1);
}
