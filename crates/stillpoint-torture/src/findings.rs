//! The findings of the checks, from all threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use stillpoint_harness::output::say;

use super::variant::Broken;

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
