//! Interprets bytes as operations, for the fuzz target `table`: of one thread, beside the standard library's map; of
//! several threads with different keys; or of several threads on the same keys.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Barrier;

use stillpoint::rcu::{default_domain, Domain};
use stillpoint::table::error::UpdateError;
use stillpoint::table::{Full, Table, TableReader};

use crate::census::{Census, Counted};
use crate::history::{check, Call, Clock, Event, MOST};

const THREADS: usize = 3;
/// The number of calls of one thread on one key.
const CALLS: usize = 8;
const _: () = assert!(THREADS * CALLS <= MOST);
/// Spare slots for replacements, besides the maximum.
const SPARE: usize = 64;
/// The most entries and regions that are held at a time, each inside the one before.
const DEPTH: usize = 3;

/// Runs the operations in the bytes. Panics if the table does anything wrong.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let Some(kind) = input.byte() else { return };
    let shape = Shape::of(&mut input);
    match kind % 4 {
        0 | 1 => run_alone(shape, input),
        2 => run_apart(shape, input),
        _ => run_together(shape, input),
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// A key, mostly one of a few, so that operations meet.
    fn key(&mut self) -> Option<u64> {
        match self.byte()? {
            few @ 0..=127 => Some(u64::from(few) % 32),
            more @ 128..=254 => Some(u64::from(more)),
            _ => Some(u64::from(self.byte()?) << 8 | u64::from(self.byte()?)),
        }
    }

    /// Splits the input into a part for each thread.
    fn split(&self) -> impl Iterator<Item = Input<'a>> {
        self.0.chunks(self.0.len().div_ceil(THREADS).max(1)).map(Input)
    }
}

/// The parameters of the table.
#[derive(Clone, Copy)]
struct Shape {
    hasher: Masked,
    maximum: Option<usize>,
    capacity: usize,
    /// Whether the table is one of the default domain, where it needs no reader.
    is_default: bool,
}

impl Shape {
    fn of(input: &mut Input<'_>) -> Self {
        let (hash, maximum, capacity) = (input.byte(), input.byte(), input.byte());
        // These give good hashes, a single tag, a single stripe, or a single chain.
        let masks = [u64::MAX, u64::MAX >> 16, u64::MAX << 8, 0];
        Self {
            hasher: Masked(masks[usize::from(hash.unwrap_or(0)) % masks.len()]),
            maximum: maximum.filter(|most| *most < 128).map(|most| usize::from(most) + 1),
            capacity: usize::from(capacity.unwrap_or(0)),
            is_default: hash.is_some_and(|byte| byte & 64 != 0),
        }
    }

    fn domain(self) -> Domain {
        if self.is_default {
            default_domain().clone()
        } else {
            Domain::new()
        }
    }

    fn table<V: Send + Sync + 'static>(self, domain: &Domain) -> Table<Counted, V, Masked> {
        let builder = Table::builder_in(domain).hasher(self.hasher).unmixed().capacity(self.capacity);
        let builder = self.maximum.into_iter().fold(builder, |builder, most| builder.max_len(most));
        builder.build().expect("a small table")
    }
}

/// A hash of which only some bits are used.
#[derive(Clone, Copy)]
struct Masked(u64);

struct MaskedHasher(u64, u64);

impl BuildHasher for Masked {
    type Hasher = MaskedHasher;

    fn build_hasher(&self) -> MaskedHasher {
        MaskedHasher(self.0, 0)
    }
}

