//! Time slice extensions: `prctl(PR_RSEQ_SLICE_EXTENSION, ...)` and `rseq_slice_yield(2)`, from Linux 7.0 on.
//!
//! A thread that is about to be preempted, and has asked for it in its `struct rseq` (`linux/rseq.h`), may go on for
//! some microseconds. It gives the CPU back itself when it sees that it was granted. The structure is registered by the
//! C library, which exports where it is (glibc from 2.35 on).

use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::sync::atomic::Ordering;

/// What the kernel and the thread say to each other, as laid out in `struct rseq_slice_ctrl`. Both are on the same CPU
/// whenever either of them looks: relaxed atomics are enough, and keep the compiler from caching them.
#[derive(Debug, Default)]
#[repr(C)]
struct Control {
    request: Byte,
    granted: Byte,
}

type Byte = std::sync::atomic::AtomicU8;

/// What is asked of the kernel: in tests, of a simulation.
trait Kernel {
    /// Allows extensions for the calling thread; `None` where there are none.
    fn enable(&self) -> Option<NonNull<Control>>;
    fn give_back(&self);
}

/// The right of the calling thread to ask.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice {
    control: NonNull<Control>,
}

impl Slice {
    /// For the calling thread, if the kernel extends time slices.
    pub(crate) fn enable() -> Option<Self> {
        if cfg!(any(loom, miri)) {
            return None;
        }
        Self::enable_by(&Linux)
    }

    fn enable_by(kernel: &impl Kernel) -> Option<Self> {
        kernel.enable().map(|control| Self { control })
    }

    /// A section begins that had better not be interrupted.
    #[inline(always)]
    pub(crate) fn request(self) {
        self.control().request.store(1, Ordering::Relaxed);
    }

    /// It is over.
    #[inline(always)]
    pub(crate) fn release(self) {
        self.release_by(&Linux);
    }

    #[inline(always)]
    fn release_by(self, kernel: &impl Kernel) {
        let control = self.control();
        control.request.store(0, Ordering::Relaxed);
        if control.granted.load(Ordering::Relaxed) != 0 {
            kernel.give_back();
        }
    }

    #[inline(always)]
    fn control(&self) -> &Control {
        // SAFETY: part of the thread's own storage, and the value does not leave the thread: its holder is neither
        // `Send` nor `Sync`.
        unsafe { self.control.as_ref() }
    }
}

struct Linux;

impl Kernel for Linux {
    fn enable(&self) -> Option<NonNull<Control>> {
        const PR_RSEQ_SLICE_EXTENSION: libc::c_int = 79;
        const SET: libc::c_ulong = 2;
        const ENABLE: libc::c_ulong = 1;
        const ZERO: libc::c_ulong = 0;
        let control = registered()?;
        // SAFETY: the call changes a property of the calling thread, and no memory.
        let answer = unsafe { libc::prctl(PR_RSEQ_SLICE_EXTENSION, SET, ENABLE, ZERO, ZERO) };
        (answer == 0).then_some(control)
    }

    #[cold]
    fn give_back(&self) {
        const SYS_RSEQ_SLICE_YIELD: libc::c_long = 471;
        // SAFETY: it takes no arguments. Whatever it answers, the slice is over.
        unsafe { libc::syscall(SYS_RSEQ_SLICE_YIELD) };
    }
}

/// The part of the calling thread's `struct rseq` that is for extensions, if the C library has registered one.
fn registered() -> Option<NonNull<Control>> {
    /// `offsetof(struct rseq, slice_ctrl)`
    const CONTROL: isize = 28;
    // Once: the search takes the lock of the loader, which the child of a fork may find held.
    static OFFSET: OnceLock<Option<isize>> = OnceLock::new();
    let offset = (*OFFSET.get_or_init(offset))?;
    NonNull::new(thread_pointer()?.wrapping_offset(offset + CONTROL).cast())
}

