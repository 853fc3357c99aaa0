//! Waiting for the holder of a lock that is held for short work.

use super::spin;

/// Spins of a waiter before it yields its core: a holder that runs has finished by then.
#[cfg(not(stillpoint_loom))]
const SPINS: u32 = 128;
/// How often it yields before it sleeps. If the holder waits for this core and has a lower real-time priority, or none, it gets the core only
/// while this thread sleeps.
#[cfg(not(stillpoint_loom))]
const YIELDS: u32 = 64;
#[cfg(not(stillpoint_loom))]
const NAP: std::time::Duration = std::time::Duration::from_micros(50);

/// One wait. Spins, then yields the core between spins, then sleeps for 50 µs between them. A signal handler may wait, too.
#[derive(Debug, Default)]
pub struct Patience {
    #[cfg(not(stillpoint_loom))]
    spins: u32,
}

impl Patience {
    /// A turn of the wait: the caller has just found the lock taken.
    #[inline]
    pub fn turn(&mut self) {
        spin();
        #[cfg(not(stillpoint_loom))]
        {
            self.spins = self.spins.wrapping_add(1);
            if self.spins % SPINS == 0 {
                self.give_way();
            }
        }
    }

    #[cfg(not(stillpoint_loom))]
    #[cold]
    fn give_way(&self) {
        if self.spins / SPINS <= YIELDS {
            std::thread::yield_now();
        } else {
            // The sleep is a point at which C may cancel the thread, and a signal that interrupts it leaves a number in `errno`.
            #[cfg(all(target_os = "linux", not(miri)))]
            let _kept = (crate::linux::Uncancelled::new(), crate::linux::Errno::new());
            std::thread::sleep(NAP);
        }
    }
}
