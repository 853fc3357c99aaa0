//! What hardened pools detect.

use stillpoint::pool::memory::Pages;
use stillpoint::pool::raw::{FreeError, RawPool};
use stillpoint::pool::PoolBuilder;

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

/// The bucket has four rows of 64 objects.
#[test]
fn a_freed_object_rests_while_the_row_that_objects_come_from_has_others() {
    let pool = RawPool::builder(256, 64, 64).stride(64).bucket_bytes(256 * 64);
    let pool = pool.hardened(true).high_water(1).pages(Pages::Small).build().unwrap();
    let local = pool.local().unwrap();
    let all: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    assert_eq!((all.len(), pool.info().objects_per_block), (256, 256));
    // SAFETY: allocated above, and freed once.
    let free = |index: usize| unsafe { local.free(all[index]) }.unwrap();
    (0..8).for_each(free);
    for rested in [64, 65, 128, 192] {
        free(rested);
        assert!(!all[64..].contains(&local.alloc().unwrap()), "an object of another row came before");
    }
    let rest: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    assert_eq!(rest.len(), 8);
    pool.audit().unwrap();
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

/// Two threads free the same block at the same moment. Each object is freed by one of them, whichever comes first.
#[test]
fn a_block_that_two_threads_free_is_free() {
    let pool = hardened(RawPool::builder(8, 64, 64)).build().unwrap();
    let local = pool.local().unwrap();
    for _ in 0..if cfg!(miri) { 10 } else { 5_000 } {
        let block = local.alloc_block().unwrap();
        let start = std::sync::Barrier::new(2);
        let free = || {
            let local = pool.local().unwrap();
            start.wait();
            // SAFETY: nothing uses the block any more. The pool refuses the second free.
            unsafe { local.free_block(block) }.is_ok()
        };
        let freed = std::thread::scope(|scope| {
            let other = scope.spawn(free);
            usize::from(free()) + usize::from(other.join().unwrap())
        });
        assert!(freed <= 1, "both calls have freed the block");
        assert_eq!((pool.stats().in_use, pool.stats().misuses), (0, 0));
        pool.audit().unwrap();
    }
}
