//! Runs programs that use crates from the registry: all, or those of the crates that the arguments name. Prints a line
//! for each: its name, and the number of functions that have run in the default collector of the stand-in. Soon
//! after each program, no function may be left.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;

use stillpoint_epoch::domain::{self, Stats};

const THREADS: u64 = if cfg!(miri) { 2 } else { 4 };

/// The number of rounds of a program. Miri is slow.
const fn rounds(full: u64) -> u64 {
    if cfg!(miri) {
        full / 250
    } else {
        full
    }
}

fn stats() -> Stats {
    domain::of(crossbeam_epoch::default_collector()).stats()
}

/// Flushes until no function is left. Each flush runs 512 at least.
fn flush() {
    for _ in 0..stats().pending / 512 + 2 {
        crossbeam_epoch::pin().flush();
    }
    assert_eq!(stats().pending, 0, "functions are left");
}

/// A value that counts itself as long as it is alive.
struct Counted(Arc<AtomicUsize>, u64);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>, number: u64) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(alive), number)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs the function on several threads. When this returns, the threads have ended, and their thread-locals were
/// dropped.
fn threads(function: impl Fn(u64) + Send + Sync + 'static) {
    let function = Arc::new(function);
    let spawn = |number| {
        let function = Arc::clone(&function);
        thread::spawn(move || function(number))
    };
    let all: Vec<_> = (0..THREADS).map(spawn).collect();
    all.into_iter().for_each(|thread| thread.join().expect("the thread does not panic"));
}

/// Work stealing. Everything that was pushed is popped or stolen once, while the buffers grow.
fn deque() {
    use crossbeam_deque::{Injector, Steal, Worker};

    let (alive, items) = (Arc::new(AtomicUsize::new(0)), rounds(50_000));
    let worker = Worker::new_lifo();
    let injector = Arc::new(Injector::new());
    let is_done = Arc::new(AtomicBool::new(false));
    let thieves: Vec<_> = (0..THREADS)
        .map(|_| {
            let (stealer, injector, is_done) =
                (worker.stealer(), Arc::clone(&injector), Arc::clone(&is_done));
            thread::spawn(move || {
                let (own, mut sum) = (Worker::new_fifo(), 0);
                loop {
                    let found = own.pop().map(Steal::Success).unwrap_or_else(|| {
                        injector.steal_batch_and_pop(&own).or_else(|| stealer.steal_batch_and_pop(&own))
                    });
                    match found {
                        Steal::Success(Counted(_, ref number)) => sum += number,
                        Steal::Retry => {}
                        Steal::Empty if is_done.load(Ordering::Acquire) => return sum,
                        Steal::Empty => thread::yield_now(),
                    }
                }
            })
        })
        .collect();
    let mut sum = 0;
    for number in 0..items {
        worker.push(Counted::new(&alive, number));
        injector.push(Counted::new(&alive, number));
        if number % 3 == 0 {
            sum += worker.pop().map_or(0, |item| item.1);
        }
    }
    is_done.store(true, Ordering::Release);
    sum += thieves.into_iter().map(|thief| thief.join().expect("the thread does not panic")).sum::<u64>();
    sum += std::iter::from_fn(|| worker.pop()).map(|item| item.1).sum::<u64>();
    while let Steal::Success(item) = injector.steal() {
        sum += item.1;
    }
    assert_eq!((sum, alive.load(Ordering::SeqCst)), (items * (items - 1), 0));
}

