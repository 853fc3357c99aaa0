//! The lists that timers wait in.
//!
//! The heads of lists are links of the same kind, so a timer is unlinked by two stores, without a branch. If its two
//! neighbours are the same link, that link is the head, and the list is empty now; the head's index gives row and slot.
//! A timer does not store its row and slot: when one list is spliced onto another, these change for all its timers at
//! once.
//!
//! The [`Links`] below the lists hold the links: a vector, in which indices are names (see `slab.rs`), or the nodes of
//! the user's own structures, whose addresses are their names (see `nodes.rs`).
//!
//! **Every name is that of a link.** Only this file writes names into links. Callers pass numbers of lists, and names
//! that come from a list, from [`Lists::grow`], or from a caller who promises it.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use super::level::{ROWS, SENTINELS, SLOTS};
use stillpoint_sys::bits::bits;

/// The neighbours of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link<A> {
    pub(super) prev: A,
    /// In a link that is in no list, a value that its owner has stored.
    pub(super) next: A,
}

/// Links, including the heads of the lists. Every name that is passed to one of these functions is that of a link.
pub(super) trait Links {
    type Name: Copy + PartialEq;

    /// The head of a list.
    fn head(&self, list: u32) -> Self::Name;
    /// The list of a head.
    fn list(&self, head: Self::Name) -> u32;
    fn link(&self, name: Self::Name) -> Link<Self::Name>;
    fn set(&mut self, name: Self::Name, link: Link<Self::Name>);
    fn set_prev(&mut self, name: Self::Name, prev: Self::Name);
    fn set_next(&mut self, name: Self::Name, next: Self::Name);
}

/// The name of a link.
pub(super) type NameOf<L> = <<L as Deref>::Target as Links>::Name;

/// All lists, and which of them have timers.
#[derive(Debug)]
pub(super) struct Lists<L> {
    links: L,
    occupied: [u64; ROWS],
    /// Rows that have an occupied slot.
    rows: u64,
}

/// Links by index: 8 bytes each, apart from the rest of a timer. Neighbours in a list are not neighbours in memory, so
/// it helps to have eight links in a cache line.
impl Links for [Link<u32>] {
    type Name = u32;

    #[inline(always)]
    fn head(&self, list: u32) -> u32 {
        list
    }

    #[inline(always)]
    fn list(&self, head: u32) -> u32 {
        head
    }

    #[inline(always)]
    fn link(&self, index: u32) -> Link<u32> {
        touch();
        debug_assert!((index as usize) < self.len());
        // SAFETY: every index is that of a link (see the module's documentation).
        unsafe { *self.get_unchecked(index as usize) }
    }

    #[inline(always)]
    fn set(&mut self, index: u32, link: Link<u32>) {
        *at_mut(self, index) = link;
    }

    #[inline(always)]
    fn set_prev(&mut self, index: u32, prev: u32) {
        at_mut(self, index).prev = prev;
    }

    #[inline(always)]
    fn set_next(&mut self, index: u32, next: u32) {
        at_mut(self, index).next = next;
    }
}

#[inline(always)]
fn at_mut(links: &mut [Link<u32>], index: u32) -> &mut Link<u32> {
    touch();
    debug_assert!((index as usize) < links.len());
    // SAFETY: every index is that of a link (see the module's documentation).
    unsafe { links.get_unchecked_mut(index as usize) }
}

impl Lists<Vec<Link<u32>>> {
    /// Empty lists, with memory for `capacity` timers.
    pub(super) fn new(capacity: usize) -> Self {
        let mut links = Vec::with_capacity((SENTINELS as usize).saturating_add(capacity));
        links.extend((0..SENTINELS).map(|head| Link { prev: head, next: head }));
        Self::over(links)
    }

    pub(super) fn reserve(&mut self, count: usize) -> Result<(), TryReserveError> {
        self.links.try_reserve_exact(count)
    }

    /// Adds `count` links, each with the index of the next one stored in it, and the last with `end`. Returns the first
    /// index.
    pub(super) fn grow(&mut self, count: usize, end: u32) -> u32 {
        let first = self.links.len() as u32;
        let last = first + count as u32;
        self.links.extend(
            (first + 1..=last).map(|next| Link { prev: 0, next: if next == last { end } else { next } }),
        );
        first
    }

    /// Frees the memory of all links except those of the first `timers` timers. The other links must be in no list.
    /// Values stored in links that are in no list must be stored again.
    pub(super) fn shrink(&mut self, timers: usize) {
        self.links.truncate(SENTINELS as usize + timers);
        self.links.shrink_to_fit();
    }

    /// The value stored in a link that is in no list.
    #[inline]
    pub(super) fn left_in(&self, index: u32) -> u32 {
        self.links.link(index).next
    }

    #[inline]
    pub(super) fn leave_in(&mut self, index: u32, what: u32) {
        self.links.set_next(index, what);
    }

    /// The number of links that there is memory for.
    #[cfg(all(test, not(stillpoint_loom)))]
    pub(super) fn memory(&self) -> usize {
        self.links.capacity()
    }
}

