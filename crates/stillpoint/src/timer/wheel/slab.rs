//! Nodes and the lists they form.
//!
//! Heads of lists are nodes, too, in the same index space: so a node is unlinked by two stores, without a question. When
//! its two neighbours are one and the same node, that is the head, and the list is empty now; its index is row and slot.
//! Neither is stored in a node, since a list that is spliced onto another changes the place of all its nodes at once.
//!
//! **Every index is that of a node.** Those in nodes and in `free` are written here alone, and nodes are never given back; the
//! index of a key is compared with their number in `find` and `remove`; callers pass heads, and indices that they have got
//! from here since the wheel was last lent to a callback.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use super::key::Key;
use super::level::{ROWS, SENTINELS, SLOTS};
use super::schedule::LENT;

/// The end of the list of free nodes: a sentinel is never free.
const NONE: u32 = 0;
/// Nodes that are made at once when there are few.
const BATCH: usize = 64;

/// 32 bytes: half a cache line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) deadline: u64,
    pub(super) period: u64,
    pub(super) prev: u32,
    /// In a node that is free: the next free one.
    pub(super) next: u32,
    /// Of the present key; in a node that is free: of the next one.
    generation: u32,
    pub(super) flags: u32,
}

#[derive(Debug)]
pub(super) struct Slab<T> {
    nodes: Vec<Node>,
    /// Those of the nodes after the sentinels. A value is missing in a node that is free, and while it is lent to a
    /// callback.
    values: Vec<Option<T>>,
    occupied: [u64; ROWS],
    /// Rows that have an occupied slot.
    rows: u32,
    free: u32,
    /// Of a node that was never used, in the lower half: so that each node has 2³¹ uses at least.
    first_generation: u32,
    len: usize,
    /// Nodes whose generations are used up: others take their places.
    worn: usize,
    limit: usize,
}

/// Wheels made so far in this process.
static WHEELS: AtomicU32 = AtomicU32::new(0);

impl<T> Slab<T> {
    pub(super) fn new(capacity: usize, limit: usize) -> Self {
        // Relaxed: only that wheels have different numbers matters. The multiplier, 2³² divided by the golden section, keeps
        // the first generations of few wheels far apart.
        let first_generation = WHEELS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B1) >> 1;
        let mut nodes = Vec::with_capacity((SENTINELS as usize).saturating_add(capacity));
        nodes.extend((0..SENTINELS).map(|head| Node {
            deadline: 0,
            period: 0,
            prev: head,
            next: head,
            generation: 0,
            flags: 0,
        }));
        let limit = limit.min((u32::MAX - SENTINELS) as usize);
        let mut slab = Self {
            nodes,
            values: Vec::with_capacity(capacity),
            occupied: [0; ROWS],
            rows: 0,
            free: NONE,
            first_generation,
            len: 0,
            worn: 0,
            limit,
        };
        slab.extend(capacity.min(limit));
        slab
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Nodes that can be used.
    pub(super) fn capacity(&self) -> usize {
        self.values.len() - self.worn
    }

    /// Makes so many nodes, free ones, in the order of their indices.
    fn extend(&mut self, count: usize) {
        let first = self.nodes.len() as u32;
        let end = first + count as u32;
        self.nodes.extend((first..end).map(|index| Node {
            deadline: 0,
            period: 0,
            prev: 0,
            next: if index + 1 == end { NONE } else { index + 1 },
            generation: self.first_generation,
            flags: 0,
        }));
        self.values.extend((0..count).map(|_| None));
        if count > 0 {
            debug_assert_eq!(self.free, NONE);
            self.free = first;
        }
    }

