//! Pools that grow while several threads allocate.

use std::mem::MaybeUninit;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

use crate::asleep;
use stillpoint::pool::memory::Pages;
use stillpoint::pool::raw::{RawLocal, RawPool};
use stillpoint::pool::{Local, Obj, Pool};

/// A pool that begins with one bucket of eight objects. When the pool first grows, its constructor waits twice at the
/// barrier.
fn waits_once(maximum: usize, step: usize, fails: bool) -> (Pool<usize>, Arc<Barrier>) {
    let barrier = Arc::new(Barrier::new(2));
    let (made, meets) = (AtomicUsize::new(0), Arc::clone(&barrier));
    let make = move || {
        let number = made.fetch_add(1, Ordering::Relaxed);
        if number == 8 {
            meets.wait();
            meets.wait();
            assert!(!fails, "on purpose");
        }
        number
    };
    let pool = Pool::builder(8, make)
        .bucket_bytes(64)
        .cache(0)
        .high_water(1)
        .max_objects(maximum)
        .growth_step(step)
        .pages(Pages::Small);
    (pool.build().unwrap(), barrier)
}

/// Tells that a thread has ended, and has dropped what was made after this.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Whether the thread gets an object, at the latest when the other one has ended: until then, the other one's handle may have
/// all of the pool's free objects.
fn gets_one(local: &Local<'_, usize>, other: &AtomicBool) -> bool {
    loop {
        let is_last = other.load(Ordering::Acquire);
        if local.alloc().is_some() {
            return true;
        } else if is_last {
            return false;
        }
        std::thread::yield_now();
    }
}

/// One thread grows the pool while another waits for that. Returns the numbers of objects that they got.
fn two_growers(pool: &Pool<usize>, meet: &Barrier) -> [usize; 2] {
    let ended = [AtomicBool::new(false), AtomicBool::new(false)];
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let _ends = Ends(&ended[0]);
            let local = pool.local().unwrap();
            let kept: Vec<_> = (0..8).map(|_| local.alloc().unwrap()).collect();
            let more = catch_unwind(AssertUnwindSafe(|| gets_one(&local, &ended[1]))).unwrap_or(false);
            kept.into_iter().for_each(std::mem::forget);
            usize::from(more)
        });
        meet.wait();
        let (started, is_started) = channel();
        let second = scope.spawn({
            let ended = &ended;
            move || {
                let _ends = Ends(&ended[1]);
                let local = pool.local().unwrap();
                started.send(asleep::own()).unwrap();
                usize::from(gets_one(&local, &ended[0]))
            }
        });
        asleep::wait_until_asleep(is_started.recv().unwrap());
        meet.wait();
        [first.join().unwrap(), second.join().unwrap()]
    })
}

#[test]
fn a_thread_that_waited_for_another_one_to_grow_the_pool_does_not_grow_it_again() {
    // Two more buckets: a thread takes one at a time, so there is one for each.
    let (pool, meet) = waits_once(40, 16, false);
    assert_eq!(two_growers(&pool, &meet), [1, 1]);
    assert_eq!((pool.stats().capacity, pool.info().memory.len()), (24, 2));
}

#[test]
fn two_growers_do_not_exceed_the_maximum() {
    for (maximum, step) in [(16, 8), (32, 24), (32, usize::MAX)] {
        let (pool, meet) = waits_once(maximum, step, false);
        assert_eq!(two_growers(&pool, &meet), [1, 1]);
        assert_eq!(pool.stats().capacity, maximum);
        let local = pool.local().unwrap();
        let rest: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
        assert_eq!((rest.len(), pool.stats().capacity), (maximum - 8, maximum));
        drop(rest);
        pool.audit().unwrap();
    }
}

#[test]
fn a_thread_grows_the_pool_where_another_one_has_failed_to() {
    let (pool, meet) = waits_once(16, 8, true);
    assert_eq!(two_growers(&pool, &meet), [0, 1]);
    assert_eq!((pool.stats().capacity, pool.stats().in_use), (16, 8));
    pool.audit().unwrap();
}

/// Whether there is memory at an address of this process.
fn may_be_read(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| {
        let (range, rights) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|hex| usize::from_str_radix(hex, 16).unwrap());
        (start..end).contains(&address) && rights.starts_with('r')
    })
}

#[test]
fn memory_whose_constructor_panics_is_given_back() {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let make = move || {
        assert!(!failing.load(Ordering::Relaxed), "on purpose");
        0u64
    };
    let pool = Pool::builder(8192, make)
        .bucket_bytes(1 << 16)
        .cache(0)
        .max_objects(16_384)
        .growth_step(8192)
        .pages(Pages::Small);
    let pool = pool.build().unwrap();
    let local = pool.local().unwrap();
    let _all: Vec<_> = (0..8192).map(|_| local.alloc().unwrap()).collect();
    let piece = pool.info().memory[0];
    let next = piece.start + piece.bytes;
    fails.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| local.alloc())).is_err());
    assert!(may_be_read(piece.start) && !may_be_read(next));
    fails.store(false, Ordering::Relaxed);
    assert!(local.alloc().is_some());
    assert_eq!(pool.info().memory[1].start, next);
    assert!(may_be_read(next));
}

