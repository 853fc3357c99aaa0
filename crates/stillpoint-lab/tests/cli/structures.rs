//! `bench structures`: the form of the results.

use crate::common::{json, run, stderr, stdout};

const TINY: [&str; 6] = ["bench", "structures", "--duration", "4ms", "--rounds", "2"];

fn tiny(more: &[&'static str]) -> Vec<&'static str> {
    TINY.iter().chain(more).copied().collect()
}

#[test]
fn every_scenario_has_rows_of_the_agreed_form() {
    let result = json(&run(&tiny(&["--quick", "--json"])));
    let rows = result["rows"].as_array().unwrap();
    let cpus = std::thread::available_parallelism().unwrap().get();
    let of = |scenario: &str, threads: usize| -> Vec<&str> {
        let of =
            |row: &&serde_json::Value| row["scenario"] == scenario && row["params"]["threads"] == threads;
        rows.iter().filter(of).map(|row| row["contender"].as_str().unwrap()).collect()
    };
    let (first, last) = ("stillpoint/protected", "stillpoint/protected (again)");
    for threads in [1, 2].into_iter().filter(|&threads| threads <= cpus) {
        assert_eq!(of("stack", threads), [first, "crossbeam-epoch", "haphazard", last]);
        assert_eq!(of("queue", threads), [first, "crossbeam-epoch", "haphazard", "crossbeam-queue", last]);
        for scenario in ["list-90-10", "list-50-50"] {
            let lists =
                [first, "stillpoint/guard", "crossbeam-epoch", "haphazard", "crossbeam-skiplist", last];
            assert_eq!(of(scenario, threads), lists);
        }
    }
    assert_eq!(of("list-parked", 1).len(), 6);
    for row in rows {
        assert!(row["experiment"] == "structures" && row.get("void").is_none(), "{row}");
        if row["scenario"] == "list-parked" {
            assert!(row["params"]["replacements"].is_number(), "{row}");
        } else {
            assert!(row["metrics"]["ns_per_op"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    assert!(!result["controls"].as_array().unwrap().is_empty());
}

/// 10,000 nodes of at least 24 bytes: a reader in a region holds up all of them, and a reader that protects a node
/// holds up some batches.
#[test]
#[cfg(target_env = "gnu")]
fn a_reader_that_stands_still_holds_up_all_in_a_region_and_few_with_protected_loads() {
    let result = json(&run(&tiny(&["--quick", "--scenarios", "list-parked", "--json"])));
    for row in result["rows"].as_array().unwrap() {
        let pending = row["metrics"]["pending_bytes"].as_f64().unwrap();
        let holds_all = !["stillpoint/protected", "haphazard"]
            .iter()
            .any(|name| row["contender"].as_str().unwrap().starts_with(name));
        assert_eq!(pending > 10_000.0 * 24.0, holds_all, "{row}");
    }
}

#[test]
fn a_terminal_gets_a_table_for_each_scenario() {
    let output = run(&tiny(&["--quick", "--scenarios", "queue,list-parked", "--threads", "1"]));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["Calls of stack, queue and list", "queue", "crossbeam-queue", "while one reader is stalled"]
    {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
    assert!(!text.contains(" stack ") && !text.contains("threads 2"), "not asked for:\n{text}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (asked, said) in [
        (["--contenders", "papaya"], "structures has none of these contenders"),
        (["--scenarios", "zipf"], "zipf"),
        (["--threads", "1000"], "more threads than CPUs"),
    ] {
        let more: [&'static str; 4] = [asked[0], asked[1], "--scenarios", "stack"];
        let more = if asked[0] == "--scenarios" { &more[..2] } else { &more[..] };
        let refused = run(&tiny(more));
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        assert!(stderr(&refused).contains(said), "{}", stderr(&refused));
    }
}
