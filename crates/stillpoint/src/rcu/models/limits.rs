//! Limits: what waits never exceeds them, and room that is free again is no longer in use.

use std::sync::atomic::{AtomicBool as PlainBool, Ordering as PlainOrdering};
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::Arc as LoomArc;
use loom::thread;

use super::{explore, spawn, Object, Shared, EVERY, MODE, UNORDERED};
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::queue::account::Account;
use crate::rcu::engine::queue::account::Limits;
use crate::rcu::engine::queue::channel::{Channel, CLOSED};
use crate::rcu::engine::queue::retire_list::Full;
use crate::rcu::limits::WhenFull;
use crate::rcu::{BackgroundReclaimer, Domain, RetireHandle, Retired};

/// Memory for one object. The holder of the domain's only room uses it exclusively.
struct Place {
    memory: UnsafeCell<u32>,
    step: AtomicUsize,
}

// SAFETY: the models check that its uses do not overlap.
unsafe impl Sync for Place {}
// SAFETY: the models check that its uses do not overlap.
unsafe impl Send for Place {}

impl Place {
    fn new() -> Arc<Self> {
        Arc::new(Self { memory: UnsafeCell::new(0), step: AtomicUsize::new(0) })
    }

    fn touch(&self) {
        // Relaxed: a step at which loom lets the other thread run, since both threads change this value. It
        // orders nothing.
        self.step.fetch_add(1, Ordering::Relaxed);
        // SAFETY: loom reports it if the room does not exclude others.
        self.memory.with_mut(|place| unsafe { *place += 1 });
    }
}

/// An object that uses the place when it is dropped.
struct Tenant(Arc<Place>);

impl Drop for Tenant {
    fn drop(&mut self) {
        self.0.touch();
    }
}

fn room_for_one() -> Account {
    Account::new(Limits { objects: 1, ..Limits::NONE }).expect("there is a limit")
}

#[test]
fn room_is_reserved_once() {
    explore(EVERY, || {
        let shared = LoomArc::new((room_for_one(), Place::new()));
        let enters = |(account, place): &(Account, Arc<Place>)| {
            if account.reserve(0) {
                place.touch();
                account.give_back(0);
            }
        };
        let other = LoomArc::clone(&shared);
        let other = thread::spawn(move || enters(&other));
        enters(&shared);
        other.join().unwrap();
        assert_eq!(shared.0.objects.taken(), Some(0));
    });
}

/// An object charged beyond the limit excludes others, and keeps the order with threads that gave room back before.
#[test]
fn room_is_charged_beyond_the_limit() {
    explore(EVERY, || {
        let shared = LoomArc::new((room_for_one(), Place::new()));
        assert!(shared.0.reserve(0));
        let other = LoomArc::clone(&shared);
        let other = thread::spawn(move || {
            other.1.touch();
            other.0.give_back(0);
            other.0.charge(0);
            other.0.give_back(0);
        });
        if shared.0.reserve(0) {
            shared.1.touch();
        }
        other.join().unwrap();
    });
}

/// The engine gives room back after the destructor, and the thread that gets it comes after that.
#[test]
fn an_object_has_its_room_until_it_is_freed() {
    explore(3, || {
        let domain = Domain::builder()
            .fence(MODE.get())
            .max_pending(1)
            .build()
            .expect("no fence mode is refused in a model");
        let place = Place::new();
        let retired = |place: &Arc<Place>| -> Retired<Tenant> {
            domain.cell(Tenant(Arc::clone(place))).take().expect("the cell is full")
        };
        let mut first = domain.reclaimer();
        first.retire(retired(&place)).expect("there is room");
        let (next, other) = (retired(&place), domain.clone());
        let other = thread::spawn(move || {
            let mut second = other.reclaimer();
            match second.retire(next) {
                Ok(()) => assert_eq!(second.poll(), 1),
                // Kept, as its destructor uses the place.
                Err(error) => std::mem::forget(error.into_inner()),
            }
        });
        first.poll();
        other.join().unwrap();
    });
}

/// An object is counted once, also while it moves.
#[test]
fn what_a_background_reclaimer_takes_in_is_counted_throughout() {
    explore(EVERY, || {
        let shared = Shared::<2>::new();
        let mut background = shared.domain.reclaimer_builder().max_pending(1).build_background();
        let handle = background.retire_handle();
        // A QSBR reader that never reports: nothing is freed.
        let reader = shared.domain.qsbr_reader();
        handle.retire(shared.cells[0].replace(Object::new()).unwrap()).expect("there is room for one");
        let submits = spawn(&shared, move |shared| {
            let next = shared.cells[1].replace(Object::new()).unwrap();
            assert!(handle.retire(next).is_err(), "{UNORDERED}: more waits than the limit allows");
        });
        background.take_in();
        submits.join().unwrap();
        drop(reader);
    });
}

