//! The default domain, whose readers are the threads themselves.
//!
//! A process has one default domain, so the tests run one after the other.

#[path = "support/census.rs"]
mod census;
#[cfg(not(miri))]
#[path = "support/child.rs"]
mod child;
#[cfg(not(miri))]
#[path = "support/forked.rs"]
mod forked;
#[path = "support/then.rs"]
mod then;

use std::cell::RefCell;
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use census::{Census, Object};
use stillpoint::rcu::wait::SynchronizeError;
use stillpoint::rcu::{self, Domain, Guard, Protected, RcuArray, RcuCell, Reclaimer};
use stillpoint::table::Table;
use then::Then;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Gives the caller exclusive use of the domain, in which no object waits.
fn own() -> MutexGuard<'static, ()> {
    let own = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    rcu::barrier().expect("nothing is in the way");
    own
}

/// Never dropped, but still reachable, so that leak checkers do not report it.
fn for_ever(cell: RcuCell<Object>) -> &'static RcuCell<Object> {
    static KEPT: Mutex<Vec<&'static RcuCell<Object>>> = Mutex::new(Vec::new());
    let cell = Box::leak(Box::new(cell));
    KEPT.lock().unwrap().push(cell);
    cell
}

fn message_of(function: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(function)).expect_err("it panics");
    panic.downcast_ref::<String>().expect("with a formatted message").clone()
}

/// A limit for what is expected soon. It is long enough for a busy machine.
const LONG: Duration = Duration::from_secs(60);

const MANY: usize = if cfg!(miri) { 40 } else { 1_000 };

#[test]
fn what_is_replaced_is_freed_and_what_is_held_is_not() {
    let _own = own();
    let census = Census::default();
    let cell = RcuCell::new(census.object());
    let held = cell.get().expect("never empty here");
    for _ in 0..MANY {
        cell.set(census.object());
    }
    rcu::barrier().expect_err("this thread holds one of them");
    assert_eq!(census.freed(), MANY - 1);
    held.verify();
    drop(held);
    cell.clear();
    assert!(cell.get().is_none());
    rcu::barrier().expect("nothing is in the way");
    assert_eq!((census.freed(), census.alive()), (MANY + 1, 0));
}

/// Calls that go through a whole table use the thread's own reader.
#[test]
fn a_table_of_the_default_domain_makes_no_reader_of_its_own() {
    struct Readers(Arc<AtomicUsize>);

    impl fmt::Debug for Readers {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.store(rcu::default_domain().stats().readers, Ordering::Relaxed);
            f.write_str("seen")
        }
    }

    let _own = own();
    drop(rcu::pin());
    let readers = Arc::new(AtomicUsize::new(0));
    let before = rcu::default_domain().stats().readers;
    let table = Table::from([(1, Readers(Arc::clone(&readers)))]);
    assert_eq!(format!("{table:?}"), "{1: seen}");
    assert!((1..=before).contains(&readers.load(Ordering::Relaxed)), "{readers:?} and not {before}");
}

#[test]
fn an_update_is_not_lost() {
    let _own = own();
    let cell = RcuCell::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..MANY).for_each(|_| assert!(cell.update(|value| value + 1))));
        }
    });
    assert_eq!(cell.get().as_deref(), Some(&(3 * MANY)));
    assert!(!RcuCell::<u32>::empty().update(|value| value + 1));
    assert!(catch_unwind(AssertUnwindSafe(|| cell.update(|_| panic!("as expected")))).is_err());
    assert_eq!(cell.get().as_deref(), Some(&(3 * MANY)), "nothing was replaced");
}

