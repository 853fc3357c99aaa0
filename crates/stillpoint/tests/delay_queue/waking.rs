//! Who is woken, and how often.

use std::cell::Cell;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use stillpoint::timer::delay_queue::DelayQueue;

use super::mock::{due, insert, queue, Bell, Call, HOUR, MS};

#[test]
fn an_insertion_that_is_due_later_wakes_nobody() {
    let (queue, mock) = queue();
    insert(&queue, 0, 5 * MS);
    let (leader, follower) = (Call::waiting(&queue, &mock), Call::waiting(&queue, &mock));
    for later in [5 * MS, 6 * MS, HOUR, Duration::MAX] {
        insert(&queue, 1, later);
    }
    queue.insert_at(1, mock.now() + HOUR).unwrap();
    assert_eq!((leader.rung(), follower.rung()), (0, 0));
}

#[test]
fn an_insertion_that_is_due_earlier_wakes_the_leader_once() {
    for nothing_before in [false, true] {
        let (queue, mock) = queue();
        if !nothing_before {
            insert(&queue, 0, HOUR);
        }
        let mut leader = Call::waiting(&queue, &mock);
        let followers = [(); 3].map(|()| Call::waiting(&queue, &mock));
        let rung = |leader: &Call<'_, i32>| (leader.rung(), followers.iter().map(Call::rung).sum::<usize>());
        insert(&queue, 1, 3 * MS);
        assert_eq!(rung(&leader), (1, 0));
        // It has not asked since, and will see these.
        insert(&queue, 2, 2 * MS);
        insert(&queue, 3, Duration::ZERO);
        assert_eq!(rung(&leader), (1, 0));
        assert_eq!(leader.poll(), Poll::Ready(Some(3)));
    }
}

#[test]
fn a_leader_that_has_asked_again_is_woken_again() {
    let (queue, mock) = queue();
    insert(&queue, 0, HOUR);
    let mut leader = Call::waiting(&queue, &mock);
    for (rung, delay) in [(1, 100 * MS), (2, 10 * MS), (3, MS)] {
        insert(&queue, rung, delay);
        assert_eq!((leader.rung(), leader.poll()), (rung, Poll::Pending));
    }
    // Polls in vain, as those of a `select!`, change nothing.
    assert!(leader.poll().is_pending() && leader.poll().is_pending());
    insert(&queue, 4, Duration::ZERO);
    assert_eq!((leader.rung(), leader.poll()), (4, Poll::Ready(Some(4))));
}

#[test]
fn a_reset_wakes_the_leader_if_it_is_due_earlier() {
    let (queue, mock) = queue();
    let first = insert(&queue, 1, HOUR);
    let second = insert(&queue, 2, 2 * HOUR);
    let mut leader = Call::waiting(&queue, &mock);
    assert!(queue.reset(&second, 3 * HOUR) && queue.reset(&second, HOUR));
    assert!(queue.reset(&first, 2 * HOUR)); // later: the leader wakes up in vain, in an hour
    assert_eq!(leader.rung(), 0);
    assert!(queue.reset_at(&second, mock.now() + MS));
    assert_eq!((leader.rung(), leader.poll()), (1, Poll::Pending));
    mock.advance(MS);
    assert_eq!(leader.poll(), Poll::Ready(Some(2)));
    assert!(due(&queue).is_empty());
    mock.advance(2 * HOUR);
    assert_eq!(due(&queue), [1]);
}

#[test]
fn a_removal_wakes_nobody() {
    let (queue, mock) = queue();
    let key = insert(&queue, 1, MS);
    let mut leader = Call::waiting(&queue, &mock);
    assert_eq!(queue.remove(&key), Some(1));
    mock.advance(MS);
    assert_eq!((leader.poll(), leader.rung()), (Poll::Pending, 0));
    assert_eq!(leader.sleeps.borrow().len(), 1); // nothing is left to sleep for
}

