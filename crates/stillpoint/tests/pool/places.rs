//! The places of free objects, after each kind of free and before each kind of allocation.

use std::mem::MaybeUninit;

use stillpoint::pool::memory::Pages;
use stillpoint::pool::raw::{RawBlock, RawLocal, RawPool};
use stillpoint::pool::{Pool, PoolBuilder};

/// Makes a bucket of four objects.
fn four_to_a_bucket<P>(builder: PoolBuilder<P>) -> PoolBuilder<P> {
    builder.bucket_bytes(256).pages(Pages::Small)
}

/// Objects that the cache of one thread has no room for are available to other threads, as objects and as blocks.
#[test]
fn what_a_cache_has_no_room_for_is_for_every_thread() {
    let mut pool = four_to_a_bucket(RawPool::builder(400, 64, 64)).cache(32).build().unwrap();
    let (giver, taker) = (pool.local().unwrap(), pool.local().unwrap());
    for blocks in [false, true] {
        let objects: Vec<_> = std::iter::from_fn(|| giver.alloc()).collect();
        assert_eq!(objects.len(), 400);
        for part in objects.chunks(15) {
            // SAFETY: allocated above, and freed once.
            unsafe { giver.free_many(part) }.unwrap();
        }
        let audit = pool.audit().unwrap();
        assert!(
            audit.deposited > 300 && audit.cached <= 32,
            "the cache has not handed objects over: {audit:?}"
        );
        assert_eq!((audit.stats.in_use, audit.cached + audit.deposited), (0, 400));
        if blocks {
            giver.park();
            let blocks: Vec<_> = std::iter::from_fn(|| taker.alloc_block()).collect();
            assert_eq!((blocks.len(), pool.audit().unwrap().deposited), (100, 0));
            // SAFETY: allocated above, and freed once.
            blocks.into_iter().for_each(|block| unsafe { taker.free_block(block) }.unwrap());
        } else {
            let passed: Vec<_> = std::iter::from_fn(|| taker.alloc()).collect();
            assert_eq!(passed.len(), audit.deposited);
            // SAFETY: allocated above, and freed once.
            passed.into_iter().for_each(|object| unsafe { taker.free(object) }.unwrap());
        }
        taker.park();
    }
    drop((giver, taker));
    assert!(pool.leaks().is_empty() && pool.stats().misuses == 0);
}

/// A thread that gets some of the blocks that it wants keeps none of them, also below the high-water mark.
#[test]
fn blocks_that_were_too_few_are_for_every_thread() {
    for counts_calls in [false, true] {
        let builder = four_to_a_bucket(RawPool::builder(64, 64, 64)).cache(0).high_water(4);
        let pool = builder.count_calls(counts_calls).build().unwrap();
        let (one, other) = (pool.local().unwrap(), pool.local().unwrap());
        let gets = |local: &RawLocal<'_>, count: usize| {
            local.alloc_blocks(&mut vec![MaybeUninit::uninit(); count]).is_ok()
        };
        assert!(gets(&one, 12) && !gets(&other, 5));
        assert_eq!(pool.audit().unwrap().buckets_in_store, 4);
        assert!(gets(&one, 4));
    }
}

/// An allocation larger than a cache finds the objects in the depot, and these are no leaks.
#[test]
fn a_large_allocation_empties_the_depot() {
    let mut pool = four_to_a_bucket(RawPool::builder(400, 64, 64)).cache(32).build().unwrap();
    let local = pool.local().unwrap();
    let objects: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    // SAFETY: allocated above, and freed once.
    objects.chunks(31).for_each(|part| unsafe { local.free_many(part) }.unwrap());
    let mut room = vec![std::mem::MaybeUninit::uninit(); 400];
    let all = local.alloc_many(&mut room).unwrap();
    // SAFETY: allocated above, and freed once.
    all.chunks(31).for_each(|part| unsafe { local.free_many(part) }.unwrap());
    assert!(pool.audit().unwrap().deposited > 300);
    drop(local);
    assert!(pool.leaks().is_empty());
}

#[test]
fn an_object_that_is_dropped_where_its_local_is_goes_back_at_once() {
    for hardened in [false, true] {
        let pool = four_to_a_bucket(Pool::builder(40, || [0u8; 64]))
            .cache(0)
            .high_water(1)
            .hardened(hardened)
            .build()
            .unwrap();
        let local = pool.local().unwrap();
        let (objects, block) = ([local.alloc(), local.alloc()], local.alloc_block());
        drop(objects);
        drop(block);
        let audit = pool.audit().unwrap();
        assert_eq!((audit.on_their_way, audit.stats.in_use), (0, 0));
    }
}

