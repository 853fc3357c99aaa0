//! Allocations and frees of one thread. All are counted.

use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use stillpoint::pool::audit::PoolStats;
use stillpoint::pool::memory::Pages;
use stillpoint::pool::raw::RawPool;
use stillpoint::pool::{Exhausted, Objects, Pool, PoolBuilder};

/// Makes a bucket of four objects.
fn four_to_a_bucket<P>(builder: PoolBuilder<P>) -> PoolBuilder<P> {
    builder.bucket_bytes(256).pages(Pages::Small)
}

#[test]
fn every_object_of_the_capacity_can_be_had_and_no_more() {
    for capacity in [1, 4, 5, if cfg!(miri) { 70 } else { 1000 }] {
        for cache in [0, 3, 32] {
            let pool = four_to_a_bucket(Pool::builder(capacity, || [0u8; 64])).cache(cache).build().unwrap();
            let local = pool.local().unwrap();
            let all = pool.stats().capacity;
            assert_eq!(all, capacity.next_multiple_of(4));
            for _ in 0..3 {
                let objects: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
                assert_eq!(objects.len(), all);
                let addresses: HashSet<_> = objects.iter().map(|object| &raw const **object).collect();
                assert_eq!(addresses.len(), all, "an object was allocated twice");
                assert_eq!(pool.stats(), PoolStats { capacity: all, available: 0, in_use: all, misuses: 0 });
                drop(objects);
                assert_eq!(pool.stats(), PoolStats { capacity: all, available: all, in_use: 0, misuses: 0 });
                assert_eq!(pool.audit().unwrap().stats.in_use, 0);
            }
        }
    }
}

#[test]
fn many_objects_come_all_or_none() {
    let pool = four_to_a_bucket(Pool::builder(64, || 0u64)).build().unwrap();
    let local = pool.local().unwrap();
    let all = pool.stats().capacity;
    let mut objects = Vec::new();
    local.alloc_many(all - 3, &mut objects).unwrap();
    assert_eq!(local.alloc_many(4, &mut objects), Err(Exhausted { wanted: 4 }));
    assert_eq!(objects.len(), all - 3);
    local.alloc_many(3, &mut objects).unwrap();
    local.alloc_many(0, &mut objects).unwrap();
    assert!(local.alloc().is_none());
    assert!(local.alloc_many(usize::MAX, &mut objects).is_err());
    local.free_many(objects.drain(..));
    assert_eq!(pool.stats().in_use, 0);
    assert!(local.alloc_many(all + 1, &mut objects).is_err());
    local.alloc_many(all, &mut objects).unwrap();
    drop(objects);
    pool.audit().unwrap();
}

#[test]
fn a_block_is_contiguous_and_comes_back_whole_or_in_parts() {
    let pool = Pool::builder(100, || [0u8; 200]).bucket_bytes(4096).pages(Pages::Small).build().unwrap();
    let (local, info) = (pool.local().unwrap(), pool.info());
    assert_eq!(info.stride, 320, "an odd number of cache lines");
    let mut block = local.alloc_block().unwrap();
    assert_eq!((block.len(), info.objects_per_block), (12, 12));
    let start = block.as_ptr().addr();
    assert_eq!(start % 64, 0);
    assert_eq!(block.iter().len(), 12);
    assert_eq!(block.iter_mut().len(), 12);
    for (index, object) in block.iter_mut().enumerate() {
        assert_eq!((&raw const *object).addr(), start + index * info.stride);
        object[0] = index as u8;
    }
    assert!(block.get(11).is_some() && block.get(12).is_none() && block.get_mut(12).is_none());
    assert_eq!(pool.stats().in_use, 12);
    // The block is freed as a whole.
    drop(block);
    assert_eq!(pool.stats().in_use, 0);
    // The block is freed in parts, some of which are not taken out of the block.
    let mut objects = local.alloc_block().unwrap().into_iter();
    let third = objects.nth(2).unwrap();
    assert_eq!((third[0], objects.len()), (2, 9), "the same block was allocated again");
    drop(objects);
    assert_eq!(pool.stats().in_use, 1);
    drop(third);
    assert_eq!(pool.stats().in_use, 0);
    // The bucket is whole again.
    let blocks: Vec<_> = std::iter::from_fn(|| local.alloc_block()).collect();
    assert_eq!(blocks.len(), pool.stats().capacity / 12);
    drop(blocks);
    pool.audit().unwrap();
}

