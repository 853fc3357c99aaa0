//! A build without DPDK.

use super::PoolContender;

/// Would make a mempool.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn mempool(
    _driver: &str,
    _objects: usize,
    _cache: usize,
    _huge_pages: bool,
) -> Result<Box<dyn PoolContender>, String> {
    Err("this build has no DPDK: install libdpdk-dev and build again".to_owned())
}