/// The shard of a local that was parked, or has ended, has no holder: freed objects do not go into its cache.
#[test]
fn an_object_that_is_dropped_after_its_local_goes_to_the_inbox() {
    for parks in [false, true] {
        let pool = four_to_a_bucket(Pool::builder(40, || [0u8; 64])).cache(8).build().unwrap();
        let local = pool.local().unwrap();
        let objects = [local.alloc(), local.alloc()];
        let local = if parks {
            local.park();
            Some(local)
        } else {
            drop(local);
            None
        };
        drop(objects);
        let audit = pool.audit().unwrap();
        assert_eq!((audit.cached, audit.on_their_way), (0, 2));
        drop(local);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_local_that_parks_collects_all_that_others_have_freed() {
    let pool = four_to_a_bucket(Pool::builder(1_000, || [0u8; 64])).cache(0).build().unwrap();
    let local = pool.local().unwrap();
    let objects: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(objects));
    });
    assert_eq!(pool.audit().unwrap().on_their_way, 1_000);
    local.park();
    let audit = pool.audit().unwrap();
    assert_eq!((audit.on_their_way, audit.buckets_in_store), (0, 250));
}

/// If no thread keeps whole buckets, those of a local that has ended come through the store.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn what_comes_back_to_a_local_that_has_ended_can_be_had_whatever_the_high_water_mark() {
    for (high_water, single) in [(0, true), (0, false), (1, true), (1, false), (8, true), (8, false)] {
        let pool = four_to_a_bucket(Pool::builder(400, || [0u8; 64]))
            .cache(0)
            .high_water(high_water)
            .build()
            .unwrap();
        let (local, other) = (pool.local().unwrap(), pool.local().unwrap());
        let objects: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
        drop(local);
        drop(objects);
        if single {
            assert_eq!(std::iter::from_fn(|| other.alloc()).collect::<Vec<_>>().len(), 400);
        } else {
            assert_eq!(std::iter::from_fn(|| other.alloc_block()).collect::<Vec<_>>().len(), 100);
        }
        let audit = pool.audit().unwrap();
        assert!(audit.buckets_whole <= high_water as usize, "above the high-water mark: {audit:?}");
    }
}

/// A bucket so large that its freed objects are not all collected at once.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_large_block_comes_back_to_a_local_that_has_ended() {
    let pool = Pool::builder(8192, || 0u64).bucket_bytes(1 << 16).cache(0).pages(Pages::Small);
    let pool = pool.build().unwrap();
    let local = pool.local().unwrap();
    let block = pool.local().unwrap().alloc_block().unwrap();
    assert_eq!(block.len(), 8192);
    block.into_iter().for_each(drop);
    assert!(local.alloc_block().is_some());
}

/// A refill takes more objects than were requested only from its own buckets.
#[test]
fn a_refill_leaves_the_store_to_others() {
    let pool = four_to_a_bucket(Pool::builder(160, || [0u8; 64])).cache(32).high_water(2).build().unwrap();
    let local = pool.local().unwrap();
    let mut objects = Vec::new();
    for buckets in 1..=8 {
        objects.extend((0..4).map(|_| local.alloc().unwrap()));
        assert_eq!(pool.audit().unwrap().buckets_in_store, 40 - buckets);
    }
}

/// At any fill, and for any number of objects at once, the cache never exceeds its limit, and nothing is lost.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn any_number_of_objects_fits_into_a_cache_of_any_fill() {
    let pool = four_to_a_bucket(RawPool::builder(400, 64, 64)).cache(32).build().unwrap();
    for filled in 0..=32 {
        for count in [1, 15, 16, 17, 31, 32, 33, 64] {
            let local = pool.local().unwrap();
            let objects: Vec<_> = (0..filled + count).map(|_| local.alloc().unwrap()).collect();
            local.park();
            for object in &objects[..filled] {
                // SAFETY: allocated above, and freed once.
                unsafe { local.free(*object) }.unwrap();
            }
            assert_eq!(pool.audit().unwrap().cached, filled);
            // SAFETY: allocated above, and freed once.
            unsafe { local.free_many(&objects[filled..]) }.unwrap();
            let audit = pool.audit().unwrap();
            assert!(audit.cached <= 32, "above the limit, with {filled} and then {count}: {audit:?}");
            if filled + count <= 32 {
                assert_eq!(audit.cached, filled + count);
            } else if count <= 32 {
                assert!(
                    audit.cached >= count.max(16),
                    "emptied too far, with {filled} and then {count}: {audit:?}"
                );
            }
            assert_eq!((audit.stats.in_use, pool.stats().misuses), (0, 0));
        }
    }
}

