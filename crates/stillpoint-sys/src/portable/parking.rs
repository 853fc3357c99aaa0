//! How threads sleep where there is no futex, and in models: a table of locks. The address of a word determines its lock.
//!
//! *No wake-up is lost.* A waiter reads the word under its lock; then the condition variable releases the lock and sleeps
//! in one step. The waker has changed the word before, and takes the same lock. If the waker comes first, the lock orders the
//! waiter's read after the change, and the waiter no longer finds the value that it has seen. If the waiter comes first, it is
//! asleep already, and is woken. The kernel does the same for a futex, with its own lock.
//!
//! *All threads that share a lock are woken*, including those that sleep on other words: if only one of those were woken, the
//! wake-up would be lost. The woken threads read their words again. A futex wakes as many threads as were requested.

use std::sync::PoisonError;
use std::time::Duration;

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};

use busted::Variant;

/// In builds with `--cfg stillpoint_busted`, `STILLPOINT_BUSTED=parking:NAME` chooses one.
mod busted {
    crate::variants! {
        for models, "parking";
        LookUnlocked = "look-unlocked": "A waiter looks at its word before it takes the lock.",
        WakeUnlocked = "wake-unlocked": "A thread that wakes others does not take the lock.",
        WakeOne = "wake-one": "Only one of the threads that share a lock is woken.",
    }
}

type Bucket = (Mutex<()>, Condvar);

#[cfg(not(stillpoint_loom))]
static BUCKETS: [Bucket; 64] = [const { (Mutex::new(()), Condvar::new()) }; 64];

#[cfg(stillpoint_loom)]
loom::lazy_static! {
    static ref BUCKETS: [Bucket; 1] = [(Mutex::new(()), Condvar::new())];
}

fn bucket_of(word: &AtomicU32) -> &'static Bucket {
    // The golden ratio spreads words that lie at equal distances.
    let hash = (std::ptr::from_ref(word).addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    &BUCKETS[hash as usize % BUCKETS.len()]
}

fn locked(lock: &Mutex<()>) -> MutexGuard<'_, ()> {
    // A panic leaves nothing half done.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until woken, for at most `limit`. Does not sleep if `word` no longer holds `seen`. May return
/// early without a wake-up.
pub fn wait(word: &AtomicU32, seen: u32, limit: Option<Duration>) {
    // No time passes in a model.
    if cfg!(stillpoint_loom) && limit.is_some() {
        return crate::sync::spin();
    }
    let (lock, woken) = bucket_of(word);
    let early = busted::is(Variant::LookUnlocked) && word.load(Ordering::Relaxed) == seen;
    let guard = locked(lock);
    // Relaxed: the lock orders it.
    if early || word.load(Ordering::Relaxed) == seen {
        match limit {
            Some(limit) => drop(woken.wait_timeout(guard, limit)),
            None => drop(woken.wait(guard)),
        }
    }
}

/// Wakes every thread that sleeps on `word`.
pub fn wake_all(word: &AtomicU32) {
    let (lock, woken) = bucket_of(word);
    let is_locked = !busted::is(Variant::WakeUnlocked);
    let _locked = is_locked.then(|| locked(lock));
    if busted::is(Variant::WakeOne) {
        return woken.notify_one();
    }
    woken.notify_all();
}

