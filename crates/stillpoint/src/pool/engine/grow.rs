//! Memory of the pool: pieces of one range of addresses, so that one comparison distinguishes the pool's addresses from
//! all others.

use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::geometry::{Geometry, Place};
use super::store::Chain;
use super::{boxed, Core, Plan};
use crate::pool::audit::MemoryInfo;
use crate::pool::error::BuildError;
use crate::pool::memory::{refused, Backing};
use stillpoint_sys::linux::region::{Made, Reservation, Want, HUGE};
use stillpoint_sys::panics::{keeping, resume};
use stillpoint_sys::sync::atomic::{AtomicUsize, Ordering};

/// A multiple of the page size on every Linux system. Smaller under Miri, which would take minutes to make the headers.
const PAGE: usize = if cfg!(miri) { 4096 } else { 64 << 10 };

/// The caller's memory. `release` is called when the pool does not use it any more.
pub(crate) struct Given {
    pub(crate) start: NonNull<u8>,
    pub(crate) bytes: usize,
    pub(crate) release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

// SAFETY: the caller of `PoolBuilder::memory` promises that any thread may use the memory; `release` is `Send`.
unsafe impl Send for Given {}
// SAFETY: a shared reference gives only the address and the size.
unsafe impl Sync for Given {}

impl Drop for Given {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

stillpoint_sys::debug!(|this| Given { start: this.start, bytes: this.bytes, .. });

/// The memory that contains the pieces.
#[derive(Debug)]
enum Space {
    Reserved(Reservation),
    Given(#[expect(dead_code, reason = "it gives the memory back when it is dropped")] Given),
}

/// Memory that was added to the pool at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) first: u32,
    pub(crate) buckets: u32,
    /// `None` in the caller's memory.
    pub(crate) made: Option<Made>,
}

/// The range of addresses of a pool, and the part of it that has memory.
#[derive(Debug)]
pub(crate) struct Extent {
    start: *mut u8,
    /// Bytes from the start that have memory.
    end: AtomicUsize,
    buckets: AtomicUsize,
    /// Buckets whose objects may be allocated. Fewer only while a piece is being added.
    ready: AtomicUsize,
    most_buckets: u32,
    /// See [`places`](Extent::places).
    places: u32,
    step: u32,
    /// The number of pieces. Held while one is added, even while its constructors run.
    growing: Mutex<usize>,
    /// The pieces, in the order in which they were added. Whoever looks at them waits for no thread: only the one that has `growing` sets the
    /// next one, and those that are set stay.
    pieces: Box<[OnceLock<Piece>]>,
    /// The thread that is adding a piece. If one of its constructors needs an object, the thread must not wait for
    /// itself.
    grower: AtomicUsize,
    space: Space,
    want: Want,
}

/// A piece of this size begins at a multiple of this: at a huge page, if it has at least one.
fn unit(bytes: usize) -> usize {
    if bytes >= HUGE {
        HUGE
    } else {
        PAGE
    }
}

impl Extent {
    pub(crate) fn new(plan: &Plan, given: Option<Given>) -> Result<Self, BuildError> {
        let bucket = plan.geometry.bucket_bytes();
        let bytes_of = |buckets: u32| {
            let bytes = (buckets as usize).checked_mul(bucket)?;
            bytes.checked_next_multiple_of(unit(bytes))
        };
        let steps = (plan.most_buckets - plan.buckets).div_ceil(plan.step.max(1)) as usize;
        let later = bytes_of(plan.step).and_then(|step| step.checked_mul(steps));
        let whole = bytes_of(plan.buckets).zip(later).and_then(|(first, later)| first.checked_add(later));
        // Room to align the first piece that has huge pages.
        let whole = whole.and_then(|whole| whole.checked_add(HUGE)).ok_or_else(|| plan.no_memory())?;
        let places = if steps == 0 { plan.buckets as usize } else { whole.div_ceil(bucket) };
        let rows = places.checked_mul(plan.geometry.rows() as usize);
        if rows.is_none_or(|rows| rows >= u32::MAX as usize) {
            return Err(plan.no_memory());
        }
        let (start, space) = match given {
            None => {
                let space = Reservation::new(whole, plan.geometry.align()).map_err(|_| plan.no_memory())?;
                (space.start(), Space::Reserved(space))
            }
            Some(given) => {
                let needed = plan.buckets as usize * bucket;
                let is_aligned = given.start.addr().get() % plan.geometry.align() == 0;
                if given.bytes < needed || !is_aligned || steps > 0 {
                    return Err(BuildError::Given { bytes: given.bytes, needed });
                }
                (given.start, Space::Given(given))
            }
        };
        Ok(Self {
            start: start.as_ptr(),
            end: AtomicUsize::new(0),
            buckets: AtomicUsize::new(0),
            ready: AtomicUsize::new(0),
            most_buckets: plan.most_buckets,
            places: places as u32,
            step: plan.step,
            growing: Mutex::new(0),
            // The first one, and one for each step.
            pieces: boxed(1 + steps, OnceLock::new).ok_or_else(|| plan.no_memory())?,
            grower: AtomicUsize::new(0),
            space,
            want: plan.want,
        })
    }

