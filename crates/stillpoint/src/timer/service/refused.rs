use std::fmt;

use super::record::Occupied;

/// A timer could not be armed: the value comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Refused<T> {
    /// Why.
    pub reason: Reason,
    /// The value.
    pub value: T,
}

/// Why a timer could not be armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The mailbox, or the bounded wheel of the owner, has no room.
    Full,
    /// The timer is armed already: it is to be cancelled first.
    Armed,
    /// Its callback runs, or another thread is just arming or cancelling it, or the owner has not seen to its revocation yet.
    Busy,
    /// Its service is gone.
    Gone,
    /// It belongs to another service.
    Foreign,
}

impl<T> Refused<T> {
    pub(super) fn new(reason: Reason, value: T) -> Self {
        Self { reason, value }
    }
}

impl<T> From<(Occupied, T)> for Refused<T> {
    fn from((occupied, value): (Occupied, T)) -> Self {
        let reason = match occupied {
            Occupied::Armed => Reason::Armed,
            Occupied::Busy => Reason::Busy,
        };
        Self { reason, value }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "there is no room: let the service's thread process its mailbox, or make it larger",
            Self::Armed => "the timer is armed already: cancel it first",
            Self::Busy => {
                "the timer's callback runs, or another thread is arming or cancelling it: try again later"
            }
            Self::Gone => "the timer's service is gone: make a timer of another one",
            Self::Foreign => "the timer belongs to another service: use a mailbox of that",
        })
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the timer was not armed: {}", self.reason)
    }
}

impl<T> std::error::Error for Refused<T> {}
