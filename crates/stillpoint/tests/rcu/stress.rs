//! Everything at once, with more threads than cores: all kinds of readers, and all ways to reclaim. Objects are
//! verified when they are read, and counted when they are freed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::rcu::{Domain, RcuArray, RetireHandle, Retired};

use crate::{census, modes, random};
use census::{Census, Object};
use modes::in_each_mode;
use random::Random;

const SLOTS: usize = 16;
const DURATION: Duration = if cfg!(miri) { Duration::from_millis(200) } else { Duration::from_millis(1800) };
const LONGEST: Duration = Duration::from_secs(60);
/// The number of objects that must be freed: with fewer, the test would prove nothing.
const ENOUGH: usize = 1000;

/// Shared by all threads.
struct World {
    domain: Domain,
    array: RcuArray<Object>,
    census: Census,
    done: AtomicBool,
}

impl World {
    fn new(domain: Domain) -> Self {
        let census = Census::default();
        let array = RcuArray::new_in(&domain, SLOTS, |_| Some(Box::new(census.object())));
        Self { domain, array, census, done: AtomicBool::new(false) }
    }

    /// Repeats `round` until the test ends, and until enough objects were freed.
    fn repeat(&self, seed: u64, mut round: impl FnMut(&mut Random)) {
        let mut random = Random::new(seed);
        let mut rounds = 0;
        // Relaxed: a flag that orders nothing.
        while !self.done.load(Ordering::Relaxed) || (rounds < 10 && !cfg!(miri)) {
            round(&mut random);
            rounds += 1;
        }
    }

    /// Unlinks an object.
    fn replace(&self, random: &mut Random) -> Retired<Object> {
        let new = Some(Box::new(self.census.object()));
        self.array.swap(random.below(SLOTS), new).expect("no slot is ever empty")
    }
}

/// Holds a few objects at a time, and drops the loads in any order.
fn protects(world: &World, seed: u64) {
    let reader = world.domain.reader();
    let mut held = Vec::new();
    world.repeat(seed, |random| {
        if held.len() < 20 && random.below(3) > 0 {
            held.extend(world.array.protect(random.below(SLOTS), &reader));
        } else if !held.is_empty() {
            drop(held.swap_remove(random.below(held.len())));
        }
        held.iter().for_each(|object| object.verify());
    });
}

/// Nests guards, and changes from guards to protected loads.
fn pins(world: &World, seed: u64) {
    let reader = world.domain.reader();
    world.repeat(seed, |random| {
        let outer = reader.pin();
        let inner = reader.pin();
        let first = world.array.load(random.below(SLOTS), &inner).expect("no slot is ever empty");
        drop(outer);
        let second = world.array.load(random.below(SLOTS), &inner).expect("no slot is ever empty");
        let kept = world.array.protect(random.below(SLOTS), &reader).expect("no slot is ever empty");
        first.verify();
        second.verify();
        drop(inner);
        kept.verify();
    });
}

/// Reports quiescent states, and goes offline at times.
fn reports(world: &World, seed: u64) {
    let mut reader = world.domain.qsbr_reader();
    world.repeat(seed, |random| {
        let objects: [_; 8] = std::array::from_fn(|_| world.array.load(random.below(SLOTS), &reader));
        objects.iter().flatten().for_each(|object| object.verify());
        match random.below(100) {
            0 => reader.offline(|| thread::sleep(Duration::from_micros(50))),
            1 => reader.synchronize().expect("no reader is in the way for ever"),
            _ => reader.quiescent(),
        }
    });
}

/// Binds the array, and reads it in both ways.
fn binds(world: &World, seed: u64) {
    let (mut reader, mut qsbr) = (world.domain.reader(), world.domain.qsbr_reader());
    world.repeat(seed, |random| {
        let mut bound = world.array.bind(&mut reader);
        for _ in 0..8 {
            bound.protect(random.below(SLOTS)).expect("no slot is ever empty").verify();
        }
        let guard = bound.pin();
        let object = guard.load(random.below(SLOTS)).expect("no slot is ever empty");
        let mut bound = world.array.bind_qsbr(&mut qsbr);
        bound.load(random.below(SLOTS)).expect("no slot is ever empty").verify();
        bound.quiescent();
        object.verify();
    });
}

