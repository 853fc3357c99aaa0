//! The same items for a build without DPDK.

use std::marker::PhantomData;

use super::{IdleTimers, TimerContender};
use crate::absent::{absent, never};

absent!("this build has no DPDK: install libdpdk-dev and build again":
    rte_timer(usize, bool) -> Box<dyn TimerContender>;
    idle_rte_timer(usize, bool) -> Box<dyn IdleTimers>;
);

never!(RemoteRteTimer::new(usize, bool) fails: "this build has no DPDK: install libdpdk-dev and build again";
    source(&Self) -> RemoteSource<'_>;
    manage(&mut Self) -> u64;
);

/// There is no value of this type.
pub struct RemoteSource<'t>(RemoteRteTimer, PhantomData<&'t ()>);

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
