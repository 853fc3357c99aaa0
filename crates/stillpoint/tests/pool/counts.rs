//! Counts of calls and objects, those that caches serve included.

use std::mem::MaybeUninit;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::NonNull;

use stillpoint::pool::audit::CallStats;
use stillpoint::pool::raw::{RawBlock, RawLocal, RawPool};
use stillpoint::pool::{Objects, Pool};

/// Pools of these sizes and caches: with and without a cache, small, hardened, and growing.
fn pools() -> Vec<RawPool> {
    let builder = |objects| RawPool::builder(objects, 64, 64).bucket_bytes(512).count_calls(true);
    vec![
        builder(200).cache(40).build().unwrap(),
        builder(200).cache(0).high_water(2).build().unwrap(),
        builder(100).build().unwrap(),
        builder(200).hardened(true).build().unwrap(),
        builder(16).cache(8).max_objects(160).growth_step(16).build().unwrap(),
    ]
}

fn get_many(local: &RawLocal<'_>, count: usize) -> Option<Vec<NonNull<u8>>> {
    let mut room = vec![MaybeUninit::uninit(); count];
    local.alloc_many(&mut room).ok().map(|objects| objects.to_vec())
}

#[test]
fn random_calls_are_all_counted() {
    for pool in pools() {
        let local = pool.local().unwrap();
        assert!(pool.info().counts_calls && pool.call_stats() == CallStats::default());
        let (mut all, mut objects, mut blocks) =
            (CallStats::default(), Vec::<NonNull<u8>>::new(), Vec::<RawBlock>::new());
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let count = (random >> 40) as usize % 50;
            match (random >> 33) % 7 {
                0 => match local.alloc() {
                    Some(object) => {
                        objects.push(object);
                        (all.gets, all.got) = (all.gets + 1, all.got + 1);
                    }
                    None => (all.failed_gets, all.not_got) = (all.failed_gets + 1, all.not_got + 1),
                },
                1 if count > 0 => match get_many(&local, count) {
                    Some(more) => {
                        objects.extend(more);
                        (all.gets, all.got) = (all.gets + 1, all.got + count);
                    }
                    None => (all.failed_gets, all.not_got) = (all.failed_gets + 1, all.not_got + count),
                },
                2 => {
                    if let Some(object) = objects.pop() {
                        // SAFETY: it was allocated, and nothing uses it.
                        unsafe { local.free(object) }.unwrap();
                        (all.puts, all.put) = (all.puts + 1, all.put + 1);
                    }
                }
                3 if !objects.is_empty() => {
                    let some = objects.split_off(objects.len().saturating_sub(count.max(1)));
                    // SAFETY: as above.
                    unsafe { local.free_many(&some) }.unwrap();
                    (all.puts, all.put) = (all.puts + 1, all.put + some.len());
                }
                4 => match local.alloc_block() {
                    Some(block) => {
                        blocks.push(block);
                        all.block_gets += 1;
                    }
                    None => all.failed_block_gets += 1,
                },
                5 => {
                    if let Some(block) = blocks.pop() {
                        // SAFETY: as above.
                        unsafe { local.free_block(block) }.unwrap();
                        all.block_puts += 1;
                    }
                }
                _ if count == 7 => local.park(),
                _ => {}
            }
        }
        // What is refused: an address outside of the pool, by itself and behind two that are inside.
        let outside = NonNull::from(&mut random).cast::<u8>();
        let mut some =
            get_many(&local, 2).unwrap_or_else(|| vec![objects.pop().unwrap(), objects.pop().unwrap()]);
        let is_new = some.len() == 2 && objects.iter().all(|object| !some.contains(object));
        assert!(is_new);
        let now = pool.call_stats();
        some.push(outside);
        // SAFETY: the first two were allocated, and the last one is refused.
        unsafe {
            assert_eq!(local.free_many(&some).map_err(|error| error.index()), Err(2));
            assert!(local.free(outside).is_err());
            assert!(local.free_block(local.block_at(outside)).is_err());
        }
        let refused = pool.call_stats();
        assert_eq!((refused.failed_puts, refused.put), (now.failed_puts + 2, now.put + 2));
        assert_eq!(refused.failed_block_puts, 1);
        assert_eq!((now.puts, now.put), (all.puts, all.put));
        assert_eq!((now.block_gets, now.failed_block_gets), (all.block_gets, all.failed_block_gets));
        assert_eq!(now.block_puts, all.block_puts);
        let got = now.got + now.not_got - all.got - all.not_got;
        assert!(got == 2 && now.gets + now.failed_gets == all.gets + all.failed_gets + 1, "{now:?} {all:?}");
        assert!(all.failed_gets > 0 && all.failed_block_gets > 0, "nothing was missing: {all:?}");
        // The pool is whole.
        // SAFETY: they were allocated, and nothing uses them.
        unsafe {
            local.free_many(&objects).unwrap();
            blocks.into_iter().for_each(|block| local.free_block(block).unwrap());
        }
        drop(local);
        let audit = pool.audit().unwrap();
        assert_eq!((audit.stats.in_use, audit.stats.misuses), (0, 0));
    }
}

