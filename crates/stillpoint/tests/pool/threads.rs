//! Objects that cross threads, through the safe interface.

use std::collections::HashSet;
use std::sync::mpsc::channel;
use std::sync::Barrier;

use stillpoint::pool::memory::Pages;
use stillpoint::pool::Pool;

#[test]
fn an_object_is_freed_by_a_thread_that_has_no_local() {
    let pool = Pool::new(100, || 0u64).unwrap();
    let local = pool.local().unwrap();
    let objects: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    let all = objects.len();
    std::thread::scope(|scope| {
        scope.spawn(move || drop(objects));
    });
    assert_eq!(pool.stats().in_use, 0);
    assert_eq!(std::iter::from_fn(|| local.alloc()).collect::<Vec<_>>().len(), all);
    pool.audit().unwrap();
}

#[test]
fn a_block_is_freed_by_another_thread() {
    let pool = Pool::builder(100, || [0u8; 64]).bucket_bytes(1 << 14).build().unwrap();
    let local = pool.local().unwrap();
    let blocks: Vec<_> = std::iter::from_fn(|| local.alloc_block()).collect();
    let count = blocks.len();
    std::thread::scope(|scope| {
        scope.spawn(|| blocks.into_iter().for_each(drop));
    });
    assert_eq!(std::iter::from_fn(|| local.alloc_block()).collect::<Vec<_>>().len(), count);
    pool.audit().unwrap();
}

#[test]
fn an_owner_ends_with_objects_out_and_they_come_back() {
    let pool = Pool::builder(400, || [0u8; 64]).bucket_bytes(256).pages(Pages::Small).build().unwrap();
    let objects: Vec<_> = std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let local = pool.local().unwrap();
            std::iter::from_fn(|| local.alloc()).collect::<Vec<_>>()
        });
        owner.join().unwrap()
    });
    assert_eq!(objects.len(), 400);
    let local = pool.local().unwrap();
    assert!(local.alloc().is_none());
    drop(objects);
    assert_eq!(
        std::iter::from_fn(|| local.alloc_block()).collect::<Vec<_>>().len(),
        100,
        "each bucket is whole again"
    );
}

/// Many threads come and go, each with the objects of the thread before it.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn threads_come_and_go() {
    let pool =
        Pool::builder(200, || [0u8; 64]).bucket_bytes(256).max_locals(3).pages(Pages::Small).build().unwrap();
    let mut before = Vec::new();
    for round in 0..60 {
        before = std::thread::scope(|scope| {
            let next = scope.spawn(|| {
                let local = pool.local().unwrap();
                let mine: Vec<_> = (0..50 + round).filter_map(|_| local.alloc()).collect();
                if round % 2 == 0 {
                    local.free_many(std::mem::take(&mut before));
                }
                mine
            });
            next.join().unwrap()
        });
    }
    let out: HashSet<_> = before.iter().map(|object| (&raw const **object).addr()).collect();
    assert_eq!((out.len(), pool.stats().in_use), (before.len(), before.len()));
    drop(before);
    assert_eq!(pool.stats().in_use, 0);
    pool.audit().unwrap();
}

/// One thread allocates and another frees, many times.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_producer_and_a_consumer() {
    let pool = Pool::builder(1_000, || 0usize).bucket_bytes(1 << 12).pages(Pages::Small).build().unwrap();
    let (send, receive) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let local = pool.local().unwrap();
            for (number, object) in receive.into_iter().enumerate() {
                let object: stillpoint::pool::Obj<'_, usize> = object;
                assert_eq!(*object, number);
                local.free(object);
            }
        });
        let send = send;
        let local = pool.local().unwrap();
        let mut number = 0;
        while number < 50_000 {
            match local.alloc() {
                None => std::thread::yield_now(),
                Some(mut object) => {
                    *object = number;
                    number += 1;
                    send.send(object).unwrap();
                }
            }
        }
    });
    assert_eq!(pool.stats().in_use, 0);
    pool.audit().unwrap();
}

/// All threads allocate everything at once: no object is allocated twice, and none is lost.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_rush_on_a_small_pool() {
    let pool =
        Pool::builder(64, || [0u8; 64]).bucket_bytes(256).cache(0).pages(Pages::Small).build().unwrap();
    let barrier = Barrier::new(4);
    for _ in 0..50 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let local = pool.local().unwrap();
                    barrier.wait();
                    let mine: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
                    barrier.wait();
                    assert!(pool.stats().in_use <= 64);
                    drop(mine);
                });
            }
        });
        assert_eq!(pool.stats().in_use, 0);
        assert_eq!(pool.audit().unwrap().stats.in_use, 0);
    }
}
