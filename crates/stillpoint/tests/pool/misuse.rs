//! Misuse by safe code.

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::kept::for_ever;
use stillpoint::pool::memory::Pages;
use stillpoint::pool::{Local, Obj, Objects, Pool};

#[test]
fn forgotten_objects_stay_out_and_are_dropped_with_the_pool() {
    let dropped = Arc::new(AtomicUsize::new(0));
    struct Noted(Arc<AtomicUsize>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let counter = Arc::clone(&dropped);
    let pool = Pool::builder(10, move || Noted(Arc::clone(&counter))).build().unwrap();
    let capacity = pool.stats().capacity;
    let local = pool.local().unwrap();
    std::mem::forget(local.alloc());
    std::mem::forget(local.alloc_block());
    std::mem::forget(local);
    drop(pool);
    assert_eq!(dropped.load(Ordering::Relaxed), capacity);
}

#[test]
fn a_forgotten_local_keeps_what_it_holds_and_nothing_else_breaks() {
    let pool = Pool::builder(100, || [0u8; 64])
        .cache(0)
        .high_water(1)
        .bucket_bytes(256)
        .pages(Pages::Small)
        .build()
        .unwrap();
    let object = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let local = pool.local().unwrap();
                let object = local.alloc().unwrap();
                std::mem::forget(local);
                object
            })
            .join()
            .unwrap()
    });
    let local = pool.local().unwrap();
    let got: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    assert!(got.len() >= 90 && got.len() < 100, "{}", got.len());
    drop((object, got));
    assert_eq!(pool.stats().in_use, 0);
    pool.audit().unwrap();
}

#[test]
fn a_constructor_that_panics_leaves_nothing_behind() {
    let alive = Arc::new(AtomicUsize::new(0));
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let counter = Arc::clone(&alive);
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let make = move || {
        if counter.fetch_add(1, Ordering::Relaxed) % 8 == 6 && failing.load(Ordering::Relaxed) {
            counter.fetch_sub(1, Ordering::Relaxed);
            panic!("on purpose");
        }
        Counted(Arc::clone(&counter))
    };
    // The constructor panics while the pool grows. The next allocation succeeds.
    let pool =
        Pool::builder(4, make.clone()).bucket_bytes(32).max_objects(12).growth_step(8).build().unwrap();
    let local = pool.local().unwrap();
    let first: Vec<_> = (0..4).map(|_| local.alloc().unwrap()).collect();
    fails.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| local.alloc())).is_err());
    assert_eq!((alive.load(Ordering::Relaxed), pool.stats().capacity), (4, 4));
    fails.store(false, Ordering::Relaxed);
    assert!(local.alloc().is_some());
    assert_eq!(pool.stats().capacity, 12);
    drop(first);
    drop(local);
    drop(pool);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
    // The constructor panics while the pool is built, so there is no pool.
    fails.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| Pool::builder(100, make).build())).is_err());
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn a_reset_that_panics_gives_the_object_back() {
    for hardened in [false, true] {
        let fails = Arc::new(AtomicBool::new(true));
        let failing = Arc::clone(&fails);
        let objects =
            Objects::new(|| 0u64).reset(move |_| assert!(!failing.load(Ordering::Relaxed), "on purpose"));
        let pool = Pool::builder(100, objects).bucket_bytes(64).hardened(hardened).pages(Pages::Small);
        let pool = pool.build().unwrap();
        let local = pool.local().unwrap();
        let mut some = Vec::new();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(local.alloc()))).is_err(), "{hardened}");
        assert!(catch_unwind(AssertUnwindSafe(|| local.alloc_many(100, &mut some))).is_err(), "{hardened}");
        assert!(catch_unwind(AssertUnwindSafe(|| drop(local.alloc_block()))).is_err(), "{hardened}");
        let stats = pool.stats();
        assert_eq!((some.len(), stats.in_use, stats.misuses), (0, 0, 0), "hardened: {hardened}");
        assert!(
            !hardened || pool.audit().unwrap().fill == [13, 0, 0, 0, 0, 0, 0, 0, 0],
            "hardened: {hardened}"
        );
        fails.store(false, Ordering::Relaxed);
        assert_eq!(std::iter::from_fn(|| local.alloc()).collect::<Vec<_>>().len(), stats.capacity);
        pool.audit().unwrap();
    }
}

