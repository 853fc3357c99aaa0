//! Pools in Rust: object-pool and sharded-slab. Neither has a call that gets or puts several objects.

use super::{OBJECT, PoolContender, PoolThread};

type Buffer = Box<[u8; OBJECT]>;

struct ObjectPool(object_pool::Pool<Buffer>);

/// [`object_pool::Pool`]: a stack behind a lock.
pub fn object_pool(objects: usize) -> Box<dyn PoolContender> {
    Box::new(ObjectPool(object_pool::Pool::new(objects, || Box::new([0; OBJECT]))))
}

impl PoolContender for ObjectPool {
    fn note(&self) -> String {
        "boxes in a stack behind a lock".to_owned()
    }

    fn thread(&self) -> Box<dyn PoolThread + '_> {
        Box::new(BoxThread(&self.0))
    }
}

struct BoxThread<'p>(&'p object_pool::Pool<Buffer>);

impl PoolThread for BoxThread<'_> {
    #[inline(always)]
    fn get(&mut self, objects: &mut [*mut u8]) -> bool {
        for got in 0..objects.len() {
            let Some(object) = self.0.try_pull() else {
                self.put(&objects[..got]);
                return false;
            };
            objects[got] = Box::into_raw(object.detach().1).cast();
        }
        true
    }

    #[inline(always)]
    fn put(&mut self, objects: &[*mut u8]) {
        // SAFETY: the experiment puts back only objects that it got here, each once; they came from `Box::into_raw`.
        objects.iter().for_each(|object| self.0.attach(unsafe { Buffer::from_raw(object.cast()) }));
    }
}

/// An object with its key, by which it is freed.
struct Keyed {
    key: usize,
    _bytes: [u8; OBJECT],
}

impl Default for Keyed {
    fn default() -> Self {
        Self { key: 0, _bytes: [0; OBJECT] }
    }
}

impl sharded_slab::Clear for Keyed {
    fn clear(&mut self) {}
}

struct ShardedSlab(sharded_slab::Pool<Keyed>);

/// [`sharded_slab::Pool`]: lock-free slabs for each thread, without a limit.
pub fn sharded_slab() -> Box<dyn PoolContender> {
    Box::new(ShardedSlab(sharded_slab::Pool::new()))
}

impl PoolContender for ShardedSlab {
    fn note(&self) -> String {
        "lock-free; keys with generations; grows as needed".to_owned()
    }

    fn thread(&self) -> Box<dyn PoolThread + '_> {
        Box::new(SlabThread(&self.0))
    }
}

struct SlabThread<'p>(&'p sharded_slab::Pool<Keyed>);

impl PoolThread for SlabThread<'_> {
    #[inline(always)]
    fn get(&mut self, objects: &mut [*mut u8]) -> bool {
        for got in 0..objects.len() {
            let Some(mut object) = self.0.create() else {
                self.put(&objects[..got]);
                return false;
            };
            object.key = object.key();
            objects[got] = std::ptr::from_mut(&mut *object).cast();
        }
        true
    }

    #[inline(always)]
    fn put(&mut self, objects: &[*mut u8]) {
        for object in objects {
            // SAFETY: the experiment got the object from this pool and has not put it back yet, so it is a live `Keyed`.
            let key = unsafe { (*object.cast::<Keyed>()).key };
            self.0.clear(key);
        }
    }
}
