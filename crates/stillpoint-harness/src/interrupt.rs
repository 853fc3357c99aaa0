//! Ctrl-C and SIGTERM: the first one ends the measurement early, the second one ends the program.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// What is left to do when the program is ended.
static LAST: Mutex<Vec<Last>> = Mutex::new(Vec::new());

struct Last {
    number: u64,
    function: Box<dyn Fn() + Send>,
}

/// Exit code of a program ended by SIGINT, by the convention of shells.
const KILLED_BY_SIGINT: i32 = 130;

/// Starts to listen for both. Where that is refused, they keep their ordinary meaning.
pub fn listen() {
    let handler = || {
        // Relaxed: a flag on its own; nothing is published with it.
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            let last = std::mem::take(&mut *LAST.lock().unwrap_or_else(PoisonError::into_inner));
            last.iter().rev().for_each(|last| (last.function)());
            std::process::exit(KILLED_BY_SIGINT);
        }
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        anstream::eprintln!("Ctrl-C will end the program at once, without results: {error}");
    }
}

/// Whether one of the signals has come.
pub fn requested() -> bool {
    // Relaxed: see `listen`.
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Something that is called if the program is ended by a second signal before this is dropped.
#[derive(Debug)]
#[must_use = "it is called as long as this exists"]
pub(crate) struct AtTheEnd(u64);

/// Calls `function` then; the latest one first.
pub(crate) fn at_the_end(function: impl Fn() + Send + 'static) -> AtTheEnd {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    // Relaxed: any number that was not used before.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    LAST.lock().unwrap_or_else(PoisonError::into_inner).push(Last { number, function: Box::new(function) });
    AtTheEnd(number)
}

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        LAST.lock().unwrap_or_else(PoisonError::into_inner).retain(|last| last.number != self.0);
    }
}
