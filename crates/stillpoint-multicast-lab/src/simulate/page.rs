//! The tables as cells, for the terminal, the guide and the report, and the check that the guide agrees with the model.

use serde_json::Value;
use stillpoint_harness::output::json::Row;

use super::inputs::{INPUTS, Line};
use super::published::{Beside, PUBLISHED};
use super::sensitivity::{Analysis, CONCLUSIONS, Change};

type Cells = Vec<Vec<String>>;

const OF_INPUTS: &[&str] = &["input", "what it is", "value", "confidence", "source"];
const OF_PUBLISHED: &[&str] = &["the poster, or the kernel's benchmark", "the model", "verdict", "why"];
const OF_CONCLUSIONS: &[&str] =
    &["conclusion", "ratio", "one input changed", "all drawn", "verdict", "turned by"];
/// What the tables show. The terminal has the same captions.
pub(super) const INPUTS_ARE: &str = "Inputs: put in, so not results";
pub(super) const PUBLISHED_ARE: &str = "Compared with published figures, the flat order first";
pub(super) const CONCLUSIONS_ARE: &str = "Conclusions: a ratio above 1 where they hold";

/// A table of a result that was read again.
#[derive(Debug)]
pub struct Table {
    /// What it shows.
    pub caption: &'static str,
    /// The names of the columns.
    pub header: &'static [&'static str],
    /// The lines.
    pub lines: Vec<Vec<String>>,
}

