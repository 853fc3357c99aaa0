//! Reports to ThreadSanitizer, for programs in C that it checks.
//!
//! ThreadSanitizer sees the accesses of code that was compiled for it, and the calls of some functions of libc, such as `free`
//! and `memcpy`. This library is not compiled for it. So it reports two things:
//!
//! - **Hand-overs**: what one thread did before the [`release`] of an address comes before what another does after the [`acquire`] of
//!   this address. The program's own releases of the address count, too: its inline code, for example, stores readers' states.
//! - **Accesses to ignore**: the library's own calls of libc are [ignored](ignore), but not those of the program's functions
//!   that it [calls](heed).
//!
//! The functions of the runtime are weak references. In a program that is not checked, they are null, and each function here is a
//! load and a test. Without the feature `tsan`, each function is empty.

use std::ffi::c_void;

use crate::marks::MARKS;

/// The functions of the runtime; `None` in a program that is not checked.
#[repr(C)]
struct Runtime {
    acquire: Option<unsafe extern "C" fn(*const c_void)>,
    release: Option<unsafe extern "C" fn(*const c_void)>,
    ignore_begin: Option<unsafe extern "C" fn()>,
    ignore_end: Option<unsafe extern "C" fn()>,
}

#[cfg(all(feature = "tsan", target_os = "linux", not(any(stillpoint_loom, miri))))]
mod linked {
    use super::Runtime;

    std::arch::global_asm!(
        ".pushsection .data.rel.ro.stillpoint_tsan_runtime, \"aw\"",
        ".balign 8",
        ".globl stillpoint_tsan_runtime",
        ".hidden stillpoint_tsan_runtime",
        "stillpoint_tsan_runtime:",
        ".weak __tsan_acquire",
        ".quad __tsan_acquire",
        ".weak __tsan_release",
        ".quad __tsan_release",
        ".weak __tsan_ignore_thread_begin",
        ".quad __tsan_ignore_thread_begin",
        ".weak __tsan_ignore_thread_end",
        ".quad __tsan_ignore_thread_end",
        ".popsection",
    );

    extern "C" {
        #[link_name = "stillpoint_tsan_runtime"]
        static RUNTIME: Runtime;
    }

    #[inline(always)]
    pub(super) fn runtime() -> &'static Runtime {
        // SAFETY: the linker and the loader have written it.
        unsafe { &RUNTIME }
    }
}

#[cfg(not(all(feature = "tsan", target_os = "linux", not(any(stillpoint_loom, miri)))))]
mod linked {
    use super::Runtime;

    /// Known to the compiler, which removes what depends on it.
    #[inline(always)]
    pub(super) fn runtime() -> &'static Runtime {
        &Runtime { acquire: None, release: None, ignore_begin: None, ignore_end: None }
    }
}

use linked::runtime;

/// Whether the program is checked.
#[inline(always)]
pub fn is_there() -> bool {
    runtime().acquire.is_some()
}

/// What other threads did before their releases of this address so far comes before what this thread does next.
#[inline(always)]
pub fn acquire<T>(address: *const T) {
    if let Some(acquire) = runtime().acquire {
        // SAFETY: the runtime takes any address, and does not access the memory.
        unsafe { acquire(address.cast()) };
    }
}

/// What this thread has done comes before what others do after an acquire of this address.
#[inline(always)]
pub fn release<T>(address: *const T) {
    if let Some(release) = runtime().release {
        // SAFETY: the runtime takes any address, and does not access the memory.
        unsafe { release(address.cast()) };
    }
}

/// Ends one `ignore` on drop.
#[must_use]
#[derive(Debug)]
pub struct Ignored(());

/// Marks the library's own accesses: they are ignored as long as the value exists. Nests.
#[inline(always)]
pub fn ignore() -> Ignored {
    if is_there() {
        change(1);
    }
    Ignored(())
}

impl Drop for Ignored {
    #[inline(always)]
    fn drop(&mut self) {
        if is_there() {
            change(-1);
        }
    }
}

/// Restores the earlier depth of `ignore` on drop.
#[must_use]
#[derive(Debug)]
pub struct Heeded(u8);

/// Marks a function of the program: nothing is ignored as long as the value exists.
#[inline(always)]
pub fn heed() -> Heeded {
    let mut depth = 0;
    if is_there() {
        depth = MARKS.with(|marks| marks.ignored.get());
        (0..depth).for_each(|_| change(-1));
    }
    Heeded(depth)
}

impl Drop for Heeded {
    #[inline(always)]
    fn drop(&mut self) {
        (0..self.0).for_each(|_| change(1));
    }
}

#[cold]
fn change(by: i8) {
    // How often the thread has asked to be ignored: once in each call of the library that it is in.
    MARKS.with(|marks| marks.ignored.set(marks.ignored.get().wrapping_add_signed(by)));
    let function = if by > 0 { runtime().ignore_begin } else { runtime().ignore_end };
    if let Some(function) = function {
        // SAFETY: begins and ends are balanced: the mark counts them.
        unsafe { function() };
    }
}

/// An address that stands for a word of the program. The word may be a number instead of an address.
pub fn place_of(word: usize) -> *const u8 {
    static PLACES: [std::sync::atomic::AtomicU64; 1 << 13] =
        [const { std::sync::atomic::AtomicU64::new(0) }; 1 << 13];
    let place = (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - 13);
    std::ptr::from_ref(&PLACES[place as usize]).cast()
}
