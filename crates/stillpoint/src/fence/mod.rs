//! Light and heavy fences: the pair that makes a reader's fence free.
//!
//! The reader of a reclamation scheme announces itself and then loads; the writer unlinks and then looks for
//! announcements. Each must not miss the other: this is the store-buffering pattern, which needs a full fence
//! on *both* sides, on every architecture. An asymmetric pair moves the cost of both to the writer.
//!
//! ```text
//!   reader                         writer
//!   announce (store)               unlink (store)
//!   light()                        heavy()?
//!   load the pointer               look for announcements (load)
//! ```
//!
//! ```
//! use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
//! use stillpoint::fence;
//!
//! static READING: AtomicBool = AtomicBool::new(false);
//! static CLOSED: AtomicBool = AtomicBool::new(false);
//!
//! fn begin_to_read() -> bool {
//!     READING.store(true, Relaxed);
//!     fence::light();
//!     !CLOSED.load(Relaxed)
//! }
//!
//! fn is_read_by_nobody() -> Result<bool, fence::FenceError> {
//!     CLOSED.store(true, Relaxed);
//!     fence::heavy()?;
//!     Ok(!READING.load(Relaxed))
//! }
//!
//! let reader = std::thread::spawn(begin_to_read);
//! let may_free = is_read_by_nobody();
//! assert!(!(reader.join().unwrap() && may_free == Ok(true))); // never both
//! ```
//!
//! # What the pair promises
//!
//! For every call L of [`light`] by any thread of the process and every call H of [`heavy`] that returned `Ok`, one
//! of the two holds, for accesses to atomics:
//! - every load after H sees what was stored before L, or something newer;
//! - every load after L sees what was stored before H, or something newer.
//!
//! A value that a thread has *read* before its fence counts as if this thread had stored it, whichever thread did.
//!
//! So in the pattern above, either the writer sees the announcement or the reader sees the unlink. "After H" includes
//! the loads of other threads that learned of the fence by an acquire load. The pair does not replace release and
//! acquire: a thread that *reads* an announcement and goes on from there needs them as usual.
//!
//! # Why it holds
//!
//! [`light`] keeps the compiler from moving accesses across it; the processor may still do so.
//! Unless the program has set another function, [`heavy`] is `membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)`
//! ([membarrier(2)]). The kernel interrupts every
//! core that runs a thread of this process, lets it execute a full memory barrier, and returns when all have done so.
//! That barrier falls on some point in the instruction stream of the interrupted thread. If the point lies
//! after `light()`, the announcement has left the store buffer before `heavy()` returns. If it lies before,
//! the load after `light()` is executed after the barrier, which follows the unlink. A thread that runs on no
//! core at that moment passed a full barrier in the scheduler when it left its core, and will pass another
//! when it comes back. Each of these two has the effect of the interrupt. The kernel documents them in
//! `Documentation/scheduler/membarrier.rst`. All these barriers are cumulative: what one thread has read before its barrier,
//! another thread sees after a later barrier of its own.
//!
//! Miri has no such system call. There, both are sequentially consistent fences. These keep the same promise by the C++20
//! memory model (their total order agrees with the order in which atomics change), but cost the reader more. The same is true
//! of the fences of [`Mode::Symmetric`]. For loom, see `fence/model.rs`.
//!
//! # Other means
//!
//! Where membarrier is refused, readers fence themselves ([`Mode::Symmetric`]). A program that can reach all its threads in another
//! way sets that way by [`set_heavy`]. One is the kernel module of this project, which sends the same interrupts along a tree; the
//! library does not use it by itself.
//!
//! # Costs
//!
//! `light` costs nothing. `heavy` costs a system call and one inter-processor interrupt for each core that
//! runs a thread of the process: some microseconds. In a virtual machine it also waits for virtual
//! processors that the host has preempted. [`Mode::Symmetric`] never waits, but costs each reader a full
//! fence (some 5 to 20 ns).
//!
//! [membarrier(2)]: https://man7.org/linux/man-pages/man2/membarrier.2.html

#[cfg(all(any(not(target_os = "linux"), stillpoint_portable), not(any(stillpoint_loom, miri))))]
mod absent;
#[cfg(all(test, target_os = "linux", not(any(stillpoint_loom, stillpoint_portable))))]
pub(crate) mod fault;
#[cfg(all(target_os = "linux", not(stillpoint_portable)))]
mod membarrier;
#[cfg(stillpoint_loom)]
pub(crate) mod model;
mod set;