    #[inline(always)]
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    #[inline(always)]
    pub(crate) fn end(&self) -> usize {
        // Relaxed: the caller got its object after `end` covered the object's piece.
        self.end.load(Ordering::Relaxed)
    }

    /// Number of buckets that the pool may grow to.
    pub(crate) fn maximum(&self) -> u32 {
        self.most_buckets
    }

    /// Number of buckets that need headers, including gaps between pieces.
    pub(crate) fn places(&self) -> u32 {
        self.places
    }

    pub(crate) fn buckets(&self) -> usize {
        // Acquire: pairs with the release in `add`, which publishes the rows of this many buckets.
        self.buckets.load(Ordering::Acquire)
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> + '_ {
        self.pieces.iter().map_while(OnceLock::get).copied()
    }

    /// Calls `destroy` for every object, even if some of the calls panic.
    pub(crate) fn destroy_all(&mut self, geometry: &Geometry, destroy: unsafe fn(*mut u8)) {
        let buckets = self.pieces().flat_map(|piece| piece.first..piece.first + piece.buckets);
        self.destroy(geometry, destroy, buckets.flat_map(|bucket| places(geometry, bucket)));
    }

    /// Calls `destroy` for the objects in order, and then resumes the first panic. Each place is visited once, and holds an object that
    /// nothing uses any more.
    fn destroy(&self, geometry: &Geometry, destroy: unsafe fn(*mut u8), places: impl Iterator<Item = Place>) {
        let mut first = None;
        for place in places {
            let object = self.start.wrapping_add(geometry.offset(place));
            // SAFETY: nothing uses the object, and this is the only call for it, by the caller's promise.
            keeping(&mut first, || unsafe { destroy(object) });
        }
        resume(first);
    }
}

/// The objects of the bucket with this number.
fn places(geometry: &Geometry, bucket: u32) -> impl Iterator<Item = Place> {
    let (rows, objects) = (geometry.rows(), geometry.objects());
    (0..objects).map(move |index| Place {
        row: bucket * rows + index / super::geometry::ROW,
        bit: index % super::geometry::ROW,
    })
}

impl Core {
    /// The pieces of memory.
    pub(crate) fn memory(&self) -> impl Iterator<Item = MemoryInfo> + '_ {
        let bucket = self.geometry.bucket_bytes();
        self.extent.pieces().map(move |piece| MemoryInfo {
            start: self.extent.start.addr() + piece.first as usize * bucket,
            bytes: piece.buckets as usize * bucket,
            buckets: piece.buckets as usize,
            backing: piece.made.map_or(Backing::Given, Into::into),
            node: self.extent.want.node,
        })
    }

    /// For [`grow`](Core::grow): to be read before the search for a free object.
    pub(crate) fn seen(&self) -> usize {
        // Acquire: pairs with the release in `add`, so that a search finds what was added before.
        self.extent.ready.load(Ordering::Acquire)
    }

    /// Adds pieces, for a caller that found too few objects among what it had [seen](Core::seen), until they hold all that are `missing`.
    /// Those that others have added since count. Adds none if the pool may not grow by that much. Returns whether there are more pieces now,
    /// even too few: then the caller searches again.
    #[cold]
    pub(crate) fn grow(&self, seen: usize, missing: usize) -> bool {
        let extent = &self.extent;
        let wanted = missing.div_ceil(self.geometry.objects() as usize);
        let is_possible = wanted <= extent.most_buckets as usize - seen;
        let target = seen + if is_possible { wanted } else { 1 };
        // If there are more buckets, the last piece is about to be ready, and another thread has the lock.
        if !is_possible && extent.buckets() == seen {
            return false;
        }
        let me = stillpoint_sys::os::thread_handle();
        // Relaxed: only this thread stores its own number here.
        if extent.grower.load(Ordering::Relaxed) == me {
            return self.seen() > seen;
        }
        // The lock is given back after each piece: a thread that waits for it may need no more.
        while self.seen() < target {
            let mut pieces = extent.growing.lock().unwrap_or_else(PoisonError::into_inner);
            let more = (extent.most_buckets as usize - extent.buckets()).min(extent.step as usize);
            if self.seen() >= target || !is_possible || more == 0 {
                break;
            }
            extent.grower.store(me, Ordering::Relaxed);
            let _named = Named(&extent.grower);
            if self.add(more as u32, &mut pieces).is_err() {
                break;
            }
        }
        self.seen() > seen
    }

