//! The page as Markdown, for a book: the same verdicts and numbers, without pictures.

use std::fmt::Write as _;

use stillpoint_harness::output::figures::{Figure, Up, Verdict};
use stillpoint_harness::output::json::Read;
use stillpoint_harness::output::table::markdown;

use crate::reclaim;

use super::page::{fact, factor, warnings};
use super::sections::{self, Shown};

/// The whole page.
///
/// `is_there` says whether a page stands beside it, so that it can be linked.
pub(super) fn text(read: &[Read], figures: &[&'static Figure], is_there: impl Fn(&str) -> bool) -> String {
    let mut page = String::from(
        "# Benchmarks\n\n\
         `stillpoint report --markdown` wrote this page from the results of the commands that it names. One of our contenders, the\n\
         default, is compared with the best of the others: 2.00x is twice as good, 0.50x half as good. Figures within 5 % are even, and so are\n\
         figures within the difference of a contender that was measured twice. Single runs vary: repeat them.\n",
    );
    for (name, words) in [
        ("laboratory.md", "[The laboratory](laboratory.md) says what is measured, and what makes it fair.\n"),
        ("bars.md", "[The bars](bars.md) say where we lose and why, and which bars are met.\n"),
    ] {
        if is_there(name) {
            page += words;
        }
    }
    let mut machine = None;
    let mut read_before: Option<&Read> = None;
    for section in &sections::of(read, figures) {
        let _ = write!(page, "\n## {}\n\n", section.experiment);
        if !read_before.is_some_and(|before| std::ptr::eq(before, section.read)) {
            let command = section.read.command.replacen("stillpoint", "cargo run --release --", 1);
            let _ = write!(page, "```console\n$ {command}\n```\n\n");
            for line in warnings(section.read).chain(reclaim::answer(&section.read.rows)) {
                let _ = write!(page, "**{line}**\n\n");
            }
        }
        read_before = Some(section.read);
        if machine != Some(&section.read.machine) {
            machine = Some(&section.read.machine);
            let facts = section.read.machine.iter().map(|(name, value)| fact(name, value).to_vec());
            table(&mut page, vec!["machine".to_owned(), String::new()], facts);
        }
        for shown in &section.charts {
            chart(&mut page, shown);
        }
        for of in &section.tables {
            let _ = write!(page, "### {}\n\n", of.caption);
            let header = of.header.iter().map(|&name| name.to_owned()).collect();
            table(&mut page, header, of.lines.iter().cloned());
        }
        if !section.left_out.is_empty() {
            page += "Left out of this run:\n\n";
            page.extend(section.left_out.iter().map(|line| format!("- {line}\n")));
            page.push('\n');
        }
        if !section.void.is_empty() {
            let rows = section.void.iter().map(|(row, why)| vec![row.clone(), why.clone()]);
            table(&mut page, vec!["row that does not count".to_owned(), "why".to_owned()], rows);
        }
    }
    page
}

fn table(page: &mut String, header: Vec<String>, lines: impl Iterator<Item = Vec<String>>) {
    let _ = writeln!(page, "{}", markdown(&std::iter::once(header).chain(lines).collect::<Vec<_>>()));
}

fn chart(page: &mut String, shown: &Shown) {
    let _ = write!(page, "### {}\n\n", shown.chart.title());
    if !shown.chart.figure.words.is_empty() {
        let _ = write!(page, "{}\n\n", shown.chart.figure.words);
    }
    if let Some(places) = shown.undecided() {
        let _ = write!(page, "{places}\n\n");
    }
    if let Some((worst, best)) = shown.ends() {
        let _ = writeln!(page, "- {}", verdict(worst, &shown.chart.figure.up));
        if worst != best {
            let _ = writeln!(page, "- {}", verdict(best, &shown.chart.figure.up));
        }
        page.push('\n');
    }
    if let Some(noise) = shown.noise() {
        let _ = write!(page, "{noise}\n\n");
    }
    // A line for each contender: there are more contenders than places.
    let (header, lines) = shown.chart.table();
    let places = lines.iter().map(|line| match header[0].as_str() {
        "" => line[0].clone(),
        name => format!("{name}: {}", line[0]),
    });
    let turned = std::iter::once(shown.chart.figure.up.title.to_owned()).chain(places);
    let of_contender = |at: usize| {
        std::iter::once(header[at].clone()).chain(lines.iter().map(|line| line[at].clone())).collect()
    };
    table(page, turned.collect(), (1..header.len()).map(of_contender));
}

fn verdict(verdict: &Verdict, up: &Up) -> String {
    let at = if verdict.at.is_empty() { String::new() } else { format!(" at {}", verdict.at) };
    let ((ours, our_figure), (theirs, their_figure)) = (&verdict.ours, &verdict.theirs);
    format!(
        "**{}**{at}: {ours} {}, {theirs} {}",
        factor(verdict),
        up.amount(*our_figure),
        up.amount(*their_figure)
    )
}
