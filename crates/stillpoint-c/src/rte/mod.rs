//! What is behind the headers that stand in the place of DPDK's: `stillpoint/dpdk`.

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

/// What a function of DPDK's answers when it has failed.
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

/// Runs the body of a function that fails as DPDK's do, with `rte_errno`. It reaches nothing where libc cancels a thread, but within
/// [`Uncancelled`].
fn answered<A: Failure>(body: impl FnOnce() -> Result<A, Refusal>) -> A {
    briefly(|| body().map(Rte)).0
}

/// Prints a text to a file of C.
///
/// # Safety
/// The file is open.
unsafe fn print(file: *mut libc::FILE, text: &impl Display) {
    let text = text.to_string();
    let _whole = Uncancelled::new();
    // SAFETY: the caller's promise, and as many bytes as there are. A file that cannot be written says so to its owner.
    unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), file) };
}
