//! Layouts and memory of the user, several blocks at a time, and the counts of caches.

use std::alloc::{alloc, dealloc, Layout};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use stillpoint::pool::memory::Backing;
use stillpoint::pool::raw::RawPool;
use stillpoint::pool::{BuildError, Objects, Pool};

/// Memory that records when it was given back.
struct Region {
    start: NonNull<u8>,
    layout: Layout,
    released: Arc<AtomicUsize>,
}

impl Region {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, 64).unwrap();
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc(layout) }).expect("a little memory");
        Self { start, layout, released: Arc::default() }
    }

    fn release(&self) -> impl FnOnce() + Send + Sync + 'static {
        let (start, layout, released) =
            (self.start.as_ptr().expose_provenance(), self.layout, Arc::clone(&self.released));
        move || {
            released.fetch_add(1, Ordering::SeqCst);
            // SAFETY: allocated with this layout, and not used any more.
            unsafe { dealloc(std::ptr::with_exposed_provenance_mut(start), layout) };
        }
    }

    fn released(&self) -> usize {
        self.released.load(Ordering::SeqCst)
    }
}

#[test]
fn a_pool_lies_in_memory_that_was_given() {
    let region = Region::new(64 << 10);
    // SAFETY: only the pool uses it, until it is released.
    let builder = unsafe { RawPool::builder(64, 256, 64).memory(region.start, 64 << 10, region.release()) };
    let pool = builder.stride(256).bucket_bytes(4096).build().unwrap();
    let info = pool.info();
    assert_eq!((info.stride, info.objects_per_block, info.memory.len()), (256, 16, 1));
    assert_eq!((info.memory[0].start, info.memory[0].backing), (region.start.addr().get(), Backing::Given));
    let local = pool.local().unwrap();
    let mut objects = [const { MaybeUninit::uninit() }; 64];
    let objects = local.alloc_many(&mut objects).unwrap();
    assert!(local.alloc().is_none(), "it does not grow");
    for object in objects.iter() {
        // SAFETY: the object has 256 bytes, which only this thread has.
        unsafe { object.write_bytes(0xAB, 256) };
        assert_eq!((object.addr().get() - region.start.addr().get()) % 256, 0);
        assert_eq!(pool.iova(*object), None);
    }
    // SAFETY: allocated above, and not used any more.
    unsafe { local.free_many(objects) }.unwrap();
    pool.audit().unwrap();
    drop(local);
    assert_eq!(region.released(), 0);
    drop(pool);
    assert_eq!(region.released(), 1);
}

/// Objects are dropped before their memory is given back, even if a constructor panics.
#[test]
fn typed_objects_live_in_memory_that_was_given() {
    for panics in [false, true] {
        let region = Region::new(1 << 16);
        let made = Arc::new(AtomicUsize::new(0));
        let make = {
            let (made, released) = (Arc::clone(&made), Arc::clone(&region.released));
            move || {
                assert!(!panics || made.fetch_add(1, Ordering::SeqCst) < 5, "on purpose");
                Counted(Arc::clone(&released), Box::new(7))
            }
        };
        // SAFETY: only the pool uses it, until it is released.
        let builder =
            unsafe { Pool::builder(100, Objects::new(make)).memory(region.start, 1 << 16, region.release()) };
        let built = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| builder.build().unwrap()));
        assert_eq!(built.is_err(), panics);
        if let Ok(pool) = built {
            let local = pool.local().unwrap();
            assert_eq!(*local.alloc().unwrap().1, 7);
            drop(local);
            drop(pool);
        }
        assert_eq!(region.released(), 1);
    }
}

/// An object whose drop checks that its memory was not given back yet.
struct Counted(Arc<AtomicUsize>, Box<u64>);

impl Drop for Counted {
    fn drop(&mut self) {
        assert_eq!(self.0.load(Ordering::SeqCst), 0, "dropped in memory that was given back");
    }
}

#[test]
fn memory_that_does_not_do_is_handed_back() {
    let refused = |bytes: usize, shift: usize, most: Option<usize>| {
        let region = Region::new(64 << 10);
        // SAFETY: the memory is within the region, and only the pool uses it.
        let builder = unsafe {
            RawPool::builder(64, 256, 64).bucket_bytes(4096).stride(256).memory(
                region.start.add(shift),
                bytes,
                region.release(),
            )
        };
        let builder = if let Some(most) = most { builder.max_objects(most) } else { builder };
        let error = builder.build().unwrap_err();
        assert_eq!(region.released(), 1);
        assert!(error.to_string().contains("16384"), "{error}");
        let BuildError::Given { bytes, needed } = error else { panic!("{error}") };
        (bytes, needed)
    };
    assert_eq!(refused(16_383, 0, None), (16_383, 16_384));
    assert_eq!(refused(16_384, 8, None), (16_384, 16_384));
    assert_eq!(refused(60_000, 0, Some(1_000)), (60_000, 16_384));
    // After an impossible layout, the memory is handed back, too.
    let region = Region::new(4096);
    // SAFETY: the pool cannot be built, so nothing uses the memory.
    let builder = unsafe { RawPool::builder(1, 0, 8).memory(region.start, 4096, region.release()) };
    assert!(matches!(builder.build(), Err(BuildError::Object { size: 0, align: 8 })));
    assert_eq!(region.released(), 1);
}

