//! The work of one call, in moved entries, compared keys and destructors: the bounds of the design page.

use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stillpoint::rcu::Domain;
use stillpoint::table::{Operation, Table};

use crate::census::Census;
use crate::free_all;
use crate::identity::Identity;

thread_local! {
    static HASHES: Cell<usize> = const { Cell::new(0) };
    static COMPARISONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts its hashes and comparisons. At some growths ([`HASHED_AT`]), moving an entry hashes its key.
#[derive(Debug, Clone, Copy)]
struct Key(u64);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        COMPARISONS.set(COMPARISONS.get() + 1);
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        HASHES.set(HASHES.get() + 1);
        state.write_u64(self.0);
    }
}

type Even<V> = Table<Key, V, BuildHasherDefault<Identity>>;

fn even<V: Send + Sync + 'static>(domain: &Domain) -> Even<V> {
    Table::builder_in(domain).hasher(BuildHasherDefault::default()).unmixed().build().unwrap()
}

/// The number of keys that `function` hashed, and compared.
fn work<R>(function: impl FnOnce() -> R) -> (usize, usize) {
    let before = (HASHES.get(), COMPARISONS.get());
    function();
    (HASHES.get() - before.0, COMPARISONS.get() - before.1)
}

/// A table that begins empty hashes its keys again when it grows to this number of buckets.
const HASHED_AT: usize = 1 << 12;

/// The most entries of a chain that may be moved next, during a growth.
fn longest_chain<V: Send + Sync>(table: &Even<V>) -> usize {
    let stats = table.stats();
    // During a growth, the entries inserted since its beginning are in the new chains.
    let buckets = match stats.buckets {
        buckets if !stats.growing => buckets,
        256 => 16,
        buckets => buckets / 2,
    };
    // One more, for the entries that are inserted by the calls of one turn.
    stats.entries.div_ceil(buckets) + 1
}

/// One call of a writer moves at most three chains, whatever the call is. A reader moves none.
#[test]
fn a_call_moves_three_chains_at_the_most() {
    let domain = Domain::new();
    let table = even::<u64>(&domain);
    let mut reader = domain.reader();
    let other = domain.reader();
    let mut lookup = table.reader(&mut reader);
    let (mut most, mut growths) = (0, HashSet::new());
    let mut next = 0;
    while table.stats().growths < 5 {
        let growing = table.stats().growing;
        let chain = longest_chain(&table);
        let key = |number: u64| Key(number % (next + 1));
        let writes: [&mut dyn FnMut(); 5] = [
            &mut || drop(table.insert(Key(next), next).unwrap()),
            &mut || drop(lookup.update(&key(next / 3), |value| value + 1).unwrap()),
            &mut || {
                if let Some(old) = table.remove(&key(next / 2)) {
                    drop(table.insert(*old.key(), 1).unwrap());
                }
            },
            &mut || drop(table.insert(key(next / 5), next).unwrap()),
            &mut || drop(table.insert(key(next / 7), 0).unwrap()),
        ];
        for (kind, write) in writes.into_iter().enumerate() {
            let before = table.stats();
            let (hashed, compared) = work(write);
            let calls = if kind == 2 { 2 } else { 1 };
            let moved = hashed.saturating_sub(calls);
            assert!(moved <= calls * 3 * chain, "{moved} moved by {kind}, chains of {chain}: {before:?}");
            assert!(compared <= calls * 2 * (chain + 1), "{compared} compared by {kind}: {before:?}");
            // At other growths, the buckets keep the bits of the hashes that the growth needs.
            if !before.growing || before.buckets != HASHED_AT {
                assert_eq!(moved, 0, "{before:?}");
            }
            most = most.max(moved / chain.max(1));
        }
        let reads = [
            work(|| assert!(lookup.contains_key(&Key(next)))),
            work(|| assert!(lookup.pin().get(&Key(next / 2)).is_some())),
            work(|| assert!(table.within(&other.pin()).get(&Key(next / 3)).is_some())),
        ];
        for (hashed, compared) in reads {
            assert_eq!(hashed, 1, "a reader moves nothing");
            assert!(compared <= 2 * (chain + 1), "{compared} compared in chains of {chain}");
        }
        if growing {
            growths.insert(table.stats().buckets);
        }
        next += 1;
    }
    assert!(most >= 1 && growths.len() >= 4, "at most {most} moved in growths {growths:?}");
    // When a growth begins, chains have up to two buckets.
    assert!((1..=6).contains(&table.stats().most_buckets_moved_by_a_call), "{:?}", table.stats());
}

