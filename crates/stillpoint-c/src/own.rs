//! What a thread has in the library: one block, to which a single thread-local variable points. `docs/design/capi.md` says why.

use std::alloc::{self, Layout};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use stillpoint_sys::marks::MARKS;
use stillpoint_sys::os::ThreadEnd;

use crate::border::call;
use crate::cpp::{still_rcu_thread_, Forking};
use crate::reason::Last;
use crate::reserve::Notes;
use crate::rte::{Call, Number, Reclaim};
use crate::spares::Spares;
use crate::thread_end::Handles;
use crate::urcu::{self, still_urcu_reader_};
use crate::{cpp, reserve, start};

/// To C.
#[repr(C)]
pub struct still_thread_ {
    urcu: [still_urcu_reader_; 4],
    rcu: still_rcu_thread_,
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(still_thread_, urcu) == 0 && offset_of!(still_thread_, rcu) == 4 * 56);
    assert!(size_of::<still_thread_>() == 4 * 56 + 32 && offset_of!(Own, to_c) == 0);
};

/// The block. Its last fields are for modules of their own.
///
/// A block has lines of its own, because other threads' blocks are beside it.
#[repr(C, align(64))]
pub(crate) struct Own {
    /// Inline code of the headers uses it.
    to_c: UnsafeCell<still_thread_>,
    pub(crate) handles: Handles,
    pub(crate) last: Last,
    pub(crate) notes: Notes,
    /// Whether the thread is in the hook of `still_on_report`.
    pub(crate) is_telling: Cell<bool>,
    /// Whether this thread was started to serve a queue of C++.
    pub(crate) is_worker: Cell<bool>,
    /// The `fork` that this thread is in, from `Box::into_raw`.
    pub(crate) forking: Cell<*mut Forking>,
    pub(crate) lcore: Number,
    /// The thread's id; 0 if it has not been asked for.
    pub(crate) tid: Cell<u32>,
    /// The innermost call that reclaims elements of a defer queue.
    pub(crate) reclaiming: Cell<*const Reclaim>,
    /// The innermost call of the thread that manages timers, of any instance.
    pub(crate) managing: Cell<*const Call>,
    /// The manager of the thread's timers, to `htimer`; null if there is none.
    pub(crate) htimers: Cell<*const c_void>,
}

extern "C" {
    #[link_name = "still_thread_of_nobody_"]
    static NOBODY: still_thread_;
    fn still_thread_place_() -> *mut *mut still_thread_;
}

/// Blocks for threads whose first call is in a signal handler, where nothing may be allocated.
static SPARES: Spares<Own> = Spares::new();

/// The round of key destructors in which a thread loses its block. The program's destructors may use what is in it in the first two
/// rounds.
const ROUND: u8 = 3;

static END: ThreadEnd = ThreadEnd::new(end);

/// The thread-local variable. It is null in no thread.
#[inline(always)]
fn place<'t>() -> &'t AtomicPtr<Own> {
    // SAFETY: the variable is an aligned pointer, which only its thread and the thread's signal handlers use.
    unsafe { AtomicPtr::from_ptr(still_thread_place_().cast()) }
}

/// The value of the thread-local variable.
#[inline(always)]
fn value() -> *mut Own {
    #[cfg(target_arch = "x86_64")]
    {
        let value;
        // SAFETY: this loads the variable, in the two instructions that the linker knows for the model initial-exec.
        unsafe {
            std::arch::asm!(
                "mov {value}, qword ptr [rip + still_thread_here_@GOTTPOFF]",
                "mov {value}, qword ptr fs:[{value}]",
                value = out(reg) value,
                options(nostack, preserves_flags, readonly)
            );
        }
        value
    }
    // Relaxed: only the thread itself uses the variable.
    #[cfg(not(target_arch = "x86_64"))]
    place().load(Ordering::Relaxed)
}

/// The calling thread's reader of a flavour. Without a block, this is the address of initial values, to which nothing may be written.
#[inline(always)]
pub(crate) fn urcu_reader(flavour: u32) -> *mut still_urcu_reader_ {
    // SAFETY: the value is the address of a `still_thread_`.
    unsafe {
        (&raw mut (*value().cast::<still_thread_>()).urcu)
            .cast::<still_urcu_reader_>()
            .add(flavour as usize % 4)
    }
}

/// The calling thread's block, if it has one. It is valid until the thread's end, and so in any call.
#[inline(always)]
pub(crate) fn find<'t>() -> Option<&'t Own> {
    let own = value();
    // SAFETY: what is not `NOBODY` is the thread's block, which `end` frees on this thread.
    (!ptr::eq(own.cast(), &raw const NOBODY)).then(|| unsafe { &*own })
}

