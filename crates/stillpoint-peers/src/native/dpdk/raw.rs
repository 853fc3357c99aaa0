//! Safe types over the functions of c/dpdk.c.

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::c_functions::opaque;
use crate::native::{RawElement, RawJob, micro, waits};
use crate::{Element, Micro, ReadJob, ReadOutcome, Slots, Waits, free_element};

opaque! {
    /// `struct rte_rcu_qsbr`.
    pub(crate) struct RawQsbr;
    /// `struct rte_ring`.
    struct RawRing;
}

unsafe extern "C" {
    fn stillpoint_dpdk_new(max_readers: u32) -> *mut RawQsbr;
    fn stillpoint_dpdk_free(qsbr: *mut RawQsbr);
    fn stillpoint_dpdk_join(qsbr: *mut RawQsbr, id: u32) -> bool;
    fn stillpoint_dpdk_leave(qsbr: *mut RawQsbr, id: u32);
    fn stillpoint_dpdk_read(qsbr: *mut RawQsbr, id: u32, job: *const RawJob<'_>) -> ReadOutcome;
    fn stillpoint_dpdk_start(qsbr: *mut RawQsbr) -> u64;
    fn stillpoint_dpdk_check(qsbr: *mut RawQsbr, token: u64) -> bool;
    fn stillpoint_dpdk_ring_new(count: u32) -> *mut RawRing;
    fn stillpoint_dpdk_ring_free(ring: *mut RawRing);
    fn stillpoint_dpdk_ring_push(ring: *mut RawRing, pending: *const Pending) -> bool;
    fn stillpoint_dpdk_ring_pop(ring: *mut RawRing, pending: *mut Pending) -> bool;
    fn stillpoint_dpdk_micro_retire(iterations: u64);
    safe fn stillpoint_dpdk_cpu() -> c_int;
}

/// The same operations, compiled against stillpoint's header in place of DPDK's.
const NAME_OURS: &str = "drop-in/rte_rcu_qsbr";

pub(crate) const MICRO: &[Micro] = &[
    micro!(super::NAME, "quiescent", "stillpoint_dpdk_micro_quiescent"),
    micro!(super::NAME, "start", "stillpoint_dpdk_micro_start"),
    micro!(super::NAME, "check", "stillpoint_dpdk_micro_check"),
    Micro { contender: super::NAME, operation: "retire", run: retire_by_defer_queue },
    micro!(super::NAME, "heavy", "stillpoint_dpdk_micro_heavy"),
    micro!(NAME_OURS, "quiescent", "stillpoint_drop_in_rcu_qsbr_micro_quiescent"),
    micro!(NAME_OURS, "start", "stillpoint_drop_in_rcu_qsbr_micro_start"),
    micro!(NAME_OURS, "check", "stillpoint_drop_in_rcu_qsbr_micro_check"),
];

pub(crate) const WAITS: &[Waits] =
    &[waits!(super::NAME, "stillpoint_dpdk_micro_synchronize", "stillpoint_dpdk_micro_reads")];

/// Megabytes of memory for the environment abstraction layer, in which defer queues live.
const MEMORY: usize = 64;

/// Retires objects through DPDK's defer queue, after it has initialised the environment abstraction layer.
///
/// # Panics
/// If the layer cannot be initialised.
fn retire_by_defer_queue(iterations: u64) {
    let cpu = usize::try_from(stillpoint_dpdk_cpu()).unwrap_or_default();
    if let Err(error) = crate::table::initialise_dpdk(MEMORY, false, cpu) {
        panic!("{error}: leave out the contender dpdk/rcu");
    }
    // SAFETY: the layer is initialised.
    unsafe { stillpoint_dpdk_micro_retire(iterations) };
}

/// An unlinked element and the token of its grace period, started after the unlink.
///
/// It must reach [`Qsbr::try_free`]: dropping it leaks the element.
#[repr(C)]
#[must_use]
pub(super) struct Pending {
    element: *mut RawElement,
    token: u64,
}

// SAFETY: only the owner of the value frees the element, and any thread may.
unsafe impl Send for Pending {}

/// A quiescent state variable.
pub(crate) struct Qsbr {
    raw: NonNull<RawQsbr>,
    /// Whether it is freed with this value.
    is_owned: bool,
    /// Which ids have a reader. The variable itself would let two threads report for one id.
    taken: Box<[AtomicBool]>,
}

// SAFETY: the functions on a variable are thread-safe; `reader` checks that an id has one reader.
unsafe impl Send for Qsbr {}
// SAFETY: the functions on a variable are thread-safe; `reader` checks that an id has one reader.
unsafe impl Sync for Qsbr {}

impl Qsbr {
    pub(super) fn new(max_readers: usize) -> Self {
        let max_readers = max_readers.max(1);
        let ids = u32::try_from(max_readers).expect("the number of readers fits in 32 bits");
        // SAFETY: any number of readers from 1 on is allowed.
        let raw = unsafe { stillpoint_dpdk_new(ids) };
        // SAFETY: the variable is new. It has one cache line for each reader.
        let mut qsbr = unsafe { Self::of(or_out_of_memory(raw, 64 * max_readers), max_readers) };
        qsbr.is_owned = true;
        qsbr
    }

    /// A variable that something else frees, for this many readers.
    ///
    /// # Safety
    /// It is alive as long as the new value, the only way for readers to register.
    pub(crate) unsafe fn of(raw: NonNull<RawQsbr>, max_readers: usize) -> Self {
        Self { raw, is_owned: false, taken: (0..max_readers).map(|_| AtomicBool::new(false)).collect() }
    }

    /// Registers the calling thread as reader `index`, offline until it reads.
    pub(crate) fn reader(&self, index: usize) -> Reader<'_> {
        assert!(index < self.taken.len(), "dpdk: reader {index} of at most {}", self.taken.len());
        // Acquire pairs with the release store in `Reader::drop`: the last reader of this id is gone.
        let taken = self.taken[index].swap(true, Ordering::Acquire);
        assert!(!taken, "dpdk: reader {index} is registered already");
        let id = index as u32;
        // SAFETY: the id is below the number that the variable was made for, and only this thread has it.
        let joined = unsafe { stillpoint_dpdk_join(self.raw.as_ptr(), id) };
        assert!(joined, "dpdk: rte_rcu_qsbr_thread_register refused id {id}");
        Reader { qsbr: self, id }
    }

    /// The token of a grace period that begins now.
    pub(crate) fn token(&self) -> u64 {
        // SAFETY: the variable is alive.
        unsafe { stillpoint_dpdk_start(self.raw.as_ptr()) }
    }

    /// Whether every reader has reported a quiescent state since that token was taken.
    pub(crate) fn is_over(&self, token: u64) -> bool {
        // SAFETY: the variable is alive.
        unsafe { stillpoint_dpdk_check(self.raw.as_ptr(), token) }
    }

    /// Starts the grace period of an element that the calling thread has just unlinked.
    ///
    /// # Safety
    /// The element came from [`Slots`] that no thread reads under another variable, and is handed over once.
    pub(super) unsafe fn start(&self, element: *mut Element) -> Pending {
        Pending { element: element.cast(), token: self.token() }
    }

    /// Frees the element if its grace period is over, and hands it back otherwise.
    ///
    /// # Safety
    /// `pending` came from [`start`](Qsbr::start) of this variable.
    pub(super) unsafe fn try_free(&self, pending: Pending) -> Result<(), Pending> {
        if !self.is_over(pending.token) {
            return Err(pending);
        }
        // SAFETY: every reader has reported a quiescent state since the unlink.
        unsafe { free_element(pending.element.cast()) };
        Ok(())
    }
}

