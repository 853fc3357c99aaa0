//! The form of all rows: what `rows.txt` lists is what tools read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::PoisonError;

use crate::common::{json, run};
use crate::table::HUGE_PAGES;

/// The names of parameters, of metrics, and of contenders.
type Names = [BTreeSet<String>; 3];

/// The shortest run of everything.
const SHORTEST: &str =
    "bench all --quick --rounds 1 --duration 5ms --elements 4096 --connections 2000 --json";

/// `STILLPOINT_WRITE_PAGE=1` writes the list of a machine that has all peers, two CPUs and huge pages.
#[test]
fn rows_have_the_names_that_tools_read() {
    let _one = HUGE_PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let result = json(&run(&SHORTEST.split(' ').collect::<Vec<_>>()));
    let mut found: BTreeMap<String, Names> = BTreeMap::new();
    for row in result["rows"].as_array().unwrap() {
        let text = |name: &str| row[name].as_str().unwrap();
        let of = found.entry(format!("{} {}", text("experiment"), text("scenario"))).or_default();
        for (names, kind) in of.iter_mut().zip(["params", "metrics"]) {
            names.extend(row[kind].as_object().unwrap().keys().cloned());
        }
        of[2].insert(text("contender").replace(" (again)", "+again"));
    }
    let words = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(" ");
    let line =
        |(of, names): (&String, &Names)| format!("{of}: {}\n", names.each_ref().map(words).join(" | "));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/rows.txt");
    if std::env::var_os("STILLPOINT_WRITE_PAGE").is_some() {
        std::fs::write(&file, found.iter().map(line).collect::<String>()).unwrap();
    }
    let list = std::fs::read_to_string(&file).unwrap();
    for (of, names) in &found {
        let listed = list.lines().find_map(|line| line.strip_prefix(&format!("{of}: ")));
        let listed = listed.unwrap_or_else(|| panic!("{of} is not listed"));
        let listed: Vec<BTreeSet<String>> =
            listed.split(" | ").map(|names| names.split(' ').map(str::to_owned).collect()).collect();
        // A contender that is not in this build, or may not run here, is missing with its metrics.
        let all_are_here = names[2] == listed[2];
        for (found, listed) in names.iter().zip(&listed) {
            assert!(found.is_subset(listed), "{of}: {found:?}, {listed:?}");
            assert!(found == listed || !all_are_here, "{of}: {found:?}, {listed:?}");
        }
    }
}

/// The results that the book shows are of today's contenders: nobody is missing who takes part, so no line is ahead of those who were there.
#[test]
fn the_results_of_the_book_have_all_who_take_part() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = std::fs::read_to_string(root.join("tests/cli/rows.txt")).unwrap();
    let result = std::fs::read_to_string(root.join("../../docs/results/bench.json")).unwrap();
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    let mut measured: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in result["rows"].as_array().unwrap() {
        let text = |name: &str| row[name].as_str().unwrap();
        let of = measured.entry(format!("{} {}", text("experiment"), text("scenario"))).or_default();
        of.insert(text("contender").replace(" (again)", "+again"));
    }
    for line in list.lines() {
        let (of, names) = line.split_once(": ").unwrap();
        let listed: BTreeSet<String> =
            names.rsplit(" | ").next().unwrap().split(' ').map(str::to_owned).collect();
        let measured = measured.remove(of).unwrap_or_else(|| panic!("{of} was not measured"));
        assert_eq!(measured, listed, "{of}");
    }
    assert!(measured.is_empty(), "nothing of today: {:?}", measured.keys());
}
