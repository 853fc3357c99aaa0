//! What a part counts, and how long things took: a run that tried too little proves nothing.

use std::fmt;
use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stillpoint::fence::Mode;
use stillpoint_harness::output::format::micros;
use stillpoint_harness::output::say;

/// What counts events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {
    Mixed,
    Flood,
    Tables,
    Forks,
    Parked,
}

impl Area {
    /// Its name in findings, and its title.
    pub(crate) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Mixed => ("mixed", "Mixed part"),
            Self::Flood => ("flood", "Floods"),
            Self::Tables => ("tables", "Tables"),
            Self::Forks => ("fork", "Forks"),
            Self::Parked => ("parked", "Readers parked in a signal handler"),
        }
    }

    /// What its times are, in the order of [`Tally::times`].
    fn times(self) -> &'static [&'static str] {
        match self {
            Self::Mixed => &["sections", "tokens, until found over", "waits for a grace period"],
            Self::Flood => &["waits for room", "backlog drained"],
            Self::Tables => &["sections"],
            Self::Forks => &["life of a child"],
            Self::Parked => &["parked", "unlink to destructor"],
        }
    }

    /// The number of ages at which a protected load must have seen an object, if its looks count.
    fn ages(self) -> Option<usize> {
        match self {
            Self::Mixed => Some(3),
            Self::Tables => Some(2),
            Self::Flood | Self::Forks | Self::Parked => None,
        }
    }
}

/// Declares the events: `Name = "what happened", least`. The least number is how often the event must happen in each
/// second of its part; otherwise the run is vacuous. It is a small fraction of what two idle CPUs manage, so that a busy
/// machine reaches it too.
macro_rules! events {
    ($($area:ident { $($event:ident = $text:literal, $least:literal;)* })*) => {
        /// The kinds of events.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Count { $($($event,)*)* }

        /// All of them in their order: what counts it, what happened, and how often it must happen.
        const EVENTS: &[(Count, Area, &str, f64)] = &[$($((Count::$event, Area::$area, $text, $least as f64),)*)*];
    };
}

events! {
    Mixed {
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
    Flood {
        Visits = "readers that came and went", 50;
        Polled = "objects retired to a reclaimer", 2000;
        FloodSubmitted = "objects submitted to a background thread", 2000;
        Waits = "retirements that had to wait for room", 2;
        Drained = "backlogs drained while readers went on", 0.5;
    }
    Tables {
        Tables = "tables made and ended", 2;
        Growths = "growths", 1;
        Gets = "protected lookups", 1000;
        GuardGets = "lookups under a guard", 500;
        GetMany = "bursts of lookups", 50;
        QsbrGets = "lookups in a QSBR section", 200;
        Iterations = "iterations", 1;
        Inserted = "entries inserted", 1000;
        Replaced = "entries replaced", 200;
        Removed = "entries removed", 500;
        GotOrInserted = "entries got or inserted", 50;
        Updated = "entries updated", 20;
        RemovedIf = "conditional removals", 50;
        Retained = "sweeps by a condition", 0.5;
        Reserved = "reservations", 0.5;
        Refunded = "entries handed back by a full table", 0.1;
        Known = "lookups of what a writer knows", 200;
        Troubled = "threads parked or preempted by the hog", 5;
    }
    Forks {
        Free = "children of a thread that held nothing", 0.2;
        Guarded = "children forked inside a guard", 0.2;
        Protecting = "children forked with a protected load", 0.2;
    }
    Parked {
        ParkedGuards = "readers parked inside a guard", 0.01;
        ParkedSections = "readers parked in a QSBR section", 0.01;
        ParkedLoads = "readers parked with a protected load", 0.01;
        NotOver = "tokens not over behind them", 2;
        AtLimit = "retirements handed back at the limit", 2;
        Named = "timed waits that named the thread", 2;
        Passed = "objects freed past a protected load", 200;
        Pinned = "flushes that reported the protected object", 1;
        Reported = "stalls reported, and their end", 0.01;
        Freed = "backlogs freed once they were released", 0.01;
    }
}

/// A count for each kind of event.
#[derive(Debug, Clone)]
pub(crate) struct Counts([u64; EVENTS.len()]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; EVENTS.len()])
    }
}

impl Counts {
    pub(crate) fn add_many(&mut self, event: Count, number: u64) {
        self.0[event as usize] += number;
    }

    pub(crate) fn of(&self, event: Count) -> u64 {
        self.0[event as usize]
    }

    fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, part)| *sum += part);
    }

    /// The events of `area` and their numbers.
    fn of_area(&self, area: Area) -> impl Iterator<Item = (u64, &'static str, f64)> {
        let of_area = EVENTS.iter().filter(move |&&(_, of, ..)| of == area);
        of_area.map(|&(event, _, text, rate)| (self.of(event), text, rate))
    }

    /// The kinds that happened too rarely in a part that ran for `time`, in words.
    fn missing(&self, area: Area, time: Duration) -> Vec<String> {
        let few = self.of_area(area).filter_map(|(number, text, rate)| {
            let least = least(rate, time);
            (number < least).then(|| format!("{text} ({number}, not {least})"))
        });
        few.collect()
    }

    /// Prints all of an area that are not 0, in two columns.
    fn show(&self, area: Area) {
        let events = self.of_area(area).filter(|(number, ..)| *number != 0);
        let cells: Vec<String> =
            events.map(|(number, text, _)| format!("{number:>10}  {text:<40}")).collect();
        let (left, right) = cells.split_at(cells.len().div_ceil(2));
        for (row, cell) in left.iter().enumerate() {
            let line = format!("  {cell}{}", right.get(row).map_or("", String::as_str));
            say(line.trim_end());
        }
    }
}

/// The least number of an event that should happen `rate` times a second. A short run need not see rare events; a part that
/// never ran has seen too little of everything.
pub(crate) fn least(rate: f64, time: Duration) -> u64 {
    if time.is_zero() { 1 } else { (rate * time.as_secs_f64()) as u64 }
}

/// The counts of a race.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Runs {
    /// Announcements, tokens that were started, or lookups.
    pub(crate) tries: u64,
    /// Objects that were freed meanwhile, tokens that were found to be over, or changes.
    pub(crate) over: u64,
    /// How often one thread parked the other.
    pub(crate) parkings: u64,
}

impl Add for Runs {
    type Output = Self;

    fn add(self, Self { tries, over, parkings }: Self) -> Self {
        Self { tries: self.tries + tries, over: self.over + over, parkings: self.parkings + parkings }
    }
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
        ["protected load", "guard", "QSBR section"][self as usize]
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

fn row(numbers: &[u64]) -> String {
    numbers.iter().map(|number| format!("{number:>11}")).collect()
}

/// Prints how many objects were destroyed at each age.
pub(crate) fn show_destroyed(destroyed: &[u64; AGES]) {
    say(format!("  {:<26}{}", "age", TITLES.map(|age| format!("{age:>11}")).concat()));
    say(format!("  {:<26}{}", "destroyed at that age", row(destroyed)));
}

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

    /// Prints the looks.
    fn show(&self) {
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
    }
}

/// What a thread, or a part, counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) counts: Counts,
    pub(crate) looks: Looks,
    /// In the order of [`Area::times`].
    pub(crate) times: [Times; 3],
    /// The largest backlog, in percent of its limit.
    pub(crate) fullest: usize,
}

/// The times from the beginning of a section to its end; from the start of a token until it was found to be over; and from a
/// call of `synchronize` to its return.
pub(crate) const SECTIONS: usize = 0;
pub(crate) const GRACE: usize = 1;
pub(crate) const SYNCHRONIZE: usize = 2;

impl Tally {
    pub(crate) fn count(&mut self, count: Count) {
        self.counts.add_many(count, 1);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.looks.merge(&other.looks);
        self.times.iter_mut().zip(&other.times).for_each(|(sum, part)| sum.merge(part));
        self.fullest = self.fullest.max(other.fullest);
    }

    /// What was tried too rarely in an area that ran for `time`, in words.
    pub(crate) fn missing(&self, area: Area, time: Duration) -> Vec<String> {
        let looks = area.ages().map_or(Vec::new(), |ages| self.looks.missing(ages));
        let all = self.counts.missing(area, time).into_iter().chain(looks);
        all.map(|what| format!("{}: {what}", area.names().0)).collect()
    }

    /// Prints what is not 0.
    pub(crate) fn show(&self, area: Area) {
        if self.fullest != 0 {
            say(format!("  The largest backlog was {} % of its limit", self.fullest));
        }
        self.counts.show(area);
        if area.ages().is_some() {
            self.looks.show();
        }
        show(&area.times().iter().copied().zip(&self.times).collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_too_rarely_is_missing() {
        let second = Duration::from_secs(1);
        let missing = |tally: &Tally, time| tally.missing(Area::Flood, time);
        let mut tally = Tally::default();
        assert_eq!(missing(&tally, second).len(), 4, "a rare event was required in one second");
        assert_eq!(missing(&tally, Duration::ZERO).len(), 5, "a part that never ran");
        tally.count(Count::Drained);
        tally.counts.add_many(Count::Visits, 49);
        for often in [Count::Polled, Count::FloodSubmitted, Count::Waits] {
            tally.counts.add_many(often, 2000);
        }
        assert_eq!(missing(&tally, second), ["flood: readers that came and went (49, not 50)"]);
        let mut sum = tally.clone();
        sum.merge(&tally);
        assert!(missing(&sum, second).is_empty());
        assert_eq!(missing(&sum, 30 * second).len(), 4, "the required number did not grow with the time");
        assert_eq!((sum.counts.of(Count::Visits), sum.counts.of(Count::Drained)), (98, 2));
    }

    #[test]
    fn each_event_is_at_its_number() {
        assert!(EVENTS.iter().enumerate().all(|(number, &(event, ..))| event as usize == number));
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
