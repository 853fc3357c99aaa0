//! Functions with which tests install the library, and build programs with it.

// No test file uses all of these functions.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

#[path = "../../../stillpoint/tests/support/skip.rs"]
mod skip;
pub(crate) use skip::skipped;

pub(crate) const FLAGS: [&str; 8] =
    ["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", "-pthread"];
/// The other libraries that the static library needs.
pub(crate) const LIBRARIES: [&str; 5] = ["-lgcc_s", "-lpthread", "-lm", "-ldl", "-lc"];

/// A compiler with a standard.
#[derive(Clone, Copy)]
pub(crate) struct Compiler {
    pub(crate) name: &'static str,
    pub(crate) language: &'static str,
    pub(crate) standard: &'static str,
}

/// The compiler with which Rust links.
pub(crate) const CC: Compiler = Compiler { name: "cc", language: "c", standard: "-std=gnu11" };
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

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The prefix of the libraries, which are installed once, built with the profile of these tests.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = place().join("installed");
        let _ = std::fs::remove_dir_all(&prefix);
        let mut install = Command::new(env!("CARGO_BIN_EXE_install"));
        let output = install.args(["--profile", "test", "--prefix"]).arg(&prefix).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        // Hundreds of programs are linked with this library. Without debug information, that takes half the time. If `strip` is missing, the
        // debug information stays.
        let _ = Command::new("strip").arg("--strip-debug").arg(prefix.join("lib/libstillpoint.a")).output();
        prefix
    })
}

/// Compiles a program, linked with the static library. Returns its path.
pub(crate) fn compiled(compiler: Compiler, source: &Path, flags: &[&str], program: &str) -> PathBuf {
    linked(compiler, source, flags, &[], program)
}

/// The same, with other libraries in addition.
pub(crate) fn linked(
    compiler: Compiler,
    source: &Path,
    flags: &[&str],
    libraries: &[&str],
    program: &str,
) -> PathBuf {
    let program = place().join(program);
    let output = compiler
        .command()
        .args(flags)
        .arg(source)
        .args(["-x", "none"])
        .arg(prefix().join("lib/libstillpoint.a"))
        .args(libraries)
        .args(LIBRARIES)
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

/// Compiles and runs a program. Returns its output.
pub(crate) fn compiled_and_run(compiler: Compiler, source: &Path, flags: &[&str], program: &str) -> String {
    let program = compiled(compiler, source, flags, program);
    // A program that hangs is ended, and fails. The longest program takes a minute under a sanitizer.
    let output = Command::new("timeout").args(["--signal=ABRT", "900"]).arg(&program).output().unwrap();
    assert!(output.status.success(), "{}: {}\n{}", program.display(), output.status, said(&output));
    said(&output)
}

/// Compiles the program at the beginning of a header, unchanged, with every installed compiler of its language, and runs it. The program
/// must print an MTU once for each of its readers.
pub(crate) fn opens_with_a_program(header: &str, language: &str, readers: usize) {
    let text = std::fs::read_to_string(root().join("include").join(header)).unwrap();
    let lines = text.lines().map(|line| {
        let rest = line.strip_prefix("//").or_else(|| line.strip_prefix(" *")).unwrap_or("end");
        rest.strip_prefix("     ").or_else(|| rest.is_empty().then_some(rest))
    });
    let lines = lines.skip_while(|line| line.is_none_or(str::is_empty));
    let program: Vec<&str> = lines.map_while(|line| line).collect();
    let source = place().join(header.replace('/', "-")).with_extension("opening");
    std::fs::write(&source, program.join("\n") + "\n").unwrap();
    for compiler in
        COMPILERS.into_iter().filter(|compiler| compiler.language == language && compiler.is_there())
    {
        let name = format!("{}-{}", source.file_stem().unwrap().to_string_lossy(), compiler.name);
        let said = compiled_and_run(compiler, &source, &["-O2"], &name);
        let tells_one = |line: &str| ["mtu 1500", "mtu 9000"].contains(&line);
        assert!(said.lines().count() == readers && said.lines().all(tells_one), "{header}: {said}");
    }
}

/// Runs a program with every installed compiler, also with `STILL_CHECKED`.
pub(crate) fn runs(source: &Path) {
    let name = source.file_stem().unwrap().to_string_lossy();
    for compiler in COMPILERS.into_iter().filter(|compiler| compiler.is_there()) {
        for flags in [&["-O2", "-g"][..], &["-O2", "-g", "-DSTILL_CHECKED"]] {
            compiled_and_run(compiler, source, flags, &format!("{name}-{}-{}", compiler.name, flags.len()));
        }
    }
}

/// Compiles a program under AddressSanitizer with our headers, in one of which `to` replaces `from`.
pub(crate) fn with_broken_header(
    compiler: Compiler,
    (header, from, to): (&str, &str, &str),
    source: &Path,
    number: usize,
) -> PathBuf {
    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
            let to = to.join(entry.file_name().unwrap());
            if entry.is_dir() {
                copy(&entry, &to);
            } else {
                std::fs::copy(&entry, to).unwrap();
            }
        }
    }
    let include = place().join(format!("broken-{number}"));
    copy(&root().join("include"), &include);
    let text = std::fs::read_to_string(include.join(header)).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{header}: {from}");
    std::fs::write(include.join(header), text.replace(from, to)).unwrap();
    let built = include.join("program");
    let output = Command::new(compiler.name)
        .args(["-x", compiler.language, compiler.standard, "-D_GNU_SOURCE", "-O1", "-g", "-pthread"])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-I"])
        .arg(&include)
        .arg(source)
        .args(["-x", "none"])
        .arg(prefix().join("lib/libstillpoint.a"))
        .args(LIBRARIES)
        .arg("-o")
        .arg(&built)
        .output()
        .unwrap();
    assert!(output.status.success(), "{header}: {to}: {}", said(&output));
    built
}

/// Whether a program succeeds within `seconds` seconds.
pub(crate) fn within(program: &Path, seconds: u32) -> bool {
    Command::new("timeout").arg(seconds.to_string()).arg(program).output().unwrap().status.success()
}
