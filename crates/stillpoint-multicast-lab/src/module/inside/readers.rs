//! `bench membarrier` with the module loaded, as a user would start it: what its readers and its barriers did. Only counts are
//! checked: times in the guest mean nothing.

use std::process::Command;

use serde_json::Value;
use stillpoint_harness::experiment::control::contender;
use stillpoint_harness::machine::cpus;
use stillpoint_multicast::{Share, Strategy};

use crate::device::{PERCENT, THRESHOLD, Way};

/// Few settings, and short ones; each setting has some windows, however slow the machine is.
const ARGUMENTS: &str = "bench membarrier --scenarios readers,receivers,initiators --readers 4 --initiators 2 --quick \
                         --rounds 1 --duration 100ms --json --contenders module";

/// Runs it, and returns the counts of each way.
pub(super) fn bench() -> Result<Vec<String>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let modes = Way::ALL.map(|way| format!(",mode/module-{}", way.name())).concat();
    let done = Command::new(program)
        .args(format!("{ARGUMENTS}{modes}").split_whitespace())
        .output()
        .map_err(|error| format!("bench membarrier: {error}"))?;
    if !done.status.success() {
        return Err(format!("bench membarrier: {}: {}", done.status, String::from_utf8_lossy(&done.stderr)));
    }
    let result: Value = serde_json::from_slice(&done.stdout).map_err(|error| error.to_string())?;
    let rows = result["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    Way::ALL.into_iter().map(|way| line(rows, way, cpus::online().len() as u32 - 1)).collect()
}

/// The counts of the rows of a way, on a machine with this many other CPUs.
fn line(rows: &[Value], way: Way, others: u32) -> Result<String, String> {
    let name = way.name();
    let of = |scenario: &'static str, name: String| {
        let is_of = move |row: &&Value| {
            row["scenario"] == scenario && row["contender"].as_str().map(contender) == Some(&name)
        };
        rows.iter().filter(is_of)
    };
    let metric = |row: &Value, metric: &str| row["metrics"][metric].as_f64().unwrap_or(0.0);
    let (mut sections, mut synchronizations, mut fences, mut barriers) = (0.0, 0.0, 0.0, 0.0);
    let (mut interrupts, mut depths) = (0.0, 0.0);
    let mut count = 0;
    for row in of("readers", format!("mode/module-{name}")) {
        let (read, done) = (metric(row, "sections"), metric(row, "synchronizations"));
        if read == 0.0 || (done > 0.0) != (row["params"]["synchronize_per_s"] != 0) {
            return Err(format!("readers: {name}: {read} sections beside {done} synchronizations: {row}"));
        }
        let own = metric(row, "module_barriers");
        sections += read;
        synchronizations += done;
        fences += metric(row, "heavy_fences");
        barriers += own;
        interrupts += own * metric(row, "interrupts_per_barrier");
        depths += own * metric(row, "barrier_depth");
        count += 1;
    }
    let (interrupts, depth) = (interrupts / barriers, depths / barriers);
    let deepest = f64::from(strategy(way).shape(others).depth);
    let timed = |scenario| {
        of(scenario, format!("module/{name}")).filter(|row| metric(row, "latency_us_p50") > 0.0).count()
    };
    let (receivers, initiators) = (timed("receivers"), timed("initiators"));
    let line = format!(
        "{name}: {sections} sections of readers beside {synchronizations} synchronizations in {count} rows, \
         {fences} heavy fences by {barriers} barriers of {interrupts:.2} interrupts and a depth of {depth:.2}; module/{name} in {receivers} rows of \
         receivers, {initiators} of initiators"
    );
    let is_whole = count > 0 && synchronizations > 0.0 && fences > 0.0 && barriers >= fences;
    let is_plausible = (0.0..=f64::from(others)).contains(&interrupts) && (0.0..=deepest).contains(&depth);
    // Of three receivers, one is reached through another.
    let is_deep = way != Way::Tree || others < 3 || depth > 1.0;
    let is_each = receivers > 0 && initiators > 0 && interrupts > 0.0 && depth > 0.0;
    if is_whole && is_plausible && is_deep && is_each { Ok(line) } else { Err(format!("readers: {line}")) }
}

