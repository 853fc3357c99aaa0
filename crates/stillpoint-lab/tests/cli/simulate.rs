//! `stillpoint simulate`: what it writes, and what it refuses.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{json, run, stderr, stdout};

/// A small machine, which is simulated quickly.
fn small(folder: &TempDir) -> String {
    let file = folder.path().join("small.toml");
    let seed = include_str!("../../../stillpoint-multicast-lab/src/simulate/machines/seed.toml");
    let text = seed
        .replace("sockets = 4", "sockets = 1")
        .replace("cores_per_socket = 18", "cores_per_socket = 4")
        .replace("4 sockets x 18 cores", "1 socket x 4 cores");
    fs::write(&file, text).unwrap();
    file.to_string_lossy().into_owned()
}

fn refused(arguments: &[&str], parts: &[&str]) {
    let output = run(arguments);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    for part in parts {
        assert!(message.contains(part), "'{part}' is not in: {message}");
    }
}

#[test]
fn tables_figures_csv_and_json_hold_the_same_points() {
    let folder = tempfile::tempdir().unwrap();
    let (machine, path) =
        (small(&folder), |name: &str| folder.path().join(name).to_string_lossy().into_owned());
    let (csv, used) = (path("rows.csv"), path("used.toml"));
    let into = folder.path().to_string_lossy().into_owned();
    let arguments = ["simulate", "membarrier", "--machine", &machine, "--operations", "5"];
    let outputs = ["--figures", &into, "--csv", &csv, "--write", &used, "--json"];
    let result = json(&run(&[&arguments[..], &outputs[..]].concat()));
    let rows = result["rows"].as_array().unwrap();
    // Inputs and conclusions are rows of the same result, and can be distinguished.
    for (scenario, contender) in [
        ("inputs", "noise.busy_sibling"),
        ("conclusions", "tree"),
        ("thresholds", "hybrid"),
        ("reach", "nanoseconds.read"),
    ] {
        assert!(
            rows.iter().any(|row| row["scenario"] == scenario && row["contender"] == contender),
            "{scenario}"
        );
    }
    for scenario in ["receivers", "initiators", "synchronize"] {
        for contender in ["flat", "flat+mutex", "cluster", "tree", "tree+flat-ack", "split", "hybrid"] {
            let row = rows.iter().find(|row| row["scenario"] == scenario && row["contender"] == contender);
            let row = row.unwrap_or_else(|| panic!("{scenario} {contender} is missing"));
            assert!(
                row["void"].is_null() && row["metrics"].as_object().is_some_and(|m| !m.is_empty()),
                "{row}"
            );
        }
    }
    for figure in [
        "simulated-receivers",
        "simulated-initiators",
        "simulated-jitter",
        "simulated-synchronize",
        "simulated-synchronize-beside-flat",
        "sensitivity",
    ] {
        let file = |ending: &str| folder.path().join(format!("{figure}{ending}"));
        for ending in [".svg", "-dark.svg"] {
            let text = fs::read_to_string(file(ending)).unwrap();
            assert!(text.starts_with("<svg") && text.contains("Simulated"), "{figure}{ending}");
        }
    }
    let lines = fs::read_to_string(&csv).unwrap().lines().count();
    assert_eq!(lines, rows.len() + 1);

    // The parameters that were written give the same figures again: they include the threshold that was found.
    let again = ["simulate", "membarrier", "--machine", &used, "--operations", "5", "--json"];
    // The sources of the inputs differ, because the file is another one.
    let figures = |result: &Value| -> Vec<Value> {
        let rows = result["rows"].as_array().unwrap();
        rows.iter().filter(|row| row["scenario"] != "inputs").cloned().collect()
    };
    assert_eq!(figures(&json(&run(&again))), figures(&result));
}

#[test]
fn the_tables_name_the_machine_and_explain_the_contenders() {
    let folder = tempfile::tempdir().unwrap();
    let machine = small(&folder);
    let output = run(&["simulate", "membarrier", "--machine", &machine, "--operations", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "1 socket x 4 cores",
        "Inputs: put in, so not results",
        "by receivers",
        "concurrent initiators",
        "Grace periods",
        "tree+flat-ack:",
        "Conclusions",
        "What would let flat reach 10,000",
    ] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
}

#[test]
fn a_machine_on_which_nothing_takes_time_is_refused_and_does_not_hang() {
    let folder = tempfile::tempdir().unwrap();
    let zero = folder.path().join("zero.toml").to_string_lossy().into_owned();
    let text = fs::read_to_string(small(&folder)).unwrap();
    let mut within = false;
    let lines = text.lines().map(|line| match line.split_once(" = ") {
        _ if line.starts_with('[') => {
            within = line == "[nanoseconds]";
            line.to_owned()
        }
        Some((name, value)) if within => {
            format!("{name} = {}", if value.starts_with('[') { "[0, 0, 0]" } else { "0" })
        }
        _ => line.to_owned(),
    });
    fs::write(&zero, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let into = folder.path().to_string_lossy().into_owned();
    refused(
        &["simulate", "membarrier", "--machine", &zero, "--operations", "3", "--figures", &into],
        &[&zero, "nanoseconds.interrupt_send is 0", "from 1"],
    );
}

#[test]
fn nonsense_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let machine = small(&folder);
    let broken = folder.path().join("broken.toml").to_string_lossy().into_owned();
    let text = fs::read_to_string(&machine).unwrap();
    fs::write(&broken, text.replace("jitter = 0.10", "jitter = 7")).unwrap();
    refused(&["simulate", "membarrier", "--machine", &broken], &[&broken, "noise.jitter is 7"]);
    fs::write(&broken, text.replace("push = ", "pull = ")).unwrap();
    refused(&["simulate", "membarrier", "--machine", &broken], &[&broken, "pull"]);
    refused(&["simulate", "membarrier", "--machine", "nowhere"], &["nowhere", "seed, kvm"]);
    let with = |arguments: &[&str], parts: &[&str]| {
        refused(&[&["simulate", "membarrier", "--machine", &machine], arguments].concat(), parts);
    };
    with(&["--receivers", "8"], &["8 receivers are too many", "at most 7"]);
    with(&["--initiators", "9"], &["9 initiators are too many", "at most 8"]);
    with(&["--receivers", "0"], &["0"]);
    with(&["--frequencies", "often"], &["'often'"]);
    with(&["--contenders", "ring"], &["ring", "tree+flat-ack"]);
    // A file is no folder.
    let below = format!("{machine}/below");
    with(&["--figures", &below], &[&below, "cannot write into"]);
    with(&["--csv", &below], &[&below, "cannot write"]);
    refused(&["simulate", "weather"], &["'weather'", "membarrier"]);
}
