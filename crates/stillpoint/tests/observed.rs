//! What tracers and debuggers find in a program: the notes of the probes, and the domains of a core file.

#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, stillpoint_loom, stillpoint_portable))
))]

#[path = "support/skip.rs"]
mod skip;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::thread;

use skip::skipped;
use stillpoint::rcu::raw::{Callback, CallbackQueue};
use stillpoint::rcu::{self, Domain};

/// What a program prints; `None` if it is not installed.
fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    output_with(&[], program, arguments)
}

fn output_with(environment: &[(&str, &str)], program: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .envs(environment.iter().copied())
        .output()
    {
        Ok(output) => output,
        Err(error) => {
            skipped(&format!("{program} is not installed: {error}"));
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{said}\n{complaint}", output.status);
    Some(said)
}

fn this_program() -> String {
    let program = env::current_exe().expect("a process can find its program");
    program.into_os_string().into_string().expect("the path is readable")
}

fn contrib(file: &str) -> String {
    format!("{}/../../contrib/{file}", env!("CARGO_MANIFEST_DIR"))
}

/// The name of each probe, and the number of its arguments, as in `docs/guide/operation.md` and in the scripts.
const PROBES: [(&str, usize); 6] =
    [("grace_start", 2), ("grace_end", 2), ("blocked", 3), ("fence_start", 1), ("fence_end", 2), ("free", 3)];

/// A note is: `Provider: stillpoint`, `Name: free`, `Location: 0x..., Base: 0x..., Semaphore: 0x0`, `Arguments: 8@%rdi 8@%rsi`.
#[test]
fn the_probes_are_in_the_program() {
    drop(rcu::pin()); // the program must use the library
    let Some(notes) = output_of("readelf", &["--notes", "--wide", &this_program()]) else { return };
    let field = |line: &str, name: &str| line.trim().strip_prefix(name).map(|value| value.trim().to_owned());
    let mut found = Vec::new();
    let mut lines = notes.lines().skip_while(|line| !line.contains("stapsdt"));
    while let Some(line) = lines.next() {
        let Some(name) = field(line, "Name:") else { continue };
        let place = field(lines.next().expect("a place follows"), "Location:").expect("a place follows");
        let arguments = lines.next().and_then(|line| field(line, "Arguments:")).expect("arguments follow");
        assert!(!place.contains("Base: 0x0000000000000000"), "gdb needs the base: {place}");
        found.push((name, arguments.split_whitespace().count()));
    }
    let expected = PROBES.into_iter().chain([("stall", 5)]);
    for (name, arguments) in expected {
        let all: Vec<_> = found.iter().filter(|probe| probe.0 == name).collect();
        assert!(!all.is_empty(), "no probe {name} in:\n{notes}");
        assert!(all.iter().all(|probe| probe.1 == arguments), "{name}: {all:?}");
    }
}

/// The function's instructions in the compiler's output, without labels and directives.
fn instructions<'a>(assembly: &'a str, function: &str) -> Vec<&'a str> {
    let begin = format!("{function}:");
    let lines = assembly.lines().skip_while(|line| *line != begin).skip(1);
    let mut is_code = true;
    let mut code = Vec::new();
    for line in lines.take_while(|line| !line.starts_with(".Lfunc_end")).map(str::trim) {
        match line {
            _ if line.starts_with(".section") => is_code = line.contains(".text"),
            _ if line.starts_with(['.', '#', '/']) || line.is_empty() || line.ends_with(':') => {}
            _ if is_code => code.push(line),
            _ => {}
        }
    }
    assert!(!code.is_empty(), "no {function} in:\n{assembly}");
    code
}

