//! How much work the calls of a pool do. The tests count steps: time depends on the machine.
//!
//! A step is a row that is read or taken, a bucket or a magazine that is moved, or an attempt to hold a shard.

use std::sync::Arc;

use super::geometry::Geometry;
use super::hold::Hold;
use super::{Core, Handle, Life, Plan};
use crate::pool::raw::FreeError;
use stillpoint_sys::linux::region::Want;
use stillpoint_sys::work::steps_of as steps;

const BUCKETS: u32 = 20_000;
/// The most steps of a call that collects once: for each row, a read, a merge, and moves between lists.
const ONCE: usize = 64 * 4;
/// The most further steps of a call.
const FEW: usize = 16;

fn pool(per_bucket: usize, buckets: u32, cache: usize) -> Arc<Core> {
    growing(per_bucket, buckets, buckets, cache)
}

/// A pool that grows by a bucket at a time, if it may have more than at first.
fn growing(per_bucket: usize, buckets: u32, most_buckets: u32, cache: usize) -> Arc<Core> {
    growing_by(per_bucket, buckets, most_buckets, cache, Life::default())
}

fn growing_by(per_bucket: usize, buckets: u32, most_buckets: u32, cache: usize, life: Life) -> Arc<Core> {
    let geometry = Geometry::new(8, 8, Some(8 * per_bucket), 1).expect("a small bucket");
    let plan = Plan {
        geometry,
        size: 8,
        buckets,
        most_buckets,
        step: 1,
        cache,
        common: false,
        high_water: None,
        locals: 8,
        hardened: false,
        counts_calls: false,
        want: Want { reserved: false, transparent: false, small: true, node: None },
    };
    Core::new(plan, life, None).expect("a little memory")
}

fn all(handle: &Handle<'_>) -> Vec<*mut u8> {
    std::iter::from_fn(|| handle.alloc()).map(|object| object.as_ptr()).collect()
}

/// Allocates until the pool is exhausted. No call may take more than `most` steps.
fn each_within(most: usize, handle: &Handle<'_>) -> usize {
    let mut count = 0;
    loop {
        let (steps, object) = steps(|| handle.alloc());
        assert!(steps <= most, "allocation {count} took {steps} steps");
        if object.is_none() {
            return count;
        }
        count += 1;
    }
}

/// Frees one object of each bucket remotely; the bucket's other object stays allocated.
fn one_of_each_is_sent(core: &Core, owner: &Handle<'_>) {
    all(owner).into_iter().step_by(2).for_each(|object| core.free_without_shard(object));
}

#[test]
fn an_owner_collects_a_limited_number_of_rows_at_a_time() {
    let core = pool(2, BUCKETS, 0);
    let owner = Handle::new(&core).unwrap();
    one_of_each_is_sent(&core, &owner);
    assert_eq!(each_within(ONCE + FEW, &owner), BUCKETS as usize);
}

/// This holds whatever the number of rows that come in later.
#[test]
fn rows_that_were_left_are_collected_before_those_that_came_later() {
    let core = pool(1, 100, 0);
    let owner = Handle::new(&core).unwrap();
    let mut objects = all(&owner);
    let late = objects.split_off(70);
    objects.into_iter().for_each(|object| core.free_without_shard(object));
    for waiting in [6, 30, 0] {
        assert!(owner.alloc().is_some());
        assert_eq!(core.audit().unwrap().on_their_way, waiting);
        if waiting == 6 {
            late.iter().for_each(|&object| core.free_without_shard(object));
        }
    }
}

#[test]
fn an_idle_owner_costs_others_what_they_take() {
    let core = pool(2, BUCKETS, 0);
    let (owner, needy) = (Handle::new(&core).unwrap(), Handle::new(&core).unwrap());
    one_of_each_is_sent(&core, &owner);
    assert_eq!(each_within(FEW, &needy), BUCKETS as usize);
}

