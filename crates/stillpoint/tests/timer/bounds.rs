//! Short polls, and timers that are not late: the tests count moves, expiries, and lateness in ticks.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use stillpoint::timer::shared::TimerService;
use stillpoint::timer::{Key, Limit, Progress, Schedule, Wheel};

use crate::random::Random;

/// Polls a wheel, and checks the limits of one poll. Returns the greatest lateness, in ticks.
fn poll(wheel: &mut Wheel<u64>, now: u64, n: usize) -> (Progress, u64) {
    let before = wheel.stats();
    let mut late = 0;
    let progress = wheel.poll(now, Limit::expiries(n), |wheel, expired| {
        let deadline = expired.deadline();
        assert!(deadline <= wheel.now(), "early");
        late = late.max(wheel.now() - deadline);
    });
    let moves = wheel.stats().moved - before.moved;
    assert!(moves <= n as u64 * u64::from(before.levels), "{moves} moves at {now} of {before:?}");
    assert!(progress.expired() <= n);
    assert_eq!(!progress.is_done(), wheel.next_deadline() == Some(now));
    (progress, late)
}

/// Timeouts of one length in nanoseconds are added at a steady rate, and polled each millisecond. The timers that are
/// due in one period are within the limit, and none is late by a period.
#[test]
fn steady_timeouts_are_not_late_in_short_polls() {
    const PERIOD: u64 = 1_000_000;
    let (timers, rounds) = if cfg!(miri) { (200, 220) } else { (30_000, 25_000) };
    for (each, n) in [(2u64, 4), (3, 4), (60, 64)] {
        let mut wheel = Wheel::new(77);
        let (mut now, mut fired, mut late) = (77, 0, 0);
        // The length of the timeout, so that each period has `each` timers.
        let length = timers / each * PERIOD;
        let mut added = 0;
        for _ in 0..rounds {
            for number in 0..each {
                wheel.add(Schedule::after(length - number * (PERIOD / 64)), added).unwrap();
                added += 1;
            }
            now += PERIOD;
            let (progress, latest) = poll(&mut wheel, now, n);
            fired += progress.expired() as u64;
            late = late.max(latest);
        }
        assert!(late < PERIOD, "{each} of {n}: late by {late}");
        assert!(fired > 0 || cfg!(miri) || rounds * PERIOD < length, "{each}: nothing has fired");
        assert_eq!(fired + wheel.len() as u64, added);
    }
}

/// All timers of a level are in one of its slots. They are moved before that slot begins, a few in each poll.
#[test]
fn a_full_slot_is_moved_before_it_begins() {
    let bits = 30;
    let timers: u64 = if cfg!(miri) { 256 } else { 65_536 };
    let mut wheel = Wheel::new(0);
    // One slot of 2^30 ticks, the fortieth.
    let start = 40u64 << bits;
    for number in 0..timers {
        wheel.add(start + number * ((1 << bits) / timers), number).unwrap();
    }
    assert_eq!(wheel.next_deadline(), Some(39 << bits), "when the slot before begins");
    let period = (1 << bits) / (timers / 16);
    let mut late = 0;
    let (mut now, mut moves) = (39 << bits, Vec::new());
    while !wheel.is_empty() {
        let moved = wheel.stats().moved;
        late = late.max(poll(&mut wheel, now, 16).1);
        if now < start {
            moves.push(wheel.stats().moved - moved);
        }
        now += period;
    }
    assert!(late < period, "late by {late} of {period}");
    assert!(moves.iter().all(|moved| *moved <= 16), "one level: {:?}", moves.iter().max());
    assert!(moves.iter().sum::<u64>() >= timers);
}

/// Due timers do not wait behind timers that are not due.
#[test]
fn what_is_due_is_found_among_many_that_are_not() {
    let timers = if cfg!(miri) { 300 } else { 100_000 };
    let mut wheel = Wheel::new(0);
    let (slot, n) = (1u64 << 35, 64);
    for number in 0..timers {
        wheel.add(3 * slot + slot / 2 + number, number).unwrap();
    }
    let first = wheel.add(3 * slot + 1, timers).unwrap();
    // After a gap, the slot has begun when the next poll comes.
    let (mut now, mut polls) = (3 * slot, 0);
    while wheel.deadline(first).is_some() {
        now += 1_000;
        polls += 1;
        let _ = poll(&mut wheel, now, n);
    }
    assert!(polls <= timers / 64 + 2, "{polls} polls for {timers} timers");
}

