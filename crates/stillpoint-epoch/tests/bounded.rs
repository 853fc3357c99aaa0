//! The work of each call has a bound, however many functions and lists wait. The tests do not measure time: they count
//! the objects, readers and lists that a call looks at.

mod common;

use std::cell::RefCell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::thread;

use common::{defer_destroy, pending, rounds, Count};
use stillpoint_epoch::{domain, Collector, Guard, LocalHandle};
use stillpoint_sys::work::steps_of;

/// Steps for one reader: its hazard slots, and the words of the registry on the way to it.
const ONE_READER: usize = 8;
/// Number of idle readers. There are three others.
const IDLE: usize = if cfg!(miri) { 5 } else { 61 };
/// Steps of a poll of one list, besides those for the objects that it frees: for two passes over the readers, and for
/// 64 objects that it adopts.
const POLL: usize = 2 * (IDLE + 3) * ONE_READER + 3 * 64;
/// The most functions that a round runs, unless more come from round to round. Also the number of functions in a list to
/// which no other list is appended any more.
const SHARE: usize = 512;
/// The number of lists that are looked at, without functions that run, before a share is done.
const LOOKS: usize = 8;

/// The most steps of a round after this number of functions was deferred. A round polls its own list, then others until
/// a share is done. What is left of its own list is handed on.
fn round(functions: usize) -> usize {
    let share = SHARE.max(2 * functions + 128);
    2 * share + (share / SHARE * LOOKS + 3) * POLL
}

/// A round is due at the end of a region after at most this number of deferred functions.
const REGION: usize = 64;

/// Defers this number of functions, which then wait in lists that were handed on. Half of them are in lists that one
/// region each has filled.
fn defer_elsewhere(collector: &Collector, count: &Count, functions: usize) {
    let (collector, count) = (collector.clone(), count.clone());
    let thread = thread::spawn(move || {
        let handle = collector.register();
        let regions = functions / 2 / SHARE;
        for _ in 0..regions {
            let _region = handle.pin();
            (0..SHARE).for_each(|_| defer_destroy(&handle, &count));
        }
        (regions * SHARE..functions).for_each(|_| defer_destroy(&handle, &count));
    });
    thread.join().unwrap();
}

/// Pins, and defers this number of functions of each kind. None of these calls looks at anything, except the first,
/// which begins a list.
fn defer(handle: &LocalHandle, count: &Count, functions: usize) -> Guard {
    let (steps, guard) = steps_of(|| handle.pin());
    assert_eq!(steps, 0);
    let (steps, ()) = steps_of(|| {
        for _ in 0..functions {
            defer_destroy(handle, count);
            let number = count.clone();
            guard.defer(move || number.add());
        }
    });
    assert!(steps <= ONE_READER, "{steps} steps");
    guard
}

#[test]
fn pins_and_what_they_defer_look_at_nothing() {
    let collector = Collector::new();
    let (handle, other, count) = (collector.register(), collector.register(), Count::default());
    let functions = rounds(100_000, 200);
    let pinned = other.pin();
    defer_elsewhere(&collector, &count, functions);
    drop(defer(&handle, &count, functions));
    drop(pinned);
    drop(defer(&handle, &count, functions));
}

/// In a full domain with limits, each call makes room for one object, or leaves its own object to the domain.
#[test]
fn what_is_deferred_in_a_full_domain_looks_at_a_part() {
    let limited = domain::builder().max_pending(rounds(1000, 100)).build().unwrap();
    let collector = domain::collector(limited);
    let _idle: Vec<_> = (0..IDLE).map(|_| collector.register()).collect();
    let (handle, other, count) = (collector.register(), collector.register(), Count::default());
    let mut pinned = Some(other.pin());
    let functions = rounds(10_000, 200);
    for _ in 0..2 {
        let guard = handle.pin();
        for _ in 0..functions {
            let (steps, ()) = steps_of(|| defer_destroy(&handle, &count));
            assert!(steps <= 2 * POLL, "{steps} steps of a deferral");
        }
        drop(guard);
        pinned = None;
    }
    assert!(pinned.is_none() && count.get() > 0 && domain::of(&collector).stats().beyond_limits > 0);
}

