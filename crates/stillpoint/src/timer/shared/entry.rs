//! What the wheel of a service holds, and how a shared timer comes into it.

use super::record::Record;
use super::timer::SharedTimer;
use crate::timer::busted::{self, Variant};
use crate::timer::wheel::{Full, Key, Schedule, Wheel, RELATIVE};
use stillpoint_sys::sync::atomic::Ordering;

/// An entry in the wheel of a service.
pub(super) enum Entry<T> {
    Local(T),
    /// A shared timer and the generation of its arming, with the bit [`DELAYED`]. A third variant in place of the bit
    /// would make all entries larger.
    Shared(SharedTimer<T>, u64),
}

/// A bit beside a generation: the timer's delay begins when a poll comes to it.
pub(super) const DELAYED: u64 = 1 << 63;

pub(super) fn local<T>(full: Full<Entry<T>>) -> Full<T> {
    match full.0 {
        Entry::Local(value) => Full(value),
        Entry::Shared(..) => unreachable!("the value was that of a local timer"),
    }
}

/// Whether `take_in` will find room for a timer. It may replace the entry that an earlier arming has left.
#[inline]
pub(super) fn has_room_for<T>(wheel: &mut Wheel<Entry<T>>, record: &Record<T>) -> bool {
    // Relaxed: only the owner uses the key.
    wheel.has_room()
        || Key::from_bits(record.key.load(Ordering::Relaxed)).is_some_and(|key| wheel.can_be_replaced(key))
}

/// Puts an armed timer into the wheel, which has room, in place of the entry that an earlier arming has left.
#[inline]
pub(super) fn take_in<T>(wheel: &mut Wheel<Entry<T>>, timer: SharedTimer<T>) {
    let Some((generation, schedule)) = timer.0.schedule() else { return keep(wheel, timer) };
    // Relaxed, here and below: only the owner uses these fields.
    if timer.0.taken.load(Ordering::Relaxed) == generation && !busted::is(Variant::TakeTwice) {
        // This arming was taken in already: the message is that of an earlier arming, or came after such a message. A
        // periodic timer may have advanced since.
        return;
    }
    if let Some(key) = Key::from_bits(timer.0.key.load(Ordering::Relaxed)) {
        wheel.cancel(key);
    }
    if schedule.flags & RELATIVE != 0 {
        // The delay begins when a poll comes to the timer, whatever the time is then. Until then, the timer waits among those that are due.
        return file_apart(wheel, Schedule::at(0), timer, generation | DELAYED);
    }
    file(wheel, schedule, timer, generation);
}

/// Puts a shared timer into the wheel, which has room.
#[inline(always)]
fn file<T>(wheel: &mut Wheel<Entry<T>>, schedule: Schedule, timer: SharedTimer<T>, generation: u64) {
    if let Some(key) = wheel.add_made(schedule, || Entry::Shared(timer, generation)) {
        // Use the handle in the wheel: a clone would take two atomic read-modify-writes.
        if let Some(Entry::Shared(timer, _)) = wheel.get(key) {
            timer.0.key.store(key.to_bits(), Ordering::Relaxed);
            timer.0.taken.store(generation & !DELAYED, Ordering::Relaxed);
        }
    }
}

/// As `file`, but out of line, so that messages without a delay are taken in without a call.
#[cold]
#[inline(never)]
fn file_apart<T>(wheel: &mut Wheel<Entry<T>>, schedule: Schedule, timer: SharedTimer<T>, generation: u64) {
    file(wheel, schedule, timer, generation);
}

/// Keeps a timer in the wheel, which has room: during a reset, until its message comes; after a revocation, until its value is taken. So the wheel has every timer with a value that was ever taken in, and a service that is closed finds it. Does nothing if the timer
/// was cancelled.
#[cold]
#[inline(never)]
pub(super) fn keep<T>(wheel: &mut Wheel<Entry<T>>, timer: SharedTimer<T>) {
    // Relaxed: only the owner uses the key.
    let entry = Key::from_bits(timer.0.key.load(Ordering::Relaxed));
    if timer.0.is_kept()
        && entry.is_none_or(|key| wheel.deadline(key).is_none())
        && !busted::is(Variant::ResetUnheld)
    {
        // No arming has generation 0: nothing fires for this entry, and its deadline is not taken for that of the timer.
        file(wheel, Schedule::at(u64::MAX), timer, 0);
    }
}

/// Puts a timer whose delay begins now into the wheel. The place of its old entry has just become free.
#[cold]
pub(super) fn begin_delay<T>(wheel: &mut Wheel<Entry<T>>, timer: SharedTimer<T>, of: u64) {
    let of = of & !DELAYED;
    match timer.0.schedule() {
        Some((generation, schedule)) if generation == of => {
            file_apart(wheel, schedule.resolved(wheel.now()), timer, of);
        }
        _ => keep(wheel, timer),
    }
}

impl<T> Entry<T> {
    pub(super) fn into_local(self) -> Option<T> {
        match self {
            Self::Local(value) => Some(value),
            Self::Shared(..) => None,
        }
    }
}