    /// Adds `buckets` buckets.
    pub(crate) fn extend(&self, buckets: u32) -> Result<(), BuildError> {
        let mut pieces = self.extent.growing.lock().unwrap_or_else(PoisonError::into_inner);
        self.add(buckets, &mut pieces)
    }

    /// Adds a piece. The caller holds `growing`, and passes the number of pieces.
    fn add(&self, buckets: u32, pieces: &mut usize) -> Result<(), BuildError> {
        let bucket_bytes = self.geometry.bucket_bytes();
        let bytes = buckets as usize * bucket_bytes;
        let unit = unit(bytes);
        let offset = self.extent.end().next_multiple_of(unit).next_multiple_of(bucket_bytes);
        let first = (offset / bucket_bytes) as u32;
        let made = match &self.extent.space {
            Space::Reserved(space) => {
                // SAFETY: the space was reserved for all pieces, and this one begins after the others.
                let made = unsafe { space.fill(offset, bytes, self.extent.want) };
                Some(made.map_err(|refusal| refused(refusal, bytes))?)
            }
            // `Extent::new` checked the caller's memory, which is the only piece.
            Space::Given(_) => None,
        };
        let piece = Piece { first, buckets, made };
        self.construct(&piece);
        let is_next = self.extent.pieces[*pieces].set(piece).is_ok();
        debug_assert!(is_next, "only the caller adds pieces");
        *pieces += 1;
        let rows = self.geometry.rows();
        for bucket in first..first + buckets {
            let row = &self.rows[(bucket * rows) as usize];
            row.first.set(bucket * rows);
            (bucket * rows..(bucket + 1) * rows).for_each(|row| self.rows[row as usize].next.set(row + 1));
            if self.plan.common {
                self.put_in_common(bucket * rows);
            } else {
                row.free.set(self.geometry.objects());
            }
            let below = if bucket + 1 < first + buckets { (bucket + 1) * rows } else { super::row::NONE };
            // Relaxed: published with the chain.
            row.below.store(below, Ordering::Relaxed);
        }
        // Relaxed: see `end`. Giving the chain to the store publishes this.
        self.extent.end.store(offset + bytes, Ordering::Relaxed);
        // Release: pairs with the acquire in `buckets`.
        self.extent.buckets.fetch_add(buckets as usize, Ordering::Release);
        self.set_high_water(self.extent.buckets() as u32);
        if buckets > 0 {
            let last = (first + buckets - 1) * rows;
            self.store.give(&self.rows, Chain { first: first * rows, last, len: buckets });
        }
        // Release: pairs with the acquire in `seen`.
        self.extent.ready.fetch_add(buckets as usize, Ordering::Release);
        Ok(())
    }

    /// Makes the objects of a piece. After a panic, the objects made so far are destroyed, and the memory is given
    /// back.
    fn construct(&self, piece: &Piece) {
        struct Undo<'c> {
            core: &'c Core,
            piece: &'c Piece,
            made: usize,
        }
        impl Drop for Undo<'_> {
            fn drop(&mut self) {
                let geometry = &self.core.geometry;
                if let Some(destroy) = self.core.life.destroy {
                    let buckets = self.piece.first..self.piece.first + self.piece.buckets;
                    let places = buckets.flat_map(|bucket| places(geometry, bucket)).take(self.made);
                    self.core.extent.destroy(geometry, destroy, places);
                }
                if let (Space::Reserved(space), Some(made)) = (&self.core.extent.space, self.piece.made) {
                    let bytes = self.piece.buckets as usize * geometry.bucket_bytes();
                    let offset = self.piece.first as usize * geometry.bucket_bytes();
                    // SAFETY: the piece was filled, and its objects have been destroyed.
                    unsafe { space.empty(offset, bytes, made) };
                }
            }
        }
        let mut undo = Undo { core: self, piece, made: 0 };
        for bucket in piece.first..piece.first + piece.buckets {
            for place in places(&self.geometry, bucket) {
                let object = self.extent.start.wrapping_add(self.geometry.offset(place));
                if let Some(construct) = &self.life.construct {
                    construct(object);
                    undo.made += 1;
                } else if self.is_hardened() {
                    // SAFETY: the object is in the piece's memory, which no other thread uses yet.
                    unsafe { super::harden::poison(object, self.plan.size) };
                }
            }
        }
        std::mem::forget(undo);
    }
}

/// Clears `grower` when dropped, even by a panic.
struct Named<'g>(&'g AtomicUsize);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        // Relaxed: other threads do not act on this word. See `grow`.
        self.0.store(0, Ordering::Relaxed);
    }
}
