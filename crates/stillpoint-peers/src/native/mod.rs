//! The peers written in C, compiled by the build script. The loops of their readers are in `c/`.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr};

use crate::c_functions::opaque;
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

opaque! {
    /// An [`Element`](crate::Element) as C code sees it: `struct element` in c/peer.h.
    pub(crate) struct RawElement;
}

/// `struct read_job` in c/peer.h. The C side treats the slots, what they point to and the flag as C11 atomics,
/// which have the size and representation of Rust's.
#[repr(C)]
pub(crate) struct RawJob<'a> {
    slots: *const AtomicPtr<RawElement>,
    mask: u64,
    seed: u64,
    stop: *const AtomicBool,
    work: *const c_void,
    inside: Option<unsafe extern "C" fn(*const c_void, *const RawElement, u64) -> bool>,
    rest: Option<unsafe extern "C" fn(*const c_void)>,
    borrow: PhantomData<&'a ()>,
}

impl<'a> RawJob<'a> {
    fn new(slots: &'a Slots, job: &ReadJob<'a>) -> Self {
        let slots = slots.as_slice();
        Self { slots: slots.as_ptr().cast(), ..Self::without_slots(slots.len(), job) }
    }

    /// For a table of `len` elements, a power of two.
    pub(crate) fn without_slots(len: usize, job: &ReadJob<'a>) -> Self {
        Self {
            slots: ptr::null(),
            mask: len as u64 - 1,
            seed: job.seed,
            stop: job.stop,
            work: job.work.map_or(ptr::null(), ptr::from_ref).cast(),
            inside: job.work.map(|_| inside as _),
            rest: job.work.filter(|work| work.has_rest()).map(|_| rest as _),
            borrow: PhantomData,
        }
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

/// A single operation, by the name of the C function that repeats it.
#[cfg(any(peer_c, peer_urcu, peer_dpdk, peer_ck))]
macro_rules! micro {
    ($contender:expr, $operation:literal, $function:literal) => {
        $crate::Micro {
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
pub(crate) use micro;

/// A writer that waits, and its reader: two functions in C.
#[cfg(any(peer_urcu, peer_dpdk))]
macro_rules! waits {
    ($contender:expr, $wait:literal, $read:literal) => {
        $crate::Waits {
            contender: $contender,
            wait: $crate::native::micro!($contender, "wait", $wait).run,
            read: |stop, begun| {
                unsafe extern "C" {
                    #[link_name = $read]
                    safe fn run(stop: &AtomicBool, begun: &AtomicBool);
                }
                run(stop, begun);
            },
        }
    };
}
#[cfg(any(peer_urcu, peer_dpdk))]
pub(crate) use waits;
