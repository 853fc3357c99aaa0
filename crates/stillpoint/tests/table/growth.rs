//! Growth, a few buckets at a time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::free_all;
use stillpoint::rcu::Domain;
use stillpoint::table::Table;

/// Every key is found after every insertion, at every step of several growths, by every kind of reader.
#[test]
fn nothing_is_lost_at_any_step() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut reader = domain.reader();
    let other = domain.reader();
    let mut lookup = table.reader(&mut reader);
    let mut seen_growing = false;
    for key in 0..12_000u64 {
        table.insert(key, !key).unwrap();
        let stats = table.stats();
        seen_growing |= stats.growing;
        assert_eq!(stats.entries as u64, key + 1);
        for probe in [key, key / 2, key / 3, 0] {
            assert_eq!(lookup.copied(&probe), Some(!probe), "{probe} after {key}");
            assert_eq!(lookup.pin().get(&probe), Some(&!probe));
        }
        assert!(!lookup.contains_key(&(key + 1)));
        if stats.growing && key % 37 == 0 {
            let guard = other.pin();
            let mut keys: Vec<u64> = table.within(&guard).iter().map(|(key, _)| *key).collect();
            keys.sort_unstable();
            assert_eq!(keys, (0..=key).collect::<Vec<_>>());
        }
    }
    assert!(seen_growing && table.stats().growths >= 3, "{:?}", table.stats());
}

#[test]
fn the_work_of_one_insertion_is_bounded() {
    let table = Table::new_in(&Domain::new());
    for key in 0..200_000u64 {
        table.insert(key, key).unwrap();
    }
    let stats = table.stats();
    assert!(stats.growths >= 6, "too few growths: {stats:?}");
    // With random hashes, one chain in fifteen has a second bucket, and very few have a third one.
    assert!(stats.longest_chain <= 3, "{stats:?}");
    assert!((3..=7).contains(&stats.most_buckets_moved_by_a_call), "not three short chains: {stats:?}");
}

/// The number of pages that this thread has touched for the first time.
#[cfg(not(miri))]
fn pages_touched() -> i64 {
    // SAFETY: zeroes are a valid value of the type, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage
    };
    usage.ru_minflt + usage.ru_majflt
}

/// By the kernel's count, an insertion touches and unmaps few pages, even when a growth begins or ends.
#[cfg(not(miri))]
#[test]
fn an_insertion_touches_and_unmaps_few_pages() {
    /// Pages for three chains, each of which moves to two, with an overflow bucket each; for the entry; for the table's
    /// other memory; and for the stack and the allocator of the test.
    const MOST: i64 = 32;
    const SLICE: usize = 64 << 10;
    let table = Table::new_in(&Domain::new());
    let (mut most, mut all) = (0, 0);
    for key in 0..600_000u64 {
        let before = pages_touched();
        table.insert(key, key).unwrap();
        let touched = pages_touched() - before;
        (most, all) = (most.max(touched), all + touched);
    }
    let stats = table.stats();
    assert!(stats.growths >= 8 && all > 1_000, "{all} pages; {stats:?}");
    assert!(most <= MOST, "an insertion has touched {most} pages");
    // The larger arrays consist of several slices.
    assert_eq!(stats.most_bytes_unmapped_by_a_call, SLICE, "{stats:?}");
    while table.pending() > 0 || table.stats().bytes_to_unmap > 0 {
        table.poll();
    }
    assert_eq!(table.stats().most_bytes_unmapped_by_a_call, SLICE);
}

/// Insertions into only one stripe complete a growth.
#[test]
fn a_growth_ends_without_writers_everywhere() {
    #[derive(Clone, Default)]
    struct Identity;

    #[derive(Default)]
    struct Hasher(u64);

    impl std::hash::Hasher for Hasher {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, _: &[u8]) {
            unreachable!("keys are numbers")
        }
        fn write_u64(&mut self, number: u64) {
            self.0 = number;
        }
    }

    impl std::hash::BuildHasher for Identity {
        type Hasher = Hasher;
        fn build_hasher(&self) -> Hasher {
            Hasher::default()
        }
    }

    let table = Table::builder_in(&Domain::new()).hasher(Identity).unmixed().build().unwrap();
    let mut key = 0u64;
    while !table.stats().growing {
        table.insert(key, ()).unwrap();
        key += 1;
    }
    let mut more = 0;
    while table.stats().growing {
        table.insert((key + more) << 20, ()).unwrap(); // the lower bits are zero: one stripe
        more += 1;
    }
    assert!(more < 1_000, "{more} insertions");
}

