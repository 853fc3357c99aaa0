//! One array of buckets, with the overflow buckets of its chains.
//!
//! When a table has moved to another array, the memory of the old buckets is freed. The `Array` itself, a few hundred
//! bytes, stays as long as the table: one for each time that the table grows or shrinks. So a reference to an `Array`
//! is always valid, and statistics are read without a lock or a hazard slot.

use std::mem::ManuallyDrop;
use std::ptr;

// Not modelled: statistics.
use std::sync::atomic::AtomicU32 as Unmodelled32;

use super::bucket::{Bucket, BITS, END, MOVED};
use super::chunks::Chunks;
use super::slab::{Slab, Touch};
use stillpoint_sys::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use stillpoint_sys::sync::Witness;

/// Stripes of a small table, and its buckets.
pub(super) const FEW: usize = 16;
/// Stripes of other tables.
const MANY: usize = 256;

/// Both numbers of stripes. Under loom one, except in models that set them.
#[inline(always)]
fn stripes() -> (usize, usize) {
    #[cfg(all(test, stillpoint_loom))]
    return crate::table::models::STRIPES.get();
    #[cfg(not(all(test, stillpoint_loom)))]
    if cfg!(stillpoint_loom) {
        (1, 1)
    } else {
        (FEW, MANY)
    }
}

/// Stripes of a small table, and its buckets.
#[inline(always)]
pub(super) fn few() -> usize {
    stripes().0
}

/// Stripes of a table that is not small. Its arrays have as many buckets, or more.
#[inline(always)]
pub(super) fn many() -> usize {
    stripes().1
}

/// Mean number of entries in a bucket at which an array has to grow. At five of eight, one bucket in fifteen overflows.
const LOAD: usize = if cfg!(stillpoint_loom) { 1 } else { 5 };

#[derive(Debug)]
pub(crate) struct Array {
    /// [`take_slabs`](Array::take_slabs) moves these out, and the overflow buckets.
    buckets: ManuallyDrop<Slab<Bucket>>,
    mask: usize,
    /// Overflow buckets, from index 1 on. They stay in their chains until all buckets are moved out.
    overflow: ManuallyDrop<Chunks<Bucket>>,
    /// Whether `take_slabs` was called.
    gone: AtomicBool,
    /// Index of the first overflow bucket that was never used.
    fresh: AtomicU32,
    /// Buckets of the longest chain.
    longest: Unmodelled32,
    /// The larger or smaller array that the entries move to, once it exists.
    next: AtomicPtr<Array>,
    /// Number of stripes whose buckets have all moved.
    stripes_moved: AtomicUsize,
    stripe_limit: i32,
    /// Reports to a model a lookup that does not happen before the array's free.
    witness: Witness,
}

impl Array {
    /// Number of buckets for `entries` without growth; `None` above the maximum.
    pub(crate) fn len_for(entries: usize) -> Option<usize> {
        let len =
            entries.div_ceil(LOAD).max(few()).checked_next_power_of_two().filter(|&len| len <= 1 << 31)?;
        Some(if len == few() { len } else { len.max(many()) })
    }

    /// An array of `len` buckets, a power of two, on the heap; `None` when there is no memory.
    pub(crate) fn new(len: usize, touch: Touch) -> Option<Box<Self>> {
        debug_assert!(len.is_power_of_two() && (len == few() || len >= many()));
        let mean = len * LOAD / len.min(many());
        let deviations = if len < many() { 1 } else { 4 };
        let spread = if cfg!(stillpoint_loom) { 0 } else { deviations * mean.isqrt() };
        Some(Box::new(Self {
            stripe_limit: (mean + spread) as i32,
            buckets: ManuallyDrop::new(Slab::new(len, touch)?),
            mask: len - 1,
            overflow: ManuallyDrop::new(Chunks::new((len / 8).max(2), touch)?),
            gone: AtomicBool::new(false),
            fresh: AtomicU32::new(1),
            longest: Unmodelled32::new(1),
            next: AtomicPtr::new(ptr::null_mut()),
            stripes_moved: AtomicUsize::new(0),
            witness: Witness::alive(),
        }))
    }

    /// Number of stripes that the buckets belong to: the lower bits of a bucket's index are the number of its stripe.
    #[inline(always)]
    pub(crate) fn stripe_count(&self) -> usize {
        self.len().min(many())
    }

    pub(crate) fn start(&self) -> *mut Bucket {
        self.buckets.start()
    }

    pub(crate) fn len(&self) -> usize {
        self.mask + 1
    }

