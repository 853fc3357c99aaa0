//! liburcu: readers of the flavours qsbr, memb and mb. The workers of `call_rcu` free the objects.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};
use std::time::Duration;

use super::lfht::{self, Lfht, RawLinked, RawTable};
use super::{RawElement, RawJob, micro, waits};
use crate::c_functions::{c_functions, opaque};
use crate::element::{free_by_head, free_element};
use crate::{Contender, Element, Entry, Micro, ReadJob, ReadOutcome, Slots, Timed, Waits, Writer};

opaque! {
    /// `struct call_rcu_data`.
    struct Worker;
}

pub(super) type Release = unsafe extern "C" fn(*mut c_void);

c_functions! { $
    /// The functions of c/urcu_flavour.h.
    struct Calls by calls {
        join();
        leave();
        read(job: *const RawJob<'_>) -> ReadOutcome;
        worker(realtime: bool) -> *mut Worker;
        retire(worker: *mut Worker, element: *mut RawElement, release: Release);
        barrier();
        synchronize();
        worker_cpu_ns(worker: *mut Worker) -> u64;
    }
}

c_functions! { $
    /// The table functions of a flavour, from c/urcu_flavour.h.
    pub(super) struct Functions by tables {
        new(buckets: u64) -> *mut RawTable;
        free(table: *mut RawTable);
        link(table: *mut RawTable, linked: *mut RawLinked);
        unlink(table: *mut RawTable, key: u64) -> *mut RawLinked;
        read(table: *mut RawTable, job: *const RawJob<'_>) -> ReadOutcome;
    }
}

pub(super) struct Flavour {
    calls: Calls,
    /// The functions of its hash tables; the drop-in has none.
    pub(super) tables: Option<Functions>,
}

/// An operation whose C function measures itself.
macro_rules! timed {
    ($contender:expr, $operation:literal, $function:literal) => {
        Timed {
            contender: $contender,
            operation: $operation,
            nanoseconds: |count| {
                unsafe extern "C" {
                    #[link_name = $function]
                    safe fn run(count: u64) -> u64;
                }
                run(count)
            },
        }
    };
}

pub(super) static QSBR: Flavour =
    Flavour { calls: calls!("stillpoint_urcu_qsbr_"), tables: Some(tables!("stillpoint_urcu_qsbr_table_")) };
static MEMB: Flavour =
    Flavour { calls: calls!("stillpoint_urcu_memb_"), tables: Some(tables!("stillpoint_urcu_memb_table_")) };
static MB: Flavour =
    Flavour { calls: calls!("stillpoint_urcu_mb_"), tables: Some(tables!("stillpoint_urcu_mb_table_")) };
static OUR_QSBR: Flavour = Flavour { calls: calls!("stillpoint_drop_in_qsbr_"), tables: None };
static OUR_MEMB: Flavour = Flavour { calls: calls!("stillpoint_drop_in_memb_"), tables: None };
static BOOSTED: Flavour = Flavour { calls: calls!("stillpoint_drop_in_boosted_"), tables: None };

pub(super) const PEER: &str = "liburcu";
const NAME_QSBR: &str = "liburcu/qsbr";
const NAME_MEMB: &str = "liburcu/memb";
const NAME_MB: &str = "liburcu/mb";
const NAME_OUR_QSBR: &str = "drop-in/urcu-qsbr";
const NAME_OUR_MEMB: &str = "drop-in/urcu-memb";

/// A contender whose elements are all freed through `call_rcu`.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) flavour: &'static Flavour,
    realtime: bool,
}

const fn kind(name: &'static str, flavour: &'static Flavour) -> Kind {
    Kind { name, flavour, realtime: false }
}

pub(super) static KINDS: [Kind; 7] = [
    kind(NAME_QSBR, &QSBR),
    Kind { name: "liburcu/qsbr+rt", flavour: &QSBR, realtime: true },
    kind(NAME_MEMB, &MEMB),
    kind(NAME_MB, &MB),
    kind(NAME_OUR_QSBR, &OUR_QSBR),
    kind(NAME_OUR_MEMB, &OUR_MEMB),
    kind("drop-in/urcu-mb+boost", &BOOSTED),
];

/// The catalogue's entry of a kind over an array.
macro_rules! entry {
    ($at:literal) => {
        Entry {
            name: KINDS[$at].name,
            peer: PEER,
            make: |slots, _| {
                let (field, kind) = (Field::Slots(Arc::clone(slots)), &KINDS[$at]);
                if std::ptr::eq(kind.flavour, &BOOSTED) {
                    static CONFIGURED: Once = Once::new();
                    CONFIGURED.call_once(|| {
                        // The caller has checked that this process may boost before it offers this contender.
                        stillpoint_drop_in_boosted_configure();
                    });
                }
                Box::new(Urcu { field, kind })
            },
        }
    };
}

pub(crate) const ENTRIES: &[Entry] =
    &[entry!(0), super::urcu_sync::ENTRY, entry!(1), entry!(2), entry!(3), entry!(4), entry!(5), entry!(6)];

unsafe extern "C" {
    safe fn stillpoint_drop_in_boosted_configure() -> bool;
}

/// The structure in which readers look up keys.
pub(super) enum Field {
    Slots(Arc<Slots>),
    Table(Arc<Lfht>),
}

impl Field {
    /// Reads as [`Contender::read`] says.
    ///
    /// # Safety
    /// What is unlinked here is freed after a grace period of this flavour.
    pub(super) unsafe fn read(
        &self,
        flavour: &'static Flavour,
        job: &ReadJob<'_>,
        ready: &dyn Fn(),
    ) -> ReadOutcome {
        let _membership = Membership::new(flavour);
        ready();
        // SAFETY: the thread is registered; the job borrows what it points to; the caller's promise.
        unsafe {
            match self {
                Self::Slots(slots) => (flavour.calls.read)(&RawJob::new(slots, job)),
                Self::Table(table) => table.read(&RawJob::without_slots(table.elements, job)),
            }
        }
    }

    /// Links `new` at `index`, or nothing, and hands over the old element, stamped. In a table, the old element is handed over before
    /// `new` is linked.
    pub(super) fn publish(
        &self,
        index: usize,
        new: Option<Box<Element>>,
        registered: &Membership,
        mut hand_over: impl FnMut(*mut Element),
    ) {
        match self {
            Self::Slots(slots) => {
                if let Some(old) = slots.publish(index, new) {
                    hand_over(old);
                }
            }
            Self::Table(table) => {
                if let Some(old) = table.unlink(index, registered) {
                    // SAFETY: `old` was linked until now, and is freed only after it has been handed over.
                    unsafe { (*old).stamp_unlinked() };
                    hand_over(old);
                }
                if let Some(new) = new {
                    table.link(*new, registered);
                }
            }
        }
    }

    /// A new element for `index`.
    pub(super) fn element(&self, index: usize) -> Box<Element> {
        let recipe = match self {
            Self::Slots(slots) => slots.recipe(),
            Self::Table(table) => table.recipe,
        };
        Box::new(recipe.element(index as u64))
    }

    /// The function that frees an element that was handed over. It is passed the element's callback head.
    fn release(&self) -> Release {
        match self {
            Self::Slots(_) => free_by_head,
            Self::Table(_) => lfht::free_by_head,
        }
    }

    /// Frees an element that was handed over.
    ///
    /// # Safety
    /// [`publish`](Field::publish) of this field handed the element over, it is freed once, and no reader can hold it any more.
    pub(super) unsafe fn free(&self, element: *mut Element) {
        // SAFETY: this field handed the element over, and nobody else frees or holds it, by the caller's promise.
        unsafe {
            match self {
                Self::Slots(_) => free_element(element),
                Self::Table(_) => lfht::free(element),
            }
        }
    }
}

pub(super) struct Urcu {
    pub(super) field: Field,
    pub(super) kind: &'static Kind,
}

impl Flavour {
    /// Waits for a grace period.
    pub(super) fn synchronize(&self) {
        // SAFETY: the calling thread is in no read-side section: readers only run `read`, which does not call this.
        unsafe { (self.calls.synchronize)() };
    }
}

/// The registration of a thread with a flavour; the thread that made it also drops it.
pub(super) struct Membership {
    flavour: &'static Flavour,
    bound_to_thread: PhantomData<*const ()>,
}

impl Membership {
    pub(super) fn new(flavour: &'static Flavour) -> Self {
        // SAFETY: the thread leaves when `self` is dropped, on this thread, as `self` is not `Send`.
        unsafe { (flavour.calls.join)() };
        Self { flavour, bound_to_thread: PhantomData }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // SAFETY: this thread registered in `new`.
        unsafe { (self.flavour.calls.leave)() };
    }
}

impl Contender for Urcu {
    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        // SAFETY: unlinked elements are freed only by this flavour's `call_rcu`.
        unsafe { self.field.read(self.kind.flavour, job, ready) }
    }

    fn has_synchronize(&self) -> bool {
        true
    }

    fn synchronize(&self) {
        self.kind.flavour.synchronize();
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        let membership = Membership::new(self.kind.flavour);
        // SAFETY: the thread is registered.
        let worker = unsafe { (self.kind.flavour.calls.worker)(self.kind.realtime) };
        Box::new(UrcuWriter { urcu: self, worker, membership })
    }
}