/// During growths, readers find all keys that stay, and old arrays are freed.
#[test]
fn readers_go_on_during_growth() {
    const KEYS: u64 = 60_000;
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let (done, inserted) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for kind in 0..3 {
            let (domain, table, done, inserted) = (&domain, &table, &done, &inserted);
            scope.spawn(move || {
                let (mut reader, mut qsbr) = (domain.reader(), domain.qsbr_reader());
                let mut lookup = table.reader(&mut reader);
                let mut probe = 1u64;
                while !done.load(Ordering::Relaxed) {
                    // Acquire: pairs with the release below: the key is in the table.
                    let there = inserted.load(Ordering::Acquire);
                    if there > 0 {
                        probe = probe.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let key = (probe >> 33) % there;
                        let value = match kind {
                            0 => lookup.copied(&key),
                            1 => lookup.pin().get(&key).copied(),
                            _ => table.within(&qsbr).get(&key).copied(),
                        };
                        assert_eq!(value, Some(key + 1), "of {there}");
                    }
                    qsbr.quiescent();
                }
            });
        }
        for key in 0..KEYS {
            table.insert(key, key + 1).unwrap();
            inserted.store(key + 1, Ordering::Release);
        }
        done.store(true, Ordering::Relaxed);
    });
    free_all(&table);
    assert!(table.stats().growths >= 4);
}

/// The pages of reserved room are touched in advance.
#[cfg(not(miri))]
#[test]
fn insertions_into_room_that_was_asked_for_touch_no_new_pages() {
    const ENTRIES: u64 = 50_000;
    /// Memory of less than 64 KiB comes from the allocator, whose pages are touched only as they are used.
    const MOST: i64 = 60;
    let hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default();
    let with_capacity =
        |entries| Table::builder_in(&Domain::new()).hasher(hasher.clone()).capacity(entries).build().unwrap();
    let (reserved, made) = (with_capacity(0), with_capacity(ENTRIES as usize));
    reserved.reserve(ENTRIES as usize).unwrap();
    for (table, how) in [(reserved, "reserved"), (made, "made")] {
        let before = pages_touched();
        for key in 0..ENTRIES {
            table.insert(key, key).unwrap();
        }
        let touched = pages_touched() - before;
        assert!(touched <= MOST, "{touched} pages were touched first, although they were {how}");
    }
}

/// A region, and an iteration in it, work through any number of later growths, to arrays of any size.
#[test]
fn a_region_sees_through_any_number_of_growths() {
    const KEYS: u64 = if cfg!(miri) { 40 } else { 700 };
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    for key in 0..KEYS {
        table.insert(key, !key).unwrap();
    }
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    let guard = lookup.pin();
    let (mut begun, before) = (Vec::new(), table.stats().growths);
    for (growths, factor) in [2, 4, 2].into_iter().enumerate() {
        let mut iteration = guard.iter();
        let seen: Vec<u64> = iteration.by_ref().take(KEYS as usize / 3).map(|(key, _)| *key).collect();
        begun.push((iteration, seen));
        table.reserve(factor * table.capacity() - table.len()).unwrap();
        assert_eq!(table.stats().growths, before + growths + 1);
        for key in 0..KEYS {
            assert_eq!(guard.get(&key), Some(&!key), "after {growths}");
            let pair = [key, key + KEYS];
            assert_eq!(guard.get_many(&pair), [Some(&!key), None]);
            assert!(guard.get(&pair[1]).is_none());
        }
    }
    for (iteration, mut seen) in begun {
        seen.extend(iteration.map(|(key, _)| *key));
        seen.sort_unstable();
        assert_eq!(seen, (0..KEYS).collect::<Vec<_>>());
    }
}

/// Buckets that `reserve` moves do not count for any call of a writer.
#[test]
fn a_reservation_is_no_call_of_a_writer() {
    const ENTRIES: u64 = if cfg!(miri) { 300 } else { 10_000 };
    let table = Table::with_capacity_in(&Domain::new(), ENTRIES as usize);
    for key in 0..ENTRIES {
        table.insert(key, key).unwrap();
    }
    table.reserve(2 * table.capacity()).unwrap();
    let stats = table.stats();
    assert_eq!((stats.growths, stats.most_buckets_moved_by_a_call), (1, 0), "{stats:?}");
}

/// A write unmaps a slice of the memory that waits; a poll of the table unmaps all of it, whatever its size.
#[cfg(not(miri))]
#[test]
fn a_write_unmaps_a_slice_and_a_poll_all_that_waits() {
    const SLICE: usize = 64 << 10;
    let table = Table::new_in(&Domain::new());
    let mut key = 0_u64;
    let mut before = 0;
    while before < 16 * SLICE {
        table.insert(key, key).unwrap();
        let waiting = table.stats().bytes_to_unmap;
        assert!(before.saturating_sub(waiting) <= SLICE, "{before} bytes, then {waiting}");
        before = waiting;
        key += 1;
    }
    table.insert(key, key).unwrap();
    assert_eq!(table.stats().bytes_to_unmap, before - SLICE);
    drop(table.remove(&key));
    assert_eq!(table.stats().bytes_to_unmap, before - 2 * SLICE);
    table.poll();
    assert_eq!(table.stats().bytes_to_unmap, 0);
}
