//! The settings of the domains of a run: random combinations of everything that a builder offers.

use std::time::Duration;

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::{Boost, Domain, DomainBuilder};

/// The time after which readers are boosted.
const BOOST_AFTER: Duration = Duration::from_micros(50);

/// One combination.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    mode: Mode,
    boost: Boost,
    /// The most objects that may wait in the whole domain.
    pub(crate) capacity: Option<usize>,
}

impl Setting {
    pub(crate) fn random(mode: Mode, rng: &mut Rng) -> Self {
        let boost = match rng.u32(0..8) {
            0..2 => Boost::Off,
            2..6 => Boost::Realtime,
            _ => Boost::Migrate,
        };
        let capacity = (rng.u32(0..3) == 0).then(|| 1 << rng.u32(5..12));
        Self { mode, boost, capacity }
    }

    /// As [`random`](Setting::random), without a limit.
    pub(crate) fn unlimited(mode: Mode, rng: &mut Rng) -> Self {
        Self { capacity: None, ..Self::random(mode, rng) }
    }

    /// The builder of a domain with this name.
    pub(crate) fn builder(&self, name: &str) -> DomainBuilder {
        let Self { mode, boost, capacity } = *self;
        let builder = Domain::builder()
            .name(name)
            .fence(mode)
            .boost(boost)
            .boost_fallback(Boost::Migrate)
            .boost_after(BOOST_AFTER);
        capacity.into_iter().fold(builder, DomainBuilder::max_pending)
    }

    pub(crate) fn build(&self, name: &str) -> Result<Domain, String> {
        self.builder(name).build().map_err(|error| error.to_string())
    }
}
