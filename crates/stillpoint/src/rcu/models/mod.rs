//! loom models of the protocols, on the engine itself.
//!
//! `RUSTFLAGS="--cfg stillpoint_loom --cfg stillpoint_busted" cargo test -p stillpoint --release --lib models`
//!
//! loom runs each model through every interleaving (up to a bound of preemptions), and through every value that each
//! load may return in the C++20 memory model. An [`Object`] reports each access to loom, so loom finds a free that
//! does not come after a read even if the read returned nothing bad.
//!
//! # When a model fails
//! - `Causality violation`: two threads accessed one object, at least one of them wrote, and nothing orders the two accesses. The write
//!   is nearly always the destructor. With `LOOM_LOCATION=1`, the message has the line and the thread of both accesses: thread 0
//!   runs the model itself, the others are numbered as they were spawned. With `RUST_BACKTRACE=1`, it shows how the thread of the later
//!   access came there. (`LOOM_LOG` and `LOOM_CHECKPOINT_FILE` have no effect here.)
//! - `deadlock`: every thread waits, so a wake-up was lost.
//! - Other messages are assertions of the model.
//! - An abort with some sixty frames: a destructor failed while the first failure unwound. Only the first message counts.
//!
//! The comment of the model says what it tests. The table in `docs/design/rcu.md`, "How it is checked", has the step of the argument
//! for each model, and `orders.rs` has the orderings of each step.

mod boost;
mod callbacks;
mod controls;
mod directory;
mod futures;
mod handover;
mod limits;
mod links;
mod objects;
mod regions;
mod registration;
mod stalls;
mod tokens;
mod vouching;

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::mpsc;
use loom::thread;

use stillpoint_sys::quarantine::Quarantine;
use stillpoint_sys::stacks;

use super::{Domain, RcuCell, Reader, Region};
use crate::fence::Mode;

/// Broken variants read freed objects.
#[global_allocator]
static QUARANTINE: Quarantine = Quarantine::new();

stillpoint_sys::keep_stacks!();

/// loom's message when two accesses are not ordered.
const UNORDERED: &str = "Causality violation";

/// Contents of a cell that loom watches. The [`Quarantine`] recognises objects by this alignment.
#[repr(align(256))]
struct Object {
    value: UnsafeCell<u32>,
}

// SAFETY: only `new` and `drop` write `value`. The models check that both are ordered with every
// read.
unsafe impl Sync for Object {}
// SAFETY: the models check that `drop` is ordered with every other access.
unsafe impl Send for Object {}

impl Object {
    const ALIVE: u32 = 7;
    const FREED: u32 = 13;

    #[track_caller]
    fn new() -> Self {
        let value = UnsafeCell::new(0);
        // SAFETY: not shared yet.
        value.with_mut(|value| unsafe { *value = Self::ALIVE });
        Self { value }
    }

    #[track_caller]
    fn read(&self) {
        // SAFETY: the protocol under test keeps the object alive; otherwise loom reports it.
        let value = self.value.with(|value| unsafe { *value });
        assert_eq!(value, Self::ALIVE, "{UNORDERED}: an object was read after its free");
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the protocol under test excludes other accesses; otherwise loom reports it.
        self.value.with_mut(|value| unsafe { *value = Self::FREED });
    }
}

/// No bound.
const EVERY: usize = usize::MAX;

/// Runs `model` in both fence modes, through the executions that loom finds with at most `preemptions` each (at most two in
/// the symmetric mode).
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(model);
    for (mode, preemptions) in [(Mode::Asymmetric, preemptions), (Mode::Symmetric, preemptions.min(2))] {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = (preemptions != EVERY).then_some(preemptions);
        builder.max_branches = 20_000;
        let model = Arc::clone(&model);
        builder.check(move || {
            MODE.set(mode);
            model();
        });
    }
    stillpoint_sys::busted::assert_reached();
}

std::thread_local! {
    /// The fence mode of the model's domains: loom runs all threads of a model on one thread of the system.
    static MODE: Cell<Mode> = const { Cell::new(Mode::Asymmetric) };
}

fn domain() -> Domain {
    Domain::builder().fence(MODE.get()).build().expect("no fence mode is refused in a model")
}

/// A domain with some cells, which the threads of a model share.
struct Shared<const CELLS: usize> {
    cells: [RcuCell<Object>; CELLS],
    domain: Domain,
}

impl<const CELLS: usize> Shared<CELLS> {
    fn new() -> Arc<Self> {
        let domain = domain();
        Arc::new(Self { cells: std::array::from_fn(|_| domain.cell(Object::new())), domain })
    }

    /// Replaces the object of each cell in turn, with a poll after each, and leaves the rest to the domain.
    fn replace_each(&self) {
        let mut reclaimer = self.domain.reclaimer();
        for cell in &self.cells {
            let old = cell.replace(Object::new()).expect("never empty");
            reclaimer.retire(old).expect("there is room");
            reclaimer.poll();
        }
    }