#[test]
fn a_pool_that_does_not_count_has_zeros() {
    let pool = RawPool::builder(100, 64, 64).build().unwrap();
    let local = pool.local().unwrap();
    let object = local.alloc().unwrap();
    // SAFETY: it was allocated, and nothing uses it.
    unsafe { local.free(object) }.unwrap();
    assert!(!pool.info().counts_calls);
    assert_eq!(pool.call_stats(), CallStats::default());
}

/// What is dropped is counted as well, on its own thread and on another one, and objects can be had again.
#[test]
fn dropped_objects_are_counted() {
    let pool = Pool::builder(64, || 0_u64).cache(16).count_calls(true).build().unwrap();
    std::thread::scope(|scope| {
        let local = pool.local().unwrap();
        for _ in 0..100 {
            let (here, there) = (local.alloc().unwrap(), local.alloc().unwrap());
            drop(here);
            scope.spawn(move || drop(there)).join().unwrap();
        }
        drop(local.alloc_block());
        local.free(local.alloc().unwrap());
        // SAFETY: this call owns the object.
        drop(unsafe { pool.from_raw(local.alloc().unwrap().into_raw().as_ptr()) });
        let calls = pool.call_stats();
        assert_eq!((calls.gets, calls.got, calls.puts, calls.put), (202, 202, 202, 202));
        assert_eq!((calls.block_gets, calls.block_puts), (1, 1));
    });
    assert_eq!(pool.audit().unwrap().stats.in_use, 0);
}

/// Objects whose reset panics go back, and count as freed; too many objects count as not got.
#[test]
fn what_panics_is_counted() {
    let objects = Objects::new(|| 0_u64).reset(|_| panic!("on purpose"));
    let pool = Pool::builder(64, objects).cache(16).count_calls(true).build().unwrap();
    let local = pool.local().unwrap();
    for _ in 0..3 {
        assert!(catch_unwind(AssertUnwindSafe(|| local.alloc())).is_err());
    }
    assert!(catch_unwind(AssertUnwindSafe(|| local.alloc_many(4, &mut Vec::new()))).is_err());
    assert!(local.alloc_many(usize::MAX, &mut Vec::new()).is_err());
    let calls = pool.call_stats();
    assert_eq!((calls.gets, calls.got, calls.put), (4, 7, 7));
    assert_eq!((calls.failed_gets, calls.not_got), (1, usize::MAX));
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn parked_locals_and_exhausted_ones_leave_the_counts_whole() {
    let pool = Pool::builder(8, || [0_u8; 64]).cache(4).bucket_bytes(512).max_objects(64).growth_step(8);
    let pool = pool.count_calls(true).build().unwrap();
    let (first, second) = (pool.local().unwrap(), pool.local().unwrap());
    let mut objects = Vec::new();
    while let Some(object) = first.alloc() {
        objects.push(object);
        second.free(second.alloc().unwrap_or_else(|| objects.pop().unwrap()));
        first.park();
    }
    let calls = pool.call_stats();
    assert!(calls.got >= objects.len() && calls.failed_gets >= 1, "{calls:?}");
    first.free_many(objects);
    drop((first, second));
    assert_eq!(pool.audit().unwrap().stats.in_use, 0);
    assert_eq!(pool.call_stats().got, pool.call_stats().put);
}

#[test]
fn threads_are_added_up() {
    let pool = RawPool::builder(2_000, 64, 64).cache(32).count_calls(true).build().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let local = pool.local().unwrap();
                for _ in 0..1_000 {
                    let objects = get_many(&local, 8).unwrap();
                    // SAFETY: they were allocated, and nothing uses them.
                    unsafe { local.free_many(&objects) }.unwrap();
                }
            });
        }
    });
    let calls = pool.call_stats();
    assert_eq!((calls.gets, calls.got, calls.puts, calls.put), (4_000, 32_000, 4_000, 32_000));
    assert_eq!((calls.failed_gets, calls.failed_puts), (0, 0));
}
