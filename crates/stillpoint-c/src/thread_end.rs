//! Frees the readers and locals that a thread has not freed when it ends.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;

use stillpoint_sys::os::ThreadEnd;

use crate::border::{call, Refusal};
use crate::handle::{find, Kind};

/// The round of key destructors in which handles are freed. The program's destructors may use them in the first two rounds.
const ROUND: u32 = 3;

/// A handle, and the function that frees it.
type Owned = (*mut c_void, unsafe fn(*mut c_void));

/// The calling thread's handles. Has no destructor, so that it is valid until the thread's end.
struct Own {
    handles: UnsafeCell<ManuallyDrop<Vec<Owned>>>,
    /// Rounds of destructors that have begun.
    rounds: Cell<u32>,
}

thread_local! {
    static OWN: Own =
        const { Own { handles: UnsafeCell::new(ManuallyDrop::new(Vec::new())), rounds: Cell::new(0) } };
}

static END: ThreadEnd = ThreadEnd::new(end);

impl Own {
    /// `action` must not call back.
    fn with<A>(&self, action: impl FnOnce(&mut Vec<Owned>) -> A) -> A {
        // SAFETY: the thread's own, and `action` does not call back, so there is no other reference.
        action(unsafe { &mut *self.handles.get() })
    }
}

/// Has the end of the calling thread free the handle, and returns it. If that is not possible, frees it now.
pub(crate) fn adopt<K: Kind>(handle: *mut K::C) -> Result<*mut K::C, Refusal> {
    unsafe fn free<K: Kind>(handle: *mut c_void) {
        // SAFETY: it is a handle. Its thread ends, or has not seen it yet.
        if let Ok(found) = unsafe { find::<K>(handle.cast()) } {
            // SAFETY: it is a handle. Its thread ends, or has not seen it yet.
            drop(unsafe { found.free() });
        }
    }

    // SAFETY: `end` accepts any value.
    if !unsafe { END.call_with(std::ptr::without_provenance_mut(1)) } {
        // SAFETY: it is a handle that was not returned to the program.
        unsafe { free::<K>(handle.cast()) };
        return Err(Refusal::new(
            libc::EAGAIN,
            "the process has used up its keys (pthread_key_create); the library needs one to free this when its thread ends",
        ));
    }
    OWN.with(|own| own.with(|handles| handles.push((handle.cast(), free::<K>))));
    Ok(handle)
}

/// Removes a handle that the calling thread frees itself.
pub(crate) fn disown(handle: *mut c_void) {
    OWN.with(|own| {
        own.with(|handles| {
            if let Some(place) = handles.iter().rposition(|(owned, _)| *owned == handle) {
                handles.swap_remove(place);
            }
            if handles.is_empty() {
                // The thread's end may find nothing to free, and would not free this memory.
                *handles = Vec::new();
            }
        });
    });
}

unsafe extern "C" fn end(_: *mut c_void) {
    let _: c_int = call(|| {
        OWN.with(|own| {
            own.rounds.set(own.rounds.get() + 1);
            // SAFETY: `end` accepts any value.
            if own.rounds.get() < ROUND && unsafe { END.call_with(std::ptr::without_provenance_mut(1)) } {
                return;
            }
            // One at a time: freeing may call back.
            while let Some((handle, free)) = own.with(Vec::pop) {
                // SAFETY: a handle that its thread has not freed.
                unsafe { free(handle) };
            }
            own.with(|handles| *handles = Vec::new());
        });
        Ok(0)
    });
}
