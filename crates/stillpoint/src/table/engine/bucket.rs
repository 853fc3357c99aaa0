//! One bucket: tags, indices of entries, and a link, in one cache line.
//!
//! ```text
//!   bytes  0..16   8 tags of 16 bits: 0, or bits of the hash of the key in the slot
//!         16..48   8 words of 32 bits: 0, or the index of an entry
//!         48..52   link: nothing, the next bucket of the chain, or "moved to the next array"
//!         52..64 12 more bits of each hash, for movers to a larger array
//! ```
//!
//! The word decides: an entry is in the table while a word holds its index. A tag is a hint that is never missing: it
//! is set before the word and cleared after it. Only the holder of the stripe's lock changes tags, words and links, so
//! atomic stores suffice, without read-modify-write operations.

use std::hint;
// Not modelled: accessed only under the stripe's lock.
use std::sync::atomic::{AtomicU32 as Unmodelled32, AtomicU8};

use super::slab::Zeroed;
use crate::table::orders;
use stillpoint_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Tags in one 64-bit word.
const LANES: usize = 4;
const TAG_WORDS: usize = if cfg!(stillpoint_loom) { 1 } else { 2 };
/// Entries of one bucket.
pub(crate) const SLOTS: usize = TAG_WORDS * LANES;

/// No entry: this index is never handed out.
pub(crate) const NO_ENTRY: u32 = 0;

/// A link to nothing: the chain ends here.
pub(crate) const END: u32 = 0;
/// The chain's entries are in the next array.
pub(crate) const MOVED: u32 = u32::MAX;

// In models, with the alignment that keeps freed memory: a broken variant reads a bucket after its end.
#[derive(Debug)]
#[cfg_attr(not(stillpoint_loom), repr(C, align(64)))]
#[cfg_attr(stillpoint_loom, repr(C, align(256)))]
pub(crate) struct Bucket {
    tags: [AtomicU64; TAG_WORDS],
    words: [AtomicU32; SLOTS],
    link: AtomicU32,
    /// For the holder of the stripe's lock: of each slot's [`bits_of`](super::array::Array::bits_of), the four upper
    /// bits. `lower` has the other eight.
    upper: Unmodelled32,
    lower: [AtomicU8; SLOTS],
}

/// Number of bits of each hash that a bucket keeps besides the tag.
pub(crate) const BITS: u32 = 12;

// SAFETY: a bucket consists of atomic integers, for which zero is valid, and needs no drop.
unsafe impl Zeroed for Bucket {
    #[cfg(stillpoint_loom)]
    fn zeroed() -> Self {
        Self {
            tags: std::array::from_fn(|_| AtomicU64::new(0)),
            words: std::array::from_fn(|_| AtomicU32::new(NO_ENTRY)),
            link: AtomicU32::new(END),
            upper: Unmodelled32::new(0),
            lower: std::array::from_fn(|_| AtomicU8::new(0)),
        }
    }
}

/// The tag of a hash, made of bits that do not choose the bucket. Never 0.
#[inline(always)]
pub(crate) fn tag_of(hash: u64) -> u16 {
    (hash >> 48) as u16 | 1
}

/// For any thread.
impl Bucket {
    /// The slots with this tag.
    #[inline(always)]
    pub(crate) fn matching(&self, tag: u16) -> Hits {
        matching(self, tag)
    }

    #[inline(always)]
    pub(crate) fn word(&self, slot: usize) -> &AtomicU32 {
        &self.words[slot]
    }

    #[inline(always)]
    pub(crate) fn link(&self) -> u32 {
        // Acquire: pairs with the release in `set_link`: the overflow bucket, or the next array, is read.
        self.link.load(Ordering::Acquire)
    }

    /// The index in a slot, for a caller in a region or with the stripe's lock.
    #[inline(always)]
    pub(crate) fn entry(&self, slot: usize) -> u32 {
        self.words[slot].load(orders::entry())
    }

    /// The slots that hold an entry, and their indices.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        (0..SLOTS).map(|slot| (slot, self.entry(slot))).filter(|&(_, entry)| entry != NO_ENTRY)
    }
}

