//! The parts that a run repeats; and the domain of a part, with its [`Setting`]: a random combination of everything that a builder
//! offers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::limits::WhenFull;
use stillpoint::rcu::{BackgroundReclaimer, Boost, Domain, DomainBuilder, RcuCell, RetireHandle};
use stillpoint_harness::output::say;

use crate::actor::Sections;
use crate::arena::{Context, Handle, Maker};
use crate::counts::{Area, Hold, Kind, Tally};
use crate::findings::{PATIENCE, Watchdog};
use crate::trouble::Ordinary;

/// A part of a run, which is repeated, and counts what it does.
///
/// A new part goes into the list in `plan.rs`. Before `run` returns, it has to end all threads that it starts, and destroy all
/// objects that it makes from the stage's context.
pub(crate) trait Part {
    /// Its share of a cycle, in percent.
    fn share(&self) -> u32;

    /// Runs for `time`. An error is a reason why this machine cannot run it.
    fn run(&mut self, stage: &Stage<'_>, time: Duration, rng: &mut Rng) -> Result<(), String>;

    /// The events that happened too rarely, in words.
    fn missing(&self) -> Vec<String>;

    /// Prints the counts, without those that are 0.
    fn show(&self);
}

/// The environment of a part.
pub(crate) struct Stage<'p> {
    pub(crate) context: &'static Context,
    /// The CPUs that this process may use.
    pub(crate) cpus: &'p [usize],
    /// The fence modes that this machine has.
    pub(crate) modes: &'p [Mode],
    /// Threads of the parts that want more threads than CPUs.
    pub(crate) threads: usize,
    pub(crate) watchdog: &'p Watchdog,
    /// The state in which every thread has to be left.
    pub(crate) ordinary: &'p Ordinary,
}

impl Stage<'_> {
    /// Begins a stage: its name for findings, and its planned time.
    pub(crate) fn enter(&self, name: &str, time: Duration) {
        self.context.findings.enter(name);
        self.watchdog.expect_end_in(time);
    }

    /// A random fence mode.
    pub(crate) fn mode(&self, rng: &mut Rng) -> Mode {
        self.modes[rng.usize(0..self.modes.len())]
    }
}

/// A part that does the same each time.
pub(crate) struct Steady {
    area: Area,
    share: u32,
    work: Work,
    tally: Tally,
    time: Duration,
    rounds: u32,
}

