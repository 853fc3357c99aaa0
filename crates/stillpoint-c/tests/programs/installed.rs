//! How programs find what is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{place, prefix, said, skipped, Compiler};

/// The compiler with which Rust links.
pub(crate) const CC: Compiler = Compiler { name: "cc", language: "c", standard: "-std=gnu11" };

/// The flags of packages, from `pkg-config` with this folder of the prefix. `None` if it is not installed.
pub(crate) fn pkg_config(folder: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("pkg-config");
    let Ok(output) = command.args(arguments).env("PKG_CONFIG_PATH", prefix().join(folder)).output() else {
        skipped("pkg-config is not installed");
        return None;
    };
    assert!(output.status.success(), "{}", said(&output));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Compiles a program by these flags only.
pub(crate) fn compiled_by(source: &Path, flags: &str, defines: &[&str], program: &str) -> PathBuf {
    let program = place().join(program);
    let mut command = Command::new(CC.name);
    command.args(["-D_GNU_SOURCE", "-pthread"]).args(defines).arg(source).args(flags.split_whitespace());
    let output = command.arg("-o").arg(&program).output().unwrap();
    assert!(output.status.success(), "{}: {flags}\n{}", source.display(), said(&output));
    program
}

/// Whether programs can be linked with static libraries only.
pub(crate) fn is_there_a_static_libc() -> bool {
    let source = place().join("static.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let output =
        Command::new(CC.name).arg("-static").arg(&source).arg("-o").arg(place().join("static")).output();
    let is_there = output.unwrap().status.success();
    if !is_there {
        skipped("a static C library is not installed");
    }
    is_there
}

/// Runs a program that is compiled by the flags of packages: with the shared library, and with static libraries only.
pub(crate) fn runs_by_pkg_config(folder: &str, package: &str, source: &Path, defines: &[&str]) {
    let name = format!("by-{}", package.split_whitespace().next().unwrap());
    let Some(flags) = pkg_config(folder, &["--cflags", "--libs", package]) else { return };
    let output = with_library(&compiled_by(source, &flags, defines, &name)).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{name}: {}", said(&output));
    if is_there_a_static_libc() {
        let flags = pkg_config(folder, &["--static", "--cflags", "--libs", package]).unwrap();
        let program = compiled_by(source, &format!("-static {flags}"), defines, &format!("{name}-static"));
        let output = Command::new(&program).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {}", said(&output));
    }
}

/// A command whose loader finds the shared library.
pub(crate) fn with_library(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", prefix().join("lib"));
    command
}
