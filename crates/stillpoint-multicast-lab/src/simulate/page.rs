//! The tables as cells, for the terminal and for the guide, and the check that the guide agrees with the model.

use super::inputs::Line;
use super::published::Beside;
use super::sensitivity::{Analysis, Change};

type Cells = Vec<Vec<String>>;

fn table<T>(header: &[&str], lines: &[T], cells: impl Fn(&T) -> Vec<String>) -> Cells {
    let header = header.iter().map(|&name| name.to_owned()).collect();
    std::iter::once(header).chain(lines.iter().map(cells)).collect()
}

pub(super) fn inputs(lines: &[Line]) -> Cells {
    table(&["input", "what it is", "value", "confidence", "source"], lines, |line| {
        let cells = [line.name, line.about, &line.value, line.confidence.name(), &line.source];
        cells.map(str::to_owned).to_vec()
    })
}

pub(super) fn published(lines: &[Beside]) -> Cells {
    table(&["the poster, or the kernel's benchmark", "the model", "", "why"], lines, |line| {
        [line.theirs, &line.ours, line.verdict.name(), &line.why].map(str::to_owned).to_vec()
    })
}

pub(super) fn conclusions(analysis: &Analysis) -> Cells {
    let header = ["conclusion", "ratio", "one input changed", "all drawn", "", "turned by"];
    table(&header, &analysis.fates(), |fate| {
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

    use stillpoint::fence::module;
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

    /// A number that was withdrawn must not stay in an example.
    #[test]
    fn the_examples_of_the_module_have_the_threshold_of_the_library() {
        let threshold = module::THRESHOLD;
        let has = |file: &str, part: String| {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
            assert!(
                fs::read_to_string(&file).unwrap().contains(&part),
                "'{part}' is not in {}",
                file.display()
            );
        };
        has("docs/guide/kernel.md", format!(".threshold = {threshold} }}"));
        has("docs/guide/kernel.md", format!("STILLPOINT_MEMBARRIER=hybrid:{threshold} "));
        has("kernel/preload/interpose.c", format!("STILLPOINT_MEMBARRIER=hybrid:{threshold} "));
        has("docs/design/kernel.md", format!("flat up to {threshold} receivers"));
    }

    /// The tables of the guide are those of the present model. `STILLPOINT_WRITE_PAGE=1` writes them.
    #[test]
    fn the_guide_says_what_the_model_says() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/simulate.md");
        let mut page = fs::read_to_string(&file).unwrap();
        let load = |name: &str| Machine::load(name).unwrap();
        let origin = |base| Origin { base, other: (Confidence::Given, String::new()) };
        let analysis = Analysis::of(&load("seed"), 1).unwrap();
        let poster = beside::compare(&load("seed"), "seed", 1);
        let (least, most) = analysis.crossovers();
        let thresholds_found = analysis.thresholds();
        let least_worst = thresholds_found.iter().map(|of| of.worst).fold(f64::INFINITY, f64::min);
        let library = thresholds_found.iter().find(|of| of.threshold == module::THRESHOLD);
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
            let found = between(&page, name).to_owned();
            if found != says {
                page = page.replacen(
                    &format!("<!-- {name} -->\n{found}"),
                    &format!("<!-- {name} -->\n{says}"),
                    1,
                );
                wrong.push(name);
            }
        }
        if env::var_os("STILLPOINT_WRITE_PAGE").is_some() {
            fs::write(&file, page).unwrap();
        } else {
            assert!(
                wrong.is_empty(),
                "the guide differs from the model in {wrong:?}; run the test with STILLPOINT_WRITE_PAGE=1 to write the tables anew"
            );
        }
    }
}