impl<L: DerefMut<Target: Links>> Lists<L> {
    /// Empty lists: each head must be linked to itself.
    pub(super) fn over(links: L) -> Self {
        Self { links, occupied: [0; ROWS], rows: 0 }
    }

    #[inline]
    pub(super) fn append(&mut self, list: u32, name: NameOf<L>) {
        let links = &mut *self.links;
        let head = links.head(list);
        let last = links.link(head).prev;
        links.set(name, Link { prev: last, next: head });
        links.set_prev(head, name);
        links.set_next(last, name);
        if last == head {
            self.occupy(list);
        }
    }

    #[inline]
    pub(super) fn unlink(&mut self, name: NameOf<L>) {
        let links = &mut *self.links;
        let Link { prev, next } = links.link(name);
        links.set_next(prev, next);
        links.set_prev(next, prev);
        if prev == next {
            let list = links.list(prev);
            self.vacate(list);
        }
    }

    /// The first timer of a list.
    #[inline]
    pub(super) fn first(&self, list: u32) -> Option<NameOf<L>> {
        let head = self.links.head(list);
        let first = self.links.link(head).next;
        (first != head).then_some(first)
    }

    /// Whether a list has more than one timer.
    #[inline]
    pub(super) fn is_shared(&self, list: u32) -> bool {
        let Link { prev, next } = self.links.link(self.links.head(list));
        prev != next
    }

    /// The links of a list, from the first to the last.
    pub(super) fn iter(&self, list: u32) -> impl Iterator<Item = NameOf<L>> + '_ {
        let head = self.links.head(list);
        core::iter::successors(self.first(list), move |&name| {
            let next = self.links.link(name).next;
            (next != head).then_some(next)
        })
    }

    /// Unlinks the first timer of a list.
    #[inline]
    pub(super) fn pop(&mut self, list: u32) -> Option<NameOf<L>> {
        let first = self.first(list)?;
        let links = &mut *self.links;
        let head = links.head(list);
        let next = links.link(first).next;
        links.set_next(head, next);
        links.set_prev(next, head);
        if next == head {
            self.vacate(list);
        }
        Some(first)
    }

    /// Puts a timer at the beginning of a list.
    #[inline]
    pub(super) fn prepend(&mut self, list: u32, name: NameOf<L>) {
        let links = &mut *self.links;
        let head = links.head(list);
        let first = links.link(head).next;
        links.set(name, Link { prev: head, next: first });
        links.set_next(head, name);
        links.set_prev(first, name);
        if first == head {
            self.occupy(list);
        }
    }

    /// Unlinks the last timer of a list.
    #[inline]
    pub(super) fn pop_last(&mut self, list: u32) -> Option<NameOf<L>> {
        let head = self.links.head(list);
        let last = self.links.link(head).prev;
        if last == head {
            return None;
        }
        self.unlink(last);
        Some(last)
    }

    /// Appends all timers of one list to another.
    #[inline]
    pub(super) fn splice(&mut self, from: u32, to: u32) {
        let links = &mut *self.links;
        let (source, target) = (links.head(from), links.head(to));
        let Link { prev: last, next: first } = links.link(source);
        if first == source {
            return;
        }
        let tail = links.link(target).prev;
        links.set_next(tail, first);
        links.set_prev(first, tail);
        links.set_next(last, target);
        links.set_prev(target, last);
        links.set(source, Link { prev: source, next: source });
        self.vacate(from);
        self.occupy(to);
    }
}

impl<L> Lists<L> {
    #[inline]
    fn occupy(&mut self, head: u32) {
        let row = (head / SLOTS) as usize % ROWS;
        self.occupied[row] |= 1 << (head % SLOTS);
        self.rows |= 1 << row;
    }

    /// Out of line, so that `unlink` needs fewer registers. With many timers, a slot is seldom emptied.
    #[cold]
    #[inline(never)]
    fn vacate(&mut self, head: u32) {
        let row = (head / SLOTS) as usize % ROWS;
        self.occupied[row] &= !(1 << (head % SLOTS));
        if self.occupied[row] == 0 {
            self.rows &= !(1 << row);
        }
    }

    /// The first list that has timers.
    pub(super) fn any(&self) -> Option<u32> {
        let row = bits(self.rows).next()?;
        Some(row * SLOTS + self.occupied(row).trailing_zeros())
    }

    /// A bit for each row that has an occupied slot.
    #[inline]
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// A bit for each occupied slot of a row.
    #[inline]
    pub(super) fn occupied(&self, row: u32) -> u64 {
        self.occupied[row as usize % ROWS]
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
std::thread_local! {
    /// Number of accesses to links and timers, for tests that count work.
    static TOUCHED: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Counts an access to a link or a timer, in tests.
#[inline(always)]
pub(super) fn touch() {
    #[cfg(all(test, not(stillpoint_loom)))]
    TOUCHED.with(|touched| touched.set(touched.get() + 1));
}

#[cfg(all(test, not(stillpoint_loom)))]
pub(super) fn touched() -> u64 {
    TOUCHED.with(core::cell::Cell::get)
}
