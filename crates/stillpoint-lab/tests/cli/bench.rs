//! Short measurements: the form of the results, not their figures.

use std::process::{Command, Stdio};

use crate::common::{json, run, stderr, stdout, stillpoint, told_by};
use serde_json::Value;

/// A tiny run of every contender that was built in, over the array. `spread` fits on any machine.
const TINY: [&str; 14] = [
    "bench",
    "reclaim",
    "--structure",
    "array",
    "--scenarios",
    "spread",
    "--readers",
    "2",
    "--elements",
    "256",
    "--duration",
    "20ms",
    "--rounds",
    "2",
];

fn tiny(more: &[&'static str]) -> Vec<&'static str> {
    TINY.iter().chain(more).copied().collect()
}

/// `object[key]` as a number.
fn number(object: &Value, key: &str) -> f64 {
    object[key].as_f64().unwrap_or_else(|| panic!("{key} is not a number in {object}"))
}

#[test]
fn reclaim_has_flat_rows_of_the_agreed_form() {
    let result = json(&run(&tiny(&["--json"])));
    assert_eq!(result["schema"], 1);
    assert!(
        result["command"]
            .as_str()
            .unwrap()
            .starts_with("stillpoint bench reclaim --structure array --scenarios")
    );
    assert!(result["machine"]["model"].is_string());
    assert!(result["machine"]["peers"]["seize"].is_string());

    let rows = result["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["contender"].as_str().unwrap()).collect();
    for ours in ["protected", "get", "guard", "qsbr", "qsbr+poll", "qsbr+background"] {
        assert!(names.contains(&format!("stillpoint/{ours}").as_str()), "{names:?}");
    }
    // Our own contenders in C have a separate experiment.
    let is_of_c = |name: &str| ["c/", "drop-in/"].iter().any(|group| name.starts_with(group));
    for peer in stillpoint_peers::catalogue().into_iter().filter(|peer| !is_of_c(peer.name)) {
        assert!(names.contains(&peer.name), "{} is missing in {names:?}", peer.name);
    }
    for row in rows {
        check_row(row);
    }
}

/// Each contender has a row beside a slow reader of its own group and beside one of another group; only when the scenario is named.
#[test]
fn groups_have_a_slow_reader_in_the_same_one_and_in_another() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return;
    }
    let line =
        "bench reclaim --scenarios groups --elements 256 --duration 20ms --rounds 2 --json --structure";
    for structure in ["array", "table"] {
        let result = json(&run(&line.split(' ').chain([structure]).collect::<Vec<_>>()));
        let of = |slow: &str| {
            let rows = result["rows"].as_array().unwrap().iter();
            let rows = rows.filter(|row| row["params"]["slow_reader"] == slow);
            let sound = |row: &&Value| {
                assert!(row.get("void").is_none(), "{row}");
                assert_eq!(row["metrics"]["deletes"], row["metrics"]["freed"], "{row}");
            };
            rows.inspect(sound).map(|row| row["contender"].as_str().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(of("same group"), of("other group"));
        assert!(of("same group").contains(&"stillpoint/protected"));
        assert_eq!(result["rows"].as_array().unwrap().len(), 2 * of("same group").len());
    }
}

fn check_row(row: &Value) {
    assert_eq!((&row["experiment"], &row["scenario"]), (&"reclaim".into(), &"spread".into()));
    let (params, metrics) = (&row["params"], &row["metrics"]);
    assert_eq!(params["readers"], 2);
    assert!(["delete", "poll", "background"].contains(&params["policy"].as_str().unwrap()), "{params}");
    assert!(row.get("void").is_none(), "{row}");
    assert_eq!(metrics["deletes"], metrics["freed"], "{row}");
    assert!(number(metrics, "deletes") >= 1.0 && number(metrics, "lookups_per_s") > 0.0, "{row}");
    assert!(number(metrics, "peak_pending") >= 0.0 && number(metrics, "cpu_s") >= 0.0, "{row}");
    let ordered =
        ["delay_us_p50", "delay_us_p99", "delay_us_p999", "delay_us_max"].map(|key| number(metrics, key));
    assert!(ordered[0] > 0.0 && ordered.is_sorted(), "{row}");
    let means =
        ["delay_us_mean_least", "delay_us_mean", "delay_us_mean_most"].map(|key| number(metrics, key));
    assert!(means.is_sorted(), "{row}");
}

#[test]
fn a_file_gets_the_json_and_the_terminal_the_tables() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.json");
    let mut arguments = tiny(&["--contenders", "stillpoint/qsbr,seize", "--verbose", "--json"]);
    let name = path.to_string_lossy().into_owned();
    arguments.push(&name);
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));

    let result: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(result["rows"].as_array().unwrap().iter().any(|row| row["contender"] == "seize"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file is left");
    let tables = stdout(&output);
    for part in [
        "C: readers over several CPUs",
        "delay_us_p999",
        "stillpoint/qsbr",
        "seize",
        "256 elements",
        "seize: ",
    ] {
        assert!(tables.contains(part), "'{part}' is not in:\n{tables}");
    }
    assert!(!tables.contains("crossbeam-epoch: "), "a contender that was not asked for:\n{tables}");
}

#[test]
fn the_same_seed_is_accepted_and_another_order_of_flags_too() {
    let output = run(&[
        "bench",
        "reclaim",
        "--seed",
        "7",
        "--json=-",
        "--scenarios=spread",
        "--elements=256",
        "--duration=6ms",
        "--rounds=1",
        "--readers=1",
        "--contenders=stillpoint/protected",
    ]);
    assert_eq!(json(&output)["rows"][0]["contender"], "stillpoint/protected");
}

#[test]
fn a_pipe_gets_plain_lines_and_no_colours_unless_forced() {
    let arguments = tiny(&["--contenders", "stillpoint/qsbr"]);
    let plain = run(&arguments);
    assert!(!stdout(&plain).contains('\x1b') && !stderr(&plain).contains('\x1b'));
    assert!(stderr(&plain).contains("spread, readers 2, CPUs 1, round 1 of 2"), "{}", stderr(&plain));

    let forced = stillpoint(&arguments).env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(stdout(&forced).contains('\x1b'), "colours were not forced, so the check above proves nothing");
    let refused = stillpoint(&arguments).env("NO_COLOR", "1").output().unwrap();
    assert!(!stdout(&refused).contains('\x1b'));
}

/// A run of two rows that takes hours, with rounds of this length.
fn long(round: &str) -> [&str; 14] {
    [
        "bench",
        "reclaim",
        "--scenarios",
        "spread",
        "--readers",
        "1,2",
        "--elements",
        "256",
        "--duration",
        round,
        "--rounds",
        "1000",
        "--contenders",
        "stillpoint/protected",
    ]
}

#[test]
fn a_reader_of_the_output_that_goes_away_ends_the_run() {
    let mut child = stillpoint(&long("100s"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take()); // as `head` does, here before the first line
    assert_eq!(child.wait().unwrap().code(), Some(1), "no row was measured");
}

#[test]
fn ctrl_c_ends_early_and_prints_what_there_is() {
    let mut child = stillpoint(&long("100s"))
        .arg("--json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = told_by(&mut child);
    assert!(lines.any(|line| line.contains("round 3 of 1000")), "the third round never began");
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let told: Vec<String> = lines.collect();
    let result = json(&child.wait_with_output().unwrap());
    assert_eq!(result["rows"].as_array().unwrap().len(), 2, "the readers of the second number never began");
    assert!(number(&result["rows"][0]["params"], "rounds") >= 2.0);
    assert!(told.last().unwrap().starts_with("interrupted: 2 rows"), "{told:?}");
}

/// `nohup` ignores SIGHUP for the program that it starts.
#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let mut child = Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_stillpoint")])
        .args(long("100s"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let mut lines = told_by(&mut child);
    assert!(lines.any(|line| line.contains("round 3 of 1000")), "the third round never began");
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::HUP).unwrap();
    assert!(lines.any(|line| line.contains("round 6 of 1000")), "the run has ended");
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert_eq!(lines.filter(|line| line.contains("interrupt again")).count(), 1);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn micro_has_a_cost_for_every_operation_of_ours() {
    let result = json(&run(&[
        "bench",
        "micro",
        "--duration",
        "1ms",
        "--rounds",
        "1",
        "--contenders",
        "stillpoint,crossbeam-epoch",
        "--json",
    ]));
    let rows = result["rows"].as_array().unwrap();
    for operation in ["quiescent", "pin", "protect", "keep", "start", "check", "retire", "heavy", "wait"] {
        if operation == "wait" && std::thread::available_parallelism().unwrap().get() < 2 {
            continue;
        }
        let row =
            rows.iter().find(|row| row["scenario"] == operation).unwrap_or_else(|| panic!("{operation}"));
        assert_eq!(row["experiment"], "micro");
        assert!(row["contender"].as_str().unwrap().starts_with("stillpoint/"), "{row}");
        assert!(number(&row["metrics"], "ns_per_op") > 0.0, "{row}");
    }
    assert!(rows.iter().any(|row| row["contender"] == "crossbeam-epoch" && row["scenario"] == "pin"));
}

#[test]
fn micro_prints_a_table_of_operations() {
    let output = run(&[
        "bench",
        "micro",
        "--duration",
        "1ms",
        "--rounds",
        "1",
        "--scenarios",
        "pin,protect",
        "--cpus",
        "0",
    ]);
    let text = stdout(&output);
    assert!(
        text.contains("pin") && text.contains("stillpoint/protected") && text.contains("haphazard"),
        "{text}"
    );
    assert!(!text.contains("stillpoint/qsbr"), "an operation that was not asked for:\n{text}");
}
