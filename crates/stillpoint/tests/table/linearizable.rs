//! Small histories of several threads on one key are linearizable.

use std::sync::Barrier;

use stillpoint::rcu::Domain;
use stillpoint::table::Table;

use crate::history::{check, Call, Clock, Event};

/// Three threads on one key, in a table that grows at the same time.
#[test]
fn small_histories_are_linearizable() {
    const ROUNDS: u64 = 1_500;
    const CALLS: u64 = 4;
    let domain = Domain::new();
    let table: Table<u64, u64> = Table::new(&domain);
    let (clock, barrier) = (Clock::default(), Barrier::new(4));
    let history = |thread: u64| {
        let mut reader = domain.reader();
        let mut lookup = table.reader(&mut reader);
        let mut events: Vec<Vec<Event>> = Vec::new();
        for round in 0..ROUNDS {
            barrier.wait();
            let of_round = (0..CALLS).map(|number| {
                let random = (round * 31 + thread * 7 + number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let value = (round * 10 + thread) * 10 + number;
                match random % 4 {
                    0 => clock
                        .note(Call::Insert(value), || table.insert(round, value).unwrap().map(|old| *old)),
                    1 => clock.note(Call::Remove, || table.remove(&round).map(|old| *old)),
                    2 => clock.note(Call::Get, || lookup.copied(&round)),
                    _ => clock.note(Call::Get, || lookup.pin().get(&round).copied()),
                }
            });
            events.push(of_round.collect());
        }
        events
    };
    let histories: Vec<Vec<Vec<Event>>> = std::thread::scope(|scope| {
        let history = &history;
        let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || history(thread))).collect();
        for round in 0..ROUNDS {
            barrier.wait();
            for key in 0..20 {
                table.insert(1_000_000 + round * 20 + key, 0).unwrap();
            }
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for round in 0..ROUNDS as usize {
        check(&histories.iter().flat_map(|of_thread| of_thread[round].clone()).collect::<Vec<_>>());
    }
    assert!(table.stats().growths >= 3);
}
