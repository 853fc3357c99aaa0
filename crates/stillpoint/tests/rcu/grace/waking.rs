//! A waiting writer is woken by the reader in its way: it does not sleep for a fixed time.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::rcu::Domain;

use crate::modes::in_each_mode;
use crate::LONG;

/// How long a reader is in the way: long enough for the writer to reach its longest sleep.
const HELD: Duration = Duration::from_millis(50);
/// From the end of a region to the return of a writer that waited for it: some 10 µs. A writer that only sleeps and
/// looks again would be late by half of its longest sleep, which is 5 ms.
const PROMPT: Duration = Duration::from_millis(1);
/// How long the reader stays after its region: its end would wake the writer, too.
const STAYS: Duration = Duration::from_millis(15);
const ROUNDS: usize = 7;
/// On a busy machine, a woken thread may have to wait for a CPU.
const TRIES: usize = 5;

/// `hold` goes through a region, and reports its end. Fails unless a writer returns soon after that: as soon as a thread
/// that is woken by a message. The two are measured in turns.
fn is_prompt(domain: &Domain, name: &str, hold: impl Fn(&dyn Fn()) -> Instant + Sync) {
    let mut seen = Vec::new();
    let is_prompt = (0..TRIES).any(|_| {
        let writer = delay(&hold, || domain.synchronize_timeout(LONG).expect("the region ends"));
        let (ended, is_over) = mpsc::channel();
        let told = |while_held: &dyn Fn()| {
            while_held();
            let now = Instant::now();
            ended.send(()).expect("it is waited for");
            thread::sleep(STAYS);
            now
        };
        let message = delay(told, || is_over.recv_timeout(LONG).expect("it is sent"));
        seen.push((writer, message));
        writer < message + PROMPT
    });
    assert!(is_prompt, "{name}: {seen:?}");
}

/// How long after the end of the region the writer returned: the median of some rounds.
fn delay(hold: impl Fn(&dyn Fn()) -> Instant + Sync, wait: impl Fn()) -> Duration {
    let mut delays: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let (held, is_held) = mpsc::channel();
            thread::scope(|scope| {
                let hold = &hold;
                let holder = scope.spawn(move || {
                    hold(&|| {
                        held.send(()).expect("it is waited for");
                        thread::sleep(HELD);
                    })
                });
                is_held.recv().expect("the region is entered");
                wait();
                let returned = Instant::now();
                let ended = holder.join().expect("it does not panic");
                returned.saturating_duration_since(ended)
            })
        })
        .collect();
    delays.sort_unstable();
    delays[ROUNDS / 2]
}

#[test]
#[cfg_attr(miri, ignore = "measures time")]
fn a_writer_is_woken_by_a_reader_that_is_no_longer_in_the_way() {
    type Hold = fn(&Domain, &dyn Fn()) -> Instant;
    let ways: [(&str, Hold); 4] = [
        ("the end of a guard", |domain, while_held| {
            let reader = domain.reader();
            let guard = reader.pin();
            while_held();
            let ended = Instant::now();
            drop(guard);
            thread::sleep(STAYS);
            ended
        }),
        ("a quiescent state", |domain, while_held| {
            let mut reader = domain.qsbr_reader();
            while_held();
            let ended = Instant::now();
            reader.quiescent();
            thread::sleep(STAYS);
            ended
        }),
        ("a reader that goes offline", |domain, while_held| {
            let mut reader = domain.qsbr_reader();
            while_held();
            let ended = Instant::now();
            reader.offline(|| thread::sleep(STAYS));
            ended
        }),
        ("a reader that leaves", |domain, while_held| {
            let reader = domain.reader();
            std::mem::forget(reader.pin());
            while_held();
            let ended = Instant::now();
            drop(reader);
            thread::sleep(STAYS);
            ended
        }),
    ];
    in_each_mode(|domain| {
        for (name, hold) in ways {
            is_prompt(&domain, name, |while_held| hold(&domain, while_held));
        }
    });
}
