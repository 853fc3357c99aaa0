//! loom models of a multicast, on the engine itself: up to five receivers, by up to four threads.
//!
//! `RUSTFLAGS="--cfg stillpoint_loom --cfg stillpoint_busted" cargo test -p stillpoint-multicast --features lab --release --lib models`
//!
//! A thread may have several places here, so that trees with inner nodes need few threads. A function's data are on its
//! initiator's stack until the multicast returns: loom finds a later use.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::operation::Call;
use super::slots::Slot;
use super::{Core, Options, Outcome};
#[cfg(stillpoint_busted)]
use crate::busted::{self, Variant};
use crate::plan::Acknowledgement;
use crate::plan::{Share, Strategy};
use crate::transport::{Polled, Transport};

stillpoint_sys::keep_stacks!();

/// loom's message for two accesses that are not ordered.
#[cfg(stillpoint_busted)]
const UNORDERED: &str = "Causality violation";
/// A model's message for a function that ran too often, or not at all.
const MISCOUNTED: &str = "the function was not run as often as it should be";

/// A model's message for a message in a mailbox whose owner was not notified.
const UNTOLD: &str = "a message was not announced";

/// A model's message for a function that was not dropped.
const KEPT: &str = "the function was not dropped when all had run it";

/// The group of a model, and the places of its receivers, by their numbers in a multicast.
struct World<T = Polled> {
    core: Arc<Core<T>>,
    slots: Vec<NonNull<Slot>>,
    /// Written by each receiver before or in its part, and read by the initiator afterwards.
    written: Vec<UnsafeCell<u32>>,
}

// SAFETY: places live as long as the group; the models check that accesses to `written` are ordered.
unsafe impl<T> Send for World<T> {}
// SAFETY: places live as long as the group; the models check that accesses to `written` are ordered.
unsafe impl<T> Sync for World<T> {}

impl World {
    fn new(receivers: usize) -> Arc<Self> {
        Self::with(Polled, receivers)
    }
}

impl<T: Transport> World<T> {
    fn with(transport: T, receivers: usize) -> Arc<Self> {
        let core = Core::new(transport);
        for number in 0..receivers {
            let slot = core.slots.claim(1, u64::MAX - number as u64);
            slot.set_joins(1);
            slot.mailbox.open();
        }
        let slots =
            core.slots.view().iter().filter(|slot| slot.mailbox.is_open()).map(NonNull::from).collect();
        let written = (0..receivers).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self { core, slots, written })
    }

    /// A place for the calling thread.
    fn own(&self, number: usize) -> &Slot {
        // SAFETY: places live as long as the group.
        let slot = unsafe { self.slots[number].as_ref() };
        slot.hand_over(stillpoint_sys::os::thread_number());
        slot
    }

    fn write(&self, number: usize) {
        // SAFETY: loom reports it when the initiator reads meanwhile.
        self.written[number].with_mut(|written| unsafe { *written += 1 });
    }

    /// Reads what every receiver has written.
    fn read_all(&self) -> u32 {
        // SAFETY: loom reports it when a receiver writes meanwhile.
        self.written.iter().map(|written| written.with(|written| unsafe { *written })).sum()
    }
}

/// Starts a thread of the model.
fn spawn<T: Transport>(
    world: &Arc<World<T>>,
    function: impl FnOnce(&World<T>) + 'static,
) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || function(&world))
}

/// Waits for a message at each of these places, in turn, and leaves.
fn serve<T: Transport>(world: &World<T>, numbers: &[usize]) {
    for &number in numbers {
        let slot = world.own(number);
        while world.core.drain(slot) == 0 {
            assert!(world.core.doze(slot, None));
        }
        world.core.leave(slot);
    }
}

/// The data of a function.
struct Target {
    runs: AtomicUsize,
    alive: UnsafeCell<bool>,
}

/// # Safety
/// The data are a `Target`.
unsafe fn run_target(data: *const ()) {
    // SAFETY: the caller's promise, which the models check.
    let target = unsafe { &*data.cast::<Target>() };
    // SAFETY: loom reports it when the target is ended meanwhile.
    assert!(target.alive.with(|alive| unsafe { *alive }));
    target.runs.fetch_add(1, Ordering::Relaxed);
}

/// # Safety
/// The data are a `Target`.
unsafe fn end_target(data: *const ()) {
    // SAFETY: the caller's promise, which the models check.
    let target = unsafe { &*data.cast::<Target>() };
    // SAFETY: loom reports it if a thread still reads it.
    target.alive.with_mut(|alive| assert!(std::mem::take(unsafe { &mut *alive }), "dropped twice"));
}

