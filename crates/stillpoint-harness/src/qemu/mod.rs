//! Virtual machines by QEMU: their parts, the first file system that they start from, and one run to its end.

pub mod console;
pub mod cpio;
pub mod modules;
pub mod needs;
pub mod program;
mod session;

use std::fs::File;
use std::path::Path;

use clap::ValueEnum;

use crate::error::Stop;

pub use self::session::{Ending, Guest, MEMORY, Purpose, START, Session};

/// What runs the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Accel {
    /// The processor, if /dev/kvm can be opened and the guest starts; otherwise QEMU
    Auto,
    /// The processor, by /dev/kvm
    Kvm,
    /// QEMU, in software: one thread for each virtual CPU
    Tcg,
}

crate::named!(pub Accel);

/// A file for what the guests print on their consoles.
pub fn transcript(path: Option<&Path>) -> Result<Option<File>, Stop> {
    let create = |path: &Path| {
        File::create(path).map_err(|error| Stop::usage(format!("cannot write {}: {error}", path.display())))
    };
    path.map(create).transpose()
}
