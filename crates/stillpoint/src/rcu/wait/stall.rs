//! Which readers are in the way, or silent.

use crate::rcu::domain::Domain;
use crate::rcu::engine::wait::report::Stall;

impl Domain {
    /// The region reader that is in the way of the oldest grace period, if there is one, however short the wait has been
    /// so far.
    ///
    /// Looks at every reader. If one is in the way, also looks at every reclaimer and every protected load, and at the reader's thread in `/proc`. So it
    /// suits reports, not loops. The cost does not depend on the number of waiting futures. Issues no fence, so it may miss a
    /// reader that has entered within the last microseconds.
    ///
    /// ```
    /// # use stillpoint::rcu::wait::Activity;
    /// # use stillpoint::rcu::Domain;
    /// let domain = Domain::new();
    /// let reader = domain.reader();
    /// let guard = reader.pin();
    /// assert_eq!(domain.stall(), None); // no writer waits for it
    /// domain.start();
    /// let stall = domain.stall().expect("the guard is in the way");
    /// # if stall.activity != Activity::Unknown {
    /// assert_eq!(stall.activity, Activity::Running); // this very thread
    /// # }
    /// # drop(guard);
    /// ```
    pub fn stall(&self) -> Option<Stall> {
        let core = self.core();
        let (record, state) = core.protocol.laggards().min_by_key(|&(_, state)| state)?;
        Some(Stall::new(core, record, core.waited_for(state).unwrap_or_default(), core.all_pending()))
    }

    /// The readers of other threads that have loaded nothing since the newest grace period started, and are not
    /// [offline](crate::rcu::Reader::offline): those that [`Stats::silent`](crate::rcu::Stats::silent) counts. They hold nothing up. But while the thread of one sleeps, each
    /// grace period needs a heavy fence, which interrupts the threads that run. So a thread should go offline before it sleeps.
    /// [`Stall::activity`] tells who sleeps nevertheless. None in domains that need no such fences.
    ///
    /// A reader that is silent only for the moment is included, for example one that runs, and loads something soon. The
    /// thread of one that is named again and again, asleep, and has [missed](Stall::missed) more and more grace periods, sleeps
    /// for long.
    ///
    /// Looks at a reader when the iterator comes to it, and if it is silent, at its thread in `/proc`, which takes some 20 µs. So it suits
    /// reports, not loops. Issues no fence and takes no lock.
    ///
    /// ```
    /// use stillpoint::rcu::wait::Activity;
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// for report in domain.silent().filter(|report| report.activity == Activity::Sleeping) {
    ///     eprintln!("{report}");
    /// }
    /// # assert_eq!(domain.silent().count(), 0);
    /// ```
    pub fn silent(&self) -> impl Iterator<Item = Stall> + '_ {
        self.core().protocol.silent().map(|(record, missed)| Stall::of_silence(self.core(), record, missed))
    }
}
