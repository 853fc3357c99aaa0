use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::slot::Slot;
use crate::fence::{FenceError, ReaderFence};
use crate::frames::{is_foreign, is_freeing, Foreign};
use crate::rcu::domain::Domain;
use crate::rcu::engine::core::grace::Grace;
use crate::rcu::engine::core::record::{is_open, Record};
use crate::rcu::engine::wait::error::SynchronizeError;
use crate::rcu::engine::Core;
use crate::rcu::qsbr::QsbrReader;
use crate::rcu::reader::{Guard, Reader};
use crate::rcu::region::sealed::Sealed;
use crate::rcu::wait::Token;

/// Offsets of the fields of a reader's record, in bytes from [`Parts::record`].
pub mod offsets {
    /// The state: a `u64`. See [`states`](super::states).
    pub const STATE: usize = 0;
    /// Requests to the reader: a `u32`, 0 for none.
    pub const ATTENTION: usize = 8;
    /// The first hazard slot: a pointer, null while it is free.
    pub const HAZARD: usize = 56;
}

/// The states of a reader, apart from that of an open region or of an online reader with quiescent states, which is a token. As signed
/// numbers, only those are positive.
pub mod states {
    use crate::rcu::engine::core::record;

    /// No region is open. The other bits are the token for which the reader *vouches*: whatever it loads from now on is newer than
    /// what was unlinked before that token was started. Without other bits, the reader is coming back, and vouches for nothing.
    pub const IDLE: u64 = record::IDLE;
    /// The reader loads nothing before it has [come back](super::Parts::come_back): writers ignore it. New readers begin with it.
    pub const AWAY: u64 = record::AWAY;
}

const _: () = {
    let [state, attention, hazard] = Record::OFFSETS;
    assert!(state == offsets::STATE && attention == offsets::ATTENTION);
    assert!(hazard == offsets::HAZARD);
};

/// The parts of a reader that code in another language needs, and calls for what that code does not do itself.
///
/// Code in another language that does the following is a reader like any other. All accesses must be atomic, in the order
/// shown, on the reader's thread. *Barrier* means a sequentially consistent fence if
/// [`needs_full_fence`](Parts::needs_full_fence) returns true, and a compiler barrier otherwise.
///
/// | | |
/// |---|---|
/// | quiescent state, online | *t* = token, acquire; if state ≠ *t*: state ← *t*, release; compiler barrier, and, if attention ≠ 0, [`answer`](Parts::answer) |
/// | a region begins, if the reader is here | *t* = token, acquire; state ← *t*, release; barrier |
/// | it ends | *t* = token, acquire; state ← *t* \| [`IDLE`](states::IDLE), release; compiler barrier; if attention ≠ 0, [`answer`](Parts::answer) |
/// | protected load | outside regions, *t* = token, acquire; if state ≠ *t* \| `IDLE`: state ← it, release. Then *q* = source; *slot* = the first one, if that is null, or [`slot`](Parts::slot); then: *slot* ← *q*, release; barrier; *c* = source, acquire; if *c* ≠ *q*, again with *c* |
/// | its release | *slot* ← null, release, if it is the first one; [`Slot::release`] otherwise |
///
/// As signed numbers, states above 0 are those of regions. A reader is *here* if its state is between `IDLE` and [`AWAY`](states::AWAY),
/// without these two: `state - 1 < -2`, wrapping. Otherwise, outside regions, [`come_back`](Parts::come_back) comes first. A new reader is
/// away, and so is one after [`Reader::offline`]. A signal handler may find `IDLE`, if it has interrupted a return.
///
/// The end of a region may also store 0. Such a reader vouches for nothing, so writers issue fences for it, and it comes back before its
/// next load.
///
/// A nested guard only counts the nesting, and does not touch the state. If it may be that of a signal handler, it has a barrier of its
/// own: the handler may have interrupted the outermost guard before its barrier.
///
/// ```
/// use std::sync::atomic::{fence, compiler_fence, AtomicU32, AtomicU64, Ordering::*};
/// use stillpoint::rcu::raw::{offsets, states, Parts};
///
/// # let domain = stillpoint::rcu::Domain::new();
/// let reader = domain.reader();
/// let parts = Parts::of(&reader);
/// // SAFETY: the fields exist as long as the reader.
/// let (token, state, attention) = unsafe {
///     let record = parts.record();
///     (
///         parts.token().cast::<AtomicU64>().as_ref(),
///         record.add(offsets::STATE).cast::<AtomicU64>().as_ref(),
///         record.add(offsets::ATTENTION).cast::<AtomicU32>().as_ref(),
///     )
/// };
/// let is_here = || (state.load(Relaxed).wrapping_sub(1) as i64) < -2;
/// if !is_here() {
///     // SAFETY: this is the reader's thread, outside regions.
///     unsafe { parts.come_back() };
/// }
/// assert!(is_here());
/// state.store(token.load(Acquire), Release); // a region begins
/// if parts.needs_full_fence() { fence(SeqCst) } else { compiler_fence(SeqCst) }
/// let later = domain.start();
/// assert!(!domain.check(later));
/// state.store(token.load(Acquire) | states::IDLE, Release); // it ends
/// compiler_fence(SeqCst);
/// if attention.load(Relaxed) != 0 {
///     // SAFETY: this is the reader's thread.
///     unsafe { parts.answer() };
/// }
/// assert!(domain.check(later));
/// ```
#[derive(Clone, Copy)]
pub struct Parts<'r> {
    record: &'r Record,
    core: &'r Core,
    fence: ReaderFence,
}