/// When a cache gives objects back, it gives back all objects of the last bucket.
#[test]
fn a_cache_gives_back_all_that_it_has_of_the_last_bucket() {
    let pool = four_to_a_bucket(RawPool::builder(16, 64, 64)).cache(8).build().unwrap();
    let local = pool.local().unwrap();
    let [first, whole, last] = [(); 3].map(|()| local.alloc_block().unwrap());
    let one_of = |index: usize| first.get(index).unwrap();
    // The objects are not in order, since neighbours would be given back together.
    let four_of = |block: RawBlock| [0, 2, 1, 3].map(|index| block.get(index).unwrap());
    // Half of the nine objects are one object of the first bucket, and three of the second.
    let nine = std::iter::once(one_of(0)).chain(four_of(whole)).chain(four_of(last));
    // SAFETY: allocated above, and freed once.
    nine.for_each(|object| unsafe { local.free(object) }.unwrap());
    let audit = pool.audit().unwrap();
    assert_eq!((audit.cached, audit.buckets_partial), (4, 1));
    assert_eq!((audit.fill[0], audit.fill[3]), (2, 1), "{audit:?}");
}

#[test]
fn what_is_on_its_way_is_no_leak() {
    let mut pool = four_to_a_bucket(Pool::builder(8, || [0u8; 64])).cache(0).high_water(1).build().unwrap();
    let block = pool.local().unwrap().alloc_block();
    // The local of the block has ended.
    drop(block);
    assert_eq!((pool.audit().unwrap().on_their_way, pool.leaks().len()), (4, 0));
}

#[test]
fn what_a_forgotten_local_has_in_its_cache_is_no_leak() {
    let mut pool = four_to_a_bucket(Pool::builder(40, || [0u8; 64])).cache(16).build().unwrap();
    let address = {
        let local = pool.local().unwrap();
        let (kept, back) = (local.alloc().unwrap(), [local.alloc(), local.alloc()]);
        let address = (&raw const *kept).addr();
        std::mem::forget(kept);
        drop(back);
        std::mem::forget(local);
        address
    };
    assert!(pool.audit().unwrap().cached >= 2);
    assert_eq!(pool.leaks().iter().map(|leak| leak.addr().get()).collect::<Vec<_>>(), [address]);
}

#[test]
fn a_call_that_frees_nothing_changes_nothing() {
    let pool = four_to_a_bucket(RawPool::builder(16, 64, 64)).cache(2).build().unwrap();
    let local = pool.local().unwrap();
    local.alloc().unwrap();
    // The cache then holds more than its limit, since a refill takes a bucket.
    let before = pool.audit().unwrap();
    assert_eq!(before.cached, 3);
    // SAFETY: there are no objects.
    unsafe { local.free_many(&[]) }.unwrap();
    assert_eq!(pool.audit().unwrap(), before);
}

/// Other threads hold every shard, so the objects that the parked local frees go to their owner.
#[test]
fn a_parked_local_without_a_shard_frees_objects_and_blocks() {
    let pool =
        four_to_a_bucket(RawPool::builder(12, 64, 64)).cache(0).high_water(1).max_locals(1).build().unwrap();
    let local = pool.local().unwrap();
    let (block, objects) = (local.alloc_block().unwrap(), [local.alloc().unwrap(), local.alloc().unwrap()]);
    local.park();
    let other = pool.local().unwrap();
    // SAFETY: allocated above, and freed once.
    unsafe { local.free_block(block) }.unwrap();
    assert_eq!(pool.stats().in_use, 2);
    // SAFETY: allocated above, and freed once.
    unsafe { local.free_many(&objects) }.unwrap();
    assert_eq!((pool.stats().in_use, pool.stats().misuses), (0, 0));
    assert_eq!(std::iter::from_fn(|| other.alloc_block()).count(), 3);
    pool.audit().unwrap();
}

/// A local without a shard frees an object a second time. The object's bucket is in the store.
#[test]
fn a_double_free_by_a_parked_local_is_counted_once() {
    let pool =
        four_to_a_bucket(RawPool::builder(264, 64, 64)).cache(0).high_water(0).max_locals(1).build().unwrap();
    let local = pool.local().unwrap();
    let (object, kept) = (local.alloc().unwrap(), local.alloc_block().unwrap());
    // SAFETY: allocated above; freed again below, which the pool detects.
    unsafe { local.free(object) }.unwrap();
    local.park();
    let other = pool.local().unwrap();
    // SAFETY: freed already, which the pool detects.
    unsafe { local.free(object) }.unwrap();
    assert_eq!(pool.stats().misuses, 1);
    assert_eq!((pool.stats().in_use, pool.audit().unwrap().stats.in_use), (4, 4));
    // SAFETY: allocated above, and freed once.
    unsafe { other.free_block(kept) }.unwrap();
    assert_eq!(std::iter::from_fn(|| other.alloc()).count(), 264);
}

