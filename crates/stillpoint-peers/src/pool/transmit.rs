//! Packets of DPDK's `rte_mempool`, sent to its null device.

use std::ffi::{c_char, c_int};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use super::dpdk::{Mempool, RawPool, driver, label};
use super::{PoolContender, Shape};
use crate::table::initialise_eal;

unsafe extern "C" {
    safe fn stillpoint_transmit_begin(queues: u16) -> c_int;
    fn stillpoint_transmit_pool(
        name: *const c_char,
        driver: *const c_char,
        count: u32,
        cache: u32,
    ) -> *mut RawPool;
    fn stillpoint_transmit(
        pool: *mut RawPool,
        queue: u16,
        packets: *mut *mut u8,
        burst: u16,
        turns: u64,
    ) -> bool;
}

/// Mebibytes that DPDK takes to transmit packets.
pub const TRANSMISSION_MEGABYTES: usize = 1024;

/// Initialises DPDK's environment abstraction layer with 1 GiB of memory, on reserved huge pages if `huge_pages` is set. Starts
/// DPDK's null device with a transmit queue for each of `threads` threads. The layer pins the calling thread to `cpu`.
///
/// # Errors
/// If the layer or the device cannot be started. The layer prints its reason itself.
pub fn initialise_transmission(cpu: usize, threads: u16, huge_pages: bool) -> Result<(), String> {
    initialise_eal(TRANSMISSION_MEGABYTES, huge_pages, &["--vdev=net_null0"], cpu)?;
    match stillpoint_transmit_begin(threads) {
        0 => Ok(()),
        error => Err(format!(
            "cannot start DPDK's device net_null0: {}",
            std::io::Error::from_raw_os_error(-error)
        )),
    }
}

/// A mempool of packets. `name` is its driver: `stillpoint`, `bucket`, `ring` or `stack`. In each turn, its [`PoolThread::plain`](super::PoolThread::plain) gets and sends a
/// burst of [`Shape::get`] packets, which the device frees one by one. Each [`PoolContender::thread`] takes the next of the `queues`
/// queues in turn; no two threads may have the same queue at the same time. `queues` is at most the number of threads that was passed
/// to [`initialise_transmission`].
///
/// # Errors
/// If there is not enough memory, or no driver of this name.
pub fn transmitter(
    name: &str,
    packets: usize,
    cache: usize,
    queues: u16,
    huge_pages: bool,
) -> Result<Box<dyn PoolContender>, String> {
    let (ops, label) = (driver(name)?, label()?);
    let count = u32::try_from(packets).map_err(|_| "a mempool counts in 32 bits".to_owned())?;
    // SAFETY: both strings end with a zero, and the pool copies them.
    let pool = unsafe { stillpoint_transmit_pool(label.as_ptr(), ops.as_ptr(), count, cache as u32) };
    let pool = NonNull::new(pool).ok_or(format!("no memory for the packets of dpdk/{name}"))?;
    let queues = Some(Queues { count: queues, next: AtomicU16::new(0) });
    Ok(Box::new(Mempool { pool, cache, huge_pages, queues }))
}

/// The device's queues, which the threads of a pool take in turn.
pub(super) struct Queues {
    count: u16,
    next: AtomicU16,
}

impl Queues {
    /// The queue of the next thread.
    pub(super) fn next(&self) -> u16 {
        // Relaxed: the number only has to differ from those of the threads that run at the same time.
        self.next.fetch_add(1, Ordering::Relaxed) % self.count
    }
}

/// Gets and sends bursts. No other thread has this queue, and the pool is alive.
pub(super) fn transmit(
    pool: NonNull<RawPool>,
    queue: u16,
    shape: Shape,
    turns: u64,
    objects: &mut [*mut u8],
) -> bool {
    assert!(shape.get <= objects.len(), "`objects` has room for less than a burst");
    // SAFETY: `objects` has room for a burst, the pool is alive, and no other thread has this queue.
    unsafe { stillpoint_transmit(pool.as_ptr(), queue, objects.as_mut_ptr(), shape.get as u16, turns) }
}