fn multicast<T: Transport>(
    world: &World<T>,
    strategy: Strategy,
    acknowledgement: Acknowledgement,
    helps: bool,
) -> Outcome {
    let options = Options { strategy, acknowledgement, helps, traces: false };
    let target = Box::new(Target { runs: AtomicUsize::new(0), alive: UnsafeCell::new(true) });
    // Leaked: loom must find a late use, and not a crash.
    let target: &Target = Box::leak(target);
    let call =
        Call { function: run_target, data: (&raw const *target).cast(), release: None, is_resumable: true };
    // SAFETY: the target lives for ever.
    let outcome = unsafe { world.core.run(options, call, None) };
    // SAFETY: loom reports it if a thread still reads it.
    target.alive.with_mut(|alive| unsafe { *alive = false });
    let expected = outcome.tally.receivers - outcome.tally.adopted + u32::from(outcome.tally.ran_here);
    assert_eq!(target.runs.load(Ordering::Relaxed), expected as usize, "{MISCOUNTED}");
    outcome
}

fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
    stillpoint_sys::busted::assert_reached();
}

fn chain() -> Strategy {
    Strategy::Split(Share::percent(99).expect("from 1 to 99"))
}

/// Three receivers, each on its own thread; one forwards to another. No help, and all threads sleep.
#[test]
fn a_tree_of_four() {
    for &acknowledgement in Acknowledgement::ALL {
        explore(1, move || {
            let world = World::new(3);
            let threads: Vec<_> =
                (0..3).map(|number| spawn(&world, move |world| serve(world, &[number]))).collect();
            let outcome = multicast(&world, Strategy::Tree, acknowledgement, false);
            assert_eq!(outcome.tally.receivers, 3);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

/// The same with two threads, and with help.
#[test]
fn the_initiator_helps() {
    for (&acknowledgement, preemptions) in Acknowledgement::ALL.iter().zip([2, 1]) {
        explore(preemptions, move || {
            let world = World::new(3);
            let inner = spawn(&world, |world| serve(world, &[1]));
            let leaves = spawn(&world, |world| serve(world, &[0, 2]));
            let outcome = multicast(&world, Strategy::Tree, acknowledgement, true);
            assert_eq!(outcome.tally.receivers, 3);
            inner.join().unwrap();
            leaves.join().unwrap();
        });
    }
}

/// The initiator helps with a range that another thread has delegated.
#[test]
fn the_initiator_helps_far_down() {
    explore(1, || {
        let world = World::new(5);
        let upper = spawn(&world, |world| serve(world, &[1, 0, 2]));
        let lower = spawn(&world, |world| serve(world, &[3, 4]));
        multicast(&world, chain(), Acknowledgement::Combining, true);
        upper.join().unwrap();
        lower.join().unwrap();
    });
}

/// A receiver's accesses before it left, or in the function, come before the return.
#[test]
fn receivers_leave() {
    for &acknowledgement in Acknowledgement::ALL {
        explore(2, move || {
            let world = World::new(3);
            let inner = spawn(&world, |world| {
                world.write(1);
                world.core.leave(world.own(1));
            });
            let leaves = spawn(&world, |world| {
                for number in [0, 2] {
                    world.write(number);
                    let slot = world.own(number);
                    world.core.drain(slot);
                    world.core.leave(slot);
                }
            });
            multicast(&world, Strategy::Tree, acknowledgement, false);
            // Every receiver has left or acknowledged.
            assert_eq!(world.read_all(), 3);
            inner.join().unwrap();
            leaves.join().unwrap();
        });
    }
}

/// Either the initiator finds a thread that joins, or the thread sees what the initiator stored before.
#[test]
fn a_thread_joins() {
    explore(3, || {
        let core = Core::new(Polled);
        let stored = Arc::new(AtomicUsize::new(0));
        let joining = {
            let (core, stored) = (Arc::clone(&core), Arc::clone(&stored));
            thread::spawn(move || {
                core.join();
                stored.load(Ordering::Relaxed)
            })
        };
        stored.store(1, Ordering::Relaxed);
        let call = Call { function: |_| {}, data: std::ptr::null(), release: None, is_resumable: false };
        // The initiator waits for no receiver. SAFETY: the function needs nothing.
        let outcome = unsafe { core.run(Options::default(), call, Some(Instant::now())) };
        let seen = joining.join().unwrap();
        assert!(outcome.tally.receivers == 1 || seen == 1, "{MISCOUNTED}");
    });
}

/// Two threads multicast to each other at the same time, and to a third one, one operation after the other.
#[test]
fn initiators_serve_each_other() {
    explore(2, || {
        let world = World::new(2);
        let other = spawn(&world, |world| {
            let slot = world.own(0);
            multicast(world, Strategy::Tree, Acknowledgement::Combining, false);
            world.core.leave(slot);
        });
        let slot = world.own(1);
        multicast(&world, Strategy::Tree, Acknowledgement::Combining, false);
        world.core.leave(slot);
        other.join().unwrap();
    });
}

/// A transport for threads that do not poll: as with signals, only the sender that posts to an empty mailbox notifies.
struct Told(AtomicUsize);

impl Transport for Told {
    const CATCHES: bool = false;

    fn notify(&self, _tid: u32) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn alone<R>(&self, function: impl FnOnce() -> R) -> R {
        function()
    }
}

/// A sleeping initiator gets a message together with the last acknowledgement: the message is processed before the return, or
/// announced.
#[test]
fn an_initiator_wakes_up_with_mail() {
    explore(2, || {
        let core = Core::new(Told(AtomicUsize::new(0)));
        let call = Call { function: |_| {}, data: std::ptr::null(), release: None, is_resumable: false };
        let options = Options { strategy: Strategy::Flat, helps: false, ..Options::default() };
        let there = Arc::new(AtomicUsize::new(0));
        let own = core.join();
        let other = {
            let (core, there) = (Arc::clone(&core), Arc::clone(&there));
            thread::spawn(move || {
                let slot = core.join();
                there.store(1, Ordering::Release);
                // A message to the initiator; this thread does not wait for it.
                // SAFETY: the function needs nothing.
                unsafe { core.run(options, call, Some(Instant::now())) };
                // SAFETY: places live as long as their group.
                core.leave(unsafe { slot.as_ref() });
            })
        };
        while there.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        // Later notifications are for the one message to this thread, or by this thread.
        let options = Options { strategy: Strategy::Flat, helps: false, ..Options::default() };
        // SAFETY: the function needs nothing.
        let tally = unsafe { core.run(options, call, None) }.tally;
        let sent = (tally.sends - tally.adopted) as usize;
        other.join().unwrap();
        // SAFETY: places live as long as their group.
        let own = unsafe { own.as_ref() };
        let told = core.transport.0.load(Ordering::Relaxed);
        assert!(own.mailbox.is_empty() || told > sent, "{UNTOLD}");
        core.leave(own);
    });
}

/// An operation goes from one initiator to the next.
#[test]
fn operations_are_used_again() {
    explore(2, || {
        let world = World::new(1);
        let other = spawn(&world, |world| {
            multicast(world, Strategy::Flat, Acknowledgement::Combining, false);
        });
        let receiver = spawn(&world, |world| {
            let slot = world.own(0);
            world.core.drain(slot);
            world.core.leave(slot);
        });
        multicast(&world, Strategy::Flat, Acknowledgement::Combining, false);
        other.join().unwrap();
        receiver.join().unwrap();
    });
}

/// An initiator gives up, and its operation is used again when the receiver has processed its message: where receivers end nothing.
#[test]
fn an_operation_lingers() {
    explore(1, || {
        let world = World::with(Told(AtomicUsize::new(0)), 3);
        let receivers = spawn(&world, |world| serve(world, &[1, 0, 2]));
        let options = Options {
            strategy: Strategy::Tree,
            acknowledgement: Acknowledgement::Combining,
            helps: true,
            traces: false,
        };
        let target = Target { runs: AtomicUsize::new(0), alive: UnsafeCell::new(true) };
        let target: &Target = Box::leak(Box::new(target));
        let call = Call {
            function: run_target,
            data: (&raw const *target).cast(),
            release: None,
            is_resumable: true,
        };
        // SAFETY: the target lives for ever.
        let outcome = unsafe { world.core.run(options, call, Some(Instant::now())) };
        // Perhaps with the same operation. There may be no receiver left.
        multicast(&world, Strategy::Flat, Acknowledgement::Combining, false);
        receivers.join().unwrap();
        assert_eq!(target.runs.load(Ordering::Relaxed), outcome.tally.receivers as usize, "{MISCOUNTED}");
    });
}

/// An initiator gives up, another thread may resume its operation and give up as well, and no multicast follows: the last receiver
/// drops the function, or one of these two.
#[test]
fn what_was_given_up_is_dropped() {
    for &acknowledgement in Acknowledgement::ALL {
        explore(2, move || {
            let world = World::new(2);
            let receivers = spawn(&world, |world| serve(world, &[0, 1]));
            let other = spawn(&world, |world| _ = world.core.resume(Some(Instant::now()), |_| None));
            let options = Options { strategy: Strategy::Flat, acknowledgement, helps: false, traces: false };
            let target = Target { runs: AtomicUsize::new(0), alive: UnsafeCell::new(true) };
            let target: &Target = Box::leak(Box::new(target));
            let data = (&raw const *target).cast();
            let call = Call { function: run_target, data, release: Some(end_target), is_resumable: true };
            // SAFETY: the target lives for ever.
            unsafe { world.core.run(options, call, Some(Instant::now())) };
            other.join().unwrap();
            receivers.join().unwrap();
            // SAFETY: all threads have ended.
            assert!(!target.alive.with(|alive| unsafe { *alive }), "{KEPT}");
        });
    }
}

/// A thread waits in the place of an initiator that has given up, and then starts another multicast, perhaps with the same
/// operation.
#[test]
fn an_operation_is_resumed() {
    for &acknowledgement in Acknowledgement::ALL {
        explore(2, move || {
            let world = World::new(2);
            let receivers = spawn(&world, |world| {
                for number in [1, 0] {
                    world.write(number);
                    serve(world, &[number]);
                }
            });
            let options = Options { strategy: chain(), acknowledgement, helps: false, traces: false };
            let target = Target { runs: AtomicUsize::new(0), alive: UnsafeCell::new(true) };
            let target: &Target = Box::leak(Box::new(target));
            let call = Call {
                function: run_target,
                data: (&raw const *target).cast(),
                release: None,
                is_resumable: true,
            };
            let given_up = Arc::new(AtomicUsize::new(0));
            let other = {
                let given_up = Arc::clone(&given_up);
                spawn(&world, move |world| {
                    // Relaxed: it must not order the two threads.
                    while given_up.load(Ordering::Relaxed) == 0 {
                        thread::yield_now();
                    }
                    if let Some(outcome) = world.core.resume(None, |_| None) {
                        // SAFETY: loom reports it if a thread still reads it.
                        target.alive.with_mut(|alive| unsafe { *alive = false });
                        let runs = target.runs.load(Ordering::Relaxed);
                        assert_eq!(runs, outcome.tally.receivers as usize, "{MISCOUNTED}");
                        assert_eq!(world.read_all(), 2);
                        multicast(world, Strategy::Flat, Acknowledgement::Combining, false);
                    }
                })
            };
            // SAFETY: the target lives for ever.
            unsafe { world.core.run(options, call, Some(Instant::now())) };
            given_up.store(1, Ordering::Relaxed);
            other.join().unwrap();
            receivers.join().unwrap();
        });
    }
}

/// Which model catches which variant.
#[cfg(stillpoint_busted)]
const CAUGHT: &[(Variant, &str)] = &[
    (Variant::PostRelaxed, "a_tree_of_four"),
    (Variant::TakeRelaxed, "a_tree_of_four"),
    (Variant::ClosedRelaxed, "receivers_leave"),
    (Variant::CloseRelaxed, "receivers_leave"),
    (Variant::JoinNoFence, "a_thread_joins"),
    (Variant::CountLate, "a_tree_of_four"),
    (Variant::AckRelaxed, "a_tree_of_four"),
    (Variant::AckEarly, "a_tree_of_four"),
    (Variant::DoneRelaxed, "a_tree_of_four"),
    (Variant::HelpUnclaimed, "the_initiator_helps"),
    (Variant::HelpRelaxed, "the_initiator_helps_far_down"),
    (Variant::HelpUnderHelped, "the_initiator_helps"),
    (Variant::NotAdopted, "receivers_leave"),
    (Variant::LeaveUndrained, "receivers_leave"),
    (Variant::SleepUnmarked, "a_tree_of_four"),
    (Variant::RouseUndrained, "an_initiator_wakes_up_with_mail"),
    (Variant::FinishRelaxed, "operations_are_used_again"),
    (Variant::ResumeRelaxed, "an_operation_is_resumed"),
    (Variant::ResumeUncounted, "an_operation_is_resumed"),
    (Variant::GiveBackRelaxed, "receivers_leave"),
    (Variant::PassedRelaxed, "receivers_leave"),
    (Variant::EmptyRelaxed, "receivers_leave"),
    (Variant::LingerRelaxed, "an_operation_lingers"),
    (Variant::LingerRelaxed, "what_was_given_up_is_dropped"),
    (Variant::SettleUnfenced, "what_was_given_up_is_dropped"),
];

#[cfg(stillpoint_busted)]
#[test]
fn every_variant_is_caught_by_its_model() {
    let signs = || vec![UNORDERED, MISCOUNTED, UNTOLD, KEPT, "deadlock"];
    busted::assert_caught("engine::models", CAUGHT.iter().map(|&(variant, model)| (variant, model, signs())));
}
