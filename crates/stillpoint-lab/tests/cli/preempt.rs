//! `bench preempt`: short runs, for the form of the results.

use std::process::Stdio;

use crate::common::{json, run, stderr, stdout, stillpoint, told_by};
use serde_json::Value;

/// A tiny run in the smallest store.
const TINY: [&str; 6] = ["bench", "preempt", "--readers", "1,2", "--duration", "20ms"];

fn tiny(more: &[&'static str]) -> Vec<&'static str> {
    TINY.iter().chain(more).copied().collect()
}

fn number(object: &Value, key: &str) -> f64 {
    object[key].as_f64().unwrap_or_else(|| panic!("{key} is not a number in {object}"))
}

#[test]
fn every_contender_has_flat_rows_of_the_agreed_form() {
    let result = json(&run(&tiny(&["--scenarios", "mail", "--rounds", "1", "--json"])));
    let rows = result["rows"].as_array().unwrap();
    let of = |name: &str| rows.iter().filter(|row| row["contender"] == name).count();
    for ours in ["stillpoint/protected", "stillpoint/guard", "stillpoint/qsbr"] {
        assert_eq!(of(ours), 2, "{ours}");
    }
    for peer in
        ["liburcu/qsbr", "liburcu/memb", "dpdk/rcu", "ck/epoch", "crossbeam-epoch", "seize", "haphazard"]
    {
        let built_in = stillpoint_peers::catalogue().iter().any(|entry| entry.name == peer);
        assert_eq!(of(peer), if built_in { 2 } else { 0 }, "{peer}");
    }
    for row in rows {
        check_row(row);
    }
}

fn check_row(row: &Value) {
    let (params, metrics) = (&row["params"], &row["metrics"]);
    assert_eq!((&row["experiment"], &params["workload"]), (&"preempt".into(), &"mail".into()));
    match params["readers_per_core"].as_u64().unwrap() {
        1 => assert_eq!(row["scenario"], "baseline"),
        2 => assert_eq!(row["scenario"], "overcommit"),
        other => panic!("{other} readers a core were not asked for: {row}"),
    }
    assert_eq!((&params["section_us"], &params["presence"]), (&5.into(), &"always".into()));
    assert!(["delete", "background"].contains(&params["policy"].as_str().unwrap()), "{params}");
    assert!(row.get("void").is_none(), "{row}");
    assert_eq!(metrics["unlinked"], metrics["freed"], "{row}");
    for name in
        ["gp_us_mean", "grace_periods", "unlinked", "peak_pending_bytes", "live_bytes", "sections_per_s"]
    {
        assert!(number(metrics, name) > 0.0, "{name} in {row}");
    }
    for name in ["cpu_us_per_gp", "cpu_us_per_free", "resident_per_used", "resident_per_live_after"] {
        assert!(number(metrics, name) >= 0.0, "{name} in {row}");
    }
    for what in ["gp_us", "delay_us"] {
        let ordered = ["p50", "p99", "p999", "max"].map(|name| number(metrics, &format!("{what}_{name}")));
        assert!(ordered[0] > 0.0 && ordered.is_sorted(), "{what} in {row}");
    }
    assert!(number(metrics, "gp_us_max") <= number(metrics, "gp_us_max_most"), "{row}");
}

#[test]
fn sections_kinds_of_presence_and_workloads_are_chosen() {
    let result = json(&run(&tiny(&[
        "--scenarios=memory,memory-max",
        "--sections=0.2,500",
        "--inside=half,blocked",
        "--rounds=1",
        "--contenders=stillpoint/guard",
        "--json",
    ])));
    let rows = result["rows"].as_array().unwrap();
    // Two numbers of readers, and the control.
    assert_eq!(rows.len(), 2 * 2 * 2 * 3);
    for workload in ["memory", "memory-max"] {
        for (section, presence) in [(0.2, "half"), (0.2, "blocked"), (500.0, "half"), (500.0, "blocked")] {
            let found = rows.iter().filter(|row| {
                let params = &row["params"];
                params["workload"] == workload
                    && number(params, "section_us") == section
                    && params["presence"] == presence
                    && row.get("void").is_none()
            });
            assert_eq!(found.count(), 3, "{workload} {section} {presence}: {rows:#?}");
        }
    }
}

#[test]
fn the_tables_have_the_figures_of_the_paper_in_words() {
    let names = "stillpoint/protected,seize";
    let output = run(&tiny(&["--rounds", "2", "--contenders", names, "--scenarios=mail", "--verbose"]));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output).replace('\n', " ");
    for part in [
        "Mean grace period",
        "readers on each CPU: 2",
        "presence always, ",
        "The paper: 26.37 times as long for Postmark",
        "were not measured here",
        "crossbeam-epoch and seize also free on the readers' threads",
    ] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
    let told = stderr(&output);
    assert!(told.contains("left out") && told.contains("--sections"), "{told}");
}

#[test]
fn ctrl_c_ends_early_and_prints_what_there_is() {
    let arguments = [
        "bench",
        "preempt",
        "--scenarios=mail,memory",
        "--readers=1",
        "--duration=100s",
        "--rounds=1000",
        "--contenders=stillpoint/protected",
        "--json",
    ];
    let mut child = stillpoint(&arguments)
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
    assert_eq!(result["rows"].as_array().unwrap().len(), 2, "the second workload never began");
    assert!(number(&result["rows"][0]["params"], "rounds") >= 2.0);
    assert!(told.last().unwrap().starts_with("interrupted: 2 rows"), "{told:?}");
}

#[test]
fn an_order_that_makes_no_sense_is_refused() {
    let output = stillpoint(&["doctor"]).env("STILLPOINT_BENCH_PREEMPT", "nonsense").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("which only this program sets"), "{}", stderr(&output));
}
