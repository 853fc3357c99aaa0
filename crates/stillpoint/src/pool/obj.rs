use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use super::engine::{Core, Shard};

/// An allocated object. Dropping it frees it, on any thread.
///
/// On the thread whose [`Local`](super::Local) allocated it, a drop is as cheap as [`Local::free`](super::Local::free).
/// On another thread, it takes an atomic exchange on a shared word. To free many objects there, use a local: see
/// [`Local::free_many`](super::Local::free_many).
///
/// ```
/// use stillpoint::pool::Pool;
///
/// let pool = Pool::new(100, || [0u8; 1500])?;
/// let mut packet = pool.local()?.alloc().expect("an object is free");
/// packet[0] = 0x45;
///
/// let address = packet.into_raw(); // goes through a ring of addresses, for example
/// // SAFETY: the address came from `into_raw`, once, and nothing else uses the packet.
/// let packet = unsafe { pool.from_raw(address.as_ptr()) }.expect("one of this pool");
/// assert_eq!(packet[0], 0x45);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Obj<'p, T: Send + 'static> {
    object: NonNull<T>,
    /// The shard that the object came from.
    shard: &'p Shard,
    owns: Owns<T>,
}

/// Marker for a type that owns objects of the pool. Such a type does not drop the objects, and it writes to memory that
/// later users will read as a `T`. So it is invariant in `T`, as the pool is. If it were covariant, a
/// `for<'a> fn(&'a str)` of the pool could be treated as a `fn(&'static str)`, be overwritten with one, and be
/// allocated again as the former type. A `NonNull<T>` would be covariant. The first `T` gives the marker the auto
/// traits and the drop check of a `T`.
pub(super) type Owns<T> = PhantomData<(T, fn(T) -> T)>;

// SAFETY: an `Obj` owns its object, which is `Send`, and a shard is `Sync`.
unsafe impl<T: Send + 'static> Send for Obj<'_, T> {}
// SAFETY: a shared reference gives only shared access to the object.
unsafe impl<T: Send + Sync + 'static> Sync for Obj<'_, T> {}

impl<'p, T: Send + 'static> Obj<'p, T> {
    /// # Safety
    /// The object belongs to the shard's pool, is of this type, and only the caller has it.
    #[inline(always)]
    pub(super) unsafe fn new(object: NonNull<T>, shard: &'p Shard) -> Self {
        Self { object, shard, owns: PhantomData }
    }

    #[inline(always)]
    pub(super) fn address(&self) -> NonNull<u8> {
        self.object.cast()
    }

    #[inline(always)]
    pub(super) fn is_of(&self, core: &Core) -> bool {
        ptr::eq(self.shard.core(), core)
    }

    /// Gives the object away as an address, which can be published to other threads. The object stays in use until
    /// [`Pool::from_raw`](super::Pool::from_raw) takes it back and it is freed.
    pub fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).object
    }
}

impl<T: Send + 'static> Deref for Obj<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this value owns the object, which is initialised.
        unsafe { self.object.as_ref() }
    }
}

impl<T: Send + 'static> DerefMut for Obj<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this value owns the object, which is initialised, and is borrowed exclusively.
        unsafe { self.object.as_mut() }
    }
}

impl<T: Send + 'static> Drop for Obj<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the object belongs to the shard's pool, and this value gives it up here.
        unsafe { Core::free_anywhere(self.shard, self.object.as_ptr().cast()) };
    }
}

impl<T: Send + fmt::Debug + 'static> fmt::Debug for Obj<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Obj").field(&**self).finish()
    }
}
