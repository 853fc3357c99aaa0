//! Calls that promise a bound keep it in domains that hold many other objects. The tests count steps, not time.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::engine::queue::account::Limits;
use super::engine::queue::retire_list::{Pace, RetireList, SHARE};
use super::engine::wait::wakers;
use super::other::Other;
use super::raw::{self, Callback, CallbackQueue, ObjectCallback};
use crate::fence::Mode;
use crate::rcu::wait::GracePeriod;
use crate::rcu::{self, Domain, RcuCell, Reclaimer, Retired};
use stillpoint_sys::work::steps_of;

/// Steps of a look at one reader: at its state, at its hazard slots, and at the words of the registry on the way to it.
const ONE_READER: usize = 16;
/// The most steps that a call does beyond its own queue, in a domain with one or two readers: some passes over the readers.
const PASSES: usize = 4 * ONE_READER;

/// What `call` returns, within this many steps.
#[track_caller]
fn within<R>(bound: usize, call: impl FnOnce() -> R) -> R {
    let (steps, answer) = steps_of(call);
    assert!(steps <= bound, "{steps} steps, and at most {bound} are allowed");
    answer
}

fn eager(domain: &Domain) -> Reclaimer {
    domain.reclaimer_builder().fence_interval(Duration::ZERO).max_pending(usize::MAX).build()
}

fn old(domain: &Domain) -> Retired<u64> {
    domain.cell(1_u64).take().expect("it is not empty")
}

/// Collects the numbers of the tasks that were woken.
#[derive(Default)]
struct Woken(Mutex<Vec<usize>>);

impl Woken {
    fn take(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().expect("no thread panics while it holds the lock"))
    }
}

struct Task(Arc<Woken>, usize);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0 .0.lock().expect("no thread panics while it holds the lock").push(self.1);
    }
}

/// Futures that wait in a domain.
struct Futures {
    woken: Arc<Woken>,
    all: Vec<Option<Pin<Box<GracePeriod>>>>,
}

impl Futures {
    /// Makes `number` futures that a reader delays.
    fn waiting(domain: &Domain, number: usize) -> Self {
        let mut futures = Self { woken: Arc::default(), all: Vec::new() };
        let token = domain.start();
        for task in 0..number {
            futures.all.push(Some(Box::pin(domain.grace_period(token))));
            assert!(within(PASSES, || futures.poll(task)).is_pending());
        }
        futures.settle();
        futures
    }

    /// Polls the futures that ask for another poll, as they do for a while where there is no heavy fence.
    fn settle(&mut self) {
        let mut asking = self.woken.take();
        while !asking.is_empty() {
            for task in asking {
                assert!(self.poll(task).is_pending());
            }
            asking = self.woken.take();
        }
    }

    fn poll(&mut self, task: usize) -> Poll<()> {
        let waker = Waker::from(Arc::new(Task(Arc::clone(&self.woken), task)));
        let future = self.all[task].as_mut().expect("it is not dropped");
        future.as_mut().poll(&mut Context::from_waker(&waker)).map(|answer| answer.expect("no fence fails"))
    }
}

#[test]
fn a_poll_costs_its_own_queue_whatever_else_the_domain_holds() {
    let told = Arc::new(AtomicUsize::new(0));
    let hook = Arc::clone(&told);
    let domain = Domain::builder().stall_hook(Duration::ZERO, move |_| {
        hook.fetch_add(1, Ordering::Relaxed);
    });
    let domain = domain.build().expect("the default mode is always available");
    let reader = domain.reader();
    let guard = reader.pin();
    let mut others: Vec<_> = (0..5_000).map(|_| eager(&domain)).collect();
    for other in &mut others {
        other.retire(old(&domain)).expect("there is room");
        assert_eq!(within(PASSES, || other.poll()), 0);
    }
    let mut futures = Futures::waiting(&domain, 200_000);
    for _ in 0..1_000_000 {
        within(SHARE, || drop(old(&domain)));
    }
    let mut own = eager(&domain);
    for _ in 0..100 {
        assert!(within(0, || own.retire(old(&domain))).is_ok());
        // A share of the orphans is adopted, and the reversal of the stack may fall to this poll.
        assert_eq!(within(PASSES + 2 * SHARE, || own.poll()), 0);
    }
    assert_eq!(told.load(Ordering::Relaxed), 1, "one section was in the way");
    within(wakers::SHARE, || drop(guard));
    assert_eq!(futures.woken.take().len(), wakers::SHARE);
    // Its own objects and those that it has adopted go at once.
    let (pending, (steps, freed)) = (own.pending(), steps_of(|| own.poll()));
    assert!(freed >= pending && steps <= PASSES + pending + 4 * SHARE, "{freed} of {pending}: {steps}");
    let _guard = within(0, || reader.pin());
    assert!(within(PASSES + 2 * wakers::SHARE, || futures.poll(0)).is_ready());
}

