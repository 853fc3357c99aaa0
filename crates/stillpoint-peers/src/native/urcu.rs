//! liburcu: readers of the flavours qsbr, memb and mb, objects freed by the workers of `call_rcu`.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::{RawElement, RawJob, RawSections};
use crate::element::free_by_head;
use crate::{Contender, Element, Entry, Micro, ReadJob, ReadOutcome, Slots, Work, Writer};

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

unsafe extern "C" {
    fn stillpoint_urcu_qsbr_join();
    fn stillpoint_urcu_qsbr_leave();
    fn stillpoint_urcu_qsbr_read(job: *const RawJob<'_>) -> ReadOutcome;
    fn stillpoint_urcu_qsbr_worker(realtime: bool) -> *mut Worker;
    fn stillpoint_urcu_qsbr_retire(worker: *mut Worker, element: *mut RawElement, release: Release);
    fn stillpoint_urcu_qsbr_barrier();
    fn stillpoint_urcu_qsbr_read_sections(job: *const RawSections<'_>) -> ReadOutcome;
    fn stillpoint_urcu_qsbr_synchronize();
    fn stillpoint_urcu_qsbr_worker_cpu_ns(worker: *mut Worker) -> u64;
    safe fn stillpoint_urcu_qsbr_micro_quiescent(iterations: u64);
    safe fn stillpoint_urcu_qsbr_micro_retire(iterations: u64);
    safe fn stillpoint_urcu_qsbr_micro_heavy(iterations: u64);

    fn stillpoint_urcu_memb_join();
    fn stillpoint_urcu_memb_leave();
    fn stillpoint_urcu_memb_read(job: *const RawJob<'_>) -> ReadOutcome;
    fn stillpoint_urcu_memb_worker(realtime: bool) -> *mut Worker;
    fn stillpoint_urcu_memb_retire(worker: *mut Worker, element: *mut RawElement, release: Release);
    fn stillpoint_urcu_memb_barrier();
    fn stillpoint_urcu_memb_read_sections(job: *const RawSections<'_>) -> ReadOutcome;
    fn stillpoint_urcu_memb_synchronize();
    fn stillpoint_urcu_memb_worker_cpu_ns(worker: *mut Worker) -> u64;
    safe fn stillpoint_urcu_memb_micro_pin(iterations: u64);
    safe fn stillpoint_urcu_memb_micro_retire(iterations: u64);
    safe fn stillpoint_urcu_memb_micro_heavy(iterations: u64);

    fn stillpoint_urcu_mb_join();
    fn stillpoint_urcu_mb_leave();
    fn stillpoint_urcu_mb_read(job: *const RawJob<'_>) -> ReadOutcome;
    fn stillpoint_urcu_mb_worker(realtime: bool) -> *mut Worker;
    fn stillpoint_urcu_mb_retire(worker: *mut Worker, element: *mut RawElement, release: Release);
    fn stillpoint_urcu_mb_barrier();
    fn stillpoint_urcu_mb_read_sections(job: *const RawSections<'_>) -> ReadOutcome;
    fn stillpoint_urcu_mb_synchronize();
    fn stillpoint_urcu_mb_worker_cpu_ns(worker: *mut Worker) -> u64;
    safe fn stillpoint_urcu_mb_micro_pin(iterations: u64);
    safe fn stillpoint_urcu_mb_micro_retire(iterations: u64);
    safe fn stillpoint_urcu_mb_micro_heavy(iterations: u64);
}

pub(super) static QSBR: Flavour = Flavour {
    join: stillpoint_urcu_qsbr_join,
    leave: stillpoint_urcu_qsbr_leave,
    read: stillpoint_urcu_qsbr_read,
    worker: stillpoint_urcu_qsbr_worker,
    retire: stillpoint_urcu_qsbr_retire,
    barrier: stillpoint_urcu_qsbr_barrier,
    read_sections: stillpoint_urcu_qsbr_read_sections,
    synchronize: stillpoint_urcu_qsbr_synchronize,
    worker_cpu_ns: stillpoint_urcu_qsbr_worker_cpu_ns,
};

static MEMB: Flavour = Flavour {
    join: stillpoint_urcu_memb_join,
    leave: stillpoint_urcu_memb_leave,
    read: stillpoint_urcu_memb_read,
    worker: stillpoint_urcu_memb_worker,
    retire: stillpoint_urcu_memb_retire,
    barrier: stillpoint_urcu_memb_barrier,
    read_sections: stillpoint_urcu_memb_read_sections,
    synchronize: stillpoint_urcu_memb_synchronize,
    worker_cpu_ns: stillpoint_urcu_memb_worker_cpu_ns,
};

static MB: Flavour = Flavour {
    join: stillpoint_urcu_mb_join,
    leave: stillpoint_urcu_mb_leave,
    read: stillpoint_urcu_mb_read,
    worker: stillpoint_urcu_mb_worker,
    retire: stillpoint_urcu_mb_retire,
    barrier: stillpoint_urcu_mb_barrier,
    read_sections: stillpoint_urcu_mb_read_sections,
    synchronize: stillpoint_urcu_mb_synchronize,
    worker_cpu_ns: stillpoint_urcu_mb_worker_cpu_ns,
};

pub(super) const PEER: &str = "liburcu";
const NAME_QSBR: &str = "liburcu/qsbr";
const NAME_REALTIME: &str = "liburcu/qsbr+rt";
const NAME_MEMB: &str = "liburcu/memb";
const NAME_MB: &str = "liburcu/mb";

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
];

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
    Micro { contender: NAME_QSBR, operation: "quiescent", run: |n| stillpoint_urcu_qsbr_micro_quiescent(n) },
    Micro { contender: NAME_QSBR, operation: "retire", run: |n| stillpoint_urcu_qsbr_micro_retire(n) },
    Micro { contender: NAME_QSBR, operation: "heavy", run: |n| stillpoint_urcu_qsbr_micro_heavy(n) },
    Micro { contender: NAME_MEMB, operation: "pin", run: |n| stillpoint_urcu_memb_micro_pin(n) },
    Micro { contender: NAME_MEMB, operation: "retire", run: |n| stillpoint_urcu_memb_micro_retire(n) },
    Micro { contender: NAME_MEMB, operation: "heavy", run: |n| stillpoint_urcu_memb_micro_heavy(n) },
    Micro { contender: NAME_MB, operation: "pin", run: |n| stillpoint_urcu_mb_micro_pin(n) },
    Micro { contender: NAME_MB, operation: "retire", run: |n| stillpoint_urcu_mb_micro_retire(n) },
    Micro { contender: NAME_MB, operation: "heavy", run: |n| stillpoint_urcu_mb_micro_heavy(n) },
];
