//! The promises of the original's documentation about collectors, handles, guards and deferred functions, sentence by
//! sentence. Those about pointers are in `pointers.rs`.

mod common;

use std::rc::Rc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use common::{defer_destroy, pending, rounds, Count, Dropped};
use stillpoint_epoch::{self as epoch, domain, Atomic, Collector, Owned, Shared};

/// A removed object is destroyed when no thread can hold a reference to it any more. While any guard may hold one, it
/// is not.
#[test]
fn an_object_is_destroyed_after_the_guards_that_may_hold_it() {
    let collector = Collector::new();
    let count = Count::default();
    let link = Atomic::new(Dropped(count.clone()));
    let (pinned, is_pinned) = mpsc::channel();
    let (unpin, may_unpin) = mpsc::channel();
    let reader = {
        let (collector, link, count) = (collector.clone(), link.clone(), count.clone());
        thread::spawn(move || {
            let handle = collector.register();
            let guard = handle.pin();
            let found = link.load(Acquire, &guard);
            pinned.send(()).unwrap();
            may_unpin.recv().unwrap();
            assert_eq!(count.get(), 0);
            // SAFETY: the object was linked when the guard was made.
            assert_eq!(unsafe { found.deref() }.0.get(), 0, "the object was not destroyed");
        })
    };
    is_pinned.recv().unwrap();
    let handle = collector.register();
    let guard = handle.pin();
    let old = link.swap(Shared::null(), AcqRel, &guard);
    // SAFETY: the object was unlinked just now.
    unsafe { guard.defer_destroy(old) };
    drop(guard);
    for _ in 0..rounds(1000, 150) {
        handle.pin().flush();
    }
    assert_eq!(count.get(), 0, "the reader may hold it");
    unpin.send(()).unwrap();
    reader.join().unwrap();
    handle.pin().flush();
    assert_eq!(count.get(), 1);
}

/// A function waits only for threads that are pinned when its round begins, not for those that pin themselves later.
#[test]
fn a_guard_that_came_later_is_not_waited_for() {
    let collector = Collector::new();
    let count = Count::default();
    let (handle, later) = (collector.register(), collector.register());
    defer_destroy(&handle, &count);
    handle.pin().flush(); // a grace period has begun
    let count = Count::default();
    let guard = handle.pin();
    let number = count.clone();
    guard.defer(move || number.add());
    guard.flush();
    let _later = later.pin();
    drop(guard);
    assert_eq!(count.get(), 1);
}

#[test]
fn a_handle_works_without_its_collector() {
    let collector = Collector::new();
    let handle = collector.register();
    drop(collector);
    handle.pin().flush();
    assert!(!handle.is_pinned());
}

#[test]
fn clones_are_the_same_collector() {
    let (one, another) = (Collector::new(), Collector::default());
    assert!(one == one.clone() && one != another);
    let handle = one.clone().register();
    assert!(handle.collector() == &one && handle.pin().collector() == Some(&one));
    assert!(epoch::pin().collector() == Some(epoch::default_collector()));
}

/// Pinning is reentrant. A thread is pinned from its first guard to its last, whatever the order in which they are
/// dropped.
#[test]
fn guards_nest() {
    let handle = Collector::new().register();
    assert!(!handle.is_pinned());
    let (first, second, third) = (handle.pin(), handle.pin(), handle.pin());
    drop(second);
    assert!(handle.is_pinned());
    drop(first);
    assert!(handle.is_pinned());
    drop(third);
    assert!(!handle.is_pinned());

    assert!(!epoch::is_pinned());
    let (first, second) = (epoch::pin(), epoch::pin());
    drop(first);
    assert!(epoch::is_pinned());
    drop(second);
    assert!(!epoch::is_pinned());
}

#[test]
fn handles_of_a_thread_are_pinned_one_by_one() {
    let collector = Collector::new();
    let (one, another) = (collector.register(), collector.register());
    let _guard = one.pin();
    assert!(one.is_pinned() && !another.is_pinned() && !epoch::is_pinned());
}

