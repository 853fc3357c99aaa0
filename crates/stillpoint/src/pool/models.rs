//! loom models of the pool, on the engine itself: remote frees, the inbox, the store, and shards that change their
//! holder.
//!
//! `RUSTFLAGS="--cfg stillpoint_loom --cfg stillpoint_busted" cargo test -p stillpoint --release --lib pool::models`
//!
//! Objects are addresses whose memory is not accessed. A cell beside each object says whether it is allocated, and loom
//! watches the accesses to the cell. So loom reports a free that does not happen before the next allocation, and an
//! object that two threads have.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

#[cfg(stillpoint_busted)]
use super::busted::{self, Variant};
use super::engine::geometry::Geometry;
use super::engine::{Core, Handle, Life, Plan};
use stillpoint_sys::linux::region::Want;

/// Loom's message when two accesses are not ordered.
#[cfg(stillpoint_busted)]
const UNORDERED: &str = "Causality violation";
/// Loom's message when a thread never ends: a list has become circular.
#[cfg(stillpoint_busted)]
const ENDLESS: &str = "exceeded maximum number of branches";
/// A model's message when the pool is not as it should be.
const LOST: &str = "an object was lost or allocated twice";

const OBJECT: usize = 8;

struct World {
    core: Arc<Core>,
    /// Whether each object is allocated.
    out: Vec<UnsafeCell<bool>>,
}

// SAFETY: the models check that accesses to `out` are ordered.
unsafe impl Sync for World {}
// SAFETY: the models check that accesses to `out` are ordered.
unsafe impl Send for World {}

impl World {
    /// A pool without caches. Shards keep up to `kept` whole buckets.
    fn new(per_bucket: usize, buckets: u32, locals: usize, kept: u32) -> Arc<Self> {
        Self::made(per_bucket, buckets, locals, kept, 0, false)
    }

    /// A small pool, of one bucket.
    fn small(per_bucket: usize) -> Arc<Self> {
        Self::made(per_bucket, 1, 3, 0, 0, true)
    }

    fn made(
        per_bucket: usize,
        buckets: u32,
        locals: usize,
        kept: u32,
        cache: usize,
        common: bool,
    ) -> Arc<Self> {
        let geometry =
            Geometry::new(OBJECT, OBJECT, Some(OBJECT * per_bucket), per_bucket).expect("a small bucket");
        let plan = Plan {
            geometry,
            size: OBJECT,
            buckets,
            most_buckets: buckets,
            step: 0,
            cache,
            common,
            high_water: Some(kept),
            locals,
            hardened: false,
            counts_calls: false,
            want: Want { reserved: false, transparent: false, small: true, node: None },
        };
        let core = Core::new(plan, Life::default(), None).expect("a model needs no memory");
        let out = (0..per_bucket * buckets as usize).map(|_| UnsafeCell::new(false)).collect();
        Arc::new(Self { core, out })
    }

