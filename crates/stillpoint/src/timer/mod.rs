//! Timer wheels for one thread, and timers across threads with a definite answer.
//!
//! ```
//! use stillpoint::timer::{Limit, Wheel};
//!
//! let mut wheel = Wheel::new(0);
//! let key = wheel.add(30_000, "connection 7")?;
//! wheel.reset(key, 60_000); // there was traffic
//!
//! let mut timed_out = Vec::new();
//! let progress = wheel.poll(60_000, Limit::NONE, |_, expired| timed_out.extend(expired.into_value()));
//! assert!(progress.is_done());
//! assert_eq!(timed_out, ["connection 7"]);
//! # Ok::<(), stillpoint::timer::Full<&str>>(())
//! ```
//!
//! - [`Wheel`]: timers of one thread. Adding and cancelling cost some ten cycles each, advancing costs by what is due.
//! - [`NodeWheel`]: the same over [nodes](Node) in the user's own structures, without allocations; unsafe.
//! - [`TimerService`]: a wheel with a mailbox. Other threads add [`SharedTimer`]s to it, and cancel them with an answer at
//!   once: [`Cancelled`](Outcome::Cancelled), [`Running`](Outcome::Running), [`Fired`](Outcome::Fired) or
//!   [`Gone`](Outcome::Gone). A thread that [sleeps](TimerService::sleep) is woken for earlier deadlines.
//! - [`Clock`]: nanoseconds, cycles or ticks from the counter of the processor. Wheels read no clock: they take the caller's
//!   time.
//! - [`Bitset`]: sets of small numbers that are searched by words.
//!
//! # What is answered to bad input
//!
//! | input | answer |
//! |---|---|
//! | a stale, foreign or invented key | `None`, or `false`: see [`Key`] for the limit |
//! | a deadline in the past | fires in the next poll |
//! | a deadline at the end of time | fires when time has come to its end, coarse or not |
//! | a time before the last one | counts as the last one, and in [`WheelStats::time_went_back`] |
//! | a full mailbox, a wheel at its limit | the value comes back |
//! | a timer of a service that is gone | [`Gone`](Outcome::Gone), or the value comes back |
//! | a period of zero | cannot be written: periods are `NonZeroU64` |
//!
//! A wheel never panics by itself; a panic of a callback leaves it valid.
//!
//! # Correctness
//!
//! The argument is in `docs/design/timer.md` of the repository. Models run the engine under loom; its table says which
//! step has a broken variant that a model catches, and the list below it which orderings are only argued.

mod bitset;
#[cfg(feature = "std")]
mod busted;
#[cfg(feature = "std")]
mod clock;
#[cfg(all(test, loom))]
mod models;
#[cfg(feature = "std")]
mod orders;
#[cfg(feature = "std")]
mod service;
mod wheel;

pub use bitset::{AtomicBitset, Bitset};
#[cfg(feature = "std")]
pub use clock::{Clock, MockTime};
#[cfg(feature = "std")]
pub use service::{
    Alarm, ArmError, ArmErrorKind, Burst, Cause, Event, Mailbox, Outcome, Remote, SharedTimer, Sleep,
    TimerService,
};
pub use wheel::{
    Drain, Expired, Full, Key, Limit, Node, NodeWheel, Popped, Progress, Schedule, Wheel, WheelStats,
};
