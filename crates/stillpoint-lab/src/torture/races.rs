//! The races: parts of a run that provoke one thing each.

use std::ops::Add;
use std::time::Duration;

use fastrand::Rng;
use stillpoint::fence::Mode;

use super::arena::Context;
use super::litmus::{Announce, Free, Litmus};
use super::tokens;

/// One race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Race {
    /// An announcement against a scan.
    Litmus(Litmus),
    /// Many who start tokens at once.
    Tokens(Mode),
}

/// How often a race was run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Runs {
    /// Announcements, or tokens started.
    pub(super) tries: u64,
    /// Objects freed meanwhile, or tokens found over.
    pub(super) over: u64,
}

impl Add for Runs {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self { tries: self.tries + more.tries, over: self.over + more.over }
    }
}

/// Every race there is.
pub(super) const ALL: &[Race] = &[
    litmus(Mode::Asymmetric, Announce::Pin, Free::Try),
    litmus(Mode::Symmetric, Announce::Protect, Free::Poll),
    litmus(Mode::Asymmetric, Announce::BoundProtect, Free::Poll),
    litmus(Mode::Symmetric, Announce::BoundPin, Free::Try),
    litmus(Mode::Asymmetric, Announce::Online, Free::Try),
    Race::Tokens(Mode::Symmetric),
    litmus(Mode::Asymmetric, Announce::Protect, Free::Poll),
    litmus(Mode::Symmetric, Announce::Pin, Free::Try),
    litmus(Mode::Asymmetric, Announce::BoundPin, Free::Poll),
    litmus(Mode::Symmetric, Announce::BoundProtect, Free::Try),
    litmus(Mode::Asymmetric, Announce::BoundOnline, Free::Poll),
    Race::Tokens(Mode::Asymmetric),
    litmus(Mode::Asymmetric, Announce::Register, Free::Try),
];

const fn litmus(mode: Mode, announce: Announce, free: Free) -> Race {
    Race::Litmus(Litmus { mode, announce, free })
}

impl Race {
    pub(super) fn mode(&self) -> Mode {
        match self {
            Race::Litmus(litmus) => litmus.mode,
            Race::Tokens(mode) => *mode,
        }
    }

    pub(super) fn title(&self) -> String {
        match self {
            Race::Litmus(Litmus { announce, free, mode }) => {
                format!("{} against {} ({mode})", announce.text(), free.text())
            }
            Race::Tokens(mode) => format!("start against start ({mode})"),
        }
    }

    pub(super) fn run(
        &self,
        context: &'static Context,
        cpus: &[usize],
        duration: Duration,
        rng: &mut Rng,
    ) -> Result<Runs, String> {
        context.findings.enter(&self.title());
        match self {
            Race::Litmus(litmus) => litmus.run(context, cpus, duration, rng),
            Race::Tokens(mode) => tokens::run(*mode, context, cpus, duration, rng),
        }
    }
}
