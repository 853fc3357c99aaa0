//! Who sends to whom: the recurrences of the on-the-fly multicast.
//!
//! A sender has a range of receivers. While the range is not empty, it takes a group off its upper end: the first receiver of the
//! group becomes a child, gets the message, and has the rest of the group delegated to it. No tree is built beforehand or kept:
//! each multicast may have another set of receivers.
//!
//! A strategy is only the size of the group. This file knows neither threads nor memory, and needs no standard library: the
//! library, the simulator and the tests of the kernel module use the same functions.
//!
//! ```
//! use stillpoint_multicast::{Shape, Strategy};
//!
//! assert_eq!(Strategy::Flat.shape(31), Shape { sends: 31, depth: 1, path: 31 });
//! assert_eq!(Strategy::Tree.shape(31), Shape { sends: 5, depth: 5, path: 5 });
//! ```

/// How the initiator learns that every receiver has run the function: see [`Multicast::trace`](crate::Multicast::trace).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
#[cfg_attr(not(feature = "lab"), allow(unreachable_pub))]
pub enum Acknowledgement {
    /// Back along the tree: a receiver counts its children, and acknowledges to its sender when the last one has acknowledged
    /// (software combining). Only the initiator's own children write to its cache line.
    #[default]
    Combining,
    /// Every receiver decrements the same counter.
    #[cfg(feature = "lab")]
    SharedCounter,
}

#[cfg(test)]
impl Acknowledgement {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Combining,
        #[cfg(feature = "lab")]
        Self::SharedCounter,
    ];
}

/// How large a part of its receivers a sender delegates with each message.
///
/// [`shape`](Strategy::shape) computes the tree that a strategy makes of `n` receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// The initiator sends to each receiver itself.
    Flat,
    /// The on-the-fly binomial tree: each child has half of the remaining receivers delegated to it. Best when a
    /// message takes about as long to send as to arrive.
    Tree,
    /// Each child has this share, in percent, of the remaining receivers delegated to it: see [`Share`]. Less than half
    /// pays when a message is sent faster than it arrives (the postal model of Bar-Noy and Kipnis, 1992).
    Split(Share),
    /// `Flat` up to this number of receivers, `Tree` beyond.
    Hybrid(u32),
}

/// A share of the remaining receivers, from 1 to 99 percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Share(u8);

impl Share {
    /// A share of `percent` percent; `None` unless it is from 1 to 99.
    ///
    /// ```
    /// use stillpoint_multicast::Share;
    /// assert_eq!(Share::percent(30).map(Share::get), Some(30));
    /// assert_eq!((Share::percent(0), Share::percent(100)), (None, None));
    /// ```
    pub const fn percent(percent: u32) -> Option<Self> {
        match percent {
            1..=99 => Some(Self(percent as u8)),
            _ => None,
        }
    }

    /// The share in percent.
    pub const fn get(self) -> u32 {
        self.0 as u32
    }
}

/// The part of a range that is taken off for one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The receiver of the message. The sender keeps the receivers below it.
    pub child: u32,
    /// The end of the range that is delegated to the child: the receivers from `child + 1` to before this one.
    pub end: u32,
}

/// The shape of a multicast in which every receiver takes part. All fields count messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shape {
    /// Sent by the initiator.
    pub sends: u32,
    /// On the longest way from the initiator to a receiver.
    pub depth: u32,
    /// Sent one after the other before the last receiver is reached: each message waits for those that its sender sent
    /// before.
    pub path: u32,
}

impl Strategy {
    /// The strategy that a multicast to this many receivers follows throughout. `Hybrid` becomes `Flat` or `Tree`; the others stay.
    /// See the [example](Strategy::cut).
    pub const fn resolve(self, receivers: u32) -> Self {
        match self {
            Self::Hybrid(threshold) if receivers <= threshold => Self::Flat,
            Self::Hybrid(_) => Self::Tree,
            other => other,
        }
    }

    /// The size of the group, including the child, that is taken off a range of `remaining` receivers: at least 1, at most all of
    /// them.
    ///
    /// `Tree` takes half, rounded up; `Split` its share, rounded down. `Hybrid` must be [resolved](Strategy::resolve) for the whole
    /// multicast before its ranges are cut.
    ///
    /// # Panics
    /// If there is no receiver.
    pub const fn group(self, remaining: u32) -> u32 {
        assert!(remaining > 0, "a group is taken off a range that is not empty");
        match self.resolve(remaining) {
            Self::Split(share) => {
                let group = (remaining as u64 * share.0 as u64 / 100) as u32;
                if group == 0 {
                    1
                } else {
                    group
                }
            }
            Self::Tree => remaining - remaining / 2,
            _ => 1,
        }
    }

