use std::cell::{Cell, OnceCell};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use stillpoint::rcu::raw::{self, Callback, CallbackQueue, ObjectCallback};
use stillpoint::rcu::wait::SynchronizeError;
use stillpoint::rcu::{Domain, QsbrReader};

use crate::census::{Census, Object};
use crate::modes::in_each_mode;

/// An object whose callback records its number, and frees it.
#[repr(C)]
struct Item {
    /// Large enough for either kind of callback.
    callback: ObjectCallback,
    number: usize,
    object: Object,
    told: Arc<Mutex<Vec<usize>>>,
}

#[derive(Default)]
struct Items {
    census: Census,
    told: Arc<Mutex<Vec<usize>>>,
    made: Cell<usize>,
}

impl Items {
    fn make(&self) -> NonNull<Item> {
        let number = self.made.replace(self.made.get() + 1);
        let (object, told) = (self.census.object(), Arc::clone(&self.told));
        NonNull::from(Box::leak(Box::new(Item { callback: ObjectCallback::new(), number, object, told })))
    }

    fn push(&self, queue: &CallbackQueue) {
        // SAFETY: the item is new, and freed by its callback.
        unsafe { queue.push(self.make().cast(), free) };
    }

    fn told(&self) -> Vec<usize> {
        self.told.lock().expect("no thread panics while it holds the lock").clone()
    }
}

unsafe extern "C-unwind" fn free(callback: NonNull<Callback>) {
    // SAFETY: it is the first field of an item that was leaked.
    let item = unsafe { Box::from_raw(callback.cast::<Item>().as_ptr()) };
    item.object.verify();
    item.told.lock().expect("no thread panics while it holds the lock").push(item.number);
}

#[test]
fn callbacks_are_called_in_order_after_the_readers_of_their_time() {
    in_each_mode(|domain| {
        let (items, queue) = (Items::default(), CallbackQueue::new(&domain));
        let reader = domain.reader();
        let guard = reader.pin();
        (0..100).for_each(|_| items.push(&queue));
        assert_eq!((queue.poll(usize::MAX), queue.pending()), (0, 100));
        let stats = domain.stats();
        assert_eq!((stats.retired, stats.pending, stats.freed), (100, 100, 0));
        (0..100).for_each(|_| items.push(&queue));
        drop(guard);
        let guard = reader.pin();
        while queue.pending() > 100 {
            queue.poll(7);
        }
        thread::sleep(Duration::from_millis(1)); // longer than the pace of fences
        assert_eq!(queue.poll(usize::MAX), 0, "this guard is older");
        drop(guard);
        queue.barrier().expect("nothing is in the way");
        assert!(items.told().into_iter().eq(0..200));
        let stats = domain.stats();
        assert_eq!((stats.pending, stats.freed, items.census.alive()), (0, 202, 0), "two are the barrier's");
    });
}

/// A callback waits for protected loads only if it knows the object. In that case, later callbacks overtake it.
#[test]
fn what_is_held_is_passed_over() {
    let domain = Domain::new();
    let (items, queue) = (Items::default(), CallbackQueue::new(&domain));
    let reader = domain.reader();
    let all: Vec<_> = (0..10).map(|_| items.make()).collect();
    let mut slots = Vec::new();
    for (number, item) in all.iter().enumerate() {
        if number % 2 == 0 {
            slots.push(raw::protect(&reader, &AtomicPtr::new(item.as_ptr())).expect("it is not null").1);
        }
        // SAFETY: it is reachable only here, and its callback frees it.
        unsafe { queue.push_object(item.cast(), item.as_ptr().cast(), free) };
    }
    assert_eq!(queue.poll(usize::MAX), 5);
    let mut told = items.told();
    told.sort_unstable();
    assert_eq!(told, [1, 3, 5, 7, 9]);
    queue.barrier().expect("it does not wait for what is held");
    assert_eq!((queue.pending(), domain.stats().pinned), (5, 5));
    // SAFETY: this is the reader's thread.
    unsafe { slots.remove(2).release() };
    queue.barrier().expect("it does not wait for what is held");
    assert_eq!((queue.pending(), domain.stats().pinned), (4, 4), "it looks again at what was held");
    for (left, slot) in slots.into_iter().enumerate() {
        // SAFETY: this is the reader's thread.
        unsafe { slot.release() };
        // Half of the limit is for held objects: each poll looks at one of them, in turn.
        let mut polls = 0;
        while queue.pending() as usize > 3 - left {
            queue.poll(2);
            polls += 1;
            assert!(polls <= 5);
        }
    }
    assert_eq!((items.census.alive(), domain.stats().pinned), (0, 0));
}

