//! Attempts of safe code to break the crate: guards that outlive everything, thread-locals in every order, and
//! functions that panic, pin, defer, and drop what they run in.

mod common;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::mem::{self, MaybeUninit};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake};
use std::thread;
use std::time::Duration;

use common::{defer_destroy, pending, rounds, Count, Dropped};
use stillpoint_epoch::{self as epoch, domain, Atomic, Collector, Guard, LocalHandle, Owned, Shared};

/// A function that counts its call, and panics.
fn panicking(count: &Count) -> impl FnOnce() + Send + 'static {
    let number = count.clone();
    move || {
        number.add();
        panic!("a deferred function");
    }
}

/// Whether a call panics.
fn panics<R>(call: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(call()))).is_err()
}

#[test]
fn a_guard_outlives_its_handle_and_its_collector() {
    let count = Count::default();
    let (first, mut second);
    {
        let collector = Collector::new();
        let handle = collector.register();
        first = handle.pin();
        second = handle.pin();
    }
    let number = count.clone();
    first.defer(move || number.add());
    assert!(first.collector().is_some() && first.collector() == second.collector());
    drop(first);
    assert_eq!(count.get(), 0);
    second.repin();
    second.flush();
    let number = count.clone();
    second.repin_after(|| number.add());
    assert!(count.get() >= 1);
    let last = Dropped(count.clone());
    second.defer(move || drop(last));
    drop(second);
    assert_eq!(count.get(), 3);
}

/// The function drops the last handle while `repin_after` has given the guard up.
#[test]
fn a_handle_may_go_within_repin_after() {
    let count = Count::default();
    let handle = Collector::new().register();
    let mut guard = handle.pin();
    let number = count.clone();
    guard.defer(move || number.add());
    guard.repin_after(|| drop(handle));
    assert!(guard.collector().is_some());
    drop(guard);
    assert_eq!(count.get(), 1);
}

#[test]
fn repin_after_pins_again_when_its_function_panics() {
    let handle = Collector::new().register();
    let mut guard = handle.pin();
    assert!(panics(|| guard.repin_after(|| panic!("a function"))));
    assert!(handle.is_pinned());
    let other = handle.collector().register();
    let count = Count::default();
    defer_destroy(&other, &count);
    other.pin().flush();
    assert_eq!(count.get(), 0, "the thread is pinned again");
    drop(guard);
    assert!(!handle.is_pinned());
}

/// Guards of the inner calls may outlive the outer call, and other calls of `repin_after`.
#[test]
fn repin_after_nests() {
    let handle = Collector::new().register();
    let mut outer = handle.pin();
    let inner = outer.repin_after(|| {
        let mut inner = handle.pin();
        inner.repin_after(|| assert!(!handle.is_pinned()));
        inner
    });
    drop(outer);
    assert!(handle.is_pinned());
    drop(inner);
    assert!(!handle.is_pinned());
}

/// The call that runs a function panics with that function's panic, after the other functions of the thread have run.
#[test]
fn a_function_that_panics_keeps_no_other_one() {
    let collector = Collector::new();
    let handle = collector.register();
    let count = Count::default();
    for round in 0..2 {
        let mut guard = handle.pin();
        for _ in 0..10 {
            let number = count.clone();
            guard.defer(move || number.add());
            guard.defer(panicking(&count));
        }
        guard.flush();
        if round == 1 {
            assert!(panics(|| guard.repin()));
            assert!(handle.is_pinned());
            drop(guard);
        } else {
            assert!(panics(|| drop(guard)));
        }
        assert!(!handle.is_pinned());
        assert_eq!((count.get(), pending(&collector)), (20 * (round + 1), 0));
    }
    // The handle can be used as before.
    defer_destroy(&handle, &count);
    handle.pin().flush();
    assert_eq!(count.get(), 41);
}

