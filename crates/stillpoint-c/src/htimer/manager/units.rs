//! Nanoseconds, ticks and cycles.

use super::*;

impl Own {
    /// The tick at which a timer is due: not before its time.
    #[inline]
    pub(super) fn deadline(&self, expiration: u64, flags: u32) -> u64 {
        match (flags & TICKS != 0, flags & ABSOLUTE != 0) {
            (true, true) => expiration,
            // From the end of the tick, of which a part is over.
            (true, false) => self.up(self.now).saturating_add(expiration),
            (false, true) => self.up(self.time(expiration, flags)),
            (false, false) => self.up(self.now.saturating_add(self.length(expiration, flags))),
        }
    }

    /// A length in ticks, rounded up.
    pub(super) fn ticks(&self, length: u64, flags: u32) -> u64 {
        if flags & TICKS != 0 {
            length
        } else {
            self.up(self.length(length, flags))
        }
    }

    /// Nanoseconds in ticks, rounded up.
    #[inline]
    pub(super) fn up(&self, nanoseconds: u64) -> u64 {
        let tick = nanoseconds >> self.shift;
        tick + u64::from(nanoseconds > tick << self.shift)
    }

    /// A point in time, in nanoseconds, rounded up.
    #[inline]
    pub(super) fn time(&self, time: u64, flags: u32) -> u64 {
        match self.clock {
            Some(clock) if flags & TSC != 0 => clock.time_at(time).saturating_add(1),
            _ => time,
        }
    }

    /// A length of time, in nanoseconds, rounded up.
    #[inline]
    pub(super) fn length(&self, length: u64, flags: u32) -> u64 {
        match self.clock {
            Some(clock) if flags & TSC != 0 => clock.length_of(length),
            _ => length,
        }
    }
}

/// The time that a call that manages sets: the caller's, or the clock's.
///
/// # Safety
/// The calling thread has the manager.
pub(in crate::htimer) unsafe fn time(manager: &Manager, given: Option<(u64, u32)>) -> Result<u64, Refusal> {
    // SAFETY: by the caller's promise.
    let own = unsafe { manager.own() };
    match (given, own.clock) {
        (Some((time, flags)), _) if flags & TICKS != 0 => Ok(time.saturating_mul(1 << own.shift)),
        (Some((time, flags)), Some(clock)) if flags & TSC != 0 => Ok(clock.time_at(time)),
        (Some((time, _)), _) => Ok(time),
        (None, Some(clock)) => Ok(clock.now()),
        (None, None) => {
            let text = c"this manager has no clock: call still_htimer_manage_time";
            Err(Refusal::new(libc::EOPNOTSUPP, text))
        }
    }
}

/// When the thread has to manage next, in nanoseconds or in ticks: no later than any timer is due.
///
/// # Safety
/// The calling thread has the manager.
pub(in crate::htimer) unsafe fn next(manager: &Manager, flags: u32) -> Option<u64> {
    // SAFETY: by the caller's promise.
    let own = unsafe { manager.own() };
    let shift = if flags & TICKS != 0 { 0 } else { own.shift };
    // Earlier, the wheel would only move timers, which waits until it is asked.
    let next = own.wheel().next_deadline()?.max(own.quiet_until);
    Some(next.saturating_mul(1 << shift))
}