/// A turn of a barrier looks at a few callbacks that are held.
#[test]
fn a_barrier_calls_all_that_is_released_before() {
    const MANY: usize = if cfg!(miri) { 500 } else { 10_000 };
    let (domain, object) = (Domain::new(), Box::new(7));
    let (items, queue, reader) = (Items::default(), CallbackQueue::new(&domain), domain.reader());
    let link = AtomicPtr::new(std::ptr::from_ref(&*object).cast_mut());
    let (object, slot) = raw::protect(&reader, &link).expect("it is not null");
    for _ in 0..MANY {
        // SAFETY: the item is new, and its callback frees it, and not the object.
        unsafe { queue.push_object(items.make().cast(), object.as_ptr().cast(), free) };
    }
    queue.barrier().expect("it does not wait for what is held");
    assert_eq!(queue.pending(), MANY as u64);
    // SAFETY: this is the reader's thread.
    unsafe { slot.release() };
    queue.barrier().expect("nothing is in the way");
    assert_eq!((queue.pending(), items.told().len()), (0, MANY));
}

#[test]
fn a_callback_that_panics_keeps_nobody_back() {
    #[repr(C)]
    struct Loud(Callback, Arc<AtomicUsize>);
    unsafe extern "C-unwind" fn panics(callback: NonNull<Callback>) {
        // SAFETY: it is the first field of a value that was leaked.
        let loud = unsafe { Box::from_raw(callback.cast::<Loud>().as_ptr()) };
        loud.1.fetch_add(1, Ordering::Relaxed);
        panic!("as it is to");
    }
    let domain = Domain::new();
    let (items, queue, count) = (Items::default(), CallbackQueue::new(&domain), Arc::default());
    for _ in 0..3 {
        items.push(&queue);
        let loud = Box::leak(Box::new(Loud(Callback::new(), Arc::clone(&count))));
        // SAFETY: the value is new, and freed by its callback.
        unsafe { queue.push(NonNull::from(loud).cast(), panics) };
    }
    items.push(&queue);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.poll(usize::MAX))).is_err());
    assert_eq!((count.load(Ordering::Relaxed), queue.pending(), items.census.alive()), (3, 0, 0));
    assert_eq!(domain.stats().freed, 7);
    // The panic reaches the caller of a run, too.
    let loud = Box::leak(Box::new(Loud(Callback::new(), Arc::clone(&count))));
    // SAFETY: as above.
    unsafe { queue.push(NonNull::from(loud).cast(), panics) };
    let answer = thread::scope(|scope| {
        let run = scope.spawn(|| queue.run());
        while queue.pending() > 0 {
            thread::yield_now();
        }
        items.push(&queue);
        queue.stop();
        run.join()
    });
    assert!(answer.is_err());
    assert_eq!((items.census.alive(), queue.pending()), (0, 0));
}

/// A callback pushes itself again, pushes others, polls, waits, and pauses.
#[test]
fn callbacks_use_their_queue() {
    #[repr(C)]
    struct Again {
        callback: Callback,
        queue: CallbackQueue,
        left: Cell<u32>,
        is_done: Arc<AtomicBool>,
    }
    unsafe extern "C-unwind" fn again(callback: NonNull<Callback>) {
        // SAFETY: it is the first field of a value that was leaked.
        let this = unsafe { callback.cast::<Again>().as_ref() };
        let queue = this.queue.clone();
        assert_eq!(queue.poll(usize::MAX), 0, "the turn is taken");
        assert!(matches!(queue.barrier(), Err(SynchronizeError::Reentrant { .. })));
        assert!(catch_unwind(AssertUnwindSafe(|| queue.pause())).is_err());
        if this.left.get() > 0 {
            this.left.set(this.left.get() - 1);
            // SAFETY: it was just called, and the value stays.
            unsafe { queue.push(callback, again) };
        } else {
            // SAFETY: it is not pushed again.
            let this = unsafe { Box::from_raw(callback.cast::<Again>().as_ptr()) };
            this.is_done.store(true, Ordering::Relaxed);
        }
    }
    let (domain, is_done) = (Domain::new(), Arc::new(AtomicBool::new(false)));
    let queue = CallbackQueue::new(&domain);
    let value = Again {
        callback: Callback::new(),
        queue: queue.clone(),
        left: Cell::new(20),
        is_done: Arc::clone(&is_done),
    };
    // SAFETY: the value is new, and freed by its last callback.
    unsafe { queue.push(NonNull::from(Box::leak(Box::new(value))).cast(), again) };
    let mut calls = 0;
    while !is_done.load(Ordering::Relaxed) {
        calls += queue.poll(usize::MAX);
    }
    // Barriers within callbacks push no markers: they fail before that.
    assert_eq!((calls, queue.pending()), (21, 0));
}