/// A guard that ends its local runs a function that panics. The local ends nevertheless.
#[test]
fn a_panic_of_the_last_guard_ends_its_local() {
    let collector = Collector::new();
    let count = Count::default();
    let guard = collector.register().pin();
    guard.defer(panicking(&count));
    guard.flush();
    assert!(panics(|| drop(guard)));
    assert_eq!((count.get(), domain::of(&collector).stats().readers), (1, 0));
}

/// The drop of the last handle runs functions that panic. All of them run, and one panic is propagated.
#[test]
fn a_panic_of_the_last_handle() {
    let count = Count::default();
    let handle = Collector::new().register();
    drop(handle.pin()); // so that no round is due at the end of the next region
    let guard = handle.pin();
    (0..3).for_each(|_| guard.defer(panicking(&count)));
    drop(guard);
    assert!(panics(|| drop(handle)));
    assert_eq!(count.get(), 3);
}

/// A stall hook panics: at the end of a region, when a list is handed on, and while the panic drops the handle, which hands
/// on what is left.
#[test]
fn a_stall_hook_that_panics_keeps_no_function() {
    let hooks = Count::default();
    let calls = hooks.clone();
    let builder = domain::builder().stall_hook(Duration::from_nanos(1), move |_| {
        calls.add();
        panic!("a hook");
    });
    let collector = domain::collector(builder.build().unwrap());
    let (other, count, functions) = (collector.register(), Count::default(), 20);
    let pinned = other.pin();
    for _ in 0..functions {
        panics(|| {
            let handle = collector.register();
            drop(handle.pin());
            defer_destroy(&handle, &count);
            drop(handle);
        });
        panics(|| defer_destroy(&collector.register(), &count));
    }
    assert!(hooks.get() > 0);
    drop(pinned);
    while pending(&collector) > 0 {
        panics(|| other.pin().flush());
    }
    assert_eq!(count.get(), 2 * functions);
}

/// While a thread unwinds, no function runs: a second panic would abort.
#[test]
fn nothing_runs_while_a_thread_unwinds() {
    let collector = Collector::new();
    let (handle, count) = (collector.register(), Count::default());
    assert!(panics(|| {
        let guard = handle.pin();
        guard.defer(panicking(&count));
        guard.flush();
        panic!("the caller");
    }));
    assert_eq!(count.get(), 0);
    assert!(panics(|| handle.pin().flush()));
    assert_eq!(count.get(), 1);
}

/// A flush hands on what it may not run, though it is little.
#[test]
fn another_thread_runs_what_a_thread_that_unwinds_has_flushed() {
    let collector = Collector::new();
    let (handle, count) = (collector.register(), Count::default());
    drop(handle.pin());
    let number = count.clone();
    assert!(panics(|| {
        let guard = handle.pin();
        guard.defer(move || number.add());
        guard.flush();
        panic!("the caller");
    }));
    assert_eq!(count.get(), 0);
    thread::scope(|scope| scope.spawn(|| collector.register().pin().flush()).join().unwrap());
    assert_eq!(count.get(), 1);
}

/// Functions pin, defer, flush and repin: through the handle that runs them, through other handles, and in other
/// collectors.
#[test]
fn functions_do_everything() {
    thread_local!(static HANDLE: RefCell<Option<LocalHandle>> = const { RefCell::new(None) });

    fn pin() -> Guard {
        HANDLE.with_borrow(|handle| handle.as_ref().expect("it is there").pin())
    }

    fn deeper(collector: Collector, count: Count, depth: usize) {
        count.add();
        let mut guard = pin();
        for nested in [pin(), collector.register().pin(), Collector::new().register().pin(), epoch::pin()] {
            if depth > 0 {
                let (collector, count) = (collector.clone(), count.clone());
                nested.defer(move || deeper(collector, count, depth - 1));
                nested.flush();
            }
        }
        guard.repin();
        guard.repin_after(|| pin().flush());
    }

    let collector = Collector::new();
    HANDLE.set(Some(collector.register()));
    let count = Count::default();
    let (of_function, number) = (collector.clone(), count.clone());
    pin().defer(move || deeper(of_function, number, 2));
    // There are 1, 4 and 16 functions. Those in separate collectors run first.
    while count.get() < 21 {
        pin().flush();
        epoch::pin().flush();
    }
    pin().flush();
    assert_eq!((count.get(), pending(&collector)), (21, 0));
    HANDLE.set(None);
}