#[test]
fn every_misuse_is_counted() {
    let pool = four_to_a_bucket(RawPool::builder(4, 64, 64)).cache(0).high_water(1).build().unwrap();
    let local = pool.local().unwrap();
    let object = local.alloc().unwrap();
    for freed in 0..101 {
        // SAFETY: allocated above; freed again, which the pool detects.
        unsafe { local.free(object) }.unwrap();
        assert_eq!(pool.stats().misuses, freed);
    }
}

/// Only hardened pools allocate first the objects that have been free for the longest time.
#[test]
fn whole_buckets_come_before_broken_ones_where_objects_rest() {
    for hardened in [false, true] {
        let pool = four_to_a_bucket(Pool::builder(8, || [0u8; 64]))
            .cache(0)
            .high_water(1)
            .hardened(hardened)
            .build()
            .unwrap();
        let local = pool.local().unwrap();
        let (first, _second) = (local.alloc().unwrap(), local.alloc().unwrap());
        let block = local.alloc_block().unwrap();
        let start = block.as_ptr().addr();
        let address = (&raw const *first).addr();
        drop(first);
        drop(block);
        assert_eq!(pool.audit().unwrap().buckets_whole, 1);
        let next = (&raw const *local.alloc().unwrap()).addr();
        assert_eq!((start..start + 256).contains(&next), hardened);
        assert_eq!(next == address, !hardened);
    }
}

/// Among whole and among partial buckets, the one freed first is taken first in pools that trace, and last in others.
#[test]
fn buckets_take_turns_where_objects_rest() {
    for (hardened, next) in [(false, 1), (true, 0)] {
        let pool = four_to_a_bucket(RawPool::builder(8, 64, 64))
            .cache(0)
            .high_water(2)
            .hardened(hardened)
            .build()
            .unwrap();
        let local = pool.local().unwrap();
        let blocks = [(); 2].map(|()| local.alloc_block().unwrap());
        // SAFETY: allocated above, and freed once.
        blocks.iter().for_each(|&block| unsafe { local.free_block(block) }.unwrap());
        assert_eq!(local.alloc_block(), Some(blocks[next]), "hardened: {hardened}");
        assert_eq!(local.alloc_block(), Some(blocks[1 - next]), "hardened: {hardened}");
        let objects = blocks.map(|block| block.get(2).unwrap());
        // SAFETY: allocated above, and freed once.
        objects.iter().for_each(|&object| unsafe { local.free(object) }.unwrap());
        assert_eq!(local.alloc(), Some(objects[next]), "hardened: {hardened}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn settings_that_were_not_made_follow_the_capacity() {
    let info = |capacity: usize| {
        let pool = RawPool::builder(capacity, 8, 8).bucket_bytes(512).pages(Pages::Small);
        pool.build().unwrap().info()
    };
    let of = |capacity| (info(capacity).cache, info(capacity).high_water);
    assert_eq!(of(1), (0, 0));
    assert_eq!(of(512), (0, 0), "threads keep nothing of a small pool");
    assert_eq!(of(513), (64, 1));
    assert_eq!(of(64 * 31), (248, 1));
    assert_eq!(of(64 * 32), (256, 2));
    assert_eq!(of(64 * 511), (512, 31));
    assert_eq!(of(64 * 1024), (512, 32));
    assert_eq!((info(64).max_locals, info(64).hardened), (256, false));
    let growing = RawPool::builder(64, 8, 8)
        .bucket_bytes(512)
        .max_objects(64 * 32)
        .growth_step(64 * 31)
        .pages(Pages::Small);
    let pool = growing.build().unwrap();
    let local = pool.local().unwrap();
    assert_eq!(std::iter::from_fn(|| local.alloc()).count(), pool.info().max_objects);
    assert_eq!(
        (pool.info().cache, pool.info().high_water),
        (32, 2),
        "the high-water mark grows with the pool"
    );
    let tiny = RawPool::builder(1, 8, 8)
        .bucket_bytes(8)
        .max_objects(20)
        .growth_step(1)
        .cache(100)
        .pages(Pages::Small);
    assert_eq!(tiny.build().unwrap().info().cache, 20, "no more than the pool can have");
}

#[test]
fn memory_begins_with_the_first_object() {
    let pool: Pool<u64> =
        Pool::builder(1, || 0).bucket_bytes(8).max_objects(3).growth_step(2).build().unwrap();
    let local = pool.local().unwrap();
    let objects: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    let mut starts: Vec<_> = objects.iter().map(|object| (&raw const **object).addr()).collect();
    starts.sort_unstable();
    let pieces = pool.info().memory;
    assert_eq!(pieces.iter().map(|piece| piece.start).collect::<Vec<_>>(), [starts[0], starts[1]]);
    assert_eq!(pieces.iter().map(|piece| piece.bytes).collect::<Vec<_>>(), [8, 16]);
}
