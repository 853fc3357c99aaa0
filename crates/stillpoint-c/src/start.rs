//! What is done when the library is loaded, before the program's own code runs.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use crate::cpp;

/// Called before constructors without a priority, which are the program's. The linker takes it along with what uses this file.
#[used]
#[link_section = ".init_array.00101"]
static START: extern "C" fn() = start;

/// The CPUs that the process has been given, where they could be read.
static CPUS: OnceLock<libc::cpu_set_t> = OnceLock::new();

/// A C++ program may fork, and take all keys, before it uses the library.
extern "C" fn start() {
    let mut cpus = MaybeUninit::<libc::cpu_set_t>::uninit();
    // SAFETY: the place is as large as is said, and filled before it is read.
    unsafe {
        if libc::sched_getaffinity(libc::getpid(), size_of::<libc::cpu_set_t>(), cpus.as_mut_ptr()) == 0 {
            CPUS.get_or_init(|| cpus.assume_init());
        }
    }
    cpp::prepare_process();
}

/// Gives a thread, which nobody has asked for, what the process has begun with, whoever has started it: the policy of usual threads,
/// and all CPUs.
///
/// # Safety
/// The thread is there, or is still to be joined.
pub(crate) unsafe fn at_ease(thread: libc::pthread_t) {
    // The linker of a program takes what is referred to. SAFETY: a static.
    unsafe { ptr::read_volatile(&raw const START) };
    // SAFETY: zeros are a priority of usual threads; the caller's promise. Where it is refused, the thread has what its maker has.
    unsafe {
        libc::pthread_setschedparam(thread, libc::SCHED_OTHER, &std::mem::zeroed());
        if let Some(cpus) = CPUS.get() {
            libc::pthread_setaffinity_np(thread, size_of::<libc::cpu_set_t>(), cpus);
        }
    }
}
