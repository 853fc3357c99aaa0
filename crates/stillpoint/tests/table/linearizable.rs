//! Histories of several threads on the same keys are linearizable, even at the beginning and the end of growths.
//!
//! `STILLPOINT_LINEARIZABLE_ROUNDS` multiplies the number of tables that each test makes.

use std::hash::{BuildHasher, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Barrier;

use stillpoint::rcu::{default_domain, Domain, QsbrReader, Reader};
use stillpoint::table::error::UpdateError;
use stillpoint::table::{Compute, Operation, RandomState, Table, TableReader, TryInsertError};

use crate::ending::Ending;
use crate::history::{check, Call, Clock, Event, MOST};

/// Keys that the threads share in one episode.
const KEYS: u64 = 12;

/// All keys in one chain, with one tag.
#[derive(Clone, Copy, Default)]
struct Constant;

impl BuildHasher for Constant {
    type Hasher = Self;
    fn build_hasher(&self) -> Self {
        Self
    }
}

impl Hasher for Constant {
    fn finish(&self) -> u64 {
        0xabcd_0000_0000_0011
    }
    fn write(&mut self, _: &[u8]) {}
}

fn rounds(of_the_test: usize) -> usize {
    let factor =
        std::env::var("STILLPOINT_LINEARIZABLE_ROUNDS").ok().map(|text| text.parse().expect("a number"));
    if cfg!(miri) {
        1
    } else {
        of_the_test * factor.unwrap_or(1)
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// One thread of an episode, with its readers.
struct Caller<'t, S> {
    clock: &'t Clock,
    table: &'t Table<u64, u64, S>,
    /// Whether the table is one of the default domain.
    is_default: bool,
    lookup: TableReader<'t, u64, u64, S>,
    other: Reader,
    qsbr: QsbrReader,
    random: Random,
}

impl<S: BuildHasher> Caller<'_, S> {
    /// Any operation on the key; no other call uses `value`.
    fn call(&mut self, key: u64, value: u64) -> Event {
        let Self { clock, table, is_default, lookup, other, qsbr, random } = self;
        let event = match random.next() % 22 {
            0 | 1 => clock.note(Call::Insert(value), || table.insert(key, value).unwrap().map(|old| *old)),
            2 => clock.note(Call::InsertNew(value), || {
                let (found, inserted) = lookup.get_or_insert(key, value).unwrap();
                assert_eq!(inserted, *found == value);
                Some(*found).filter(|_| !inserted)
            }),
            3 => clock.note(Call::Update(value), || {
                let mut seen = None;
                let old = lookup
                    .update(&key, |old| {
                        seen = Some(*old);
                        value
                    })
                    .unwrap();
                let old = old.map(|old| *old);
                assert!(old.is_none() || old == seen, "the new value was not made from the one it replaced");
                old
            }),
            4 | 5 => clock.note(Call::Remove, || table.remove(&key).map(|old| *old)),
            6 => {
                let remainder = random.next() % 2;
                clock.note(Call::RemoveIf(remainder), || {
                    match lookup.remove_if(&key, |_, found| *found % 2 == remainder) {
                        Ok(removed) => removed.map(|old| *old),
                        Err(kept) => Some(*kept),
                    }
                })
            }
            7 => clock.note(Call::Get, || lookup.copied(&key)),
            8 => clock.note(Call::Get, || table.protect(other, &key).map(|entry| *entry)),
            9 => clock.note(Call::Get, || lookup.pin().get(&key).copied()),
            10 => clock.note(Call::Get, || lookup.pin().get_many(&[key + KEYS, key])[1].copied()),
            11 => clock.note(Call::Get, || table.within(&other.pin()).get(&key).copied()),
            12 => clock.note(Call::Insert(value), || {
                let guard = other.pin();
                let view = table.within(&guard);
                let done = view.compute(key, |_| Operation::<u64>::Insert(value)).unwrap();
                match done {
                    Compute::Updated { old, .. } => Some(*old),
                    _ => None,
                }
            }),
            13 => clock.note(Call::Remove, || {
                match table.within(&other.pin()).compute(key, |_| Operation::<u64>::Remove).unwrap() {
                    Compute::Removed(old) => Some(*old),
                    _ => None,
                }
            }),
            14 => clock.note(Call::Insert(value), || {
                match lookup.compute(key, |_| Operation::<u64>::Insert(value)).unwrap() {
                    Compute::Updated { old, new } => {
                        assert_eq!(*new, value);
                        Some(*old)
                    }
                    _ => None,
                }
            }),
            15 => clock.note(Call::InsertNew(value), || match lookup.try_insert(key, value) {
                Ok(_) => None,
                Err(TryInsertError::Occupied { current, .. }) => Some(*current),
                Err(TryInsertError::Full(_)) => panic!("there is memory"),
            }),
            16 => clock.note(Call::InsertNew(value), || {
                // The thread's QSBR reader is a region: so it must not wait while another thread makes a value.
                let found = std::iter::repeat_with(|| lookup.get_or_init(key, || value).map(|found| *found))
                    .find_map(Result::ok);
                found.filter(|found| *found != value)
            }),
            17 => clock.note(Call::Update(value), || match lookup.update_owned(key, |_| value) {
                Ok(old) => Some(*old),
                Err(UpdateError::Absent(_)) => None,
                Err(UpdateError::Full(_)) => panic!("there is memory"),
            }),
            18 | 19 if *is_default => clock.note(Call::Get, || table.get(&key).map(|entry| *entry)),
            18 | 19 => clock.note(Call::Get, || table.get_owned(&key).map(|value| *value)),
            20 if *is_default => {
                clock.note(Call::Update(value), || table.update(&key, |_| value).unwrap().map(|old| *old))
            }
            _ if random.next() % 2 == 0 => clock.note(Call::Get, || table.within(&*qsbr).get(&key).copied()),
            _ => clock.note(Call::Contains, || lookup.contains_key(&key).then_some(0)),
        };
        qsbr.quiescent();
        event
    }
}

/// Other threads wait for the caller at the next barrier, also if it panics.
fn caught<R>(calls: impl FnOnce() -> R) -> std::thread::Result<R> {
    catch_unwind(AssertUnwindSafe(calls))
}

/// Makes a table that threads call with the same keys, while it grows again and again.
fn episode<S: BuildHasher + Clone + Send + Sync>(seed: u64, threads: usize, hasher: S) {
    let calls = MOST / threads;
    let is_default = seed % 2 == 0;
    let domain = if is_default { default_domain().clone() } else { Domain::new() };
    let table: Table<u64, u64, S> = Table::builder_in(&domain).hasher(hasher).build().unwrap();
    let (clock, barrier, running) = (Clock::default(), Barrier::new(threads + 1), AtomicUsize::new(threads));
    let history = |thread: usize| {
        let (mut reader, other, qsbr) = (domain.reader(), domain.reader(), domain.qsbr_reader());
        let random = Random(seed ^ (thread as u64) << 40);
        let lookup = table.reader(&mut reader);
        let mut caller = Caller { clock: &clock, table: &table, is_default, lookup, other, qsbr, random };
        let mut events: Vec<Vec<Event>> = vec![Vec::new(); KEYS as usize];
        // Relaxed: only says when to stop.
        let _ending = Ending(|| _ = running.fetch_sub(1, Ordering::Relaxed));
        let mut call = |number| {
            let key = number % KEYS;
            let value = (number * threads as u64 + thread as u64) * 2 + (caller.random.next() & 1);
            events[key as usize].push(caller.call(key, value));
        };
        let half = calls as u64 * KEYS / 2;
        barrier.wait();
        let first = caught(|| (0..half).for_each(&mut call));
        // From here on, at least one growth runs beside the calls.
        barrier.wait();
        first.unwrap();
        (half..calls as u64 * KEYS).for_each(call);
        events
    };
    let histories: Vec<Vec<Vec<Event>>> = std::thread::scope(|scope| {
        let history = &history;
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || history(thread))).collect();
        barrier.wait();
        barrier.wait();
        let mut more = 0;
        // A reservation moves everything at once, while insertions move a few chains each and also complete the growth.
        // If an entry was removed after the capacity was read, a reservation may need no growth. The next reservation
        // does.
        while table.stats().growths == 0 || running.load(Ordering::Relaxed) > 0 {
            let capacity = table.capacity();
            if capacity < 100_000 && more % 3 == 0 {
                table.reserve(capacity + 1 - table.len().min(capacity)).unwrap();
            }
            if table.len() < 2_000 {
                for key in 0..40 {
                    table.insert(1_000_000 + more * 40 + key, 0).unwrap();
                }
            }
            if more % 7 == 5 {
                table.shrink_to_fit();
            }
            more += 1;
            std::thread::yield_now();
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for key in 0..KEYS as usize {
        let events: Vec<Event> = histories.iter().flat_map(|of_thread| of_thread[key].clone()).collect();
        assert_eq!(events.len(), calls * threads);
        check(&events);
    }
}

fn episodes<S: BuildHasher + Clone + Send + Sync>(number: usize, hasher: S) {
    for seed in 0..number as u64 {
        let threads = if cfg!(miri) { 2 } else { [4, 6, 8][seed as usize % 3] };
        episode(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), threads, hasher.clone());
    }
}

#[test]
fn histories_with_a_good_hash_are_linearizable() {
    episodes(rounds(90), RandomState::default());
}

/// All keys are in one chain, which moves as a whole.
#[test]
fn histories_with_a_constant_hash_are_linearizable() {
    episodes(rounds(30), Constant);
}

/// Three threads on one key, in a table that grows slowly, only by insertions.
#[test]
fn histories_during_slow_growths_are_linearizable() {
    let rounds: u64 = if cfg!(miri) { 2 } else { 1_500 };
    const CALLS: u64 = 4;
    let domain = Domain::new();
    let table: Table<u64, u64> = Table::new_in(&domain);
    let (clock, barrier) = (Clock::default(), Barrier::new(4));
    let is_default = false;
    let history = |thread: u64| {
        let (mut reader, other, qsbr) = (domain.reader(), domain.reader(), domain.qsbr_reader());
        let lookup = table.reader(&mut reader);
        let random = Random(thread + 1);
        let mut caller = Caller { clock: &clock, table: &table, is_default, lookup, other, qsbr, random };
        let of_round = |round| {
            barrier.wait();
            let value = |number| ((round * 10 + thread) * 10 + number) * 2 + number % 2;
            caught(|| (0..CALLS).map(|number| caller.call(round, value(number))).collect())
        };
        (0..rounds).map(of_round).collect::<Vec<_>>()
    };
    let histories: Vec<Vec<Vec<Event>>> = std::thread::scope(|scope| {
        let history = &history;
        let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || history(thread))).collect();
        let insert = |round| {
            barrier.wait();
            caught(|| (0..20).for_each(|key| _ = table.insert(1_000_000 + round * 20 + key, 0).unwrap()))
        };
        (0..rounds).map(insert).collect::<Vec<_>>().into_iter().for_each(Result::unwrap);
        let history = |rounds: Vec<_>| rounds.into_iter().map(Result::unwrap).collect();
        threads.into_iter().map(|thread| history(thread.join().unwrap())).collect()
    });
    for round in 0..rounds as usize {
        check(&histories.iter().flat_map(|of_thread| of_thread[round].clone()).collect::<Vec<_>>());
    }
    assert!(cfg!(miri) || table.stats().growths >= 3);
}

