use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::engine::{Core, Shard};
use super::obj::{Obj, Owns};

/// Allocated objects of one pool, held by address. To allocate and free them costs as little as in a
/// [`RawPool`](super::raw::RawPool). An object takes eight bytes here; an [`Obj`] takes sixteen, and is checked for its pool
/// when it is freed.
///
/// [`Local::alloc_bulk`](super::Local::alloc_bulk) fills a bulk, and [`Local::free_bulk`](super::Local::free_bulk)
/// empties it. When a bulk is dropped, the objects left in it are freed one by one, as each [`Obj`] is.
///
/// ```
/// use stillpoint::pool::Pool;
///
/// let pool = Pool::new(1_000, || [0u8; 64])?;
/// let local = pool.local()?;
/// let mut burst = local.bulk(32); // room for a burst of packets
/// local.alloc_bulk(32, &mut burst)?;
/// burst.iter_mut().for_each(|packet| packet[0] = 4);
/// if let Some(packet) = burst.get_mut(7) {
///     packet[0] = 6;
/// }
/// assert_eq!(burst.iter().filter(|packet| packet[0] == 6).count(), 1);
/// assert_eq!(burst.get(7).map(|packet| packet[0]), Some(6));
///
/// local.free_bulk(31, &mut burst); // all but the oldest
/// assert_eq!(burst.pop().map(|packet| packet[0]), Some(4));
/// assert!(burst.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Bulk<'p, T: Send + 'static> {
    /// Owned by this value. The objects are initialised, and belong to the shard's pool.
    objects: Vec<NonNull<T>>,
    /// The shard of the local that made it.
    shard: &'p Shard,
    owns: Owns<T>,
}

// SAFETY: a bulk owns its objects, which are `Send`, and a shard is `Sync`.
unsafe impl<T: Send + 'static> Send for Bulk<'_, T> {}
// SAFETY: a shared reference gives only shared access to the objects.
unsafe impl<T: Send + Sync + 'static> Sync for Bulk<'_, T> {}