/// A function panics while a call makes room. What waits in this thread's list stays there, so no call has to move all of it.
#[test]
fn a_panic_while_room_is_made_leaves_the_list_where_it_is() {
    let limited = domain::builder().max_pending(rounds(1000, 100)).build().unwrap();
    let collector = domain::collector(limited);
    let (handle, other, count) = (collector.register(), collector.register(), Count::default());
    // After the first region, a few functions stay in the thread's list.
    [&handle, &other].into_iter().for_each(|handle| drop(handle.pin()));
    let pinned = other.pin();
    let guard = handle.pin();
    // SAFETY: nothing is borrowed.
    unsafe { guard.defer_unchecked::<_, ()>(|| panic!("on purpose")) };
    drop(guard);
    // Meanwhile a round gives it a token, which the other region holds up.
    (0..150).for_each(|_| drop(handle.pin()));
    let guard = handle.pin();
    for _ in 0..rounds(990, 90) {
        defer_destroy(&handle, &count);
    }
    drop(pinned);
    let mut panicked = 0;
    for _ in 0..rounds(100, 20) {
        let defers =
            || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| defer_destroy(&handle, &count)));
        let (steps, answer) = steps_of(defers);
        panicked += usize::from(answer.is_err());
        assert!(steps <= 2 * POLL, "{steps} steps of a deferral");
    }
    assert_eq!(panicked, 1);
    let before = count.get();
    drop(guard);
    // What has left the list is adopted bit by bit.
    assert_eq!(count.get() - before, rounds(SHARE, count.get() - before));
}

/// The end of a region looks at one share of the waiting functions at most, whether or not readers are in the way.
/// After a bounded number of regions, nothing is left.
#[test]
fn the_end_of_a_region_looks_at_a_share() {
    let collector = Collector::new();
    let (handle, other, count) = (collector.register(), collector.register(), Count::default());
    let _idle: Vec<_> = (0..IDLE).map(|_| collector.register()).collect();
    let functions = rounds(100_000, 600);
    let end_region = || {
        let guard = handle.pin();
        let (steps, ()) = steps_of(|| drop(guard));
        assert!(steps <= round(REGION), "{steps} steps at the end of a region");
    };
    let pinned = other.pin();
    defer_elsewhere(&collector, &count, functions);
    let guard = defer(&handle, &count, functions);
    let (steps, ()) = steps_of(|| drop(guard));
    assert!(steps <= 3 * SHARE + 3 * POLL, "held up: {steps}");
    (0..rounds(1000, 130)).for_each(|_| end_region());
    assert_eq!(count.get(), 0);
    drop(pinned);
    let mut regions = 0;
    while pending(&collector) > 0 {
        end_region();
        regions += 1;
        assert!(regions <= 128 * (3 * functions / SHARE + 2), "{} wait", pending(&collector));
    }
    assert_eq!(count.get(), 3 * functions);
}

/// This holds for any number of panics: if a function panics, all functions of its list count.
#[test]
fn the_end_of_a_region_looks_at_a_share_when_functions_panic() {
    let collector = Collector::new();
    let (handle, other) = (collector.register(), collector.register());
    let functions = rounds(10_000, 1600);
    drop(other.pin()); // so that the end of the next region is not due
    let pinned = other.pin();
    for _ in 0..functions / SHARE {
        let guard = handle.pin();
        (1..SHARE).for_each(|_| guard.defer(|| ()));
        guard.defer(|| resume_unwind(Box::new("a function")));
    }
    drop(pinned);
    let mut panics = 0;
    while pending(&collector) > 0 {
        let guard = handle.pin();
        let (steps, ended) = steps_of(|| catch_unwind(AssertUnwindSafe(|| drop(guard))));
        assert!(steps <= round(REGION), "{steps} steps at the end of a region");
        panics += usize::from(ended.is_err());
    }
    assert!(panics >= functions / SHARE / 3, "only {panics} panics");
}

