//! Ctrl-C, SIGTERM and SIGHUP: the first one ends the measurement early, the second one ends the program.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::output;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The functions to call before a second signal ends the program, the oldest first.
static LAST: Mutex<Vec<Last>> = Mutex::new(Vec::new());

struct Last {
    number: u64,
    function: Box<dyn Fn() + Send>,
}

/// Exit code of a program ended by SIGINT, by the convention of shells.
const KILLED_BY_SIGINT: i32 = 130;

/// Installs a handler for these signals. If that is refused, they keep their default effect. SIGHUP stays ignored if it was: `nohup` does
/// that. SIGINT does not, since the program sends it to its own child processes.
///
/// The first signal is answered on standard error, because building large structures or ending a round may take a
/// while.
pub fn listen() {
    listen_and(|| output::tell("interrupted: ending soon; interrupt again to end at once"));
}

/// As [`listen`], but `tell` answers the first signal: a child process prints nothing.
pub(crate) fn listen_and(tell: fn()) {
    let handler = move || {
        // Relaxed: a flag on its own; nothing is published with it.
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            let last = std::mem::take(&mut *LAST.lock().unwrap_or_else(PoisonError::into_inner));
            last.iter().rev().for_each(|last| (last.function)());
            std::process::exit(KILLED_BY_SIGINT);
        }
        tell();
    };
    let is_ignored = is_hangup_ignored();
    let installed = ctrlc::set_handler(handler);
    if is_ignored {
        // SAFETY: the signal exists, and this disposition runs no code.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    }
    if let Err(error) = installed {
        output::tell(format!("warning: Ctrl-C will end the program at once, without results: {error}"));
    }
}

fn is_hangup_ignored() -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new one, the call writes the present disposition, for which there is room; all zeros are a valid one.
    unsafe {
        libc::sigaction(libc::SIGHUP, ptr::null(), now.as_mut_ptr());
        now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Whether one of the signals has come, or nobody reads the output any more.
pub fn requested() -> bool {
    // Relaxed: see `listen_and`.
    INTERRUPTED.load(Ordering::Relaxed) || output::is_unread()
}

/// A function that is called if a second signal ends the program before this is dropped.
#[derive(Debug)]
#[must_use = "the function is called only while this value exists"]
pub(crate) struct AtTheEnd(u64);

/// Registers `function`. The function that was registered last is called first.
pub(crate) fn at_the_end(function: impl Fn() + Send + 'static) -> AtTheEnd {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    // Relaxed: the number only has to be unique.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    LAST.lock().unwrap_or_else(PoisonError::into_inner).push(Last { number, function: Box::new(function) });
    AtTheEnd(number)
}

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        LAST.lock().unwrap_or_else(PoisonError::into_inner).retain(|last| last.number != self.0);
    }
}