/// The callbacks of a dropped queue go to the domain, and are called after its readers have left.
#[test]
fn a_queue_that_is_dropped_full_leaves_its_callbacks_to_the_domain() {
    for is_reclaimed in [true, false] {
        let domain = Domain::builder().max_pending(5).build().expect("the default mode is always available");
        let (items, queue) = (Items::default(), CallbackQueue::new(&domain));
        let reader = domain.reader();
        let guard = reader.pin();
        for number in 0..20 {
            items.push(&queue);
            let item = items.make();
            // SAFETY: it is reachable only here, and its callback frees it.
            unsafe { queue.push_object(item.cast(), item.as_ptr().cast(), free) };
            if number == 10 {
                queue.poll(usize::MAX);
            }
        }
        let stats = domain.stats();
        assert_eq!((stats.pending, stats.retired, stats.beyond_limits), (40, 40, 35));
        drop(queue);
        let stats = domain.stats();
        assert_eq!((stats.pending, stats.retired, items.census.alive()), (40, 40, 40));
        let mut reclaimer = crate::eager(&domain);
        assert_eq!(reclaimer.poll(), 0);
        drop(guard);
        if is_reclaimed {
            reclaimer.flush().expect("nothing is in the way");
            assert_eq!((domain.stats().pending, domain.stats().freed), (0, 40));
        } else {
            drop((reclaimer, reader, domain));
        }
        assert_eq!(items.census.alive(), 0);
        assert!(items.told().iter().filter(|&number| number % 2 == 0).is_sorted());
    }
}

/// Many threads push, two serve, and one pauses. Everything is called once, and the callbacks of each thread in their
/// order.
#[test]
fn threads_push_while_others_serve_and_pause() {
    #[repr(C)]
    struct Numbered {
        callback: Callback,
        thread: usize,
        number: usize,
        last: Arc<[AtomicUsize; 4]>,
        paused: Arc<AtomicBool>,
    }
    unsafe extern "C-unwind" fn check(callback: NonNull<Callback>) {
        // SAFETY: it is the first field of a value that was leaked.
        let this = unsafe { Box::from_raw(callback.cast::<Numbered>().as_ptr()) };
        assert!(!this.paused.load(Ordering::Relaxed), "it is called in a pause");
        let last = this.last[this.thread].swap(this.number, Ordering::Relaxed);
        assert_eq!(last + 1, this.number);
    }
    const NUMBER: usize = if cfg!(miri) { 20 } else { 5_000 };
    in_each_mode(|domain| {
        let queue = CallbackQueue::new(&domain);
        let (last, paused): (Arc<[AtomicUsize; 4]>, Arc<AtomicBool>) = Default::default();
        thread::scope(|scope| {
            let servers: Vec<_> = (0..2).map(|_| scope.spawn(|| queue.run())).collect();
            let pushers: Vec<_> = (0..4)
                .map(|thread| {
                    let (queue, last, paused) = (&queue, &last, &paused);
                    scope.spawn(move || {
                        for number in 1..=NUMBER {
                            let (last, paused) = (Arc::clone(last), Arc::clone(paused));
                            let callback = Callback::new();
                            let value = Numbered { callback, thread, number, last, paused };
                            // SAFETY: the value is new, and freed by its callback.
                            unsafe { queue.push(NonNull::from(Box::leak(Box::new(value))).cast(), check) };
                            if number % 64 == 0 {
                                thread::yield_now();
                            }
                        }
                    })
                })
                .collect();
            for _ in 0..20 {
                let pause = queue.pause();
                paused.store(true, Ordering::Relaxed);
                thread::yield_now();
                paused.store(false, Ordering::Relaxed);
                drop(pause);
                thread::yield_now();
            }
            pushers.into_iter().for_each(|pusher| pusher.join().expect("it does not panic"));
            queue.barrier().expect("nothing is in the way");
            assert!(last.iter().all(|last| last.load(Ordering::Relaxed) == NUMBER));
            queue.stop();
            servers.into_iter().for_each(|server| server.join().expect("no callback panics"));
        });
        assert_eq!(queue.pending(), 0);
        let stats = domain.stats();
        assert_eq!((stats.pending, stats.retired), (0, stats.freed));
    });
}

