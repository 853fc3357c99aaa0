//! Callbacks that wait for a grace period: at most a fixed number of segments, each with one token.
//!
//! A new segment joins at the end. If there is no place for it, the two neighbours whose starts are closest to each other become
//! one, with the later token. So no start is postponed, and merged callbacks wait longer by at most the difference of the two
//! starts. During a long grace period, the starts of the segments are spread over its length.

use std::time::Duration;

use super::node::Chain;
use crate::busted::{self, Variant};
use stillpoint_sys::work;

/// Most grace periods under way at a time.
pub(super) const SEGMENTS: usize = if cfg!(stillpoint_loom) { 1 } else { 8 };

/// Number of kinds of callbacks. Each kind has a lane.
pub(super) const LANES: usize = 2;
/// Callbacks that keep their order.
pub(super) const ORDERED: usize = 0;
/// Callbacks that know the address of an object.
pub(super) const OBJECTS: usize = 1;

#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub(super) token: u64,
    /// Age of the domain at the start.
    pub(super) started: Duration,
    pub(super) chains: [Option<Chain>; LANES],
}

/// The segments, oldest first.
#[derive(Default)]
pub(super) struct Segments {
    all: [Option<Segment>; SEGMENTS],
    len: usize,
}

impl Segments {
    pub(super) fn oldest(&mut self) -> Option<&mut Segment> {
        self.all[0].as_mut()
    }

    pub(super) fn under_way(&self) -> Option<(u64, Duration)> {
        self.all[0].as_ref().map(|segment| (segment.token, segment.started))
    }

    pub(super) fn pop_oldest(&mut self) -> Option<Segment> {
        let oldest = self.all[0].take();
        self.all.rotate_left(1);
        self.len -= usize::from(oldest.is_some());
        oldest
    }

    pub(super) fn push(&mut self, segment: Segment) {
        work::step();
        let mut segment = Some(segment);
        if self.len == SEGMENTS {
            let at = self.closest(segment.as_ref());
            if at == SEGMENTS - 1 {
                // Merges the newest of all segments with the new one.
                let newest = self.all[at].take();
                segment = newest.zip(segment).map(|(older, newer)| merged(older, newer));
            } else {
                let (older, newer) = (self.all[at].take(), self.all[at + 1].take());
                self.all[at] = older.zip(newer).map(|(older, newer)| merged(older, newer));
                self.all[at + 1..].rotate_left(1);
            }
            self.len -= 1;
        }
        self.all[self.len] = segment;
        self.len += 1;
    }

    /// The place of the segment whose successor, which may be `newest`, was started soonest after it.
    fn closest(&self, newest: Option<&Segment>) -> usize {
        let started = |at: usize| {
            self.all.get(at).map_or(newest, Option::as_ref).map_or(Duration::MAX, |segment| segment.started)
        };
        (0..SEGMENTS).min_by_key(|&at| started(at + 1).saturating_sub(started(at))).unwrap_or(0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.all.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        self.all.iter_mut().flatten()
    }
}

fn merged(older: Segment, newer: Segment) -> Segment {
    let mut chains = older.chains;
    for (chain, newer) in chains.iter_mut().zip(newer.chains) {
        match (chain.as_mut(), newer) {
            (Some(chain), Some(newer)) => chain.extend(newer),
            (None, newer) => *chain = newer,
            (Some(_), None) => {}
        }
    }
    let token = if busted::is(Variant::MergedEarly) { older.token } else { newer.token };
    Segment { token, started: newer.started, chains }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    fn started(segments: &Segments) -> Vec<u128> {
        segments.all.iter().flatten().map(|segment| segment.started.as_micros()).collect()
    }

    fn segment(at: u64) -> Segment {
        Segment { token: at, started: Duration::from_micros(at), chains: [None; LANES] }
    }

    #[test]
    fn the_segments_of_a_long_grace_period_are_spread_over_its_time() {
        let mut segments = Segments::default();
        for at in 1..=10_000 {
            segments.push(segment(50 * at));
            let starts = started(&segments);
            assert!(starts.len() <= SEGMENTS && starts.is_sorted());
            assert_eq!(starts.last(), Some(&(50 * u128::from(at))));
            let widest = starts.iter().zip(&starts[1..]).map(|(one, next)| next - one).max().unwrap_or(0);
            let (first, last) = (starts[0], *starts.last().expect("there is one"));
            assert!(starts.len() < SEGMENTS || widest <= (last - first) / 2, "{starts:?}");
        }
    }

    #[test]
    fn a_merged_segment_has_the_later_token() {
        let mut segments = Segments::default();
        for at in (0..SEGMENTS as u64).map(|at| at * 100).chain([SEGMENTS as u64 * 100 - 90]) {
            segments.push(segment(at));
        }
        let tokens: Vec<_> =
            std::iter::from_fn(|| segments.pop_oldest()).map(|segment| segment.token).collect();
        assert!(tokens.contains(&(SEGMENTS as u64 * 100 - 90)) && tokens.len() == SEGMENTS, "{tokens:?}");
        assert!(!tokens.contains(&(SEGMENTS as u64 * 100 - 100)), "{tokens:?}");
        assert_eq!(segments.len, 0);
    }
}
