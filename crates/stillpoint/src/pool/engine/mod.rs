//! The engine: buckets, the rows with their headers, shards, and the paths between these. It reads and writes the
//! memory of objects only in a hardened pool.

mod audit;
#[cfg(all(test, not(any(stillpoint_loom, miri))))]
mod budgets;
mod cache;
pub(crate) mod common;
mod copy;
mod depot;
pub(crate) mod geometry;
mod grow;
pub(crate) mod handle;
mod harden;
mod hold;
mod list;
mod open;
mod own;
mod remote;
mod row;
mod scarce;
mod shard;
mod store;

use std::sync::Arc;

pub(crate) use handle::Handle;
pub(crate) use shard::Shard;

use self::cache::Cache;
use self::depot::Depot;
use self::geometry::{Geometry, Place};
use self::grow::Extent;
pub(crate) use self::grow::Given;
use self::harden::Armed;
use self::row::Row;
use self::store::Store;
use super::error::BuildError;
use stillpoint_sys::sync::atomic::{AtomicIsize, AtomicU32, AtomicUsize, Ordering};
use stillpoint_sys::sync::{spin, Lasting};

/// The most whole buckets that a shard keeps by default.
const HIGH_WATER: u32 = 32;

/// Whole buckets that a thread keeps, in a pool of this many buckets: what was `set`, or the usual number.
fn high_water(set: Option<u32>, buckets: u32) -> u32 {
    set.unwrap_or((buckets / 16).clamp(1, HIGH_WATER))
}

/// The parameters of a pool.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) geometry: Geometry,
    /// Bytes of an object that belong to the user.
    pub(crate) size: usize,
    /// The number of buckets at the beginning, the most that there may be, and the number to add at a time.
    pub(crate) buckets: u32,
    pub(crate) most_buckets: u32,
    pub(crate) step: u32,
    pub(crate) cache: usize,
    /// Whether all threads take objects from the same words: see `common`. Such a pool has no caches.
    pub(crate) common: bool,
    pub(crate) high_water: Option<u32>,
    pub(crate) locals: usize,
    /// Whether uses are checked, and the objects that have been free longest are allocated first.
    pub(crate) hardened: bool,
    /// Whether all calls are counted: see `Handle::open`.
    pub(crate) counts_calls: bool,
    pub(crate) want: stillpoint_sys::linux::region::Want,
}

impl Plan {
    /// Objects that the cache of a thread holds.
    fn cache_limit(&self) -> usize {
        if self.hardened {
            0
        } else {
            self.cache
        }
    }

    fn no_memory(&self) -> BuildError {
        let bytes = (self.most_buckets as usize).saturating_mul(self.geometry.bucket_bytes());
        BuildError::Memory { bytes, cause: None }
    }
}

/// A slice on the heap; `None` when there is no memory.
fn boxed<T>(len: usize, make: impl FnMut() -> T) -> Option<Box<[T]>> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).ok()?;
    values.resize_with(len, make);
    Some(values.into_boxed_slice())
}

/// A box; `None` when there is no memory.
fn boxed_one<T>(value: T) -> Option<Box<T>> {
    let mut one = Vec::new();
    one.try_reserve_exact(1).ok()?;
    one.push(value);
    let one = Box::into_raw(one.into_boxed_slice());
    // SAFETY: taken apart just now. A slice of one value has the layout of the value.
    Some(unsafe { Box::from_raw(one.cast()) })
}

/// Why a handle gets no shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoShard {
    /// The maximum number of handles hold one.
    AllHeld,
    /// There is no memory for another one.
    NoMemory,
}

/// The user's functions for objects.
#[derive(Default)]
pub(crate) struct Life {
    /// Makes an object at an address that holds none.
    pub(crate) construct: Option<Box<dyn Fn(*mut u8) + Send + Sync>>,
    pub(crate) destroy: Option<unsafe fn(*mut u8)>,
    /// Called for an object that is allocated.
    pub(crate) reset: Option<Box<dyn Fn(*mut u8) + Send + Sync>>,
}