impl<'r> Parts<'r> {
    /// The parts of a reader with guards and protected loads.
    #[inline]
    pub fn of(reader: &'r Reader) -> Self {
        Self { record: reader.record(), core: reader.core(), fence: reader.fence() }
    }

    /// The parts of a reader with quiescent states. It has no hazard slots.
    #[inline]
    pub fn of_qsbr(reader: &'r QsbrReader) -> Self {
        // Only guards and protected loads fence.
        Self { record: reader.record(), core: reader.core(), fence: ReaderFence::Light }
    }

    /// The reader's record, whose fields are at [`offsets`]. Its address does not change as long as the domain exists.
    pub fn record(self) -> NonNull<u8> {
        NonNull::from(self.record).cast()
    }

    /// The domain's token, a `u64`. Its address does not change as long as the domain exists.
    pub fn token(self) -> NonNull<u64> {
        self.core.protocol.token_address()
    }

    /// Whether the barriers of regions and protected loads are full fences. It never changes.
    #[inline]
    pub fn needs_full_fence(self) -> bool {
        self.fence != ReaderFence::Light
    }

    /// Makes the reader one that writers look at again, before its next load or region: it stores `IDLE`, issues a full fence, and then
    /// vouches. A signal handler that has interrupted it does all three again. Does nothing in a region.
    ///
    /// # Safety
    /// The calling thread is the reader's, and these parts were made by [`Parts::of`].
    pub unsafe fn come_back(self) {
        if !self.is_online() {
            self.core.protocol.come_back(self.record);
            self.core.protocol.vouch(self.record);
        }
    }

    /// Must be called by a reader that has ended a region or changed its state, and then finds that its attention is not 0.
    /// Wakes the threads and eight of the futures that wait for the reader, and ends a boost of its thread. If a waker polls its future
    /// within this call, the call wakes the next eight, too.
    ///
    /// # Safety
    /// The calling thread is the reader's.
    pub unsafe fn answer(self) {
        self.core.answer(self.record);
    }

