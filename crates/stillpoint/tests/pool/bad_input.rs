//! Bad input gives a clear error, and leaves the pool intact.

use std::ptr::NonNull;

use stillpoint::pool::memory::Pages;
use stillpoint::pool::raw::{FreeError, RawPool};
use stillpoint::pool::{BuildError, Pool, PoolBuilder};

#[track_caller]
fn refused(builder: PoolBuilder<RawPool>, part: &str) -> BuildError {
    let error = builder.build().expect_err("the builder accepted it");
    assert!(error.to_string().contains(part), "'{part}' is not in: {error}");
    error
}

#[test]
fn impossible_shapes_are_refused() {
    let of = |size, align| RawPool::builder(10, size, align);
    let new = || of(64, 8);
    refused(of(0, 8), "objects of 0 bytes, aligned to 8, cannot be pooled: use at least 1 byte");
    refused(of(usize::MAX, 8), "fewer than 1 GiB");
    refused(of((1 << 30) + 1, 8), "objects of 1073741825 bytes");
    refused(of(64, 0), "aligned to 0, cannot be pooled");
    refused(of(64, 48), "an alignment that is a power of two");
    refused(of(8, 1 << 40), "aligned to 1099511627776, cannot be pooled");
    refused(new().bucket_bytes(1000), "impossible: use a power of two, from 64 to 1 GiB");
    refused(new().bucket_bytes(0), "impossible: use a power of two, from 64 to 1 GiB");
    refused(new().bucket_bytes(1 << 40), "impossible: use a power of two, from 64 to 1 GiB");
    refused(of(2048, 8).bucket_bytes(2048), "from 4096 to 1 GiB");
    refused(
        of(1, 1).stride(1),
        "stride of 1 bytes is impossible for these objects: set a multiple of 1, from 8 to 1 GiB",
    );
    refused(of(64, 8).stride(8), "set a multiple of 8, from 64 to 1 GiB");
    refused(
        of(64, 64).stride(100),
        "stride of 100 bytes is impossible for these objects: set a multiple of 64",
    );
    refused(of(64, 8).stride((1 << 30) + 8), "stride of 1073741832 bytes is impossible");
    refused(of(64, 8).stride(usize::MAX - 7), "set a multiple of 8, from 64 to 1 GiB");
    refused(RawPool::builder(0, 64, 8), "pool of 0 objects");
    refused(RawPool::builder(0, 100_000, 8), "pool of 0 objects");
    refused(RawPool::builder(usize::MAX, 64, 8), "cannot be made");
    refused(new().max_objects(9).growth_step(1), "max_objects no less");
    refused(new().max_objects(0), "max_objects no less");
    refused(new().max_locals(0), "0 threads");
    refused(new().max_locals(1 << 20), "1 to 65536");
    refused(new().max_locals(65_537), "65537 threads");
    #[cfg(not(miri))]
    assert_eq!(new().max_locals(65_536).build().unwrap().info().max_locals, 65_536);
    assert!(matches!(Pool::builder(10, || ()).build(), Err(BuildError::Object { size: 0, align: 1 })));
}

#[test]
#[cfg_attr(miri, ignore = "memory comes from the general allocator there")]
fn no_memory_is_an_error() {
    // The first pool needs too much address space, and the second too many headers.
    let error = refused(RawPool::builder(1 << 31, 1 << 29, 8), "no memory");
    assert!(matches!(error, BuildError::Memory { .. }), "{error:?}");
    refused(RawPool::builder(10, 8, 8).max_objects(1 << 45).growth_step(1), "cannot be made");
}

#[test]
fn a_node_that_does_not_exist_is_refused() {
    for node in [1023, 1024, u32::MAX] {
        let error = refused(RawPool::builder(10, 64, 8).node(node).pages(Pages::Small), "");
        // A sandbox may forbid the choice of nodes, which gives the other error.
        assert!(
            matches!(error, BuildError::Node { .. } | BuildError::Memory { cause: Some(_), .. }),
            "{error:?}"
        );
    }
}

#[test]
#[cfg_attr(miri, ignore = "memory comes from the general allocator there")]
fn more_reserved_pages_than_there_are_is_an_error_and_best_takes_others() {
    // No machine has a terabyte of free reserved pages.
    let error = refused(RawPool::builder(1 << 11, 1 << 29, 8).pages(Pages::Reserved), "vm.nr_hugepages");
    assert!(matches!(error, BuildError::ReservedPages(_)), "{error:?}");
    assert!(std::error::Error::source(&error).is_some());
    assert!(RawPool::builder(10, 64, 8).pages(Pages::Best).build().is_ok());
}

