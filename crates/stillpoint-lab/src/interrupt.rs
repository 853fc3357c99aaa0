//! Ctrl-C: the first one ends the measurement early, the second one ends the program.

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Exit code of a program ended by SIGINT, by the convention of shells.
const KILLED_BY_SIGINT: i32 = 130;

/// Starts to listen for Ctrl-C. Where that is refused, Ctrl-C keeps its ordinary meaning.
pub(crate) fn listen() {
    let handler = || {
        // Relaxed: a flag on its own; nothing is published with it.
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(KILLED_BY_SIGINT);
        }
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        anstream::eprintln!("Ctrl-C will end the program at once, without results: {error}");
    }
}

/// Whether Ctrl-C was pressed.
pub(crate) fn requested() -> bool {
    // Relaxed: see `listen`.
    INTERRUPTED.load(Ordering::Relaxed)
}