/// A background reclaimer that is full of one object, with a handle that assists.
fn full(shared: &Shared<2>) -> (BackgroundReclaimer, RetireHandle) {
    let builder = shared.domain.reclaimer_builder().max_pending(1).when_full(WhenFull::Reclaim);
    let background = builder.build_background();
    let handle = background.retire_handle();
    handle.retire(shared.cells[0].replace(Object::new()).unwrap()).expect("there is room for one");
    (background, handle)
}

/// A retire handle that assists takes what the reclaimer would have freed. The reclaimer returns nevertheless, but not
/// before that is freed.
#[test]
fn a_handle_assists_while_the_reclaimer_stops() {
    explore(3, || {
        let shared = Shared::<2>::new();
        let (mut background, handle) = full(&shared);
        let helper = handle.clone();
        let submits = spawn(&shared, move |shared| {
            let next = shared.cells[1].replace(Object::new()).unwrap();
            // Handed back if the reclaimer has taken in the first object and not freed it yet.
            helper.retire(next).map_err(|error| std::mem::forget(error.into_inner())).ok();
        });
        handle.stop();
        background.run();
        let freed = shared.domain.stats().freed;
        assert!(freed >= 1, "{UNORDERED}: the run has ended, and a handle still has the object");
        submits.join().unwrap();
    });
}

/// A channel without limits.
fn channel(shared: &Shared<0>) -> Arc<Channel> {
    Arc::new(Channel::new(Arc::clone(shared.domain.core()), Limits::NONE))
}

fn submit(channel: &Channel, garbage: Garbage) {
    channel.charge(garbage.bytes());
    channel.submit(garbage);
}

/// Who finds nothing left comes after the destructors, also of a turn that it has not seen.
#[test]
fn an_empty_account_comes_after_the_destructors() {
    explore(EVERY, || {
        let shared = Shared::<0>::new();
        let channel = channel(&shared);
        let place = Place::new();
        let tenant = Tenant(Arc::clone(&place));
        submit(&channel, Garbage::callback(move || drop(tenant)));
        let assistant = Arc::clone(&channel);
        let assists = spawn(&shared, move |_| _ = assistant.assist(Full::Queue));
        if channel.pending() == 0 && !channel.is_in_turn() {
            place.touch();
        }
        assists.join().unwrap();
    });
}

/// What a destructor submits in the turn of a handle that assists is not overlooked, even if another turn takes it: otherwise
/// `run` would return.
#[test]
fn a_destructor_submits_while_somebody_looks_for_what_is_left() {
    explore(5, || {
        let shared = Shared::<0>::new();
        let channel = channel(&shared);
        // Not modelled: set by a destructor, and read by the thread that finds nothing left.
        let is_done = Arc::new(PlainBool::new(false));
        let (again, done) = (Arc::clone(&channel), Arc::clone(&is_done));
        let last = move || done.store(true, PlainOrdering::SeqCst);
        submit(&channel, Garbage::callback(move || submit(&again, Garbage::callback(last))));
        let assistant = Arc::clone(&channel);
        let assists = spawn(&shared, move |_| {
            assistant.assist(Full::Queue);
            assistant.assist(Full::Queue);
        });
        if channel.pending() == 0 {
            let is_done = is_done.load(PlainOrdering::SeqCst);
            assert!(is_done, "{UNORDERED}: what a destructor has submitted was overlooked");
        }
        assists.join().unwrap();
    });
}

/// What is submitted while the reclaimer is dropped is left to the domain, not kept in the channel. The submission notifies no thread,
/// as the reclaimer waits for more.
#[test]
fn a_handle_submits_while_the_reclaimer_is_dropped() {
    explore(EVERY, || {
        let shared = Shared::<0>::new();
        let channel = channel(&shared);
        channel.set_enough(2);
        let submitting = Arc::clone(&channel);
        let submits = spawn(&shared, move |_| submit(&submitting, Garbage::callback(|| ())));
        channel.advance(CLOSED);
        channel.pass_on();
        submits.join().unwrap();
        let is_left = shared.domain.core().has_orphans();
        assert!(is_left, "{UNORDERED}: the channel keeps an object that should be left to the domain");
    });
}

/// What a handle that assists could not free when the reclaimer is dropped is left to the domain, not kept by the handle.
#[test]
fn a_handle_assists_while_the_reclaimer_is_dropped() {
    explore(3, || {
        let shared = Shared::<2>::new();
        let (background, handle) = full(&shared);
        let reader = shared.domain.qsbr_reader();
        let helper = handle.clone();
        let submits = spawn(&shared, move |shared| {
            let next = shared.cells[1].replace(Object::new()).unwrap();
            drop(helper.retire(next));
        });
        drop(background);
        submits.join().unwrap();
        drop(reader);
        let freed = shared.domain.reclaimer().poll();
        assert_eq!(freed, 2, "{UNORDERED}: the handle keeps an object that should be left to the domain");
        drop(handle);
    });
}
