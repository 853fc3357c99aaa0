//! Tests of the drop-in for liburcu, by the C and C++ programs in `tests/urcu`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[path = "programs/installed.rs"]
mod installed;
mod programs;
use installed::*;
use programs::*;

const FLAVOURS: [&str; 4] = ["MEMB", "MB", "QSBR", "BP"];
/// The flags by which a program gets functions, and those by which it gets inline code.
const WAYS: [&str; 2] = ["-U_LGPL_SOURCE", "-D_LGPL_SOURCE"];
/// Where the packages of the drop-in are, below the prefix.
const DROP_IN: &str = "lib/stillpoint/liburcu/pkgconfig";
const GPP: Compiler = Compiler { name: "g++", language: "c++", standard: "-std=c++20" };

fn source(name: &str) -> PathBuf {
    root().join("tests/urcu").join(name).with_extension("c")
}

/// The output of a program that must succeed. The library prints nothing.
fn succeeds(program: &Path, output: &Output) -> String {
    assert!(output.stderr.is_empty(), "{}: {}", program.display(), said(output));
    passed(program, output)
}

fn include() -> String {
    format!("-I{}", prefix().join("include/stillpoint/liburcu").display())
}

/// Compiles a program, linked with the library.
fn compiled(compiler: Compiler, name: &str, flags: &[&str], libraries: &[&str], program: &str) -> PathBuf {
    compiled_from(compiler, &source(name), flags, libraries, program)
}

fn compiled_from(
    compiler: Compiler,
    source: &Path,
    flags: &[&str],
    libraries: &[&str],
    program: &str,
) -> PathBuf {
    linked(compiler, source, &[&["-O2", &include()], flags].concat(), libraries, program)
}

/// Runs a program in these flavours, with functions and with inline code, and in the first one also as C++. In the others, a compiler of C++
/// checks it.
fn runs_as(name: &str, flavours: &[&str], libraries: &[&str]) {
    for (flavour, is_first) in flavours.iter().zip(std::iter::once(true).chain(std::iter::repeat(false))) {
        let define = format!("-DFLAVOUR_{flavour}");
        for (number, way) in WAYS.into_iter().enumerate() {
            let program =
                compiled(CC, name, &[&define, way], libraries, &format!("{name}-{flavour}-{number}"));
            println!(
                "{name} {flavour} {way}: {}",
                succeeds(&program, &Command::new(&program).output().unwrap())
            );
        }
        if !GPP.is_there() {
            continue;
        }
        let flags = [&*define, "-Wno-missing-field-initializers"];
        if is_first {
            let program = compiled(GPP, name, &flags, libraries, &format!("{name}-{flavour}-cc"));
            succeeds(&program, &Command::new(&program).output().unwrap());
        } else {
            let mut command = GPP.command();
            let output =
                command.args(flags).arg(include()).arg("-fsyntax-only").arg(source(name)).output().unwrap();
            assert!(
                output.status.success() && output.stderr.is_empty(),
                "{name} {flavour}: {}",
                said(&output)
            );
        }
    }
}

fn runs(name: &str) {
    runs_as(name, &FLAVOURS, &[]);
}

#[test]
fn readers() {
    runs("readers");
}

#[test]
fn vouches() {
    runs("vouches");
}

#[test]
fn callbacks() {
    runs("callbacks");
}

#[test]
fn workers() {
    runs("workers");
}

#[test]
fn what_workers_take_over() {
    runs("inherits");
}

#[test]
fn deferred_calls() {
    runs("defer");
}

#[test]
fn forks() {
    runs("fork");
}

#[test]
fn forks_while_others_work() {
    runs("forks");
}

#[test]
fn a_child_may_be_the_first_that_uses_a_flavour() {
    runs("first_use");
}

#[test]
fn threads_register_and_wait_without_memory() {
    for flavour in FLAVOURS {
        let program =
            compiled(CC, "memory", &[&format!("-DFLAVOUR_{flavour}")], &[], &format!("memory-{flavour}"));
        succeeds(&program, &Command::new(&program).output().unwrap());
    }
}

