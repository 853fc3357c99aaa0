//! A build without the feature `boost`: no reader is boosted.

use std::time::Duration;

use crate::rcu::engine::core::record::Record;
use crate::rcu::engine::Core;

pub(crate) const LIMIT: Duration = Duration::MAX;

/// Has no values.
pub(crate) enum Boosting {}

impl Boosting {
    pub(crate) fn counts(&self) -> (u64, u64) {
        (0, 0)
    }
}

#[derive(Default)]
pub(crate) struct Booster {}

impl Booster {
    pub(crate) fn boost(&mut self, _: &Core, _: u64, _: Duration) -> bool {
        false
    }

    pub(crate) fn end(&mut self, _: &Core) {}
}

impl Core {
    pub(crate) fn boosting(&self) -> Option<&Boosting> {
        None
    }

    pub(crate) fn poll_boosts(&self) {}

    pub(crate) fn end_own_boost(&self, _: &Record) {}
}
