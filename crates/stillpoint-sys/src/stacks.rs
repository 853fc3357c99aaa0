//! For models: keeps the stacks of loom's threads for the next execution. loom maps and unmaps them in each execution; with the page faults
//! of new memory, that takes longer than all else that it does.
//!
//! loom has no setting for this. So the test program defines the functions of the C library that loom calls: [`keep_stacks`](crate::keep_stacks).

use std::cell::Cell;

use libc::{c_int, c_void, off_t, size_t};

/// More stacks than a model may have threads.
const MOST: usize = 16;

#[derive(Clone, Copy)]
struct Stack {
    at: *mut c_void,
    size: size_t,
    is_free: bool,
}

// All threads of a model run on one thread of the system.
std::thread_local! {
    static STACKS: Cell<[Option<Stack>; MOST]> = const { Cell::new([None; MOST]) };
    /// The stack that was handed out last, if its guard page is already protected.
    static GUARDED: Cell<*mut c_void> = const { Cell::new(std::ptr::null_mut()) };
    static MAPPED: Cell<usize> = const { Cell::new(0) };
}

/// How many stacks this thread has got from the system.
pub fn mapped() -> usize {
    MAPPED.get()
}

/// What `change` answers for the first place for which it answers.
fn find<R>(mut change: impl FnMut(&mut Option<Stack>) -> Option<R>) -> Option<R> {
    let mut stacks = STACKS.get();
    let found = stacks.iter_mut().find_map(&mut change);
    STACKS.set(stacks);
    found
}

/// In place of `mmap`.
///
/// # Safety
/// As for `mmap`. The memory of a stack (`MAP_STACK`) need not be zero.
pub unsafe fn map(
    at: *mut c_void,
    size: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let is_stack = at.is_null() && file == -1 && flags & libc::MAP_STACK != 0;
    let take = |place: &mut Option<Stack>| {
        let stack = place.as_mut().filter(|stack| stack.is_free && stack.size == size)?;
        stack.is_free = false;
        Some(stack.at)
    };
    if let Some(at) = is_stack.then(|| find(take)).flatten() {
        GUARDED.set(at);
        return at;
    }
    // SAFETY: the arguments of the caller, who keeps the contract of `mmap`.
    let at =
        unsafe { libc::syscall(libc::SYS_mmap, at, size, protection, flags, file, offset) } as *mut c_void;
    if is_stack && at != libc::MAP_FAILED {
        MAPPED.set(MAPPED.get() + 1);
        let new = Stack { at, size, is_free: false };
        find(|place| place.is_none().then(|| *place = Some(new)));
    }
    at
}

/// In place of `mprotect`.
///
/// # Safety
/// As for `mprotect`.
pub unsafe fn protect(at: *mut c_void, size: size_t, protection: c_int) -> c_int {
    // The guard page of a stack that was kept has been protected ever since.
    if protection == libc::PROT_NONE && !at.is_null() && GUARDED.replace(std::ptr::null_mut()) == at {
        return 0;
    }
    // SAFETY: the arguments of the caller, who keeps the contract of `mprotect`.
    let result = unsafe { libc::syscall(libc::SYS_mprotect, at, size, protection) };
    result as c_int
}

/// In place of `munmap`.
///
/// # Safety
/// As for `munmap`.
pub unsafe fn unmap(at: *mut c_void, size: size_t) -> c_int {
    let keep = |place: &mut Option<Stack>| {
        let stack = place.as_mut().filter(|stack| stack.at == at && stack.size == size)?;
        stack.is_free = true;
        Some(())
    };
    if find(keep).is_some() {
        return 0;
    }
    // SAFETY: the arguments of the caller, who keeps the contract of `munmap`.
    let result = unsafe { libc::syscall(libc::SYS_munmap, at, size) };
    result as c_int
}

/// Defines the functions of the C library with which loom's threads get their stacks, so that this test program keeps the stacks.
#[macro_export]
macro_rules! keep_stacks {
    () => {
        mod kept_stacks {
            use std::ffi::{c_int, c_void};

            #[no_mangle]
            unsafe extern "C" fn mmap(
                at: *mut c_void,
                size: usize,
                protection: c_int,
                flags: c_int,
                file: c_int,
                offset: i64,
            ) -> *mut c_void {
                // SAFETY: the caller keeps the contract of `mmap`. Nobody but loom asks for stacks here, and loom writes before it reads.
                unsafe { $crate::stacks::map(at, size, protection, flags, file, offset) }
            }

            #[no_mangle]
            unsafe extern "C" fn mprotect(at: *mut c_void, size: usize, protection: c_int) -> c_int {
                // SAFETY: the caller keeps the contract of `mprotect`.
                unsafe { $crate::stacks::protect(at, size, protection) }
            }

            #[no_mangle]
            unsafe extern "C" fn munmap(at: *mut c_void, size: usize) -> c_int {
                // SAFETY: the caller keeps the contract of `munmap`.
                unsafe { $crate::stacks::unmap(at, size) }
            }
        }
    };
}
