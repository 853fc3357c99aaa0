//! The engine behind `table`. The argument why it is correct is in `docs/design/table.md`.
//!
//! | file | holds |
//! |---|---|
//! | `slab`, `chunks` | zeroed memory; arrays that grow without moving |
//! | `bucket`, `array` | tags, words and links; buckets with their overflow |
//! | `arena` | the entries, found by index |
//! | `stripe` | the writers' locks, and what goes with them |
//! | `search` | the readers' protocol |
//! | `write`, `grow` | the writers' protocol; the move to a larger or smaller array |
//! | `change` | writes that depend on what is there |
//! | `sole` | what can be done with a table that is not shared |
//! | `store` | what outlives the table when a removed entry waits elsewhere |
//! | `bin`, `scrap` | removed entries, and old arrays, on their way to being freed |

pub(crate) mod arena;
pub(crate) mod array;
pub(crate) mod bin;
pub(crate) mod bucket;
pub(crate) mod change;
pub(crate) mod chunks;
mod grow;
mod scrap;
pub(crate) mod search;
pub(crate) mod slab;
pub(crate) mod sole;
pub(crate) mod store;
pub(crate) mod stripe;
pub(crate) mod write;

use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::Core;
use crate::rcu::RetireHandle;
use arena::{Arena, Pair};
use array::Array;
use bin::Bin;
use bucket::Bucket;
use scrap::Scrap;
use search::prefetch;
use slab::Touch;
use sole::Cursor;
use stillpoint_sys::panics::{keep_first, resume};
use stillpoint_sys::sync::atomic::{AtomicPtr, Ordering};
use store::Store;
use stripe::{Stripe, STRIPES};

/// A table without its public face.
pub(crate) struct Inner<K, V, S> {
    /// The array where lookups begin. Changed when the last stripe has left it.
    current: AtomicPtr<Array>,
    /// The array of the beginning, from a box as all that follow it: they stay as long as the table.
    first: NonNull<Array>,
    /// Its buckets, for writers to fetch ahead of the lock. A hint: they may be gone.
    buckets: std::sync::atomic::AtomicPtr<Bucket>,
    mask: std::sync::atomic::AtomicUsize,
    hasher: S,
    store: Arc<Store<K, V>>,
    stripes: Box<[Stripe]>,
    bin: Bin,
    /// Where entries go first, in place of the bin.
    handle: Option<RetireHandle>,
    core: Arc<Core>,
    /// For the helpers of a growth: the next stripe to look at.
    help: std::sync::atomic::AtomicUsize,
    growths: std::sync::atomic::AtomicUsize,
    shrinks: std::sync::atomic::AtomicUsize,
    /// Invariant in both: what goes in as one type must not come out as another, be it a subtype or a supertype, from a
    /// table that is shared.
    entries: Invariant<Pair<K, V>>,
}

// SAFETY: the table owns its entries and arrays, which are `Send`.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Send> Send for Inner<K, V, S> {}
// SAFETY: entries are shared with readers, and dropped by whichever thread polls: hence both bounds. Everything else
// is atomic, or behind a lock.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Sync> Sync for Inner<K, V, S> {}

/// Neither a subtype nor a supertype of `T` may take its place.
type Invariant<T> = PhantomData<fn(T) -> T>;

/// What a new table is to have.
pub(crate) struct Shape {
    /// Entries without growth; 0 for the least there is, whose memory is touched as it is used.
    pub(crate) capacity: usize,
    /// The most entries.
    pub(crate) limit: Option<usize>,
}

/// Slots beyond the capacity, for removed entries that wait: a few batches of them.
const PENDING: usize = 1024;

