//! Progress on standard error: a bar on a terminal, plain lines in a pipe.
//!
//! The bar moves only between measurements: a thread that redraws it would disturb them.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// How far a run has come.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Progress over `steps` measurements.
    pub fn new(steps: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed}, {eta} left {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(steps as u64).with_style(style)
        });
        Self { bar }
    }

    /// Announces what follows: a line in a pipe, nothing on a terminal.
    pub fn stage(&self, text: &str) {
        if self.bar.is_none() {
            super::tell(text);
        }
    }

    /// Names the measurement that begins; shown only on a terminal.
    pub fn begin(&self, text: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(text);
            bar.tick();
        }
    }

    /// Counts a measurement that has ended.
    pub fn step(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