#[test]
fn a_refill_from_an_idle_owner_costs_what_it_brings() {
    let core = pool(2, BUCKETS, 512);
    let (owner, needy) = (Handle::new(&core).unwrap(), Handle::new(&core).unwrap());
    one_of_each_is_sent(&core, &owner);
    assert_eq!(each_within(512 + 64 + FEW, &needy), BUCKETS as usize);
}

/// Of one row, and of four.
#[test]
fn single_objects_of_the_open_bucket_take_no_step() {
    for per_bucket in [8, 256] {
        let core = pool(per_bucket, 100, 0);
        let handle = Handle::new(&core).unwrap();
        let kept: Vec<_> = (0..per_bucket / 2 + 1).map(|_| handle.alloc().unwrap().as_ptr()).collect();
        let (steps, ()) = steps(|| {
            for _ in 0..100 {
                let object = handle.alloc().unwrap().as_ptr();
                // SAFETY: allocated just now, and freed once.
                unsafe { handle.free(object) }.unwrap();
            }
        });
        let audit = core.audit().unwrap();
        assert_eq!((steps, audit.stats.in_use, audit.buckets_partial), (0, kept.len(), 1));
        let counts = core.cache_stats()[0];
        assert_eq!((counts.drawn, counts.given), (kept.len() + 100, 100));

        // SAFETY: allocated above, and freed once.
        kept.iter().for_each(|&object| unsafe { handle.free(object) }.unwrap());
        // SAFETY: free already; refused without an effect, and counted.
        unsafe { handle.free(kept[0]) }.unwrap();
        // SAFETY: inside of an object.
        let answer = unsafe { handle.free(kept[0].wrapping_add(1)) };
        assert_eq!((answer, core.misuses()), (Err(FreeError::NotAnObject(0)), 1));
        let audit = core.audit().unwrap();
        assert_eq!((audit.stats.in_use, audit.buckets_partial), (0, 0));
    }
}

/// Whole buckets that a thread keeps, the open one among them, are no more than the mark.
#[test]
fn an_open_bucket_counts_for_the_mark() {
    let core = pool(4, 100, 0);
    let (handle, other) = (Handle::new(&core).unwrap(), Handle::new(&core).unwrap());
    let objects = all(&handle);
    // SAFETY: allocated, and freed once.
    objects.into_iter().for_each(|object| unsafe { handle.free(object) }.unwrap());
    let kept = core.audit().unwrap().buckets_whole;
    assert!(kept <= core.high_water() as usize, "{kept}");
    assert_eq!(all(&other).len(), (100 - kept) * 4);
}

/// Objects are taken from one bucket until it has none, and those that come back make others whole, which go to other threads.
#[test]
fn what_comes_back_makes_buckets_whole() {
    let core = pool(64, 64, 0);
    let (handle, other) = (Handle::new(&core).unwrap(), Handle::new(&core).unwrap());
    let mut state = 7_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    let mut out = all(&handle);
    (1..out.len()).rev().for_each(|last| out.swap(last, random(last + 1)));
    // SAFETY: allocated, and freed once.
    let free = |object| unsafe { handle.free(object) }.unwrap();
    out.drain(4 * 64..).for_each(free);
    for _ in 0..50_000 {
        free(out.swap_remove(random(out.len())));
        out.push(handle.alloc().unwrap().as_ptr());
    }
    let kept = core.high_water() as usize + 8;
    assert!(all(&other).len() >= (64 - kept) * 64, "{:?}", core.audit());
}

#[test]
fn a_magazine_passes_in_one_step() {
    let core = pool(2, 1000, 64);
    let (giver, taker) = (Handle::new(&core).unwrap(), Handle::new(&core).unwrap());
    for object in all(&giver) {
        // SAFETY: allocated, and freed once.
        let (steps, answer) = steps(|| unsafe { giver.free(object) });
        assert!(answer.is_ok() && steps <= 1, "{steps} steps");
    }
    assert!(core.depot.len() > 1900);
    for _ in 0..core.depot.len() {
        let (steps, object) = steps(|| taker.alloc());
        assert!(object.is_some() && steps <= 1, "{steps} steps");
    }
    assert_eq!(core.depot.len(), 0);
}

