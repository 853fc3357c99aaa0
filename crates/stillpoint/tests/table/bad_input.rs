//! Wrong input, by mistake or on purpose.

use std::cell::Cell;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};

use stillpoint::rcu::Domain;
use stillpoint::table::Table;

use crate::census::Census;

thread_local! {
    /// Number of calls of `Eq` or `Hash` of a [`Fragile`] key before one panics.
    static FUSE: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[derive(Debug, Clone, Copy)]
struct Fragile(u64);

fn burn() {
    let left = FUSE.get();
    if left == 0 {
        FUSE.set(usize::MAX);
        panic!("the fuse has burnt down");
    }
    FUSE.set(left.saturating_sub(usize::from(left != usize::MAX)));
}

impl PartialEq for Fragile {
    fn eq(&self, other: &Self) -> bool {
        burn();
        self.0 == other.0
    }
}

impl Eq for Fragile {}

impl Hash for Fragile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        burn();
        (self.0 / 2).hash(state); // pairs collide, so that keys are compared
    }
}

/// After a panic at any call of `Eq` or `Hash`, at any step of a growth, every key is found.
#[test]
fn a_panic_of_eq_or_hash_leaves_the_table_valid() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    let mut panics = 0;
    for number in 0..4_000 {
        let key = Fragile(number);
        FUSE.set(number as usize % 13);
        let insertion = catch_unwind(AssertUnwindSafe(|| drop(table.insert(key, census.value(number)))));
        let lookups = catch_unwind(AssertUnwindSafe(|| {
            for probe in [number, number / 2] {
                assert!(lookup.get(&Fragile(probe)).is_none_or(|entry| entry.value().value == probe));
            }
        }));
        FUSE.set(usize::MAX);
        panics += usize::from(insertion.is_err()) + usize::from(lookups.is_err());
        if insertion.is_err() {
            // Whether or not the insertion took place, it can be repeated.
            drop(table.insert(key, census.value(number)).unwrap());
        }
        assert_eq!(table.len() as u64, number + 1);
    }
    std::panic::set_hook(hook);
    assert!(panics > 100, "only {panics} panics");
    for number in 0..4_000 {
        assert_eq!(lookup.get(&Fragile(number)).map(|entry| entry.value().value), Some(number));
    }
    drop(lookup);
    // Chains whose moves have all panicked move now.
    let mut more = 4_000;
    while table.stats().growths == 0 {
        drop(table.insert(Fragile(more), census.value(more)).unwrap());
        more += 1;
        assert!(more < 6_000, "the growth does not end: {:?}", table.stats());
    }
    drop(table);
    assert_eq!(census.alive(), 0);
}

/// If a bound reader's array is not current any more, the reader pins the current one, and compares keys there. If that
/// panics, the next lookup must not begin in the old array, which is not pinned any more.
#[test]
fn a_panic_in_the_lookup_that_notices_a_growth_leaves_the_reader_valid() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    let mut number = 0;
    for growth in 1..=4 {
        while table.stats().growths < growth {
            drop(table.insert(Fragile(number), number).unwrap());
            number += 1;
        }
        // One call of `Hash` is left. Then `Eq` panics in the chain of the current array; the old chain is empty.
        FUSE.set(1);
        assert!(catch_unwind(AssertUnwindSafe(|| lookup.get(&Fragile(0)).is_some())).is_err());
        FUSE.set(usize::MAX);
        // Writers free the old array, and its memory is used again.
        domain.synchronize().unwrap();
        (0..20_000).for_each(|again| drop(table.insert(Fragile(again % number), again % number).unwrap()));
        let clutter: Vec<_> = (0..4_000).map(|size| vec![0x41_u8; 32 + size % 512]).collect();
        assert_eq!(lookup.get(&Fragile(0)).map(|entry| *entry.value()), Some(0), "{}", clutter.len());
    }
}

