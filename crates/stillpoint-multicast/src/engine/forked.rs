//! The child of a `fork` has one thread. Every group is reset in it before anything else can use it.

use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Weak;

use super::Core;
use crate::transport::Transport;

/// The groups of the process.
struct Groups {
    /// Held across a `fork` as well, so that the child finds the list whole. A mutex cannot be given back by another
    /// function than the one that has taken it.
    ///
    /// Nothing is allocated or freed under it: an allocator may have locks of its own that it holds across a `fork`.
    is_locked: AtomicBool,
    first: UnsafeCell<*mut Listed>,
}

/// A group that is alive.
struct Listed {
    group: Weak<dyn Forked>,
    next: *mut Listed,
    /// What refers to this one: `next` of the one before, or the beginning. So a group is taken out without a walk.
    link: *mut *mut Listed,
}

// SAFETY: the list is used under the lock alone, and what is in it may be used on any thread.
unsafe impl Sync for Groups {}

static GROUPS: Groups = Groups { is_locked: AtomicBool::new(false), first: UnsafeCell::new(ptr::null_mut()) };

/// Before `main`, or when the library is loaded: a handler that came later would miss the forks that are under way then.
#[used]
#[link_section = ".init_array"]
static AT_START: extern "C" fn() = register;

extern "C" fn register() {
    // SAFETY: the handlers are functions of the program. It fails for want of memory alone: then the child of a fork
    // waits for threads that it has not got.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after_in_child)) };
}

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
            stillpoint_sys::linux::yield_cpu();
        }
    }

    fn unlock(&self) {
        // Release: pairs with the acquire in `lock`.
        self.is_locked.store(false, Ordering::Release);
    }
}

/// A group's place in the list, as long as the group is there.
#[derive(Debug)]
pub(super) struct Entry(NonNull<Listed>);

// SAFETY: what it refers to is used under the lock alone, or by its only owner; a weak reference to a group may be dropped
// anywhere.
unsafe impl Send for Entry {}
// SAFETY: as above. A shared entry gives access to nothing.
unsafe impl Sync for Entry {}

impl Entry {
    /// Writes a group down.
    pub(super) fn new<T: Transport>(group: Weak<Core<T>>) -> Self {
        // A linker that takes single objects out of an archive takes the one with the registration.
        std::hint::black_box(&AT_START);
        let listed = NonNull::from(Box::leak(Box::new(Listed {
            group,
            next: ptr::null_mut(),
            link: ptr::null_mut(),
        })));
        GROUPS.lock();
        // SAFETY: under the lock, and nobody else has seen the new one. What is in the list is alive.
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
        // SAFETY: under the lock. What is in the list is alive, and this is in it: its link is of the one before.
        unsafe {
            let Listed { next, link, .. } = *self.0.as_ptr();
            *link = next;
            if let Some(next) = next.as_mut() {
                next.link = link;
            }
        }
        GROUPS.unlock();
        // SAFETY: made by `new`, and in no list any more.
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
    // The lock was taken by `before`, on the thread of which this one is the copy.
    GROUPS.unlock();
    // SAFETY: the child has one thread, so that nobody changes the list.
    let mut next = unsafe { *GROUPS.first.get() };
    // SAFETY: null, or in the list, and alive.
    while let Some(listed) = unsafe { next.as_ref() } {
        if let Some(group) = listed.group.upgrade() {
            // SAFETY: the child has one thread, and nothing has run in it but such handlers.
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

    /// The groups of this test that are in the list, from the beginning.
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
        assert!(is_linked, "each one knows what refers to it");
        seen
    }

    /// From the beginning, the middle and the end, while others do the same.
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
