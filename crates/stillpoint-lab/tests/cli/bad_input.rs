//! Bad input: one clear line on standard error, exit code 2, nothing measured and nothing written.

use std::fs::OpenOptions;
use std::process::Command;

use crate::common::{run, stderr, stdout, stillpoint};
use crate::skip::skipped;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Asserts that the program refuses `arguments` at once, in one line that has all of `expected` in it.
#[track_caller]
fn refused(arguments: &[&str], expected: &[&str]) {
    let output = run(arguments);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
    assert!(message.starts_with("error: "), "{message}");
    for part in expected {
        assert!(message.contains(part), "{arguments:?}: '{part}' is not in: {message}");
    }
    assert_eq!(stdout(&output), "", "{arguments:?}");
}

#[test]
fn unknown_names_are_refused_with_the_valid_ones() {
    refused(&["bench", "reclam"], &["'reclam'", "reclaim", "micro", "all"]);
    refused(&["bench", "reclaim", "--contenders", "stillpoint,rcu"], &["'rcu'", "dpdk/rcu+poll", "seize"]);
    refused(
        &["bench", "reclaim", "--scenarios", "two-core"],
        &["'two-core'", "own-core", "one-core", "spread"],
    );
    refused(&["bench", "reclaim", "--frobnicate"], &["--frobnicate", "stillpoint bench reclaim --help"]);
    refused(&["dance"], &["'dance'", "stillpoint --help"]);
    refused(&["bench"], &["requires a subcommand", "reclaim", "stillpoint bench --help"]);
}

#[test]
fn scenarios_of_another_experiment_are_refused() {
    refused(&["bench", "reclaim", "--scenarios", "pin"], &["reclaim has no scenario pin", "one-core"]);
    refused(&["bench", "preempt", "--scenarios", "pin"], &["preempt has no scenario pin", "memory-max"]);
    refused(&["bench", "preempt", "--contenders", "papaya"], &["none of these contenders", "ck/epoch"]);
    refused(&["bench", "micro", "--scenarios", "spread"], &["micro has no scenario spread", "quiescent"]);
    refused(&["bench", "micro", "--scenarios", "heavy", "--contenders", "dpdk/rcu+poll"], &["none of these"]);
}

#[test]
fn options_of_another_experiment_are_refused() {
    refused(&["bench", "reclaim", "--initiators", "2"], &["reclaim has no --initiators", "membarrier"]);
    refused(&["bench", "reclaim", "--inside", "half"], &["reclaim has no --inside", "preempt"]);
    refused(&["bench", "micro", "--elements", "1024"], &["micro has no --elements", "reclaim, table"]);
}

/// A time that no row would be measured for. In a run of several scenarios, it is for those that have one.
#[test]
fn a_time_is_refused_where_all_have_a_fixed_amount_of_work() {
    for arguments in [
        &["timer"][..],
        &["timer", "--scenarios", "own"],
        &["table", "--scenarios", "growth,uniform"],
        &["all", "--scenarios", "growth,own"],
    ] {
        let output = run(&[&["bench"], arguments, &["--duration", "2s"]].concat());
        let message = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{message}");
        // Peers that are not installed are named before it.
        let last = message.lines().last().unwrap_or_default();
        for part in ["error: ", "has no --duration", "reclaim, preempt", "table (service)"] {
            assert!(last.contains(part), "{arguments:?}: '{part}' is not in: {message}");
        }
    }
    refused(&["bench", "table", "--scenarios", "pin", "--duration", "2s"], &["table has no scenario pin"]);
    let taken = ["bench", "table", "--scenarios", "service,growth", "--duration", "20ms", "--cpus", "1023"];
    refused(&taken, &["CPU 1023 does not exist"]);
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    refused(&["bench", "reclaim", "--readers", "0"], &["'0'", "from 1 to 1024"]);
    refused(&["bench", "reclaim", "--readers", "8,1025"], &["1024"]);
    refused(&["bench", "reclaim", "--readers", "many"], &["'many'"]);
    refused(&["bench", "reclaim", "--rounds", "0"], &["'0'"]);
    refused(&["bench", "reclaim", "--duration", "soon"], &["'soon'"]);
    refused(&["bench", "reclaim", "--duration", "2h"], &["1h"]);
    refused(&["bench", "reclaim", "--elements", "1000"], &["power of two"]);
    refused(&["bench", "reclaim", "--deletes", "0"], &["'0'", "from 1 to 40000"]);
    refused(&["bench", "reclaim", "--bytes", "63"], &["'63'", "a multiple of 8 from 64"]);
    refused(&["bench", "preempt", "--sections", "0"], &["'0'", "0.1"]);
    refused(&["bench", "preempt", "--sections", "5,NaN"], &["'NaN'"]);
    refused(&["bench", "preempt", "--inside", "often"], &["'often'", "always", "half", "blocked"]);
    refused(&["bench", "reclaim", "--quick", "--full"], &["--quick", "--full"]);
}

