use super::record::Occupied;
use crate::timer::hands_back::hands_back;

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

impl<T> From<(Occupied, T)> for ArmError<T> {
    fn from((occupied, value): (Occupied, T)) -> Self {
        match occupied {
            Occupied::Armed => Self::Armed(value),
            Occupied::Busy => Self::Busy(value),
            Occupied::AtRest => Self::AtRest(value),
        }
    }
}

hands_back! {
    ArmError: "the timer was not armed: ",
    Full: "the mailbox or the wheel is full: run the service more often, or make one of them larger",
    Armed: "the timer is armed already: cancel it first",
    Busy: "the timer's callback is running, or another thread is arming or cancelling it: try again later",
    Gone: "the timer's service is gone: make a timer of another service",
    Foreign: "the timer belongs to another service: use a mailbox of that service",
    AtRest: "the timer has fired, or was cancelled: arm it with a value",
}
