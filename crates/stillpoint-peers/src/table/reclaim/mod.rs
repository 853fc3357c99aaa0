//! Other projects' hash tables as contenders of the experiment `reclaim`.

mod papaya;
#[cfg(peer_dpdk)]
mod rte_hash;

use crate::{Named, Recipe};

/// The names of all contenders that this build has.
pub fn reclaiming() -> Vec<&'static str> {
    let names = std::iter::once(papaya::NAME);
    #[cfg(peer_urcu)]
    let names = names.chain(crate::native::lfht::names());
    #[cfg(peer_dpdk)]
    let names = names.chain(rte_hash::NAMES);
    names.collect()
}

/// The contenders that are wanted, over tables of `elements` elements, for up to `max_readers` readers at the same time. `elements` is
/// a power of two. DPDK's contenders need its environment abstraction layer to be initialised.
///
/// # Errors
/// If there is no memory for the tables.
pub fn make_reclaiming(
    wanted: impl Fn(&str) -> bool,
    elements: usize,
    recipe: Recipe,
    max_readers: usize,
) -> Result<Vec<Named>, String> {
    let mut made: Vec<Named> = Vec::new();
    #[cfg(peer_urcu)]
    made.extend(crate::native::lfht::contenders(&wanted, elements, recipe)?);
    #[cfg(peer_dpdk)]
    made.extend(rte_hash::contenders(&wanted, elements, recipe, max_readers)?);
    #[cfg(not(peer_dpdk))]
    let _ = max_readers;
    if wanted(papaya::NAME) {
        made.push((papaya::NAME, Box::new(papaya::Papaya::new(elements, recipe))));
    }
    Ok(made)
}