/// A serving thread sleeps, is woken by a push, waits for a reader that is in the way, and goes on when the reader
/// leaves.
#[test]
fn a_server_that_sleeps_is_woken() {
    let domain = Domain::new();
    let (items, queue) = (Items::default(), CallbackQueue::new(&domain));
    thread::scope(|scope| {
        let server = scope.spawn(|| queue.run());
        for round in 1..=5 {
            thread::sleep(Duration::from_millis(2));
            let reader = domain.reader();
            let guard = reader.pin();
            items.push(&queue);
            thread::sleep(Duration::from_millis(1));
            assert_eq!(items.told().len(), round - 1);
            drop(guard);
            while items.told().len() < round {
                thread::yield_now();
            }
        }
        queue.stop();
        server.join().expect("no callback panics");
    });
    let reader = domain.reader();
    let guard = reader.pin();
    assert!(catch_unwind(AssertUnwindSafe(|| queue.run())).is_err(), "it would wait for itself");
    assert!(matches!(queue.barrier(), Err(SynchronizeError::WouldDeadlock { .. })));
    drop(guard);
}

/// The callbacks are called in their order, before those that are pushed to the other queue later. Callbacks that waited for
/// a grace period in the first queue wait for one in the other queue, too.
#[test]
fn a_queue_passes_on_what_it_has() {
    in_each_mode(|domain| {
        let (items, queue, other) =
            (Items::default(), CallbackQueue::new(&domain), CallbackQueue::new(&domain));
        let reader = domain.reader();
        let guard = reader.pin();
        items.push(&queue);
        assert_eq!(queue.poll(9), 0); // it has a token
        items.push(&queue);
        queue.pass_to(&other);
        items.push(&other);
        items.push(&queue);
        queue.pass_to(&other);
        assert_eq!((queue.pending(), other.pending()), (0, 4));
        assert_eq!((queue.poll(9), other.poll(9)), (0, 0));
        drop(guard);
        queue.pass_to(&other); // nothing
        other.barrier().expect("nothing is in the way");
        assert_eq!(items.told(), [0, 1, 2, 3]);
        let stats = domain.stats();
        assert_eq!(stats.pending, 0);
        assert_eq!(stats.retired, stats.freed, "each was pushed and called once");
        items.push(&queue);
        queue.barrier().expect("it goes on");
        assert_eq!(items.told().len(), 5);
    });
}

#[test]
fn a_queue_passes_on_objects_that_are_held() {
    in_each_mode(|domain| {
        let (items, queue, other) =
            (Items::default(), CallbackQueue::new(&domain), CallbackQueue::new(&domain));
        let (reader, item) = (domain.reader(), items.make());
        let link = AtomicPtr::new(item.as_ptr());
        let (_, slot) = raw::protect(&reader, &link).expect("it is not null");
        // SAFETY: the item is new, and freed by its callback.
        unsafe { queue.push_object(item.cast(), item.as_ptr().cast_const().cast(), free) };
        while domain.stats().pinned == 0 {
            queue.poll(9);
        }
        queue.pass_to(&other);
        assert_eq!((queue.pending(), other.pending(), domain.stats().pinned), (0, 1, 0));
        other.barrier().expect("nothing is in the way");
        assert!(items.told().is_empty());
        // SAFETY: of this thread's reader, and released once.
        unsafe { slot.release() };
        while other.poll(9) == 0 {}
        assert_eq!(items.told(), [0]);
    });
}