/// For the holder of the stripe's lock.
impl Bucket {
    /// Writes to a bucket that holds no entry, and whose chain holds none. Without this, a page that is read before it
    /// is written faults twice. At first the kernel maps its zero page. Then it replaces the zero page with a page of
    /// memory, and interrupts the other processors that run the process.
    pub(crate) fn touch(&self) {
        // Relaxed: the slot is empty.
        self.lower[0].store(0, Ordering::Relaxed);
    }

    /// Links an entry in a slot that holds none.
    #[inline]
    pub(crate) fn link_entry(&self, slot: usize, tag: u16, bits: u32, entry: u32) {
        // Relaxed, all: read only under the lock.
        self.lower[slot].store(bits as u8, Ordering::Relaxed);
        let others = self.upper.load(Ordering::Relaxed) & !(0xf << (slot * 4));
        self.upper.store(others | bits >> 8 << (slot * 4), Ordering::Relaxed);
        self.set_tag(slot, tag);
        self.set_entry(slot, entry);
    }

    /// Unlinks the entry of a slot.
    #[inline]
    pub(crate) fn unlink_entry(&self, slot: usize) {
        self.set_entry(slot, NO_ENTRY);
        self.set_tag(slot, 0);
    }

    /// Replaces what a slot holds.
    #[inline]
    pub(crate) fn set_entry(&self, slot: usize, entry: u32) {
        self.words[slot].store(entry, orders::set_entry());
    }

    #[inline]
    fn set_tag(&self, slot: usize, tag: u16) {
        let (at, shift) = (slot / LANES, slot % LANES * 16);
        // Relaxed: written only under the lock, which the caller holds.
        let others = self.tags[at].load(Ordering::Relaxed) & !(0xffff << shift);
        // Release: pairs with the acquire loads in `matching`.
        self.tags[at].store(others | u64::from(tag) << shift, Ordering::Release);
    }

    pub(crate) fn tag(&self, slot: usize) -> u16 {
        // Relaxed: written only under the lock, which the caller holds.
        (self.tags[slot / LANES].load(Ordering::Relaxed) >> (slot % LANES * 16)) as u16
    }

    /// The bits that the entry of a slot was linked with.
    pub(crate) fn bits(&self, slot: usize) -> u32 {
        // Relaxed, both: accessed only under the lock.
        let upper = self.upper.load(Ordering::Relaxed) >> (slot * 4) & 0xf;
        upper << 8 | u32::from(self.lower[slot].load(Ordering::Relaxed))
    }

    /// Release: publishes the overflow bucket, or what was moved to the next array. Pairs with the acquire in `link`.
    pub(crate) fn set_link(&self, link: u32) {
        self.link.store(link, Ordering::Release);
    }

    /// A slot that holds no entry. While the lock is held, its tag is 0.
    #[inline]
    pub(crate) fn free_slot(&self) -> Option<usize> {
        self.matching(0).next()
    }

    /// Unlinks every entry.
    pub(crate) fn empty(&self) {
        for slot in 0..SLOTS {
            if self.entry(slot) != NO_ENTRY {
                self.unlink_entry(slot);
            }
        }
    }
}

/// A set of slots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hits(u64);

#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(any(stillpoint_loom, miri))))]
mod lanes {
    use core::arch::asm;
    use core::arch::x86_64::{__m128i, _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_set1_epi16};

    use super::{Bucket, Hits};

    /// Two bits for each slot.
    pub(super) const BITS: u32 = 2;

    /// The tags are loaded by one instruction, in place of five: so a loop of lookups has more of its cache misses in flight. It is
    /// assembly, because a plain load would be a data race. As two atomic loads are, it is an acquire: processors of this architecture
    /// order all loads, and the compiler keeps accesses to memory behind the block.
    #[inline(always)]
    pub(super) fn matching(bucket: &Bucket, tag: u16) -> Hits {
        let tags: __m128i;
        // SAFETY: a bucket begins with its tags, and is aligned to 64 bytes. The block only reads them. Each tag is within eight aligned
        // bytes, which the processor loads at once, like an atomic word.
        unsafe {
            asm!(
                "movdqa {tags}, xmmword ptr [{bucket}]",
                tags = lateout(xmm_reg) tags,
                bucket = in(reg) bucket.tags.as_ptr(),
                options(nostack, preserves_flags),
            );
        }
        // SAFETY: this module is compiled only with SSE2.
        let mask = unsafe { _mm_movemask_epi8(_mm_cmpeq_epi16(tags, _mm_set1_epi16(tag as i16))) };
        Hits(mask as u64 & 0x5555)
    }
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(any(stillpoint_loom, miri)))))]
mod lanes {
    use super::{Bucket, Hits, LANES};
    use crate::table::orders;