/// After a gap, polls process first what has waited longest.
#[test]
fn a_backlog_takes_as_many_polls_as_it_has_shares() {
    let timers: u64 = if cfg!(miri) { 256 } else { 20_000 };
    for n in [1, 7, 64] {
        let mut random = Random::new(n as u64 + 1);
        let mut wheel = Wheel::new(0);
        for number in 0..timers {
            let bits = random.below(40) as u32;
            wheel.add(1 + random.below(1 << bits) as u64, number).unwrap();
        }
        let now = 1 << 39;
        let mut left = (0, 0);
        loop {
            let (progress, _) = poll(&mut wheel, now, n);
            left.0 += progress.expired() as u64;
            left.1 += 1;
            if progress.is_done() {
                break;
            }
        }
        assert_eq!(left.0, timers);
        let share = n as u64;
        assert!(left.1 <= 2 * timers.div_ceil(share) + 2, "{} polls of {n}", left.1);
    }
}

/// Overdue slots that are processed in small shares do not starve later slots, and later slots do not starve these.
#[test]
fn overdue_timers_are_served_in_the_order_of_their_slots() {
    let mut wheel = Wheel::new(0);
    for slot in [2u64, 3, 4] {
        for number in 0..100 {
            wheel.add((slot << 30) + (1 << 29) + number, slot).unwrap();
        }
    }
    // Nothing is moved when these slots begin, so each becomes overdue, one after the other.
    for slot in [2u64, 3] {
        assert!(!wheel.poll(slot << 30, Limit::expiries(0), |_, _| {}).is_done());
    }
    let mut order = Vec::new();
    while order.len() < 200 {
        let _ = wheel.poll((4 << 30) + (1 << 28), Limit::expiries(8), |_, expired| {
            order.extend(expired.into_value());
        });
    }
    assert!(order.is_sorted(), "not in the order of the slots: {order:?}");
    assert_eq!(wheel.len(), 100);
}

/// In each poll, overdue timers fire before those of the next slot, and before those of a slot that has begun since.
#[test]
fn what_is_overdue_comes_before_what_is_not() {
    let mut wheel = Wheel::new(0);
    for slot in [5u64, 6] {
        for number in 0..20 {
            wheel.add((slot << 20) + number, slot).unwrap();
        }
    }
    assert_eq!(wheel.poll(5 << 20, Limit::expiries(0), |_, _| {}), Progress::More(0));
    let mut order = Vec::new();
    let mut poll = |now| wheel.poll(now, Limit::expiries(8), |_, expired| order.extend(expired.into_value()));
    // The other slot is the next one.
    assert_eq!(poll((5 << 20) + 100), Progress::More(8));
    // Now the other slot has begun.
    while !poll((6 << 20) + 100).is_done() {}
    assert!(order.is_sorted() && order.len() == 40, "not all in order: {order:?}");
}

/// The moves of a level with nothing to move go to overdue timers, once.
#[test]
fn what_levels_have_left_goes_to_what_is_overdue() {
    let mut wheel = Wheel::new(0);
    // Slots of 2^25 ticks and of 2^20 that begin at the same time, and a timer far away.
    let begin = 1 << 26;
    for number in 0..100 {
        wheel.add(begin + (1 << 24) + number, number).unwrap();
    }
    assert_eq!(wheel.poll(1 << 24, Limit::NONE, |_, _| {}), Progress::Done(0));
    for number in 0..100 {
        wheel.add(begin + (1 << 19) + number, number).unwrap();
    }
    wheel.add(1 << 40, 100).unwrap();
    assert_eq!(wheel.poll(begin, Limit::expiries(0), |_, _| {}), Progress::More(0));
    assert_eq!((wheel.stats().levels, wheel.stats().moved), (3, 0));
    assert_eq!(wheel.poll(begin, Limit::expiries(10), |_, _| {}), Progress::More(0));
    assert_eq!(wheel.stats().moved, 30);
}

