//! The command `report`: one page from the results of all experiments.
//!
//! The page needs no other file and no network. The verdict comes first, then each figure with the published figures beside it,
//! the machine, and the command that repeats it. The page contains the rows as JSON.

mod markdown;
mod page;
mod sections;
mod tasks;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use stillpoint_harness::error::Stop;
use stillpoint_harness::output::figures::Figure;
use stillpoint_harness::output::format::number_of;
use stillpoint_harness::output::json::{Place, Read};
use stillpoint_harness::output::{say, tell};
use stillpoint_harness::results;

/// The flags of `stillpoint report`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Results of bench, guest, simulate or torture, as written by `--json`, or folders with such files
    #[arg(value_name = "FILE|FOLDER", required = true)]
    files: Vec<PathBuf>,

    /// The page to write, or `-` for standard output
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,

    /// Write a page of Markdown instead, or `-`: the answer, and a line for each thing that a user does
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    markdown: Option<PathBuf>,
}

/// Reads the results and writes the page.
pub(crate) fn run(options: &Options, figures: &[&'static Figure]) -> Result<(), Stop> {
    let output = options.markdown.as_deref().unwrap_or(&options.output);
    let place = if output == Path::new("-") { None } else { Some(Place::open(output)?) };
    let (mut read, mut seen) = (Vec::new(), Vec::new());
    for place in &options.files {
        // The same result may be in two files, or a file be named twice.
        for result in results_in(place, &mut seen)? {
            if !read.contains(&result) {
                read.push(result);
            }
        }
    }
    if fs::canonicalize(output).is_ok_and(|output| seen.contains(&output)) {
        return Err(Stop::usage(format!("{} is one of the results: name another file", output.display())));
    }
    let text = match options.markdown {
        Some(_) => markdown::text(&read),
        None => page::text(&read, figures)?,
    };
    let Some(place) = place else {
        say(text.trim_end());
        return Ok(());
    };
    place.write(text.as_bytes())?;
    let rows: usize = read.iter().map(|read| read.rows.len()).sum();
    say(format!("{}: {}", output.display(), number_of(rows as u64, "row")));
    Ok(())
}

/// The result in a file, or all results in a folder, without its other files. Adds the files that it looks at to `seen`.
fn results_in(place: &Path, seen: &mut Vec<PathBuf>) -> Result<Vec<Read>, Stop> {
    if !place.is_dir() {
        seen.extend(fs::canonicalize(place));
        return Ok(vec![Read::from(place)?]);
    }
    let refused = |why: String| {
        Stop::usage(format!("{}: {why}; name a folder with files that --json wrote", place.display()))
    };
    let entries = fs::read_dir(place).map_err(|error| refused(error.to_string()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut read = Vec::new();
    for file in files {
        seen.extend(fs::canonicalize(&file));
        match Read::from(&file) {
            Ok(result) => read.push(result),
            Err(why) => tell(format!("left out: {why}")),
        }
    }
    if read.is_empty() { Err(refused("there are no results in it".to_owned())) } else { Ok(read) }
}

/// Writes the page of results.
pub(crate) fn write(file: &Path, read: &[Read], figures: &[&'static Figure]) -> Result<(), Stop> {
    results::write(file, page::text(read, figures)?.as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stillpoint_harness::output::figures::{self, Ground};
    use stillpoint_harness::output::json::Row;

    use super::*;
    use crate::experiment::Plan;
    use crate::{micro, preempt, reclaim};

    fn read(rows: Vec<Row>) -> Read {
        let text = json!({
            "schema": 1,
            "command": "stillpoint bench micro --json 'a </script><b>.json'",
            "machine": { "model": "a <processor>", "peers": { "liburcu": "0.13" } },
            "rows": rows,
        });
        serde_json::from_value(text).unwrap()
    }

    fn cost(scenario: &str, contender: &str, nanoseconds: f64) -> Row {
        let mut row = Row::new("micro", scenario, contender);
        row.put("ns_per_op", nanoseconds, 3);
        row
    }

    fn page(rows: Vec<Row>) -> String {
        page::text(&[read(rows)], micro::Plan::FIGURES).unwrap()
    }

    #[test]
    fn the_verdict_names_what_is_behind_and_what_is_ahead() {
        let rows = vec![
            cost("pin", "stillpoint/guard", 2.0),
            cost("pin", "crossbeam-epoch", 8.0),
            cost("retire", "stillpoint/qsbr", 30.0),
            cost("retire", "ck/epoch", 15.0),
            cost("heavy", "liburcu/mb", 15.0),
        ];
        let page = page(rows);
        for part in [
            "Figures that compare this library with others: 1.",
            "0.50x",
            "4.00x",
            "stillpoint/guard 2 ns beside crossbeam-epoch 8 ns",
            "class=\"behind\"",
        ] {
            assert!(page.contains(part), "'{part}' is missing");
        }
    }

    #[test]
    fn the_page_says_what_disturbed_a_run() {
        let foreign = |row: Row| {
            let mut row = row;
            row.put("foreign_cpus", 0.5, 3);
            row
        };
        let disturbed = foreign(cost("pin", "stillpoint/guard", 2.0).with("round_s", 1.0));
        assert!(
            page(vec![disturbed.clone()])
                .contains("Other programs ran on these CPUs during 1 of 1 watched row ")
        );
        // It is not ahead by such a row.
        let rows = vec![disturbed, cost("pin", "crossbeam-epoch", 8.0).with("round_s", 1.0)];
        let said = page(rows.clone());
        assert!(
            said.contains("and in 0 it is")
                && said.contains("1 are undecided")
                && !said.contains("class=\"ahead\">4"),
            "{said}"
        );
        let book = markdown::text(&[read(rows)]);
        assert!(book.contains("| disturbed |") && !book.contains("4.00x"), "{book}");
        // One that only seems to be worse than the best leaves open who is best.
        let rows = vec![
            cost("pin", "stillpoint/guard", 2.0),
            cost("pin", "crossbeam-epoch", 8.0),
            foreign(cost("pin", "liburcu/memb", 30.0).with("round_s", 1.0)),
        ];
        let book = markdown::text(&[read(rows)]);
        assert!(book.contains("| disturbed |") && !book.contains("4.00x"), "{book}");
        // Of another experiment, or another program: nothing is known.
        let unknown = foreign(cost("pin", "stillpoint/guard", 2.0));
        assert!(!page(vec![unknown]).contains("Other programs"));
    }

    /// A chart's name omits what is the same in all its rows, so it is another one if only those of one setting are quiet.
    #[test]
    fn a_setting_that_is_disturbed_leaves_the_others_decided() {
        let period = |workload: &str, contender: &str, microseconds: f64, foreign_cpus: f64| {
            let row = Row::new("preempt", "overcommit", contender).with("workload", workload);
            let mut row = row.with("readers_per_core", 8).with("round_s", 1.0);
            row.put("gp_us_mean", microseconds, 3);
            row.put("foreign_cpus", foreign_cpus, 3);
            row
        };
        let rows = vec![
            period("mail", "stillpoint/protected", 10.0, 0.0),
            period("mail", "liburcu/memb", 40.0, 0.0),
            period("memory", "stillpoint/protected", 10.0, 0.5),
            period("memory", "liburcu/memb", 40.0, 0.5),
        ];
        let results = [read(rows)];
        let sections = sections::of(&results, preempt::Plan::FIGURES);
        let charts = sections.iter().flat_map(|section| &section.charts);
        let places: Vec<(bool, usize)> = charts
            .filter(|shown| shown.chart.figure.name == "grace-periods")
            .map(|shown| (shown.chart.file().contains("mail"), shown.disturbed.len()))
            .collect();
        assert_eq!(places, [(true, 0), (false, 1)]);
    }

    #[test]
    fn nothing_in_the_results_becomes_markup() {
        let mut void = cost("pin", "<i>me</i>", 1.0);
        void.void = Some("<script>alert(1)</script>".to_owned());
        let page = page(vec![void, cost("pin", "stillpoint/guard", 2.0)]);
        let scripts = page.matches("<script").count();
        // The second one is text within the JSON: only `</` could end it.
        assert_eq!((scripts, page.matches("</script").count()), (2, 1));
        assert!(!page.contains("<b>.json") || page.contains("<\\/script><b>"));
        assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("a &lt;processor&gt;"));
    }

    #[test]
    fn the_page_has_the_tables_of_a_simulation() {
        let mut input = Row::new("simulate", "inputs", "noise.jitter")
            .with("about", "variation of each time")
            .with("confidence", "assumed")
            .with("source", "none")
            .with("shown", "0.1");
        input.put("value", 0.1, 3);
        let published = Row::new("simulate", "published", "figure 1: flat is linear")
            .with("ours", "at most 4 % off")
            .with("verdict", "agrees")
            .with("why", "each receiver < is a push");
        let mut conclusion = Row::new("simulate", "conclusions", "tree")
            .with("says", "the tree is faster than flat")
            .with("fate", "withdrawn")
            .with("turned_by", vec!["noise.jitter doubled"]);
        conclusion.put("ratio", 6.0, 3);
        let rows = vec![input, published, conclusion];
        let page = page(rows.clone());
        for part in [
            "aria-label=\"Inputs: put in, so not results\"",
            "<th scope=\"row\">noise.jitter</th><td>variation of each time</td><td>0.1</td><td>assumed</td>",
            "<th scope=\"col\">the model</th>",
            "<td>each receiver &lt; is a push</td>",
            "<th scope=\"row\">tree: the tree is faster than flat</th><td>6.00</td>",
            "<td>withdrawn</td><td>noise.jitter doubled</td>",
        ] {
            assert!(page.contains(part), "'{part}' is missing in {page}");
        }
        assert!(!page.contains("There are no figures"));
        // Another experiment has none of them.
        assert!(!self::page(vec![cost("inputs", "stillpoint/guard", 2.0)]).contains("Inputs: put in"));
    }

    #[test]
    fn the_page_asks_no_other_host() {
        let page = page(vec![cost("pin", "stillpoint/guard", 2.0), cost("pin", "seize", 3.0)]);
        let foreign = page.match_indices("http").map(|(at, _)| &page[at..at + 40]);
        // The name of SVG's namespace is not an address that a browser loads.
        let asked: Vec<&str> = foreign.filter(|address| !address.contains("www.w3.org/2000/svg")).collect();
        assert!(asked.is_empty(), "{asked:?}");
        assert!(!page.contains("src=") && !page.contains("@import") && !page.contains("url("));
    }

    #[test]
    fn all_rows_are_in_the_page() {
        let rows = vec![cost("pin", "stillpoint/guard", 2.0), cost("pin", "seize", 3.0)];
        let page = page(rows.clone());
        let from = page.find("id=\"results\">").unwrap() + "id=\"results\">".len();
        let data = &page[from..from + page[from..].find("</script>").unwrap()];
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data[0]["rows"], serde_json::to_value(rows).unwrap());
    }

    #[test]
    fn the_page_of_the_book_has_a_line_for_what_a_user_does_and_losses_in_bold() {
        let mut void = cost("pin", "liburcu/mb", 1.0);
        void.void = Some("freed too early".to_owned());
        let of = |ours, theirs| {
            let again = cost("pin", "stillpoint/guard (again)", ours * 1.03);
            let slower = cost("pin", "seize", 9.0);
            let rows = vec![
                cost("pin", "stillpoint/guard", ours),
                cost("pin", "crossbeam-epoch", theirs),
                void.clone(),
                again,
                slower,
            ];
            markdown::text(&[read(rows)])
        };
        let (ahead, behind, even) = (of(2.0, 8.0), of(8.0, 2.0), of(2.0, 2.04));
        for part in [
            "`cargo run --release -- bench micro --json",
            "; 5 rows\n  **1 of 5 rows do not count; the reasons are below.**",
            "- micro: pin, liburcu/mb does not count: freed too early",
            "| enter a region and leave it | 2 ns (`stillpoint/guard`) | 8 ns (`crossbeam-epoch`) | 4.00x | 3 % |",
        ] {
            assert!(ahead.contains(part), "'{part}' is missing in {ahead}");
        }
        assert!(
            behind.contains("| 8 ns (`stillpoint/guard`) | 2 ns (`crossbeam-epoch`) | **0.25x** |"),
            "{behind}"
        );
        assert!(even.contains("| 1.02x, even |"), "{even}");
    }

    /// A line names some parameters only; the rows beside ours have the others as well, except for those of a contender itself.
    #[test]
    fn the_page_of_the_book_compares_rows_of_one_setting() {
        let delay = |contender: &str, readers: u64, policy: &str, delay: f64| {
            let mut row =
                Row::new("reclaim", "own-core", contender).with("readers", readers).with("policy", policy);
            row.put("delay_us_mean", delay, 3);
            row
        };
        let (ours, again) = ("stillpoint/protected", "stillpoint/protected (again)");
        let rows = vec![
            delay(ours, 1, "delete", 2.0),
            delay(ours, 8, "delete", 6.0),
            delay("dpdk/rcu", 8, "background", 1.0),
            delay("dpdk/rcu", 1, "background", 8.0),
            delay(again, 8, "delete", 6.0),
            delay(again, 1, "delete", 2.2),
        ];
        let page = markdown::text(&[read(rows.clone())]);
        let line = "| 2 µs (`stillpoint/protected`) | 8 µs (`dpdk/rcu`) | 4.00x | 10 % |";
        assert!(page.contains(line), "{page}");
        // With nothing beside it in its setting, there is no line.
        let alone: Vec<Row> = [0, 1, 2].into_iter().map(|at| rows[at].clone()).collect();
        let page = markdown::text(&[read(alone)]);
        assert!(!page.contains("`dpdk/rcu`"), "{page}");
    }

    #[test]
    fn the_page_of_the_book_and_the_bars_compare_by_the_same_parameters() {
        let judge = std::fs::read_to_string(docs().join("../.ci/judge")).unwrap();
        let names = tasks::OF_CONTENDER.map(|name| format!("\"{name}\"")).join(", ");
        assert!(judge.contains(&format!("apart = ({names}, but)")), "{names}");
    }

    #[test]
    fn the_page_begins_with_the_question_and_folds_the_rest() {
        let row = |scenario: &str, readers: u64, contender: &str, delay: f64| {
            let mut row =
                Row::new("reclaim", scenario, contender).with("readers", readers).with("round_s", 1.0);
            row.put("delay_us_mean", delay, 3);
            row
        };
        let mut rows = Vec::new();
        for (contender, times) in
            [("stillpoint/protected", 1.0), ("dpdk/rcu", 100.0), ("dpdk/rcu+poll", 200.0)]
        {
            rows.push(row("own-core", 1, contender, 100.0));
            rows.extend([8, 16].map(|readers| row("one-core", readers, contender, 100.0 * times)));
        }
        let of = |rows: Vec<Row>| page::text(&[read(rows)], reclaim::Plan::FIGURES).unwrap();
        let page = of(rows.clone());
        let (before, _) = page.split_once("<details><summary>All figures").unwrap();
        assert!(
            before.contains("<h1>Do preempted readers stall memory here?</h1><p><strong>Yes, that of dpdk."),
            "{before}"
        );
        assert!(before.contains("the best of each library") && !before.contains("dpdk/rcu+poll"), "{before}");
        // A run that does not tell has no verdict here either.
        rows.iter_mut().for_each(|row| row.put("foreign_cpus", 0.5, 3));
        assert!(of(rows).contains("<p><strong>This run does not tell"));
        assert!(self::page(vec![cost("pin", "seize", 2.0)]).contains("<details open><summary>"));
    }

    /// A file below `docs` has this text. `STILLPOINT_WRITE_PAGE=1` writes it.
    fn is_written(name: &str, text: &str) {
        let file = docs().join(name);
        if std::env::var_os("STILLPOINT_WRITE_PAGE").is_some() {
            std::fs::write(&file, text).unwrap();
        }
        assert!(
            std::fs::read_to_string(&file).unwrap() == text,
            "docs/{name} does not agree with docs/results: STILLPOINT_WRITE_PAGE=1 writes it"
        );
    }

    fn docs() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
    }

    #[test]
    fn the_book_says_what_was_measured() {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(docs().join("results")).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let read: Vec<Read> = files.iter().map(|file| Read::from(file).unwrap()).collect();
        let page = markdown::text(&read);
        for task in tasks::all() {
            let tasks::Task::Line(line) = task else { continue };
            assert!(read.iter().any(|read| line.cells(&read.rows).is_some()), "{line:?} was not measured");
        }
        assert!(page.lines().count() <= 150, "{} lines", page.lines().count());
        is_written("guide/performance.md", &page);
    }

    /// Each name in the rows, and each source that a figure is compared with, stands in the page with its words.
    #[test]
    fn the_page_explains_every_name_that_it_shows() {
        let read = Read::from(&docs().join("results/bench.json")).unwrap();
        let mut names: Vec<String> =
            vec!["the talk".to_owned(), "the paper".to_owned(), "the poster".to_owned()];
        for row in &read.rows {
            names.extend([row.scenario.clone(), row.contender.trim_end_matches(" (again)").to_owned()]);
        }
        let page = page::text(&[read], &crate::figures()).unwrap();
        for name in names {
            assert!(page.contains(&format!("<dt>{name}</dt><dd>")), "{name} is not explained");
        }
    }

    /// That of the README also for a dark ground.
    #[test]
    fn the_pictures_show_what_was_measured() {
        let is_drawn = |result: &str, of: &[&'static Figure], figure: &str, ground: Ground, name: &str| {
            let read = Read::from(&docs().join("results").join(result)).unwrap();
            let charts = figures::charts(of, &read.rows);
            let chart = charts.iter().find(|chart| chart.figure.name == figure).unwrap();
            is_written(&format!("pictures/{name}.svg"), &figures::svg(chart, ground).unwrap());
        };
        for (ground, name) in [(Ground::Light, "delay"), (Ground::Dark, "delay-dark")] {
            is_drawn("one-core.json", reclaim::Plan::FIGURES, "delay-one-core", ground, name);
        }
        is_drawn("one-core.json", reclaim::Plan::FIGURES, "lookups", Ground::Light, "lookups");
        is_drawn("bench.json", preempt::Plan::FIGURES, "peak-pending", Ground::Light, "memory");
    }
}
