//! The arithmetic of levels and slots.
//!
//! A *row* is a level as the wheel stores it: 64 slots with one word of occupancy. Rows 0 to 12 are the exact levels,
//! the next twenty are the coarse levels, and the last has the lists that are not slots.
//!
//! In every row, the slots with timers are at most 64 after the slot of the present time. So the lower six bits of a
//! slot's index are its number in the row, and no two of these slots have the same number.

/// Number of slots of a level.
pub(super) const SLOTS: u32 = 64;

/// A slot is as wide as 32 slots of the level below, so 64 slots are as wide as two slots of the level above.
const EXACT_BITS: u32 = 5;
/// The highest level has slots of 2^60 ticks.
pub(super) const EXACT_LEVELS: u32 = 13;
/// `8^20` times 63 ticks is beyond any delay.
const COARSE_LEVELS: u32 = 20;
const COARSE_ROW: u32 = EXACT_LEVELS;
const LIST_ROW: u32 = COARSE_ROW + COARSE_LEVELS;
pub(super) const ROWS: usize = LIST_ROW as usize + 1;

/// The list of timers that are due.
pub(super) const READY: u32 = LIST_ROW * SLOTS;
/// The list of timers that were due when they were added. They are ready from the next advance on.
pub(super) const LATE: u32 = READY + 1;
/// The list of timers whose places are being computed anew. Used only within a call.
pub(super) const SIFTED: u32 = READY + 2;
/// The list of timers that are set aside: no step of time touches them.
pub(super) const ASIDE: u32 = READY + 3;
/// For each exact level except the lowest, the list of timers that were not moved before their slot began.
const OVERDUE: u32 = READY + 4;

/// Number of list heads. They have the first indices.
pub(super) const SENTINELS: u32 = ROWS as u32 * SLOTS;

/// A slot, and the time at which the wheel has to process it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) head: u32,
    /// A lower bound if the slot is one tick wide.
    pub(super) due: u64,
}

/// The place of an exact timer; `deadline` is after `now`.
///
/// The level is the lowest in which the delay is below 64 slots. Unless it is the lowest of all, the delay is at least
/// two of its slots, so the slot is neither that of the present time nor the next one.
#[inline]
pub(super) fn exact(now: u64, deadline: u64) -> Place {
    // Setting the lower bits does not change the level, and lets the compiler know that the value is not 0.
    let level = (62 - ((deadline - now) | 63).leading_zeros()) / EXACT_BITS;
    let shift = EXACT_BITS * level;
    let slot = deadline >> shift;
    Place { head: level * SLOTS + slot as u32 % SLOTS, due: (slot - 1) << shift }
}

/// The place of a coarse timer; `deadline` is after `now`.
///
/// The level is the lowest that has room for the delay, so its granularity is at most 8/63 of the delay. The slot is
/// the first that begins at the deadline or after it. A timer with a delay below 63 ticks gets the place of an exact
/// timer.
#[inline]
pub(super) fn coarse(now: u64, deadline: u64) -> Place {
    const SLOT_BITS: u32 = 6;
    let delay = deadline - now;
    if delay < 63 {
        return exact(now, deadline);
    }
    // The least k with delay >> 3k < 63. A number of n bits is below 63 << (n - 6) unless its upper six bits are all
    // ones.
    let bits = 64 - delay.leading_zeros();
    let wide = u32::from((delay >> (bits - SLOT_BITS)) == 63);
    let k = (bits - SLOT_BITS + wide).div_ceil(3);
    let mask = (1u64 << (3 * k)) - 1;
    match deadline.checked_add(mask) {
        Some(up) => {
            let slot = (up >> (3 * k)) as u32 % SLOTS;
            Place { head: (COARSE_ROW + k - 1) * SLOTS + slot, due: up & !mask }
        }
        // No slot begins between the deadline and the end of time.
        None => exact(now, deadline),
    }
}

/// The width of a row's slots, as a power of two.
#[inline]
fn shift(row: u32) -> u32 {
    if row < EXACT_LEVELS {
        EXACT_BITS * row
    } else {
        3 * (row - COARSE_ROW + 1)
    }
}

/// The index of a row's slot that contains a time.
#[inline]
pub(super) fn index(row: u32, time: u64) -> u64 {
    time >> shift(row)
}

