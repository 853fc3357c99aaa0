//! The findings of the checks, from all threads.
//!
//! The [`Watchdog`] ends a run that does not end by itself: a thread that waits for ever is a finding, too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint_harness::output::say;

use crate::variant::Broken;

/// The number of findings that are described; further ones are only counted.
const DESCRIBED: u64 = 8;

/// Violations of the library's promises. A clean run has none.
#[derive(Debug)]
pub(crate) struct Findings {
    begun: Instant,
    number: AtomicU64,
    first: OnceLock<Duration>,
    texts: Mutex<Vec<String>>,
    /// The name of the part that is running.
    stage: Mutex<String>,
}

impl Findings {
    /// Lives for the rest of the process, because destructors may run at any time.
    pub(crate) fn leak() -> &'static Self {
        Box::leak(Box::new(Self::new()))
    }

    fn new() -> Self {
        Self {
            begun: Instant::now(),
            number: AtomicU64::new(0),
            first: OnceLock::new(),
            texts: Mutex::new(Vec::new()),
            stage: Mutex::new(String::new()),
        }
    }

    /// Sets the name of the part that runs from now on, for the descriptions.
    pub(crate) fn enter(&self, stage: &str) {
        stage.clone_into(&mut self.stage.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds a finding, which ends the run. `text` is only called for the first findings.
    #[cold]
    pub(crate) fn add(&self, text: impl FnOnce() -> String) {
        self.first.get_or_init(|| self.begun.elapsed());
        // Relaxed: a count, and the flag that ends the run; nothing is published with it.
        if self.number.fetch_add(1, Ordering::Relaxed) < DESCRIBED {
            let text = format!("{}: {}", self.stage.lock().unwrap_or_else(PoisonError::into_inner), text());
            self.texts.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    }

    pub(crate) fn number(&self) -> u64 {
        // Relaxed: see `add`.
        self.number.load(Ordering::Relaxed)
    }

    pub(crate) fn any(&self) -> bool {
        self.number() != 0
    }

    /// Prints the time of the first finding, from the start of the run, and the descriptions of the first findings.
    pub(crate) fn say(&self, broken: Option<Broken>) {
        let after = self.first_after().unwrap_or_default();
        match broken {
            Some(broken) => say(format!("\nCaught: {broken} after {after:.2?}")),
            None => say(format!("\nFAILED after {after:.2?}")),
        }
        for text in self.texts() {
            say(format!("  {text}"));
        }
    }

    fn first_after(&self) -> Option<Duration> {
        self.first.get().copied()
    }

    /// The descriptions of the first findings.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The limit of waits that must end soon. A virtual machine may stand still for seconds while its clock goes on.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_findings_are_described_and_all_are_counted() {
        let findings = Findings::new();
        assert!(!findings.any() && findings.first_after().is_none());
        findings.enter("mixed");
        for number in 0..DESCRIBED + 5 {
            findings.add(|| format!("number {number}"));
        }
        assert_eq!(findings.number(), DESCRIBED + 5);
        assert_eq!(findings.texts().len(), DESCRIBED as usize);
        assert_eq!(findings.texts()[1], "mixed: number 1");
        assert!(findings.any() && findings.first_after().is_some());
    }
}
