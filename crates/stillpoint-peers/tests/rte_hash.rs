//! `rte_hash` as a contender of the experiment `reclaim`. A program of its own: DPDK is initialised once per process.

#[path = "../../stillpoint/tests/support/skip.rs"]
mod skip;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use stillpoint_peers::table::{RECLAIMING, initialise_dpdk, rte_hash_reclaiming};
use stillpoint_peers::{Contender, Delays, ReadJob};

use skip::skipped;

#[test]
fn every_deleted_element_is_freed_once_and_never_under_a_reader() {
    if RECLAIMING.is_empty() {
        let delays: &'static Delays = Box::leak(Box::new(Delays::new(1)));
        assert!(
            rte_hash_reclaiming("dpdk/rcu", 64, delays, 1).is_err(),
            "a build without DPDK has no rte_hash"
        );
        return skipped("this build has no DPDK: it was looked at only that it says so");
    }
    thread::spawn(|| initialise_dpdk(128, false, first_cpu())).join().unwrap().unwrap();
    for name in RECLAIMING {
        let delays: &'static Delays = Box::leak(Box::new(Delays::new(1 << 16)));
        let map = rte_hash_reclaiming(name, 64, delays, 2).unwrap();
        assert_eq!(map.name(), *name);
        for round in 0..2 {
            check(&*map, delays, round);
        }
        drop(map);
        assert_eq!(delays.freed(), 0, "what was never deleted has no delay");
    }
}

fn check(map: &dyn Contender, delays: &Delays, round: usize) {
    const REPLACED: usize = 5_000;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let readers: Vec<_> = (0..2)
            .map(|index| {
                scope.spawn(move || map.read(&ReadJob { index, seed: 7 + index as u64, stop }, &|| ()))
            })
            .collect();
        let mut writer = map.writer();
        for number in 0..REPLACED {
            writer.replace(number * 29 % 64);
            if number % 16 == 0 {
                writer.poll();
                thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            let outcome = reader.join().unwrap();
            assert_eq!(outcome.mismatches, 0, "{}, round {round}", map.name());
        }
        writer.drain();
    });
    assert_eq!(delays.freed(), REPLACED, "{}, round {round}", map.name());
    assert_eq!(delays.take().len(), REPLACED);
}

/// A CPU that this process may use: the layer pins the thread that initialises it.
fn first_cpu() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().split([',', '-']).next().unwrap().parse().unwrap()
}
