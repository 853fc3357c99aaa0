//! Readers that are parked in a signal handler for seconds, or for a minute in a long run, while the other parts run; and
//! the checks of their domains meanwhile.
//!
//! The reader looks at its object over and over until a signal parks it. Behind a region reader, everything that is retired
//! waits: the token is not over, a reclaimer accepts as many objects as its limit allows and hands back the rest, and timed
//! waits name the thread. Behind a protected load, only its object waits, and everything else is freed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::wait::{ReaderKind, Stall, SynchronizeError, Token};
use stillpoint::rcu::{
    BackgroundReclaimer, Domain, DomainBuilder, RcuCell, Reclaimer, RetireHandle, Retired,
};
use stillpoint_harness::output::say;

use crate::actor::{is_over, join, own_id};
use crate::arena::{Context, Handle, Maker};
use crate::counts::{Area, Count, Hold, Kind, Looks, Tally};
use crate::findings::{Findings, PATIENCE};
use crate::part::look;
use crate::trouble::Parked;

/// The time between two looks. A look takes a millisecond or two, so the other parts are hardly disturbed.
const PERIOD: Duration = Duration::from_millis(50);

/// Runs beside all other parts.
pub(crate) struct Companion {
    /// A separate context, because the other parts count their objects between parts.
    context: &'static Context,
    /// Its times: how long the readers were parked, and those from unlink to destructor.
    tally: Tally,
    time: Duration,
}

impl Companion {
    pub(crate) fn new(findings: &'static Findings) -> Self {
        Self { context: Context::leak(1, findings), tally: Tally::default(), time: Duration::ZERO }
    }

    /// Parks a reader of each kind, checks their domains until `stop` is set, and releases the readers.
    pub(crate) fn run(&mut self, modes: &[Mode], stop: &AtomicBool, rng: &mut Rng) -> Result<(), String> {
        let (context, begun) = (self.context, Instant::now());
        let mut maker = Maker::new(context, 0);
        let mut wards = Vec::new();
        let mut backgrounds = Vec::new();
        for kind in Kind::ALL {
            let (ward, background) =
                Ward::new(context, kind, modes[rng.usize(0..modes.len())], &mut maker, rng)?;
            wards.push(ward);
            backgrounds.push(background);
        }
        thread::scope(|scope| {
            let readers: Vec<_> = wards.iter().map(|ward| scope.spawn(|| ward.read())).collect();
            let backgrounds: Vec<_> =
                backgrounds.into_iter().map(|mut background| scope.spawn(move || background.run())).collect();
            let mut watches: Vec<_> = wards.iter().filter_map(|ward| ward.park(&mut maker, rng)).collect();
            for ward in &wards {
                self.tally.count(match ward.kind {
                    Kind::Protected => Count::ParkedLoads,
                    Kind::Guard => Count::ParkedGuards,
                    Kind::Qsbr => Count::ParkedSections,
                });
            }
            let parked = Instant::now();
            loop {
                watches.iter_mut().for_each(|watch| watch.look(&mut maker, &mut self.tally));
                // Relaxed: a flag; the thread is joined.
                if stop.load(Ordering::Relaxed) || is_over(context) {
                    break;
                }
                thread::sleep(PERIOD);
            }
            watches.iter_mut().for_each(Watch::release);
            self.tally.times[0].add(parked.elapsed());
            wards.iter().for_each(Ward::stop);
            readers.into_iter().for_each(|reader| join(context, reader));
            watches.into_iter().for_each(|watch| watch.drain(&mut self.tally));
            wards.iter().for_each(Ward::stop_background);
            backgrounds.into_iter().for_each(|background| join(context, background));
        });
        drop((wards, maker));
        context.audit();
        self.tally.times[1] = context.delays();
        self.time += begun.elapsed();
        Ok(())
    }

    pub(crate) fn missing(&self) -> Vec<String> {
        self.tally.missing(Area::Parked, self.time)
    }

    pub(crate) fn show(&self) {
        say(Area::Parked.names().1);
        self.tally.show(Area::Parked);
    }
}

/// The objects that may wait behind a parked region reader, in each of two reclaimers.
const LIMIT: usize = 256;
/// The objects that each look retires past a parked protected load.
const FLOOD: usize = 200;
/// How long a reader may hold up a grace period before it is reported.
const STALL: Duration = Duration::from_millis(10);
/// The limit of a wait that must fail.
const SHORT: Duration = Duration::from_millis(1);

/// A domain with one reader, which will be parked.
struct Ward {
    context: &'static Context,
    kind: Kind,
    domain: Domain,
    cell: RcuCell<Handle>,
    handle: RetireHandle,
    /// The id of the reader's thread, once the reader is inside.
    thread: AtomicU32,
    stop: AtomicBool,
    /// The limit of the whole domain, if it has one.
    shared: Option<usize>,
    /// The threads that were reported to the stall hook.
    reports: Arc<Mutex<Vec<u32>>>,
}