/// Where the C library keeps the structure of each thread. A size of 0 says that it has registered none: then somebody
/// else may have, somewhere else.
fn offset() -> Option<isize> {
    // SAFETY: the names are C strings.
    let (offset, size) = unsafe {
        (
            libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()),
            libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()),
        )
    };
    // SAFETY: the symbols are a `ptrdiff_t` and an `unsigned int`, which do not change once the program runs.
    let (offset, size) = unsafe { (offset.cast::<isize>().as_ref()?, size.cast::<u32>().as_ref()?) };
    (*size != 0).then_some(*offset)
}

/// `__builtin_thread_pointer()`
fn thread_pointer() -> Option<*mut u8> {
    #[cfg(target_arch = "x86_64")]
    {
        let pointer: *mut u8;
        // SAFETY: the first word of the thread control block is its own address.
        unsafe {
            std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags))
        };
        Some(pointer)
    }
    #[cfg(target_arch = "aarch64")]
    {
        let pointer: *mut u8;
        // SAFETY: reads a register.
        unsafe {
            std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags))
        };
        Some(pointer)
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    None
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use crate::sys::skip::skipped;
    use std::cell::Cell;

    /// A kernel that extends time slices, or does not.
    #[derive(Default)]
    struct Simulation {
        control: Control,
        has_it: bool,
        given_back: Cell<u32>,
    }

    impl Simulation {
        fn slice(&self) -> Option<Slice> {
            Slice::enable_by(self)
        }

        /// The thread is interrupted when its time is over. Returns whether it may go on.
        fn interrupt(&self) -> bool {
            let granted = self.control.request.swap(0, Ordering::Relaxed) == 1;
            self.control.granted.store(granted.into(), Ordering::Relaxed);
            granted
        }

        fn preempt(&self) {
            self.control.granted.store(0, Ordering::Relaxed);
        }
    }

    impl Kernel for Simulation {
        fn enable(&self) -> Option<NonNull<Control>> {
            self.has_it.then(|| NonNull::from(&self.control))
        }

        fn give_back(&self) {
            self.given_back.set(self.given_back.get() + 1);
            self.preempt();
        }
    }

    #[test]
    fn without_the_kernel_nothing_is_asked() {
        assert!(Simulation::default().slice().is_none());
    }

    #[test]
    fn a_section_that_is_not_interrupted_gives_nothing_back() {
        let kernel = Simulation { has_it: true, ..Simulation::default() };
        let slice = kernel.slice().unwrap();
        slice.request();
        slice.release_by(&kernel);
        assert!(!kernel.interrupt(), "outside the section nothing is granted");
        assert_eq!(kernel.given_back.get(), 0);
    }

    #[test]
    fn a_grant_is_given_back_at_the_end() {
        let kernel = Simulation { has_it: true, ..Simulation::default() };
        let slice = kernel.slice().unwrap();
        slice.request();
        assert!(kernel.interrupt());
        slice.release_by(&kernel);
        assert_eq!(kernel.given_back.get(), 1);
        slice.request();
        slice.release_by(&kernel);
        assert_eq!(kernel.given_back.get(), 1);
    }

    #[test]
    fn a_grant_that_was_revoked_is_not_given_back() {
        let kernel = Simulation { has_it: true, ..Simulation::default() };
        let slice = kernel.slice().unwrap();
        slice.request();
        assert!(kernel.interrupt());
        kernel.preempt();
        slice.release_by(&kernel);
        assert_eq!(kernel.given_back.get(), 0);
    }

    /// On this kernel, whichever it is: where extensions are enabled, a section works.
    #[test]
    fn the_probe_does_no_harm() {
        let Some(slice) = Slice::enable() else {
            return skipped("this kernel extends no slices");
        };
        for _ in 0..1000 {
            slice.request();
            slice.release();
        }
    }

    /// Where the C library has registered it, it is found: the first word of the structure is a number of a CPU.
    #[test]
    fn the_registered_structure_is_found() {
        let Some(control) = registered() else {
            return skipped("the C library has registered no structure");
        };
        // SAFETY: the structure begins 28 bytes before, and belongs to this thread.
        let cpu = unsafe { control.cast::<u8>().sub(28).cast::<u32>().read_volatile() };
        assert!(cpu < 1 << 20, "{cpu}");
    }
}