#[test]
fn a_probe_is_one_nop() {
    let sources = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("probes");
    std::fs::create_dir_all(&sources).expect("the folder is cargo's, for tests");
    let (source, assembly) = (sources.join("probed.rs"), sources.join("probed.s"));
    let macros = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stillpoint-sys/src/probe.rs");
    let text = format!(
        "#[path = {macros:?}] pub mod probe;
        #[no_mangle] pub extern \"C\" fn plain(a: u64, b: u64) -> u64 {{ a.wrapping_mul(b) }}
        #[no_mangle] pub extern \"C\" fn probed(a: u64, b: u64) -> u64 {{ probe!(\"one\", a, b); a.wrapping_mul(b) }}"
    );
    std::fs::write(&source, text).expect("the folder is there");
    let [source, place] = [&source, &assembly].map(|path| path.to_str().expect("the path is readable"));
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let arguments = ["--edition=2021", "-O", "--crate-type=lib", "--emit=asm", source, "-o", place];
    assert!(output_of(&rustc, &arguments).is_some(), "there is a compiler, since this was compiled");
    let assembly = std::fs::read_to_string(&assembly).expect("it was written just now");
    let (plain, mut probed) = (instructions(&assembly, "plain"), instructions(&assembly, "probed"));
    let nop = probed.iter().position(|instruction| *instruction == "nop").expect("the probe");
    probed.remove(nop);
    // Operands of a sum may be in another order.
    let names = |code: &[&str]| -> Vec<String> {
        code.iter().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
    };
    assert_eq!(names(&plain), names(&probed), "besides the `nop`, both have the same instructions");
}

/// In the environment of a process that is observed: by what.
const OBSERVER: &str = "STILLPOINT_TEST_OBSERVER";

/// In the process of a test below: with a debugger, it is stopped here by a signal, with one reader in the way, one that protects an object, and one
/// that is idle.
#[test]
fn stops_with_a_reader_in_the_way() {
    let Ok(kind) = env::var(OBSERVER) else { return };
    let domain = Domain::builder().name("routes").build().expect("the best mode is always available");
    unsafe extern "C-unwind" fn do_nothing(_: NonNull<Callback>) {}
    let (queue, mut node) = (CallbackQueue::new(&domain), Callback::new());
    let cells = [domain.cell(1), domain.cell(2)];
    let met = Barrier::new(4);
    let wait = || {
        met.wait();
        met.wait();
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let reader = domain.reader();
            let _region = reader.pin();
            wait();
        });
        scope.spawn(|| {
            let reader = domain.reader();
            let _held = cells[1].protect(&reader).expect("never empty here");
            wait();
        });
        scope.spawn(|| {
            let reader = domain.reader();
            drop(reader.pin());
            wait();
        });
        met.wait();
        // With one thread for tests, this is the main thread.
        let own = domain.reader();
        drop(own.pin());
        let mut reclaimer = domain.reclaimer();
        reclaimer.retire(cells[0].take().expect("never empty here")).expect("it has room");
        assert_eq!(reclaimer.poll(), 0, "the first thread is in the way");
        // SAFETY: the node stays until the queue has called the function.
        unsafe { queue.push(NonNull::from(&mut node), do_nothing) };
        if kind == "debugger" {
            // SAFETY: the debugger stops the process here, and ends it.
            unsafe { libc::raise(libc::SIGTRAP) };
        }
        met.wait();
    });
    while queue.pending() > 0 {
        queue.poll(usize::MAX);
    }
}

