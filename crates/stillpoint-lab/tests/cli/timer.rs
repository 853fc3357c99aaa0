//! `bench timer`: the form of the results, and that what was added has one end.

use serde_json::Value;

use crate::common::{json, run, stderr, stdout};

const TINY: [&str; 7] = ["bench", "timer", "--quick", "--rounds", "1", "--connections", "2000"];

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
    let has_c = stillpoint_peers::missing().iter().all(|missing| missing.peer != "stillpoint.h");
    if has_c {
        names.push(("c/htimer", "integer"));
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
        for metric in ["remote_source_cycles", "remote_target_whole_cycles", "remote_result_cycles"] {
            if has_c {
                let remote = row(rows, "c/htimer", "remote");
                assert!(remote["metrics"][metric].as_f64() > Some(0.0), "{remote}");
            }
        }
        for peer in ["dpdk/rte_timer", "drop-in/rte_timer"] {
            if stillpoint_peers::table::HAS_DPDK {
                let remote = row(rows, peer, "remote");
                assert!(remote["metrics"]["remote_source_cycles"].as_f64() > Some(0.0), "{remote}");
                assert!(remote["metrics"]["remote_cancel_cycles"].as_f64() > Some(0.0), "{remote}");
            }
        }
    }
}

#[test]
fn a_terminal_gets_its_tables() {
    let arguments: Vec<&str> = TINY.into_iter().chain(["--contenders", "stillpoint", "--verbose"]).collect();
    let text = stdout(&run(&arguments));
    for expected in [
        "Timers of the calling thread",
        "the time is told as an integer",
        "the clock is read at each call",
        "stillpoint/wheel+clock",
        "stillpoint/wheel+instant",
        "step_cycles_p999",
        "Control of timer",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}

/// Another thread's timers: of those that were asked for only. Without any, or without a second CPU, there is no result.
#[test]
fn timers_of_another_thread_are_those_that_were_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("remote.json");
    let of = |more: &[&str]| {
        let remote = [&TINY[..], &["--scenarios", "remote", "--json", file.to_str().unwrap()], more].concat();
        run(&remote)
    };
    for more in [&["--contenders", "nexus-timer"][..], &["--cpus", "0"]] {
        let refused = of(more);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(stderr(&refused).contains("nothing was measured"), "{}", stderr(&refused));
        assert!(!file.exists(), "a result without rows");
    }
    let has_c = stillpoint_peers::missing().iter().all(|missing| missing.peer != "stillpoint.h");
    if has_c && std::thread::available_parallelism().unwrap().get() > 1 {
        let measured = of(&["--contenders", "c/htimer"]);
        assert_eq!(measured.status.code(), Some(0), "{}", stderr(&measured));
        let result: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let rows = result["rows"].as_array().unwrap();
        assert!(!rows.is_empty() && rows.iter().all(|row| row["contender"] == "c/htimer"), "{rows:?}");
    }
}

/// Queues of delays: all items come out, or a row would be void.
#[test]
fn queues_of_delays_have_rows() {
    let result =
        json(&run(&["bench", "timer", "--quick", "--rounds", "1", "--scenarios", "queues", "--json"]));
    let rows = result["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row.get("void").is_none()), "{rows:?}");
    for (items, contender, metrics) in [
        (10_000, "stillpoint/delay-queue", &["insert_ns", "take_ns", "insert_and_take_ns", "reset_ns"][..]),
        (10_000, "tokio-util", &["insert_ns", "take_ns", "insert_and_take_ns", "reset_ns"]),
        (1, "stillpoint/delay-queue", &["late_us_p50", "late_us_p99", "late_us_max"]),
    ] {
        let is_it = |row: &&Value| row["contender"] == contender && row["params"]["timers"] == items;
        let row = rows.iter().find(is_it).unwrap_or_else(|| panic!("{contender}, {items}"));
        for &metric in metrics {
            assert!(row["metrics"][metric].as_f64() > Some(0.0), "{metric} in {row}");
        }
    }
}

/// An application: timers of connections, of which none may be lost, early or late, or its row would be void.
#[test]
fn silent_connections_expire_and_others_do_not() {
    let result = json(&run(&[
        "bench",
        "timer",
        "--quick",
        "--scenarios",
        "connections",
        "--connections",
        "5000",
        "--json",
    ]));
    let rows = result["rows"].as_array().unwrap();
    let mut names = vec![
        "stillpoint/wheel",
        "stillpoint/wheel (again)",
        "nexus-timer",
        "tokio-util",
        "hierarchical_hash_wheel_timer",
    ];
    if stillpoint_peers::table::HAS_DPDK {
        names.extend(["dpdk/rte_timer", "drop-in/rte_timer"]);
    }
    assert_eq!(rows.len(), 2 * names.len(), "{rows:?}");
    for choice in ["uniform", "skewed"] {
        for name in &names {
            let is_it = |row: &&Value| row["contender"] == *name && row["params"]["choice"] == choice;
            let row = rows.iter().find(is_it).unwrap_or_else(|| panic!("{name}, {choice}"));
            assert!(row.get("void").is_none(), "{row}");
            assert_eq!(
                (&row["params"]["timers"], &row["params"]["timeout_ms"]),
                (&5000.into(), &15.0.into())
            );
            for metric in ["packets_per_s", "poll_us_max", "expired_per_1000_packets"] {
                assert!(
                    row["metrics"][metric].as_f64().is_some_and(|figure| figure > 0.0),
                    "{metric} in {row}"
                );
            }
            assert!(row["metrics"]["bytes_per_connection"].is_number(), "{row}");
        }
    }
    let refused = run(&["bench", "timer", "--connections", "12"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}
