//! loom models of a bucket: lookups against insertions, removals and moves, on the engine itself.
//!
//! `RUSTFLAGS="--cfg stillpoint_loom --cfg stillpoint_busted" cargo test -p stillpoint --release --lib table::models`
//!
//! Here a table has one stripe, and begins with one bucket of four slots, whose capacity is one entry: the second
//! insertion begins a growth, and each later write moves a bucket. In [`write_while_few_become_many`], it begins with two stripes
//! and buckets, and has four later.

use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use loom::cell::UnsafeCell;

#[cfg(stillpoint_busted)]
use super::busted::{self, Variant};
use super::Table;
use crate::rcu::{Domain, RcuCell};

std::thread_local! {
    /// Stripes of a small table, and of others. Loom runs all threads of a model in one thread of the process.
    pub(crate) static STRIPES: Cell<(usize, usize)> = const { Cell::new((1, 1)) };
}

/// Loom's message when two accesses are not ordered.
const UNORDERED: &str = "Causality violation";
/// The arena's message when it does not find an entry's index.
#[cfg(stillpoint_busted)]
const NO_CHUNK: &str = "the address is one of a chunk";
/// A model's message when a lookup misses a key that is in the table throughout.
const LOST: &str = "a key was not found";
/// A model's message about an iteration.
const ONCE: &str = "an entry was not seen exactly once";

/// A value whose accesses loom watches: loom reports a read that does not happen before the drop, even when it read the
/// right value.
struct Object(UnsafeCell<u64>);

// SAFETY: written only by `new` and `drop`; the models check that both are ordered with every read.
unsafe impl Sync for Object {}
// SAFETY: the value is a number; the models check that its accesses are ordered.
unsafe impl Send for Object {}

const FREED: u64 = 13;

impl Object {
    fn new(value: u64) -> Self {
        let cell = UnsafeCell::new(0);
        // SAFETY: not shared yet.
        cell.with_mut(|place| unsafe { *place = value });
        Self(cell)
    }

    fn read(&self) -> u64 {
        // SAFETY: the protocol under test keeps the object alive; loom reports it where it does not.
        let value = self.0.with(|place| unsafe { *place });
        assert_ne!(value, FREED, "{UNORDERED}: an entry was read after its free");
        value
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: under the protocol under test, no reader is left; loom reports it if one is.
        self.0.with_mut(|place| unsafe { *place = FREED });
    }
}

/// Objects are also keys, so that comparisons are watched, too.
impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.read() == other.read()
    }
}

impl Eq for Object {}

impl Hash for Object {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.read());
    }
}

/// Which chain a key is in: the same chain for all keys, before and after each growth, or the chain with the key's
/// number. All keys have the same tag.
#[derive(Clone, Copy)]
enum Chains {
    Same,
    Own(u64),
}

impl BuildHasher for Chains {
    type Hasher = Chains;
    fn build_hasher(&self) -> Chains {
        *self
    }
}

impl Hasher for Chains {
    fn finish(&self) -> u64 {
        match self {
            Chains::Same => 0,
            Chains::Own(key) => *key,
        }
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, key: u64) {
        if let Chains::Own(hash) = self {
            *hash = key;
        }
    }
}

type Shared = Arc<(Domain, Table<Object, Object, Chains>)>;

fn shared(chains: Chains, keys: u64) -> Shared {
    let domain = Domain::new();
    let table = Table::builder_in(&domain).hasher(chains).unmixed().build().expect("a small table");
    let shared = Arc::new((domain, table));
    for key in 0..keys {
        insert(&shared, key, 100 + key);
    }
    shared
}

fn insert(shared: &Shared, key: u64, value: u64) {
    drop(shared.1.insert(Object::new(key), Object::new(value)).expect("there is memory"));
}

fn remove(shared: &Shared, key: u64) {
    drop(shared.1.remove(&Object::new(key)));
}

