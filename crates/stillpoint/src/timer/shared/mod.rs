//! [`TimerService`]: a wheel of one thread, with timers that other threads add and cancel.
//!
//! ```
//! use stillpoint::timer::shared::{Outcome, TimerService};
//! use stillpoint::timer::Limit;
//!
//! let mut service = TimerService::new(0);
//! let remote = service.remote();
//! let timer = remote.timer();
//!
//! let other = timer.clone();
//! std::thread::spawn(move || {
//!     let mut mailbox = remote.mailbox(64); // one for each thread, kept
//!     mailbox.add(&other, 20, "of another thread").expect("there is room");
//! }).join().unwrap();
//!
//! assert_eq!(service.run(10, Limit::NONE, |_, _| {}).expired(), 0); // takes the message; the timer is not due
//! assert_eq!(timer.cancel(), Outcome::Cancelled("of another thread")); // the answer is definite, and comes at once
//! assert_eq!(service.run(30, Limit::NONE, |_, _| {}).expired(), 0);
//! ```
//!
//! One thread owns the service and [runs](TimerService::run) it. The others have a [`Remote`], which makes timers, and a
//! [`Mailbox`] for each thread, or share a [`SharedMailbox`].
//!
//! | type | is |
//! |---|---|
//! | [`SharedTimer`] | a timer that any thread may cancel; a mailbox arms and resets it |
//! | [`Outcome`] | the answer to a cancellation: [`Cancelled`](Outcome::Cancelled), [`Running`](Outcome::Running), [`Fired`](Outcome::Fired) or [`Gone`](Outcome::Gone) |
//! | [`Remote`], [`Mailbox`], [`SharedMailbox`] | how other threads reach the service |
//! | [`Burst`] | several messages that are published together |
//! | [`ArmError`] | why a timer was not armed, with the value |
//! | [`Event`], [`Cause`] | what the service calls back with: a timer, and whether it has fired or was revoked |
//! | [`Sleep`], [`Alarm`] | how long the owner may [sleep](TimerService::sleep), and how it is woken for an earlier deadline |

// A circle of files: `home`, `record` and `ring`. A record keeps its home, whose hints are records, and whose rings carry them.

mod alarm;
mod arm_error;
mod entry;
mod event;
mod home;
mod mailbox;
mod record;
mod rest;
mod ring;
mod serve;
mod service;
mod shared_mailbox;
mod timer;

pub use alarm::{Alarm, Sleep};
pub use arm_error::ArmError;
pub use event::{Cause, Event};
pub use mailbox::{Burst, Mailbox, Remote};
pub use record::Outcome;
pub use service::TimerService;
pub use shared_mailbox::SharedMailbox;
pub use timer::SharedTimer;