#[test]
fn what_is_of_another_domain_is_refused_and_both_are_named() {
    let _own = own();
    let domain = Domain::builder().name("routes").build().unwrap();
    let (cell, array) = (domain.cell(1), RcuArray::new_in(&domain, 1, |_| Some(Box::new(1))));
    let calls: [(&str, &dyn Fn()); 6] = [
        ("get", &|| drop(cell.get())),
        ("set", &|| cell.set(2)),
        ("clear", &|| cell.clear()),
        ("update", &|| assert!(cell.update(|_| 2))),
        ("get of an array", &|| drop(array.get(0))),
        ("set of an array", &|| array.set(0, None)),
    ];
    for (name, call) in calls {
        let message = message_of(call);
        assert!(message.contains("`routes`") && message.contains("`default`"), "{name}: {message}");
    }
    let reader = domain.reader();
    assert_eq!(cell.protect(&reader).as_deref(), Some(&1), "nothing was replaced");
    assert_eq!(array.protect(0, &reader).as_deref(), Some(&1), "nothing was replaced");
    // A named domain refuses what is of the default domain, too.
    let message = message_of(|| drop(RcuCell::new(1).protect(&reader)));
    assert!(message.contains("`routes`") && message.contains("`default`"), "{message}");
    // A guard of this thread is one of the default domain.
    let message = message_of(|| assert!(cell.load(&rcu::pin()).is_none()));
    assert!(message.contains("`routes`") && message.contains("`default`"), "{message}");
}

/// Registers something at the end of the thread, before or after the domain.
struct AtEnd(Option<Box<dyn FnOnce()>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(function) = self.0.take() {
            function();
        }
    }
}

thread_local! {
    static GUARD: RefCell<Option<Guard<'static>>> = const { RefCell::new(None) };
    static PROTECTED: RefCell<Vec<Protected<'static, Object>>> = const { RefCell::new(Vec::new()) };
    static AT_END: RefCell<AtEnd> = const { RefCell::new(AtEnd(None)) };
}

/// Runs `function` on a thread. When this returns, the thread has ended, and its destructors have run.
fn on_thread(function: impl FnOnce() + Send + 'static) {
    thread::spawn(function).join().expect("it does not panic");
}

/// A thread's record is given back after everything that other thread-locals hold, whichever of them is destroyed
/// first.
#[cfg_attr(stillpoint_portable, ignore = "what older thread-locals hold outlives the end of the thread")]
#[test]
fn guards_and_protected_loads_in_thread_locals_are_let_go_of() {
    let _own = own();
    let census = Census::default();
    let cell: &'static RcuCell<Object> = for_ever(RcuCell::new(census.object()));
    let before = rcu::default_domain().stats().readers;
    for round in 0..if cfg!(miri) { 4 } else { 100 } {
        on_thread(move || {
            if round % 2 == 0 {
                drop(rcu::pin()); // the thread is registered first
            }
            let touched = GUARD.with_borrow(Option::is_some);
            assert!(!touched);
            PROTECTED.with_borrow(|protected| assert!(protected.is_empty()));
            GUARD.set(Some(rcu::pin()));
            PROTECTED.with_borrow_mut(|protected| protected.extend((0..20).filter_map(|_| cell.get())));
        });
    }
    assert!(rcu::default_domain().stats().readers <= before);
    cell.clear();
    rcu::barrier().expect("nothing is in the way");
    assert_eq!(census.alive(), 0);
}

#[test]
fn destructors_of_thread_locals_may_read_and_write() {
    let _own = own();
    let census = Census::default();
    let cell = Arc::new(RcuCell::new(census.object()));
    let before = rcu::default_domain().stats().readers;
    for is_first in [false, true] {
        let (cell, census) = (Arc::clone(&cell), census.clone());
        on_thread(move || {
            if is_first {
                drop(rcu::pin());
            }
            AT_END.set(AtEnd(Some(Box::new(move || {
                let guard = rcu::pin();
                cell.load(&guard).expect("never empty here").verify();
                cell.set(census.object());
                cell.get().expect("never empty here").verify();
            }))));
        });
    }
    assert!(rcu::default_domain().stats().readers <= before);
    cell.clear();
    rcu::barrier().expect("nothing is in the way");
    assert_eq!((census.freed(), census.alive()), (3, 0));
}

/// Destructors that run after the domain's own destructor for the thread get a new reader.
#[test]
fn the_last_destructors_of_a_thread_may_read_and_write() {
    static END: stillpoint_sys::os::ThreadEnd = stillpoint_sys::os::ThreadEnd::new(end);
    static CELL: Mutex<Option<RcuCell<Object>>> = Mutex::new(None);
    static ENDED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn end(rounds: *mut std::ffi::c_void) {
        let cell = CELL.lock().unwrap();
        let cell = cell.as_ref().expect("the test is not over");
        cell.get().expect("never empty here").verify();
        drop(rcu::pin());
        ENDED.fetch_add(1, Ordering::Relaxed);
        if rounds.addr() > 1 {
            // SAFETY: the function takes any number.
            unsafe { END.call_with(rounds.wrapping_byte_sub(1)) };
        }
    }

    let _own = own();
    let census = Census::default();
    *CELL.lock().unwrap() = Some(RcuCell::new(census.object()));
    let before = rcu::default_domain().stats().readers;
    on_thread(|| {
        drop(rcu::pin());
        // SAFETY: the function takes any number.
        assert!(unsafe { END.call_with(std::ptr::without_provenance_mut(2)) });
    });
    assert_eq!(ENDED.load(Ordering::Relaxed), 2);
    assert!(rcu::default_domain().stats().readers <= before);
    *CELL.lock().unwrap() = None;
}

