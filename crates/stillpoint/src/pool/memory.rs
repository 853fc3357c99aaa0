//! The memory of pools: its pages, and their addresses for devices.

use std::fmt;
use std::ops::Range;

use super::error::BuildError;
use stillpoint_sys::linux::page_map;
use stillpoint_sys::linux::region::{Made, Refusal, Want, HUGE};

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

/// An address for devices without an IOMMU: a physical address. See [`RawPool::iova`](super::raw::RawPool::iova).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iova(pub u64);

/// The device address of a byte in memory of this kind.
pub(super) fn iova(backing: Backing, address: usize) -> Option<Iova> {
    stays(backing).then(|| physical(address)).flatten().map(Iova)
}

/// Whether these addresses, in memory of this kind, are contiguous in physical memory.
pub(super) fn contiguous(backing: Backing, addresses: Range<usize>) -> Option<bool> {
    if !stays(backing) || addresses.is_empty() {
        return None;
    }
    let first = addresses.start / HUGE * HUGE;
    let mut pages = (first..addresses.end).step_by(HUGE);
    if first + HUGE >= addresses.end {
        return Some(true);
    }
    let begin = physical(pages.next()?)?;
    let mut answer = true;
    for (number, page) in pages.enumerate() {
        answer &= physical(page)? == begin + ((number + 1) * HUGE) as u64;
    }
    Some(answer)
}

/// Whether the kernel leaves memory of this kind where it is. Tests may say so of small pages, since the machine may have no reserved ones.
fn stays(backing: Backing) -> bool {
    #[cfg(all(test, not(stillpoint_loom)))]
    if tests::SMALL_STAY.get() && backing == Backing::Small {
        return true;
    }
    backing == Backing::Reserved
}

