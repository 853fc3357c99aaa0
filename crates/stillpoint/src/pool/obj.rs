use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use super::engine::{Core, Shard};

/// An object that is out. When dropped, it goes back to its pool, from whatever thread.
///
/// In the thread whose [`Local`](super::Local) it came from, that is as cheap as [`Local::free`](super::Local::free). In
/// another one it takes an exchange on a shared word: there, free it through a local, many at a time.
///
/// ```
/// use stillpoint::pool::Pool;
///
/// let pool = Pool::new(100, || [0u8; 1500])?;
/// let mut packet = pool.local()?.alloc().expect("nobody has one");
/// packet[0] = 0x45;
///
/// let address = packet.into_raw(); // goes through a ring of addresses, say
/// // SAFETY: it came from `into_raw`, once, and nobody else uses the packet.
/// let packet = unsafe { pool.from_raw(address.as_ptr()) }.expect("one of this pool");
/// assert_eq!(packet[0], 0x45);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Obj<'p, T: Send + 'static> {
    object: NonNull<T>,
    /// The shard that it came from.
    shard: &'p Shard,
    owns: Owns<T>,
}

/// What owns objects of the pool's: it drops nothing of them, and writes to what others will read as a `T`. So it is
/// invariant, as the pool is: were it covariant, a `for<'a> fn(&'a str)` of the pool could be made a `fn(&'static str)`,
/// overwritten, and handed out again as what it was. `NonNull<T>` does not see to that. The first `T` keeps the rest as it is
/// for what contains one.
pub(super) type Owns<T> = PhantomData<(T, fn(T) -> T)>;

// SAFETY: it owns its object, which may be used by any thread; a shard may be referred to by any thread.
unsafe impl<T: Send + 'static> Send for Obj<'_, T> {}
// SAFETY: a shared reference gives shared access to the object alone.
unsafe impl<T: Send + Sync + 'static> Sync for Obj<'_, T> {}

impl<'p, T: Send + 'static> Obj<'p, T> {
    /// # Safety
    /// The object is one of the shard's pool, of this type, and the caller's alone.
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

    /// Gives the object away by its address, to be published to other threads. It stays out until
    /// [`Pool::from_raw`](super::Pool::from_raw) has it again.
    pub fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).object
    }
}

impl<T: Send + 'static> Deref for Obj<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the object is this value's, and initialised.
        unsafe { self.object.as_ref() }
    }
}

impl<T: Send + 'static> DerefMut for Obj<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { self.object.as_mut() }
    }
}

impl<T: Send + 'static> Drop for Obj<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the object is of the shard's pool, and given up here.
        unsafe { Core::free_anywhere(self.shard, self.object.as_ptr().cast()) };
    }
}

impl<T: Send + fmt::Debug + 'static> fmt::Debug for Obj<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Obj").field(&**self).finish()
    }
}
