//! Advances the time: processes slots that are reached, and moves timers to lower levels before their slots begin.

use super::engine::{Core, NameIn, Store};
use super::level::{self, EXACT_LEVELS, LATE, READY, SIFTED};
use stillpoint_sys::bits::bits;

/// The most timers of each level that one call moves: an advance, or a pop that finds no timer due.
pub(super) const MOVES: usize = 64;

/// The number of timers of each exact level that one call may still move.
pub(super) struct Budget {
    /// The levels that were in use when the call began. No other level gets timers to move within the call.
    levels: u64,
    left: [usize; EXACT_LEVELS as usize],
}

impl Budget {
    fn left(&mut self, level: u32) -> &mut usize {
        &mut self.left[level as usize % EXACT_LEVELS as usize]
    }

    /// The number of moves that all levels have left together.
    fn rest(&mut self) -> usize {
        bits(self.levels).fold(0, |sum, level| sum.saturating_add(*self.left(level)))
    }
}

impl<S: Store> Core<S> {
    /// The exact levels whose timers have to be moved before they fire, a bit for each.
    pub(super) fn levels_in_use(&self) -> u64 {
        self.store.lists().rows() & level::MOVED | self.overdue()
    }

    /// The levels with overdue timers.
    fn overdue(&self) -> u64 {
        level::overdue_levels(|row| self.store.lists().occupied(row))
    }

    /// The same number of moves for each level in use.
    fn budget(&self, moves: usize) -> Budget {
        Budget { levels: self.levels_in_use(), left: [moves; EXACT_LEVELS as usize] }
    }

    /// Advances the time, and moves at most `moves` timers for each level in use. A level may use the moves that others
    /// leave.
    ///
    /// Out of line, so that the loop that fires timers has more registers.
    #[inline(never)]
    pub(super) fn go_on(&mut self, now: u64, moves: usize) {
        let before = self.now;
        if now < before {
            self.went_back += 1;
        }
        self.store.lists_mut().splice(LATE, READY);
        let now = now.max(before);
        self.now = now;
        if now < self.next {
            return;
        }
        let mut budget = self.budget(moves);
        if now > before {
            self.cross(before, &mut budget);
        }
        self.catch_up(&mut budget);
    }

    /// Makes timers ready that were reached since `before`: past slots as a whole, and due timers of slots that contain
    /// the present time.
    fn cross(&mut self, before: u64, budget: &mut Budget) {
        let lists = self.store.lists();
        // For each level: the reached slots that are left, and the time at which the first of them begins.
        let mut reached = [(0, 0); EXACT_LEVELS as usize];
        let mut some = 0u64;
        for row in bits(lists.rows() & level::left_behind(before, self.now)) {
            let slots = level::reached(row, lists.occupied(row), before, self.now);
            if slots != 0 {
                reached[row as usize % reached.len()] = (slots, level::first(row, slots, before));
                some |= 1 << row;
            }
        }
        while some != 0 {
            // The slot that begins first; if several begin then, the widest, whose timers were armed before those of
            // the others.
            let (mut row, mut start) = (0, u64::MAX);
            for other in bits(some) {
                let (_, first) = reached[other as usize % reached.len()];
                if first <= start {
                    (row, start) = (other, first);
                }
            }
            let (slots, first) = &mut reached[row as usize % EXACT_LEVELS as usize];
            *slots &= slots.wrapping_sub(1);
            if *slots == 0 {
                some &= !(1 << row);
            } else {
                *first = level::first(row, *slots, before);
            }
            let index = level::index(row, start);
            let head = level::head(row, index);
            if level::is_moved(row) && index == level::index(row, self.now) {
                self.sift(row, head, budget);
            } else {
                self.store.lists_mut().splice(head, READY);
            }
        }
        for row in bits(level::coarse_rows(self.store.lists().rows())) {
            let slots = level::reached(row, self.store.lists().occupied(row), before, self.now);
            for further in bits(slots) {
                let index = level::index(row, before) + 1 + u64::from(further);
                self.store.lists_mut().splice(level::head(row, index), READY);
            }
        }
    }

    /// Takes the due timers from a slot that contains the present time. Timers beyond the budget become overdue.
    fn sift(&mut self, level: u32, head: u32, budget: &mut Budget) {
        let overdue = level::overdue(level);
        let left = budget.left(level);
        // Timers that are overdue already are moved first.
        if self.store.lists().first(overdue).is_none() {
            while *left > 0 {
                let Some(name) = self.store.lists_mut().pop(head) else { return };
                let is_due = self.store.when(name).0 <= self.now;
                self.store.lists_mut().append(if is_due { READY } else { SIFTED }, name);
                *left -= 1;
                self.moved += 1;
            }
        }
        self.store.lists_mut().splice(head, overdue);
    }

    /// Moves the timers of overdue slots, and those of the slots that begin next.
    ///
    /// A list keeps the order of the armings as long as polls finish: a timer that is moved down was armed before all
    /// timers already in the lower slot, and is put before them. This holds only from one level to the next, so lower
    /// levels are moved first, and the timers of the list `SIFTED` last.
    pub(super) fn catch_up(&mut self, budget: &mut Budget) {
        let overdue = self.overdue();
        for level in bits(overdue) {
            self.move_overdue(level, budget.left(level));
        }
        for level in bits(self.store.lists().rows() & level::MOVED) {
            let next = level::head(level, level::index(level, self.now).wrapping_add(1));
            // A timer that has its slot to itself stays until the slot begins.
            if !self.store.lists().is_shared(next) {
                continue;
            }
            let left = budget.left(level);
            while *left > 0 {
                let Some(name) = self.store.lists_mut().pop_last(next) else { break };
                self.move_down(name);
                *left -= 1;
                self.moved += 1;
            }
        }
        while let Some(name) = self.store.lists_mut().pop_last(SIFTED) {
            self.move_down(name);
        }
        if overdue != 0 {
            let mut rest = budget.rest();
            for level in bits(self.overdue()) {
                self.move_overdue(level, &mut rest);
            }
        }
    }

    /// Moves at most `left` overdue timers of a level to their present places, those that have waited longest first.
    fn move_overdue(&mut self, level: u32, left: &mut usize) {
        while *left > 0 {
            let Some(name) = self.store.lists_mut().pop(level::overdue(level)) else { break };
            let (deadline, flags) = self.store.when(name);
            self.file(name, deadline, flags, READY);
            *left -= 1;
            self.moved += 1;
        }
    }

    /// Puts a timer that is not due before all others in the list of its present place.
    fn move_down(&mut self, name: NameIn<S>) {
        let (deadline, flags) = self.store.when(name);
        let head = self.place(deadline, flags, READY);
        self.store.lists_mut().prepend(head, name);
    }

    /// Moves timers as [`go_on`](Self::go_on) does, without advancing the time.
    pub(super) fn move_some(&mut self, moves: usize) {
        let mut budget = self.budget(moves);
        self.catch_up(&mut budget);
    }

    /// Computes `next` anew: 0 when there is something to do already.
    pub(super) fn look_ahead(&mut self) {
        self.next = self.next_event().unwrap_or(u64::MAX);
    }

    /// The time at which there is something to do next: 0 for at once, `None` for never.
    pub(super) fn next_event(&self) -> Option<u64> {
        let lists = self.store.lists();
        let rows = lists.rows();
        if level::has_lists(rows) {
            return Some(0);
        }
        let is_shared = |list| lists.is_shared(list);
        bits(rows).map(|row| level::next_due(row, lists.occupied(row), is_shared, self.now)).min()
    }
}
