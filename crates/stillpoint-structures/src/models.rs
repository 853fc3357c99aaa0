//! loom models of the structures, on themselves and on the engine below them.
//!
//! `RUSTFLAGS="--cfg stillpoint_loom --cfg stillpoint_busted" cargo test -p stillpoint-structures --release --lib models`

use std::cell::Cell;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use stillpoint::fence::Mode;
use stillpoint::rcu::{Domain, Reader, Reclaimer};
use stillpoint_sys::quarantine::Quarantine;

#[cfg(stillpoint_busted)]
use crate::busted::{self, Variant};
use crate::{List, Queue, Stack};

/// Broken variants read freed nodes.
#[global_allocator]
static QUARANTINE: Quarantine = Quarantine::new();

stillpoint_sys::keep_stacks!();

/// loom's message when two accesses are not ordered.
#[cfg(stillpoint_busted)]
const UNORDERED: &str = "Causality violation";

/// A value that loom watches.
struct Value(UnsafeCell<u32>);

// SAFETY: the models check that accesses are ordered.
unsafe impl Send for Value {}
// SAFETY: the models check that accesses are ordered.
unsafe impl Sync for Value {}

impl Value {
    fn new(value: u32) -> Self {
        let cell = UnsafeCell::new(0);
        // SAFETY: not shared yet.
        cell.with_mut(|cell| unsafe { *cell = value });
        Self(cell)
    }

    fn read(&self) -> u32 {
        // SAFETY: loom reports it if the read is not ordered with the write.
        self.0.with(|value| unsafe { *value })
    }
}

std::thread_local! {
    /// The fence mode of the model's domain: loom runs all threads of a model on one thread of the system.
    static MODE: Cell<Mode> = const { Cell::new(Mode::Asymmetric) };
}

/// Runs `model` in both fence modes, with at most this many preemptions.
fn explore(preemptions: usize, model: impl Fn(Domain) + Send + Sync + 'static) {
    explore_in(&[Mode::Asymmetric, Mode::Symmetric], preemptions, model);
}

fn explore_in(modes: &[Mode], preemptions: usize, model: impl Fn(Domain) + Send + Sync + 'static) {
    let model = Arc::new(model);
    for &mode in modes {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 20_000;
        let model = Arc::clone(&model);
        builder.check(move || {
            MODE.set(mode);
            model(Domain::builder().fence(MODE.get()).build().expect("no fence mode is refused in a model"));
        });
    }
    stillpoint_sys::busted::assert_reached();
}

/// Runs `function` on a thread of the model, with a reader and a reclaimer.
fn spawn<S: Send + Sync + 'static>(
    structure: &Arc<S>,
    domain: &Domain,
    function: impl FnOnce(&S, &Reader, &mut Reclaimer) + Send + 'static,
) -> thread::JoinHandle<()> {
    let (structure, domain) = (Arc::clone(structure), domain.clone());
    thread::spawn(move || function(&structure, &domain.reader(), &mut domain.reclaimer()))
}

/// Lets the other threads run first. For a thread that enters its region before it spawns them: if it entered later, its entry
/// would order more than the links do. loom runs a thread as long as it can. It tries a write only before and after the last
/// access to the link that precedes it. If the writer itself has loaded the link since this thread's load, that last access is
/// the writer's own, and loom never tries this thread's load after the write.
fn let_others_go_first() {
    thread::yield_now();
}

#[test]
fn one_pushes_to_a_stack_and_one_pops() {
    explore(3, |domain| {
        let stack = Arc::new(Stack::new_in(&domain));
        let other = spawn(&stack, &domain, |stack, reader, _| stack.push(Value::new(1), reader));
        let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
        let popped = stack.pop(&reader, &mut reclaimer);
        assert!(popped.is_none_or(|value| value.read() == 1));
        other.join().unwrap();
    });
}

#[test]
fn two_pop_from_a_stack() {
    explore(3, |domain| {
        let stack = Arc::new(Stack::new_in(&domain));
        let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
        (1..=2).for_each(|value| stack.push(Value::new(value), &reader));
        let other = spawn(&stack, &domain, |stack, reader, reclaimer| {
            stack.pop(reader, reclaimer).expect("there are two").read();
        });
        stack.pop(&reader, &mut reclaimer).expect("there are two").read();
        reclaimer.poll();
        other.join().unwrap();
        assert!(stack.is_empty());
    });
}