/// A function drops the handle whose guard runs it, and finally the collector.
#[test]
fn a_function_drops_the_handle_that_runs_it() {
    thread_local!(static HANDLE: RefCell<Option<LocalHandle>> = const { RefCell::new(None) });

    for flushes in [true, false] {
        let count = Count::default();
        HANDLE.set(Some(Collector::new().register()));
        let guard = HANDLE.with_borrow(|handle| handle.as_ref().expect("it is there").pin());
        for _ in 0..200 {
            let number = count.clone();
            guard.defer(move || {
                number.add();
                drop(HANDLE.take());
            });
        }
        if flushes {
            guard.flush();
        }
        drop(guard);
        assert_eq!(count.get(), 200);
        assert!(HANDLE.take().is_none());
    }
}

/// Each function defers the next one. The stack does not overflow.
#[test]
fn a_long_chain_of_functions_does_not_recurse() {
    struct Next(Collector, usize, Count);

    impl Drop for Next {
        fn drop(&mut self) {
            self.2.add();
            if self.1 > 0 {
                let next = Next(self.0.clone(), self.1 - 1, self.2.clone());
                let guard = self.0.register().pin();
                guard.defer(move || drop(next));
                guard.flush();
            }
        }
    }

    let (collector, count, length) = (Collector::new(), Count::default(), rounds(50_000, 40));
    let handle = collector.register();
    let first = Next(collector.clone(), length, count.clone());
    handle.pin().defer(move || drop(first));
    let mut flushes = 0;
    while count.get() <= length {
        handle.pin().flush();
        flushes += 1;
    }
    assert!(flushes <= length + 1);
}

/// A flush returns even if a function defers itself again.
#[test]
fn a_function_that_defers_itself_ends_no_flush() {
    fn again(collector: Collector, count: Count, end: usize) {
        count.add();
        let guard = collector.register().pin();
        let (of_next, number) = (collector.clone(), count.clone());
        if count.get() < end {
            guard.defer(move || again(of_next, number, end));
        }
    }

    let (collector, count, end) = (Collector::new(), Count::default(), rounds(1000, 30));
    let handle = collector.register();
    let (of_function, number) = (collector.clone(), count.clone());
    handle.pin().defer(move || again(of_function, number, end));
    handle.pin().flush();
    assert!((1..10).contains(&count.get()));
    while count.get() < end {
        handle.pin().flush();
    }
}

/// A value that pins its thread, and calls `is_pinned`, when it is dropped.
struct PinsAtTheEnd(Count);

impl Drop for PinsAtTheEnd {
    fn drop(&mut self) {
        let (guard, nested) = (epoch::pin(), epoch::pin());
        let number = self.0.clone();
        guard.defer(move || number.add());
        nested.flush();
        assert!(guard.collector() == Some(epoch::default_collector()));
        let _ = epoch::is_pinned();
    }
}

/// Thread-locals that were made before the thread's local, and after it, pin the thread in their destructors.
#[test]
fn pin_works_after_the_thread_local_is_destroyed() {
    thread_local! {
        static BEFORE: PinsAtTheEnd = PinsAtTheEnd(COUNTS.lock().unwrap().clone().expect("it is set"));
        static AFTER: PinsAtTheEnd = PinsAtTheEnd(COUNTS.lock().unwrap().clone().expect("it is set"));
    }
    static COUNTS: Mutex<Option<Count>> = Mutex::new(None);

    let count = Count::default();
    *COUNTS.lock().unwrap() = Some(count.clone());
    thread::spawn(|| {
        BEFORE.with(|_| ());
        drop(epoch::pin());
        AFTER.with(|_| ());
    })
    .join()
    .unwrap();
    while count.get() < 2 {
        epoch::pin().flush();
        thread::yield_now();
    }
}

