//! The race for the waker: futures begin to wait for a reader while it leaves.
//!
//! The reader waits for the futures outside its section, and begins no other section meanwhile. So a lost wake-up is not made up
//! for by a later one.
//!
//! The race of boosts: readers on one CPU preempt each other inside their sections, and a writer boosts them until their sections
//! end.
//!
//! Each thread checks its state when its reader is dropped: its boost must end soon after.
//!
//! The race for room: several threads fill a small domain at the same time, and destructors are slow.
//!
//! The limit must hold at any moment. An object counts until its destructor has run.
//!
//! The race for the stop: a background reclaimer is about to sleep while another thread stops it.
//!
//! If the reclaimer misses the stop, it sleeps for ever.
//!
//! The race for the counter: threads on every core start tokens as fast as they can, while readers sleep.
//!
//! If a token is counted twice, or the counter steps back because a thread was preempted between its load and its store, later
//! tokens are over before they were started.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::limits::WhenFull;
use stillpoint::rcu::{Boost, Domain, RcuCell};

use crate::actor::{Sections, is_over, join, rest, run_on};
use crate::arena::{Context, Handle, Maker};
use crate::awaiting::{Stores, block_on};
use crate::findings::PATIENCE;
use crate::races::Runs;
use crate::trouble::Ordinary;

const WAITERS: usize = 2;
/// Longest section, as a power of two of turns of a spinning loop.
const LONGEST_SPIN: u32 = 9;
/// Most stores before the end of a section: about what a store buffer holds.
const MOST_STORES: usize = 60;

/// Shared by the reader and the waiters.
struct Rounds {
    /// The round whose section is open, or was the last one.
    number: AtomicU64,
    /// The number of rounds that all waiters together have finished.
    done: AtomicU64,
    stop: AtomicBool,
}

pub(super) fn await_all(
    mode: Mode,
    context: &'static Context,
    duration: Duration,
    stores: &Stores,
    rng: &mut Rng,
) -> Result<Runs, String> {
    let domain = Domain::builder().fence(mode).build().map_err(|error| error.to_string())?;
    let rounds = Rounds { number: AtomicU64::new(0), done: AtomicU64::new(0), stop: AtomicBool::new(false) };
    Ok(thread::scope(|scope| {
        let waiters: Vec<_> = (0..WAITERS).map(|_| scope.spawn(|| rounds.wait(context, &domain))).collect();
        let tries = rounds.read(context, &domain, Instant::now() + duration, stores, rng);
        // Relaxed: a flag; the threads are joined.
        rounds.stop.store(true, Ordering::Relaxed);
        let over = waiters.into_iter().map(|waiter| join(context, waiter)).sum();
        Runs { tries, over }
    }))
}

impl Rounds {
    /// Returns the number of rounds.
    fn read(&self, context: &Context, domain: &Domain, end: Instant, stores: &Stores, rng: &mut Rng) -> u64 {
        let reader = domain.reader();
        let mut round = 0;
        while Instant::now() < end && !is_over(context) {
            round += 1;
            let guard = reader.pin();
            // Release: pairs with the acquire in `wait`: the section has begun.
            self.number.store(round, Ordering::Release);
            let magnitude = rng.u32(0..=LONGEST_SPIN);
            (0..rng.u32(0..1 << magnitude)).for_each(|_| std::hint::spin_loop());
            stores.fill(if rng.bool() { 0 } else { rng.usize(0..MOST_STORES) });
            drop(guard);
            let deadline = Instant::now() + PATIENCE;
            // Acquire: pairs with the release in `wait`.
            while self.done.load(Ordering::Acquire) < round * WAITERS as u64 && Instant::now() < deadline {
                thread::yield_now();
            }
        }
        round
    }

    /// Returns the number of grace periods that were awaited.
    fn wait(&self, context: &Context, domain: &Domain) -> u64 {
        let mut awaited = 0;
        // Relaxed: see `run`.
        while !self.stop.load(Ordering::Relaxed) {
            // Acquire: pairs with the release in `read`.
            if self.number.load(Ordering::Acquire) == awaited {
                thread::yield_now();
                continue;
            }
            if block_on(domain.grace_period(domain.start()), PATIENCE).is_none() {
                context.findings.add(|| format!("a future was not woken within {PATIENCE:?}"));
            }
            awaited += 1;
            // Release: pairs with the acquire in `read`.
            self.done.fetch_add(1, Ordering::Release);
        }
        awaited
    }
}

