//! `stillpoint report`, and the pages of `bench --report`, as a browser shows them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use stillpoint_harness::output::format::number;

use crate::common::{json, run, stderr, stdout};
use crate::skip::skipped;

const MICRO: &[&str] =
    &["bench", "micro", "--contenders", "stillpoint,seize,haphazard", "--duration", "9ms", "--rounds", "1"];

/// What the book shows.
const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");

/// The names of Chromium, and of browsers that are built on it.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// What the browser reports about a page: a value for each of two widths.
fn looked_at(browser: &str, folder: &Path, dark: bool) -> Value {
    fs::write(folder.join("look.html"), include_str!("report.html")).unwrap();
    let scheme = format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 });
    let output = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--allow-file-access-from-files",
        ])
        .args(["--enable-logging=stderr", "--virtual-time-budget=20000", "--window-size=1400,1000", &scheme])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", folder.join("look.html").display()))
        .output()
        .unwrap();
    let (page, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    let complaints: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    let from = page.find("id=\"found\">").unwrap_or_else(|| panic!("{page}\n{said}")) + "id=\"found\">".len();
    let found = &page[from..from + page[from..].find('<').unwrap()];
    let byte = |at: usize| u8::from_str_radix(&found[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..found.len()).step_by(2).map(byte).collect();
    serde_json::from_slice(&bytes).unwrap()
}

/// The table behind each figure of the page: the title, and the cells of each line.
fn tables(look: &Value) -> Vec<(String, Vec<Vec<String>>)> {
    serde_json::from_value(look["tables"].clone()).unwrap()
}

/// Checks that the table of `micro` has each figure of the result.
fn assert_shows(look: &Value, result: &Value) {
    let tables = tables(look);
    let (_, table) = tables.iter().find(|(title, _)| title == "Costs of single operations").unwrap();
    let column = |name: &str| table[0].iter().position(|cell| cell == name);
    let mut compared = 0;
    for row in result["rows"].as_array().unwrap() {
        let text = |name: &str| row[name].as_str().unwrap();
        // A contender that is measured twice is shown once. malloc is not shown.
        let Some(column) = column(text("contender")) else { continue };
        let line = table.iter().find(|line| line[0] == text("scenario")).unwrap();
        assert_eq!(line[column], number(row["metrics"]["ns_per_op"].as_f64().unwrap()), "{row}");
        compared += 1;
    }
    assert!(compared >= 8, "{compared} figures were compared");
}

/// Checks that each number in the tables is a figure of the contender that it stands beside or below, or a published one. Returns
/// how many are figures of contenders.
fn compared(look: &Value, results: &[Value]) -> usize {
    let mut figures: HashMap<&str, HashSet<String>> = HashMap::new();
    for row in results.iter().flat_map(|result| result["rows"].as_array().unwrap()) {
        let of_contender = figures.entry(row["contender"].as_str().unwrap()).or_default();
        of_contender
            .extend(row["metrics"].as_object().unwrap().values().filter_map(Value::as_f64).map(number));
    }
    // A name may be followed by settings.
    let of = |name: &str| figures.get(name.split(", ").next().unwrap_or(name));
    let mut compared = 0;
    for (title, lines) in tables(look) {
        let header = &lines[0];
        for line in &lines[1..] {
            for (cell, above) in line.iter().zip(header).skip(1).filter(|(cell, _)| !cell.is_empty()) {
                let Some(figures) = of(&line[0]).or_else(|| of(above)) else {
                    assert!(above.starts_with("RFC: "), "{title}: nobody measured {} at {above}", line[0]);
                    continue;
                };
                assert!(figures.contains(cell), "{title}: {cell} of {} at {above} was not measured", line[0]);
                compared += 1;
            }
        }
    }
    compared
}

/// A browser, if one is installed.
fn browser() -> Option<&'static str> {
    let is_there = |browser: &&str| {
        Command::new(browser).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    BROWSERS.into_iter().find(is_there)
}

/// Looks at the page at both widths. Nothing may be cut off, be left undrawn, or lead nowhere.
fn sound_looks(browser: &str, folder: &Path, dark: bool) -> Vec<Value> {
    let looks: Vec<Value> = serde_json::from_value(looked_at(browser, folder, dark)).unwrap();
    assert_eq!(looks.len(), 2);
    for (look, width) in looks.iter().zip([390, 1280]) {
        assert_eq!(look["width"], width);
        let wider = &look["wider"];
        assert!(wider.as_i64().unwrap() <= 0, "at {width} the page has to be scrolled sideways by {wider}");
        // The answer, or what stands first, is on the first screen of a phone.
        assert!(look["first"].as_f64().unwrap() < 844.0, "{}", look["first"]);
        assert_eq!(look["drawn"], true);
        assert_eq!((&look["unreachable"], &look["dead"]), (&Value::from(0), &Value::from(0)));
    }
    looks
}

#[test]
fn a_browser_shows_what_the_json_says_at_each_width_on_each_ground() {
    let Some(browser) = browser() else { return skipped("chromium is not installed") };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let result = json(&run(&[MICRO, &["--json"]].concat()));
    fs::write(path("a.json"), result.to_string()).unwrap();
    let output = run(&["report", &path("a.json"), "--output", &path("report.html")]);
    assert!(output.status.success(), "{}", stderr(&output));

    let mut grounds = Vec::new();
    for dark in [false, true] {
        for look in sound_looks(browser, folder.path(), dark) {
            assert_shows(&look, &result);
            grounds.push(look["ground"].clone());
        }
    }
    assert_ne!(grounds[0], grounds[2], "the dark page has the background of the light one");
}

/// The page of all that the book shows, which has every experiment of `bench`.
#[test]
fn a_browser_shows_the_figures_of_every_experiment() {
    let Some(browser) = browser() else { return skipped("chromium is not installed") };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html").display().to_string();
    let output = run(&["report", RESULTS, "--output", &page]);
    assert!(output.status.success(), "{}", stderr(&output));
    let results: Vec<Value> = fs::read_dir(RESULTS)
        .unwrap()
        .map(|entry| serde_json::from_slice(&fs::read(entry.unwrap().path()).unwrap()).unwrap())
        .collect();
    for look in sound_looks(browser, folder.path(), false) {
        let compared = compared(&look, &results);
        assert!(compared > 900, "{compared} figures were compared");
    }
}

#[test]
fn a_run_leaves_a_page_with_all_that_it_is_made_from() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("made/here");
    let output = run(&[MICRO, &["--report", &inside.display().to_string()]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    for name in
        ["index.html", "results.json", "results.csv", "figures/operations.svg", "figures/operations-dark.svg"]
    {
        assert!(inside.join(name).metadata().is_ok_and(|file| file.len() > 500), "{name}");
    }
    let page = fs::read_to_string(inside.join("index.html")).unwrap();
    assert!(page.contains("Verdict") && page.contains("cargo run --release -- bench micro"), "{page}");
}

#[test]
fn a_folder_stands_for_the_results_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let report = || run(&["report", &path(""), "--output", &path("a.html")]);
    fs::write(path("wrong.json"), "{\"schema\": 7}").unwrap();
    fs::write(path("notes.txt"), "no result").unwrap();
    let none = report();
    assert_eq!(none.status.code(), Some(2));
    assert!(
        stderr(&none).contains("no results in it; name a folder with files that --json wrote"),
        "{none:?}"
    );
    let result = fs::read_to_string(Path::new(RESULTS).join("one-core.json")).unwrap();
    let another = result.replacen("stillpoint bench", "stillpoint bench --full", 1);
    for (name, text) in [("b.json", &result), ("a.json", &another), ("again.json", &another)] {
        fs::write(path(name), text).unwrap();
    }
    let both = report();
    assert!(both.status.success(), "{}", stderr(&both));
    assert!(stderr(&both).contains("left out: ") && stderr(&both).contains("wrong.json"), "{both:?}");
    let page = fs::read_to_string(path("a.html")).unwrap();
    assert_eq!(page.matches("To repeat it: ").count(), 2);
    let again = run(&["report", &path(""), &path("b.json"), &path(""), "--output", "-"]);
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(
        stdout(&again).trim_end(),
        page.trim_end(),
        "each file counts once, and `-` is standard output"
    );
}

#[test]
fn what_is_no_result_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("wrong.json"), "{\"schema\": 7}").unwrap();
    assert!(run(&["doctor", "--json", &path("doctor.json")]).status.success());
    for (file, why) in [
        (path("wrong.json"), "not a result"),
        (path("none.json"), "cannot read"),
        (path("doctor.json"), "has no rows"),
    ] {
        let output = run(&["report", &file, "--output", &path("a.html")]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(why) && stderr(&output).contains(&file), "{}", stderr(&output));
    }
    assert!(!folder.path().join("a.html").exists());
}