/// A function does not run until all threads that are pinned now are unpinned, including the thread of the guard
/// itself.
#[test]
fn a_function_does_not_run_before_its_own_guard_is_dropped() {
    let handle = Collector::new().register();
    let (guard, nested) = (handle.pin(), handle.pin());
    let count = Count::default();
    for _ in 0..rounds(500, 200) {
        let number = count.clone();
        guard.defer(move || number.add());
        guard.flush();
    }
    drop(guard);
    assert_eq!(count.get(), 0);
    drop(nested);
    assert_eq!(count.get(), rounds(500, 200));
}

/// Functions run reasonably soon: without a flush, after a bounded number of regions.
#[test]
fn functions_run_without_a_flush() {
    let handle = Collector::new().register();
    let count = Count::default();
    defer_destroy(&handle, &count);
    let mut regions = 0;
    while count.get() == 0 {
        drop(handle.pin());
        regions += 1;
        assert!(regions <= 128);
    }
    // With many functions, fewer regions are enough.
    let guard = handle.pin();
    for _ in 0..128 {
        let number = count.clone();
        guard.defer(move || number.add());
    }
    drop(guard);
    assert_eq!(count.get(), 129);
}

/// However short a thread or a handle lives, it makes a round at least once.
#[test]
fn what_is_deferred_in_one_region_is_not_left_for_ever() {
    let (collector, count) = (Collector::new(), Count::default());
    for lives in 1..=rounds(1000, 20) {
        match lives % 3 {
            0 => defer_destroy(&collector.register(), &count),
            1 => {
                let guard = collector.register().pin(); // this guard outlives its handle
                let number = count.clone();
                guard.defer(move || number.add());
            }
            _ => {
                let (collector, count) = (&collector, &count);
                thread::scope(|scope| {
                    scope.spawn(|| defer_destroy(&collector.register(), count)).join().unwrap();
                });
            }
        }
        assert_eq!((count.get(), pending(&collector)), (lives, 0));
    }
}

/// Any thread may run them: a thread that only reads runs the functions of a thread that has ended.
#[test]
fn functions_of_a_thread_that_has_ended_are_run_by_others() {
    let collector = Collector::new();
    let (handle, count) = (collector.register(), Count::default());
    let functions = rounds(400, 100);
    drop(handle.pin()); // so that no round is due at the end of the next region
    let pinned = handle.pin();
    {
        let (collector, count) = (collector.clone(), count.clone());
        thread::spawn(move || {
            let guard = collector.register().pin();
            for _ in 0..functions {
                let number = count.clone();
                guard.defer(move || number.add());
            }
        })
        .join()
        .unwrap();
    }
    drop(pinned);
    assert_eq!(count.get(), 0);
    for _ in 0..128 {
        drop(handle.pin());
    }
    assert_eq!(count.get(), functions);
}

/// After a flush, any thread may run what this thread has deferred, so this thread may sleep for ever.
#[test]
fn what_was_flushed_is_run_by_others() {
    let collector = Collector::new();
    let count = Count::default();
    let (handle, other) = (collector.register(), collector.register());
    drop(other.pin()); // so that no round is due at the end of the next region
    let pinned = other.pin();
    defer_destroy(&handle, &count);
    handle.pin().flush();
    drop(pinned);
    assert_eq!(count.get(), 0);
    // From here on, `handle` is not used.
    other.pin().flush();
    assert_eq!(count.get(), 1);
}

/// As in the original, a thread that never pins itself again keeps fewer than 64 functions. This holds however many
/// functions it has deferred, in however many regions, while other threads were in the way.
#[test]
fn an_idle_thread_keeps_fewer_than_64_functions() {
    for functions in (0..rounds(300, 0)).chain([63, 64, 127, 128, rounds(700, 130), rounds(1500, 200)]) {
        for is_one_region in [false, true] {
            let collector = Collector::new();
            let (handle, other, count) = (collector.register(), collector.register(), Count::default());
            let pinned = other.pin();
            let region = is_one_region.then(|| handle.pin());
            (0..functions).for_each(|_| defer_destroy(&handle, &count));
            drop(region);
            drop(pinned);
            other.pin().flush();
            // `handle` still exists, but is not used any more.
            assert!(count.get() + 64 > functions, "{} of {functions} have run", count.get());
            assert_eq!(pending(&collector), (functions - count.get()) as u64);
            drop(handle);
        }
    }
}

