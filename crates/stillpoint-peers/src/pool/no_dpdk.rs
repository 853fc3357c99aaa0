//! The same functions for a build without DPDK.

use super::PoolContender;
use crate::absent::absent;

/// Mebibytes that DPDK would take to transmit packets: none.
pub const TRANSMISSION_MEGABYTES: usize = 0;

absent!("this build has no DPDK: install libdpdk-dev and build again":
    mempool(&str, usize, usize, usize, bool) -> Box<dyn PoolContender>;
    initialise_transmission(usize, u16, bool) -> ();
    transmitter(&str, usize, usize, u16, bool) -> Box<dyn PoolContender>;
);