/// At whichever object the reset panics, the new objects are freed, and those already in the vector stay.
#[test]
fn a_reset_that_panics_leaves_nothing_in_the_vector() {
    let (at, called) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::new(AtomicUsize::new(0)));
    let (panics_at, counter) = (Arc::clone(&at), Arc::clone(&called));
    let objects = Objects::new(|| 0u64).reset(move |value| {
        let call = counter.fetch_add(1, Ordering::Relaxed);
        assert_ne!(call, panics_at.load(Ordering::Relaxed), "on purpose");
        *value = 0;
    });
    let pool = Pool::builder(1_000, objects).build().unwrap();
    let local = pool.local().unwrap();
    let mut some = Vec::new();
    local.alloc_many(3, &mut some).unwrap();
    some.iter_mut().for_each(|object| **object = 7);
    for panics_at in [0, 5, 63, 64, 199] {
        called.store(0, Ordering::Relaxed);
        at.store(panics_at, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| local.alloc_many(200, &mut some))).is_err());
        assert_eq!(called.load(Ordering::Relaxed), panics_at + 1);
        assert_eq!(some.iter().map(|object| **object).collect::<Vec<_>>(), [7, 7, 7]);
        assert_eq!((pool.stats().in_use, pool.stats().misuses), (3, 0));
        pool.audit().unwrap();
    }
    at.store(usize::MAX, Ordering::Relaxed);
    local.alloc_many(pool.stats().available, &mut some).unwrap();
    assert_eq!(some.len(), pool.stats().capacity);
}

#[test]
fn destructors_that_panic_do_not_keep_the_others_from_running() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Panics(usize);
    impl Drop for Panics {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
            assert_ne!(self.0, 3, "on purpose");
        }
    }
    let numbers = AtomicUsize::new(0);
    let pool = Pool::new(10, move || Panics(numbers.fetch_add(1, Ordering::Relaxed))).unwrap();
    let capacity = pool.stats().capacity;
    assert!(catch_unwind(AssertUnwindSafe(|| drop(pool))).is_err());
    assert_eq!(DROPPED.load(Ordering::Relaxed), capacity);
}

/// Constructors and hooks that use the pool that calls them.
#[test]
fn code_of_the_users_may_use_the_pool() {
    static KEPT: Mutex<Vec<Obj<'static, u64>>> = Mutex::new(Vec::new());
    let reset = |value: &mut u64| {
        *value += 1;
        drop(KEPT.lock().unwrap().pop());
    };
    let make = || {
        // Frees an object into the shard for which the pool grows, during the growth.
        drop(KEPT.lock().unwrap().pop());
        0
    };
    let pool = Pool::builder(4, Objects::new(make).reset(reset))
        .bucket_bytes(32)
        .cache(4)
        .max_objects(40)
        .growth_step(4);
    let pool: &'static Pool<u64> = for_ever(pool.build().unwrap());
    let local = pool.local().unwrap();
    for round in 0..if cfg!(miri) { 10 } else { 100 } {
        let mut objects: Vec<_> = std::iter::from_fn(|| local.alloc()).take(10 + round % 30).collect();
        assert!(!objects.is_empty());
        KEPT.lock().unwrap().extend(objects.drain(..objects.len() / 2));
        local.free_many(objects);
    }
    let kept = std::mem::take(&mut *KEPT.lock().unwrap());
    drop(kept);
    drop(local);
    assert_eq!((pool.stats().in_use, pool.stats().misuses), (0, 0));
    pool.audit().unwrap();
}

/// A constructor parks the local for which the pool grows, so that another thread may take over the shard.
#[test]
#[cfg_attr(miri, ignore = "a busy thread takes all the time there")]
fn a_constructor_that_parks_the_local_takes_nothing_away() {
    thread_local! {
        static LOCAL: RefCell<Option<&'static Local<'static, u64>>> = const { RefCell::new(None) };
    }
    let make = || {
        if let Some(local) = LOCAL.with(|local| *local.borrow()) {
            local.park();
        }
        0
    };
    let most = 1_000;
    for cache in [0, 4] {
        let pool = Pool::builder(8, make)
            .bucket_bytes(64)
            .cache(cache)
            .max_objects(4_000)
            .growth_step(8)
            .build()
            .unwrap();
        let pool: &'static Pool<u64> = for_ever(pool);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // Takes over the parked shard.
                    drop(pool.local().unwrap().alloc());
                }
            });
            let local: &'static Local<'static, u64> = for_ever(pool.local().unwrap());
            LOCAL.with(|place| *place.borrow_mut() = Some(local));
            let mut objects: Vec<_> = (0..most).filter_map(|_| local.alloc()).collect();
            let mut many = Vec::new();
            local.alloc_many(100, &mut many).unwrap();
            let blocks: Vec<_> = (0..10).filter_map(|_| local.alloc_block()).collect();
            assert!(objects.len() > most * 9 / 10 && blocks.len() == 10);
            objects.append(&mut many);
            let addresses: std::collections::HashSet<_> =
                objects.iter().map(|object| &raw const **object).collect();
            assert_eq!(addresses.len(), objects.len());
            drop((objects, blocks));
            LOCAL.with(|place| *place.borrow_mut() = None);
            local.park();
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!((pool.stats().in_use, pool.stats().misuses), (0, 0));
        pool.audit().unwrap();
    }
}

