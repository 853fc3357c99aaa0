//! Measures crossbeam-epoch and programs on it. Prints a line for each measure: its name, and the nanoseconds of one
//! operation, which is the best of several repetitions in this process. With an argument, only measures whose names
//! contain it are made.
//!
//! The argument `peak-garbage` makes only that measure, which no other call makes. Its number is not a time: it is the
//! most objects that waited at any time.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_deque::{Steal, Worker};
use crossbeam_epoch::{self as epoch, Owned};
use crossbeam_skiplist::SkipMap;

const REPETITIONS: usize = 5;

/// Whether the arguments select this measure.
fn is_chosen(name: &str) -> bool {
    std::env::args().nth(1).is_none_or(|part| name.contains(&part))
}

/// Measures the nanoseconds of one operation. Each call makes `operations` operations.
fn measure(name: &str, operations: u64, mut call: impl FnMut()) {
    if !is_chosen(name) {
        return;
    }
    let mut repetition = || {
        let begun = Instant::now();
        call();
        begun.elapsed().as_nanos() as f64 / operations as f64
    };
    repetition();
    let best = (0..REPETITIONS).map(|_| repetition()).fold(f64::INFINITY, f64::min);
    println!("{name} {best:.2}");
}

/// An object that is counted until it is dropped.
struct Waiting;

static WAITING: AtomicUsize = AtomicUsize::new(0);

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

fn run_on(cpu: usize) {
    // SAFETY: the set is plain data, for which zeros are valid, and the kernel only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0, "there is no processor {cpu}");
    }
}

/// A thread that is nearly always pinned shares its processor with eight busy threads. On another processor, a thread
/// defers 100,000 objects a second. Returns the most objects that waited, within two seconds.
fn peak_garbage() -> usize {
    let is_done = AtomicBool::new(false);
    let mut peak = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            run_on(0);
            while !is_done.load(Ordering::Relaxed) {
                let guard = epoch::pin();
                (0..2000).for_each(|number: i32| _ = black_box(number));
                drop(guard);
            }
        });
        for _ in 0..8 {
            scope.spawn(|| {
                run_on(0);
                while !is_done.load(Ordering::Relaxed) {}
            });
        }
        run_on(1);
        let begun = Instant::now();
        let mut last = begun;
        while begun.elapsed() < Duration::from_secs(2) {
            // After a pause, this thread does not defer the objects that it has missed.
            if last.elapsed() < Duration::from_micros(10) {
                continue;
            }
            last = Instant::now();
            let guard = epoch::pin();
            let object = Owned::new([Waiting; 1]).into_shared(&guard);
            peak = peak.max(WAITING.fetch_add(1, Ordering::Relaxed) + 1);
            // SAFETY: no other thread has the object.
            unsafe { guard.defer_destroy(object) };
        }
        is_done.store(true, Ordering::Relaxed);
    });
    peak
}

fn sum(numbers: &[u64]) -> u64 {
    match numbers {
        [] => 0,
        [number] => *number,
        _ => {
            let (left, right) = numbers.split_at(numbers.len() / 2);
            let (left, right) = rayon::join(|| sum(left), || sum(right));
            left + right
        }
    }
}

fn main() {
    let name = "peak-garbage";
    // Measured in a separate process, since the rest is measured without boosting.
    if std::env::args().nth(1).as_deref() == Some(name) {
        #[cfg(feature = "stand-in")]
        {
            use stillpoint_epoch::domain::{self, Boost};
            if let Err(error) = domain::build_default(domain::builder().boost(Boost::Realtime)) {
                eprintln!("{name} needs boosting: {error}");
                std::process::exit(1);
            }
        }
        return println!("{name} {}", peak_garbage());
    }
    drop(epoch::pin());
    measure("pin", 2_000_000, || (0..2_000_000).for_each(|_| drop(black_box(epoch::pin()))));
    let guard = epoch::pin();
    measure("nested", 2_000_000, || (0..2_000_000).for_each(|_| drop(black_box(epoch::pin()))));
    drop(guard);
    measure("is_pinned", 2_000_000, || (0..2_000_000).for_each(|_| assert!(!black_box(epoch::is_pinned()))));
    measure("defer_destroy", 500_000, || {
        for number in 0..500_000_u64 {
            let guard = epoch::pin();
            let object = Owned::new([number; 4]).into_shared(&guard);
            // SAFETY: no other thread has the object.
            unsafe { guard.defer_destroy(object) };
        }
    });
    measure("defer_destroy-threads", 500_000, || {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for number in 0..250_000_u64 {
                        let guard = epoch::pin();
                        let object = Owned::new([number; 4]).into_shared(&guard);
                        // SAFETY: no other thread has the object.
                        unsafe { guard.defer_destroy(object) };
                    }
                });
            }
        });
    });
    let worker = Worker::new_lifo();
    measure("deque-push-pop", 2_000_000, || {
        for number in 0..2_000_000_u64 {
            worker.push(number);
            black_box(worker.pop());
        }
    });
    let stealer = worker.stealer();
    measure("deque-steal", 1_000_000, || {
        (0..1_000_000).for_each(|number| worker.push(number));
        (0..1_000_000).for_each(|_| assert!(matches!(stealer.steal(), Steal::Success(_))));
    });
    let is_done = Arc::new(AtomicBool::new(false));
    measure("deque-steal-beside", 500_000, || {
        is_done.store(false, Ordering::SeqCst);
        let (stealer, done) = (worker.stealer(), Arc::clone(&is_done));
        let thief = thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let _ = black_box(stealer.steal());
            }
        });
        for number in 0..500_000 {
            worker.push(number);
            worker.push(number);
            black_box(worker.pop());
        }
        is_done.store(true, Ordering::SeqCst);
        thief.join().unwrap();
        while worker.pop().is_some() {}
    });
    let keys: Vec<u64> = (0..100_000_u64).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    measure("skiplist-insert", 100_000, || {
        let map = SkipMap::new();
        keys.iter().for_each(|&key| drop(map.insert(key, key)));
    });
    measure("skiplist-churn", 200_000, || {
        let map = SkipMap::new();
        for window in keys.windows(100) {
            map.insert(window[99], window[99]);
            map.remove(&window[0]);
        }
    });
    let map: SkipMap<u64, u64> = keys.iter().map(|&key| (key, key)).collect();
    measure("skiplist-get", 100_000, || {
        keys.iter().for_each(|key| assert_eq!(map.get(key).map(|entry| *entry.value()), Some(*key)));
    });
    let numbers: Vec<u64> = (0..1_000_000).collect();
    measure("rayon-sum", 1_000_000, || assert_eq!(sum(&numbers), 1_000_000 * 999_999 / 2));
    use rayon::slice::ParallelSliceMut;
    measure("rayon-sort", 100_000, || {
        let mut mixed = keys.clone();
        mixed.par_sort();
        black_box(mixed);
    });
}
