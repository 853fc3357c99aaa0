//! The same functions for a build without DPDK. All of them fail.

use super::PoolContender;

/// Mebibytes that DPDK would take to transmit packets: none.
pub const TRANSMISSION_MEGABYTES: usize = 0;

const ABSENT: &str = "this build has no DPDK: install libdpdk-dev and build again";

/// Fails: would make a mempool.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn mempool(
    _driver: &str,
    _objects: usize,
    _object: usize,
    _cache: usize,
    _huge_pages: bool,
) -> Result<Box<dyn PoolContender>, String> {
    Err(ABSENT.to_owned())
}

/// Fails: would initialise DPDK with its null device.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn initialise_transmission(_cpu: usize, _threads: u16, _huge_pages: bool) -> Result<(), String> {
    Err(ABSENT.to_owned())
}

/// Fails: would make a mempool of packets.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn transmitter(
    _name: &str,
    _packets: usize,
    _cache: usize,
    _queues: u16,
    _huge_pages: bool,
) -> Result<Box<dyn PoolContender>, String> {
    Err(ABSENT.to_owned())
}