#[test]
fn more_readers_than_cpus_are_refused_where_each_needs_its_own() {
    let last = last_cpu().to_string();
    let arguments = ["bench", "reclaim", "--cpus", &last, "--scenarios", "own-core", "--readers", "3"];
    refused(&arguments, &["own-core needs 4 CPUs", "there is 1"]);
}

#[test]
fn cpus_that_do_not_exist_are_refused() {
    refused(&["bench", "reclaim", "--cpus", "1023"], &["CPU 1023 does not exist", "this machine has CPUs"]);
    refused(&["bench", "micro", "--cpus", "0-"], &["'0-'"]);
    refused(&["bench", "micro", "--cpus", "0,0"], &["twice"]);
}

#[test]
fn cpus_that_the_process_may_not_use_are_refused() {
    let last = last_cpu();
    let all = sched_getaffinity(None).unwrap();
    let Some(other) = (0..last).find(|&cpu| all.is_set(cpu)) else {
        return skipped("with a single CPU there is none to be kept from");
    };
    // The program inherits the affinity of the thread that starts it.
    let thread = std::thread::spawn(move || {
        let mut one = CpuSet::new();
        one.set(other);
        sched_setaffinity(None, &one).unwrap();
        let (last, expected) = (last.to_string(), format!("this process may not use CPU {last}"));
        refused(&["bench", "reclaim", "--cpus", &last], &[&expected]);
    });
    thread.join().unwrap();
}

#[test]
fn an_unwritable_file_is_found_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    for command in [["bench", "reclaim"].as_slice(), &["bench", "micro"], &["doctor"]] {
        let with = |file: &str| {
            let arguments: Vec<&str> = command.iter().copied().chain(["--json", file]).collect();
            refused(&arguments, &["cannot write", file]);
            assert!(
                !stderr(&run(&arguments)).contains(".stillpoint-"),
                "a temporary file that the user does not know"
            );
        };
        with(&path("no/such/folder/a.json"));
        with(&path(""));
        with("/proc/no-such-file.json");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something was left behind");
    refused(&["man", "/proc/no/such/folder"], &["cannot write the manual pages"]);
}

#[test]
fn too_little_memory_says_what_is_needed() {
    let elements = (1u64 << 40).to_string();
    for experiment in ["reclaim", "table"] {
        let command = ["bench", experiment, "--contenders", "stillpoint", "--elements", &elements];
        refused(&command, &["GiB", "available", "--elements"]);
    }
    let limited = |kilobytes: &str, more: &[&str]| {
        Command::new("sh")
            .args(["-c", "ulimit -v $0 && exec \"$@\"", kilobytes, env!("CARGO_BIN_EXE_stillpoint")])
            .args(["bench", "reclaim", "--contenders", "stillpoint/protected"])
            .args(more)
            .output()
            .unwrap()
    };
    let refused = limited("200000", &["--elements", "4194304"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("MiB are available"), "{}", stderr(&refused));
    let short =
        ["--quick", "--rounds", "1", "--duration", "50ms", "--scenarios", "one-core", "--readers", "1"];
    let fewer = limited("600000", &short);
    assert!(fewer.status.success(), "{}", stderr(&fewer));
    let said = stderr(&fewer) + &stdout(&fewer);
    assert!(said.contains("MiB are available: this run has "), "{said}");
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    for arguments in [["doctor"].as_slice(), &["doctor", "--json"], &["completions", "bash"]] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = stillpoint(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).starts_with("error: cannot write to standard output"), "{}", stderr(&output));
    }
}

#[test]
fn a_peer_that_was_left_out_is_refused_with_its_package() {
    for missing in stillpoint_peers::missing() {
        let is_group = missing.contenders.iter().any(|name| name.split('/').next() == Some(missing.peer));
        for name in missing.contenders.iter().copied().chain(is_group.then_some(missing.peer)) {
            let is_of_c = ["c/", "drop-in/"].iter().any(|group| name.starts_with(group));
            let experiment = match name {
                "c/htimer" => "timer",
                _ if is_of_c => "capi",
                _ => "reclaim",
            };
            refused(&["bench", experiment, "--contenders", name], &[missing.peer, missing.package]);
        }
    }
}

fn last_cpu() -> usize {
    let all = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).rfind(|&cpu| all.is_set(cpu)).expect("a thread may run somewhere")
}
