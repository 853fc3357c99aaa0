//! `bench table`: the form of the results, and that huge pages are given back.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{json, run, stderr, stdout, stillpoint};

/// The number of huge pages is the machine's: one test changes it at a time.
static HUGE_PAGES: Mutex<()> = Mutex::new(());

const TINY: [&str; 6] = ["bench", "table", "--elements", "4096", "--rounds", "1"];

fn tiny(more: &[&'static str]) -> Vec<&'static str> {
    TINY.iter().chain(more).copied().collect()
}

fn number(object: &Value, key: &str) -> f64 {
    object[key].as_f64().unwrap_or_else(|| panic!("{key} is not a number in {object}"))
}

#[test]
fn every_setting_has_rows_of_the_agreed_form() {
    let _one = HUGE_PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let result = json(&run(&tiny(&["--json"])));
    let rows = result["rows"].as_array().unwrap();
    let mut names =
        vec!["stillpoint/table", "stillpoint/table+guard", "papaya", "papaya+guard", "dashmap", "scc"];
    if stillpoint_peers::table::HAS_DPDK {
        names.push("dpdk/rte_hash");
    }
    let cpus = std::thread::available_parallelism().unwrap().get();
    for name in names {
        for scenario in ["uniform", "zipf"] {
            for key_bytes in [8, 16] {
                for threads in [1, 2].into_iter().filter(|&threads| threads <= cpus) {
                    let row = rows.iter().find(|row| {
                        row["contender"] == name
                            && row["scenario"] == scenario
                            && row["params"]["key_bytes"] == key_bytes
                            && row["params"]["threads"] == threads
                    });
                    check_row(row.unwrap_or_else(|| panic!("{name}, {scenario}, {key_bytes}, {threads}")));
                }
            }
        }
    }
}

fn check_row(row: &Value) {
    let (params, metrics) = (&row["params"], &row["metrics"]);
    let name = row["contender"].as_str().unwrap();
    assert!(row["experiment"] == "table" && row.get("void").is_none(), "{row}");
    assert_eq!((number(params, "entries"), number(params, "rounds")), (4096.0, 1.0));
    assert!(number(metrics, "lookups_per_s") > 0.0, "{row}");
    if name == "stillpoint/table" || name == "dpdk/rte_hash" {
        assert!(number(metrics, "bulk_lookups_per_s") > 0.0, "{row}");
    }
    if !name.ends_with("+guard") {
        for metric in ["insert_remove_per_s", "mix_90_10_per_s", "mix_50_50_per_s"] {
            assert!(number(metrics, metric) > 0.0, "{row}");
        }
    }
    if row["scenario"] == "uniform" && params["threads"] == 1 && name == "stillpoint/table" {
        let slowest =
            ["insert_ns_p9999", "insert_ns_p99999", "insert_ns_max"].map(|key| number(metrics, key));
        assert!(slowest.is_sorted() && number(metrics, "bytes_per_entry") >= 16.0, "{row}");
    }
}

#[test]
fn a_terminal_gets_a_table_for_each_setting() {
    let output = run(&tiny(&["--contenders", "stillpoint/table,scc", "--scenarios", "zipf"]));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["zipf, keys of 8 bytes, threads: 1", "keys of 16 bytes", "90/10", "stillpoint/table", "scc"]
    {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
    assert!(
        !text.contains("Table: uniform") && !text.contains("papaya+guard"),
        "what was not asked for:\n{text}"
    );
}

#[test]
fn a_quick_run_has_one_kind_of_keys_and_refuses_the_others() {
    let arguments = tiny(&["--quick", "--contenders", "stillpoint/table,dashmap", "--json"]);
    let result = json(&run(&arguments));
    for row in result["rows"].as_array().unwrap() {
        assert_eq!((&row["scenario"], &row["params"]["key_bytes"]), (&"uniform".into(), &8.into()));
        assert!(row["metrics"].get("insert_ns_max").is_none(), "{row}");
    }
    let refused = run(&tiny(&["--quick", "--scenarios", "zipf"]));
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}

/// `bench reclaim` on hash tables: stillpoint's own, and rte_hash.
#[test]
fn reclaim_runs_on_tables_too() {
    let _one = HUGE_PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let before = huge_pages();
    let arguments = ["bench", "reclaim", "--structure", "table", "--scenarios", "spread", "--readers", "2"];
    let short = ["--elements", "256", "--duration", "20ms", "--rounds", "2", "--json"];
    let result = json(&run(&[&arguments[..], &short].concat()));
    let rows = result["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["contender"].as_str().unwrap()).collect();
    let ours = ["protected", "guard", "guard32", "qsbr", "qsbr+poll", "qsbr+background"];
    let ours: Vec<String> = ours.iter().map(|name| format!("stillpoint/{name}")).collect();
    for name in ours.iter().map(String::as_str).chain(stillpoint_peers::table::RECLAIMING.iter().copied()) {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    assert!(!names.contains(&"seize"), "it works on the array alone");
    for row in rows {
        assert_eq!(row["params"]["structure"], "table");
        assert!(row.get("void").is_none(), "{row}");
        assert_eq!(row["metrics"]["deletes"], row["metrics"]["freed"], "{row}");
        assert!(number(&row["metrics"], "lookups_per_s") > 0.0, "{row}");
    }
    assert_eq!(huge_pages(), before);

    let refused = run(&["bench", "reclaim", "--structure", "table", "--contenders", "seize"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("seize works on the array alone"), "{}", stderr(&refused));
}

fn huge_pages() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/vm/nr_hugepages").ok()?.trim().parse().ok()
}

/// Begins a run that lasts for minutes, sends it a signal once it measures, and another one if told so.
fn interrupt(signals: &[Signal]) -> (Option<i32>, Vec<String>, Vec<u8>) {
    let arguments =
        ["bench", "table", "--elements", "65536", "--rounds", "1000", "--scenarios", "uniform", "--json"];
    let mut child = stillpoint(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("threads")), "the measurement never began");
    for signal in signals {
        kill_process(Pid::from_child(&child), *signal).unwrap();
        std::thread::sleep(Duration::from_millis(1)); // two that come together count as one
    }
    let told = lines.collect();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), told, output.stdout)
}

#[test]
fn a_signal_ends_the_run_early_and_gives_huge_pages_back() {
    let _one = HUGE_PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let before = huge_pages();
    for signal in [Signal::TERM, Signal::INT] {
        let (code, told, out) = interrupt(&[signal]);
        assert_eq!(code, Some(0), "{told:?}");
        let result: Value = serde_json::from_slice(&out).unwrap();
        assert!(result["rows"].is_array());
        assert!(told.last().unwrap().starts_with("interrupted: "), "{told:?}");
        assert_eq!(huge_pages(), before);
    }
}

/// The second signal ends the program at once, and what it has reserved comes back all the same.
#[test]
fn a_second_signal_gives_huge_pages_back_too() {
    let _one = HUGE_PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let before = huge_pages();
    // The first one may have ended the run before the second one came.
    let (code, told, _) = interrupt(&[Signal::TERM, Signal::TERM]);
    assert!(matches!(code, Some(0 | 130)), "{code:?}: {told:?}");
    let begun = Instant::now();
    while huge_pages() != before {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?} huge pages, {before:?} before",
            huge_pages()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
