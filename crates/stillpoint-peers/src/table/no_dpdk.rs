//! A build without DPDK.

use super::{TableContender, TableKey};
use crate::{Contender, Delays};

const ABSENT: &str = "this build has no DPDK: install libdpdk-dev and build again";

/// Would initialise DPDK.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn initialise_dpdk(_megabytes: usize, _huge_pages: bool, _cpu: usize) -> Result<(), String> {
    Err(ABSENT.to_owned())
}

/// Would make a table.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn rte_hash<K: TableKey + Copy>(_entries: usize) -> Result<Box<dyn TableContender<K>>, String> {
    Err(ABSENT.to_owned())
}

/// No contenders.
pub const RECLAIMING: &[&str] = &[];

/// Would make a contender of `reclaim`.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn rte_hash_reclaiming(
    _name: &str,
    _elements: usize,
    _delays: &'static Delays,
    _max_readers: usize,
) -> Result<Box<dyn Contender>, String> {
    Err(ABSENT.to_owned())
}
