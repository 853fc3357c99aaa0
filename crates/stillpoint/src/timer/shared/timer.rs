use std::sync::Arc;

use super::home::Home;
use super::record::{Outcome, Record};

/// A timer that any thread can cancel. The cancellation returns a definite answer at once.
///
/// It belongs to the [`TimerService`](super::TimerService) whose thread runs its callback. It can be armed any number
/// of times: by any thread through a [`Mailbox`](super::Mailbox), or by the owner with
/// [`TimerService::arm`](super::TimerService::arm). A clone is another handle of the same timer. Dropping the handles
/// does not cancel the timer.
///
/// A cancellation is one compare-and-swap. The owner also gets a hint, so that it takes the timer out of its wheel
/// before the deadline. A timer takes about 120 bytes and its value.
///
/// ```
/// use stillpoint::timer::shared::{Outcome, TimerService};
/// use stillpoint::timer::Limit;
///
/// let mut service = TimerService::new(0);
/// let mut mailbox = service.remote().mailbox(64);
/// let timer = service.remote().timer();
///
/// let other = timer.clone();
/// assert!(other.is_same(&timer));
/// std::thread::spawn(move || {
///     mailbox.add(&timer, 100, "timeout").expect("there is room");
/// }).join().unwrap();
///
/// assert_eq!(other.cancel(), Outcome::Cancelled("timeout"));
/// let progress = service.run(200, Limit::NONE, |_, _| unreachable!("it was cancelled"));
/// assert!(progress.is_done());
/// ```
pub struct SharedTimer<T>(pub(super) Arc<Record<T>>);

impl<T> SharedTimer<T> {
    pub(super) fn new(home: &Arc<Home<T>>) -> Self {
        Self(Arc::new(Record::new(Arc::clone(home))))
    }

    /// Cancels the timer, from any thread. Never waits: see [`cancel_wait`](Self::cancel_wait).
    pub fn cancel(&self) -> Outcome<T> {
        let outcome = self.0.cancel();
        if outcome.is_cancelled() {
            self.0.home().hint(&self.0);
        }
        outcome
    }

    /// Cancels the timer, and waits for its callback if that is running. Everything that the callback uses can then be freed, unless the
    /// call comes from within the callback itself, which would wait for itself. The answer is then `Running`: the callback is running for
    /// the last time. If it has armed the timer again, the answer is the value of that arming.
    ///
    /// If the callback or another thread arms the timer again meanwhile, that arming is cancelled, too. The answer has the value of the last
    /// arming that was cancelled.
    ///
    /// The calling thread sleeps until the callback has ended. Callbacks of two services that wait for each other's timers deadlock. A
    /// timer that was [revoked](SharedTimer::revoke) is not waited for, nor is the callback that gets its value.
    ///
    /// ```
    /// use stillpoint::timer::shared::{Outcome, TimerService};
    /// use stillpoint::timer::Limit;
    ///
    /// let mut service = TimerService::new(0);
    /// let timer = service.remote().timer();
    /// service.arm(&timer, 10, ()).expect("it is at rest");
    /// let progress = service.run(10, Limit::NONE, |_, event| {
    ///     let own = event.timer().expect("it is shared");
    ///     assert_eq!(own.cancel_wait(), Outcome::Running); // the callback would wait for itself
    /// });
    /// assert!(progress.is_done());
    /// assert_eq!(timer.cancel_wait(), Outcome::Fired);
    /// ```
    pub fn cancel_wait(&self) -> Outcome<T> {
        let mut last = None;
        loop {
            // Read first, so that an end after this is not missed.
            let ended = self.0.home().ended();
            let outcome = self.cancel();
            let is_running = matches!(outcome, Outcome::Running);
            let answer = match (outcome, last) {
                (Outcome::Cancelled(value), _) | (_, Some(Outcome::Cancelled(value))) => {
                    Outcome::Cancelled(value)
                }
                (other, _) => other,
            };
            let is_own = is_running && self.0.home().runs_here();
            if is_own || !(self.0.await_end(ended) || is_running) {
                return answer;
            }
            last = Some(answer);
        }
    }

    /// Cancels the timer, and leaves its value to the owner: the callback of the owner's next
    /// [`process`](super::TimerService::process) gets the value, with [`Cause::Revoked`](super::Cause::Revoked).
    ///
    /// ```
    /// use stillpoint::timer::shared::{Cause, Outcome, TimerService};
    /// use stillpoint::timer::Limit;
    ///
    /// let mut service = TimerService::new(0);
    /// let timer = service.remote().timer();
    /// service.arm(&timer, 100, "session 7").expect("it is at rest");
    /// assert_eq!(timer.revoke(), Outcome::Cancelled(()));
    ///
    /// let mut closed = Vec::new();
    /// let _ = service.run(1, Limit::NONE, |_, event| {
    ///     assert_eq!(event.cause(), Cause::Revoked);
    ///     closed.extend(event.into_value());
    /// });
    /// assert_eq!(closed, ["session 7"]);
    /// ```
    pub fn revoke(&self) -> Outcome<()> {
        let outcome = self.0.revoke();
        if outcome.is_cancelled() {
            self.0.home().hint(&self.0);
            // Time 0 wakes an owner that sleeps: its callback must get the value. Also if the hint was given before.
            self.0.home().rouse(0);
        }
        outcome
    }

    /// Whether the timer is armed, in a service that is not gone. The answer may be out of date at once. A timer that
    /// another thread is still arming is not armed yet. So after `true`, [`cancel`](Self::cancel) cancels the timer,
    /// unless it has fired or was cancelled meanwhile.
    ///
    /// ```
    /// use stillpoint::timer::shared::TimerService;
    ///
    /// let mut service = TimerService::new(0);
    /// let timer = service.remote().timer();
    /// assert!(!timer.is_armed());
    /// service.arm(&timer, 10, ()).expect("it is at rest");
    /// assert!(timer.is_armed() && timer.cancel().is_cancelled() && !timer.is_armed());
    /// ```
    pub fn is_armed(&self) -> bool {
        self.0.is_armed() && !self.0.home().is_gone()
    }

    /// Whether both are handles of the same timer.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Clone for SharedTimer<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

stillpoint_sys::debug!([T] |this| SharedTimer<T> { armed: this.is_armed(), .. });