const BOOSTED: usize = 4;
/// Longest section, as a power of two of turns of a spinning loop.
const LONGEST_SECTION: u32 = 10;
/// The most sections of one reader.
const SECTIONS: u32 = 4;
/// A short time, so that boosts meet readers that come and go.
const BOOST_AFTER: Duration = Duration::from_micros(1);

/// Runs a race of boosts.
pub(super) fn boosts(
    boost: Boost,
    context: &'static Context,
    cpus: &[usize],
    duration: Duration,
    rng: &mut Rng,
) -> Result<Runs, String> {
    let builder = Domain::builder().fence(Mode::Symmetric).boost(boost).boost_fallback(Boost::Migrate);
    let domain = builder.boost_after(BOOST_AFTER).build().map_err(|error| error.to_string())?;
    let mut maker = Maker::new(context, 0);
    let cell = RcuCell::empty_in(&domain);
    let stop = AtomicBool::new(false);
    let (own, others) = cpus.split_first().ok_or("no CPU is allowed")?;
    let other = *others.first().unwrap_or(own);
    Ok(thread::scope(|scope| {
        let readers: Vec<_> = (0..BOOSTED)
            .map(|_| {
                let (domain, stop, rng) = (&domain, &stop, rng.fork());
                scope.spawn(move || be_boosted(context, domain, *own, stop, rng))
            })
            .collect();
        let writer = scope.spawn({
            let (domain, cell, stop) = (&domain, &cell, &stop);
            move || hold_up(domain, cell, &mut maker, other, stop)
        });
        rest(context, duration);
        // Relaxed: a flag; the threads are joined.
        stop.store(true, Ordering::Relaxed);
        join(context, writer);
        let tries = readers.into_iter().map(|reader| join(context, reader)).sum();
        Runs { tries, over: domain.stats().boosted }
    }))
}

/// Returns the number of sections.
fn be_boosted(context: &Context, domain: &Domain, cpu: usize, stop: &AtomicBool, mut rng: Rng) -> u64 {
    // If it is refused, the readers preempt each other less often. The counts show if that is too rarely.
    let _ = run_on(&[cpu]);
    let Some(ordinary) = Ordinary::of_caller() else { return 0 };
    let mut sections = 0;
    // Relaxed: see `run`.
    while !stop.load(Ordering::Relaxed) {
        let reader = domain.reader();
        for _ in 0..rng.u32(1..=SECTIONS) {
            let guard = reader.pin();
            let magnitude = rng.u32(0..=LONGEST_SECTION);
            (0..rng.u32(0..1 << magnitude)).for_each(|_| std::hint::spin_loop());
            // The booster finds this thread waiting for the CPU, and the thread runs again at any moment of the boost.
            (0..rng.u32(0..3)).for_each(|_| thread::yield_now());
            drop(guard);
            sections += 1;
        }
        drop(reader);
        ordinary.check_caller(context.findings);
    }
    sections
}

/// Polls without a pause, so that a reader holds it up at any time.
fn hold_up(domain: &Domain, cell: &RcuCell<Handle>, maker: &mut Maker, cpu: usize, stop: &AtomicBool) {
    let _ = run_on(&[cpu]);
    let mut reclaimer = domain.reclaimer_builder().batch(1).build();
    // Relaxed: see `run`.
    while !stop.load(Ordering::Relaxed) {
        if reclaimer.pending() < 16
            && let Some(old) = cell.swap(maker.make())
        {
            // A refused object is left to the domain.
            drop(reclaimer.retire(old));
        }
        reclaimer.poll();
    }
}

const RETIRERS: usize = 3;
const CAPACITY: u64 = 3;
/// Retirements between two looks at the stop flag.
const BATCH: u32 = 64;

/// Shared by the retiring threads.
#[derive(Debug, Default)]
struct Counted {
    taken_in: AtomicU64,
    destroyed: AtomicU64,
}