#[cfg(all(any(not(target_os = "linux"), stillpoint_portable), not(any(stillpoint_loom, miri))))]
use absent::membarrier;
pub use set::{set_heavy, SetHeavyError};

use std::fmt;

use stillpoint_sys::sync::atomic::{fence, Ordering};

/// Which side pays for the order between readers and writers.
///
/// ```
/// use stillpoint::fence::Mode;
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::builder().fence(Mode::best()).build()?; // as without the call
/// println!("{}", domain.fence_mode());
/// # Ok::<(), stillpoint::rcu::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Readers use [`light`], writers [`heavy`].
    Asymmetric,
    /// Both sides use a sequentially consistent fence. For processes that are refused membarrier, for systems other than Linux,
    /// and for guests whose virtual processors the host preempts.
    Symmetric,
}

impl Mode {
    /// `Asymmetric` if the process may use membarrier, or has [set another heavy fence](set_heavy); otherwise `Symmetric`.
    ///
    /// With membarrier, the first call of the process probes. Later calls only ask whether a seccomp filter was installed meanwhile. Once a thread
    /// was refused for good, this is `Symmetric`, on every thread.
    pub fn best() -> Self {
        match Mode::Asymmetric.probe() {
            Ok(()) => Mode::Asymmetric,
            Err(_) => Mode::Symmetric,
        }
    }

    /// Whether this process may use the mode.
    pub(crate) fn probe(self) -> Result<(), FenceError> {
        match self {
            #[cfg(not(any(stillpoint_loom, miri)))]
            Mode::Asymmetric if set::own_heavy().is_none() => membarrier::confirm(),
            Mode::Asymmetric => asymmetric_supported(),
            Mode::Symmetric => Ok(()),
        }
    }

    /// The writer's side of the pair, for readers in this mode.
    pub(crate) fn heavy(self) -> Result<(), FenceError> {
        match self {
            Mode::Asymmetric => heavy(),
            // SeqCst: pairs with the fence in `Core::answer`: only `end_missed_boost` comes here. For scans, the fence in
            // `Protocol::order` is enough.
            Mode::Symmetric => {
                fence(Ordering::SeqCst);
                Ok(())
            }
        }
    }

    /// How the readers of a domain in this mode fence.
    #[inline(always)]
    pub(crate) fn of_readers(self) -> ReaderFence {
        match self {
            Mode::Asymmetric => ReaderFence::Light,
            Mode::Symmetric => ReaderFence::Full,
        }
    }
}

/// How a reader issues its side of the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReaderFence {
    /// By [`light`].
    Light,
    /// By a full fence.
    Full,
}

impl ReaderFence {
    /// The reader's side of the pair.
    #[inline(always)]
    pub(crate) fn issue(self) {
        if self == Self::Light {
            light();
        } else {
            Self::issue_full();
        }
    }

    /// Not inlined: readers that need only [`light`] do not carry this code.
    #[cold]
    #[inline(never)]
    fn issue_full() {
        light();
        // SeqCst: pairs with the fence in `Protocol::order`.
        fence(Ordering::SeqCst);
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Asymmetric => "asymmetric",
            Mode::Symmetric => "symmetric",
        })
    }
}

/// The reader's side of the asymmetric pair: orders accesses before it with accesses after it against any
/// [`heavy`] fence of the process.
///
/// Compiles to nothing. It orders nothing against other fences, atomics, or another `light`. See the [example](self).
#[inline(always)]
pub fn light() {
    #[cfg(not(any(stillpoint_loom, miri)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    // SeqCst: pairs with the fence in `heavy`.
    #[cfg(miri)]
    fence(Ordering::SeqCst);
    #[cfg(stillpoint_loom)]
    model::meet();
}

