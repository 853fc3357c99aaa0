//! The races: two or a few threads that do one thing as fast as they can. Each provokes one fault.
//!
//! The first is the race between an announcement and a scan: a reader and a writer, each on its own CPU. The reader announces itself
//! and loads at once. The writer unlinks, scans and frees at once. If a fence is missing on either side, the announcement may still be
//! in the reader's store buffer when the scan looks for it, although the load came before the unlink. That window is open for some ten
//! nanoseconds, and hardly ever met by chance. So the reader first fills its store buffer ([`Stores`]), which keeps the window open for
//! one or two hundred nanoseconds. The writer unlinks at random moments of the reader's round. The reader then looks at its object long
//! enough for a writer that has missed the reader to destroy it.

mod small;

use std::thread;
use std::time::Duration;

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::{Boost, Domain, RcuArray, Reclaimer, Retired};
use stillpoint_harness::machine::cpus::run_on;
use stillpoint_harness::output::say;

use crate::actor::{Shared, Stores, is_over, join, rest};
use crate::arena::{Context, Handle, Maker};
use crate::counts::{Hold, Kind, Looks, Runs, least};
use crate::part::{Part, Stage, plain};
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

/// Few cells, in one cache line, so that the reader mostly loads the object that the writer is about to unlink.
const CELLS: usize = 2;
/// The most writers at the same time, if there are CPUs for them.
const MOST_WRITERS: usize = 2;
/// Tries between two looks at the stop flag.
const BATCH: u32 = 64;
/// Longest time between a free and the next unlink, as a power of two of turns of a spinning loop.
const LONGEST_SPIN: u32 = 8;
/// Most stores before an announcement: about what a store buffer holds. More would only delay the announcement.
const MOST_STORES: usize = 60;

/// A race of one reader against one writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Litmus {
    mode: Mode,
    announce: Announce,
    free: Free,
}

/// How the reader announces itself, in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Announce {
    Pin,
    BoundPin,
    Protect,
    BoundProtect,
    Online,
    BoundOnline,
    BackByPin,
    BackByProtect,
    Register,
}

/// How the writer frees an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Free {
    Try,
    Poll,
}

impl Announce {
    fn text(self) -> &'static str {
        const TEXTS: &str =
            "pin|bound pin|protect|bound protect|online|bound online|offline, pin|offline, protect|register";
        TEXTS.split('|').nth(self as usize).unwrap_or_default()
    }
}

impl Free {
    fn text(self) -> &'static str {
        ["try_free", "poll"][self as usize]
    }
}

impl Litmus {
    fn run(&self, ring: Ring<'_>, rng: &mut Rng) -> Result<Runs, String> {
        let (context, domain) = (ring.context, plain(self.mode)?);
        let mut first = Maker::new(context, MOST_WRITERS);
        let cells = RcuArray::new_in(&domain, CELLS, |_| first.make());
        let opponents = Opponents { litmus: *self, ring, domain, cells };
        let opponents = &opponents;
        // With two CPUs, the reader has one and the writer the other. A second writer needs a third CPU.
        let (own, others) = opponents.ring.sides()?;
        let reads = rng.fork();
        let mut bodies: Vec<Body<'_>> =
            vec![Box::new(move || Runs { tries: opponents.read(own, reads), ..Runs::default() })];
        for (number, &cpu) in others.iter().take(MOST_WRITERS).enumerate() {
            let (maker, writes) = (Maker::new(context, number), rng.fork());
            bodies.push(Box::new(move || Runs {
                over: opponents.write(cpu, maker, writes),
                ..Runs::default()
            }));
        }
        Ok(opponents.ring.run(bodies))
    }
}

struct Opponents<'r> {
    litmus: Litmus,
    ring: Ring<'r>,
    domain: Domain,
    cells: RcuArray<Handle>,
}

