//! The drop-in for liburcu: the functions of `stillpoint/urcu.h`. The functions with liburcu's names are in `shim.c`.
//!
//! A flavour is a domain, a list of workers, and the thread-local readers, which are in C. `docs/design/capi.md` has the argument.

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

pub(crate) use reader::{thread_ends, thread_ends_before};
