//! What hardened pools detect.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use stillpoint::pool::memory::Pages;
use stillpoint::pool::raw::{FreeError, RawPool};
use stillpoint::pool::{Obj, Objects, Pool, PoolBuilder};

fn hardened<P>(builder: PoolBuilder<P>) -> PoolBuilder<P> {
    builder.bucket_bytes(256).hardened(true).pages(Pages::Small)
}

#[test]
fn a_double_free_is_refused_at_once_in_any_thread() {
    let pool = hardened(RawPool::builder(8, 64, 64)).build().unwrap();
    let (local, other) = (pool.local().unwrap(), pool.local().unwrap());
    let objects = [local.alloc().unwrap(), local.alloc().unwrap()];
    // SAFETY: allocated above; freed again, which the pool refuses.
    unsafe {
        other.free(objects[0]).unwrap();
        for local in [&local, &other] {
            assert_eq!(local.free(objects[0]), Err(FreeError::AlreadyFree(0)));
        }
        let error = local.free_many(&[objects[1], objects[1]]).unwrap_err();
        assert_eq!(error, FreeError::AlreadyFree(1));
        assert!(error.to_string().contains("free already"), "{error}");
        let block = local.alloc_block().unwrap();
        local.free_block(block).unwrap();
        assert_eq!(local.free_block(block), Err(FreeError::AlreadyFree(0)));
    }
    assert_eq!((pool.stats().misuses, pool.stats().in_use), (0, 0));
    pool.audit().unwrap();
}

#[test]
fn a_write_to_a_free_object_is_reported_when_it_is_handed_out() {
    let pool = hardened(RawPool::builder(8, 50, 8)).build().unwrap();
    let local = pool.local().unwrap();
    let object = local.alloc().unwrap();
    // SAFETY: allocated above; the write that follows is the subject of the test.
    unsafe {
        object.as_ptr().write_bytes(1, 50);
        local.free(object).unwrap();
        object.as_ptr().add(49).write(0);
    }
    let all: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    assert_eq!(all.len(), pool.stats().capacity);
    assert_eq!(pool.stats().misuses, 1);
}

#[test]
fn an_object_that_is_not_valid_is_replaced_and_reported() {
    let good = Arc::new(AtomicBool::new(true));
    let shown = Arc::clone(&good);
    let objects = Objects::new(|| 7u32).validate(move |value| *value == 7 || !shown.load(Ordering::Relaxed));
    let pool = hardened(Pool::builder(8, objects)).build().unwrap();
    let local = pool.local().unwrap();
    let mut object = local.alloc().unwrap();
    *object = 8;
    drop(object);
    assert_eq!(pool.stats().misuses, 1);
    let all: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    assert!(
        all.len() == pool.stats().capacity && all.iter().all(|object| **object == 7),
        "one was made in its place"
    );
    drop(all);
    good.store(false, Ordering::Relaxed);
    let mut object = local.alloc().unwrap();
    *object = 9;
    local.free(object);
    assert_eq!(pool.stats().misuses, 1, "it was found valid");
}

#[test]
fn freed_objects_rest_while_others_of_their_bucket_do() {
    // Buckets of four objects. In a small pool, the objects of all buckets take turns.
    for (high_water, others) in [(1, 3), (0, 7)] {
        let builder = hardened(RawPool::builder(8, 64, 64));
        let pool = builder.high_water(high_water).build().unwrap();
        let local = pool.local().unwrap();
        let first = local.alloc().unwrap();
        // SAFETY: allocated above, and freed once.
        unsafe { local.free(first) }.unwrap();
        let next: Vec<_> = (0..others).map(|_| local.alloc().unwrap()).collect();
        assert!(!next.contains(&first), "a freed object was allocated before others");
        assert_eq!(local.alloc(), Some(first), "the freed object comes last");
    }
    let hot = RawPool::builder(8, 64, 64).bucket_bytes(256).pages(Pages::Small).build().unwrap();
    let local = hot.local().unwrap();
    let object = local.alloc().unwrap();
    // SAFETY: allocated above, and freed once.
    unsafe { local.free(object) }.unwrap();
    assert_eq!(local.alloc(), Some(object), "if it is not hardened, the object freed last comes first");
}

#[test]
fn leaks_are_what_nobody_gave_back() {
    let mut pool = hardened(RawPool::builder(8, 64, 64)).build().unwrap();
    let mut kept: Vec<_> = {
        let (local, other) = (pool.local().unwrap(), pool.local().unwrap());
        let (block, object) = (local.alloc_block().unwrap(), other.alloc().unwrap());
        // SAFETY: allocated above.
        unsafe { local.free(block.get(0).unwrap()) }.unwrap();
        (1..4).map(|index| block.get(index).unwrap()).chain([object]).collect()
    };
    kept.sort_unstable();
    let mut leaks = pool.leaks();
    leaks.sort_unstable();
    assert_eq!((leaks, pool.stats().in_use), (kept, 4));
}