#[test]
fn reports_go_to_the_hook_and_nowhere_else() {
    runs("reports");
}

#[test]
fn configuration() {
    runs("configure");
}

#[test]
fn threads_register_in_handlers() {
    runs_as("handlers", &["BP"], &[]);
}

/// Flavours mb and qsbr need no fence of the kernel.
#[test]
fn refused_fences_keep_a_wait_waiting() {
    runs_as("fences", &["MEMB", "BP"], &[]);
}

#[test]
fn no_object_is_freed_under_a_reader() {
    runs("stress");
}

/// The stress test fails if sections protect nothing.
#[test]
fn broken_sections_are_noticed() {
    for flavour in ["MEMB", "MB", "BP"] {
        let define = format!("-DFLAVOUR_{flavour}");
        let program = compiled(CC, "stress", &[&define, "-DBROKEN"], &[], &format!("broken-{flavour}"));
        // In a single run, the writer may finish before a reader has looked.
        let notices = || Command::new(&program).output().unwrap().status.code() == Some(7);
        assert!((0..20).any(|_| notices()), "{flavour}: the broken sections were not noticed");
    }
}

fn liburcu_is_there() -> bool {
    let test = "#include <urcu/rculfhash.h>\nint main(void) { return 0; }\n";
    let source = place().join("is-there.c");
    std::fs::write(&source, test).unwrap();
    let output = Command::new(CC.name)
        .arg(&source)
        .args(["-lurcu-cds", "-lurcu-common", "-o"])
        .arg(place().join("is-there"))
        .output();
    let is_there = output.is_ok_and(|output| output.status.success());
    if !is_there {
        skipped("liburcu is not installed");
    }
    is_there
}

#[test]
fn a_hash_table_of_liburcu_runs_over_our_flavours() {
    if liburcu_is_there() {
        runs_as("hash", &FLAVOURS, &["-lurcu-cds", "-lurcu-common"]);
    }
}