/// In its own process, since the object is held for ever.
#[cfg(not(miri))]
#[test]
fn what_a_leaked_protected_load_of_an_ended_thread_holds_is_kept() {
    child::in_child("what_a_leaked_protected_load_of_an_ended_thread_holds_is_kept", || {
        let census = Census::default();
        let cell: &'static RcuCell<Object> = for_ever(RcuCell::new(census.object()));
        let thread = thread::spawn(|| {
            let object: &'static Protected<'static, Object> =
                Box::leak(Box::new(cell.get().expect("never empty here")));
            &**object
        });
        let object = thread.join().unwrap();
        // A later thread gets a different record.
        on_thread(|| drop(cell.get()));
        cell.clear();
        let late = rcu::barrier_timeout(Duration::from_millis(1));
        assert!(matches!(late, Err(SynchronizeError::Pinned { objects: 1, .. })), "{late:?}");
        object.verify();
        assert_eq!(census.alive(), 1);
    });
}

/// A thread that does nothing more until this value is dropped.
struct Silent {
    ends: mpsc::Sender<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Silent {
    /// The result of `function` is kept until the end.
    fn after<R>(function: impl FnOnce() -> R + Send + 'static) -> Self {
        let (begun, has_begun) = mpsc::channel();
        let (ends, end) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let _kept = function();
            begun.send(()).unwrap();
            let _ = end.recv();
        });
        has_begun.recv().unwrap();
        Self { ends, thread: Some(thread) }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = self.ends.send(());
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Replaces an object on a thread that does nothing afterwards. A guard keeps the object from being freed at once.
fn left_by_a_silent_thread(census: &Census) -> Silent {
    let cell = RcuCell::new(census.object());
    let guard = rcu::pin();
    let silent = Silent::after(move || cell.clear());
    drop(guard);
    assert_eq!(census.alive(), 1);
    silent
}

#[test]
fn what_another_thread_has_retired_is_freed_by_later_writes_and_polls() {
    type Free = fn(&RcuCell<i32>, &mut Reclaimer);
    let write: Free = |cell, _| cell.set(1);
    let poll: Free = |_, reclaimer| _ = reclaimer.poll();
    for (name, ends, free) in [
        ("a silent thread, writes of others", false, write),
        ("a silent thread, polls", false, poll),
        ("a thread that ends, writes", true, write),
    ] {
        let _own = own();
        let (census, begun) = (Census::default(), Instant::now());
        let silent = left_by_a_silent_thread(&census);
        let _silent = (!ends).then_some(silent);
        let (cell, mut reclaimer) = (RcuCell::new(0), rcu::default_domain().reclaimer());
        while census.alive() > 0 {
            assert!(begun.elapsed() < LONG, "{name}: it is not freed");
            free(&cell, &mut reclaimer);
        }
    }
}

#[test]
fn a_thread_of_the_background_frees_what_a_silent_thread_has_retired() {
    let _own = own();
    let (handle, thread) = rcu::default_domain().background().spawn().expect("there are threads");
    let census = Census::default();
    // Once while the thread sleeps, and once while it works.
    for _ in 0..2 {
        let _silent = left_by_a_silent_thread(&census);
        while census.alive() > 0 {
            thread::yield_now();
        }
    }
    handle.stop();
    thread.join().expect("no destructor panics");
}

#[test]
fn a_background_thread_ends_without_handles_and_tells_of_panics() {
    let _own = own();
    let (handle, thread) = rcu::default_domain().background().spawn().expect("there are threads");
    assert_eq!(thread.thread().name(), Some("stillpoint-rcu"));
    let cell = RcuCell::new(Then::new(|| panic!("as expected")));
    handle.retire(cell.take().unwrap()).expect("there is room");
    drop(handle);
    assert!(thread.join().is_err());
}

#[test]
fn a_barrier_finds_what_others_have() {
    let _own = own();
    let census = Census::default();
    let silent: Vec<_> = (0..4).map(|_| left_by_a_silent_thread_beside(&census)).collect();
    drop(RcuCell::new(census.object()).take()); // left to the domain
    rcu::barrier().expect("nothing is in the way");
    assert_eq!((census.freed(), census.alive()), (5, 0));
    drop(silent);
}

fn left_by_a_silent_thread_beside(census: &Census) -> Silent {
    let cell = RcuCell::new(census.object());
    Silent::after(move || {
        let held = cell.get();
        cell.clear(); // it is held, and so is not freed at once
        drop(held);
    })
}

#[test]
fn a_barrier_waits_for_the_background() {
    let _own = own();
    let (handle, thread) = rcu::default_domain().background().spawn().expect("there are threads");
    let census = Census::default();
    for _ in 0..MANY / 10 {
        for _ in 0..10 {
            drop(RcuCell::new(census.object()).take()); // wakes the background thread
        }
        rcu::barrier().expect("nothing is in the way");
        assert_eq!(census.alive(), 0);
    }
    handle.stop();
    thread.join().expect("no destructor panics");
}

/// A table adopts no orphans: it may never be written to again.
#[test]
fn a_barrier_finds_what_was_left_while_others_wrote_to_tables() {
    let _own = own();
    let census = Census::default();
    let table: Table<usize, usize> = Table::new();
    let guard = rcu::pin();
    drop(RcuCell::new(census.object()).take()); // left to the domain
    for key in 0..MANY {
        table.insert(key, 0).expect("there is no limit");
        table.remove(&key);
    }
    table.poll();
    drop(guard);
    rcu::barrier().expect("nothing is in the way");
    assert_eq!(census.alive(), 0);
}

/// What a run has taken over from others goes back to the domain when the run ends.
#[test]
fn a_barrier_finds_what_an_abandoned_run_had_adopted() {
    let _own = own();
    let census = Census::default();
    let mut background = rcu::default_domain().background();
    let handle = background.retire_handle();
    let cell = RcuCell::new(census.object());
    let held = cell.protect_owned();
    drop(cell.take()); // left to the domain
    let run = thread::spawn(move || {
        background.run();
        background
    });
    while handle.pending() == 0 {
        thread::yield_now();
    }
    handle.abandon();
    let mut background = run.join().expect("no destructor panics");
    assert_eq!((handle.pending(), census.alive()), (0, 1));
    drop(held);
    rcu::barrier().expect("nothing is in the way");
    assert_eq!(census.alive(), 0);
    background.run(); // it has been abandoned for good
}

/// Nothing is pinned: it is the destructor that takes long.
#[test]
fn a_barrier_that_is_late_for_a_destructor_says_so() {
    let _own = own();
    let slow = Slow::begun();
    let late = rcu::barrier_timeout(Duration::from_millis(2)).unwrap_err();
    assert!(matches!(late, SynchronizeError::Busy { .. }), "{late:?}");
    assert!(late.to_string().contains("`default`"), "{late}");
    drop(slow);
    rcu::barrier().expect("the destructor is through");
}

/// A thread that stays in a destructor, which one of its writes runs, until this is dropped.
struct Slow {
    ends: mpsc::Sender<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Slow {
    fn begun() -> Self {
        let (ends, end) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        let end = Mutex::new(end);
        let slow = Then::new(move || {
            begun.send(()).unwrap();
            let _ = end.lock().unwrap().recv();
        });
        let thread = thread::spawn(|| {
            let cell = RcuCell::new(Some(slow));
            let is_freed = Arc::new(AtomicBool::new(false));
            let tells = Arc::clone(&is_freed);
            cell.set(None);
            RcuCell::new(Then::new(move || tells.store(true, Ordering::Relaxed))).clear();
            while !is_freed.load(Ordering::Relaxed) {
                cell.set(None);
            }
        });
        has_begun.recv().unwrap();
        Self { ends, thread: Some(thread) }
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.ends.send(());
        self.thread.take().unwrap().join().unwrap();
    }
}

/// No object that was retired before a barrier is alive after it, whatever other threads do meanwhile.
#[test]
fn a_barrier_finds_everything_while_others_write_and_end() {
    let _own = own();
    let is_over = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..2)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    on_thread(|| {
                        let cell = RcuCell::new(0);
                        (0..100).for_each(|value| cell.set(value));
                        (0..100).for_each(|value| drop(cell.replace(value)));
                    });
                }
            })
        })
        .collect();
    for _ in 0..if cfg!(miri) { 2 } else { 300 } {
        let census = Census::default();
        let cell = RcuCell::new(census.object());
        for _ in 0..10 {
            cell.set(census.object());
            drop(cell.replace(census.object()));
        }
        drop(cell);
        rcu::barrier().expect("nothing is in the way");
        assert_eq!(census.alive(), 0);
    }
    is_over.store(true, Ordering::Relaxed);
    others.into_iter().for_each(|other| other.join().unwrap());
}