/// A table with all keys in one chain is slow, but correct.
#[test]
fn keys_that_collide_are_told_apart() {
    #[derive(Default)]
    struct Constant;

    impl Hasher for Constant {
        fn finish(&self) -> u64 {
            0x1234_5678_9abc_def0
        }
        fn write(&mut self, _: &[u8]) {}
    }

    let domain = Domain::new();
    let table = Table::builder_in(&domain).hasher(BuildHasherDefault::<Constant>::default()).build().unwrap();
    for key in 0..3_000u64 {
        table.insert(key, key).unwrap();
    }
    for key in (0..3_000).step_by(2) {
        assert_eq!(table.remove(&key).as_deref(), Some(&key));
    }
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    assert!((0..3_000).all(|key| lookup.contains_key(&key) == (key % 2 == 1)));
    assert_eq!(table.len(), 1_500);
}

/// With a hash that changes with each call, entries are not found, but nothing else goes wrong.
#[test]
fn a_hash_that_lies_harms_nobody() {
    struct Liar;

    thread_local!(static CALLS: Cell<u64> = const { Cell::new(1) });

    impl BuildHasher for Liar {
        type Hasher = std::collections::hash_map::DefaultHasher;
        fn build_hasher(&self) -> Self::Hasher {
            let mut hasher = Self::Hasher::new();
            CALLS.set(CALLS.get() + 1);
            hasher.write_u64(CALLS.get());
            hasher
        }
    }

    let census = Census::default();
    let domain = Domain::new();
    let table = Table::builder_in(&domain).hasher(Liar).build().unwrap();
    for key in 0..5_000u64 {
        drop(table.insert(key, census.value(key)).unwrap());
        drop(table.remove(&(key / 2)));
    }
    let reader = domain.reader();
    assert_eq!(table.within(&reader.pin()).iter().count(), table.len());
    table.within(&reader.pin()).retain(|_, _| false);
    table.clear();
    assert!(table.is_empty());
    drop(table);
    assert_eq!(census.alive(), 0);
}

/// The removals of a `retain` free what was removed before, and its destructor panics.
#[test]
fn a_panic_of_a_destructor_does_not_end_a_retain_early() {
    struct Bomb(bool);

    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(!self.0, "as expected");
        }
    }

    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let (mut reader, other) = (domain.reader(), domain.reader());
    drop(table.insert(0, Bomb(true)).unwrap());
    let mut lookup = table.reader(&mut reader);
    let held = lookup.get(&0);
    drop(table.remove(&0));
    for key in 1..1_000 {
        drop(table.insert(key, Bomb(false)).unwrap());
    }
    drop(held);
    let guard = other.pin();
    let view = table.within(&guard);
    assert!(catch_unwind(AssertUnwindSafe(|| view.retain(|_, _| false))).is_err());
    assert!(table.is_empty());
}

#[test]
fn keys_and_values_of_size_zero() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    assert!(table.insert((), ()).unwrap().is_none());
    assert!(table.insert((), ()).unwrap().is_some());
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    let entry = lookup.get(&());
    assert!(entry.is_some());
    table.remove(&()).unwrap();
    drop(entry);
    assert!(!lookup.contains_key(&()));
    let set: Table<u64, ()> = Table::new_in(&domain);
    for key in 0..1_000 {
        set.insert(key, ()).unwrap();
    }
    assert_eq!(set.len(), 1_000);
}

/// Types with a larger alignment are stored at aligned addresses.
#[test]
fn an_alignment_is_respected() {
    #[repr(align(128))]
    struct Wide(u8);

    let domain = Domain::new();
    let table = Table::new_in(&domain);
    for key in 0..1_000u16 {
        table.insert(key, Wide(key as u8)).unwrap();
    }
    let reader = domain.reader();
    let guard = reader.pin();
    for (key, value) in table.within(&guard).iter() {
        assert_eq!((std::ptr::from_ref(value).addr() % 128, value.0), (0, *key as u8));
    }
}

#[test]
fn a_size_beyond_all_memory_is_refused() {
    let domain = Domain::new();
    // The last one has fewer entries than an index can tell apart, but for the spare slots.
    for entries in [usize::MAX, usize::MAX / 2, 1 << 50, u32::MAX as usize] {
        assert!(Table::<u64, u64>::builder_in(&domain).capacity(entries).build().is_err());
    }
    let table: Table<u64, u64> = Table::new_in(&domain);
    table.insert(1, 1).unwrap();
    for more in [usize::MAX, usize::MAX - 1, 1 << 40] {
        let error = table.reserve(more).unwrap_err();
        assert!(error.to_string().contains("ask for fewer"), "{error}");
    }
    assert_eq!(table.len(), 1);
}