    /// Takes a group off the range from `begin` to before `end`; `None` when the range is empty.
    ///
    /// ```
    /// use stillpoint_multicast::{Cut, Strategy};
    /// assert_eq!(Strategy::Tree.cut(0, 7), Some(Cut { child: 3, end: 7 })); // 0, 1, 2 are left; 4, 5, 6 delegated
    /// assert_eq!(Strategy::Flat.cut(0, 7), Some(Cut { child: 6, end: 7 }));
    /// assert_eq!(Strategy::Tree.cut(7, 7), None);
    ///
    /// let strategy = Strategy::Hybrid(16).resolve(31); // for the whole multicast
    /// assert_eq!((strategy, strategy.group(31)), (Strategy::Tree, 16)); // the child, and 15 that are delegated
    /// ```
    pub const fn cut(self, begin: u32, end: u32) -> Option<Cut> {
        if begin >= end {
            return None;
        }
        Some(Cut { child: end - self.group(end - begin), end })
    }

    /// The shape of a multicast to this many receivers. If *g* is the size of the first group of *r* receivers:
    ///
    /// - sends(r) = 1 + sends(r − g)
    /// - depth(r) = max(1 + depth(g − 1), depth(r − g))
    /// - path(r) = 1 + max(path(g − 1), path(r − g))
    ///
    /// and 0 for no receivers. In closed form, `Flat`: r, 1, r; `Tree`: ⌈log₂(r + 1)⌉ sends and path, ⌊log₂(r + 1)⌋
    /// depth.
    ///
    /// Takes time proportional to the number of receivers, for `Split`; constant for the others.
    pub const fn shape(self, receivers: u32) -> Shape {
        match self.resolve(receivers) {
            _ if receivers == 0 => Shape { sends: 0, depth: 0, path: 0 },
            Self::Flat => Shape { sends: receivers, depth: 1, path: receivers },
            Self::Tree => {
                let path = u32::BITS - receivers.leading_zeros();
                Shape { sends: path, depth: (receivers as u64 + 1).ilog2(), path }
            }
            other => other.walk(0, receivers, 0),
        }
    }

    /// The shape of a range whose sender has sent `before` messages. Recursive, as deep as the tree.
    const fn walk(self, begin: u32, mut end: u32, before: u32) -> Shape {
        let (mut sends, mut depth, mut path) = (0, 0, before);
        while let Some(cut) = self.cut(begin, end) {
            sends += 1;
            let below = self.walk(cut.child + 1, cut.end, before + sends);
            if below.depth + 1 > depth {
                depth = below.depth + 1;
            }
            if below.path > path {
                path = below.path;
            }
            end = cut.child;
        }
        Shape { sends, depth, path }
    }
}

