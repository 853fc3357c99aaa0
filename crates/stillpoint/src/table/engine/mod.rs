//! The engine behind `table`. The argument for its correctness is in `docs/design/table.md`.
//!
//! | file | holds |
//! |---|---|
//! | `slab`, `chunks` | zeroed memory; arrays that grow without moving |
//! | `bucket`, `array` | tags, words and links; buckets with their overflow |
//! | `arena` | the entries, found by index |
//! | `stripe` | the writers' locks, and the state under each |
//! | `search` | the readers' protocol |
//! | `write`, `grow` | the writers' protocol; the move to a larger or smaller array |
//! | `change` | writes that depend on the present entry |
//! | `mix`, `hint` | hashes of weak hashers; the numbers of threads, and functions whose writes are watched |
//! | `sole` | access to a table that is not shared |
//! | `store` | the part that outlives the table when a removed entry waits elsewhere |
//! | `places`, `scrap` | removed entries, and old arrays, until they are freed |

pub(crate) mod arena;
pub(crate) mod array;
pub(crate) mod bucket;
pub(crate) mod change;
pub(crate) mod chunks;
mod grow;
pub(crate) mod hint;
mod inits;
mod mix;
pub(crate) mod places;
mod scrap;
pub(crate) mod search;
pub(crate) mod slab;
pub(crate) mod sole;
pub(crate) mod store;
pub(crate) mod stripe;
pub(crate) mod write;

use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Arc, Mutex};

use crate::frames::keeping;
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::Core;
use crate::rcu::RetireHandle;
use arena::{Arena, Pair};
use array::Array;
use bucket::Bucket;
use hint::hint;
use inits::Inits;
use places::Places;
use slab::Touch;
use sole::Cursor;
use stillpoint_sys::panics::resume;
use stillpoint_sys::sync::atomic::{AtomicPtr, Ordering};
use stillpoint_sys::sync::prefetch;
use store::Store;
use stripe::Stripes;

/// What a table consists of, behind its public interface.
pub(crate) struct Inner<K, V, S> {
    /// The array where lookups begin. Changed when the last stripe has left it.
    current: AtomicPtr<Array>,
    /// The buckets of an array, for writers to prefetch before they take the lock. A hint: the buckets may be freed
    /// already.
    buckets: std::sync::atomic::AtomicPtr<Bucket>,
    mask: std::sync::atomic::AtomicUsize,
    pub(crate) hasher: S,
    /// Whether the hashes of another hasher than the default one are mixed.
    mixes: bool,
    pub(crate) store: Arc<Store<K, V>>,
    pub(crate) stripes: Stripes,
    pub(crate) places: Places,
    /// The reclaimer that retired entries are offered to first.
    handle: Option<RetireHandle>,
    /// The number of the stripe, modulo their count, that the next helper of a growth tries.
    help: std::sync::atomic::AtomicUsize,
    /// One reservation at a time: each makes an array before it has a stripe's lock.
    reserving: Mutex<()>,
    /// How often the table has grown, and how often it has shrunk.
    pub(crate) growths: std::sync::atomic::AtomicUsize,
    pub(crate) shrinks: std::sync::atomic::AtomicUsize,
    /// How often an entry found no room.
    pub(crate) refused: std::sync::atomic::AtomicUsize,
    pub(crate) name: Box<str>,
    inits: Inits,
    /// Makes the type invariant in `K` and `V`: a shared table must not take an entry as one type and return it as a
    /// subtype or a supertype.
    entries: Invariant<Pair<K, V>>,
}

// SAFETY: the table owns its entries and arrays, which are `Send`.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Send> Send for Inner<K, V, S> {}
// SAFETY: entries are shared with readers, and dropped by any thread that polls: hence both bounds. Everything else is
// atomic, or behind a lock.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Sync> Sync for Inner<K, V, S> {}

/// Neither a subtype nor a supertype of `T` may take its place.
type Invariant<T> = PhantomData<fn(T) -> T>;