#[test]
fn blocks_come_all_or_none() {
    let raw = RawPool::builder(256, 64, 64).bucket_bytes(4096).stride(64).build().unwrap();
    let local = raw.local().unwrap();
    let mut five = [const { MaybeUninit::uninit() }; 5];
    assert!(local.alloc_blocks(&mut five).is_err());
    assert_eq!(raw.stats().in_use, 0);
    let first = local.alloc_blocks(&mut five[..1]).unwrap()[0];
    assert!(local.alloc_blocks(&mut five[..4]).is_err());
    assert_eq!(raw.stats().in_use, 64);
    assert!(local.alloc_blocks(&mut []).is_ok());
    let three = local.alloc_blocks(&mut five[..3]).unwrap();
    assert_eq!((three.len(), raw.stats().available), (3, 0));
    let mut starts: Vec<_> =
        three.iter().chain([&first]).map(|block| block.start().as_ptr().addr()).collect();
    starts.sort_unstable();
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == 4096));
    for block in three.iter().chain([&first]) {
        // SAFETY: allocated above, and not used.
        unsafe { local.free_block(*block) }.unwrap();
    }
    raw.audit().unwrap();
    assert_eq!(raw.stats().in_use, 0);
}

#[test]
fn each_cache_counts_what_has_passed_it() {
    let pool = RawPool::builder(1_000, 64, 64).bucket_bytes(4096).stride(64).build().unwrap();
    let per_block = pool.info().objects_per_block;
    let local = pool.local().unwrap();
    let mut objects = [const { MaybeUninit::uninit() }; 600];
    let objects = local.alloc_many(&mut objects).unwrap();
    let one = local.alloc().unwrap();
    let block = local.alloc_block().unwrap();
    // SAFETY: allocated above, and not used.
    unsafe { local.free_many(&objects[..500]) }.unwrap();
    // SAFETY: allocated above, and not used.
    unsafe { local.free(one) }.unwrap();
    let mut far_too_many = vec![MaybeUninit::uninit(); 100_000];
    assert!(local.alloc_many(&mut far_too_many).is_err());
    let all: Vec<_> = std::iter::from_fn(|| local.alloc_block()).collect();
    // SAFETY: nothing is freed.
    let nothing = unsafe { local.free_many(&[]) };
    assert!(local.alloc_many(&mut []).is_ok() && nothing.is_ok(), "not counted");
    let stats = pool.cache_stats()[0];
    // 601 were allocated, and 501 freed.
    assert_eq!(stats.drawn - stats.given - stats.cached, 100);
    assert!(stats.drawn >= 601 && stats.given > 0, "too few were counted: {stats:?}");
    assert_eq!((stats.blocks_got, stats.blocks_put, stats.failures), (1 + all.len(), 0, 2));
    for block in all.into_iter().chain([block]) {
        // SAFETY: allocated above, and freed once.
        unsafe { local.free_block(block) }.unwrap();
    }
    // Another thread frees the rest.
    let rest: Vec<usize> = objects[500..].iter().map(|object| object.as_ptr().expose_provenance()).collect();
    std::thread::scope(|scope| {
        let pool = &pool;
        scope.spawn(move || {
            let local = pool.local().unwrap();
            for object in rest {
                let object = NonNull::new(std::ptr::with_exposed_provenance_mut(object)).unwrap();
                // SAFETY: allocated above, and not used.
                unsafe { local.free(object) }.unwrap();
            }
        });
    });
    let caches = pool.cache_stats();
    let sum = |of: fn(&stillpoint::pool::audit::CacheStats) -> usize| caches.iter().map(of).sum::<usize>();
    assert_eq!((caches[1].drawn, caches[1].given + caches[1].cached), (0, 100));
    let out = sum(|stats| stats.drawn) - sum(|stats| stats.given + stats.cached);
    let blocks = sum(|stats| stats.blocks_got) - sum(|stats| stats.blocks_put);
    assert_eq!((out + blocks * per_block, pool.stats().in_use), (0, 0));
}

/// Typed objects that are dropped on the thread that allocated them are counted, hardened or not.
#[test]
fn typed_calls_are_counted_alike() {
    for hardened in [false, true] {
        let pool = Pool::builder(1_000, || 0u64).hardened(hardened).build().unwrap();
        let local = pool.local().unwrap();
        let mut objects = Vec::new();
        local.alloc_many(100, &mut objects).unwrap();
        let mut bulk = local.bulk(50);
        local.alloc_bulk(50, &mut bulk).unwrap();
        objects.truncate(60);
        local.free_many(objects.drain(30..));
        local.free(objects.pop().unwrap());
        local.free_bulk(20, &mut bulk);
        drop(local.alloc_block());
        let stats = pool.cache_stats()[0];
        let out = 150 - (40 + 30 + 1 + 20);
        assert_eq!(stats.drawn - stats.given - stats.cached, out, "hardened: {hardened}");
        assert_eq!((stats.blocks_got, stats.blocks_put, stats.failures), (1, 1, 0));
        assert_eq!(pool.stats().in_use, out);
    }
}
