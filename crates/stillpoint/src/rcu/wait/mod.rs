//! [`Token`]: a moment whose grace period a writer can poll, wait for, or await; and what is known when the wait is long.
//!
//! A grace period is over when every region that began before its token has ended. Then no region reader holds anything that was
//! unlinked before the token.
//!
//! ```
//! use std::time::Duration;
//! use stillpoint::rcu::wait::SynchronizeError;
//! use stillpoint::rcu::Domain;
//!
//! let domain = Domain::new();
//! let reader = domain.reader();
//! let guard = reader.pin();
//!
//! let token = domain.start();
//! assert!(!domain.check(token)); // the guard is in the way
//! let other = domain.clone();
//! let waits = std::thread::spawn(move || other.wait_timeout(token, Duration::from_millis(2)));
//! let Err(SynchronizeError::Stalled(stall)) = waits.join().unwrap() else { panic!("the guard is still there") };
//! println!("{stall}"); // which thread, for how long, and what it is doing
//!
//! drop(guard);
//! domain.wait(token)?;
//! # Ok::<(), SynchronizeError>(())
//! ```
//!
//! | to | call | result |
//! |---|---|---|
//! | ask, and do other work meanwhile | [`Domain::start`], [`Domain::check`] | [`Token`], `bool` |
//! | wait for a grace period | [`Domain::wait`], [`Domain::synchronize`] | [`SynchronizeError`] if that is impossible or takes too long |
//! | await it | [`Domain::grace_period`] | [`GracePeriod`], a future |
//! | wait until everything that was left to the domain is freed | [`Domain::barrier`] | as for `synchronize` |
//! | see who is in the way | [`Domain::stall`], [`Domain::silent`], [`DomainBuilder::stall_hook`] | [`Stall`], with the [`Activity`] of the thread and the [`ReaderKind`] |
//!
//! Reclaimers wait by themselves: a program that frees through them needs none of this.
//!
//! [`Domain::start`]: super::Domain::start
//! [`Domain::check`]: super::Domain::check
//! [`Domain::wait`]: super::Domain::wait
//! [`Domain::synchronize`]: super::Domain::synchronize
//! [`Domain::grace_period`]: super::Domain::grace_period
//! [`Domain::barrier`]: super::Domain::barrier
//! [`Domain::stall`]: super::Domain::stall
//! [`Domain::silent`]: super::Domain::silent
//! [`DomainBuilder::stall_hook`]: super::DomainBuilder::stall_hook

mod barrier;
mod future;
mod stall;
mod synchronize;
pub(super) mod token;

pub use super::engine::core::record::ReaderKind;
pub use super::engine::wait::delays::Delays;
pub use super::engine::wait::error::SynchronizeError;
pub use super::engine::wait::report::Stall;
pub use future::GracePeriod;
pub use stillpoint_sys::os::Activity;
pub use token::Token;
