//! Callbacks: any thread pushes them; the serving thread calls them.

use std::ptr::NonNull;

use loom::sync::Arc as LoomArc;
use loom::thread;

use super::{explore, spawn, Object, Shared, EVERY, UNORDERED};
use crate::rcu::engine::queue::callbacks::node::{Callback, Chain, Lane, Node};
use crate::rcu::engine::queue::callbacks::Callbacks;

/// An object with a callback that frees it.
#[repr(C)]
struct Item {
    callback: Callback,
    object: Object,
}

unsafe extern "C-unwind" fn free(callback: NonNull<Callback>) {
    // SAFETY: it is the first field of an item that was leaked. The quarantine keeps its memory for a while, since loom does not
    // notice a use of a freed atomic.
    let item = unsafe { Box::from_raw(callback.cast::<Item>().as_ptr()) };
    item.object.read();
}

fn item() -> NonNull<Callback> {
    NonNull::from(Box::leak(Box::new(Item { callback: Callback::new(), object: Object::new() }))).cast()
}

fn push_item(queue: &Callbacks) {
    // SAFETY: the item is freed by its callback.
    unsafe { queue.push(item(), free) };
}

fn call_the_rest(queue: &Callbacks) {
    while queue.pending() > 0 {
        queue.poll(usize::MAX);
    }
}

fn pin_and_read(shared: &Shared<1>) {
    let reader = shared.domain.reader();
    shared.read_in(&reader.pin(), 0);
}

/// A queue that the threads of a model share.
fn queue<const CELLS: usize>(shared: &Shared<CELLS>) -> LoomArc<Callbacks> {
    LoomArc::new(Callbacks::new(std::sync::Arc::clone(shared.domain.core()), None))
}

/// A thread that takes a node comes after everything that was done with it, and the thread that linked the next node to it does
/// not use it any more.
#[test]
fn a_lane_hands_over() {
    explore(EVERY, || {
        let lane = LoomArc::new(Lane::default());
        // SAFETY: the node is new, and freed once.
        let push = |lane: &Lane| lane.push(unsafe { Node::prepare(item(), free) });
        let other = LoomArc::clone(&lane);
        let pusher = thread::spawn(move || push(&other));
        push(&lane);
        let mut called = call_all(lane.take());
        pusher.join().unwrap();
        called.0 += call_all(called.1).0;
        called.0 += call_all(lane.take()).0;
        assert_eq!(called.0, 2, "{UNORDERED}: a callback was lost");
    });
}

/// Calls the callbacks of a chain up to the first gap. Returns their number, and the rest.
fn call_all(mut chain: Option<Chain>) -> (usize, Option<Chain>) {
    let mut called = 0;
    while let Some(Ok((node, rest))) = chain.map(Chain::pop) {
        // SAFETY: no reader has access to it.
        unsafe { node.call() };
        chain = rest;
        called += 1;
    }
    (called, chain)
}

/// A callback is called when no reader can hold what was unlinked before its push.
#[test]
fn a_callback_waits_for_readers() {
    explore(2, || {
        let shared = Shared::<1>::new();
        let queue = queue(&shared);
        push_item(&queue); // the first poll has something to take
        let reader = spawn(&shared, pin_and_read);
        let pushing = LoomArc::clone(&queue);
        let writer = spawn(&shared, move |shared| defer_free(shared, &pushing));
        queue.poll(usize::MAX);
        writer.join().unwrap();
        queue.poll(usize::MAX);
        reader.join().unwrap();
        call_the_rest(&queue);
    });
}

/// Unlinks what is in the last cell, and frees it in a callback.
fn defer_free<const CELLS: usize>(shared: &Shared<CELLS>, queue: &Callbacks) {
    #[repr(C)]
    struct Unlinked {
        callback: Callback,
        object: Box<Object>,
    }

    unsafe extern "C-unwind" fn free(callback: NonNull<Callback>) {
        // SAFETY: it is the first field of a value that was leaked.
        drop(unsafe { Box::from_raw(callback.cast::<Unlinked>().as_ptr()) });
    }

    let old = shared.cells[CELLS - 1].take().expect("never empty");
    // SAFETY: the callback frees the object, after a grace period.
    let object = unsafe { Box::from_raw(old.leak().as_ptr()) };
    let node = Box::leak(Box::new(Unlinked { callback: Callback::new(), object }));
    // SAFETY: the callback frees the node.
    unsafe { queue.push(NonNull::from(node).cast(), free) };
}