/// Writes that depend on the present entry hash their key once, and move and compare no more than other writes.
#[test]
fn a_change_hashes_its_key_once_and_moves_three_chains_at_the_most() {
    let domain = Domain::new();
    let table = even::<u64>(&domain);
    let (mut reader, other) = (domain.reader(), domain.reader());
    let mut lookup = table.reader(&mut reader);
    let mut next = 0;
    while table.stats().growths < 5 {
        for kind in 0..10 {
            let (before, chain) = (table.stats(), longest_chain(&table));
            let (new, old) = (Key(next), Key(next / 2));
            let change =
                |present: Option<(&Key, &u64)>| Operation::<_>::Insert(present.map_or(0, |(_, old)| old + 1));
            let guard = other.pin();
            let view = table.within(&guard);
            let (hashed, compared) = work(|| match kind {
                0 => drop(lookup.compute(new, change).unwrap()),
                1 => drop(lookup.compute(old, change).unwrap()),
                2 => drop(view.compute(old, change).unwrap()),
                3 => drop(lookup.update_or_insert(old, |value| value + 1, 0).unwrap()),
                4 => _ = view.update_or_insert(new, |value| value + 1, 0).unwrap(),
                5 => drop(lookup.get_or_insert(old, 0).unwrap()),
                6 => _ = view.get_or_insert(new, 0).unwrap(),
                7 => drop(lookup.try_insert(new, 0)),
                8 => drop(lookup.compute(old, |_| Operation::<u64>::Remove).unwrap()),
                _ => drop(view.try_insert(old, 0)),
            });
            let moved = hashed - 1;
            assert!(moved <= 3 * chain, "{moved} moved by {kind}, chains of {chain}: {before:?}");
            assert!(
                before.growing && before.buckets == HASHED_AT || moved == 0,
                "{kind} has moved {moved}: {before:?}"
            );
            // The key is looked up without the lock, and again by an insertion under the lock.
            assert!(compared <= 4 * (chain + 1), "{compared} compared by {kind}: {before:?}");
        }
        next += 1;
    }
    // When a growth begins, chains have up to two buckets.
    assert!((1..=6).contains(&table.stats().most_buckets_moved_by_a_call), "{:?}", table.stats());
}

/// A call of a writer moves its own chain and two more, or two chains of another stripe. It never does both, and never
/// moves only its own chain.
#[test]
fn a_growth_ends_within_half_as_many_writes_as_there_are_chains() {
    let table = even::<()>(&Domain::new());
    let mut next = 0;
    let mut insert = || {
        table.insert(Key(next), ()).unwrap();
        next += 1;
    };
    for _ in 0..5 {
        let (mut writes, chains) = (0, table.stats().buckets);
        while !table.stats().growing {
            insert();
        }
        while table.stats().growing {
            insert();
            writes += 1;
        }
        assert!(writes <= chains / 2 + 256, "{writes} writes for {chains} chains");
        assert!(writes >= chains / 3, "{writes} writes for {chains} chains");
    }
}

/// `clear` and `retain` hash each entry at most once, even in the middle of a growth, and move none twice.
#[test]
fn clear_hashes_each_entry_once_at_the_most() {
    let domain = Domain::new();
    for more in [0, 1, 50, 200] {
        let census = Census::default();
        let table = even(&domain);
        let mut next = 0;
        while !table.stats().growing {
            table.insert(Key(next), census.value(next)).unwrap();
            next += 1;
        }
        for _ in 0..more {
            table.insert(Key(next), census.value(next)).unwrap();
            next += 1;
        }
        let (hashed, compared) = work(|| table.clear());
        assert!(hashed <= next as usize && compared == 0, "{hashed} hashed, {compared} compared of {next}");
        assert_eq!(table.len(), 0);
        free_all(&table);
        assert_eq!((census.alive(), census.made()), (0, next as usize));
        assert!(!table.stats().growing, "every chain was moved");
    }
}

