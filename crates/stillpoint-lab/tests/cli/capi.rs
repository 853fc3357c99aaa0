//! `bench capi`: the form of the results.

use serde_json::Value;

use crate::common::{json, run, stderr};

const TINY: [&str; 9] =
    ["bench", "capi", "--quick", "--rounds", "1", "--duration", "4ms", "--elements", "256"];

fn tiny(more: &[&'static str]) -> Vec<&'static str> {
    TINY.iter().chain(more).copied().collect()
}

fn has_header() -> bool {
    stillpoint_peers::catalogue().iter().any(|entry| entry.peer == "stillpoint.h")
}

#[test]
fn c_and_rust_have_rows_of_the_agreed_form() {
    let result =
        json(&run(&tiny(&["--scenarios", "calls,delays", "--contenders", "c,stillpoint", "--json"])));
    let rows = result["rows"].as_array().unwrap();
    let of = |scenario: &str, contender: &str| {
        let is_it = |row: &&Value| row["scenario"] == scenario && row["contender"] == contender;
        rows.iter().find(is_it).unwrap_or_else(|| panic!("{scenario}, {contender}"))
    };
    assert!(rows.iter().all(|row| row["experiment"] == "capi" && row.get("void").is_none()), "{rows:?}");
    let names: &[&str] = if has_header() { &["stillpoint", "c"] } else { &["stillpoint"] };
    for name in names {
        for (operation, reader) in [
            ("quiescent", "qsbr"),
            ("pin", "guard"),
            ("protect", "protected"),
            ("check", "qsbr"),
            ("lookup", "qsbr"),
            ("burst", "qsbr"),
        ] {
            let row = of(operation, &format!("{name}/{reader}"));
            assert!(row["metrics"]["ns_per_op"].as_f64().unwrap() > 0.0, "{row}");
        }
        if std::thread::available_parallelism().unwrap().get() > 1 {
            for (scenario, readers) in [("own-core", 1), ("one-core", 8)] {
                let row = of(scenario, &format!("{name}/protected"));
                assert_eq!(row["params"]["readers"], readers);
                assert_eq!(row["metrics"]["freed"], row["metrics"]["deletes"], "{row}");
            }
        }
    }
}

/// In a build without these peers, the scenarios of the others are measured.
#[test]
fn scenarios_of_peers_that_are_missing_are_left_out_unless_they_were_asked_for() {
    let is_missing = |peer: &str| stillpoint_peers::missing().iter().any(|missing| missing.peer == peer);
    let missing: Vec<(&str, &str)> =
        [("callbacks", "liburcu"), ("free-workers", "liburcu"), ("timers", "dpdk")]
            .into_iter()
            .filter(|(_, peer)| is_missing(peer))
            .collect();
    if missing.is_empty() {
        return; // the unit tests of the plan do not depend on the build
    }
    let output = run(&tiny(&["--contenders", "stillpoint/guard,liburcu,dpdk,drop-in", "--json"]));
    let result = json(&output);
    let rows = result["rows"].as_array().unwrap();
    let told = stderr(&output);
    assert!(rows.iter().any(|row| row["scenario"] == "pin"), "{told}");
    for (scenario, peer) in missing {
        let package =
            stillpoint_peers::missing().iter().find(|missing| missing.peer == peer).unwrap().package;
        let says = |text: &str| text.contains(&format!("no {scenario}: {peer}")) && text.contains(package);
        assert!(says(&told), "{told}");
        assert!(rows.iter().all(|row| row["scenario"] != scenario));
        let refused = run(&tiny(&["--scenarios", scenario]));
        assert_eq!(refused.status.code(), Some(2));
        assert!(says(&stderr(&refused)), "{}", stderr(&refused));
    }
}

#[test]
fn what_it_does_not_have_is_refused() {
    for (arguments, words) in [
        (&["--scenarios", "spread"][..], "capi has no scenario spread"),
        (&["--contenders", "papaya"], "capi has none of these contenders"),
        (&["--scenarios", "timers", "--contenders", "c"], "none of these contenders"),
    ] {
        let output = run(&tiny(arguments));
        assert!(output.status.code() != Some(0) && stderr(&output).contains(words), "{}", stderr(&output));
    }
}
