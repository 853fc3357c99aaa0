//! `bench table`: the form of the results, and that huge pages are given back.

use std::alloc::{Layout, alloc, dealloc};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stillpoint_harness::machine::proc;

use crate::common::{json, run, stderr, stdout, stillpoint, told_by};

/// The number of huge pages belongs to the machine, so only one test at a time changes it.
pub(crate) static HUGE_PAGES: Mutex<()> = Mutex::new(());

const TINY: [&str; 6] = ["bench", "table", "--elements", "4096", "--rounds", "1"];

fn tiny(more: &[&'static str]) -> Vec<&'static str> {
    TINY.iter().chain(more).copied().collect()
}

fn number(object: &Value, key: &str) -> f64 {
    object[key].as_f64().unwrap_or_else(|| panic!("{key} is not a number in {object}"))
}

fn rows(result: &Value) -> &[Value] {
    result["rows"].as_array().unwrap()
}

/// The numbers of threads for which there are CPUs.
fn threads() -> impl Iterator<Item = usize> {
    let cpus = std::thread::available_parallelism().unwrap().get();
    [1, 2].into_iter().filter(move |&threads| threads <= cpus)
}

const OURS_AGAIN: &str = "stillpoint/table (again)";

#[test]
fn every_setting_has_rows_of_the_agreed_form() {
    let _one = HUGE_PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let result = json(&run(&tiny(&["--scenarios", "uniform,zipf", "--json"])));
    let mut names = vec![
        "stillpoint/table",
        "stillpoint/table+guard",
        "stillpoint/table+get",
        "papaya",
        "papaya+guard",
        "dashmap",
        "scc",
        OURS_AGAIN,
    ];
    if stillpoint_peers::table::HAS_DPDK {
        names.push("dpdk/rte_hash");
    }
    for name in names {
        for (scenario, key_bytes, entries) in [
            ("uniform", 8, 1000),
            ("uniform", 8, 4096),
            ("zipf", 8, 4096),
            ("uniform", 16, 4096),
            ("zipf", 16, 4096),
        ] {
            for threads in threads() {
                let row = rows(&result).iter().find(|row| {
                    row["contender"] == name
                        && row["scenario"] == scenario
                        && row["params"]["key_bytes"] == key_bytes
                        && row["params"]["entries"] == entries
                        && row["params"]["threads"] == threads
                });
                let row =
                    row.unwrap_or_else(|| panic!("{name}, {scenario}, {key_bytes}, {entries}, {threads}"));
                check_row(row, name);
            }
        }
    }
    let control =
        result["controls"].as_array().unwrap().iter().find(|control| control["metric"] == "lookups_per_s");
    let control = control.expect("our own table is there twice");
    assert_eq!(
        (&control["experiment"], &control["contender"]),
        (&"table".into(), &"stillpoint/table".into())
    );
    assert_eq!(number(control, "settings") as usize, 5 * threads().count());
    assert!((0.0..200.0).contains(&number(control, "percent_p50")), "{control}");
    assert!(number(control, "percent_p50") <= number(control, "percent_max"), "{control}");
}

fn check_row(row: &Value, name: &str) {
    let (params, metrics) = (&row["params"], &row["metrics"]);
    assert!(row["experiment"] == "table" && row.get("void").is_none(), "{row}");
    assert_eq!((number(params, "seed"), number(params, "rounds")), (1.0, 1.0));
    // A contender that is only another way to read has no writes.
    let is_way_to_read = name.ends_with("+guard") || name.ends_with("+get");
    let (ours, dpdk) = (name == "stillpoint/table" || name == OURS_AGAIN, name == "dpdk/rte_hash");
    for (metric, is_there) in [
        ("lookups_per_s", true),
        ("churned_lookups_per_s", !is_way_to_read),
        ("bytes_per_entry", number(params, "entries") > 1000.0),
        ("bulk_lookups_per_s", ours || dpdk),
        ("insert_remove_per_s", !is_way_to_read),
        ("mix_90_10_per_s", !is_way_to_read),
        ("mix_50_50_per_s", !is_way_to_read),
        ("get_or_insert_per_s", !is_way_to_read && !dpdk),
        ("updates_per_s", !is_way_to_read && !dpdk),
    ] {
        assert_eq!(metrics.get(metric).is_some(), is_there, "{metric} in {row}");
        assert!(!is_there || number(metrics, metric) >= 0.0, "{metric} in {row}");
    }
}

/// The contenders that are measured one at a time, with the control.
const SINGLES: [&str; 5] = ["stillpoint/table", "papaya", "dashmap", "scc", OURS_AGAIN];

#[test]
fn the_mixes_of_both_harnesses_have_rows_that_name_their_conditions() {
    let result = json(&run(&tiny(&["--scenarios", "bustle,conc-map-bench", "--seed", "7", "--json"])));
    let rows = rows(&result);
    let mixes = [
        ("bustle", "read heavy 94/2/1/3", [94, 2, 1, 3, 0], 0.75),
        ("bustle", "insert heavy", [10, 80, 0, 10, 0], 0.0),
        ("bustle", "update heavy", [35, 5, 5, 50, 5], 0.75),
        ("bustle", "uniform mix", [20, 20, 20, 20, 20], 0.75),
        ("conc-map-bench", "read heavy 98/1/1", [98, 1, 1, 0, 0], 0.75),
        ("conc-map-bench", "exchange", [10, 40, 40, 10, 0], 0.75),
        ("conc-map-bench", "rapid grow", [5, 80, 5, 10, 0], 0.0),
    ];
    for (harness, mix, percent, prefill) in mixes {
        for (keys, value_bytes) in [("u64", 8), ("String", 64)] {
            for (name, threads) in
                SINGLES.into_iter().flat_map(|name| threads().map(move |threads| (name, threads)))
            {
                let row = rows.iter().find(|row| {
                    let params = &row["params"];
                    row["contender"] == name
                        && (&params["mix"], &params["keys"]) == (&mix.into(), &keys.into())
                        && params["threads"] == threads
                });
                let row = row.unwrap_or_else(|| panic!("{name}, {mix}, {keys}, {threads}"));
                assert!(row["scenario"] == harness && row.get("void").is_none(), "{row}");
                let params = &row["params"];
                assert_eq!(params["percent"], Value::from(percent.to_vec()), "{row}");
                assert_eq!(
                    (&params["hasher"], number(params, "value_bytes")),
                    (&"foldhash".into(), value_bytes.into())
                );
                assert_eq!(
                    (number(params, "prefill"), number(params, "capacity")),
                    (prefill, if keys == "u64" { 2048.0 } else { 1024.0 }),
                    "{row}"
                );
                assert_eq!((number(params, "seed"), number(params, "rounds")), (7.0, 1.0), "{row}");
                assert!(
                    number(params, "operations") > 0.0 && number(&row["metrics"], "ops_per_s") > 0.0,
                    "{row}"
                );
            }
        }
    }
    assert!(!rows.iter().any(|row| row["contender"] == "dpdk/rte_hash"), "it has no keys of any length");
}

#[test]
fn growth_tells_memory_before_and_after_a_removal_and_the_slowest_insertions() {
    let arguments =
        ["bench", "table", "--scenarios", "growth", "--elements", "131072", "--rounds", "1", "--json"];
    let result = json(&run(&arguments));
    for (keys, least) in [("u64", 16.0), ("String", 80.0)] {
        for name in SINGLES {
            let row =
                rows(&result).iter().find(|row| row["contender"] == name && row["params"]["keys"] == keys);
            let metrics = &row.unwrap_or_else(|| panic!("{name}, {keys}"))["metrics"];
            let slowest = ["insert_ns_p9999", "insert_ns_p99999", "insert_ns_max"]
                .map(|metric| number(metrics, metric));
            assert!(slowest.is_sorted() && number(metrics, "insert_ns_mean") > 0.0, "{name}: {metrics}");
            assert!(number(metrics, "bytes_per_entry") >= least, "{name}: {metrics}");
            let (grown, halved) =
                (number(metrics, "resident_bytes"), number(metrics, "resident_bytes_halved"));
            assert!(halved > 0.0 && halved < 2.0 * grown, "{name}: {metrics}");
            assert!((number(metrics, "bytes_per_entry_halved") * 65_536.0 - halved).abs() < 1e5, "{metrics}");
        }
    }
}

/// Whether programs that ask for transparent huge pages get some.
fn has_huge_pages() -> bool {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    cfg!(target_env = "gnu") && !enabled.is_empty() && !enabled.contains("[never]")
}

#[test]
fn the_peers_lie_in_huge_pages_too() {
    if !has_huge_pages() {
        return crate::skip::skipped("there are no transparent huge pages");
    }
    // Reserved huge pages may take all that there are.
    let _one = HUGE_PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let arguments = [
        "bench",
        "table",
        "--scenarios",
        "growth",
        "--elements",
        "2097152",
        "--quick",
        "--contenders",
        "papaya,scc",
        "--rounds",
        "1",
        "--json",
    ];
    // The kernel gives as many huge pages as it finds at the moment; it gives none without the request.
    for _ in 0..3 {
        let result = json(&run(&arguments));
        assert_eq!(rows(&result).len(), 3);
        let huge: f64 = rows(&result).iter().map(|row| number(&row["metrics"], "huge_page_bytes")).sum();
        if huge > f64::from(1 << 20) {
            return;
        }
    }
    assert!(!finds_huge_pages(), "the kernel gives huge pages on request, but the peers got none");
    crate::skip::skipped("the kernel finds no huge pages");
}

/// Whether the kernel gives huge pages to a program that asks for them now.
fn finds_huge_pages() -> bool {
    let layout = Layout::from_size_align(16 << 20, 2 << 20).expect("a power of two");
    // SAFETY: the size is not zero; the memory is used within its bounds, and freed with the same layout.
    unsafe {
        let memory = alloc(layout);
        assert!(!memory.is_null());
        libc::madvise(memory.cast(), layout.size(), libc::MADV_HUGEPAGE);
        memory.write_bytes(1, layout.size());
        let found = proc::huge_bytes().is_some_and(|bytes| bytes > 0);
        dealloc(memory, layout);
        found
    }
}

#[test]
fn a_terminal_gets_a_table_for_each_setting() {
    let output = run(&tiny(&[
        "--contenders",
        "stillpoint/table,scc",
        "--scenarios",
        "zipf,growth,conc-map-bench",
        "--verbose",
    ]));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "table zipf (entries 4096",
        "(threads 1, key bytes 8)",
        "key bytes 16",
        "90/10",
        "churned_lookups_per_s",
        "stillpoint/table",
        "scc",
        "table growth (entries 4096",
        "Insertions while the table grows (keys String)",
        "Mixes of other harnesses (threads 1, keys u64)",
        "exchange",
        "Control of table",
        "means nothing",
    ] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
    assert!(
        !text.contains("table uniform") && !text.contains("papaya+guard") && !text.contains("table bustle"),
        "a table that was not asked for:\n{text}"
    );
}

#[test]
fn a_quick_run_has_one_kind_of_keys_and_refuses_the_others() {
    let arguments = tiny(&["--quick", "--contenders", "stillpoint/table,dashmap", "--json"]);
    let result = json(&run(&arguments));
    assert!(
        ["uniform", "growth", "bustle", "conc-map-bench", "service"]
            .iter()
            .all(|scenario| rows(&result).iter().any(|row| row["scenario"] == *scenario))
    );
    for row in rows(&result) {
        let params = &row["params"];
        let is_of_numbers = params["key_bytes"] == 8 || params["keys"] == "u64";
        assert!(is_of_numbers || row["scenario"] == "service", "{row}");
    }
    let refused = run(&tiny(&["--quick", "--scenarios", "zipf"]));
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let refused = run(&tiny(&["--contenders", "papaya+guard", "--scenarios", "bustle"]));
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}

#[test]
fn threads_are_those_asked_for_and_no_more_than_the_cpus() {
    let one =
        ["--threads", "1", "--scenarios", "uniform,bustle", "--contenders", "dashmap", "--quick", "--json"];
    let result = json(&run(&tiny(&one)));
    assert!(rows(&result).iter().all(|row| row["params"]["threads"] == 1), "{result}");
    assert!(rows(&result).iter().any(|row| row["contender"] == "dashmap (again)"), "{result}");
    let refused = run(&tiny(&["--threads", "2", "--cpus", "0"]));
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("CPUs to measure on"), "{}", stderr(&refused));
}

