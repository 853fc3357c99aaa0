use std::future::Future;
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::token::Token;
use crate::rcu::domain::Domain;
use crate::rcu::engine::wait::error::SynchronizeError;
use crate::rcu::engine::wait::report::Behind;
use crate::rcu::engine::wait::tasks::Awaited;
use crate::rcu::engine::wait::wakers::Place;
use crate::rcu::engine::Core;

/// How long a reader may miss a request that no fence follows. The store buffer of a processor empties in less time, and
/// that of a preempted thread is empty.
const SETTLED: Duration = Duration::from_micros(100);

/// A grace period to be awaited: see [`Domain::grace_period`](crate::rcu::Domain::grace_period).
///
/// Counts as a handle of the domain. It may be dropped at any time; the grace period goes on
/// without it.
#[must_use = "a future does nothing unless it is polled"]
pub struct GracePeriod {
    core: Arc<Core>,
    token: u64,
    waiting: Option<Waiting>,
}

/// The state of a future from the first poll that did not find the grace period over.
struct Waiting {
    place: Place,
    /// Age of the domain at that poll.
    since: Duration,
    /// The section whose reader was asked without a fence, and the age of the domain at that time.
    asked: Option<(*const (), u64, Duration)>,
}

// SAFETY: nothing is bound to a thread. The place is used only through the core, which the future keeps alive, and under
// the core's lock. The pointer is compared, not followed.
unsafe impl Send for GracePeriod {}
// SAFETY: a shared future gives access to nothing.
unsafe impl Sync for GracePeriod {}

impl GracePeriod {
    fn stop_waiting(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            self.core.wakers.remove(waiting.place);
        }
    }
}

impl Waiting {
    fn new(core: &Core, token: u64) -> Self {
        let since = core.age();
        Self { place: Place::new(token, since), since, asked: None }
    }

    /// Whether the reader may have missed the request. Always false after a request with a fence.
    fn may_be_missed(&mut self, core: &Core, awaited: Awaited<'_>) -> bool {
        if !core.may_miss_requests() {
            return false;
        }
        let (record, state) = (ptr::from_ref(awaited.laggard).cast(), awaited.state);
        let now = core.age();
        match self.asked {
            Some((asked, then, since)) if (asked, then) == (record, state) => now - since < SETTLED,
            _ => {
                self.asked = Some((record, state, now));
                true
            }
        }
    }
}

impl Domain {
    /// The grace period of `token` as a future, for any executor.
    ///
    /// The reader in the way wakes the future when it leaves its region, reports, goes offline or ends. The waker runs on the
    /// reader's thread. No further thread is needed. Of many futures, the reader wakes eight, and each of these wakes the next ones when it is
    /// polled or dropped: a task must not keep a future that was woken without doing either. A poll that makes a request to a reader issues a heavy fence after it, in
    /// every fence mode and for every kind of reader, so that the reader cannot miss the request. Where the kernel refuses
    /// membarrier, the future asks its executor for further polls instead, for 100 µs after each request.
    ///
    /// **A reader of the task's own thread** that is inside a region is waited for like any other. Do not hold a guard
    /// across the `.await`. Let threads with a [`QsbrReader`](crate::rcu::QsbrReader) report, or go offline when they park. Such a wait is not
    /// reported as a deadlock, since another task on the thread may end it.
    ///
    /// # Errors
    /// The future fails with [`Fence`](SynchronizeError::Fence) if the kernel refuses the fence that the domain was
    /// built for.
    ///
    /// # Panics
    /// If the token is of another domain. A poll panics with a panic of the [stall hook](crate::rcu::DomainBuilder::stall_hook).
    ///
    /// ```
    /// use std::future::Future;
    /// use std::task::{Context, Poll, Waker};
    ///
    /// let domain = stillpoint::rcu::Domain::new();
    /// let reader = domain.reader();
    /// let guard = reader.pin();
    /// let mut over = std::pin::pin!(domain.grace_period(domain.start()));
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(over.as_mut().poll(&mut context).is_pending()); // an executor does this
    /// drop(guard); // wakes the task
    /// assert_eq!(over.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    /// ```
    #[track_caller]
    pub fn grace_period(&self, token: Token) -> GracePeriod {
        GracePeriod { core: Arc::clone(self.core()), token: self.value_of(token), waiting: None }
    }
}

impl Future for GracePeriod {
    type Output = Result<(), SynchronizeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let core = &*this.core;
        let waiting = this.waiting.get_or_insert_with(|| Waiting::new(core, this.token));
        let answer = match core.poll_token(this.token, &waiting.place, context.waker()) {
            Ok(None) => Ok(()),
            Err(error) => Err(SynchronizeError::Fence(error)),
            Ok(Some(awaited)) => {
                if waiting.may_be_missed(core, awaited) {
                    context.waker().wake_by_ref();
                }
                core.report_stall(awaited.laggard, this.token, waiting.since, Behind::default);
                return Poll::Pending;
            }
        };
        this.stop_waiting();
        Poll::Ready(answer)
    }
}

impl Drop for GracePeriod {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}

stillpoint_sys::debug!(|this| GracePeriod { domain: this.core.name(), .. });