    fn handle(&self) -> Handle<'_> {
        Handle::new(&self.core).expect("a shard is free")
    }

    fn cell(&self, object: *mut u8) -> &UnsafeCell<bool> {
        &self.out[self.core.offset_of(object).expect("one of the pool's") / OBJECT]
    }

    /// Records that an object was allocated.
    fn got(&self, object: *mut u8) {
        // SAFETY: the protocol under test gives the object to this thread only; loom reports it if another thread has
        // it, too.
        let before = self.cell(object).with_mut(|out| unsafe { std::mem::replace(&mut *out, true) });
        assert!(!before, "{LOST}");
    }

    fn gives_up(&self, object: *mut u8) {
        // SAFETY: the protocol under test lets only this thread give the object up; loom reports it if another thread
        // does, too.
        let before = self.cell(object).with_mut(|out| unsafe { std::mem::replace(&mut *out, false) });
        assert!(before, "{LOST}");
    }

    fn alloc(&self, handle: &Handle<'_>) -> Option<usize> {
        let object = handle.alloc()?.as_ptr();
        self.got(object);
        Some(object.addr())
    }

    fn must_alloc(&self, handle: &Handle<'_>) -> usize {
        self.alloc(handle).expect(LOST)
    }

    /// Frees without a shard.
    fn free(&self, object: usize) {
        let object = std::ptr::without_provenance_mut(object);
        self.gives_up(object);
        self.core.free_without_shard(object);
    }

    fn free_by(&self, handle: &Handle<'_>, object: usize) {
        let object = std::ptr::without_provenance_mut(object);
        self.gives_up(object);
        // SAFETY: given up just now; nothing accesses the memory.
        unsafe { handle.free(object) }.expect("an object of the pool");
    }

    /// Frees all in one call.
    fn free_many_by(&self, handle: &Handle<'_>, objects: &[usize]) {
        let objects: Vec<*mut u8> =
            objects.iter().map(|&object| std::ptr::without_provenance_mut(object)).collect();
        objects.iter().for_each(|&object| self.gives_up(object));
        // SAFETY: given up just now; nothing accesses the memory.
        unsafe { handle.free_many(&objects) }.expect("objects of the pool");
    }

    /// Allocates all in one call, or none.
    fn alloc_many(&self, handle: &Handle<'_>, count: usize) -> Vec<usize> {
        let mut objects = vec![std::ptr::null_mut(); count];
        // SAFETY: there is room for them.
        if !unsafe { handle.alloc_many(objects.as_mut_ptr(), count) } {
            return Vec::new();
        }
        objects.iter().for_each(|&object| self.got(object));
        objects.into_iter().map(|object| object.addr()).collect()
    }

    fn audit(&self) {
        self.core.audit().unwrap_or_else(|error| panic!("{LOST}: {error}"));
    }

    /// Checks, when no other thread is left, that `free` objects can be allocated and that everything adds up.
    fn holds(&self, free: usize) {
        self.audit();
        let handle = Handle::new(&self.core).expect(LOST);
        (0..free).for_each(|_| _ = self.must_alloc(&handle));
        assert!(self.alloc(&handle).is_none(), "{LOST}");
        assert_eq!(self.core.totals(), (self.out.len(), self.out.len()), "{LOST}");
        assert_eq!(self.core.misuses(), 0, "{LOST}");
    }
}

fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
    stillpoint_sys::busted::assert_reached();
}

fn spawn(world: &Arc<World>, work: impl FnOnce(&World) + 'static) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || work(&world))
}

/// Allocates an object, if there is one, and frees it.
fn take_one(world: &World) {
    let handle = world.handle();
    world.alloc(&handle).map(|object| world.free_by(&handle, object));
}

/// Two threads free two objects of a shard, while its owner allocates.
fn frees_against_owner(per_bucket: usize, buckets: u32) {
    let world = World::new(per_bucket, buckets, 1, 4);
    let owner = world.handle();
    let objects = [world.must_alloc(&owner), world.must_alloc(&owner)];
    let threads = objects.map(|object| spawn(&world, move |world| world.free(object)));
    let again = [world.alloc(&owner), world.alloc(&owner)];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    drop(owner);
    world.holds(2 - again.iter().flatten().count());
}

#[test]
fn remote_frees_of_one_bucket() {
    explore(3, || frees_against_owner(2, 1));
}

#[test]
fn remote_frees_of_two_buckets() {
    explore(3, || frees_against_owner(1, 2));
}

/// A row is posted again while its owner collects it, with another row after it in the list.
#[test]
fn a_row_is_posted_again_while_it_is_collected() {
    explore(2, || {
        let world = World::new(2, 2, 1, 4);
        let owner = world.handle();
        let [first, second, third] = [(); 3].map(|()| world.must_alloc(&owner));
        let one = spawn(&world, move |world| {
            world.free(third);
            world.free(first);
        });
        let other = spawn(&world, move |world| world.free(second));
        let again = [world.alloc(&owner), world.alloc(&owner)];
        one.join().unwrap();
        other.join().unwrap();
        drop(owner);
        world.holds(4 - again.iter().flatten().count());
    });
}

/// A thread ends while one of its objects is allocated. The object is freed meanwhile, and another thread takes over
/// the shard.
#[test]
fn an_owner_ends_with_an_object_out() {
    explore(3, || {
        let world = World::new(2, 1, 1, 4);
        let owner = world.handle();
        let object = world.must_alloc(&owner);
        let freer = spawn(&world, move |world| world.free(object));
        let heir = spawn(&world, |world| {
            if let Ok(handle) = Handle::new(&world.core) {
                world.alloc(&handle).map(|object| world.free_by(&handle, object));
            }
        });
        drop(owner);
        freer.join().unwrap();
        heir.join().unwrap();
        world.holds(2);
    });
}

