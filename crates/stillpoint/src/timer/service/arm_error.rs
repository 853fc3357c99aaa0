use std::fmt;

use super::record::Occupied;

/// A timer was not armed. [`into_inner`](ArmError::into_inner) hands its value back.
///
/// ```
/// use stillpoint::timer::{ArmErrorKind, TimerService};
///
/// let mut service = TimerService::new(0);
/// let timer = service.remote().timer();
/// service.arm(&timer, 10, "first")?;
/// let error = service.arm(&timer, 20, "second").unwrap_err();
/// assert_eq!(error.kind(), ArmErrorKind::Armed);
/// assert_eq!(error.into_inner(), "second");
/// # Ok::<(), stillpoint::timer::ArmError<&str>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ArmError<T> {
    kind: ArmErrorKind,
    value: T,
}

/// Why a timer was not armed: see [`ArmError::kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ArmErrorKind {
    /// The mailbox, or the wheel of the service, is at its limit.
    Full,
    /// The timer is armed already. Cancel it first.
    Armed,
    /// The timer's callback is running, another thread is arming, resetting or cancelling the timer, or the owner has
    /// not processed its revocation yet.
    Busy,
    /// The timer's service is gone.
    Gone,
    /// The timer belongs to another service.
    Foreign,
    /// The timer cannot be reset, since it is not armed: it has fired, or was cancelled.
    AtRest,
}

impl<T> ArmError<T> {
    pub(super) fn new(kind: ArmErrorKind, value: T) -> Self {
        Self { kind, value }
    }

    /// Why the timer was not armed.
    pub fn kind(&self) -> ArmErrorKind {
        self.kind
    }

    /// The value that was not used.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> From<(Occupied, T)> for ArmError<T> {
    fn from((occupied, value): (Occupied, T)) -> Self {
        let kind = match occupied {
            Occupied::Armed => ArmErrorKind::Armed,
            Occupied::Busy => ArmErrorKind::Busy,
            Occupied::AtRest => ArmErrorKind::AtRest,
        };
        Self { kind, value }
    }
}

impl fmt::Display for ArmErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the mailbox or the wheel is full: run the service more often, or make one of them larger",
            Self::Armed => "the timer is armed already: cancel it first",
            Self::Busy => {
                "the timer's callback is running, or another thread is arming or cancelling it: try again later"
            }
            Self::Gone => "the timer's service is gone: make a timer of another service",
            Self::AtRest => "the timer has fired, or was cancelled: arm it with a value",
            Self::Foreign => "the timer belongs to another service: use a mailbox of that service",
        })
    }
}

impl<T> fmt::Debug for ArmError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArmError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for ArmError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the timer was not armed: {}", self.kind)
    }
}

impl<T> std::error::Error for ArmError<T> {}
