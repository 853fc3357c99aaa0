//! Boosting of preempted readers that hold a token up: beside the protocol, which does not need it.

mod policy;
mod state;

pub(crate) use self::policy::{Booster, Boosting, LIMIT};
pub(crate) use self::state::{own, BoostState};