/// Calls for many objects look no bucket up, not even those of a thread that has taken a block once.
#[test]
fn a_call_for_many_objects_passes_magazines_through() {
    const MANY: usize = 1000;
    let core = pool(2, BUCKETS, 512);
    let handle = Handle::new(&core).unwrap();
    assert!(handle.alloc_block(1).is_some());
    let mut objects = vec![std::ptr::null_mut(); 20 * MANY];
    // SAFETY: there is room for them.
    assert!(unsafe { handle.alloc_many(objects.as_mut_ptr(), objects.len()) });
    for _ in 0..3 {
        for many in objects.chunks(MANY) {
            // SAFETY: allocated, and freed once.
            let (steps, answer) = steps(|| unsafe { handle.free_many(many) });
            assert!(answer.is_ok() && steps <= MANY / 256 + 1, "{steps} steps");
        }
        assert!(core.depot.len() > 19 * MANY);
        for many in objects.chunks_mut(MANY) {
            // SAFETY: there is room for them.
            let (steps, found) = steps(|| unsafe { handle.alloc_many(many.as_mut_ptr(), MANY) });
            assert!(found && steps <= MANY / 256 + 2, "{steps} steps");
        }
        assert_eq!((core.depot.len(), core.totals().1), (0, objects.len() + 2));
    }
    objects.sort_unstable();
    assert!(objects.windows(2).all(|two| two[0] < two[1]), "an object was allocated twice");
}

/// Otherwise, each step of the growth would begin with a search for all objects that there are.
#[test]
fn a_call_for_many_objects_grows_the_pool_once() {
    const MOST: u32 = 200;
    for cache in [0, 2 * MOST as usize] {
        let core = growing(2, 2, MOST, cache);
        let handle = Handle::new(&core).unwrap();
        let mut objects = vec![std::ptr::null_mut(); 2 * MOST as usize + 1];
        // SAFETY: there is room for them.
        let (taken, found) = steps(|| unsafe { handle.alloc_many(objects.as_mut_ptr(), objects.len()) });
        assert!(!found && taken == 0, "more than there may be: {taken} steps");
        assert_eq!((core.totals(), core.cache_stats()[0].failures), ((4, 0), 1));
        // SAFETY: there is room for them.
        let (taken, found) = steps(|| unsafe { handle.alloc_many(objects.as_mut_ptr(), objects.len() - 1) });
        // For each bucket, a move from the store, and one row.
        assert!(found && taken <= 2 * MOST as usize + FEW, "{taken} steps");
        core.audit().unwrap();
    }
}

/// Those before it are free, and those after it are not.
#[test]
fn a_stranger_among_many_objects_is_refused_by_its_index() {
    let core = pool(2, BUCKETS, 512);
    let handle = Handle::new(&core).unwrap();
    let mut objects = vec![std::ptr::null_mut(); 1000];
    // SAFETY: there is room for them.
    assert!(unsafe { handle.alloc_many(objects.as_mut_ptr(), objects.len()) });
    // More often than there are magazines: none gets lost.
    for stranger in [0, 100, 256, 700, 999].into_iter().cycle().take(500) {
        let foreign = (&raw mut objects).cast();
        let ours = std::mem::replace(&mut objects[stranger], foreign);
        // SAFETY: allocated, and freed once: the next line allocates those before the stranger again.
        let answer = unsafe { handle.free_many(&objects) };
        assert_eq!(answer, Err(FreeError::Foreign(stranger)));
        assert_eq!(core.totals().1, 1000 - stranger);
        objects[stranger] = ours;
        // SAFETY: there is room for them.
        assert!(unsafe { handle.alloc_many(objects.as_mut_ptr(), stranger) });
    }
    // SAFETY: allocated, and freed once.
    unsafe { handle.free_many(&objects) }.unwrap();
    assert!(core.depot.len() > 512);
    core.audit().unwrap();
}