#[test]
fn a_report_wakes_a_share_and_those_that_are_woken_wake_the_others() {
    let domain = Domain::new();
    let mut reader = domain.qsbr_reader();
    let mut futures = Futures::waiting(&domain, 100_000);
    assert!(within(PASSES, || domain.stall()).is_some());
    within(wakers::SHARE, || reader.quiescent());
    let mut seen = 0;
    let mut queue = futures.woken.take();
    while let Some(task) = queue.pop() {
        seen += 1;
        assert!(within(PASSES + 2 * wakers::SHARE, || futures.poll(task)).is_ready());
        queue.extend(futures.woken.take());
    }
    assert_eq!(seen, 100_000);
}

#[test]
fn a_report_of_silent_readers_looks_at_each_reader_once() {
    const READERS: usize = 64;
    let domain = Domain::new();
    let of_thread = domain.clone();
    let other = Other::start(move |turns| {
        let readers = [(); READERS].map(|()| of_thread.reader());
        turns.for_each(|()| readers.iter().for_each(|reader| drop(reader.pin())));
    });
    other.turn();
    domain.start();
    let silent = within(READERS + ONE_READER, || domain.silent().count());
    assert_eq!(silent, domain.stats().silent);
    let (steps, first) = steps_of(|| domain.silent().next());
    assert!(first.is_some() == (silent > 0) && (first.is_none() || steps <= 2 * ONE_READER), "{steps} steps");
}

/// One future of each share is polled or dropped, the others never. All are woken nevertheless.
#[test]
fn one_future_of_each_share_is_enough() {
    for is_dropped in [false, true] {
        let domain = Domain::new();
        let reader = domain.reader();
        let guard = reader.pin();
        let mut futures = Futures::waiting(&domain, 1_000);
        drop(guard);
        let mut seen = Vec::new();
        loop {
            let share = futures.woken.take();
            let Some(&last) = share.last() else { break };
            // A poll that completes wakes two more: one when it leaves its waker, and one when it gives its place back.
            assert!(share.len() <= 2 * wakers::SHARE);
            seen.extend(share);
            if is_dropped {
                futures.all[last] = None;
            } else {
                assert!(futures.poll(last).is_ready());
            }
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1_000));
    }
}

/// Futures that are dropped while they wait keep no place that a later exit has to pass.
#[test]
fn dropped_futures_cost_those_that_stay_nothing() {
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    let mut futures = Futures::waiting(&domain, 100_000);
    for task in 0..100_000 {
        if task != 99_000 {
            within(0, || futures.all[task] = None);
        }
    }
    within(1, || drop(guard));
    assert_eq!(futures.woken.take(), [99_000]);
}

/// Futures that wait beside a future for a second reader do not wake it again and again.
#[cfg_attr(
    stillpoint_portable,
    ignore = "without heavy fences, futures ask for another poll until 100 µs have passed"
)]
#[test]
fn futures_that_wait_for_another_reader_let_each_other_sleep() {
    let domain = Domain::new();
    let (first, second) = (domain.reader(), domain.reader());
    let (first, second) = (first.pin(), second.pin());
    let mut futures = Futures::waiting(&domain, 100);
    drop(first);
    let mut polls = 0;
    let mut queue = futures.woken.take();
    while let Some(task) = queue.pop() {
        polls += 1;
        assert!(futures.poll(task).is_pending());
        queue.extend(futures.woken.take());
    }
    // The test does not depend on which of the two was asked.
    assert!(polls == 0 || polls == 100, "{polls} polls");
    drop(second);
    while let Some(task) = futures.woken.take().pop() {
        assert!(futures.poll(task).is_ready());
    }
}