/// A constructor that allocates from its own growing pool gets nothing, and does not deadlock.
#[test]
fn a_constructor_that_allocates_from_its_pool_gets_nothing() {
    thread_local! {
        static POOL: RefCell<Option<&'static Pool<u64>>> = const { RefCell::new(None) };
        static ASKED: RefCell<usize> = const { RefCell::new(0) };
    }
    let make = || {
        if let Some(pool) = POOL.with(|pool| *pool.borrow()) {
            let local = pool.local().unwrap();
            assert!(local.alloc().is_none());
            ASKED.with(|asked| *asked.borrow_mut() += 1);
        }
        7
    };
    let pool = Pool::builder(2, make).bucket_bytes(16).max_objects(4).growth_step(2).build().unwrap();
    let pool: &'static Pool<u64> = for_ever(pool);
    POOL.with(|place| *place.borrow_mut() = Some(pool));
    let local = pool.local().unwrap();
    let objects: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    assert_eq!((objects.len(), ASKED.with(|asked| *asked.borrow())), (4, 2));
}

#[test]
fn an_iterator_that_panics_loses_no_object() {
    let pool = Pool::builder(100, || 0u64).build().unwrap();
    let local = pool.local().unwrap();
    let mut many = Vec::new();
    local.alloc_many(80, &mut many).unwrap();
    let mut count = 0;
    let counted = many.into_iter().inspect(|_| {
        count += 1;
        assert_ne!(count, 70, "on purpose");
    });
    assert!(catch_unwind(AssertUnwindSafe(|| local.free_many(counted))).is_err());
    assert_eq!(pool.stats().in_use, 0);
}

/// A constructor panics while many objects are collected for the caller.
#[test]
fn a_growth_that_panics_loses_no_object() {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let make = move || {
        assert!(!failing.load(Ordering::Relaxed), "on purpose");
        0u64
    };
    // The larger numbers are more objects than are moved at a time.
    for (cache, capacity) in [(0, 8), (4, 8), (0, 150), (4, 150)] {
        fails.store(false, Ordering::Relaxed);
        let pool = Pool::builder(capacity, make.clone())
            .bucket_bytes(8)
            .cache(cache)
            .max_objects(400)
            .growth_step(40);
        let pool = pool.build().unwrap();
        let local = pool.local().unwrap();
        let one = local.alloc();
        fails.store(true, Ordering::Relaxed);
        let mut many = Vec::new();
        let all = pool.stats().capacity;
        assert!(catch_unwind(AssertUnwindSafe(|| local.alloc_many(all, &mut many).is_ok())).is_err());
        assert_eq!(
            (many.len(), pool.stats().in_use),
            (0, 1),
            "no object was allocated, although some were free"
        );
        drop((one, many));
        pool.audit().unwrap();
        fails.store(false, Ordering::Relaxed);
        let mut many = Vec::new();
        assert_eq!(local.alloc_many(all + 1, &mut many), Ok(()), "the pool grows");
    }
}

#[test]
fn two_locals_of_one_thread_share_nothing() {
    let pool = Pool::builder(1000, || 0u64).build().unwrap();
    let (first, second) = (pool.local().unwrap(), pool.local().unwrap());
    let (mut some, mut others) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        first.alloc_many(10, &mut some).unwrap();
        second.alloc_many(5, &mut others).unwrap();
        first.free_many(others.drain(..));
        some.truncate(some.len() - 5);
        second.free_many(some.drain(..3));
    }
    assert_eq!(pool.stats().in_use, some.len());
    drop(some);
    pool.audit().unwrap();
}
