use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Element, Lookups, ReadJob, ReadOutcome};

/// The work of a reader in a read-side section, and between two sections. It is the same for every contender.
///
/// Work is counted in steps of a chain of dependent instructions, not by a clock, so a reader that was preempted still has to do the
/// rest of its work. [`steps_per_microsecond`](Work::steps_per_microsecond) measures the steps in a microsecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Steps inside the section.
    pub inside: u64,
    /// How long the reader sleeps in the middle of the steps inside.
    pub sleep: Duration,
    /// Steps between the end of a section and the beginning of the next one.
    pub outside: u64,
}

impl Work {
    /// The steps of this CPU in a microsecond. It is the maximum of several attempts, since interrupts and other threads only lower it.
    pub fn steps_per_microsecond() -> f64 {
        const STEPS: u64 = 1 << 20;
        let attempt = || {
            let begin = Instant::now();
            take_steps(STEPS);
            STEPS as f64 / (begin.elapsed().as_secs_f64() * 1e6)
        };
        (0..20).map(|_| attempt()).fold(0.0, f64::max)
    }

    /// The work inside a section that has loaded `element` from the slot `index`. Returns whether the element belongs there,
    /// and was alive from the beginning to the end; also true if there is no element.
    #[inline(never)]
    pub fn inside(&self, element: Option<&Element>, index: usize) -> bool {
        let whole = |element: &Element| element.is_whole(index as u64);
        let at_first = element.is_none_or(whole);
        if self.sleep.is_zero() {
            take_steps(self.inside);
        } else {
            take_steps(self.inside / 2);
            thread::sleep(self.sleep);
            take_steps(self.inside / 2);
        }
        // A freed element stays poisoned, or its memory becomes another element.
        at_first && element.is_none_or(|element| element.ends_hold(index as u64))
    }

    /// Whether there is anything to do between two sections.
    pub fn has_rest(&self) -> bool {
        self.outside > 0
    }

    /// The work between two sections.
    #[inline(never)]
    pub fn rest(&self) {
        take_steps(self.outside);
    }
}

#[inline(never)]
fn take_steps(steps: u64) {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..steps {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// The loop of readers with long sections. The peers written in C run the same loop with the same keys.
///
/// `section` enters a section, loads the element at an index below `len`, passes it to [`Work::inside`], leaves the section, and
/// returns the result. `len` is a power of two. There is at least one section, even if the reader starts late. It stays apart from the loop
/// without sections, whose registers it would share otherwise.
#[inline(never)]
pub fn read_sections(
    job: &ReadJob<'_>,
    work: &Work,
    len: usize,
    mut section: impl FnMut(usize) -> bool,
) -> ReadOutcome {
    let mut lookups = Lookups::new(job, len);
    let mut next = Some(lookups.index());
    while let Some(index) = next {
        lookups.count(section(index));
        if work.has_rest() {
            work.rest();
        }
        next = lookups.next_index();
    }
    lookups.outcome()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Delays;

    #[test]
    fn work_takes_its_time() {
        let steps = (Work::steps_per_microsecond() * 2_000.0) as u64;
        let work = Work { inside: steps, sleep: Duration::from_millis(3), outside: steps };
        let begin = Instant::now();
        assert!(work.inside(None, 0));
        let inside = begin.elapsed();
        // If the machine was slower during the calibration, the work takes less time.
        assert!(inside >= Duration::from_millis(4), "{inside:?}");
        work.rest();
        assert!(begin.elapsed() >= inside + Duration::from_millis(1));
    }

    #[test]
    fn a_section_notices_an_element_that_is_poisoned_or_another_one() {
        let delays: &'static Delays = Box::leak(Box::new(Delays::new(1)));
        let work = Work { inside: 1, sleep: Duration::ZERO, outside: 0 };
        let element = Element::with_body(5, 9, delays);
        assert!(work.inside(Some(&element), 5));
        assert!(!work.inside(Some(&element), 6));
        element.poison();
        assert!(!work.inside(Some(&element), 5));
    }
}
