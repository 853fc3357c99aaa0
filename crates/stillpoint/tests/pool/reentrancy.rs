//! User code that changes, during a call, what the call works on.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};

use crate::kept::for_ever;
use stillpoint::pool::memory::Pages;
use stillpoint::pool::{Local, Obj, Objects, Pool};

/// A constructor parks the local for which the pool grows, and waits until another thread has taken over the shard.
#[test]
fn a_constructor_may_park_the_local_and_let_another_thread_have_its_shard() {
    static POOL: OnceLock<Pool<u64>> = OnceLock::new();
    static PARKS: AtomicBool = AtomicBool::new(false);
    static TAKEN: OnceLock<Barrier> = OnceLock::new();
    thread_local! {
        static LOCAL: OnceCell<Local<'static, u64>> = const { OnceCell::new() };
    }
    let taken = TAKEN.get_or_init(|| Barrier::new(2));
    let make = || {
        if PARKS.swap(false, Ordering::SeqCst) {
            LOCAL.with(|local| local.get().unwrap().park());
            TAKEN.get().unwrap().wait();
            TAKEN.get().unwrap().wait();
        }
        0
    };
    let pool =
        Pool::builder(8, make).bucket_bytes(64).cache(8).max_objects(24).growth_step(16).pages(Pages::Small);
    let pool = POOL.get_or_init(|| pool.build().unwrap());
    let own = |work: &dyn Fn(&Local<'static, u64>)| {
        LOCAL.with(|local| work(local.get_or_init(|| pool.local().unwrap())));
    };
    let kept = RefCell::new(Vec::new());
    own(&|local| local.alloc_many(8, &mut kept.borrow_mut()).unwrap());
    PARKS.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            taken.wait();
            let local = pool.local().unwrap();
            taken.wait();
            let got: Vec<_> = std::iter::from_fn(|| local.alloc()).take(8).collect();
            drop(got);
        });
        own(&|local| kept.borrow_mut().push(local.alloc().unwrap()));
    });
    let addresses: std::collections::HashSet<_> =
        kept.borrow().iter().map(|object| &raw const **object).collect();
    assert_eq!(addresses.len(), 9, "an object was allocated twice");
    drop(kept);
    assert_eq!((pool.stats().in_use, pool.stats().misuses), (0, 0));
    pool.audit().unwrap();
}

/// A reset parks the local. The allocated object still belongs to the shard that it came from.
#[test]
fn what_a_reset_parks_the_local_for_goes_back_to_its_shard() {
    thread_local! {
        static LOCAL: OnceCell<Local<'static, u64>> = const { OnceCell::new() };
        static PARKS: Cell<bool> = const { Cell::new(false) };
    }
    let park = |_: &mut u64| {
        if PARKS.replace(false) {
            LOCAL.with(|local| local.get().unwrap().park());
        }
    };
    let pool = Pool::builder(32, Objects::new(|| 0).reset(park))
        .bucket_bytes(64)
        .cache(0)
        .high_water(1)
        .pages(Pages::Small);
    let pool: &'static Pool<u64> = for_ever(pool.build().unwrap());
    type Work = fn(&Local<'static, u64>) -> Vec<Obj<'static, u64>>;
    let ways: [Work; 3] = [
        |local| local.alloc().into_iter().collect(),
        |local| {
            let mut two = Vec::new();
            local.alloc_many(2, &mut two).unwrap();
            two
        },
        |local| local.alloc_block().unwrap().into_iter().collect(),
    ];
    LOCAL.with(|local| local.set(pool.local().unwrap()).expect("the local is made once"));
    for way in ways {
        LOCAL.with(|local| {
            // `get_or_init` is avoided: Miri takes its reference for an exclusive one.
            let local = local.get().unwrap();
            PARKS.set(true);
            let objects = way(local);
            // The local takes hold of its shard again.
            drop(local.alloc());
            drop(objects);
            let audit = pool.audit().unwrap();
            assert_eq!(
                (audit.stats.in_use, audit.on_their_way),
                (0, 0),
                "the objects are back in the shard at once"
            );
        });
    }
}

/// A constructor may read the information of its growing pool, without a deadlock.
#[test]
fn a_constructor_may_ask_how_its_pool_is_made() {
    static POOL: OnceLock<Pool<u64>> = OnceLock::new();
    let make = || {
        if let Some(pool) = POOL.get() {
            assert_eq!(pool.info().memory.len(), 1, "the new piece is not ready yet");
            pool.audit().unwrap();
        }
        7
    };
    let pool = POOL.get_or_init(|| {
        Pool::builder(2, make).bucket_bytes(16).max_objects(4).growth_step(2).build().unwrap()
    });
    let local = pool.local().unwrap();
    let objects: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    assert_eq!((objects.len(), pool.info().memory.len()), (4, 2));
}