impl Ward {
    fn new(
        context: &'static Context,
        kind: Kind,
        mode: Mode,
        maker: &mut Maker,
        rng: &mut Rng,
    ) -> Result<(Self, BackgroundReclaimer), String> {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let hook = Arc::clone(&reports);
        let builder = Domain::builder().name("parked").fence(mode);
        let builder = builder.stall_hook(STALL, move |report: &Stall| reported(&hook).push(report.thread_id));
        // In half of the cases, the whole domain has a limit, too.
        let shared = rng.bool().then_some(LIMIT);
        let builder = shared.into_iter().fold(builder, DomainBuilder::max_pending);
        let domain = builder.build().map_err(|error| error.to_string())?;
        let cell = RcuCell::new_in(&domain, *maker.make().ok_or("too many objects are alive")?);
        let background = domain.reclaimer_builder().max_pending(LIMIT).batch(16).build_background();
        let handle = background.retire_handle();
        let (thread, stop) = (AtomicU32::new(0), AtomicBool::new(false));
        Ok((Self { context, kind, domain, cell, handle, thread, stop, shared, reports }, background))
    }

    /// The body of the reader's thread: one section, until `stop`.
    fn read(&self) {
        look(&self.domain, &self.cell, self.kind, |object| self.look_on(object));
    }

    fn look_on(&self, object: Option<&Handle>) {
        let Some(object) = object else { return };
        let (mut looks, hold) = (Looks::default(), Hold { kind: self.kind, mode: self.domain.fence_mode() });
        let Some(identity) = self.context.meet(object, hold, &mut looks) else { return };
        // Release: pairs with the acquire in `park`: the section has begun.
        self.thread.store(own_id(), Ordering::Release);
        // Relaxed: a flag; the thread is joined.
        while !self.stop.load(Ordering::Relaxed) {
            if !self.context.meet_again(object, identity, hold, &mut looks) {
                break;
            }
        }
    }

    /// Parks the reader when it is inside, and unlinks its object.
    fn park(&self, maker: &mut Maker, rng: &mut Rng) -> Option<Watch<'_>> {
        let deadline = Instant::now() + PATIENCE;
        // Acquire: pairs with the release in `look_on`.
        while self.thread.load(Ordering::Acquire) == 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_micros(100));
        }
        let thread = self.thread.load(Ordering::Acquire);
        let parked = (thread != 0).then(|| Parked::park(thread)).flatten();
        let Some(parked) = parked else {
            self.context.find(|| format!("a {} could not be parked", self.kind.text()));
            return None;
        };
        let builder =
            self.domain.reclaimer_builder().batch(1 << rng.u32(0..7)).fence_interval(Duration::ZERO);
        let by_bytes = LIMIT * size_of::<Handle>();
        let builder =
            if rng.bool() { builder.max_pending(LIMIT) } else { builder.max_pending_bytes(by_bytes) };
        let reclaimer = builder.build();
        let token = self.domain.start();
        let mut watch = Watch {
            ward: self,
            thread,
            token,
            reclaimer,
            spare: None,
            parked: Some(parked),
            since: Instant::now(),
            looks: 0,
        };
        // Retires the object that the reader holds. Behind a region reader it is the first that waits.
        watch.unlink(maker).into_iter().for_each(|old| watch.retire(old));
        Some(watch)
    }

    /// Makes the reader end its section, if it is not parked.
    fn stop(&self) {
        // Relaxed: see `look_on`.
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Makes the background reclaimer end when everything is freed.
    fn stop_background(&self) {
        self.handle.stop();
    }
}

/// Checks a ward whose reader is parked.
struct Watch<'w> {
    ward: &'w Ward,
    thread: u32,
    /// The token that was started after the reader was parked.
    token: Token,
    reclaimer: Reclaimer,
    /// The object that was handed back.
    spare: Option<Retired<Handle>>,
    /// The parked reader, until it is released.
    parked: Option<Parked>,
    since: Instant,
    looks: u32,
}

impl<'w> Watch<'w> {
    fn find(&self, what: impl FnOnce() -> String) {
        self.ward.context.find(|| format!("behind a parked {}: {}", self.ward.kind.text(), what()));
    }

    /// Unlinks an object.
    fn unlink(&self, maker: &mut Maker) -> Option<Retired<Handle>> {
        let old = self.ward.cell.swap(maker.make())?;
        let identity = old.identity();
        identity.into_iter().for_each(|identity| self.ward.context.unlink(identity));
        Some(old)
    }

    fn retire(&mut self, old: Retired<Handle>) {
        if let Err(error) = self.reclaimer.retire(old) {
            self.find(|| format!("an empty reclaimer refused an object: {:?}", error.kind()));
        }
    }

    /// Looks once.
    fn look(&mut self, maker: &mut Maker, tally: &mut Tally) {
        match self.ward.kind {
            Kind::Protected => self.look_past(maker, tally),
            Kind::Guard => self.look_behind(ReaderKind::Guard, maker, tally),
            Kind::Qsbr => self.look_behind(ReaderKind::Qsbr, maker, tally),
        }
    }

