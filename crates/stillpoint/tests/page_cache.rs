//! A cache of pages. A table finds them, a timer wheel makes them expire, and a pool has their memory. Each access to a
//! page moves its deadline. When the pool is empty, the page that would expire first is evicted.
//!
//! A hit takes no lock. Misses and the sweeping thread share the wheel, behind a lock.
//!
//! Written as a new user writes it: from the README and the documentation only, without `unsafe`.

#![forbid(unsafe_code)]
#![cfg(not(stillpoint_loom))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

use stillpoint::pool::{Local, Obj, Pool};
use stillpoint::table::Table;
use stillpoint::timer::{Key, Limit, Wheel};

const PAGES: usize = 64;
const WORDS: usize = 32;
/// A page expires when it was not accessed for this long.
const IDLE: u64 = 500;
const THREADS: u64 = 4;
const LOOKS: u64 = if cfg!(miri) { 200 } else { 10_000 };

type Page = [u64; WORDS];

/// The values of a table may live for any time, so their pool lives for ever.
static POOL: LazyLock<Pool<Page>> =
    LazyLock::new(|| Pool::new(PAGES, || [0; WORDS]).expect("there is memory"));

struct Entry {
    page: Obj<'static, Page>,
    /// When the page expires, unless it is accessed before.
    deadline: AtomicU64,
    /// A [`Key`], as a number: a timer that is armed again has another one.
    timer: AtomicU64,
}

struct Cache {
    pages: Table<u64, Entry>,
    timers: Mutex<Wheel<u64>>,
    /// A clock, which each access advances.
    now: AtomicU64,
    /// All pages that expired by this time were removed.
    swept: AtomicU64,
    evicted: AtomicU64,
}

/// The work that the cache avoids.
fn compute(key: u64, page: &mut Page) {
    for (at, word) in page.iter_mut().enumerate() {
        *word = key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(at as u32);
    }
}

fn verify(key: u64, page: &Page) {
    let mut expected = [0; WORDS];
    compute(key, &mut expected);
    assert!(*page == expected, "the page is not that of key {key}: its memory was used again too early");
}

impl Cache {
    fn new() -> Self {
        Self {
            pages: Table::with_capacity(PAGES),
            timers: Mutex::new(Wheel::with_capacity(0, PAGES)),
            now: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    /// Whether the page was there.
    fn look(&self, key: u64, local: &Local<'static, Page>) -> bool {
        let now = self.now.fetch_add(1, Ordering::Relaxed);
        let swept = self.swept.load(Ordering::Acquire);
        let hit = self.pages.pin().get(&key).is_some_and(|entry| {
            assert!(entry.deadline.load(Ordering::Relaxed) > swept, "the page has expired");
            if now % 4 == 0 {
                thread::yield_now(); // the page is used for a while
            }
            verify(key, &entry.page);
            entry.deadline.fetch_max(now + IDLE, Ordering::Relaxed);
            true
        });
        if !hit {
            self.fill(key, local);
        }
        hit
    }

    fn fill(&self, key: u64, local: &Local<'static, Page>) {
        let mut wheel = self.timers.lock().unwrap_or_else(PoisonError::into_inner);
        self.expire(&mut wheel);
        if self.pages.pin().contains_key(&key) {
            return; // another thread was first
        }
        let Some(mut page) = local.alloc().or_else(|| {
            self.evict(&mut wheel);
            self.pages.poll(); // a removed page comes back when no reader can hold it any more
            local.alloc()
        }) else {
            return; // not cached this time
        };
        compute(key, &mut page);
        let deadline = wheel.now() + IDLE;
        let timer = wheel.add(deadline, key).expect("there is memory");
        let (deadline, timer) = (AtomicU64::new(deadline), AtomicU64::new(timer.to_bits()));
        let old = self.pages.insert(key, Entry { page, deadline, timer });
        assert!(old.expect("there is memory").is_none());
    }

    /// Removes the page whose last access is the oldest.
    fn evict(&self, wheel: &mut Wheel<u64>) {
        let pages = self.pages.pin();
        let deadline = |entry: &Entry| entry.deadline.load(Ordering::Relaxed);
        if let Some((key, entry)) = pages.iter().min_by_key(|(_, entry)| deadline(entry)) {
            let timer =
                Key::from_bits(entry.timer.load(Ordering::Relaxed)).expect("the number is that of a key");
            assert_eq!(wheel.cancel(timer), Some(*key), "an entry has a timer as long as it is in the table");
            assert!(matches!(pages.remove_if(key, |_, _| true), Ok(Some(_))));
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes expired pages. A timer fires at the first deadline of its entry. If that has moved since, the timer is
    /// armed again.
    fn expire(&self, wheel: &mut Wheel<u64>) {
        let now = self.now.load(Ordering::Relaxed);
        let pages = self.pages.pin();
        let progress = wheel.poll(now, Limit::NONE, |wheel, expired| {
            let key = expired.into_value().expect("it fires once");
            let is_over = |entry: &Entry| entry.deadline.load(Ordering::Relaxed) <= now;
            if let Err((_, entry)) = pages.remove_if(&key, |_, entry| is_over(entry)) {
                let timer = wheel.add(entry.deadline.load(Ordering::Relaxed), key).expect("there is memory");
                entry.timer.store(timer.to_bits(), Ordering::Relaxed); // under the lock
            }
        });
        assert!(progress.is_done());
        self.swept.fetch_max(now, Ordering::Release);
    }

    fn sweep(&self) {
        self.expire(&mut self.timers.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[test]
fn a_cache_has_nothing_stale_and_gives_everything_back() {
    let (cache, done) = (Cache::new(), AtomicBool::new(false));
    let hits: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let cache = &cache;
                scope.spawn(move || {
                    let local = POOL.local().expect("the pool has a local for each thread of the test");
                    // Some pages are popular, and there are more pages than the pool has room for.
                    let keys = (0..LOOKS).map(|look| (look * (thread + 1) % 397) * (look % 5) / 4);
                    keys.filter(|&key| cache.look(key, &local)).count() as u64
                })
            })
            .collect();
        let sweeper = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                cache.sweep();
                thread::yield_now();
            }
        });
        let answers: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::Relaxed);
        let hits = answers.into_iter().map(|answer| answer.expect("the thread does not panic")).sum();
        sweeper.join().expect("the thread does not panic");
        hits
    });
    assert!(hits > 0 && hits < THREADS * LOOKS, "{hits} hits");
    assert!(cache.evicted.load(Ordering::Relaxed) > 0, "no page was evicted: {:?}", POOL.stats());
    let timers = cache.timers.lock().unwrap_or_else(PoisonError::into_inner).len();
    assert_eq!(cache.pages.len(), timers);

    // No page is accessed any more.
    cache.now.fetch_add(2 * IDLE, Ordering::Relaxed);
    cache.sweep();
    assert!(cache.pages.is_empty());
    assert!(cache.timers.lock().unwrap_or_else(PoisonError::into_inner).is_empty());
    while cache.pages.pending() > 0 {
        cache.pages.poll();
        thread::yield_now();
    }
    assert_eq!(POOL.stats().in_use, 0, "the pages are back");
}
