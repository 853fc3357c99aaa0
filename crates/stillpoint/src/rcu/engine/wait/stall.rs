//! Watching for stalls: which sections are reported to the hook, and since when a grace period is blocked.
//!
//! A *stall* is one section of one region reader that is in the way of a grace period, which a reclaimer, a wait or a future has
//! had under way for the threshold. The record and the token in the record's state identify the section: after a
//! later token was started, the record's next sections carry that token or a later one. (An exception is a section that loaded
//! the token just before; it is in the way of the same grace periods.)
//!
//! A thread that polls or waits, and finds such a section in its way, calls the hook, unless the record says that this section
//! was reported before. So each section is reported once, and no thread waits for another. A poll looks first at the reader that was in
//! its way. If that one is silent, it looks at all, but only after the threshold.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::counters::Counters;
use super::report::{Behind, Stall};
use crate::fence::FenceError;
use crate::frames::Foreign;
use crate::rcu::engine::core::record::Record;
use crate::rcu::engine::core::registry::Claim;
use crate::rcu::engine::Core;
use stillpoint_sys::probe;

pub(crate) type StallHook = Arc<dyn Fn(&Stall) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Watch {
    threshold: Duration,
    hook: StallHook,
}

impl Watch {
    pub(crate) fn new(threshold: Duration, hook: StallHook) -> Self {
        Self { threshold, hook }
    }
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
impl Default for Watch {
    /// For domains without a hook: stalls are still counted, or events.
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Arc::new(|_| ()))
    }
}

stillpoint_sys::debug!(|this| Watch { threshold: this.threshold, .. });

impl Core {
    /// Whether a grace period that is under way since `since` (an age of the domain) is old enough for the hook.
    pub(crate) fn may_be_stalled(&self, since: Duration) -> bool {
        self.watch.as_ref().is_some_and(|watch| self.protocol.age().saturating_sub(since) >= watch.threshold)
    }

    /// Calls the stall hook if `laggard` is still in the way of `token`, if the caller has had that under way since `since`
    /// for the threshold, and if this section was not reported before. `behind` counts what waits for it, as far as
    /// the caller knows.
    ///
    /// # Panics
    /// With the panic of the hook.
    pub(crate) fn report_stall(
        &self,
        laggard: &Record,
        token: u64,
        since: Duration,
        behind: impl FnOnce() -> Behind,
    ) {
        let Some(watch) = self.watch.as_ref().filter(|_| self.may_be_stalled(since)) else { return };
        if laggard.begin_report(token) {
            let waited = self.protocol.age().saturating_sub(since);
            self.call_hook(watch, &Stall::new(self, laggard, waited, behind()));
        }
    }

    fn call_hook(&self, watch: &Watch, stall: &Stall) {
        let (waited, name) = (stall.waited.as_nanos() as u64, self.name());
        let (begin, len) = (name.as_ptr().addr() as u64, name.len() as u64);
        probe!("stall", self.protocol.address(), stall.thread_id.into(), waited, begin, len);
        self.shared_counters.count_stall();
        let _foreign = Foreign::begin();
        #[cfg(feature = "tracing")]
        tracing::warn!(
            target: "stillpoint",
            domain = self.name(),
            thread_id = stall.thread_id,
            thread_name = stall.thread_name,
            activity = %stall.activity,
            waited = ?stall.waited,
            pending = stall.pending,
            pending_bytes = stall.pending_bytes,
            refused = stall.fence_error.map(tracing::field::display),
            "{stall}"
        );
        (watch.hook)(stall);
    }

    /// Counts a retirement that a limit has refused. The first, the second, the fourth, the eighth and so on are events.
    pub(crate) fn count_handed_back(&self) {
        let count = self.shared_counters.count_handed_back();
        #[cfg(feature = "tracing")]
        if count.is_power_of_two() {
            let _foreign = Foreign::begin();
            let thread = std::thread::current();
            let Behind { objects, bytes } = self.all_pending();
            tracing::warn!(
                target: "stillpoint",
                domain = self.name(),
                thread_id = stillpoint_sys::os::thread_id(),
                thread_name = thread.name(),
                pending = objects,
                pending_bytes = bytes,
                handed_back = count,
                "a retirement in domain `{}` was refused; {objects} objects ({bytes} bytes) wait to be freed",
                self.name()
            );
        }
        #[cfg(not(feature = "tracing"))]
        let _ = count;
    }

    /// Calls the stall hook if the kernel, which has just refused the caller's fence by `error`, has refused those of all threads of
    /// the domain for the threshold, and this was not reported before.
    ///
    /// # Panics
    /// With the panic of the hook.
    pub(crate) fn report_refusal(&self, error: FenceError, behind: impl FnOnce() -> Behind) {
        let Some(watch) = &self.watch else { return };
        if let Some(waited) = self.protocol.begin_refusal_report(watch.threshold) {
            self.call_hook(watch, &Stall::of_refusal(self, error, waited, behind()));
        }
    }

