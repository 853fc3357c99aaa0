//! The C interface of [`stillpoint`]: the implementation of `stillpoint.h` and of the headers of its drop-ins.
//!
//! The header is the manual, and is written by hand. `docs/design/capi.md` explains why the implementation is correct. Rust programs use
//! [`stillpoint`] itself.
//! To build and install the headers and libraries:
//!
//! ```text
//! cargo run -p stillpoint-c --bin install -- --prefix /usr/local
//! ```

// A circle of files: `border`, `copies`, `cpp`, `domain`, `handle`, `own`, `reader`, `reason`, `report`, `reserve`, `start`, `thread`,
// `thread_end`, `urcu/barrier`, `urcu/defer`, `urcu/flavour`, `urcu/fork`, `urcu/reader` and `urcu/worker`. A thread's block, in `own`,
// holds what each of them keeps for the thread; when the thread ends, `own` calls those that have something to end; and each of them asks
// `own` for the block.

// The names are those of C.
#![allow(non_camel_case_types)]
// The header has the contract of each function.
#![allow(clippy::missing_safety_doc, missing_docs)]

mod background;
mod border;
mod copies;
mod cpp;
mod domain;
mod handle;
mod htimer;
mod once;
mod own;
mod pool;
mod queue;
mod reader;
mod reason;
mod reclaimer;
mod report;
mod reserve;
mod rte;
mod spares;
mod start;
mod table;
mod thread;
mod thread_end;
mod timer;
mod urcu;

pub use background::*;
pub use border::still_version;
pub use cpp::*;
pub use domain::*;
pub use handle::{still_head_, STILL_FULL_FENCE_};
pub use htimer::*;
pub use own::still_thread_;
pub use pool::*;
pub use queue::*;
pub use reader::*;
pub use reason::still_error;
pub use reclaimer::*;
pub use report::{still_on_report, still_report_fn};
pub use rte::*;
pub use table::*;
pub use thread::still_thread_options;
pub use timer::*;
pub use urcu::*;
