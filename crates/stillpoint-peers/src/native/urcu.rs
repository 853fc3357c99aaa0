//! liburcu: readers of the flavours qsbr, memb and mb, objects freed by the workers of `call_rcu`.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::{Arc, Once};
use std::time::Duration;

use super::{RawElement, RawJob, RawSections};
use crate::element::free_by_head;
use crate::{Contender, Element, Entry, Micro, ReadJob, ReadOutcome, Slots, Timed, Work, Writer};

/// `struct call_rcu_data`.
#[repr(C)]
struct Worker {
    opaque: [u8; 0],
}

type Release = unsafe extern "C" fn(*mut c_void);

/// The functions of c/urcu_flavour.h.
pub(super) struct Flavour {
    join: unsafe extern "C" fn(),
    leave: unsafe extern "C" fn(),
    read: unsafe extern "C" fn(*const RawJob<'_>) -> ReadOutcome,
    worker: unsafe extern "C" fn(bool) -> *mut Worker,
    retire: unsafe extern "C" fn(*mut Worker, *mut RawElement, Release),
    barrier: unsafe extern "C" fn(),
    read_sections: unsafe extern "C" fn(*const RawSections<'_>) -> ReadOutcome,
    synchronize: unsafe extern "C" fn(),
    worker_cpu_ns: unsafe extern "C" fn(*mut Worker) -> u64,
}

/// A flavour, by what the names of its functions begin with.
macro_rules! flavour {
    ($prefix:literal) => {{
        unsafe extern "C" {
            #[link_name = concat!($prefix, "join")]
            fn join();
            #[link_name = concat!($prefix, "leave")]
            fn leave();
            #[link_name = concat!($prefix, "read")]
            fn read(job: *const RawJob<'_>) -> ReadOutcome;
            #[link_name = concat!($prefix, "worker")]
            fn worker(realtime: bool) -> *mut Worker;
            #[link_name = concat!($prefix, "retire")]
            fn retire(worker: *mut Worker, element: *mut RawElement, release: Release);
            #[link_name = concat!($prefix, "barrier")]
            fn barrier();
            #[link_name = concat!($prefix, "read_sections")]
            fn read_sections(job: *const RawSections<'_>) -> ReadOutcome;
            #[link_name = concat!($prefix, "synchronize")]
            fn synchronize();
            #[link_name = concat!($prefix, "worker_cpu_ns")]
            fn worker_cpu_ns(worker: *mut Worker) -> u64;
        }
        Flavour { join, leave, read, worker, retire, barrier, read_sections, synchronize, worker_cpu_ns }
    }};
}

/// An operation of a flavour, by the name of its function.
macro_rules! micro {
    ($contender:expr, $operation:literal, $function:literal) => {
        Micro {
            contender: $contender,
            operation: $operation,
            run: |iterations| {
                unsafe extern "C" {
                    #[link_name = $function]
                    safe fn run(iterations: u64);
                }
                run(iterations);
            },
        }
    };
}

/// What a function of C has measured itself.
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

pub(super) static QSBR: Flavour = flavour!("stillpoint_urcu_qsbr_");
static MEMB: Flavour = flavour!("stillpoint_urcu_memb_");
static OUR_QSBR: Flavour = flavour!("stillpoint_drop_in_qsbr_");
static OUR_MEMB: Flavour = flavour!("stillpoint_drop_in_memb_");
static BOOSTED: Flavour = flavour!("stillpoint_drop_in_boosted_");
static MB: Flavour = flavour!("stillpoint_urcu_mb_");

pub(super) const PEER: &str = "liburcu";
const NAME_QSBR: &str = "liburcu/qsbr";
const NAME_REALTIME: &str = "liburcu/qsbr+rt";
const NAME_MEMB: &str = "liburcu/memb";
const NAME_MB: &str = "liburcu/mb";
const NAME_OUR_QSBR: &str = "drop-in/urcu-qsbr";
const NAME_OUR_MEMB: &str = "drop-in/urcu-memb";
const NAME_BOOSTED: &str = "drop-in/urcu-mb+boost";

pub(crate) const ENTRIES: &[Entry] = &[
    Entry {
        name: NAME_QSBR,
        peer: PEER,
        make: |slots, _| {
            Box::new(Urcu {
                slots: Arc::clone(slots),
                flavour: &QSBR,
                realtime: false,
                name: NAME_QSBR,
                note: "call_rcu: its worker is woken by futex and waits 10 ms between batches",
            })
        },
    },
    super::urcu_sync::ENTRY,
    Entry {
        name: NAME_REALTIME,
        peer: PEER,
        make: |slots, _| {
            Box::new(Urcu {
                slots: Arc::clone(slots),
                flavour: &QSBR,
                realtime: true,
                name: NAME_REALTIME,
                note: "call_rcu with URCU_CALL_RCU_RT: its worker polls every 10 ms, from the first use on",
            })
        },
    },
    Entry {
        name: NAME_MEMB,
        peer: PEER,
        make: |slots, _| {
            Box::new(Urcu {
                slots: Arc::clone(slots),
                flavour: &MEMB,
                realtime: false,
                name: NAME_MEMB,
                note: "call_rcu as in liburcu/qsbr; each grace period interrupts the readers by membarrier",
            })
        },
    },
    Entry {
        name: NAME_MB,
        peer: PEER,
        make: |slots, _| {
            Box::new(Urcu {
                slots: Arc::clone(slots),
                flavour: &MB,
                realtime: false,
                name: NAME_MB,
                note: "call_rcu as in liburcu/qsbr; each lookup pays three full fences, and nobody is interrupted",
            })
        },
    },
    Entry {
        name: NAME_OUR_QSBR,
        peer: PEER,
        make: |slots, _| {
            Box::new(Urcu {
                slots: Arc::clone(slots),
                flavour: &OUR_QSBR,
                realtime: false,
                name: NAME_OUR_QSBR,
                note: "the same program as liburcu/qsbr, compiled against stillpoint's headers",
            })
        },
    },
    Entry {
        name: NAME_OUR_MEMB,
        peer: PEER,
        make: |slots, _| {
            Box::new(Urcu {
                slots: Arc::clone(slots),
                flavour: &OUR_MEMB,
                realtime: false,
                name: NAME_OUR_MEMB,
                note: "the same program as liburcu/memb, compiled against stillpoint's headers",
            })
        },
    },
    Entry {
        name: NAME_BOOSTED,
        peer: PEER,
        make: |slots, _| {
            static CONFIGURED: Once = Once::new();
            CONFIGURED.call_once(|| {
                // Whoever offers this contender has asked whether this process may boost.
                stillpoint_drop_in_boosted_configure();
            });
            Box::new(Urcu {
                slots: Arc::clone(slots),
                flavour: &BOOSTED,
                realtime: false,
                name: NAME_BOOSTED,
                note: "flavour mb, whose preempted readers are raised to a real-time priority",
            })
        },
    },
];

unsafe extern "C" {
    safe fn stillpoint_drop_in_boosted_configure() -> bool;
}

struct Urcu {
    slots: Arc<Slots>,
    flavour: &'static Flavour,
    realtime: bool,
    name: &'static str,
    note: &'static str,
}

impl Flavour {
    /// Reads as [`Contender::read`] says.
    ///
    /// # Safety
    /// Replaced elements of these slots are freed after a grace period of this flavour.
    pub(super) unsafe fn read(
        &'static self,
        slots: &Slots,
        job: &ReadJob<'_>,
        ready: &dyn Fn(),
    ) -> ReadOutcome {
        let _membership = Membership::new(self);
        ready();
        // SAFETY: the thread is registered; the job borrows what it points to; the caller's promise.
        unsafe { (self.read)(&RawJob::new(slots, job)) }
    }

    /// Reads as [`Contender::read_sections`] says.
    ///
    /// # Safety
    /// As for [`read`](Flavour::read).
    pub(super) unsafe fn read_sections(
        &'static self,
        slots: &Slots,
        job: &ReadJob<'_>,
        work: &Work,
        ready: &dyn Fn(),
    ) -> ReadOutcome {
        let _membership = Membership::new(self);
        ready();
        // SAFETY: as in `read`; the work is borrowed, too.
        unsafe { (self.read_sections)(&RawSections::new(slots, job, work)) }
    }

    /// Waits for a grace period.
    pub(super) fn synchronize(&self) {
        // SAFETY: a reader of this flavour does nothing but `read` and `read_sections`, which do not call this.
        unsafe { (self.synchronize)() };
    }
}

/// The registration of the thread that made it.
struct Membership {
    flavour: &'static Flavour,
    bound_to_thread: PhantomData<*const ()>,
}

impl Membership {
    fn new(flavour: &'static Flavour) -> Self {
        // SAFETY: the thread leaves when `self` is dropped, on this thread, as `self` is not `Send`.
        unsafe { (flavour.join)() };
        Self { flavour, bound_to_thread: PhantomData }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // SAFETY: pairs with the `join` of `new`.
        unsafe { (self.flavour.leave)() };
    }
}

impl Contender for Urcu {
    fn name(&self) -> &'static str {
        self.name
    }

    fn note(&self) -> &'static str {
        self.note
    }

    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        // SAFETY: they are freed only by this flavour's `call_rcu`.
        unsafe { self.flavour.read(&self.slots, job, ready) }
    }

    fn read_sections(&self, job: &ReadJob<'_>, work: &Work, ready: &dyn Fn()) -> ReadOutcome {
        // SAFETY: as in `read`.
        unsafe { self.flavour.read_sections(&self.slots, job, work, ready) }
    }

    fn has_synchronize(&self) -> bool {
        true
    }

    fn synchronize(&self) {
        self.flavour.synchronize();
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        let membership = Membership::new(self.flavour);
        // SAFETY: the thread is registered.
        let worker = unsafe { (self.flavour.worker)(self.realtime) };
        Box::new(UrcuWriter { urcu: self, worker, _membership: membership })
    }
}

struct UrcuWriter<'a> {
    urcu: &'a Urcu,
    worker: *mut Worker,
    _membership: Membership,
}