/// A flush does more, but not everything that other threads have left, however much that is.
#[test]
fn a_flush_looks_at_what_came_here_and_a_share() {
    let collector = Collector::new();
    let (handle, other, count) = (collector.register(), collector.register(), Count::default());
    let _idle: Vec<_> = (0..IDLE).map(|_| collector.register()).collect();
    let flush = |guard: Guard| {
        steps_of(move || {
            guard.flush();
            drop(guard);
        })
        .0
    };
    for functions in [0, 1, rounds(1000, 100), rounds(100_000, 3000)] {
        let before = count.get();
        let pinned = other.pin();
        defer_elsewhere(&collector, &count, functions);
        let guard = defer(&handle, &count, functions);
        // Everything is held up, so only the reader in the way is looked at.
        let steps = flush(guard);
        assert!(count.get() == before && steps <= 4 * POLL, "{steps} with {functions} functions");
        let steps = flush(handle.pin());
        assert!(count.get() == before && steps <= 4 * POLL, "{steps} with {functions} functions");
        drop(pinned);
        // What this thread has deferred runs, and some of the rest, in two rounds.
        let guard = defer(&handle, &count, functions);
        let steps = flush(guard);
        assert!(steps <= 2 * round(2 * functions), "{steps} with {functions} functions");
        let mut flushes = 0;
        while pending(&collector) > 0 {
            let steps = flush(handle.pin());
            assert!(steps <= 2 * round(0), "{steps} with {} functions", pending(&collector));
            flushes += 1;
            assert!(flushes <= functions / SHARE + 2);
        }
        assert_eq!(count.get() - before, 5 * functions);
        let steps = flush(handle.pin());
        assert!(steps <= 2 * POLL, "{steps} with nothing left");
    }
    assert_eq!(domain::of(&collector).stats().pending, 0);
}

/// This holds for any number of handles, each of which has left a list.
#[test]
fn lists_that_are_handed_on_are_few() {
    let collector = Collector::new();
    let (handle, other, count) = (collector.register(), collector.register(), Count::default());
    let handles = rounds(3000, 100);
    let pinned = other.pin();
    for _ in 0..handles {
        defer_destroy(&collector.register(), &count);
    }
    drop(pinned);
    let mut regions = 0;
    while pending(&collector) > 0 {
        let guard = handle.pin();
        let (steps, ()) = steps_of(|| drop(guard));
        assert!(steps <= round(REGION), "{steps} steps at the end of a region");
        regions += 1;
        assert!(regions <= 128 * (handles / SHARE + 2), "{} wait", pending(&collector));
    }
    assert_eq!(count.get(), handles);
}

/// In regions with more functions than a share, rounds run more functions than are deferred, and so catch up with those
/// that had to wait, down to those of one region.
#[test]
fn rounds_run_more_than_comes() {
    let collector = Collector::new();
    let (handle, count) = (collector.register(), Count::default());
    let functions = rounds(5000, 700);
    let mut pinned = None;
    for _ in 0..10 {
        let guard = handle.pin();
        (0..functions).for_each(|_| defer_destroy(&handle, &count));
        drop(guard);
        pinned.get_or_insert_with(|| collector.register().pin());
    }
    assert_eq!(pending(&collector), 9 * functions as u64);
    drop(pinned);
    let mut most = u64::MAX;
    while most > functions as u64 {
        let guard = handle.pin();
        (0..functions).for_each(|_| defer_destroy(&handle, &count));
        drop(guard);
        let waiting = pending(&collector);
        assert!(waiting < most, "{waiting} functions wait, and {most} waited after the region before");
        most = waiting;
    }
}

