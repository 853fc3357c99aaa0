//! The pages of memory, and its addresses.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::filter::refuse_if;
use crate::skip::skipped;
use stillpoint::pool::memory::{Backing, Pages};
use stillpoint::pool::raw::RawPool;
use stillpoint::pool::{BuildError, Pool};

#[test]
fn small_pages_have_no_address_for_devices() {
    let raw = RawPool::builder(10, 4096, 64).pages(Pages::Small).build().unwrap();
    assert_eq!((raw.info().memory[0].backing, raw.info().memory[0].node), (Backing::Small, None));
    let block = raw.local().unwrap().alloc_block().unwrap();
    assert_eq!((raw.iova(block.start()), raw.physically_contiguous(&block)), (None, None));
    let pool = Pool::builder(10, || 0u64).pages(Pages::Small).build().unwrap();
    let local = pool.local().unwrap();
    assert_eq!(pool.iova(&local.alloc().unwrap()), None);
}

/// A device gets one address for a block. From there, the objects follow each other by the stride.
#[test]
fn the_objects_of_a_block_in_one_piece_follow_each_other_for_devices() {
    let mut shown = 0;
    // Blocks within a huge page, with the default stride and with one that was set, and blocks of two huge pages.
    for (size, stride, bucket) in
        [(2048, None, 64 << 10), (2048, Some(4096), 64 << 10), (9000, None, 4 << 20)]
    {
        let builder = RawPool::builder(1, size, 64).bucket_bytes(bucket).pages(Pages::Reserved);
        let builder = if let Some(stride) = stride { builder.stride(stride) } else { builder };
        let Ok(pool) = builder.build() else {
            return skipped("there are no two reserved huge pages (vm.nr_hugepages)");
        };
        let local = pool.local().unwrap();
        let block = local.alloc_block().unwrap();
        assert_eq!((block.stride(), block.len()), (pool.info().stride, pool.info().objects_per_block));
        assert!(block.len() > 1 && stride.is_none_or(|stride| stride == block.stride()));
        let object = |index: usize| block.get(index).unwrap();
        let Some(first) = pool.iova(object(0)) else {
            return skipped("the kernel hides frame numbers: not the root of the machine");
        };
        let follows = |index: usize| {
            let (address, wanted) =
                (pool.iova(object(index)).unwrap(), first.0 + (index * block.stride()) as u64);
            address.0 == wanted
        };
        assert!(first.0 > 0 && first.0 % 64 == 0, "not the address of an object: {first:?}");
        // If the block is in two physical pieces, the last object is in the second piece.
        assert_eq!(pool.physically_contiguous(&block), Some(follows(block.len() - 1)));
        if pool.physically_contiguous(&block) == Some(true) {
            assert!(
                (0..block.len()).all(follows),
                "objects of {size}, stride {stride:?}, buckets of {bucket}"
            );
            shown += 1;
        }
        // SAFETY: allocated above, and not used any more.
        unsafe { local.free_block(block) }.unwrap();
    }
    assert!(shown >= 2, "what lies within a huge page is in one piece");
}

#[test]
fn typed_objects_of_a_block_follow_each_other_for_devices() {
    let Ok(pool) = Pool::builder(1, || [0u8; 2048]).bucket_bytes(64 << 10).pages(Pages::Reserved).build()
    else {
        return skipped("there are no two reserved huge pages (vm.nr_hugepages)");
    };
    let stride = pool.info().stride;
    let local = pool.local().unwrap();
    let block = local.alloc_block().unwrap();
    let first = block.as_ptr().addr();
    let objects: Vec<_> = block.into_iter().collect();
    let Some(begin) = pool.iova(&objects[0]) else {
        return skipped("the kernel hides frame numbers: not the root of the machine");
    };
    for (index, object) in objects.iter().enumerate() {
        assert_eq!(std::ptr::from_ref(&**object).addr(), first + index * stride);
        assert_eq!(pool.iova(object).unwrap().0, begin.0 + (index * stride) as u64, "object {index}");
    }
}

/// If only reserved pages are allowed, it is refused. Otherwise it takes the rest of the page, also after a constructor has panicked there.
#[test]
fn a_step_that_begins_within_a_reserved_page() {
    const BUCKET: usize = 64 << 10;
    let fails = Arc::new(AtomicBool::new(false));
    let build = |pages| {
        let fails = Arc::clone(&fails);
        let make = move || {
            assert!(!fails.load(Ordering::Relaxed), "on purpose");
            [7u8; BUCKET - 64]
        };
        Pool::builder(1, make)
            .bucket_bytes(BUCKET)
            .cache(0)
            .max_objects(4)
            .growth_step(1)
            .pages(pages)
            .build()
    };
    let Ok(pool) = build(Pages::Reserved) else {
        return skipped("there are no two reserved huge pages (vm.nr_hugepages)");
    };
    let local = pool.local().unwrap();
    assert_eq!(std::iter::from_fn(|| local.alloc()).collect::<Vec<_>>().len(), 1);
    let pool = build(Pages::Best).unwrap();
    let local = pool.local().unwrap();
    let mut objects = vec![local.alloc().unwrap()];
    fails.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| local.alloc())).is_err());
    fails.store(false, Ordering::Relaxed);
    objects.extend(std::iter::from_fn(|| local.alloc()));
    assert!(objects.len() == 4 && objects.iter().all(|object| object.iter().all(|&byte| byte == 7)));
    let pieces = pool.info().memory;
    let kinds: Vec<_> = pieces.iter().map(|piece| piece.backing).collect();
    assert_eq!(kinds, [Backing::Reserved, Backing::Small, Backing::Small, Backing::Small]);
    assert!(pieces.iter().enumerate().all(|(index, piece)| piece.start == pieces[0].start + index * BUCKET));
    assert_eq!((pool.iova(&objects[1]), pieces[0].start % (2 << 20)), (None, 0));
}