/// The time at which the slot of this index begins.
#[inline]
pub(super) fn start(row: u32, index: u64) -> u64 {
    index << shift(row)
}

/// The list of the slot of this index.
#[inline]
pub(super) fn head(row: u32, index: u64) -> u32 {
    row * SLOTS + index as u32 % SLOTS
}

/// A row's occupied slots that begin after `before`, and not after `now`. Bit *k* is the slot whose index is *k* + 1
/// above that of `before`.
#[inline]
pub(super) fn reached(row: u32, occupied: u64, before: u64, now: u64) -> u64 {
    let (old, new) = (index(row, before), index(row, now));
    let reached = match new - old {
        count @ 0..=63 => (1 << count) - 1,
        _ => u64::MAX,
    };
    occupied.rotate_right((old + 1) as u32 % SLOTS) & reached
}

/// The time at which the first of these slots begins; `reached` is not 0.
#[inline]
pub(super) fn first(row: u32, reached: u64, before: u64) -> u64 {
    start(row, index(row, before) + 1 + u64::from(reached.trailing_zeros()))
}

/// The exact levels in which `before` and `now`, which is later, are in different slots, with a bit for each. These are
/// the lowest levels.
#[inline]
pub(super) fn left_behind(before: u64, now: u64) -> u64 {
    let highest = (63 - (before ^ now).leading_zeros()) / EXACT_BITS;
    (2 << highest) - 1
}

/// The time after `now` at which the wheel next has to process a row; 0 for at once. `occupied` is not 0, and no
/// occupied slot is in the past. `is_shared` says whether a list has more than one timer.
///
/// A slot of one tick, a coarse slot, and one with a single timer are processed when they begin. The timers of other slots are moved before
/// their slot begins, from the beginning of the preceding slot on.
#[inline]
pub(super) fn next_due(row: u32, occupied: u64, is_shared: impl Fn(u32) -> bool, now: u64) -> u64 {
    let current = index(row, now);
    let further = u64::from(occupied.rotate_right((current + 1) as u32 % SLOTS).trailing_zeros());
    let first = current + 1 + further;
    if !is_moved(row) || !is_shared(head(row, first)) {
        return start(row, first);
    }
    match further {
        0 => 0,
        _ => start(row, first - 1),
    }
}

/// The first occupied slot of a row after `now`, and a lower bound for the deadlines of its timers.
pub(super) fn first_slot(row: u32, occupied: u64, now: u64) -> (u32, u64) {
    let next = index(row, now) + 1;
    let slot = next + u64::from(occupied.rotate_right(next as u32 % SLOTS).trailing_zeros());
    // A coarse slot begins at or after the deadlines of all its timers.
    let least = if row < EXACT_LEVELS { start(row, slot) } else { start(row, slot - 1) + 1 };
    (head(row, slot), least)
}

/// The exact levels, a bit for each.
const EXACT: u64 = (1 << EXACT_LEVELS) - 1;
/// The exact levels except the lowest.
pub(super) const MOVED: u64 = EXACT - 1;
/// The coarse levels.
const COARSE: u64 = ((1 << COARSE_LEVELS) - 1) << COARSE_ROW;

/// The coarse levels among `rows`.
#[inline]
pub(super) fn coarse_rows(rows: u64) -> u64 {
    rows & COARSE
}

/// Whether timers of this row are moved to a lower one before they fire.
#[inline]
pub(super) fn is_moved(row: u32) -> bool {
    MOVED >> row & 1 == 1
}

/// Whether the lists of a row are slots.
#[inline]
pub(super) fn is_slots(row: u32) -> bool {
    row < LIST_ROW
}

/// Whether there are timers in a list that is not a slot.
#[inline]
pub(super) fn has_lists(rows: u64) -> bool {
    rows >> LIST_ROW & 1 == 1
}

/// The list of the overdue timers of a level.
#[inline]
pub(super) fn overdue(level: u32) -> u32 {
    OVERDUE + level
}

/// The levels that have overdue timers, a bit for each. `occupied` gives a row's occupied lists.
#[inline]
pub(super) fn overdue_levels(occupied: impl Fn(u32) -> u64) -> u64 {
    occupied(LIST_ROW) >> (OVERDUE % SLOTS) & MOVED
}
