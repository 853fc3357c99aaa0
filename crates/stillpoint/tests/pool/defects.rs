//! Defects of DPDK's bucket driver, found by reading its source: a test for each.

use stillpoint::pool::memory::Pages;
use stillpoint::pool::raw::RawPool;

/// A pool of buckets of four objects, without caches, whose buckets have owners.
fn with_owners(capacity: usize) -> RawPool {
    let builder = RawPool::builder(capacity, 64, 64).bucket_bytes(256).cache(0).high_water(1);
    builder.pages(Pages::Small).build().unwrap()
}

/// The driver counts the fill of a bucket in eight bits.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn more_than_256_objects_fit_into_a_bucket() {
    let pool =
        RawPool::builder(5_000, 64, 64).bucket_bytes(1 << 16).cache(0).pages(Pages::Small).build().unwrap();
    assert_eq!(pool.info().objects_per_block, 1024);
    let local = pool.local().unwrap();
    let all: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    assert_eq!(all.len(), 5 * 1024);
    // The objects are freed in another order, so that every bucket is partial for a long time.
    for turn in 0..7 {
        for object in all.iter().skip(turn).step_by(7) {
            // SAFETY: allocated above, and freed once.
            unsafe { local.free(*object) }.unwrap();
        }
    }
    assert_eq!((pool.stats().misuses, pool.stats().in_use), (0, 0));
    let blocks: Vec<_> = std::iter::from_fn(|| local.alloc_block()).collect();
    assert_eq!(blocks.len(), 5);
    pool.audit().unwrap();
}

/// The driver's ring holds one bucket fewer than its power of two.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_power_of_two_of_buckets_is_all_there() {
    for buckets in [1, 2, 64, 256] {
        let pool =
            RawPool::builder(buckets * 4, 64, 64).bucket_bytes(256).pages(Pages::Small).build().unwrap();
        let local = pool.local().unwrap();
        assert_eq!(std::iter::from_fn(|| local.alloc_block()).count(), buckets);
    }
}

/// The driver counts the objects of a last bucket that is not full, but never allocates them.
#[test]
fn what_is_counted_can_be_had() {
    let pool = RawPool::builder(33, 64, 64).bucket_bytes(256).pages(Pages::Small).build().unwrap();
    let local = pool.local().unwrap();
    let available = pool.stats().available;
    assert_eq!(available, 36, "whole buckets");
    assert_eq!(std::iter::from_fn(|| local.alloc()).count(), available);
}

/// In the driver, a thread can never reach the threshold above which it shares its buckets.
#[test]
fn no_thread_hoards_whole_buckets() {
    let pool = RawPool::builder(400, 64, 64).bucket_bytes(256).cache(0).high_water(8).pages(Pages::Small);
    let pool = pool.build().unwrap();
    let hoarder = pool.local().unwrap();
    let blocks: Vec<_> = std::iter::from_fn(|| hoarder.alloc_block()).collect();
    assert_eq!(blocks.len(), 100);
    // SAFETY: allocated above, and freed once.
    blocks.into_iter().for_each(|block| unsafe { hoarder.free_block(block) }.unwrap());
    let audit = pool.audit().unwrap();
    assert!(audit.buckets_whole <= 8, "a thread keeps too many buckets: {audit:?}");
    let other = pool.local().unwrap();
    let got = std::iter::from_fn(|| other.alloc_block()).count();
    assert!(got >= 92, "the other thread got {got} of 100 buckets");
}

/// The driver looks for a block before it collects the objects that other threads have freed.
#[test]
fn a_block_is_made_of_what_others_have_freed() {
    let pool = with_owners(4);
    let (owner, other) = (pool.local().unwrap(), pool.local().unwrap());
    let block = owner.alloc_block().unwrap();
    for index in 0..4 {
        // SAFETY: allocated above, and freed once.
        unsafe { other.free(block.get(index).unwrap()) }.unwrap();
    }
    assert_eq!(pool.audit().unwrap().on_their_way, 4);
    assert!(owner.alloc_block().is_some());
}

/// In the driver, objects that other threads free wait for an owner that does not call any more.
#[test]
fn objects_do_not_strand_with_an_idle_owner() {
    let pool = with_owners(40);
    let (idle, busy) = (pool.local().unwrap(), pool.local().unwrap());
    let all: Vec<_> = std::iter::from_fn(|| idle.alloc()).collect();
    // SAFETY: allocated above, and freed once.
    all.into_iter().for_each(|object| unsafe { busy.free(object) }.unwrap());
    assert_eq!(std::iter::from_fn(|| busy.alloc()).count(), 40, "the owner has not called since");
    pool.audit().unwrap();
}

