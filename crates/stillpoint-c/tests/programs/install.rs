//! What `install` installs, and how programs find it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installed::*;
use crate::programs::*;

#[test]
fn a_program_finds_the_library_by_pkg_config() {
    runs_by_pkg_config("lib/pkgconfig", "stillpoint", &root().join("tests/c/writers.c"), &[]);
}

/// The commands that `install` prints compile a program that starts, and all files that it names are there.
#[test]
fn the_installer_says_what_comes_next() {
    let printed = std::fs::read_to_string(prefix().join("printed")).unwrap();
    let (installed, next) = printed.split_once("Compile a program with:\n").unwrap();
    let (first, files) = installed.split_once(":\n").unwrap();
    assert!(first.ends_with(&format!(" in {}", prefix().display())), "{printed}");
    let files: Vec<_> = files.split_whitespace().filter(|word| word.contains('/')).collect();
    assert!(files.len() > 5, "{printed}");
    for file in files {
        assert!(prefix().join(file).exists(), "{file} is not there: {printed}");
    }
    let folder = place().join("next");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(root().join("examples/configuration.c"), folder.join("program.c")).unwrap();
    if pkg_config("lib/pkgconfig", &["stillpoint"]).is_none() {
        return;
    }
    let script = format!("set -e\n{next}\n./a.out\n");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env_remove("PKG_CONFIG_PATH").env_remove("LD_LIBRARY_PATH");
    // A library that the system has does not count.
    let output = shell.env("PKG_CONFIG_LIBDIR", &folder).current_dir(&folder).output().unwrap();
    assert!(output.status.success(), "{next}\n{}", said(&output));
}

#[test]
fn a_program_finds_the_library_by_cmake() {
    let (source, build) = (place().join("cmake"), place().join("cmake/build"));
    std::fs::create_dir_all(&build).unwrap();
    let of_tests = root().join("tests/c");
    let of_tests = of_tests.display();
    let of_rte = root().join("tests/rte");
    let of_rte = of_rte.display();
    let mut programs = vec!["shared", "static", "dpdk"];
    let mut text = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(test C)\nfind_package(stillpoint 0 REQUIRED)\n\
         find_package(stillpoint 0.1 REQUIRED)\n\
         find_package(Threads REQUIRED)\nadd_compile_definitions(_GNU_SOURCE)\n\
         add_executable(shared {of_tests}/errors.c)\ntarget_link_libraries(shared stillpoint::stillpoint Threads::Threads)\n\
         add_executable(static {of_tests}/errors.c)\ntarget_link_libraries(static stillpoint::static Threads::Threads)\n\
         add_executable(dpdk {of_rte}/qsbr.c)\ntarget_link_libraries(dpdk stillpoint::dpdk Threads::Threads)\n"
    );
    if is_there_a_static_libc() {
        programs.push("whole");
        text += &format!(
            "add_executable(whole {of_tests}/errors.c)\n\
             target_link_libraries(whole stillpoint::static Threads::Threads -static)\n"
        );
    }
    std::fs::write(source.join("CMakeLists.txt"), text).unwrap();
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&source).arg("-B").arg(&build);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display()));
    let Ok(output) = configure.output() else { return skipped("cmake is not installed") };
    assert!(output.status.success(), "{}", said(&output));
    let output = Command::new("cmake").arg("--build").arg(&build).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    for program in programs {
        let output = with_library(&build.join(program)).output().unwrap();
        assert!(output.status.success(), "{program}: {}", said(&output));
    }
}

