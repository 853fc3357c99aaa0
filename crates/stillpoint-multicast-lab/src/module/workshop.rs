//! Builds the module and its tests in a temporary folder, and packs the guest's first file system.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stillpoint_harness::error::Stop;
use stillpoint_harness::output;
use stillpoint_harness::qemu::cpio::Archive;
use stillpoint_harness::qemu::program::libraries;
use tempfile::{NamedTempFile, TempDir};

use super::parts::Parts;

const MODULE: &str = "stillpoint_membarrier.ko";
const INTERPOSER: &str = "libstillpoint_membarrier.so";
/// This program, linked statically.
const PROGRAM: &str = "stillpoint";
/// How much of a failed build's output is shown.
const SHOWN_LINES: usize = 12;

/// Builds, and packs what was built.
pub(super) fn build(parts: &Parts) -> Result<NamedTempFile, Stop> {
    output::tell("building the module and its tests");
    let folder = at("cannot make a temporary folder", TempDir::with_prefix("stillpoint-module-"))?;
    let own = folder.path();
    copy(&parts.sources, own)?;
    let headers = format!("KDIR={}", parts.headers.display());
    make(own, &["module", &headers])?;
    make(own, &["user", "BUILD=build"])?;
    let build = own.join("build");
    let mut archive = Archive::to_start_from();
    add(&mut archive, "init", &build.join("check"))?;
    add(&mut archive, MODULE, &own.join(MODULE))?;
    // The test of liburcu is one of many. In the guest, it reports that it was left out.
    let of_urcu = make(own, &["build/urcu", "BUILD=build"])
        .and_then(|()| libraries(&build.join("urcu")).map_err(Stop::Failed));
    match of_urcu {
        Ok(libraries) => add_dynamic(&mut archive, &build, &libraries)?,
        Err(stop) => {
            output::tell(format!("warning: the test of liburcu is left out (it needs liburcu-dev): {stop}"))
        }
    }
    // The test of the library is optional, too.
    match parts.program.clone().map_err(Stop::Failed).and_then(|program| program.read()) {
        Ok(program) => put(&mut archive, PROGRAM, &program)?,
        Err(stop) => output::tell(format!("warning: the test of the library is left out: {stop}")),
    }
    let mut packed = at("cannot make a temporary file", NamedTempFile::with_prefix("stillpoint-module-"))?;
    at("cannot write a temporary file", packed.write_all(&archive.finish()))?;
    Ok(packed)
}

/// The program that uses liburcu, the interposer, and the libraries of both where the linker looks for them.
fn add_dynamic(archive: &mut Archive, build: &Path, libraries: &[PathBuf]) -> Result<(), Stop> {
    add(archive, "urcu", &build.join("urcu"))?;
    add(archive, INTERPOSER, &build.join(INTERPOSER))?;
    let mut folders: Vec<PathBuf> = Vec::new();
    for library in libraries {
        let above: Vec<PathBuf> = library.ancestors().skip(1).map(Path::to_owned).collect();
        for folder in above.iter().rev().filter(|folder| folder.parent().is_some()) {
            if !folders.contains(folder) {
                archive.folder(&relative(folder));
                folders.push(folder.clone());
            }
        }
        add(archive, &relative(library), library)?;
    }
    Ok(())
}

fn relative(path: &Path) -> String {
    path.to_string_lossy().trim_start_matches('/').to_owned()
}

fn add(archive: &mut Archive, name: &str, file: &Path) -> Result<(), Stop> {
    put(archive, name, &at(file.display(), fs::read(file))?)
}

fn put(archive: &mut Archive, name: &str, contents: &[u8]) -> Result<(), Stop> {
    archive
        .file(name, true, contents)
        .ok_or_else(|| Stop::Failed(format!("{name} is too large for the guest")))
}

/// Says in the error where it was.
fn at<T>(what: impl Display, result: io::Result<T>) -> Result<T, Stop> {
    result.map_err(|error| Stop::Failed(format!("{what}: {error}")))
}

/// Copies the sources: a build leaves its files beside them.
fn copy(from: &Path, to: &Path) -> Result<(), Stop> {
    for entry in at(from.display(), fs::read_dir(from))? {
        let entry = at(from.display(), entry)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            at(target.display(), fs::create_dir(&target))?;
            copy(&source, &target)?;
        } else if is_source(&source) {
            at(source.display(), fs::copy(&source, &target))?;
        }
    }
    Ok(())
}

/// Whether a build needs this file, and did not make it.
fn is_source(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str());
    let name = file.file_name().and_then(|name| name.to_str());
    matches!(extension, Some("c" | "h")) && !name.is_some_and(|name| name.ends_with(".mod.c"))
        || matches!(name, Some("Kbuild" | "Makefile"))
}

fn make(folder: &Path, arguments: &[&str]) -> Result<(), Stop> {
    let mut command = Command::new("make");
    let command = command.current_dir(folder).args(arguments).stdin(Stdio::null());
    let built = at("cannot start make", command.output())?;
    if built.status.success() {
        return Ok(());
    }
    let complaints = String::from_utf8_lossy(&built.stderr);
    let lines: Vec<&str> = complaints.lines().collect();
    let last = lines[lines.len().saturating_sub(SHOWN_LINES)..].join(" / ");
    Err(Stop::Failed(format!("make {} ended with {}: {last}", arguments.join(" "), built.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_build_left_behind_is_not_copied() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(from.path().join("tests")).unwrap();
        for name in ["device.c", "plan.h", "Kbuild", "a.mod.c", "a.ko", "a.o", "tests/b.c"] {
            fs::write(from.path().join(name), name).unwrap();
        }
        copy(from.path(), to.path()).unwrap();
        let there = |name: &str| to.path().join(name).exists();
        assert!(["device.c", "plan.h", "Kbuild", "tests/b.c"].into_iter().all(there));
        assert!(!["a.mod.c", "a.ko", "a.o"].into_iter().any(there));
    }

    #[test]
    fn a_build_that_fails_says_why() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Makefile"), "module:\n\t@echo no such header >&2; exit 3\n").unwrap();
        let message = make(folder.path(), &["module"]).unwrap_err().to_string();
        assert!(message.contains("make module") && message.contains("no such header"), "{message}");
    }
}
