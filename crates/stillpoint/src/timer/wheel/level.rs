//! Where a timer belongs: the arithmetic of levels and slots.
//!
//! A *row* is a level as the wheel stores it: 64 slots with one word of occupancy. Rows 0 to 10 are the exact levels,
//! the next twenty the coarse ones, and the last has the lists that are no slots.

/// Slots of a level.
pub(super) const SLOTS: u32 = 64;
const SLOT_BITS: u32 = 6;

/// Eleven groups of six bits: the last one has the four that are left of 64.
const EXACT_LEVELS: u32 = 11;
/// `8^20` times 63 ticks is beyond any delay.
const COARSE_LEVELS: u32 = 20;
const COARSE_ROW: u32 = EXACT_LEVELS;
const LIST_ROW: u32 = COARSE_ROW + COARSE_LEVELS;
pub(super) const ROWS: usize = LIST_ROW as usize + 1;

/// The list of timers that are due.
pub(super) const READY: u32 = LIST_ROW * SLOTS;
/// Timers that were due when they were added: ready from the next advance on.
pub(super) const LATE: u32 = READY + 1;
/// Timers whose slot has been reached, and that are to be moved to lower levels.
pub(super) const MOVING: u32 = READY + 2;

/// Sentinels: the first indices.
pub(super) const SENTINELS: u32 = ROWS as u32 * SLOTS;

/// A slot, and the time at which it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) head: u32,
    pub(super) start: u64,
}

/// The exact level at which two times differ; they must.
#[inline]
fn level(changed: u64) -> u32 {
    // Of 0 to 63 alone: the lower bits are of level 0 anyway, and the compiler is told that one is set.
    (63 - (changed | 63).leading_zeros()) / SLOT_BITS
}

#[inline]
fn digit(time: u64, level: u32) -> u32 {
    (time >> (SLOT_BITS * level)) as u32 % SLOTS
}

/// Where an exact timer belongs; `deadline` is after `now`.
#[inline]
pub(super) fn exact(now: u64, deadline: u64) -> Place {
    let level = level(now ^ deadline);
    let shift = SLOT_BITS * level;
    Place { head: level * SLOTS + digit(deadline, level), start: deadline >> shift << shift }
}

/// Where a coarse timer belongs; `deadline` is after `now`.
///
/// The level is the lowest that has room for the delay: so its granularity is at most 8/63 of that. The slot is the first
/// that begins at the deadline or after it. A delay below 63 ticks needs no granularity: it has the place of an exact timer.
#[inline]
pub(super) fn coarse(now: u64, deadline: u64) -> Place {
    let delay = deadline - now;
    if delay < 63 {
        return exact(now, deadline);
    }
    // The least k with delay >> 3k < 63. A number of n bits is below 63 << (n - 6) unless its upper six are ones.
    let bits = 64 - delay.leading_zeros();
    let wide = u32::from((delay >> (bits - SLOT_BITS)) == 63);
    let k = (bits - SLOT_BITS + wide).div_ceil(3);
    let mask = (1u64 << (3 * k)) - 1;
    match deadline.checked_add(mask) {
        Some(up) => {
            let slot = (up >> (3 * k)) as u32 % SLOTS;
            Place { head: (COARSE_ROW + k - 1) * SLOTS + slot, start: up & !mask }
        }
        // No slot begins between the deadline and the end of time.
        None => exact(now, deadline),
    }
}

/// What advancing from one time to another means for a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Crossing {
    /// Slots that are due, and the one to begin with: they are reached in turn, around the row.
    pub(super) due: u64,
    pub(super) first: u32,
    /// The slot whose timers are to be looked at one by one.
    pub(super) entered: Option<u32>,
}

/// Which slots of a row are reached from `before` to `now`, which is later.
#[inline]
pub(super) fn crossing(row: u32, before: u64, now: u64) -> Crossing {
    if row < EXACT_LEVELS {
        let top = level(before ^ now);
        let (due, entered) = match row.cmp(&top) {
            core::cmp::Ordering::Less => (u64::MAX, None),
            // A timer of level 0 is due at the very tick of its slot.
            core::cmp::Ordering::Equal if row == 0 => (u64::MAX >> (63 - digit(now, 0)), None),
            core::cmp::Ordering::Equal => ((1 << digit(now, row)) - 1, Some(digit(now, row))),
            core::cmp::Ordering::Greater => (0, None),
        };
        return Crossing { due, first: 0, entered };
    }
    let shift = 3 * (row - COARSE_ROW + 1);
    let (old, new) = (before >> shift, now >> shift);
    let first = (old + 1) as u32 % SLOTS;
    let due = match new - old {
        count @ 0..=63 => ((1u64 << count) - 1).rotate_left(first),
        _ => u64::MAX,
    };
    Crossing { due, first, entered: None }
}

/// When the first occupied slot of a row is reached, after `now`; `occupied` is not 0.
#[inline]
pub(super) fn next_start(row: u32, occupied: u64, now: u64) -> u64 {
    if row < EXACT_LEVELS {
        let shift = SLOT_BITS * row;
        // All occupied slots are after the digit of `now`, and the digits above are the same.
        let above = now.checked_shr(shift + SLOT_BITS).unwrap_or(0);
        let above = above.checked_shl(shift + SLOT_BITS).unwrap_or(0);
        return above | u64::from(occupied.trailing_zeros()) << shift;
    }
    let shift = 3 * (row - COARSE_ROW + 1);
    let next = (now >> shift) + 1;
    (next + u64::from(occupied.rotate_right(next as u32 % SLOTS).trailing_zeros())) << shift
}

/// Whether a row has slots.
#[inline]
pub(super) fn is_level(row: u32) -> bool {
    row < LIST_ROW
}

/// Whether a row is one of the exact levels.
#[inline]
pub(super) fn is_exact(row: u32) -> bool {
    row < EXACT_LEVELS
}
