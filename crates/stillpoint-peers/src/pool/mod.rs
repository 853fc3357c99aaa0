//! Object pools of others behind one trait, for the experiment `pool`.

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

/// Bytes of an object: a packet buffer.
pub const OBJECT: usize = 2048;

/// What a thread does in a turn.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Objects that it has in the end.
    pub keep: usize,
    /// How many it gets at a time; of contiguous blocks, a multiple of their objects.
    pub get: usize,
    /// How many it gives back at a time; 0 for blocks that go back whole.
    pub put: usize,
}

impl Shape {
    /// Blocks of that many objects: how many a thread keeps, and how many it gets in a call.
    pub fn blocks(&self, block: usize) -> (usize, usize) {
        ((self.keep / block).max(1), (self.get / block).max(1))
    }
}

/// A pool of objects of [`OBJECT`] bytes, if it does not say otherwise.
pub trait PoolContender: Send + Sync {
    /// The stable name, such as `dpdk/bucket`.
    fn name(&self) -> &'static str;

    /// Objects in the cache of a thread, where that can be chosen.
    fn cache(&self) -> Option<usize> {
        None
    }

    /// Bytes of an object.
    fn object(&self) -> usize {
        OBJECT
    }

    /// Objects of a contiguous block, for pools that hand these out.
    fn block(&self) -> Option<usize> {
        None
    }

    /// What its memory is made of, and handicaps.
    fn note(&self) -> String;

    /// Access for the calling thread.
    fn thread(&self) -> Box<dyn PoolThread + '_>;
}

/// One thread's access. The loops are the contender's own, so that they are compiled into one, as its users would have
/// them.
pub trait PoolThread {
    /// In each turn: gets `keep` objects, reads each, and gives them back. False when the pool was exhausted.
    fn plain(&mut self, shape: Shape, turns: u64, objects: &mut [*mut u8]) -> bool {
        plain(self, shape, turns, objects)
    }

    /// The same with contiguous blocks, as many as `keep` has room for; `None` without such a call.
    fn contiguous(&mut self, shape: Shape, turns: u64, objects: &mut [*mut u8]) -> Option<bool> {
        let _ = (shape, turns, objects);
        None
    }

    /// Fills a slice with objects; false when the pool has not so many.
    fn get(&mut self, objects: &mut [*mut u8]) -> bool;

    /// Frees objects of any thread.
    fn put(&mut self, objects: &[*mut u8]);
}

/// The loop of [`PoolThread::plain`], over a contender's own calls.
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

/// A fake read of each object. The compiler unrolls this loop; the one in C is told to be.
#[inline(always)]
pub fn read_each(objects: &[*mut u8]) {
    let read = |sum: u64, object: &*mut u8| {
        // SAFETY: an object of at least eight bytes, which the pool has handed out to the caller.
        sum.wrapping_add(unsafe { object.cast::<u64>().read_volatile() })
    };
    black_box(objects.iter().fold(0, read));
}
