//! stillpoint's pools as contenders, through their public interface.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

use stillpoint::pool::audit::Info;
use stillpoint::pool::raw::{RawBlock, RawLocal, RawPool};
use stillpoint::pool::{Bulk, Local, Pool, PoolBuilder};
use stillpoint_peers::pool::{OBJECT, PoolContender, PoolThread, Shape, plain, read_each};

use super::plan::CACHE;

/// As large as the buckets of DPDK, so that blocks have the same number of objects.
const BUCKET: usize = 64 << 10;
/// As large as those of the RFC.
const SMALL_BUCKET: usize = 32 << 10;

fn sized<P>(builder: PoolBuilder<P>, bucket: usize, cache: usize) -> PoolBuilder<P> {
    builder.bucket_bytes(bucket).cache(cache)
}

fn note(info: &Info) -> String {
    let backing = info.memory.first().map(|piece| piece.backing.to_string()).unwrap_or_default();
    format!("{backing}; stride {} bytes; compiled for any x86-64", info.stride)
}

/// Pieces of memory without a type.
pub(super) struct Bare(RawPool);

impl Bare {
    pub(super) fn with_capacity(objects: usize, cache: usize, small: bool) -> Result<Self, String> {
        let bucket = if small { SMALL_BUCKET } else { BUCKET };
        sized(RawPool::builder(objects, OBJECT, 64), bucket, cache)
            .build()
            .map(Self)
            .map_err(|error| error.to_string())
    }
}

impl PoolContender for Bare {
    fn cache(&self) -> Option<usize> {
        Some(self.0.info().cache)
    }

    fn block(&self) -> Option<usize> {
        Some(self.0.info().objects_per_block)
    }

    fn note(&self) -> String {
        note(&self.0.info())
    }

    fn thread(&self) -> Box<dyn PoolThread + '_> {
        let block = self.0.info().objects_per_block;
        Box::new(BareThread { local: self.0.local().expect("few threads use the pool"), block })
    }
}

struct BareThread<'p> {
    local: RawLocal<'p>,
    block: usize,
}

impl BareThread<'_> {
    /// Gets blocks, `each` of them in one call, and gives them back whole.
    fn whole_blocks(&self, blocks: usize, each: usize, turns: u64) -> bool {
        let mut kept: Vec<RawBlock> = Vec::with_capacity(blocks);
        let mut got = vec![MaybeUninit::uninit(); each];
        for _ in 0..turns {
            while kept.len() < blocks {
                let before = kept.len();
                match each {
                    1 => kept.extend(self.local.alloc_block()),
                    _ => {
                        let some = &mut got[..each.min(blocks - before)];
                        kept.extend(self.local.alloc_blocks(some).into_iter().flat_map(|blocks| &*blocks));
                    }
                }
                if kept.len() == before {
                    self.free_blocks(&mut kept);
                    return false;
                }
                for block in &kept[before..] {
                    for index in 0..block.len() {
                        read_each(&[block.get(index).expect("within the block").as_ptr()]);
                    }
                }
            }
            self.free_blocks(&mut kept);
        }
        true
    }

    /// Frees blocks that this thread has got.
    #[inline(always)]
    fn free_blocks(&self, blocks: &mut Vec<RawBlock>) {
        for block in blocks.drain(..) {
            // SAFETY: handed out by `whole_blocks`, and freed once.
            let answer = unsafe { self.local.free_block(block) };
            debug_assert!(answer.is_ok(), "{answer:?}");
        }
    }
}

impl PoolThread for BareThread<'_> {
    fn plain(&mut self, shape: Shape, turns: u64, objects: &mut [*mut u8]) -> bool {
        if shape.get == 1 && shape.put == 1 && shape.keep == 1 {
            for _ in 0..turns {
                let Some(object) = self.local.alloc() else { return false };
                read_each(&[object.as_ptr()]);
                // SAFETY: handed out above.
                let answer = unsafe { self.local.free(object) };
                debug_assert!(answer.is_ok(), "{answer:?}");
            }
            return true;
        }
        // The kinds of calls are distinguished once, and not for each bulk, as in C.
        match shape.put {
            1 => plain(&mut Singly(self), shape, turns, objects),
            _ => plain(self, shape, turns, objects),
        }
    }

    fn contiguous(&mut self, shape: Shape, turns: u64, objects: &mut [*mut u8]) -> Option<bool> {
        let (blocks, each) = shape.blocks(self.block);
        if shape.put == 0 {
            return Some(self.whole_blocks(blocks, each, turns));
        }
        debug_assert_eq!(each, 1, "many blocks in a call go back whole");
        let objects = &mut objects[..blocks * self.block];
        for _ in 0..turns {
            for place in objects.chunks_exact_mut(self.block) {
                let Some(block) = self.local.alloc_block() else { return Some(false) };
                for (index, object) in place.iter_mut().enumerate() {
                    *object = block.get(index).expect("within the block").as_ptr();
                }
                read_each(place);
            }
            match shape.put {
                1 => Singly(self).put(objects),
                put => objects.chunks(put).for_each(|objects| self.put(objects)),
            }
        }
        Some(true)
    }

    #[inline(always)]
    fn get(&mut self, objects: &mut [*mut u8]) -> bool {
        // SAFETY: places for addresses, which are written before they are read.
        let places = unsafe {
            slice::from_raw_parts_mut(objects.as_mut_ptr().cast::<MaybeUninit<NonNull<u8>>>(), objects.len())
        };
        self.local.alloc_many(places).is_ok()
    }

    #[inline(always)]
    fn put(&mut self, objects: &[*mut u8]) {
        // SAFETY: addresses that came from the pool, none of them null.
        let objects = unsafe { slice::from_raw_parts(objects.as_ptr().cast::<NonNull<u8>>(), objects.len()) };
        // SAFETY: the experiment gives back what it got.
        let answer = unsafe { self.local.free_many(objects) };
        debug_assert!(answer.is_ok(), "{answer:?}");
    }
}

