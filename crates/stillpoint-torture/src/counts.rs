//! Counts of what was tried: a run that tried too little proves nothing.

use std::marker::PhantomData;
use std::time::Duration;

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

#[cfg(test)]
mod tests {
    use super::*;

    events! {
        /// For the test.
        Kind {
            Often = "things that happen often", 100;
            Rare = "rare things", 0.1;
        }
    }

    #[test]
    fn what_happened_too_rarely_is_missing() {
        let second = Duration::from_secs(1);
        let mut counts = Counts::<Kind>::default();
        assert_eq!(counts.missing(second).len(), 1, "a rare event was required in one second");
        assert_eq!(counts.missing(Duration::ZERO).len(), 2, "a part that never ran");
        counts.add(Kind::Rare);
        counts.add_many(Kind::Often, 99);
        assert_eq!(counts.missing(second), ["things that happen often (99, not 100)"]);
        let mut sum = counts.clone();
        sum.merge(&counts);
        assert!(sum.missing(second).is_empty());
        assert_eq!(sum.missing(30 * second).len(), 2, "the required number did not grow with the time");
        assert_eq!((sum.of(Kind::Often), sum.of(Kind::Rare)), (198, 2));
    }
}
