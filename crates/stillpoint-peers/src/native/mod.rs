//! The peers written in C, compiled by the build script. The loops of their readers are in `c/`.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr};

use crate::{Element, ReadJob, Slots, Work};

#[cfg(peer_ck)]
pub(crate) mod ck;
#[cfg(peer_dpdk)]
pub(crate) mod dpdk;
#[cfg(peer_c)]
pub(crate) mod header;
#[cfg(peer_urcu)]
pub(crate) mod lfht;
#[cfg(peer_urcu)]
pub(crate) mod urcu;
#[cfg(peer_urcu)]
mod urcu_sync;

/// An [`Element`](crate::Element) as C code sees it: `struct element` in c/peer.h.
#[repr(C)]
pub(crate) struct RawElement {
    opaque: [u8; 0],
}

/// `struct read_job` in c/peer.h. The C side treats the slots, what they point to and the flag as C11 atomics,
/// which have the size and representation of Rust's.
#[repr(C)]
pub(crate) struct RawJob<'a> {
    slots: *const AtomicPtr<RawElement>,
    mask: u64,
    seed: u64,
    stop: *const AtomicBool,
    borrow: PhantomData<&'a ()>,
}

impl<'a> RawJob<'a> {
    fn new(slots: &'a Slots, job: &ReadJob<'a>) -> Self {
        let slots = slots.as_slice();
        Self { slots: slots.as_ptr().cast(), ..Self::without_slots(slots.len(), job) }
    }

    /// For a table of `len` elements, a power of two.
    pub(crate) fn without_slots(len: usize, job: &ReadJob<'a>) -> Self {
        Self { slots: ptr::null(), mask: len as u64 - 1, seed: job.seed, stop: job.stop, borrow: PhantomData }
    }
}

/// `struct section_job` in c/peer.h.
#[repr(C)]
pub(crate) struct RawSections<'a> {
    read: RawJob<'a>,
    work: *const c_void,
    inside: unsafe extern "C" fn(*const c_void, *const RawElement, u64) -> bool,
    rest: Option<unsafe extern "C" fn(*const c_void)>,
}

impl<'a> RawSections<'a> {
    fn new(slots: &'a Slots, job: &ReadJob<'a>, work: &'a Work) -> Self {
        Self::reading(RawJob::new(slots, job), work)
    }

    pub(crate) fn reading(read: RawJob<'a>, work: &'a Work) -> Self {
        let rest: unsafe extern "C" fn(*const c_void) = rest;
        Self { read, work: ptr::from_ref(work).cast(), inside, rest: work.has_rest().then_some(rest) }
    }
}

/// # Safety
/// `work` and, unless it is null, `element` point to a `Work` and an `Element` that live as long as the call.
unsafe extern "C" fn inside(work: *const c_void, element: *const RawElement, index: u64) -> bool {
    // SAFETY: `work` and, unless it is null, `element` are alive during the call, by the caller's promise.
    let (work, element) = unsafe { (&*work.cast::<Work>(), element.cast::<Element>().as_ref()) };
    work.inside(element, index as usize)
}

/// # Safety
/// `work` points to a `Work` that lives as long as the call.
unsafe extern "C" fn rest(work: *const c_void) {
    // SAFETY: `work` is alive during the call, by the caller's promise.
    unsafe { (*work.cast::<Work>()).rest() }
}
