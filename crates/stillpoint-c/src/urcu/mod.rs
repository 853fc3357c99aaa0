//! The drop-in for liburcu: what is behind `stillpoint/urcu.h`, and behind liburcu's names in `shim.c`.
//!
//! A flavour is a domain, a list of workers, and the thread-local readers, which are in C. The argument is in `docs/design/capi.md`.

mod barrier;
mod defer;
mod flavour;
mod fork;
mod reader;
mod worker;

pub use barrier::*;
pub use defer::*;
pub use flavour::*;
pub use fork::*;
pub use reader::*;
pub use worker::*;

use std::ffi::c_int;

use crate::border::Answer;

/// Functions of liburcu that cannot fail.
impl Answer for () {
    fn failed(_: c_int) -> Self {}
}

/// One line on the standard error, which is not mixed with others.
pub(crate) fn report(flavour: &flavour::Flavour, what: &str) {
    let line = format!("stillpoint: urcu-{}: {what}\n", flavour.name());
    // SAFETY: a string of this length. Nobody can be told that it failed.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
