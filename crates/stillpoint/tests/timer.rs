//! Timers: what each operation promises, beside a sorted map, in the cases that others have failed in, and with several
//! threads.

#![cfg(not(loom))]

#[path = "timer/attacks.rs"]
mod attacks;
#[path = "timer/bitset.rs"]
mod bitset;
#[path = "timer/bounds.rs"]
mod bounds;
#[path = "timer/callbacks.rs"]
mod callbacks;
#[path = "timer/clock.rs"]
mod clock;
#[path = "timer/differential.rs"]
mod differential;
#[path = "timer/failures.rs"]
mod failures;
#[path = "timer/messages.rs"]
mod messages;
#[path = "timer/periodic.rs"]
mod periodic;
#[path = "support/random.rs"]
mod random;
#[path = "timer/service.rs"]
mod service;
#[path = "timer/shared.rs"]
mod shared;
#[path = "timer/threads.rs"]
mod threads;
#[path = "timer/time.rs"]
mod time;
