use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use super::error::BuildError;
use stillpoint_sys::linux::page_map;
use stillpoint_sys::linux::region::{Made, Refusal, Reservation, Want, HUGE};

/// The kinds of pages that memory may consist of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pages {
    /// Reserved huge pages. If there are too few, transparent huge pages; if there are none of these, small pages.
    #[default]
    Best,
    /// Only reserved huge pages (`vm.nr_hugepages`).
    Reserved,
    /// Transparent huge pages, or small pages.
    Transparent,
    /// Small pages.
    Small,
}

impl Pages {
    pub(super) fn want(self, node: Option<u32>) -> Want {
        let (reserved, transparent, small) = match self {
            Self::Best => (true, true, true),
            Self::Reserved => (true, false, false),
            Self::Transparent => (false, true, true),
            Self::Small => (false, false, true),
        };
        Want { reserved, transparent, small, node }
    }
}

/// The kind of pages that memory consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Reserved huge pages of 2 MiB. Only these have addresses for devices, because the kernel does not move them.
    Reserved,
    /// Ordinary memory, at least a part of which is in transparent huge pages. The kernel may move them.
    Transparent,
    /// Small pages.
    Small,
    /// The caller's memory: see [`PoolBuilder::memory`](super::PoolBuilder::memory).
    Given,
}

impl From<Made> for Backing {
    fn from(made: Made) -> Self {
        match made {
            Made::Reserved => Self::Reserved,
            Made::Transparent => Self::Transparent,
            Made::Small => Self::Small,
        }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reserved => "reserved huge pages",
            Self::Transparent => "transparent huge pages",
            Self::Small => "small pages",
            Self::Given => "the caller's memory",
        })
    }
}

/// An address for devices without an IOMMU: a physical address. See [`Memory::iova`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iova(pub u64);

/// A separate mapping: zeroed memory, on one NUMA node if requested. From Linux 5.14 on, all its pages are allocated
/// when it is made.
///
/// Pools map their own memory. Use this type for rings and descriptors.
///
/// ```
/// use stillpoint::pool::{Backing, Pages, Memory};
///
/// let memory = Memory::new(1 << 20, Pages::Best, None)?;
/// println!("{} bytes of {}", memory.bytes(), memory.backing());
/// assert_eq!(memory.node(), None); // on any node
/// let first = memory.start().as_ptr();
/// // Only reserved huge pages have device addresses, and only if the kernel shows frame numbers.
/// assert!(memory.iova(first).is_none() || memory.backing() == Backing::Reserved);
/// # Ok::<(), stillpoint::pool::BuildError>(())
/// ```
#[derive(Debug)]
pub struct Memory {
    space: Reservation,
    bytes: usize,
    backing: Backing,
    node: Option<u32>,
}

impl Memory {
    /// Maps `bytes` bytes.
    ///
    /// # Errors
    /// [`Memory`](BuildError::Memory), [`ReservedPages`](BuildError::ReservedPages) and [`Node`](BuildError::Node), and
    /// [`SizeZero`](BuildError::SizeZero) for 0 bytes.
    pub fn new(bytes: usize, pages: Pages, node: Option<u32>) -> Result<Self, BuildError> {
        if bytes == 0 {
            return Err(BuildError::SizeZero);
        }
        let space = Reservation::new(bytes, HUGE)
            .map_err(|cause| BuildError::Memory { bytes, cause: Some(cause) })?;
        // SAFETY: the space was reserved for this many bytes, and holds nothing yet.
        let made =
            unsafe { space.fill(0, bytes, pages.want(node)) }.map_err(|refusal| refused(refusal, bytes))?;
        Ok(Self { space, bytes, backing: made.into(), node })
    }

    /// The first byte; a multiple of 2 MiB.
    pub fn start(&self) -> NonNull<u8> {
        self.space.start()
    }

    /// The length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The kind of pages that the kernel provided.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// The NUMA node that was requested.
    pub fn node(&self) -> Option<u32> {
        self.node
    }

    /// The device address of a byte of this memory. `None` for addresses outside, for pages that the kernel may move,
    /// and when the kernel hides frame numbers from this process (it shows them with `CAP_SYS_ADMIN`). Takes two or
    /// more system calls.
    pub fn iova(&self, byte: *const u8) -> Option<Iova> {
        let offset = byte.addr().wrapping_sub(self.start().as_ptr().addr());
        (offset < self.bytes).then(|| iova(self.backing, byte.addr())).flatten()
    }

    /// Whether a range of offsets is contiguous in physical memory. `None` when that is unknown, or may change.
    ///
    /// ```
    /// use stillpoint::pool::{Backing, Pages, Memory};
    ///
    /// let memory = Memory::new(4096, Pages::Small, None)?;
    /// assert_eq!(memory.physically_contiguous(0..4096), None); // the kernel may move small pages
    /// # Ok::<(), stillpoint::pool::BuildError>(())
    /// ```
    pub fn physically_contiguous(&self, range: Range<usize>) -> Option<bool> {
        if range.start > range.end || range.end > self.bytes {
            return None;
        }
        let start = self.start().as_ptr().addr();
        contiguous(self.backing, start + range.start..start + range.end)
    }
}

/// The device address of a byte in memory of this kind.
pub(super) fn iova(backing: Backing, address: usize) -> Option<Iova> {
    (backing == Backing::Reserved).then(|| page_map::physical(address)).flatten().map(Iova)
}

/// Whether these addresses, in memory of this kind, are contiguous in physical memory.
pub(super) fn contiguous(backing: Backing, addresses: Range<usize>) -> Option<bool> {
    if backing != Backing::Reserved || addresses.is_empty() {
        return None;
    }
    let first = addresses.start / HUGE * HUGE;
    let mut pages = (first..addresses.end).step_by(HUGE);
    if first + HUGE >= addresses.end {
        return Some(true);
    }
    let begin = page_map::physical(pages.next()?)?;
    let mut answer = true;
    for (number, page) in pages.enumerate() {
        answer &= page_map::physical(page)? == begin + ((number + 1) * HUGE) as u64;
    }
    Some(answer)
}

/// The error for a refusal of the kernel.
pub(super) fn refused(refusal: Refusal, bytes: usize) -> BuildError {
    match refusal {
        Refusal::Node(node) => BuildError::Node { node },
        Refusal::Reserved(cause) => BuildError::ReservedPages(cause),
        Refusal::Memory(cause) => BuildError::Memory { bytes, cause: Some(cause) },
        Refusal::Lost => BuildError::Memory { bytes, cause: None },
    }
}
