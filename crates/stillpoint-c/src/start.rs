//! The constructor of the library, which runs before the program's own code.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use crate::{cpp, own};

/// The constructor. It is called before constructors without a priority, such as the program's. The linker keeps it because [`keep`]
/// refers to it.
#[used]
#[link_section = ".init_array.00101"]
static START: extern "C" fn() = start;

/// A set of CPUs with room for as many as Linux can have (8,192): a smaller one is refused on machines that may have more than it.
pub(crate) type Cpus = [libc::cpu_set_t; 8];

/// The CPUs on which the process could run when it began, if they could be read.
static CPUS: OnceLock<Cpus> = OnceLock::new();

/// Reads the process's CPUs, and prepares for C++ programs that fork, or use up all keys, before they use the library.
extern "C" fn start() {
    let mut cpus = MaybeUninit::<Cpus>::zeroed();
    // SAFETY: the size is that of the place, and zeros are a valid set.
    unsafe {
        if libc::sched_getaffinity(libc::getpid(), size_of::<Cpus>(), cpus.as_mut_ptr().cast()) == 0 {
            CPUS.get_or_init(|| cpus.assume_init());
        }
    }
    own::prepare_process();
    cpp::prepare_process();
}

/// Makes the linker keep the constructor.
pub(crate) fn keep() {
    // SAFETY: a static is always valid.
    unsafe { ptr::read_volatile(&raw const START) };
}

/// Gives a thread that the library has started by itself the policy `SCHED_OTHER`, and the CPUs on which the process could run when it
/// began. Otherwise the thread would inherit the policy and the CPUs of the thread that happened to start it.
///
/// # Safety
/// The thread is alive, or has not been joined yet.
pub(crate) unsafe fn at_ease(thread: libc::pthread_t) {
    keep();
    // SAFETY: zeros are a valid priority of `SCHED_OTHER`, and the caller promises that the thread exists. If a call fails, the thread keeps
    // what it inherited.
    unsafe {
        libc::pthread_setschedparam(thread, libc::SCHED_OTHER, &std::mem::zeroed());
        if let Some(cpus) = CPUS.get() {
            libc::pthread_setaffinity_np(thread, size_of::<Cpus>(), cpus.as_ptr());
        }
    }
}
