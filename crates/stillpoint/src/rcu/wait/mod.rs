//! Waiting for readers.

mod barrier;
mod future;
mod stall;
mod synchronize;
pub(super) mod token;

pub use super::engine::core::record::ReaderKind;
pub use super::engine::wait::error::SynchronizeError;
pub use super::engine::wait::report::{Activity, Stall};
pub use future::GracePeriod;
pub use token::Token;