/// A map. Threads insert and remove the same keys, and the map is dropped with entries in it.
fn skiplist() {
    use crossbeam_skiplist::SkipMap;

    let alive = Arc::new(AtomicUsize::new(0));
    let map = Arc::new(SkipMap::new());
    let (of_threads, of_map) = (Arc::clone(&alive), Arc::clone(&map));
    threads(move |thread| {
        for round in 0..rounds(10_000) {
            // Fences order the map's reference counts, and ThreadSanitizer does not understand fences. Here the guard
            // orders the counts, too.
            let _guard = crossbeam_epoch::pin();
            let key = (round * (thread + 1)) % 500;
            of_map.insert(key, Counted::new(&of_threads, key));
            if let Some(entry) = of_map.get(&((key * 7) % 500)) {
                assert_eq!(entry.value().1, *entry.key());
            }
            if round % 3 == 0 {
                of_map.remove(&((key + 250) % 500));
            }
        }
    });
    assert!(map.iter().map(|entry| *entry.key()).is_sorted());
    assert!(alive.load(Ordering::SeqCst) >= map.len());
    drop(map);
    flush();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

/// Fork and join, and a sort. The pool's threads are ours: the drop of a pool does not wait for their ends, and what
/// they leave behind runs only after these.
fn rayon() {
    use ::rayon::prelude::*;

    fn sum(numbers: &[u64]) -> u64 {
        match numbers {
            [] => 0,
            [number] => *number,
            _ => {
                let (left, right) = numbers.split_at(numbers.len() / 2);
                let (left, right) = ::rayon::join(|| sum(left), || sum(right));
                left + right
            }
        }
    }

    let mut workers = Vec::new();
    let pool = ::rayon::ThreadPoolBuilder::new()
        .num_threads(THREADS as usize)
        .spawn_handler(|worker| {
            workers.push(thread::spawn(|| worker.run()));
            Ok(())
        })
        .build()
        .expect("there are threads");
    pool.install(|| {
        let numbers: Vec<u64> = (0..100_000).collect();
        assert_eq!(sum(&numbers), 100_000 * 99_999 / 2);
        let mut mixed: Vec<u64> = numbers.iter().map(|number| (number * 7919) % 100_003).collect();
        mixed.par_sort();
        assert!(mixed.is_sorted());
        // This makes a deep queue, whose buffer grows.
        let total = AtomicUsize::new(0);
        ::rayon::scope(|scope| {
            (0..20_000).for_each(|_| scope.spawn(|_| _ = total.fetch_add(1, Ordering::Relaxed)))
        });
        assert_eq!(total.into_inner(), 20_000);
    });
    drop(pool);
    workers.into_iter().for_each(|worker| worker.join().expect("the thread does not panic"));
}

/// A cache that evicts entries, and that is dropped while it is full.
fn moka() {
    let alive = Arc::new(AtomicUsize::new(0));
    let cache = ::moka::sync::Cache::builder().max_capacity(1000).build();
    let (of_threads, of_cache) = (Arc::clone(&alive), cache.clone());
    threads(move |thread| {
        for round in 0..20_000_u64 {
            let key = (round * (2 * thread + 1)) % 5000;
            let value = of_cache.get_with(key, || Arc::new(Counted::new(&of_threads, key)));
            assert_eq!(value.1, key);
            if round % 5 == 0 {
                of_cache.insert(key, Arc::new(Counted::new(&of_threads, key)));
                of_cache.invalidate(&((key + 17) % 5000));
            }
        }
    });
    cache.run_pending_tasks();
    assert!(cache.entry_count() <= 1000);
    drop(cache);
    flush();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

/// A radix tree whose values are counted.
fn congee() {
    use ::congee::CongeeArc;

    let alive = Arc::new(AtomicUsize::new(0));
    let tree = Arc::new(CongeeArc::<usize, Counted>::new());
    let (of_threads, of_tree) = (Arc::clone(&alive), Arc::clone(&tree));
    threads(move |thread| {
        for round in 0..10_000 {
            let guard = of_tree.pin();
            let key = (round * (thread + 1)) % 3000;
            let value = Arc::new(Counted::new(&of_threads, key));
            drop(of_tree.insert(key as usize, value, &guard).expect("there is memory"));
            if let Some(value) = of_tree.get(((key * 11) % 3000) as usize, &guard) {
                assert_eq!(value.1, (key * 11) % 3000);
            }
            if round % 2 == 0 {
                drop(of_tree.remove(((key + 1500) % 3000) as usize, &guard));
            }
        }
    });
    assert!(!tree.is_empty(&tree.pin()));
    drop(tree);
    flush();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

/// A cuckoo hash map.
fn cuckoohash() {
    use lockfree_cuckoohash::{pin, LockFreeCuckooHash};

    let map = Arc::new(LockFreeCuckooHash::with_capacity(64));
    let of_threads = Arc::clone(&map);
    threads(move |thread| {
        for round in 0..5000_u64 {
            let key = round * THREADS + thread;
            of_threads.insert(key, vec![key; 3]);
            let guard = pin();
            assert_eq!(of_threads.get(&key, &guard), Some(&vec![key; 3]));
            if round % 2 == 0 {
                assert!(of_threads.remove(&key));
            }
        }
    });
    assert_eq!(map.size(), 2500 * THREADS as usize);
}

fn main() {
    let programs: [(&str, fn()); 6] = [
        ("crossbeam-deque", deque),
        ("crossbeam-skiplist", skiplist),
        ("rayon", rayon),
        ("moka", moka),
        ("congee", congee),
        ("lockfree-cuckoohash", cuckoohash),
    ];
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    for (name, program) in
        programs.into_iter().filter(|(name, _)| chosen.is_empty() || chosen.iter().any(|one| one == name))
    {
        let before = stats();
        program();
        flush();
        println!("{name} {}", stats().freed - before.freed);
    }
}
