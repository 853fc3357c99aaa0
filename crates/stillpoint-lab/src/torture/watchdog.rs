//! Ends a run that does not end by itself: that a thread waits for ever is a finding, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::busted::Variant;

use super::arena::Context;
use super::report;

/// How late a part may end. The longest sleep inside a section is of some milliseconds.
const GRACE: Duration = Duration::from_secs(12);
/// How often the watchdog looks.
const PERIOD: Duration = Duration::from_millis(250);

/// Watches from a thread of its own, which is not joined: when it acts, no thread can be.
pub(super) struct Watchdog {
    begun: Instant,
    /// Milliseconds since `begun`.
    deadline: Arc<AtomicU64>,
}

impl Watchdog {
    pub(super) fn start(context: &'static Context, variant: Option<Variant>) -> Self {
        let (begun, deadline) = (Instant::now(), Arc::new(AtomicU64::new(u64::MAX)));
        let watched = Arc::clone(&deadline);
        thread::spawn(move || {
            // Relaxed: a number on its own.
            while millis(begun.elapsed()) < watched.load(Ordering::Relaxed) {
                thread::sleep(PERIOD);
            }
            context.findings.add(|| format!("stuck: not at its end {GRACE:?} after its time"));
            report::say_findings(context, variant);
            std::process::exit(1);
        });
        Self { begun, deadline }
    }

    /// Another part begins, which is to take so long.
    pub(super) fn expect_end_in(&self, time: Duration) {
        // Relaxed: see `start`.
        self.deadline.store(millis(self.begun.elapsed() + time + GRACE), Ordering::Relaxed);
    }
}

/// The run has come to its end.
impl Drop for Watchdog {
    fn drop(&mut self) {
        // Relaxed: see `start`.
        self.deadline.store(u64::MAX, Ordering::Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
