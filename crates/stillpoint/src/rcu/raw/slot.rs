use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;

use crate::fence::ReaderFence;
use crate::rcu::domain::Domain;
use crate::rcu::engine::core::read;
use crate::rcu::engine::core::record::{self, Record};
use crate::rcu::owned::{Hold, OwnedProtected};
use crate::rcu::reader::Reader;

/// Where a record has its first slot.
const FIRST: usize = Record::OFFSETS[2];

/// A hazard slot, of a reader or of no thread: while it holds an address, the object there is not freed.
///
/// A plain value of one word. If it is forgotten, the object is held until the slot's reader is dropped; if the slot belongs to
/// no thread, until the last handle of the domain is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the object is protected until the slot is released, or the reader is dropped"]
pub struct Slot {
    address: NonNull<()>,
}

impl Slot {
    pub(crate) fn new(slot: record::Slot<'_>) -> Self {
        Self { address: slot.into_raw() }
    }

    /// The slot's address. Code in another language stores null there, with release, to release what a *first* slot holds: the
    /// slot at [`offsets::HAZARD`](super::offsets::HAZARD). Other slots are given back by [`release`](Slot::release).
    #[inline(always)]
    pub fn into_raw(self) -> NonNull<()> {
        self.address
    }

    /// The slot with this address.
    ///
    /// ```
    /// use std::sync::atomic::AtomicPtr;
    /// use stillpoint::rcu::{raw, Domain};
    ///
    /// let domain = Domain::new();
    /// let reader = domain.reader();
    /// let mut object = 7;
    /// let link = AtomicPtr::new(&raw mut object);
    /// let (_, slot) = raw::protect(&reader, &link).unwrap();
    /// let address = slot.into_raw();
    /// // SAFETY: it is the address of this slot, which is released once.
    /// unsafe { raw::Slot::from_raw(address).release() };
    /// ```
    ///
    /// # Safety
    /// The address came from [`into_raw`](Slot::into_raw) of a slot whose reader is still alive.
    #[inline(always)]
    pub unsafe fn from_raw(address: NonNull<()>) -> Self {
        Self { address }
    }

    /// A slot that belongs to no thread. It is set again and again, and may be handed from thread to thread, even while it
    /// holds an object. It has its own record of 128 bytes, which each scan of the domain looks at. It counts in
    /// [`Stats::owned`](crate::rcu::Stats::owned). Each load vouches, as a reader's does; writers issue heavy fences for a slot that was
    /// not loaded lately. Children of a `fork` keep it.
    ///
    /// **It is no handle of the domain.** When the last handle is dropped, what waits is freed, whatever such slots hold; and the memory of
    /// the slots goes.
    ///
    /// Lock-free, with a full fence. Allocates if the domain has more readers and such slots than ever before.
    ///
    /// Code in another language holds an object by the accesses of a protected load (see [`Parts`](super::Parts)), and releases
    /// it as a reader does with its first slot. The slot is at [`offsets::HAZARD`](super::offsets::HAZARD) of its record, and is here from
    /// the start. *Barrier* is a full fence if [`needs_full_fence`](Slot::needs_full_fence) returns true. The token is at
    /// [`token`](Slot::token).
    ///
    /// ```
    /// use std::ptr;
    /// use std::sync::atomic::{AtomicPtr, Ordering};
    /// use stillpoint::rcu::{raw::Slot, Domain};
    ///
    /// let domain = Domain::new();
    /// let slot = Slot::of_nobody(&domain);
    /// let mut object = 7;
    /// let link = AtomicPtr::new(&raw mut object);
    /// // SAFETY: this thread has the slot, which is given back once, at the end.
    /// unsafe {
    ///     assert_eq!(slot.load(&domain, &link).unwrap().as_ptr(), &raw mut object);
    ///     slot.release(); // it may be set again
    ///     link.store(ptr::null_mut(), Ordering::Release);
    ///     assert!(slot.load(&domain, &link).is_none());
    ///     slot.give_back(&domain);
    /// }
    /// ```
    pub fn of_nobody(domain: &Domain) -> Self {
        // SAFETY: the domain is borrowed, and such slots are not used after its last handle is dropped.
        let record: &Record = unsafe { domain.core().protocol.claim_slot().slot() };
        // SAFETY: the slot is in the record. Its address is made from that of the record, to which `load` returns.
        Self { address: unsafe { NonNull::from(record).byte_add(FIRST) }.cast() }
    }

    /// The token of a domain, a `u64`, for code in another language that loads by slots. Its address does not change as long as the
    /// domain exists.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use stillpoint::rcu::{raw::Slot, Domain};
    ///
    /// let domain = Domain::new();
    /// // SAFETY: it is valid as long as the domain.
    /// let token = unsafe { Slot::token(&domain).cast::<AtomicU64>().as_ref() };
    /// let before = token.load(Ordering::Acquire);
    /// domain.start();
    /// assert_eq!(token.load(Ordering::Acquire), before + 1);
    /// ```
    pub fn token(domain: &Domain) -> NonNull<u64> {
        domain.core().protocol.token_address()
    }