/// Programs that were compiled against liburcu, and call its functions, run on the libraries under its names. Those that have its readers
/// inline are refused by the loader, and so is an original of the same flavour beside ours.
#[test]
fn programs_that_were_compiled_against_liburcu_run_on_ours() {
    if !liburcu_is_there() {
        return;
    }
    let ours = prefix().join("lib/stillpoint/liburcu");
    let compiled = |library: &str, flags: &[&str], program: &str| {
        let program = place().join(program);
        let mut command = CC.command();
        command.args(["-O2", "-Wno-pedantic", "-Wno-conversion", "-Wno-sign-conversion"]).args(flags);
        // liburcu's own headers, which are not ours to mend.
        let output = command
            .arg("-Wno-error")
            .arg(source("compiled"))
            .arg("-o")
            .arg(&program)
            .arg(format!("-l{library}"))
            .args(["-lurcu-cds", "-lurcu-common", "-ldl"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
        program
    };
    let run = |program: &Path| Command::new(program).env("LD_LIBRARY_PATH", &ours).output().unwrap();
    for (library, flag) in [
        ("urcu", "-DRCU_MEMB"),
        ("urcu-memb", "-DRCU_MEMB"),
        ("urcu-mb", "-DRCU_MB"),
        ("urcu-qsbr", "-DFLAVOUR_QSBR"),
        ("urcu-bp", "-DFLAVOUR_BP"),
    ] {
        let program = compiled(library, &[flag], library);
        assert_eq!(succeeds(&program, &Command::new(&program).output().unwrap()), "on liburcu\n");
        assert_eq!(succeeds(&program, &run(&program)), "on stillpoint\n", "{library}");
        let inline = run(&compiled(library, &[flag, "-D_LGPL_SOURCE"], &format!("{library}-inline")));
        assert!(!inline.status.success(), "{library}: {}", said(&inline));
        assert!(said(&inline).contains("undefined symbol: urcu_"), "{library}: {}", said(&inline));
    }
    // The original by its path, and ours by the other name of the flavour.
    let original = CC.command().arg("-print-file-name=liburcu.so.8").output().unwrap();
    let original = String::from_utf8_lossy(&original.stdout).trim().to_owned();
    let both = Command::new(place().join("urcu-memb"))
        .env("LD_PRELOAD", &original)
        .env("LD_LIBRARY_PATH", &ours)
        .output()
        .unwrap();
    assert_eq!(both.status.code(), Some(1), "{}", said(&both));
    assert!(said(&both).contains("is loaded as well, and its readers would not be seen"), "{}", said(&both));
}

/// The names that programs may need, except those of inline readers and of what their headers do not declare.
#[test]
fn no_name_of_liburcu_is_missing() {
    let names = |file: &Path| {
        let output = Command::new("nm").args(["-D", "--defined-only"]).arg(file).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = |line: &str| line.split_whitespace().last().map(str::to_owned);
        output.status.success().then(|| text.lines().filter_map(last).collect::<BTreeSet<String>>())
    };
    if !liburcu_is_there() {
        return;
    }
    for name in ["liburcu", "liburcu-memb", "liburcu-mb", "liburcu-qsbr", "liburcu-bp"] {
        let file = format!("{name}.so.8");
        let original = CC.command().arg(format!("-print-file-name={file}")).output().unwrap();
        let original = PathBuf::from(String::from_utf8_lossy(&original.stdout).trim());
        let Some(theirs) = names(&original) else { return skipped("nm is not installed") };
        let ours = names(&prefix().join("lib/stillpoint/liburcu").join(&file)).unwrap();
        let missing: Vec<_> = theirs.difference(&ours).map(String::as_str).collect();
        let is_known = |name: &&str| {
            name.starts_with("__urcu_compat_futex_") || name.ends_with("_gp") || name.ends_with("_reader")
        };
        assert!(missing.iter().all(is_known) && missing.len() == 4, "{file}: {missing:?}");
    }
}

#[test]
fn programs_define_functions_themselves() {
    let program = compiled(CC, "own", &[], &[], "own");
    succeeds(&program, &Command::new(&program).output().unwrap());
    // Not linked with the library.
    let program = place().join("own-alone");
    let output = CC
        .command()
        .arg("-DALONE")
        .arg("-I")
        .arg(prefix().join("include/stillpoint/liburcu"))
        .arg(source("own"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    succeeds(&program, &Command::new(&program).output().unwrap());
}

#[test]
fn old_names_and_several_flavours() {
    for (number, way) in WAYS.into_iter().enumerate() {
        let program = compiled(CC, "names", &[way], &[], &format!("names-{number}"));
        succeeds(&program, &Command::new(&program).output().unwrap());
    }
}

/// The programs compile and run without liburcu's own headers.
#[test]
fn it_does_without_liburcu() {
    for name in ["readers", "callbacks"] {
        let program = compiled(CC, name, &["-DSTILL_URCU_ALONE"], &[], &format!("{name}-alone"));
        succeeds(&program, &Command::new(&program).output().unwrap());
    }
}

/// Each header compiles by itself, from the lowest standards that they name on, without warnings.
#[test]
fn the_headers_compile_by_themselves() {
    let headers = [
        "urcu.h",
        "urcu-qsbr.h",
        "urcu-bp.h",
        "urcu-pointer.h",
        "urcu-call-rcu.h",
        "urcu-defer.h",
        "urcu-flavor.h",
        "urcu/urcu.h",
        "urcu/urcu-memb.h",
        "urcu/urcu-mb.h",
        "urcu/urcu-qsbr.h",
        "urcu/urcu-bp.h",
        "urcu/urcu-poll.h",
        "urcu/static/urcu-memb.h",
        "urcu/static/urcu-mb.h",
        "urcu/static/urcu-qsbr.h",
        "urcu/static/urcu-bp.h",
        "stillpoint/urcu.h",
    ];
    let text = std::fs::read_to_string(root().join("include/stillpoint/urcu.h")).unwrap();
    assert!(text.contains("C99 or C++11"));
    for compiler in COMPILERS.into_iter().filter(|compiler| compiler.is_there()) {
        let standards: &[&str] = match compiler.language {
            "c" => &["-std=c99", "-std=c99", "-std=gnu99", "-std=c11", "-std=gnu17"],
            _ => &["-std=c++11", "-std=c++11", "-std=c++17", "-std=c++20"],
        };
        let ways = ["-D_LGPL_SOURCE", "-DSTILL_URCU_ALONE"].into_iter().cycle();
        for (standard, way) in standards.iter().zip(ways) {
            for header in headers {
                let source = place().join("header.h");
                std::fs::write(&source, format!("#include <{header}>\n#include <{header}>\nint one = 1;\n"))
                    .unwrap();
                let output = compiler
                    .command()
                    .args([standard, way, "-Wredundant-decls", "-fsyntax-only", "-I"])
                    .arg(prefix().join("include/stillpoint/liburcu"))
                    .arg(&source)
                    .output()
                    .unwrap();
                assert!(output.status.success(), "{} {standard} {header}:\n{}", compiler.name, said(&output));
            }
        }
    }
}

/// The names in quotes of `text` that begin with `still_urcu_`.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('"').filter(|part| part.starts_with("still_urcu_")).map(str::to_owned).collect()
}

/// The words of `text` that begin with `still_urcu_`.
fn words(text: &str) -> BTreeSet<String> {
    text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_')
        .filter(|word| word.starts_with("still_urcu_"))
        .map(str::to_owned)
        .collect()
}

/// Every symbol that the headers name is in the shared library, and every symbol of the drop-in is named by a header.
#[test]
fn the_shared_library_exports_what_the_headers_name() {
    let library = prefix().join("lib/libstillpoint.so");
    let Ok(output) = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output() else {
        return skipped("nm is not installed");
    };
    let exported: BTreeSet<_> = words(&said(&output)).into_iter().collect();
    let include = prefix().join("include/stillpoint");
    let headers = FLAVOURS.map(|flavour| {
        std::fs::read_to_string(include.join(format!("liburcu/urcu/urcu-{}.h", flavour.to_lowercase())))
            .unwrap()
    });
    let labels: BTreeSet<_> = headers.iter().flat_map(|header| quoted(header)).collect();
    assert!(labels.len() > 4 * 30 && labels.contains("still_urcu_qsbr_call_rcu"));
    let missing: Vec<_> = labels.difference(&exported).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    // Functions that are inline in a flavour. Only the flavour's table names their symbols.
    let inline = |name: &str| {
        [
            "quiescent_state",
            "thread_offline",
            "thread_online",
            "unregister_thread",
            "read_lock",
            "read_unlock",
            "init",
            "exit",
        ]
        .iter()
        .any(|end| name.ends_with(end))
    };
    let internal = words(&std::fs::read_to_string(include.join("urcu.h")).unwrap());
    let unnamed: Vec<_> = exported
        .iter()
        .filter(|name| !labels.contains(*name) && !internal.contains(*name) && !inline(name))
        .collect();
    assert!(unnamed.is_empty(), "named by no header: {unnamed:?}");
}

/// A configure script finds the drop-in if only `PKG_CONFIG_PATH` is set.
#[test]
fn programs_find_it_by_pkg_config() {
    for (name, flavour) in [
        ("liburcu", "MEMB"),
        ("liburcu-memb", "MEMB"),
        ("liburcu-mb", "MB"),
        ("liburcu-qsbr", "QSBR"),
        ("liburcu-bp", "BP"),
    ] {
        // Polling came with this version.
        let package = format!("{name} >= 0.14.0");
        runs_by_pkg_config(DROP_IN, &package, &source("callbacks"), &[&format!("-DFLAVOUR_{flavour}")]);
        // Makefiles pass on a single word without quotes.
        let Some(words) = pkg_config(DROP_IN, &["--cflags", name]) else { return };
        assert_eq!(words.split_whitespace().count(), 1, "{name}: {words}");
    }
}

/// The functions of queues and stacks are in liburcu's own common library, which the flags name where it is installed.
#[test]
fn a_queue_of_liburcu_is_linked_by_pkg_config() {
    if !liburcu_is_there() {
        return;
    }
    let source = place().join("queue.c");
    let text = "#include <urcu.h>\n#include <urcu/wfcqueue.h>\n\
        int main(void)\n{\n    struct cds_wfcq_head head;\n    struct cds_wfcq_tail tail;\n    \
        cds_wfcq_init(&head, &tail);\n    return !cds_wfcq_empty(&head, &tail);\n}\n";
    std::fs::write(&source, text).unwrap();
    let Some(flags) = pkg_config(DROP_IN, &["--cflags", "--libs", "liburcu"]) else { return };
    let program = compiled_by(&source, &flags, &[], "queue");
    succeeds(&program, &with_library(&program).output().unwrap());
}

/// The program of the guide, in its three steps. The first step also runs with liburcu itself.
#[test]
fn the_program_of_the_guide_runs_in_each_step() {
    let path = root().join("examples/liburcu/settings.c");
    for step in ["-DSTEP=1", "-DSTEP=2", "-DSTEP=3"] {
        let program = compiled_from(CC, &path, &[step], &[], &format!("settings{}", &step[7..]));
        println!("{}", succeeds(&program, &Command::new(&program).output().unwrap()));
    }
    if liburcu_is_there() {
        let program = place().join("settings-liburcu");
        let mut command = Command::new(CC.name);
        let output = command
            .args(["-pthread", "-O2"])
            .arg(&path)
            .args(["-lurcu", "-lurcu-common", "-o"])
            .arg(&program)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", said(&output));
        succeeds(&program, &Command::new(&program).output().unwrap());
    }
}

/// The programs run under AddressSanitizer and UndefinedBehaviorSanitizer without a report.
#[test]
fn sanitizers_find_nothing() {
    for name in ["readers", "callbacks", "workers", "defer", "configure", "reports", "stress"] {
        for flavour in ["MEMB", "QSBR", "BP"] {
            let flags = [
                &format!("-DFLAVOUR_{flavour}"),
                "-g",
                "-fsanitize=address,undefined",
                "-fno-sanitize-recover=all",
            ];
            let program = compiled(CC, name, &flags, &[], &format!("{name}-{flavour}-asan"));
            succeeds(&program, &Command::new(&program).output().unwrap());
        }
    }
}

fn thread_sanitizer_is_there() -> bool {
    let source = place().join("threads.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let program = place().join("threads");
    let output = Command::new(CC.name).arg("-fsanitize=thread").arg(&source).arg("-o").arg(&program).output();
    let is_there = output.is_ok_and(|output| output.status.success())
        && Command::new(&program).output().is_ok_and(|output| output.status.success());
    if !is_there {
        skipped("ThreadSanitizer of cc is not installed");
    }
    is_there
}

/// ThreadSanitizer accepts each way to wait for readers, and reports an object that is freed without a wait.
#[test]
fn the_thread_sanitizer_finds_races_and_no_others() {
    if !thread_sanitizer_is_there() {
        return;
    }
    for flavour in FLAVOURS {
        let define = format!("-DFLAVOUR_{flavour}");
        for (number, way) in WAYS.into_iter().enumerate() {
            let flags = [&*define, way, "-g", "-fsanitize=thread"];
            let program = compiled(CC, "races", &flags, &[], &format!("races-{flavour}-{number}"));
            succeeds(&program, &Command::new(&program).output().unwrap());
        }
        let flags = [&*define, "-DEARLY", "-g", "-fsanitize=thread"];
        let program = compiled(CC, "races", &flags, &[], &format!("races-{flavour}-early"));
        let output = Command::new(&program).output().unwrap();
        assert!(
            !output.status.success() && said(&output).contains("data race"),
            "{flavour}: {}",
            said(&output)
        );
    }
    for name in ["callbacks", "defer", "stress"] {
        for flavour in ["MEMB", "QSBR"] {
            let flags = [&format!("-DFLAVOUR_{flavour}"), "-g", "-fsanitize=thread"];
            let program = compiled(CC, name, &flags, &[], &format!("{name}-{flavour}-tsan"));
            succeeds(&program, &Command::new(&program).output().unwrap());
        }
    }
}
