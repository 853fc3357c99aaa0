//! The static library, and the shared one that is linked from it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::found::PRIVATE;
use crate::tools::{compiler, make_folder, run, said, write};
use crate::VERSION;

/// The name of the static library in cargo's folders.
const BUILT: &str = "libstillpoint_c.a";

/// The static library in a folder into which cargo has built.
pub(crate) fn there(folder: &Path) -> Result<PathBuf, String> {
    let library = folder.join(BUILT);
    match library.is_file() {
        true => Ok(library),
        false => Err(format!(
            "--from {}: {BUILT} is not there; `cargo build --release -p stillpoint-c` builds it in target/release",
            folder.display()
        )),
    }
}

/// Builds the static library with cargo, and returns its path.
pub(crate) fn build(source: &Path, profile: &OsStr) -> Result<PathBuf, String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args([
        "build",
        "--package",
        "stillpoint-c",
        "--lib",
        "--message-format",
        "json-render-diagnostics",
    ]);
    command.arg("--profile").arg(profile).current_dir(source).stderr(Stdio::inherit());
    add_flags(&mut command, &path_flags(source));
    let output = command.output().map_err(|error| format!("cargo could not be run: {error}"))?;
    if !output.status.success() {
        return Err("cargo could not build the library".to_owned());
    }
    // Cargo's messages are lines of JSON, in which all paths are quoted.
    let messages = String::from_utf8_lossy(&output.stdout);
    let is_library = |path: &Path| {
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with("libstillpoint_c") && path.extension().is_some_and(|extension| extension == "a")
    };
    let mut paths = messages.split('"').map(PathBuf::from);
    paths.find(|path| is_library(path)).ok_or_else(|| "cargo did not name a static library".to_owned())
}

/// Flags by which nothing in the library depends on where it was built.
fn path_flags(source: &Path) -> Vec<String> {
    let repository = source.join("../..").canonicalize().ok();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(home?.join(".cargo")));
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let sysroot = said(Command::new(rustc).args(["--print", "sysroot"])).map(PathBuf::from);
    let name = format!("/stillpoint-{VERSION}");
    [(cargo, "/cargo"), (sysroot, "/rust"), (repository, &name)]
        .into_iter()
        .filter_map(|(folder, name)| Some(format!("--remap-path-prefix={}={name}", folder?.to_str()?)))
        .collect()
}

/// Adds flags to those that cargo finds in the environment, or else in its configuration.
fn add_flags(cargo: &mut Command, flags: &[String]) {
    for (variable, separator) in [("CARGO_ENCODED_RUSTFLAGS", "\u{1f}"), ("RUSTFLAGS", " ")] {
        if let Ok(present) = std::env::var(variable) {
            let all: Vec<_> =
                std::iter::once(present).filter(|text| !text.is_empty()).chain(flags.to_vec()).collect();
            cargo.env(variable, all.join(separator));
            return;
        }
    }
    cargo.arg("--config").arg(format!("build.rustflags={flags:?}"));
}

/// Before 1.0, each minor version has another interface.
pub(crate) fn soname() -> String {
    match VERSION.split_once('.') {
        Some(("0", rest)) => format!("libstillpoint.so.0.{}", rest.split('.').next().unwrap_or_default()),
        _ => format!("libstillpoint.so.{}", VERSION.split('.').next().unwrap_or_default()),
    }
}

/// Links the shared library. It exports the functions of the headers, with a version, and nothing else.
pub(crate) fn link(library: &Path, to: &Path, soname: &str) -> Result<(), String> {
    let map = to.with_extension("map");
    let release = VERSION.rsplit_once('.').map_or(VERSION, |(release, _)| release);
    write(&map, &format!("STILLPOINT_{release} {{ global: still_*; local: *; }};\n"))?;
    let mut command = compiler();
    command.args(["-shared", "-Wl,--gc-sections", "-Wl,-z,nodelete", "-Wl,-z,defs", "-Wl,-z,relro,-z,now"]);
    command.arg("-Wl,--build-id").arg(format!("-Wl,-soname,{soname}"));
    let mut script = OsString::from("-Wl,--version-script=");
    script.push(&map);
    command.arg(script).arg("-o").arg(to);
    command.arg("-Wl,--whole-archive").arg(library).arg("-Wl,--no-whole-archive").args(PRIVATE.split(' '));
    let answer = run(&mut command, "link the shared library");
    let _ = fs::remove_file(&map);
    answer
}

/// Moves the library's debug information into a file in `.debug`, where debuggers look for it.
pub(crate) fn separate_debug_information(lib: &Path, library: &str) -> Result<(), String> {
    let folder = lib.join(".debug");
    make_folder(&folder)?;
    let (library, debug) = (lib.join(library), folder.join(format!("{library}.debug")));
    let objcopy = || Command::new(std::env::var_os("OBJCOPY").unwrap_or_else(|| "objcopy".into()));
    let mut link = OsString::from("--add-gnu-debuglink=");
    link.push(&debug);
    let task = "separate the debug information (--no-strip leaves it in the library)";
    run(objcopy().arg("--only-keep-debug").arg(&library).arg(&debug), task)?;
    run(objcopy().arg("--strip-unneeded").arg(link).arg(&library), task)
}
