//! Small pools, whose free objects any thread can allocate, whatever idle threads have allocated and freed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use stillpoint::pool::memory::Pages;
use stillpoint::pool::raw::{RawLocal, RawPool};
use stillpoint::pool::{Pool, PoolBuilder};

fn raw(capacity: usize) -> PoolBuilder<RawPool> {
    RawPool::builder(capacity, 64, 64).pages(Pages::Small)
}

fn all(local: &RawLocal<'_>) -> Vec<std::ptr::NonNull<u8>> {
    std::iter::from_fn(|| local.alloc()).collect()
}

/// Small pools of all kinds.
fn kinds() -> impl Iterator<Item = (String, RawPool)> {
    let capacities = [1, 4, 32, 63, 64, 65, 400, 512];
    type Set = fn(PoolBuilder<RawPool>) -> PoolBuilder<RawPool>;
    let settings: [(&str, Set); 6] = [
        ("default", |builder| builder),
        ("no cache", |builder| builder.cache(0)),
        ("no buckets", |builder| builder.cache(0).high_water(0)),
        ("small buckets", |builder| builder.bucket_bytes(1024)),
        ("one large bucket", |builder| builder.bucket_bytes(1 << 15)),
        ("hardened", |builder| builder.hardened(true)),
    ];
    capacities.into_iter().flat_map(move |capacity| {
        settings.map(|(name, set)| (format!("{capacity} {name}"), set(raw(capacity)).build().unwrap()))
    })
}

#[test]
fn an_idle_thread_keeps_only_what_it_uses() {
    for (name, pool) in kinds() {
        let capacity = pool.stats().capacity;
        let (idle, needy) = (pool.local().unwrap(), pool.local().unwrap());
        let mine = all(&idle);
        assert_eq!(mine.len(), capacity, "{name}");
        let kept = mine.len().div_ceil(3);
        mine[kept..].iter().for_each(|&object| {
            // SAFETY: allocated above, and freed once.
            unsafe { idle.free(object) }.unwrap();
        });
        let available = pool.stats().available;
        let others = all(&needy);
        assert_eq!((others.len(), available), (capacity - kept, capacity - kept), "{name}");
        for object in mine[..kept].iter().chain(&others) {
            // SAFETY: allocated above, and freed once.
            unsafe { needy.free(*object) }.unwrap();
        }
        assert_eq!((all(&idle).len(), pool.stats().available), (capacity, 0), "{name}");
        assert_eq!(pool.audit().unwrap().stats.in_use, capacity, "{name}");
    }
}

/// One object in use, and nothing else ever allocated.
#[test]
fn one_object_in_use_keeps_no_other() {
    let pool = Pool::new(64, || 0u64).unwrap();
    let (idle, needy) = (pool.local().unwrap(), pool.local().unwrap());
    let _one = idle.alloc().unwrap();
    assert_eq!(std::iter::from_fn(|| needy.alloc()).map(std::mem::forget).count(), 63);
}

#[test]
fn a_pool_that_grows_is_small_if_its_limit_is() {
    let pool = raw(64).max_objects(256).growth_step(64).build().unwrap();
    let (idle, needy) = (pool.local().unwrap(), pool.local().unwrap());
    let mut out = vec![idle.alloc().unwrap()];
    out.extend(all(&needy));
    assert_eq!((out.len(), pool.stats().capacity, pool.stats().available), (256, 256, 0));
    out.sort_unstable();
    out.dedup();
    assert_eq!(out.len(), 256);
    pool.audit().unwrap();
}

#[test]
fn blocks_are_whole_buckets_that_nobody_uses() {
    for rows in [1, 2] {
        let pool = raw(4 * 64 * rows).bucket_bytes(64 * 64 * rows).build().unwrap();
        let (one, other) = (pool.local().unwrap(), pool.local().unwrap());
        let single = one.alloc().unwrap();
        let blocks: Vec<_> = std::iter::from_fn(|| other.alloc_block()).collect();
        assert_eq!((blocks.len(), pool.stats().available), (3, 64 * rows - 1));
        assert_eq!(pool.audit().unwrap().buckets_partial, 1);
        // SAFETY: allocated above, and freed once.
        unsafe { other.free(single) }.unwrap();
        assert_eq!(pool.audit().unwrap().buckets_in_store, 1);
        assert!(one.alloc_block().is_some() && one.alloc().is_none());
        assert_eq!(pool.audit().unwrap().buckets_busy, 4);
        for block in blocks {
            // SAFETY: allocated above, and freed once.
            unsafe { one.free_block(block) }.unwrap();
        }
        assert_eq!(pool.stats().available, 3 * 64 * rows);
    }
}

#[test]
fn a_double_free_is_found_at_once() {
    let pool = raw(64).build().unwrap();
    let local = pool.local().unwrap();
    let object = local.alloc().unwrap();
    for _ in 0..2 {
        // SAFETY: misuse on purpose; nothing uses the object.
        unsafe { local.free(object) }.unwrap();
    }
    assert_eq!(pool.stats().misuses, 1);
    assert_eq!(pool.stats().available, 64);
    pool.audit().unwrap();
}

#[test]
fn objects_that_have_been_free_for_the_longest_time_come_first_in_a_hardened_pool() {
    let pool = raw(128).hardened(true).build().unwrap();
    let local = pool.local().unwrap();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..pool.stats().capacity {
        let object = local.alloc().unwrap();
        assert!(seen.insert(object), "an object came again before all others had come");
        // SAFETY: allocated above, and freed once.
        unsafe { local.free(object) }.unwrap();
    }
}

/// Each thread frees an object before it allocates another, so that there are always enough for all.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn threads_that_take_turns_always_find_an_object() {
    const THREADS: usize = 4;
    let pool = Pool::builder(THREADS, || AtomicBool::new(false)).pages(Pages::Small).build().unwrap();
    let misses = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let local = pool.local().unwrap();
                for _ in 0..5_000 {
                    let Some(object) = local.alloc() else {
                        misses.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    assert!(!object.swap(true, Ordering::Relaxed), "two threads have one object");
                    object.store(false, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(misses.into_inner(), 0);
    assert_eq!(pool.stats().in_use, 0);
}
