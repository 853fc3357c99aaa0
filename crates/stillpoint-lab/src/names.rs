//! What the names in results stand for: the words for the terminal, the help and the page.

use stillpoint_harness::experiment::control::contender;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::{each_once, heading, say_text};

/// Contenders, scenarios, and what figures are compared with, each in a few words: a line for each, and lines that say what follows.
const NAMES: &str = include_str!("names.txt");

/// The names, and their words.
fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    NAMES.lines().filter(|line| !line.starts_with('#')).map(named)
}

/// # Panics
/// If there is no bar between the name and its words.
fn named(line: &str) -> (&str, &str) {
    line.split_once(" | ").unwrap_or_else(|| panic!("no bar in '{line}'"))
}

/// What a contender or scenario is.
pub(crate) fn words(name: &str) -> Option<&'static str> {
    all().find(|(known, _)| *known == name).map(|(_, words)| words)
}

/// The names in rows, scenarios first, each once and with its words. A row that was measured again has the name of the first.
pub(crate) fn of_rows<'r>(rows: impl IntoIterator<Item = &'r Row> + Clone) -> Vec<(&'r str, &'static str)> {
    let scenarios = rows.clone().into_iter().flat_map(|row| {
        [Some(row.scenario.as_str()), row.params.get("workload").and_then(|name| name.as_str())]
    });
    let contenders = rows.into_iter().map(|row| contender(&row.contender));
    each_once(scenarios.flatten().chain(contenders).filter_map(|name| Some((name, words(name)?))))
}

/// Prints what the names in rows stand for.
pub(crate) fn show(rows: &[Row]) {
    let named = of_rows(rows);
    if !named.is_empty() {
        heading("Names");
        named.into_iter().for_each(|(name, words)| say_text(format!("{name}: {words}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_words_once() {
        for (at, (name, words)) in all().enumerate() {
            assert!(all().skip(at + 1).all(|(other, _)| other != name), "{name}");
            assert!(!words.is_empty() && !words.ends_with('.'), "{name}: {words}");
            assert!(!words.contains("the same"), "{name}: what stands before it may be missing");
        }
    }

    #[test]
    #[should_panic(expected = "no bar in 'seize: batches of 32'")]
    fn a_line_without_a_bar_is_refused() {
        named("seize: batches of 32");
    }
}