/// The last step is shorter, and no thread gets an object that does not exist.
#[test]
fn many_growers_get_each_object_once() {
    let pool = Pool::builder(1, || AtomicBool::new(false))
        .bucket_bytes(8)
        .cache(0)
        .high_water(1)
        .max_objects(203)
        .growth_step(10)
        .pages(Pages::Small);
    let pool = pool.build().unwrap();
    let barrier = Barrier::new(4);
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let work = || {
            let local = pool.local().unwrap();
            barrier.wait();
            let mine: Vec<Obj<'_, AtomicBool>> = std::iter::from_fn(|| local.alloc()).collect();
            assert!(mine.iter().all(|object| !object.swap(true, Ordering::Relaxed)), "allocated twice");
            mine.into_iter().map(std::mem::forget).count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(counts.iter().sum::<usize>(), 203);
    assert_eq!((pool.stats().in_use, pool.info().memory.len()), (203, 1 + 21));
    pool.audit().unwrap();
}

/// Address space and headers are reserved for the maximum, so a maximum has limits.
#[test]
fn a_maximum_is_checked_against_what_can_be_counted() {
    for (maximum, step) in [(usize::MAX, 1), (1 << 45, 1), (usize::MAX, usize::MAX)] {
        let error = Pool::builder(8, || 0usize)
            .bucket_bytes(64)
            .max_objects(maximum)
            .growth_step(step)
            .build()
            .unwrap_err();
        assert!(error.to_string().contains("cannot be made"), "{error}");
    }
}

/// Whether the local gets that many objects at once. They are not freed.
fn gets_many(local: &RawLocal<'_>, count: usize) -> bool {
    local.alloc_many(&mut vec![MaybeUninit::uninit(); count]).is_ok()
}

fn gets_blocks(local: &RawLocal<'_>, count: usize) -> bool {
    local.alloc_blocks(&mut vec![MaybeUninit::uninit(); count]).is_ok()
}

/// What the pool could not have even if it grew does not make it grow.
#[test]
fn a_pool_does_not_grow_for_a_call_that_fails_nevertheless() {
    for cache in [0, 64, 640] {
        let pool = RawPool::builder(64, 64, 64).bucket_bytes(512).max_objects(640).growth_step(8);
        let pool = pool.cache(cache).high_water(1).count_calls(true).pages(Pages::Small).build().unwrap();
        let local = pool.local().unwrap();
        for many in [641, 1 << 20] {
            assert!(!gets_many(&local, many) && !gets_blocks(&local, many), "{many}");
        }
        let (calls, failures) = (pool.call_stats(), pool.cache_stats()[0].failures);
        assert_eq!((calls.failed_gets, calls.not_got), (2, 641 + (1 << 20)));
        assert_eq!((calls.gets, calls.failed_block_gets, failures), (0, 2, 4));
        assert_eq!((pool.stats().capacity, pool.stats().in_use), (64, 0));
        // All of them are possible, but not while one is in use.
        let object = local.alloc().unwrap();
        assert!(!gets_many(&local, 640) && !gets_blocks(&local, 80));
        assert_eq!((pool.stats().capacity, pool.stats().in_use), (64, 1));
        // SAFETY: allocated above, and not used any more.
        unsafe { local.free(object) }.unwrap();
        assert!(if cache == 0 { gets_blocks(&local, 80) } else { gets_many(&local, 640) });
        assert_eq!(pool.stats().capacity, 640);
        pool.audit().unwrap();
    }
}

/// Address space is reserved for one step after the other.
#[test]
fn steps_that_are_added_at_once_fit_into_what_was_reserved() {
    const BUCKET: usize = 64 << 10;
    // Of 64 KiB, 1.5 MiB, 2 MiB, and 3 MiB.
    for step in [1, 24, 32, 48] {
        for together in [2, 3, 7] {
            let most = 1 + 12 * step + 1;
            let builder = RawPool::builder(1, BUCKET, 64).bucket_bytes(BUCKET).stride(BUCKET).cache(0);
            let builder = builder.max_objects(most).growth_step(step).pages(Pages::Small);
            let pool = builder.build().unwrap();
            let local = pool.local().unwrap();
            let mut got = 0;
            for steps in [1, together].into_iter().cycle() {
                let count = if got == 0 { 1 + step } else { (steps * step).min(most - got) };
                if count == 0 {
                    break;
                }
                assert!(gets_many(&local, count), "{got} of {most} by steps of {step}");
                got += count;
            }
            assert_eq!((got, pool.stats().capacity), (most, most));
            let pieces = pool.info().memory;
            assert!(pieces.windows(2).all(|two| two[0].start + two[0].bytes <= two[1].start));
            assert!(pieces.iter().all(|piece| may_be_read(piece.start + piece.bytes - 1)));
            pool.audit().unwrap();
        }
    }
}
