//! `bench pool`: the form of the results.

use serde_json::Value;

use crate::common::{json, run, stderr, stdout};

const TINY: [&str; 6] = ["bench", "pool", "--duration", "2ms", "--rounds", "2"];

fn tiny(more: &[&'static str]) -> Vec<&'static str> {
    TINY.iter().chain(more).copied().collect()
}

#[test]
fn every_scenario_has_rows_of_the_agreed_form() {
    let result =
        json(&run(&tiny(&["--quick", "--contenders", "stillpoint,object-pool,sharded-slab", "--json"])));
    let rows = result["rows"].as_array().unwrap();
    let cpus = std::thread::available_parallelism().unwrap().get();
    let scenarios = ["plain", "contiguous", "bulks", "single", "private", "producer-consumer"];
    for scenario in scenarios.into_iter().filter(|&scenario| cpus > 1 || scenario != "producer-consumer") {
        let mut of_ours =
            rows.iter().filter(|row| row["scenario"] == scenario && row["contender"] == "stillpoint/pool");
        assert!(of_ours.next().is_some(), "{scenario} has no row");
    }
    for row in rows {
        assert!(row["experiment"] == "pool" && row.get("void").is_none(), "{row}");
        for metric in ["objects_per_s", "ns_per_op"] {
            assert!(row["metrics"][metric].as_f64().unwrap() > 0.0, "{row}");
        }
        // A pool hands out what came back last.
        let touched = row["metrics"]["objects_touched"].as_f64();
        assert_eq!(
            touched.is_some(),
            ["plain", "bulks", "single"].iter().any(|of| row["scenario"] == *of),
            "{row}"
        );
        if row["contender"] == "stillpoint/pool" {
            let [keep, cache, block] =
                ["keep", "cache", "block"].map(|of| row["params"][of].as_f64().unwrap());
            let most = keep + 1.5 * cache + 2.0 * block;
            assert!(touched.is_none_or(|touched| touched <= most), "{row}");
        }
        for param in ["get", "put", "keep", "cores", "rounds"] {
            assert!(row["params"][param].is_number(), "{row}");
        }
        if row["contender"] == "stillpoint/pool" {
            let small = row["scenario"] == "contiguous" && row["params"]["get"] == 15;
            assert_eq!(row["params"]["block"], if small { 15 } else { 31 }, "{row}");
        }
    }
    let cells = |scenario: &str, contender: &str, cache: Value| {
        let is_one = |row: &&Value| {
            row["scenario"] == scenario && row["contender"] == contender && row["params"]["cache"] == cache
        };
        rows.iter().filter(is_one).count()
    };
    assert_eq!(cells("plain", "object-pool", Value::Null), 6, "bulks of 15 and 31 out, of 1, 15 and 31 back");
    for cache in [0, 512] {
        assert_eq!(cells("plain", "stillpoint/pool", cache.into()), 6);
        // Gets of 31, with puts of 1, 15, 31 and the block; gets of 15, with puts of 1, 15 and the block; and 15
        // blocks of 31 in one call.
        assert_eq!(cells("contiguous", "stillpoint/pool", cache.into()), 4 + 3 + 1);
    }
}

/// With DPDK, if it is built in: its environment must print only to standard error.
#[test]
fn a_terminal_gets_a_table_for_each_scenario_and_what_the_memory_is_made_of() {
    let output = run(&tiny(&["--quick", "--scenarios", "contiguous,single"]));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "Blocks of contiguous objects out, objects back",
        "One object out and back",
        "contig_block_size 15",
        "contig_block_size 31",
        "huge pages",
        "get 31, put 0",
        "get 15, put 0",
        "get 465, put 0",
    ] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
    assert!(!text.contains("\nObjects out and back"), "a scenario that was not asked for:\n{text}");
    assert_eq!(text.contains("dpdk/bucket"), stillpoint_peers::table::HAS_DPDK, "{text}");
}

#[test]
fn a_usual_run_keeps_each_number_of_objects_on_as_many_cores_as_there_are() {
    let result = json(&run(&tiny(&["--contenders", "object-pool", "--scenarios", "plain", "--json"])));
    let rows = result["rows"].as_array().unwrap();
    let count = |param: &str, value: u64| rows.iter().filter(|row| row["params"][param] == value).count();
    for keep in [30, 60, 465, 4_030] {
        assert!(count("keep", keep) >= 6, "{keep}: {rows:?}");
    }
    let several = if std::thread::available_parallelism().unwrap().get() > 1 { 2 * 6 } else { 0 };
    // Each row comes twice, because the contender is its own control.
    assert_eq!(count("cores", 2), several, "465 objects are kept by each of two threads, too");
}

#[test]
fn packets_go_from_every_driver_to_the_null_device() {
    let output = run(&tiny(&["--quick", "--scenarios", "transmit,transmit-huge", "--json"]));
    if !stillpoint_peers::table::HAS_DPDK {
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("transmit needs DPDK"), "{}", stderr(&output));
        return;
    }
    let result = json(&output);
    let rows = result["rows"].as_array().unwrap();
    let huge = rows.iter().any(|row| row["scenario"] == "transmit-huge");
    if !huge {
        crate::skip::skipped("there are no reserved huge pages (vm.nr_hugepages)");
    }
    let scenarios = if huge { &["transmit", "transmit-huge"][..] } else { &["transmit"] };
    for (scenario, contender) in scenarios
        .iter()
        .flat_map(|of| ["dpdk/stillpoint", "dpdk/bucket", "dpdk/ring", "dpdk/stack"].map(|name| (of, name)))
    {
        for cache in [0, 512] {
            let is_one = |row: &&Value| {
                row["scenario"] == **scenario
                    && row["contender"] == contender
                    && row["params"]["cache"] == cache
            };
            let row = rows.iter().find(is_one).unwrap_or_else(|| panic!("{scenario}: {contender}, {cache}"));
            let blocks = row["params"]["block"].as_u64().is_some_and(|block| block > 1);
            let has_blocks = match contender {
                "dpdk/stillpoint" => true,
                "dpdk/bucket" => **scenario == *"transmit-huge",
                _ => false,
            };
            assert_eq!(blocks, has_blocks, "{row}");
            assert!(row["metrics"]["packets_per_s"].as_f64().is_some_and(|rate| rate > 1e4), "{row}");
            assert!(row["params"]["get"] == 32 && row.get("void").is_none(), "{row}");
        }
    }
    let refused = run(&tiny(&["--contenders", "stillpoint", "--scenarios", "transmit"]));
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("transmit needs DPDK"), "{}", stderr(&refused));
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let refused = run(&tiny(&["--contenders", "papaya"]));
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("pool has none of these contenders"), "{}", stderr(&refused));
    let refused = run(&tiny(&["--scenarios", "zipf"]));
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}
