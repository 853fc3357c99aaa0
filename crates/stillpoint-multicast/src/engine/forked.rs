//! The child of a `fork` has one thread. There, every group is reset before anything else can use it.

use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Weak;

use stillpoint_sys::sync::Patience;

use super::Core;
use crate::transport::Transport;

/// The groups of the process.
struct Groups {
    /// A lock, which is also held across a `fork`, so that the list is consistent in the child. Not a `Mutex`: one function takes
    /// it, and another one releases it.
    ///
    /// Nothing is allocated or freed under it: an allocator may hold its own locks across a `fork`.
    is_locked: AtomicBool,
    first: UnsafeCell<*mut Listed>,
}

/// A group that is alive.
struct Listed {
    group: Weak<dyn Forked>,
    next: *mut Listed,
    /// The pointer that refers to this entry: `next` of the previous entry, or `first`. It makes removal constant time.
    link: *mut *mut Listed,
}

// SAFETY: the list is used only under the lock, and its entries may be used on any thread.
unsafe impl Sync for Groups {}

static GROUPS: Groups = Groups { is_locked: AtomicBool::new(false), first: UnsafeCell::new(ptr::null_mut()) };

/// Runs before `main`, or when the library is loaded: handlers that are registered later would miss a fork that is under way.
#[used]
#[link_section = ".init_array"]
static AT_START: extern "C" fn() = register;

extern "C" fn register() {
    // SAFETY: the handlers are functions of the program. The call fails only without memory. The child of a fork
    // would then wait for threads that it does not have.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after_in_child)) };
}

trait Forked: Send + Sync {
    /// # Safety
    /// As for `Core::reset_after_fork`.
    unsafe fn reset(&self);
}

impl<T: Transport> Forked for Core<T> {
    unsafe fn reset(&self) {
        // SAFETY: the calling thread is the only one in the child of a fork, by the caller's promise.
        unsafe { self.reset_after_fork() };
    }
}

impl Groups {
    fn lock(&self) {
        // Acquire: pairs with the release in `unlock`. The lock is held for some instructions, or across a fork.
        let mut patience = Patience::default();
        while self.is_locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            patience.turn();
        }
    }

    fn unlock(&self) {
        // Release: pairs with the acquire in `lock`.
        self.is_locked.store(false, Ordering::Release);
    }
}

/// A group's entry in the list, as long as the group is alive.
#[derive(Debug)]
pub(super) struct Entry(NonNull<Listed>);

// SAFETY: the entry is used only under the lock, or by its only owner; a weak reference to a group may be dropped on any thread.
unsafe impl Send for Entry {}
// SAFETY: a shared entry gives access to nothing.
unsafe impl Sync for Entry {}

impl Entry {
    /// Adds a group to the list.
    pub(super) fn new<T: Transport>(group: Weak<Core<T>>) -> Self {
        // This refers to `AT_START`, so that a linker that takes single object files out of an archive also takes the
        // one that contains it.
        std::hint::black_box(&AT_START);
        let listed = NonNull::from(Box::leak(Box::new(Listed {
            group,
            next: ptr::null_mut(),
            link: ptr::null_mut(),
        })));
        GROUPS.lock();
        // SAFETY: under the lock, and the new entry is not published yet. Entries in the list are alive.
        unsafe {
            let (new, first) = (listed.as_ptr(), GROUPS.first.get());
            (*new).next = *first;
            (*new).link = first;
            if let Some(next) = (*first).as_mut() {
                next.link = &raw mut (*new).next;
            }
            *first = new;
        }
        GROUPS.unlock();
        Self(listed)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        GROUPS.lock();
        // SAFETY: under the lock. Entries in the list are alive, and this one is in it: its link is in the previous entry, or `first`.
        unsafe {
            let Listed { next, link, .. } = *self.0.as_ptr();
            *link = next;
            if let Some(next) = next.as_mut() {
                next.link = link;
            }
        }
        GROUPS.unlock();
        // SAFETY: made by `new`, and no longer in the list.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

extern "C" fn before() {
    GROUPS.lock();
}

extern "C" fn after() {
    GROUPS.unlock();
}

extern "C" fn after_in_child() {
    // `before` took the lock on the thread that forked, and this thread is its copy.
    GROUPS.unlock();
    // SAFETY: the child has one thread, so no other thread changes the list.
    let mut next = unsafe { *GROUPS.first.get() };
    // SAFETY: null, or in the list, and alive.
    while let Some(listed) = unsafe { next.as_ref() } {
        if let Some(group) = listed.group.upgrade() {
            // SAFETY: the child has one thread, and only fork handlers have run in it.
            unsafe { group.reset() };
        }
        next = listed.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Polled;
    use crate::Group;

    /// The groups of this test that are in the list, in its order.
    fn listed(groups: &[std::sync::Arc<Core<Polled>>]) -> Vec<usize> {
        let places: Vec<_> = groups.iter().map(|group| std::sync::Arc::as_ptr(group).cast::<()>()).collect();
        let (mut seen, mut is_linked) = (Vec::new(), true);
        GROUPS.lock();
        // SAFETY: under the lock. What is in the list is alive.
        unsafe {
            let mut link = GROUPS.first.get();
            while let Some(listed) = (*link).as_ref() {
                is_linked &= listed.link == link;
                let place = listed.group.as_ptr().cast::<()>();
                seen.extend(places.iter().position(|&one| one == place));
                link = &raw mut (**link).next;
            }
        }
        GROUPS.unlock();
        assert!(is_linked, "the link of an entry is wrong");
        seen
    }

    /// Groups are removed from the beginning, the middle and the end, while another thread adds and removes groups.
    #[test]
    fn groups_are_taken_out_wherever_they_are() {
        let flag = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: a flag that orders nothing.
                while !flag.load(Ordering::Relaxed) {
                    drop((Group::new(), Group::new()));
                }
            });
            for round in 0..200 {
                let mut groups: Vec<_> = (0..6).map(|_| Core::new(Polled)).collect();
                assert_eq!(listed(&groups), [5, 4, 3, 2, 1, 0]);
                groups.remove(round % 6);
                groups.remove(round % 5);
                assert_eq!(listed(&groups), [3, 2, 1, 0]);
                groups.push(Core::new(Polled));
                groups.remove(round % 5);
                assert_eq!(listed(&groups), [3, 2, 1, 0]);
            }
            flag.store(true, Ordering::Relaxed);
        });
    }
}
