//! Tests of the drop-in headers for DPDK, by the C and C++ programs in `tests/rte`.

use std::path::PathBuf;
use std::process::Command;

#[path = "programs/fences.rs"]
mod fences;
#[path = "programs/installed.rs"]
mod installed;
mod programs;
#[path = "programs/run.rs"]
mod run;
use fences::*;
use installed::*;
use programs::*;
use run::*;

fn source(name: &str) -> PathBuf {
    root().join("tests/rte").join(name).with_extension("c")
}

/// The folder in which programs look for `rte_rcu_qsbr.h` first.
fn drop_in() -> String {
    format!("-I{}", headers().display())
}

fn headers() -> PathBuf {
    prefix().join("include/stillpoint/dpdk")
}

/// The flags for DPDK's headers, from pkg-config. The folders become system folders, so that warnings in them are ignored.
fn dpdk() -> Option<Vec<String>> {
    let answer = Command::new("pkg-config").args(["--cflags", "libdpdk"]).output();
    let Some(answer) = answer.ok().filter(|answer| answer.status.success()) else {
        skipped("DPDK is not installed");
        return None;
    };
    let flags = String::from_utf8(answer.stdout).unwrap();
    let flags = flags.split_whitespace().flat_map(|flag| match flag.strip_prefix("-I") {
        Some(folder) => vec!["-isystem".to_owned(), folder.to_owned()],
        None => vec![flag.to_owned()],
    });
    Some(flags.collect())
}

/// The libraries of DPDK that programs with its tables and its environment need, without `rte_rcu` and `rte_timer`.
const DPDK_LIBRARIES: [&str; 5] = ["-lrte_hash", "-lrte_lpm", "-lrte_mempool", "-lrte_ring", "-lrte_eal"];

/// Runs a program of `tests/rte`, compiled without DPDK's headers and with them.
fn runs_by(compiler: Compiler, name: &str, flags: &[&str]) {
    let drop_in = drop_in();
    let program = |with: &str| format!("{name}-{}-{}-{with}", compiler.name, flags.len());
    let mut all = vec!["-O2", &drop_in];
    all.extend(flags);
    compiled_and_run(compiler, &source(name), &all, &program("alone"));
    let Some(dpdk) = dpdk() else { return };
    all.extend(dpdk.iter().map(String::as_str));
    // `compiled_and_run` puts the libraries of DPDK before ours, which needs none of them.
    all.extend(["-Wl,--no-as-needed", "-lrte_eal", "-Wl,--as-needed"]);
    compiled_and_run(compiler, &source(name), &all, &program("dpdk"));
}

fn runs(name: &str) {
    COMPILERS.into_iter().filter(|compiler| compiler.is_there()).for_each(|it| runs_by(it, name, &[]));
}

/// Each header compiles by itself, from the lowest standards that it names on, without warnings, and without DPDK.
#[test]
fn the_headers_compile_by_themselves() {
    for compiler in COMPILERS.into_iter().filter(|compiler| compiler.is_there()) {
        let standards: &[&str] = match compiler.language {
            "c" => &["-std=c99", "-std=gnu99", "-std=c11", "-std=gnu17"],
            _ => &["-std=c++11", "-std=c++17", "-std=c++20"],
        };
        for standard in standards {
            for header in ["rte_rcu_qsbr.h", "rte_timer.h"] {
                let path = root().join("include/stillpoint/dpdk").join(header);
                assert!(std::fs::read_to_string(path).unwrap().contains("C99 or C++11"), "{header}");
                let source = place().join("header.h");
                std::fs::write(&source, format!("#include <{header}>\n#include <{header}>\nint one = 1;\n"))
                    .unwrap();
                let mut command = compiler.command();
                command.args([standard, "-Wredundant-decls", "-fsyntax-only", &drop_in()]).arg(&source);
                let output = command.output().unwrap();
                assert!(output.status.success(), "{} {standard} {header}:\n{}", compiler.name, said(&output));
            }
        }
    }
}

