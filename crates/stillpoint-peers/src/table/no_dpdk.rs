//! The same functions for a build without DPDK. Both fail.

use super::{TableContender, TableKey};
const ABSENT: &str = "this build has no DPDK: install libdpdk-dev and build again";

/// Fails: would initialise DPDK.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn initialise_dpdk(_megabytes: usize, _huge_pages: bool, _cpu: usize) -> Result<(), String> {
    Err(ABSENT.to_owned())
}

/// Fails: would make a table.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn rte_hash<K: TableKey + Copy>(_entries: usize) -> Result<Box<dyn TableContender<K>>, String> {
    Err(ABSENT.to_owned())
}