#[test]
fn a_shard_that_was_left_is_collected_bit_by_bit() {
    let core = pool(2, BUCKETS, 0);
    let (owner, needy) = (Handle::new(&core).unwrap(), Handle::new(&core).unwrap());
    let objects = all(&owner);
    drop(owner);
    objects.into_iter().step_by(2).for_each(|object| core.free_without_shard(object));
    assert_eq!(each_within(ONCE + FEW, &needy), BUCKETS as usize);
}

/// Its buckets have a free object each, and its inbox has more rows than a call for many objects needs.
#[test]
fn many_objects_of_a_shard_that_was_left_cost_one_search() {
    const MANY: usize = 256;
    for cache in [0, 512] {
        let core = pool(2, BUCKETS, cache);
        let (owner, needy) = (Handle::new(&core).unwrap(), Handle::new(&core).unwrap());
        let objects = all(&owner);
        drop(owner);
        objects.into_iter().step_by(2).for_each(|object| core.free_without_shard(object));
        let mut some = [std::ptr::null_mut(); MANY];
        for _ in 0..BUCKETS as usize / MANY {
            // SAFETY: there is room for them.
            let (steps, found) = steps(|| unsafe { needy.alloc_many(some.as_mut_ptr(), MANY) });
            // For each object, a row is collected, its bucket put into a list, and the row drawn from.
            assert!(found && steps <= ONCE + 3 * MANY + FEW, "{steps} steps");
        }
        core.audit().unwrap();
    }
}

/// What it could not use is where another thread finds it.
#[test]
fn a_call_that_fails_keeps_nothing() {
    for count in [200, 400] {
        let core = pool(2, 150, 512);
        let (owner, needy) = (Handle::new(&core).unwrap(), Handle::new(&core).unwrap());
        let objects = all(&owner);
        drop(owner);
        let free = objects.iter().step_by(2).map(|&object| core.free_without_shard(object)).count();
        let mut some = [std::ptr::null_mut(); 400];
        // SAFETY: there is room for them.
        assert!(unsafe { !needy.alloc_many(some.as_mut_ptr(), count) });
        assert_eq!((free, core.totals(), core.audit().unwrap().cached), (150, (300, 150), 0));
        let other = Handle::new(&core).unwrap();
        // SAFETY: there is room for them.
        assert!(unsafe { other.alloc_many(some.as_mut_ptr(), free) });
    }
}

/// What a thread had in its cache before stays there: in its own buckets, other threads would not find it, while those whose shards are left
/// would be in its cache.
#[test]
fn a_call_that_fails_keeps_only_what_it_had() {
    for count in [200, 400] {
        let core = pool(2, 170, 512);
        let (owner, needy) = (Handle::new(&core).unwrap(), Handle::new(&core).unwrap());
        let own: Vec<_> = (0..40).map(|_| needy.alloc().unwrap()).collect();
        let objects = all(&owner);
        drop(owner);
        let free = objects.iter().step_by(2).map(|&object| core.free_without_shard(object)).count();
        // SAFETY: each was allocated, and is freed once.
        own.into_iter().for_each(|object| unsafe { needy.free(object.as_ptr()) }.unwrap());
        let had = core.audit().unwrap().cached;
        assert!(had > 0);
        let mut some = [std::ptr::null_mut(); 400];
        // SAFETY: there is room for them.
        assert!(unsafe { !needy.alloc_many(some.as_mut_ptr(), count) });
        assert_eq!(core.audit().unwrap().cached, had);
        let other = Handle::new(&core).unwrap();
        // SAFETY: there is room for them.
        assert!(unsafe { other.alloc_many(some.as_mut_ptr(), free) });
    }
}

/// A pool of 16 buckets without caches, of whose whole buckets a thread keeps one.
fn keeps_one_bucket(per_bucket: usize) -> Arc<Core> {
    let core = pool(per_bucket, 16, 0);
    assert_eq!(core.high_water(), 1);
    core
}

/// Whether the handle gets that many. They are not freed.
fn gets(handle: &Handle<'_>, count: usize) -> bool {
    let mut some = vec![std::ptr::null_mut(); count];
    // SAFETY: there is room for them.
    unsafe { handle.alloc_many(some.as_mut_ptr(), count) }
}