/// A few functions stay with the thread that has deferred them, whose allocator has their memory.
#[test]
fn a_thread_runs_its_own_few_functions() {
    let collector = Collector::new();
    let (handle, other, count) = (collector.register(), collector.register(), Count::default());
    drop((handle.pin(), other.pin())); // so that no round is due at the end of the next region
    let pinned = other.pin();
    (0..60).for_each(|_| defer_destroy(&handle, &count));
    drop(pinned);
    other.pin().flush();
    assert_eq!(count.get(), 0);
    for _ in 0..128 {
        drop(handle.pin());
    }
    assert_eq!(count.get(), 60);
}

/// This also holds for functions that were deferred by functions which the thread has run itself, in the same collector
/// or in another.
#[test]
fn an_idle_thread_keeps_fewer_than_64_functions_of_functions() {
    for is_same in [true, false] {
        let collector = Collector::new();
        let (handle, other, count) = (Rc::new(collector.register()), collector.register(), Count::default());
        let (own, number) = (Rc::clone(&handle), count.clone());
        let runner = if is_same { Rc::clone(&handle) } else { Rc::new(Collector::new().register()) };
        let guard = runner.pin();
        // SAFETY: this thread calls the function, below.
        unsafe { guard.defer_unchecked(move || (0..200).for_each(|_| defer_destroy(&own, &number))) };
        guard.flush();
        drop(guard);
        assert_eq!(pending(&collector), 200);
        other.pin().flush();
        assert!(count.get() + 64 > 200, "{} of 200 have run, {is_same}", count.get());
    }
}