#[test]
fn objects_are_aligned() {
    for (size, align) in [(1, 1), (24, 8), (100, 64), (64, 4096), (5000, 4096), (8, 1 << 22)] {
        let pool = RawPool::builder(20, size, align).pages(Pages::Small).build().unwrap();
        let local = pool.local().unwrap();
        let objects: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
        assert!(objects.len() >= 20);
        assert!(
            objects.iter().all(|object| object.as_ptr().addr() % align == 0),
            "objects of {size} bytes are not aligned to {align}"
        );
    }
}

#[test]
fn info_says_what_was_built() {
    let pool = RawPool::builder(500, 2048, 64)
        .cache(100)
        .high_water(3)
        .max_locals(9)
        .pages(Pages::Small)
        .build()
        .unwrap();
    let info = pool.info();
    assert_eq!((info.object_bytes, info.stride), (2048, 2112));
    assert_eq!((info.cache, info.high_water, info.max_locals), (100, 3, 9));
    assert_eq!((info.objects_per_block, info.max_objects), (62, 558));
    assert_eq!(info.memory.len(), 1);
    assert_eq!((info.memory[0].buckets, info.memory[0].bytes), (9, 9 * (128 << 10)));
    assert_eq!(info.memory[0].backing, Backing::Small);
}

/// A pool takes less than twice the memory of its objects, or 64 KiB, for any size and number of objects.
#[test]
fn a_pool_of_few_objects_takes_memory_for_few() {
    for size in [8, 1000, 2048, 5000, 100_000, 4 << 20] {
        for capacity in [1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 100] {
            if capacity * size > 64 << 20 {
                continue;
            }
            let pool = RawPool::builder(capacity, size, 8).pages(Pages::Small).build().unwrap();
            let info = pool.info();
            let bytes: usize = info.memory.iter().map(|piece| piece.bytes).sum();
            let room = 2 * capacity.next_multiple_of(info.objects_per_block) * info.stride;
            assert!(pool.stats().capacity >= capacity);
            assert!(bytes <= room.max(64 << 10), "{capacity} objects of {size} bytes take {bytes}");
            assert!(bytes < (4 * capacity * info.stride).max(64 << 10 | 1), "{capacity} of {size}: {bytes}");
        }
    }
    let one = RawPool::builder(1, 4 << 20, 8).pages(Pages::Small).build().unwrap();
    assert_eq!((one.info().objects_per_block, one.info().memory[0].bytes), (1, 8 << 20));
}

/// Large pools keep buckets of up to 64 objects, and so do small pools of small objects, which take only a few pages.
#[test]
fn buckets_of_many_objects_stay_where_they_fit() {
    let shape = |capacity, size| {
        let pool = RawPool::builder(capacity, size, 8).pages(Pages::Small).build().unwrap();
        (pool.info().bucket_bytes, pool.info().objects_per_block)
    };
    assert_eq!(shape(1_000, 2048), (128 << 10, 62));
    assert_eq!(shape(32, 2048), (128 << 10, 62), "32 objects take more than half of that");
    assert_eq!(shape(31, 2048), (64 << 10, 31));
    assert_eq!(shape(1, 2048), (64 << 10, 31));
    assert_eq!(shape(1, 64), (4096, 64));
    assert_eq!(shape(1, 8), (512, 64));
    assert_eq!(shape(16, 5000), (128 << 10, 25));
}

/// Linux before 5.14 cannot allocate the pages of a mapping at once. It counts reserved ones when they are mapped, of all nodes together: if one
/// node has too few, the first write to such a page ends the process.
#[test]
fn reserved_pages_of_a_node_are_allocated_at_once_or_not_used() {
    let build = |pages: Pages, node: Option<u32>| {
        let builder = RawPool::builder(1, 2048, 64).pages(pages);
        let pool = if let Some(node) = node { builder.node(node) } else { builder }.build()?;
        // SAFETY: allocated, and used by this thread only.
        unsafe { pool.local().unwrap().alloc().unwrap().as_ptr().write_bytes(7, 2048) };
        Ok::<_, BuildError>(pool.info().memory[0].backing)
    };
    if build(Pages::Reserved, Some(0)).is_err() {
        return skipped("there are no two reserved huge pages (vm.nr_hugepages) of node 0");
    }
    // The filter is for good, but only for this thread.
    let older = std::thread::spawn(move || {
        refuse_if(libc::SYS_madvise, Some((2, libc::MADV_POPULATE_WRITE as u32)), libc::EINVAL);
        let refused = build(Pages::Reserved, Some(0));
        assert!(matches!(refused, Err(BuildError::ReservedPages(_))), "{refused:?}");
        let other = build(Pages::Best, Some(0));
        assert!(matches!(other, Ok(Backing::Transparent | Backing::Small)), "{other:?}");
        assert_eq!(build(Pages::Reserved, None).unwrap(), Backing::Reserved);
    });
    older.join().unwrap();
}