#[test]
fn a_block_with_a_free_object_is_refused_and_stays_as_it_is() {
    let pool = hardened(RawPool::builder(8, 64, 64)).build().unwrap();
    let local = pool.local().unwrap();
    let block = local.alloc_block().unwrap();
    // SAFETY: allocated above; the second free is refused.
    unsafe {
        local.free(block.get(2).unwrap()).unwrap();
        let error = local.free_block(block).unwrap_err();
        assert_eq!(error, FreeError::AlreadyFree(2));
        assert_eq!(pool.stats().in_use, 3);
        for index in [0, 1, 3] {
            local.free(block.get(index).unwrap()).unwrap();
        }
    }
    assert_eq!(pool.stats().in_use, 0);
    pool.audit().unwrap();
}

#[test]
fn a_validation_sees_no_object_that_is_free() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let objects = Objects::new(|| 0u64).validate(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        true
    });
    let pool = hardened(Pool::builder(8, objects)).build().unwrap();
    let local = pool.local().unwrap();
    let object = local.alloc().unwrap().into_raw();
    for _ in 0..2 {
        // SAFETY: given away above, and nothing else has the object. The first time, it is freed; the second time, it is free already, which the pool detects.
        drop(unsafe { pool.from_raw(object.as_ptr()) });
    }
    assert_eq!(seen.load(Ordering::Relaxed), 1);
    assert_eq!(pool.stats().misuses, 1);
    let block = local.alloc_block().unwrap();
    let first = block.as_ptr().cast_mut();
    drop(block.into_iter().map(Obj::into_raw).collect::<Vec<_>>());
    // SAFETY: given away above, and taken back once.
    drop(unsafe { pool.from_raw(first) });
    assert_eq!((seen.load(Ordering::Relaxed), pool.stats().misuses), (2, 1));
}

/// An object that is freed because of a panic counts as free.
#[test]
fn a_validation_sees_no_object_that_a_panic_has_freed() {
    let (shown, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (counter, panics) = (Arc::clone(&shown), Arc::clone(&asked));
    let objects =
        Objects::new(|| 0u64).reset(move |_| assert!(!panics.load(Ordering::Relaxed), "on purpose"));
    let objects = objects.validate(move |_| counter.fetch_add(1, Ordering::Relaxed) < usize::MAX);
    let pool = hardened(Pool::builder(8, objects)).build().unwrap();
    let local = pool.local().unwrap();
    asked.store(false, Ordering::Relaxed);
    let addresses = local.alloc_block().unwrap().into_iter().map(Obj::into_raw).collect::<Vec<_>>();
    // SAFETY: given away above, and taken back once.
    addresses.iter().for_each(|object| drop(unsafe { pool.from_raw(object.as_ptr()) }));
    asked.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(local.alloc_block()))).is_err());
    let before = shown.load(Ordering::Relaxed);
    // SAFETY: nothing else has the object; the pool must detect the second free.
    drop(unsafe { pool.from_raw(addresses[0].as_ptr()) });
    assert_eq!((shown.load(Ordering::Relaxed), pool.stats().misuses), (before, 1));
    assert_eq!(pool.stats().in_use, 0);
}

/// A validation frees another object of the block that is being freed. That object is reported, and the others are
/// freed.
#[test]
fn a_block_of_which_an_object_is_freed_meanwhile_gives_the_others_back() {
    static POOL: OnceLock<Pool<u64>> = OnceLock::new();
    static FREES: AtomicUsize = AtomicUsize::new(0);
    let objects = Objects::new(|| 0u64).validate(|_| {
        let object = FREES.swap(0, Ordering::Relaxed);
        if object != 0 {
            let object = std::ptr::with_exposed_provenance_mut(object);
            // SAFETY: nothing uses the object; the pool must detect the double free.
            drop(unsafe { POOL.get().unwrap().from_raw(object) });
        }
        true
    });
    let pool = POOL.get_or_init(|| hardened(Pool::builder(8, objects)).build().unwrap());
    let local = pool.local().unwrap();
    let mut block = local.alloc_block().unwrap();
    let third = (&raw mut *block.get_mut(2).unwrap()).expose_provenance();
    FREES.store(third, Ordering::Relaxed);
    drop(block);
    assert_eq!(pool.stats().misuses, 1);
    assert_eq!((pool.stats().in_use, pool.audit().unwrap().stats.in_use), (0, 0));
    let blocks: Vec<_> = std::iter::from_fn(|| local.alloc_block()).collect();
    assert_eq!(blocks.len(), 1, "the bucket is whole again");
}