/// With many objects held by protected loads, a poll with a limit looks at that many objects, old ones and new ones in turn.
#[test]
fn a_poll_with_a_limit_looks_at_that_many_objects() {
    let domain = Domain::new();
    let reader = domain.reader();
    let cells: Vec<_> = (0..1_000).map(|value| domain.cell(value)).collect();
    let mut protected: Vec<_> = cells.iter().map(|cell| cell.protect(&reader)).collect();
    let slots = 1_000 + 3 * ONE_READER + 1_000 / 16;
    for limit in [1, 2, 7, 100] {
        let mut own = eager(&domain);
        if limit == 1 {
            for cell in &cells {
                own.retire(cell.take().expect("it is not empty")).expect("there is room");
            }
            assert_eq!(own.poll(), 0);
        }
        for _ in 0..500 {
            own.retire(old(&domain)).expect("there is room");
        }
        let held = if limit == 1 { 1_000 } else { 0 };
        let mut polls = 0;
        while own.pending() > held {
            assert!(within(limit + slots, || own.poll_at_most(limit)) <= limit);
            polls += 1;
        }
        let shares = if held > 0 { 2 } else { 1 };
        assert!(polls <= shares * 500 / limit + 2, "{polls} polls with a limit of {limit}");
        if limit == 1 {
            // Objects that are released go as well, wherever the polls have stopped.
            protected.clear();
            let mut polls = 0;
            while own.pending() > 0 {
                assert!(own.poll_at_most(1) <= 1);
                polls += 1;
            }
            assert_eq!(polls, 1_000);
        }
    }
}

/// With many slots in use, writes share the scans: one in a while, or when enough waits.
#[test]
fn writes_beside_many_protections_share_their_scans() {
    const HELD: usize = 600;
    const WRITES: usize = 10 * HELD;
    let domain = Domain::new();
    let cells: Vec<_> = (0..HELD).map(|value| domain.cell(value)).collect();
    let held: Vec<_> = cells.iter().map(|cell| cell.protect_owned()).collect();
    let core = domain.core();
    let mut list = RetireList::new(Arc::clone(core), Pace::DEFAULT, Limits::NONE);
    for are_removed in [false, true] {
        if are_removed {
            cells.iter().for_each(|cell| drop(cell.take()));
        }
        let begun = Instant::now();
        let (steps, ()) = steps_of(|| {
            for _ in 0..WRITES {
                list.push(old(&domain).into_parts().into_garbage());
                list.poll_at(2, core.protocol.age(), true);
            }
        });
        let by_time = begun.elapsed().as_nanos() as usize / (150 * HELD);
        let scans = 5 + 2 * WRITES / (3 * HELD) + by_time;
        // A token costs a walk over the records, and a scan.
        let each = 3 * HELD + SHARE;
        assert!(
            steps <= scans * each + 40 * WRITES,
            "{steps} steps in {WRITES} writes and {by_time} scans by time"
        );
    }
    drop(held);
    list.close();
    while list.len() > 0 {
        list.advance(SHARE);
    }
}

