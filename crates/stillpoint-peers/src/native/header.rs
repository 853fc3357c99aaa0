//! stillpoint itself, through `stillpoint.h`, as a C program uses it.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

// Links the library, whose functions C calls by name.
use stillpoint_c as _;

use super::{RawElement, RawJob, micro};
use crate::c_functions::opaque;
use crate::contender::{Retire, Retiring};
use crate::{Contender, Element, Entry, Micro, ReadJob, ReadOutcome, Slots, Writer, free_element};

const PEER: &str = "stillpoint.h";
const NAME_PROTECTED: &str = "c/protected";
const NAME_GUARD: &str = "c/guard";
const NAME_QSBR: &str = "c/qsbr";

pub(crate) const ENTRIES: &[Entry] = &[
    Entry {
        name: NAME_PROTECTED,
        peer: PEER,
        make: |slots, _| Box::new(Header::new(slots, Reading::Protected)),
    },
    Entry { name: NAME_GUARD, peer: PEER, make: |slots, _| Box::new(Header::new(slots, Reading::Guard)) },
    Entry { name: NAME_QSBR, peer: PEER, make: |slots, _| Box::new(Header::new(slots, Reading::Qsbr)) },
];

opaque! {
    /// `struct still_domain`.
    struct RawDomain;
    /// `struct still_reclaimer`.
    struct RawReclaimer;
}

/// `union reader` in c/stillpoint.c.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct RawReader(*mut c_void);

/// `enum reading` in c/stillpoint.c.
#[repr(C)]
#[derive(Clone, Copy)]
enum Reading {
    Protected,
    Guard,
    Qsbr,
}

type Release = unsafe extern "C" fn(*mut c_void, *mut c_void);

unsafe extern "C" {
    safe fn stillpoint_c_new() -> NonNull<RawDomain>;
    fn stillpoint_c_free(domain: NonNull<RawDomain>);
    fn stillpoint_c_join(domain: NonNull<RawDomain>, reading: Reading) -> RawReader;
    fn stillpoint_c_leave(reader: RawReader, reading: Reading);
    fn stillpoint_c_read(reader: RawReader, reading: Reading, job: *const RawJob<'_>) -> ReadOutcome;
    fn stillpoint_c_reclaimer(domain: NonNull<RawDomain>) -> NonNull<RawReclaimer>;
    fn stillpoint_c_end(reclaimer: NonNull<RawReclaimer>);
    fn stillpoint_c_retire(reclaimer: NonNull<RawReclaimer>, element: *mut RawElement, release: Release);
    fn stillpoint_c_poll(reclaimer: NonNull<RawReclaimer>);
    fn stillpoint_c_flush(reclaimer: NonNull<RawReclaimer>);
}

pub(crate) const MICRO: &[Micro] = &[
    micro!(NAME_QSBR, "quiescent", "stillpoint_c_micro_quiescent"),
    micro!(NAME_GUARD, "pin", "stillpoint_c_micro_pin"),
    micro!(NAME_PROTECTED, "protect", "stillpoint_c_micro_protect"),
    micro!(NAME_QSBR, "check", "stillpoint_c_micro_check"),
    micro!(NAME_PROTECTED, "retire", "stillpoint_c_micro_retire"),
    micro!(NAME_QSBR, "lookup", "stillpoint_c_micro_lookup"),
    micro!(NAME_QSBR, "burst", "stillpoint_c_micro_burst"),
    micro!(NAME_QSBR, "lookup-1m", "stillpoint_c_micro_lookup_of_many"),
    micro!(NAME_QSBR, "burst-1m", "stillpoint_c_micro_burst_of_many"),
];

struct Header {
    slots: Arc<Slots>,
    domain: NonNull<RawDomain>,
    reading: Reading,
}

// SAFETY: any number of threads may use a domain.
unsafe impl Send for Header {}
// SAFETY: any number of threads may use a domain at the same time.
unsafe impl Sync for Header {}

impl Header {
    fn new(slots: &Arc<Slots>, reading: Reading) -> Self {
        Self { slots: Arc::clone(slots), domain: stillpoint_c_new(), reading }
    }

    fn join(&self) -> Member<'_> {
        // SAFETY: the domain lives as long as `self`.
        let reader = unsafe { stillpoint_c_join(self.domain, self.reading) };
        Member { reader, reading: self.reading, domain: PhantomData }
    }
}

impl Drop for Header {
    fn drop(&mut self) {
        // SAFETY: readers and writers borrow `self`, so none is left.
        unsafe { stillpoint_c_free(self.domain) };
    }
}

/// The calling thread's reader. The raw pointer makes this type `!Send`.
struct Member<'a> {
    reader: RawReader,
    reading: Reading,
    domain: PhantomData<&'a Header>,
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        // SAFETY: `join` made the reader, on this thread.
        unsafe { stillpoint_c_leave(self.reader, self.reading) };
    }
}

impl Contender for Header {
    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let member = self.join();
        ready();
        // SAFETY: the reader is this thread's; the job borrows what it points to; unlinked elements are freed only through
        // this domain.
        unsafe { stillpoint_c_read(member.reader, member.reading, &RawJob::new(&self.slots, job)) }
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        // SAFETY: the domain lives as long as `self`.
        let reclaimer = unsafe { stillpoint_c_reclaimer(self.domain) };
        Box::new(Retiring(Polling { header: self, reclaimer }))
    }
}

struct Polling<'a> {
    header: &'a Header,
    reclaimer: NonNull<RawReclaimer>,
}

/// # Safety
/// As for [`free_element`].
unsafe extern "C" fn release(element: *mut c_void, _context: *mut c_void) {
    // SAFETY: the element may be freed, by the caller's promise.
    unsafe { free_element(element.cast()) };
}

impl Retire for Polling<'_> {
    fn polls_at_replacement(&self) -> bool {
        true
    }

    fn slots(&self) -> &Slots {
        &self.header.slots
    }

    fn retire(&mut self, old: *mut Element) {
        // SAFETY: the reclaimer is this writer's; `old` is unlinked and handed over once.
        unsafe { stillpoint_c_retire(self.reclaimer, old.cast(), release) };
    }

    fn poll(&mut self) {
        // SAFETY: the reclaimer is this writer's.
        unsafe { stillpoint_c_poll(self.reclaimer) };
    }

    fn drain(&mut self) {
        // SAFETY: the reclaimer is this writer's.
        unsafe { stillpoint_c_flush(self.reclaimer) };
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        // SAFETY: the writer has drained it before, so nothing is pending, and the handle is not used again.
        unsafe { stillpoint_c_end(self.reclaimer) };
    }
}
