//! The counts of the threads of the mixed part.

use super::counts::{Counts, events};
use super::looks::Looks;
use super::times::{self, Times};

events! {
    /// The events of the mixed part.
    Count {
        Registered = "readers registered", 50;
        Threads = "threads started and joined", 5;
        Bursts = "bursts of the hog", 2;
        Preempted = "preemptions", 20;
        Parked = "threads parked in a signal handler", 10;
        ParkedInside = "threads parked inside a section", 2;
        Standing = "threads found as they were before", 2;
        Moved = "moves to other CPUs", 20;
        Slept = "sleeps of a thread", 20;
        Protected = "protected loads", 1000;
        Chained = "protected loads in chained slots", 50;
        Promoted = "protected loads kept beyond their guard", 20;
        Guards = "guards", 50;
        Nested = "nested guards", 20;
        Overlapping = "overlapping guards", 50;
        Silent = "sleeps of a reader after a load", 20;
        Away = "sleeps of a reader that went offline", 20;
        Forgotten = "guards and protected loads forgotten", 1;
        Both = "sections in two domains at once", 1;
        Quiescent = "quiescent states", 100;
        Offline = "offline sections", 20;
        OwnSynchronize = "waits of a QSBR reader", 5;
        Refused = "waits refused under a guard", 1;
        Inside = "tokens not over in their own section", 5;
        Outside = "tokens over after their own section", 5;
        Retired = "objects retired to a reclaimer", 1000;
        Full = "reclaimers found full", 50;
        Submitted = "objects submitted to a background thread", 1000;
        TriedFree = "objects freed one by one", 200;
        TriedInVain = "attempts to free that failed", 100;
        WaitedFor = "objects waited for and freed", 5;
        WaitedInVain = "failed waits for an object", 0.5;
        Piped = "objects freed at the end of the pipe", 5;
        Orphaned = "objects left to the domain", 500;
        Exchanged = "objects compared and exchanged", 50;
        Floods = "bursts of retirements", 2;
        DroppedReclaimers = "reclaimers dropped with what they held", 5;
        Deferred = "callbacks deferred", 5;
        Tokens = "tokens started and over", 20;
        Aged = "objects aged by a grace period", 500;
        Synchronized = "waits for a grace period", 10;
        Awaited = "grace periods awaited as futures", 2;
        Unawaited = "futures dropped before they were ready", 0.5;
        Boosted = "readers boosted", 0.2;
        Reports = "stalls reported", 0.5;
        HandedBack = "retirements handed back", 50;
        WaitedForRoom = "retirements that waited for room", 5;
        Assisted = "retirements that freed what others retired", 0.02;
        TimedOut = "timed waits whose time was up", 1;
        TimedWaits = "timed waits that ended in time", 10;
        Flushed = "timed flushes", 5;
    }
}

/// The counts and times of one thread, or of all together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) counts: Counts<Count>,
    pub(crate) looks: Looks,
    /// From the start of a token until it was found to be over.
    pub(crate) grace: Times,
    /// From the call of `synchronize` to its return.
    pub(crate) synchronize: Times,
    /// From the beginning of a section to its end.
    pub(crate) sections: Times,
}

impl Tally {
    pub(crate) fn count(&mut self, count: Count) {
        self.counts.add(count);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.looks.merge(&other.looks);
        self.grace.merge(&other.grace);
        self.synchronize.merge(&other.synchronize);
        self.sections.merge(&other.sections);
    }

    pub(crate) fn show_times(&self, delays: &Times) {
        times::show(&[
            ("sections", &self.sections),
            ("tokens, until found over", &self.grace),
            ("waits for a grace period", &self.synchronize),
            ("unlink to destructor", delays),
        ]);
    }
}