#[test]
fn a_barrier_that_would_wait_for_itself_says_so() {
    let _own = own();
    let guard = rcu::pin();
    assert!(matches!(rcu::barrier(), Err(SynchronizeError::WouldDeadlock { .. })));
    drop(guard);
    let (answer, answers) = mpsc::channel();
    let cell = RcuCell::new(Then::new(move || answer.send(rcu::barrier()).unwrap()));
    cell.clear();
    rcu::barrier().expect("nothing is in the way");
    let answer = answers.recv().unwrap().unwrap_err();
    assert!(matches!(answer, SynchronizeError::Reentrant { .. }));
    assert!(answer.to_string().contains("`default`"), "{answer}");
}

#[test]
fn destructors_that_write_do_not_nest() {
    static DEPTH: AtomicUsize = AtomicUsize::new(0);
    static DEEPEST: AtomicUsize = AtomicUsize::new(0);
    static FREED: AtomicUsize = AtomicUsize::new(0);

    /// Each object retires the next one.
    fn chain(left: usize) -> Then {
        Then::new(move || {
            FREED.fetch_add(1, Ordering::Relaxed);
            DEEPEST.fetch_max(DEPTH.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            if left > 0 {
                RcuCell::new(chain(left - 1)).clear();
            }
            DEPTH.fetch_sub(1, Ordering::Relaxed);
        })
    }

    let _own = own();
    RcuCell::new(chain(MANY)).clear();
    while FREED.load(Ordering::Relaxed) <= MANY {
        rcu::barrier().expect("nothing is in the way");
    }
    assert_eq!((FREED.load(Ordering::Relaxed), DEEPEST.load(Ordering::Relaxed)), (MANY + 1, 1));
}

#[test]
fn a_destructor_that_panics_does_so_in_a_write_and_nothing_is_lost() {
    let _own = own();
    let census = Census::default();
    let (cell, other) = (RcuCell::new(Then::new(|| panic!("as expected"))), RcuCell::new(census.object()));
    let mut panics = 0;
    let mut write = |function: &dyn Fn()| {
        if catch_unwind(AssertUnwindSafe(function)).is_err() {
            panics += 1;
        }
    };
    write(&|| cell.clear());
    for _ in 0..MANY {
        write(&|| other.set(census.object()));
    }
    write(&|| rcu::barrier().expect("nothing is in the way"));
    drop(other);
    assert_eq!((panics, census.alive()), (1, 0));
}

#[test]
fn nothing_is_destroyed_by_a_pin_or_a_load() {
    let _own = own();
    let census = Census::default();
    let _silent = left_by_a_silent_thread(&census);
    let cell = RcuCell::new(1);
    for _ in 0..MANY {
        let guard = rcu::pin();
        assert_eq!(cell.load(&guard), Some(&1));
        drop(guard);
        drop(cell.get());
    }
    assert_eq!(census.alive(), 1);
}

/// A handler may interrupt the reads of its thread at any point, and reads itself.
#[cfg(not(miri))]
#[test]
fn a_signal_handler_may_pin() {
    static CELL: Mutex<Option<&'static RcuCell<Object>>> = Mutex::new(None);
    static LOADS: AtomicUsize = AtomicUsize::new(0);
    static SEEN: std::sync::atomic::AtomicPtr<RcuCell<Object>> =
        std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());

    extern "C" fn load(_signal: libc::c_int) {
        let Some(guard) = rcu::try_pin() else { return };
        // SAFETY: set before the handler, and leaked.
        let cell = unsafe { &*SEEN.load(Ordering::Relaxed) };
        cell.load(&guard).expect("never empty here").verify();
        LOADS.fetch_add(1, Ordering::Relaxed);
    }

    let _own = own();
    let census = Census::default();
    let cell: &'static RcuCell<Object> = for_ever(RcuCell::new(census.object()));
    *CELL.lock().unwrap() = Some(cell);
    SEEN.store(std::ptr::from_ref(cell).cast_mut(), Ordering::Relaxed);
    // SAFETY: the structure is plain data, for which zeros are valid; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = load as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
    }
    let (is_over, is_ready) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
    let reader = {
        let (is_over, is_ready) = (Arc::clone(&is_over), is_ready.0);
        thread::spawn(move || {
            // SAFETY: no preconditions.
            is_ready.send(unsafe { libc::pthread_self() }).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                let outer = rcu::pin();
                let inner = rcu::pin();
                cell.load(&outer).expect("never empty here").verify();
                drop(outer);
                cell.load(&inner).expect("never empty here").verify();
                drop(inner);
                cell.get().expect("never empty here").verify();
            }
        })
    };
    let thread = is_ready.1.recv().unwrap();
    while LOADS.load(Ordering::Relaxed) < 200 && !reader.is_finished() {
        // SAFETY: the thread is alive until it is told to end.
        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR2) }, 0);
        cell.set(census.object());
    }
    is_over.store(true, Ordering::Relaxed);
    reader.join().unwrap();
    cell.clear();
    rcu::barrier().expect("the handler has left nothing");
    assert_eq!(census.alive(), 0);
}