/// Wakes every thread that sleeps on `word`, as [`wake_all`] does: a thread that is woken needlessly sleeps again.
pub fn wake(word: &AtomicU32, _most: u32) {
    wake_all(word);
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::time::Instant;

    type Wait = fn(&AtomicU32, u32, Option<Duration>);
    type Wake = fn(&AtomicU32);

    /// The functions of this module and those of the system, which must behave alike.
    const ALL: [(Wait, Wake); 2] = [(wait, wake_all), (crate::os::wait, crate::os::wake_all)];

    #[test]
    fn a_word_that_has_changed_is_not_waited_for() {
        for (wait, _) in ALL {
            wait(&AtomicU32::new(1), 0, None);
        }
    }

    #[test]
    fn a_sleep_ends_with_its_limit_and_not_before() {
        let limit = Duration::from_millis(5);
        for (wait, _) in ALL {
            let word = AtomicU32::new(0);
            // A sleep may return early, but not each of a hundred sleeps.
            let is_as_long = || {
                let begin = Instant::now();
                wait(&word, 0, Some(limit));
                begin.elapsed() >= limit
            };
            assert!(cfg!(miri) || (0..100).any(|_| is_as_long()));
            wait(&word, 0, Some(Duration::ZERO));
            wait(&word, 1, Some(Duration::MAX));
        }
    }

    /// Sleeps without limits: if a wake-up is lost, the test does not end.
    #[test]
    fn threads_that_wake_one_another_all_go_on() {
        const TURNS: u32 = if cfg!(miri) { 20 } else { 10_000 };
        for (wait, wake_all) in ALL {
            let word = AtomicU32::new(0);
            let take_turns = |me: u32| {
                for turn in (me..2 * TURNS).step_by(2) {
                    loop {
                        // Acquire and release: each turn comes after the last one.
                        let seen = word.load(Ordering::Acquire);
                        if seen == turn {
                            break;
                        }
                        wait(&word, seen, None);
                    }
                    word.store(turn + 1, Ordering::Release);
                    wake_all(&word);
                }
            };
            std::thread::scope(|scope| {
                for me in 0..2 {
                    scope.spawn(move || take_turns(me));
                }
            });
            assert_eq!(word.into_inner(), 2 * TURNS);
        }
    }

    /// There are more words than locks, and all threads sleep at once.
    #[test]
    fn those_that_sleep_on_one_word_are_woken_and_no_other_word_is_in_the_way() {
        const WORDS: usize = if cfg!(miri) { 4 } else { 100 };
        for (wait, wake_all) in ALL {
            let words: Vec<AtomicU32> = (0..WORDS).map(|_| AtomicU32::new(0)).collect();
            let woken = AtomicU32::new(0);
            std::thread::scope(|scope| {
                for word in words.iter().chain(&words) {
                    scope.spawn(|| {
                        while word.load(Ordering::Relaxed) == 0 {
                            wait(word, 0, None);
                        }
                        woken.fetch_add(1, Ordering::Relaxed);
                    });
                }
                for (number, word) in words.iter().enumerate() {
                    word.store(1, Ordering::Relaxed);
                    wake_all(word);
                    while woken.load(Ordering::Relaxed) < 2 * (number as u32 + 1) {
                        std::thread::yield_now();
                    }
                }
            });
            assert_eq!(woken.into_inner(), 2 * WORDS as u32);
        }
    }

    #[cfg_attr(miri, ignore = "it only counts")]
    #[test]
    fn words_are_spread_over_the_locks() {
        // The words lie as in an array of objects of this size.
        for size in [4, 16, 64, 192, 4096] {
            let words: Vec<AtomicU32> = (0..BUCKETS.len() * size / 4).map(|_| AtomicU32::new(0)).collect();
            let mut locks: Vec<_> = words
                .iter()
                .step_by(size / 4)
                .map(|word| std::ptr::from_ref(bucket_of(word)).addr())
                .collect();
            locks.sort_unstable();
            locks.dedup();
            assert!(locks.len() > BUCKETS.len() / 3, "{size}: {} locks", locks.len());
        }
    }
}

#[cfg(all(test, stillpoint_loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Each thread sleeps without a limit until its word changes: a lost wake-up is a deadlock.
    fn sleep_until_woken(sleepers: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let words: Vec<_> = (0..sleepers).map(|_| Arc::new(AtomicU32::new(0))).collect();
            let threads: Vec<_> = words
                .iter()
                .map(|word| {
                    let word = Arc::clone(word);
                    thread::spawn(move || {
                        // Relaxed: only the word itself matters.
                        while word.load(Ordering::Relaxed) == 0 {
                            wait(&word, 0, None);
                        }
                    })
                })
                .collect();
            for word in words {
                word.store(1, Ordering::Relaxed);
                wake_all(&word);
            }
            for thread in threads {
                thread.join().unwrap();
            }
        });
        crate::busted::assert_reached();
    }

    #[test]
    fn no_wake_up_is_lost() {
        sleep_until_woken(1);
    }

    #[test]
    fn those_that_share_a_lock_are_all_woken() {
        sleep_until_woken(2);
    }

    #[cfg(stillpoint_busted)]
    #[test]
    fn every_variant_is_caught_by_its_model() {
        let caught = [
            (Variant::LookUnlocked, "no_wake_up_is_lost"),
            (Variant::WakeUnlocked, "no_wake_up_is_lost"),
            (Variant::WakeOne, "those_that_share_a_lock_are_all_woken"),
        ];
        let models = caught.map(|(variant, model)| (variant, model, vec!["deadlock"]));
        busted::assert_caught("portable::parking::models", models);
    }
}
