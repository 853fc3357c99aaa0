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
//! - [`Wheel`]: timers of one thread. An addition or a cancellation takes about ten cycles; a poll takes time in
//!   proportion to what is due.
//! - [`NodeWheel`]: the same for [nodes](Node) in the user's own structures, without allocations; unsafe.
//! - [`TimerService`]: a wheel with a mailbox. Other threads add [`SharedTimer`]s to it. A cancellation returns a
//!   definite answer at once: [`Cancelled`](Outcome::Cancelled), [`Running`](Outcome::Running),
//!   [`Fired`](Outcome::Fired) or [`Gone`](Outcome::Gone). A thread that [sleeps](TimerService::sleep) is woken for
//!   earlier deadlines.
//! - [`Clock`]: nanoseconds, cycles or ticks from the processor's counter. Wheels read no clock: the caller passes the
//!   time.
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
//! | a full mailbox, a wheel at its limit | the value is handed back |
//! | a timer of a service that is gone | [`Gone`](Outcome::Gone), or the value is handed back |
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
#[cfg(all(test, stillpoint_loom))]
mod models;
#[cfg(feature = "std")]
mod orders;
#[cfg(feature = "std")]
mod shared;
mod wheel;

pub use bitset::Bitset;
#[cfg(feature = "std")]
pub use clock::{Clock, MockTime};
#[cfg(feature = "std")]
pub use shared::{
    Alarm, ArmError, Burst, Cause, Event, Mailbox, Outcome, Remote, SharedTimer, Sleep, TimerService,
};
pub use wheel::{
    Drain, Expired, Full, Key, Limit, Node, NodeWheel, Popped, Progress, Schedule, Wheel, WheelStats,
};
