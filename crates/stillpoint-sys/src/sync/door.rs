//! A door: the thread that closes it comes after everything that was done behind it.
//!
//! One word has a bit for the closed door, and counts the threads behind it. It is changed only by read-modify-writes. So in the
//! order in which the word changes, each entry is before the closing or after it. *An entry before the closing* is in the count
//! that the closer waits for. All changes in between continue the release sequence of its `leave`, so the closer, which finds
//! the count at 0 by an acquire load, comes after what was done behind the door. *An entry after the closing* finds the bit,
//! and turns back.
//!
//! A thread that finds the door closed at its first load is not counted. So each thread increments the count at most once after
//! the closing, and the closer's wait ends.
//!
//! The closer sleeps on the word. The thread that lowers the count to 0 while the bit is set wakes it. No wake-up is lost. A
//! closer that read the word before the count became 0 either sleeps already, and is woken, or does not fall asleep, since the
//! word has changed. A closer that reads the word later finds the count at 0, or a later thread that will lower it to 0 and wake
//! the closer.

use super::atomic::{AtomicU32, Ordering};
use crate::os;

use crate::busted::unless;
use busted::Variant;

/// In builds with `--cfg stillpoint_busted`, `STILLPOINT_BUSTED=door:NAME` chooses one.
mod busted {
    crate::variants! {
        for models, "door";
        EnterByLoad = "enter-by-load": "A thread that enters checks whether the door is closed, and is counted in another step.",
        LeaveRelaxed = "leave-relaxed": "A thread that leaves is counted off by a relaxed operation.",
        CloseHasty = "close-hasty": "A thread that closes does not wait for the threads behind the door.",
        OpenRelaxed = "open-relaxed": "The door is opened by a relaxed operation.",
        LookRelaxed = "look-relaxed": "A thread looks by a relaxed load whether the door is closed.",
    }
}

/// The door is closed.
const CLOSED: u32 = 1;
/// One thread that is behind the door, or is about to turn back.
const ONE: u32 = 2;

/// A door that threads pass, and that one thread can close. See the module.
#[derive(Debug, Default)]
pub struct Door(AtomicU32);

impl Door {
    /// An open door.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes through, unless the door is closed. Never waits.
    #[inline]
    pub fn enter(&self) -> bool {
        let early = busted::is(Variant::EnterByLoad).then(|| self.0.load(Ordering::Acquire));
        // Relaxed: a hint, which keeps the closer's wait short: a thread that sees the closed door here is not counted.
        if early.is_none() && self.0.load(Ordering::Relaxed) & CLOSED != 0 {
            return false;
        }
        // Acquire: pairs with the release in `open`.
        let before = self.0.fetch_add(ONE, Ordering::Acquire);
        let is_open = early.unwrap_or(before) & CLOSED == 0;
        if !is_open {
            // Relaxed: the thread has done nothing behind the door.
            self.count_off(Ordering::Relaxed);
        }
        is_open
    }

    /// Must be called by each thread that has entered.
    #[inline]
    pub fn leave(&self) {
        // Release: pairs with the acquire in `close`.
        self.count_off(unless(busted::is(Variant::LeaveRelaxed), Ordering::Release));
    }

    #[inline]
    fn count_off(&self, order: Ordering) {
        if self.0.fetch_sub(ONE, order) == ONE | CLOSED {
            os::wake_all(&self.0);
        }
    }

    /// Closes the door, and sleeps until no thread is behind it.
    pub fn close(&self) {
        // Relaxed: the loads below acquire.
        self.0.fetch_or(CLOSED, Ordering::Relaxed);
        loop {
            // Acquire: pairs with the release in `leave`.
            let seen = self.0.load(Ordering::Acquire);
            if seen < ONE || busted::is(Variant::CloseHasty) {
                return;
            }
            os::wait(&self.0, seen, None);
        }
    }