/// Due timers of a slot that has begun count as moved, too.
#[test]
fn what_is_due_in_a_slot_that_has_begun_takes_of_its_share() {
    let mut wheel = Wheel::new(0);
    for number in 0..10 {
        wheel.add((5 << 20) + number, ()).unwrap();
    }
    let limit = Limit::expiries(100).moves(3);
    assert_eq!(wheel.poll((5 << 20) + 20, limit, |_, _| {}), Progress::More(3));
    assert_eq!(wheel.stats().moved, 3);
}

#[test]
fn moves_that_are_due_are_part_of_the_next_deadline() {
    let mut wheel = Wheel::new(0);
    for number in 0..10 {
        wheel.add((5 << 20) + number, ()).unwrap();
    }
    assert_eq!(wheel.next_deadline(), Some(4 << 20));
    let now = (4 << 20) + 5;
    assert_eq!(wheel.poll(now, Limit::expiries(4), |_, _| {}), Progress::More(0));
    assert_eq!(wheel.next_deadline(), Some(now), "six are left");
    assert_eq!((wheel.stats().moved, wheel.stats().levels), (4, 2));
    assert_eq!(wheel.poll(now, Limit::expiries(6), |_, _| {}), Progress::Done(0));
    assert!(wheel.next_deadline().is_some_and(|next| next > now));
}

/// A separate limit of moves does not change the limit of expiries. With a limit of 0, nothing is moved.
#[test]
fn the_limits_of_moves_and_expiries_are_apart() {
    let mut wheel = Wheel::new(0);
    for number in 0..20 {
        wheel.add((5 << 20) + number, ()).unwrap();
    }
    assert_eq!(wheel.poll(4 << 20, Limit::expiries(9).moves(0), |_, _| {}), Progress::More(0));
    assert_eq!(wheel.stats().moved, 0);
    assert_eq!(wheel.poll(4 << 20, Limit::expiries(0).moves(3), |_, _| {}), Progress::More(0));
    assert_eq!(wheel.stats().moved, 3);
    assert_eq!(Limit::expiries(9), Limit { expiries: 9, moves: 9 });
}

/// Each advance and each pop moves at most 64 timers of a level.
#[test]
fn advance_and_pop_move_a_bounded_number() {
    let timers = if cfg!(miri) { 500 } else { 20_000 };
    let mut wheel = Wheel::new(0);
    for number in 0..timers {
        wheel.add((3 << 30) + number % 5_000, number).unwrap();
    }
    let mut popped = 0;
    let (mut calls, mut now) = (0, (3 << 30) + 2);
    while popped < timers {
        let before = wheel.stats();
        let bound = |wheel: &Wheel<u64>| wheel.stats().moved - before.moved;
        if calls % 3 == 0 {
            now += 10_000;
            wheel.advance(now);
        } else if wheel.pop().is_some() {
            popped += 1;
        }
        assert!(bound(&wheel) <= 64 * u64::from(before.levels), "{} moves", bound(&wheel));
        calls += 1;
    }
    assert!(wheel.is_empty());
}

/// After a pop that finds nothing, `next_deadline` says whether there is more to do.
#[test]
fn a_pop_that_has_not_seen_everything_says_so() {
    let mut wheel = Wheel::new(0);
    for number in 0..300 {
        wheel.add((3 << 30) + 1 + number / 299, number).unwrap();
    }
    wheel.advance(3 << 30);
    let (mut nothing, mut moved) = (0, 0);
    while wheel.next_deadline() == Some(3 << 30) {
        assert_eq!(wheel.pop(), None, "nothing is due");
        assert!(wheel.stats().moved - moved <= 128);
        moved = wheel.stats().moved;
        nothing += 1;
    }
    assert_eq!((nothing, wheel.stats().moved), (4, 300));
    wheel.advance((3 << 30) + 2);
    assert_eq!(std::iter::from_fn(|| wheel.pop()).count(), 300);
}

/// What was due when it was added is found by another advance, even to the same time, and by no number of pops.
#[test]
fn an_advance_to_the_same_time_finds_what_pops_do_not() {
    let mut wheel = Wheel::new(0);
    wheel.advance(10);
    wheel.add(7, 1).unwrap();
    for _ in 0..3 {
        assert_eq!((wheel.pop(), wheel.next_deadline()), (None, Some(10)));
    }
    wheel.advance(10);
    assert!(wheel.pop().is_some() && wheel.is_empty());
}

