use super::timer::SharedTimer;
use crate::timer::wheel::{Key, Lent};

/// The argument of a service's callback: a timer, and the cause.
///
/// ```
/// use stillpoint::timer::shared::{Cause, TimerService};
/// use stillpoint::timer::Limit;
///
/// let mut service = TimerService::new(0);
/// let keepalive = service.add(10, "keepalive")?;
/// let idle = service.remote().timer();
/// service.arm(&idle, 20, "idle").expect("it is at rest");
///
/// let mut log = Vec::new();
/// let _ = service.run(30, Limit::NONE, |_, mut event| {
///     assert_eq!((event.cause(), event.is_periodic(), event.missed()), (Cause::Expired, false, 0));
///     match event.key() {
///         Some(key) => assert_eq!(key, keepalive), // a timer of this thread
///         None => assert!(event.timer().expect("it is shared").is_same(&idle)),
///     }
///     log.push((event.deadline(), *event.value()));
/// });
/// assert_eq!(log, [(10, "keepalive"), (20, "idle")]);
/// # Ok::<(), stillpoint::timer::Full<&str>>(())
/// ```
#[derive(Debug)]
pub struct Event<'a, T> {
    pub(super) cause: Cause,
    pub(super) deadline: u64,
    pub(super) missed: u64,
    pub(super) which: Which<'a, T>,
    pub(super) value: Lent<'a, T>,
}

#[derive(Debug)]
pub(super) enum Which<'a, T> {
    Local(Key),
    Shared(&'a SharedTimer<T>),
}

/// Why a service calls back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The timer has fired.
    Expired,
    /// [`SharedTimer::revoke`] cancelled the timer, and left its value to the owner.
    Revoked,
}

impl<T> Event<'_, T> {
    /// Why the callback is called.
    #[inline]
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// The deadline of the timer.
    #[inline]
    pub fn deadline(&self) -> u64 {
        self.deadline
    }

    /// The number of beats of a periodic timer that were missed and are skipped.
    #[inline]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Whether the timer is periodic: it stays armed until it is cancelled.
    #[inline]
    pub fn is_periodic(&self) -> bool {
        self.value.is_lent()
    }

    /// The key of a timer that was added by [`TimerService::add`](super::TimerService::add).
    #[inline]
    pub fn key(&self) -> Option<Key> {
        match self.which {
            Which::Local(key) => Some(key),
            Which::Shared(_) => None,
        }
    }

    /// The shared timer, if the timer is shared.
    #[inline]
    pub fn timer(&self) -> Option<&SharedTimer<T>> {
        match self.which {
            Which::Local(_) => None,
            Which::Shared(timer) => Some(timer),
        }
    }

    /// The value.
    #[inline]
    pub fn value(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value. `None` for a periodic timer, which keeps its value.
    #[inline]
    pub fn into_value(self) -> Option<T> {
        self.value.into_given()
    }
}
