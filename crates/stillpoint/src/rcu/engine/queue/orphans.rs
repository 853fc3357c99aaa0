//! Orphans: objects that belong to no retire list, in the order in which they were left. They are dropped retirements, and what
//! dropped reclaimers had.
//!
//! ```text
//!   one  --push-->  incoming (a stack)  --settle, every 64th push-->  line (a chain, the oldest first)
//!   many --append------------------------------------------------------>|
//!                                          adopt:  takes the line, splits off a share, gives the rest back
//! ```
//!
//! Threads *pass the line around*, in a [`Place`]. A thread that wants some of it takes the whole line, and gives back the rest.
//! Two chains are joined in constant time, so no call takes longer because others have left much. No lock is
//! held: a thread that is preempted meanwhile holds up what it has taken, and others go on with what comes after it. Only a
//! [barrier](Orphans::collect), which must find everything, waits for that thread, and keeps others from taking anything until
//! it has looked. The stack is reversed when it is moved to the line. It then has 64 objects, and one for each thread that is
//! between its push and its move.

use std::mem;
use std::ptr::{self, NonNull};

use super::retire_list::SHARE;
use super::stack::{Node, Stack};
use crate::busted::{self, Variant};
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::wait::park::Event;
use crate::rcu::orders;
use stillpoint_sys::sync::atomic::{fence, AtomicBool, AtomicUsize, Ordering};
use stillpoint_sys::sync::Place;
use stillpoint_sys::work;

#[derive(Debug)]
pub(crate) struct Orphans {
    /// Objects that were left one by one and are not in line yet. They are newer than those in line.
    incoming: Stack,
    /// Number of objects that were left one by one so far.
    arrivals: AtomicUsize,
    line: Place<Chain>,
    /// Number of threads that are moving objects from one place to another.
    movers: AtomicUsize,
    /// Whether a collector takes everything: then no thread moves objects.
    collects: AtomicBool,
}

/// The right to move objects.
struct Move<'o>(&'o Orphans);

impl Drop for Move<'_> {
    fn drop(&mut self) {
        self.0.movers.fetch_sub(1, orders::moved());
    }
}

/// As long as it exists, no other thread takes objects: what has been left stays where it is.
pub(crate) struct Collection<'o> {
    orphans: &'o Orphans,
    /// Wakes threads that would have taken objects.
    event: &'o Event,
}

impl Collection<'_> {
    /// Hands everything to `adopt`.
    pub(crate) fn adopt(&self, adopt: impl FnMut(Garbage)) {
        self.orphans.part(usize::MAX, adopt);
    }
}

impl Drop for Collection<'_> {
    fn drop(&mut self) {
        self.orphans.end_collection();
        self.event.notify();
    }
}

/// Number of pushes after which a thread moves the stack to the line.
const SETTLED: usize = if cfg!(stillpoint_loom) { 2 } else { SHARE };

/// The end of the line at which a chain joins.
#[derive(Debug, Clone, Copy)]
enum End {
    /// For a chain that was in line before what is there now.
    Front,
    Back,
}

impl Orphans {
    pub(crate) fn new() -> Self {
        Self {
            incoming: Stack::new(),
            arrivals: AtomicUsize::new(0),
            line: Place::new(),
            movers: AtomicUsize::new(0),
            collects: AtomicBool::new(false),
        }
    }

    /// In the child of a `fork`, where no other thread moves or collects objects. What others were moving is lost to the child.
    pub(crate) fn reset_after_fork(&self) {
        // Relaxed, both: there is no other thread.
        self.movers.store(0, Ordering::Relaxed);
        self.collects.store(false, Ordering::Relaxed);
    }