/// The writer's side of the asymmetric pair: every thread of the process executes a full barrier between the
/// start and the return of this call.
///
/// It is also a sequentially consistent fence for the calling thread. It interrupts every core that runs the
/// process, so batch the work that needs it. It uses membarrier, or the function that was [set](set_heavy).
///
/// # Errors
/// If the function that was set returns an error. Without one, if the kernel refuses: it has no membarrier (Linux before 4.14, and
/// every other system), or a seccomp filter forbids it. Then nothing is ordered.
///
/// ```
/// # if stillpoint::fence::asymmetric_supported().is_ok() {
/// stillpoint::fence::heavy()?;
/// # }
/// # Ok::<(), stillpoint::fence::FenceError>(())
/// ```
pub fn heavy() -> Result<(), FenceError> {
    // SeqCst: pairs with `light` under Miri, and makes this call a full fence of the calling thread.
    fence(Ordering::SeqCst);
    #[cfg(all(test, target_os = "linux", not(any(stillpoint_loom, stillpoint_portable))))]
    fault::meet()?;
    #[cfg(not(stillpoint_loom))]
    match set::own_heavy() {
        Some(function) => function().map_err(FenceError::by_function)?,
        #[cfg(not(miri))]
        None => membarrier::private_expedited()?,
        #[cfg(miri)]
        None => (),
    }
    #[cfg(stillpoint_loom)]
    model::meet();
    Ok(())
}

/// Whether readers may get requests from futures, which rely on [`heavy`]. Always true, except in models without futures: there,
/// a light fence at the end of each section would order more than the library promises.
#[inline(always)]
pub(crate) fn has_requests() -> bool {
    #[cfg(not(stillpoint_loom))]
    return true;
    #[cfg(stillpoint_loom)]
    return model::HAS_REQUESTS.get();
}

/// Whether this process may use [`heavy`]. With membarrier, the first call probes. Later calls return the same answer, until a thread
/// is refused for good. If the program has [set](set_heavy) a function, the answer is yes.
///
/// # Errors
/// The kernel's answer to the probe, or to the last thread that was refused; on systems other than Linux, always a refusal. A
/// filter that is installed after the probe is detected only by [`heavy`], and when a domain is made.
///
/// ```
/// match stillpoint::fence::asymmetric_supported() {
///     Ok(()) => println!("readers pay nothing"),
///     Err(error) => println!("readers pay a fence: {error}"),
/// }
/// ```
pub fn asymmetric_supported() -> Result<(), FenceError> {
    #[cfg(not(stillpoint_loom))]
    return match set::own_heavy() {
        #[cfg(not(miri))]
        None => membarrier::register(),
        _ => Ok(()),
    };
    #[cfg(stillpoint_loom)]
    Ok(())
}

/// Why a heavy fence was refused.
///
/// ```
/// if let Err(error) = stillpoint::fence::heavy() {
///     println!("{error} (error number {})", error.raw_os_error());
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FenceError(i32);

impl FenceError {
    pub(crate) fn new(errno: i32) -> Self {
        Self(errno)
    }

    /// From the error of a function that was set. 0 is none, and would be taken for success.
    #[cfg(not(stillpoint_loom))]
    fn by_function(errno: i32) -> Self {
        Self(if errno == 0 { libc::EIO } else { errno })
    }

    /// The error number of the system call, or of the function that was [set](set_heavy), as in `errno.h`.
    pub fn raw_os_error(self) -> i32 {
        self.0
    }
}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = std::io::Error::from_raw_os_error(self.0);
        if set::is_own() {
            return write!(f, "the heavy fence that the program has set failed ({cause})");
        }
        #[cfg(all(any(not(target_os = "linux"), stillpoint_portable), not(any(stillpoint_loom, miri))))]
        if self.0 == libc::ENOSYS {
            return f.write_str(absent::WHY);
        }
        write!(
            f,
            "membarrier was refused ({cause}); allow the system call in the seccomp filter, or build the domain in \
             symmetric mode"
        )
    }
}

impl std::error::Error for FenceError {}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_supported_process_fences() {
        if asymmetric_supported().is_ok() {
            assert_eq!(heavy(), Ok(()));
            assert_eq!(Mode::best(), Mode::Asymmetric);
        } else {
            assert_eq!(Mode::best(), Mode::Symmetric);
        }
    }

    #[test]
    fn the_error_says_what_to_do() {
        let refused = FenceError::new(libc::EPERM).to_string();
        assert!(
            refused.contains("Operation not permitted") && refused.contains("symmetric mode"),
            "{refused}"
        );
    }
}