/// Every call that takes a reader, a region or a reclaimer checks its domain.
#[test]
fn what_is_of_another_domain_is_refused() {
    const READER: &str = "a reader of domain `theirs` was used with a table of domain `ours`";
    const RECLAIMER: &str = "a reclaimer of domain `theirs` was used with a table of domain `ours`";
    const DEFAULT: &str = "pass a reader of `ours`, to `Table::protect` in place of `get`";
    let named = |name| Domain::builder().name(name).build().unwrap();
    let (ours, theirs) = (named("ours"), named("theirs"));
    let table: Table<u64, u64> = Table::new_in(&ours);
    table.insert(1, 1).unwrap();
    let (region, background) = (theirs.qsbr_reader(), theirs.background());
    let removed = || {
        drop(table.insert(2, 2).unwrap());
        table.remove(&2).unwrap()
    };
    let calls: [(&str, &str, &dyn Fn()); 11] = [
        ("reader", READER, &|| drop(table.reader(&mut theirs.reader()))),
        ("get in a region", READER, &|| assert!(table.within(&region).get(&1).is_none())),
        ("get_many in a region", READER, &|| assert!(table.within(&region).get_many(&[1]) == [None])),
        ("iter in a region", READER, &|| drop(table.within(&region).iter())),
        ("retain in a region", READER, &|| table.within(&region).retain(|_, _| true)),
        ("pin", DEFAULT, &|| drop(table.pin())),
        ("get", DEFAULT, &|| drop(table.get(&1))),
        ("update", "was used with a table of domain `ours`", &|| drop(table.update(&1, |value| value + 1))),
        ("attach", "a reclaimer of domain `theirs` was attached to a table of domain `ours`", &|| {
            drop(Table::<u64, u64>::builder_in(&ours).attach(background.retire_handle()));
        }),
        ("retire_to", RECLAIMER, &|| drop(removed().retire_to(&mut theirs.reclaimer()))),
        ("submit_to", RECLAIMER, &|| drop(removed().submit_to(&background.retire_handle()))),
    ];
    for (call, words, function) in calls {
        let panic = catch_unwind(AssertUnwindSafe(function)).expect_err(call);
        let message = panic.downcast_ref::<String>().expect(call);
        assert!(message.contains(words), "{call}: '{words}' is not in: {message}");
    }
    assert_eq!(table.len(), 1);
}

/// If `Hash` panics in a reservation, the links in the larger array are taken back, whatever its size. The next attempt
/// moves everything.
#[test]
fn a_panic_of_hash_in_a_reservation_leaves_the_table_valid() {
    const ENTRIES: u64 = if cfg!(miri) { 40 } else { 600 };
    const ROOM: usize = if cfg!(miri) { 3_000 } else { 20_000 };
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let (mut reader, other) = (domain.reader(), domain.reader());
    let mut lookup = table.reader(&mut reader);
    for number in 0..ENTRIES {
        table.insert(Fragile(number), census.value(number)).unwrap();
    }
    let mut panics = 0;
    loop {
        FUSE.set(panics);
        let outcome = catch_unwind(AssertUnwindSafe(|| table.reserve(ROOM).unwrap()));
        FUSE.set(usize::MAX);
        let mut entries: Vec<u64> = table.within(&other.pin()).iter().map(|(key, _)| key.0).collect();
        entries.sort_unstable();
        assert_eq!(entries, (0..ENTRIES).collect::<Vec<_>>(), "after {panics} panics");
        for number in 0..ENTRIES {
            assert_eq!(lookup.get(&Fragile(number)).map(|entry| entry.value), Some(number));
        }
        if outcome.is_ok() {
            break;
        }
        panics += 1;
    }
    assert!(panics > 5 && !table.stats().growing, "{panics} panics; {:?}", table.stats());
    assert!((0..ENTRIES).all(|number| table.remove(&Fragile(number)).is_some()));
    drop(lookup);
    drop(table);
    assert_eq!(census.alive(), 0);
}
