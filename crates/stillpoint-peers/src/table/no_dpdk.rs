//! The same functions for a build without DPDK. Both fail.

use super::{TableContender, TableKey};
use crate::absent::absent;

absent!("this build has no DPDK: install libdpdk-dev and build again": initialise_dpdk(usize, bool, usize) -> (););

/// Fails: would make a table.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn rte_hash<K: TableKey + Copy>(_entries: usize) -> Result<Box<dyn TableContender<K>>, String> {
    Err(initialise_dpdk(0, false, 0).err().unwrap_or_default())
}