/// A thread that finds nothing takes objects from a shard that another thread has left, or is leaving.
#[test]
fn an_exhausted_thread_takes_what_was_left() {
    explore(3, || {
        let world = World::new(2, 1, 2, 4);
        let owner = world.handle();
        let object = world.must_alloc(&owner);
        let other = spawn(&world, take_one);
        drop(owner);
        world.free(object);
        other.join().unwrap();
        world.holds(2);
    });
}

/// Buckets go through the store: one thread takes and gives while another thread takes.
#[test]
fn buckets_go_through_the_store() {
    explore(2, || {
        let world = World::new(1, 2, 2, 0);
        let other = spawn(&world, |world| {
            let handle = world.handle();
            let objects = [world.alloc(&handle), world.alloc(&handle)];
            objects.into_iter().flatten().for_each(|object| world.free_by(&handle, object));
        });
        let handle = world.handle();
        let (first, second) = (world.alloc(&handle), world.alloc(&handle));
        first.map(|object| world.free_by(&handle, object));
        other.join().unwrap();
        second.map(|object| world.free_by(&handle, object));
        drop(handle);
        world.holds(2);
    });
}

/// An owner holds its shard while another thread frees all its objects. A thread that needs an object gets one.
#[test]
fn a_bucket_is_rescued_from_its_owner() {
    explore(2, || {
        let world = World::new(2, 1, 2, 4);
        let owner = world.handle();
        let objects = [world.must_alloc(&owner), world.must_alloc(&owner)];
        let freer = spawn(&world, move |world| objects.into_iter().for_each(|object| world.free(object)));
        let needy = spawn(&world, take_one);
        let again = world.alloc(&owner);
        freer.join().unwrap();
        needy.join().unwrap();
        again.map(|object| world.free_by(&owner, object));
        drop(owner);
        world.holds(2);
    });
}

/// A thread sends one of the two objects of a bucket to the owner, and then runs `needs`. Meanwhile, the owner allocates. It frees the other
/// object before that if it `frees_first`, otherwise at the end.
fn one_of_two_is_sent(frees_first: bool, needs: impl Fn(&World) + Copy + Send + Sync + 'static) {
    explore(2, move || {
        let world = World::new(2, 1, 2, 4);
        let owner = world.handle();
        let (kept, sent) = (world.must_alloc(&owner), world.must_alloc(&owner));
        let needy = spawn(&world, move |world| {
            world.free(sent);
            needs(world);
        });
        if frees_first {
            world.free_by(&owner, kept);
        }
        let again = world.alloc(&owner);
        needy.join().unwrap();
        again.map(|object| world.free_by(&owner, object));
        if !frees_first {
            world.free_by(&owner, kept);
        }
        drop(owner);
        world.holds(2);
    });
}

/// A thread that looks for a whole bucket puts back bits that do not make one.
#[test]
fn a_block_is_looked_for_among_what_was_sent() {
    one_of_two_is_sent(false, |world| assert!(world.handle().alloc_block(1).is_none(), "{LOST}"));
}

/// An owner collects some of the rows in its inbox, and leaves the rest, which another thread takes.
#[test]
fn what_an_owner_has_left_is_taken_by_another_thread() {
    explore(2, || {
        let world = World::new(1, 3, 2, 4);
        let owner = world.handle();
        let objects = [(); 3].map(|()| world.must_alloc(&owner));
        let freer = spawn(&world, move |world| objects.into_iter().for_each(|object| world.free(object)));
        let needy = spawn(&world, |world| {
            let handle = world.handle();
            [(); 2].map(|()| world.alloc(&handle)).into_iter().flatten().for_each(|object| {
                world.free_by(&handle, object);
            });
        });
        let again = world.alloc(&owner);
        freer.join().unwrap();
        needy.join().unwrap();
        again.map(|object| world.free_by(&owner, object));
        drop(owner);
        world.holds(3);
    });
}

