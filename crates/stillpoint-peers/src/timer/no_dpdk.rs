//! A build without DPDK.

use super::TimerContender;

/// Would make timers of DPDK's.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn rte_timer(_timers: usize) -> Result<Box<dyn TimerContender>, String> {
    Err("this build has no DPDK: install libdpdk-dev and build again".to_owned())
}