#[test]
fn a_service_has_more_threads_than_cpus_and_tells_what_waits() {
    let of = |more: &[&'static str]| {
        run(&tiny(&[&["--scenarios", "service", "--duration", "20ms"][..], more].concat()))
    };
    let result = json(&of(&["--json"]));
    let ours = "stillpoint/table+get";
    for (mix, percent) in [("90/5/5", [90.0, 5.0, 5.0]), ("99.9/0.05/0.05", [99.9, 0.05, 0.05])] {
        for (threads, entries) in [(2, 1000), (16, 1000), (2, 4096), (16, 4096)] {
            for name in [ours, "dashmap", "std/rwlock", "stillpoint/table+get (again)"] {
                let is_it = |row: &&Value| {
                    let params = &row["params"];
                    (&row["contender"], &params["mix"]) == (&name.into(), &mix.into())
                        && (&params["threads"], &params["entries"]) == (&threads.into(), &entries.into())
                };
                let row = rows(&result).iter().find(is_it);
                let row = row.unwrap_or_else(|| panic!("{name}, {mix}, {threads}, {entries}"));
                assert!(row["scenario"] == "service" && row.get("void").is_none(), "{row}");
                let params = &row["params"];
                assert_eq!(params["percent"], Value::from(percent.to_vec()), "{row}");
                assert_eq!((&params["keys"], &params["hasher"]), (&"String".into(), &"foldhash".into()));
                assert!(number(&row["metrics"], "ops_per_s") > 0.0, "{row}");
                let is_ours = name.starts_with(ours);
                assert_eq!(row["metrics"].get("waiting").is_some(), is_ours, "{row}");
                assert_eq!(row["metrics"].get("waiting_most").is_some(), is_ours, "{row}");
            }
        }
    }
    assert_eq!(rows(&result).len(), 32);

    let text = stdout(&of(&["--threads", "3"]));
    for part in ["A web service's map", "dashmap", "std/rwlock", "wait to be freed", "90/5/5"] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
    let text = stdout(&of(&["--threads", "1", "--contenders", "std/rwlock"]));
    assert!(text.contains("std/rwlock") && text.contains("Control of table"), "{text}");
    let refused = run(&tiny(&["--contenders", "std/rwlock", "--scenarios", "uniform,bustle"]));
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}