    /// A free hazard slot, which belongs to the caller until it is [released](Slot::release). Never the first one, which is free
    /// whenever it is null. Constant time; allocates a block of slots if all are in use.
    ///
    /// ```
    /// use stillpoint::rcu::{raw::Parts, Domain};
    ///
    /// let domain = Domain::new();
    /// let reader = domain.reader();
    /// let parts = Parts::of(&reader);
    /// // SAFETY: this is the reader's thread, and the slot is released once.
    /// unsafe { parts.slot().release() };
    /// ```
    ///
    /// # Safety
    /// The calling thread is the reader's, and these parts were made by [`Parts::of`].
    pub unsafe fn slot(self) -> Slot {
        let slot = Slot::new(self.record.next_free_hazard());
        // An allocator may have run, which may have taken the reader away.
        self.core.protocol.vouch(self.record);
        slot
    }

    /// Whether a slot of the reader holds this address. For the reader's thread, and for checks: linear in the slots.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use std::sync::atomic::AtomicPtr;
    /// use stillpoint::rcu::{raw, Domain};
    ///
    /// let domain = Domain::new();
    /// let reader = domain.reader();
    /// let mut object = 7;
    /// let address = NonNull::from(&mut object).cast();
    /// let (_, slot) = raw::protect(&reader, &AtomicPtr::new(&raw mut object)).unwrap();
    /// assert!(raw::Parts::of(&reader).holds(address));
    /// // SAFETY: this thread has the reader, and the slot is released once.
    /// unsafe { slot.release() };
    /// assert!(!raw::Parts::of(&reader).holds(address));
    /// ```
    pub fn holds(self, address: NonNull<()>) -> bool {
        // Relaxed: the owner reads its own stores.
        self.record.hazards().any(|slot| slot.load(Ordering::Relaxed) == address.as_ptr())
    }

    /// Whether the reader is in a region: it holds a guard, or, if it reports quiescent states, it is online. For the reader's
    /// thread.
    #[inline]
    pub fn is_online(self) -> bool {
        is_open(self.record.state())
    }

    /// Takes a reader with quiescent states offline, as [`QsbrReader::offline`] does, until [`online`](Parts::online). Idempotent.
    ///
    /// ```
    /// use stillpoint::rcu::{raw::Parts, Domain};
    ///
    /// let domain = Domain::new();
    /// let reader = domain.qsbr_reader();
    /// let parts = Parts::of_qsbr(&reader);
    /// assert!(parts.is_mine() && parts.is_online());
    /// // SAFETY: this is the reader's thread, and nothing was loaded through it.
    /// unsafe { parts.offline() };
    /// domain.synchronize().expect("it does not wait for this thread");
    /// // SAFETY: this is the reader's thread.
    /// unsafe { parts.online() };
    /// assert!(parts.is_online());
    /// ```
    ///
    /// # Safety
    /// These parts were made by [`Parts::of_qsbr`]. The calling thread is the reader's, and holds nothing that was loaded through
    /// the reader. Until [`online`](Parts::online), nothing is loaded through it, and no quiescent state is reported.
    pub unsafe fn offline(self) {
        if self.is_online() {
            self.core.offline(self.record);
        }
    }

    /// Brings a reader with quiescent states back online. Costs a full fence. Idempotent.
    ///
    /// # Safety
    /// As for [`offline`](Parts::offline).
    pub unsafe fn online(self) {
        if !self.is_online() {
            self.core.online(self.record);
        }
    }

    /// Whether the calling thread is the one that made the reader or, in the child of a `fork`, the copy of that thread. Makes no
    /// system call.
    #[inline]
    pub fn is_mine(self) -> bool {
        self.record.is_mine()
    }
}

/// A guard for a region of a reader that other code has begun, by its [parts](Parts) or by a guard that was forgotten. For loads
/// that need a guard. Dropping it ends the region.
///
/// ```
/// use stillpoint::rcu::{raw, Domain};
/// # use std::mem::{forget, ManuallyDrop};
///
/// let domain = Domain::new();
/// let cell = domain.cell(7);
/// let reader = domain.reader();
/// forget(reader.pin());
/// // SAFETY: the region goes on.
/// let guard = unsafe { raw::guard_of(&reader) };
/// assert_eq!(cell.load(&*guard), Some(&7));
/// drop(ManuallyDrop::into_inner(guard)); // ends it
/// ```
///
/// # Safety
/// The reader is in a region as long as the guard is used, and no other guard of that region exists. A region that goes on
/// without a guard ends with the first [`ArrayGuard`](crate::rcu::bound::ArrayGuard) of the reader, which does not nest.
pub unsafe fn guard_of(reader: &Reader) -> ManuallyDrop<Guard<'_>> {
    ManuallyDrop::new(Guard { reader })
}