fn strategy(way: Way) -> Strategy {
    match way {
        Way::SmpCall | Way::Flat => Strategy::Flat,
        Way::Tree => Strategy::Tree,
        Way::Split => Share::percent(PERCENT).map_or(Strategy::Flat, Strategy::Split),
        Way::Hybrid => Strategy::Hybrid(THRESHOLD),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Rows of the tree on 8 CPUs, as the bench writes them.
    fn rows() -> Vec<Value> {
        let readers = |contender: &str, asked: Value, sections: u64, done: u64, depth: f64| {
            let mut row = json!({
                "scenario": "readers", "contender": contender, "params": { "synchronize_per_s": asked },
                "metrics": { "sections": sections, "synchronizations": done },
            });
            if done > 0 {
                row["metrics"]["heavy_fences"] = json!(done / 2);
                row["metrics"]["module_barriers"] = json!(done);
                row["metrics"]["interrupts_per_barrier"] = json!(7.0);
                row["metrics"]["barrier_depth"] = json!(depth);
            }
            row
        };
        let timed = |scenario: &str| json!({ "scenario": scenario, "contender": "module/tree", "metrics": { "latency_us_p50": 3.5 } });
        vec![
            readers("mode/module-tree", 0.into(), 1000, 0, 0.0),
            readers("mode/module-tree", 1000.into(), 2000, 10, 3.0),
            readers("mode/module-tree (again)", "most".into(), 3000, 30, 2.0),
            readers("mode/module-flat", "most".into(), 9000, 90, 1.0),
            timed("receivers"),
            timed("initiators"),
        ]
    }

    #[test]
    fn the_rows_of_a_way_are_summed_up() {
        assert_eq!(
            line(&rows(), Way::Tree, 7).unwrap(),
            "tree: 6000 sections of readers beside 40 synchronizations in 3 rows, 20 heavy fences by 40 barriers of 7.00 \
             interrupts and a depth of 2.25; module/tree in 1 rows of receivers, 1 of initiators"
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |change: &dyn Fn(&mut Vec<Value>), part: &str| {
            let mut rows = rows();
            change(&mut rows);
            let reason = line(&rows, Way::Tree, 7).unwrap_err();
            assert!(reason.contains(part), "'{part}' is not in: {reason}");
        };
        refused(&|rows| rows.clear(), "in 0 rows");
        refused(&|rows| rows.truncate(5), "0 of initiators");
        refused(&|rows| rows[1]["metrics"]["sections"] = 0.into(), "0 sections");
        refused(&|rows| rows[1]["metrics"]["synchronizations"] = 0.into(), "0 synchronizations");
        refused(&|rows| rows[0]["metrics"]["synchronizations"] = 1.into(), "1 synchronizations");
        refused(&|rows| rows[2]["metrics"]["module_barriers"] = 9.into(), "20 heavy fences by 19 barriers");
        refused(
            &|rows| rows[1..3].iter_mut().for_each(|row| row["metrics"]["heavy_fences"] = 0.into()),
            "0 heavy fences",
        );
        refused(&|rows| rows[2]["metrics"]["interrupts_per_barrier"] = 17.into(), "interrupts");
        refused(&|rows| rows[2]["metrics"]["barrier_depth"] = 4.into(), "depth of 3.75");
        let flat = |row: &mut Value| row["metrics"]["barrier_depth"] = 1.into();
        refused(&|rows| rows[1..3].iter_mut().for_each(flat), "depth of 1.00");
        assert!(line(&rows(), Way::Split, 7).is_err(), "a way without a row was accepted");
    }
}
