//! Hand-over of objects from any thread to a thread that will free them.
//!
//! The *stack* is lock-free, and is emptied as a whole. A push is a compare-and-swap in a loop; a take is a swap. No node is ever
//! popped singly, so there is no ABA problem, and any thread may take. A thread that is preempted anywhere delays no other thread.
//!
//! *Orphans* are objects that belong to no retire list: dropped retirements, and what dropped reclaimers had.
//!
//! ```text
//!   leave --> incoming (a stack) --all at once, if nothing else is left--> next --one by one--> a retire list
//! ```
//!
//! Leaving is lock-free. Whoever adopts has the lock of `next` for as long as it takes to move a share of objects, and runs no
//! destructor meanwhile; others adopt nothing then, and do not wait. A [barrier](Orphans::collect), which must find everything,
//! waits for the lock, and has it until it has looked everywhere. It has no precedence: it tries, as others do, and sleeps in between.

use std::ptr::{self, NonNull};

use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::wait::park::Event;
use crate::rcu::engine::Core;
use crate::rcu::orders;
use stillpoint_sys::sync::atomic::{fence, AtomicBool, AtomicPtr, Ordering};
use stillpoint_sys::sync::{Locked, TryLock};
use stillpoint_sys::work;

#[derive(Default)]
pub(crate) struct Stack {
    newest: AtomicPtr<Node>,
}

/// An object in a chain; `next` is taken after it.
struct Node {
    garbage: Garbage,
    next: *mut Node,
}

impl Stack {
    /// Pushes one object. Lock-free; allocates a node.
    pub(crate) fn push(&self, garbage: Garbage) {
        self.push_all(std::iter::once(garbage));
    }

    /// Pushes objects, which will be taken in this order. Lock-free; allocates a node for each.
    pub(crate) fn push_all(&self, objects: impl Iterator<Item = Garbage>) {
        let new = |garbage| Box::into_raw(Box::new(Node { garbage, next: ptr::null_mut() }));
        let mut nodes = objects.map(new);
        let Some(first) = nodes.next() else { return };
        let last = nodes.fold(first, |last, node| {
            // SAFETY: the nodes are not published yet, so only this thread has access.
            unsafe { (*last).next = node };
            node
        });
        // Relaxed: `newest` is not followed here.
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: as above.
            unsafe { (*last).next = newest };
            // Relaxed on failure: the other node is not accessed.
            match self.newest.compare_exchange_weak(newest, first, orders::push(), Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Puts taken objects back, behind what others have pushed meanwhile. Lock-free. Takes time in proportion to what others have
    /// pushed, however much is put back.
    pub(crate) fn give_back(&self, mut taken: Taken) {
        let mut newest = std::mem::replace(&mut taken.next, ptr::null_mut());
        while !newest.is_null() {
            // Relaxed on failure: `take` below acquires.
            let answer =
                self.newest.compare_exchange(ptr::null_mut(), newest, orders::push(), Ordering::Relaxed);
            if answer.is_ok() {
                return;
            }
            newest = self.take().in_front_of(newest);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        // Acquire: pairs with the release in `push`, so that a following `take` also sees an object that is seen here, and with
        // the release in `take`.
        self.newest.load(Ordering::Acquire).is_null()
    }

    /// Takes everything.
    pub(crate) fn take(&self) -> Taken {
        Taken { next: self.newest.swap(ptr::null_mut(), orders::take()) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        debug_assert!(self.is_empty(), "the owner frees what is left");
    }
}

// SAFETY: a stack owns garbage, which is `Send`, and shares nothing but its atomic head.
unsafe impl Send for Stack {}
// SAFETY: only the head is shared, which is atomic; each node is taken by one thread only.
unsafe impl Sync for Stack {}

/// Objects taken from a [`Stack`]: what was pushed last comes first. Must be emptied before it is dropped.
pub(crate) struct Taken {
    next: *mut Node,
}

impl Default for Taken {
    fn default() -> Self {
        Self { next: ptr::null_mut() }
    }
}

impl Taken {
    pub(crate) fn is_empty(&self) -> bool {
        self.next.is_null()
    }

    /// Joins both chains: `older` follows this one. Returns the newest node.
    fn in_front_of(mut self, older: *mut Node) -> *mut Node {
        let newest = std::mem::replace(&mut self.next, ptr::null_mut());
        let Some(mut oldest) = NonNull::new(newest) else { return older };
        // SAFETY: the chain was taken from the stack, and belongs only to this value until it is published again.
        while let Some(next) = NonNull::new(unsafe { oldest.as_ref().next }) {
            oldest = next;
        }
        // SAFETY: the node is the last of the chain, which belongs only to this value.
        unsafe { oldest.as_mut().next = older };
        newest
    }

    /// Reverses the order: the oldest comes first.
    pub(crate) fn oldest_first(mut self) -> Self {
        let mut turned = ptr::null_mut();
        let mut next = std::mem::replace(&mut self.next, ptr::null_mut());
        while !next.is_null() {
            // SAFETY: the chain belongs only to this value.
            let older = unsafe { std::mem::replace(&mut (*next).next, turned) };
            turned = next;
            next = older;
        }
        Self { next: turned }
    }
}

impl Iterator for Taken {
    type Item = Garbage;

    fn next(&mut self) -> Option<Garbage> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the node came from `Box::into_raw` in `push_all`, and only this value took it from the
        // stack.
        let node = unsafe { Box::from_raw(self.next) };
        self.next = node.next;
        Some(node.garbage)
    }
}

// SAFETY: the nodes belong only to this value, and garbage is `Send`.
unsafe impl Send for Taken {}

#[derive(Default)]
pub(crate) struct Orphans {
    /// What was left since `next` was last filled.
    incoming: Stack,
    /// What is adopted next.
    next: TryLock<Taken>,
    /// Whether there is something in `next`. Written with the lock, before it is filled and after it was emptied.
    has_next: AtomicBool,
    /// Whether the thread with the lock is changing `next`.
    is_moving: AtomicBool,
}

/// As long as it exists, no other thread adopts: what has been left stays where it is.
pub(crate) struct Collection<'o> {
    orphans: &'o Orphans,
    /// `None` only during the drop.
    next: Option<Locked<'o, Taken>>,
    /// Wakes threads that would have adopted.
    event: &'o Event,
}

impl Collection<'_> {
    /// Hands everything to `adopt`.
    pub(crate) fn adopt(&mut self, adopt: impl FnMut(Garbage)) {
        if let Some(next) = &mut self.next {
            self.orphans.part(next, usize::MAX, adopt);
        }
    }
}

impl Drop for Collection<'_> {
    fn drop(&mut self) {
        self.next = None;
        self.event.notify();
    }
}