    /// Behind a region reader, nothing is freed, and nothing is accepted beyond the limits.
    fn look_behind(&mut self, kind: ReaderKind, maker: &mut Maker, tally: &mut Tally) {
        let Ward { domain, handle, .. } = self.ward;
        if domain.check(self.token) {
            self.find(|| "the token is over".to_owned());
        }
        tally.count(Count::NotOver);
        while self.spare.is_none() {
            let Some(old) = self.unlink(maker) else { continue };
            self.spare = self.reclaimer.retire(old).err().map(|error| error.into_inner());
            let pending = self.reclaimer.pending();
            if pending > LIMIT {
                return self.find(|| format!("{pending} objects are pending where {LIMIT} is the limit"));
            }
        }
        // Another object is handed back too, by either reclaimer.
        while let Some(old) = self.spare.take() {
            match handle.retire(old) {
                Ok(()) => self.spare = self.unlink(maker),
                Err(error) if error.kind().is_full() => {
                    let answer = self.reclaimer.retire_timeout(error.into_inner(), SHORT);
                    let Err(error) = answer else {
                        return self.find(|| "a reclaimer at its limit took another object".to_owned());
                    };
                    tally.count(Count::AtLimit);
                    self.spare = Some(error.into_inner());
                    break;
                }
                Err(error) => return self.find(|| format!("a retirement was refused: {:?}", error.kind())),
            }
            if handle.pending() > 2 * LIMIT {
                return self
                    .find(|| format!("the background reclaimer took {} objects in", handle.pending()));
            }
        }
        let freed = self.reclaimer.poll();
        if freed != 0 {
            self.find(|| format!("{freed} objects were freed"));
        }
        self.look_at_domain();
        match domain.synchronize_timeout(SHORT) {
            Err(SynchronizeError::Stalled(stall))
                if (stall.thread_id, stall.reader) == (self.thread, kind) =>
            {
                tally.count(Count::Named)
            }
            answer => self.find(|| format!("a timed wait for thread {} said {answer:?}", self.thread)),
        }
    }

    /// The limit of the domain holds, and its hook was called.
    fn look_at_domain(&mut self) {
        let Ward { domain, shared, reports, .. } = self.ward;
        let pending = domain.stats().pending;
        if let Some(limit) = shared.filter(|&limit| pending > limit as u64) {
            self.find(|| format!("{pending} objects wait in a domain that takes {limit}"));
        }
        // The calls above have waited or polled for longer than the threshold.
        let told = reported(reports).last().copied().unwrap_or(0);
        self.looks += 1;
        if self.looks > 2 && self.since.elapsed() > 10 * STALL && told != self.thread {
            self.find(|| format!("the hook was called for thread {told}, not for {}", self.thread));
        }
    }

    /// Past a protected load, everything except its object is freed.
    fn look_past(&mut self, maker: &mut Maker, tally: &mut Tally) {
        if !self.ward.domain.check(self.token) {
            self.find(|| "a token is not over, although there is no region reader".to_owned());
        }
        for _ in 0..FLOOD {
            let Some(old) = self.unlink(maker) else { continue };
            if let Err(error) = self.reclaimer.retire_timeout(old, PATIENCE) {
                return self.find(|| format!("a reclaimer is full: {:?}", error.kind()));
            }
        }
        let flushed = self.reclaimer.flush_timeout(SHORT);
        match flushed {
            Err(SynchronizeError::Pinned { objects: 1, .. }) if self.reclaimer.pending() == 1 => {
                tally.count(Count::Pinned);
                tally.counts.add_many(Count::Passed, FLOOD as u64);
            }
            answer => {
                let pending = self.reclaimer.pending();
                self.find(|| format!("a flush said {answer:?} with {pending} objects pending"));
            }
        }
    }

    /// Releases the reader. [`drain`](Watch::drain) the watch when its thread has ended.
    fn release(&mut self) {
        self.ward.stop();
        self.parked = None;
        // The object that was handed back is left to the domain.
        self.spare = None;
    }

    /// Checks that everything is freed at once.
    fn drain(mut self, tally: &mut Tally) {
        let kind = self.ward.kind.text();
        // The reader has had one section.
        match reported(&self.ward.reports).len() {
            0 => {}
            1 => tally.count(Count::Reported),
            number => {
                self.ward.context.find(|| format!("the hook was called {number} times for a parked {kind}"));
            }
        }
        match self.reclaimer.flush_timeout(PATIENCE) {
            Ok(()) if self.reclaimer.pending() == 0 => tally.count(Count::Freed),
            answer => {
                self.ward.context.find(|| {
                    format!(
                        "what a parked {kind} had held up was not freed after it was released: {answer:?}"
                    )
                });
            }
        }
    }
}

fn reported(reports: &Mutex<Vec<u32>>) -> MutexGuard<'_, Vec<u32>> {
    reports.lock().unwrap_or_else(PoisonError::into_inner)
}