/// The value that a protected lookup finds.
fn get(shared: &Shared, key: u64) -> Option<u64> {
    let mut reader = shared.0.reader();
    let mut lookup = shared.1.reader(&mut reader);
    lookup.get(&Object::new(key)).map(|entry| entry.value().read())
}

/// The value that a protected lookup finds by a reader that is not bound to the table.
fn get_unbound(shared: &Shared, key: u64) -> Option<u64> {
    let reader = shared.0.reader();
    let entry = shared.1.protect(&reader, &Object::new(key));
    entry.map(|entry| entry.value().read())
}

/// Both kinds of protected lookups.
const GETS: [fn(&Shared, u64) -> Option<u64>; 2] = [get, get_unbound];

/// The value that a lookup under a guard finds.
fn get_guarded(shared: &Shared, key: u64) -> Option<u64> {
    let mut reader = shared.0.reader();
    let mut lookup = shared.1.reader(&mut reader);
    let guard = lookup.pin();
    guard.get(&Object::new(key)).map(Object::read)
}

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 50_000;
    builder.check(model);
    stillpoint_sys::busted::assert_reached();
}

/// Runs `read` on a second thread, while this thread runs `write` and then polls.
fn explore(
    preemptions: usize,
    keys: u64,
    read: impl Fn(&Shared) + Send + Sync + Copy + 'static,
    write: impl Fn(&Shared) + Send + Sync + Copy + 'static,
) {
    check(preemptions, move || {
        let shared = shared(Chains::Same, keys);
        let reading = Arc::clone(&shared);
        let reader = loom::thread::spawn(move || read(&reading));
        write(&shared);
        shared.1.poll();
        reader.join().unwrap();
    });
}

/// As [`explore`], for key 1 in an array of two chains, while this thread moves the table to an array of one chain.
fn explore_shrinking(preemptions: usize, read: impl Fn(&Shared) + Send + Sync + Copy + 'static) {
    check(preemptions, move || {
        let shared = shared(Chains::Own(0), 0);
        insert(&shared, 1, 101);
        assert!(shared.1.reserve(1).is_ok() && shared.1.stats().buckets == 2);
        let reading = Arc::clone(&shared);
        let reader = loom::thread::spawn(move || read(&reading));
        shared.1.shrink_to_fit();
        assert_eq!(shared.1.stats().buckets, 1);
        shared.1.poll();
        reader.join().unwrap();
    });
}

#[test]
fn get_against_remove() {
    let write = |shared: &Shared| remove(shared, 0);
    for get in GETS {
        let read = move |shared: &Shared| assert!(matches!(get(shared, 0), None | Some(100)));
        explore(3, 1, read, write);
    }
}

#[test]
fn get_guarded_against_remove() {
    let write = |shared: &Shared| remove(shared, 0);
    explore(3, 1, |shared| assert!(matches!(get_guarded(shared, 0), None | Some(100))), write);
}

/// The word changes from one entry to another with the same key, which is in the table throughout.
#[test]
fn get_against_replace() {
    let write = |shared: &Shared| insert(shared, 0, 200);
    for get in GETS {
        let read = move |shared: &Shared| assert!(matches!(get(shared, 0), Some(100 | 200)), "{LOST}");
        explore(3, 1, read, write);
    }
}

#[test]
fn get_guarded_against_replace() {
    let write = |shared: &Shared| insert(shared, 0, 200);
    explore(3, 1, |shared| assert!(matches!(get_guarded(shared, 0), Some(100 | 200)), "{LOST}"), write);
}

/// The slot and the index change from one key to another with the same tag.
#[test]
fn get_against_another_key() {
    let write = |shared: &Shared| {
        remove(shared, 0);
        shared.1.poll();
        insert(shared, 1, 200);
    };
    for get in GETS {
        let read = move |shared: &Shared| assert!(matches!(get(shared, 0), None | Some(100)));
        explore(3, 1, read, write);
    }
}

