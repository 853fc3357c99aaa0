use std::fmt;

use super::record::Occupied;

/// Why a timer was not armed, with the value that was not used. [`into_inner`](ArmError::into_inner) hands it back, whatever
/// the reason.
///
/// ```
/// use stillpoint::timer::shared::{ArmError, TimerService};
///
/// let mut service = TimerService::new(0);
/// let timer = service.remote().timer();
/// service.arm(&timer, 10, "first")?;
/// let error = service.arm(&timer, 20, "second").unwrap_err();
/// assert_eq!(error, ArmError::Armed("second"));
/// assert_eq!(error.into_inner(), "second");
/// # Ok::<(), ArmError<&str>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArmError<T> {
    /// The mailbox, or the wheel of the service, is at its limit.
    Full(T),
    /// The timer is armed already. Cancel it first.
    Armed(T),
    /// The timer's callback is running, another thread is arming, resetting or cancelling the timer, or the owner has
    /// not processed its revocation yet.
    Busy(T),
    /// The timer's service is gone.
    Gone(T),
    /// The timer belongs to another service.
    Foreign(T),
    /// The timer cannot be reset, since it is not armed: it has fired, or was cancelled.
    AtRest(T),
}

impl<T> ArmError<T> {
    /// The value that was not used.
    pub fn into_inner(self) -> T {
        let (Self::Full(value)
        | Self::Armed(value)
        | Self::Busy(value)
        | Self::Gone(value)
        | Self::Foreign(value)
        | Self::AtRest(value)) = self;
        value
    }
}

impl<T> From<(Occupied, T)> for ArmError<T> {
    fn from((occupied, value): (Occupied, T)) -> Self {
        match occupied {
            Occupied::Armed => Self::Armed(value),
            Occupied::Busy => Self::Busy(value),
            Occupied::AtRest => Self::AtRest(value),
        }
    }
}

impl<T> fmt::Debug for ArmError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArmError({self})")
    }
}

impl<T> fmt::Display for ArmError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the timer was not armed: ")?;
        f.write_str(match self {
            Self::Full(_) => "the mailbox or the wheel is full: run the service more often, or make one of them larger",
            Self::Armed(_) => "the timer is armed already: cancel it first",
            Self::Busy(_) => {
                "the timer's callback is running, or another thread is arming or cancelling it: try again later"
            }
            Self::Gone(_) => "the timer's service is gone: make a timer of another service",
            Self::AtRest(_) => "the timer has fired, or was cancelled: arm it with a value",
            Self::Foreign(_) => "the timer belongs to another service: use a mailbox of that service",
        })
    }
}

impl<T> std::error::Error for ArmError<T> {}