/// What such a part does for a time.
type Work = fn(&Stage<'_>, Duration, &mut Rng) -> Result<Tally, String>;

impl Steady {
    pub(crate) fn boxed(area: Area, share: u32, work: Work) -> Box<dyn Part> {
        Box::new(Self { area, share, work, tally: Tally::default(), time: Duration::ZERO, rounds: 0 })
    }
}

impl Part for Steady {
    fn share(&self) -> u32 {
        self.share
    }

    fn run(&mut self, stage: &Stage<'_>, time: Duration, rng: &mut Rng) -> Result<(), String> {
        stage.enter(self.area.names().0, time);
        self.tally.merge(&(self.work)(stage, time, rng)?);
        self.time += time;
        self.rounds += 1;
        Ok(())
    }

    fn missing(&self) -> Vec<String> {
        self.tally.missing(self.area, self.time)
    }

    fn show(&self) {
        let (_, title) = self.area.names();
        say(format!("{title}: rounds: {}, of {:.1?} each", self.rounds, self.time / self.rounds.max(1)));
        self.tally.show(self.area);
    }
}

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

/// Few cells, so that readers and writers meet.
const CELLS: usize = 12;
/// How long a reader may hold up a grace period before it is reported.
const STALL: Duration = Duration::from_millis(1);

/// A domain, its cells, and the state that its threads share.
pub(crate) struct World {
    pub(crate) context: &'static Context,
    pub(crate) domain: Domain,
    pub(crate) cells: Vec<RcuCell<Handle>>,
    pub(crate) sections: Arc<Sections>,
    pub(crate) handle: RetireHandle,
    /// How often a stall was reported.
    pub(crate) reports: Arc<AtomicU64>,
}

/// A domain without further settings.
pub(crate) fn plain(mode: Mode) -> Result<Domain, String> {
    Domain::builder().fence(mode).build().map_err(|error| error.to_string())
}

/// Looks at the object of a cell as a reader of this kind, which is registered for as long as it looks.
pub(crate) fn look(domain: &Domain, cell: &RcuCell<Handle>, kind: Kind, look: impl FnOnce(Option<&Handle>)) {
    match kind {
        Kind::Protected => look(cell.protect(&domain.reader()).as_deref()),
        Kind::Guard => look(cell.load(&domain.reader().pin())),
        Kind::Qsbr => look(cell.load(&domain.qsbr_reader())),
    }
}

/// A random policy for retirements that find no room.
pub(crate) fn when_full(rng: &mut Rng) -> WhenFull {
    match rng.u32(0..3) {
        0 => WhenFull::HandBack,
        1 => WhenFull::Wait(Duration::from_micros(rng.u64(0..500))),
        _ => WhenFull::Reclaim,
    }
}

impl World {
    /// A world for `slots` threads, and the background reclaimer of its retire handles.
    pub(crate) fn new(
        context: &'static Context,
        setting: &Setting,
        slots: usize,
        maker: &mut Maker,
        rng: &mut Rng,
    ) -> Result<(Self, BackgroundReclaimer), String> {
        let reports = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&reports);
        let builder = setting.builder("mixed").stall_hook(STALL, move |_| {
            // Relaxed: a count.
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let domain = builder.build().map_err(|error| error.to_string())?;
        let cell = || match maker.make() {
            Some(first) => RcuCell::new_in(&domain, *first),
            None => RcuCell::empty_in(&domain),
        };
        let cells = std::iter::repeat_with(cell).take(CELLS).collect();
        let background = domain
            .reclaimer_builder()
            .max_pending(1 << rng.u32(6..16))
            .batch(1 << rng.u32(0..9))
            .when_full(when_full(rng))
            .fence_interval(Duration::from_micros(rng.u64(0..200)))
            .build_background();
        let (sections, handle) = (Arc::new(Sections::new(slots)), background.retire_handle());
        Ok((Self { context, domain, cells, sections, handle, reports }, background))
    }

    pub(crate) fn hold(&self, kind: Kind) -> Hold {
        Hold { kind, mode: self.domain.fence_mode() }
    }

    pub(crate) fn cell(&self, rng: &mut Rng) -> &RcuCell<Handle> {
        &self.cells[rng.usize(0..CELLS)]
    }

    /// Ends the world, when no thread uses it any more. If `tidy`, a reclaimer frees the rest, and the domain's
    /// counts are checked. Otherwise the domain frees the rest when it is dropped.
    pub(crate) fn close(self, tidy: bool) {
        let Self { context, domain, cells, handle, .. } = self;
        drop(handle);
        drop(cells);
        // Without readers, a grace period is over at once.
        let token = domain.start();
        if !domain.check(token) {
            context
                .find(|| format!("a token was not over although no reader was left: {:?}", domain.stats()));
        }
        if !tidy {
            return;
        }
        let (mut reclaimer, deadline) = (domain.reclaimer(), Instant::now() + PATIENCE);
        while domain.stats().pending != 0 && Instant::now() < deadline {
            reclaimer.poll();
        }
        if let Err(error) = reclaimer.flush_timeout(PATIENCE) {
            context.find(|| format!("objects that no reader holds were not freed: {error}"));
        }
        let stats = domain.stats();
        if stats.pending != 0 || stats.retired != stats.freed || stats.readers != 0 {
            context.find(|| format!("the domain has miscounted: {stats:?}"));
        }
    }
}