    /// Opens the door again.
    pub fn open(&self) {
        // Release: pairs with the acquire in `enter`.
        self.0.fetch_and(!CLOSED, unless(busted::is(Variant::OpenRelaxed), Ordering::Release));
    }

    /// Whether the door is closed. If so, the caller comes after what was done behind the door by the threads that had left before
    /// the closing.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // Acquire: pairs with the release in `leave`, whose release sequence the closing continues. It does not pair with `close`,
        // which is relaxed.
        self.0.load(unless(busted::is(Variant::LookRelaxed), Ordering::Acquire)) & CLOSED != 0
    }

    /// In the child of a `fork`, which has no other thread: no thread is behind the door any more.
    pub fn reset(&self, is_closed: bool) {
        // Relaxed: there is no other thread.
        self.0.store(u32::from(is_closed) * CLOSED, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_closed_door_turns_back_whoever_comes() {
        let door = Door::new();
        assert!(!door.is_closed() && door.enter() && door.enter());
        door.leave();
        door.leave();
        door.close();
        assert!(door.is_closed() && !door.enter() && !door.enter());
        door.close();
        door.open();
        assert!(!door.is_closed() && door.enter());
        door.reset(true);
        assert!(door.is_closed() && !door.enter());
        door.reset(false);
        assert!(door.enter());
    }
}

#[cfg(all(test, stillpoint_loom))]
mod models {
    use super::*;
    use crate::sync::{Arc, UnsafeCell};
    use loom::thread;

    struct Room {
        door: Door,
        /// Used by each guest behind the door, and by the closer when no guest is there.
        places: [UnsafeCell<u32>; 2],
    }

    // SAFETY: the model checks that one thread at a time uses each place.
    unsafe impl Sync for Room {}
    // SAFETY: the model checks that one thread at a time uses each place.
    unsafe impl Send for Room {}

    #[test]
    fn whoever_closes_has_all_that_is_behind_the_door() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let room = Arc::new(Room { door: Door::new(), places: [UnsafeCell::new(0), UnsafeCell::new(0)] });
            let guests: Vec<_> = (0..2)
                .map(|guest| {
                    let room = Arc::clone(&room);
                    thread::spawn(move || {
                        // At the second attempt the door may be open again.
                        if room.door.enter() || room.door.enter() {
                            // SAFETY: the place belongs to this guest, which is behind the door.
                            room.places[guest].with_mut(|place| unsafe { *place += 1 });
                            room.door.leave();
                        }
                    })
                })
                .collect();
            room.door.close();
            for place in &room.places {
                // SAFETY: no guest is behind the door.
                place.with_mut(|place| unsafe { *place += 1 });
            }
            room.door.open();
            guests.into_iter().for_each(|guest| guest.join().unwrap());
        });
        crate::busted::assert_reached();
    }

    #[test]
    fn whoever_finds_the_door_closed_comes_after_those_that_have_left() {
        loom::model(|| {
            let room = Arc::new(Room { door: Door::new(), places: [UnsafeCell::new(0), UnsafeCell::new(0)] });
            let other = Arc::clone(&room);
            let observer = thread::spawn(move || {
                if other.door.is_closed() {
                    // SAFETY: the guest has left.
                    other.places[0].with_mut(|place| unsafe { *place += 1 });
                }
            });
            assert!(room.door.enter());
            // SAFETY: the door is open.
            room.places[0].with_mut(|place| unsafe { *place += 1 });
            room.door.leave();
            room.door.close();
            observer.join().unwrap();
        });
        crate::busted::assert_reached();
    }

    #[cfg(stillpoint_busted)]
    #[test]
    fn every_variant_is_caught_by_its_model() {
        let model = |variant| match variant {
            Variant::LookRelaxed => "whoever_finds_the_door_closed_comes_after_those_that_have_left",
            _ => "whoever_closes_has_all_that_is_behind_the_door",
        };
        let all = Variant::ALL.iter().map(|&variant| (variant, model(variant), vec!["Causality violation"]));
        busted::assert_caught("sync::door::models", all);
    }
}
