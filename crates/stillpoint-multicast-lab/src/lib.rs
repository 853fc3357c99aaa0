//! Multicasts and barriers that this machine cannot run directly: on other machines, and in the kernel.
//!
//! - [`simulate`] is the command `stillpoint simulate`: multicasts on machines that are described by a file.
//! - [`module`] is the command `stillpoint module`: the kernel module, built and tested in virtual machines.
//! - [`device`] is the module's client, which other commands use, too.

#[expect(missing_docs, reason = "`kernel/include/stillpoint_membarrier.h` documents the interface")]
pub mod device;
pub mod module;
pub mod simulate;
