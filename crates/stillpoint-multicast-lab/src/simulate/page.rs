//! The tables of rows, for the terminal, the guide and the report, and the check that the guide agrees with the model.

use serde_json::Value;
use stillpoint_harness::output::format::rate;
use stillpoint_harness::output::json::Row;

use super::inputs::INPUTS;
use super::published::PUBLISHED;
use super::reach::REACH;
use super::sensitivity::{CONCLUSIONS, THRESHOLDS};

/// A table of a result.
#[derive(Debug)]
pub struct Table {
    /// What it shows.
    pub caption: &'static str,
    /// The names of the columns.
    pub header: &'static [&'static str],
    /// The lines.
    pub lines: Vec<Vec<String>>,
}

/// A table: its scenario, what it shows, the names of its columns, and the cells of a row.
type Columns = (&'static str, &'static str, &'static [&'static str], fn(&Row) -> Vec<String>);

const TABLES: [Columns; 5] = [
    (
        INPUTS,
        "Inputs: put in, so not results",
        &["input", "what it is", "value", "confidence", "source"],
        |row| {
            let cells = ["about", "shown", "confidence", "source"].map(|name| text(row, name));
            [row.contender.clone()].into_iter().chain(cells).collect()
        },
    ),
    (
        PUBLISHED,
        "Compared with published figures, the flat order first",
        &["the poster, or the kernel's benchmark", "the model", "verdict", "why"],
        |row| {
            let cells = ["ours", "verdict", "why"].map(|name| text(row, name));
            [row.contender.clone()].into_iter().chain(cells).collect()
        },
    ),
    (
        CONCLUSIONS,
        "Conclusions: a ratio above 1 where they hold",
        &["conclusion", "ratio", "one input changed", "all drawn", "verdict", "turned by"],
        |row| {
            let [ratio, least, most] = ["ratio", "ratio_least", "ratio_most"]
                .map(|name| row.shown(name, |ratio| format!("{ratio:.2}")));
            let drawn = percent(row, "draws_that_hold_percent");
            let [says, fate, turned] = ["says", "fate", "turned_by"].map(|name| text(row, name));
            vec![says, ratio, format!("{least} to {most}"), drawn, fate, turned]
        },
    ),
    (
        THRESHOLDS,
        "A hybrid's threshold: what it loses to the better order, at the worst number of receivers",
        &["flat up to", "these inputs", "the worst of all changed ones"],
        |row| vec![text(row, "threshold"), percent(row, "loss_percent"), percent(row, "loss_percent_worst")],
    ),
    (
        REACH,
        "What would let flat reach 10,000 grace periods a second: one input, or two by one factor; those that change nothing are left out",
        &["input", "value", "flat reaches 10k/s with", "the most with any value", "at"],
        |row| {
            let [value, needed, best] = ["shown", "needed", "best"].map(|name| text(row, name));
            vec![row.contender.clone(), value, needed, row.shown("most_hertz", rate), best]
        },
    ),
];

/// The table of the rows of this scenario, if there are any.
pub(super) fn table(rows: &[Row], scenario: &str) -> Option<Table> {
    let &(_, caption, header, cells) = TABLES.iter().find(|(of, ..)| *of == scenario)?;
    let of_this = |row: &&Row| row.experiment == "simulate" && row.scenario == scenario && row.void.is_none();
    let lines: Vec<_> = rows.iter().filter(of_this).map(cells).collect();
    (!lines.is_empty()).then_some(Table { caption, header, lines })
}

/// The inputs, the comparison with published figures, and the conclusions in these rows, for the report. A table without
/// lines is left out.
pub fn tables(rows: &[Row]) -> Vec<Table> {
    let named = |row: &Row| {
        let mut row = row.clone();
        if row.scenario == CONCLUSIONS {
            // The figure has the short name.
            let says = format!("{}: {}", row.contender, text(&row, "says"));
            row.params.insert("says".to_owned(), says.into());
        }
        row
    };
    let rows: Vec<Row> = rows.iter().map(named).collect();
    [INPUTS, PUBLISHED, CONCLUSIONS].into_iter().filter_map(|scenario| table(&rows, scenario)).collect()
}