/// A guard in a thread-local outlives the thread's handle, and keeps the thread pinned until it is dropped.
#[test]
fn a_guard_may_lie_in_a_thread_local() {
    thread_local! {
        static BEFORE: RefCell<Vec<Guard>> = const { RefCell::new(Vec::new()) };
        static AFTER: RefCell<Vec<Guard>> = const { RefCell::new(Vec::new()) };
    }

    let count = Count::default();
    let number = count.clone();
    thread::spawn(move || {
        BEFORE.with_borrow_mut(|_| ());
        let guard = epoch::pin();
        guard.defer(move || number.add());
        AFTER.with_borrow_mut(|guards| guards.push(epoch::pin()));
        BEFORE.with_borrow_mut(|guards| guards.extend([guard, epoch::pin()]));
    })
    .join()
    .unwrap();
    while count.get() < 1 {
        epoch::pin().flush();
        thread::yield_now();
    }
}

/// A guard that is forgotten pins its thread for ever. Nothing worse happens.
#[cfg(not(miri))] // which reports what is leaked
#[test]
fn a_forgotten_guard_holds_everything_up() {
    let collector = Collector::new();
    let count = Count::default();
    let of_thread = collector.clone();
    thread::spawn(move || mem::forget(of_thread.register().pin())).join().unwrap();
    let handle = collector.register();
    defer_destroy(&handle, &count);
    (0..10).for_each(|_| handle.pin().flush());
    assert_eq!((count.get(), pending(&collector)), (0, 1));
    assert!(domain::of(&collector).stall().is_some());
}