impl Drop for Qsbr {
    fn drop(&mut self) {
        if self.is_owned {
            // SAFETY: readers borrow the variable, so none is left.
            unsafe { stillpoint_dpdk_free(self.raw.as_ptr()) };
        }
    }
}

/// The registration of one reader.
pub(crate) struct Reader<'a> {
    qsbr: &'a Qsbr,
    pub(crate) id: u32,
}

impl Reader<'_> {
    /// Reads until [`stop`](ReadJob::stop) is set.
    pub(super) fn read(&self, slots: &Slots, job: &ReadJob<'_>) -> ReadOutcome {
        // SAFETY: the id is registered, and only this reader has it; the job borrows what it points to.
        unsafe { stillpoint_dpdk_read(self.qsbr.raw.as_ptr(), self.id, &RawJob::new(slots, job)) }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        // SAFETY: the id is registered, and offline since `read` has returned.
        unsafe { stillpoint_dpdk_leave(self.qsbr.raw.as_ptr(), self.id) };
        // Release pairs with the acquire swap in `Qsbr::reader`.
        self.qsbr.taken[self.id as usize].store(false, Ordering::Release);
    }
}

/// A ring of [`Pending`] with one producer and one consumer at a time.
pub(super) struct Ring(NonNull<RawRing>);

// SAFETY: the ring belongs to no thread; the unsafe functions state which thread may call them when.
unsafe impl Send for Ring {}
// SAFETY: the unsafe functions state which thread may call them when.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring of `entries` entries, of which one stays free. `entries` is a power of two.
    pub(super) fn new(entries: u32) -> Self {
        // SAFETY: the function has no precondition.
        let raw = unsafe { stillpoint_dpdk_ring_new(entries) };
        Self(or_out_of_memory(raw, entries as usize * size_of::<Pending>()))
    }

    /// Adds `pending`, or hands it back if the ring is full.
    ///
    /// # Safety
    /// No other thread pushes at the same time.
    pub(super) unsafe fn push(&self, pending: Pending) -> Result<(), Pending> {
        // SAFETY: the caller's promise; the ring copies the value.
        let pushed = unsafe { stillpoint_dpdk_ring_push(self.0.as_ptr(), &pending) };
        if pushed { Ok(()) } else { Err(pending) }
    }

    /// Takes the oldest entry.
    ///
    /// # Safety
    /// No other thread pops at the same time.
    pub(super) unsafe fn pop(&self) -> Option<Pending> {
        let mut pending = MaybeUninit::uninit();
        // SAFETY: the caller's promise; there is room for one entry.
        let popped = unsafe { stillpoint_dpdk_ring_pop(self.0.as_ptr(), pending.as_mut_ptr()) };
        // SAFETY: the ring has filled `pending` with a value that was pushed.
        popped.then(|| unsafe { pending.assume_init() })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: no other thread uses the ring any more, because `self` is exclusive.
        unsafe { stillpoint_dpdk_ring_free(self.0.as_ptr()) };
    }
}

fn or_out_of_memory<T>(raw: *mut T, size: usize) -> NonNull<T> {
    let layout = Layout::from_size_align(size, 64).expect("a size far below the address space");
    NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout))
}
