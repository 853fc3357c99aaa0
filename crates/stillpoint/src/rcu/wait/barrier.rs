//! Waiting for everything that was handed to a domain so far.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::rcu::domain::Domain;
use crate::rcu::engine::core::grace::{Grace, Outlook, Terms};
use crate::rcu::engine::core::record::ReaderKind;
use crate::rcu::engine::queue::retire_list::RetireList;
use crate::rcu::engine::wait::counters::Served;
use crate::rcu::engine::wait::error::SynchronizeError;
use crate::rcu::engine::wait::own_holds::OwnHolds;
use crate::rcu::engine::wait::park::{Next, Patience, LONGEST_SLEEP};
use crate::rcu::engine::Core;
use crate::rcu::reclaimer::ReclaimerBuilder;
use stillpoint_sys::tsan;

/// After this time, and then each time that it is over, a barrier fences for the thread that it waits for.
const LATE: Duration = LONGEST_SLEEP;

impl Domain {
    /// Frees everything that was left to the domain before this call, or waits for the threads that are freeing it. That is
    /// what was replaced by [`set`](crate::rcu::RcuCell::set), dropped as a [`Retired`](crate::rcu::Retired), or left by a reclaimer that was
    /// dropped; and entries that were removed from tables. It includes what a running [background reclaimer](crate::rcu::BackgroundReclaimer) has
    /// adopted, and what it has already taken in from its handles: that is in the same list. It does not include what was handed to a
    /// [`Reclaimer`](crate::rcu::Reclaimer), or what that has adopted: only that reclaimer frees it, when its owner polls. What is left while it
    /// waits, it may wait for as well, and so fail for that.
    ///
    /// Call it at the end of a program or of a test, and before code that contains destructors is unloaded. (The library that this crate is
    /// part of must stay loaded while threads run that have used it: their ends call it.) It looks at every thread and table that has
    /// written. Meanwhile no other thread adopts what is left to the domain.
    ///
    /// # Errors
    /// As [`synchronize`](Domain::synchronize); [`WouldDeadlock`](SynchronizeError::WouldDeadlock) also if a protected load of
    /// the calling thread holds one of the objects.
    ///
    /// # Panics
    /// With the first panic of a destructor; everything else that was ready has been freed.
    ///
    /// ```
    /// let domain = stillpoint::rcu::Domain::new();
    /// let cell = domain.cell(1);
    /// drop(cell.replace(2)); // left to the domain
    /// domain.barrier()?;
    /// assert_eq!(domain.stats().freed, 1);
    /// # Ok::<(), stillpoint::rcu::wait::SynchronizeError>(())
    /// ```
    pub fn barrier(&self) -> Result<(), SynchronizeError> {
        Core::barrier(self.core(), None)
    }

    /// As [`barrier`](Domain::barrier), for at most `limit`.
    ///
    /// # Errors
    /// Also [`Stalled`](SynchronizeError::Stalled), with a report on the region reader in the way;
    /// [`Pinned`](SynchronizeError::Pinned) if protected loads hold what is left; and [`Busy`](SynchronizeError::Busy) if other
    /// threads are still freeing it, for example in destructors.
    ///
    /// # Panics
    /// As [`barrier`](Domain::barrier).
    pub fn barrier_timeout(&self, limit: Duration) -> Result<(), SynchronizeError> {
        Core::barrier(self.core(), Some(limit))
    }
}

impl Core {
    /// Frees what was handed over before this call, or waits for those that are freeing it.
    pub(in crate::rcu) fn barrier(this: &Arc<Self>, limit: Option<Duration>) -> Result<(), SynchronizeError> {
        SynchronizeError::unless_foreign(this)?;
        let begun = Instant::now();
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // Fails for a caller that is itself in the way, even if there is nothing to free.
        this.wait_for(this.protocol.start(), limit)?;
        let mut own = OwnHolds::of_caller(this);
        loop {
            let mut reclaimer = ReclaimerBuilder::new(Arc::clone(this)).max_pending(usize::MAX).build();
            let mut served = this.collect(&mut reclaimer.list, deadline)?;
            // Another barrier may have what this thread holds, while its thread holds what is here.
            reclaimer.flush_unless(left(), || this.waits_for_caller(&mut served, &mut own))?;
            if this.wait_for_served(served, &mut own, deadline)? {
                tsan::acquire(&**this);
                return Ok(());
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(this.busy());
            }
        }
    }

