//! How the domains of a run are built: everything that a builder offers, in any combination.

use std::time::Duration;

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::{Domain, DomainBuilder, Help};

/// What readers are helped after.
const HELP_AFTER: Duration = Duration::from_micros(50);

/// One combination.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    mode: Mode,
    help: Help,
    /// Most objects that may wait in the whole domain.
    pub(super) capacity: Option<usize>,
}

impl Setting {
    pub(super) fn random(mode: Mode, rng: &mut Rng) -> Self {
        let help = match rng.u32(0..8) {
            0..2 => Help::Off,
            2..6 => Help::Realtime,
            _ => Help::Migrate,
        };
        let capacity = (rng.u32(0..3) == 0).then(|| 1 << rng.u32(5..12));
        Self { mode, help, capacity }
    }

    /// As [`random`](Setting::random), without a limit.
    pub(super) fn unlimited(mode: Mode, rng: &mut Rng) -> Self {
        Self { capacity: None, ..Self::random(mode, rng) }
    }

    /// A domain of that name, to be completed.
    pub(super) fn builder(&self, name: &str) -> DomainBuilder {
        let Self { mode, help, capacity } = *self;
        let builder = Domain::builder()
            .name(name)
            .fence(mode)
            .help(help)
            .help_fallback(Help::Migrate)
            .help_after(HELP_AFTER);
        capacity.into_iter().fold(builder, DomainBuilder::capacity)
    }

    pub(super) fn build(&self, name: &str) -> Result<Domain, String> {
        self.builder(name).build().map_err(|error| error.to_string())
    }
}