impl<'p, T: Send + 'static> Bulk<'p, T> {
    /// An empty bulk.
    pub(super) fn new(shard: &'p Shard, room: usize) -> Self {
        Self { objects: Vec::with_capacity(room), shard, owns: PhantomData }
    }

    /// Room for `count` more objects at the end.
    #[inline(always)]
    pub(super) fn room(&mut self, count: usize) -> *mut *mut u8 {
        self.objects.reserve(count);
        self.objects.spare_capacity_mut().as_mut_ptr().cast()
    }

    /// # Safety
    /// `count` initialised objects of the shard's pool were written to the [`room`](Bulk::room), and only the caller
    /// has them.
    #[inline(always)]
    pub(super) unsafe fn grew(&mut self, count: usize) {
        // SAFETY: `count` objects were written behind the others, by the caller's promise.
        unsafe { self.objects.set_len(self.objects.len() + count) };
    }

    /// Removes the newest `count` objects, or all if there are fewer: the caller frees them. The slice is valid until
    /// the next call.
    #[inline(always)]
    pub(super) fn give_up(&mut self, count: usize) -> &[*mut u8] {
        let objects = self.drain_raw(count);
        // SAFETY: a `NonNull` has the layout of a pointer.
        unsafe { std::slice::from_raw_parts(objects.as_ptr().cast(), objects.len()) }
    }

    #[inline(always)]
    pub(super) fn is_of(&self, core: &Core) -> bool {
        std::ptr::eq(self.shard.core(), core)
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The object at a position.
    pub fn get(&self, index: usize) -> Option<&T> {
        // SAFETY: this value owns the object, which is initialised.
        self.objects.get(index).map(|object| unsafe { object.as_ref() })
    }

    /// The object at a position, mutably.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        // SAFETY: this value owns the object, which is initialised, and is borrowed exclusively.
        self.objects.get_mut(index).map(|object| unsafe { object.as_mut() })
    }

    /// The objects, the newest one last.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> + DoubleEndedIterator {
        // SAFETY: this value owns the objects, which are initialised.
        self.objects.iter().map(|object| unsafe { object.as_ref() })
    }

    /// The objects, mutably.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> + DoubleEndedIterator {
        // SAFETY: this value owns the objects, which are initialised, and is borrowed exclusively. Each object is
        // returned once.
        self.objects.iter_mut().map(|object| unsafe { object.as_mut() })
    }

    /// Gives the newest `count` objects away as addresses, or all if there are fewer: what [`Obj::into_raw`] is for one
    /// object. They stay in use until [`extend_raw`](Bulk::extend_raw) or [`Pool::from_raw`](super::Pool::from_raw) takes
    /// them back. Takes constant time. The slice is overwritten by what next fills the bulk.
    ///
    /// One thread hands bursts of addresses to another, as a ring of a device does:
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use stillpoint::pool::Pool;
    ///
    /// let pool = Pool::new(1_000, || [0_u8; 1500])?;
    /// let (send, bursts) = mpsc::channel::<Vec<usize>>();
    /// std::thread::scope(|scope| {
    ///     let pool = &pool;
    ///     scope.spawn(move || {
    ///         let local = pool.local().expect("there are fewer threads than the pool allows");
    ///         let mut burst = local.bulk(32);
    ///         for addresses in bursts {
    ///             let packets: Vec<_> = addresses.iter().map(|address| *address as *mut [u8; 1500]).collect();
    ///             // SAFETY: they come from `drain_raw` of a bulk of this pool, each once.
    ///             unsafe { burst.extend_raw(&packets) };
    ///             assert!(burst.iter().all(|packet| packet[0] == 0x45));
    ///             local.free_bulk(usize::MAX, &mut burst);
    ///         }
    ///     });
    ///     let local = pool.local().expect("as above");
    ///     let mut burst = local.bulk(32);
    ///     local.alloc_bulk(32, &mut burst).expect("the pool is new");
    ///     burst.iter_mut().for_each(|packet| packet[0] = 0x45);
    ///     let addresses = burst.drain_raw(32).iter().map(|packet| packet.as_ptr() as usize);
    ///     send.send(addresses.collect()).expect("the other thread receives");
    ///     drop(send);
    /// });
    /// assert_eq!(pool.stats().in_use, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    #[must_use = "the objects stay in use until their addresses are taken back"]
    pub fn drain_raw(&mut self, count: usize) -> &[NonNull<T>] {
        let (len, start) = (self.objects.len(), self.objects.as_ptr());
        let left = len.saturating_sub(count);
        // SAFETY: `left` is not above the length.
        unsafe { self.objects.set_len(left) };
        // SAFETY: these addresses were in the vector, and nothing overwrites them while the bulk is borrowed.
        unsafe { std::slice::from_raw_parts(start.add(left), len - left) }
    }

    /// Takes objects back that were given away as addresses, as the newest ones. Takes time in proportion to their
    /// number.
    ///
    /// # Safety
    /// Each address came from [`drain_raw`](Bulk::drain_raw) or [`Obj::into_raw`] of an object of this bulk's pool, was not
    /// taken back since, and only the caller has it. Nobody reads the object any more when the bulk is next used mutably, freed from or
    /// dropped.
    #[inline(always)]
    pub unsafe fn extend_raw(&mut self, objects: &[*mut T]) {
        // SAFETY: a `NonNull` has the layout of a pointer, and no object has the address 0, by the caller's promise.
        self.objects
            .extend_from_slice(unsafe { std::slice::from_raw_parts(objects.as_ptr().cast(), objects.len()) });
    }

    /// Takes the newest object out.
    pub fn pop(&mut self) -> Option<Obj<'p, T>> {
        // SAFETY: the object belongs to the shard's pool, and this value does not own it any more.
        self.objects.pop().map(|object| unsafe { Obj::new(object, self.shard) })
    }
}

impl<T: Send + 'static> Drop for Bulk<'_, T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl<T: Send + fmt::Debug + 'static> fmt::Debug for Bulk<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
