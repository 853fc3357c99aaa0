//! Tests of libraries and plugins that a program loads late: what they need of the loader, and what they are to each other.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

mod programs;
use programs::*;

const CC: Compiler = COMPILERS[0];

fn source(name: &str) -> PathBuf {
    root().join("tests/plugins").join(name).with_extension("c")
}

/// Compiles a shared object. `libraries` come last on the command line.
fn shared(compiler: Compiler, name: &str, source: &Path, flags: &[&str], libraries: &[&str]) -> PathBuf {
    let object = place().join(name).with_extension("so");
    let mut command = compiler.command();
    command.arg(format!("-I{}", prefix().join("include/stillpoint/liburcu").display()));
    command.args(["-O2", "-fPIC", "-shared", "-Wl,-z,nodelete,-z,now"]).args(flags).arg(source);
    let output = command.args(["-x", "none"]).args(libraries).arg("-o").arg(&object).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    object
}

/// A plugin with the shared library, or with the static one in it.
fn plugin(compiler: Compiler, name: &str, source: &Path, flags: &[&str], is_static: bool) -> PathBuf {
    let lib = prefix().join("lib");
    let library = lib.join(if is_static { "libstillpoint.a" } else { "libstillpoint.so" });
    let libraries = [&[library.to_str().unwrap()], &LIBRARIES[..]].concat();
    shared(
        compiler,
        name,
        source,
        &[flags, &[&*format!("-Wl,-rpath,{}", lib.display())]].concat(),
        &libraries,
    )
}

/// A library that takes this much static TLS.
fn greedy(bytes: u32) -> PathBuf {
    shared(CC, &format!("greedy-{bytes}"), &source("greedy"), &[&format!("-DBYTES={bytes}")], &[])
}

/// The linker takes nothing out of the static library for it.
fn host() -> &'static Path {
    static HOST: OnceLock<PathBuf> = OnceLock::new();
    HOST.get_or_init(|| linked(CC, &source("host"), &[], &[], "host"))
}

/// The host loads these, in this order.
fn loads<'p>(host: &Path, libraries: impl IntoIterator<Item = &'p Path>) -> Result<(), String> {
    let output = Command::new(host).args(libraries).output().unwrap();
    output.status.success().then_some(()).ok_or_else(|| said(&output))
}

/// The bytes of the segment for thread-local variables.
fn bytes_of_tls(library: &Path) -> Option<u64> {
    let Ok(output) = Command::new("readelf").arg("-lW").arg(library).output() else {
        skipped("readelf is not installed");
        return None;
    };
    let text = said(&output);
    let line = text.lines().find(|line| line.trim_start().starts_with("TLS")).unwrap();
    let size = line.split_whitespace().nth(5).unwrap();
    Some(u64::from_str_radix(size.trim_start_matches("0x"), 16).unwrap())
}

/// Inline code reads a thread-local variable in the fastest way. So all of the library's segment comes from what glibc keeps for late
/// libraries: some 1,600 bytes for all of them.
#[test]
fn the_library_takes_few_bytes_of_static_tls() {
    if let Some(bytes) = bytes_of_tls(&prefix().join("lib/libstillpoint.so")) {
        assert!(bytes <= 128, "{bytes} bytes");
    }
}

#[test]
fn the_library_and_the_drop_ins_load_after_a_greedy_library() {
    let (host, greedy) = (host(), greedy(1400));
    let library = prefix().join("lib/libstillpoint.so");
    loads(host, [&*greedy, &library]).unwrap();
    let compilers = COMPILERS.into_iter().filter(|compiler| compiler.language == "c" && compiler.is_there());
    for compiler in compilers {
        for flavour in ["NONE", "MEMB", "MB", "QSBR", "BP"] {
            for way in ["-U_LGPL_SOURCE", "-D_LGPL_SOURCE"] {
                let flags = [&*format!("-DFLAVOUR_{flavour}"), way];
                let name = format!("{flavour}{way}-{}", compiler.name);
                let plugin = plugin(compiler, &name, &source("plugin"), &flags, false);
                loads(host, [&*greedy, &plugin]).unwrap_or_else(|said| panic!("{name}: {said}"));
            }
        }
    }
    // The greedy library took all but a little.
    let more = self::greedy(400);
    assert!(loads(host, [&*greedy, &more]).is_err_and(|said| said.contains("static TLS")));
}

/// Each has a copy of the library, with all of Rust's thread-locals, since nothing collects what is not used.
#[test]
fn two_plugins_with_the_static_library_load_after_a_greedy_library() {
    let [one, other] = ["MEMB", "QSBR"].map(|flavour| {
        plugin(CC, &format!("static-{flavour}"), &source("plugin"), &[&format!("-DFLAVOUR_{flavour}")], true)
    });
    loads(host(), [&*greedy(900), &one, &other]).unwrap();
}

#[test]
fn a_second_namespace_has_room_for_the_library() {
    let plugin = plugin(CC, "apart", &source("plugin"), &["-DFLAVOUR_MEMB"], false);
    loads(host(), [&*plugin, Path::new("-"), &plugin]).unwrap();
}

/// A copy of the library, as the host is to load it, and a part of the name of the file in which the copy is.
type Copy<'c> = (&'c Path, &'c str);

/// Copies are found by their notes, in the program, in plugins with the static library, and in the shared library. One of them has the
/// default domain: the one that asks first, wherever it is.
#[test]
fn the_second_copy_has_no_default_domain_and_takes_no_foreign_handles() {
    let hidden = ["-Wl,--exclude-libs,ALL"];
    let static_one = plugin(CC, "copy-one", &source("copy"), &hidden, true);
    let static_other = plugin(CC, "copy-other", &source("copy"), &hidden, true);
    let with_shared = plugin(CC, "copy-shared", &source("copy"), &[], false);
    let of_program: Copy<'_> = (Path::new("-"), "/with-copy");
    let shared: Copy<'_> = (&with_shared, "/libstillpoint.so");
    let (one, other): (Copy<'_>, Copy<'_>) =
        ((&static_one, "/copy-one.so"), (&static_other, "/copy-other.so"));

    let include = format!("-I{}", prefix().join("include/stillpoint/liburcu").display());
    let copy = source("copy");
    let with_copy = [&include, "-DHAS_COPY", copy.to_str().unwrap()];
    let with_copy = linked(CC, &source("copies"), &with_copy, &[], "with-copy");
    let without = linked(CC, &source("copies"), &[], &[], "without-copy");
    for (host, one, other) in [
        (&with_copy, of_program, shared),
        (&with_copy, of_program, one),
        (&without, one, other),
        (&without, one, shared),
    ] {
        for [first, second] in [[one, other], [other, one]] {
            loads(host, [first.0, second.0, Path::new(first.1), Path::new(second.1)])
                .unwrap_or_else(|said| panic!("{} and {}: {said}", first.1, second.1));
        }
    }
}