struct UrcuWriter<'a> {
    urcu: &'a Urcu,
    worker: *mut Worker,
    membership: Membership,
}

impl Writer for UrcuWriter<'_> {
    fn replace(&mut self, index: usize) {
        self.publish(index, Some(self.urcu.field.element(index)));
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        let Urcu { field, kind } = self.urcu;
        field.publish(index, new, &self.membership, |old| {
            // SAFETY: the thread is registered, the workers live as long as the process, and `old` has just been unlinked and is handed
            // over once.
            unsafe { (kind.flavour.calls.retire)(self.worker, old.cast(), field.release()) };
        });
    }

    /// Does nothing: the worker frees.
    fn poll(&mut self) {}

    fn drain(&mut self) {
        // SAFETY: the thread is not inside a read-side critical section.
        unsafe { (self.urcu.kind.flavour.calls.barrier)() };
    }

    fn worker_cpu_time(&self) -> Duration {
        // SAFETY: the workers live as long as the process.
        Duration::from_nanos(unsafe { (self.urcu.kind.flavour.calls.worker_cpu_ns)(self.worker) })
    }
}

impl Drop for UrcuWriter<'_> {
    fn drop(&mut self) {
        self.drain();
    }
}

pub(crate) const MICRO: &[Micro] = &[
    micro!(NAME_QSBR, "quiescent", "stillpoint_urcu_qsbr_micro_quiescent"),
    micro!(NAME_QSBR, "retire", "stillpoint_urcu_qsbr_micro_retire"),
    micro!(NAME_QSBR, "heavy", "stillpoint_urcu_qsbr_micro_heavy"),
    micro!(NAME_MEMB, "pin", "stillpoint_urcu_memb_micro_pin"),
    micro!(NAME_MEMB, "retire", "stillpoint_urcu_memb_micro_retire"),
    micro!(NAME_MEMB, "heavy", "stillpoint_urcu_memb_micro_heavy"),
    micro!(NAME_MB, "pin", "stillpoint_urcu_mb_micro_pin"),
    micro!(NAME_MB, "retire", "stillpoint_urcu_mb_micro_retire"),
    micro!(NAME_MB, "heavy", "stillpoint_urcu_mb_micro_heavy"),
    micro!(NAME_MEMB, "pin-linked", "stillpoint_urcu_linked_micro_pin"),
    micro!(NAME_OUR_QSBR, "quiescent", "stillpoint_drop_in_qsbr_micro_quiescent"),
    micro!(NAME_OUR_QSBR, "retire", "stillpoint_drop_in_qsbr_micro_retire"),
    micro!(NAME_OUR_MEMB, "pin", "stillpoint_drop_in_memb_micro_pin"),
    micro!(NAME_OUR_MEMB, "pin-linked", "stillpoint_drop_in_linked_micro_pin"),
    micro!(NAME_OUR_MEMB, "retire", "stillpoint_drop_in_memb_micro_retire"),
];

/// The readers of a flavour are one group: the operations of two threads meet.
pub(crate) const WAITS: &[Waits] = &[
    waits!(NAME_QSBR, "stillpoint_urcu_qsbr_micro_heavy", "stillpoint_urcu_qsbr_micro_reads"),
    waits!(NAME_MEMB, "stillpoint_urcu_memb_micro_heavy", "stillpoint_urcu_memb_micro_reads"),
];

pub(crate) const TIMED: &[Timed] = &[
    timed!(NAME_MEMB, "call", "stillpoint_urcu_memb_calls_ns"),
    timed!(NAME_QSBR, "call", "stillpoint_urcu_qsbr_calls_ns"),
    timed!(NAME_OUR_MEMB, "call", "stillpoint_drop_in_memb_calls_ns"),
    timed!(NAME_OUR_QSBR, "call", "stillpoint_drop_in_qsbr_calls_ns"),
    timed!(NAME_MEMB, "free-workers", "stillpoint_urcu_memb_free_workers_ns"),
    timed!(NAME_OUR_MEMB, "free-workers", "stillpoint_drop_in_memb_free_workers_ns"),
];
