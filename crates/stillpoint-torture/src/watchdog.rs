//! Ends a run that does not end by itself: a thread that waits for ever is a finding, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint_harness::output::say;

use super::findings::Findings;
use super::variant::Broken;
use super::world::PATIENCE;

/// How late a part may end. This is longer than the limits of the waits in a part, since a failed wait gives a better
/// message. The longest stay inside a section is some tens of milliseconds.
const GRACE: Duration = PATIENCE.saturating_add(Duration::from_secs(10));
/// How long the threads may take after a finding: they may be waiting for something that never happens.
const AFTER_FINDING: Duration = Duration::from_secs(2);
/// How often the watchdog checks.
const PERIOD: Duration = Duration::from_millis(250);
/// Of the time between two checks, at most this much counts: while the watchdog does not run, because the machine is
/// suspended or starved, the parts do not run either.
const MOST_COUNTED: Duration = Duration::from_millis(1000);
/// The value of `left` while no part runs.
const IDLE: u64 = u64::MAX;

/// Watches on its own thread, which is not joined: when it acts, no thread can be joined.
pub(crate) struct Watchdog {
    /// The time until it acts, in milliseconds.
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
                // Relaxed, above and below: the number orders nothing.
                let _ = watched.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    let longest = if findings.any() { millis(AFTER_FINDING) } else { IDLE - 1 };
                    (left != IDLE).then(|| left.min(longest).saturating_sub(passed))
                });
            }
            if !findings.any() {
                findings
                    .add(|| format!("stuck: the part did not end within {GRACE:?} after its time was up"));
            }
            findings.say(broken);
            if let Some(broken) = broken {
                say(broken.caught());
            }
            std::process::exit(1);
        });
        Self { left }
    }

    /// Notes that another part begins, which is planned to take `time`.
    pub(crate) fn expect_end_in(&self, time: Duration) {
        // Relaxed: see `start`.
        self.left.store(millis(time + GRACE), Ordering::Relaxed);
    }
}

/// The run has ended.
impl Drop for Watchdog {
    fn drop(&mut self) {
        // Relaxed: see `start`.
        self.left.store(IDLE, Ordering::Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(IDLE - 1)
}