/// `bench reclaim` on hash tables, which are its default.
#[test]
fn reclaim_runs_on_tables() {
    let _one = HUGE_PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let before = huge_pages();
    let arguments =
        ["bench", "reclaim", "--scenarios", "spread", "--readers", "2", "--deletes", "2500", "--bytes"];
    let short = ["256", "--elements", "256", "--duration", "80ms", "--rounds", "2", "--json"];
    let output = run(&[&arguments[..], &short].concat());
    let result = json(&output);
    let rows = result["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["contender"].as_str().unwrap()).collect();
    let ours = ["protected", "get", "guard", "qsbr", "qsbr+poll", "qsbr+background"];
    let ours: Vec<String> = ours.iter().map(|name| format!("stillpoint/{name}")).collect();
    for name in ours.iter().map(String::as_str).chain(stillpoint_peers::table::reclaiming()) {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    assert!(!names.contains(&"seize"), "it has no table");
    let told = stderr(&output);
    for part in ["left out of --structure table: ", "seize", "--structure array has them"] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    for row in rows {
        let params = &row["params"];
        assert_eq!((&params["structure"], &params["bytes"]), (&"table".into(), &256.into()), "{row}");
        assert_eq!(params["deletes_per_s"], 2500, "{row}");
        assert!(row.get("void").is_none(), "{row}");
        assert_eq!(row["metrics"]["deletes"], row["metrics"]["freed"], "{row}");
        // In 40 ms; a busy machine has fewer.
        assert!((1.0..=101.0).contains(&number(&row["metrics"], "deletes")), "{row}");
        assert!(number(&row["metrics"], "lookups_per_s") > 0.0, "{row}");
    }
    assert_eq!(huge_pages(), before);

    for (more, reason) in [
        (
            ["--contenders", "seize"].as_slice(),
            "left out of --structure table: seize (--structure array has them)",
        ),
        (
            &["--structure", "array", "--contenders", "papaya"],
            "left out of --structure array: papaya (--structure table",
        ),
    ] {
        let refused = run(&[&["bench", "reclaim"], more].concat());
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains(reason), "{}", stderr(&refused));
    }
}

fn huge_pages() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/vm/nr_hugepages").ok()?.trim().parse().ok()
}

/// Begins a run that lasts for minutes, and sends it these signals when it measures.
fn interrupt(signals: &[Signal]) -> (Option<i32>, Vec<String>, Vec<u8>) {
    let arguments =
        ["bench", "table", "--elements", "65536", "--rounds", "1000", "--scenarios", "uniform", "--json"];
    let mut child = stillpoint(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = told_by(&mut child);
    assert!(lines.any(|line| line.contains("1 thread")), "the measurement never began");
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