/// Two threads ask for more than there is. Then each finds all that there is, in whole buckets and in others, of one row and of four.
#[test]
fn calls_that_fail_keep_nothing_of_the_callers_own_buckets() {
    for per_bucket in [64, 256] {
        let core = keeps_one_bucket(per_bucket);
        let [one, other, third] = [(); 3].map(|()| Handle::new(&core).unwrap());
        assert!(gets(&third, 13 * per_bucket));
        // A broken bucket for each.
        assert!(gets(&one, 2) && gets(&other, 2));
        // Before a call has failed, others do not find what its thread has of the bucket that it has begun.
        for (handle, waiting) in [(&one, 1), (&other, 2), (&one, 2), (&other, 2)] {
            assert!(!gets(handle, 3 * per_bucket - 3));
            let audit = core.audit().unwrap();
            let expected = (1, waiting * (per_bucket - 2));
            assert_eq!((audit.buckets_in_store, audit.on_their_way), expected, "{audit:?}");
        }
        assert!(gets(&other, 3 * per_bucket - 4));
        core.audit().unwrap();
    }
}

/// Each of two threads had one of the two that were left.
#[test]
fn calls_that_fail_keep_no_whole_buckets() {
    let core = keeps_one_bucket(64);
    let [one, other, third] = [(); 3].map(|()| Handle::new(&core).unwrap());
    assert!(gets(&third, 14 * 64));
    assert!(!gets(&one, 3 * 64) && gets(&other, 2 * 64));
}

/// What another thread has freed, and the depot had, is not lost to that thread.
#[test]
fn a_block_that_is_not_found_leaves_what_was_in_the_depot() {
    let core = pool(64, 16, 64);
    let (owner, other) = (Handle::new(&core).unwrap(), Handle::new(&core).unwrap());
    let objects = all(&owner);
    for object in objects.chunks(64).flat_map(|bucket| &bucket[1..]) {
        // SAFETY: allocated, and freed once.
        unsafe { other.free(*object) }.unwrap();
    }
    let deposited = core.audit().unwrap().deposited;
    assert!(deposited > 900, "{deposited}");
    assert!(owner.alloc_block(1).is_none());
    assert_eq!((core.audit().unwrap().deposited, all(&other).len()), (0, 16 * 63));
}

/// A constructor panics while the pool grows.
#[test]
fn a_call_that_panics_keeps_nothing() {
    for cache in [0, 512] {
        let construct: Box<dyn Fn(*mut u8) + Send + Sync> = {
            let made = std::sync::atomic::AtomicUsize::new(0);
            Box::new(move |_| {
                let number = made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                assert!(number < 16 * 64, "on purpose");
            })
        };
        let core = growing_by(64, 16, 32, cache, Life { construct: Some(construct), ..Life::default() });
        let [one, other, third] = [(); 3].map(|()| Handle::new(&core).unwrap());
        assert!(gets(&third, 14 * 64));
        let call = std::panic::AssertUnwindSafe(|| gets(&one, 3 * 64));
        assert!(std::panic::catch_unwind(call).is_err());
        assert_eq!(core.audit().unwrap().cached, 0);
        assert!(gets(&other, 2 * 64));
    }
}

/// A thread that stays has all of many buckets in its inbox. A call for many objects goes through the shards once.
#[test]
fn many_objects_of_an_idle_owner_cost_one_search() {
    const MANY: usize = 256;
    for cache in [0, 512] {
        let core = pool(2, BUCKETS, cache);
        let owner = Handle::new(&core).unwrap();
        let others = [(); 7].map(|()| Handle::new(&core).unwrap());
        all(&owner).into_iter().for_each(|object| core.free_without_shard(object));
        for _ in 0..(2 * BUCKETS as usize - 2 * MANY) / MANY {
            let (steps, found) = steps(|| gets(&others[3], MANY));
            // For each bucket, a row is taken, the bucket put into a list, and the row drawn from; and looks at 8 shards.
            assert!(found && steps <= 3 * MANY / 2 + 2 * 8 + FEW, "{steps} steps");
        }
        core.audit().unwrap();
    }
}

