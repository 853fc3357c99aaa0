//! `defer_rcu`: calls for which the user provides no node. Each thread has a ring of them.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

use stillpoint::rcu::raw::Callback;

use super::barrier::Pushed;
use super::flavour::{of, Flavour};
use crate::border::{call, Refusal};
use crate::own::{self, own};
use crate::reserve;

/// How many calls of a thread may wait, as in liburcu.
const ROOM: usize = 4096;

/// A deferred call.
#[repr(C)]
struct Slot {
    node: Callback,
    function: unsafe extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
    /// The slot's ring; null if the slot has a box to itself.
    ring: *const Ring,
}

/// A thread's deferred calls. They run in order, so their slots become free in order.
struct Ring {
    slots: Box<[UnsafeCell<Option<Slot>>]>,
    /// How many calls were pushed. Only the ring's thread uses this.
    pushed: Cell<usize>,
    /// How many uses the ring has: one for each call that waits, and one for the thread. When the last use ends, the ring is freed.
    uses: AtomicUsize,
}

impl Ring {
    /// Null if there is no memory.
    fn make() -> *mut Self {
        let mut slots = Vec::new();
        if reserve::closed(|| slots.try_reserve_exact(ROOM)).is_err() {
            return ptr::null_mut();
        }
        slots.extend((0..ROOM).map(|_| UnsafeCell::new(None)));
        let slots = slots.into_boxed_slice();
        Box::into_raw(Box::new(Self { slots, pushed: Cell::new(0), uses: AtomicUsize::new(1) }))
    }

    /// Ends a use.
    ///
    /// # Safety
    /// One of the uses belongs to the caller.
    unsafe fn release(ring: *const Self) {
        // SAFETY: the ring is alive, since one of its uses belongs to the caller, by the caller's promise.
        // Release: pairs with the acquire in `defer`, so that this use of the slot happens before the next one. Acquire: pairs with this
        // release of the other uses, which happen before the ring is freed.
        if unsafe { &*ring }.uses.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: `ring` came from a box, and this was the last use.
            drop(unsafe { Box::from_raw(ring.cast_mut()) });
        }
    }
}

unsafe extern "C-unwind" fn run(node: NonNull<Callback>) {
    let slot = node.cast::<Slot>().as_ptr();
    // SAFETY: the node is the first field of a slot, which is not used again before the ring is released.
    let (function, argument, ring) = unsafe { ((*slot).function, (*slot).argument, (*slot).ring) };
    if ring.is_null() {
        // SAFETY: `slot` came from a box, since it has no ring.
        drop(unsafe { Box::from_raw(slot) });
    } else {
        // SAFETY: the waiting call counts as a use.
        unsafe { Ring::release(ring) };
    }
    // SAFETY: the caller of `defer_rcu` promised that the function may be called.
    unsafe { function(argument) };
}

impl Flavour {
    /// The calling thread's ring. Makes it if there is none. Null if there is no memory for it.
    fn ring(&'static self) -> *mut Ring {
        // Also arranges that the thread's end leaves the ring.
        own();
        // SAFETY: the thread has its block.
        let place = unsafe { &mut (*self.mine()).ring };
        if place.is_null() {
            *place = Ring::make().cast();
        }
        place.cast()
    }

    /// # Safety
    /// As for `defer_rcu`.
    unsafe fn defer(
        &'static self,
        function: unsafe extern "C-unwind" fn(*mut c_void),
        argument: *mut c_void,
    ) -> Result<(), Refusal> {
        let worker = self.deferring_worker();
        let address = self.ring();
        // SAFETY: null, or the thread's own ring, which lives until the thread's end.
        let ring = unsafe { address.as_ref() };
        // Acquire: pairs with the release in `Ring::release`, after which the slot is free.
        let is_full = || ring.is_none_or(|ring| ring.uses.load(Ordering::Acquire) > ROOM);
        let answer = match is_full() && !worker.queue.is_served_here() {
            true => self.wait_for(Pushed::ByDefer),
            false => Ok(()),
        };
        // If the thread cannot wait for a slot, because it would wait for itself, or if it has no ring, the call gets a slot in a box.
        let ring = ring.filter(|_| !is_full());
        let slot = Slot {
            node: Callback::new(),
            function,
            argument,
            ring: ring.map_or(ptr::null(), |_| address.cast_const()),
        };
        let node = match ring {
            None => NonNull::from(Box::leak(Box::new(slot))).cast(),
            Some(ring) => {
                let pushed = ring.pushed.get();
                ring.pushed.set(pushed.wrapping_add(1));
                // Relaxed: the push publishes the new count.
                ring.uses.fetch_add(1, Ordering::Relaxed);
                // SAFETY: the slot is free, since calls run in order.
                let place = unsafe { &mut *ring.slots[pushed % ROOM].get() };
                NonNull::from(place.insert(slot)).cast()
            }
        };
        // SAFETY: the slot belongs to the queue until it is called.
        unsafe { worker.push(node, run) };
        answer
    }
}

/// Detaches the ring from the calling thread. The calls that wait in it still run.
pub(super) fn leave(flavour: &'static Flavour) {
    if own::find().is_none() {
        return;
    }
    // SAFETY: the thread has its block.
    let place = unsafe { &mut (*flavour.mine()).ring };
    let ring = std::mem::replace(place, ptr::null_mut()).cast::<Ring>();
    if !ring.is_null() {
        // SAFETY: the thread counts as a use.
        unsafe { Ring::release(ring) };
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_urcu_defer_(
    flavour: u32,
    function: Option<unsafe extern "C-unwind" fn(argument: *mut c_void)>,
    argument: *mut c_void,
) {
    call(|| {
        let flavour = of(flavour);
        let function = function
            .ok_or_else(|| Refusal::invalid(c"urcu-{}: NULL was passed to defer_rcu").with(flavour.name()))?;
        // SAFETY: the caller promises that the function may be called.
        unsafe { flavour.defer(function, argument) }
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_defer_register_(flavour: u32) -> c_int {
    call(|| match of(flavour).ring().is_null() {
        true => Err(Refusal::no_memory(c"there is no memory for the thread's deferred calls")),
        false => Ok(0),
    })
}

#[no_mangle]
pub extern "C" fn still_urcu_defer_unregister_(flavour: u32) {
    call(|| {
        let flavour = of(flavour);
        let answer = flavour.wait_for(Pushed::ByDefer);
        leave(flavour);
        answer
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_defer_barrier_(flavour: u32) {
    call(|| of(flavour).wait_for(Pushed::ByDefer));
}