#[test]
fn a_broken_bucket_is_no_block_until_its_last_object_is_back() {
    let pool = four_to_a_bucket(Pool::builder(8, || [0u8; 64])).cache(0).high_water(1).build().unwrap();
    let local = pool.local().unwrap();
    let object = local.alloc().unwrap();
    let block = local.alloc_block().unwrap();
    assert!(local.alloc_block().is_none());
    drop(object);
    assert!(local.alloc_block().is_some());
    drop(block);
}

#[test]
fn a_constructor_runs_once_for_each_object_and_its_destructor_with_the_pool() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let alive = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&alive);
    let pool = Pool::new(100, move || {
        counter.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(&counter))
    })
    .unwrap();
    let capacity = pool.stats().capacity;
    let local = pool.local().unwrap();
    for _ in 0..if cfg!(miri) { 20 } else { 1000 } {
        drop(local.alloc());
    }
    std::mem::forget(local.alloc());
    assert_eq!(alive.load(Ordering::Relaxed), capacity);
    drop(local);
    drop(pool);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn reset_runs_for_every_way_out() {
    let objects = Objects::new(|| 7u32).reset(|value| *value += 1);
    let pool = four_to_a_bucket(Pool::builder(32, objects)).build().unwrap();
    let local = pool.local().unwrap();
    assert_eq!(*local.alloc().unwrap(), 8);
    let mut some = Vec::new();
    local.alloc_many(2, &mut some).unwrap();
    assert_eq!(some.iter().map(|value| **value).max(), Some(9), "the first object again");
    drop(some);
    assert!(local.alloc_block().unwrap().iter().all(|value| *value >= 8));
}

#[test]
fn the_pool_grows_up_to_its_maximum() {
    let made = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&made);
    let make = move || counter.fetch_add(1, Ordering::Relaxed);
    let pool = Pool::builder(4, make).bucket_bytes(32).max_objects(20).growth_step(8).build().unwrap();
    assert_eq!((pool.stats().capacity, pool.info().max_objects), (4, 20));
    let local = pool.local().unwrap();
    let objects: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    assert_eq!((objects.len(), pool.stats().capacity, made.load(Ordering::Relaxed)), (20, 20, 20));
    assert_eq!(pool.info().memory.iter().map(|piece| piece.buckets).collect::<Vec<_>>(), [1, 2, 2]);
    let values: HashSet<usize> = objects.iter().map(|object| **object).collect();
    assert_eq!(values.len(), 20);
    drop(objects);
    assert_eq!(pool.audit().unwrap().fill.iter().sum::<usize>(), 5);
    assert!(local.alloc_block().is_some());
}