/// Writers free what a guard held up, 32 entries at a time; readers free nothing.
#[test]
fn a_call_runs_few_destructors() {
    const MOST: usize = 32;
    const WAITING: u64 = if cfg!(miri) { 200 } else { 10_000 };
    // The entries that the calls themselves remove wait for a common heavy fence, where there are heavy fences.
    const GATHERED: usize = if cfg!(miri) { MOST } else { 33 * 128 };
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    for key in 0..8 {
        table.insert(key, census.value(key)).unwrap();
    }
    // Each kind of write frees what waits.
    for kind in 0..6 {
        let holder = domain.reader();
        let guard = holder.pin();
        for number in 0..WAITING {
            drop(table.insert(number % 8, census.value(number)).unwrap());
        }
        assert_eq!(table.pending() as u64, WAITING);
        drop(guard);
        let (mut calls, mut most) = (0, 0);
        while table.pending() > GATHERED {
            let (alive, made) = (census.alive(), census.made());
            let key = calls as u64 % 8;
            match kind {
                0 => drop(table.insert(key, census.value(1)).unwrap()),
                1 => drop(lookup.update(&key, |_| census.value(1)).unwrap()),
                2 => drop(table.remove(&key)),
                3 => drop(lookup.remove_if(&key, |_, _| true)),
                4 => drop(table.insert(1_000 + calls as u64, census.value(1)).unwrap()),
                _ => table.within(&domain.reader().pin()).retain(|found, _| *found != key),
            }
            let freed = alive + (census.made() - made) - census.alive();
            assert!(freed <= MOST, "{freed} destructors in one call of kind {kind}");
            most = most.max(freed);
            let alive = census.alive();
            assert!(
                lookup.get(&(1 << 40)).is_none()
                    && lookup.pin().get(&3).is_none_or(|found| found.value < WAITING)
            );
            assert_eq!(census.alive(), alive, "readers free nothing");
            if matches!(kind, 2 | 3 | 5) {
                drop(table.insert(key, census.value(2)).unwrap());
            }
            calls += 1;
            assert!(calls < 1_000_000, "kind {kind} frees nothing: {} wait", table.pending());
        }
        assert!(most > 1, "no call of kind {kind} runs two destructors");
        // An idle `TableReader` pins the array that its last lookup saw, which may be an old one.
        let mut drain = || {
            while table.pending() > 0 {
                assert!(lookup.get(&(1 << 40)).is_none());
                table.poll();
            }
        };
        drain();
        table.clear();
        drain();
        assert_eq!(census.alive(), 0);
        for key in 0..8 {
            table.insert(key, census.value(key)).unwrap();
        }
    }
}

/// An iteration sees every entry that stays exactly once, while others are inserted and removed, and the table grows.
#[test]
fn an_iteration_beside_writers_sees_what_stays_once() {
    const STAY: u64 = if cfg!(miri) { 60 } else { 700 };
    let rounds = if cfg!(miri) { 2 } else { 60 };
    for _ in 0..rounds {
        let domain = Domain::new();
        let table = Table::new_in(&domain);
        for key in 0..STAY {
            table.insert(key, key).unwrap();
        }
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for key in STAY..STAY * 6 {
                    table.insert(key, key).unwrap();
                    if key % 3 == 0 {
                        table.remove(&key);
                    }
                }
            });
            let reader = domain.reader();
            let mut done = false;
            while !done {
                done = writer.is_finished();
                let guard = reader.pin();
                let mut seen = vec![0; STAY as usize];
                for (key, value) in table.within(&guard).iter() {
                    assert_eq!(key, value);
                    if let Some(times) = seen.get_mut(*key as usize) {
                        *times += 1;
                    }
                }
                assert!(seen.iter().all(|times| *times == 1), "an entry was missed, or seen twice");
            }
        });
    }
}

