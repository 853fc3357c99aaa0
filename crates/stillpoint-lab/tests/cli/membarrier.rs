//! `bench membarrier`: the form of the results, and requests that make no sense.

use serde_json::Value;

use crate::common::{json, run, stderr, stdout};

const TINY: [&str; 6] = ["bench", "membarrier", "--rounds", "1", "--duration", "2ms"];

fn tiny(more: &[&'static str]) -> Vec<&'static str> {
    TINY.iter().chain(more).copied().collect()
}

fn number(object: &Value, key: &str) -> f64 {
    object[key].as_f64().unwrap_or_else(|| panic!("{key} is not a number in {object}"))
}

#[test]
fn every_setting_has_rows_of_the_agreed_form() {
    let more = ["--readers", "3,20", "--initiators", "8", "--scenarios", "receivers,initiators", "--json"];
    let result = json(&run(&tiny(&more)));
    let rows = result["rows"].as_array().unwrap();
    for state in ["paused", "spinning"] {
        for threads in [3, 20] {
            for name in ["mprotect", "signal/flat", "signal/tree", "syscall (again)"] {
                let row = rows.iter().find(|row| {
                    let params = &row["params"];
                    row["contender"] == name && params["threads"] == threads && params["state"] == state
                });
                check_row(row.unwrap_or_else(|| panic!("{name}, {threads} threads, {state}")));
            }
        }
    }
    for state in ["paused", "spinning"] {
        let beside = |row: &&Value| {
            let params = &row["params"];
            row["scenario"] == "initiators" && params["initiators"] == 8 && params["state"] == state
        };
        check_row(rows.iter().filter(beside).find(|row| row["contender"] == "signal/tree").expect(state));
    }
}

fn check_row(row: &Value) {
    let (name, metrics) = (row["contender"].as_str().unwrap(), &row["metrics"]);
    assert!(row["experiment"] == "membarrier" && row.get("void").is_none(), "{row}");
    assert!(number(metrics, "latency_us_p50") > 0.0 && number(metrics, "ops_per_s") > 0.0, "{row}");
    assert!(number(metrics, "latency_us_p99") >= number(metrics, "latency_us_p50"), "{row}");
    if name.starts_with("signal/") {
        assert!(number(metrics, "send_us_p50") <= number(metrics, "latency_us_p99"), "{row}");
    }
    if name == "signal/flat" {
        assert_eq!(number(metrics, "helped"), 0.0, "there is nothing to help with: {row}");
    }
}

#[test]
fn readers_are_compared_with_those_of_a_writer_that_does_nothing() {
    // On a busy machine, a writer may not get a CPU within a few milliseconds.
    let length = ["--rounds", "1", "--duration", "80ms", "--quick"];
    let arguments = [&["bench", "membarrier", "--scenarios", "readers", "--json"][..], &length].concat();
    let result = json(&run(&arguments));
    let rows = result["rows"].as_array().unwrap();
    for name in ["symmetric", "syscall (again)"] {
        for wanted in [Value::from(0), 1000.into(), "most".into()] {
            let row = rows
                .iter()
                .find(|row| row["contender"] == name && row["params"]["synchronize_per_s"] == wanted)
                .unwrap_or_else(|| panic!("{name}, {wanted}"));
            let metrics = &row["metrics"];
            assert!(number(metrics, "sections_per_s") > 0.0, "{row}");
            assert!(number(metrics, "reader_loss_percent") <= 100.0, "{row}");
            assert_eq!(number(metrics, "synchronized_per_s") > 0.0, wanted != 0, "{row}");
            assert!(number(metrics, "sections") > 0.0, "{row}");
            assert_eq!(number(metrics, "synchronizations") > 0.0, wanted != 0, "{row}");
            assert!(
                metrics.get("interrupts_per_barrier").is_none(),
                "the module tells that of its own: {row}"
            );
        }
    }
}

#[test]
fn a_terminal_gets_a_table_for_each_setting() {
    let output = run(&tiny(&[
        "--readers",
        "2",
        "--scenarios",
        "receivers",
        "--contenders",
        "signal/tree,mprotect",
        "--verbose",
    ]));
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for part in
        ["state paused", "state spinning", "mprotect", "signal/tree", "helped", "Control of membarrier"]
    {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
    assert!(!text.contains("signal/flat"), "a contender that was not asked for:\n{text}");
}

#[test]
fn a_contender_that_is_not_here_is_told() {
    if std::path::Path::new("/dev/stillpoint_membarrier").exists() {
        return crate::skip::skipped("the module is loaded");
    }
    for contender in ["module/split", "module/tree"] {
        let output = run(&tiny(&["--contenders", contender]));
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("load the module"), "{}", stderr(&output));
    }
}

#[test]
fn numbers_of_initiators_that_make_no_sense_are_refused() {
    for number in ["0", "many", "100000"] {
        let output = run(&tiny(&["--initiators", number]));
        assert_eq!(output.status.code(), Some(2), "{number}");
        assert!(stderr(&output).contains("from 1 to 1024"), "{}", stderr(&output));
    }
}