/// Where slots hold objects that wait, a poll compares these only after a while, and so does not read all slots each time.
#[test]
fn polls_beside_many_protections_share_their_scans() {
    const HELD: usize = 2_000;
    const POLLS: usize = 1_000;
    let domain = Domain::new();
    let reader = domain.reader();
    let cells: Vec<_> = (0..HELD as u64).map(|value| domain.cell(value)).collect();
    let protections: Vec<_> = cells.iter().map(|cell| cell.protect(&reader)).collect();
    let mut own = domain.reclaimer();
    for (removed, limit) in [(0..1, 2), (1..1, 2 * HELD), (1..100, 2), (100..100, 2 * HELD)] {
        for cell in &cells[removed] {
            own.retire(cell.take().expect("it is not empty")).expect("there is room");
        }
        let is_costly = |_: &usize| {
            own.retire(old(&domain)).expect("there is room");
            steps_of(|| own.poll_at_most(limit)).0 >= HELD
        };
        let costly = (0..POLLS).filter(is_costly).count();
        // A scan serves for 300 µs, so a poll that a busy machine delays may come late enough for another one.
        assert!(costly < POLLS / 2, "{costly} of {POLLS} polls have read {HELD} slots");
    }
    drop(protections);
    // What was released is noticed in a while.
    while own.pending() > 0 {
        own.poll();
    }
}