/// Threads that insert two keys into a table with room for one: a call is refused only when its key is absent.
#[test]
fn refusals_of_a_full_table_are_linearizable() {
    const THREADS: u64 = 3;
    const CALLS: u64 = 6;
    let domain = Domain::new();
    for round in 0..rounds(400) as u64 {
        let table: Table<u64, u64> = Table::builder_in(&domain).max_len(1).build().unwrap();
        let (clock, barrier) = (Clock::default(), Barrier::new(THREADS as usize));
        let history = |thread: u64| {
            let (mut reader, other) = (domain.reader(), domain.reader());
            let mut lookup = table.reader(&mut reader);
            let mut random = Random(round << 8 | thread);
            let mut events: [Vec<Event>; 2] = Default::default();
            barrier.wait();
            for number in 0..CALLS {
                let (key, value) = (random.next() % 2, thread * 100 + number);
                let kind = random.next() % 6;
                let is_full = std::cell::Cell::new(false);
                let mut event = clock.note(Call::InsertNew(value), || {
                    match kind {
                        0 => {
                            lookup.get_or_insert(key, value).map(|(found, new)| Some(*found).filter(|_| !new))
                        }
                        1 => match lookup.try_insert(key, value) {
                            Ok(_) => Ok(None),
                            Err(TryInsertError::Occupied { current, .. }) => Ok(Some(*current)),
                            Err(TryInsertError::Full(full)) => Err(full),
                        },
                        2 => match table.within(&other.pin()).get_or_insert_with(key, || value) {
                            Ok((found, new)) => Ok(Some(*found).filter(|_| !new)),
                            Err(full) => Err(full),
                        },
                        3 => lookup
                            .compute(key, |present| match present {
                                None => Operation::Insert(value),
                                Some((_, found)) => Operation::Abort(*found),
                            })
                            .map(|done| match done {
                                Compute::Aborted(found) => Some(found),
                                _ => None,
                            }),
                        _ => Ok(table.remove(&key).map(|old| *old)),
                    }
                    .unwrap_or_else(|_| {
                        is_full.set(true);
                        None
                    })
                });
                if kind > 3 {
                    event.call = Call::Remove;
                } else if is_full.get() {
                    event.call = Call::Refused;
                }
                events[key as usize].push(event);
            }
            events
        };
        let histories: Vec<[Vec<Event>; 2]> = std::thread::scope(|scope| {
            let history = &history;
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || history(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for key in 0..2 {
            check(&histories.iter().flat_map(|of_thread| of_thread[key].clone()).collect::<Vec<_>>());
        }
    }
}
