//! Objects that come back to the pool after a grace period.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::Arc;

use stillpoint::pool::{Objects, Pool};
use stillpoint::rcu::Domain;

use crate::ending::Ending;

const ALIVE: u64 = 7;
const RESET: u64 = 13;

/// While a writer keeps replacing an object, readers under guards see no object that was allocated again.
#[test]
fn readers_never_see_an_object_that_was_reused() {
    let domain = Domain::new();
    let objects = Objects::new(|| RESET).reset(|value| *value = RESET);
    let pool = Pool::builder(64, objects).build().unwrap();
    let local = pool.local().unwrap();
    let make = || {
        let mut object = local.alloc()?;
        *object = ALIVE;
        Some(object.into_raw().as_ptr())
    };
    let current = AtomicPtr::new(make().unwrap());
    let (stop, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut reclaimer = domain.reclaimer();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _ending = Ending(|| stop.store(true, Ordering::Relaxed));
                let reader = domain.reader();
                while !stop.load(Ordering::Relaxed) {
                    let guard = reader.pin();
                    // SAFETY: unlinked objects are retired, and this guard is older.
                    let value = unsafe { &*current.load(Ordering::Acquire) };
                    for _ in 0..3 {
                        assert_eq!(*value, ALIVE);
                        std::thread::yield_now();
                    }
                    drop(guard);
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _ending = Ending(|| stop.store(true, Ordering::Relaxed));
        let mut replaced = 0;
        // A reader that fails stops all.
        while !stop.load(Ordering::Relaxed)
            && (replaced < if cfg!(miri) { 40 } else { 2_000 }
                || seen.load(Ordering::Relaxed) < if cfg!(miri) { 5 } else { 100 })
        {
            reclaimer.poll();
            let Some(new) = make() else {
                std::thread::yield_now();
                continue;
            };
            let old = current.swap(new, Ordering::AcqRel);
            // SAFETY: the address came from `into_raw`, and is not linked any more.
            let old = unsafe { pool.from_raw(old) }.unwrap();
            pool.retire(old, &mut reclaimer).unwrap();
            replaced += 1;
        }
    });
    reclaimer.flush().unwrap();
    assert_eq!(pool.stats().in_use, 1);
    // SAFETY: the address came from `into_raw`, and no reader is left.
    drop(unsafe { pool.from_raw(current.into_inner()) });
    assert_eq!(pool.audit().unwrap().stats.in_use, 0);
}

#[test]
fn a_full_reclaimer_hands_the_object_back() {
    let domain = Domain::new();
    let pool = Pool::new(4, || 0u64).unwrap();
    let local = pool.local().unwrap();
    let mut reclaimer = domain.reclaimer_builder().max_pending(1).build();
    let reader = domain.reader();
    let guard = reader.pin();
    pool.retire(local.alloc().unwrap(), &mut reclaimer).unwrap();
    assert_eq!(reclaimer.pending_bytes(), size_of::<u64>(), "the object counts with its size");
    let object = pool.retire(local.alloc().unwrap(), &mut reclaimer).unwrap_err();
    assert_eq!((*object, pool.stats().in_use), (0, 2));
    drop((object, guard));
    reclaimer.flush().unwrap();
    assert_eq!(pool.stats().in_use, 0);
}

/// The reclaimer outlives the pool. The objects are then dropped with their memory.
#[test]
fn an_object_that_waits_keeps_the_memory_of_its_pool() {
    #[derive(Debug)]
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let alive = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&alive);
    let domain = Domain::new();
    let mut reclaimer = domain.reclaimer();
    let pool = Pool::new(4, move || {
        counter.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(&counter))
    });
    let mut pool = pool.unwrap();
    let capacity = pool.stats().capacity;
    pool.retire(pool.local().unwrap().alloc().unwrap(), &mut reclaimer).unwrap();
    assert_eq!(pool.leaks().len(), 1, "an object that waits counts as allocated");
    drop(pool);
    assert_eq!(alive.load(Ordering::Relaxed), capacity);
    reclaimer.flush().unwrap();
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
#[should_panic(expected = "retired to another pool")]
fn an_object_of_another_pool_is_not_taken() {
    let domain = Domain::new();
    let (pool, another) = (Pool::new(4, || 0u64).unwrap(), Pool::new(4, || 0u64).unwrap());
    let local = another.local().unwrap();
    let _ = pool.retire(local.alloc().unwrap(), &mut domain.reclaimer());
}

/// The panic of another object's destructor must not free an object that readers may hold.
#[test]
fn a_panic_in_a_full_reclaimer_leaves_the_object_to_the_domain() {
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    let domain = Domain::new();
    let pool = Pool::new(2, || 0u64).unwrap();
    let mut reclaimer = domain.reclaimer_builder().max_pending(1).build();
    reclaimer.retire(domain.cell(Bomb).take().unwrap()).unwrap();
    let object = pool.local().unwrap().alloc().unwrap().into_raw();
    // SAFETY: the address came from `into_raw`, and nobody reads the object.
    let object = unsafe { pool.from_raw(object.as_ptr()) }.unwrap();
    let retires = std::panic::AssertUnwindSafe(|| pool.retire(object, &mut reclaimer).is_ok());
    assert!(std::panic::catch_unwind(retires).is_err());
    assert_eq!((pool.stats().in_use, domain.stats().pending), (1, 1));
    domain.barrier().unwrap();
    assert_eq!(pool.stats().in_use, 0);
}
