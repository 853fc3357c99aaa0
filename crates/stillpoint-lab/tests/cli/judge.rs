//! `.ci/judge`, which holds the bars of `.ci/bars` against results.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{run, stderr};
use crate::skip::skipped;

fn place(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// What it prints about results, and its status. `None` without Python.
fn judged(files: &[&PathBuf]) -> Option<(String, i32)> {
    if Command::new("python3").arg("--version").output().is_err() {
        skipped("python3 is not installed");
        return None;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.ci/judge");
    let output = Command::new("python3").arg(script).args(files).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    Some((String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap()))
}

fn row(scenario: &str, contender: &str, ns: f64) -> Value {
    let params = json!({ "iterations": ns as u64, "rounds": 3 });
    let metrics = json!({ "ns_per_op": ns });
    json!({ "experiment": "capi", "scenario": scenario, "contender": contender, "params": params, "metrics": metrics })
}

/// The line about a bar of `.ci/bars`, for these rows, and the status.
fn verdict(name: &str, what: &str, rows: &[Value]) -> Option<(String, i32)> {
    let file = place(&format!("{name}.json"));
    std::fs::write(&file, json!({ "rows": rows }).to_string()).unwrap();
    let (said, status) = judged(&[&file])?;
    let line = said.lines().find(|line| line.contains(&format!(": {what}: ")));
    Some((line.unwrap_or_else(|| panic!("{what}: {said}")).to_owned(), status))
}

/// `still_check` may take 1.1 times as long as the same in Rust.
#[test]
fn a_bar_is_met_or_missed_by_its_own_figures() {
    let rows = |ours| [row("check", "c/qsbr", ours), row("check", "stillpoint/qsbr", 10.0)];
    let of = |name, ours| verdict(name, "still_check, when over", &rows(ours));
    let (Some(met), Some(missed)) = (of("met", 10.9), of("missed", 11.1)) else { return };
    assert!(met.0.starts_with("    met: capi: ") && met.0.contains("1.090") && met.1 == 0, "{met:?}");
    assert!(
        missed.0.starts_with(" missed: capi: ") && missed.0.contains("11.1 beside stillpoint/qsbr 10"),
        "{missed:?}"
    );
    assert_eq!(missed.1, 1);
}

/// `rte_rcu_qsbr_check` may take a nanosecond more, and 64 idle workers may take 20 ms to end.
#[test]
fn a_bar_may_be_a_difference_or_a_figure() {
    let what = "rte_rcu_qsbr_check, when over, ns";
    let rows = |ours| [row("check", "drop-in/rte_rcu_qsbr", ours), row("check", "dpdk/rcu", 0.25)];
    let (Some(met), Some(missed)) =
        (verdict("more", what, &rows(1.2)), verdict("much-more", what, &rows(1.3)))
    else {
        return;
    };
    assert_eq!((met.1, missed.1), (0, 1), "{met:?} {missed:?}");
}

#[test]
fn rows_that_are_missing_void_or_controls_give_no_verdict() {
    let mut void = row("check", "stillpoint/qsbr", 10.0);
    void["void"] = json!("3 samples");
    for (name, rows) in [
        ("single", vec![row("check", "c/qsbr", 1.0)]),
        ("void", vec![row("check", "c/qsbr", 1.0), void]),
        ("again", vec![row("check", "c/qsbr (again)", 1.0), row("check", "stillpoint/qsbr", 1.0)]),
    ] {
        let Some(said) = verdict(name, "still_check, when over", &rows) else { return };
        assert!(said.0.starts_with("nothing: ") && said.1 == 0, "{said:?}");
    }
}

/// Twelve of fourteen settings are enough beside papaya. The same share of others is not: the usual run has more, and one CPU has fewer.
#[test]
fn a_bar_about_a_number_of_settings_judges_no_other_number() {
    let rows = |settings: u64| -> Vec<Value> {
        let row = |contender: &str, threads, rate: f64| {
            json!({
                "experiment": "table", "scenario": "bustle", "contender": contender,
                "params": { "threads": threads }, "metrics": { "ops_per_s": rate },
            })
        };
        let both = |threads| {
            let ours = if threads < 12 { 2.0 } else { 0.9 };
            [row("stillpoint/table", threads, ours), row("papaya", threads, 1.0)]
        };
        (0..settings).flat_map(both).collect()
    };
    let of = |settings| verdict(&format!("settings-{settings}"), "mixes beside papaya", &rows(settings));
    let Some(all) = of(14) else { return };
    assert!(all.0.starts_with("    met: ") && all.0.contains("12 of 14 settings"), "{all:?}");
    for settings in [7, 13, 28] {
        let (said, status) = of(settings).unwrap();
        assert!(said.starts_with("nothing: ") && said.contains(&format!("{settings} settings")), "{said}");
        assert_eq!(status, 0, "{said}");
    }
}

/// The peer of one run says nothing about ours of another one, which ran at another time.
#[test]
fn rows_are_compared_within_their_file_only() {
    let files: Vec<PathBuf> = [("old", 10.9, 10.0), ("new", 12.0, 11.0)]
        .map(|(name, ours, theirs)| {
            let file = place(&format!("of-{name}.json"));
            let rows = [row("check", "c/qsbr", ours), row("check", "stillpoint/qsbr", theirs)];
            std::fs::write(&file, json!({ "rows": rows }).to_string()).unwrap();
            file
        })
        .into();
    let Some((said, status)) = judged(&[&files[0], &files[1]]) else { return };
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with("nothing: ")).collect();
    assert_eq!((lines.len(), status), (4, 0), "{said}");
    for (lines, (name, figures)) in lines.chunks(2).zip([("of-old", "10.9 beside"), ("of-new", "12 beside")])
    {
        assert!(lines[0].ends_with(&format!("{name}.json:")), "{said}");
        assert!(lines[1].starts_with("    met: ") && lines[1].contains(figures), "{said}");
    }
}

fn of_preempt(contender: &str, per_core: u64, gp: f64, cpu: f64) -> Value {
    let params = json!({ "readers_per_core": per_core, "presence": "always", "workload": "mail" });
    let metrics = json!({
        "gp_us_mean": gp, "gp_us_max": gp * 10.0, "cpu_us_per_gp": cpu, "peak_pending_bytes": 1000.0, "sections_per_s": 1e6,
    });
    let scenario = if per_core == 1 { "baseline" } else { "overcommit" };
    json!({ "experiment": "preempt", "scenario": scenario, "contender": contender, "params": params, "metrics": metrics })
}

#[test]
fn preempted_readers_are_held_against_one_reader_a_core() {
    let of = |name: &str, what: &str, mean: f64| {
        let ours = "stillpoint/protected";
        verdict(name, what, &[of_preempt(ours, 1, 90.0, 1.0), of_preempt(ours, 16, mean, 1.6)])
    };
    // In µs: with one reader a core, the wait falls into the writer's sleep, so a ratio to that mean would hide a long one.
    let mean = "mean grace period under overcommit, µs";
    let Some(met) = of("preempt-met", mean, 99.0) else { return };
    assert!(met.0.starts_with("    met: preempt: "), "{met:?}");
    assert!(of("preempt-missed", mean, 101.0).unwrap().0.starts_with(" missed: "));
    // All ratios to itself are 1: the worst setting is that with the largest figure.
    let mut worst = of_preempt("stillpoint/protected", 16, 150.0, 1.6);
    worst["params"]["workload"] = json!("memory");
    let rows = [of_preempt("stillpoint/protected", 16, 99.0, 1.6), worst];
    let missed = verdict("preempt-worst", mean, &rows).unwrap().0;
    assert!(missed.contains(": 150.000, 1 of 2 settings"), "{missed}");
    let cpu = of("preempt-cpu", "CPU time a grace period under overcommit", 14.0).unwrap();
    assert!(cpu.0.starts_with(" missed: "), "{cpu:?}");
    assert!(of("preempt-memory", "peak pending under overcommit", 14.0).unwrap().0.starts_with("    met: "));
    // A reader that sleeps in its section has no bar.
    let mut rows = [of_preempt("dpdk/rcu", 1, 100.0, 1.0), of_preempt("dpdk/rcu", 16, 59_000.0, 1.0)];
    let theirs = "DPDK's mean grace period under overcommit";
    assert!(verdict("preempt-dpdk", theirs, &rows).unwrap().0.starts_with("    met: "));
    rows[1]["params"]["presence"] = json!("blocked");
    assert!(verdict("preempt-blocked", theirs, &rows).unwrap().0.starts_with("nothing: "));
}

/// One reader with a core of its own, and eight that share one, are different scenarios of the same setting.
#[test]
fn delays_of_preempted_readers_are_held_against_those_of_one() {
    let row = |scenario: &str, readers: u64, delay: f64| {
        json!({
            "experiment": "reclaim", "scenario": scenario, "contender": "dpdk/rcu", "params": { "readers": readers, "cores": 1 },
            "metrics": { "delay_us_mean": delay },
        })
    };
    for (name, delay, said) in [("apart", 300.0, "    met: "), ("close", 200.0, " missed: ")] {
        let rows = [row("own-core", 1, 3.0), row("one-core", 8, delay)];
        let Some(line) = verdict(name, "DPDK's mean delay with preempted readers", &rows) else { return };
        assert!(line.0.starts_with(said), "{line:?}");
    }
}

/// Other programs make a figure worse than it should be: what the other settings do not decide is not decided.
#[test]
fn settings_that_other_programs_disturbed_decide_nothing() {
    let rows = |disturbed: &[u64], bad: &[u64]| -> Vec<Value> {
        let both = |threads: u64| {
            ["stillpoint/table", "papaya"].map(|contender| {
                let ours = contender.starts_with("stillpoint");
                let rate = if ours && (bad.contains(&threads) || disturbed.contains(&threads)) { 0.5 } else { 1.0 };
                let foreign = if ours && disturbed.contains(&threads) { 0.2 } else { 0.01 };
                json!({
                    "experiment": "table", "scenario": "bustle", "contender": contender,
                    "params": { "threads": threads, "round_s": 0.3 }, "metrics": { "ops_per_s": rate, "foreign_cpus": foreign },
                })
            })
        };
        (0..14).flat_map(both).collect()
    };
    // Twelve of fourteen are enough.
    for (name, disturbed, bad, said) in [
        ("two-disturbed", &[3, 4][..], &[][..], "    met: "),
        ("one-of-each", &[3], &[5], "    met: "),
        ("three-disturbed", &[3, 4, 5], &[], "disturbed: "),
        ("three-are-bad", &[3], &[5, 6, 7], " missed: "),
    ] {
        let Some(line) = verdict(name, "mixes beside papaya", &rows(disturbed, bad)) else { return };
        assert!(line.0.starts_with(said), "{name}: {line:?}");
        assert_eq!(line.1, i32::from(said.contains("missed")), "{name}");
    }
}

#[test]
fn a_second_measurement_of_ours_is_shown_as_noise() {
    let rows = [("c/qsbr", 12.0), ("c/qsbr (again)", 15.0), ("stillpoint/qsbr", 10.0)]
        .map(|(name, ns)| row("check", name, ns));
    let Some(line) = verdict("noise", "still_check, when over", &rows) else { return };
    assert!(line.0.ends_with("12 beside stillpoint/qsbr 10, noise 25 %"), "{line:?}");
}

#[test]
fn bars_of_preempt_find_their_rows() {
    let file = place("preempt.json");
    let arguments = "bench preempt --readers 1,16 --duration 30ms --scenarios memory --rounds 1 --contenders stillpoint/protected";
    let arguments: Vec<&str> = arguments.split(' ').chain(["--json", file.to_str().unwrap()]).collect();
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let Some((said, _)) = judged(&[&file]) else { return };
    // On a machine with other work, no row decides anything, and yet each is found.
    let found =
        said.lines().filter(|line| ["met:", "missed:", "disturbed:"].iter().any(|word| line.contains(word)));
    assert_eq!(found.count(), 3, "mean, memory and CPU time of protected loads:\n{said}");
}

#[test]
fn boosted_readers_are_held_against_those_of_dpdk_and_against_themselves() {
    let rows = |boost| {
        ["stillpoint/guard+boost", "stillpoint/guard+migrate"]
            .map(|name| of_preempt(name, 8, boost, 1.0))
            .into_iter()
            .chain([of_preempt("dpdk/rcu", 8, 26_000.0, 1.0)])
            .collect::<Vec<_>>()
    };
    let whats =
        ["mean grace period, boosted", "mean grace period, migrated", "longest grace period, boosted, µs"];
    for (boost, met) in [(500.0, [true, true, true]), (2_600.0, [false, true, false])] {
        for (what, met) in whats.into_iter().zip(met) {
            let Some(said) = verdict("boost", what, &rows(boost)) else { return };
            assert_eq!(said.0.starts_with("    met: "), met, "{boost}: {said:?}");
        }
    }
}

#[test]
fn the_worst_setting_of_a_service_decides() {
    let row = |contender: &str, threads: u64, rate: f64, waiting: f64| {
        let params = json!({ "threads": threads, "entries": 1000, "mix": "90/5/5" });
        let metrics = match contender {
            "dashmap" => json!({ "ops_per_s": rate }),
            _ => json!({ "ops_per_s": rate, "waiting_most": waiting }),
        };
        json!({ "experiment": "table", "scenario": "service", "contender": contender, "params": params, "metrics": metrics })
    };
    let ours = "stillpoint/table+get";
    let (rate, waits) = ("a web service's map beside dashmap", "removed entries that wait");
    for (of_ours, waiting, is_met) in [(90.0, 1_000.0, true), (89.0, 1_001.0, false)] {
        let rows = [
            row(ours, 2, 100.0, 5.0),
            row("dashmap", 2, 100.0, 0.0),
            row(ours, 16, of_ours, waiting),
            row("dashmap", 16, 100.0, 0.0),
        ];
        for what in [rate, waits] {
            let Some(said) = verdict("service", what, &rows) else { return };
            assert_eq!(said.0.starts_with("    met: "), is_met, "{said:?}");
        }
        let said = verdict("service-rate", rate, &rows).unwrap().0;
        assert!(is_met || said.contains("0.890, 1 of 2 settings"), "{said}");
    }
}

/// Each bar is about contenders and operations that there are: a new name of one would leave it without rows.
#[test]
fn bars_of_the_interface_in_c_find_their_rows() {
    let has = |peer: &str| stillpoint_peers::catalogue().iter().any(|entry| entry.peer == peer);
    if !["stillpoint.h", "liburcu", "dpdk"].into_iter().all(has) {
        return; // `contenders` of the peers says which peers this build has
    }
    let file = place("capi.json");
    let results = file.to_str().unwrap();
    let arguments = ["bench", "capi", "--quick", "--rounds", "1", "--duration", "4ms", "--elements", "256"];
    let output = run(&[&arguments[..], &["--json", results]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let Some((said, _)) = judged(&[&file]) else { return };
    let two_cpus = std::thread::available_parallelism().unwrap().get() > 1;
    assert!(said.lines().count() >= if two_cpus { 25 } else { 15 }, "{said}");
    assert!(!said.contains("nothing: "), "{said}");
}
