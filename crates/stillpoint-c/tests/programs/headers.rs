//! What tests do with headers: they compile their first program, and break them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{fast_linker, place, prefix, root, said, Compiler, COMPILERS, LIBRARIES};
use crate::run::compiled_and_run;

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

/// A copy of the folder of our headers, in one of which `to` replaces `from`.
pub(crate) fn broken_headers((header, from, to): (&str, &str, &str), name: &str) -> PathBuf {
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
    let include = place().join(format!("broken-{name}"));
    copy(&root().join("include"), &include);
    let text = std::fs::read_to_string(include.join(header)).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{header}: {from}");
    std::fs::write(include.join(header), text.replace(from, to)).unwrap();
    include
}

/// Compiles a program under AddressSanitizer with our headers, in one of which `to` replaces `from`.
pub(crate) fn with_broken_header(
    compiler: Compiler,
    (header, from, to): (&str, &str, &str),
    source: &Path,
    number: usize,
) -> PathBuf {
    let include = broken_headers((header, from, to), &number.to_string());
    let built = include.join("program");
    let output = Command::new(compiler.name)
        .args(["-x", compiler.language, compiler.standard, "-D_GNU_SOURCE", "-O1", "-pthread"])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-I"])
        .arg(&include)
        .arg(source)
        .args(["-x", "none"])
        .arg(prefix().join("lib/libstillpoint.a"))
        .args(LIBRARIES)
        .args(fast_linker())
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