impl<K, V, S> Inner<K, V, S> {
    /// `None` when there is no memory.
    pub(crate) fn new(
        core: Arc<Core>,
        hasher: S,
        shape: &Shape,
        handle: Option<RetireHandle>,
    ) -> Option<Self> {
        let touch = if shape.capacity > 0 { Touch::Now } else { Touch::Lazily };
        let slots = match shape.capacity {
            0 => 64,
            capacity => capacity.checked_add(PENDING.min(capacity))?,
        };
        let arena = Arena::new(slots, shape.limit, touch)?;
        let array = Array::new(Array::len_for(shape.capacity)?, touch)?;
        let (start, mask) = (array.start(), array.len() - 1);
        let array = Box::into_raw(array);
        Some(Self {
            current: AtomicPtr::new(array),
            // SAFETY: a box is not null.
            first: unsafe { NonNull::new_unchecked(array) },
            buckets: std::sync::atomic::AtomicPtr::new(start),
            mask: std::sync::atomic::AtomicUsize::new(mask),
            hasher,
            store: Arc::new(Store { arena, scrap: Scrap::default() }),
            stripes: (0..STRIPES).map(|_| Stripe::new(array)).collect(),
            bin: Bin::new(&core),
            handle,
            core,
            help: Default::default(),
            growths: Default::default(),
            shrinks: Default::default(),
            entries: PhantomData,
        })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn hasher(&self) -> &S {
        &self.hasher
    }

    /// The reclaimer that it is attached to, if any.
    pub(crate) fn handle(&self) -> Option<&RetireHandle> {
        self.handle.as_ref()
    }

    pub(crate) fn bin(&self) -> &Bin {
        &self.bin
    }

    pub(crate) fn arena(&self) -> &Arena<K, V> {
        &self.store.arena
    }

    pub(crate) fn store(&self) -> &Arc<Store<K, V>> {
        &self.store
    }

    pub(crate) fn stripes(&self) -> &[Stripe] {
        &self.stripes
    }

    /// How often the table has shrunk.
    pub(crate) fn shrinks(&self) -> usize {
        // Relaxed: for statistics.
        self.shrinks.load(Ordering::Relaxed)
    }

    /// How often the table has grown.
    pub(crate) fn growths(&self) -> usize {
        // Relaxed: for statistics.
        self.growths.load(Ordering::Relaxed)
    }

    pub(crate) fn len(&self) -> usize {
        self.stripes.iter().map(Stripe::entries).sum()
    }

    /// The array that entries are in, or move to, and whether they do. For figures: its buckets may be gone. Without a
    /// lock: `Eq` and `Hash`, which run under one, may ask.
    pub(crate) fn newest(&self) -> (&Array, bool) {
        // Acquire: pairs with the release in `finish`. SAFETY: every array stays as long as the table.
        let current = unsafe { &*self.current.load(Ordering::Acquire) };
        current.next().map_or((current, false), |next| (next, true))
    }

    /// Fetches the bucket of a hash, for a writer that is about to lock its stripe: the exchange of the lock would
    /// keep the processor from looking ahead.
    #[inline(always)]
    pub(crate) fn fetch(&self, hash: u64) {
        // Relaxed, both: whatever they are, the fetch does no harm.
        let (start, mask) = (self.buckets.load(Ordering::Relaxed), self.mask.load(Ordering::Relaxed));
        prefetch(start.wrapping_add(hash as usize & mask));
    }

    pub(crate) fn set_fetched(&self, array: &Array) {
        // Relaxed, both: as above.
        self.buckets.store(array.start(), Ordering::Relaxed);
        self.mask.store(array.len() - 1, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64
    where
        S: BuildHasher,
    {
        self.hasher.hash_one(key)
    }

    #[inline(always)]
    pub(crate) fn hashes<Q: Hash, const N: usize>(&self, keys: &[Q; N]) -> [u64; N]
    where
        S: BuildHasher,
    {
        std::array::from_fn(|at| self.hash(&keys[at]))
    }

    /// An entry that was unlinked just now, on its way to being freed.
    ///
    /// The table's own retire lists take in what an attached reclaimer has no room for.
    pub(crate) fn retire(&self, entry: u32) {
        if !self.hand_over(entry) {
            // SAFETY: the entry is unlinked, and its parts are as asked (see `Table`).
            self.bin.put(unsafe { self.store.entry(entry) }, hint());
        }
    }

    /// As [`retire`](Inner::retire) and [`poll`](Inner::poll).
    ///
    /// # Panics
    /// With the panic of a destructor.
    #[inline]
    pub(crate) fn retire_and_poll(&self, entry: u32) {
        if self.hand_over(entry) {
            return self.poll();
        }
        self.store.scrap.release();
        // SAFETY: as in `retire`.
        self.bin.put_and_poll(unsafe { self.store.entry(entry) }, hint());
    }

    /// To an attached reclaimer, if there is one, and room.
    #[inline]
    fn hand_over(&self, entry: u32) -> bool {
        let attached = self.handle.as_ref();
        attached.is_some_and(|handle| self.retire_to(entry, |bytes, of| handle.offer(bytes, of)))
    }

    /// As [`retire`](Inner::retire), to a queue that may outlive the table: `offer` makes garbage of the entry if there is
    /// room for it, and says whether there is.
    pub(crate) fn retire_to(
        &self,
        entry: u32,
        offer: impl FnOnce(usize, &dyn Fn() -> Garbage) -> bool,
    ) -> bool {
        // SAFETY: the entry is unlinked, and its parts are as asked (see `Table`). It is the queue's once that takes it.
        offer(Store::<K, V>::BYTES, &|| unsafe { self.store.entry_counted(entry) })
    }

    /// A bounded share of the frees.
    ///
    /// # Panics
    /// With the panic of a destructor.
    #[inline]
    pub(crate) fn poll(&self) {
        self.store.scrap.release();
        self.bin.poll(hint());
    }

    /// For who has no room: frees all that need not wait, without regard to the pace of grace periods.
    ///
    /// # Panics
    /// With the first panic of a destructor, after all that was ready has been freed.
    pub(crate) fn press(&self) {
        if self.bin.pending() > 0 {
            self.bin.press();
        }
    }

    /// Frees all that is ready.
    ///
    /// # Panics
    /// With the first panic of a destructor, after all that was ready has been freed.
    pub(crate) fn poll_all(&self) -> usize {
        let freed = self.bin.poll_all();
        while self.store.scrap.release() {}
        freed
    }
}

/// Spreads threads over shards and lists: those that were made one after the other have different ones. Any value will do.
#[inline(always)]
pub(crate) fn hint() -> usize {
    std::thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(0) };
    }
    #[cold]
    fn first() -> usize {
        let number = stillpoint_sys::os::thread_number() as usize;
        NUMBER.set(number);
        number
    }
    match NUMBER.get() {
        0 => first(),
        number => number,
    }
}

impl<K, V, S> Drop for Inner<K, V, S> {
    /// Frees everything at once: whoever drops a table has it alone, and every reference into it borrows it.
    fn drop(&mut self) {
        // SAFETY: no reader can hold an entry or the buckets of an array any more: whoever did has borrowed the table.
        let mut first = unsafe { self.bin.free_unreachable(self.store.context()) };
        let mut cursor = Cursor::new(self);
        // SAFETY: the owner drops the table. Each entry comes once: an index is in one word at a time, as the mover clears the
        // old one.
        while let Some(pair) = unsafe { cursor.next_pair(self) } {
            // SAFETY: as above, so the pair is dropped once.
            let drop_pair = || unsafe { ptr::drop_in_place(pair.as_ptr()) };
            if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(drop_pair)) {
                keep_first(&mut first, panic);
            }
        }
        let mut next = self.first.as_ptr();
        while !next.is_null() {
            // SAFETY: this is the pointer that `Box::into_raw` gave for it. No other one is made a box, and nothing refers
            // to an array any more.
            let array = unsafe { Box::from_raw(next) };
            next = array.next_raw();
        }
        // The store may be kept by entries that wait elsewhere.
        self.store.scrap.clear();
        resume(first);
    }
}
