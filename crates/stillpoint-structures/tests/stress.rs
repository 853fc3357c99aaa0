//! Many threads at random: every value comes out once, none leaks, and what is read is alive.

#![cfg(not(stillpoint_loom))]

use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;

use stillpoint::rcu::{Domain, Reader, Reclaimer};
use stillpoint_structures::{List, Queue, Stack};

const THREADS: usize = 4;
const ROUNDS: usize = if cfg!(miri) { 40 } else { 20_000 };

/// A value that records whether it is alive, and is counted.
struct Value {
    number: usize,
    canary: AtomicUsize,
    alive: Arc<AtomicUsize>,
}

const ALIVE: usize = 0x5711_11f3;

impl Value {
    fn new(number: usize, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self { number, canary: AtomicUsize::new(ALIVE ^ number), alive: Arc::clone(alive) }
    }

    fn read(&self) -> usize {
        assert_eq!(
            self.canary.load(Ordering::Relaxed),
            ALIVE ^ self.number,
            "a value was read after its end"
        );
        self.number
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.read();
        self.canary.store(0, Ordering::Relaxed);
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A sequence that is the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Runs `function` on each of several threads, with the thread's number, and returns the results.
fn on_threads<R: Send>(
    domain: &Domain,
    function: impl Fn(usize, &Reader, &mut Reclaimer) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let function = &function;
                scope.spawn(move || function(number, &domain.reader(), &mut domain.reclaimer()))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    })
}

#[test]
fn a_stack_gives_each_value_once() {
    let (domain, alive) = (Domain::new(), Arc::default());
    let stack = Stack::new_in(&domain);
    assert!(stack.is_empty());
    let popped = on_threads(&domain, |thread, reader, reclaimer| {
        let mut popped = Vec::new();
        for round in 0..ROUNDS {
            stack.push(Value::new(thread * ROUNDS + round, &alive), reader);
            if round % 3 != 0 {
                popped.extend(stack.pop(reader, reclaimer).map(|value| value.read()));
            }
            reclaimer.poll();
        }
        popped
    });
    let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
    let rest = std::iter::from_fn(|| stack.pop(&reader, &mut reclaimer)).take(ROUNDS / 2);
    let mut all: Vec<usize> = popped.into_iter().flatten().chain(rest.map(|value| value.read())).collect();
    let left = alive.load(Ordering::Relaxed);
    assert_eq!(stack.is_empty(), left == 0);
    drop(stack);
    assert_eq!(all.len() + left, THREADS * ROUNDS);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len() + left, THREADS * ROUNDS, "a value came twice");
    assert_eq!(alive.load(Ordering::Relaxed), 0, "a value leaked, or was dropped twice");
}

#[test]
fn a_queue_keeps_the_order_of_each_producer() {
    let (domain, alive) = (Domain::new(), Arc::default());
    let queue = Queue::new_in(&domain);
    let left = AtomicUsize::new(THREADS / 2 * ROUNDS);
    let popped = on_threads(&domain, |thread, reader, reclaimer| {
        let mut popped = Vec::new();
        if thread % 2 == 0 {
            (0..ROUNDS).for_each(|round| queue.push(Value::new(thread * ROUNDS + round, &alive), reader));
            return popped;
        }
        while left.load(Ordering::Relaxed) > 0 {
            if let Some(value) = queue.pop(reader, reclaimer) {
                popped.push(value.read());
                left.fetch_sub(1, Ordering::Relaxed);
            } else {
                thread::yield_now();
            }
            reclaimer.poll();
        }
        popped
    });
    for popped in &popped {
        for producer in 0..THREADS {
            let own = popped.iter().filter(|&number| number / ROUNDS == producer);
            assert!(own.is_sorted(), "values of one thread changed places");
        }
    }
    let mut all: Vec<usize> = popped.into_iter().flatten().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), THREADS / 2 * ROUNDS);
    drop(queue);
    assert_eq!(alive.load(Ordering::Relaxed), 0, "a value leaked, or was dropped twice");
}

/// Each thread inserts and removes its own keys, among those of the others.
#[test]
fn a_list_has_what_was_inserted_and_not_removed() {
    const KEYS: usize = 32;
    let (domain, alive) = (Domain::new(), Arc::default());
    let list = List::new_in(&domain);
    let own = on_threads(&domain, |thread, reader, reclaimer| {
        let mut random = Random(thread as u64);
        let mut own = BTreeMap::new();
        for round in 0..ROUNDS {
            let key = random.below(KEYS / THREADS) * THREADS + thread;
            if random.below(2) == 0 {
                let inserted = list.insert(key, Value::new(round, &alive), reader, reclaimer);
                assert_eq!(inserted.is_ok(), !own.contains_key(&key));
                own.entry(key).or_insert(round);
            } else {
                let removed = list.remove(&key, reader, reclaimer).map(|entry| entry.read());
                assert_eq!(removed, own.remove(&key));
            }
            let key = random.below(KEYS);
            let found = list.get(&key, reader).map(|entry| entry.read());
            let guard = reader.pin();
            let found_in = list.get_in(&key, &guard).map(Value::read);
            if key % THREADS == thread {
                assert_eq!((found, found_in), (own.get(&key).copied(), own.get(&key).copied()));
            }
            if round % 8 == 0 {
                let keys: Vec<_> = list.iter_in(&guard).inspect(|(_, value)| _ = value.read()).collect();
                assert!(keys.is_sorted_by_key(|(key, _)| **key), "the list is not in order");
            }
            drop(guard);
            reclaimer.poll();
        }
        own
    });
    let reader = domain.reader();
    let expected: BTreeMap<usize, usize> = own.into_iter().flatten().collect();
    let guard = reader.pin();
    assert!(list.iter_in(&guard).map(|(&key, value)| (key, value.read())).eq(expected));
    drop(guard);
    drop(list);
    domain.reclaimer().flush().expect("no reader is in the way");
    assert_eq!(alive.load(Ordering::Relaxed), 0, "a value leaked, or was dropped twice");
}