impl Opponents<'_> {
    /// Returns the number of tries.
    fn read(&self, cpu: usize, mut rng: Rng) -> u64 {
        // If it is refused, the threads meet less often. The counts show if that is too rarely.
        let _ = run_on(&[cpu]);
        let Self { domain, cells, .. } = self;
        let stores = Stores::new();
        let is_back = matches!(self.litmus.announce, Announce::BackByPin | Announce::BackByProtect);
        match self.litmus.announce {
            Announce::Pin | Announce::BackByPin => {
                let reader = domain.reader();
                self.repeat(&mut rng, Kind::Guard, |watch, fill, cell| {
                    if is_back {
                        reader.offline();
                    }
                    stores.fill(fill);
                    watch.look(cells.load(cell, &reader.pin()));
                })
            }
            Announce::BoundPin => {
                let mut reader = domain.reader();
                let mut bound = cells.bind(&mut reader);
                self.repeat(&mut rng, Kind::Guard, |watch, fill, cell| {
                    stores.fill(fill);
                    watch.look(bound.pin().load(cell));
                })
            }
            Announce::Protect | Announce::BackByProtect => {
                let reader = domain.reader();
                self.repeat(&mut rng, Kind::Protected, |watch, fill, cell| {
                    if is_back {
                        reader.offline();
                    }
                    stores.fill(fill);
                    watch.look(cells.protect(cell, &reader).as_deref());
                })
            }
            Announce::BoundProtect => {
                let mut reader = domain.reader();
                let mut bound = cells.bind(&mut reader);
                self.repeat(&mut rng, Kind::Protected, |watch, fill, cell| {
                    stores.fill(fill);
                    watch.look(bound.protect(cell).as_deref());
                })
            }
            Announce::Online => {
                let mut reader = domain.qsbr_reader();
                self.repeat(&mut rng, Kind::Qsbr, |watch, fill, cell| {
                    reader.offline(|| stores.fill(fill));
                    watch.look(cells.load(cell, &reader));
                })
            }
            Announce::BoundOnline => {
                let mut reader = domain.qsbr_reader();
                let mut bound = cells.bind_qsbr(&mut reader);
                self.repeat(&mut rng, Kind::Qsbr, |watch, fill, cell| {
                    bound.offline(|| stores.fill(fill));
                    watch.look(bound.load(cell));
                })
            }
            Announce::Register => self.repeat(&mut rng, Kind::Qsbr, |watch, _, cell| {
                watch.look(cells.load(cell, &domain.qsbr_reader()));
            }),
        }
    }

    /// Repeats the try with varying delays until stopped.
    fn repeat(
        &self,
        rng: &mut Rng,
        kind: Kind,
        mut attempt: impl FnMut(&mut Watch<'_>, usize, usize),
    ) -> u64 {
        let mut seen = Looks::default();
        let mut tries = 0;
        let hold = Hold { kind, mode: self.litmus.mode };
        while !self.ring.is_stopped() {
            // A poll frees an object only after a heavy fence, which the reader has to outlast.
            let patient = self.litmus.free == Free::Poll && rng.bool();
            let magnitude = if patient { rng.u32(12..15) } else { rng.u32(0..12) };
            let looks = rng.u32(0..1 << magnitude);
            let mut watch = Watch { context: self.ring.context, hold, seen: &mut seen, looks };
            let fill = if rng.u32(0..4) == 0 { 0 } else { rng.usize(0..MOST_STORES) };
            for number in 0..BATCH {
                attempt(&mut watch, fill, number as usize % CELLS);
            }
            tries += u64::from(BATCH);
        }
        tries
    }

    /// Returns the number of objects freed.
    fn write(&self, cpu: usize, mut maker: Maker, mut rng: Rng) -> u64 {
        // If it is refused: see `read`.
        let _ = run_on(&[cpu]);
        let mut frees = 0;
        let mut reclaimer = self.domain.reclaimer_builder().batch(1).fence_interval(Duration::ZERO).build();
        while !self.ring.is_stopped() {
            let longest = 1 << rng.u32(0..=LONGEST_SPIN);
            for number in 0..BATCH {
                // A varying delay, to meet any moment of the reader's round: otherwise the two would run in step.
                (0..rng.u32(0..longest)).for_each(|_| std::hint::spin_loop());
                let Some(new) = maker.make() else {
                    frees += reclaimer.poll() as u64;
                    continue;
                };
                let Some(old) = self.cells.swap(number as usize % CELLS, Some(new)) else { continue };
                match self.litmus.free {
                    Free::Try => frees += self.free(&mut reclaimer, old),
                    Free::Poll => frees += poll(&mut reclaimer, old),
                }
            }
        }
        frees
    }

    /// Frees one object as soon as it can be, unless the reader is preempted.
    fn free(&self, reclaimer: &mut Reclaimer, mut old: Retired<Handle>) -> u64 {
        for _ in 0..1000 {
            match old.try_free() {
                Ok(()) => return 1,
                Err(retired) => old = retired,
            }
        }
        poll(reclaimer, old)
    }
}

fn poll(reclaimer: &mut Reclaimer, old: Retired<Handle>) -> u64 {
    // If the reclaimer is full, the object is left to the domain.
    drop(reclaimer.retire(old));
    reclaimer.poll() as u64
}

/// How a reader looks at an object.
struct Watch<'r> {
    context: &'static Context,
    hold: Hold,
    seen: &'r mut Looks,
    looks: u32,
}

impl Watch<'_> {
    #[inline]
    fn look(&mut self, object: Option<&Handle>) {
        self.context.watch(object, self.hold, self.seen, self.looks);
    }
}