/// With two entries, the growth has begun. The next write moves them and ends the growth; the old array is retired.
#[test]
fn get_against_move() {
    let write = |shared: &Shared| remove(shared, 1);
    for get in GETS {
        explore(2, 2, move |shared| assert_eq!(get(shared, 0), Some(100), "{LOST}"), write);
    }
}

#[test]
fn get_guarded_against_move() {
    let write = |shared: &Shared| remove(shared, 1);
    explore(2, 2, |shared| assert_eq!(get_guarded(shared, 0), Some(100), "{LOST}"), write);
}

/// The entry is moved, and then removed through the new array: the old word must be cleared.
#[test]
fn get_against_move_and_remove() {
    let write = |shared: &Shared| {
        remove(shared, 1);
        remove(shared, 0);
    };
    for get in GETS {
        let read = move |shared: &Shared| assert!(matches!(get(shared, 0), None | Some(100)));
        explore(2, 2, read, write);
    }
}

/// A bound reader has pinned the first array; two growths pass, and the second array is freed during the lookup.
#[test]
fn a_bound_reader_follows_two_growths() {
    let read = |shared: &Shared| {
        let mut reader = shared.0.reader();
        let mut lookup = shared.1.reader(&mut reader);
        let found = lookup.get(&Object::new(0)).map(|entry| entry.value().read());
        assert_eq!(found, Some(100), "{LOST}");
    };
    explore(2, 2, read, grow_twice);
}

fn grow_twice(shared: &Shared) {
    insert(shared, 2, 102);
    insert(shared, 3, 103);
}

/// The array that the lookup began in is freed during the lookup, and the next one as well.
#[test]
fn a_reader_that_is_not_bound_follows_two_growths() {
    explore(2, 2, |shared| assert_eq!(get_unbound(shared, 0), Some(100), "{LOST}"), grow_twice);
}

#[test]
fn get_against_shrink() {
    for get in GETS {
        explore_shrinking(2, move |shared| assert_eq!(get(shared, 1), Some(101), "{LOST}"));
    }
}

#[test]
fn get_guarded_against_shrink() {
    explore_shrinking(2, |shared| assert_eq!(get_guarded(shared, 1), Some(101), "{LOST}"));
}

/// Both chains move to the same one: the entry is seen only through one of them.
#[test]
fn iterate_against_shrink() {
    explore_shrinking(2, |shared| {
        let reader = shared.0.reader();
        let guard = reader.pin();
        let view = shared.1.within(&guard);
        let seen: Vec<u64> = view.iter().map(|(_, value)| value.read()).collect();
        assert_eq!(seen, [101], "{ONCE}");
    });
}

/// An entry that another thread made is complete.
#[test]
fn get_against_insert() {
    let write = |shared: &Shared| insert(shared, 0, 100);
    for get in GETS {
        let read = move |shared: &Shared| assert!(matches!(get(shared, 0), None | Some(100)));
        explore(4, 0, read, write);
    }
}

#[test]
fn get_guarded_against_insert() {
    let write = |shared: &Shared| insert(shared, 0, 100);
    explore(4, 0, |shared| assert!(matches!(get_guarded(shared, 0), None | Some(100))), write);
}

/// A thread that has an index of a chunk may not see the earlier chunks: it has synchronized only with the thread that
/// made this chunk.
#[test]
fn an_index_is_found_whoever_made_the_chunks_before() {
    use super::engine::chunks::Chunks;
    use super::engine::slab::Touch;
    use stillpoint_sys::sync::atomic::{AtomicU32, Ordering};

    loom::model(|| {
        // Values 0 and 1 are in the first chunk, 2 and 3 in the second, 4 to 7 in the third.
        let shared = Arc::new((Chunks::<AtomicU32>::new(2, Touch::Lazily).unwrap(), AtomicU32::new(2)));
        let other = Arc::clone(&shared);
        let maker = loom::thread::spawn(move || {
            assert!(other.0.ensure(2));
            // Relaxed, as `Arena::take_run` counts.
            other.1.store(4, Ordering::Relaxed);
        });
        // Relaxed, as in `Arena::take_run`.
        let fresh = shared.1.load(Ordering::Relaxed);
        if fresh == 4 {
            assert!(shared.0.ensure(fresh));
            assert_eq!(shared.0.index_of(shared.0.get(fresh)), fresh);
        }
        maker.join().unwrap();
    });
    stillpoint_sys::busted::assert_reached();
}

