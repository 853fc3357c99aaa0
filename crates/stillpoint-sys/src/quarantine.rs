//! For models: keeps the memory of freed objects from being reused for a while. So a broken variant that reads a freed object
//! reads what the destructor left, and loom reports it. Otherwise the model might crash.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::{Mutex, PoisonError};

/// Objects that loom watches have this alignment, by which the quarantine recognises them.
const ALIGN: usize = 256;

/// The largest number of objects in quarantine at a time: many times the number that one execution of a model makes.
const CAPACITY: usize = 1024;

/// An allocator for models, as `#[global_allocator]`: keeps freed objects with an alignment of 256.
#[derive(Debug)]
pub struct Quarantine {
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    freed: [Option<(usize, Layout)>; CAPACITY],
    next: usize,
}

impl Quarantine {
    /// An empty quarantine.
    #[allow(clippy::new_without_default, reason = "for statics only")]
    pub const fn new() -> Self {
        Self { ring: Mutex::new(Ring { freed: [None; CAPACITY], next: 0 }) }
    }
}

// SAFETY: memory comes from the system's allocator and goes back to it, once, with its own layout, only later.
unsafe impl GlobalAlloc for Quarantine {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let mut released = Some((memory, layout));
        if layout.align() == ALIGN {
            let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            let at = ring.next;
            ring.next = (at + 1) % CAPACITY;
            let before = ring.freed[at].replace((memory.expose_provenance(), layout));
            released = before.map(|(memory, layout)| (std::ptr::with_exposed_provenance_mut(memory), layout));
        }
        if let Some((memory, layout)) = released {
            // SAFETY: `memory` itself, or memory that was freed before with this layout, and kept here since.
            unsafe { System.dealloc(memory, layout) };
        }
    }
}