/// A scan is not used for ever by polls that each compare a few objects with it.
#[test]
fn what_many_protections_held_is_soon_found_free_by_small_polls() {
    const HELD: usize = 2_000;
    let domain = Domain::new();
    let reader = domain.reader();
    let cells: Vec<_> = (0..HELD as u64).map(|value| domain.cell(value)).collect();
    let protections: Vec<_> = cells.iter().map(|cell| cell.protect(&reader)).collect();
    let mut own = domain.reclaimer();
    for cell in &cells {
        own.retire(cell.take().expect("it is not empty")).expect("there is room");
    }
    while own.held() < HELD {
        own.poll();
    }
    // This scan finds all slots in use.
    std::thread::sleep(Duration::from_millis(2));
    own.poll_at_most(1);
    drop(protections);
    let mut polls = 0;
    while own.poll_at_most(1) == 0 {
        polls += 1;
        assert!(polls < HELD / 2, "an old scan serves all polls");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// A scan that was made when nothing was held does not hold for ever what was protected then.
#[test]
fn a_poll_with_a_limit_finds_what_was_released_long_after_the_scan() {
    let domain = Domain::new();
    let reader = domain.reader();
    let cells: Vec<_> = (0..200_u64).map(|value| domain.cell(value)).collect();
    let protections: Vec<_> = cells[100..].iter().map(|cell| cell.protect(&reader)).collect();
    let mut own = domain.reclaimer();
    for cell in &cells {
        own.retire(cell.take().expect("it is not empty")).expect("there is room");
    }
    while own.pending() > 100 {
        own.poll_at_most(100);
    }
    drop(protections);
    std::thread::sleep(Duration::from_millis(1));
    own.poll_at_most(100);
    assert_eq!((own.held(), own.pending()), (0, 0));
}

/// Batches whose grace periods were over before a scan do not need one each.
#[test]
fn batches_that_become_ready_together_share_a_scan() {
    const HELD: usize = 2_000;
    const BATCHES: usize = 50;
    let domain = Domain::new();
    let reader = domain.reader();
    let cells: Vec<_> = (0..HELD as u64).map(|value| domain.cell(value)).collect();
    let protections: Vec<_> = cells.iter().map(|cell| cell.protect(&reader)).collect();
    let core = domain.core();
    let mut list = RetireList::new(Arc::clone(core), Pace::DEFAULT, Limits::NONE);
    let other = domain.reader();
    let guard = other.pin();
    for _ in 0..BATCHES {
        list.push(old(&domain).into_parts().into_garbage());
        list.close();
    }
    drop(guard);
    let (mut polls, mut costly) = (0, 0);
    while list.len() > 0 {
        polls += 1;
        costly += usize::from(steps_of(|| list.poll_at(1, core.protocol.age(), true)).0 >= HELD);
    }
    // A scan serves for 300 µs, so a poll that a busy machine delays may need another one.
    assert!(polls >= BATCHES && costly < BATCHES / 2, "{costly} of {polls} polls have read {HELD} slots");
    drop(protections);
}

/// Polls without a limit report the longest-held object exactly. Polls with a limit do not lose it.
#[test]
fn the_oldest_object_that_is_held_is_known() {
    let domain = Domain::new();
    let reader = domain.reader();
    let (first, second) = (domain.cell(1), domain.cell(2));
    let (one, other) = (first.protect(&reader), second.protect(&reader));
    let mut own = eager(&domain);
    own.retire(first.take().expect("it is not empty")).expect("there is room");
    own.poll();
    std::thread::sleep(Duration::from_millis(20));
    own.retire(second.take().expect("it is not empty")).expect("there is room");
    own.poll();
    let before = domain.stats().oldest.expect("two are held");
    assert!(before >= Duration::from_millis(20));
    let seen = Instant::now();
    drop(one);
    own.poll();
    // By then the first one would have waited for longer. A thread that is preempted in its look sees too great an age.
    let is_second = || {
        let at_least = before + seen.elapsed();
        domain.stats().oldest.expect("one is held") < at_least
    };
    assert!((0..1000).any(|_| is_second()));
    drop(other);
    own.poll();
    assert_eq!((domain.stats().oldest, own.pending()), (None, 0));
}

/// A retirement that finds no room looks at a batch at a time, and adopts a share.
#[test]
fn a_retirement_that_finds_no_room_does_a_bounded_part() {
    let domain = Domain::builder().max_pending(10_000).build().expect("the default mode is always available");
    let reader = domain.reader();
    let guard = reader.pin();
    for _ in 0..10_000 {
        drop(old(&domain));
    }
    let mut own = eager(&domain);
    drop(guard);
    let mut retired = Some(old(&domain));
    assert!(within(PASSES + 5 * SHARE, || own.retire(retired.take().expect("it was not given away"))).is_ok());
    assert_eq!(domain.stats().freed, SHARE as u64);
}

/// The cost depends neither on the number of objects that the reader holds, nor on the order in which it releases them.
#[test]
fn a_protected_load_costs_the_same_however_many_the_reader_holds() {
    let domain = Domain::new();
    let cells: Vec<_> = (0..1000).map(|number| domain.cell(number)).collect();
    let reader = domain.reader();
    let orders: [fn(usize, usize) -> usize; 3] =
        [|_, _| 0, |_, held| held - 1, |turn, held| turn.wrapping_mul(0x9E37_79B9) % held];
    for next in orders {
        let mut held = Vec::new();
        let mut protect = |number: usize| {
            // At most one new block of slots.
            let object = within(10, || cells[number].protect(&reader).expect("it is not empty"));
            object
        };
        held.extend((0..1000).map(&mut protect));
        for turn in 0..3000 {
            within(0, || drop(held.swap_remove(next(turn, held.len()))));
            held.push(protect(turn % 1000));
        }
        assert!(held.iter().all(|object| **object < 1000));
    }
    let slots = reader.record().hazards().count();
    assert!(slots <= 1010, "{slots}: slots are used again");
}

unsafe extern "C-unwind" fn nothing(_: std::ptr::NonNull<Callback>) {}

/// Pushes, polls with a limit, and pauses have bounded costs, whatever else waits in the queue and in the domain.
#[test]
fn a_queue_of_callbacks_does_what_it_is_told_to() {
    let domain = Domain::new();
    let reader = domain.reader();
    let queue = CallbackQueue::new(&domain);
    let nodes: Vec<ObjectCallback> = (0..100_000).map(|_| ObjectCallback::new()).collect();
    let held: Vec<_> = nodes[..1_000]
        .iter()
        .map(|node| {
            let link = AtomicPtr::new(std::ptr::from_ref(node).cast_mut());
            raw::protect(&reader, &link).expect("it is not null").1
        })
        .collect();
    let guard = reader.pin();
    let mut scans = 1_000 + 1_000 / 16 + ONE_READER;
    for (number, node) in nodes.iter().enumerate() {
        let place = std::ptr::NonNull::from(node);
        // SAFETY: the nodes stay until they are called, at the end of the test.
        let (steps, ()) = steps_of(|| unsafe {
            if number < 1_000 {
                queue.push_object(place, place.as_ptr().cast(), nothing);
            } else {
                queue.push(place.cast(), nothing);
            }
        });
        assert_eq!(steps, 0);
        if number % 1_000 == 999 {
            // So that there are more grace periods than places for segments.
            std::thread::sleep(Duration::from_micros(60));
            assert_eq!(within(PASSES, || queue.poll(usize::MAX)), 0);
        }
    }
    drop(guard);
    scans *= 2; // before the held objects, and after the check of their segment
    for limit in [1, 2, 64] {
        for _ in 0..200 {
            assert!(within(limit + scans + PASSES, || queue.poll(limit)) <= limit);
        }
        let (steps, pause) = steps_of(|| queue.pause());
        assert_eq!((steps, queue.poll(limit)), (0, 0));
        drop(pause);
    }
    while queue.pending() > 1_000 {
        assert!(queue.poll(5_000) <= 5_000);
    }
    // SAFETY: this is the reader's thread.
    held.into_iter().for_each(|slot| unsafe { slot.release() });
    while queue.pending() > 0 {
        queue.poll(100);
    }
}

/// A barrier scans the slots a few times, not once for each share of what they hold.
#[test]
fn a_barrier_of_callbacks_scans_the_slots_a_few_times() {
    const HELD: usize = 2_000;
    let domain = Domain::new();
    let reader = domain.reader();
    let queue = CallbackQueue::new(&domain);
    let nodes: Vec<ObjectCallback> = (0..HELD).map(|_| ObjectCallback::new()).collect();
    let mut held = Vec::new();
    for node in &nodes {
        let place = std::ptr::NonNull::from(node);
        let link = AtomicPtr::new(place.as_ptr());
        held.push(raw::protect(&reader, &link).expect("it is not null").1);
        // SAFETY: the node stays until it is called, at the end of the test.
        unsafe { queue.push_object(place, place.as_ptr().cast(), nothing) };
    }
    let (steps, answer) = steps_of(|| queue.barrier());
    assert!(answer.is_ok() && queue.pending() == HELD as u64, "{answer:?}, {} wait", queue.pending());
    assert!(steps <= 16 * HELD, "{steps} steps");
    // SAFETY: this is the reader's thread.
    held.into_iter().for_each(|slot| unsafe { slot.release() });
    queue.barrier().expect("nothing is held");
    assert_eq!(queue.pending(), 0);
}

/// A deferred call moves at most one share of what other calls have left.
#[test]
fn a_deferred_call_does_a_share_at_the_most() {
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    for _ in 0..10_000 {
        within(SHARE, || guard.defer(|| ()));
    }
}

/// Other threads, which have each retired a number of objects and have not written since.
struct Silent(Arc<Barrier>, Vec<std::thread::JoinHandle<()>>);

impl Silent {
    const THREADS: usize = 4;

    fn after(writes: usize) -> Self {
        let turn = Arc::new(Barrier::new(Self::THREADS + 1));
        let threads = (0..Self::THREADS).map(|_| {
            let turn = Arc::clone(&turn);
            std::thread::spawn(move || {
                let cell = RcuCell::new(0);
                (0..writes).for_each(|value| cell.set(value));
                turn.wait();
                turn.wait();
            })
        });
        let silent = Self(Arc::clone(&turn), threads.collect());
        turn.wait();
        silent
    }

    fn end(self) {
        self.0.wait();
        self.1.into_iter().for_each(|thread| thread.join().expect("no destructor panics"));
    }
}

/// The cost of a write does not depend on what waits in the thread's list, in the lists of others, and in the domain. No other test
/// of this program uses the default domain.
#[test]
fn a_write_to_the_default_domain_looks_at_a_few_shares() {
    const MANY: usize = 100_000;
    let bound = PASSES * (Silent::THREADS + 1) + 5 * SHARE;
    let cell = RcuCell::new(0);
    let write = || {
        within(bound, || cell.set(0));
    };
    let read = || {
        let guard = within(0, rcu::pin);
        within(0, || drop(guard));
        let object = within(0, || cell.get());
        drop(object);
    };
    write();
    let guard = rcu::pin();
    let silent = Silent::after(MANY);
    (0..MANY).for_each(|_| drop(cell.replace(0)));
    (0..MANY).for_each(|_| write());
    read();
    drop(guard);
    read();
    let stats = || rcu::default_domain().stats();
    let (mut writes, before) = (0, stats().pending);
    assert!(before > (Silent::THREADS as u64 + 1) * MANY as u64);
    while stats().pending > before / 10 {
        (0..1_000).for_each(|_| write());
        writes += 1_000;
        assert!(writes <= 4 * before, "{} of {before} are left", stats().pending);
    }
    silent.end();
    rcu::barrier().expect("no reader is in the way");
    assert_eq!(stats().pending, 0);
}

/// Whatever there once was, walks go over what is there now.
#[test]
fn a_crowd_of_readers_leaves_no_work_behind() {
    const CROWD: usize = 20_000;
    let domain = Domain::new();
    let (reader, mut own) = (domain.reader(), eager(&domain));
    let mut retire_and_poll = || {
        own.retire(old(&domain)).expect("there is room");
        let (steps, freed) = steps_of(|| own.poll());
        assert_eq!(freed, 1);
        steps
    };
    assert!(retire_and_poll() <= PASSES);
    let crowd: Vec<_> = (0..CROWD).map(|_| domain.reader()).collect();
    assert!(retire_and_poll() > CROWD);
    drop(crowd);
    // The words and the counts at the beginning of each chunk, and some words of small chunks.
    let bound = 3 * PASSES;
    let steps = retire_and_poll();
    assert!(steps <= bound, "{steps} steps after a crowd of readers, and at most {bound} are allowed");

    let cell = domain.cell(1);
    let crowd: Vec<_> = (0..CROWD).map(|_| cell.protect(&reader)).collect();
    assert!(retire_and_poll() > CROWD);
    drop(crowd);
    let steps = retire_and_poll();
    assert!(
        steps <= bound,
        "{steps} steps after a crowd of protected loads, and at most {bound} are allowed"
    );
    // Those that are forgotten go with the reader. The next one gets the record.
    (0..CROWD).for_each(|_| std::mem::forget(cell.protect(&reader)));
    assert!(retire_and_poll() > CROWD);
    drop(reader);
    let reader = within(PASSES, || domain.reader());
    let steps = retire_and_poll();
    assert!(steps <= bound, "{steps} steps after a reader, and at most {bound} are allowed");
    drop(reader);
}

/// Polls look at one of ten thousand silent readers. Each batch costs one walk and one fence, or none if the readers vouch for it.
#[test]
fn a_crowd_of_silent_readers_costs_each_batch_a_walk_and_a_fence() {
    const CROWD: usize = 10_000;
    const BATCH: usize = 128;
    let domain = Domain::new();
    if domain.fence_mode() == Mode::Symmetric {
        return; // no reader is ever silent
    }
    let its_domain = domain.clone();
    let crowd = Other::start(move |turns| {
        let readers: Vec<_> = (0..CROWD).map(|_| its_domain.reader()).collect();
        let load = || readers.iter().for_each(|reader| drop(reader.pin()));
        load();
        turns.for_each(|()| load());
    });
    let protocol = &domain.core().protocol;
    let (walk, _) = steps_of(|| protocol.laggards().count());
    let (gather, ()) = steps_of(|| protocol.gather_hazards(&mut Vec::new()));
    assert!(walk >= CROWD && gather > walk);
    // One walk, and what is freed is compared with the slots.
    let bound = walk + gather + BATCH + PASSES;
    let never = Duration::from_secs(1000);
    let mut own = domain.reclaimer_builder().batch(BATCH).fence_interval(never).build();
    for batch in 0..4 {
        (0..BATCH).for_each(|_| own.retire(old(&domain)).expect("there is room"));
        let before = domain.stats().heavy_fences;
        loop {
            let (steps, freed) = steps_of(|| own.poll());
            match freed {
                0 => assert!(steps <= PASSES, "{steps} steps: the batch gathers, and one reader was silent"),
                // Before the first fence, it is not known which reader is silent.
                _ if batch == 0 => {
                    break assert!(steps <= bound + walk, "{steps} steps of {bound} and {walk}")
                }
                _ => break assert!(steps <= bound, "{steps} steps of {bound}"),
            }
        }
        assert_eq!((own.pending(), domain.stats().heavy_fences), (0, before + 1));
    }
    let before = domain.stats().heavy_fences;
    for _ in 0..3 {
        own.retire(old(&domain)).expect("there is room");
        for _ in 0..10_000 {
            assert_eq!(within(PASSES, || own.poll()), 0);
        }
        crowd.turn();
        while own.pending() > 0 {
            let _ = within(bound, || own.poll());
        }
    }
    assert_eq!(domain.stats().heavy_fences, before);
}

/// A barrier does not look at objects that wait elsewhere, for example in reclaimers.
#[test]
fn a_barrier_looks_at_what_it_frees_and_once_at_each_reclaimer() {
    let domain = Domain::new();
    let mut others: Vec<_> = (0..1_000).map(|_| eager(&domain)).collect();
    for other in &mut others {
        for _ in 0..100 {
            other.retire(old(&domain)).expect("there is room");
        }
    }
    let slots = domain.core().all_counters().count();
    for objects in [0, 1_000, 100_000] {
        (0..objects).for_each(|_| drop(old(&domain)));
        let (steps, answer) = steps_of(|| domain.barrier());
        // Each object is taken, looked at once, and reversed if it was on the stack.
        let bound = 3 * objects + slots + PASSES + slots / 8;
        assert!(answer.is_ok() && steps <= bound, "{steps} steps, and at most {bound} are allowed");
    }
    assert_eq!(domain.stats().pending, 100_000, "the others have theirs");
}

/// What was left to the domain is taken once, and looked at again only when readers have gone. Nothing else that the domain holds
/// adds to the cost.
#[test]
fn a_poll_at_once_looks_at_what_was_left_and_at_its_own_queue() {
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    let mut others: Vec<_> = (0..5_000).map(|_| eager(&domain)).collect();
    for other in &mut others {
        other.retire(old(&domain)).expect("there is room");
    }
    let _futures = Futures::waiting(&domain, 10_000);
    let mut own = eager(&domain);
    for left in [0, 1, 10_000, 100_000] {
        (0..left).for_each(|_| drop(old(&domain)));
        (0..left).for_each(|_| own.retire(old(&domain)).expect("there is room"));
        // Each object is taken, and reversed if it was on the stack.
        assert_eq!(within(2 * left + PASSES, || own.poll_at_once(usize::MAX)), 0);
        assert_eq!(within(PASSES, || own.poll_at_once(usize::MAX)), 0);
    }
    let waiting = own.pending();
    assert_eq!(waiting, 2 * 110_001);
    drop(guard);
    assert_eq!(within(waiting + PASSES + 2 * wakers::SHARE, || own.poll_at_once(usize::MAX)), waiting);
    assert_eq!(within(PASSES, || own.poll_at_once(usize::MAX)), 0);
    // A poll with a limit takes no more than the limit.
    (0..1000).for_each(|_| drop(old(&domain)));
    let freed = within(PASSES + SHARE, || own.poll_at_once(10));
    assert!(freed == 10 && own.pending() == 0, "{freed} objects");
    assert_eq!(own.poll_at_once(usize::MAX), 990);
    assert_eq!(domain.stats().pending, 5_000, "the others have theirs");
}

/// The cost does not depend on how much the other reclaimer holds.
#[test]
fn a_reclaimer_that_takes_over_looks_at_what_it_gets() {
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    let (mut own, mut other) = (eager(&domain), eager(&domain));
    for number in 1..=10_000 {
        other.retire(old(&domain)).expect("there is room");
        let (steps, ()) = steps_of(|| own.take_over(&mut other));
        assert_eq!((steps, own.pending(), other.pending()), (1, number, 0));
    }
    assert_eq!((domain.stats().pending, own.poll_at_once(usize::MAX)), (10_000, 0));
    drop(guard);
    assert_eq!((own.poll_at_once(usize::MAX), domain.stats().freed), (10_000, 10_000));
}
