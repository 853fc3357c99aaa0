//! The races: two or a few threads that do one thing as fast as they can. Each provokes one fault.

mod litmus;
mod small;

use std::thread;
use std::time::Duration;

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::Boost;
use stillpoint_harness::output::say;

use crate::actor::{Shared, is_over, join, rest};
use crate::arena::Context;
use crate::awaiting::Stores;
use crate::counts::{Kind, Runs, least};
use crate::part::{Part, Stage};
use crate::races::litmus::{Announce, Free, Litmus};
use crate::table::{Against, TableRace};

/// Races, one after the other, and what they have done so far.
pub(crate) struct Races {
    share: u32,
    races: Vec<(Race, Runs)>,
    /// The time of each race.
    time: Duration,
    /// Shared by the races, because it takes long to make.
    stores: Stores,
}

impl Races {
    /// Those that these fence modes allow.
    pub(crate) fn new(share: u32, races: &[Race], modes: &[Mode]) -> Self {
        let races = races.iter().filter(|race| modes.contains(&race.mode()));
        let races = races.map(|&race| (race, Runs::default())).collect();
        Self { share, races, time: Duration::ZERO, stores: Stores::new() }
    }
}

impl Part for Races {
    fn share(&self) -> u32 {
        self.share
    }

    fn run(&mut self, stage: &Stage<'_>, time: Duration, rng: &mut Rng) -> Result<(), String> {
        let time = time.div_f64(self.races.len() as f64);
        for (race, runs) in &mut self.races {
            if is_over(stage.context) {
                break;
            }
            stage.enter(&race.title(), time);
            *runs = *runs + race.run(stage, time, &mut self.stores, rng)?;
            stage.context.audit();
        }
        self.time += time;
        Ok(())
    }

    fn missing(&self) -> Vec<String> {
        let few = self.races.iter().filter(|(race, runs)| {
            let parks = matches!(race, Race::Table(_));
            runs.tries.min(runs.over) < least(race.least(), self.time) || parks && runs.parkings == 0
        });
        few.map(|(race, runs)| format!("races of {}: {runs:?}", race.title())).collect()
    }

    fn show(&self) {
        say("Races                                                tries  freed or over   parked");
        let have_run = self.races.iter().filter(|(_, runs)| runs.tries + runs.over != 0);
        for (race, Runs { tries, over, parkings }) in have_run {
            let parkings = if *parkings == 0 { String::new() } else { parkings.to_string() };
            say(format!("  {:<42} {tries:>13} {over:>13} {parkings:>8}", race.title()).trim_end());
        }
    }
}

/// The surroundings of a race.
struct Ring<'r> {
    context: &'static Context,
    time: Duration,
    mode: Mode,
    shared: Shared<'r>,
}

/// The body of a thread.
type Body<'b> = Box<dyn FnOnce() -> Runs + Send + 'b>;

impl Ring<'_> {
    fn is_stopped(&self) -> bool {
        self.shared.is_stopped()
    }

    /// A CPU for one side, and those for the other: the same one if there is no other.
    fn sides(&self) -> Result<(usize, &[usize]), String> {
        let (&own, others) = self.shared.cpus.split_first().ok_or("no CPU is allowed")?;
        Ok((own, if others.is_empty() { self.shared.cpus } else { others }))
    }

    /// Runs the threads until the time is up.
    fn run(&self, bodies: Vec<Body<'_>>) -> Runs {
        thread::scope(|scope| {
            let threads: Vec<_> = bodies.into_iter().map(|body| scope.spawn(body)).collect();
            rest(self.context, self.time);
            self.shared.stop();
            threads.into_iter().fold(Runs::default(), |sum, thread| sum + join(self.context, thread))
        })
    }
}

/// One race.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Race {
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
    /// In a hash table.
    Table(TableRace),
}

/// All races but those in tables.
pub(crate) const ALL: &[Race] = &[
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

/// The races in tables.
pub(crate) const OF_TABLES: &[Race] = &[
    of_table(Kind::Protected, Against::Replace, Mode::Symmetric),
    of_table(Kind::Protected, Against::Growth, Mode::Symmetric),
    of_table(Kind::Guard, Against::Growth, Mode::Asymmetric),
    of_table(Kind::Protected, Against::Replace, Mode::Asymmetric),
    of_table(Kind::Qsbr, Against::Growth, Mode::Symmetric),
    of_table(Kind::Protected, Against::Growth, Mode::Asymmetric),
];

const fn of_table(kind: Kind, against: Against, mode: Mode) -> Race {
    Race::Table(TableRace { against, kind, mode })
}

const fn litmus(mode: Mode, announce: Announce, free: Free) -> Race {
    Race::Litmus(Litmus { mode, announce, free })
}

impl Race {
    fn mode(&self) -> Mode {
        match self {
            Race::Litmus(litmus) => litmus.mode,
            Race::Tokens(mode) | Race::Stop(mode) | Race::Room(mode) | Race::Await(mode) => *mode,
            Race::Boost(_) => Mode::Symmetric,
            Race::Table(race) => race.mode,
        }
    }

    /// The least number of tries, and of frees, per second: less proves nothing.
    fn least(&self) -> f64 {
        match self {
            Race::Litmus(_) | Race::Tokens(_) | Race::Room(_) | Race::Table(_) => 300.0,
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
            Race::Table(race) => race.title(),
            Race::Await(mode) => format!("leave against await ({mode})"),
        }
    }

    fn run(
        &self,
        stage: &Stage<'_>,
        time: Duration,
        stores: &mut Stores,
        rng: &mut Rng,
    ) -> Result<Runs, String> {
        let Stage { context, cpus, .. } = *stage;
        let ring = Ring { context, time, mode: self.mode(), shared: Shared::new(0, cpus) };
        match self {
            Race::Litmus(litmus) => litmus.run(ring, rng),
            Race::Tokens(_) => small::tokens(&ring, rng),
            Race::Stop(_) => small::stops(&ring, rng),
            Race::Boost(boost) => small::boosts(*boost, &ring, rng),
            Race::Room(_) => small::room(&ring, rng),
            Race::Await(_) => small::futures(&ring, stores, rng),
            Race::Table(race) => race.run(context, cpus, time, stores, rng),
        }
    }
}
