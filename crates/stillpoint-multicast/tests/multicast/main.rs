//! Multicasts to threads: the promises, and misuse.

#![cfg(not(stillpoint_loom))]

#[cfg(not(miri))]
#[path = "../../../stillpoint/tests/support/allocated.rs"]
mod allocated;
#[cfg(not(miri))]
#[path = "../../../stillpoint/tests/support/asleep.rs"]
mod asleep;
#[cfg(not(miri))]
#[path = "../../../stillpoint/tests/support/child.rs"]
mod child;
#[cfg(not(miri))]
mod churn;
#[path = "../../../stillpoint/tests/support/forked.rs"]
mod forked;
#[cfg(not(miri))]
mod forks;
#[cfg(not(miri))]
mod inherited;
#[cfg(not(miri))]
mod litmus;
#[cfg(not(miri))]
mod memory;
mod polled;
#[cfg(not(miri))]
mod signals;
#[cfg(not(miri))]
#[path = "../../../stillpoint/tests/support/skip.rs"]
mod skip;
#[cfg(not(miri))]
mod waking;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stillpoint_multicast::{Acknowledgement, Share, Strategy};

/// A limit for waits that should end: long enough for a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Every strategy, for a few threads.
fn strategies() -> [Strategy; 6] {
    let split = |percent| Strategy::Split(Share::percent(percent).expect("from 1 to 99"));
    [Strategy::Flat, Strategy::Tree, split(1), split(30), split(99), Strategy::Hybrid(4)]
}

/// Every way to send and to acknowledge, with and without helping.
fn ways() -> Vec<(Strategy, Acknowledgement, bool)> {
    let acknowledgements = [Acknowledgement::Combining, Acknowledgement::SharedCounter];
    strategies()
        .into_iter()
        .flat_map(|strategy| acknowledgements.map(|acknowledgement| (strategy, acknowledgement)))
        .flat_map(|(strategy, acknowledgement)| [true, false].map(|helps| (strategy, acknowledgement, helps)))
        .collect()
}

/// Whether a thread of this process was ended behind the C library's back, so that its memory is never freed.
#[cfg(not(miri))]
static HAS_LEFT_MEMORY: AtomicBool = AtomicBool::new(false);

/// Ends the calling thread behind the C library's back: none of its destructors runs.
#[cfg(not(miri))]
fn end_without_a_word() {
    HAS_LEFT_MEMORY.store(true, Ordering::Relaxed);
    // SAFETY: no other thread waits for anything that this thread holds.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// Called only by LeakSanitizer, if it is there.
#[cfg(not(miri))]
#[no_mangle]
extern "C" fn __lsan_is_turned_off() -> libc::c_int {
    HAS_LEFT_MEMORY.load(Ordering::Relaxed).into()
}

/// Tells the threads of a test that it is over, when it is dropped.
#[derive(Clone, Copy)]
struct End<'e>(&'e AtomicBool);

impl End<'_> {
    fn has_come(&self) -> bool {
        // Relaxed: a flag that orders nothing.
        self.0.load(Ordering::Relaxed)
    }
}

struct Ending<'e>(&'e AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
