use std::fmt;
use std::ptr::NonNull;

use crate::rcu::domain::Domain;
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::limits::RetireErrorKind;
use crate::rcu::retire::{self, Kept, Queue};

/// An object to be retired, and the function that destroys it. See the [example](super).
#[derive(Debug, Clone, Copy)]
pub struct Object {
    /// The address that readers protect.
    pub address: NonNull<()>,
    /// Its size in bytes, for limits and statistics.
    pub bytes: usize,
    /// Passed to `destroy`. Null, or the address of memory that is not freed before the call.
    pub context: *const (),
    /// Destroys the object: called once, with address and context, when no reader can hold the object.
    pub destroy: unsafe extern "C-unwind" fn(object: NonNull<()>, context: *const ()),
}

impl Object {
    /// # Safety
    /// As for [`Reclaimer::retire_raw`](crate::rcu::Reclaimer::retire_raw).
    #[inline]
    pub(in crate::rcu) unsafe fn into_garbage(self) -> Garbage {
        // SAFETY: the object is unlinked, and the caller owns it, by its promise.
        unsafe { Garbage::in_context(self.address, self.bytes, self.context, self.destroy) }
    }
}

/// Leaves an object to its domain, without a reclaimer, like a [`Retired`](crate::rcu::Retired) that is dropped. It cannot be
/// refused. Polls of reclaimers, [`Domain::synchronize`], and [`Domain::barrier`] free it.
///
/// ```
/// use std::ptr::{self, NonNull};
/// use stillpoint::rcu::{raw, Domain};
///
/// unsafe extern "C-unwind" fn destroy(object: NonNull<()>, _context: *const ()) {
///     // SAFETY: it came from `Box::into_raw` below.
///     drop(unsafe { Box::from_raw(object.cast::<u64>().as_ptr()) });
/// }
///
/// let domain = Domain::new();
/// let address = NonNull::from(Box::leak(Box::new(7_u64))).cast();
/// // SAFETY: it was never linked, and `destroy` frees what `Box` has made.
/// unsafe { raw::leave(&domain, raw::Object { address, bytes: 8, context: ptr::null(), destroy }) };
/// domain.barrier()?;
/// assert_eq!(domain.stats().freed, 1);
/// # Ok::<(), stillpoint::rcu::wait::SynchronizeError>(())
/// ```
///
/// # Safety
/// As for [`Reclaimer::retire_raw`](crate::rcu::Reclaimer::retire_raw).
pub unsafe fn leave(domain: &Domain, object: Object) {
    // SAFETY: the object is unlinked, and the caller owns it, by its promise.
    domain.core().retire_orphan(unsafe { object.into_garbage() });
}

/// An object that was refused: the caller owns it again.
#[derive(Debug)]
#[must_use = "the object is leaked unless it is retired later, or freed"]
pub struct Refused {
    /// The object.
    pub object: Object,
    /// Why it was refused.
    pub kind: RetireErrorKind,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl std::error::Error for Refused {}

/// Retires an object for which there was no room at once.
///
/// # Safety
/// As for [`Reclaimer::retire_raw`](crate::rcu::Reclaimer::retire_raw).
#[cold]
#[inline(never)]
pub(in crate::rcu) unsafe fn retire(queue: &mut impl Queue, object: Object) -> Result<(), Refused> {
    // SAFETY: the object is unlinked, and the caller owns it, by its promise.
    let kept = Kept::new(unsafe { object.into_garbage() }, queue.core());
    // A panic of a destructor drops `kept`, which leaves the object to the domain.
    let answer = retire::room(queue, object.bytes, None);
    let garbage = kept.take();
    answer.map(|()| queue.push(garbage)).map_err(|kind| Refused { object, kind })
}