#[test]
fn foreign_pointers_are_refused_at_once_and_the_others_are_freed_up_to_them() {
    let pool = RawPool::builder(100, 64, 64).pages(Pages::Small).build().unwrap();
    let another = RawPool::builder(100, 64, 64).pages(Pages::Small).build().unwrap();
    for cache in [false, true] {
        let (local, other) = (pool.local().unwrap(), another.local().unwrap());
        let foreign = other.alloc().unwrap();
        let mine = [local.alloc().unwrap(), local.alloc().unwrap()];
        let on_the_stack = 7u8;
        if !cache {
            local.park();
        }
        for stranger in [
            foreign,
            NonNull::from(&on_the_stack),
            NonNull::dangling(),
            NonNull::new(std::ptr::without_provenance_mut(usize::MAX)).unwrap(),
        ] {
            // SAFETY: the address is not that of an object of the pool, so the pool refuses it.
            let error = unsafe { local.free(stranger) }.unwrap_err();
            assert_eq!(error, FreeError::Foreign(0));
        }
        // SAFETY: the first object was allocated above. The pool refuses the second, and frees none after it.
        let error = unsafe { local.free_many(&[mine[0], foreign, mine[1]]) }.unwrap_err();
        assert_eq!(error, FreeError::Foreign(1));
        assert!(error.to_string().contains("outside the pool"), "{error}");
        assert_eq!(pool.stats().in_use, 1);
        // SAFETY: allocated above, and freed once.
        unsafe {
            local.free(mine[1]).unwrap();
            other.free(foreign).unwrap();
        }
        assert_eq!((pool.stats().in_use, pool.stats().misuses), (0, 0));
        pool.audit().unwrap();
    }
}

#[test]
fn an_address_inside_of_an_object_is_found_at_its_bucket() {
    let pool = RawPool::builder(100, 64, 64).cache(0).high_water(1).pages(Pages::Small).build().unwrap();
    let local = pool.local().unwrap();
    let object = local.alloc().unwrap();
    // SAFETY: the address is inside the object, but not at its beginning, so the pool refuses it.
    let error = unsafe { local.free(object.add(8)) }.unwrap_err();
    assert_eq!(error, FreeError::NotAnObject(0));
    assert!(pool.owns(object.as_ptr()) && !pool.owns(object.as_ptr().wrapping_add(8)));

    // With a cache, the error is found when the cache is emptied.
    let pool = RawPool::builder(100, 64, 64).cache(32).pages(Pages::Small).build().unwrap();
    let local = pool.local().unwrap();
    // A refill may exceed the cache's limit. So there is room for frees only after most of the refill was allocated.
    let object = (0..50).map(|_| local.alloc().unwrap()).last().unwrap();
    // SAFETY: the address is inside the object, but not at its beginning, so the pool refuses it.
    unsafe { local.free(object.add(8)) }.unwrap();
    local.park();
    assert_eq!(pool.stats().misuses, 1);
}

#[test]
fn a_double_free_in_the_cache_is_found_when_the_cache_is_emptied() {
    let pool = RawPool::builder(64, 64, 64).cache(32).pages(Pages::Small).build().unwrap();
    let local = pool.local().unwrap();
    let object = (0..50).map(|_| local.alloc().unwrap()).last().unwrap();
    // SAFETY: allocated above. The second free is of the pool's own memory, and is detected.
    unsafe {
        local.free(object).unwrap();
        local.free(object).unwrap();
    }
    local.park();
    assert_eq!(pool.stats().misuses, 1);
    assert_eq!(pool.audit().unwrap().stats.in_use, 49);
    assert_eq!(std::iter::from_fn(|| local.alloc()).count(), 15);
}

#[test]
fn a_remote_double_free_is_found_at_once_or_when_it_is_collected() {
    let pool = RawPool::builder(8, 64, 64)
        .bucket_bytes(256)
        .cache(0)
        .high_water(1)
        .pages(Pages::Small)
        .build()
        .unwrap();
    let (owner, other) = (pool.local().unwrap(), pool.local().unwrap());
    let object = owner.alloc().unwrap();
    // SAFETY: allocated above. The second free is of the pool's own memory, and is detected.
    unsafe {
        other.free(object).unwrap();
        other.free(object).unwrap();
    }
    assert_eq!(pool.stats().misuses, 1, "the two frees count as one object on its way");
    assert_eq!(owner.alloc(), Some(object));
    // SAFETY: allocated above. The second free is of the pool's own memory, and is detected.
    unsafe {
        owner.free(object).unwrap();
        other.free(object).unwrap();
    }
    let all: Vec<_> = std::iter::from_fn(|| owner.alloc()).collect();
    assert_eq!((all.len(), pool.stats().misuses), (8, 2), "the owner has collected them");
    assert_eq!((pool.stats().in_use, pool.audit().unwrap().stats.in_use), (8, 8));
}

/// The bucket has no owner, so none of its objects is allocated, and none can be freed.
#[test]
fn a_double_free_into_the_store_is_found() {
    // The first pool is small: all buckets are in the store, whatever is allocated.
    for capacity in [8, 264] {
        let pool = RawPool::builder(capacity, 64, 64)
            .bucket_bytes(256)
            .cache(0)
            .high_water(0)
            .pages(Pages::Small)
            .build()
            .unwrap();
        let local = pool.local().unwrap();
        let object = local.alloc().unwrap();
        // SAFETY: allocated above. The second free is of the pool's own memory, and is detected.
        unsafe {
            local.free(object).unwrap();
            local.free(object).unwrap();
        }
        assert_eq!(pool.stats().misuses, 1);
        pool.audit().unwrap();
        assert_eq!(std::iter::from_fn(|| local.alloc()).count(), capacity);
    }
}

