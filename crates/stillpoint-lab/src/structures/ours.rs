//! Our own structures.

use stillpoint::rcu::{Domain, Reader, Reclaimer};
use stillpoint_peers::structures::{
    BATCH, Ordered, OrderedThread, PushPop, PushPopThread, ordered, queue, stack, value_of,
};
use stillpoint_structures::{List, Queue, Stack};

/// A structure, and its domain.
struct Ours<S> {
    structure: S,
    domain: Domain,
}

impl<S> Ours<S> {
    fn of(make: fn(&Domain) -> S) -> Box<Self> {
        let domain = Domain::new();
        Box::new(Self { structure: make(&domain), domain })
    }

    fn thread(&self) -> OurThread<'_, S> {
        OurThread {
            structure: &self.structure,
            reader: self.domain.reader(),
            reclaimer: self.domain.reclaimer_builder().batch(BATCH).build(),
        }
    }
}

struct OurThread<'s, S> {
    structure: &'s S,
    reader: Reader,
    reclaimer: Reclaimer,
}

impl<S> OurThread<'_, S> {
    /// Polls once for each batch: a fence for fewer nodes would interrupt the other cores more often.
    fn poll_for_a_batch(&mut self) {
        if self.reclaimer.pending() >= BATCH {
            self.reclaimer.poll();
        }
    }
}

macro_rules! push_and_pop {
    ($($structure:ident),*) => {$(
        impl PushPop for Ours<$structure<u64>> {
            fn thread(&self) -> Box<dyn PushPopThread + '_> {
                Box::new(self.thread())
            }
        }

        impl PushPopThread for OurThread<'_, $structure<u64>> {
            #[inline(always)]
            fn push(&mut self, value: u64) {
                self.structure.push(value, &self.reader);
            }

            #[inline(always)]
            fn pop(&mut self) -> Option<u64> {
                self.structure.pop(&self.reader, &mut self.reclaimer)
            }

            fn poll(&mut self) {
                self.poll_for_a_batch();
            }
        }
    )*};
}
push_and_pop!(Stack, Queue);

/// How a list is read.
struct ReadBy<const GUARDED: bool>(Box<Ours<List<u64, u64>>>);

impl<const GUARDED: bool> Ordered for ReadBy<GUARDED> {
    fn thread(&self) -> Box<dyn OrderedThread + '_> {
        Box::new(ListThread::<'_, GUARDED>(self.0.thread()))
    }
}

struct ListThread<'s, const GUARDED: bool>(OurThread<'s, List<u64, u64>>);

impl<const GUARDED: bool> OrderedThread for ListThread<'_, GUARDED> {
    #[inline(always)]
    fn get(&mut self, key: u64) -> Option<u64> {
        let OurThread { structure, reader, .. } = &self.0;
        if GUARDED {
            structure.get_in(&key, &reader.pin()).copied()
        } else {
            structure.get(&key, reader).map(|entry| *entry)
        }
    }

    #[inline(always)]
    fn insert(&mut self, key: u64) -> bool {
        let OurThread { structure, reader, reclaimer } = &mut self.0;
        structure.insert(key, value_of(key), reader, reclaimer).is_ok()
    }

    #[inline(always)]
    fn remove(&mut self, key: u64) -> bool {
        let OurThread { structure, reader, reclaimer } = &mut self.0;
        structure.remove(&key, reader, reclaimer).is_some()
    }

    fn poll(&mut self) {
        self.0.poll_for_a_batch();
    }

    fn inside(&mut self, key: u64, meanwhile: &mut dyn FnMut()) -> bool {
        let OurThread { structure, reader, .. } = &self.0;
        if GUARDED {
            let guard = reader.pin();
            let value = structure.get_in(&key, &guard);
            meanwhile();
            value.is_some()
        } else {
            let entry = structure.get(&key, reader);
            meanwhile();
            entry.is_some()
        }
    }
}

pub(super) fn make_pushed(contender: &str, scenario: &str) -> Option<Box<dyn PushPop>> {
    match (contender, scenario) {
        ("stillpoint/protected", "stack") => Some(Ours::of(Stack::new_in)),
        ("stillpoint/protected", "queue") => Some(Ours::of(Queue::new_in)),
        (_, "stack") => stack(contender),
        (_, "queue") => queue(contender),
        _ => None,
    }
}

pub(super) fn make_list(contender: &str) -> Option<Box<dyn Ordered>> {
    match contender {
        "stillpoint/protected" => Some(Box::new(ReadBy::<false>(Ours::of(List::new_in)))),
        "stillpoint/guard" => Some(Box::new(ReadBy::<true>(Ours::of(List::new_in)))),
        _ => ordered(contender),
    }
}