/// The size of a new table.
pub(crate) struct Shape {
    pub(crate) name: Box<str>,
    /// Entries without growth; 0 for the smallest table, whose memory is touched only as it is used.
    pub(crate) capacity: usize,
    /// The most entries.
    pub(crate) limit: Option<usize>,
    /// As in `Inner`.
    pub(crate) mixes: bool,
}

/// An entry that was unlinked, and the lower bits of the [`hint`] of the thread that has unlinked it. The caller owns the
/// entry, though readers may still hold it.
///
/// One number: two of 32 bits would be stored one by one and loaded together, for which the processor waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owned(u64);

impl Owned {
    #[inline(always)]
    fn new(entry: u32, hint: usize) -> Self {
        Self(u64::from(entry) | (hint as u64) << 32)
    }

    #[inline(always)]
    pub(crate) fn entry(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    fn hint(self) -> usize {
        (self.0 >> 32) as usize
    }
}

/// Slots beyond the capacity, for a few batches of removed entries that wait.
const PENDING: usize = 1024;

impl<K, V, S> Inner<K, V, S> {
    /// `None` when there is no memory.
    pub(crate) fn new(core: Arc<Core>, hasher: S, shape: Shape, handle: Option<RetireHandle>) -> Option<Self>
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let capacity = shape.capacity.min(shape.limit.unwrap_or(usize::MAX));
        // Before any memory is asked for, and touched.
        let buckets = Array::len_for(capacity)?;
        if capacity > arena::MOST {
            return None;
        }
        let touch = if capacity > 0 { Touch::Now } else { Touch::Lazily };
        let slots = match capacity {
            0 => 64,
            capacity => capacity.checked_add(PENDING.min(capacity))?,
        };
        let arena = Arena::new(slots, shape.limit, touch)?;
        let array = Array::new(buckets, touch)?;
        let (start, mask) = (array.start(), array.len() - 1);
        let store = Arc::new(Store::new(arena, array));
        let array = store.first.as_ptr();
        Some(Self {
            current: AtomicPtr::new(array),
            buckets: std::sync::atomic::AtomicPtr::new(start),
            mask: std::sync::atomic::AtomicUsize::new(mask),
            hasher,
            mixes: shape.mixes,
            // SAFETY: arrays stay as long as the store.
            stripes: Stripes::new(unsafe { &*array })?,
            places: Places::new(core, Arc::<Store<K, V>>::clone(&store)),
            store,
            handle,
            help: Default::default(),
            reserving: Mutex::default(),
            growths: Default::default(),
            shrinks: Default::default(),
            refused: Default::default(),
            name: shape.name,
            inits: Inits::default(),
            entries: PhantomData,
        })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.places.core()
    }

    pub(crate) fn arena(&self) -> &Arena<K, V> {
        &self.store.arena
    }

    pub(crate) fn len(&self) -> usize {
        self.stripes.entries()
    }

    /// The array that entries are in, and the one that they move to, if they are moving. For statistics only: the buckets
    /// may be gone. Takes no lock, since `Eq` and `Hash` may call this while they run under one.
    pub(crate) fn arrays(&self) -> (&Array, Option<&Array>) {
        // Acquire: pairs with the release in `finish`. SAFETY: every array stays as long as the table.
        let current = unsafe { &*self.current.load(Ordering::Acquire) };
        (current, current.next())
    }

    /// Prefetches the bucket of a hash, for a writer that is about to lock its stripe. The processor cannot load the
    /// bucket ahead of the lock's atomic exchange.
    #[inline(always)]
    pub(crate) fn fetch(&self, hash: u64) {
        // Relaxed, both: a prefetch does no harm at any address.
        let (start, mask) = (self.buckets.load(Ordering::Relaxed), self.mask.load(Ordering::Relaxed));
        prefetch(start.wrapping_add(hash as usize & mask));
    }

