//! Address space that is reserved as a whole, and filled with memory piece by piece.

#[cfg(not(any(stillpoint_loom, miri)))]
mod kernel;
#[cfg(any(stillpoint_loom, miri))]
#[allow(missing_docs, reason = "`kernel` documents the same interface")]
mod model;

use std::io;

#[cfg(not(any(stillpoint_loom, miri)))]
pub use kernel::{Reservation, HUGE};
#[cfg(any(stillpoint_loom, miri))]
pub use model::{Reservation, HUGE};

/// The kinds of pages that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// Pages from the reserve of `vm.nr_hugepages`: the first choice if they may be used.
    pub reserved: bool,
    /// Ordinary memory that the kernel may gather into huge pages.
    pub transparent: bool,
    /// Ordinary small pages.
    pub small: bool,
    /// The number of the NUMA node that the memory should come from.
    pub node: Option<u32>,
}

/// The kind of pages of which the memory consists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// Huge pages from the reserve.
    Reserved,
    /// Ordinary memory that the kernel may gather into huge pages.
    Transparent,
    /// Ordinary small pages.
    Small,
}

/// Why there is no memory.
#[derive(Debug)]
pub enum Refusal {
    /// The node does not exist, or has no memory.
    Node(u32),
    /// There are no reserved huge pages, and no other kind is allowed.
    Reserved(io::Error),
    /// The system call failed.
    Memory(io::Error),
    /// The part may belong to another mapping now: nothing can be filled from here on.
    Lost,
}