/// A pool without its types.
pub(crate) struct Core {
    geometry: Geometry,
    /// Hot paths read only its flags: the rest of what they use has fields of its own.
    plan: Plan,
    extent: Extent,
    rows: Box<[Row]>,
    store: Store,
    depot: Depot,
    /// Each is made when a handle first needs it, and all before it are held.
    shards: Box<[Lasting<Shard>]>,
    /// The number of handles that hold a shard.
    handles: AtomicUsize,
    /// The shard of parked handles: its cache has no objects and no room.
    nobody: Box<Shard>,
    cache: usize,
    /// Whether shards have an open bucket: in pools without caches, unless they are hardened. See `open`.
    opens: bool,
    /// The place at which the next search of a common pool begins, if it is hardened.
    turn: AtomicU32,
    high_water: AtomicU32,
    /// Objects and blocks that were freed without a handle, in a pool that counts calls.
    dropped: [std::sync::atomic::AtomicUsize; 2],
    armed: Option<Armed>,
    pub(crate) life: Life,
    /// The number of misuses that were found after the faulty call had returned.
    misuses: std::sync::atomic::AtomicUsize,
    /// The number of objects that frees have counted although they were not allocated.
    corrections: AtomicIsize,
}

// SAFETY: the raw parts are memory that the core owns. Rows and shards are used by the protocol of
// `docs/design/pool.md`. The functions of `Life` are `Send` and `Sync`, and typed objects are `Send`.
unsafe impl Send for Core {}
// SAFETY: rows and shards are used by the protocol of `docs/design/pool.md`. The functions of `Life` are `Sync`.
unsafe impl Sync for Core {}

impl Core {
    /// The core does not move: shards point to it.
    pub(crate) fn new(plan: Plan, life: Life, given: Option<Given>) -> Result<Arc<Self>, BuildError> {
        let geometry = plan.geometry;
        let extent = Extent::new(&plan, given)?;
        let rows = extent.places() as usize * geometry.rows() as usize;
        // A hardened pool records each object's state, and refuses double frees at once.
        let armed = plan.hardened.then(|| Armed::new(rows).ok_or_else(|| plan.no_memory())).transpose()?;
        let cache = plan.cache_limit();
        let objects = extent.maximum() as usize * geometry.objects() as usize;
        // A handle keeps one shard, and may hold a second one for a moment.
        let shards = boxed(2 * plan.locals, Lasting::new).ok_or_else(|| plan.no_memory())?;
        let rows = boxed(rows, Row::absent).ok_or_else(|| plan.no_memory())?;
        let depot = Depot::new(objects, cache).ok_or_else(|| plan.no_memory())?;
        let nothing = Cache::new(0, 0).ok_or_else(|| plan.no_memory())?;
        let core = Arc::new_cyclic(|core| Self {
            geometry,
            extent,
            rows,
            store: Store::new(),
            depot,
            shards,
            handles: AtomicUsize::new(0),
            nobody: Box::new(Shard::new(row::NONE, core.as_ptr(), nothing)),
            cache,
            opens: cache == 0 && !plan.hardened && !plan.common,
            turn: AtomicU32::new(0),
            high_water: AtomicU32::new(0),
            dropped: Default::default(),
            armed,
            life,
            misuses: std::sync::atomic::AtomicUsize::new(0),
            corrections: AtomicIsize::new(0),
            plan,
        });
        // In a model, all shards are made now: nothing orders the making of a shard before its first hold by another
        // thread.
        let eager = if cfg!(stillpoint_loom) { 2 * core.plan.locals } else { 0 };
        (0..eager).for_each(|index| _ = core.make_shard(index));
        core.extend(core.plan.buckets)?;
        Ok(core)
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The most handles that may hold a shard.
    pub(crate) fn most_handles(&self) -> usize {
        self.plan.locals
    }

    /// Number of objects that the pool may grow to.
    pub(crate) fn maximum(&self) -> usize {
        self.extent.maximum() as usize * self.geometry.objects() as usize
    }

    #[inline(always)]
    pub(crate) fn cache_limit(&self) -> usize {
        self.cache
    }

    /// The shard with this index, which is made if there is none. `None` when there is no memory.
    fn make_shard(&self, index: usize) -> Option<&Shard> {
        let place = &self.shards[index];
        if let Some(shard) = place.get() {
            return Some(shard);
        }
        let more = self.geometry.objects().min(geometry::ROW) as usize;
        let own = boxed_one(Shard::new(index as u32, self, Cache::new(self.cache, more)?))?;
        // Another thread may have made the shard meanwhile. Then this one is dropped.
        Some(place.set_boxed(own).unwrap_or_else(|(first, _)| first))
    }

    fn nobody(&self) -> &Shard {
        &self.nobody
    }

    /// All shards that a thread has held: those before the first that has not been made.
    fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().map_while(Lasting::get)
    }