    /// Moves the buckets out: the caller owns their memory from now on.
    ///
    /// # Safety
    /// Called once, by a thread that has synchronized with all threads that used the buckets. None uses them later.
    pub(crate) unsafe fn take_slabs(&self) -> impl Iterator<Item = Slab<Bucket>> + '_ {
        // Relaxed: read only by the drop.
        self.gone.store(true, Ordering::Relaxed);
        // SAFETY: neither field is dropped, since both are in `ManuallyDrop`. By the contract, each is taken once, and
        // no thread uses them any more.
        let (buckets, overflow) =
            unsafe { (Slab::from_raw(self.buckets.start(), self.buckets.len()), self.overflow.take()) };
        std::iter::once(buckets).chain(overflow)
    }

    /// Reports to the model that the buckets were freed.
    #[cfg(stillpoint_loom)]
    pub(crate) fn end(&self) {
        self.witness.set(false);
    }

    #[inline(always)]
    pub(crate) fn view(&self) -> View<'_> {
        View { buckets: self.buckets.start(), mask: self.mask, array: self }
    }

    pub(crate) fn index_of(&self, hash: u64) -> usize {
        hash as usize & self.mask
    }

    /// The bits of a hash that a bucket keeps for later growths.
    #[inline(always)]
    pub(crate) fn bits_of(&self, hash: u64) -> u32 {
        (hash >> self.window()) as u32 & ((1 << BITS) - 1)
    }

    /// Position of the lowest of these bits. Below 2^12 buckets, the kept bits contain the index bits of every array of
    /// up to 2^12 buckets. Below 2^24 buckets, they contain the further index bits of arrays of up to 2^24 buckets;
    /// from 2^24 on, of any array. So keys are hashed again only when a table grows to 2^12 and to 2^24 buckets.
    #[inline(always)]
    fn window(&self) -> u32 {
        self.len().ilog2() / BITS * BITS
    }

    /// Whether this array keeps the same bits of a hash as `next`. The bits then also contain the additional index bits
    /// of `next`.
    pub(crate) fn knows(&self, next: &Array) -> bool {
        self.window() == next.window()
    }

    /// The bits kept of the hash of a slot's entry, at their position in the hash.
    pub(crate) fn known(&self, bucket: &Bucket, slot: usize) -> u64 {
        u64::from(bucket.bits(slot)) << self.window()
    }

    /// `hash`, with its lower bits replaced by those of `index`.
    pub(crate) fn at_index(&self, hash: u64, index: usize) -> u64 {
        hash & !(self.mask as u64) | index as u64
    }

    /// The chains of `next` that the entries of the chain at `index` move to. In a larger array, there are several. In
    /// a smaller array there is one, and other chains move to it, too.
    pub(crate) fn targets(&self, index: usize, next: &Array) -> std::iter::StepBy<std::ops::Range<usize>> {
        (index & next.mask..next.len()).step_by(self.len())
    }

    #[inline]
    pub(crate) fn bucket(&self, index: usize) -> &Bucket {
        assert!(index <= self.mask, "the index is masked");
        // SAFETY: the bucket is within the slab, which is freed only when nothing uses it any more: no holder of a
        // stripe that is in this array, no reader in a region, and no reader that has pinned it.
        unsafe { &*self.buckets.start().add(index) }
    }

    /// The bucket that a link leads to; the link is neither [`END`] nor [`MOVED`].
    #[inline(never)]
    pub(crate) fn overflow(&self, link: u32) -> &Bucket {
        // SAFETY: `append` of this array made the link, after `ensure`, and links are read by acquire loads.
        unsafe { &*self.overflow.get(link) }
    }

    /// The bucket at `index` and its overflow buckets, up to the first link that is [`END`] or [`MOVED`].
    #[inline]
    pub(crate) fn chain(&self, index: usize) -> impl Iterator<Item = &Bucket> {
        std::iter::successors(Some(self.bucket(index)), |bucket| match bucket.link() {
            END | MOVED => None,
            link => Some(self.overflow(link)),
        })
    }

    /// Appends an overflow bucket to the chain that ends with `last`. `None` when there is no memory. For the holder of
    /// the stripe's lock.
    pub(crate) fn append(&self, last: &Bucket) -> Option<&Bucket> {
        // Relaxed throughout: the bucket is published by its link, and its chunk by `ensure`.
        let mut fresh = self.fresh.load(Ordering::Relaxed);
        loop {
            if fresh == MOVED || !self.overflow.ensure(fresh) {
                return None;
            }
            match self.fresh.compare_exchange_weak(fresh, fresh + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => fresh = now,
            }
        }
        let bucket = self.overflow(fresh);
        bucket.touch();
        last.set_link(fresh);
        Some(bucket)
    }

    /// A free slot of the chain at `index`. Appends a bucket if there is none. `None` when there is no memory. For the
    /// holder of the stripe's lock.
    #[inline]
    pub(crate) fn room(&self, index: usize) -> Option<(&Bucket, usize)> {
        let (mut last, mut buckets) = (self.bucket(index), 1);
        for bucket in self.chain(index) {
            if let Some(slot) = bucket.free_slot() {
                return Some((bucket, slot));
            }
            last = bucket;
            buckets += 1;
        }
        let appended = self.append(last)?;
        // Relaxed: for statistics. Chains keep their buckets as long as the array exists.
        self.longest.fetch_max(buckets, Ordering::Relaxed);
        Some((appended, 0))
    }

    /// Buckets of the longest chain.
    pub(crate) fn longest_chain(&self) -> usize {
        // Relaxed: for statistics.
        self.longest.load(Ordering::Relaxed) as usize
    }

    /// Number of overflow buckets in use.
    pub(crate) fn overflowed(&self) -> usize {
        // Relaxed: for statistics.
        self.fresh.load(Ordering::Relaxed) as usize - 1
    }

    /// Number of buckets, including the overflow buckets.
    pub(crate) fn total(&self) -> usize {
        self.len() + self.overflowed()
    }

    /// The bucket of a number below [`total`](Array::total).
    pub(crate) fn nth(&self, number: usize) -> &Bucket {
        match number.checked_sub(self.len()) {
            None => self.bucket(number),
            Some(further) => self.overflow(further as u32 + 1),
        }
    }

    /// The array that this one moves to, or has moved to, as `Box::into_raw` returned it. The table's drop makes it a
    /// box again.
    #[inline]
    pub(crate) fn next_raw(&self) -> *mut Array {
        // Acquire: pairs with the release in `try_set_next`.
        self.next.load(Ordering::Acquire)
    }

    /// The array that this one moves to, or has moved to.
    #[inline]
    pub(crate) fn next(&self) -> Option<&Array> {
        // SAFETY: every array stays as long as the table, which outlives this reference.
        unsafe { self.next_raw().as_ref() }
    }

    /// Sets the next array. False when there is one already.
    pub(crate) fn try_set_next(&self, next: *mut Array) -> bool {
        // Release: publishes the array, and pairs with the acquire in `next_raw`. Relaxed on failure: the pointer is
        // not followed.
        self.next.compare_exchange(ptr::null_mut(), next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Counts a stripe that has moved; true for the last one.
    pub(crate) fn count_moved_stripe(&self) -> bool {
        // AcqRel: pairs with itself. The last count happens after all that the holders of other stripes did to the
        // array, so its thread may retire the array.
        self.stripes_moved.fetch_add(1, Ordering::AcqRel) + 1 == self.stripe_count()
    }

    /// Entries that the array takes before it grows.
    pub(crate) fn capacity(&self) -> usize {
        self.len() * LOAD
    }

    /// Number of entries in one stripe above which the entries of all stripes are counted: four standard deviations
    /// above the mean in a full array; one, if the array has few stripes.
    pub(crate) fn stripe_limit(&self) -> i32 {
        self.stripe_limit
    }

    /// Memory of the buckets, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.len() * size_of::<Bucket>() + self.overflow.bytes()
    }

    /// Allows the kernel to gather small pages into huge ones, once every page of the buckets is in use. Leaves
    /// overflow buckets out: some of their pages are unused, and the first touch of a huge page takes the kernel
    /// milliseconds.
    pub(crate) fn allow_huge_pages(&self) {
        self.buckets.allow_huge_pages();
    }
}

/// Called by the table's drop, or for an array that was never part of a table.
impl Drop for Array {
    fn drop(&mut self) {
        // Relaxed: the owner has synchronized with all threads that used the table.
        if !self.gone.load(Ordering::Relaxed) {
            // SAFETY: the owner has exclusive access, and the buckets were not taken before.
            unsafe { self.take_slabs() }.for_each(drop);
        }
    }
}

/// The part of an array that a lookup needs, small enough for registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    buckets: *const Bucket,
    mask: usize,
    pub(crate) array: &'a Array,
}

impl<'a> View<'a> {
    /// The first bucket of the chain that `hash` belongs to.
    #[inline(always)]
    pub(crate) fn bucket(&self, hash: u64) -> &'a Bucket {
        self.array.witness.read();
        // SAFETY: the index is masked, so the bucket is within the slab. The slab is not freed while this view is used
        // (see `Inner::view_in_region` and `Pins`).
        unsafe { &*self.buckets.add(hash as usize & self.mask) }
    }
}