/// Runs `body` in a child that has reset the domain.
#[cfg(not(miri))]
fn in_child_of_fork(body: impl FnOnce()) {
    forked::in_fork(|| {
        // SAFETY: this is the only thread, and nothing was lent by another one.
        unsafe { rcu::reset_after_fork() };
        body();
    });
}

#[cfg(not(miri))]
#[cfg_attr(stillpoint_portable, ignore = "the child may find a lock taken by which threads sleep")]
#[test]
fn a_child_of_a_fork_reads_and_writes_on() {
    let _own = own();
    let census = Census::default();
    let cell: &'static RcuCell<Object> = for_ever(RcuCell::new(census.object()));
    // Another thread keeps everything from being freed, and has an object in its list.
    let guarding = Silent::after({
        let census = census.clone();
        move || {
            cell.set(census.object());
            rcu::pin()
        }
    });
    let own = cell.protect_owned().expect("never empty here");
    forked::in_fork(|| {
        cell.get().expect("never empty here").verify();
        cell.set(census.object());
        // SAFETY: this is the only thread, and nothing was lent by another one.
        unsafe { rcu::reset_after_fork() };
        let before = census.freed();
        cell.set(census.object());
        cell.set(census.object());
        let late = rcu::barrier_timeout(Duration::from_millis(100));
        assert!(matches!(late, Err(SynchronizeError::Pinned { .. })), "{late:?}");
        own.verify(); // it is bound to no thread
        assert!(census.freed() > before);
    });
    own.verify();
    drop(own);
    drop(guarding);
    cell.clear();
    rcu::barrier().expect("the thread has ended, and its guard with it");
    assert_eq!(census.alive(), 0);
}

