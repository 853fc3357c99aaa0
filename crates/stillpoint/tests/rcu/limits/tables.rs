//! Tables in a domain with limits: removals are never refused, and leak neither slots nor memory.

use stillpoint::rcu::limits::WhenFull;
use stillpoint::table::Table;

use super::{limited, retired};
use crate::census::{Census, Object};

const ENTRIES: u32 = if cfg!(miri) { 100 } else { 1000 };

#[test]
fn a_full_domain_refuses_no_removal_and_every_slot_comes_back() {
    let (domain, census) = (limited(10), Census::default());
    // The array that a growth leaves behind would count, too.
    let builder = Table::builder_in(&domain).capacity(ENTRIES as usize).max_len(ENTRIES as usize);
    let table: Table<u32, Object> = builder.build().expect("there is memory");
    let reader = domain.reader();
    for round in 1..=3 {
        let guard = reader.pin();
        for key in 0..ENTRIES {
            assert!(table.insert(key, census.object()).expect("every slot came back").is_none());
        }
        for key in 0..ENTRIES {
            table.remove(&key).expect("it was inserted").verify();
        }
        assert_eq!(domain.stats().pending, u64::from(ENTRIES));
        assert_eq!(domain.stats().beyond_limits, round * u64::from(ENTRIES - 10));
        // Other retirements are refused meanwhile.
        let mut reclaimer = domain.reclaimer_builder().when_full(WhenFull::Reclaim).build();
        let error = reclaimer.retire(retired(&domain, 1)).expect_err("the domain is full");
        drop(guard);
        while table.pending() > 0 {
            table.poll();
        }
        assert_eq!((census.alive(), domain.stats().pending), (0, 0));
        reclaimer.retire(error.into_inner()).expect("there is room again");
        reclaimer.flush().expect("nothing is in the way");
    }
}

/// A table that is dropped frees its entries at once, and gives their room back.
#[test]
fn a_dropped_table_gives_the_room_of_its_entries_back() {
    let (domain, census) = (limited(10), Census::default());
    let table: Table<u32, Object> = Table::new_in(&domain);
    let reader = domain.reader();
    let guard = reader.pin();
    for key in 0..ENTRIES {
        table.insert(key, census.object()).expect("there is no limit");
        table.remove(&key);
    }
    assert_eq!(domain.stats().pending, u64::from(ENTRIES));
    drop(table);
    assert_eq!((census.alive(), domain.stats().pending), (0, 0));
    domain.reclaimer().retire(retired(&domain, 1)).expect("there is room");
    drop(guard);
}
