//! A build without DPDK.

use std::marker::PhantomData;

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

/// Would be timers that another thread adds.
pub enum RemoteRteTimer {}

/// The access of that thread.
pub struct RemoteSource<'t>(RemoteRteTimer, PhantomData<&'t ()>);

impl RemoteRteTimer {
    /// Would make them.
    ///
    /// # Errors
    /// Always: this build has no DPDK.
    pub fn new(_timers: usize, _drop_in: bool) -> Result<Self, String> {
        Err(ABSENT.to_owned())
    }

    /// What another thread might do.
    pub fn source(&self) -> RemoteSource<'_> {
        match *self {}
    }

    /// Would poll.
    pub fn manage(&mut self) -> u64 {
        match *self {}
    }
}

impl RemoteSource<'_> {
    /// Would add timers.
    pub fn add(&self, _delays: &[u64]) -> usize {
        match self.0 {}
    }

    /// Would cancel timers.
    pub fn cancel(&self, _order: &[u32]) -> usize {
        match self.0 {}
    }
}

/// Would make the timers of connections.
///
/// # Errors
/// Always: this build has no DPDK.
pub fn idle_rte_timer(_timers: usize, _drop_in: bool) -> Result<Box<dyn IdleTimers>, String> {
    Err(ABSENT.to_owned())
}