/// The physical address behind an address of this process. Tests may give a map of their own.
fn physical(address: usize) -> Option<u64> {
    #[cfg(all(test, not(stillpoint_loom)))]
    if let Some(map) = tests::MAP.get() {
        return map(address);
    }
    page_map::physical(address)
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

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use std::cell::Cell;
    use std::ptr::NonNull;

    use super::*;
    use crate::pool::raw::RawPool;
    use crate::pool::Pool;

    type Map = fn(usize) -> Option<u64>;

    thread_local! {
        /// What takes the place of the kernel's map in this thread.
        pub(super) static MAP: Cell<Option<Map>> = const { Cell::new(None) };
        /// Whether small pages count as reserved ones in this thread.
        pub(super) static SMALL_STAY: Cell<bool> = const { Cell::new(false) };
    }

    struct SmallStay;

    impl SmallStay {
        fn set() -> Self {
            SMALL_STAY.set(true);
            Self
        }
    }

    impl Drop for SmallStay {
        fn drop(&mut self) {
            SMALL_STAY.set(false);
        }
    }

    /// What `ask` finds in a map.
    fn by<R>(map: Map, ask: impl FnOnce() -> R) -> R {
        MAP.set(Some(map));
        let answer = ask();
        MAP.set(None);
        answer
    }

    /// All memory is in one piece.
    fn shifted(address: usize) -> Option<u64> {
        Some(address as u64 + (3 << 40))
    }

    /// Each huge page is in one piece, and before the one that should come before it.
    fn backwards(address: usize) -> Option<u64> {
        let within = address % HUGE;
        Some((1 << 60) - (address - within) as u64 + within as u64)
    }

    /// Every other pair of huge pages has changed places.
    fn in_pairs(address: usize) -> Option<u64> {
        Some(address as u64 ^ (2 * HUGE) as u64)
    }

    fn hidden(_: usize) -> Option<u64> {
        None
    }

    /// The second of four huge pages is not in memory.
    fn with_a_hole(address: usize) -> Option<u64> {
        (address / HUGE % 4 != 1).then_some(address as u64)
    }

    #[test]
    fn memory_is_contiguous_if_its_huge_pages_follow_each_other() {
        // Multiples of four huge pages, so that `in_pairs` moves the third and the fourth.
        let start = 40 * HUGE;
        let of = |map: Map, range: Range<usize>| {
            by(map, || contiguous(Backing::Reserved, start + range.start..start + range.end))
        };
        for map in [shifted, backwards, in_pairs, hidden] {
            assert_eq!(of(map, 5..HUGE), Some(true), "within one page");
            assert_eq!(of(map, HUGE..2 * HUGE), Some(true), "one page");
            assert_eq!(of(map, 5..5), None, "no memory");
        }
        for range in [0..HUGE + 1, HUGE - 1..HUGE + 1, 5..2 * HUGE] {
            assert_eq!(of(shifted, range.clone()), Some(true));
            assert_eq!(of(backwards, range.clone()), Some(false));
            assert_eq!(of(in_pairs, range.clone()), Some(true));
            assert_eq!((of(hidden, range.clone()), of(with_a_hole, range)), (None, None));
        }
        assert_eq!((of(shifted, 0..8 * HUGE), of(in_pairs, 0..8 * HUGE)), (Some(true), Some(false)));
        assert_eq!(
            (of(in_pairs, HUGE..3 * HUGE), of(in_pairs, 2 * HUGE..4 * HUGE)),
            (Some(false), Some(true))
        );
        for backing in [Backing::Transparent, Backing::Small, Backing::Given] {
            assert_eq!(by(shifted, || contiguous(backing, start..start + 64)), None);
            assert_eq!(by(shifted, || iova(backing, start)), None);
        }
    }

    /// Pools in small pages that count as reserved ones, since the machine may have none.
    #[test]
    #[cfg_attr(miri, ignore = "a huge page has fewer bytes than an object there")]
    fn objects_have_the_addresses_of_the_pieces_that_they_lie_in() {
        let builder = RawPool::builder(1, 9000, 64).bucket_bytes(2 * HUGE).pages(Pages::Small);
        let pool = builder.max_objects(1000).growth_step(1).build().unwrap();
        let local = pool.local().unwrap();
        let blocks: Vec<_> = std::iter::from_fn(|| local.alloc_block()).collect();
        let pieces = pool.info().memory;
        assert_eq!((blocks.len(), pieces.len()), (3, 3));
        let asks = |map| by(map, || blocks.iter().map(|block| pool.physically_contiguous(block)).collect());
        let iova = |map: Map, object| by(map, || pool.iova(object)).map(|found| found.0);
        let none: Vec<_> = asks(shifted);
        assert_eq!((none, iova(shifted, blocks[0].get(0).unwrap())), (vec![None; 3], None), "small pages");
        let _stay = SmallStay::set();
        let (whole, broken): (Vec<_>, Vec<_>) = (asks(shifted), asks(backwards));
        assert_eq!((whole, broken), (vec![Some(true); 3], vec![Some(false); 3]));
        for (block, index) in
            blocks.iter().flat_map(|block| [(block, 0), (block, 1), (block, block.len() - 1)])
        {
            let object = block.get(index).unwrap();
            assert_eq!(iova(backwards, object), backwards(object.addr().get()));
            assert_eq!(
                (iova(hidden, object), by(hidden, || pool.physically_contiguous(block))),
                (None, None)
            );
            // By the kernel's map, which may hide the frames.
            assert_eq!(pool.iova(object).map(|found| found.0), page_map::physical(object.addr().get()));
        }
        // Addresses before and after the pieces belong to none.
        let (first, last) = (&pieces[0], &pieces[2]);
        for outside in [first.start - 1, last.start + last.bytes] {
            assert_eq!(iova(shifted, NonNull::new(std::ptr::without_provenance_mut(outside)).unwrap()), None);
        }
    }

    #[test]
    fn typed_objects_have_addresses_too() {
        let pool = Pool::builder(4, || [0u8; 1000]).pages(Pages::Small).build().unwrap();
        let local = pool.local().unwrap();
        let object = local.alloc().unwrap();
        assert_eq!(by(shifted, || pool.iova(&object)), None);
        let _stay = SmallStay::set();
        let address = std::ptr::from_ref(&*object).addr();
        assert_eq!(by(backwards, || pool.iova(&object)).map(|found| found.0), backwards(address));
    }
}
