//! Memory of freed objects is not used again for a while, so that a broken variant that reads a freed object
//! reads what the destructor left, and loom can report it, instead of crashing the model.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::{Mutex, PoisonError};

use super::Object;

/// Objects in quarantine at a time: many times what one execution of a model makes.
const CAPACITY: usize = 1024;

struct Quarantine {
    ring: Mutex<Ring>,
}

struct Ring {
    freed: [usize; CAPACITY],
    next: usize,
}

#[global_allocator]
static QUARANTINE: Quarantine = Quarantine { ring: Mutex::new(Ring { freed: [0; CAPACITY], next: 0 }) };

// SAFETY: memory comes from the system's allocator and goes back to it, once, with its own layout; only later.
unsafe impl GlobalAlloc for Quarantine {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let mut released = memory;
        if layout == Layout::new::<Object>() {
            let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            let at = ring.next;
            ring.next = (at + 1) % CAPACITY;
            released = std::ptr::with_exposed_provenance_mut(ring.freed[at]);
            ring.freed[at] = memory.expose_provenance();
        }
        if !released.is_null() {
            // SAFETY: `memory` itself, or memory of the same layout that was freed before and kept here since.
            unsafe { System.dealloc(released, layout) };
        }
    }
}
