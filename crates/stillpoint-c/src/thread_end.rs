//! When a thread ends, frees the readers and locals that it has not freed.

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

/// The calling thread's handles. This type has no destructor, so it is valid until the thread's end.
struct Own {
    handles: UnsafeCell<ManuallyDrop<Vec<Owned>>>,
    /// How many rounds of destructors have begun.
    rounds: Cell<u32>,
}

thread_local! {
    static OWN: Own =
        const { Own { handles: UnsafeCell::new(ManuallyDrop::new(Vec::new())), rounds: Cell::new(0) } };
}

static END: ThreadEnd = ThreadEnd::new(end);

impl Own {
    /// Runs `action` on the handles. `action` must not call `with`, directly or through the program.
    fn with<A>(&self, action: impl FnOnce(&mut Vec<Owned>) -> A) -> A {
        // SAFETY: only this thread uses the handles, and `action` does not call `with`, so there is no other reference.
        action(unsafe { &mut *self.handles.get() })
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

    // SAFETY: `end` accepts any value.
    if !unsafe { END.call_with(std::ptr::without_provenance_mut(1)) } {
        // SAFETY: `handle` is a handle that the program has not got.
        unsafe { free::<K>(handle.cast()) };
        return Err(Refusal::new(
            libc::EAGAIN,
            "the process has used up its keys (pthread_key_create); the library needs a key to free this when its thread ends",
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
                // Frees the memory now: the thread's end may find no handles, and would not free it.
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
            // One handle at a time, because freeing it may call the program back.
            while let Some((handle, free)) = own.with(Vec::pop) {
                // SAFETY: the thread has not freed this handle.
                unsafe { free(handle) };
            }
            own.with(|handles| *handles = Vec::new());
        });
        Ok(0)
    });
}