    /// Allows the caller to move objects, unless a collector takes everything.
    fn begin_move(&self) -> Option<Move<'_>> {
        // Relaxed: a hint, so that refused threads do not keep the collector waiting.
        if self.is_collected() && !busted::is(Variant::CollectorUnseen) {
            return None;
        }
        // Relaxed: the fence makes it visible.
        self.movers.fetch_add(1, Ordering::Relaxed);
        let own = Move(self);
        // SeqCst: pairs with the fence in `collect`: either this thread sees the collector, or the collector sees this mover.
        fence(Ordering::SeqCst);
        // Relaxed: a mover need not come after the last collection, as each place hands over what is in it.
        let is_free = !self.collects.load(Ordering::Relaxed) || busted::is(Variant::CollectorUnseen);
        is_free.then_some(own)
    }

    /// Whether a collector takes everything: then no object may be adopted.
    pub(crate) fn is_collected(&self) -> bool {
        // Relaxed: a hint, or ordered by the fences of the event.
        self.collects.load(Ordering::Relaxed)
    }

    /// Waits by `pause` until no thread moves or collects objects. `None` if `pause` gives up.
    pub(crate) fn collect<'o>(
        &'o self,
        event: &'o Event,
        mut pause: impl FnMut() -> bool,
    ) -> Option<Collection<'o>> {
        // Relaxed: the fence below acquires what the last collection has released.
        while self.collects.swap(true, Ordering::Relaxed) {
            if !pause() {
                return None;
            }
        }
        let own = Collection { orphans: self, event };
        // SeqCst: pairs with the fence in `begin_move`, and with the release in `end_collection`.
        fence(Ordering::SeqCst);
        while self.movers.load(orders::movers()) > 0 {
            if !pause() {
                return None;
            }
        }
        Some(own)
    }

    pub(crate) fn end_collection(&self) {
        // Puts what was left meanwhile in line, so that the next thread that adopts need not reverse all of it.
        self.settle();
        self.collects.store(false, orders::collected());
    }

    /// Leaves one object. Lock-free.
    pub(crate) fn push(&self, garbage: Garbage) {
        self.incoming.push(garbage);
        // Relaxed: it orders nothing. Each thread's own push comes before its turn to move the stack.
        if self.arrivals.fetch_add(1, Ordering::Relaxed) % SETTLED == SETTLED - 1 {
            if let Some(_move) = self.begin_move() {
                self.settle();
            }
        }
    }

    /// Puts in line what was left one by one.
    fn settle(&self) {
        if let Some(chain) = self.take_incoming() {
            self.join(chain, End::Back);
        }
    }

    /// Leaves objects, the oldest first.
    pub(crate) fn append(&self, orphans: impl Iterator<Item = Garbage>) {
        let Some(_move) = self.begin_move() else {
            return orphans.for_each(|garbage| self.incoming.push(garbage));
        };
        if let Some(chain) = Chain::of(orphans) {
            // What was left one by one comes first.
            let chain = match self.take_incoming() {
                Some(mut older) => {
                    older.extend(chain);
                    older
                }
                None => Box::new(chain),
            };
            self.join(chain, End::Back);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty() && self.incoming.is_empty()
    }

    /// Hands the oldest objects to `adopt`, at most `limit`, unless a collector takes everything. Takes time in proportion to
    /// the objects handed out, not to what is left. Returns whether adoption was allowed.
    pub(crate) fn adopt(&self, limit: usize, adopt: impl FnMut(Garbage)) -> bool {
        let own = self.begin_move();
        if own.is_some() {
            self.part(limit, adopt);
        }
        own.is_some()
    }

    /// Takes the line, and gives back what exceeds `limit`.
    fn part(&self, limit: usize, mut adopt: impl FnMut(Garbage)) {
        let mut left = limit;
        for from in [Self::take_line, Self::take_incoming] {
            if left == 0 {
                return;
            }
            let Some(mut chain) = from(self) else { continue };
            loop {
                let (garbage, rest) = chain.pop();
                adopt(garbage);
                left -= 1;
                match rest {
                    None => break,
                    Some(rest) if left == 0 => {
                        self.join(rest, End::Front);
                        break;
                    }
                    Some(rest) => chain = rest,
                }
            }
        }
    }

    fn take_line(&self) -> Option<Box<Chain>> {
        self.line.take()
    }

    /// The objects that were left one by one, oldest first.
    fn take_incoming(&self) -> Option<Box<Chain>> {
        if self.incoming.is_empty() {
            return None;
        }
        Chain::turned(self.incoming.take().into_raw()).map(Box::new)
    }

    /// Puts a chain at an end of the line.
    fn join(&self, chain: Box<Chain>, end: End) {
        self.line.put(chain, |own, other| match end {
            End::Front => own.extend(*other),
            End::Back => {
                let newer = mem::replace(own, *other);
                own.extend(newer);
            }
        });
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        debug_assert!(self.is_empty(), "the owner frees what is left");
    }
}

/// A chain of nodes, oldest first. The owner of the chain owns the nodes. Dropping the chain leaks them.
#[derive(Debug)]
struct Chain {
    first: NonNull<Node>,
    last: NonNull<Node>,
}

// SAFETY: the nodes belong to the chain, and garbage is `Send`.
unsafe impl Send for Chain {}

impl Chain {
    fn of(objects: impl Iterator<Item = Garbage>) -> Option<Self> {
        let mut nodes = objects.map(|garbage| NonNull::from(Box::leak(Box::new(Node::new(garbage)))));
        let first = nodes.next()?;
        work::step();
        let mut chain = Self { first, last: first };
        for node in nodes {
            work::step();
            chain.extend(Self { first: node, last: node });
        }
        Some(chain)
    }

    /// Reverses the nodes of a stack, which the caller has taken.
    fn turned(newest: *mut Node) -> Option<Self> {
        let last = NonNull::new(newest)?;
        let (mut first, mut behind) = (last, ptr::null_mut());
        loop {
            work::step();
            // SAFETY: the nodes were taken from the stack, and belong to the caller.
            let older = unsafe { mem::replace(&mut first.as_mut().next, behind) };
            let Some(older) = NonNull::new(older) else { return Some(Self { first, last }) };
            behind = first.as_ptr();
            first = older;
        }
    }