/// Another thread of the parent has locked its list while the parent forks. The forking thread's list may be locked
/// too, if the other thread has visited it.
#[cfg(not(miri))]
#[test]
fn a_child_of_a_fork_does_not_wait_for_lists_that_nobody_will_unlock() {
    let _own = own();
    let census = Census::default();
    let cell = RcuCell::new(census.object());
    let slow = Slow::begun();
    in_child_of_fork(|| {
        cell.set(census.object());
        rcu::barrier().expect("there is no other thread");
        assert_eq!(census.freed(), 1);
    });
    drop(slow);
}

#[cfg(not(miri))]
#[test]
fn a_child_of_a_fork_writes_on_although_its_own_list_was_locked() {
    let _own = own();
    let census = Census::default();
    let cell = RcuCell::new(census.object());
    let (begun, has_begun) = mpsc::channel();
    let (ends, end) = mpsc::channel::<()>();
    let end = Mutex::new(end);
    // The object is held while it is retired, so another thread frees it.
    let slow = RcuCell::new(Then::new(move || {
        begun.send(()).unwrap();
        let _ = end.lock().unwrap().recv();
    }));
    let guard = rcu::pin();
    slow.clear();
    drop(guard);
    let is_over = Arc::new(AtomicBool::new(false));
    let passes_by = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let cell = RcuCell::new(0);
            while !is_over.load(Ordering::Relaxed) {
                cell.set(1);
            }
        }
    });
    has_begun.recv().unwrap();
    in_child_of_fork(|| {
        while census.freed() < MANY {
            cell.set(census.object());
        }
        rcu::barrier().expect("there is no other thread");
        assert_eq!(census.alive(), 1, "the one in the cell");
    });
    is_over.store(true, Ordering::Relaxed);
    ends.send(()).unwrap();
    passes_by.join().unwrap();
}