/// Functions that are left to the domain again and again, and adopted, do not keep later functions waiting.
#[test]
fn nothing_waits_behind_what_others_leave() {
    let collector = Collector::new();
    let (handle, count) = (collector.register(), Count::default());
    let (one, another) = (collector.register(), collector.register());
    let reader = domain::of(&collector).reader();
    let mut pinned = one.pin();
    // These lists are full, so no other list is appended to them.
    for _ in 0..3 {
        let _region = handle.pin();
        (0..SHARE).for_each(|_| defer_destroy(&handle, &count));
    }
    let mut turns = 0;
    while count.get() < 3 * SHARE {
        (0..rounds(1000, 200)).for_each(|_| reader.pin().defer(|| ()));
        // At any time a thread is pinned, but none for long.
        let next = if turns % 2 == 0 { another.pin() } else { one.pin() };
        drop(std::mem::replace(&mut pinned, next));
        (0..128).for_each(|_| drop(handle.pin()));
        turns += 1;
        assert!(turns <= 20, "{} of {} have run", count.get(), 3 * SHARE);
    }
}

/// The end of a region runs one share, however many functions the region has deferred. The next regions of the thread run
/// the rest, one share each: the thread need not make 128 regions for each.
#[test]
fn a_guard_runs_a_share_of_what_was_deferred_under_it() {
    let (collector, count) = (Collector::new(), Count::default());
    let (handle, functions) = (collector.register(), rounds(100_000, 1500));
    for flushes in [false, true] {
        let (before, mut guard) = (count.get(), handle.pin());
        (0..functions).for_each(|_| defer_destroy(&handle, &count));
        if flushes {
            guard.flush();
        }
        let mut regions = 0;
        while pending(&collector) > 0 {
            let ran = count.get();
            guard.repin();
            let ran = count.get() - ran;
            assert!((1..=SHARE).contains(&ran), "{ran} functions at the end of region {regions}");
            regions += 1;
        }
        assert_eq!((count.get() - before, regions), (functions, functions.div_ceil(SHARE)));
        // The thread owes nothing any more, so that its rounds are rare again.
        drop(guard);
        drop(handle.pin());
        defer_destroy(&handle, &count);
        assert_eq!(pending(&collector), 1);
        handle.pin().flush();
    }
}

/// A flush runs one share at once, and one at the end of the region, of what others have left. A thread that has deferred
/// nothing runs no more in its other regions than before: one share in 128 regions.
#[test]
fn a_flush_runs_two_shares() {
    let (collector, count) = (Collector::new(), Count::default());
    let (handle, other) = (collector.register(), collector.register());
    drop(handle.pin());
    let functions = rounds(50_000, 5000);
    let pinned = other.pin();
    defer_elsewhere(&collector, &count, functions);
    drop(pinned);
    let pin = |flushes: bool| {
        let (before, guard) = (count.get(), handle.pin());
        if flushes {
            guard.flush();
        }
        drop(guard);
        count.get() - before
    };
    assert!((SHARE..=2 * SHARE).contains(&pin(true)));
    assert!((SHARE / 2..=SHARE).contains(&(0..128).map(|_| pin(false)).sum()));
    let mut flushes = 0;
    while pending(&collector) > 0 {
        assert!(pin(true) <= 2 * SHARE);
        flushes += 1;
    }
    assert!(count.get() == functions && flushes <= functions / SHARE, "{flushes} flushes");
}

/// A thread that has deferred many functions runs about twice as many, and then as few as any other thread.
#[test]
fn a_thread_that_has_run_what_it_owes_runs_as_little_as_others() {
    let (collector, count) = (Collector::new(), Count::default());
    let (handle, other, own) = (collector.register(), collector.register(), 10 * SHARE);
    drop(defer(&handle, &count, own / 2));
    let pinned = other.pin();
    defer_elsewhere(&collector, &count, 40 * SHARE);
    drop(pinned);
    let before = count.get();
    (0..100).for_each(|_| drop(handle.pin()));
    let ran = count.get() - before;
    assert!((own..=3 * own).contains(&ran), "{ran} functions");
}

