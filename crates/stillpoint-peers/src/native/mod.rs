//! The peers written in C, compiled by the build script. The loops of their readers are in `c/`.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicPtr};

use crate::{ReadJob, Slots};

#[cfg(peer_ck)]
pub(crate) mod ck;
#[cfg(peer_dpdk)]
pub(crate) mod dpdk;
#[cfg(peer_urcu)]
pub(crate) mod urcu;

/// An [`Element`](crate::Element) as C code sees it: `struct element` in c/peer.h.
#[repr(C)]
struct RawElement {
    opaque: [u8; 0],
}

/// `struct read_job` in c/peer.h. The C side treats the slots, what they point to and the flag as C11 atomics,
/// which have the size and representation of Rust's.
#[repr(C)]
struct RawJob<'a> {
    slots: *const AtomicPtr<RawElement>,
    mask: u64,
    seed: u64,
    stop: *const AtomicBool,
    borrow: PhantomData<&'a ()>,
}

impl<'a> RawJob<'a> {
    fn new(slots: &'a Slots, job: &ReadJob<'a>) -> Self {
        let slots = slots.as_slice();
        Self {
            slots: slots.as_ptr().cast(),
            mask: slots.len() as u64 - 1,
            seed: job.seed,
            stop: job.stop,
            borrow: PhantomData,
        }
    }
}