fn percent(row: &Row, metric: &str) -> String {
    row.shown(metric, |percent| format!("{percent:.0} %"))
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{env, fs};

    use crate::device;
    use stillpoint_harness::output::table::markdown;

    use super::super::machine::Machine;
    use super::super::sensitivity::Analysis;
    use super::super::{inputs, published};
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
        let poster: Vec<Row> =
            published::compare(&machine, "seed", 1).into_iter().map(|line| line.row).collect();
        let mut conclusion =
            Row::new("simulate", CONCLUSIONS, "tree").with("says", "it is faster").with("fate", "stands");
        conclusion = conclusion.with("turned_by", vec!["one", "two"]);
        for (name, value) in
            [("ratio", 2.0), ("ratio_least", 1.5), ("ratio_most", 3.0), ("draws_that_hold_percent", 95.0)]
        {
            conclusion.put(name, value, 3);
        }
        let rows = [inputs::rows(&machine, "seed", ""), poster.clone(), vec![conclusion]].concat();
        let read = tables(&rows);
        assert_eq!(read.len(), 3);
        assert_eq!(
            read[0].lines[15],
            ["noise.jitter", "variation of each time, as a share", "0.1", "assumed", "none"]
        );
        assert_eq!(read[0].lines.len(), inputs::ALL.len() + 1);
        assert!(read[0].lines.iter().all(|line| !line[2].is_empty()));
        let cells = |row: &Row| {
            let fields = ["ours", "verdict", "why"].map(|name| row.params[name].as_str().unwrap().to_owned());
            [row.contender.clone()].into_iter().chain(fields).collect::<Vec<_>>()
        };
        assert_eq!(read[1].lines, poster.iter().map(cells).collect::<Vec<_>>());
        assert!(read[1].lines.iter().all(|line| line.iter().all(|cell| !cell.contains("{}"))));
        assert_eq!(
            read[2].lines,
            [["tree: it is faster", "2.00", "1.50 to 3.00", "95 %", "stands", "one, two"]]
        );
        assert!(tables(&[]).is_empty());
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
        has(
            "kernel/README.md",
            format!(
                "{{ .version = STILL_MB_VERSION, .strategy = STILL_MB_HYBRID, .threshold = {threshold} }}"
            ),
        );
        has("kernel/README.md", format!("STILLPOINT_MEMBARRIER=hybrid:{threshold} "));
        has("kernel/preload/interpose.c", format!("STILLPOINT_MEMBARRIER=hybrid:{threshold} "));
        has("docs/design/kernel.md", format!("flat up to {threshold} receivers"));
    }

    /// The tables of the book are those of the present model. `STILLPOINT_WRITE_PAGE=1` writes them.
    #[test]
    fn the_guide_says_what_the_model_says() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut pages = ["design/kernel.md"].map(|name| {
            let file = docs.join(name);
            let text = fs::read_to_string(&file).unwrap();
            (file, text)
        });
        let load = |name: &str| Machine::load(name).unwrap();
        let analysis = Analysis::of(&load("seed"), 1).unwrap();
        let poster = published::compare(&load("seed"), "seed", 1);
        let show = |rows: &[Row]| {
            let Table { header, lines, .. } = table(rows, &rows[0].scenario).unwrap();
            let header = header.iter().map(|&name| name.to_owned()).collect();
            markdown(&std::iter::once(header).chain(lines).collect::<Vec<_>>())
        };
        let beside = |lines: &[published::Beside]| {
            show(&lines.iter().map(|line| line.row.clone()).collect::<Vec<_>>())
        };
        let concluded = |scenario: &str| {
            let rows = analysis.rows(9).into_iter().filter(|row| row.scenario == scenario);
            show(&rows.collect::<Vec<_>>())
        };
        let (least, most) = analysis.crossovers();
        let found: Vec<(u64, f64)> = analysis
            .rows(9)
            .iter()
            .filter_map(|row| Some((row.param("threshold")?, row.metric("loss_percent_worst")?)))
            .collect();
        let least_worst = found.iter().map(|of| of.1).fold(f64::INFINITY, f64::min);
        let library = found.iter().find(|of| of.0 == u64::from(device::THRESHOLD));
        let library = library.expect("the library's threshold is among those that are compared");
        assert!(library.1 < least_worst + 0.5, "the library's threshold is not the best one: {found:?}");
        let blocks = [
            ("beside the poster", beside(&poster) + "\n" + &published::judgement(&poster).unwrap() + "\n"),
            ("conclusions", concluded(CONCLUSIONS)),
            (
                "thresholds",
                format!(
                    "{}\nFlat and tree take equally long at {least} to {most} receivers.\n",
                    concluded(THRESHOLDS)
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
