//! Timer wheels for one thread, and timers that other threads can add and cancel.
//!
//! ```
//! use stillpoint::timer::{Limit, Wheel};
//!
//! let mut wheel = Wheel::new(0);
//! let key = wheel.add(30_000, "connection 7")?;
//! wheel.reset(key, 60_000); // after traffic on the connection
//!
//! let mut timed_out = Vec::new();
//! let progress = wheel.poll(60_000, Limit::NONE, |_, expired| timed_out.extend(expired.into_value()));
//! assert!(progress.is_done());
//! assert_eq!(timed_out, ["connection 7"]);
//! # Ok::<(), stillpoint::timer::Full<&str>>(())
//! ```
//!
//! Three types are the core:
//!
//! - [`Wheel`]: the timers of one thread. An addition or a cancellation takes about ten cycles; a poll takes time in
//!   proportion to what is due.
//! - [`Key`]: names one timer of a wheel, to cancel or reset it. A stale key is harmless.
//! - [`Expired`]: a timer that has fired, with its value and its deadline. A poll hands it to the caller's function.
//!
//! Wheels read no clock: the caller passes the time, for example from a [`Clock`], which counts nanoseconds, cycles or
//! ticks by the processor's counter.
//!
//! Besides these:
//!
//! - [`shared`]: timers that other threads add and cancel, with a definite answer at once. A thread that sleeps is woken
//!   for earlier deadlines.
//! - `delay_queue`, with the feature `delay-queue`: a queue of items that come out when their time has come, which tasks and
//!   threads share; it reads a clock, and whoever waits is woken for earlier deadlines.
//! - [`NodeWheel`]: a wheel of [nodes](Node) in the user's own structures, without allocations; unsafe.
//! - [`Bitset`]: sets of small numbers, searched by words of 64 bits.
//!
//! # Bad input
//!
//! | input | answer |
//! |---|---|
//! | a stale, foreign or invented key | `None`, or `false`: see [`Key`] for the limit |
//! | a deadline in the past | fires in the next poll |
//! | a deadline of `u64::MAX` | fires when the time is `u64::MAX`, coarse or not |
//! | a time before the last one | the last time is used, and [`WheelStats::time_went_back`] counts it |
//! | a wheel at its limit, a full [mailbox](shared::Mailbox) | the value is handed back |
//! | a timer of a service that is gone | [`Gone`](shared::Outcome::Gone), or the value is handed back |
//! | a period of zero | impossible: periods are `NonZeroU64` |
//!
//! A wheel never panics by itself. A panic of a callback leaves it valid.
//!
//! # Correctness
//!
//! The argument is in `docs/design/timer.md` of the repository. Models check the engine under loom. A table on that page
//! lists the steps that have a broken variant; a model catches each of these variants. The list below the table has the
//! orderings for which there is only an argument.

mod bitset;
#[cfg(feature = "std")]
mod busted;
#[cfg(feature = "std")]
mod clock;
#[cfg(feature = "delay-queue")]
pub mod delay_queue;
#[cfg(feature = "std")]
mod hands_back;
#[cfg(all(test, stillpoint_loom))]
mod models;
#[cfg(feature = "std")]
mod orders;
#[cfg(feature = "std")]
pub mod shared;
mod wheel;

pub use bitset::Bitset;
#[cfg(feature = "std")]
pub use clock::{Clock, MockTime};
pub use wheel::{
    Drain, Expired, Full, Key, Limit, Node, NodeWheel, Popped, Progress, Schedule, Wheel, WheelStats,
};
