//! A build without DPDK.

use super::TimerContender;

/// Would make timers of DPDK's.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn rte_timer(_timers: usize) -> Result<Box<dyn TimerContender>, String> {
    Err("this build has no DPDK: install libdpdk-dev and build again".to_owned())
}

/// Would make timers by stillpoint's `rte_timer.h`, which uses DPDK's clock and numbers of threads.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn rte_timer_drop_in(timers: usize) -> Result<Box<dyn TimerContender>, String> {
    rte_timer(timers)
}