/// Two threads that take rows of the same shard leave a rest at the same time.
#[test]
fn two_threads_leave_rows_of_one_shard() {
    explore(2, || {
        let world = World::new(1, 4, 2, 4);
        let owner = world.handle();
        let objects = [(); 4].map(|()| world.must_alloc(&owner));
        objects[..2].iter().for_each(|&object| world.free(object));
        let needy = spawn(&world, take_one);
        objects[2..].iter().for_each(|&object| world.free(object));
        let again = world.alloc(&owner);
        needy.join().unwrap();
        again.map(|object| world.free_by(&owner, object));
        drop(owner);
        world.holds(4);
    });
}

/// Two threads free an object at once: one double free is reported, and the pool stays intact.
#[test]
fn a_double_free_is_found() {
    explore(3, || {
        let world = World::new(2, 1, 1, 4);
        let owner = world.handle();
        let object = world.must_alloc(&owner);
        let _kept = world.must_alloc(&owner);
        world.gives_up(std::ptr::without_provenance_mut(object));
        let threads = [(); 2].map(|()| {
            spawn(&world, move |world| {
                world.core.free_without_shard(std::ptr::without_provenance_mut(object))
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(world.alloc(&owner).is_some() && world.alloc(&owner).is_none(), "{LOST}");
        assert_eq!(world.core.misuses(), 1, "{LOST}");
        drop(owner);
        world.audit();
    });
}

/// A thread frees an object that is free in its bucket, and then the other object of the bucket. The remote word looks
/// like a whole bucket, and another thread needs one.
#[test]
fn a_double_free_does_not_make_a_bucket_whole() {
    explore(2, || {
        let world = World::new(2, 1, 2, 4);
        let owner = world.handle();
        let (first, second) = (world.must_alloc(&owner), world.must_alloc(&owner));
        world.free_by(&owner, first);
        let freer = spawn(&world, move |world| {
            world.core.free_without_shard(std::ptr::without_provenance_mut(first));
            world.free(second);
        });
        let needy = spawn(&world, take_one);
        freer.join().unwrap();
        needy.join().unwrap();
        assert!(world.alloc(&owner).is_some() && world.alloc(&owner).is_some(), "{LOST}");
        assert_eq!((world.alloc(&owner), world.core.misuses()), (None, 1), "{LOST}");
        drop(owner);
        world.audit();
    });
}

/// An owner allocates from a bucket while another thread takes one of its objects out of the inbox.
#[test]
fn an_object_is_taken_from_an_inbox_while_its_bucket_is_used() {
    one_of_two_is_sent(true, take_one);
}

/// A call for two objects fails, and its thread puts the one that it has drawn into its own inbox. Another thread frees the other object, and
/// takes one, or the bucket.
#[test]
fn a_call_that_fails_offers_what_it_has_drawn() {
    explore(2, || {
        let world = World::new(2, 1, 2, 4);
        let owner = world.handle();
        let object = world.must_alloc(&owner);
        let needy = spawn(&world, move |world| {
            world.free(object);
            take_one(world);
        });
        let both = world.alloc_many(&owner, 2);
        needy.join().unwrap();
        both.into_iter().for_each(|object| world.free_by(&owner, object));
        drop(owner);
        world.holds(2);
    });
}

/// A thread takes objects out of the only magazine, while another thread has more objects than its cache can hold.
#[test]
fn objects_pass_by_the_magazine() {
    explore(3, || {
        let world = World::made(1, 6, 2, 4, 2, false);
        let taker = world.handle();
        let objects = [(); 6].map(|()| world.must_alloc(&taker));
        objects[..3].iter().for_each(|&object| world.free_by(&taker, object));
        let cached = [(); 2].map(|()| world.must_alloc(&taker));
        let giver = spawn(&world, move |world| {
            let handle = world.handle();
            objects[3..].iter().for_each(|&object| world.free_by(&handle, object));
            world.alloc(&handle).map(|object| world.free_by(&handle, object));
        });
        let passed = world.must_alloc(&taker);
        giver.join().unwrap();
        cached.into_iter().chain([passed]).for_each(|object| world.free_by(&taker, object));
        drop(taker);
        world.holds(6);
    });
}

/// A thread takes many objects at a time, of which one comes out of the only magazine, while another thread puts many into it.
#[test]
fn many_objects_pass_by_the_magazine() {
    explore(3, || {
        let world = World::made(1, 6, 2, 4, 2, false);
        let taker = world.handle();
        let objects = world.alloc_many(&taker, 6);
        let (own, others) = (objects[..2].to_vec(), objects[2..].to_vec());
        world.free_many_by(&taker, &own);
        let giver = spawn(&world, move |world| {
            let handle = world.handle();
            world.free_many_by(&handle, &others[..2]);
            world.free_many_by(&handle, &others[2..]);
        });
        let taken = world.alloc_many(&taker, 3);
        giver.join().unwrap();
        world.free_many_by(&taker, &taken);
        drop(taker);
        world.holds(6);
    });
}

/// Two threads take and free the objects of a small pool. One of them also takes a block, if all are free.
#[test]
fn objects_in_common() {
    explore(3, || {
        let world = World::small(2);
        let other = spawn(&world, take_one);
        let handle = world.handle();
        let mine = [world.must_alloc(&handle), world.alloc(&handle).unwrap_or(0)];
        mine.into_iter().filter(|&object| object != 0).for_each(|object| world.free(object));
        if let Some(block) = handle.alloc_block(1) {
            let objects: Vec<_> = world.core.objects_from(block.as_ptr()).collect();
            objects.iter().for_each(|&object| world.got(object));
            objects.iter().for_each(|&object| world.gives_up(object));
            // SAFETY: given up just now; nothing accesses the memory.
            unsafe { handle.free_block(block.as_ptr()) }.expect("a block of the pool");
        }
        other.join().unwrap();
        drop(handle);
        world.holds(2);
    });
}

/// The model that catches each variant.
#[cfg(stillpoint_busted)]
const CAUGHT: &[(Variant, &str)] = &[
    (Variant::FreeRelaxed, "remote_frees_of_one_bucket"),
    (Variant::CollectRelaxed, "remote_frees_of_one_bucket"),
    (Variant::PostRelaxed, "remote_frees_of_two_buckets"),
    (Variant::InboxRelaxed, "remote_frees_of_two_buckets"),
    (Variant::NextAfterTake, "a_row_is_posted_again_while_it_is_collected"),
    (Variant::TakeUnposted, "remote_frees_of_one_bucket"),
    (Variant::PostAlways, "remote_frees_of_one_bucket"),
    (Variant::GiveRelaxed, "buckets_go_through_the_store"),
    (Variant::TakeRelaxed, "buckets_go_through_the_store"),
    (Variant::Untagged, "buckets_go_through_the_store"),
    (Variant::EmptiedEarly, "objects_pass_by_the_magazine"),
    (Variant::FreeCommonRelaxed, "objects_in_common"),
    (Variant::TakeCommonRelaxed, "objects_in_common"),
    (Variant::LeaveRelaxed, "an_owner_ends_with_an_object_out"),
    (Variant::AdoptRelaxed, "an_owner_ends_with_an_object_out"),
    (Variant::NeverLeft, "an_owner_ends_with_an_object_out"),
    (Variant::ClaimAnyhow, "a_bucket_is_rescued_from_its_owner"),
    (Variant::OpenEmpty, "a_bucket_is_rescued_from_its_owner"),
    (Variant::OpenInList, "an_exhausted_thread_takes_what_was_left"),
    (Variant::ClaimFree, "a_double_free_does_not_make_a_bucket_whole"),
    (Variant::RescueForgets, "a_block_is_looked_for_among_what_was_sent"),
    (Variant::RestRelaxed, "what_an_owner_has_left_is_taken_by_another_thread"),
    (Variant::RestForgotten, "what_an_owner_has_left_is_taken_by_another_thread"),
    (Variant::RestOverwrites, "two_threads_leave_rows_of_one_shard"),
];

#[cfg(stillpoint_busted)]
#[test]
fn every_variant_is_caught_by_its_model() {
    let signs = || vec![UNORDERED, LOST, ENDLESS];
    busted::assert_caught("pool::models", CAUGHT.iter().map(|&(variant, model)| (variant, model, signs())));
}
