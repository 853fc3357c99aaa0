//! The races: each provokes one fault.

mod litmus;
mod small;

use std::ops::Add;
use std::time::Duration;

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::Boost;
use stillpoint_harness::output::say;

use crate::actor::is_over;
use crate::awaiting::Stores;
use crate::counts::least;
use crate::plan::{Part, Stage};
use crate::races::litmus::{Announce, Free, Litmus};

/// All races, one after the other, and what they have done so far.
pub(crate) struct Races {
    races: Vec<(Race, Runs)>,
    /// The time of each race.
    time: Duration,
    /// Shared by the races on this thread, because it takes long to make.
    stores: Stores,
}

impl Races {
    /// The races that these fence modes allow.
    pub(crate) fn new(modes: &[Mode]) -> Self {
        let races = ALL.iter().filter(|race| modes.contains(&race.mode()));
        Self {
            races: races.map(|&race| (race, Runs::default())).collect(),
            time: Duration::ZERO,
            stores: Stores::new(),
        }
    }
}

impl Part for Races {
    fn share(&self) -> u32 {
        40
    }

    fn run(&mut self, stage: &Stage<'_>, time: Duration, rng: &mut Rng) -> Result<(), String> {
        let time = time.div_f64(self.races.len() as f64);
        for (race, runs) in &mut self.races {
            if is_over(stage.context) {
                break;
            }
            stage.enter(&race.title(), time);
            *runs = *runs + race.run(stage, time, &self.stores, rng)?;
            stage.context.audit();
        }
        self.time += time;
        Ok(())
    }

    fn missing(&self) -> Vec<String> {
        let few = self
            .races
            .iter()
            .filter(|(race, runs)| runs.tries.min(runs.over) < least(race.least(), self.time));
        few.map(|(race, Runs { tries, over })| {
            format!("races of {}: {tries} tries, {over} freed or over", race.title())
        })
        .collect()
    }

    fn show(&self) {
        say("Races                                                tries         freed");
        for (race, Runs { tries, over }) in self.races.iter().filter(|(_, runs)| runs.tries != 0) {
            say(format!("  {:<42} {tries:>13} {over:>13}", race.title()));
        }
    }
}

/// One race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Race {
    /// An announcement against a scan.
    Litmus(Litmus),
    /// Many threads that start tokens at once.
    Tokens(Mode),
    /// A background reclaimer that is stopped while it goes to sleep.
    Stop(Mode),
    /// Readers that are boosted, and end.
    Boost(Boost),
    /// Threads that retire in a domain with a limit.
    Room(Mode),
    /// Futures that wait for a reader.
    Await(Mode),
}

/// The counts of a race.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Runs {
    /// Announcements, or tokens that were started.
    pub(crate) tries: u64,
    /// Objects that were freed meanwhile, or tokens that were found to be over.
    pub(crate) over: u64,
}

impl Add for Runs {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self { tries: self.tries + more.tries, over: self.over + more.over }
    }
}

/// All races.
const ALL: &[Race] = &[
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
    Race::Stop(Mode::Symmetric),
    Race::Boost(Boost::Realtime),
    Race::Room(Mode::Symmetric),
    Race::Await(Mode::Symmetric),
    Race::Boost(Boost::Migrate),
    Race::Await(Mode::Asymmetric),
    litmus(Mode::Asymmetric, Announce::Register, Free::Try),
    litmus(Mode::Asymmetric, Announce::BackByPin, Free::Poll),
    litmus(Mode::Asymmetric, Announce::BackByProtect, Free::Try),
];

const fn litmus(mode: Mode, announce: Announce, free: Free) -> Race {
    Race::Litmus(Litmus { mode, announce, free })
}

impl Race {
    fn mode(&self) -> Mode {
        match self {
            Race::Litmus(litmus) => litmus.mode,
            Race::Tokens(mode) | Race::Stop(mode) | Race::Room(mode) | Race::Await(mode) => *mode,
            Race::Boost(_) => Mode::Symmetric,
        }
    }

    /// The least number of tries, and of frees, per second: less proves nothing.
    fn least(&self) -> f64 {
        match self {
            Race::Litmus(_) | Race::Tokens(_) | Race::Room(_) => 300.0,
            Race::Stop(_) | Race::Await(_) => 100.0,
            Race::Boost(_) => 5.0,
        }
    }

    fn title(&self) -> String {
        match self {
            Race::Litmus(Litmus { announce, free, mode }) => {
                format!("{} against {} ({mode})", announce.text(), free.text())
            }
            Race::Tokens(mode) => format!("start against start ({mode})"),
            Race::Stop(mode) => format!("stop against a reclaimer's sleep ({mode})"),
            Race::Boost(boost) => format!("boost against the end of a section ({boost:?})"),
            Race::Room(mode) => format!("retire against retire in a full domain ({mode})"),
            Race::Await(mode) => format!("leave against await ({mode})"),
        }
    }

    fn run(
        &self,
        stage: &Stage<'_>,
        duration: Duration,
        stores: &Stores,
        rng: &mut Rng,
    ) -> Result<Runs, String> {
        let (context, cpus) = (stage.context, stage.cpus);
        match self {
            Race::Litmus(litmus) => litmus.run(context, cpus, duration, rng),
            Race::Tokens(mode) => small::tokens(*mode, context, cpus, duration, rng),
            Race::Stop(mode) => small::stops(*mode, context, duration, rng),
            Race::Boost(boost) => small::boosts(*boost, context, cpus, duration, rng),
            Race::Room(mode) => small::room(*mode, context, duration, rng),
            Race::Await(mode) => small::await_all(*mode, context, duration, stores, rng),
        }
    }
}