/// A timer is moved at most once for each level, and not after its cancellation.
#[test]
fn a_timer_is_moved_once_a_level() {
    for bits in (6..63u32).step_by(if cfg!(miri) { 9 } else { 1 }) {
        let mut wheel = Wheel::new(12_345);
        wheel.add(Schedule::after(1 << bits), 0).unwrap();
        while let Some(next) = wheel.next_deadline() {
            let _ = wheel.poll(next, Limit::NONE, |_, _| {});
        }
        let moved = wheel.stats().moved;
        assert!(moved >= 1 && moved <= u64::from((bits - 1) / 5), "a delay of 2^{bits}: {moved} moves");
    }
}

/// The levels in use are those from which timers can be moved.
#[test]
fn levels_in_use_are_counted() {
    let mut wheel = Wheel::new(0);
    assert_eq!(wheel.stats().levels, 0);
    wheel.add(63, ()).unwrap();
    wheel.add(Schedule::at(1 << 40).coarse(), ()).unwrap();
    assert_eq!(wheel.stats().levels, 0, "neither is ever moved");
    let keys: Vec<Key> = [64, 2_047, 2_048, 1 << 40].map(|at| wheel.add(at, ()).unwrap()).into();
    assert_eq!(wheel.stats().levels, 3);
    wheel.cancel(keys[3]);
    assert_eq!(wheel.stats().levels, 2);
    wheel.cancel(keys[0]);
    assert_eq!(wheel.stats().levels, 2);
    wheel.cancel(keys[1]);
    assert_eq!(wheel.stats().levels, 1);
    // An overdue slot counts, too.
    assert_eq!(wheel.poll(2_048, Limit::NONE.moves(0), |_, _| {}), Progress::More(1));
    assert_eq!(wheel.stats().levels, 1);
}

/// A coarse timer is not moved after a reset, a beat, or a change of the time.
#[test]
fn a_coarse_timer_remains_one() {
    let once = Schedule::at(1 << 30).coarse();
    for schedule in [once, once.every(NonZeroU64::new(1 << 30).unwrap())] {
        let mut wheel = Wheel::new(0);
        let key = wheel.add(schedule, ()).unwrap();
        assert!(wheel.reset(key, 1 << 31));
        assert_eq!(wheel.stats().levels, 0, "after the reset");
        wheel.set_time(5);
        assert_eq!(wheel.stats().levels, 0, "after the time was set");
        let beat = wheel.next_deadline().unwrap();
        assert_eq!(wheel.poll(beat, Limit::NONE, |_, _| {}), Progress::Done(1));
        assert_eq!((wheel.stats().levels, wheel.stats().moved), (0, 0), "after the beat");
    }
}

/// A call ends in spite of a flood of messages or hints, even one that comes from a callback.
#[test]
fn what_comes_while_a_service_processes_waits_for_the_next_call() {
    let mut service = TimerService::new(0);
    let timers: Vec<_> = (0..2).map(|_| service.remote().timer()).collect();
    let mut mailbox = service.remote().mailbox(4);
    service.arm(&timers[0], 10, 0).unwrap();
    assert!(timers[0].revoke().is_cancelled());
    let mut calls = 0;
    let progress = service.process(usize::MAX, |service, event| {
        calls += 1;
        assert!(calls < 10, "the call does not end");
        let own = event.timer().unwrap().clone();
        let value = event.into_value().unwrap();
        // Timers are armed through a mailbox and by the owner, in turn.
        if calls % 2 == 0 {
            service.arm(&own, 10, value).unwrap();
        } else {
            mailbox.add(&own, 10, value).unwrap();
        }
        assert!(own.revoke().is_cancelled());
    });
    assert!(progress.expired() <= 4);
    drop(service);
    assert!(calls <= 3, "{calls} callbacks in one call");
}

/// The callbacks of revoked timers revoke other timers. The last of these waits for the next call, and the present call
/// is done.
#[test]
fn a_call_that_has_not_reached_its_limit_is_done() {
    let mut service = TimerService::new(0);
    let timers: Vec<_> = (0..3).map(|_| service.remote().timer()).collect();
    for timer in &timers {
        service.arm(timer, 10, ()).unwrap();
    }
    let mut others = timers.iter();
    let mut revoke = || others.next().is_some_and(|timer| timer.revoke().is_cancelled());
    assert!(revoke());
    let first = service.process(usize::MAX, |_, _| _ = revoke());
    assert!(first.is_done() && first.expired() < 3, "the first call: {first:?}");
    assert_eq!(service.process(usize::MAX, |_, _| {}), Progress::Done(3 - first.expired()));
}