impl Orphans {
    /// In the child of a `fork`, where no other thread adopts. What others were adopting is lost to the child.
    ///
    /// # Safety
    /// There is no other thread, and the caller adopts nothing.
    pub(crate) unsafe fn reset_after_fork(&self) {
        // SAFETY: nobody uses the value, by the caller's promise.
        unsafe { self.next.unlock_after_fork() };
        // Relaxed, all: there is no other thread.
        if self.is_moving.swap(false, Ordering::Relaxed) {
            // It may name an object that was taken out already. It has no destructor.
            self.next.try_lock().into_iter().for_each(|mut next| *next = Taken::default());
            self.has_next.store(false, Ordering::Relaxed);
        }
    }

    /// Whether another thread adopts just now, or a barrier collects: then this thread cannot.
    pub(crate) fn is_locked(&self) -> bool {
        self.next.is_locked()
    }

    /// Waits by `pause` until no other thread adopts. `None` if `pause` gives up.
    pub(crate) fn collect<'o>(
        &'o self,
        event: &'o Event,
        mut pause: impl FnMut() -> bool,
    ) -> Option<Collection<'o>> {
        loop {
            if let Some(next) = self.next.try_lock() {
                return Some(Collection { orphans: self, next: Some(next), event });
            }
            if !pause() {
                return None;
            }
        }
    }

    /// Leaves objects, the oldest first. Lock-free.
    pub(crate) fn leave(&self, objects: impl Iterator<Item = Garbage>) {
        self.incoming.push_all(objects.inspect(|_| work::step()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        // The order matters: who sees that the stack was emptied, sees the flag that was raised before.
        // Relaxed: as new as what the load of the stack has acquired.
        self.incoming.is_empty() && !self.has_next.load(Ordering::Relaxed)
    }

    /// Hands at most `limit` objects to `adopt`, and none that is left after the stack was taken for this call. Takes time in
    /// proportion to the objects handed out, not to what is left. Hands out none while another thread adopts; returns whether it
    /// was allowed. If so, the caller tells those who wait of what is left: they could not adopt meanwhile.
    pub(crate) fn adopt(&self, limit: usize, adopt: impl FnMut(Garbage)) -> bool {
        let Some(mut next) = self.next.try_lock() else { return false };
        self.part(&mut next, limit, adopt);
        drop(next);
        // SeqCst: pairs with the fence in `Event::sleep_unless`: either a thread that is about to sleep finds the lock free, or the
        // caller finds what was left meanwhile.
        fence(Ordering::SeqCst);
        true
    }

    fn part(&self, next: &mut Taken, limit: usize, mut adopt: impl FnMut(Garbage)) {
        // Relaxed: for the child of a `fork`, where there is one thread.
        self.is_moving.store(true, Ordering::Relaxed);
        let mut is_filled = false;
        for _ in 0..limit {
            // Once: others may leave objects faster than this thread adopts them.
            if next.is_empty() && !is_filled {
                is_filled = true;
                // Relaxed: the taking of the stack releases it.
                self.has_next.store(true, Ordering::Relaxed);
                *next = self.incoming.take();
            }
            let Some(garbage) = next.next() else { break };
            work::step();
            adopt(garbage);
        }
        // Relaxed: a hint for those who look while no thread has the lock; they look again when they are told.
        self.has_next.store(!next.is_empty(), Ordering::Relaxed);
        self.is_moving.store(false, Ordering::Relaxed);
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        debug_assert!(self.is_empty(), "the owner frees what is left");
    }
}

impl Core {
    /// Takes in an object that was just retired and cannot be refused, and that belongs to no retire list.
    pub(crate) fn retire_orphan(&self, garbage: Garbage) {
        self.charge(garbage.bytes());
        self.shared_counters.share_retired();
        self.add_orphans(std::iter::once(garbage));
    }

    /// Takes in an object that belongs to no retire list, was counted as retired before, and has its room.
    pub(crate) fn add_orphans(&self, orphans: impl Iterator<Item = Garbage>) {
        self.orphans.leave(orphans.inspect(|garbage| self.shared_counters.pend(garbage.bytes())));
        self.tell_of_orphans();
    }

    /// Waits while another thread adopts. From then on no other thread does until the result is dropped. `None` if `pause` gives up.
    pub(crate) fn collect_orphans(&self, pause: impl FnMut() -> bool) -> Option<Collection<'_>> {
        self.orphans.collect(&self.event, pause)
    }

    /// Whether there are orphans that may be adopted.
    pub(crate) fn has_adoptable(&self) -> bool {
        self.has_orphans() && !self.orphans.is_locked()
    }

    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Hands at most `limit` orphans to `adopt`, and no longer counts them as orphans. Hands out none while another thread adopts, or
    /// a barrier collects them.
    pub(crate) fn adopt_orphans(&self, limit: usize, mut adopt: impl FnMut(Garbage)) {
        let is_allowed = self.orphans.adopt(limit, |garbage| {
            self.unpend(&garbage);
            adopt(garbage);
        });
        if is_allowed {
            // Others could not adopt meanwhile.
            self.tell_of_orphans();
        }
    }

    /// Wakes a background reclaimer, which may be asleep.
    fn tell_of_orphans(&self) {
        if self.has_orphans() {
            self.event.notify();
        }
    }

    /// Moves the object's count from the shared counters to the retire list that has it.
    pub(crate) fn unpend(&self, garbage: &Garbage) {
        self.shared_counters.unpend(garbage.bytes());
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::rcu::engine::queue::retire_list::SHARE;

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

    fn push(orphans: &Orphans, bytes: usize) {
        orphans.leave(std::iter::once(object(bytes)));
    }

    /// What is left together keeps its order, and what was left before the stack was taken comes before what is left later.
    #[test]
    fn what_is_left_later_waits_for_what_was_left_before() {
        let orphans = Orphans::default();
        orphans.leave((0..100).map(object));
        assert!(adopted(&orphans, 0).is_empty() && !orphans.is_empty());
        let mut sizes = adopted(&orphans, 1);
        (100..130).rev().for_each(|bytes| push(&orphans, bytes));
        for share in [70, 2, 40, 1000] {
            sizes.extend(adopted(&orphans, share));
        }
        assert!(sizes.iter().copied().eq(0..130), "{sizes:?}");
        assert!(orphans.is_empty() && adopted(&orphans, 1).is_empty());
    }

    #[test]
    fn an_adopted_share_takes_as_long_whatever_is_left() {
        let orphans = Orphans::default();
        for bytes in 0..MANY {
            let (steps, ()) = work::steps_of(|| push(&orphans, bytes));
            assert_eq!(steps, 1);
        }
        orphans.leave((MANY..2 * MANY).map(object));
        let mut number = 0;
        while !orphans.is_empty() {
            let (steps, sizes) = work::steps_of(|| adopted(&orphans, SHARE));
            assert!(steps <= SHARE, "{steps} steps");
            number += sizes.len();
        }
        assert_eq!(number, 2 * MANY);
    }

    #[test]
    fn nobody_else_adopts_during_a_collection_which_finds_everything() {
        let (orphans, event) = (Orphans::default(), Event::new(std::time::Duration::ZERO));
        (0..10).for_each(|bytes| push(&orphans, bytes));
        assert_eq!(adopted(&orphans, 1).len(), 1);
        let mut collection = orphans.collect(&event, || false).expect("nobody adopts");
        assert!(orphans.collect(&event, || false).is_none() && orphans.is_locked());
        (10..20).for_each(|bytes| push(&orphans, bytes));
        assert!(adopted(&orphans, 1).is_empty(), "another thread adopts during a collection");
        let mut number = 0;
        collection.adopt(|_| number += 1);
        assert_eq!(number, 19);
        push(&orphans, 20);
        drop(collection);
        assert_eq!(adopted(&orphans, SHARE), [20]);
        assert!(orphans.is_empty());
    }

    /// Whoever adopts everything does not go on for ever beside those who leave as much, and loses nothing of it.
    #[test]
    fn what_is_left_meanwhile_waits_for_the_next_adoption() {
        let orphans = Orphans::default();
        orphans.leave((0..10).map(object));
        let mut sizes = Vec::new();
        orphans.adopt(usize::MAX, |garbage| {
            push(&orphans, 10 + garbage.bytes());
            sizes.push(garbage.bytes());
        });
        assert!(sizes.len() == 10 && !orphans.is_empty());
        sizes.extend(adopted(&orphans, usize::MAX));
        sizes.sort_unstable();
        assert!(sizes.iter().copied().eq(0..20), "{sizes:?}");
    }

    /// The child of a `fork` loses what another thread was adopting, and nothing else.
    #[test]
    fn a_child_adopts_what_was_not_being_adopted() {
        let orphans = Orphans::default();
        (0..3).for_each(|bytes| push(&orphans, bytes));
        assert_eq!(adopted(&orphans, 1), [2]);
        // SAFETY: nobody adopts.
        unsafe { orphans.reset_after_fork() };
        assert_eq!(adopted(&orphans, 1), [1], "nothing is lost if no thread was adopting");
        // Under Miri, what is lost is a leak.
        let lost = (!cfg!(miri)).then_some((true, [].as_slice()));
        for (is_moving, found) in [(false, [0].as_slice())].into_iter().chain(lost) {
            let barrier = orphans.next.try_lock();
            orphans.is_moving.store(is_moving, Ordering::Relaxed);
            push(&orphans, 3);
            std::mem::forget(barrier);
            // SAFETY: this stands for a child whose parent's thread had the lock; that one uses nothing any more.
            unsafe { orphans.reset_after_fork() };
            assert!(adopted(&orphans, found.len()) == found && adopted(&orphans, usize::MAX) == [3]);
            assert!(orphans.is_empty());
            orphans.leave((7..9).map(object));
            assert_eq!(adopted(&orphans, 1), [7], "what is lost the next time");
        }
        assert_eq!(adopted(&orphans, usize::MAX), [8]);
    }

    #[test]
    fn what_is_given_back_is_older_than_what_was_pushed_meanwhile() {
        for pushed in 0..4 {
            let stack = Stack::default();
            (0..5).for_each(|bytes| stack.push(object(bytes)));
            let mut taken = stack.take();
            assert_eq!(taken.next().map(|garbage| garbage.bytes()), Some(4), "the newest comes first");
            (5..5 + pushed).for_each(|bytes| stack.push(object(bytes)));
            stack.give_back(taken);
            let sizes: Vec<_> = stack.take().oldest_first().map(|garbage| garbage.bytes()).collect();
            assert!(sizes.iter().copied().eq((0..4).chain(5..5 + pushed)), "{sizes:?}");
            stack.give_back(stack.take());
            assert!(stack.is_empty(), "giving nothing back changes nothing");
        }
    }
}