    /// Moves to `list` what waits in the lists of threads, and what no list serves. Returns the lists that other threads serve.
    fn collect(
        &self,
        list: &mut RetireList,
        deadline: Option<Instant>,
    ) -> Result<Vec<Served<'_>>, SynchronizeError> {
        list.set_served(true);
        let mut patience = Patience::new();
        let mut pause = || {
            patience.wait(self.event(), Next::Release, deadline, || false);
            deadline.is_none_or(|deadline| Instant::now() < deadline)
        };
        let mut collection = self.collect_orphans(&mut pause).ok_or_else(|| self.busy())?;
        if !self.take_shelved(list, &mut pause) {
            return Err(self.busy());
        }
        // This look comes before the orphans are taken. What a served list passed on before the look is among the orphans. The list
        // counts what it passes on later, and this call then starts again.
        let served = self.all_counters().filter_map(|counters| counters.served(list.counters())).collect();
        collection.adopt(|garbage| {
            self.unpend(&garbage);
            list.push(garbage);
        });
        Ok(served)
    }

    /// The error of a barrier that ends while other threads still have objects to free.
    pub(in crate::rcu) fn busy(&self) -> SynchronizeError {
        SynchronizeError::Busy { domain: self.name().to_owned() }
    }

    /// Waits until others have freed these objects. Returns false if one of them has left its objects to the domain.
    fn wait_for_served(
        &self,
        mut served: Vec<Served<'_>>,
        own: &mut OwnHolds<'_>,
        deadline: Option<Instant>,
    ) -> Result<bool, SynchronizeError> {
        let begun = self.age();
        let mut patience = Patience::new();
        for at in 0..served.len() {
            while !served[at].is_over(|| self.age()) && !served[at].is_left() {
                // The thread that serves this list may wait for one that serves a later list.
                if self.waits_for_caller(&mut served[at..], own) {
                    return Err(SynchronizeError::would_deadlock(self, ReaderKind::ProtectedLoad));
                }
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Err(self.why_late(&served[at], begun));
                }
                self.fence_for(&served[at], begun);
                patience.wait(self.event(), Next::Release, deadline, || false);
            }
            if served[at].is_left() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fences for a thread that serves a list and is late: it may put its fence off for long, or the kernel may refuse it there. If the
    /// kernel refuses this one, too, the wait goes on.
    fn fence_for(&self, list: &Served<'_>, begun: Duration) {
        let (token, earliest) = (list.token(), begun.saturating_add(LATE));
        if token == 0 || list.has_passed() || self.protocol.is_known_over(token) {
            return;
        }
        // Models know no time.
        let is_timed = !cfg!(stillpoint_loom);
        if is_timed && self.age() < earliest {
            return;
        }
        let terms = is_timed.then_some(Terms { begun, interval: LATE, gathers: false, earliest });
        if let Ok(Outlook::Known(Grace::Over)) = self.protocol.look(token, terms) {
            self.event().notify();
        }
    }

    /// Whether one of these lists waits for a protected load of the caller.
    fn waits_for_caller(&self, served: &mut [Served<'_>], own: &mut OwnHolds<'_>) -> bool {
        served.iter_mut().any(|list| {
            let is_open = !list.is_over(|| self.age()) && !list.is_left();
            is_open && own.pinned().iter().any(|pinned| list.wait_for(pinned))
        })
    }

    /// Why the objects in a served list are not freed yet.
    fn why_late(&self, list: &Served<'_>, begun: Duration) -> SynchronizeError {
        match (list.pinned(), self.protocol.check(list.token())) {
            (_, Err(error)) => SynchronizeError::Fence(error),
            (_, Ok(Grace::Blocked(record))) => SynchronizeError::stalled(self, record, begun),
            (0, _) => self.busy(),
            (objects, _) => SynchronizeError::pinned(self, objects),
        }
    }
}

#[cfg(all(test, target_os = "linux", not(any(stillpoint_loom, stillpoint_portable, miri))))]
mod tests {
    use super::*;
    use crate::fence::{fault, Mode};

    /// The barrier's own fence comes first; the list that it then waits for needs another one.
    #[test]
    fn a_barrier_fences_for_a_thread_whose_fences_are_refused() {
        let Ok(domain) = Domain::builder().fence(Mode::Asymmetric).build() else { return };
        let silent = domain.reader();
        drop(silent.pin());
        let (mut background, cell) = (domain.background(), domain.cell(1));
        let handle = background.retire_handle();
        let collection = domain.core().collect_orphans(|| true).expect("nobody adopts");
        std::thread::scope(|scope| {
            let barrier = scope.spawn(|| domain.barrier_timeout(Duration::from_secs(20)));
            while domain.stats().heavy_fences == 0 {
                std::thread::yield_now();
            }
            scope.spawn(|| {
                fault::refuse(true);
                background.run();
            });
            handle.retire(cell.take().expect("it has one")).expect("there is room");
            while domain.stats().fence_error.is_none() {
                std::thread::yield_now();
            }
            drop(collection);
            let (end, pending) = (barrier.join(), domain.stats().pending);
            handle.abandon();
            assert_eq!((end.expect("it does not panic"), pending), (Ok(()), 0));
        });
    }
}