/// A cache may want more than it has room for.
#[test]
fn what_is_drawn_from_an_inbox_has_room() {
    let core = pool(2, 600, 0);
    let (owner, needy) = (Handle::new(&core).unwrap(), Handle::new(&core).unwrap());
    one_of_each_is_sent(&core, &owner);
    let mut drawn = [std::ptr::null_mut(); 8];
    // SAFETY: `needy` holds its shard, and there is room for more than two objects.
    let got = unsafe { Hold::new(needy.shard()).obtain(drawn.as_mut_ptr(), 1, 4, 2) };
    assert_eq!((got, drawn.iter().filter(|object| !object.is_null()).count()), (2, 2));
}

/// The others are there for other threads.
#[test]
fn one_object_of_an_idle_owner_is_one() {
    let core = pool(2, 600, 512);
    let (owner, needy) = (Handle::new(&core).unwrap(), Handle::new(&core).unwrap());
    one_of_each_is_sent(&core, &owner);
    assert!(needy.alloc().is_some());
    let audit = core.audit().unwrap();
    assert_eq!((audit.cached, audit.on_their_way), (0, 599));
}

#[test]
fn buckets_are_claimed_one_by_one() {
    for block in [false, true] {
        let core = pool(2, BUCKETS, 0);
        let (owner, needy) = (Handle::new(&core).unwrap(), Handle::new(&core).unwrap());
        all(&owner).into_iter().for_each(|object| core.free_without_shard(object));
        for _ in 0..BUCKETS {
            let (steps, found) = steps(|| match block {
                true => needy.alloc_block(1).is_some(),
                false => needy.alloc().is_some() && needy.alloc().is_some(),
            });
            assert!(found && steps <= 2 * FEW, "{steps} steps");
        }
        assert!(needy.alloc().is_none());
    }
}

#[test]
fn a_bucket_of_many_rows_is_not_searched_for_each_object() {
    let rows = 1024;
    let core = pool(64 * rows, 2, 0);
    let owner = Handle::new(&core).unwrap();
    let objects = all(&owner);
    assert_eq!(objects.len(), 2 * 64 * rows);
    // Upwards, downwards, and scattered.
    let orders: [fn(usize, usize) -> usize; 3] =
        [|at, _| at, |at, len| len - 1 - at, |at, len| at * 7919 % len];
    for order in orders {
        for at in 0..objects.len() {
            let object = objects[order(at, objects.len())];
            // SAFETY: allocated, and freed once: 7919 is a prime that does not divide the number of objects.
            let (steps, answer) = steps(|| unsafe { owner.free(object) });
            assert!(answer.is_ok() && steps <= FEW, "{steps} steps");
        }
        assert_eq!(each_within(FEW, &owner), objects.len());
    }
    assert_eq!((core.misuses(), core.totals().1), (0, objects.len()));
    // When a block is allocated, its bucket also records that it has no free objects.
    objects.iter().for_each(|&object| core.free_without_shard(object));
    let block = owner.alloc_block(1).unwrap().as_ptr();
    let last = core.objects_from(block).last().unwrap();
    let other = owner.alloc_block(1).unwrap();
    // SAFETY: allocated above, and freed once.
    unsafe { owner.free(last) }.unwrap();
    let (steps, again) = steps(|| owner.alloc());
    assert!(again.map(|object| object.as_ptr()) == Some(last) && steps <= FEW, "{steps} steps");
    // SAFETY: the block was allocated above, and is freed once.
    unsafe { owner.free_block(other.as_ptr()) }.unwrap();
    core.audit().unwrap();
}