/// An object whose destructor takes a moment.
struct Slow<'c>(&'c Counted);

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        thread::yield_now();
        // Release: pairs with the acquire in `retire`.
        self.0.destroyed.fetch_add(1, Ordering::Release);
    }
}

pub(super) fn room(
    mode: Mode,
    context: &'static Context,
    duration: Duration,
    rng: &mut Rng,
) -> Result<Runs, String> {
    let builder = Domain::builder().fence(mode).max_pending(CAPACITY as usize);
    let domain = builder.build().map_err(|error| error.to_string())?;
    // Leaked, because any thread may free the objects.
    let (counted, stop): (&'static Counted, _) = (Box::leak(Box::default()), AtomicBool::new(false));
    let runs = thread::scope(|scope| {
        let retirers: Vec<_> = (0..RETIRERS)
            .map(|_| {
                let (domain, stop, rng) = (&domain, &stop, rng.fork());
                scope.spawn(move || retire(context, domain, counted, stop, rng))
            })
            .collect();
        rest(context, duration);
        // Relaxed: a flag; the threads are joined.
        stop.store(true, Ordering::Relaxed);
        retirers.into_iter().fold(Runs::default(), |sum, retirer| sum + join(context, retirer))
    });
    let stats = domain.stats();
    if stats.pending != 0 || stats.beyond_limits != 0 {
        context.findings.add(|| format!("a domain with a limit has miscounted its objects: {stats:?}"));
    }
    Ok(runs)
}

/// Retires its own objects, as fast as there is room.
fn retire(
    context: &Context,
    domain: &Domain,
    counted: &'static Counted,
    stop: &AtomicBool,
    mut rng: Rng,
) -> Runs {
    let cell = RcuCell::new_in(domain, Slow(counted));
    let when_full = if rng.bool() { WhenFull::Reclaim } else { WhenFull::HandBack };
    let mut reclaimer = domain.reclaimer_builder().batch(1).when_full(when_full).build();
    let mut runs = Runs::default();
    let mut spare = None;
    // Relaxed: see `run`.
    while !stop.load(Ordering::Relaxed) && !context.findings.any() {
        for _ in 0..BATCH {
            let Some(old) = spare.take().or_else(|| cell.replace(Slow(counted))) else { continue };
            runs.tries += 1;
            match reclaimer.retire(old) {
                Ok(()) => {
                    // Acquire: pairs with the release below, so that the next read is not older.
                    let taken_in = counted.taken_in.fetch_add(1, Ordering::AcqRel) + 1;
                    // Acquire: pairs with the release in `drop`.
                    let waiting = taken_in.saturating_sub(counted.destroyed.load(Ordering::Acquire));
                    let pending = domain.stats().pending;
                    if waiting.max(pending) > CAPACITY {
                        context.findings.add(|| {
                            format!("{waiting} objects wait, of which the domain counts {pending}, above the limit of {CAPACITY}")
                        });
                    }
                    runs.over += 1;
                }
                Err(error) => spare = Some(error.into_inner()),
            }
            if rng.bool() {
                reclaimer.poll();
            }
        }
    }
    while reclaimer.pending() != 0 {
        reclaimer.poll();
    }
    // Objects that were never accepted. They are counted only after they have been destroyed, so that no thread finds too many
    // objects waiting.
    let mut unused = u64::from(cell.into_inner().is_some());
    while let Some(old) = spare.take() {
        spare = old.try_free().err();
        unused += u64::from(spare.is_none());
    }
    counted.taken_in.fetch_add(unused, Ordering::AcqRel);
    runs
}

/// The longest time before a stop, as powers of two of turns of a spinning loop: about as long as a thread takes to wake.
const BEFORE_STOP: std::ops::RangeInclusive<u32> = 4..=10;

/// Starts and stops one reclaimer after the other.
pub(super) fn stops(
    mode: Mode,
    context: &'static Context,
    duration: Duration,
    rng: &mut Rng,
) -> Result<Runs, String> {
    let domain = Domain::builder().fence(mode).build().map_err(|error| error.to_string())?;
    let mut maker = Maker::new(context, 0);
    let cell = RcuCell::empty_in(&domain);
    let (handles, running) = mpsc::sync_channel(0);
    let (ended, is_last) = (AtomicU64::new(0), AtomicBool::new(false));
    let end = Instant::now() + duration;
    let mut runs = Runs::default();
    thread::scope(|scope| {
        let reclaimer = scope.spawn(|| {
            // Moved in, so that the other side notices the end.
            let handles = handles;
            // Relaxed: a flag; the thread is joined.
            while !is_last.load(Ordering::Relaxed) {
                let mut background = domain.background();
                if handles.send(background.retire_handle()).is_err() {
                    break;
                }
                background.run();
                // Release: pairs with the acquire below.
                ended.fetch_add(1, Ordering::Release);
            }
        });
        while let Ok(handle) = running.recv() {
            runs.tries += 1;
            for _ in 0..rng.u32(0..3) {
                if let Some(old) = cell.swap(maker.make()) {
                    drop(handle.retire(old));
                }
            }
            let longest = 1 << rng.u32(BEFORE_STOP);
            (0..rng.u32(0..longest)).for_each(|_| std::hint::spin_loop());
            // Relaxed: read by the reclaimer's thread after this stop has ended its run.
            is_last.store(Instant::now() >= end || is_over(context), Ordering::Relaxed);
            handle.stop();
            if !wait_for(&ended, runs.tries) {
                context.findings.add(|| "a background reclaimer did not end after its stop".to_owned());
                is_last.store(true, Ordering::Relaxed);
                handle.abandon();
                break;
            }
            runs.over += 1;
        }
        // Closes the channel: a later send fails.
        drop(running);
        join(context, reclaimer);
    });
    Ok(runs)
}

/// Waits until `number` runs have ended.
fn wait_for(ended: &AtomicU64, number: u64) -> bool {
    let mut deadline = None;
    // Acquire: pairs with the release in `run`.
    while ended.load(Ordering::Acquire) < number {
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        if Instant::now() > deadline {
            return false;
        }
        thread::yield_now();
    }
    true
}

/// Two readers: while one is outside, the other one is likely to be inside.
const READERS: usize = 2;
/// Tokens that are started for each one that is checked.
const BURST: u64 = 8;
/// The longest sleep of a reader.
const LONGEST_SLEEP: Duration = Duration::from_micros(300);

/// More threads than CPUs, so that they are preempted anywhere.
pub(super) fn tokens(
    mode: Mode,
    context: &'static Context,
    cpus: &[usize],
    duration: Duration,
    rng: &mut Rng,
) -> Result<Runs, String> {
    let domain = Domain::builder().fence(mode).build().map_err(|error| error.to_string())?;
    let (sections, stop) = (Sections::new(READERS), AtomicBool::new(false));
    Ok(thread::scope(|scope| {
        for slot in 0..READERS {
            let mut rng = rng.fork();
            let (domain, sections, stop) = (&domain, &sections, &stop);
            scope.spawn(move || sleep_inside(domain, sections, slot, stop, &mut rng));
        }
        let starters: Vec<_> =
            (0..=2 * cpus.len()).map(|_| scope.spawn(|| start(context, &domain, &sections, &stop))).collect();
        rest(context, duration);
        // Relaxed: a flag; the threads are joined.
        stop.store(true, Ordering::Relaxed);
        starters.into_iter().fold(Runs::default(), |sum, starter| sum + join(context, starter))
    }))
}

fn sleep_inside(domain: &Domain, sections: &Sections, slot: usize, stop: &AtomicBool, rng: &mut Rng) {
    let reader = domain.reader();
    // Relaxed: see `run`.
    while !stop.load(Ordering::Relaxed) {
        let guard = reader.pin();
        sections.begin(slot);
        thread::sleep(LONGEST_SLEEP.mul_f64(rng.f64()));
        sections.end(slot);
        drop(guard);
        thread::sleep(LONGEST_SLEEP.mul_f64(rng.f64()));
    }
}

fn start(context: &Context, domain: &Domain, sections: &Sections, stop: &AtomicBool) -> Runs {
    let mut runs = Runs::default();
    // Relaxed: see `run`.
    while !stop.load(Ordering::Relaxed) {
        for _ in 1..BURST {
            domain.start();
        }
        let inside = sections.now();
        let token = domain.start();
        runs.tries += BURST;
        if domain.check(token) {
            inside.verify(sections, context, "a token");
            runs.over += 1;
        }
    }
    runs
}
