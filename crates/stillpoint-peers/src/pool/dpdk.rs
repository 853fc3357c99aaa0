//! DPDK's `rte_mempool`.

use std::ffi::{CStr, CString, c_char};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{PoolContender, PoolThread, Shape};
use crate::table::ThreadNumber;

#[repr(C)]
pub(super) struct RawPool {
    opaque: [u8; 0],
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
    pub(super) name: &'static str,
    pub(super) cache: usize,
    pub(super) huge_pages: bool,
}

// SAFETY: the pool is for several threads.
unsafe impl Send for Mempool {}
// SAFETY: several threads may use the pool at the same time.
unsafe impl Sync for Mempool {}

/// The contender with a driver of this name, and DPDK's name for it.
pub(super) fn driver(name: &str) -> Result<(&'static str, &'static CStr), String> {
    match name {
        "bucket" => Ok(("dpdk/bucket", c"bucket")),
        "ring" => Ok(("dpdk/ring", c"ring_mp_mc")),
        "stack" => Ok(("dpdk/stack", c"stack")),
        _ => Err(format!("DPDK has no driver {name} here")),
    }
}

/// A name that no pool had before.
pub(super) fn label() -> Result<CString, String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // Relaxed: any number that was not used before.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    CString::new(format!("pool{number}")).map_err(|error| error.to_string())
}

/// A mempool with the driver `bucket`, `ring` or `stack`, of objects of that many bytes, and with caches of `cache` objects. The
/// layer has to be initialised
/// ([`initialise_dpdk`](crate::table::initialise_dpdk)).
///
/// # Errors
/// When there is no memory for it, or no such driver.
pub fn mempool(
    name: &str,
    objects: usize,
    object: usize,
    cache: usize,
    huge_pages: bool,
) -> Result<Box<dyn PoolContender>, String> {
    let (name, ops) = driver(name)?;
    let label = label()?;
    let in_32_bits = |count| u32::try_from(count).map_err(|_| "a mempool counts in 32 bits".to_owned());
    let (count, bytes) = (in_32_bits(objects)?, in_32_bits(object)?);
    // SAFETY: two strings, which the pool copies.
    let pool = unsafe { stillpoint_mempool_new(label.as_ptr(), ops.as_ptr(), count, bytes, cache as u32) };
    let pool = NonNull::new(pool)
        .ok_or(format!("no memory for {name}: reserve more huge pages in vm.nr_hugepages"))?;
    Ok(Box::new(Mempool { pool, name, cache, huge_pages }))
}

impl Drop for Mempool {
    fn drop(&mut self) {
        // SAFETY: from `stillpoint_mempool_new`, and freed once.
        unsafe { stillpoint_mempool_free(self.pool.as_ptr()) };
    }
}

impl PoolContender for Mempool {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cache(&self) -> Option<usize> {
        Some(self.cache)
    }

    fn object(&self) -> usize {
        // SAFETY: the pool is alive.
        unsafe { stillpoint_mempool_object(self.pool.as_ptr()) as usize }
    }

    fn block(&self) -> Option<usize> {
        // SAFETY: the pool is alive.
        let block = unsafe { stillpoint_mempool_block(self.pool.as_ptr()) };
        (block > 0).then_some(block as usize)
    }

    fn note(&self) -> String {
        let pages = if self.huge_pages { "reserved huge pages" } else { "small pages" };
        format!("{pages}; compiled for this processor")
    }

    fn thread(&self) -> Box<dyn PoolThread + '_> {
        Box::new(Thread { pool: self, _number: ThreadNumber::take() })
    }
}

struct Thread<'p> {
    pool: &'p Mempool,
    /// Caches belong to DPDK's own numbers of threads.
    _number: ThreadNumber,
}

impl PoolThread for Thread<'_> {
    fn plain(&mut self, shape: Shape, turns: u64, objects: &mut [*mut u8]) -> bool {
        assert!(shape.keep <= objects.len(), "there is room for what is kept");
        let (keep, get, put) = (shape.keep as u32, shape.get as u32, shape.put as u32);
        // SAFETY: there is room for `keep` objects.
        unsafe {
            stillpoint_mempool_plain(self.pool.pool.as_ptr(), objects.as_mut_ptr(), keep, get, put, turns)
        }
    }

    fn contiguous(&mut self, shape: Shape, turns: u64, objects: &mut [*mut u8]) -> Option<bool> {
        let block = self.pool.block()?;
        let (blocks, each) = shape.blocks(block);
        assert!(blocks * block <= objects.len(), "there is room for what is kept");
        assert!(each <= 64, "the layer in C has room for 64 blocks of a call");
        let put = if shape.put == 0 { block } else { shape.put };
        // SAFETY: there is room for the objects of so many blocks.
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
        // SAFETY: there is room for so many.
        unsafe { stillpoint_mempool_get(self.pool.pool.as_ptr(), objects.as_mut_ptr(), objects.len() as u32) }
    }

    fn put(&mut self, objects: &[*mut u8]) {
        // SAFETY: the experiment gives back what it got.
        unsafe { stillpoint_mempool_put(self.pool.pool.as_ptr(), objects.as_ptr(), objects.len() as u32) };
    }
}
