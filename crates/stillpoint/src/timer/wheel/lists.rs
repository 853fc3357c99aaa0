//! The lists that timers wait in.
//!
//! Heads of lists are links, too, in the same index space: so a timer is unlinked by two stores, without a question. When
//! its two neighbours are one and the same link, that is the head, and the list is empty now; its index is row and slot.
//! Neither is stored in a timer, since a list that is spliced onto another changes the place of all its timers at once.
//!
//! **Every index is that of a link.** Those in links are written only here; callers pass heads, and indices that they have got
//! from [`Lists::grow`] or from a list. [`Lists::shrink`] gives back only links that no list leads to, and its caller forgets
//! their indices.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use super::level::{ROWS, SENTINELS, SLOTS};

/// 8 bytes apart from all else of a timer: eight to a cache line, as neighbours in a list are none in memory.
#[derive(Debug, Clone, Copy)]
struct Link {
    prev: u32,
    /// In a link that is in no list: what its owner has left there.
    next: u32,
}

/// All lists, and which of them have timers.
#[derive(Debug)]
pub(super) struct Lists {
    links: Vec<Link>,
    occupied: [u64; ROWS],
    /// Rows that have an occupied slot.
    rows: u64,
}

impl Lists {
    /// Empty lists, with memory for so many timers.
    pub(super) fn new(capacity: usize) -> Self {
        let mut links = Vec::with_capacity((SENTINELS as usize).saturating_add(capacity));
        links.extend((0..SENTINELS).map(|head| Link { prev: head, next: head }));
        Self { links, occupied: [0; ROWS], rows: 0 }
    }

    pub(super) fn reserve(&mut self, count: usize) -> Result<(), TryReserveError> {
        self.links.try_reserve_exact(count)
    }

    /// So many more links, each of which leads to the next one, and the last to `end`; the index of the first.
    pub(super) fn grow(&mut self, count: usize, end: u32) -> u32 {
        let first = self.links.len() as u32;
        let last = first + count as u32;
        self.links.extend(
            (first + 1..=last).map(|next| Link { prev: 0, next: if next == last { end } else { next } }),
        );
        first
    }

    /// Gives the memory of all links back but those of that many timers. None of the others is in a list, and what was left
    /// in links that are in no list is to be left anew.
    pub(super) fn shrink(&mut self, timers: usize) {
        self.links.truncate(SENTINELS as usize + timers);
        self.links.shrink_to_fit();
    }

    /// What was left in a link that is in no list.
    #[inline]
    pub(super) fn left_in(&self, index: u32) -> u32 {
        at(&self.links, index).next
    }

    #[inline]
    pub(super) fn leave_in(&mut self, index: u32, what: u32) {
        at_mut(&mut self.links, index).next = what;
    }

    #[inline]
    pub(super) fn append(&mut self, head: u32, index: u32) {
        let links = self.links.as_mut_slice();
        let last = at(links, head).prev;
        *at_mut(links, index) = Link { prev: last, next: head };
        at_mut(links, head).prev = index;
        at_mut(links, last).next = index;
        if last == head {
            self.occupy(head);
        }
    }

    #[inline]
    pub(super) fn unlink(&mut self, index: u32) {
        let links = self.links.as_mut_slice();
        let Link { prev, next } = *at(links, index);
        at_mut(links, prev).next = next;
        at_mut(links, next).prev = prev;
        if prev == next {
            self.vacate(prev);
        }
    }

    /// The first of a list.
    #[inline]
    pub(super) fn first(&self, head: u32) -> Option<u32> {
        let first = at(&self.links, head).next;
        (first != head).then_some(first)
    }

    /// Unlinks the first of a list.
    #[inline]
    pub(super) fn pop(&mut self, head: u32) -> Option<u32> {
        let first = self.first(head)?;
        let links = self.links.as_mut_slice();
        let next = at(links, first).next;
        at_mut(links, head).next = next;
        at_mut(links, next).prev = head;
        if next == head {
            self.vacate(head);
        }
        Some(first)
    }

    /// Puts a link before the first of a list.
    #[inline]
    pub(super) fn prepend(&mut self, head: u32, index: u32) {
        let links = self.links.as_mut_slice();
        let first = at(links, head).next;
        *at_mut(links, index) = Link { prev: head, next: first };
        at_mut(links, head).next = index;
        at_mut(links, first).prev = index;
        if first == head {
            self.occupy(head);
        }
    }

    /// Unlinks the last of a list.
    #[inline]
    pub(super) fn pop_last(&mut self, head: u32) -> Option<u32> {
        let last = at(&self.links, head).prev;
        if last == head {
            return None;
        }
        self.unlink(last);
        Some(last)
    }

    /// Appends all of one list to another.
    #[inline]
    pub(super) fn splice(&mut self, from: u32, to: u32) {
        let links = self.links.as_mut_slice();
        let Link { prev: last, next: first } = *at(links, from);
        if first == from {
            return;
        }
        let tail = at(links, to).prev;
        at_mut(links, tail).next = first;
        at_mut(links, first).prev = tail;
        at_mut(links, last).next = to;
        at_mut(links, to).prev = last;
        *at_mut(links, from) = Link { prev: from, next: from };
        self.vacate(from);
        self.occupy(to);
    }

    #[inline]
    fn occupy(&mut self, head: u32) {
        let row = (head / SLOTS) as usize % ROWS;
        self.occupied[row] |= 1 << (head % SLOTS);
        self.rows |= 1 << row;
    }

    /// Apart: with many timers a slot is seldom emptied, and who unlinks keeps its registers for the rest.
    #[cold]
    #[inline(never)]
    fn vacate(&mut self, head: u32) {
        let row = (head / SLOTS) as usize % ROWS;
        self.occupied[row] &= !(1 << (head % SLOTS));
        if self.occupied[row] == 0 {
            self.rows &= !(1 << row);
        }
    }

    /// Links there is memory for.
    #[cfg(all(test, not(loom)))]
    pub(super) fn memory(&self) -> usize {
        self.links.capacity()
    }

    /// A bit for each row that has an occupied slot.
    #[inline]
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether a list has timers.
    #[inline]
    pub(super) fn is_occupied(&self, head: u32) -> bool {
        self.occupied(head / SLOTS) >> (head % SLOTS) & 1 == 1
    }

    /// A bit for each occupied slot of a row.
    #[inline]
    pub(super) fn occupied(&self, row: u32) -> u64 {
        self.occupied[row as usize % ROWS]
    }
}

#[inline]
fn at(links: &[Link], index: u32) -> &Link {
    #[cfg(all(test, not(loom)))]
    touch();
    debug_assert!((index as usize) < links.len());
    // SAFETY: every index is that of a link, as the module says.
    unsafe { links.get_unchecked(index as usize) }
}

#[inline]
fn at_mut(links: &mut [Link], index: u32) -> &mut Link {
    #[cfg(all(test, not(loom)))]
    touch();
    debug_assert!((index as usize) < links.len());
    // SAFETY: every index is that of a link, as the module says.
    unsafe { links.get_unchecked_mut(index as usize) }
}

#[cfg(all(test, not(loom)))]
std::thread_local! {
    /// Links and timers that were looked at, for tests that count work.
    static TOUCHED: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

#[cfg(all(test, not(loom)))]
pub(super) fn touch() {
    TOUCHED.with(|touched| touched.set(touched.get() + 1));
}

#[cfg(all(test, not(loom)))]
pub(super) fn touched() -> u64 {
    TOUCHED.with(core::cell::Cell::get)
}