/// All threads insert and remove the same keys.
#[test]
fn a_key_is_removed_as_often_as_it_is_inserted() {
    let (domain, alive) = (Domain::new(), Arc::default());
    let list = List::new_in(&domain);
    let differences = on_threads(&domain, |thread, reader, reclaimer| {
        let (mut random, mut difference) = (Random(thread as u64 + 100), 0_isize);
        for _ in 0..ROUNDS {
            let key = random.below(4);
            match random.below(4) {
                0 => {
                    difference +=
                        isize::from(list.insert(key, Value::new(key, &alive), reader, reclaimer).is_ok())
                }
                1 => difference -= isize::from(list.remove(&key, reader, reclaimer).is_some()),
                2 => assert!(list.get(&key, reader).is_none_or(|entry| entry.read() == key)),
                _ => assert!(list.get_in(&key, &reader.pin()).is_none_or(|value| value.read() == key)),
            }
            reclaimer.poll();
        }
        difference
    });
    let reader = domain.reader();
    assert_eq!(list.iter_in(&reader.pin()).count() as isize, differences.iter().sum::<isize>());
    drop(list);
    domain.reclaimer().flush().expect("no reader is in the way");
    assert_eq!(alive.load(Ordering::Relaxed), 0, "a value leaked, or was dropped twice");
}

fn message(function: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(function)).expect_err("it panics");
    panic.downcast_ref::<String>().expect("it has a message").clone()
}

#[test]
fn another_domain_is_a_panic_that_names_both() {
    let named =
        |name: &str| Domain::builder().name(name).build().expect("the default mode is always available");
    let (domain, other) = (named("here"), named("there"));
    let (reader, foreign, mut reclaimer) = (domain.reader(), other.reader(), other.reclaimer());
    let (stack, queue, list) =
        (Stack::new_in(&domain), Queue::new_in(&domain), List::<u32, u32>::new_in(&domain));
    let messages = [
        message(|| stack.push(1, &foreign)),
        message(|| _ = stack.pop(&reader, &mut reclaimer)),
        message(|| queue.push(1, &foreign)),
        message(|| _ = queue.pop(&reader, &mut reclaimer)),
        message(|| _ = list.get(&1, &foreign)),
        message(|| _ = list.get_in(&1, &foreign.pin())),
        message(|| _ = list.iter_in(&foreign.pin())),
        message(|| _ = list.insert(1, 1, &reader, &mut reclaimer)),
        message(|| _ = list.remove(&1, &foreign, &mut reclaimer)),
    ];
    for message in messages {
        assert!(message.contains("here") && message.contains("there"), "{message}");
    }
}

/// Values are neither freed early nor leaked, whatever the test forgets, and in whatever order it drops the rest.
#[test]
fn entries_and_guards_may_be_forgotten() {
    let (domain, alive) = (Domain::new(), Arc::default());
    let list = List::new_in(&domain);
    let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
    for number in 0..3 {
        assert!(list.insert(number, Value::new(number, &alive), &reader, &mut reclaimer).is_ok());
    }
    std::mem::forget(list.get(&0, &reader));
    std::mem::forget(reader.pin());
    let removed = list.remove(&1, &reader, &mut reclaimer).expect("the key is in the list");
    assert_eq!((reclaimer.poll(), removed.read()), (0, 1));
    drop(reclaimer);
    assert_eq!(removed.read(), 1);
    drop(removed);
    drop(list);
    drop(domain);
    drop(reader);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

/// A destructor that panics does not keep other values from being dropped.
#[test]
fn a_value_whose_drop_panics_leaves_the_others() {
    struct Panics(Value);

    impl Drop for Panics {
        fn drop(&mut self) {
            assert_ne!(self.0.number, 1, "the test lets this destructor panic");
        }
    }

    let (domain, alive) = (Domain::new(), Arc::default());
    let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
    let (stack, queue, list) = (Stack::new_in(&domain), Queue::new_in(&domain), List::new_in(&domain));
    for number in 0..5 {
        stack.push(Panics(Value::new(number, &alive)), &reader);
        queue.push(Panics(Value::new(number, &alive)), &reader);
        assert!(list.insert(number, Panics(Value::new(number, &alive)), &reader, &mut reclaimer).is_ok());
    }
    catch_unwind(AssertUnwindSafe(|| drop(stack))).expect_err("one panics");
    catch_unwind(AssertUnwindSafe(|| drop(queue))).expect_err("one panics");
    catch_unwind(AssertUnwindSafe(|| drop(list))).expect_err("one panics");
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn who_sends_and_shares_them() {
    fn shared<T: Send + Sync>() {}
    shared::<Stack<std::cell::Cell<u8>>>();
    shared::<Queue<std::cell::Cell<u8>>>();
    shared::<List<u8, u8>>();
}