/// Gives objects back one by one.
struct Singly<'t, 'p>(&'t mut BareThread<'p>);

impl PoolThread for Singly<'_, '_> {
    #[inline(always)]
    fn get(&mut self, objects: &mut [*mut u8]) -> bool {
        self.0.get(objects)
    }

    #[inline(always)]
    fn put(&mut self, objects: &[*mut u8]) {
        for object in objects {
            // SAFETY: the experiment gives back what it got, no null among it.
            let answer = unsafe { self.0.local.free(NonNull::new_unchecked(*object)) };
            debug_assert!(answer.is_ok(), "{answer:?}");
        }
    }
}

type Buffer = [u64; OBJECT / 8];

/// Initialised objects, which free themselves.
pub(super) struct Typed(Pool<Buffer>);

impl Typed {
    pub(super) fn with_capacity(objects: usize) -> Result<Self, String> {
        sized(Pool::builder(objects, || [0; OBJECT / 8]), BUCKET, CACHE)
            .build()
            .map(Self)
            .map_err(|error| error.to_string())
    }
}

impl PoolContender for Typed {
    fn cache(&self) -> Option<usize> {
        Some(self.0.info().cache)
    }

    fn note(&self) -> String {
        format!("{}; safe calls: owned objects, many at a time as a `Bulk`", note(&self.0.info()))
    }

    fn thread(&self) -> Box<dyn PoolThread + '_> {
        let local = self.0.local().expect("few threads use the pool");
        let kept = local.bulk(0);
        Box::new(TypedThread { local, kept })
    }
}

fn address(object: &Buffer) -> *mut u8 {
    std::ptr::from_ref(object).cast_mut().cast()
}

struct TypedThread<'p> {
    local: Local<'p, Buffer>,
    kept: Bulk<'p, Buffer>,
}

impl PoolThread for TypedThread<'_> {
    fn plain(&mut self, shape: Shape, turns: u64, _objects: &mut [*mut u8]) -> bool {
        if shape.get == 1 && shape.put == 1 && shape.keep == 1 {
            for _ in 0..turns {
                let Some(object) = self.local.alloc() else { return false };
                read_each(&[address(&object)]);
            }
            return true;
        }
        for _ in 0..turns {
            while self.kept.len() < shape.keep {
                let (before, some) = (self.kept.len(), shape.get.min(shape.keep - self.kept.len()));
                if self.local.alloc_bulk(some, &mut self.kept).is_err() {
                    self.local.free_bulk(usize::MAX, &mut self.kept);
                    return false;
                }
                // As in `read_each`.
                let read = |sum: u64, object| {
                    // SAFETY: an object of at least eight bytes.
                    sum.wrapping_add(unsafe { address(object).cast::<u64>().read_volatile() })
                };
                black_box(self.kept.iter().skip(before).fold(0, read));
            }
            if shape.put == 1 {
                while let Some(object) = self.kept.pop() {
                    self.local.free(object);
                }
            }
            while !self.kept.is_empty() {
                self.local.free_bulk(shape.put, &mut self.kept);
            }
        }
        true
    }

    fn get(&mut self, objects: &mut [*mut u8]) -> bool {
        if self.local.alloc_bulk(objects.len(), &mut self.kept).is_err() {
            return false;
        }
        let addresses = self.kept.drain_raw(objects.len());
        objects.iter_mut().zip(addresses).for_each(|(place, object)| *place = object.as_ptr().cast());
        true
    }

    fn put(&mut self, objects: &[*mut u8]) {
        // SAFETY: the experiment gives back what it got, which came from `drain_raw`.
        unsafe { self.kept.extend_raw(slice::from_raw_parts(objects.as_ptr().cast(), objects.len())) };
        self.local.free_bulk(usize::MAX, &mut self.kept);
    }
}