    /// Unlinks the object of a cell, retires it, polls `polls` times, and leaves the rest to the domain.
    fn retire(&self, cell: usize, polls: usize) {
        let mut reclaimer = self.domain.reclaimer();
        let old = self.cells[cell].take().expect("only this thread takes it");
        reclaimer.retire(old).expect("there is room");
        (0..polls).for_each(|_| _ = reclaimer.poll());
    }

    /// Reads the object of a cell, if it is still linked.
    fn protect_and_read(&self, reader: &Reader, cell: usize) {
        if let Some(object) = self.cells[cell].protect(reader) {
            object.read();
        }
    }

    /// As `protect_and_read`, in a region.
    fn read_in(&self, region: &impl Region, cell: usize) {
        if let Some(object) = self.cells[cell].load(region) {
            object.read();
        }
    }
}

/// Explores a model of two threads: one that is spawned runs `read`, and this one runs `write`.
fn race<const CELLS: usize>(
    preemptions: usize,
    read: impl Fn(&Shared<CELLS>) + Send + Sync + Copy + 'static,
    write: impl Fn(&Shared<CELLS>) + Send + Sync + Copy + 'static,
) {
    race_by(preemptions, move |shared| spawn(shared, read), write);
}

/// As [`race`], with the reader of [`spawn_reader`].
fn race_reader<const CELLS: usize>(
    preemptions: usize,
    read: impl Fn(&Shared<CELLS>, Reader) + Send + Sync + Copy + 'static,
    write: impl Fn(&Shared<CELLS>) + Send + Sync + Copy + 'static,
) {
    race_by(preemptions, move |shared| spawn_reader(shared, read), write);
}

/// As [`race`], with the reader of [`spawn_away`].
fn race_away<const CELLS: usize>(
    preemptions: usize,
    read: impl Fn(&Shared<CELLS>, Reader) + Send + Sync + Copy + 'static,
    write: impl Fn(&Shared<CELLS>) + Send + Sync + Copy + 'static,
) {
    race_by(preemptions, move |shared| spawn_away(shared, read), write);
}

fn race_by<const CELLS: usize>(
    preemptions: usize,
    start: impl Fn(&Arc<Shared<CELLS>>) -> thread::JoinHandle<()> + Send + Sync + 'static,
    write: impl Fn(&Shared<CELLS>) + Send + Sync + 'static,
) {
    explore(preemptions, move || {
        let shared = Shared::new();
        let reader = start(&shared);
        write(&shared);
        reader.join().unwrap();
    });
}

/// Runs `function` on a thread of the model.
fn spawn<const CELLS: usize>(
    shared: &Arc<Shared<CELLS>>,
    function: impl FnOnce(&Shared<CELLS>) + 'static,
) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || function(&shared))
}

/// Without [`keep_stacks`](stillpoint_sys::keep_stacks), or if loom asks for its stacks in another way, the models take twice as long.
#[test]
fn a_thread_has_the_stack_of_an_earlier_execution() {
    static EXECUTIONS: AtomicUsize = AtomicUsize::new(0);
    let before = stacks::mapped();
    loom::model(|| {
        EXECUTIONS.fetch_add(1, Relaxed);
        let word = Arc::new(loom::sync::atomic::AtomicU32::new(0));
        let other = Arc::clone(&word);
        let other = thread::spawn(move || other.store(1, Relaxed));
        word.store(2, Relaxed);
        other.join().unwrap();
    });
    assert!(EXECUTIONS.load(Relaxed) > 1);
    assert_eq!(stacks::mapped() - before, 2, "one for each thread of an execution");
}

/// As [`spawn`], with a reader that has had a region: when this returns, the reader vouches for the newest token. So what `function`
/// does first comes after no fence, neither that of a registration nor that of a return.
fn spawn_reader<const CELLS: usize>(
    shared: &Arc<Shared<CELLS>>,
    function: impl FnOnce(&Shared<CELLS>, Reader) + 'static,
) -> thread::JoinHandle<()> {
    spawn_after(shared, |reader| drop(reader.pin()), function)
}

/// As [`spawn_reader`], with a reader that is away.
fn spawn_away<const CELLS: usize>(
    shared: &Arc<Shared<CELLS>>,
    function: impl FnOnce(&Shared<CELLS>, Reader) + 'static,
) -> thread::JoinHandle<()> {
    let goes_away = |reader: &Reader| {
        drop(reader.pin());
        assert!(reader.offline());
    };
    spawn_after(shared, goes_away, function)
}

fn spawn_after<const CELLS: usize>(
    shared: &Arc<Shared<CELLS>>,
    first: impl FnOnce(&Reader) + 'static,
    function: impl FnOnce(&Shared<CELLS>, Reader) + 'static,
) -> thread::JoinHandle<()> {
    // Two channels: a thread that goes on here would have to be preempted.
    let ((is_ready, wait), (go, begin)) = (mpsc::channel(), mpsc::channel());
    let thread = spawn(shared, move |shared| {
        let reader = shared.domain.reader();
        first(&reader);
        is_ready.send(()).expect("it waits");
        begin.recv().expect("it is sent");
        function(shared, reader);
    });
    wait.recv().expect("it is sent");
    go.send(()).expect("it waits");
    thread
}