/// As above, for partial buckets, of which the owner itself has freed some objects, and for a bucket of many rows.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn objects_of_broken_buckets_do_not_strand_with_an_idle_owner() {
    let pool = with_owners(40);
    let (idle, busy) = (pool.local().unwrap(), pool.local().unwrap());
    let all: Vec<_> = std::iter::from_fn(|| idle.alloc()).collect();
    for (index, object) in all.into_iter().enumerate() {
        let local = if index % 4 == 0 { &idle } else { &busy };
        // SAFETY: allocated above, and freed once.
        unsafe { local.free(object) }.unwrap();
    }
    let again: Vec<_> = std::iter::from_fn(|| busy.alloc()).collect();
    assert_eq!(again.len(), 30, "all except those that the owner has freed itself");
    pool.audit().unwrap();
    // SAFETY: allocated above, and freed once.
    again.into_iter().for_each(|object| unsafe { busy.free(object) }.unwrap());
    assert_eq!((pool.stats().in_use, pool.stats().misuses), (0, 0));

    let pool = RawPool::builder(2560, 64, 64).bucket_bytes(16 << 10).cache(0).pages(Pages::Small);
    let pool = pool.build().unwrap();
    let (idle, busy) = (pool.local().unwrap(), pool.local().unwrap());
    let all: Vec<_> = std::iter::from_fn(|| idle.alloc()).collect();
    // SAFETY: allocated above, and freed once.
    all.into_iter().for_each(|object| unsafe { busy.free(object) }.unwrap());
    assert_eq!(std::iter::from_fn(|| busy.alloc()).count(), 2560);
    pool.audit().unwrap();
}

/// In the driver, one thread would get everything. Here, too, if a rescue claimed everything that it finds.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_rescuer_keeps_no_more_than_others() {
    let pool = RawPool::builder(400, 64, 64).bucket_bytes(256).cache(0).high_water(4).pages(Pages::Small);
    let pool = pool.build().unwrap();
    let (idle, rescuer, other) = (pool.local().unwrap(), pool.local().unwrap(), pool.local().unwrap());
    let all: Vec<_> = std::iter::from_fn(|| idle.alloc()).collect();
    // SAFETY: allocated above, and freed once.
    all.into_iter().for_each(|object| unsafe { other.free(object) }.unwrap());
    assert!(rescuer.alloc().is_some());
    assert!(pool.audit().unwrap().buckets_whole <= 4);
    let got = std::iter::from_fn(|| other.alloc()).count();
    assert!(got >= 400 - 5 * 4, "the other thread got {got} of 400 objects");
}

/// An object that is free already is freed again, together with the other objects. The bits then look like those of a
/// whole bucket.
#[test]
fn a_double_free_does_not_get_a_bucket_rescued() {
    let pool = RawPool::builder(2, 64, 64)
        .bucket_bytes(128)
        .cache(0)
        .high_water(1)
        .pages(Pages::Small)
        .build()
        .unwrap();
    let (owner, rescuer) = (pool.local().unwrap(), pool.local().unwrap());
    let (first, second) = (owner.alloc().unwrap(), owner.alloc().unwrap());
    // SAFETY: allocated above. The second free is of the pool's own memory, and is detected.
    unsafe {
        owner.free(first).unwrap();
        rescuer.free(first).unwrap();
        rescuer.free(second).unwrap();
    }
    assert_eq!((rescuer.alloc(), rescuer.alloc()), (Some(second), None));
    assert_eq!((owner.alloc(), owner.alloc()), (Some(first), None));
    assert_eq!((pool.stats().misuses, pool.stats().in_use), (1, 2));
    pool.audit().unwrap();
}

/// As above, with an owner that has parked, and objects of partial buckets.
#[test]
fn a_parked_owner_leaves_everything() {
    let pool = RawPool::builder(40, 64, 64).bucket_bytes(256).pages(Pages::Small).build().unwrap();
    let (idle, busy) = (pool.local().unwrap(), pool.local().unwrap());
    let all: Vec<_> = std::iter::from_fn(|| idle.alloc()).collect();
    for object in all.iter().step_by(2) {
        // SAFETY: allocated above, and freed once.
        unsafe { idle.free(*object) }.unwrap();
    }
    idle.park();
    assert_eq!(std::iter::from_fn(|| busy.alloc()).count(), 20);
    // The parked local takes hold of a shard again. SAFETY: allocated above, and freed once.
    all.iter().skip(1).step_by(2).for_each(|object| unsafe { idle.free(*object) }.unwrap());
    assert_eq!(std::iter::from_fn(|| idle.alloc()).count(), 20);
}

/// The driver does not detect double frees.
#[test]
fn a_double_free_is_found_when_the_object_comes_back_to_its_bucket() {
    let pool = with_owners(8);
    let local = pool.local().unwrap();
    let object = local.alloc().unwrap();
    // SAFETY: allocated above. The second free is of the pool's own memory, and is detected.
    unsafe {
        local.free(object).unwrap();
        local.free(object).unwrap();
    }
    assert_eq!(pool.stats().misuses, 1);
    assert_eq!(pool.stats().in_use, 0);
    assert_eq!(std::iter::from_fn(|| local.alloc()).count(), 8, "the pool is intact");
}

/// In the driver, a bucket shrinks to a page when there are no huge pages.
#[test]
fn the_size_of_a_bucket_does_not_depend_on_pages() {
    for pages in [Pages::Small, Pages::Transparent, Pages::Best] {
        let pool = RawPool::builder(1_000, 2048, 64).pages(pages).build().unwrap();
        assert_eq!((pool.info().bucket_bytes, pool.info().objects_per_block), (128 << 10, 62));
    }
}