#[test]
fn a_program_finds_the_library_by_meson() {
    let (source, build) = (place().join("meson"), place().join("meson/build"));
    // Removes what an earlier run has left.
    let _ = std::fs::remove_dir_all(&source);
    std::fs::create_dir_all(&source).unwrap();
    let text = "project('test', 'c', default_options: ['c_std=gnu11'])\n\
        executable('program', 'errors.c', c_args: '-D_GNU_SOURCE', \
        dependencies: [dependency('stillpoint', version: '>=0.1'), dependency('threads')])\n";
    std::fs::write(source.join("meson.build"), text).unwrap();
    for file in ["errors.c", "check.h"] {
        std::fs::copy(root().join("tests/c").join(file), source.join(file)).unwrap();
    }
    let meson = |arguments: &[&Path]| {
        let mut command = Command::new("meson");
        command.args(arguments).env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
        command.output()
    };
    let Ok(output) = meson(&["setup".as_ref(), &build, &source]) else {
        return skipped("meson is not installed");
    };
    assert!(output.status.success(), "{}", said(&output));
    let output = meson(&["compile".as_ref(), "-C".as_ref(), &build]).unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let output = with_library(&build.join("program")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn the_installer_says_what_it_does_not_know() {
    let install =
        |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_install")).args(arguments).output().unwrap();
    let prefix = place().join("nothing");
    let prefix = prefix.to_str().unwrap();
    for (arguments, words) in [
        (&["--frobnicate"][..], "no option --frobnicate"),
        (&["--prefix"], "--prefix needs a value"),
        (&["--prefix", "here"], "not an absolute path"),
        (&["--prefix", "/a b"], "a space or a comma"),
        (&["--prefix", prefix, "--libdir", "/elsewhere/lib"], "not below the prefix"),
        (&["--prefix", prefix, "--libdir", "lib/../.."], "not below the prefix"),
        (&["--from", "here", "--profile", "release"], "leave out one of them"),
        (&["--prefix", prefix, "--from", prefix], "libstillpoint_c.a is not there"),
    ] {
        let output = install(arguments);
        assert!(!output.status.success() && said(&output).contains(words), "{}", said(&output));
    }
    assert!(said(&install(&["--help"])).contains("--destdir"));
}

/// A copy without cargo is the same, whatever flags it gets.
#[test]
fn what_was_built_is_installed_without_cargo() {
    let built = Path::new(env!("CARGO_BIN_EXE_install")).parent().unwrap().with_file_name("programs");
    let copy = place().join("copy");
    let _ = std::fs::remove_dir_all(&copy);
    // The first installation has built it.
    prefix();
    let mut install = Command::new(env!("CARGO_BIN_EXE_install"));
    install
        .args(["--libdir", "lib/here", "--destdir"])
        .arg(&copy)
        .arg("--from")
        .arg(&built)
        .env("CARGO", "/none")
        .env("CC", "cc -g0");
    let output = install.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let copy = copy.join("usr/local");
    for (of_copy, of_prefix) in [("lib/here", "lib"), ("include", "include"), ("share", "share")] {
        let is_same = |file: &&str| {
            copy.join(of_copy).join(file).exists() == prefix().join(of_prefix).join(file).exists()
        };
        let files =
            ["libstillpoint.so", "libstillpoint.a", "cmake", "stillpoint.h", "doc/stillpoint/LICENSE-MIT"];
        assert!(files.iter().all(is_same), "{of_copy}");
    }
    let library = |folder: &Path| std::fs::read(folder.join("libstillpoint.so")).unwrap();
    assert!(library(&copy.join("lib/here")) == library(&prefix().join("lib")));
}

fn contains(text: &[u8], part: &str) -> bool {
    text.windows(part.len()).any(|window| window == part.as_bytes())
}

/// No path of the machine is in a library. The debug information is in a file of its own.
#[test]
fn libraries_do_not_say_where_they_were_built() {
    let repository = root().join("../..").canonicalize().unwrap();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(home?.join(".cargo")));
    let folders: Vec<_> = [Some(repository), cargo].into_iter().flatten().collect();
    let debug = format!("lib/.debug/libstillpoint.so.{}.debug", env!("CARGO_PKG_VERSION"));
    for file in ["lib/libstillpoint.so", "lib/libstillpoint.a", &debug] {
        let bytes = std::fs::read(prefix().join(file)).unwrap();
        for folder in &folders {
            assert!(!contains(&bytes, &format!("{}/", folder.display())), "{file}: {}", folder.display());
        }
    }
    let [library, debug] =
        ["lib/libstillpoint.so", &debug].map(|file| std::fs::read(prefix().join(file)).unwrap());
    assert!(contains(&library, ".gnu_debuglink") && library.len() < debug.len());
}

/// The functions that the header offers to programs: declarations begin in the first column, and macros have the names of functions.
fn functions(header: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("include").join(header)).unwrap();
    let names = text.lines().filter_map(|line| {
        let is_code = !line.starts_with([' ', '/', '}']) && !line.starts_with("typedef ");
        let code = if line.starts_with('#') { line.strip_prefix("#define ")? } else { line };
        let (before, _) = code.split_once('(').filter(|_| is_code)?;
        before.rsplit([' ', '*']).next()
    });
    let is_public = |name: &&str| name.starts_with("still_") && !name.ends_with('_');
    names.filter(is_public).map(str::to_owned).collect()
}

#[test]
fn every_function_has_a_manual_page() {
    for (header, one) in [
        ("stillpoint.h", "still_protect"),
        ("stillpoint/htimer.h", "still_htimer_async_add"),
        ("stillpoint/bitset.h", "still_bitset_find"),
    ] {
        let functions = functions(header);
        assert!(functions.contains(one), "{functions:?}");
        for name in functions {
            let man = prefix().join("share/man");
            let link = std::fs::read_to_string(man.join(format!("man3/{name}.3")));
            let link = link.unwrap_or_else(|error| panic!("{header}: {name} has no page: {error}"));
            let page = std::fs::read_to_string(man.join(link.trim().strip_prefix(".so ").unwrap())).unwrap();
            let (names, text) = page.split_once(".SH SYNOPSIS").unwrap();
            assert!(names.contains(&name) && text.contains(&format!("#include <{header}>")), "{name}");
            assert!(text.contains(&format!("{name}(")), "{name} is not declared in {link}");
        }
    }
    let page = std::fs::read_to_string(prefix().join("share/man/man7/stillpoint.7")).unwrap();
    assert!(page.contains(".SS WHO FREES\n") && page.contains(".B \\-EBADF\n"), "{page}");
}

/// The header, the packages and the library name one version.
#[test]
fn there_is_one_version() {
    let version = env!("CARGO_PKG_VERSION");
    let header = std::fs::read_to_string(root().join("include/stillpoint.h")).unwrap();
    let number = |name: &str| {
        let (_, rest) = header.split_once(&format!("#define STILL_VERSION_{name} ")).unwrap();
        rest.lines().next().unwrap().to_owned()
    };
    assert_eq!(["MAJOR", "MINOR", "PATCH"].map(number).join("."), version);
    for package in ["stillpoint", "stillpoint-dpdk"] {
        let file = std::fs::read_to_string(prefix().join(format!("lib/pkgconfig/{package}.pc"))).unwrap();
        assert!(file.contains(&format!("\nVersion: {version}\n")), "{file}");
    }
    let cmake = prefix().join("lib/cmake/stillpoint/stillpoint-config-version.cmake");
    assert!(std::fs::read_to_string(cmake).unwrap().contains(&format!("set(PACKAGE_VERSION \"{version}\")")));
    let library = std::fs::read(prefix().join("lib/libstillpoint.so")).unwrap();
    assert!(contains(&library, &format!("{version}\0")), "still_version()");
    let changelog = std::fs::read_to_string(root().join("../../debian/changelog")).unwrap();
    assert!(changelog.starts_with(&format!("stillpoint ({version}-")), "{changelog}");
}