    /// Appends another chain, in constant time.
    fn extend(&mut self, newer: Self) {
        // SAFETY: the nodes belong to the chain.
        unsafe { self.last.as_mut() }.next = newer.first.as_ptr();
        self.last = newer.last;
    }

    /// Separates the oldest object from the others.
    fn pop(mut self: Box<Self>) -> (Garbage, Option<Box<Self>>) {
        work::step();
        // SAFETY: each node came from a `Box`, belongs to the chain, and leaves it here.
        let node = unsafe { Box::from_raw(self.first.as_ptr()) };
        let rest = NonNull::new(node.next).map(|next| {
            self.first = next;
            self
        });
        (node.garbage, rest)
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    /// More than any call looks at.
    const MANY: usize = if cfg!(miri) { 1_000 } else { 100_000 };

    /// An object that the tests recognise by its size.
    fn object(bytes: usize) -> Garbage {
        unsafe extern "C-unwind" fn nothing(_: NonNull<()>, _: *const ()) {}
        // SAFETY: the object has no memory, its destructor does nothing, and the context is not used.
        unsafe { Garbage::in_context(NonNull::dangling(), bytes, ptr::null(), nothing) }
    }

    fn adopted(orphans: &Orphans, limit: usize) -> Vec<usize> {
        let mut sizes = Vec::new();
        orphans.adopt(limit, |garbage| sizes.push(garbage.bytes()));
        sizes
    }

    #[test]
    fn the_oldest_comes_first_however_it_was_left() {
        let orphans = Orphans::new();
        (0..100).for_each(|bytes| orphans.push(object(bytes)));
        orphans.append((100..120).map(object));
        (120..130).for_each(|bytes| orphans.push(object(bytes)));
        assert!(adopted(&orphans, 0).is_empty());
        let mut sizes = Vec::new();
        for share in [1, 70, 2, 40, 1000] {
            sizes.extend(adopted(&orphans, share));
        }
        assert!(sizes.iter().copied().eq(0..130), "{sizes:?}");
        assert!(orphans.is_empty() && adopted(&orphans, 1).is_empty());
    }

    #[test]
    fn an_adopted_share_takes_as_long_whatever_is_left() {
        let orphans = Orphans::new();
        for bytes in 0..MANY {
            let (steps, ()) = work::steps_of(|| orphans.push(object(bytes)));
            assert!(steps <= SETTLED);
        }
        orphans.append((MANY..2 * MANY).map(object));
        let mut next = 0;
        while !orphans.is_empty() {
            let (steps, sizes) = work::steps_of(|| adopted(&orphans, SHARE));
            assert!(steps <= SHARE + SETTLED, "{steps} steps");
            assert!(sizes.iter().copied().eq(next..next + sizes.len()));
            next += sizes.len();
        }
        assert_eq!(next, 2 * MANY);
    }

    /// What another thread has put in line meanwhile is joined, not walked.
    #[test]
    fn two_chains_are_joined_in_constant_time() {
        let orphans = Orphans::new();
        orphans.append((MANY / 2..MANY).map(object));
        let old = Chain::of((0..MANY / 2).map(object)).expect("there are some");
        let (steps, ()) = work::steps_of(|| orphans.join(Box::new(old), End::Front));
        assert_eq!(steps, 0);
        assert!(adopted(&orphans, usize::MAX).into_iter().eq(0..MANY));
    }

    /// No thread puts objects in line while a collector is at work; the collector does it at its end.
    #[test]
    fn what_was_left_during_a_collection_is_not_turned_round_by_the_next_one() {
        let (orphans, event) = (Orphans::new(), Event::new(std::time::Duration::ZERO));
        let collection = orphans.collect(&event, || false).expect("no other collection runs");
        (0..MANY).for_each(|bytes| orphans.push(object(bytes)));
        assert!(adopted(&orphans, 1).is_empty(), "no other thread adopts during a collection");
        drop(collection);
        let (steps, sizes) = work::steps_of(|| adopted(&orphans, SHARE));
        assert!(steps <= SHARE, "{steps} steps");
        assert!(sizes.into_iter().eq(0..SHARE));
        assert!(adopted(&orphans, usize::MAX).into_iter().eq(SHARE..MANY));
    }

    /// Objects left meanwhile are newer than the rest of what a thread has taken.
    #[test]
    fn the_rest_of_a_share_is_older_than_what_was_left_meanwhile() {
        for number in [1, SETTLED] {
            let orphans = Orphans::new();
            orphans.append((0..10).map(object));
            let mut sizes = Vec::new();
            orphans.adopt(1, |garbage| {
                sizes.push(garbage.bytes());
                // One at a time, which puts a full stack in line, or all at once.
                (10..10 + number).for_each(|bytes| orphans.push(object(bytes)));
                orphans.append((10 + number..20 + number).map(object));
            });
            sizes.extend(adopted(&orphans, usize::MAX));
            assert!(sizes.iter().copied().eq(0..20 + number), "{sizes:?}");
        }
    }
}