    /// Whether slots that belong to no thread need full fences in this domain. It never changes.
    ///
    /// ```
    /// use stillpoint::{fence::Mode, rcu::{raw::Slot, Domain}};
    ///
    /// let domain = Domain::builder().fence(Mode::Symmetric).build()?;
    /// assert!(Slot::needs_full_fence(&domain));
    /// # Ok::<(), stillpoint::rcu::BuildError>(())
    /// ```
    pub fn needs_full_fence(domain: &Domain) -> bool {
        domain.core().protocol.reader_fence() != ReaderFence::Light
    }

    /// As [`protect`], in a slot that belongs to no thread. Releases what the slot holds, and holds what `source` points to
    /// until the next load, or until the slot is released or given back.
    ///
    /// # Safety
    /// The slot came from [`of_nobody`](Slot::of_nobody) of this domain, and was not given back. No other thread uses it
    /// meanwhile: a thread that handed it over synchronized with this one. What the slot holds is not used any more. What it will hold is
    /// not used after the last handle of the domain is dropped.
    pub unsafe fn load<T>(self, domain: &Domain, source: &AtomicPtr<T>) -> Option<NonNull<T>> {
        let protocol = &domain.core().protocol;
        // SAFETY: the slot came from `of_nobody`, by the caller's promise, so it is in a record, from whose address its own was made. The
        // record is alive, and no other thread uses it.
        let record: &Record = unsafe { self.address.byte_sub(FIRST).cast().as_ref() };
        protocol.vouch(record);
        let slot = record.first_hazard();
        // Relaxed: this address is not followed.
        let Some(candidate) = NonNull::new(source.load(Ordering::Relaxed)) else {
            record::clear_hazard(&slot);
            return None;
        };
        read::protect_from(protocol.reader_fence(), source, candidate, &slot)
    }

    /// Releases what a slot that belongs to no thread holds, and gives the slot back. Takes time in proportion to the number of
    /// chunks of 64 records.
    ///
    /// # Safety
    /// As for [`load`](Slot::load). No thread uses the slot afterwards.
    pub unsafe fn give_back(self, domain: &Domain) {
        let core = domain.core();
        let claim = core.protocol.records.claim_at(self.address.addr().get());
        core.unregister(&claim.expect("the slot is one of the domain's"));
    }

    /// Releases the object that the slot holds, which may be freed from now on. Constant time: one store for the first slot of a
    /// reader, and a few loads and stores for others.
    ///
    /// # Safety
    /// The reader is still alive, and the calling thread is the reader's; or the slot came from [`of_nobody`](Slot::of_nobody),
    /// and the calling thread has it, and the domain has a handle. The slot was not released since [`protect`] or
    /// [`Parts::slot`](super::Parts::slot) returned it.
    #[inline(always)]
    pub unsafe fn release(self) {
        // SAFETY: the record is alive, and the calling thread may release the slot, by the caller's promise.
        unsafe { record::Slot::from_raw(self.address).release() };
    }
}

/// Loads `source` and holds what it points to, as [`RcuCell::protect`](crate::rcu::RcuCell::protect) does. No reclaimer of the
/// reader's domain frees it until the slot is released or the reader is dropped. `None` if `source` holds null.
///
/// The pointer may be followed if what `source` points to is alive as long as it is linked there, and is afterwards retired to
/// the reader's domain, by this address. Lock-free: starts again if `source` has changed meanwhile.
///
/// ```
/// use std::sync::atomic::AtomicPtr;
/// use stillpoint::rcu::{raw, Domain};
///
/// let domain = Domain::new();
/// let reader = domain.reader();
/// let mut object = 7;
/// let link = AtomicPtr::new(&raw mut object);
/// let (found, slot) = raw::protect(&reader, &link).unwrap();
/// assert_eq!(found.as_ptr(), &raw mut object);
/// // SAFETY: this thread has the reader, and the slot is released once.
/// unsafe { slot.release() };
/// ```
#[inline(always)]
pub fn protect<T>(reader: &Reader, source: &AtomicPtr<T>) -> Option<(NonNull<T>, Slot)> {
    reader.vouch();
    // SAFETY: the reader is borrowed on its thread, and the slot is a free one.
    let (object, slot) = unsafe { read::protect(reader.fence(), source, || reader.free_hazard()) }?;
    Some((object, Slot::new(slot)))
}

/// As [`protect`], without a reader. The value that holds the object is bound to no thread; any thread may drop it, which
/// releases the object. It does not keep `source` alive. It costs as much as
/// [`RcuCell::protect_owned`](crate::rcu::RcuCell::protect_owned).
///
/// ```
/// use std::sync::atomic::AtomicPtr;
/// use stillpoint::rcu::{raw, Domain};
///
/// let domain = Domain::new();
/// let mut object = 7;
/// let link = AtomicPtr::new(&raw mut object);
/// let (found, held) = raw::protect_owned(&domain, &link).unwrap();
/// assert_eq!(found.as_ptr(), &raw mut object);
/// assert_eq!(domain.stats().owned, 1);
/// std::thread::spawn(move || drop(held)).join().unwrap(); // releases the object
/// ```
pub fn protect_owned<T>(
    domain: &Domain,
    source: &AtomicPtr<T>,
) -> Option<(NonNull<T>, OwnedProtected<'static, ()>)> {
    let (object, claim) = domain.core().protocol.protect_owned(source)?;
    let hold = Hold::Claimed { core: Arc::clone(domain.core()), claim };
    // SAFETY: `()` has no bytes, so any address will do.
    Some((object, unsafe { OwnedProtected::new(NonNull::dangling(), hold, None) }))
}