/// Guards, handles and clones are dropped in every order.
#[test]
fn drop_orders() {
    enum One {
        Collector(#[expect(dead_code, reason = "dropped")] Collector),
        Handle(#[expect(dead_code, reason = "dropped")] LocalHandle),
        Guard(#[expect(dead_code, reason = "dropped")] Guard),
    }

    for order in (0..120).step_by(if cfg!(miri) { 7 } else { 1 }) {
        let collector = Collector::new();
        let (handle, other) = (collector.register(), collector.register());
        let count = Count::default();
        let guards = [handle.pin(), other.pin()];
        for guard in &guards {
            let number = count.clone();
            guard.defer(move || number.add());
        }
        let mut all = vec![One::Collector(collector), One::Handle(handle), One::Handle(other)];
        all.extend(guards.map(One::Guard));
        // The digits of `order` in the factorial number system select a permutation.
        let mut digits = order;
        for choices in (1..=5).rev() {
            drop(all.remove(digits % choices));
            digits /= choices;
        }
        assert_eq!(count.get(), 2, "{order}");
    }
}

/// Threads register, defer, repin and flush, and end. Some drop their handle before their guard.
#[test]
fn threads_come_and_go() {
    let collector = Collector::new();
    let (count, threads, functions) = (Count::default(), rounds(200, 6), rounds(300, 20));
    let (pinned, is_pinned) = mpsc::channel();
    let spawned: Vec<_> = (0..threads)
        .map(|number| {
            let (collector, count, pinned) = (collector.clone(), count.clone(), pinned.clone());
            thread::spawn(move || {
                let handle = collector.register();
                let mut guard = handle.pin();
                pinned.send(()).unwrap();
                for function in 0..functions {
                    let number = count.clone();
                    guard.defer(move || number.add());
                    match function % 7 {
                        0 => guard.repin(),
                        1 => guard.flush(),
                        2 => drop(mem::replace(&mut guard, handle.pin())),
                        _ => {}
                    }
                }
                if number % 2 == 0 {
                    drop(handle);
                    guard.flush();
                }
            })
        })
        .collect();
    (0..threads).for_each(|_| is_pinned.recv().unwrap());
    spawned.into_iter().for_each(|thread| thread.join().unwrap());
    let handle = collector.register();
    // How many the threads have left depends on who was preempted. Each flush runs 512 of them.
    (0..threads * functions / 512 + 2).for_each(|_| handle.pin().flush());
    assert_eq!((count.get(), pending(&collector)), (threads * functions, 0));
}

/// The end of a region calls a waker that drops the handle of that region.
#[test]
fn a_waker_drops_the_handle_that_calls_it() {
    thread_local!(static HANDLE: RefCell<Option<LocalHandle>> = const { RefCell::new(None) });

    struct DropsTheHandle(Count);

    impl Wake for DropsTheHandle {
        fn wake(self: Arc<Self>) {
            self.0.add();
            drop(HANDLE.take());
        }
    }

    for pins_again in [false, true] {
        let (count, collector) = (Count::default(), Collector::new());
        let handle = collector.register();
        let mut guard = handle.pin();
        HANDLE.set(Some(handle));
        let domain = domain::of(&collector).clone();
        let mut future = pin!(domain.grace_period(domain.start()));
        let waker = Arc::new(DropsTheHandle(count.clone())).into();
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        if pins_again {
            guard.repin();
            assert_eq!((count.get(), domain.stats().readers), (1, 1));
        }
        drop(guard);
        assert_eq!((count.get(), domain.stats().readers), (1, 0));
    }
}

/// The end of one collector runs a function in which another collector ends. The functions of the latter, which borrow,
/// have run when it has ended.
#[test]
fn a_collector_ends_within_a_function_that_an_end_runs() {
    fn inner(depth: usize, ends: &Count) {
        let (text, ran) = (String::from("alive"), Cell::new(false));
        {
            let handle = Collector::new().register();
            drop(handle.pin()); // so that no round is due at the end of the next region
            let guard = handle.pin();
            // SAFETY: the end of the collector calls the function, at the end of this block.
            unsafe {
                guard.defer_unchecked(|| {
                    assert_eq!(text, "alive");
                    ran.set(true);
                    if depth > 0 {
                        inner(depth - 1, ends);
                    }
                });
            }
        }
        assert!(ran.get());
        ends.add();
    }

    let ends = Count::default();
    let number = ends.clone();
    let handle = Collector::new().register();
    drop(handle.pin()); // for the same reason
    handle.pin().defer(move || inner(3, &number));
    assert_eq!(ends.get(), 0);
    drop(handle);
    assert_eq!(ends.get(), 4);
}

/// A thread that defers the destruction of an object may not have synchronized with its writer, so nothing reads the
/// object. Miri and ThreadSanitizer would see a race.
#[test]
fn an_object_whose_destruction_is_deferred_is_not_looked_at() {
    let (collector, link) = (Collector::new(), Atomic::<[MaybeUninit<u64>]>::null());
    let objects = rounds(1000, 20);
    thread::scope(|scope| {
        scope.spawn(|| {
            let handle = collector.register();
            for _ in 0..objects {
                let guard = handle.pin();
                let new = Owned::<[MaybeUninit<u64>]>::init(3).into_shared(&guard);
                while link.compare_exchange(Shared::null(), new, Relaxed, Relaxed, &guard).is_err() {
                    thread::yield_now();
                }
            }
        });
        let (handle, mut taken) = (collector.register(), 0);
        while taken < objects {
            let guard = handle.pin();
            let old = link.swap(Shared::null(), Relaxed, &guard);
            if old.is_null() {
                thread::yield_now();
                continue;
            }
            taken += 1;
            // SAFETY: the object was unlinked just now.
            unsafe { guard.defer_destroy(old) };
        }
    });
}
