//! Concurrency Kit: readers enter an epoch, `ck_epoch_call` defers a callback, and a poll runs the callbacks of two epochs ago.

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{RawElement, RawJob, micro};
use crate::c_functions::opaque;
use crate::contender::{Retire, Retiring};
use crate::element::free_by_head;
use crate::{Contender, Element, Entry, Micro, ReadJob, ReadOutcome, Slots, Writer};

const NAME: &str = "ck/epoch";

pub(crate) const ENTRIES: &[Entry] =
    &[Entry { name: NAME, peer: "ck", make: |slots, _| Box::new(Epoch::new(slots)) }];

opaque! {
    /// `struct stillpoint_ck`: the epoch and its records.
    struct RawEpoch;
    /// `ck_epoch_record_t`.
    struct RawRecord;
}

type Release = unsafe extern "C" fn(*mut c_void);

unsafe extern "C" {
    fn stillpoint_ck_new() -> *mut RawEpoch;
    fn stillpoint_ck_free(epoch: *mut RawEpoch);
    fn stillpoint_ck_join(epoch: *mut RawEpoch) -> *mut RawRecord;
    fn stillpoint_ck_leave(record: *mut RawRecord);
    fn stillpoint_ck_read(record: *mut RawRecord, job: *const RawJob<'_>) -> ReadOutcome;
    fn stillpoint_ck_retire(record: *mut RawRecord, element: *mut RawElement, release: Release);
    fn stillpoint_ck_poll(record: *mut RawRecord);
    fn stillpoint_ck_barrier(record: *mut RawRecord);
}

pub(crate) const MICRO: &[Micro] = &[
    micro!(NAME, "pin", "stillpoint_ck_micro_pin"),
    micro!(NAME, "retire", "stillpoint_ck_micro_retire"),
    micro!(NAME, "heavy", "stillpoint_ck_micro_heavy"),
];

struct Epoch {
    slots: Arc<Slots>,
    raw: NonNull<RawEpoch>,
}

// SAFETY: joining is the only call on the epoch itself while threads share it, and it is thread-safe; all other calls are on records.
unsafe impl Send for Epoch {}
// SAFETY: joining is the only call on the shared epoch, and it is thread-safe.
unsafe impl Sync for Epoch {}

impl Epoch {
    fn new(slots: &Arc<Slots>) -> Self {
        // SAFETY: the function has no precondition.
        let raw = or_out_of_memory(unsafe { stillpoint_ck_new() });
        Self { slots: Arc::clone(slots), raw }
    }

    fn join(&self) -> Record<'_> {
        // SAFETY: the epoch is alive.
        let raw = or_out_of_memory(unsafe { stillpoint_ck_join(self.raw.as_ptr()) });
        Record { epoch: self, raw }
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        // SAFETY: records borrow the epoch, so no record is in use.
        unsafe { stillpoint_ck_free(self.raw.as_ptr()) };
    }
}

/// The calling thread's record, which it leaves on drop. The raw pointer makes this type `!Send`.
struct Record<'a> {
    epoch: &'a Epoch,
    raw: NonNull<RawRecord>,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        // SAFETY: readers retire nothing, and the writer drains before it drops its record.
        unsafe { stillpoint_ck_leave(self.raw.as_ptr()) };
    }
}

impl Contender for Epoch {
    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let record = self.join();
        ready();
        // SAFETY: the record is this thread's; the job borrows what it points to; unlinked elements are freed only through this epoch.
        unsafe { stillpoint_ck_read(record.raw.as_ptr(), &RawJob::new(&self.slots, job)) }
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        Box::new(Retiring(self.join()))
    }
}

impl Retire for Record<'_> {
    fn polls_at_replacement(&self) -> bool {
        true
    }

    fn slots(&self) -> &Slots {
        &self.epoch.slots
    }

    fn retire(&mut self, old: *mut Element) {
        // SAFETY: the record is this thread's; `old` is unlinked and handed over once.
        unsafe { stillpoint_ck_retire(self.raw.as_ptr(), old.cast(), free_by_head) };
    }

    fn poll(&mut self) {
        // SAFETY: the record is this thread's and outside a section.
        unsafe { stillpoint_ck_poll(self.raw.as_ptr()) };
    }

    fn drain(&mut self) {
        // SAFETY: the record is this thread's and outside a section.
        unsafe { stillpoint_ck_barrier(self.raw.as_ptr()) };
    }
}

fn or_out_of_memory<T>(raw: *mut T) -> NonNull<T> {
    // A size for the error: a record with its links takes a few cache lines, and an epoch less.
    NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(Layout::new::<[u64; 32]>()))
}
