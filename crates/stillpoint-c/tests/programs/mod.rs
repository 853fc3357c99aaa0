//! Functions with which tests install the library, and build programs with it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

#[path = "../../../stillpoint/tests/support/skip.rs"]
mod skip;
pub(crate) use skip::skipped;

pub(crate) const FLAGS: [&str; 8] =
    ["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", "-pthread"];
/// The other libraries that the static library needs.
pub(crate) const LIBRARIES: [&str; 4] = ["-lpthread", "-lm", "-ldl", "-lc"];

/// A compiler with a standard.
#[derive(Clone, Copy)]
pub(crate) struct Compiler {
    pub(crate) name: &'static str,
    pub(crate) language: &'static str,
    pub(crate) standard: &'static str,
}

pub(crate) const COMPILERS: [Compiler; 4] = [
    Compiler { name: "gcc", language: "c", standard: "-std=gnu11" },
    Compiler { name: "g++", language: "c++", standard: "-std=c++17" },
    Compiler { name: "clang", language: "c", standard: "-std=gnu11" },
    Compiler { name: "clang++", language: "c++", standard: "-std=c++17" },
];

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The folder in which this test builds its programs.
pub(crate) fn place() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
    std::fs::create_dir_all(&place).unwrap();
    place
}

impl Compiler {
    pub(crate) fn is_there(self) -> bool {
        let is_there =
            Command::new(self.name).arg("--version").output().is_ok_and(|output| output.status.success());
        if !is_there {
            skipped(&format!("{} is not installed", self.name));
        }
        is_there
    }

    pub(crate) fn command(self) -> Command {
        let mut command = Command::new(self.name);
        command
            .args(["-x", self.language, self.standard])
            .args(FLAGS)
            .arg("-I")
            .arg(prefix().join("include"));
        command
    }
}

/// What a program of tests printed that ended well. What it skipped counts as skipped here.
#[allow(dead_code, reason = "plugins run other programs")]
pub(crate) fn passed(program: &Path, output: &Output) -> String {
    let text = said(output);
    assert!(output.status.success(), "{}: {}\n{text}", program.display(), output.status);
    text.lines().filter_map(|line| line.strip_prefix("skipped: ")).for_each(skipped);
    text
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The prefix of the libraries, which are installed once, built with the checks of debug builds.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = place().join("installed");
        let _ = std::fs::remove_dir_all(&prefix);
        let mut install = Command::new(env!("CARGO_BIN_EXE_install"));
        let output = install.args(["--profile", "programs", "--prefix"]).arg(&prefix).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        std::fs::write(prefix.join("printed"), output.stdout).unwrap();
        // Hundreds of programs are linked with this library. Without debug information, that takes half the time. If `strip` is missing, the
        // debug information stays.
        let _ = Command::new("strip").arg("--strip-debug").arg(prefix.join("lib/libstillpoint.a")).output();
        prefix
    })
}

/// The option for a linker that takes half the time of the usual one, if it is installed. The programs that find the library by pkg-config,
/// CMake or Meson are linked with the usual one.
pub(crate) fn fast_linker() -> Option<&'static str> {
    const GOLD: &str = "-fuse-ld=gold";
    static IS_THERE: OnceLock<bool> = OnceLock::new();
    let is_there = || {
        let source = place().join("linked.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let compilers = COMPILERS.into_iter().filter(|compiler| compiler.is_there());
        compilers.map(|compiler| compiler.name).all(|name| {
            let mut command = Command::new(name);
            command.arg(GOLD).arg(&source).arg("-o").arg(place().join(format!("linked-{name}")));
            command.output().is_ok_and(|output| output.status.success())
        })
    };
    IS_THERE.get_or_init(is_there).then_some(GOLD)
}

/// Whether a program is linked with the static library, which takes four times as long as with the shared one: those of one compiler are,
/// and those whose checker must see all of it. But the tests of `urcu` build each program of this compiler many times.
fn is_static(compiler: Compiler, flags: &[&str]) -> bool {
    let is_one = compiler.name == "gcc" && env!("CARGO_CRATE_NAME") != "urcu";
    is_one || flags.iter().any(|flag| flag.starts_with("-fsanitize"))
}

/// Compiles a program, linked with the library and with these. Returns its path.
pub(crate) fn linked(
    compiler: Compiler,
    source: &Path,
    flags: &[&str],
    libraries: &[&str],
    program: &str,
) -> PathBuf {
    let program = place().join(program);
    let lib = prefix().join("lib");
    let (library, is_shared) = match is_static(compiler, flags) {
        true => ("libstillpoint.a", false),
        false => ("libstillpoint.so", true),
    };
    let output = compiler
        .command()
        .args(flags)
        .arg(source)
        .args(["-x", "none"])
        .arg(lib.join(library))
        .args(is_shared.then(|| format!("-Wl,-rpath,{}", lib.display())))
        .args(libraries)
        .args(LIBRARIES)
        .args(fast_linker())
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{} does not compile {}:\n{}",
        compiler.name,
        source.display(),
        said(&output)
    );
    program
}
