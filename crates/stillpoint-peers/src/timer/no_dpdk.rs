//! A build without DPDK.

use super::{IdleTimers, TimerContender};

const ABSENT: &str = "this build has no DPDK: install libdpdk-dev and build again";

/// Would make timers of DPDK's.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn rte_timer(_timers: usize) -> Result<Box<dyn TimerContender>, String> {
    Err(ABSENT.to_owned())
}

/// Would make timers by stillpoint's `rte_timer.h`, which uses DPDK's clock and numbers of threads.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn rte_timer_drop_in(timers: usize) -> Result<Box<dyn TimerContender>, String> {
    rte_timer(timers)
}

/// Would make the timers of connections.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn idle_rte_timer(_timers: usize, _drop_in: bool) -> Result<Box<dyn IdleTimers>, String> {
    Err(ABSENT.to_owned())
}
