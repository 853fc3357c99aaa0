//! Other projects' object pools behind one trait, for the experiment `pool`.

mod mimalloc;
mod rust;

#[cfg(peer_dpdk)]
mod dpdk;
#[cfg(not(peer_dpdk))]
#[path = "no_dpdk.rs"]
mod dpdk;
#[cfg(peer_dpdk)]
mod transmit;

pub use dpdk::mempool;
#[cfg(not(peer_dpdk))]
pub use dpdk::{TRANSMISSION_MEGABYTES, initialise_transmission, transmitter};
pub use mimalloc::mimalloc;
pub use rust::{object_pool, sharded_slab};
#[cfg(peer_dpdk)]
pub use transmit::{TRANSMISSION_MEGABYTES, initialise_transmission, transmitter};

use std::hint::black_box;

/// Bytes of an object: the size of a packet buffer.
pub const OBJECT: usize = 2048;

/// What a thread does in each turn.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// How many objects it gets before it puts them back.
    pub keep: usize,
    /// How many it gets in one call. For contiguous blocks, a multiple of the objects of a block.
    pub get: usize,
    /// How many it puts back in one call; 0: whole blocks.
    pub put: usize,
}

impl Shape {
    /// How many blocks of `block` objects a thread keeps, and how many it gets in one call.
    pub fn blocks(&self, block: usize) -> (usize, usize) {
        ((self.keep / block).max(1), (self.get / block).max(1))
    }
}

/// A pool of objects of [`OBJECT`] bytes, unless [`object`](Self::object) returns another number.
pub trait PoolContender: Send + Sync {
    /// Objects in the cache of a thread; `None` if the size of the cache cannot be chosen.
    fn cache(&self) -> Option<usize> {
        None
    }

    /// Bytes of an object.
    fn object(&self) -> usize {
        OBJECT
    }

    /// Objects of a contiguous block; `None` for pools without such blocks.
    fn block(&self) -> Option<usize> {
        None
    }

    /// What its memory consists of, and what puts it at an advantage or a disadvantage.
    fn note(&self) -> String;

    /// Access for the calling thread.
    fn thread(&self) -> Box<dyn PoolThread + '_>;
}

/// One thread's access to a pool. Each contender has its own loops, so that its calls are inlined into them, as in its users'
/// programs.
pub trait PoolThread {
    /// In each turn: gets [`keep`](Shape::keep) objects, reads each, and puts them back. Returns false if the pool was exhausted.
    fn plain(&mut self, shape: Shape, turns: u64, objects: &mut [*mut u8]) -> bool {
        plain(self, shape, turns, objects)
    }

    /// The same with contiguous blocks, as given by [`Shape::blocks`]. Returns `None` if the pool has no such call.
    fn contiguous(&mut self, shape: Shape, turns: u64, objects: &mut [*mut u8]) -> Option<bool> {
        let _ = (shape, turns, objects);
        None
    }

    /// Fills a slice with objects. Returns false if the pool has too few.
    fn get(&mut self, objects: &mut [*mut u8]) -> bool;

    /// Puts back objects, which any thread may have got.
    fn put(&mut self, objects: &[*mut u8]);
}

/// The loop of [`PoolThread::plain`], which calls the contender's [`get`](PoolThread::get) and [`put`](PoolThread::put).
#[inline(always)]
pub fn plain<T: PoolThread + ?Sized>(
    thread: &mut T,
    shape: Shape,
    turns: u64,
    objects: &mut [*mut u8],
) -> bool {
    let objects = &mut objects[..shape.keep];
    for _ in 0..turns {
        let mut got = 0;
        while got < objects.len() {
            let end = (got + shape.get).min(objects.len());
            if !thread.get(&mut objects[got..end]) {
                break;
            }
            read_each(&objects[got..end]);
            got = end;
        }
        match shape.put {
            1 => objects[..got].iter().for_each(|object| thread.put(std::slice::from_ref(object))),
            put => objects[..got].chunks(put).for_each(|objects| thread.put(objects)),
        }
        if got < objects.len() {
            return false;
        }
    }
    true
}

/// Reads eight bytes of each object. The compiler unrolls this loop; in C, a pragma asks for it.
#[inline(always)]
pub fn read_each(objects: &[*mut u8]) {
    let read = |sum: u64, object: &*mut u8| {
        // SAFETY: the caller got the object from the pool, and it has at least eight aligned bytes.
        sum.wrapping_add(unsafe { object.cast::<u64>().read_volatile() })
    };
    black_box(objects.iter().fold(0, read));
}