/// Sleeps while it holds objects, like a preempted thread.
fn sleeps(world: &World, seed: u64) {
    let reader = world.domain.reader();
    world.repeat(seed, |random| {
        let object = world.array.protect(random.below(SLOTS), &reader).expect("no slot is ever empty");
        let guard = (random.below(2) == 0).then(|| reader.pin());
        let under_guard = guard.as_ref().and_then(|guard| world.array.load(random.below(SLOTS), guard));
        thread::sleep(Duration::from_millis(1));
        object.verify();
        under_guard.into_iter().for_each(Object::verify);
    });
}

/// Makes and drops readers all the time.
fn comes_and_goes(world: &World, seed: u64) {
    world.repeat(seed, |random| {
        let slot = random.below(SLOTS);
        if random.below(2) == 0 {
            let reader = world.domain.reader();
            world.array.protect(slot, &reader).expect("no slot is ever empty").verify();
            world.array.load(slot, &reader.pin()).expect("no slot is ever empty").verify();
        } else {
            world.array.load(slot, &world.domain.qsbr_reader()).expect("no slot is ever empty").verify();
        }
    });
}

/// Retires in every way that a writer with its own queue has, and makes a new queue now and then.
fn retires(world: &World, seed: u64) {
    let mut reclaimer = world.domain.reclaimer_builder().max_pending(500).build();
    world.repeat(seed, |random| {
        let old = world.replace(random);
        old.verify();
        match random.below(50) {
            0 => drop(old),
            1 => drop(old.try_free()),
            2 => old.try_into_box().into_iter().for_each(|object| object.verify()),
            3 => reclaimer = world.domain.reclaimer_builder().max_pending(500).build(),
            4 => {
                world.domain.synchronize().expect("no reader is in the way for ever");
                drop(old);
            }
            5 => {
                let object = world.census.object();
                reclaimer.defer(move || drop(object));
            }
            // If the queue is full, the object is left to the domain.
            _ => drop(reclaimer.retire(old)),
        }
        reclaimer.poll_at_most(1 + random.below(100));
    });
    reclaimer.flush().expect("no reader is in the way for ever");
}

/// Hands objects to the background reclaimer, and stops it at the end.
fn submits(world: &World, seed: u64, handle: RetireHandle) {
    world.repeat(seed, |random| {
        let old = world.replace(random);
        drop(handle.retire_timeout(old, Duration::from_millis(1)));
        if random.below(8) == 0 {
            thread::yield_now();
        }
    });
    handle.stop();
}

#[test]
fn nothing_is_freed_too_early_or_twice_or_never() {
    in_each_mode(|domain| {
        let world = World::new(domain);
        thread::scope(|scope| {
            let world = &world;
            let readers = [protects, pins, reports, binds, sleeps, comes_and_goes, retires];
            for (seed, role) in readers.into_iter().chain(readers).enumerate() {
                scope.spawn(move || role(world, seed as u64 + 1));
            }
            let mut background = world.domain.reclaimer_builder().max_pending(1000).build_background();
            let handle = background.retire_handle();
            scope.spawn(move || submits(world, 100, handle));
            scope.spawn(move || background.run());

            let begun = Instant::now();
            // On a busy machine it takes longer until enough has happened.
            let is_thin = || !cfg!(miri) && world.census.freed() <= ENOUGH && begun.elapsed() < LONGEST;
            while begun.elapsed() < DURATION || is_thin() {
                thread::sleep(Duration::from_millis(10));
            }
            // Relaxed: a flag that orders nothing.
            world.done.store(true, Ordering::Relaxed);
        });

        let mut reclaimer = world.domain.reclaimer();
        while reclaimer.poll() > 0 {}
        let stats = world.domain.stats();
        assert_eq!((stats.readers, stats.pending, stats.pending_bytes), (0, 0, 0), "{stats:?}");
        assert_eq!(stats.retired, stats.freed, "{stats:?}");
        assert_eq!(world.census.alive(), SLOTS, "one in each slot");
        assert!(cfg!(miri) || world.census.freed() > ENOUGH, "too few to mean anything: {stats:?}");
    });
}