/// Functions that panic, in each region of a thread, do not keep the thread from the functions of others.
#[test]
fn panics_keep_nothing_waiting() {
    let (collector, count) = (Collector::new(), Count::default());
    let (handle, other, functions) = (collector.register(), collector.register(), 4 * SHARE);
    let pinned = other.pin();
    defer_elsewhere(&collector, &count, functions);
    drop(pinned);
    let mut regions = 0;
    while count.get() < functions {
        let guard = handle.pin();
        (0..REGION).for_each(|_| guard.defer(|| resume_unwind(Box::new("a function"))));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(guard))).is_err());
        regions += 1;
        assert!(regions <= 2 * functions / SHARE + 2, "{} of {functions} have run", count.get());
    }
}

/// Begins a region in which this number of functions is deferred, each of which defers this number of further ones, by
/// the handle that is current when it runs, or by one that it registers.
fn cascade(
    collector: &Collector,
    current: &Rc<RefCell<Rc<LocalHandle>>>,
    functions: usize,
    further: usize,
    registers: bool,
) -> Guard {
    let guard = current.borrow().pin();
    for _ in 0..functions {
        let (collector, current) = (collector.clone(), Rc::clone(current));
        let function = move || {
            let own = Rc::clone(&current.borrow());
            for _ in 0..further {
                let handle = if registers { &Rc::new(collector.register()) } else { &own };
                handle.pin().defer(|| ());
            }
        };
        // SAFETY: this thread calls the function, since all handles are on it.
        unsafe { guard.defer_unchecked(function) };
    }
    guard
}

/// As many functions wait as a few regions defer, whether one thread makes the regions or many threads that soon end, and
/// also if functions defer most of them.
#[test]
fn what_waits_is_bounded_by_what_regions_defer() {
    // Each thread has this number of regions, and each region defers this number of functions, each of which defers further
    // ones.
    for (regions, functions, further) in
        [(1, 2, 0), (1, 700, 0), (1, 2, 1), (20, 1, 0), (20, 30, 0), (2, 1500, 0), (1, 100, 20)]
    {
        for (is_short, has_heavy_fences) in [(false, false), (true, false), (true, true)] {
            let collector =
                if has_heavy_fences { domain::collector(domain::Domain::new()) } else { Collector::new() };
            let current = Rc::new(RefCell::new(Rc::new(collector.register())));
            let region = functions * (1 + further);
            for _ in 0..rounds(30_000, 3000).div_ceil(regions * region) {
                if is_short {
                    drop(current.replace(Rc::new(collector.register())));
                }
                for _ in 0..regions {
                    drop(cascade(&collector, &current, functions, further, false));
                    let wait = pending(&collector) as usize;
                    // Heavy fences take their time.
                    assert!(
                        has_heavy_fences || wait <= 5 * region + 2 * SHARE,
                        "{wait} wait, with {regions} regions, {functions} functions, {further} further ones, {is_short}"
                    );
                }
            }
            // Nothing is left for ever, even if nobody flushes.
            while pending(&collector) > 0 {
                let own = Rc::clone(&current.borrow());
                drop(own.pin());
            }
        }
    }
}

/// This holds if at any time a thread is pinned, but none for long: the grace periods of all lists are under way at the
/// same time, also of those that functions fill.
#[test]
fn functions_of_functions_wait_for_one_grace_period() {
    for (regions, functions, further, registers) in [(5, 10, 5, false), (5, 10, 5, true), (2, 20, 50, false)]
    {
        let collector = Collector::new();
        let current = Rc::new(RefCell::new(Rc::new(collector.register())));
        let (one, another) = (collector.register(), collector.register());
        let (turn, mut pinned) = (regions * functions * (1 + further), one.pin());
        for turns in 0..rounds(80, 30) {
            (0..regions).for_each(|_| drop(cascade(&collector, &current, functions, further, registers)));
            let next = if turns % 2 == 0 { another.pin() } else { one.pin() };
            drop(std::mem::replace(&mut pinned, next));
            let wait = pending(&collector) as usize;
            assert!(wait <= 5 * turn + 2 * SHARE, "{wait} wait after turn {turns}, and {turn} came in it");
        }
        // A function that waits owns a handle, and so its own collector.
        drop(pinned);
        while pending(&collector) > 0 {
            let own = Rc::clone(&current.borrow());
            drop(own.pin());
        }
    }
}
