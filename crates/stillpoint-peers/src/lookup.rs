use std::sync::atomic::{AtomicBool, Ordering};

use crate::{ReadJob, ReadOutcome};

/// The loop of every reader: looks up random indices below `len`, one after the other, until [`stop`](ReadJob::stop) is set.
///
/// `lookup` reads the element at an index under the protection of its scheme, and returns whether the element is alive and belongs
/// there. The peers written in C run the same loop with the same keys. `len` is a power of two.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use stillpoint_peers::{ReadJob, read_until_stopped};
///
/// let stop = AtomicBool::new(false);
/// let job = ReadJob { index: 0, seed: 1, stop: &stop, work: None };
/// let outcome = read_until_stopped(&job, 64, |index| {
///     stop.store(true, Ordering::Relaxed);
///     index < 64
/// });
/// assert_eq!((outcome.lookups, outcome.mismatches), (1, 0));
/// ```
#[inline(always)]
pub fn read_until_stopped(
    job: &ReadJob<'_>,
    len: usize,
    mut lookup: impl FnMut(usize) -> bool,
) -> ReadOutcome {
    let mut lookups = Lookups::new(job, len);
    while let Some(index) = lookups.next_index() {
        lookups.count(lookup(index));
    }
    lookups.outcome()
}

/// The lookups of the same loop, one by one, for readers that do something once in several lookups.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use stillpoint_peers::{Lookups, ReadJob};
///
/// let stop = AtomicBool::new(false);
/// let job = ReadJob { index: 0, seed: 1, stop: &stop, work: None };
/// let mut lookups = Lookups::new(&job, 64);
/// for _ in 0..32 {
///     let Some(index) = lookups.next_index() else { break };
///     lookups.count(index < 64);
/// }
/// assert_eq!(lookups.outcome().lookups, 32);
/// ```
#[derive(Debug)]
pub struct Lookups<'a> {
    stop: &'a AtomicBool,
    mask: usize,
    random: u64,
    outcome: ReadOutcome,
}

impl<'a> Lookups<'a> {
    /// Lookups of random indices below `len`, a power of two.
    pub fn new(job: &ReadJob<'a>, len: usize) -> Self {
        debug_assert!(len.is_power_of_two() && job.seed != 0);
        Self { stop: job.stop, mask: len - 1, random: job.seed, outcome: ReadOutcome::default() }
    }

    /// The next index; `None` once [`stop`](ReadJob::stop) is set.
    #[inline(always)]
    pub fn next_index(&mut self) -> Option<usize> {
        // Relaxed: the flag carries no data.
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        Some(self.index())
    }

    /// The next index, even if [`stop`](ReadJob::stop) is set.
    #[inline(always)]
    pub fn index(&mut self) -> usize {
        self.random = next_random(self.random);
        self.random as usize & self.mask
    }

    /// Counts a lookup. `found`: it found the right element.
    #[inline(always)]
    pub fn count(&mut self, found: bool) {
        self.outcome.lookups += 1;
        self.outcome.mismatches += u64::from(!found);
    }

    /// The counts.
    pub fn outcome(&self) -> ReadOutcome {
        self.outcome
    }
}

/// Marsaglia's xorshift64 with the shifts 13, 7, 17 ("Xorshift RNGs", Journal of Statistical Software 8(14), 2003).
#[inline(always)]
fn next_random(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

/// The loop of a contender's readers, by [`read_until_stopped`] or, if the sections of the job have work, by [`read_sections`].
///
/// The body is one lookup: it loads the element at `index` under the protection of its scheme, and returns the result of `found` for it, a
/// function of an `Option<&Element>`. `missing` says whether it is right that there is no element; in sections it always is. Schemes whose
/// readers act between two sections take `rest`, an `Option<&Work>`, and do that work themselves.
///
/// [`read_sections`]: crate::read_sections
#[macro_export]
macro_rules! read_loop {
    ($job:expr, $len:expr, missing: $missing:literal, |$index:ident, $found:ident| $lookup:expr) => {
        $crate::read_loop!(@ $job, $len, $missing, work => work, |$index, $found, _rest| $lookup)
    };
    ($job:expr, $len:expr, missing: $missing:literal, |$index:ident, $found:ident, $rest:ident| $lookup:expr) => {
        $crate::read_loop!(
            @ $job, $len, $missing, work => &$crate::Work { outside: 0, ..*work }, |$index, $found, $rest| $lookup
        )
    };
    (
        @ $job:expr, $len:expr, $missing:literal, $work:ident => $of_loop:expr,
        |$index:ident, $found:ident, $rest:ident| $lookup:expr
    ) => {
        match $job.work {
            None => $crate::read_until_stopped($job, $len, |$index| {
                let $found = |element: Option<&$crate::Element>| {
                    element.map_or($missing, |element| element.holds($index as u64))
                };
                let $rest = None::<&$crate::Work>;
                $lookup
            }),
            Some($work) => $crate::read_sections($job, $of_loop, $len, |$index| {
                let $found = |element: Option<&$crate::Element>| $work.inside(element, $index);
                let $rest = Some($work).filter(|work| work.has_rest());
                $lookup
            }),
        }
    };
}
