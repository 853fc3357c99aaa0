//! How tests compile and run programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{linked, passed, Compiler};

/// Compiles a program, linked with the library. Returns its path.
pub(crate) fn compiled(compiler: Compiler, source: &Path, flags: &[&str], program: &str) -> PathBuf {
    linked(compiler, source, flags, &[], program)
}

/// Compiles and runs a program. Returns its output.
pub(crate) fn compiled_and_run(compiler: Compiler, source: &Path, flags: &[&str], program: &str) -> String {
    let program = compiled(compiler, source, flags, program);
    // A program that hangs is ended, and fails. The longest program takes a minute under a sanitizer.
    let output = Command::new("timeout").args(["--signal=ABRT", "900"]).arg(&program).output().unwrap();
    passed(&program, &output)
}
