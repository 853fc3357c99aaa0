//! Tests of timers: the promises of each operation, comparisons with a sorted map, cases in which other wheels have
//! failed, and several threads.

#![cfg(not(stillpoint_loom))]

mod attacks;
mod bitset;
mod bounds;
mod callbacks;
mod clock;
mod differential;
#[path = "../support/ending.rs"]
mod ending;
mod failures;
mod messages;
mod nodes;
mod periodic;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/rounds.rs"]
mod rounds;
mod service;
mod shared;
mod shared_mailbox;
mod sleeping;
mod threads;
mod time;

use stillpoint::timer::shared::{Mailbox, SharedTimer, TimerService};

/// A service with a timer at rest.
fn with_timer<T>() -> (TimerService<T>, SharedTimer<T>) {
    let service = TimerService::new(0);
    let timer = service.remote().timer();
    (service, timer)
}

/// As `with_timer`, with a mailbox that has room for this many messages.
fn with_mailbox<T>(places: usize) -> (TimerService<T>, SharedTimer<T>, Mailbox<T>) {
    let (service, timer) = with_timer();
    let mailbox = service.remote().mailbox(places);
    (service, timer, mailbox)
}
