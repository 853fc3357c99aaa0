//! When a thread ends, frees the readers and locals that it has not freed.

use std::cell::UnsafeCell;
use std::ffi::c_void;

use crate::border::Refusal;
use crate::handle::{find, Kind};
use crate::own::{self, awaits_end, own};
use crate::reserve;

/// What is freed, by which function, and the mark of its [`Kind`], if it is a handle.
type Owned = (*mut c_void, unsafe fn(*mut c_void), Option<u32>);

/// A thread's handles.
pub(crate) struct Handles(UnsafeCell<Vec<Owned>>);

impl Handles {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(Vec::new()))
    }

    /// Frees them, at the end of the thread.
    pub(crate) fn free(&self) {
        // One handle at a time, because freeing it may call the program back.
        while let Some((handle, free, _)) = self.with(Vec::pop) {
            // SAFETY: the thread has not freed this handle.
            unsafe { free(handle) };
        }
    }

    /// Runs `action` on the handles. `action` must not call `with`, directly or through the program.
    fn with<A>(&self, action: impl FnOnce(&mut Vec<Owned>) -> A) -> A {
        // SAFETY: only this thread uses the handles, and `action` does not call `with`, so there is no other reference.
        action(unsafe { &mut *self.0.get() })
    }
}

/// Arranges that the handle is freed when the calling thread ends, and returns the handle. If that is not possible, frees it now, and
/// fails.
pub(crate) fn adopt<K: Kind>(handle: *mut K::C) -> Result<*mut K::C, Refusal> {
    unsafe fn free<K: Kind>(handle: *mut c_void) {
        // SAFETY: `handle` is a handle. Its thread is ending, or the program has not got the handle yet, so no other call uses it.
        if let Ok(found) = unsafe { find::<K>(handle.cast()) } {
            // SAFETY: no other call uses the handle.
            drop(unsafe { found.free() });
        }
    }

    match note_as(handle.cast(), free::<K>, Some(K::MARK)) {
        Ok(()) => Ok(handle),
        Err(refusal) => {
            // SAFETY: `handle` is a handle that the program has not got.
            unsafe { free::<K>(handle.cast()) };
            Err(refusal)
        }
    }
}

/// Arranges that `free` is called with `owned`, which is no handle, when the calling thread ends.
pub(crate) fn note(owned: *mut c_void, free: unsafe fn(*mut c_void)) -> Result<(), Refusal> {
    note_as(owned, free, None)
}

fn note_as(owned: *mut c_void, free: unsafe fn(*mut c_void), mark: Option<u32>) -> Result<(), Refusal> {
    let note = |handles: &mut Vec<Owned>| {
        let has_room = reserve::closed(|| handles.try_reserve(1)).is_ok();
        if has_room {
            handles.push((owned, free, mark));
        }
        has_room
    };
    if !awaits_end() {
        Err(Refusal::new(
            libc::EAGAIN,
            c"the process has used up its keys (pthread_key_create); the library needs a key to free this when its thread ends",
        ))
    } else if !own().handles.with(note) {
        Err(Refusal::no_memory(c"there is no memory to note that this is to be freed when its thread ends"))
    } else {
        Ok(())
    }
}

/// Whether `test` is true of one of the calling thread's handles of this kind. `test` must not call the program.
pub(crate) fn handles<K: Kind>(mut test: impl FnMut(*mut K::C) -> bool) -> bool {
    let of_kind = |(handle, _, mark): &Owned| *mark == Some(K::MARK) && test(handle.cast());
    own::find().is_some_and(|own| own.handles.with(|handles| handles.iter().any(of_kind)))
}

/// Removes a handle that the calling thread frees itself.
pub(crate) fn disown(handle: *mut c_void) {
    let Some(own) = own::find() else { return };
    own.handles.with(|handles| {
        if let Some(place) = handles.iter().rposition(|(owned, ..)| *owned == handle) {
            // In order: the last one goes first.
            handles.remove(place);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::ptr;
    use std::sync::Mutex;

    use super::*;

    static FREED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

    unsafe fn frees(owned: *mut c_void) {
        FREED.lock().unwrap().push(owned.addr());
    }

    #[test]
    fn the_newest_is_freed_first() {
        let owns = || {
            let owned = |number| ptr::without_provenance_mut(number);
            (1..=5).for_each(|number| note(owned(number), frees).unwrap());
            disown(owned(2));
        };
        std::thread::spawn(owns).join().unwrap();
        assert_eq!(*FREED.lock().unwrap(), [5, 4, 3, 1]);
    }
}