/// The tests of crossbeam's skip list rely on this: after two flushes in a row, while no other thread is pinned, everything
/// that was deferred before has run, even what was deferred by handles and threads that have ended, up to 1,024 functions.
#[test]
fn two_flushes_run_everything() {
    let collector = Collector::new();
    let (count, per_thread) = (Count::default(), rounds(300, 70));
    let handle = collector.register();
    drop(handle.pin()); // so that no round is due at the end of the next region
    let pinned = handle.pin();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (collector, count) = (collector.clone(), count.clone());
            thread::spawn(move || {
                let handle = collector.register();
                (0..per_thread).for_each(|_| defer_destroy(&handle, &count));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for _ in 0..50 {
        let number = count.clone();
        pinned.defer(move || number.add());
    }
    // A function that is deferred by a function counts as deferred when the latter has run.
    let (nested, number) = (collector.clone(), count.clone());
    pinned.defer(move || defer_destroy(&nested.register(), &number));
    drop(pinned);
    handle.pin().flush();
    handle.pin().flush();
    assert_eq!((count.get(), pending(&collector)), (3 * per_thread + 51, 0));
}

/// The pace of heavy fences does not delay that.
#[test]
fn two_flushes_run_everything_in_an_asymmetric_domain() {
    let collector = domain::collector(domain::Domain::new());
    let count = Count::default();
    let handle = collector.register();
    for round in 1..=20 {
        (0..10).for_each(|_| defer_destroy(&handle, &count));
        handle.pin().flush();
        handle.pin().flush();
        assert_eq!(count.get(), round * 10);
    }
}

/// A thread that only flushes frees what it has deferred, without a pin of another thread (moka#383).
#[test]
fn a_thread_that_only_flushes_leaves_nothing() {
    let collector = Collector::new();
    let handle = collector.register();
    let _idle = collector.register();
    let count = Count::default();
    for round in 1..=rounds(1000, 50) {
        let guard = handle.pin();
        let number = count.clone();
        guard.defer(move || number.add());
        guard.flush();
        drop(guard);
        assert_eq!(count.get(), round);
    }
}

/// So does a thread that drops a map under one guard (congee#20), and then flushes 128 times, as moka does.
#[test]
fn a_map_that_is_dropped_leaves_nothing() {
    let collector = Collector::new();
    let handle = collector.register();
    let _idle = collector.register();
    let (count, nodes) = (Count::default(), rounds(40_000, 300));
    let guard = handle.pin();
    for _ in 0..nodes {
        let node = Owned::new(Dropped(count.clone())).into_shared(&guard);
        // SAFETY: no other thread has the object.
        unsafe { guard.defer_destroy(node) };
    }
    drop(guard);
    (0..128).for_each(|_| handle.pin().flush());
    assert_eq!((count.get(), pending(&collector)), (nodes, 0));
}

/// The drop of the last of all handles, guards and collectors runs everything that is left, whichever kind it is.
#[test]
fn the_last_one_runs_what_is_left() {
    for last in 0..3 {
        let count = Count::default();
        let collector = Collector::new();
        let handle = collector.register();
        drop(handle.pin()); // so that no round is due at the end of the next region
        for _ in 0..10 {
            defer_destroy(&handle, &count);
        }
        let guard = handle.pin();
        let number = count.clone();
        guard.defer(move || number.add());
        match last {
            0 => {
                drop(handle);
                drop(guard);
                assert_eq!(count.get(), 0);
                drop(collector);
            }
            1 => {
                drop(collector);
                drop(handle);
                assert_eq!(count.get(), 0);
                drop(guard);
            }
            _ => {
                drop(collector);
                drop(guard);
                drop(handle);
            }
        }
        assert_eq!(count.get(), 11, "{last}");
    }
}

#[test]
fn a_function_may_return_anything_and_own_what_it_likes() {
    let handle = Collector::new().register();
    let count = Count::default();
    let guard = handle.pin();
    let result = Dropped(count.clone());
    guard.defer(move || result);
    let number = count.clone();
    guard.defer(move || {
        number.add();
        vec![1, 2, 3]
    });
    guard.flush();
    drop(guard);
    assert_eq!(count.get(), 2);
}

/// Closures of each size and alignment are called unchanged.
#[test]
fn closures_of_all_sizes_are_called() {
    #[repr(align(64))]
    #[derive(Clone, Copy)]
    struct Wide([u8; 64]);

    fn defer<const WORDS: usize>(guard: &epoch::Guard, count: &Count) {
        let (words, number) = ([WORDS; WORDS], count.clone());
        guard.defer(move || {
            assert!(words.iter().all(|&word| word == WORDS));
            number.add();
        });
    }

    static CALLED: AtomicUsize = AtomicUsize::new(0);
    let handle = Collector::new().register();
    let count = Count::default();
    let guard = handle.pin();
    guard.defer(|| CALLED.fetch_add(1, Ordering::SeqCst)); // a closure of size 0
    defer::<0>(&guard, &count);
    defer::<1>(&guard, &count);
    defer::<2>(&guard, &count);
    defer::<3>(&guard, &count);
    defer::<100>(&guard, &count);
    let (wide, number) = (Wide([7; 64]), count.clone());
    guard.defer(move || {
        assert_eq!(wide.0, [7; 64]);
        assert!((&raw const wide).is_aligned());
        number.add();
    });
    let (byte, number) = (7_u8, count.clone());
    guard.defer(move || {
        assert_eq!(byte, 7);
        number.add();
    });
    guard.flush();
    drop(guard);
    assert_eq!((count.get(), CALLED.load(Ordering::SeqCst)), (7, 1));
}

#[test]
fn repin_lets_others_go_on() {
    let collector = Collector::new();
    let (count, other) = (Count::default(), collector.register());
    let handle = collector.register();
    let mut guard = handle.pin();
    defer_destroy(&other, &count);
    other.pin().flush();
    assert_eq!(count.get(), 0);
    guard.repin();
    other.pin().flush();
    assert_eq!(count.get(), 1, "the function did not wait for the repinned guard");
    assert!(handle.is_pinned());
}

/// The thread is repinned only if this is its only guard.
#[test]
fn repin_does_nothing_beside_another_guard() {
    let collector = Collector::new();
    let (count, other) = (Count::default(), collector.register());
    let handle = collector.register();
    let (mut guard, second) = (handle.pin(), handle.pin());
    defer_destroy(&other, &count);
    guard.repin();
    guard.repin_after(|| assert!(handle.is_pinned()));
    (0..3).for_each(|_| other.pin().flush());
    assert_eq!(count.get(), 0);
    drop(second);
    guard.repin();
    other.pin().flush();
    assert_eq!(count.get(), 1);
}

#[test]
fn repin_after_unpins_for_the_time_of_a_call() {
    let collector = Collector::new();
    let (count, other) = (Count::default(), collector.register());
    let handle = collector.register();
    let mut guard = handle.pin();
    defer_destroy(&other, &count);
    let answer = guard.repin_after(|| {
        assert!(!handle.is_pinned());
        other.pin().flush();
        assert_eq!(count.get(), 1);
        7
    });
    assert!(answer == 7 && handle.is_pinned());
    drop(guard);
    assert!(!handle.is_pinned());
}

/// Under the guard of `unprotected`, functions run at once, and nothing else happens.
#[test]
fn an_unprotected_guard_does_everything_at_once() {
    // SAFETY: no other thread has the link.
    let guard = unsafe { epoch::unprotected() };
    let count = Count::default();
    let number = count.clone();
    guard.defer(move || number.add());
    assert_eq!(count.get(), 1);
    let number = count.clone();
    // SAFETY: the function is called at once.
    unsafe { guard.defer_unchecked(|| number.add()) };
    assert_eq!(count.get(), 2);
    let link = Atomic::new(Dropped(count.clone()));
    // SAFETY: the object is unlinked, and no other thread has it.
    unsafe { guard.defer_destroy(link.swap(Shared::null(), AcqRel, guard)) };
    assert_eq!(count.get(), 3);
    guard.flush();
    assert!(guard.collector().is_none() && !epoch::is_pinned());
    assert_eq!(format!("{guard:?}"), "Guard { .. }");
}

/// Where crossbeam-deque pins, it omits its own fence. Two threads each store, pin, and load what the other stores: at
/// least one of them sees the other's store.
#[test]
fn the_outermost_pin_is_a_sequentially_consistent_fence() {
    /// Waits until both threads together have arrived `times` times. They then go on within nanoseconds of each other.
    fn meet(arrived: &AtomicUsize, times: usize) {
        arrived.fetch_add(1, Ordering::AcqRel);
        let mut looks = 0;
        while arrived.load(Acquire) < 2 * times {
            looks += 1;
            if looks % 1000 == 0 {
                thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }

    let (stored, seen) = ([const { AtomicUsize::new(0) }; 2], [const { AtomicUsize::new(0) }; 2]);
    let arrived = AtomicUsize::new(0);
    thread::scope(|scope| {
        for own in 0..2 {
            let (stored, seen, arrived) = (&stored, &seen, &arrived);
            scope.spawn(move || {
                drop(epoch::pin());
                for round in 1..=rounds(200_000, 100) {
                    meet(arrived, 2 * round - 1);
                    stored[own].store(round, Ordering::Relaxed);
                    let guard = epoch::pin();
                    let found = stored[1 - own].load(Ordering::Relaxed);
                    drop(guard);
                    seen[own].store(found, Ordering::Relaxed);
                    meet(arrived, 2 * round);
                    let both = [0, 1].map(|index: usize| seen[index].load(Ordering::Relaxed));
                    assert!(
                        both.contains(&round),
                        "in round {round}, neither thread has seen the other's store: {both:?}"
                    );
                }
            });
        }
    });
}

/// The stack of the original's documentation, used by many threads.
#[test]
fn a_stack() {
    struct Node {
        value: Dropped,
        next: Atomic<Node>,
    }

    let (count, link) = (Count::default(), Atomic::<Node>::null());
    let (threads, pushes) = (4, rounds(20_000, 60));
    thread::scope(|scope| {
        for _ in 0..threads {
            let (count, link) = (&count, &link);
            scope.spawn(move || {
                for _ in 0..pushes {
                    let guard = epoch::pin();
                    let mut node = Owned::new(Node { value: Dropped(count.clone()), next: Atomic::null() });
                    loop {
                        let top = link.load(Ordering::Relaxed, &guard);
                        node.next.store(top, Ordering::Relaxed);
                        match link.compare_exchange(top, node, Ordering::Release, Ordering::Relaxed, &guard) {
                            Ok(_) => break,
                            Err(error) => node = error.new,
                        }
                    }
                    loop {
                        let top = link.load(Acquire, &guard);
                        // SAFETY: the node was linked when it was loaded under the guard.
                        let Some(node) = (unsafe { top.as_ref() }) else { break };
                        assert!(node.value.0.get() < threads * pushes);
                        let next = node.next.load(Ordering::Relaxed, &guard);
                        if link
                            .compare_exchange(top, next, Ordering::Relaxed, Ordering::Relaxed, &guard)
                            .is_ok()
                        {
                            // SAFETY: the object was unlinked just now.
                            unsafe { guard.defer_destroy(top) };
                            break;
                        }
                    }
                }
            });
        }
    });
    // SAFETY: no other thread has the link.
    unsafe {
        let guard = epoch::unprotected();
        let mut top = link.load(Ordering::Relaxed, guard);
        while let Some(node) = top.try_into_owned() {
            top = node.next.load(Ordering::Relaxed, guard);
        }
    }
    // Threads of a scope may still be ending, so their functions may not have been handed on yet.
    while count.get() < threads * pushes {
        epoch::pin().flush();
        thread::yield_now();
    }
}

/// The domain counts the garbage, and names the reader that holds it up.
#[test]
fn the_domain_tells_what_waits_and_for_whom() {
    let collector = Collector::new();
    let domain = domain::of(&collector);
    let (handle, count) = (collector.register(), Count::default());
    let guard = handle.pin();
    let object = Owned::new([0_u64; 10]).into_shared(&guard);
    // SAFETY: no other thread has the object.
    unsafe { guard.defer_destroy(object) };
    let number = count.clone();
    guard.defer(move || number.add());
    // The length of this slice is not read, so it counts as 0 bytes.
    let array = Owned::<[std::mem::MaybeUninit<u64>]>::init(20).into_shared(&guard);
    // SAFETY: no other thread has the object.
    unsafe { guard.defer_destroy(array) };
    let stats = domain.stats();
    assert_eq!((stats.retired, stats.pending, stats.freed, stats.readers), (3, 3, 0, 1));
    assert_eq!(stats.pending_bytes, 80 + size_of::<Count>() as u64);
    guard.flush();
    let stall = domain.stall().expect("the guard is in the way");
    assert_eq!(stall.others, 0);
    drop(guard);
    let stats = domain.stats();
    assert_eq!((stats.pending, stats.pending_bytes, stats.freed), (0, 0, 3));
    assert_eq!(domain.stall(), None);
    assert_eq!(stats.heavy_fences, 0, "collectors are symmetric");
}

/// Limits never refuse a function.
#[test]
fn a_full_domain_takes_functions_in() {
    let collector = domain::collector(domain::builder().max_pending(10).build().unwrap());
    let (handle, other, count) = (collector.register(), collector.register(), Count::default());
    let pinned = other.pin();
    for _ in 0..100 {
        defer_destroy(&handle, &count);
    }
    let stats = domain::of(&collector).stats();
    assert_eq!((stats.pending, count.get()), (100, 0));
    assert_eq!(stats.beyond_limits, 90);
    drop(pinned);
    handle.pin().flush();
    handle.pin().flush();
    assert_eq!((pending(&collector), count.get()), (0, 100));
}