/// A write by a reader that is not bound keeps the entry that it has linked.
#[test]
fn an_entry_is_kept_by_who_links_it() {
    use super::engine::change::{Found, Kept, Sharing};

    let link = |shared: &Shared| {
        let (reader, inner) = (shared.0.reader(), shared.1.inner());
        let mut finder = Sharing::new(inner, &reader);
        let found = inner.get_or_insert(&mut finder, Object::new(0), || Object::new(100));
        let Ok(Found::Inserted(kept)) = found else { panic!("there is memory") };
        assert_eq!(kept.pair().value.read(), 100);
    };
    let write = |shared: &Shared| remove(shared, 0);
    explore(3, 0, link, write);
}

/// Two writers of one key: one replaces the other's entry.
#[test]
fn insert_against_insert() {
    explore(2, 0, |shared| insert(shared, 0, 100), |shared| insert(shared, 0, 200));
}

/// Two writers of a small table that moves to a larger array: the one that ends the move makes the stripes many. Both link an
/// entry in the same chain, for which they need the same lock: one of the few, or one of the many.
#[test]
fn write_while_few_become_many() {
    STRIPES.set((2, 4));
    check(2, || {
        let shared = shared(Chains::Own(0), 0);
        // The third begins a growth, as it is the second of its stripe.
        for key in [1, 0, 2] {
            insert(&shared, key, 100 + key);
        }
        let writing = Arc::clone(&shared);
        let writer = loom::thread::spawn(move || {
            remove(&writing, 2);
            insert(&writing, 4, 104);
        });
        remove(&shared, 1);
        insert(&shared, 8, 108);
        writer.join().unwrap();
        assert_eq!(shared.1.stats().buckets, 4);
        for key in [0, 4, 8] {
            assert_eq!(get_guarded(&shared, key), Some(100 + key), "{LOST}");
        }
        assert_eq!(shared.1.len(), 3);
    });
}

/// A key that takes the reader away when it is looked up, and compared.
struct Leaving {
    number: u64,
    leave: Option<Box<dyn Fn()>>,
}

// SAFETY: only the keys in the table are shared, and these have no function.
unsafe impl Send for Leaving {}
// SAFETY: as above.
unsafe impl Sync for Leaving {}

impl PartialEq for Leaving {
    fn eq(&self, other: &Self) -> bool {
        if let Some(leave) = self.leave.as_ref().or(other.leave.as_ref()) {
            leave();
        }
        self.number == other.number
    }
}

impl Eq for Leaving {}

impl Hash for Leaving {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.number);
    }
}

/// `Eq` may take the reader away, or vouch for a later token: the lookup goes on as if it had just begun. The first key of the chain is
/// another one.
fn compare_with_a_reader_taken_away(is_bound: bool) {
    check(3, move || {
        let domain = Domain::new();
        let table = Table::builder_in(&domain).hasher(Chains::Same).unmixed().build().expect("a small table");
        let key = |number| Leaving { number, leave: None };
        drop(table.insert(key(0), Object::new(100)).expect("there is memory"));
        table.reserve(1).expect("there is memory");
        drop(table.insert(key(1), Object::new(101)).expect("there is memory"));
        let table = Arc::new((domain, table));
        let reading = Arc::clone(&table);
        let thread = loom::thread::spawn(move || {
            let mut reader = reading.0.reader();
            let (core, record) = (std::ptr::from_ref(reader.core()), std::ptr::from_ref(reader.record()));
            // SAFETY: the reader lives longer than the key.
            let leave = move || _ = unsafe { (*core).protocol.go_away(&*record) };
            let key = Leaving { number: 1, leave: Some(Box::new(leave)) };
            let found = if is_bound {
                reading.1.reader(&mut reader).get(&key).map(|entry| entry.value().read())
            } else {
                reading.1.protect(&reader, &key).map(|entry| entry.value().read())
            };
            assert!(matches!(found, None | Some(101)));
        });
        drop(table.1.remove(&key(1)));
        table.1.poll();
        thread.join().unwrap();
    });
}

