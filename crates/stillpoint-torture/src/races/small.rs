//! Small races: the waker, boosts, room, the stop, and the counter of tokens.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::limits::WhenFull;
use stillpoint::rcu::{Boost, Domain, RcuCell};
use stillpoint_harness::machine::cpus::run_on;

use crate::actor::{Sections, Stores, block_on, is_over, join, spin};
use crate::arena::{Handle, Maker};
use crate::counts::Runs;
use crate::findings::PATIENCE;
use crate::part::plain;
use crate::races::{Body, Ring};
use crate::trouble::Ordinary;

/// The threads that wait for one reader as futures.
const WAITERS: usize = 2;
/// Longest section of that reader, as a power of two of turns of a spinning loop.
const LONGEST_SECTION: u32 = 9;
/// Most stores before the end of a section: about what a store buffer holds.
const MOST_STORES: usize = 60;

/// Readers that are boosted.
const BOOSTED: usize = 4;
/// Their longest section, as a power of two of turns of a spinning loop.
const LONGEST_BOOSTED: u32 = 10;
/// The most sections of one such reader.
const SECTIONS: u32 = 4;
/// A short time, so that boosts meet readers that come and go.
const BOOST_AFTER: Duration = Duration::from_micros(1);

/// Threads that fill a domain, and its limit.
const RETIRERS: usize = 3;
const CAPACITY: u64 = 3;
/// Retirements between two looks at the stop flag.
const BATCH: u32 = 64;

/// The longest time before a stop, as powers of two of turns of a spinning loop: about as long as a thread takes to wake.
const BEFORE_STOP: std::ops::RangeInclusive<u32> = 4..=10;

/// Two sleeping readers: while one is outside, the other one is likely to be inside.
const SLEEPERS: usize = 2;
/// Tokens that are started for each one that is checked.
const BURST: u64 = 8;
/// The longest sleep of a reader.
const LONGEST_SLEEP: Duration = Duration::from_micros(300);

/// The race for the waker: futures begin to wait for a reader while it leaves.
///
/// The reader waits for the futures outside its section, and begins no other section meanwhile. So a lost wake-up is not made up
/// for by a later one.
pub(super) fn futures(ring: &Ring<'_>, stores: &Stores, rng: &mut Rng) -> Result<Runs, String> {
    let (context, domain) = (ring.context, &plain(ring.mode)?);
    // The round whose section is open, or was the last one; and the number of rounds that all waiters together have finished.
    let (number, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let wait = || {
        let mut awaited = 0;
        while !ring.is_stopped() {
            // Acquire: pairs with the release below: the section has begun.
            if number.load(Ordering::Acquire) == awaited {
                thread::yield_now();
                continue;
            }
            if block_on(domain.grace_period(domain.start()), PATIENCE).is_none() {
                context.find(|| format!("a future was not woken within {PATIENCE:?}"));
            }
            awaited += 1;
            // Release: pairs with the acquire below.
            done.fetch_add(1, Ordering::Release);
        }
        awaited
    };
    Ok(thread::scope(|scope| {
        let waiters: Vec<_> = (0..WAITERS).map(|_| scope.spawn(wait)).collect();
        let (reader, end) = (domain.reader(), Instant::now() + ring.time);
        let mut round = 0;
        while Instant::now() < end && !is_over(context) {
            round += 1;
            let guard = reader.pin();
            // Release: pairs with the acquire in `wait`.
            number.store(round, Ordering::Release);
            spin(rng, 0..=LONGEST_SECTION);
            stores.fill(if rng.bool() { 0 } else { rng.usize(0..MOST_STORES) });
            drop(guard);
            let deadline = Instant::now() + PATIENCE;
            // Acquire: pairs with the release in `wait`.
            while done.load(Ordering::Acquire) < round * WAITERS as u64 && Instant::now() < deadline {
                thread::yield_now();
            }
        }
        ring.shared.stop();
        let over = waiters.into_iter().map(|waiter| join(context, waiter)).sum();
        Runs { tries: round, over, ..Runs::default() }
    }))
}

/// The race of boosts: readers on one CPU preempt each other inside their sections, and a writer boosts them until their
/// sections end.
///
/// Each thread checks its state when its reader is dropped: its boost must end soon after.
pub(super) fn boosts(boost: Boost, ring: &Ring<'_>, rng: &mut Rng) -> Result<Runs, String> {
    let builder = Domain::builder().fence(Mode::Symmetric).boost(boost).boost_fallback(Boost::Migrate);
    let domain = builder.boost_after(BOOST_AFTER).build().map_err(|error| error.to_string())?;
    let (domain, cell) = (&domain, &RcuCell::empty_in(&domain));
    let mut maker = Maker::new(ring.context, 0);
    let (own, others) = ring.sides()?;
    let mut bodies: Vec<Body<'_>> = Vec::new();
    for _ in 0..BOOSTED {
        let mut rng = rng.fork();
        bodies.push(Box::new(move || be_boosted(ring, domain, own, &mut rng)));
    }
    bodies.push(Box::new(move || hold_up(ring, domain, cell, &mut maker, others[0])));
    Ok(ring.run(bodies) + Runs { over: domain.stats().boosted, ..Runs::default() })
}

fn be_boosted(ring: &Ring<'_>, domain: &Domain, cpu: usize, rng: &mut Rng) -> Runs {
    let mut runs = Runs::default();
    // If it is refused, the readers preempt each other less often. The counts show if that is too rarely.
    let _ = run_on(&[cpu]);
    let Some(ordinary) = Ordinary::of_caller() else { return runs };
    while !ring.is_stopped() {
        let reader = domain.reader();
        for _ in 0..rng.u32(1..=SECTIONS) {
            let guard = reader.pin();
            spin(rng, 0..=LONGEST_BOOSTED);
            // The booster finds this thread waiting for the CPU, and the thread runs again at any moment of the boost.
            (0..rng.u32(0..3)).for_each(|_| thread::yield_now());
            drop(guard);
            runs.tries += 1;
        }
        drop(reader);
        ordinary.check_caller(ring.context.findings);
    }
    runs
}

/// Polls without a pause, so that a reader holds it up at any time.
fn hold_up(ring: &Ring<'_>, domain: &Domain, cell: &RcuCell<Handle>, maker: &mut Maker, cpu: usize) -> Runs {
    let _ = run_on(&[cpu]);
    let mut reclaimer = domain.reclaimer_builder().batch(1).build();
    while !ring.is_stopped() {
        if reclaimer.pending() < 16
            && let Some(old) = cell.swap(maker.make())
        {
            // A refused object is left to the domain.
            drop(reclaimer.retire(old));
        }
        reclaimer.poll();
    }
    Runs::default()
}

/// Shared by the threads that fill a domain.
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

/// The race for room: several threads fill a small domain at the same time, and destructors are slow.
///
/// The limit must hold at any moment. An object counts until its destructor has run.
pub(super) fn room(ring: &Ring<'_>, rng: &mut Rng) -> Result<Runs, String> {
    let builder = Domain::builder().fence(ring.mode).max_pending(CAPACITY as usize);
    let domain = &builder.build().map_err(|error| error.to_string())?;
    // Leaked, because any thread may free the objects.
    let counted: &'static Counted = Box::leak(Box::default());
    let mut body = || -> Body<'_> {
        let rng = rng.fork();
        Box::new(move || retire(ring, domain, counted, rng))
    };
    let runs = ring.run((0..RETIRERS).map(|_| body()).collect());
    let stats = domain.stats();
    if stats.pending != 0 || stats.beyond_limits != 0 {
        ring.context.find(|| format!("a domain with a limit has miscounted its objects: {stats:?}"));
    }
    Ok(runs)
}