/// The place in the list of receivers at which the multicast of this initiator begins: receiver `i` of its ranges is
/// entry `(i + rotation) % receivers` of the list.
///
/// Without it, the trees of all initiators would have the same inner nodes, which would do the work of all of them. Consecutive
/// initiators get places that are far apart (multiples of the golden section).
///
/// ```
/// use stillpoint_multicast::rotation;
/// assert!((0..100).all(|initiator| rotation(initiator, 7) < 7));
/// assert_eq!(rotation(3, 0), 0);
/// ```
pub const fn rotation(initiator: u32, receivers: u32) -> u32 {
    let spread = initiator.wrapping_mul(0x9e37_79b9);
    ((spread as u64 * receivers as u64) >> u32::BITS) as u32
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    fn strategies() -> impl Iterator<Item = Strategy> {
        let splits = [1, 10, 25, 30, 50, 75, 99].into_iter().filter_map(Share::percent).map(Strategy::Split);
        [Strategy::Flat, Strategy::Tree, Strategy::Hybrid(0), Strategy::Hybrid(20)].into_iter().chain(splits)
    }

    /// Sends the messages: sets the depth and the path of each receiver.
    fn send(
        strategy: Strategy,
        begin: u32,
        mut end: u32,
        from: (u32, u32),
        reached: &mut [(u32, u32)],
    ) -> u32 {
        let mut sent = 0;
        while let Some(cut) = strategy.cut(begin, end) {
            assert!(begin <= cut.child && cut.child < cut.end && cut.end == end);
            sent += 1;
            let at = (from.0 + 1, from.1 + sent);
            let place = &mut reached[cut.child as usize];
            assert_eq!(*place, (0, 0), "receiver {} is reached twice", cut.child);
            *place = at;
            send(strategy, cut.child + 1, cut.end, at, reached);
            end = cut.child;
        }
        sent
    }

    #[test]
    fn the_shape_is_what_is_sent() {
        for strategy in strategies() {
            for receivers in 0..300 {
                let mut reached = vec![(0, 0); receivers as usize];
                let sends = send(strategy.resolve(receivers), 0, receivers, (0, 0), &mut reached);
                let depth = reached.iter().map(|&(depth, _)| depth).max().unwrap_or(0);
                let path = reached.iter().map(|&(_, path)| path).max().unwrap_or(0);
                assert!(reached.iter().all(|&(depth, _)| depth > 0), "{strategy:?}: a receiver is left out");
                assert_eq!(
                    strategy.shape(receivers),
                    Shape { sends, depth, path },
                    "{strategy:?} {receivers}"
                );
            }
        }
    }

    /// The recurrences as the documentation has them.
    #[test]
    fn the_shape_follows_the_recurrences() {
        for strategy in strategies().filter(|strategy| !matches!(strategy, Strategy::Hybrid(_))) {
            let mut shapes = vec![Shape::default()];
            for receivers in 1..300 {
                let group = strategy.group(receivers);
                let (of_child, of_rest) = (shapes[group as usize - 1], shapes[(receivers - group) as usize]);
                let shape = Shape {
                    sends: 1 + of_rest.sends,
                    depth: (1 + of_child.depth).max(of_rest.depth),
                    path: 1 + of_child.path.max(of_rest.path),
                };
                assert_eq!(strategy.shape(receivers), shape, "{strategy:?} {receivers}");
                shapes.push(shape);
            }
        }
    }

    #[test]
    fn the_closed_forms() {
        for receivers in [1, 2, 3, 7, 15, 31, 143, 1 << 20, u32::MAX] {
            let log = (f64::from(receivers) + 1.0).log2();
            let (path, depth) = (log.ceil() as u32, log.floor() as u32);
            assert_eq!(Strategy::Tree.shape(receivers), Shape { sends: path, depth, path });
            assert_eq!(
                Strategy::Flat.shape(receivers),
                Shape { sends: receivers, depth: 1, path: receivers }
            );
        }
        assert_eq!(Strategy::Hybrid(16).shape(16), Strategy::Flat.shape(16));
        assert_eq!(Strategy::Hybrid(16).shape(17), Strategy::Tree.shape(17));
    }

    /// The size of a group, by the definition of a share: the most receivers that do not exceed the share, but at least one.
    fn share_of(receivers: u32, percent: u32) -> u32 {
        let most =
            (1..=receivers).take_while(|&group| u64::from(group) * 100 <= u64::from(receivers * percent));
        most.last().unwrap_or(1)
    }

    #[test]
    fn the_group_is_what_the_strategy_says() {
        for receivers in 1..=300 {
            for percent in 1..=99 {
                let split = Share::percent(percent).map(Strategy::Split).expect("from 1 to 99");
                assert_eq!(
                    split.group(receivers),
                    share_of(receivers, percent),
                    "{percent} % of {receivers}"
                );
            }
            let half = (1..=receivers).find(|group| 2 * group >= receivers).expect("all of them are more");
            assert_eq!(Strategy::Tree.group(receivers), half, "of {receivers}");
            assert_eq!(Strategy::Flat.group(receivers), 1);
        }
        // By hand: rounded down, and not to 0.
        let groups = |percent, receivers: [u32; 6]| {
            receivers.map(|receivers| Strategy::Split(Share::percent(percent).unwrap()).group(receivers))
        };
        assert_eq!(groups(30, [1, 3, 4, 6, 7, 10]), [1, 1, 1, 1, 2, 3]);
        assert_eq!(groups(50, [1, 2, 3, 4, 5, 7]), [1, 1, 1, 2, 2, 3]);
        assert_eq!(groups(99, [1, 2, 99, 100, 101, 200]), [1, 1, 98, 99, 99, 198]);
        assert_eq!(groups(1, [1, 99, 100, 199, 200, u32::MAX]), [1, 1, 1, 1, 2, 42_949_672]);
    }

    /// The receivers that a sender takes off, and those that it keeps.
    #[test]
    fn a_cut_takes_the_upper_end() {
        let split = Share::percent(30).map(Strategy::Split).expect("from 1 to 99");
        for (strategy, range, cut) in [
            (Strategy::Flat, (3, 10), Some(Cut { child: 9, end: 10 })),
            (Strategy::Tree, (3, 10), Some(Cut { child: 6, end: 10 })),
            (Strategy::Tree, (3, 4), Some(Cut { child: 3, end: 4 })),
            (split, (3, 10), Some(Cut { child: 8, end: 10 })),
            (split, (0, 10), Some(Cut { child: 7, end: 10 })),
            (split, (u32::MAX - 10, u32::MAX), Some(Cut { child: u32::MAX - 3, end: u32::MAX })),
            (Strategy::Tree, (4, 4), None),
            (Strategy::Tree, (5, 4), None),
        ] {
            assert_eq!(strategy.cut(range.0, range.1), cut, "{strategy:?} of {range:?}");
        }
    }

    #[test]
    fn a_hybrid_decides_at_its_threshold() {
        for threshold in [0, 1, 16, u32::MAX - 1] {
            assert_eq!(Strategy::Hybrid(threshold).resolve(threshold), Strategy::Flat);
            assert_eq!(Strategy::Hybrid(threshold).resolve(threshold + 1), Strategy::Tree);
            assert_eq!(Strategy::Hybrid(threshold).resolve(0), Strategy::Flat);
        }
        for strategy in strategies().filter(|strategy| !matches!(strategy, Strategy::Hybrid(_))) {
            assert!([0, 1, 16, 17, u32::MAX]
                .iter()
                .all(|&receivers| strategy.resolve(receivers) == strategy));
        }
    }

    #[test]
    fn a_share_is_a_part() {
        let shares: Vec<u32> =
            (0..=200).chain([u32::MAX, 256 + 30]).filter_map(Share::percent).map(Share::get).collect();
        assert_eq!(shares, (1..=99).collect::<Vec<_>>());
    }

    /// By hand, for splits: 10 receivers, 30 percent, are 3 (of which 2 follow), 2, 1, 1, 1, 1, 1.
    #[test]
    fn shapes_that_were_counted_by_hand() {
        let split = |percent| Strategy::Split(Share::percent(percent).expect("from 1 to 99"));
        assert_eq!(split(30).shape(10), Shape { sends: 7, depth: 2, path: 7 });
        assert_eq!(split(99).shape(4), Shape { sends: 2, depth: 2, path: 3 });
        assert_eq!(split(1).shape(99), Strategy::Flat.shape(99));
        assert_eq!(Strategy::Tree.shape(7), Shape { sends: 3, depth: 3, path: 3 });
        assert_eq!(Strategy::Tree.shape(6), Shape { sends: 3, depth: 2, path: 3 });
        for strategy in strategies() {
            assert_eq!(strategy.shape(0), Shape::default(), "{strategy:?}");
            assert_eq!(strategy.shape(1), Shape { sends: 1, depth: 1, path: 1 }, "{strategy:?}");
        }
    }

    #[test]
    #[should_panic = "a group is taken off a range that is not empty"]
    fn nobody_is_no_group() {
        Strategy::Tree.group(0);
    }

    #[test]
    fn a_group_is_never_empty_and_never_too_large() {
        for strategy in strategies() {
            for remaining in (1..1000).chain([u32::MAX - 1, u32::MAX]) {
                assert!((1..=remaining).contains(&strategy.group(remaining)), "{strategy:?} {remaining}");
            }
        }
    }

    /// Multiples of the golden section, as parts of the list.
    #[test]
    fn an_initiator_begins_where_its_number_says() {
        let golden = (5f64.sqrt() - 1.0) / 2.0;
        for receivers in [1u32, 2, 7, 143, 1 << 20, u32::MAX] {
            for initiator in 0..200 {
                let part = (f64::from(initiator) * golden).fract();
                let (place, expected) = (rotation(initiator, receivers), part * f64::from(receivers));
                assert!(place < receivers, "{initiator} of {receivers}");
                let off = (f64::from(place) - expected).abs();
                // Rounded down, and the section has 32 bits.
                assert!(off <= 1.0 + f64::from(receivers) * 1e-7, "{initiator} of {receivers}: {place}");
            }
        }
        assert_eq!([0, 1, 2, 3, u32::MAX].map(|initiator| rotation(initiator, 0)), [0; 5]);
    }

    #[test]
    fn initiators_begin_at_different_places() {
        let mut places: Vec<u32> = (0..72).map(|initiator| rotation(initiator, 143)).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 60, "{} places for 72 initiators", places.len());
    }
}