/// With a step that has no limit, the pool grows to its limit at once.
#[test]
fn the_pool_grows_to_its_maximum_in_one_step() {
    for step in [usize::MAX, usize::MAX / 2, 1 << 40, 17, 16] {
        let pool =
            Pool::builder(4, || 0usize).bucket_bytes(32).max_objects(20).growth_step(step).build().unwrap();
        assert_eq!((pool.stats().capacity, pool.info().max_objects), (4, 20));
        let local = pool.local().unwrap();
        let mut objects = Vec::new();
        local.alloc_many(5, &mut objects).unwrap();
        assert_eq!(pool.info().memory.iter().map(|piece| piece.buckets).collect::<Vec<_>>(), [1, 4]);
        local.alloc_many(15, &mut objects).unwrap();
        assert!(local.alloc().is_none());
    }
    let fixed =
        Pool::builder(4, || 0usize).bucket_bytes(32).max_objects(4).growth_step(usize::MAX).build().unwrap();
    let local = fixed.local().unwrap();
    assert_eq!(std::iter::from_fn(|| local.alloc()).collect::<Vec<_>>().len(), 4);
    let smallest =
        Pool::builder(4, || 0usize).bucket_bytes(32).max_objects(20).growth_step(0).build().unwrap();
    let local = smallest.local().unwrap();
    let all: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    assert_eq!((all.len(), smallest.info().memory.len()), (20, 5));
}