    /// One bit for each slot.
    pub(super) const BITS: u32 = 1;
    const LOW: u64 = 0x0001_0001_0001_0001;

    /// The exclusive or makes each lane that equals the tag zero. The highest bit of each lane of `low_half` is then
    /// set if any of the lane's lower 15 bits is; the sum does not carry into the next lane.
    #[inline(always)]
    pub(super) fn matching(bucket: &Bucket, tag: u16) -> Hits {
        let mut hits = 0;
        for (at, tags) in bucket.tags.iter().enumerate() {
            let different = tags.load(orders::tags()) ^ (LOW * u64::from(tag));
            let low_half = (different & (LOW * 0x7fff)) + LOW * 0x7fff;
            let zero = !(low_half | different) & (LOW << 15);
            for lane in 0..LANES {
                hits |= (zero >> (lane * 16 + 15) & 1) << (at * LANES + lane);
            }
        }
        Hits(hits)
    }
}

use lanes::matching;

impl Iterator for Hits {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros();
        // SAFETY: `matching` sets no other bits.
        unsafe { hint::assert_unchecked(bit % lanes::BITS == 0) };
        let slot = bit / lanes::BITS;
        self.0 &= self.0 - 1;
        Some(slot as usize)
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::table::engine::slab::{Slab, Touch};

    #[test]
    fn a_bucket_is_a_cache_line() {
        assert_eq!((size_of::<Bucket>(), align_of::<Bucket>()), (64, 64));
    }

    #[test]
    fn every_slot_with_the_tag_is_found_and_no_other() {
        let tags: [u16; SLOTS] = [1, 0x8001, 7, 1, 0xffff, 0, 0x7fff, 1];
        let slab = Slab::<Bucket>::new(1, Touch::Lazily).unwrap();
        // SAFETY: zeroed, and alive as long as the slab.
        let bucket = unsafe { &*slab.start() };
        tags.into_iter().enumerate().for_each(|(slot, tag)| bucket.set_tag(slot, tag));
        for tag in [1, 0x8001, 7, 0xffff, 0x7fff, 3, 0x8000] {
            let expected: Vec<usize> = (0..SLOTS).filter(|&slot| tags[slot] == tag).collect();
            assert_eq!(bucket.matching(tag).collect::<Vec<_>>(), expected, "{tag:#x}");
        }
    }

    #[test]
    fn a_slot_takes_and_gives_up_its_entry() {
        let slab = Slab::<Bucket>::new(1, Touch::Lazily).unwrap();
        // SAFETY: zeroed, and alive as long as the slab.
        let bucket = unsafe { &*slab.start() };
        for slot in 0..SLOTS {
            assert_eq!(bucket.free_slot(), Some(slot));
            bucket.link_entry(slot, 9 + slot as u16, 0xabc ^ (slot as u32 * 0x111), slot as u32 + 1);
        }
        let bits: Vec<u32> = (0..SLOTS).map(|slot| bucket.bits(slot)).collect();
        assert_eq!(bits, [0xabc, 0xbad, 0x89e, 0x98f, 0xef8, 0xfe9, 0xcda, 0xdcb]);
        assert_eq!((bucket.free_slot(), bucket.tag(3)), (None, 12));
        bucket.unlink_entry(3);
        assert_eq!((bucket.free_slot(), bucket.matching(12).count()), (Some(3), 0));
        assert_eq!(bucket.matching(13).collect::<Vec<_>>(), [4]);
        bucket.empty();
        assert_eq!(bucket.entries().count(), 0);
    }
}