/// The inputs, the comparison with published figures, and the conclusions in these rows. A table without lines is left out.
pub fn tables(rows: &[Row]) -> Vec<Table> {
    type OfRow = fn(&Row) -> Vec<String>;
    let tables: [(&str, &str, &[&str], OfRow); 3] = [
        (INPUTS, INPUTS_ARE, OF_INPUTS, |row| {
            vec![
                row.contender.clone(),
                text(row, "about"),
                shown(row),
                text(row, "confidence"),
                text(row, "source"),
            ]
        }),
        (PUBLISHED, PUBLISHED_ARE, OF_PUBLISHED, |row| {
            vec![row.contender.clone(), text(row, "ours"), text(row, "verdict"), text(row, "why")]
        }),
        (CONCLUSIONS, CONCLUSIONS_ARE, OF_CONCLUSIONS, |row| {
            let ratio = |name| row.shown(name, |ratio| format!("{ratio:.2}"));
            vec![
                // The figure has the short name.
                format!("{}: {}", row.contender, text(row, "says")),
                ratio("ratio"),
                format!("{} to {}", ratio("ratio_least"), ratio("ratio_most")),
                row.shown("draws_that_hold_percent", |percent| format!("{percent:.0} %")),
                text(row, "fate"),
                text(row, "turned_by"),
            ]
        }),
    ];
    let table = |(scenario, caption, header, cells): (&str, &'static str, &'static [&'static str], OfRow)| {
        let of_this =
            |row: &&Row| row.experiment == "simulate" && row.scenario == scenario && row.void.is_none();
        let lines: Vec<_> = rows.iter().filter(of_this).map(cells).collect();
        (!lines.is_empty()).then_some(Table { caption, header, lines })
    };
    tables.into_iter().filter_map(table).collect()
}

/// A parameter as text; a list has commas.
fn text(row: &Row, name: &str) -> String {
    let one = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match row.params.get(name) {
        None => String::new(),
        Some(Value::Array(values)) => values.iter().map(one).collect::<Vec<_>>().join(", "),
        Some(value) => one(value),
    }
}

/// The value of an input. Rows of older programs have it without its unit.
fn shown(row: &Row) -> String {
    if row.params.contains_key("shown") {
        return text(row, "shown");
    }
    match row.metrics.get("values") {
        Some(Value::Array(values)) => values.iter().map(Value::to_string).collect::<Vec<_>>().join(", "),
        _ => row.metrics.get("value").map(Value::to_string).unwrap_or_default(),
    }
}

fn table<T>(header: &[&str], lines: &[T], cells: impl Fn(&T) -> Vec<String>) -> Cells {
    let header = header.iter().map(|&name| name.to_owned()).collect();
    std::iter::once(header).chain(lines.iter().map(cells)).collect()
}

pub(super) fn inputs(lines: &[Line]) -> Cells {
    table(OF_INPUTS, lines, |line| {
        let cells = [line.name, line.about, &line.value, line.confidence.name(), &line.source];
        cells.map(str::to_owned).to_vec()
    })
}

pub(super) fn published(lines: &[Beside]) -> Cells {
    table(OF_PUBLISHED, lines, |line| {
        [line.theirs, &line.ours, line.verdict.name(), &line.why].map(str::to_owned).to_vec()
    })
}

pub(super) fn conclusions(analysis: &Analysis) -> Cells {
    table(OF_CONCLUSIONS, &analysis.fates(), |fate| {
        let turned: Vec<String> = fate.turned_by.iter().map(|change: &Change| change.name()).collect();
        vec![
            fate.says.to_owned(),
            format!("{:.2}", fate.ratio),
            format!("{:.2} to {:.2}", fate.least, fate.most),
            format!("{:.0} %", fate.drawn * 100.0),
            fate.word().to_owned(),
            turned.join(", "),
        ]
    })
}

pub(super) fn thresholds(analysis: &Analysis) -> Cells {
    table(&["flat up to", "these inputs", "the worst of all changed ones"], &analysis.thresholds(), |of| {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        vec![of.threshold.to_string(), percent(of.loss), percent(of.worst)]
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{env, fs};

    use crate::device;
    use stillpoint_harness::output::table::markdown;

    use super::super::inputs::{self as sources, Confidence, Origin};
    use super::super::machine::Machine;
    use super::super::published as beside;
    use super::*;

    /// The text between the marks of this name.
    fn between<'t>(text: &'t str, name: &str) -> &'t str {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let (_, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("'{begin}' is not on the page"));
        rest.split_once(&end).unwrap_or_else(|| panic!("'{end}' is not on the page")).0
    }

    #[test]
    fn a_result_that_was_read_again_has_the_same_tables() {
        let machine = Machine::load("seed").unwrap();
        let origin = Origin { base: "seed", other: (Confidence::Given, String::new()) };
        let (lines, poster) = (sources::table(&machine, &origin), beside::compare(&machine, "seed", 1));
        let mut conclusion =
            Row::new("simulate", CONCLUSIONS, "tree").with("says", "it is faster").with("fate", "stands");
        conclusion = conclusion.with("turned_by", vec!["one", "two"]);
        for (name, value) in
            [("ratio", 2.0), ("ratio_least", 1.5), ("ratio_most", 3.0), ("draws_that_hold_percent", 95.0)]
        {
            conclusion.put(name, value, 3);
        }
        let rows = [sources::rows(&lines), beside::rows(&poster), vec![conclusion]].concat();
        let read = tables(&rows);
        let cells = |table: &Table| {
            let header = table.header.iter().map(|&name| name.to_owned()).collect();
            std::iter::once(header).chain(table.lines.iter().cloned()).collect::<Cells>()
        };
        assert_eq!(read.len(), 3);
        assert_eq!(cells(&read[0]), inputs(&lines));
        assert_eq!(cells(&read[1]), published(&poster));
        assert_eq!(
            read[2].lines,
            [["tree: it is faster", "2.00", "1.50 to 3.00", "95 %", "stands", "one, two"]]
        );
        assert!(tables(&[]).is_empty());
        // A program before this one wrote no text of the values.
        let mut old = sources::rows(&lines);
        old.iter_mut().for_each(|row| drop(row.params.remove("shown")));
        assert!(tables(&old)[0].lines.iter().all(|line| !line[2].is_empty()));
    }

    /// A number that was withdrawn must not stay in an example.
    #[test]
    fn the_examples_of_the_module_have_the_threshold_of_the_library() {
        let threshold = device::THRESHOLD;
        let has = |file: &str, part: String| {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
            assert!(
                fs::read_to_string(&file).unwrap().contains(&part),
                "'{part}' is not in {}",
                file.display()
            );
        };
        has("kernel/README.md", format!(".threshold = {threshold} }}"));
        has("kernel/README.md", format!("STILLPOINT_MEMBARRIER=hybrid:{threshold} "));
        has("kernel/preload/interpose.c", format!("STILLPOINT_MEMBARRIER=hybrid:{threshold} "));
        has("docs/design/kernel.md", format!("flat up to {threshold} receivers"));
    }

    /// The tables of the book are those of the present model. `STILLPOINT_WRITE_PAGE=1` writes them.
    #[test]
    fn the_guide_says_what_the_model_says() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut pages = ["guide/laboratory.md", "design/kernel.md"].map(|name| {
            let file = docs.join(name);
            let text = fs::read_to_string(&file).unwrap();
            (file, text)
        });
        let load = |name: &str| Machine::load(name).unwrap();
        let origin = |base| Origin { base, other: (Confidence::Given, String::new()) };
        let analysis = Analysis::of(&load("seed"), 1).unwrap();
        let poster = beside::compare(&load("seed"), "seed", 1);
        let (least, most) = analysis.crossovers();
        let thresholds_found = analysis.thresholds();
        let least_worst = thresholds_found.iter().map(|of| of.worst).fold(f64::INFINITY, f64::min);
        let library = thresholds_found.iter().find(|of| of.threshold == device::THRESHOLD);
        let library = library.expect("the library's threshold is among those that are compared");
        assert!(
            library.worst < least_worst + 0.005,
            "the library's threshold is not the best one: {thresholds_found:?}"
        );
        let blocks = [
            ("inputs of seed", markdown(&inputs(&sources::table(&load("seed"), &origin("seed"))))),
            ("inputs of kvm", {
                let seed = sources::table(&load("seed"), &origin("seed"));
                let mut lines = sources::table(&load("kvm"), &origin("kvm"));
                lines.retain(|line| !seed.contains(line));
                markdown(&inputs(&lines))
            }),
            (
                "beside the poster",
                markdown(&published(&poster)) + "\n" + &beside::judgement(&poster).unwrap() + "\n",
            ),
            ("beside the kernel", markdown(&published(&beside::compare(&load("kvm"), "kvm", 1)))),
            ("conclusions", markdown(&conclusions(&analysis))),
            (
                "thresholds",
                format!(
                    "{}\nFlat and tree take equally long at {least} to {most} receivers.\n",
                    markdown(&thresholds(&analysis))
                ),
            ),
        ];
        let mut wrong = Vec::new();
        for (name, says) in blocks {
            let mut texts = pages.iter_mut().map(|(_, text)| text);
            let page = texts.find(|text| text.contains(&format!("<!-- {name} -->")));
            let page = page.unwrap_or_else(|| panic!("'{name}' is on no page"));
            let found = between(page, name).to_owned();
            if found != says {
                *page = page.replacen(
                    &format!("<!-- {name} -->\n{found}"),
                    &format!("<!-- {name} -->\n{says}"),
                    1,
                );
                wrong.push(name);
            }
        }
        if env::var_os("STILLPOINT_WRITE_PAGE").is_some() {
            pages.iter().for_each(|(file, text)| fs::write(file, text).unwrap());
        } else {
            assert!(
                wrong.is_empty(),
                "the guide differs from the model in {wrong:?}; run the test with STILLPOINT_WRITE_PAGE=1 to write the tables anew"
            );
        }
    }
}