#[test]
fn a_comparison_takes_the_reader_away() {
    compare_with_a_reader_taken_away(true);
}

#[test]
fn a_comparison_takes_the_reader_away_that_is_not_bound() {
    compare_with_a_reader_taken_away(false);
}

/// An object that the program retires itself. Its memory is kept when it is freed, since the broken variant reads it: the allocator of the
/// models recognises it by this alignment.
#[repr(align(256))]
struct Apart(Object);

/// The address of an object, as a value.
struct Address(*const Apart);

// SAFETY: the models check that the accesses to the object are ordered.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// A table whose values are addresses of objects that the program retires itself. A cell owns the object of each key.
struct Objects {
    table: Table<Object, Address, Chains>,
    cells: [RcuCell<Apart>; 3],
    domain: Domain,
}

impl Objects {
    /// With the first `keys` keys in the table.
    fn new(keys: u64) -> Arc<Self> {
        let domain = Domain::new();
        let table = Table::builder_in(&domain).hasher(Chains::Same).unmixed().build().expect("a small table");
        let cells = [0, 1, 2].map(|key| domain.cell(Apart(Object::new(100 + key))));
        let this = Self { table, cells, domain };
        (0..keys).for_each(|key| this.link(key, key as usize));
        Arc::new(this)
    }

    /// Makes the object of a cell the value of a key.
    fn link(&self, key: u64, cell: usize) {
        let reader = self.domain.reader();
        let object = self.cells[cell].load(&reader.pin()).map_or(std::ptr::null(), std::ptr::from_ref);
        drop(self.table.insert(Object::new(key), Address(object)).expect("there is memory"));
    }

    fn remove(&self, key: u64) {
        drop(self.table.remove(&Object::new(key)));
    }

    /// Retires the object of a cell, which no entry has any more, and frees it if no reader holds it.
    fn retire(&self, cell: usize) {
        let mut reclaimer = self.domain.reclaimer();
        let old = self.cells[cell].take().expect("it is retired once");
        assert!(reclaimer.retire(old).is_ok(), "there is room");
        reclaimer.poll();
    }

    /// What the object of a key reads, while a slot protects it.
    fn read(&self, key: u64) -> Option<u64> {
        let (reader, key, inner) = (self.domain.reader(), Object::new(key), self.table.inner());
        let mut seen = None;
        let of = |value: &Address| value.0.cast_mut().cast();
        inner.search_objects(
            &reader,
            &[inner.hash(&key)],
            |_| &key,
            of,
            |_, found| {
                let Some(found) = found else { return };
                let (object, slot) = found.expect("no value is null");
                // SAFETY: the protocol under test keeps the object alive; otherwise loom reports it.
                seen = Some(unsafe { object.cast::<Apart>().as_ref() }.0.read());
                // SAFETY: it is the reader's thread, and the slot is released once.
                unsafe { slot.release() };
            },
        );
        seen
    }
}

/// As [`explore`], for a table of addresses.
fn explore_objects(
    preemptions: usize,
    keys: u64,
    read: impl Fn(&Objects) + Send + Sync + Copy + 'static,
    write: impl Fn(&Objects) + Send + Sync + Copy + 'static,
) {
    check(preemptions, move || {
        let objects = Objects::new(keys);
        let reading = Arc::clone(&objects);
        let reader = loom::thread::spawn(move || read(&reading));
        write(&objects);
        reader.join().unwrap();
    });
}

