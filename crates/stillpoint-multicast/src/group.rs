use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::leaving::Registration;
use super::engine::Core;
use super::run::Multicast;
use super::transport::Polled;

/// Threads to which functions can be sent. Each runs them at a point of its choosing.
///
/// A cheap handle, which may be cloned and shared. A thread [joins](Group::join), and polls its mailbox from time to time
/// ([`Member::poll`]), or sleeps until there is a message ([`Member::wait`]). Groups are independent of each other.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// use std::sync::Barrier;
/// use stillpoint_multicast::Group;
///
/// let (group, all_there) = (Group::new(), Barrier::new(4));
/// let (flushed, stop) = (AtomicUsize::new(0), AtomicUsize::new(0));
/// std::thread::scope(|scope| {
///     for _ in 0..3 {
///         scope.spawn(|| {
///             let member = group.join();
///             all_there.wait();
///             while stop.load(Relaxed) == 0 {
///                 // ... a burst of packets ...
///                 member.poll();
///             }
///         });
///     }
///     all_there.wait();
///     let report = group.multicast().run(|| _ = flushed.fetch_add(1, Relaxed));
///     assert_eq!((report.receivers, flushed.load(Relaxed)), (3, 3)); // all of them have run it
///     stop.store(1, Relaxed);
/// });
/// ```
#[derive(Clone)]
pub struct Group {
    core: Arc<Core<Polled>>,
}

impl Group {
    /// A group without members.
    #[expect(
        clippy::new_without_default,
        reason = "a group has an identity: two defaults would not be equal"
    )]
    pub fn new() -> Self {
        Self { core: Core::new(Polled) }
    }

    /// Registers the calling thread. Lock-free; the number of members has no limit. Costs a full fence, a system call, and a
    /// search of some places, which does not depend on the number of members; on a thread's first call, also an allocation.
    ///
    /// From now on every multicast waits for this thread to [`poll`](Member::poll), [`wait`](Member::wait), start a
    /// multicast, or drop the value. A thread that joins twice is one member until both values are dropped.
    ///
    /// A thread leaves for good when its thread-local values are destroyed. If it joins after that, in the destructor of
    /// another thread-local value, it is not registered: multicasts do not reach it, and its mailbox stays empty.
    pub fn join(&self) -> Member {
        Member { registration: Registration::new(&self.core), group: self.clone() }
    }

    /// A multicast to the members. Its strategy can be set before it is run.
    pub fn multicast(&self) -> Multicast<'_> {
        Multicast::new(&self.core)
    }

    /// The number of registered threads. Takes time linear in the present members, however many there were before:
    /// see [`run`](Multicast::run).
    pub fn members(&self) -> usize {
        self.core.members()
    }
}

stillpoint_sys::debug!(|this| Group { members: this.members(), .. });

/// The registration of a thread in a [`Group`]. It stays on its thread.
///
/// When it is dropped, the thread processes its messages and leaves. If the value was forgotten, the end of the thread does
/// that.
///
/// ```compile_fail,E0277
/// let member = stillpoint_multicast::Group::new().join();
/// std::thread::spawn(move || drop(member)); // `Member` cannot be sent
/// ```
///
/// ```
/// use stillpoint_multicast::Group;
///
/// let group = Group::new();
/// let member = group.join();
/// assert_eq!(member.group().members(), 1);
/// assert_eq!(member.poll(), 0); // nobody has sent anything
/// drop(member);
/// assert_eq!(group.members(), 0);
/// ```
pub struct Member {
    /// `None` if the thread had left for good.
    registration: Option<Registration<Polled>>,
    group: Group,
}

impl Member {
    /// Runs the functions that were sent to this thread, and forwards what was delegated to it. Returns the number of
    /// messages, most often 0. Never waits.
    ///
    /// Two loads if there is no message. A panic of a function is caught, and resumed on the thread that started the
    /// multicast.
    #[inline]
    pub fn poll(&self) -> usize {
        self.registration.as_ref().map_or(0, |registered| registered.core().drain(registered.slot()))
    }

    /// As [`poll`](Member::poll), but sleeps until there is a message. Returns the number of messages, at least 1. On a
    /// thread that has [left for good](Group::join), or is just leaving, returns 0 at once: no message can come.
    ///
    /// ```
    /// use stillpoint_multicast::Group;
    ///
    /// let (group, has_joined) = (Group::new(), std::sync::Barrier::new(2));
    /// std::thread::scope(|scope| {
    ///     let served = scope.spawn(|| {
    ///         let member = group.join();
    ///         has_joined.wait();
    ///         member.wait()
    ///     });
    ///     has_joined.wait();
    ///     group.multicast().run(|| ());
    ///     assert_eq!(served.join().unwrap(), 1);
    /// });
    /// ```
    pub fn wait(&self) -> usize {
        self.wait_until(None)
    }

    /// As [`wait`](Member::wait), for at most `limit`. Returns the number of messages: 0 also when the time is up.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let member = stillpoint_multicast::Group::new().join();
    /// assert_eq!(member.wait_timeout(Duration::from_millis(2)), 0); // no thread has sent anything
    /// ```
    pub fn wait_timeout(&self, limit: Duration) -> usize {
        self.wait_until(Some(limit))
    }

    fn wait_until(&self, limit: Option<Duration>) -> usize {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let served = self.poll();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if served > 0 || left.is_some_and(|left| left.is_zero()) {
                return served;
            }
            let dozes = |registered: &Registration<Polled>| registered.core().doze(registered.slot(), left);
            if !self.registration.as_ref().is_some_and(dozes) {
                return 0;
            }
        }
    }

    /// The group.
    pub fn group(&self) -> Group {
        self.group.clone()
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("group", &self.group()).finish()
    }
}
