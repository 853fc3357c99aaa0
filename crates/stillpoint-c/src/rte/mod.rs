//! The drop-ins for DPDK: the functions of the headers in `stillpoint/dpdk`.

mod block;
mod defer;
mod lcore;
mod qsbr;
mod timer;
mod weak;

use std::ffi::c_int;
use std::fmt::Display;

use crate::border::{briefly, set_errno, Answer, Refusal, Uncancelled};

pub use defer::*;
pub use lcore::*;
pub use qsbr::*;
pub use timer::*;

pub(crate) use block::{Call, Number, Reclaim};

/// What a function of DPDK returns when it fails.
trait Failure {
    const FAILED: Self;
}

impl Failure for c_int {
    const FAILED: Self = 1;
}

impl Failure for usize {
    const FAILED: Self = 1;
}

impl<T> Failure for *mut T {
    const FAILED: Self = std::ptr::null_mut();
}

struct Rte<A>(A);

impl<A: Failure> Answer for Rte<A> {
    fn failed(errno: c_int) -> Self {
        set_errno(errno);
        weak::set_rte_errno(errno);
        Rte(A::FAILED)
    }
}

/// Runs the body of a function that fails as DPDK's functions do, with `rte_errno`. The body reaches cancellation points only within
/// [`Uncancelled`].
fn answered<A: Failure>(body: impl FnOnce() -> Result<A, Refusal>) -> A {
    briefly(|| body().map(Rte)).0
}

/// Prints a text to a C file.
///
/// # Safety
/// The file is open.
unsafe fn print(file: *mut libc::FILE, text: &impl Display) {
    let text = text.to_string();
    let _whole = Uncancelled::new();
    // SAFETY: the file is open, by the caller's promise, and `text` has this many bytes. The program finds a write error by `ferror`.
    unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), file) };
}
