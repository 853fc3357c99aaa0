use std::sync::Arc;

use crate::{Contender, Named, Slots, rust};

/// A contender that this build can make.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The contender's stable name, such as `dpdk/rcu`.
    pub name: &'static str,
    /// The library that it comes from, as in [`versions`].
    pub peer: &'static str,
    pub(crate) make: fn(&Arc<Slots>, usize) -> Box<dyn Contender>,
}

impl Entry {
    /// Makes the contender, with new state, for up to `max_readers` readers at the same time.
    pub fn make(&self, slots: &Arc<Slots>, max_readers: usize) -> Box<dyn Contender> {
        (self.make)(slots, max_readers)
    }
}

/// All contenders that this build has.
pub fn catalogue() -> Vec<Entry> {
    let groups: &[&[Entry]] = &[
        #[cfg(peer_c)]
        crate::native::header::ENTRIES,
        #[cfg(peer_urcu)]
        crate::native::urcu::ENTRIES,
        #[cfg(peer_dpdk)]
        crate::native::dpdk::ENTRIES,
        #[cfg(peer_ck)]
        crate::native::ck::ENTRIES,
        &[rust::crossbeam::ENTRY, rust::seize::ENTRY, rust::haphazard::ENTRY],
    ];
    groups.concat()
}

/// Makes all contenders of the [`catalogue`] over one array.
///
/// ```
/// use std::sync::Arc;
/// use stillpoint_peers::{Delays, Slots, contenders};
///
/// let delays: &'static Delays = Box::leak(Box::new(Delays::new(8)));
/// let slots = Arc::new(Slots::new(64, delays));
/// for (name, contender) in contenders(&slots, 1) {
///     let mut writer = contender.writer();
///     writer.replace(7);
///     writer.drain();
///     assert_eq!(delays.take().len(), 1, "{name} has freed the element");
/// }
/// ```
pub fn contenders(slots: &Arc<Slots>, max_readers: usize) -> Vec<Named> {
    catalogue().iter().map(|entry| (entry.name, entry.make(slots, max_readers))).collect()
}

/// A peer that this build was made without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingPeer {
    /// The library.
    pub peer: &'static str,
    /// The Debian package to install; the next build then finds it.
    pub package: &'static str,
    /// Why it was left out.
    pub why: &'static str,
    /// The names of the contenders that are missing because of it.
    pub contenders: &'static [&'static str],
}

/// The peers that this build was made without.
pub fn missing() -> &'static [MissingPeer] {
    &[
        #[cfg(not(peer_c))]
        MissingPeer {
            peer: "stillpoint.h",
            package: "gcc",
            why: env!("STILLPOINT_PEER_C_WHY"),
            contenders: &["c/protected", "c/guard", "c/qsbr", "c/htimer"],
        },
        #[cfg(not(peer_urcu))]
        MissingPeer {
            peer: "liburcu",
            package: "liburcu-dev",
            why: env!("STILLPOINT_PEER_URCU_WHY"),
            contenders: &[
                "liburcu/qsbr",
                "liburcu/qsbr+sync",
                "liburcu/qsbr+rt",
                "liburcu/memb",
                "liburcu/mb",
                "drop-in/urcu-qsbr",
                "drop-in/urcu-memb",
                "drop-in/urcu-mb+boost",
            ],
        },
        #[cfg(not(peer_dpdk))]
        MissingPeer {
            peer: "dpdk",
            package: "libdpdk-dev",
            why: env!("STILLPOINT_PEER_DPDK_WHY"),
            contenders: &["dpdk/rcu", "dpdk/rcu+poll", "dpdk/rcu+background"],
        },
        #[cfg(not(peer_ck))]
        MissingPeer {
            peer: "ck",
            package: "libck-dev",
            why: env!("STILLPOINT_PEER_CK_WHY"),
            contenders: &["ck/epoch"],
        },
    ]
}

/// The peers that this build has, and the versions it was built against; `unknown` if a peer does not say.
pub fn versions() -> Vec<(&'static str, &'static str)> {
    env!("STILLPOINT_PEER_VERSIONS").split('|').filter_map(|peer| peer.split_once(' ')).collect()
}
