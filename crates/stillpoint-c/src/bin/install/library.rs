//! The static library, and the shared one that is linked from it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::found::PRIVATE;
use crate::tools::{compiler, failed, make_folder, run, said, tool, write};
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

/// Adds flags to those that cargo finds in the environment, or else in its configuration. They may have spaces.
fn add_flags(cargo: &mut Command, flags: &[String]) {
    const ENCODED: &str = "CARGO_ENCODED_RUSTFLAGS";
    let present = match (std::env::var(ENCODED), std::env::var("RUSTFLAGS")) {
        (Ok(encoded), _) => encoded.split('\u{1f}').map(str::to_owned).collect::<Vec<_>>(),
        (_, Ok(plain)) => plain.split_whitespace().map(str::to_owned).collect(),
        _ => {
            cargo.arg("--config").arg(format!("build.rustflags={flags:?}"));
            return;
        }
    };
    let all = present.iter().chain(flags).filter(|flag| !flag.is_empty());
    cargo.env(ENCODED, all.map(String::as_str).collect::<Vec<_>>().join("\u{1f}"));
}

/// Before 1.0, each minor version has another interface.
pub(crate) fn soname() -> String {
    match VERSION.split_once('.') {
        Some(("0", rest)) => format!("libstillpoint.so.0.{}", rest.split('.').next().unwrap_or_default()),
        _ => format!("libstillpoint.so.{}", VERSION.split('.').next().unwrap_or_default()),
    }
}

/// Links the shared library. It exports the functions of the headers, with a version, and nothing else.
pub(crate) fn link(library: &Path, lib: &Path, name: &str, soname: &str, strips: bool) -> Result<(), String> {
    let (new, map) = (lib.join("libstillpoint.new"), lib.join("libstillpoint.map"));
    // As the name: a program that was linked with an earlier library of this name finds the version of its functions.
    let release = soname.trim_start_matches("libstillpoint.so.");
    write(&map, format!("STILLPOINT_{release} {{ global: still_*; local: *; }};\n"))?;
    let mut command = compiler();
    command.args(["-shared", "-Wl,--gc-sections", "-Wl,-z,nodelete", "-Wl,-z,defs", "-Wl,-z,relro,-z,now"]);
    command.args(["-Wl,--build-id", "-Wl,--as-needed"]).arg(format!("-Wl,-soname,{soname}"));
    command.args(["-Xlinker", "--version-script", "-Xlinker"]).arg(&map).arg("-o").arg(&new);
    command.arg("-Wl,--whole-archive").arg(library).arg("-Wl,--no-whole-archive").args(PRIVATE.split(' '));
    let linked = run(&mut command, "link the shared library");
    let _ = fs::remove_file(&map);
    linked?;
    let debug = lib.join(".debug").join(format!("{name}.debug"));
    match strips {
        true => separate_debug_information(&new, &debug)?,
        // It would be that of an earlier library.
        false => drop(fs::remove_file(&debug)),
    }
    let library = lib.join(name);
    fs::rename(&new, &library).map_err(|error| failed(&library, &error))
}

/// Moves a library's debug information into a file in `.debug`, where debuggers look for it.
fn separate_debug_information(library: &Path, debug: &Path) -> Result<(), String> {
    make_folder(debug.parent().expect("it is in a folder"))?;
    let mut link = OsString::from("--add-gnu-debuglink=");
    link.push(debug);
    let task = "separate the debug information; $OBJCOPY names another program, and --no-strip does without";
    run(tool("OBJCOPY", "objcopy").arg("--only-keep-debug").arg(library).arg(debug), task)?;
    run(tool("OBJCOPY", "objcopy").arg("--strip-unneeded").arg(link).arg(library), task)
}