/// What a script of bpftrace prints about the test above; `None` if tracers may not attach here.
fn traced(script: &str) -> Option<String> {
    let program = this_program();
    let command = format!("{program} stops_with_a_reader_in_the_way --exact");
    let run = |arguments: &[&str]| Command::new("bpftrace").args(arguments).env(OBSERVER, "tracer").output();
    // Whether any script may attach to this program.
    let control = format!(
        "usdt:{program}:stillpoint:free {{ @ = count(); }} BEGIN {{ printf(\"attached\"); exit(); }}"
    );
    let Ok(output) =
        run(&["-e", &control]).map_err(|error| skipped(&format!("bpftrace is not installed: {error}")))
    else {
        return None;
    };
    if !String::from_utf8_lossy(&output.stdout).contains("attached") {
        skipped(&format!("bpftrace cannot attach here: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    // Its status says nothing: it may fail to detach from a process that has ended.
    let output = run(&[&contrib(script), &program, "-c", &command]).expect("it was run just now");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains('@'), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    Some(said)
}

#[test]
fn the_scripts_of_bpftrace_run() {
    // One after the other: the kernel has one set of breakpoints for the file.
    let Some(said) = traced("bpftrace/stalls.bt") else { return };
    assert!(said.contains("@in_the_way[") && said.contains("@found_by["), "{said}");
    let Some(said) = traced("bpftrace/grace.bt") else { return };
    assert!(said.contains("@started["), "{said}");
}

/// Makes a core file of this program, stopped in the test above.
fn core_file(name: &str) -> Option<String> {
    let core = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let core = core.to_str().expect("the path is readable").to_owned();
    let _ = std::fs::remove_file(&core);
    let program = this_program();
    let observer = format!("set environment {OBSERVER} debugger");
    let make = format!("generate-core-file {core}");
    let arguments = [
        ["-nx", "-batch", "-ex", &observer, "-ex", "set startup-with-shell off"],
        ["-ex", "run", "-ex", &make, "-ex", "kill"],
        ["--args", &program, "stops_with_a_reader_in_the_way", "--exact", "--nocapture", "--test-threads=1"],
    ];
    let output = Command::new("gdb").args(arguments.concat()).output();
    let Ok(output) = output.map_err(|error| skipped(&format!("gdb is not installed: {error}"))) else {
        return None;
    };
    if !Path::new(&core).exists() {
        skipped(&format!("gdb cannot make a core file here: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    Some(core)
}

/// What the debugger's command prints: of a process with one domain.
fn check(report: &str, of_debugger: &str) {
    let lines: Vec<_> = report.lines().skip_while(|line| !line.starts_with("domain `routes`")).collect();
    if report.contains("not supported in this copy of GDB") {
        return skipped("gdb has no Python");
    }
    assert!(lines.len() > 5, "no report in:\n{report}");
    let with = |part: &str| -> Vec<_> { lines.iter().filter(|line| line.contains(part)).collect() };
    let [stalled] = with("IN THE WAY")[..] else { panic!("not one reader is in the way:\n{report}") };
    assert!(stalled.contains("a region open since token 1, 1 behind"), "{stalled}");
    assert!(stalled.contains(of_debugger), "{stalled}");
    assert_eq!(with("waiting to be freed: 2 (4 bytes); readers: 4").len(), 1, "{report}");
    assert_eq!(with("protects 0x").len(), 1, "{report}");
    assert_eq!(with(": idle").len(), 3, "{report}");
    assert_eq!(with(&format!("{of_debugger}1)")).len(), 1, "the main thread:\n{report}");
}

#[test]
fn gdb_says_who_is_in_the_way_in_a_core_file() {
    let Some(core) = core_file("gdb.core") else { return };
    let script = format!("source {}", contrib("debugger/stillpoint_rcu.py"));
    let arguments = ["-nx", "-batch", "-ex", &script, "-ex", "stillpoint", &this_program(), &core];
    let Some(report) = output_of("gdb", &arguments) else { return };
    check(&report, "gdb's thread ");
    std::fs::remove_file(core).expect("it was written just now");
}

/// Where the Python modules of lldb are: where it says, or where Debian has put them.
fn modules_of_lldb() -> Option<String> {
    let said = output_of("lldb", &["-P"])?;
    let is_there = |folder: &Path| folder.join("lldb/embedded_interpreter.py").exists();
    let within = |folder: PathBuf| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries.flatten().map(|entry| entry.path()).collect()
    };
    let versions =
        within("/usr/lib".into()).into_iter().filter(|path| path.to_string_lossy().contains("llvm-"));
    let pythons = versions.flat_map(|path| within(path.join("lib")));
    let folders = pythons.map(|path| path.join("dist-packages"));
    let found = std::iter::once(PathBuf::from(said.trim())).chain(folders).find(|folder| is_there(folder));
    let Some(found) = found else {
        skipped("lldb has no Python module: install python3-lldb");
        return None;
    };
    found.into_os_string().into_string().ok()
}

#[test]
fn lldb_says_so_too() {
    let Some(modules) = modules_of_lldb() else { return };
    let Some(core) = core_file("lldb.core") else { return };
    let script = format!("command script import {}", contrib("debugger/stillpoint_rcu.py"));
    let arguments =
        ["--no-lldbinit", "--batch", "--core", &core, "-o", &script, "-o", "stillpoint", &this_program()];
    let Some(report) = output_with(&[("PYTHONPATH", &modules)], "lldb", &arguments) else { return };
    check(&report, "lldb's thread ");
    std::fs::remove_file(core).expect("it was written just now");
}