impl Hasher for MaskedHasher {
    fn finish(&self) -> u64 {
        (self.1 ^ self.1 >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) & self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.1 = (self.1 ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
}

fn run_alone(shape: Shape, mut input: Input<'_>) {
    let census = Census::default();
    let domain = shape.domain();
    let table = shape.table(&domain);
    let map = HashMap::new();
    let mut one = One { shape, census: &census, domain: &domain, table: &table, map, thread: 0, threads: 1 };
    one.run(&mut input, usize::MAX, 0);
    let One { map, .. } = one;
    check_whole(&domain, &table, &map);
    free_all(&table, &census, 2 * map.len());
    drop(table);
    assert_eq!(census.alive(), 0);
}

fn check_whole(domain: &Domain, table: &Table<Counted, Counted, Masked>, map: &HashMap<u64, u64>) {
    let reader = domain.reader();
    let guard = reader.pin();
    let mut entries: Vec<_> =
        table.within(&guard).iter().map(|(key, value)| (key.value, value.value)).collect();
    entries.sort_unstable();
    let mut expected: Vec<_> = map.iter().map(|(key, value)| (*key, *value)).collect();
    expected.sort_unstable();
    assert_eq!((table.len(), entries), (map.len(), expected));
}

/// Until only `left` are alive. In the default domain, a thread of another test may just run a destructor.
fn free_all<V: Send + Sync + 'static>(table: &Table<Counted, V, Masked>, census: &Census, left: usize) {
    while table.pending() > 0 || census.alive() > left {
        table.poll();
    }
    assert_eq!(census.alive(), left);
}

fn run_apart(shape: Shape, input: Input<'_>) {
    let census = Census::default();
    let domain = shape.domain();
    let table = shape.table(&domain);
    let maps: Vec<HashMap<u64, u64>> = std::thread::scope(|scope| {
        let (census, domain, table) = (&census, &domain, &table);
        let threads: Vec<_> = input
            .split()
            .enumerate()
            .map(|(thread, mut input)| {
                scope.spawn(move || {
                    let map = HashMap::new();
                    let mut one = One { shape, census, domain, table, map, thread, threads: THREADS };
                    one.run(&mut input, usize::MAX, 0);
                    one.map
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let map: HashMap<u64, u64> = maps.into_iter().flatten().collect();
    check_whole(&domain, &table, &map);
    free_all(&table, &census, 2 * map.len());
}

/// One thread, whose keys no other thread uses.
struct One<'a> {
    shape: Shape,
    census: &'a Census,
    domain: &'a Domain,
    table: &'a Table<Counted, Counted, Masked>,
    map: HashMap<u64, u64>,
    thread: usize,
    threads: usize,
}

impl One<'_> {
    /// Runs up to `operations` operations, while `depth` entries and regions are held.
    fn run(&mut self, input: &mut Input<'_>, operations: usize, depth: usize) {
        let mut reader = self.domain.reader();
        let mut lookup = self.table.reader(&mut reader);
        for _ in 0..operations {
            if self.operate(&mut lookup, input, depth).is_none() {
                return;
            }
        }
    }

    fn key(&self, input: &mut Input<'_>) -> Option<u64> {
        Some(input.key()? * self.threads as u64 + self.thread as u64)
    }

    fn operate(
        &mut self,
        lookup: &mut TableReader<'_, Counted, Counted, Masked>,
        input: &mut Input<'_>,
        depth: usize,
    ) -> Option<()> {
        let alone = self.threads == 1;
        let (kind, key) = (input.byte()?, self.key(input)?);
        let expected = self.map.get(&key).copied();
        match kind % 16 {
            0..=4 => self.insert(key, u64::from(kind)),
            5 | 6 => {
                assert_eq!(self.table.remove(&key).map(|old| old.value().value), expected);
                self.map.remove(&key);
            }
            7 => {
                let value = u64::from(kind) + 1_000;
                let made = || self.census.value(value);
                match lookup.get_or_insert_with(self.census.value(key), made) {
                    Ok((entry, inserted)) => {
                        assert_eq!(inserted, expected.is_none());
                        assert_eq!(entry.value().value, *self.map.entry(key).or_insert(value));
                    }
                    Err(Full(handed_back, _)) => self.check_full(handed_back.value, key, 0),
                }
            }
            8 => {
                let change = |old: u64| old ^ u64::from(kind);
                let make = |old: &Counted| self.census.value(change(old.value));
                let updated = match kind >> 6 {
                    0 if self.shape.is_default => self.table.update(&key, make),
                    1 => match lookup.update_owned(self.census.value(key), make) {
                        Ok(old) => Ok(Some(old)),
                        Err(UpdateError::Absent(handed_back)) => {
                            assert_eq!(handed_back.value, key);
                            Ok(None)
                        }
                        Err(UpdateError::Full(full)) => Err(full),
                    },
                    _ => lookup.update(&key, make),
                };
                match updated {
                    Ok(old) => {
                        assert_eq!(old.map(|old| old.value().value), expected);
                        self.map.entry(key).and_modify(|value| *value = change(*value));
                    }
                    Err(Full(handed_back, _)) => self.check_full(handed_back.value, key, SPARE),
                }
            }
            9 => {
                let large = |value: u64| value >= u64::from(kind);
                let removed = lookup.remove_if(&key, |_, value| large(value.value)).ok().flatten();
                assert_eq!(removed.map(|old| old.value().value), expected.filter(|&value| large(value)));
                if expected.is_some_and(large) {
                    self.map.remove(&key);
                }
            }
            10 => {
                let keys = std::array::from_fn::<u64, 7, _>(|at| key + (at * self.threads) as u64);
                let found = lookup.pin().get_many(&keys).map(|value| Some(value?.value));
                assert_eq!(found, keys.map(|key| self.map.get(&key).copied()));
                let mut region = self.domain.qsbr_reader();
                let found = self.table.within(&region).get(&key).map(|value| value.value);
                assert_eq!(found, expected);
                region.quiescent();
            }
            11 if depth < DEPTH => {
                let (other, table) = (self.domain.reader(), self.table);
                let entries = [table.protect(&other, &key), lookup.get(&key), table.protect(&other, &key)];
                let owned = table.get_owned(&key);
                self.run(input, usize::from(kind >> 4), depth + 1);
                let values = entries.map(|entry| entry.map(|entry| entry.value().value));
                assert_eq!(values, [expected; 3], "while it is held");
                assert_eq!(owned.map(|value| value.value), expected, "while it is held");
            }
            12 if depth < DEPTH => {
                let guard = lookup.pin();
                let value = guard.get(&key);
                self.run(input, usize::from(kind >> 4), depth + 1);
                assert_eq!(value.map(|value| value.value), expected, "in the region");
            }
            13 if alone => match kind >> 4 {
                0..=4 => {
                    let reader = self.domain.reader();
                    self.table.within(&reader.pin()).retain(|key, _| key.value % 3 == 0);
                    self.map.retain(|key, _| key % 3 == 0);
                }
                5 => {
                    self.table.clear();
                    self.map.clear();
                }
                _ => check_whole(self.domain, self.table, &self.map),
            },
            14 => {
                let room = self.table.reserve((key % 2_000) as usize);
                assert!(room.is_ok() || self.shape.maximum.is_some(), "there is memory");
            }
            15 if kind >> 4 < 2 => self.table.shrink_to_fit(),
            15 => _ = self.table.poll(),
            _ => {}
        }
        let present = self.map.get(&key).copied();
        let found = lookup.get(&key).map(|entry| entry.value().value);
        assert_eq!(found, present);
        if self.shape.is_default {
            assert_eq!(self.table.get(&key).map(|entry| entry.value().value), present);
        }
        if alone {
            assert_eq!(self.table.len(), self.map.len());
        }
        Some(())
    }

    fn insert(&mut self, key: u64, value: u64) {
        match self.table.insert(self.census.value(key), self.census.value(value)) {
            Ok(old) => assert_eq!(old.map(|old| old.value().value), self.map.insert(key, value)),
            Err(Full(handed_back, _)) => {
                let spare = if self.map.contains_key(&key) { SPARE } else { 0 };
                self.check_full(handed_back.value, key, spare);
            }
        }
    }

    /// A table is full only when entries, and removed entries that wait, take all of its room. A replacement also finds
    /// room in the spare slots.
    fn check_full(&self, handed_back: u64, key: u64, spare: usize) {
        assert_eq!(handed_back, key);
        let maximum = self.shape.maximum.expect("there is memory") + spare;
        if self.threads == 1 {
            let taken = self.table.len() + self.table.pending();
            assert!(taken >= maximum, "{taken} of {maximum} are taken");
        }
    }
}

/// The calls of all threads on a key are recorded, and must have a valid order.
fn run_together(shape: Shape, input: Input<'_>) {
    let shape = Shape { maximum: None, ..shape };
    let census = Census::default();
    let domain = shape.domain();
    let table: Table<Counted, u64, Masked> = shape.table(&domain);
    let (clock, barrier) = (Clock::default(), Barrier::new(THREADS));
    // Keys that no thread looks up make the table grow meanwhile.
    let filler = usize::from(input.0.first().copied().unwrap_or(0)) * 8;
    let parts: Vec<&[u8]> =
        input.split().map(|part| part.0).chain(std::iter::repeat(&[][..])).take(THREADS).collect();
    let rounds = parts.iter().map(|part| part.len().div_ceil(CALLS)).max().unwrap_or(0);
    let histories: Vec<Vec<Vec<Event>>> = std::thread::scope(|scope| {
        let (census, domain, table, clock, barrier) = (&census, &domain, &table, &clock, &barrier);
        let threads: Vec<_> = parts
            .into_iter()
            .enumerate()
            .map(|(thread, part)| {
                scope.spawn(move || {
                    let mut reader = domain.reader();
                    let mut lookup = table.reader(&mut reader);
                    let of_round = |round: usize| {
                        barrier.wait();
                        let calls = part.chunks(CALLS).nth(round).unwrap_or_default();
                        let key = round as u64;
                        let note = |(number, &byte): (usize, &u8)| {
                            let value = ((round * THREADS + thread) * CALLS + number) as u64;
                            note(clock, table, &mut lookup, census, key, value, byte)
                        };
                        let events = calls.iter().enumerate().map(note).collect();
                        for more in 0..filler / rounds {
                            let number = (round * THREADS + thread) * filler + more;
                            drop(table.insert(census.value(1 << 32 | number as u64), 0).unwrap());
                        }
                        events
                    };
                    (0..rounds).map(of_round).collect()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for round in 0..rounds {
        check(&histories.iter().flat_map(|of_thread| of_thread[round].clone()).collect::<Vec<_>>());
    }
    free_all(&table, &census, table.len());
}

fn note(
    clock: &Clock,
    table: &Table<Counted, u64, Masked>,
    lookup: &mut TableReader<'_, Counted, u64, Masked>,
    census: &Census,
    key: u64,
    value: u64,
    byte: u8,
) -> Event {
    match byte % 8 {
        0 | 1 => clock
            .note(Call::Insert(value), || table.insert(census.value(key), value).unwrap().map(|old| *old)),
        2 => clock.note(Call::InsertNew(value), || {
            let (entry, _) = lookup.get_or_insert_with(census.value(key), || value).unwrap();
            Some(*entry).filter(|found| *found != value)
        }),
        3 => clock.note(Call::Update(value), || lookup.update(&key, |_| value).unwrap().map(|old| *old)),
        4 => {
            let remainder = u64::from(byte >> 7);
            clock.note(Call::RemoveIf(remainder), || {
                match lookup.remove_if(&key, |_, found| found % 2 == remainder) {
                    Ok(removed) => removed.map(|old| *old),
                    Err(kept) => Some(*kept),
                }
            })
        }
        5 => clock.note(Call::Remove, || table.remove(&key).map(|old| *old)),
        6 if byte >> 7 == 1 => clock.note(Call::Contains, || lookup.contains_key(&key).then_some(0)),
        6 => clock.note(Call::Get, || lookup.copied(&key)),
        _ => clock.note(Call::Get, || lookup.pin().get(&key).copied()),
    }
}
