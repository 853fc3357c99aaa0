//! The child of a `fork` has one thread. Every group is reset in it before anything else can use it.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, Weak};

use super::Core;
use crate::multicast::transport::Transport;

/// The groups of the process.
struct Groups {
    /// Held across a `fork` as well, so that the child finds the list whole. A mutex cannot be given back by another
    /// function than the one that has taken it.
    is_locked: AtomicBool,
    list: UnsafeCell<Vec<Weak<dyn Forked>>>,
}

// SAFETY: the list is used under the lock alone.
unsafe impl Sync for Groups {}

static GROUPS: Groups = Groups { is_locked: AtomicBool::new(false), list: UnsafeCell::new(Vec::new()) };

trait Forked: Send + Sync {
    /// # Safety
    /// As for `Core::reset_after_fork`.
    unsafe fn reset(&self);
}

impl<T: Transport> Forked for Core<T> {
    unsafe fn reset(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.reset_after_fork() };
    }
}

impl Groups {
    fn lock(&self) {
        // Acquire: pairs with the release in `unlock`. It is held for some instructions, and across a fork.
        while self.is_locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            crate::sys::yield_cpu();
        }
    }

    fn unlock(&self) {
        // Release: pairs with the acquire in `lock`.
        self.is_locked.store(false, Ordering::Release);
    }
}

/// Writes a group down.
pub(super) fn enlist<T: Transport>(core: &Arc<Core<T>>) {
    static AT_FORK: Once = Once::new();
    AT_FORK.call_once(|| {
        // SAFETY: the handlers are functions of the program. It fails for want of memory alone: then the child of a
        // fork waits for threads that it has not got.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after_in_child)) };
    });
    let weak: Weak<dyn Forked> = Arc::downgrade(core) as Weak<dyn Forked>;
    GROUPS.lock();
    // SAFETY: under the lock. What is dropped are weak references alone.
    let list = unsafe { &mut *GROUPS.list.get() };
    list.retain(|group| group.strong_count() > 0);
    list.push(weak);
    GROUPS.unlock();
}

extern "C" fn before() {
    GROUPS.lock();
}

extern "C" fn after() {
    GROUPS.unlock();
}

extern "C" fn after_in_child() {
    // SAFETY: the lock was taken by `before`, on the thread of which this one is the copy.
    for group in unsafe { &*GROUPS.list.get() } {
        if let Some(group) = group.upgrade() {
            // SAFETY: the child has one thread, and nothing has run in it but such handlers.
            unsafe { group.reset() };
        }
    }
    GROUPS.unlock();
}