/// Threads push meanwhile. No callback is lost, and those of each thread keep their order.
#[test]
fn a_queue_passes_on_while_threads_push() {
    const EACH: usize = if cfg!(miri) { 50 } else { 5_000 };

    let domain = Domain::new();
    let (queue, other) = (CallbackQueue::new(&domain), CallbackQueue::new(&domain));
    let running = AtomicUsize::new(2);
    let told = thread::scope(|scope| {
        let pushers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let items = Items::default();
                    (0..EACH).for_each(|_| items.push(&queue));
                    running.fetch_sub(1, Ordering::Relaxed);
                    items
                })
            })
            .collect();
        while running.load(Ordering::Relaxed) > 0 {
            queue.pass_to(&other);
            other.poll(64);
        }
        let items: Vec<_> =
            pushers.into_iter().map(|pusher| pusher.join().expect("it does not panic")).collect();
        queue.pass_to(&other);
        other.barrier().expect("nothing is in the way");
        items.iter().map(Items::told).collect::<Vec<_>>()
    });
    assert!(told.iter().all(|told| told.iter().copied().eq(0..EACH)));
}

#[test]
#[should_panic(expected = "cannot pass to a queue of domain")]
fn a_queue_does_not_pass_to_another_domain() {
    CallbackQueue::new(&Domain::new()).pass_to(&CallbackQueue::new(&Domain::new()));
}

/// An online reader of the serving thread is neither in the way of the turn that brings it online, nor of the next one.
#[test]
fn a_frame_brings_a_reader_online_for_the_callbacks_of_a_turn() {
    thread_local! {
        static READER: OnceCell<QsbrReader> = const { OnceCell::new() };
    }

    fn with_parts<R>(look: impl FnOnce(raw::Parts<'_>) -> R) -> R {
        READER.with(|reader| look(raw::Parts::of_qsbr(reader.get().expect("it was made"))))
    }

    fn go(online: bool) {
        // SAFETY: this is the reader's thread, and nothing was loaded through it.
        with_parts(|parts| unsafe {
            if online {
                parts.online()
            } else {
                parts.offline()
            }
        });
    }

    fn frame(begins: bool) {
        assert_ne!(with_parts(|parts| parts.is_online()), begins);
        go(begins);
    }

    unsafe extern "C-unwind" fn check(callback: NonNull<Callback>) {
        assert!(with_parts(|parts| parts.is_online()));
        // SAFETY: it came from a box.
        drop(unsafe { Box::from_raw(callback.as_ptr()) });
    }

    let domain = Domain::new();
    READER.with(|reader| reader.set(domain.qsbr_reader()).expect("it is the first one"));
    go(false);
    let queue = CallbackQueue::with_frame(&domain, frame);
    for _ in 0..3 {
        for _ in 0..100 {
            // SAFETY: the box is freed by its callback.
            unsafe { queue.push(NonNull::from(Box::leak(Box::default())), check) };
        }
        queue.barrier().expect("the thread is offline while it waits");
        assert!(!with_parts(|parts| parts.is_online()) && queue.pending() == 0);
    }
}

/// Waiting callbacks stay, and another thread goes on with them.
#[test]
fn a_server_leaves_when_it_is_told_to() {
    let domain = Domain::new();
    let (items, queue) = (Items::default(), CallbackQueue::new(&domain));
    for is_blocked in [false, true] {
        let reader = domain.reader();
        let guard = is_blocked.then(|| reader.pin());
        let goes_on = AtomicBool::new(true);
        thread::scope(|scope| {
            let server = scope.spawn(|| queue.run_while(|| goes_on.load(Ordering::Acquire)));
            if is_blocked {
                items.push(&queue);
            } else {
                queue.barrier().expect("nothing is in the way");
            }
            goes_on.store(false, Ordering::Release);
            queue.wake();
            server.join().expect("it does not panic");
        });
        assert_eq!(queue.pending(), u64::from(is_blocked));
        drop(guard);
    }
    queue.barrier().expect("nothing is in the way");
    assert_eq!(items.told(), [0]);
}