#[test]
fn a_block_that_is_none_is_refused() {
    let pool = RawPool::builder(64, 64, 64).pages(Pages::Small).build().unwrap();
    let another = RawPool::builder(64, 64, 64).pages(Pages::Small).build().unwrap();
    let (local, other) = (pool.local().unwrap(), another.local().unwrap());
    let block = other.alloc_block().unwrap();
    // SAFETY: the block belongs to another pool, so this pool refuses it.
    let error = unsafe { local.free_block(block) }.unwrap_err();
    assert_eq!(error, FreeError::Foreign(0));
    // SAFETY: allocated above.
    unsafe { other.free_block(block) }.unwrap();
    // SAFETY: the block is free already, which the pool detects.
    unsafe { other.free_block(block) }.unwrap();
    assert_eq!(another.stats().misuses, block.len());
    another.audit().unwrap();
}

#[test]
fn more_threads_than_allowed_are_refused_until_one_parks() {
    let pool = Pool::builder(1_000, || 0u8).max_locals(2).build().unwrap();
    let (first, second) = (pool.local().unwrap(), pool.local().unwrap());
    let error = pool.local().unwrap_err();
    assert!(error.to_string().starts_with("2 threads use the pool already"), "{error}");
    let object = first.alloc().unwrap();
    first.park();
    let third = pool.local().unwrap();
    assert!(first.alloc().is_none(), "a parked local finds no shard");
    first.free(object);
    drop(second);
    assert!(first.alloc().is_some());
    drop(third);
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn an_object_of_another_pool_is_freed_there() {
    let pools = [Pool::new(10, || 0u8).unwrap(), Pool::new(10, || 0u8).unwrap()];
    let locals = [pools[0].local().unwrap(), pools[1].local().unwrap()];
    locals[0].free(locals[1].alloc().unwrap());
    locals[0].free_many(vec![locals[1].alloc().unwrap(), locals[0].alloc().unwrap()]);
    assert!(pools.iter().all(|pool| pool.stats().in_use == 0 && pool.stats().misuses == 0));
    // SAFETY: no object of this pool is at the address, so the call returns `None`.
    assert!(unsafe { pools[0].from_raw(&raw mut *locals[1].alloc().unwrap()) }.is_none());
}

#[test]
fn a_block_tells_addresses_after_its_pool_is_gone() {
    let pool = RawPool::builder(8, 64, 64).bucket_bytes(256).build().unwrap();
    let block = pool.local().unwrap().alloc_block().unwrap();
    drop(pool);
    let addresses: Vec<_> = (0..5).map(|index| block.get(index).map(|at| at.as_ptr().addr())).collect();
    let start = block.start().as_ptr().addr();
    assert_eq!(addresses, [Some(start), Some(start + 64), Some(start + 128), Some(start + 192), None]);
}

/// Addresses before the first byte, after the last one, and far from both, among others that a call checks together.
#[test]
fn addresses_on_either_side_of_the_pool_are_refused_among_others() {
    let pool = RawPool::builder(64, 64, 64).pages(Pages::Small).build().unwrap();
    let local = pool.local().unwrap();
    let memory = pool.info().memory[0];
    let (start, end) = (memory.start, memory.start + memory.bytes);
    let objects: Vec<_> = (0..4).map(|_| local.alloc().unwrap()).collect();
    for stranger in [1, start - 64, start - 1, end, end + 64, end + (1 << 30), usize::MAX / 2, usize::MAX] {
        let stranger = NonNull::new(std::ptr::without_provenance_mut(stranger)).unwrap();
        for index in 0..4 {
            let mut call = objects.clone();
            call[index] = stranger;
            // SAFETY: all were allocated above, except for one that the pool refuses. Those before it are allocated
            // again below.
            let error = unsafe { local.free_many(&call) }.unwrap_err();
            assert_eq!(error, FreeError::Foreign(index), "{stranger:?}");
            assert_eq!(pool.stats().in_use, 4 - index);
            let mut again: Vec<_> = (0..index).map(|_| local.alloc().unwrap()).collect();
            again.sort_unstable();
            let mut freed = objects[..index].to_vec();
            freed.sort_unstable();
            assert_eq!(again, freed, "the objects freed last");
        }
    }
    assert_eq!(pool.stats().misuses, 0);
}

/// Any address may be asked about, and its block as well, also the last ones of all.
#[test]
fn addresses_outside_the_pool_have_none_for_devices() {
    let pool = RawPool::builder(64, 64, 64).pages(Pages::Small).build().unwrap();
    let local = pool.local().unwrap();
    for address in [1, usize::MAX / 2, usize::MAX - 64, usize::MAX] {
        let stranger = NonNull::new(std::ptr::without_provenance_mut(address)).unwrap();
        let block = local.block_at(stranger);
        assert_eq!((pool.iova(stranger), pool.physically_contiguous(&block)), (None, None), "{address:x}");
    }
}
