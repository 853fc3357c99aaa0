//! Several threads at once. Every object is filled with a pattern, which is checked before the object is freed.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Mutex;

use stillpoint::pool::memory::Pages;
use stillpoint::pool::raw::{RawLocal, RawPool};
use stillpoint::pool::{Pool, PoolBuilder};

const BYTES: usize = 96;
const ROUNDS: usize = if cfg!(miri) { 60 } else { 20_000 };

/// An address that may go to another thread.
#[derive(Clone, Copy)]
struct Handed(NonNull<u8>);

// SAFETY: the object is handed over with the address.
unsafe impl Send for Handed {}

fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as usize
}

fn pattern(object: NonNull<u8>) -> u8 {
    (object.as_ptr().addr() >> 5) as u8 | 1
}

fn fill(object: NonNull<u8>) {
    // SAFETY: the caller has the object.
    unsafe { object.as_ptr().write_bytes(pattern(object), BYTES) };
}

fn check(object: NonNull<u8>) {
    // SAFETY: the thread that allocated it has filled it.
    let bytes = unsafe { std::slice::from_raw_parts(object.as_ptr(), BYTES) };
    assert!(bytes.iter().all(|&byte| byte == pattern(object)), "two threads had the same object");
}

/// Allocates objects in some way. Returns their number.
fn take(local: &RawLocal<'_>, mine: &mut Vec<NonNull<u8>>, choice: usize) {
    let before = mine.len();
    match choice % 4 {
        0 => mine.extend(
            local
                .alloc_block()
                .into_iter()
                .flat_map(|block| (0..block.len()).map(move |index| block.get(index).unwrap())),
        ),
        1 => {
            let mut room = [const { MaybeUninit::uninit() }; 31];
            mine.extend(local.alloc_many(&mut room).into_iter().flat_map(|objects| objects.iter().copied()));
        }
        _ => mine.extend(local.alloc()),
    }
    mine[before..].iter().for_each(|&object| fill(object));
}

fn give(local: &RawLocal<'_>, objects: &[NonNull<u8>], choice: usize) {
    objects.iter().for_each(|&object| check(object));
    if choice % 2 == 0 {
        // SAFETY: allocated, checked, and freed once.
        unsafe { local.free_many(objects) }.unwrap();
    } else {
        // SAFETY: allocated, checked, and freed once.
        objects.iter().for_each(|&object| unsafe { local.free(object) }.unwrap());
    }
}

/// The work of one thread: it allocates, frees, hands objects to the next thread, frees objects of other threads,
/// parks, and makes new locals.
fn work(pool: &RawPool, seed: u64, to: &SyncSender<Handed>, from: &Mutex<Receiver<Handed>>) {
    let mut state = seed * 0x9e37_79b9 + 1;
    let mut local = pool.local().unwrap();
    let mut mine = Vec::new();
    for _ in 0..ROUNDS {
        let choice = random(&mut state);
        match choice % 8 {
            0..3 if mine.len() < 200 => take(&local, &mut mine, choice / 8),
            3..5 if !mine.is_empty() => {
                let from = random(&mut state) % mine.len();
                let some: Vec<_> = mine.drain(from..).collect();
                give(&local, &some, choice / 8);
            }
            5 if !mine.is_empty() => {
                let object = mine.swap_remove(random(&mut state) % mine.len());
                if to.try_send(Handed(object)).is_err() {
                    mine.push(object);
                }
            }
            6 => {
                let come: Vec<_> = from.lock().unwrap().try_iter().take(40).map(|handed| handed.0).collect();
                give(&local, &come, choice / 8);
            }
            7 if choice % 512 == 7 => local.park(),
            7 if choice % 1024 == 15 => {
                drop(local);
                local = pool.local().unwrap();
            }
            _ => {}
        }
    }
    give(&local, &mine, 0);
}

fn stress(threads: usize, builder: PoolBuilder<RawPool>) {
    let pool = builder.pages(Pages::Small).build().unwrap();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..threads).map(|_| sync_channel(500)).unzip();
    let receivers: Vec<_> = receivers.into_iter().map(Mutex::new).collect();
    std::thread::scope(|scope| {
        for index in 0..threads {
            let (pool, to, from) = (&pool, &senders[(index + 1) % threads], &receivers[index]);
            scope.spawn(move || work(pool, index as u64 + 1, to, from));
        }
        // Neither panics, whatever it finds.
        for _ in 0..if cfg!(miri) { 3 } else { 200 } {
            let _ = (pool.stats(), pool.audit());
            std::thread::yield_now();
        }
    });
    let local = pool.local().unwrap();
    let mut rest = Vec::new();
    for receiver in receivers {
        rest.extend(receiver.into_inner().unwrap().try_iter().map(|handed| handed.0));
    }
    assert_eq!(pool.stats().in_use, rest.len(), "what is under way from thread to thread");
    give(&local, &rest, 0);
    assert_eq!((pool.stats().in_use, pool.stats().misuses), (0, 0));
    assert_eq!(pool.audit().unwrap().stats.in_use, 0);
    let all: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    assert_eq!(all.len(), pool.info().max_objects);
}

#[test]
fn two_threads() {
    stress(2, RawPool::builder(2_000, BYTES, 32).bucket_bytes(4096));
}

#[test]
fn four_threads_in_a_pool_that_is_too_small() {
    stress(4, RawPool::builder(300, BYTES, 32).bucket_bytes(1024).cache(40).high_water(1));
}

#[test]
fn eight_threads_without_caches() {
    stress(8, RawPool::builder(3_000, BYTES, 32).bucket_bytes(1024).cache(0).high_water(2));
}

#[test]
fn four_threads_in_a_pool_that_grows_with_buckets_of_several_rows() {
    stress(4, RawPool::builder(200, BYTES, 32).bucket_bytes(1 << 14).max_objects(4_000).growth_step(500));
}

#[test]
fn four_threads_in_a_hardened_pool() {
    stress(4, RawPool::builder(1_000, BYTES, 32).bucket_bytes(1024).hardened(true));
}

#[test]
fn eight_threads_in_a_small_pool() {
    stress(8, RawPool::builder(400, BYTES, 32).bucket_bytes(1024));
}

#[test]
fn four_threads_in_a_small_pool_that_grows_with_buckets_of_several_rows() {
    stress(4, RawPool::builder(100, BYTES, 32).bucket_bytes(1 << 13).max_objects(400).growth_step(100));
}

/// An audit during the calls of other threads may find inconsistencies, but never panics. The last audit finds none.
#[test]
fn an_audit_during_traffic_is_an_answer() {
    [0, 1].into_iter().for_each(audit_during_traffic);
}

fn audit_during_traffic(high_water: u32) {
    let pool = Pool::builder(62 * 4, || [0u8; 64]).bucket_bytes(4096).cache(0).high_water(high_water);
    let pool = pool.pages(Pages::Small).build().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::sync_channel(64);
        scope.spawn(|| receiver.into_iter().for_each(drop));
        scope.spawn(|| {
            let (local, sender) = (pool.local().unwrap(), sender);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                if let Some(object) = local.alloc() {
                    sender.send(object).unwrap();
                }
            }
        });
        let answers = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..if cfg!(miri) { 10 } else { 2_500 }).filter(|_| pool.audit().is_ok()).count()
        }));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(answers.is_ok(), "an audit panicked");
    });
    assert_eq!(pool.audit().unwrap().stats.in_use, 0);
}