    /// The age of the domain at which a region in the way of a grace period that has been under way since `since` is reported, if there is
    /// a hook.
    pub(crate) fn stall_due(&self, since: Option<Duration>) -> Option<Duration> {
        Some(since?.saturating_add(self.watch.as_ref()?.threshold))
    }

    /// When a sleep must end so that a stall is reported in time, for a thread that has waited since `since`.
    pub(crate) fn stall_is_due(&self, since: Option<Duration>) -> Option<Instant> {
        let due = self.stall_due(since)?;
        // One that is overdue has been reported, or is by the next look, for which these sleeps end soon anyway.
        (due > self.protocol.age()).then(|| self.protocol.made.checked_add(due))?
    }

    /// How long a section with this state has been waited for; `None` if it is in the way of no grace period that is under
    /// way. Looks at all counters: for reports on demand, not for polls.
    pub(crate) fn waited_for(&self, state: u64) -> Option<Duration> {
        let counters = self.counters.iter().filter_map(|counters| counters.in_the_way_since(state));
        let oldest = counters.chain(self.wakers.in_the_way_since(state)).min()?;
        Some(self.protocol.age().saturating_sub(oldest))
    }

    /// What waits to be freed in the whole domain. Looks at all counters.
    pub(crate) fn all_pending(&self) -> Behind {
        let sum = self.sum();
        Behind { objects: sum.pending, bytes: sum.pending_bytes }
    }

    /// Announces that the caller has the grace period of `token` under way since `since`, an age of the domain.
    pub(crate) fn date(&self, token: u64, since: Duration) -> Dated<'_> {
        let claim = self.counters.claim();
        // SAFETY: the core is alive, as it is borrowed.
        unsafe { claim.slot() }.set_under_way(Some((token, since)));
        Dated { core: self, claim }
    }
}

/// Announces that a call has a grace period under way, in its own set of counters.
pub(crate) struct Dated<'c> {
    core: &'c Core,
    claim: Claim<Counters>,
}

impl Drop for Dated<'_> {
    fn drop(&mut self) {
        // SAFETY: the core is alive, as it is borrowed.
        unsafe { self.claim.slot() }.set_under_way(None);
        self.core.counters.release(&self.claim);
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::rcu::Domain;
    use stillpoint_sys::os::Activity;

    fn watched(threshold: Duration) -> Domain {
        Domain::builder().stall_hook(threshold, |_| ()).build().expect("the default mode is always available")
    }

    /// The kernel may have refused fences for longer than the thread has existed to which it refuses one now.
    #[test]
    fn a_young_thread_whose_fence_is_refused_has_not_ended() {
        let (domain, years) = (Domain::new(), Duration::from_secs(1 << 30));
        let stall = Stall::of_refusal(domain.core(), FenceError::new(1), years, Behind::default());
        assert_ne!(stall.activity, Activity::Ended, "{stall}");
    }

    /// Sleeps are bounded, so a sleep that does not end for a report shows nowhere else.
    #[test]
    fn a_sleep_ends_when_a_report_is_due() {
        let threshold = Duration::from_secs(1000);
        let domain = watched(threshold);
        let core = domain.core();
        let since = Duration::from_secs(3);
        assert_eq!(core.stall_is_due(Some(since)), Some(core.protocol.made + since + threshold));
        assert!(!core.may_be_stalled(since));
        assert_eq!(core.stall_is_due(None), None, "nothing is under way");
        let without_hook = Domain::new().core().stall_is_due(Some(since));
        let is_watched = cfg!(any(feature = "metrics", feature = "tracing"));
        assert_eq!(without_hook.is_some(), is_watched, "events and counts need no hook");
        for (threshold, is_stalled) in [(Duration::ZERO, true), (Duration::MAX, false)] {
            let domain = watched(threshold);
            assert_eq!(domain.core().stall_is_due(Some(Duration::ZERO)), None, "it is overdue, or never due");
            assert_eq!(domain.core().may_be_stalled(Duration::ZERO), is_stalled);
        }
    }

    /// The next call that uses the counters must not seem to wait.
    #[test]
    fn a_call_that_has_returned_has_nothing_under_way() {
        let domain = Domain::new();
        let core = domain.core();
        let dated = core.date(5, Duration::ZERO);
        assert!(core.waited_for(4).is_some());
        assert_eq!(core.waited_for(5), None, "it is not in the way");
        drop(dated);
        let _reclaimers = [(); 10].map(|()| domain.reclaimer());
        assert_eq!(core.waited_for(4), None);
    }
}