#[test]
fn one_pushes_to_a_queue_and_one_pops() {
    explore(2, |domain| {
        let queue = Arc::new(Queue::new_in(&domain));
        let other = spawn(&queue, &domain, |queue, reader, _| {
            (1..=2).for_each(|value| queue.push(Value::new(value), reader));
        });
        let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
        for expected in 1..=2 {
            let Some(value) = queue.pop(&reader, &mut reclaimer) else { break };
            assert_eq!(value.read(), expected, "values came out of the queue in the wrong order");
            reclaimer.poll();
        }
        other.join().unwrap();
    });
}

#[test]
fn two_push_to_a_queue() {
    explore(2, |domain| {
        let queue = Arc::new(Queue::new_in(&domain));
        let other = spawn(&queue, &domain, |queue, reader, _| queue.push(Value::new(1), reader));
        let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
        queue.push(Value::new(2), &reader);
        other.join().unwrap();
        let sum: u32 =
            (0..2).map(|_| queue.pop(&reader, &mut reclaimer).expect("there are two").read()).sum();
        assert_eq!(sum, 3);
    });
}

#[test]
fn two_pop_from_a_queue() {
    explore(2, |domain| {
        let queue = Arc::new(Queue::new_in(&domain));
        let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
        (1..=2).for_each(|value| queue.push(Value::new(value), &reader));
        let other = spawn(&queue, &domain, |queue, reader, reclaimer| {
            if let Some(value) = queue.pop(reader, reclaimer) {
                value.read();
            }
        });
        for _ in 0..2 {
            if let Some(value) = queue.pop(&reader, &mut reclaimer) {
                value.read();
            }
            reclaimer.poll();
        }
        other.join().unwrap();
        assert!(queue.pop(&reader, &mut reclaimer).is_none());
    });
}

/// The second thread that pops finds the head at a node that a third thread has made.
#[test]
fn one_pushes_to_a_queue_and_two_pop() {
    // Three threads take long. The full fences of the other mode would hide what is missing.
    explore_in(&[Mode::Asymmetric], 1, |domain| {
        let queue = Arc::new(Queue::<Value>::new_in(&domain));
        let poppers = [(); 2].map(|()| {
            spawn(&queue, &domain, |queue, reader, reclaimer| {
                if let Some(value) = queue.pop(reader, reclaimer) {
                    value.read();
                }
            })
        });
        // The reader stays to the end: its drop is a release, and would order more than the queue does.
        let reader = domain.reader();
        queue.push(Value::new(1), &reader);
        for popper in poppers {
            popper.join().unwrap();
        }
    });
}

#[test]
fn one_pushes_to_a_queue_and_pops_as_another_one_does() {
    explore(2, |domain| {
        let queue = Arc::new(Queue::<Value>::new_in(&domain));
        let pop = |queue: &Queue<Value>, reader: &Reader, reclaimer: &mut Reclaimer| {
            if let Some(value) = queue.pop(reader, reclaimer) {
                value.read();
            }
        };
        let popper = spawn(&queue, &domain, pop);
        // The reader stays to the end: its drop is a release, and would order
        // more than the queue does.
        let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
        queue.push(Value::new(1), &reader);
        pop(&queue, &reader, &mut reclaimer);
        popper.join().unwrap();
    });
}

/// One thread moves the tail, and retires the node at which the tail was, and another pushes behind it. With a third thread for the
/// second step, this would take too long.
#[test]
fn one_pushes_to_a_queue_behind_a_node_that_is_popped() {
    explore(2, |domain| {
        let queue = Arc::new(Queue::new_in(&domain));
        let pusher = spawn(&queue, &domain, |queue, reader, _| queue.push(Value::new(1), reader));
        // The reader stays to the end: its drop is a release, and would order more than the queue does.
        let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
        queue.push(Value::new(2), &reader);
        if queue.pop(&reader, &mut reclaimer).is_some() {
            reclaimer.poll();
        }
        pusher.join().unwrap();
    });
}

/// A list with these keys, and their values.
fn list(domain: &Domain, keys: &[u32]) -> Arc<List<u32, Value>> {
    let list = Arc::new(List::new_in(domain));
    let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
    for &key in keys {
        assert!(list.insert(key, Value::new(key), &reader, &mut reclaimer).is_ok());
    }
    list
}

/// Removes the keys one after the other, with a poll after each.
fn remove_each(list: &List<u32, Value>, keys: &[u32], reader: &Reader, reclaimer: &mut Reclaimer) {
    for key in keys {
        list.remove(key, reader, reclaimer).expect("the key is in the list").read();
        reclaimer.poll();
    }
}

