//! The same items for a build without DPDK. All functions fail.

use std::marker::PhantomData;

use super::{IdleTimers, TimerContender};

const ABSENT: &str = "this build has no DPDK: install libdpdk-dev and build again";

/// Fails: would make timers of DPDK's.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn rte_timer(_timers: usize) -> Result<Box<dyn TimerContender>, String> {
    Err(ABSENT.to_owned())
}

/// Fails: would make timers by stillpoint's `rte_timer.h`, which uses DPDK's clock and thread numbers.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn rte_timer_drop_in(timers: usize) -> Result<Box<dyn TimerContender>, String> {
    rte_timer(timers)
}

/// Would be timers that another thread adds. There is no value of this type.
pub enum RemoteRteTimer {}

/// Would be the access of that thread. There is no value of this type.
pub struct RemoteSource<'t>(RemoteRteTimer, PhantomData<&'t ()>);

impl RemoteRteTimer {
    /// Fails: would make the timers.
    ///
    /// # Errors
    /// Always: this build has no DPDK.
    pub fn new(_timers: usize, _drop_in: bool) -> Result<Self, String> {
        Err(ABSENT.to_owned())
    }

    /// Cannot be called: there is no value of this type.
    pub fn source(&self) -> RemoteSource<'_> {
        match *self {}
    }

    /// Cannot be called: there is no value of this type.
    pub fn manage(&mut self) -> u64 {
        match *self {}
    }
}

impl RemoteSource<'_> {
    /// Cannot be called: there is no value of this type.
    pub fn add(&self, _delays: &[u64]) -> usize {
        match self.0 {}
    }

    /// Cannot be called: there is no value of this type.
    pub fn cancel(&self, _order: &[u32]) -> usize {
        match self.0 {}
    }
}

/// Fails: would make the timers of connections.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn idle_rte_timer(_timers: usize, _drop_in: bool) -> Result<Box<dyn IdleTimers>, String> {
    Err(ABSENT.to_owned())
}
