//! Boosting of preempted readers that block a token. It is separate from the protocol, which does not need it.

#[cfg(not(all(feature = "boost", target_os = "linux")))]
mod no_state;
#[cfg(not(all(feature = "boost", target_os = "linux")))]
mod off;
#[cfg(all(feature = "boost", target_os = "linux"))]
mod policy;
#[cfg(all(feature = "boost", target_os = "linux"))]
mod state;

#[cfg(not(all(feature = "boost", target_os = "linux")))]
pub(crate) use self::no_state::{own, BoostState};
#[cfg(not(all(feature = "boost", target_os = "linux")))]
pub(crate) use self::off::{Booster, Boosting, LIMIT};
#[cfg(all(feature = "boost", target_os = "linux"))]
pub(crate) use self::policy::{Booster, Boosting, LIMIT};
#[cfg(all(feature = "boost", target_os = "linux"))]
pub(crate) use self::state::{own, BoostState};
