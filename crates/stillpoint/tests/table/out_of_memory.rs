//! Memory that runs out, in a process with a limited address space.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use stillpoint::rcu::Domain;
use stillpoint::table::{Full, Table, TableReader};

use crate::census::{Census, Counted};
use crate::child::in_child;
use crate::free_all;

/// Address space of this process, in bytes.
fn address_space() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().next().unwrap().parse().unwrap();
    // SAFETY: no pointers are passed.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages * page as u64
}

fn limit_address_space(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is alive for the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}

/// Without memory for a larger array, chains grow longer. Without memory for entries, an insertion fails and hands the
/// pair back. Nothing else changes, and everything goes on once there is memory again.
#[test]
fn an_insertion_without_memory_hands_the_pair_back() {
    in_child("out_of_memory::an_insertion_without_memory_hands_the_pair_back", || {
        const VALUE_BYTES: usize = 100;
        let census = Census::default();
        let domain = Domain::new();
        let table = Table::new_in(&domain);
        let mut reader = domain.reader();
        let mut lookup = table.reader(&mut reader);
        let mut map: HashMap<u64, u8> = HashMap::with_capacity(1 << 18);
        let value = |key: u64| (census.value(key), [key as u8; VALUE_BYTES]);
        for key in 0..1_000u64 {
            drop(table.insert(key, value(key)).unwrap());
            map.insert(key, key as u8);
        }
        // Leaves some room for the allocator, which serves small allocations of the library.
        limit_address_space(address_space() + (8 << 20));
        let mut refused = None;
        for key in 1_000..200_000u64 {
            match table.insert(key, value(key)) {
                Ok(old) => assert!(old.is_none() && map.insert(key, key as u8).is_none()),
                Err(Full(handed_back, (counted, bytes))) => {
                    assert_eq!((handed_back, counted.value, bytes), (key, key, [key as u8; VALUE_BYTES]));
                    refused = Some(key);
                    break;
                }
            }
        }
        let refused = refused.expect("8 MiB are not enough for 200,000 entries of 100 bytes");
        assert!(refused > 10_000, "only {refused} entries were inserted");
        assert!(table.reserve(100_000).is_err());
        let check = |lookup: &mut TableReader<'_, u64, (Counted, [u8; VALUE_BYTES])>,
                     map: &HashMap<u64, u8>| {
            assert_eq!((table.len(), census.alive()), (map.len(), map.len()));
            for (key, byte) in map {
                assert_eq!(lookup.get(key).map(|entry| entry.1), Some([*byte; VALUE_BYTES]), "{key}");
            }
            assert!(!lookup.contains_key(&refused));
        };
        check(&mut lookup, &map);
        // A removal makes room.
        drop(table.remove(&5));
        map.remove(&5);
        free_all(&table);
        drop(table.insert(1 << 40, value(9)).expect("the slot of the removed entry"));
        map.insert(1 << 40, 9);
        check(&mut lookup, &map);

        limit_address_space(libc::RLIM_INFINITY);
        for key in 300_000..400_000u64 {
            drop(table.insert(key, value(key)).expect("there is memory again"));
            map.insert(key, key as u8);
        }
        check(&mut lookup, &map);
        let stats = table.stats();
        assert!(stats.growths > 0 && table.capacity() >= 100_000, "the table has not grown: {stats:?}");
    });
}

/// A hasher whose results have lower bits of zero, so that all keys are in one chain.
#[derive(Default)]
struct OneChain(u64);

impl Hasher for OneChain {
    fn finish(&self) -> u64 {
        self.0 << 32
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers")
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

thread_local! {
    /// How many more times the first key of the chain is hashed before there is memory again.
    static LEAN_TIMES: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A key. When the count is reached, hashing the first key ends the shortage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ending(u64);

impl Hash for Ending {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
        if self.0 == 0 && LEAN_TIMES.get() != usize::MAX {
            if LEAN_TIMES.get() == 0 {
                limit_address_space(libc::RLIM_INFINITY);
            } else {
                LEAN_TIMES.set(LEAN_TIMES.get() - 1);
            }
        }
    }
}

/// A chain that is too long for the available memory stays in place as a whole. The write goes to the old chain, even
/// if there is memory again before it is done. The chain moves with a later write.
#[test]
fn a_chain_without_memory_for_its_move_stays_where_it_is() {
    in_child("out_of_memory::a_chain_without_memory_for_its_move_stays_where_it_is", || {
        let domain = Domain::new();
        let (mut reader, other) = (domain.reader(), domain.reader());
        // With this number of entries, the kernel provides the overflow buckets page by page, and the growth is one
        // that hashes keys.
        let builder = Table::builder_in(&domain).hasher(BuildHasherDefault::<OneChain>::default()).unmixed();
        let table = builder.capacity(10_000).build().unwrap();
        let mut lookup = table.reader(&mut reader);
        let mut next = 0;
        while !table.stats().growing {
            table.insert(Ending(next), next).unwrap();
            next += 1;
        }
        let check = |lookup: &mut TableReader<'_, Ending, u64, _>, entries: u64| {
            let mut keys: Vec<u64> = table.within(&other.pin()).iter().map(|(key, _)| key.0).collect();
            keys.sort_unstable();
            assert_eq!((table.len() as u64, keys), (entries, (0..entries).collect::<Vec<_>>()));
            for number in [0, 1, entries / 2, entries - 2, entries - 1] {
                assert_eq!(lookup.copied(&Ending(number)), Some(number), "of {entries}");
            }
        };
        // The arena and the chain have room for these entries.
        for lean in [3, 1] {
            limit_address_space(address_space());
            assert!(table.reserve(1).is_err() && table.stats().growing, "the chain cannot move");
            LEAN_TIMES.set(lean);
            while LEAN_TIMES.get() > 0 {
                table.insert(Ending(next), next).unwrap();
                next += 1;
            }
            LEAN_TIMES.set(usize::MAX);
            limit_address_space(libc::RLIM_INFINITY);
            assert!(table.stats().growing);
            check(&mut lookup, next);
        }
        while table.stats().growing {
            table.insert(Ending(next), next).unwrap();
            next += 1;
        }
        check(&mut lookup, next);
        assert!((0..next).rev().all(|number| table.remove(&Ending(number)).as_deref() == Some(&number)));
        assert!(table.is_empty());
    });
}

/// All buckets of a table that is dropped go back to the system, including old ones, even if its entries wait
/// elsewhere.
#[test]
fn a_table_that_is_dropped_keeps_no_buckets() {
    in_child("out_of_memory::a_table_that_is_dropped_keeps_no_buckets", || {
        let domain = Domain::new();
        let mut reclaimer = domain.reclaimer();
        let table = Table::new_in(&domain);
        let mut key = 0_u64;
        while table.stats().bytes_to_unmap < 16 * (64 << 10) {
            table.insert(key, key).unwrap();
            key += 1;
        }
        table.remove(&0).unwrap().retire_to(&mut reclaimer).unwrap();
        let (stats, before) = (table.stats(), address_space());
        drop(table);
        let given_back = before - address_space();
        let buckets = stats.buckets * 64 + stats.bytes_to_unmap;
        assert!(given_back >= buckets as u64, "{given_back} bytes of {buckets}");
        reclaimer.flush().unwrap();
    });
}
