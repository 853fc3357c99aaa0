//! stillpoint itself, through `stillpoint.h`, as a C program uses it.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

// Links the library, whose functions C calls by name.
use stillpoint_c as _;

use super::{RawElement, RawJob, RawSections};
use crate::{Contender, Element, Entry, Micro, ReadJob, ReadOutcome, Slots, Work, Writer, free_element};

const PEER: &str = "stillpoint.h";
const NAME_PROTECTED: &str = "c/protected";
const NAME_GUARD: &str = "c/guard";
const NAME_QSBR: &str = "c/qsbr";

pub(crate) const ENTRIES: &[Entry] = &[
    Entry {
        name: NAME_PROTECTED,
        peer: PEER,
        make: |slots, _| Box::new(Header::new(slots, NAME_PROTECTED, Reading::Protected)),
    },
    Entry {
        name: NAME_GUARD,
        peer: PEER,
        make: |slots, _| Box::new(Header::new(slots, NAME_GUARD, Reading::Guard)),
    },
    Entry {
        name: NAME_QSBR,
        peer: PEER,
        make: |slots, _| Box::new(Header::new(slots, NAME_QSBR, Reading::Qsbr)),
    },
];

/// `struct still_domain`.
#[repr(C)]
struct RawDomain {
    opaque: [u8; 0],
}

/// `struct still_reclaimer`.
#[repr(C)]
struct RawReclaimer {
    opaque: [u8; 0],
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
    fn stillpoint_c_read_sections(
        reader: RawReader,
        reading: Reading,
        job: *const RawSections<'_>,
    ) -> ReadOutcome;
    fn stillpoint_c_reclaimer(domain: NonNull<RawDomain>) -> NonNull<RawReclaimer>;
    fn stillpoint_c_end(reclaimer: NonNull<RawReclaimer>);
    fn stillpoint_c_retire(reclaimer: NonNull<RawReclaimer>, element: *mut RawElement, release: Release);
    fn stillpoint_c_poll(reclaimer: NonNull<RawReclaimer>);
    fn stillpoint_c_flush(reclaimer: NonNull<RawReclaimer>);
    safe fn stillpoint_c_micro_quiescent(iterations: u64);
    safe fn stillpoint_c_micro_pin(iterations: u64);
    safe fn stillpoint_c_micro_protect(iterations: u64);
    safe fn stillpoint_c_micro_check(iterations: u64);
    safe fn stillpoint_c_micro_retire(iterations: u64);
    safe fn stillpoint_c_micro_lookup(iterations: u64);
    safe fn stillpoint_c_micro_burst(iterations: u64);
    safe fn stillpoint_c_micro_lookup_of_many(iterations: u64);
    safe fn stillpoint_c_micro_burst_of_many(iterations: u64);
}

pub(crate) const MICRO: &[Micro] = &[
    Micro { contender: NAME_QSBR, operation: "quiescent", run: |n| stillpoint_c_micro_quiescent(n) },
    Micro { contender: NAME_GUARD, operation: "pin", run: |n| stillpoint_c_micro_pin(n) },
    Micro { contender: NAME_PROTECTED, operation: "protect", run: |n| stillpoint_c_micro_protect(n) },
    Micro { contender: NAME_QSBR, operation: "check", run: |n| stillpoint_c_micro_check(n) },
    Micro { contender: NAME_PROTECTED, operation: "retire", run: |n| stillpoint_c_micro_retire(n) },
    Micro { contender: NAME_QSBR, operation: "lookup", run: |n| stillpoint_c_micro_lookup(n) },
    Micro { contender: NAME_QSBR, operation: "burst", run: |n| stillpoint_c_micro_burst(n) },
    Micro { contender: NAME_QSBR, operation: "lookup-1m", run: |n| stillpoint_c_micro_lookup_of_many(n) },
    Micro { contender: NAME_QSBR, operation: "burst-1m", run: |n| stillpoint_c_micro_burst_of_many(n) },
];

struct Header {
    slots: Arc<Slots>,
    domain: NonNull<RawDomain>,
    name: &'static str,
    reading: Reading,
}

// SAFETY: any number of threads may use a domain.
unsafe impl Send for Header {}
// SAFETY: any number of threads may use a domain at the same time.
unsafe impl Sync for Header {}

impl Header {
    fn new(slots: &Arc<Slots>, name: &'static str, reading: Reading) -> Self {
        Self { slots: Arc::clone(slots), domain: stillpoint_c_new(), name, reading }
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
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let member = self.join();
        ready();
        // SAFETY: the reader is this thread's; the job borrows what it points to; replaced elements are freed only through
        // this domain.
        unsafe { stillpoint_c_read(member.reader, member.reading, &RawJob::new(&self.slots, job)) }
    }

    fn read_sections(&self, job: &ReadJob<'_>, work: &Work, ready: &dyn Fn()) -> ReadOutcome {
        let member = self.join();
        ready();
        let job = RawSections::new(&self.slots, job, work);
        // SAFETY: the reader is this thread's; the job borrows what it points to, and the work; replaced elements are freed only through
        // this domain.
        unsafe { stillpoint_c_read_sections(member.reader, member.reading, &job) }
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        // SAFETY: the domain lives as long as `self`.
        let reclaimer = unsafe { stillpoint_c_reclaimer(self.domain) };
        Box::new(Polling { header: self, reclaimer })
    }
}

struct Polling<'a> {
    header: &'a Header,
    reclaimer: NonNull<RawReclaimer>,
}

impl Polling<'_> {
    /// Takes over an element that was unlinked just now.
    fn retire(&mut self, old: *mut Element) {
        // SAFETY: the reclaimer is this writer's; `old` is unlinked and handed over once.
        unsafe { stillpoint_c_retire(self.reclaimer, old.cast(), release) };
    }
}

/// # Safety
/// As for [`free_element`].
unsafe extern "C" fn release(element: *mut c_void, _context: *mut c_void) {
    // SAFETY: the element may be freed, by the caller's promise.
    unsafe { free_element(element.cast()) };
}

impl Writer for Polling<'_> {
    fn replace(&mut self, index: usize) {
        self.retire(self.header.slots.replace(index));
        self.poll();
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        if let Some(old) = self.header.slots.publish(index, new) {
            self.retire(old);
        }
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
        self.drain();
        // SAFETY: nothing is pending, and the handle is not used again.
        unsafe { stillpoint_c_end(self.reclaimer) };
    }
}
