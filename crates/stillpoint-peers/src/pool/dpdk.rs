//! DPDK's `rte_mempool`.

use std::ffi::{CStr, CString, c_char};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::transmit::{Queues, transmit};
use super::{PoolContender, PoolThread, Shape};
use crate::c_functions::opaque;
use crate::table::ThreadNumber;

opaque! {
    pub(super) struct RawPool;
}

unsafe extern "C" {
    fn stillpoint_mempool_new(
        name: *const c_char,
        driver: *const c_char,
        count: u32,
        size: u32,
        cache: u32,
    ) -> *mut RawPool;
    fn stillpoint_mempool_free(pool: *mut RawPool);
    fn stillpoint_mempool_object(pool: *mut RawPool) -> u32;
    fn stillpoint_mempool_block(pool: *mut RawPool) -> u32;
    fn stillpoint_mempool_get(pool: *mut RawPool, objects: *mut *mut u8, count: u32) -> bool;
    fn stillpoint_mempool_put(pool: *mut RawPool, objects: *const *mut u8, count: u32);
    fn stillpoint_mempool_plain(
        pool: *mut RawPool,
        objects: *mut *mut u8,
        keep: u32,
        get: u32,
        put: u32,
        turns: u64,
    ) -> bool;
    fn stillpoint_mempool_blocks(
        pool: *mut RawPool,
        objects: *mut *mut u8,
        blocks: u32,
        each: u32,
        put: u32,
        turns: u64,
    ) -> bool;
}

pub(super) struct Mempool {
    pub(super) pool: NonNull<RawPool>,
    pub(super) cache: usize,
    pub(super) huge_pages: bool,
    /// Where its threads send packets, if they do.
    pub(super) queues: Option<Queues>,
}

// SAFETY: `rte_mempool`'s functions may be called from any thread, and the pool is freed once, by `Drop`.
unsafe impl Send for Mempool {}
// SAFETY: several threads may use an `rte_mempool` at the same time; the caches belong to DPDK's thread numbers.
unsafe impl Sync for Mempool {}

/// DPDK's name for a driver.
pub(super) fn driver(name: &str) -> Result<&'static CStr, String> {
    match name {
        "stillpoint" => Ok(c"stillpoint"),
        "bucket" => Ok(c"bucket"),
        "ring" => Ok(c"ring_mp_mc"),
        "stack" => Ok(c"stack"),
        _ => Err(format!("DPDK has no driver {name} here")),
    }
}

/// A name that no pool of this process has had.
pub(super) fn label() -> Result<CString, String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // Relaxed: the number only has to be unique; nothing is published with it.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    CString::new(format!("pool{number}")).map_err(|error| error.to_string())
}

/// A mempool of `objects` objects of `object` bytes. `name` is its driver: `stillpoint`, `bucket`, `ring` or `stack`. Each thread's cache holds
/// `cache` objects. Call [`initialise_dpdk`](crate::table::initialise_dpdk) first.
///
/// # Errors
/// If there is not enough memory, or no driver of this name.
pub fn mempool(
    name: &str,
    objects: usize,
    object: usize,
    cache: usize,
    huge_pages: bool,
) -> Result<Box<dyn PoolContender>, String> {
    let (ops, label) = (driver(name)?, label()?);
    let in_32_bits = |count| u32::try_from(count).map_err(|_| "a mempool counts in 32 bits".to_owned());
    let (count, bytes) = (in_32_bits(objects)?, in_32_bits(object)?);
    // SAFETY: both strings end with a zero, and the pool copies them.
    let pool = unsafe { stillpoint_mempool_new(label.as_ptr(), ops.as_ptr(), count, bytes, cache as u32) };
    let pool = NonNull::new(pool)
        .ok_or(format!("no memory for dpdk/{name}: reserve more huge pages in vm.nr_hugepages"))?;
    Ok(Box::new(Mempool { pool, cache, huge_pages, queues: None }))
}

impl Drop for Mempool {
    fn drop(&mut self) {
        // SAFETY: `stillpoint_mempool_new` or `stillpoint_transmit_pool` made the pool, and only `drop` frees it.
        unsafe { stillpoint_mempool_free(self.pool.as_ptr()) };
    }
}

impl PoolContender for Mempool {
    fn cache(&self) -> Option<usize> {
        Some(self.cache)
    }

    fn object(&self) -> usize {
        // SAFETY: the pool lives as long as `self`.
        unsafe { stillpoint_mempool_object(self.pool.as_ptr()) as usize }
    }

    fn block(&self) -> Option<usize> {
        // SAFETY: the pool lives as long as `self`.
        let block = unsafe { stillpoint_mempool_block(self.pool.as_ptr()) };
        (block > 0).then_some(block as usize)
    }

    fn note(&self) -> String {
        let pages = if self.huge_pages { "reserved huge pages" } else { "small pages" };
        format!("{pages}; compiled for this processor")
    }

    fn thread(&self) -> Box<dyn PoolThread + '_> {
        Box::new(Thread {
            pool: self,
            queue: self.queues.as_ref().map(Queues::next),
            _number: ThreadNumber::take(),
        })
    }
}

struct Thread<'p> {
    pool: &'p Mempool,
    /// The queue to which it sends packets.
    queue: Option<u16>,
    /// The thread's number in DPDK, which selects its cache.
    _number: ThreadNumber,
}

impl PoolThread for Thread<'_> {
    fn plain(&mut self, shape: Shape, turns: u64, objects: &mut [*mut u8]) -> bool {
        if let Some(queue) = self.queue {
            return transmit(self.pool.pool, queue, shape, turns, objects);
        }
        assert!(shape.keep <= objects.len(), "`objects` has room for fewer than `keep` objects");
        let (keep, get, put) = (shape.keep as u32, shape.get as u32, shape.put as u32);
        // SAFETY: `objects` has room for `keep` objects, and the pool lives as long as `self`.
        unsafe {
            stillpoint_mempool_plain(self.pool.pool.as_ptr(), objects.as_mut_ptr(), keep, get, put, turns)
        }
    }

    fn contiguous(&mut self, shape: Shape, turns: u64, objects: &mut [*mut u8]) -> Option<bool> {
        let block = self.pool.block()?;
        let (blocks, each) = shape.blocks(block);
        assert!(blocks * block <= objects.len(), "`objects` has room for fewer objects than the blocks have");
        assert!(each <= 64, "c/rte_mempool.c gets at most 64 blocks in a call");
        let put = if shape.put == 0 { block } else { shape.put };
        // SAFETY: `objects` has room for all objects of `blocks` blocks, and the pool lives as long as `self`.
        Some(unsafe {
            stillpoint_mempool_blocks(
                self.pool.pool.as_ptr(),
                objects.as_mut_ptr(),
                blocks as u32,
                each as u32,
                put as u32,
                turns,
            )
        })
    }

    fn get(&mut self, objects: &mut [*mut u8]) -> bool {
        // SAFETY: the slice has room for the number of objects that is passed.
        unsafe { stillpoint_mempool_get(self.pool.pool.as_ptr(), objects.as_mut_ptr(), objects.len() as u32) }
    }

    fn put(&mut self, objects: &[*mut u8]) {
        // SAFETY: the experiment puts back only objects that it got from this pool, each once.
        unsafe { stillpoint_mempool_put(self.pool.pool.as_ptr(), objects.as_ptr(), objects.len() as u32) };
    }
}
