//! What the C interface is compared with: the same in Rust.

use std::hint::black_box;

use stillpoint::rcu::Domain;
use stillpoint::table::Table;
use stillpoint_harness::random::Random;

use crate::micro::{self, Operation};

/// As in c/stillpoint.c of the peers.
const KEYS: u64 = 1_000;
const BURST: usize = 32;

/// Those of `micro`, and lookups.
pub(super) fn operations() -> Vec<Operation> {
    let of = |name, run: fn(u64)| Operation::whole("stillpoint/qsbr", name, run);
    let mut all = micro::ours();
    all.extend([of("lookup", lookup), of("burst", burst)]);
    all
}

fn table(domain: &Domain) -> Table<u64, u64> {
    let table = Table::with_capacity_in(domain, KEYS as usize);
    for key in 0..KEYS {
        table.insert(key, key).expect("a table without a limit has room");
    }
    table
}

fn lookup(iterations: u64) {
    let domain = Domain::new();
    let table = table(&domain);
    let reader = domain.qsbr_reader();
    let view = table.within(&reader);
    let mut random = Random::new(1);
    for _ in 0..iterations {
        let key = random.draw() % KEYS;
        assert_eq!(black_box(view.get(&key)), Some(&key), "a table has lost a key");
    }
}

/// `iterations` lookups, 32 at a time.
fn burst(iterations: u64) {
    let domain = Domain::new();
    let table = table(&domain);
    let reader = domain.qsbr_reader();
    let view = table.within(&reader);
    let mut random = Random::new(1);
    for _ in 0..iterations.div_ceil(BURST as u64) {
        let keys: [u64; BURST] = std::array::from_fn(|_| random.draw() % KEYS);
        let found = view.get_many(&keys);
        assert!(keys.iter().zip(found).all(|(key, found)| found == Some(key)), "a table has lost a key");
    }
}
