//! What was tried, and how often: a run that tried too little proves nothing.

use std::time::Duration;

use super::arena::{Kind, OLDEST};

/// Each kind of try must have been made so many times, or the run is vacuous.
pub(super) const LEAST: u64 = 8;

macro_rules! counts {
    ($($count:ident = $text:literal,)*) => {
        /// A kind of try.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Count { $($count,)* }

        impl Count {
            pub(super) const ALL: &'static [Count] = &[$(Count::$count,)*];

            pub(super) fn text(self) -> &'static str {
                match self { $(Count::$count => $text,)* }
            }
        }
    };
}

counts! {
    Registered = "readers registered",
    Threads = "threads started and joined",
    Moved = "moves to other CPUs",
    Slept = "sleeps inside a section",
    Protected = "protected loads",
    Chained = "protected loads in chained slots",
    Promoted = "protected loads kept beyond their guard",
    Guards = "guards",
    Nested = "nested guards",
    Overlapping = "overlapping guards",
    Forgotten = "guards and protected loads forgotten",
    Both = "sections in two domains at once",
    Quiescent = "quiescent states",
    Offline = "offline sections",
    OwnSynchronize = "waits of a QSBR reader",
    Refused = "waits refused under a guard",
    Retired = "objects retired to a reclaimer",
    Full = "reclaimers found full",
    Submitted = "objects submitted to a background thread",
    TriedFree = "objects freed one by one",
    TriedInVain = "attempts to free in vain",
    WaitedFor = "objects waited for and freed",
    WaitedInVain = "objects waited for in vain",
    Orphaned = "objects left to the domain",
    Exchanged = "objects compared and exchanged",
    Floods = "floods of retirements",
    DroppedReclaimers = "reclaimers dropped with what they held",
    Deferred = "callbacks deferred",
    Tokens = "tokens started and over",
    Aged = "objects aged by a grace period",
    Synchronized = "waits for a grace period",
    TimedOut = "timed waits that ran out",
    TimedWaits = "timed waits that did not",
    Flushed = "timed flushes",
}

/// Times in buckets of a power of two of nanoseconds each.
#[derive(Debug, Clone)]
pub(super) struct Times([u64; 64]);

impl Default for Times {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.0[nanos.ilog2() as usize] += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, part)| *sum += part);
    }

    pub(super) fn number(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The buckets from the first to the last one that is not empty: the shortest time of each in nanoseconds, and
    /// the number.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let first = self.0.iter().position(|&number| number != 0).unwrap_or(0);
        let end = self.0.iter().rposition(|&number| number != 0).map_or(0, |last| last + 1);
        (first..end).map(|bucket| (1 << bucket, self.0[bucket]))
    }
}

/// What one thread, or all together, did.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    counts: [u64; Count::ALL.len()],
    looks: [[u64; OLDEST as usize + 1]; Kind::ALL.len()],
    /// From the start of a token until it was found to be over.
    pub(super) grace: Times,
    /// From the call of `synchronize` to its return.
    pub(super) synchronize: Times,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            counts: [0; Count::ALL.len()],
            looks: [[0; OLDEST as usize + 1]; Kind::ALL.len()],
            grace: Times::default(),
            synchronize: Times::default(),
        }
    }
}

impl Tally {
    pub(super) fn count(&mut self, count: Count) {
        self.counts[count as usize] += 1;
    }

    #[inline]
    pub(super) fn count_look(&mut self, kind: Kind, age: u64) {
        self.looks[kind as usize][age as usize] += 1;
    }

    pub(super) fn of(&self, count: Count) -> u64 {
        self.counts[count as usize]
    }

    /// Looks at objects by age: linked, unlinked, then the grace periods over since.
    pub(super) fn looks(&self, kind: Kind) -> &[u64] {
        &self.looks[kind as usize]
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, part)| *sum += part);
        let looks = self.looks.as_flattened_mut().iter_mut();
        looks.zip(other.looks.as_flattened()).for_each(|(sum, part)| *sum += part);
        self.grace.merge(&other.grace);
        self.synchronize.merge(&other.synchronize);
    }

    /// The kinds of tries that were made too rarely, in words.
    pub(super) fn missing(&self) -> Vec<String> {
        let counts = Count::ALL.iter().map(|&count| (count.text().to_owned(), self.of(count)));
        let looks = Kind::ALL.iter().flat_map(|&kind| {
            // A region reader sees two ages, a protected load all of them.
            let ages = if kind == Kind::Protected { 3 } else { 2 };
            (0..ages)
                .map(move |age| (format!("looks of a {} at age {age}", kind.text()), self.looks(kind)[age]))
        });
        counts
            .chain(looks)
            .filter(|&(_, number)| number < LEAST)
            .map(|(text, number)| format!("{text}: {number}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_powers_of_two() {
        let mut times = Times::default();
        for nanos in [0, 1, 1023, 1024, 1025, 2047] {
            times.add(Duration::from_nanos(nanos));
        }
        let buckets: Vec<_> = times.buckets().filter(|&(_, number)| number != 0).collect();
        assert_eq!(buckets, [(1, 2), (512, 1), (1024, 3)]);
        assert_eq!(times.number(), 6);
        assert_eq!(Times::default().buckets().count(), 0);
    }

    #[test]
    fn what_was_never_tried_is_missing() {
        let mut tally = Tally::default();
        assert_eq!(tally.missing().len(), Count::ALL.len() + 7);
        let mut part = Tally::default();
        Count::ALL.iter().for_each(|&count| part.count(count));
        for (kind, age) in [(Kind::Protected, 2), (Kind::Guard, 1), (Kind::Qsbr, 0)] {
            part.count_look(kind, age);
        }
        (0..LEAST).for_each(|_| tally.merge(&part));
        assert_eq!(tally.missing().len(), 4, "{:?}", tally.missing());
        assert_eq!(tally.of(Count::Guards), LEAST);
    }
}