/// A second grace period is merged with the first one: newer callbacks then wait for the later token.
#[test]
fn merged_segments_wait_for_the_later_token() {
    explore(2, || {
        let shared = Shared::<1>::new();
        let queue = queue(&shared);
        let reader = spawn(&shared, pin_and_read);
        // This push's segment is not over before the guard ends.
        let own = shared.domain.reader();
        let guard = own.pin();
        push_item(&queue);
        assert_eq!(queue.poll(usize::MAX), 0);
        drop(guard);
        // The token of this push is over from here on, unless the reader was there before.
        defer_free(&shared, &queue);
        queue.poll(usize::MAX);
        reader.join().unwrap();
        call_the_rest(&queue);
    });
}

/// Callbacks that are passed on wait for their readers in either queue, and are called once.
#[test]
fn a_queue_is_passed_on_while_one_pushes_and_one_serves() {
    explore(2, || {
        let shared = Shared::<1>::new();
        let (dead, heir) = (queue(&shared), queue(&shared));
        push_item(&dead); // what is pushed next is linked to it
        let own = shared.domain.reader();
        let guard = own.pin();
        let object = shared.cells[0].load(&guard).expect("never empty");
        let pushing = LoomArc::clone(&dead);
        let pusher = spawn(&shared, move |shared| defer_free(shared, &pushing));
        let (from, to) = (LoomArc::clone(&dead), LoomArc::clone(&heir));
        let passer = thread::spawn(move || from.pass_to(&to));
        dead.poll(usize::MAX);
        object.read();
        drop(guard);
        passer.join().unwrap();
        pusher.join().unwrap();
        dead.pass_to(&heir);
        assert_eq!(dead.pending(), 0, "{UNORDERED}: a callback was lost");
        call_the_rest(&heir);
    });
}

/// Work in a pause comes after the callbacks of the turn before, and before those of the next turn.
#[test]
fn a_pause_comes_after_the_turn() {
    explore(3, || {
        let shared = Shared::<1>::new();
        let queue = queue(&shared);
        push_item(&queue);
        let serving = LoomArc::clone(&queue);
        let server = thread::spawn(move || _ = serving.poll(usize::MAX));
        let forks = queue.pause();
        // A `fork` would copy this state: loom reports if it is in use.
        queue.look_at_state();
        queue.resume(forks);
        server.join().unwrap();
        call_the_rest(&queue);
    });
}

/// A push and a stop each wake a sleeping server.
#[test]
fn a_sleeping_server_is_woken() {
    explore(2, || {
        let shared = Shared::<1>::new();
        let queue = queue(&shared);
        let pushing = LoomArc::clone(&queue);
        let pusher = thread::spawn(move || {
            // SAFETY: the item is freed by its callback.
            unsafe { pushing.push(told(&pushing), tell) };
        });
        assert!(queue.run_while(|| true).is_none());
        pusher.join().unwrap();
    });

    /// A callback that stops its queue.
    #[repr(C)]
    struct Told {
        callback: Callback,
        queue: LoomArc<Callbacks>,
    }

    fn told(queue: &LoomArc<Callbacks>) -> NonNull<Callback> {
        let told = Told { callback: Callback::new(), queue: LoomArc::clone(queue) };
        NonNull::from(Box::leak(Box::new(told))).cast()
    }

    unsafe extern "C-unwind" fn tell(callback: NonNull<Callback>) {
        // SAFETY: it is the first field of a value that was leaked.
        let told = unsafe { Box::from_raw(callback.cast::<Told>().as_ptr()) };
        told.queue.stop();
    }
}
