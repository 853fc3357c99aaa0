//! Memory that runs out, in a process that may have no more address space than it has.

use std::collections::HashMap;

use stillpoint::rcu::Domain;
use stillpoint::table::{Full, Table, TableReader};

use crate::census::{Census, Counted};
use crate::child::in_child;

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

/// Without memory for a larger array chains grow longer; without memory for entries the insertion fails, and hands the
/// pair back. Nothing else changes, and everything goes on once there is memory again.
#[test]
fn an_insertion_without_memory_hands_the_pair_back() {
    in_child("out_of_memory::an_insertion_without_memory_hands_the_pair_back", || {
        const VALUE_BYTES: usize = 100;
        let census = Census::default();
        let domain = Domain::new();
        let table = Table::new(&domain);
        let mut reader = domain.reader();
        let mut lookup = table.reader(&mut reader);
        let mut map: HashMap<u64, u8> = HashMap::with_capacity(1 << 18);
        let value = |key: u64| (census.value(key), [key as u8; VALUE_BYTES]);
        for key in 0..1_000u64 {
            drop(table.insert(key, value(key)).unwrap());
            map.insert(key, key as u8);
        }
        // The allocator of the test keeps some room of its own for what the library allocates in small pieces.
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
        assert!(refused > 10_000, "{refused}");
        assert!(table.reserve(100_000).is_err());
        let check = |lookup: &mut TableReader<'_, u64, (Counted, [u8; VALUE_BYTES])>,
                     map: &HashMap<u64, u8>| {
            assert_eq!((table.len(), census.alive()), (map.len(), map.len()));
            for (key, byte) in map {
                assert_eq!(lookup.get(key).map(|entry| entry.1), Some([*byte; VALUE_BYTES]), "{key}");
            }
            assert!(!lookup.contains(&refused));
        };
        check(&mut lookup, &map);
        // A removal makes room.
        drop(table.remove(&5));
        map.remove(&5);
        while table.pending() > 0 {
            table.poll();
        }
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
        assert!(stats.growths > 0 && table.capacity() >= 100_000, "{stats:?}");
    });
}