/// A hint and a message take one call each.
#[test]
fn a_hint_that_waits_is_more_to_do() {
    let mut service = TimerService::new(0);
    let mut mailbox = service.remote().mailbox(4);
    // Every second call begins with hints, so both cases are tested.
    for calls_before in 0..2 {
        let timers = [service.remote().timer(), service.remote().timer()];
        for _ in 0..calls_before {
            assert_eq!(service.process(0, |_, _| {}), Progress::Done(0));
        }
        service.arm(&timers[0], 10, ()).unwrap();
        assert!(timers[0].cancel().is_cancelled());
        mailbox.add(&timers[1], 10, ()).unwrap();
        assert_eq!(service.process(1, |_, _| {}), Progress::More(1));
        assert_eq!(service.process(1, |_, _| {}), Progress::Done(1));
    }
}

/// The limit is reached with the last message of a mailbox. The next call begins with the mailbox after it.
#[test]
fn a_mailbox_that_has_just_been_emptied_takes_nobody_s_turn() {
    let mut service = TimerService::new(0);
    let remote = service.remote();
    let mut mailboxes: Vec<_> = (0..3).map(|_| remote.mailbox(2)).collect();
    for mailbox in &mut mailboxes {
        mailbox.add(&remote.timer(), 10, ()).unwrap();
        mailbox.add(&remote.timer(), 10, ()).unwrap();
    }
    for has_room in [[true, false, false], [true, true, false], [false, true, true]] {
        let _ = service.process(2, |_, _| {});
        assert_eq!([0, 1, 2].map(|which| mailboxes[which].add(&remote.timer(), 10, ()).is_ok()), has_room);
    }
}

/// A call that has processed only hints does not count as a turn of a mailbox.
#[test]
fn a_flood_of_hints_takes_no_mailbox_s_turn() {
    let mut service = TimerService::new(0);
    let remote = service.remote();
    let mut mailboxes = [remote.mailbox(1), remote.mailbox(1)];
    let mut added = [0u32; 2];
    for _ in 0..8 {
        let timer = remote.timer();
        service.arm(&timer, 10, ()).unwrap();
        assert!(timer.cancel().is_cancelled());
        for (mailbox, added) in mailboxes.iter_mut().zip(&mut added) {
            *added += u32::from(mailbox.add(&remote.timer(), 10, ()).is_ok());
        }
        assert_eq!(service.process(1, |_, _| {}), Progress::More(1));
    }
    assert!(added[0].abs_diff(added[1]) <= 1, "the mailboxes had no equal turns: {added:?}");
}

/// With a limit, a mailbox that is always full does not starve the others.
#[test]
fn every_mailbox_has_its_turn() {
    let (most_mailboxes, turns) = if cfg!(miri) { (2, 2) } else { (5, 20) };
    for mailboxes in 2..=most_mailboxes {
        for limit in 1..5 {
            let mut service = TimerService::new(0);
            let remote = service.remote();
            let mut busy: Vec<_> = (0..mailboxes).map(|_| remote.mailbox(64)).collect();
            let mut timers: Vec<VecDeque<_>> = (0..mailboxes).map(|_| VecDeque::new()).collect();
            let mut taken = vec![0; mailboxes];
            for round in 0..turns * mailboxes {
                for (mailbox, timers) in busy.iter_mut().zip(&mut timers) {
                    loop {
                        let timer = remote.timer();
                        if mailbox.add(&timer, 1 << 40, round).is_err() {
                            break;
                        }
                        timers.push_back(timer);
                    }
                }
                assert_eq!(service.process(limit, |_, _| {}), Progress::More(limit));
                for (which, mailbox) in busy.iter_mut().enumerate() {
                    // Fills the mailbox.
                    while mailbox.add(&remote.timer(), 1 << 40, round).is_ok() {
                        taken[which] += 1;
                    }
                }
            }
            let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
            assert!(most - least <= limit, "{limit} at a time: {taken:?}");
        }
    }
}