#[test]
fn qsbr() {
    runs("qsbr");
    runs_by(CC, "qsbr", &["-DRTE_LIBRTE_RCU_DEBUG"]);
}

#[test]
fn defer() {
    runs("defer");
}

#[test]
fn timer() {
    runs("timer");
}

#[test]
fn programs_find_it_by_pkg_config() {
    runs_by_pkg_config("lib/pkgconfig", "stillpoint-dpdk", &source("qsbr"), &[]);
    if dpdk().is_none() {
        return;
    }
    // The package that is named first has its headers found first. This program calls a function that DPDK's header lacks.
    let Some(flags) = pkg_config("lib/pkgconfig", &["--cflags", "--libs", "stillpoint-dpdk", "libdpdk"])
    else {
        return;
    };
    let program = compiled_by(&root().join("examples/from-dpdk/reports.c"), &flags, &[], "by-both");
    let output = with_library(&program).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

/// The program prints the same layout with either header.
#[test]
fn the_layout_is_that_of_dpdk() {
    let Some(dpdk) = dpdk() else { return };
    let mut flags = vec!["-DWITH_TIMER"];
    flags.extend(dpdk.iter().map(String::as_str));
    let theirs = compiled_and_run(CC, &source("layout"), &flags, "layout-theirs");
    let drop_in = drop_in();
    flags.push(&drop_in);
    flags.extend(["-Wl,--no-as-needed", "-lrte_eal", "-Wl,--as-needed"]);
    let ours = compiled_and_run(CC, &source("layout"), &flags, "layout-ours");
    assert_eq!(ours, theirs);
    assert!(ours.contains("sizeof(struct rte_rcu_qsbr) = 128, 64"), "{ours}");
}

/// Runs a program with DPDK's environment.
fn runs_in_dpdk(name: &str) {
    let Some(dpdk) = dpdk() else { return };
    let drop_in = drop_in();
    let mut flags = vec!["-O2", &drop_in];
    flags.extend(dpdk.iter().map(String::as_str));
    flags.extend(["-Wl,--no-as-needed"].iter().chain(&DPDK_LIBRARIES).chain(&["-Wl,--as-needed"]));
    println!("{}", compiled_and_run(CC, &source(name), &flags, name));
}

/// DPDK's tables, which were compiled against DPDK's header.
#[test]
fn tables_of_dpdk_take_our_variable() {
    runs_in_dpdk("hash");
    runs_in_dpdk("lpm");
}

#[test]
fn timers_run_on_lcores_of_dpdk() {
    runs_in_dpdk("lcores");
    runs_in_dpdk("htimer");
}

/// The flags with which a program uses mempools, and has the driver in it.
fn with_driver(dpdk: &[String]) -> Vec<String> {
    let driver = root().join("dpdk/mempool.c").display().to_string();
    let mut flags = vec!["-O2".to_owned(), driver];
    flags.extend(dpdk.iter().cloned());
    flags.extend(["-Wl,--no-as-needed", "-lrte_mempool", "-lrte_eal", "-Wl,--as-needed"].map(str::to_owned));
    flags
}

#[test]
fn the_driver_of_mempools_gives_each_object_to_one_thread() {
    let Some(dpdk) = dpdk() else { return };
    let flags = with_driver(&dpdk);
    let mut flags: Vec<_> = flags.iter().map(String::as_str).collect();
    println!("{}", compiled_and_run(CC, &source("mempool"), &flags, "mempool"));
    flags.extend(["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    println!("{}", compiled_and_run(CC, &source("mempool"), &flags, "mempool-address"));
}

/// A program that does not have the driver in it loads the one that is installed, the only file in its folder.
#[test]
fn programs_of_dpdk_load_the_installed_driver() {
    let Some(dpdk) = dpdk() else { return };
    let prefix = place().join("with-driver");
    let mut install = Command::new(env!("CARGO_BIN_EXE_install"));
    let output = install.args(["--profile", "programs", "--dpdk", "--prefix"]).arg(&prefix).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let folders: Vec<_> = std::fs::read_dir(prefix.join("lib/dpdk")).unwrap().collect();
    let [Ok(folder)] = &folders[..] else { panic!("{folders:?}") };
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
    let [driver] = &files[..] else { panic!("{files:?}") };
    assert!(said(&output).contains(&format!("-d {}\n", driver.display())), "{}", said(&output));

    let mut flags: Vec<_> = with_driver(&dpdk);
    flags.remove(1);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let program = compiled(CC, &source("mempool"), &flags, "mempool-loads");
    let output = Command::new(&program).arg(driver).output().unwrap();
    if said(&output).contains("is world-writable and insecure") {
        skipped("DPDK loads no driver from below a folder that anyone may write to");
        return;
    }
    assert!(output.status.success(), "{}", said(&output));
}

/// The programs of the guide run: with DPDK's header and library, with ours, with our additions, and with protected loads.
#[test]
fn the_guide_ports_a_program() {
    let (drop_in, folder) = (drop_in(), root().join("examples/from-dpdk"));
    for name in ["routes", "reports", "protected"] {
        let said = compiled_and_run(CC, &folder.join(name).with_extension("c"), &["-O2", &drop_in], name);
        assert!(said.contains("200 updates, 0 wrong\n"), "{said}");
    }
    let Some(dpdk) = dpdk() else { return };
    let mut flags: Vec<_> = dpdk.iter().map(String::as_str).collect();
    flags.extend(["-Wl,--no-as-needed", "-lrte_rcu", "-lrte_eal", "-Wl,--as-needed"]);
    let said = compiled_and_run(CC, &folder.join("routes.c"), &flags, "routes-theirs");
    assert!(said.contains("200 updates, 0 wrong\n"), "{said}");
}

/// Both sides of the first step of the argument have their fence: going online, and starting a grace period.
#[test]
fn the_fences_are_there() {
    let source = place().join("fences.c");
    let text = "#include <rte_rcu_qsbr.h>\n#include <rte_timer.h>\n\
                void online(struct rte_rcu_qsbr *v) { rte_rcu_qsbr_thread_online(v, 1); }\n\
                void quiescent(struct rte_rcu_qsbr *v) { rte_rcu_qsbr_quiescent(v, 1); }\n\
                uint64_t start(struct rte_rcu_qsbr *v) { return rte_rcu_qsbr_start(v); }\n";
    std::fs::write(&source, text).unwrap();
    for code in machine_code(&source, &headers()) {
        for function in ["online", "quiescent", "start"] {
            assert!(has_fence(&code, function), "{function}: {code}");
        }
    }
}

/// Half of each hand-over is in Rust, which ThreadSanitizer does not see. The library tells ThreadSanitizer which accesses are ordered.
#[test]
fn sanitizers_have_nothing_to_say() {
    let drop_in = drop_in();
    for sanitizer in ["-fsanitize=address,undefined", "-fsanitize=thread"] {
        let trial = place().join("trial.c");
        std::fs::write(&trial, "int main(void) { return 0; }\n").unwrap();
        let output = CC.command().arg(sanitizer).arg(&trial).arg("-o").arg(place().join("trial")).output();
        if !output.unwrap().status.success() {
            skipped(&format!("cc has no {sanitizer}"));
            continue;
        }
        let kind = &sanitizer[11..13];
        let flags = ["-O1", "-g", sanitizer, "-fno-sanitize-recover=all", "-Wno-error=tsan", &drop_in];
        for name in ["qsbr", "defer", "timer"] {
            compiled_and_run(CC, &source(name), &flags, &format!("{name}-{kind}"));
        }
        // A program that does not wait for its readers is reported.
        let racy = [&flags[..], &["-DWITHOUT_GRACE_PERIOD"]].concat();
        let program = compiled(CC, &source("qsbr"), &racy, &format!("racy-{kind}"));
        let output = Command::new("timeout").arg("900").arg(&program).output().unwrap();
        assert!(!output.status.success() && said(&output).contains("Sanitizer"), "{}", said(&output));
    }
}
