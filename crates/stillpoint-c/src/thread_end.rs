//! When a thread ends, frees the readers and locals that it has not freed, and the text of its last failure.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;

use stillpoint_sys::os::ThreadEnd;

use crate::border::{call, Refusal};
use crate::handle::{find, Kind};
use crate::reason::forget_text;
use crate::reserve;

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

/// Arranges that [`end`] is called when the calling thread ends. Returns false if the process has no key for it, or no memory.
pub(crate) fn await_end() -> bool {
    // SAFETY: `end` accepts any value.
    unsafe { END.call_with(std::ptr::without_provenance_mut(1)) }
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

    let note = |handles: &mut Vec<Owned>| {
        let has_room = reserve::closed(|| handles.try_reserve(1)).is_ok();
        if has_room {
            handles.push((handle.cast(), free::<K>));
        }
        has_room
    };
    let refusal = if !await_end() {
        Refusal::new(
            libc::EAGAIN,
            c"the process has used up its keys (pthread_key_create); the library needs a key to free this when its thread ends",
        )
    } else if !OWN.with(|own| own.with(note)) {
        Refusal::no_memory(c"there is no memory to note that this is to be freed when its thread ends")
    } else {
        return Ok(handle);
    };
    // SAFETY: `handle` is a handle that the program has not got.
    unsafe { free::<K>(handle.cast()) };
    Err(refusal)
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
        let is_over = OWN.with(|own| {
            own.rounds.set(own.rounds.get() + 1);
            if own.rounds.get() < ROUND && await_end() {
                return false;
            }
            // One handle at a time, because freeing it may call the program back.
            while let Some((handle, free)) = own.with(Vec::pop) {
                // SAFETY: the thread has not freed this handle.
                unsafe { free(handle) };
            }
            own.with(|handles| *handles = Vec::new());
            true
        });
        if is_over {
            forget_text();
        }
        Ok(0)
    });
}
