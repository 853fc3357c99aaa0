//! The wheel, generic over the store of its timers. `moves.rs` advances the time.

use core::ops::DerefMut;

use super::level::{self, Place, LATE, READY, SIFTED, SLOTS};
use super::lists::{Links, Lists, NameOf};
use super::schedule::COARSE;
use super::WheelStats;
use stillpoint_sys::bits::bits;

/// Timers, and the lists that they wait in.
pub(super) trait Store {
    type Links: DerefMut<Target: Links>;

    fn lists(&self) -> &Lists<Self::Links>;
    fn lists_mut(&mut self) -> &mut Lists<Self::Links>;
    /// The deadline and the flags of a timer.
    fn when(&self, name: NameIn<Self>) -> (u64, u32);
}

/// The name of a timer in a store.
pub(super) type NameIn<S> = NameOf<<S as Store>::Links>;

#[derive(Debug)]
pub(super) struct Core<S> {
    pub(super) store: S,
    pub(super) now: u64,
    /// No slot has to be processed before this time; 0 if there is something to do already. A lower bound, since a
    /// cancellation does not change it.
    pub(super) next: u64,
    pub(super) moved: u64,
    pub(super) went_back: u64,
}

impl<S> Core<S> {
    pub(super) fn new(store: S, now: u64) -> Self {
        Self { store, now, next: u64::MAX, moved: 0, went_back: 0 }
    }
}

impl<S: Store> Core<S> {
    pub(super) fn stats(&self, timers: usize, capacity: usize) -> WheelStats {
        WheelStats {
            timers,
            capacity,
            moved: self.moved,
            levels: self.levels_in_use().count_ones(),
            time_went_back: self.went_back,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.next_event().map(|next| next.max(self.now))
    }

    /// The earliest deadline of all timers, and a timer that has it. In each row, it is in the first slot that has timers.
    pub(super) fn earliest(&self) -> Option<(u64, NameIn<S>)> {
        let lists = self.store.lists();
        let mut earliest = None;
        let mut look_at = |list, least| {
            if earliest.is_none_or(|(earliest, _)| least < earliest) {
                let timers = lists.iter(list).map(|name| (self.store.when(name).0, name));
                earliest = earliest.into_iter().chain(timers).min_by_key(|(deadline, _)| *deadline);
            }
        };
        for row in bits(lists.rows()) {
            if level::is_slots(row) {
                let (list, least) = level::first_slot(row, lists.occupied(row), self.now);
                look_at(list, least);
            } else {
                bits(lists.occupied(row)).for_each(|list| look_at(READY + list, 0));
            }
        }
        earliest
    }

    /// Sets the time, and files all timers anew.
    pub(super) fn set_time(&mut self, now: u64) {
        self.now = now;
        self.splice_all(SIFTED);
        while let Some(name) = self.store.lists_mut().pop(SIFTED) {
            let (deadline, flags) = self.store.when(name);
            self.file(name, deadline, flags, LATE);
        }
        self.look_ahead();
    }

    /// Moves all timers to this list.
    pub(super) fn splice_all(&mut self, to: u32) {
        for row in bits(self.store.lists().rows()) {
            let lists = bits(self.store.lists().occupied(row)).map(|slot| row * SLOTS + slot);
            for list in lists.filter(|list| *list != to) {
                self.store.lists_mut().splice(list, to);
            }
        }
    }

    /// The list for a deadline. If the deadline is not in the future, that is `late`.
    #[inline]
    pub(super) fn place(&mut self, deadline: u64, flags: u32, late: u32) -> u32 {
        if deadline <= self.now {
            self.next = 0;
            return late;
        }
        let Place { head, due } = if flags & COARSE == 0 {
            level::exact(self.now, deadline)
        } else {
            level::coarse(self.now, deadline)
        };
        self.expect(due);
        head
    }

    /// Lowers `next` to this time, at which a slot has to be processed.
    #[inline]
    pub(super) fn expect(&mut self, due: u64) {
        // A branch: with a conditional move, each addition would depend on the one before.
        if due < self.next {
            self.next = due;
        }
    }

    /// Links a timer into its list.
    #[inline]
    pub(super) fn file(&mut self, name: NameIn<S>, deadline: u64, flags: u32, late: u32) {
        let head = self.place(deadline, flags, late);
        self.store.lists_mut().append(head, name);
    }
}