impl UrcuWriter<'_> {
    /// Takes over an element that was unlinked just now.
    fn retire(&mut self, old: *mut Element) {
        // SAFETY: the thread is registered, the workers live as long as the process, and `old` is unlinked and
        // handed over once.
        unsafe { (self.urcu.flavour.retire)(self.worker, old.cast(), free_by_head) };
    }
}

impl Writer for UrcuWriter<'_> {
    fn replace(&mut self, index: usize) {
        self.retire(self.urcu.slots.replace(index));
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        if let Some(old) = self.urcu.slots.publish(index, new) {
            self.retire(old);
        }
    }

    /// Nothing to do: the worker frees.
    fn poll(&mut self) {}

    fn drain(&mut self) {
        // SAFETY: the thread is not inside a read-side critical section.
        unsafe { (self.urcu.flavour.barrier)() };
    }

    fn worker_cpu_time(&self) -> Duration {
        // SAFETY: the workers live as long as the process.
        Duration::from_nanos(unsafe { (self.urcu.flavour.worker_cpu_ns)(self.worker) })
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

pub(crate) const TIMED: &[Timed] = &[
    timed!(NAME_MEMB, "call", "stillpoint_urcu_memb_calls_ns"),
    timed!(NAME_QSBR, "call", "stillpoint_urcu_qsbr_calls_ns"),
    timed!(NAME_OUR_MEMB, "call", "stillpoint_drop_in_memb_calls_ns"),
    timed!(NAME_OUR_QSBR, "call", "stillpoint_drop_in_qsbr_calls_ns"),
    timed!(NAME_MEMB, "free-workers", "stillpoint_urcu_memb_free_workers_ns"),
    timed!(NAME_OUR_MEMB, "free-workers", "stillpoint_drop_in_memb_free_workers_ns"),
];
