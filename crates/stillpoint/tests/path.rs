//! Of how many files a public call runs functions, until what it has unlinked is destroyed: who reads the path of an object lands in each
//! of them. `tests/path/trips.rs` goes the path without optimisation, and callgrind names the files.

#![cfg(all(target_os = "linux", not(any(miri, stillpoint_loom))))]

#[path = "support/skip.rs"]
mod skip;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Runs it with the flags of a plain build: neither a sanitizer's nor those of broken variants.
fn run(program: &Path, arguments: &[&str]) {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command.env_remove("CARGO_BUILD_TARGET").current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().expect("it was run before");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {arguments:?}:\n{said}", program.display());
}

/// Builds the library and the program, without optimisation. Returns the program.
fn trips() -> &'static Path {
    static TRIPS: OnceLock<PathBuf> = OnceLock::new();
    TRIPS.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("path");
        let built = target.join("debug");
        let folder = target.to_str().expect("it is readable");
        let build = ["build", "--quiet", "--offline", "-p", "stillpoint", "--lib", "--target-dir", folder];
        run(Path::new(env!("CARGO")), &build);
        let (library, parts) = (built.join("libstillpoint.rlib"), built.join("deps"));
        let library = format!("stillpoint={}", library.display());
        let parts = format!("dependency={}", parts.display());
        let program = built.join("trips");
        let place = program.to_str().expect("it is readable");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let compile =
            ["--edition=2021", "-g", "tests/path/trips.rs", "-o", place, "--extern", &library, "-L", &parts];
        run(Path::new(&rustc), &compile);
        program
    })
}

/// Whether a function is one of the standard library, also for types of others: neither it nor its trait is defined elsewhere.
fn is_of_std(function: &str) -> bool {
    let is_std = |name: &str| ["core::", "alloc::", "std::"].iter().any(|part| name.starts_with(part));
    function.trim_start_matches('<').split(" as ").all(is_std)
}

/// The files of functions in callgrind's output, which writes a name in full only the first time: `fl=(3) src/a.rs`, later `fl=(3)`, and so
/// for functions (`fn`). Files of inlined code are `fi` and `fe`, those of called functions `cfi` and `cfl`; all share their numbers.
/// Functions of the standard library are left out: callgrind may take one for a function of a file of ours (valgrind 3.19 and
/// `FromFn::next`, depending on how the library was built; `addr2line` names the right file).
fn files_in(output: &str) -> BTreeSet<String> {
    let (mut names, mut functions, mut files) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    let mut file = "";
    for (kind, value) in output.lines().filter_map(|line| line.split_once('=')) {
        let known = match kind {
            "fl" | "fi" | "fe" | "cfi" | "cfl" => &mut names,
            "fn" | "cfn" => &mut functions,
            _ => continue,
        };
        let (number, name) = value.split_once(' ').unwrap_or((value, ""));
        if !name.is_empty() {
            known.insert(number, name);
        }
        match kind {
            "fl" => file = names[number],
            "fn" if !is_of_std(functions[number]) => _ = files.insert(file.to_owned()),
            _ => {}
        }
    }
    files
}

/// The files of this crate that a trip enters; `None` without valgrind.
fn entered(trip: &str) -> Option<BTreeSet<String>> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        skip::skipped("valgrind is not installed");
        return None;
    }
    let program = trips();
    let output = program.with_file_name(format!("{trip}.callgrind"));
    let collects = format!("--toggle-collect=trips::{trip}");
    let writes = format!("--callgrind-out-file={}", output.display());
    let program = program.to_str().expect("it is readable");
    let arguments = ["--tool=callgrind", "--collect-atstart=no", &collects, &writes, program, trip];
    run(Path::new("valgrind"), &arguments);
    let sources = "crates/stillpoint/src/";
    let of = |file: String| file.split_once(sources).map(|(_, file)| file.to_owned());
    Some(files_in(&std::fs::read_to_string(output).unwrap()).into_iter().filter_map(of).collect())
}

/// `through`: a file at the beginning of the path. Of the files, at most `most` are entered, and `engines` of the engine of rcu.
fn enters_at_most(trip: &str, through: &str, most: usize, engines: usize) {
    let Some(files) = entered(trip) else { return };
    assert!(files.contains(through) && files.contains("rcu/engine/core/garbage.rs"), "{files:#?}");
    let of_engine = files.iter().filter(|file| file.starts_with("rcu/engine/")).count();
    assert!(
        files.len() <= most && of_engine <= engines,
        "`{trip}` enters {} files ({most} may be), {of_engine} of them of the engine ({engines} may be): {files:#?}\nA function with one caller \
         belongs beside it.",
        files.len()
    );
}

#[test]
fn a_set_enters_few_files_until_the_old_object_is_destroyed() {
    enters_at_most("set", "rcu/cell.rs", 16, 10);
}

#[test]
fn a_replacing_insertion_enters_few_files_until_the_old_entry_is_destroyed() {
    enters_at_most("insert", "table/table.rs", 26, 10);
}

#[test]
fn files_are_found_by_their_numbers() {
    let output =
        "fl=(1) a\nfn=(1) f\n3 4\ncfi=(2) b\ncfn=(2) g\ncalls=1 2\n3 9\nfi=(3) c\nfl=(2)\nfn=(2)\nfl=(1)";
    assert!(files_in(output).into_iter().eq(["a".to_owned(), "b".to_owned()]));
}

#[test]
fn functions_of_the_standard_library_are_in_no_file_of_ours() {
    for of_std in [
        "core::ptr::drop_in_place<stillpoint::A>",
        "<alloc::boxed::Box<stillpoint::A> as core::ops::drop::Drop>::drop",
    ] {
        assert!(is_of_std(of_std), "{of_std}");
    }
    for of_ours in [
        "stillpoint::a::f",
        "<stillpoint::A as core::ops::drop::Drop>::drop",
        "<core::option::Option<T> as stillpoint::B>::g",
    ] {
        assert!(!is_of_std(of_ours), "{of_ours}");
    }
    assert_eq!(files_in("fl=(1) a\nfn=(1) <core::A<F> as core::B>::next\n3 4").len(), 0);
}