    /// Takes hold of a shard: one that was left, or a new one.
    fn hold_one(&self) -> Result<&Shard, NoShard> {
        let more = |handles: usize| (handles < self.plan.locals).then_some(handles + 1);
        // Relaxed, both: a count. The state word of each shard orders its holders.
        self.handles
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .map_err(|_| NoShard::AllHeld)?;
        loop {
            // At least one shard is free at any time. The search fails only if other threads took and left shards
            // meanwhile.
            for index in 0..self.shards.len() {
                match self.make_shard(index) {
                    Some(shard) if shard.try_hold() => return Ok(shard),
                    Some(_) => {}
                    // The shards before this one were not free when they were looked at, and those behind it were not made either.
                    None => {
                        self.uncount_handle();
                        return Err(NoShard::NoMemory);
                    }
                }
            }
            spin();
        }
    }

    /// Leaves a shard that came from [`hold_one`](Core::hold_one).
    fn leave_one(&self, shard: &Shard) {
        shard.leave();
        self.uncount_handle();
    }

    fn uncount_handle(&self) {
        // Relaxed: a count. The state word of each shard orders its holders.
        self.handles.fetch_sub(1, Ordering::Relaxed);
    }

    fn address(&self, row: u32, bit: u32) -> *mut u8 {
        self.extent.start().wrapping_add(self.geometry.offset(Place { row, bit }))
    }

    /// Offset of `address` from the start of the pool's memory, if it is within this memory.
    #[inline(always)]
    pub(crate) fn offset_of(&self, address: *mut u8) -> Option<usize> {
        let offset = address.addr().wrapping_sub(self.extent.start().addr());
        (offset < self.extent.end()).then_some(offset)
    }

    /// The place of the object that begins at `address`, if one does.
    #[inline(always)]
    pub(crate) fn place_of(&self, address: *mut u8) -> Option<Place> {
        self.geometry.place(self.offset_of(address)?)
    }

    /// Whether all objects of a bucket are free. For its owner, and for counts.
    fn is_whole(&self, bucket: u32) -> bool {
        self.rows[bucket as usize].free.get() == self.geometry.objects()
    }

    /// Whether no object of a row is free in its bucket. For the owner, and for audits.
    fn is_full(&self, row: u32) -> bool {
        self.rows[row as usize].live.get() == self.geometry.full(row)
    }

    /// The shard that owns the bucket of a row.
    #[inline(always)]
    fn owner_of_row(&self, row: u32) -> u32 {
        // Relaxed: the owner does not change while an object of the bucket is allocated, and the caller owns the bucket, or got an object
        // of it after the owner was stored.
        self.rows[self.geometry.bucket_of(row) as usize].owner.load(Ordering::Relaxed)
    }

    pub(crate) fn high_water(&self) -> u32 {
        // Relaxed: a number for tuning, which grows with the pool.
        self.high_water.load(Ordering::Relaxed)
    }

    /// Number of buckets that go to the store, or come from it, at a time.
    fn batch(&self) -> u32 {
        (self.high_water() / 2).max(1)
    }

    fn set_high_water(&self, buckets: u32) {
        // Relaxed: a number for tuning.
        self.high_water.store(high_water(self.plan.high_water, buckets), Ordering::Relaxed);
    }

    /// Counts misuses that were found after the faulty call had returned.
    #[cold]
    pub(crate) fn misused(&self, times: u32) {
        // Relaxed: a count.
        self.misuses.fetch_add(times as usize, Ordering::Relaxed);
    }

    pub(crate) fn misuses(&self) -> usize {
        // Relaxed: a count.
        self.misuses.load(Ordering::Relaxed)
    }

    /// Counts objects of a row that were freed although they were free.
    #[inline]
    fn doubled(&self, bits: u64) {
        if bits != 0 {
            self.misused(bits.count_ones());
        }
    }

    /// Counts objects as allocated again, after a free has wrongly counted them as freed.
    fn correct(&self, objects: u32) {
        if objects > 0 {
            // Relaxed: a count.
            self.corrections.fetch_add(objects as isize, Ordering::Relaxed);
        }
    }

    /// Counts objects as freed if no shard counts them.
    fn uncount(&self, objects: u32) {
        // Relaxed: a count.
        self.corrections.fetch_sub(objects as isize, Ordering::Relaxed);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Some(destroy) = self.life.destroy {
            self.extent.destroy_all(&self.geometry, destroy);
        }
    }
}

stillpoint_sys::debug!(|this| Core { geometry: this.geometry, .. });