/// Whether the call comes from a destructor, a deferred call or a stall hook that any domain runs: what such code retires is freed
/// later.
///
/// ```
/// assert!(!stillpoint::rcu::raw::is_within_destructor());
/// ```
pub fn is_within_destructor() -> bool {
    is_freeing()
}

/// Whether the call comes from foreign code that the library runs: a destructor, a deferred call, a callback of a queue, or a stall
/// hook, of any domain. Calls that may wait are refused there.
///
/// ```
/// assert!(!stillpoint::rcu::raw::is_within_foreign_code());
/// ```
pub fn is_within_foreign_code() -> bool {
    is_foreign()
}

/// Calls `wait` as if no foreign code were running: calls that may wait are not refused in it. For interfaces whose callbacks may
/// wait for grace periods. The caller makes sure that what it waits for does not wait, in turn, for the foreign code that is running.
///
/// ```
/// use stillpoint::rcu::{raw, Domain};
///
/// let domain = Domain::new();
/// let other = domain.clone();
/// let mut reclaimer = domain.reclaimer();
/// reclaimer.defer(move || {
///     other.synchronize().unwrap_err(); // a deferred call must not wait
///     raw::let_wait(|| other.synchronize()).expect("no reader is in the way");
/// });
/// assert_eq!(reclaimer.poll(), 1);
/// ```
pub fn let_wait<R>(wait: impl FnOnce() -> R) -> R {
    let _lifted = Foreign::lift();
    wait()
}

/// Refuses a call that would wait for itself: the calling thread has a reader of the domain that holds a guard, or an online
/// [`QsbrReader`]. Looks only at the readers. Costs one system call.
///
/// ```
/// use stillpoint::rcu::{raw, Domain};
///
/// let domain = Domain::new();
/// let reader = domain.reader();
/// raw::blocked_by_caller(&domain)?;
/// let guard = reader.pin();
/// raw::blocked_by_caller(&domain).unwrap_err();
/// # Ok::<(), stillpoint::rcu::wait::SynchronizeError>(())
/// ```
///
/// # Errors
/// [`WouldDeadlock`](SynchronizeError::WouldDeadlock).
pub fn blocked_by_caller(domain: &Domain) -> Result<(), SynchronizeError> {
    SynchronizeError::unless_own_region(domain.core(), u64::MAX)
}

/// Why the domain's last heavy fence failed; `None` if it succeeded. Constant time, unlike [`Domain::stats`].
///
/// ```
/// use stillpoint::rcu::{raw, Domain};
///
/// assert_eq!(raw::fence_error(&Domain::new()), None);
/// ```
pub fn fence_error(domain: &Domain) -> Option<FenceError> {
    domain.core().protocol.fence_error()
}

/// As [`Domain::check`], and says if the fence that this call needs is refused.
///
/// # Errors
/// If the kernel refuses the fence to this thread.
///
/// # Panics
/// If the token is of another domain.
///
/// ```
/// use stillpoint::rcu::{raw, Domain};
///
/// let domain = Domain::new();
/// assert_eq!(raw::check(&domain, domain.start()), Ok(true));
/// ```
pub fn check(domain: &Domain, token: Token) -> Result<bool, FenceError> {
    Ok(matches!(domain.core().protocol.check(domain.value_of(token))?, Grace::Over))
}

stillpoint_sys::debug!(|this| Parts<'_> { domain: this.core.name(), .. });
