//! A stack, a queue and an ordered list, for the experiment `structures`. The same code runs over crossbeam-epoch and over haphazard,
//! so that only reclamation differs. crossbeam's own structures are there, too.

mod crossbeam;
mod list;
mod queue;
mod scheme;
mod stack;

use std::ops::Range;

use crossbeam::{Seg, Skip};
use list::List;
use queue::Queue;
use scheme::{Epoch, Hazards};
use stack::Stack;

/// How many values pass between two calls of [`PushPopThread::poll`], and how many calls are made between two of
/// [`OrderedThread::poll`].
pub const BATCH: usize = 64;

/// A stack or a queue.
pub trait PushPop: Send + Sync {
    /// Access for the calling thread.
    fn thread(&self) -> Box<dyn PushPopThread + '_>;
}

/// One thread's access to a stack or a queue. Each contender has its own loop, so that its calls are inlined, as in a user's program.
pub trait PushPopThread {
    /// Pushes a value.
    fn push(&mut self, value: u64);

    /// Pops a value.
    fn pop(&mut self) -> Option<u64>;

    /// Lets the scheme free what is ready, if it does so only when its user calls it.
    fn poll(&mut self) {}

    /// Pushes each value, and pops one after each push. Returns the sum of the popped values; `None` if a pop found nothing.
    fn pairs(&mut self, values: Range<u64>) -> Option<u64> {
        let mut sum = 0_u64;
        for value in values {
            self.push(value);
            sum = sum.wrapping_add(self.pop()?);
            if value % BATCH as u64 == 0 {
                self.poll();
            }
        }
        Some(sum)
    }
}

/// A map in the order of its keys.
pub trait Ordered: Send + Sync {
    /// Whether the results of insertions and removals are exact with several threads.
    fn is_exact(&self) -> bool {
        true
    }

    /// Access for the calling thread.
    fn thread(&self) -> Box<dyn OrderedThread + '_>;
}

/// A call that a thread makes on a map.
#[derive(Debug, Clone, Copy)]
pub enum Call {
    /// Looks up a key.
    Get(u64),
    /// Inserts a key that is not there.
    Insert(u64),
    /// Removes a key that is there.
    Remove(u64),
}

/// The results of some calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Keys that were inserted.
    pub inserted: u64,
    /// Keys that were removed.
    pub removed: u64,
    /// Lookups that found the value of another key.
    pub wrong: u64,
}

/// The value of a key.
pub fn value_of(key: u64) -> u64 {
    !key
}

/// One thread's access to a map. Each contender has its own loop, as for [`PushPopThread`].
pub trait OrderedThread {
    /// The value of a key.
    fn get(&mut self, key: u64) -> Option<u64>;

    /// Inserts a key with [its value](value_of). Returns whether it was new.
    fn insert(&mut self, key: u64) -> bool;

    /// Removes a key. Returns whether it was there.
    fn remove(&mut self, key: u64) -> bool;

    /// As [`PushPopThread::poll`].
    fn poll(&mut self) {}

    /// Looks up a key, and calls `meanwhile` before the lookup ends. During that call, the thread holds what it would hold if it were
    /// preempted there. Returns whether the key was there.
    fn inside(&mut self, key: u64, meanwhile: &mut dyn FnMut()) -> bool;

    /// Makes the calls one after the other.
    fn calls(&mut self, calls: &[Call]) -> Outcome {
        let mut outcome = Outcome::default();
        for calls in calls.chunks(BATCH) {
            for &call in calls {
                match call {
                    Call::Get(key) => {
                        outcome.wrong += u64::from(self.get(key).is_some_and(|value| value != value_of(key)));
                    }
                    Call::Insert(key) => outcome.inserted += u64::from(self.insert(key)),
                    Call::Remove(key) => outcome.removed += u64::from(self.remove(key)),
                }
            }
            self.poll();
        }
        outcome
    }
}

/// A stack of this contender; `None` if it has none.
pub fn stack(contender: &str) -> Option<Box<dyn PushPop>> {
    match contender {
        "crossbeam-epoch" => Some(Box::new(Stack::<Epoch>::default())),
        "haphazard" => Some(Box::new(Stack::<Hazards<1>>::default())),
        _ => None,
    }
}

/// A queue of this contender; `None` if it has none.
pub fn queue(contender: &str) -> Option<Box<dyn PushPop>> {
    match contender {
        "crossbeam-epoch" => Some(Box::new(Queue::<Epoch>::default())),
        "haphazard" => Some(Box::new(Queue::<Hazards<2>>::default())),
        "crossbeam-queue" => Some(Box::new(Seg::default())),
        _ => None,
    }
}

/// A map of this contender; `None` if it has none.
pub fn ordered(contender: &str) -> Option<Box<dyn Ordered>> {
    match contender {
        "crossbeam-epoch" => Some(Box::new(List::<Epoch>::default())),
        "haphazard" => Some(Box::new(List::<Hazards<3>>::default())),
        "crossbeam-skiplist" => Some(Box::new(Skip::default())),
        _ => None,
    }
}