/// Without a step, a pool grows to its limit in at most eight pieces; without a limit, a step has no effect.
#[test]
fn a_limit_and_a_step_have_defaults() {
    let pieces = |max: Option<usize>, step: Option<usize>| {
        let mut builder = Pool::builder(4, || 0usize).bucket_bytes(32);
        if let Some(max) = max {
            builder = builder.max_objects(max);
        }
        if let Some(step) = step {
            builder = builder.growth_step(step);
        }
        let pool = builder.build().unwrap();
        let local = pool.local().unwrap();
        let objects: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
        assert_eq!(objects.len(), pool.info().max_objects);
        pool.info().memory.iter().map(|piece| piece.buckets).collect::<Vec<_>>()
    };
    assert_eq!(pieces(Some(4 + 8 * 12), None), [1, 3, 3, 3, 3, 3, 3, 3, 3]);
    assert_eq!(pieces(Some(4 + 8 * 12 + 1), None), [1, 4, 4, 4, 4, 4, 4, 1]);
    assert_eq!(pieces(Some(20), None), [1, 1, 1, 1, 1]);
    assert_eq!(pieces(Some(4), None), [1]);
    assert_eq!(pieces(Some(12), Some(8)), [1, 2]);
    assert_eq!((pieces(None, Some(8)), pieces(None, None)), (vec![1], vec![1]));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn large_pieces_grow_at_huge_pages() {
    // In the second pool, each later piece is exactly one huge page. The first piece moves these up by nearly a huge
    // page.
    for (capacity, maximum, step) in [(100, 4000, 1500), (62, 62 * 33, 62 * 16)] {
        let pool = RawPool::builder(capacity, 2048, 64)
            .max_objects(maximum)
            .growth_step(step)
            .pages(Pages::Transparent);
        let pool = pool.build().unwrap();
        let local = pool.local().unwrap();
        let count = std::iter::from_fn(|| local.alloc()).count();
        assert_eq!(count, pool.info().max_objects);
        let pieces = pool.info().memory;
        let large: Vec<_> = pieces.iter().filter(|piece| piece.bytes >= 2 << 20).collect();
        assert!(
            large.len() > 1 && large.iter().all(|piece| piece.start % (2 << 20) == 0),
            "a large piece does not begin at a huge page: {pieces:?}"
        );
        assert_eq!(pool.audit().unwrap().stats.in_use, count);
    }
}

#[test]
fn histogram_and_audit_tell_where_everything_is() {
    let pool = four_to_a_bucket(Pool::builder(24, || [0u8; 64])).cache(0).high_water(1).build().unwrap();
    let local = pool.local().unwrap();
    let blocks = [local.alloc_block(), local.alloc_block()];
    let two = [local.alloc(), local.alloc()];
    let audit = pool.audit().unwrap();
    assert_eq!(audit.fill, [3, 0, 1, 0, 2]);
    assert_eq!((audit.buckets_busy, audit.buckets_partial, audit.buckets_in_store), (2, 1, 3));
    assert_eq!((audit.stats.in_use, audit.held), (10, 2));
    drop((blocks, two));
    let audit = pool.audit().unwrap();
    assert_eq!((audit.buckets_whole, audit.buckets_in_store), (1, 5));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn buckets_come_back_whole_whatever_the_bulks() {
    let pool = RawPool::builder(10_000, 2048, 64).bucket_bytes(64 << 10).cache(512).build().unwrap();
    let local = pool.local().unwrap();
    for (get, put) in [(15, 1), (15, 15), (31, 7), (1, 31), (64, 63)] {
        for _ in 0..20 {
            let mut kept = Vec::new();
            while kept.len() < 4_000 {
                let mut bulk = [const { MaybeUninit::uninit() }; 64];
                kept.extend_from_slice(local.alloc_many(&mut bulk[..get]).unwrap());
            }
            // SAFETY: allocated above, and each freed once.
            kept.chunks(put).for_each(|bulk| unsafe { local.free_many(bulk) }.unwrap());
        }
        let audit = pool.audit().unwrap();
        assert_eq!(audit.stats.in_use, 0);
        assert!(audit.buckets_partial <= 8, "partial buckets, with bulks of {get} and {put}: {audit:?}");
    }
}

#[test]
fn a_bulk_holds_what_it_was_given_until_it_gives_it_back() {
    for hardened in [false, true] {
        let pool = four_to_a_bucket(Pool::builder(100, || 0u64)).hardened(hardened).build().unwrap();
        let local = pool.local().unwrap();
        let mut bulk = local.bulk(8);
        assert!(bulk.is_empty() && bulk.pop().is_none());
        local.alloc_bulk(31, &mut bulk).unwrap();
        local.alloc_bulk(1, &mut bulk).unwrap();
        bulk.iter_mut().zip(0..).for_each(|(object, number)| *object = number);
        *bulk.get_mut(0).unwrap() = 7;
        assert_eq!((bulk.len(), bulk.get(31), bulk.get(32), pool.stats().in_use), (32, Some(&31), None, 32));
        assert_eq!(format!("{bulk:?}").split(',').count(), 32);
        // No object is allocated if there are too few.
        let capacity = pool.stats().capacity;
        for too_many in [capacity - 31, capacity + 1, usize::MAX] {
            assert!(local.alloc_bulk(too_many, &mut bulk).is_err());
        }
        assert_eq!((bulk.len(), pool.stats().in_use), (32, 32));
        // The newest objects are freed.
        local.free_bulk(15, &mut bulk);
        assert_eq!((bulk.iter().copied().max(), pool.stats().in_use), (Some(16), 17));
        let last = bulk.pop().unwrap();
        assert_eq!((*last, bulk.len(), bulk.get(0)), (16, 16, Some(&7)));
        drop(last);
        // The rest is freed one by one, on another thread.
        std::thread::scope(|scope| _ = scope.spawn(move || drop(bulk)));
        assert_eq!(
            (pool.stats().in_use, pool.stats().misuses, pool.audit().unwrap().stats.in_use),
            (0, 0, 0)
        );
        let mut bulk = local.bulk(0);
        local.alloc_bulk(3, &mut bulk).unwrap();
        local.free_bulk(usize::MAX, &mut bulk);
        assert_eq!((bulk.len(), pool.stats().in_use), (0, 0));
    }
}

#[test]
fn a_bulk_belongs_to_one_pool() {
    let [first, second] = [(); 2].map(|()| four_to_a_bucket(Pool::builder(40, || 0u64)).build().unwrap());
    let (here, there) = (first.local().unwrap(), second.local().unwrap());
    let mut bulk = here.bulk(4);
    here.alloc_bulk(4, &mut bulk).unwrap();
    let mixed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| there.alloc_bulk(1, &mut bulk)));
    assert!(mixed.is_err() && bulk.len() == 4 && second.stats().in_use == 0);
    there.free_bulk(3, &mut bulk);
    assert_eq!((bulk.len(), first.stats().in_use, second.audit().unwrap().cached), (1, 1, 0));
}
