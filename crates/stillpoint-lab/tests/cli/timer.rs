//! `bench timer`: the form of the results, and that what was added has one end.

use serde_json::Value;

use crate::common::{json, run, stdout};

const TINY: [&str; 5] = ["bench", "timer", "--quick", "--rounds", "1"];

fn row<'a>(rows: &'a [Value], contender: &str, scenario: &str) -> &'a Value {
    let found = rows.iter().find(|row| row["contender"] == contender && row["scenario"] == scenario);
    found.unwrap_or_else(|| panic!("{contender}, {scenario}"))
}

#[test]
fn every_contender_has_a_row_of_the_agreed_form() {
    let arguments: Vec<&str> = TINY.into_iter().chain(["--json"]).collect();
    let result = json(&run(&arguments));
    let rows = result["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["experiment"] == "timer" && row.get("void").is_none()), "{rows:?}");
    let mut names = vec![
        ("stillpoint/wheel", "integer"),
        ("stillpoint/wheel (again)", "integer"),
        ("floor", "integer"),
        ("stillpoint/wheel+instant", "std"),
        ("nexus-timer", "std"),
        ("tokio-util", "std"),
        ("hierarchical_hash_wheel_timer", "std"),
        ("stillpoint/wheel+clock", "clock"),
        ("nexus-timer+clock", "clock"),
    ];
    if stillpoint_peers::table::HAS_DPDK {
        names.push(("dpdk/rte_timer", "clock"));
    }
    for (name, time) in names {
        let row = row(rows, name, "own");
        assert_eq!(row["params"]["time"], time, "{row}");
        for metric in ["add_cycles", "cancel_cycles", "cancel_shuffled_cycles"] {
            assert!(row["metrics"][metric].as_f64().is_some_and(|cycles| cycles > 0.0), "{row}");
        }
        assert_eq!(row["params"]["timers"], 10_000);
    }
    let control =
        result["controls"].as_array().unwrap().iter().find(|control| control["metric"] == "add_cycles");
    assert_eq!(control.expect("our own wheel is there twice")["contender"], "stillpoint/wheel");
    let ours = row(rows, "stillpoint/wheel", "own");
    for metric in ["reset_cycles", "expire_cycles", "manage_idle_cycles", "step_cycles_p999", "jump_cycles"] {
        assert!(ours["metrics"][metric].is_number(), "{metric} in {ours}");
    }
    if std::thread::available_parallelism().unwrap().get() > 1 {
        let remote = row(rows, "stillpoint/wheel", "remote");
        assert!(remote["metrics"]["remote_source_cycles"].is_number(), "{remote}");
    }
}

#[test]
fn a_terminal_gets_its_tables() {
    let arguments: Vec<&str> = TINY.into_iter().chain(["--contenders", "stillpoint"]).collect();
    let text = stdout(&run(&arguments));
    for expected in [
        "Timers: 10000 on one thread",
        "time told as an integer",
        "a clock read at each call",
        "stillpoint/wheel+clock",
        "stillpoint/wheel+instant",
        "p99.9 of a step",
        "Control of timer",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}
