//! Counts the bytes that the program has allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

struct Counting;

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static HOOK: Cell<Option<fn()>> = const { Cell::new(None) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed: a count, which is read after the threads were joined.
        ALLOCATED.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // The hook does not call itself.
        if let Some(hook) = HOOK.take() {
            hook();
            HOOK.set(Some(hook));
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Calls the hook before each allocation of this thread.
#[allow(dead_code, reason = "not each program that counts has a hook")]
pub(crate) fn set_hook(hook: Option<fn()>) {
    HOOK.set(hook);
}

/// The number of bytes that are allocated now.
#[allow(dead_code, reason = "not each program that has a hook counts")]
pub(crate) fn allocated() -> isize {
    ALLOCATED.load(Ordering::Relaxed)
}