    /// Whether there is a free node, or one can be made.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        self.free != NONE || self.grow()
    }

    /// Doubles the number of nodes, up to the limit, in which those that are worn out do not count; whether that was possible.
    #[cold]
    fn grow(&mut self) -> bool {
        let have = self.capacity();
        let indices = (u32::MAX - SENTINELS) as usize - self.values.len();
        let count = have.max(BATCH).min(self.limit - have).min(indices);
        if count == 0
            || self.nodes.try_reserve_exact(count).is_err()
            || self.values.try_reserve_exact(count).is_err()
        {
            return false;
        }
        self.extend(count);
        true
    }

    /// Takes a free node for `value`, and appends it to the list of `head`; hands the value back when there is none.
    #[inline]
    pub(super) fn insert(&mut self, head: u32, deadline: u64, value: T) -> Result<Key, T> {
        if !self.has_room() {
            return Err(value);
        }
        let index = self.free;
        let prev = self.node(head).prev;
        let node = self.node_mut(index);
        let (next_free, generation) = (node.next, node.generation);
        node.deadline = deadline;
        node.prev = prev;
        node.next = head;
        self.free = next_free;
        self.node_mut(head).prev = index;
        self.node_mut(prev).next = index;
        self.occupy(head);
        self.len += 1;
        let free = self.value_mut(index).replace(value);
        // It is nothing; without this, the compiler would see to a destructor here.
        core::mem::forget(free);
        Ok(Key::new(index, generation))
    }

    /// The node of a key that is not stale.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<u32> {
        let index = key.index();
        if index < SENTINELS || index as usize >= self.nodes.len() {
            return None;
        }
        // The generation of a free node is that of the next key: a key that nobody was given yet may be asked for, too.
        let used = self.value(index).is_some() || self.node(index).flags & LENT != 0;
        (self.node(index).generation == key.generation() && used).then_some(index)
    }

    /// The key of a node in use.
    #[inline]
    pub(super) fn key(&self, index: u32) -> Key {
        Key::new(index, self.node(index).generation)
    }

    /// Gives a node back that has been unlinked.
    #[inline]
    pub(super) fn release(&mut self, index: u32) -> Option<T> {
        self.retire(index);
        self.value_mut(index).take()
    }

    /// Unlinks a timer and gives its node back, unless the key is stale.
    #[inline]
    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let index = key.index();
        if index < SENTINELS || index as usize >= self.nodes.len() {
            return None;
        }
        if self.node(index).generation != key.generation() {
            return None;
        }
        let value = self.value_mut(index).take();
        if value.is_some() || self.node(index).flags & LENT != 0 {
            self.unlink(index);
            self.retire(index);
        }
        value
    }

    #[inline]
    fn retire(&mut self, index: u32) {
        let free = self.free;
        let node = self.node_mut(index);
        node.generation = node.generation.wrapping_add(1);
        if node.flags != 0 {
            node.flags = 0;
        }
        // A node whose generations are used up is not used again.
        if node.generation != 0 {
            node.next = free;
            self.free = index;
        } else {
            self.worn += 1;
        }
        self.len -= 1;
    }

    #[inline]
    pub(super) fn append(&mut self, head: u32, index: u32) {
        let prev = self.node(head).prev;
        let node = self.node_mut(index);
        node.prev = prev;
        node.next = head;
        self.node_mut(head).prev = index;
        self.node_mut(prev).next = index;
        self.occupy(head);
    }

    #[inline]
    pub(super) fn unlink(&mut self, index: u32) {
        let (prev, next) = (self.node(index).prev, self.node(index).next);
        self.node_mut(prev).next = next;
        self.node_mut(next).prev = prev;
        if prev == next {
            self.vacate(prev);
        }
    }

    /// The first of a list.
    #[inline]
    pub(super) fn first(&self, head: u32) -> Option<u32> {
        let first = self.node(head).next;
        (first != head).then_some(first)
    }

    /// Unlinks the first of a list.
    #[inline]
    pub(super) fn pop(&mut self, head: u32) -> Option<u32> {
        let first = self.first(head)?;
        let next = self.node(first).next;
        self.node_mut(head).next = next;
        self.node_mut(next).prev = head;
        if next == head {
            self.vacate(head);
        }
        Some(first)
    }

    /// Appends all of one list to another.
    #[inline]
    pub(super) fn splice(&mut self, from: u32, to: u32) {
        let Node { prev: last, next: first, .. } = *self.node(from);
        if first == from {
            return;
        }
        let tail = self.node(to).prev;
        self.node_mut(tail).next = first;
        self.node_mut(first).prev = tail;
        self.node_mut(last).next = to;
        self.node_mut(to).prev = last;
        let head = self.node_mut(from);
        head.prev = from;
        head.next = from;
        self.vacate(from);
        self.occupy(to);
    }

    #[inline]
    fn occupy(&mut self, head: u32) {
        let row = (head / SLOTS) as usize % ROWS;
        let before = self.occupied[row];
        self.occupied[row] = before | 1 << (head % SLOTS);
        if before == 0 {
            self.rows |= 1 << row;
        }
    }

    #[inline]
    fn vacate(&mut self, head: u32) {
        let row = (head / SLOTS) as usize % ROWS;
        self.occupied[row] &= !(1 << (head % SLOTS));
        if self.occupied[row] == 0 {
            self.rows &= !(1 << row);
        }
    }

    /// A bit for each row that has an occupied slot.
    #[inline]
    pub(super) fn rows(&self) -> u32 {
        self.rows
    }

    /// A bit for each occupied slot of a row.
    #[inline]
    pub(super) fn occupied(&self, row: u32) -> u64 {
        self.occupied[row as usize % ROWS]
    }

    #[inline]
    pub(super) fn node(&self, index: u32) -> &Node {
        debug_assert!((index as usize) < self.nodes.len());
        // SAFETY: every index is that of a node, as the module says.
        unsafe { self.nodes.get_unchecked(index as usize) }
    }

    #[inline]
    pub(super) fn node_mut(&mut self, index: u32) -> &mut Node {
        debug_assert!((index as usize) < self.nodes.len());
        // SAFETY: every index is that of a node, as the module says.
        unsafe { self.nodes.get_unchecked_mut(index as usize) }
    }

    #[inline]
    pub(super) fn value(&self, index: u32) -> Option<&T> {
        debug_assert!(index >= SENTINELS && (index as usize) < self.nodes.len());
        // SAFETY: every index is that of a node, and this one's is not a head; there is a value for each such node.
        unsafe { self.values.get_unchecked((index - SENTINELS) as usize) }.as_ref()
    }

    #[inline]
    pub(super) fn value_mut(&mut self, index: u32) -> &mut Option<T> {
        debug_assert!(index >= SENTINELS && (index as usize) < self.nodes.len());
        // SAFETY: every index is that of a node, and this one's is not a head; there is a value for each such node.
        unsafe { self.values.get_unchecked_mut((index - SENTINELS) as usize) }
    }

    /// The value of a timer for its callback; none when it is with one already.
    pub(super) fn lend(&mut self, key: Key) -> Option<T> {
        let index = self.find(key)?;
        let value = self.value_mut(index).take()?;
        self.node_mut(index).flags |= LENT;
        Some(value)
    }

    /// Takes a lent value back, unless the timer is gone.
    pub(super) fn give_back(&mut self, key: Key, value: Option<T>) -> Option<T> {
        match self.find(key).filter(|&index| self.node(index).flags & LENT != 0) {
            Some(index) => {
                self.node_mut(index).flags &= !LENT;
                core::mem::replace(self.value_mut(index), value)
            }
            None => value,
        }
    }

    /// The first node in use, of those from `index` on.
    pub(super) fn in_use(&self, index: u32) -> Option<u32> {
        let from = index.max(SENTINELS);
        (from..self.nodes.len() as u32)
            .find(|&index| self.value(index).is_some() || self.node(index).flags & LENT != 0)
    }

    /// Makes the node's generations end with its present use, as after 2³¹ uses.
    #[cfg(all(test, not(loom)))]
    pub(super) fn wear_out(&mut self, key: Key) -> Key {
        self.node_mut(key.index()).generation = u32::MAX;
        self.key(key.index())
    }
}