#[test]
fn who_gets_an_item_promotes_the_oldest_of_the_others() {
    let (queue, mock) = queue();
    insert(&queue, 1, MS);
    insert(&queue, 2, MS);
    insert(&queue, 3, HOUR);
    let mut calls = [(); 4].map(|()| Call::waiting(&queue, &mock));
    let rung = |calls: &[Call<'_, i32>; 4]| calls.each_ref().map(Call::rung);
    assert_eq!(calls.each_ref().map(Call::leads), [true, false, false, false]);
    mock.advance(MS);
    assert_eq!((calls[0].poll(), rung(&calls)), (Poll::Ready(Some(1)), [0, 1, 0, 0]));
    assert_eq!((calls[1].poll(), rung(&calls)), (Poll::Ready(Some(2)), [0, 1, 1, 0]));
    assert_eq!((calls[2].poll(), rung(&calls)), (Poll::Pending, [0, 1, 1, 0]));
    assert_eq!(calls.each_ref().map(Call::leads), [true, false, true, false]);
    mock.advance(HOUR);
    assert_eq!((calls[2].poll(), rung(&calls)), (Poll::Ready(Some(3)), [0, 1, 1, 1]));
}

#[test]
fn a_leader_that_is_dropped_promotes_the_oldest_of_the_others() {
    let (queue, mock) = queue();
    insert(&queue, 1, MS);
    let [first, second, third, mut fourth] = [(); 4].map(|()| Call::waiting(&queue, &mock));
    let rung = [&second, &third, &fourth].map(|call| Arc::clone(&call.bell));
    let rung = || rung.each_ref().map(|bell| bell.rung());
    drop(second); // a follower: nobody needs to know
    assert_eq!(rung(), [0, 0, 0]);
    drop(first);
    assert_eq!(rung(), [0, 1, 0]);
    drop(third); // woken, but it has not asked
    assert_eq!(rung(), [0, 1, 1]);
    assert_eq!((fourth.poll(), fourth.leads()), (Poll::Pending, true));
    mock.advance(MS);
    assert_eq!(fourth.poll(), Poll::Ready(Some(1)));
}

#[test]
fn a_leader_that_is_woken_and_dropped_loses_no_wake_up() {
    let (queue, mock) = queue();
    let leader = Call::waiting(&queue, &mock);
    let mut follower = Call::waiting(&queue, &mock);
    insert(&queue, 1, Duration::ZERO);
    assert_eq!((leader.rung(), follower.rung()), (1, 0));
    drop(leader);
    assert_eq!((follower.rung(), follower.poll()), (1, Poll::Ready(Some(1))));
}

#[test]
fn a_call_that_comes_first_leaves_the_leader_alone() {
    let (queue, mock) = queue();
    insert(&queue, 1, MS);
    insert(&queue, 2, 2 * MS);
    let mut leader = Call::waiting(&queue, &mock);
    mock.advance(MS);
    assert_eq!(Call::new(&queue, &mock).poll(), Poll::Ready(Some(1)));
    assert_eq!((leader.poll(), leader.rung()), (Poll::Pending, 0));
    mock.advance(MS);
    assert_eq!(due(&queue), [2]);
    assert_eq!((leader.poll(), leader.rung()), (Poll::Pending, 0));
    insert(&queue, 3, Duration::ZERO);
    assert_eq!((leader.rung(), leader.poll()), (1, Poll::Ready(Some(3))));
}

#[test]
fn a_follower_that_finds_an_item_leaves_the_leader_alone() {
    let (queue, mock) = queue();
    insert(&queue, 1, MS);
    insert(&queue, 2, 2 * MS);
    let (mut leader, mut follower) = (Call::waiting(&queue, &mock), Call::waiting(&queue, &mock));
    mock.advance(MS);
    assert_eq!(follower.poll(), Poll::Ready(Some(1)));
    assert_eq!(leader.poll(), Poll::Pending);
    mock.advance(MS);
    assert_eq!((leader.poll(), leader.rung()), (Poll::Ready(Some(2)), 0));
}

/// As when a task moves from a `select!` to another.
#[test]
fn the_latest_waker_is_woken() {
    let (queue, mock) = queue();
    insert(&queue, 1, HOUR);
    let (mut leader, mut follower) = (Call::waiting(&queue, &mock), Call::waiting(&queue, &mock));
    let others = [(); 2].map(|()| Arc::new(Bell::default()));
    assert!(leader.poll_by(&Waker::from(Arc::clone(&others[0]))).is_pending());
    assert!(follower.poll_by(&Waker::from(Arc::clone(&others[1]))).is_pending());
    insert(&queue, 2, Duration::ZERO);
    assert_eq!(others.each_ref().map(|bell| bell.rung()), [1, 0]);
    drop(leader);
    assert_eq!(others.each_ref().map(|bell| bell.rung()), [1, 1]);
    assert_eq!((follower.rung(), follower.poll()), (0, Poll::Ready(Some(2))));
}

#[test]
fn nobody_is_registered_after_the_end_of_a_call() {
    let (queue, mock) = queue();
    let calls = [(); 3].map(|()| Call::waiting(&queue, &mock));
    let bells = calls.each_ref().map(|call| Arc::clone(&call.bell));
    insert(&queue, 1, Duration::ZERO);
    let rung: Vec<_> = calls.into_iter().map(|mut call| (call.rung(), call.poll())).collect();
    assert_eq!(rung, [(1, Poll::Ready(Some(1))), (1, Poll::Pending), (1, Poll::Pending)]);
    insert(&queue, 2, Duration::ZERO);
    assert_eq!(bells.each_ref().map(|bell| bell.rung()), [1, 1, 1]);
    assert!(bells.iter().all(|bell| Arc::strong_count(bell) == 1), "a waker is still held");
}

/// The wheel moves the item down some levels. Each time it is asked, nothing is due, and it sleeps on.
#[test]
fn a_leader_sleeps_until_the_deadline_in_a_few_steps() {
    let (queue, mock) = queue();
    let key = insert(&queue, 1, HOUR);
    let deadline = queue.deadline(&key).unwrap();
    let mut leader = Call::waiting(&queue, &mock);
    let mut steps = 0;
    loop {
        let at = *leader.sleeps.borrow().last().unwrap();
        assert!(at <= deadline);
        mock.advance(at - mock.now());
        match leader.poll() {
            Poll::Ready(item) => break assert_eq!(item, Some(1)),
            Poll::Pending => steps += 1,
        }
    }
    assert!(mock.now() == deadline && steps <= 12, "{steps}");
    assert_eq!(leader.rung(), 0);
}

/// A sleep by a clock that runs ahead. The task must not keep its executor from everything else.
#[test]
fn a_sleep_that_ends_too_early_gives_other_tasks_their_turn() {
    let (queue, mock) = queue();
    insert(&queue, 1, HOUR);
    let mut sleeps = 0;
    let mut next = pin!(queue.next(|_| {
        sleeps += 1;
        std::future::ready(())
    }));
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut cx = Context::from_waker(&waker);
    for rung in 1..=3 {
        assert!(next.as_mut().poll(&mut cx).is_pending());
        assert_eq!(bell.rung(), rung);
    }
    mock.advance(HOUR);
    assert!(next.as_mut().poll(&mut cx).is_ready());
}

/// An executor does not interrupt a task that is always ready.
#[test]
fn a_task_that_takes_many_due_items_lets_others_have_their_turn() {
    const ITEMS: u64 = 1_000;
    let queue = DelayQueue::new();
    (0..ITEMS).for_each(|item| _ = queue.insert(item, Duration::ZERO).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (set, left, turns) = (tokio::task::LocalSet::new(), Rc::new(Cell::new(ITEMS)), Cell::new(0));
    let of_taker = Rc::clone(&left);
    set.spawn_local(async move {
        while of_taker.get() > 0 {
            queue.next(|at| tokio::time::sleep_until(at.into())).await.unwrap();
            of_taker.set(of_taker.get() - 1);
        }
    });
    let other = set.spawn_local(poll_fn(move |cx| {
        if left.get() == 0 {
            return Poll::Ready(turns.get());
        }
        turns.set(turns.get() + 1);
        cx.waker().wake_by_ref();
        Poll::Pending
    }));
    let turns = runtime.block_on(set.run_until(other)).unwrap();
    assert!(turns > ITEMS / 200, "{turns} turns beside {ITEMS} items");
}