/// One thread after the other writes a few times and ends. Each has a share in freeing what all have left: no more waits than a
/// thread that writes all of it may let gather for one fence.
#[cfg(not(miri))]
#[test]
fn threads_that_write_a_few_times_leave_no_more_than_one_that_writes_on() {
    const GATHERED: u64 = 32 * 128;
    let _own = own();
    let cell: &RcuCell<u64> = &RcuCell::new(0);
    let mut most = 0;
    for _ in 0..1_000 {
        thread::scope(|scope| {
            scope.spawn(|| (0..20).for_each(|value| cell.set(value)));
        });
        most = most.max(rcu::default_domain().stats().pending);
    }
    assert!(most <= GATHERED + 512, "{most} of 20000 objects waited");
}

/// Objects that a run of the parent had are lost, and the child does not wait for them.
#[cfg(not(miri))]
#[test]
fn a_child_of_a_fork_does_not_wait_for_what_others_served() {
    let _own = own();
    let (handle, thread) = rcu::default_domain().background().spawn().expect("there are threads");
    let cell = RcuCell::new(1);
    let held = cell.protect_owned();
    handle.retire(cell.take().expect("never empty here")).expect("there is room");
    while rcu::default_domain().stats().pinned == 0 {
        thread::yield_now();
    }
    in_child_of_fork(|| {
        rcu::barrier().expect("the barrier does not wait for a run of the parent");
    });
    drop(held);
    handle.stop();
    thread.join().expect("no destructor panics");
}

/// A function of `update` that writes to its own cell: once is allowed, the second time panics, and nothing else does.
#[test]
fn an_update_that_writes_to_its_own_cell_in_every_run_panics() {
    let _own = own();
    let cell = RcuCell::new(0);
    let (other, reader) = (RcuCell::new(0), rcu::default_domain().reader());
    let kept = RefCell::new(Vec::new());
    let own_writes: [&dyn Fn(); 6] = [
        &|| cell.set(50),
        &|| drop(cell.swap(Some(Box::new(50)))),
        &|| kept.borrow_mut().push(cell.replace(50)),
        &|| {
            cell.clear();
            cell.set(50);
        },
        &|| assert!(cell.update(|_| 50)),
        &|| {
            let found = cell.get();
            assert!(cell.compare_exchange(found.as_deref(), Some(Box::new(1))).is_ok());
            let guard = reader.pin();
            assert!(cell.compare_exchange_in(&guard, cell.load(&guard), Some(Box::new(50))).is_ok());
        },
    ];
    for (how, write) in own_writes.into_iter().enumerate() {
        for times in [1, 2, 1_000_000] {
            cell.set(0);
            let mut runs = 0;
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                cell.update(|old| {
                    runs += 1;
                    other.set(runs);
                    if runs <= times {
                        write();
                    }
                    old + 1
                })
            }));
            assert_eq!((outcome.is_err(), runs), (times > 1, 2), "{how}, {times}");
            assert_eq!(cell.get().as_deref(), Some(if times > 1 { &50 } else { &51 }), "{how}, {times}");
        }
    }
    // Other threads may replace it as often as they like.
    let mut runs = 0;
    assert!(cell.update(|old| {
        runs += 1;
        other.set(runs);
        if runs < 20 {
            thread::scope(|scope| scope.spawn(|| cell.set(60)).join().unwrap());
        }
        old + 1
    }));
    assert_eq!((runs, cell.get().as_deref()), (20, Some(&61)));
}
