//! What a user does, beside the best of the others: the lines of `tasks.txt`.

use serde_json::{Map, Value};
use stillpoint_harness::experiment::show::disturbance;
use stillpoint_harness::output::format::{of_metric, plain};
use stillpoint_harness::output::json::{AGAIN, Row};

use super::page::factor;
use super::sections::EVEN;
use crate::peers::group;

const TASKS: &str = include_str!("tasks.txt");
/// Contenders of other groups whose work is ours, and those that do not do the same work.
const NOT_OTHERS: [&str; 4] = ["dpdk/stillpoint", "malloc", "floor", "stillpoint/pool+obj"];
/// Parameters that are of a contender itself, so rows that are compared may differ in them; `.ci/judge` has the same.
pub(super) const OF_CONTENDER: [&str; 6] = ["rounds", "iterations", "round_s", "policy", "time", "block"];

/// What the rows that are compared have in common.
fn setting(row: &Row) -> Map<String, Value> {
    let is_shared = |(name, _): &(&String, &Value)| !OF_CONTENDER.contains(&name.as_str());
    row.params.iter().filter(is_shared).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A group of lines, or a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task<'t> {
    Group(&'t str),
    Line(Line<'t>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'t> {
    experiment: &'t str,
    scenario: &'t str,
    params: Vec<(&'t str, &'t str)>,
    metric: &'t str,
    ours: &'t str,
    what: &'t str,
}

/// All of them, in the order of the page.
pub(super) fn all() -> impl Iterator<Item = Task<'static>> {
    TASKS.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [place, metric, ours, what] = parts[..] else { return Task::Group(line) };
        let mut words = place.split_whitespace();
        let [experiment, scenario] =
            [words.next(), words.next()].map(|word| word.expect("an experiment and a scenario"));
        let params = words.map(|word| word.split_once('=').expect("a parameter and its value")).collect();
        Task::Line(Line { experiment, scenario, params, metric, ours, what })
    })
}

impl Line<'_> {
    fn fits(&self, row: &Row) -> bool {
        let has = |&(name, value): &(&str, &str)| row.params.get(name).is_some_and(|is| plain(is) == value);
        row.experiment == self.experiment && row.scenario == self.scenario && self.params.iter().all(has)
    }

    /// What it does, our figure, the best of the others, the ratio, and the noise. `None` if these rows compare nothing.
    pub(super) fn cells(&self, rows: &[Row]) -> Option<[String; 5]> {
        let figure = |row: &Row| row.metric(self.metric).filter(|_| row.void.is_none());
        let here: Vec<&Row> = rows.iter().filter(|row| self.fits(row) && figure(row).is_some()).collect();
        // A line names only some of the parameters: the first row of ours says what the others are.
        let ours = here.iter().copied().find(|row| row.contender == self.ours)?;
        let setting_of_ours = setting(ours);
        let here: Vec<&Row> = here.into_iter().filter(|row| setting(row) == setting_of_ours).collect();
        let control = format!("{}{AGAIN}", self.ours);
        let again = here.iter().copied().find(|row| row.contender == control);
        let is_rate = self.metric.contains("per_s");
        let is_other = |row: &&&Row| {
            !["stillpoint", "c", "drop-in", "signal"].contains(&group(&row.contender))
                && !NOT_OTHERS.contains(&&*row.contender)
        };
        let others = here.iter().filter(is_other).copied().filter(|row| !row.contender.ends_with(AGAIN));
        let worse = |one: &&Row, other: &&Row| {
            let order = figure(one).partial_cmp(&figure(other)).expect("a measured figure");
            if is_rate { order } else { order.reverse() }
        };
        let compared: Vec<&Row> = others.clone().chain([ours]).chain(again).collect();
        let best = others.max_by(worse)?;
        let (mine, theirs) = (figure(ours)?, figure(best)?);
        let ratio = if is_rate { mine / theirs } else { theirs / mine };
        let noise = again.and_then(figure).map(|again| (again / mine).max(mine / again));
        let ratio = match ratio {
            // Also by a row that only seems to be worse than the best, and by the control.
            _ if disturbance(compared).is_some() => "disturbed".to_owned(),
            ratio if ratio.max(1.0 / ratio) < EVEN.max(noise.unwrap_or(1.0)) => format!("{ratio:.2}x, even"),
            ratio if ratio < 1.0 => format!("**{}**", factor(ratio)),
            ratio => factor(ratio),
        };
        let amount = |value: f64| of_metric(self.metric, value);
        Some([
            self.what.to_owned(),
            format!("{} (`{}`)", amount(mine), ours.contender),
            format!("{} (`{}`)", amount(theirs), best.contender),
            ratio,
            noise.map_or_else(String::new, |noise| format!("{:.0} %", (noise - 1.0) * 100.0)),
        ])
    }
}