    pub(crate) fn set_fetched(&self, array: &Array) {
        // Relaxed, both: read only for prefetches.
        self.buckets.store(array.start(), Ordering::Relaxed);
        self.mask.store(array.len() - 1, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64
    where
        S: BuildHasher,
    {
        let hash = self.hasher.hash_one(key);
        // The type is compared by the compiler, so the default hasher's table does not even read the flag.
        if mix::is_default::<S>() || !self.mixes {
            hash
        } else {
            mix::mixed(hash)
        }
    }

    /// Retires an entry that was just unlinked.
    ///
    /// If an attached reclaimer has no room for it, it goes to the table's own shelves.
    pub(crate) fn retire(&self, owned: Owned) {
        if !self.hand_over(owned.entry()) {
            // SAFETY: the entry is unlinked, and `Table` demands `Send + Sync + 'static` of its parts.
            self.places.put(unsafe { self.store.entry(owned.entry()) }, owned.hint());
        }
    }

    /// As [`retire`](Inner::retire) and [`poll`](Inner::poll).
    ///
    /// # Panics
    /// With the panic of a destructor.
    #[inline]
    pub(crate) fn retire_and_poll(&self, owned: Owned) {
        if self.hand_over(owned.entry()) {
            return self.poll(owned.hint());
        }
        self.store.scrap.release();
        // SAFETY: the entry is unlinked, and `Table` demands `Send + Sync + 'static` of its parts.
        self.places.put_and_poll(unsafe { self.store.entry(owned.entry()) }, owned.hint());
    }

    /// Hands the entry to the attached reclaimer, if there is one and it has room. Returns whether it did.
    #[inline]
    fn hand_over(&self, entry: u32) -> bool {
        let attached = self.handle.as_ref();
        attached.is_some_and(|handle| self.retire_to(entry, |bytes, of| handle.offer(bytes, of)))
    }

    /// As [`retire`](Inner::retire), to a queue that may outlive the table. If the queue has room, `offer` makes
    /// garbage of the entry and returns true.
    pub(crate) fn retire_to(
        &self,
        entry: u32,
        offer: impl FnOnce(usize, &dyn Fn() -> Garbage) -> bool,
    ) -> bool {
        // SAFETY: the entry is unlinked, and `Table` demands `Send + Sync + 'static` of its parts. A queue that takes
        // the entry owns it.
        offer(Store::<K, V>::BYTES, &|| unsafe { self.store.entry_counted(entry) })
    }

    /// Frees a bounded number of retired entries, and a slice of old arrays.
    ///
    /// # Panics
    /// With the panic of a destructor.
    #[inline]
    pub(crate) fn poll(&self, hint: usize) {
        self.store.scrap.release();
        self.places.poll(hint);
    }

    /// For a caller that found no free slot: frees up to `limit` objects that no reader keeps alive, regardless of the pace
    /// of grace periods, and except what another writer has in hand. Returns their number.
    ///
    /// # Panics
    /// With the first panic of a destructor, after the others have run.
    pub(crate) fn press(&self, limit: usize) -> usize {
        self.places.press(limit)
    }

    /// Frees all that is ready.
    ///
    /// # Panics
    /// With the first panic of a destructor, after everything that was ready has been freed.
    pub(crate) fn poll_all(&self) -> usize {
        let freed = self.places.poll_all();
        while self.store.scrap.release() {}
        freed
    }
}

impl<K, V, S> Drop for Inner<K, V, S> {
    /// Frees everything at once: the table is not shared any more, since every reference into it borrows it. Removed entries that another
    /// thread has in hand are left to that thread.
    fn drop(&mut self) {
        // Release: pairs with the acquire in `Store::is_gone`. Comes after every use of the table.
        self.store.is_gone.store(true, Ordering::Release);
        let mut first = self.places.evict();
        let mut cursor = Cursor::new(self);
        // SAFETY: the owner drops the table. Each entry is found once: an index is in one word at a time, since a mover
        // clears the old word.
        while let Some(pair) = unsafe { cursor.next_pair(self) } {
            // SAFETY: the cursor returns each pair once, so the pair is dropped once.
            keeping(&mut first, || unsafe { ptr::drop_in_place(pair.as_ptr()) });
        }
        // Here, since entries that wait elsewhere may keep the store.
        let mut next = Some(self.arrays().0);
        while let Some(array) = next {
            // SAFETY: the arrays from the current one on are not retired, and nobody uses their buckets any more.
            unsafe { array.take_slabs() }.for_each(drop);
            next = array.next();
        }
        self.store.scrap.clear();
        resume(first);
    }
}
