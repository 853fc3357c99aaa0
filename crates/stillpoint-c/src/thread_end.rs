//! What a thread has in the library, and has not freed when it ends: it is freed then.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;

use stillpoint_sys::os::ThreadEnd;

use crate::border::{call, Refusal};
use crate::handle::{find, Kind};

/// The round of a thread's destructors in which it is freed: those of the program's keys have had two for themselves.
const ROUND: u32 = 3;

/// A handle, and what frees it.
type Owned = (*mut c_void, unsafe fn(*mut c_void));

/// Without a destructor, so that it is there until the thread's end.
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
    /// Nothing is called back within `action`.
    fn with<A>(&self, action: impl FnOnce(&mut Vec<Owned>) -> A) -> A {
        // SAFETY: the thread's own, and no other reference to it is there: see above.
        action(unsafe { &mut *self.handles.get() })
    }
}

/// The handle, which is freed at the end of the calling thread from now on. Where that is not possible, it is freed now.
pub(crate) fn adopt<K: Kind>(handle: *mut K::C) -> Result<*mut K::C, Refusal> {
    unsafe fn free<K: Kind>(handle: *mut c_void) {
        // SAFETY: it is a handle, whose thread ends, and uses it no more.
        if let Ok(found) = unsafe { find::<K>(handle.cast()) } {
            // SAFETY: as above.
            drop(unsafe { found.free() });
        }
    }

    // SAFETY: the function takes any value.
    if !unsafe { END.call_with(std::ptr::without_provenance_mut(1)) } {
        // SAFETY: nobody has seen it.
        unsafe { free::<K>(handle.cast()) };
        return Err(Refusal::new(
            libc::EAGAIN,
            "the process has no key left (pthread_key_create) by which the end of a thread is told",
        ));
    }
    OWN.with(|own| own.with(|handles| handles.push((handle.cast(), free::<K>))));
    Ok(handle)
}

/// The handle is freed by its thread, which is the calling one.
pub(crate) fn disown(handle: *mut c_void) {
    OWN.with(|own| {
        own.with(|handles| {
            if let Some(place) = handles.iter().rposition(|(owned, _)| *owned == handle) {
                handles.swap_remove(place);
            }
            if handles.is_empty() {
                // Nobody may come by again.
                *handles = Vec::new();
            }
        });
    });
}

unsafe extern "C" fn end(_: *mut c_void) {
    let _: c_int = call(|| {
        OWN.with(|own| {
            own.rounds.set(own.rounds.get() + 1);
            // SAFETY: the function takes any value.
            if own.rounds.get() < ROUND && unsafe { END.call_with(std::ptr::without_provenance_mut(1)) } {
                return;
            }
            // One at a time: what is freed may call back.
            while let Some((handle, free)) = own.with(Vec::pop) {
                // SAFETY: a handle that its thread has not freed.
                unsafe { free(handle) };
            }
            own.with(|handles| *handles = Vec::new());
        });
        Ok(0)
    });
}