/// The calling thread's block. Makes it if there is none. `None` if there is no memory, not even in the reserve.
#[inline]
pub(crate) fn try_own<'t>() -> Option<&'t Own> {
    find().or_else(|| adopt(make()))
}

/// As [`try_own`], but ends the process if there is no memory.
#[inline]
pub(crate) fn own<'t>() -> &'t Own {
    try_own().unwrap_or_else(|| alloc::handle_alloc_error(Layout::new::<Own>()))
}

/// As [`own`], for the first call in a signal handler: allocates nothing if there is a spare block.
pub(crate) fn own_in_handler<'t>() -> &'t Own {
    find().or_else(|| adopt(SPARES.take())).unwrap_or_else(own)
}

/// Allocates the spare blocks that are missing.
pub(crate) fn fill_spares() {
    // If memory is short, threads need the reserve more.
    SPARES.fill(|| reserve::closed(make));
}

impl Own {
    const fn new() -> Self {
        Self {
            to_c: UnsafeCell::new(still_thread_ {
                urcu: [const { still_urcu_reader_::of_nobody() }; 4],
                rcu: still_rcu_thread_::new(),
            }),
            handles: Handles::new(),
            last: Last::new(),
            notes: Notes::new(),
            is_telling: Cell::new(false),
            is_worker: Cell::new(false),
            forking: Cell::new(ptr::null_mut()),
            lcore: Number::new(),
            tid: Cell::new(0),
            reclaiming: Cell::new(ptr::null()),
            managing: Cell::new(ptr::null()),
            htimers: Cell::new(ptr::null()),
        }
    }

    /// The thread as a reader, to C++.
    pub(crate) fn rcu(&self) -> *mut still_rcu_thread_ {
        // SAFETY: the field is within the block.
        unsafe { &raw mut (*self.to_c.get()).rcu }
    }
}

/// Null if there is no memory.
#[cold]
fn make() -> *mut Own {
    // SAFETY: the layout has a size.
    let made = unsafe { alloc::alloc(Layout::new::<Own>()) }.cast::<Own>();
    if !made.is_null() {
        // SAFETY: the memory is for an `Own`.
        unsafe { made.write(Own::new()) };
    }
    made
}

/// Makes this the block of the calling thread, which has none.
#[cold]
fn adopt<'t>(made: *mut Own) -> Option<&'t Own> {
    if made.is_null() {
        return None;
    }
    // A signal handler that has come before gave the thread another one. Relaxed, both: only the thread and its handlers use the variable.
    let nobody = (&raw const NOBODY).cast_mut().cast();
    match place().compare_exchange(nobody, made, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            start::keep();
            awaits_end();
        }
        // SAFETY: nobody else has it.
        Err(_) => drop(unsafe { Box::from_raw(made) }),
    }
    find()
}

/// Whether the thread's end will free the block and what is in it. False if the process has used up its keys.
pub(crate) fn awaits_end() -> bool {
    // SAFETY: `end` accepts any value.
    unsafe { END.call_with(ptr::without_provenance_mut(1)) }
}

/// Takes a key before the program has used up all of them. Its number is low then: each thread has room for the first 32 keys of glibc, so
/// signal handlers may set them.
pub(crate) fn prepare_process() {
    END.reserve();
}

unsafe extern "C" fn end(_: *mut c_void) {
    let round = MARKS.with(|marks| {
        marks.rounds.set(marks.rounds.get().saturating_add(1));
        marks.rounds.get()
    });
    call(|| {
        if let Some(own) = find() {
            cpp::end(own);
        }
        // What later destructors of the third round make is freed in the fourth. Otherwise there is nothing to do in that round, in which
        // ThreadSanitizer does not know the thread any more.
        if round >= ROUND || !awaits_end() {
            urcu::thread_ends();
            if let Some(own) = find() {
                own.handles.free();
                own.last.forget_text();
                own.lcore.give_up();
            }
            // Relaxed: only the thread and its handlers use the variable.
            let own = urcu::thread_ends_before(|| {
                place().swap((&raw const NOBODY).cast_mut().cast(), Ordering::Relaxed)
            });
            if !ptr::eq(own.cast(), &raw const NOBODY) {
                // SAFETY: it came from `make`, and the thread does not find it any more.
                drop(unsafe { Box::from_raw(own) });
            }
        }
        Ok(())
    });
}