/// Retires its own objects, as fast as there is room.
fn retire(ring: &Ring<'_>, domain: &Domain, counted: &'static Counted, mut rng: Rng) -> Runs {
    let context = ring.context;
    let cell = RcuCell::new_in(domain, Slow(counted));
    let when_full = if rng.bool() { WhenFull::Reclaim } else { WhenFull::HandBack };
    let mut reclaimer = domain.reclaimer_builder().batch(1).when_full(when_full).build();
    let mut runs = Runs::default();
    let mut spare = None;
    while !ring.is_stopped() && !context.findings.any() {
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
                        context.find(|| {
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

/// The race for the stop: a background reclaimer is about to sleep while another thread stops it.
///
/// If the reclaimer misses the stop, it sleeps for ever.
pub(super) fn stops(ring: &Ring<'_>, rng: &mut Rng) -> Result<Runs, String> {
    let (context, domain) = (ring.context, plain(ring.mode)?);
    let mut maker = Maker::new(context, 0);
    let cell = RcuCell::empty_in(&domain);
    let (handles, running) = mpsc::sync_channel(0);
    let (ended, is_last) = (AtomicU64::new(0), AtomicBool::new(false));
    let end = Instant::now() + ring.time;
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
                // Release: pairs with the acquire in `wait_for`.
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
            spin(rng, BEFORE_STOP);
            // Relaxed: read by the reclaimer's thread after this stop has ended its run.
            is_last.store(Instant::now() >= end || is_over(context), Ordering::Relaxed);
            handle.stop();
            if !wait_for(&ended, runs.tries) {
                context.find(|| "a background reclaimer did not end after its stop".to_owned());
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
    // Acquire: pairs with the release in `stops`.
    while ended.load(Ordering::Acquire) < number {
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        if Instant::now() > deadline {
            return false;
        }
        thread::yield_now();
    }
    true
}

/// The race for the counter: threads on every core start tokens as fast as they can, while readers sleep.
///
/// If a token is counted twice, or the counter steps back because a thread was preempted between its load and its store, later
/// tokens are over before they were started. There are more threads than CPUs, so that they are preempted anywhere.
pub(super) fn tokens(ring: &Ring<'_>, rng: &mut Rng) -> Result<Runs, String> {
    let (domain, sections) = (&plain(ring.mode)?, &Sections::new(SLEEPERS));
    let mut bodies: Vec<Body<'_>> = Vec::new();
    for slot in 0..SLEEPERS {
        let mut rng = rng.fork();
        bodies.push(Box::new(move || {
            let reader = domain.reader();
            while !ring.is_stopped() {
                let guard = reader.pin();
                sections.begin(slot);
                thread::sleep(LONGEST_SLEEP.mul_f64(rng.f64()));
                sections.end(slot);
                drop(guard);
                thread::sleep(LONGEST_SLEEP.mul_f64(rng.f64()));
            }
            Runs::default()
        }));
    }
    for _ in 0..=2 * ring.shared.cpus.len() {
        bodies.push(Box::new(move || {
            let mut runs = Runs::default();
            while !ring.is_stopped() {
                for _ in 1..BURST {
                    domain.start();
                }
                let inside = sections.now();
                let token = domain.start();
                runs.tries += BURST;
                if domain.check(token) {
                    inside.verify(sections, ring.context, "a token");
                    runs.over += 1;
                }
            }
            runs
        }));
    }
    Ok(ring.run(bodies))
}
