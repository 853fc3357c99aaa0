//! Ends a run that does not end by itself: that a thread waits for ever is a finding, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::findings::Findings;
use super::variant::Broken;
use super::world::PATIENCE;

/// How late a part may end: what is waited for in it says first what it waited for. The longest stay inside a section is of
/// some ten milliseconds.
const GRACE: Duration = PATIENCE.saturating_add(Duration::from_secs(10));
/// How long the threads have once something was found: they may wait for what will never come.
const AFTER_FINDING: Duration = Duration::from_secs(2);
/// How often the watchdog looks.
const PERIOD: Duration = Duration::from_millis(250);
/// What counts of the time between two looks at the most: while the watchdog itself does not run, because the machine
/// is suspended or starved, the parts do not run either.
const MOST_COUNTED: Duration = Duration::from_millis(1000);
/// No part runs.
const IDLE: u64 = u64::MAX;

/// Watches from a thread of its own, which is not joined: when it acts, no thread can be.
pub(crate) struct Watchdog {
    /// Milliseconds until it acts.
    left: Arc<AtomicU64>,
}

impl Watchdog {
    pub(crate) fn start(findings: &'static Findings, broken: Option<Broken>) -> Self {
        let left = Arc::new(AtomicU64::new(IDLE));
        let watched = Arc::clone(&left);
        thread::spawn(move || {
            let mut last = Instant::now();
            while watched.load(Ordering::Relaxed) != 0 {
                thread::sleep(PERIOD);
                let passed = millis(last.elapsed().min(MOST_COUNTED));
                last = Instant::now();
                // Relaxed, above and below: a number on its own.
                let _ = watched.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    let longest = if findings.any() { millis(AFTER_FINDING) } else { IDLE - 1 };
                    (left != IDLE).then(|| left.min(longest).saturating_sub(passed))
                });
            }
            if !findings.any() {
                findings.add(|| format!("stuck: not at its end {GRACE:?} after its time"));
            }
            findings.say(broken);
            std::process::exit(1);
        });
        Self { left }
    }

    /// Another part begins, which is to take so long.
    pub(crate) fn expect_end_in(&self, time: Duration) {
        // Relaxed: see `start`.
        self.left.store(millis(time + GRACE), Ordering::Relaxed);
    }
}

/// The run has come to its end.
impl Drop for Watchdog {
    fn drop(&mut self) {
        // Relaxed: see `start`.
        self.left.store(IDLE, Ordering::Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(IDLE - 1)
}
