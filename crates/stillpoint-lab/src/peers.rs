//! The peers of this build, and the messages about those that it lacks.

use std::collections::BTreeMap;

use stillpoint_peers::MissingPeer;
use stillpoint_peers::table::HAS_DPDK;

/// The peers that were built in, with their versions.
pub(crate) fn versions() -> BTreeMap<String, String> {
    stillpoint_peers::versions()
        .into_iter()
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .collect()
}

/// The group of a contender: the part of its name before the slash.
pub(crate) fn group(name: &str) -> &str {
    name.split_once('/').map_or(name, |(group, _)| group)
}

/// Whether a contender that is not ours was built in.
pub(crate) fn is_built_in(contender: &str) -> bool {
    has_array(contender) || has_table(contender)
}

/// Whether such a contender works on an array.
pub(crate) fn has_array(contender: &str) -> bool {
    stillpoint_peers::catalogue().iter().any(|entry| entry.name == contender)
}

/// Whether it has a hash table.
pub(crate) fn has_table(contender: &str) -> bool {
    stillpoint_peers::table::reclaiming().contains(&contender)
}

/// How to get the rows of a peer that was left out.
pub(crate) fn how_to_get(missing: &MissingPeer) -> String {
    let MissingPeer { peer, package, why, .. } = missing;
    format!("{peer} left out ({why}): install {package}, then build again")
}

/// The missing peer that a contender comes from.
pub(crate) fn missing_for(contender: &str) -> Option<&'static MissingPeer> {
    stillpoint_peers::missing().iter().find(|missing| missing.contenders.contains(&contender))
}

/// How to get a contender that this build lacks.
pub(crate) fn hint(contender: &str) -> Option<String> {
    missing_for(contender).map(how_to_get).or_else(|| missing_dpdk(contender))
}

/// Whether a contender is part of DPDK, or uses its headers.
pub(crate) fn needs_dpdk(contender: &str) -> bool {
    group(contender) == "dpdk" || contender.starts_with("drop-in/rte_")
}

/// How to get a contender of DPDK that no catalogue lists.
pub(crate) fn missing_dpdk(contender: &str) -> Option<String> {
    if HAS_DPDK || !needs_dpdk(contender) {
        return None;
    }
    Some(missing_for("dpdk/rcu").map_or_else(|| "this build does not have DPDK".to_owned(), how_to_get))
}