/// A reader on an unlinked node goes on to the next node.
#[test]
fn a_region_walks_over_what_is_removed() {
    explore(2, |domain| {
        let list = list(&domain, &[1, 2]);
        let other = spawn(&list, &domain, |list, reader, _| {
            let guard = reader.pin();
            list.get_in(&2, &guard).map(Value::read);
        });
        remove_each(&list, &[1, 2], &domain.reader(), &mut domain.reclaimer());
        other.join().unwrap();
    });
}

#[test]
fn a_walk_hand_over_hand_meets_what_is_removed() {
    explore(2, |domain| {
        let list = list(&domain, &[1, 2]);
        let other = spawn(&list, &domain, |list, reader, _| {
            if let Some(entry) = list.get(&2, reader) {
                entry.read();
            }
        });
        remove_each(&list, &[1, 2], &domain.reader(), &mut domain.reclaimer());
        other.join().unwrap();
    });
}

#[test]
fn one_inserts_and_one_walks() {
    explore(2, |domain| {
        let list = list(&domain, &[]);
        let reader = domain.reader();
        let guard = reader.pin();
        let other = spawn(&list, &domain, |list, reader, reclaimer| {
            assert!(list.insert(1, Value::new(1), reader, reclaimer).is_ok());
        });
        let_others_go_first();
        list.get_in(&1, &guard).map(Value::read);
        drop(guard);
        if let Some(entry) = list.get(&1, &reader) {
            entry.read();
        }
        other.join().unwrap();
    });
}

/// The node before is removed, and a new node is inserted behind it or in its place.
#[test]
fn one_inserts_where_another_removes() {
    explore(2, |domain| {
        let list = list(&domain, &[1, 3]);
        let other = spawn(&list, &domain, |list, reader, reclaimer| {
            assert!(list.insert(2, Value::new(2), reader, reclaimer).is_ok());
        });
        let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
        remove_each(&list, &[1], &reader, &mut reclaimer);
        other.join().unwrap();
        let guard = reader.pin();
        assert!(list.iter_in(&guard).map(|(&key, _)| key).eq([2, 3]), "an entry is lost");
    });
}

/// The threads remove neighbours: each unlinks a node that the other has marked.
#[test]
fn two_remove_neighbours() {
    explore(2, |domain| {
        let list = list(&domain, &[1, 2]);
        let other =
            spawn(&list, &domain, |list, reader, reclaimer| remove_each(list, &[1], reader, reclaimer));
        let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
        remove_each(&list, &[2], &reader, &mut reclaimer);
        other.join().unwrap();
        assert_eq!(list.iter_in(&reader.pin()).count(), 0, "the list still has a removed entry");
    });
}

/// A node is inserted, and the node before it removed, while another thread is about to walk: only the unlink leads that thread
/// to the new node.
#[test]
fn one_walks_where_another_inserts_and_removes() {
    explore(2, |domain| {
        let list = list(&domain, &[1]);
        let reader = domain.reader();
        let guard = reader.pin();
        let other = spawn(&list, &domain, |list, reader, reclaimer| {
            assert!(list.insert(2, Value::new(2), reader, reclaimer).is_ok());
            remove_each(list, &[1], reader, reclaimer);
        });
        let_others_go_first();
        list.get_in(&2, &guard).map(Value::read);
        drop(guard);
        other.join().unwrap();
    });
}

/// The model that catches each variant.
#[cfg(stillpoint_busted)]
const CAUGHT: &[(Variant, &str)] = &[
    (Variant::StackPushRelaxed, "one_pushes_to_a_stack_and_one_pops"),
    (Variant::StackUnprotected, "two_pop_from_a_stack"),
    (Variant::QueueLinkRelaxed, "one_pushes_to_a_queue_and_one_pops"),
    (Variant::QueueTailRelaxed, "two_push_to_a_queue"),
    (Variant::QueueHeadRelaxed, "one_pushes_to_a_queue_and_two_pop"),
    (Variant::QueueNoLook, "two_pop_from_a_queue"),
    (Variant::ListInsertRelaxed, "one_inserts_and_one_walks"),
    (Variant::ListUnlinkRelaxed, "one_walks_where_another_inserts_and_removes"),
    (Variant::ListFollowRelaxed, "one_inserts_and_one_walks"),
    (Variant::ListMarkIgnored, "a_walk_hand_over_hand_meets_what_is_removed"),
    (Variant::ListUnlinkFirst, "one_inserts_where_another_removes"),
];

#[cfg(stillpoint_busted)]
#[test]
fn every_variant_is_caught_by_its_model() {
    let signs = || vec![UNORDERED, "an entry is lost", "the key is in the list"];
    busted::assert_caught("models", CAUGHT.iter().map(|&(variant, model)| (variant, model, signs())));
}
