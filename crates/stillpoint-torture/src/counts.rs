//! Counts of what was tried: a run that tried too little proves nothing.
//!
//! Histograms of times: one column for each power of ten.
//!
//! How an object is held: the kind of reader, and the fences of its domain.
//!
//! Looks at objects, by the kind of reader and the age of the object: the "reader pipe" of the kernel's rcutorture.
//!
//! The counts of the threads of the mixed part.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stillpoint::fence::Mode;
use stillpoint_harness::output::format::micros;
use stillpoint_harness::output::say;

/// The kinds of events that one part counts.
pub(crate) trait Event: Copy + 'static {
    const ALL: &'static [Self];

    /// What happened, in the plural.
    fn text(self) -> &'static str;

    /// How often it must happen in each second of its part; otherwise the run is vacuous. The number is a small
    /// fraction of what two idle CPUs manage, so that a busy machine reaches it too.
    fn least(self) -> f64;

    fn index(self) -> usize;
}

/// Declares the events of a part: `Name = "what happened", the least number per second`.
macro_rules! events {
    ($(#[$doc:meta])* $name:ident { $($event:ident = $text:literal, $least:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($event,)* }

        impl $crate::counts::Event for $name {
            const ALL: &'static [Self] = &[$(Self::$event,)*];

            fn text(self) -> &'static str {
                match self { $(Self::$event => $text,)* }
            }

            fn least(self) -> f64 {
                match self { $(Self::$event => f64::from($least),)* }
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
pub(crate) use events;

/// A count for each kind of event.
#[derive(Debug, Clone)]
pub(crate) struct Counts<E> {
    numbers: Vec<u64>,
    events: PhantomData<E>,
}

impl<E: Event> Default for Counts<E> {
    fn default() -> Self {
        Self { numbers: vec![0; E::ALL.len()], events: PhantomData }
    }
}

impl<E: Event> Counts<E> {
    pub(crate) fn add(&mut self, event: E) {
        self.add_many(event, 1);
    }

    pub(crate) fn add_many(&mut self, event: E, number: u64) {
        self.numbers[event.index()] += number;
    }

    pub(crate) fn of(&self, event: E) -> u64 {
        self.numbers[event.index()]
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.numbers.iter_mut().zip(&other.numbers).for_each(|(sum, part)| *sum += part);
    }

    /// The kinds that happened too rarely in a part that ran for `time`, in words.
    pub(crate) fn missing(&self, time: Duration) -> Vec<String> {
        let few = E::ALL.iter().filter_map(|&event| {
            let (number, least) = (self.of(event), least(event.least(), time));
            (number < least).then(|| format!("{} ({number}, not {least})", event.text()))
        });
        few.collect()
    }

    /// Prints all of them, in two columns.
    pub(crate) fn show(&self) {
        let events: Vec<&E> = E::ALL.iter().filter(|event| self.of(**event) != 0).collect();
        let rows = events.len().div_ceil(2);
        let cell = |index: usize| {
            let event = events.get(index)?;
            Some(format!("{:>10}  {:<40}", self.of(**event), event.text()))
        };
        for row in 0..rows {
            let line = [cell(row), cell(row + rows)].into_iter().flatten().collect::<String>();
            say(format!("  {}", line.trim_end()));
        }
    }
}

/// The least number of an event that should happen `rate` times a second. A short run need not see rare events; a part that
/// never ran has seen too little of everything.
pub(crate) fn least(rate: f64, time: Duration) -> u64 {
    if time.is_zero() { 1 } else { (rate * time.as_secs_f64()) as u64 }
}

/// The columns. Each ends below its time.
const COLUMNS: [(&str, u64); 8] = [
    ("<1µs", 1_000),
    ("<10µs", 10_000),
    ("<100µs", 100_000),
    ("<1ms", 1_000_000),
    ("<10ms", 10_000_000),
    ("<100ms", 100_000_000),
    ("<1s", 1_000_000_000),
    ("longer", u64::MAX),
];

fn column(nanos: u64) -> usize {
    COLUMNS.iter().position(|&(_, end)| nanos < end).unwrap_or(COLUMNS.len() - 1)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A histogram of durations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Times {
    numbers: [u64; COLUMNS.len()],
    longest: u64,
}

impl Times {
    pub(crate) fn add(&mut self, time: Duration) {
        let nanos = nanos(time);
        self.numbers[column(nanos)] += 1;
        self.longest = self.longest.max(nanos);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.numbers.iter_mut().zip(other.numbers).for_each(|(sum, part)| *sum += part);
        self.longest = self.longest.max(other.longest);
    }

    fn row(&self) -> String {
        let numbers: String = self.numbers.iter().map(|number| format!("{number:>10}")).collect();
        format!("{numbers}{:>12}", micros(self.longest as f64 / 1e3))
    }
}

/// As [`Times`], for many threads at a time.
#[derive(Debug, Default)]
pub(crate) struct SharedTimes {
    numbers: [AtomicU64; COLUMNS.len()],
    longest: AtomicU64,
}

// Relaxed throughout: counts, read when the threads are joined.
impl SharedTimes {
    pub(crate) fn add(&self, time: Duration) {
        let nanos = nanos(time);
        self.numbers[column(nanos)].fetch_add(1, Ordering::Relaxed);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Times {
        Times {
            numbers: std::array::from_fn(|column| self.numbers[column].load(Ordering::Relaxed)),
            longest: self.longest.load(Ordering::Relaxed),
        }
    }
}

/// Prints histograms below each other.
pub(crate) fn show(rows: &[(&str, &Times)]) {
    let rows = rows.iter().filter(|(_, times)| times.numbers.iter().any(|&number| number != 0));
    if rows.clone().next().is_none() {
        return;
    }
    let columns: String = COLUMNS.iter().map(|(text, _)| format!("{text:>10}")).collect();
    say(format!("  {:<26}{columns}{:>12}", "times", "longest"));
    for (title, times) in rows {
        say(format!("  {title:<26}{}", times.row()));
    }
}

/// How an object is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
}

/// The kind of reader that holds an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Protected,
    Guard,
    Qsbr,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Protected, Kind::Guard, Kind::Qsbr];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Kind::Protected => "protected load",
            Kind::Guard => "guard",
            Kind::Qsbr => "QSBR section",
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} ({} fences)", self.kind.text(), self.mode)
    }
}

/// The age at which an object stops ageing: the last column.
pub(crate) const OLDEST: u64 = 6;
const AGES: usize = OLDEST as usize + 1;

/// The titles of the columns.
const TITLES: [&str; AGES] = ["linked", "unlinked", "1 period", "2", "3", "4", "5 and more"];

/// The number of looks at objects, by kind of reader and age.
#[derive(Debug, Clone, Default)]
pub(crate) struct Looks([[u64; AGES]; Kind::ALL.len()]);

impl Looks {
    #[inline]
    pub(crate) fn add(&mut self, kind: Kind, age: u64) {
        self.0[kind as usize][age as usize] += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let others = other.0.as_flattened();
        self.0.as_flattened_mut().iter_mut().zip(others).for_each(|(sum, part)| *sum += part);
    }

    /// The ages that were never seen, although they had to be. A region reader must see two ages. A protected load
    /// may see all ages, and must see the first `protected` of them.
    pub(crate) fn missing(&self, protected: usize) -> Vec<String> {
        let seen = |kind: Kind| if kind == Kind::Protected { protected } else { 2 };
        let unseen = Kind::ALL.iter().flat_map(|&kind| {
            let ages = (0..seen(kind)).filter(move |&age| self.0[kind as usize][age] == 0);
            ages.map(move |age| format!("looks of a {} at an object of age {}", kind.text(), TITLES[age]))
        });
        unseen.collect()
    }

    /// Prints the looks, and how many objects were destroyed at each age.
    pub(crate) fn show(&self, destroyed: Option<&[u64; AGES]>) {
        let row = |numbers: &[u64]| numbers.iter().map(|number| format!("{number:>11}")).collect::<String>();
        say(format!(
            "  {:<26}{}",
            "looks at objects of age",
            TITLES.map(|age| format!("{age:>11}")).concat()
        ));
        for kind in
            Kind::ALL.into_iter().filter(|&kind| self.0[kind as usize].iter().any(|&looks| looks != 0))
        {
            say(format!("  {:<26}{}", kind.text(), row(&self.0[kind as usize])));
        }
        if let Some(destroyed) = destroyed {
            say(format!("  {:<26}{}", "destroyed at that age", row(destroyed)));
        }
    }
}

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
        show(&[
            ("sections", &self.sections),
            ("tokens, until found over", &self.grace),
            ("waits for a grace period", &self.synchronize),
            ("unlink to destructor", delays),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    events! {
        /// For the test.
        Thing {
            Often = "things that happen often", 100;
            Rare = "rare things", 0.1;
        }
    }

    #[test]
    fn what_happened_too_rarely_is_missing() {
        let second = Duration::from_secs(1);
        let mut counts = Counts::<Thing>::default();
        assert_eq!(counts.missing(second).len(), 1, "a rare event was required in one second");
        assert_eq!(counts.missing(Duration::ZERO).len(), 2, "a part that never ran");
        counts.add(Thing::Rare);
        counts.add_many(Thing::Often, 99);
        assert_eq!(counts.missing(second), ["things that happen often (99, not 100)"]);
        let mut sum = counts.clone();
        sum.merge(&counts);
        assert!(sum.missing(second).is_empty());
        assert_eq!(sum.missing(30 * second).len(), 2, "the required number did not grow with the time");
        assert_eq!((sum.of(Thing::Often), sum.of(Thing::Rare)), (198, 2));
    }

    #[test]
    fn times_fall_into_powers_of_ten() {
        let mut times = Times::default();
        for nanos in [0, 999, 1_000, 9_999, 20_000_000_000] {
            times.add(Duration::from_nanos(nanos));
        }
        assert_eq!(times.numbers, [2, 2, 0, 0, 0, 0, 0, 1]);
        assert_eq!(times.longest, 20_000_000_000);
        assert!(times.row().ends_with("20.0 s"));
    }

    #[test]
    fn shared_times_count_the_same() {
        let (mut times, shared) = (Times::default(), SharedTimes::default());
        for nanos in [1, 5_000, 70_000_000] {
            times.add(Duration::from_nanos(nanos));
            shared.add(Duration::from_nanos(nanos));
        }
        assert_eq!(shared.get(), times);
        let mut sum = times.clone();
        sum.merge(&times);
        assert_eq!(sum.numbers.iter().sum::<u64>(), 6);
        assert_eq!(sum.longest, 70_000_000);
    }

    #[test]
    fn ages_that_nobody_saw_are_missing() {
        let mut looks = Looks::default();
        assert_eq!(looks.missing(3).len(), 7);
        let mut part = Looks::default();
        part.add(Kind::Protected, 2);
        part.add(Kind::Guard, 1);
        looks.merge(&part);
        looks.merge(&part);
        assert_eq!(looks.missing(3).len(), 5, "{:?}", looks.missing(3));
        assert_eq!(looks.missing(2).len(), 5, "the third age was seen");
        assert_eq!(looks.0[Kind::Protected as usize][2], 2);
    }
}
