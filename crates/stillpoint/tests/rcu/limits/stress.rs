//! Many threads against one limit.

use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::rcu::limits::WhenFull;
use stillpoint::rcu::{Domain, RcuArray, RetireHandle, Retired};

use crate::modes::in_each_mode;
use crate::LONG;

/// With the first limit, room is taken for one object at a time. With the second one, it is also taken in batches.
const LIMITS: [usize; 2] = [100, 2000];
const SLOTS: usize = 8;
/// The number of retirements that must be accepted: with fewer, the test would prove nothing.
const ENOUGH: usize = 1000;
const DURATION: Duration = if cfg!(miri) { Duration::from_millis(200) } else { Duration::from_millis(700) };

/// Counts waiting objects, independently of the domain. A thread adds an object after it was accepted. The destructor
/// subtracts it before its room is given back, and so before the thread that gets the room adds another object. If an
/// object is freed before it is added, the count is too low for a moment, but it is never above the number of objects
/// that the domain has accepted.
#[derive(Default)]
struct Waiting {
    now: AtomicIsize,
    most: AtomicIsize,
}

struct Object {
    value: u64,
    waiting: Arc<Waiting>,
}

impl Object {
    fn new(waiting: &Arc<Waiting>) -> Box<Self> {
        Box::new(Self { value: 42, waiting: Arc::clone(waiting) })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.value = 0;
        // Relaxed: the domain orders this before the thread that gets the room goes on.
        self.waiting.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Waiting {
    /// An object was accepted, and may already be freed.
    fn add(&self) {
        // Relaxed, both: as in the destructor.
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
    }
}

struct World {
    domain: Domain,
    limit: usize,
    array: RcuArray<Object>,
    waiting: Arc<Waiting>,
    done: AtomicBool,
    taken_in: AtomicUsize,
    handed_back: AtomicUsize,
}

impl World {
    fn is_done(&self) -> bool {
        // Relaxed: a flag that orders nothing.
        self.done.load(Ordering::Relaxed)
    }

    /// Unlinks object after object, and retries each retirement until it is accepted.
    fn retire_all(
        &self,
        seed: usize,
        mut retire: impl FnMut(Retired<Object>) -> Result<(), Retired<Object>>,
    ) {
        let mut slot = seed;
        while !self.is_done() {
            slot += 1;
            let new = Some(Object::new(&self.waiting));
            let mut old = self.array.swap(slot % SLOTS, new).expect("no slot is ever empty");
            let begun = Instant::now();
            while let Err(back) = retire(old) {
                assert!(begun.elapsed() < LONG, "there is no room any more: {:?}", self.domain.stats());
                // Relaxed, both: counts that are read after all threads have ended.
                self.handed_back.fetch_add(1, Ordering::Relaxed);
                assert_eq!(back.value, 42);
                old = back;
                thread::yield_now();
            }
            self.taken_in.fetch_add(1, Ordering::Relaxed);
            self.waiting.add();
        }
    }

    fn retires(&self, seed: usize, when_full: WhenFull) {
        let mut reclaimer = self.domain.reclaimer_builder().when_full(when_full).build();
        let mut turn = 0;
        self.retire_all(seed, |old| {
            turn += 1;
            if turn % 5 == 0 {
                reclaimer.poll();
            }
            if turn % 97 == 0 {
                // Its objects are left to the domain, with their room.
                reclaimer = self.domain.reclaimer_builder().when_full(when_full).build();
            }
            let answer = reclaimer.retire(old).map_err(|error| error.into_inner());
            if answer.is_err() {
                reclaimer.poll();
            }
            answer
        });
    }

    fn submits(&self, seed: usize, handle: &RetireHandle) {
        self.retire_all(seed, |old| handle.retire(old).map_err(|error| error.into_inner()));
    }

    fn reads(&self, seed: usize) {
        let mut slot = seed;
        while !self.is_done() {
            slot += 1;
            let reader = self.domain.reader();
            let guard = (slot % 3 == 0).then(|| reader.pin());
            let under_guard = guard.as_ref().map(|guard| self.array.load(slot % SLOTS, guard));
            let object = self.array.protect(slot % SLOTS, &reader).expect("no slot is ever empty");
            if slot % 50 == 0 {
                thread::sleep(Duration::from_micros(200));
            }
            assert_eq!(object.value, 42);
            under_guard.into_iter().flatten().for_each(|object| assert_eq!(object.value, 42));
            let mut qsbr = self.domain.qsbr_reader();
            assert_eq!(self.array.load(slot % SLOTS, &qsbr).expect("no slot is ever empty").value, 42);
            qsbr.quiescent();
        }
    }

    fn looks(&self) -> usize {
        let mut looks = 0;
        while !self.is_done() {
            let stats = self.domain.stats();
            assert!(stats.pending <= self.limit as u64, "{stats:?}");
            assert!(stats.pending_bytes <= (self.limit * size_of::<Object>()) as u64, "{stats:?}");
            looks += 1;
            thread::sleep(Duration::from_micros(100));
        }
        looks
    }
}

#[test]
fn the_limit_of_a_domain_is_never_exceeded_and_everything_is_freed() {
    for limit in LIMITS {
        in_each_mode(|domain| never_exceeded(&domain, limit));
    }
}

fn never_exceeded(domain: &Domain, limit: usize) {
    let bytes = limit * size_of::<Object>();
    let domain = Domain::builder().fence(domain.fence_mode()).max_pending(limit).max_pending_bytes(bytes);
    let domain = domain.build().expect("the mode was probed");
    let waiting: Arc<Waiting> = Arc::default();
    let world = World {
        array: RcuArray::new_in(&domain, SLOTS, |_| Some(Object::new(&waiting))),
        domain,
        limit,
        waiting,
        done: AtomicBool::new(false),
        taken_in: AtomicUsize::new(0),
        handed_back: AtomicUsize::new(0),
    };
    thread::scope(|scope| {
        let world = &world;
        let policies = [WhenFull::HandBack, WhenFull::Wait(Duration::from_millis(1)), WhenFull::Reclaim];
        for (seed, when_full) in policies.into_iter().enumerate() {
            scope.spawn(move || world.retires(seed, when_full));
        }
        let mut background = world.domain.reclaimer_builder().max_pending(limit / 2).build_background();
        for (seed, when_full) in policies.into_iter().enumerate() {
            let handle = background.retire_handle().when_full(when_full);
            scope.spawn(move || world.submits(seed, &handle));
        }
        scope.spawn(move || background.run());
        for seed in 0..3 {
            scope.spawn(move || world.reads(seed));
        }
        let looks = scope.spawn(|| world.looks());
        let begun = Instant::now();
        // On a busy machine it takes longer until enough has happened. Relaxed: what is counted orders nothing.
        let taken_in = || world.taken_in.load(Ordering::Relaxed);
        let is_thin = || !cfg!(miri) && taken_in() <= ENOUGH && begun.elapsed() < LONG;
        while begun.elapsed() < DURATION || is_thin() {
            thread::sleep(Duration::from_millis(5));
        }
        // Relaxed: a flag that orders nothing.
        world.done.store(true, Ordering::Relaxed);
        assert!(looks.join().expect("the limit holds") > 0);
    });
    world.domain.reclaimer().flush().expect("all readers have left");

    // Relaxed, all: every thread has ended.
    let taken_in = world.taken_in.load(Ordering::Relaxed) as u64;
    let most = world.waiting.most.load(Ordering::Relaxed);
    let stats = world.domain.stats();
    assert_eq!((stats.retired, stats.freed), (taken_in, taken_in), "{stats:?}");
    assert_eq!((stats.pending, stats.pending_bytes, stats.beyond_limits), (0, 0, 0), "{stats:?}");
    assert_eq!(stats.handed_back, world.handed_back.load(Ordering::Relaxed) as u64, "{stats:?}");
    assert!((1..=limit as isize).contains(&most), "{most} waited at a time");
    assert_eq!(world.waiting.now.load(Ordering::Relaxed), 0, "each was freed once");
    assert!(cfg!(miri) || taken_in > ENOUGH as u64, "too few to mean anything: {stats:?}");
}