/// A bucket whose objects are all out gets back a few that lie far apart. What lies between them costs nothing.
#[test]
fn objects_far_apart_in_a_bucket_are_found_at_once() {
    let objects = 64 * 4096;
    for cache in [0, 512] {
        let core = pool(objects, 1, cache);
        let owner = Handle::new(&core).unwrap();
        let mut out = all(&owner);
        out.sort_unstable();
        let far_apart = [out[objects - 1], out[objects / 2], out[0], out[1]];
        assert_eq!(far_apart.map(|object| core.place_of(object).unwrap().row), [4095, 2048, 0, 0]);
        for by_another in [true, false] {
            for some in (1..=4).cycle().take(20) {
                for &object in &far_apart[..some] {
                    match by_another {
                        true => core.free_without_shard(object),
                        // SAFETY: allocated, and freed once.
                        false => unsafe { owner.free(object) }.unwrap(),
                    }
                }
                assert_eq!(each_within(some * FEW, &owner), some);
            }
        }
        core.audit().unwrap();
    }
}

#[test]
fn whole_buckets_move_by_the_batch() {
    let core = pool(64, BUCKETS / 20, 0);
    let owner = Handle::new(&core).unwrap();
    let (blocks, most): (Vec<_>, usize) = std::iter::from_fn(|| match steps(|| owner.alloc_block(1)) {
        (count, Some(block)) => Some((block, count)),
        (_, None) => None,
    })
    .fold((Vec::new(), 0), |(mut blocks, most), (block, count)| {
        blocks.push(block);
        (blocks, most.max(count))
    });
    assert!(most <= 64 + FEW, "a block took {most} steps");
    for block in blocks {
        // SAFETY: allocated above, and freed once.
        let (steps, answer) = steps(|| unsafe { owner.free_block(block.as_ptr()) });
        assert!(answer.is_ok() && steps <= 64 + FEW, "{steps} steps");
    }
}

#[test]
fn counts_look_at_no_bucket_and_a_handle_at_shards_only() {
    let core = pool(64, BUCKETS, 0);
    let (taken, handle) = steps(|| Handle::new(&core).unwrap());
    assert!(taken <= 2 * 8, "{taken} steps");
    let objects = all(&handle);
    objects.iter().for_each(|&object| core.free_without_shard(object));
    assert_eq!(steps(|| core.totals()), (0, (objects.len(), 0)));
}

/// An object inside a bucket is not a block.
#[test]
fn a_block_begins_with_its_bucket() {
    let core = pool(128, 1, 0);
    let handle = Handle::new(&core).unwrap();
    let start = handle.alloc_block(1).unwrap().as_ptr();
    for object in core.objects_from(start).skip(1) {
        // SAFETY: no block begins there, so the call frees nothing.
        let error = unsafe { handle.free_block(object) }.unwrap_err();
        assert_eq!(error, FreeError::NotAnObject(0));
    }
    assert_eq!(core.totals(), (128, 128));
    // SAFETY: allocated above, and freed once.
    unsafe { handle.free_block(start) }.unwrap();
    assert_eq!(core.totals(), (128, 0));
}

/// A thread has taken the row out of an inbox, and sends it back to the owner.
#[test]
fn what_is_freed_again_while_it_is_passed_on_counts_once() {
    let core = pool(2, 1, 0);
    let owner = Handle::new(&core).unwrap();
    let objects = all(&owner);
    core.free_without_shard(objects[0]);
    let row = owner.shard().take_posted();
    let bits = core.take_remote(row);
    core.free_without_shard(objects[0]);
    core.pass_on(row, bits);
    assert_eq!((core.misuses(), core.totals()), (1, (2, 1)));
    core.audit().unwrap();
}

/// Two threads leave lists at the same time, and a third list is posted meanwhile.
#[test]
fn no_row_is_lost_when_two_lists_are_left() {
    let core = pool(1, 9, 0);
    let owner = Handle::new(&core).unwrap();
    let objects = all(&owner);
    let shard = owner.shard();
    let mut left = Vec::new();
    for three in objects.chunks(3) {
        three.iter().for_each(|&object| core.free_without_shard(object));
        left.push(shard.take_posted());
    }
    left.iter().for_each(|&first| shard.leave_rest(&core.rows, first));
    core.audit().unwrap();
    assert_eq!(all(&owner).len(), 9);
}