/// A writer whose chain has not moved yet moves that chain, and two more that have not moved. Chains that have moved
/// already do not count. So eight chains of a stripe take three calls, in this order.
#[test]
fn chains_that_have_moved_are_no_part_of_a_share() {
    const STRIPES: u64 = 256;
    const CHAINS: u64 = 8 * STRIPES;
    let domain = Domain::new();
    let builder = Table::builder_in(&domain).hasher(BuildHasherDefault::<Identity>::default()).unmixed();
    let table = builder.capacity(5 * CHAINS as usize).build().unwrap();
    let mut next = 0;
    while !table.stats().growing {
        table.insert(Key(next), ()).unwrap();
        next += 1;
    }
    assert_eq!(table.stats().buckets as u64, 2 * CHAINS);
    let length = |chain: u64| ((next - chain).div_ceil(CHAINS)) as usize;
    for stripe in 0..STRIPES {
        // The chain of the key, and the chains that move with it.
        for moved in [&[2, 0, 1][..], &[5, 3, 4], &[7, 6]] {
            let chain = |number: &u64| stripe + number * STRIPES;
            let (hashed, _) = work(|| table.insert(Key(chain(&moved[0])), ()).unwrap().is_some());
            let expected: usize = moved.iter().map(|number| length(chain(number))).sum();
            assert_eq!(hashed, 1 + expected, "stripe {stripe}, {moved:?}");
        }
    }
    // The chain whose last entry began the growth has an overflow bucket.
    let stats = table.stats();
    assert_eq!(
        (stats.growing, stats.growths, stats.most_buckets_moved_by_a_call),
        (false, 1, 4),
        "{stats:?}"
    );
}

thread_local! {
    /// Of the destructors of [`Removes`] on this thread: how many are running, the most that ran at a time, and how
    /// many ran in the present call.
    static DEPTH: Cell<[usize; 3]> = const { Cell::new([0; 3]) };
}

/// Removes another entry of its table when it is dropped.
struct Removes(Option<(Arc<Table<u64, Removes>>, u64)>);

impl Drop for Removes {
    fn drop(&mut self) {
        let Some((table, next)) = self.0.take() else { return };
        let [depth, deepest, calls] = DEPTH.get();
        DEPTH.set([depth + 1, deepest.max(depth + 1), calls + 1]);
        // Longer than the time within which writers share a poll.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(8) {}
        drop(table.remove(&next));
        let [depth, deepest, calls] = DEPTH.get();
        DEPTH.set([depth - 1, deepest, calls]);
    }
}

/// Destructors that write to their table do not free what is on all its shelves in one call: a call frees 32 on the own one, and 32 on another.
#[cfg(not(miri))]
#[test]
fn destructors_that_write_to_their_table_do_not_nest() {
    let domain = Domain::new();
    let table = Arc::new(Table::new_in(&domain));
    let others = 10_000..20_000;
    others.clone().for_each(|key| drop(table.insert(key, Removes(None)).unwrap()));
    for (key, next) in (0..3_000).zip(others) {
        drop(table.insert(key, Removes(Some((Arc::clone(&table), next)))).unwrap());
    }
    let reader = domain.reader();
    let guard = reader.pin();
    std::thread::scope(|scope| {
        for first in 0..4 {
            let table = &table;
            scope.spawn(move || (0..700).for_each(|key| drop(table.remove(&(4 * key + first)))));
        }
    });
    drop(guard);
    for key in 2_900..3_000 {
        DEPTH.set([0; 3]);
        drop(table.remove(&key));
        let [_, deepest, calls] = DEPTH.get();
        assert!(deepest <= 1 && calls <= 2 * 32, "{calls} destructors in one call, {deepest} deep");
    }
    table.clear();
    free_all(&table);
}