#[test]
fn an_object_against_remove() {
    let read = |objects: &Objects| assert!(matches!(objects.read(0), None | Some(100)));
    explore_objects(2, 1, read, |objects| {
        objects.remove(0);
        objects.retire(0);
    });
}

/// The word changes from an entry with one object to an entry with another one.
#[test]
fn an_object_against_replace() {
    let read = |objects: &Objects| assert!(matches!(objects.read(0), Some(100 | 102)), "{LOST}");
    explore_objects(2, 1, read, |objects| {
        objects.link(0, 2);
        objects.retire(0);
    });
}

/// The entry of another key may get the index of the one that was removed.
#[test]
fn an_object_against_another_key() {
    let read = |objects: &Objects| assert!(matches!(objects.read(0), None | Some(100)));
    explore_objects(2, 1, read, |objects| {
        objects.remove(0);
        objects.retire(0);
        objects.table.poll();
        objects.link(1, 1);
    });
}

/// The word is cleared by a mover: the lookup begins again, and finds the entry in the next array.
#[test]
fn an_object_against_move() {
    explore_objects(
        2,
        2,
        |objects| assert_eq!(objects.read(0), Some(100), "{LOST}"),
        |objects| objects.remove(1),
    );
}

/// The entry is moved, and then removed through the next array. With one preemption, all of that may lie between the two loads of the word.
#[test]
fn an_object_against_move_and_remove() {
    let read = |objects: &Objects| assert!(matches!(objects.read(0), None | Some(100)));
    explore_objects(1, 2, read, |objects| {
        objects.remove(1);
        objects.remove(0);
        objects.retire(0);
    });
}

/// The model that catches each variant.
#[cfg(stillpoint_busted)]
const CAUGHT: &[(Variant, &str)] = &[
    (Variant::NoReload, "get_against_remove"),
    (Variant::NoLight, "get_against_remove"),
    (Variant::FirstLoadRelaxed, "get_against_move"),
    (Variant::ReloadRelaxed, "get_against_replace"),
    (Variant::OldWordKept, "get_against_move_and_remove"),
    (Variant::MarkLate, "get_guarded_against_move"),
    (Variant::IgnoreMark, "get_against_move"),
    (Variant::NextNotPinned, "a_bound_reader_follows_two_growths"),
    (Variant::EntryNotPinned, "an_entry_is_kept_by_who_links_it"),
    (Variant::ArrayNotPinned, "a_reader_that_is_not_bound_follows_two_growths"),
    (Variant::TagLoadRelaxed, "get_guarded_against_move"),
    (Variant::EntryLoadRelaxed, "get_guarded_against_replace"),
    (Variant::EntryStoreRelaxed, "get_guarded_against_replace"),
    (Variant::VouchedOnce, "a_comparison_takes_the_reader_away"),
    (Variant::VouchedOnce, "a_comparison_takes_the_reader_away_that_is_not_bound"),
    (Variant::CompareFirst, "get_against_remove"),
    (Variant::IterTakesAll, "iterate_against_shrink"),
    (Variant::ValueNotConfirmed, "an_object_against_remove"),
    (Variant::FewForGood, "write_while_few_become_many"),
    (Variant::FewKept, "write_while_few_become_many"),
    (Variant::FewUnlocked, "write_while_few_become_many"),
    (Variant::StopAtHole, "an_index_is_found_whoever_made_the_chunks_before"),
];

#[cfg(stillpoint_busted)]
#[test]
fn every_variant_is_caught_by_its_model() {
    let signs = || vec![UNORDERED, LOST, ONCE, NO_CHUNK];
    busted::assert_caught("table::models", CAUGHT.iter().map(|&(variant, model)| (variant, model, signs())));
}
