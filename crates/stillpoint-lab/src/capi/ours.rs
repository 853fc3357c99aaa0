//! The same operations in Rust, to compare the C interface with.

use std::hint::black_box;
use std::sync::OnceLock;

use stillpoint::rcu::Domain;
use stillpoint::table::Table;
use stillpoint_harness::random::Random;

use crate::micro::{self, Operation};

/// The same number as in c/stillpoint.c of the peers.
const FEW: u64 = 1_000;
const MANY: u64 = 1 << 20;
const BURST: usize = 32;

/// The operations of `micro`, and lookups.
pub(super) fn operations() -> Vec<Operation> {
    let of = |name, run: fn(u64)| Operation::whole("stillpoint/qsbr", name, run);
    let mut all = micro::ours();
    all.extend([
        of("lookup", |iterations| lookup(FEW, iterations)),
        of("burst", |iterations| burst(FEW, iterations)),
        of("lookup-1m", |iterations| lookup(MANY, iterations)),
        of("burst-1m", |iterations| burst(MANY, iterations)),
    ]);
    all
}

/// A table of this size, which is never freed.
fn table(count: u64) -> &'static (Domain, Table<u64, u64>) {
    static TABLES: [OnceLock<(Domain, Table<u64, u64>)>; 2] = [const { OnceLock::new() }; 2];
    TABLES[usize::from(count == MANY)].get_or_init(|| {
        let domain = Domain::new();
        let table = Table::new_in(&domain);
        for key in 0..count {
            table.insert(key, key).expect("a table without a limit has room");
        }
        (domain, table)
    })
}

fn lookup(count: u64, iterations: u64) {
    let (domain, table) = table(count);
    let reader = domain.qsbr_reader();
    let view = table.within(&reader);
    let mut random = Random::new(1);
    for _ in 0..iterations {
        let key = random.draw() % count;
        assert_eq!(black_box(view.get(&key)), Some(&key), "a table has lost a key");
    }
}

/// Looks up keys, 32 at a time.
fn burst(count: u64, iterations: u64) {
    let (domain, table) = table(count);
    let reader = domain.qsbr_reader();
    let view = table.within(&reader);
    let mut random = Random::new(1);
    for _ in 0..iterations.div_ceil(BURST as u64) {
        let keys: [u64; BURST] = std::array::from_fn(|_| random.draw() % count);
        let found = view.get_many(&keys);
        assert!(keys.iter().zip(found).all(|(key, found)| found == Some(key)), "a table has lost a key");
    }
}
