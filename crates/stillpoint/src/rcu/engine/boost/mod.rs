//! Boosting of preempted readers that hold a token up: beside the protocol, which does not need it.

#[cfg(not(feature = "boost"))]
mod off;
#[cfg(feature = "boost")]
mod policy;
#[cfg(feature = "boost")]
mod state;

#[cfg(not(feature = "boost"))]
pub(crate) use self::off::{own, BoostState, Booster, Boosting, LIMIT};
#[cfg(feature = "boost")]
pub(crate) use self::policy::{Booster, Boosting, LIMIT};
#[cfg(feature = "boost")]
pub(crate) use self::state::{own, BoostState};
