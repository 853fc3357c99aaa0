//! A control: one contender of each experiment is measured twice, as if it were two. Its two rows differ only by the noise of
//! the machine and the order of the turns, as any two rows do.

use serde::Serialize;

use crate::output::json::{AGAIN, Row};
use crate::output::say;
use crate::output::table;
use crate::stats::median;

/// The contenders of a setting, followed by the first one again.
pub fn with_control(mut names: Vec<String>) -> Vec<String> {
    names.extend(names.first().map(|first| format!("{first}{AGAIN}")));
    names
}

/// The contenders of a setting with the names of their rows, followed by the first one again.
pub fn named_with_control<C, N: Into<String>>(contenders: &[C], name: impl Fn(&C) -> N) -> Vec<(String, &C)> {
    let names = contenders.iter().map(|contender| name(contender).into()).collect();
    with_control(names).into_iter().zip(contenders.iter().chain(contenders.first())).collect()
}

/// The contender of a row: its name, without the mark of the second measurement.
pub fn contender(name: &str) -> &str {
    name.strip_suffix(AGAIN).unwrap_or(name)
}

/// The difference of a metric between the two rows of one contender.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Control {
    /// The experiment.
    pub experiment: String,
    /// The contender that was measured twice.
    pub contender: String,
    /// The metric.
    pub metric: String,
    /// The number of settings with both rows.
    pub settings: usize,
    /// The median over the settings of the difference, in percent of the smaller of the two. For a metric in percent, the
    /// difference is in percentage points.
    pub percent_p50: f64,
    /// The largest difference.
    pub percent_max: f64,
}

impl Control {
    /// One of its differences for people. From twice as much on, a factor says more than a percentage.
    pub fn difference(&self, percent: f64) -> String {
        match percent {
            _ if self.metric.ends_with("_percent") => format!("{percent:.1} points"),
            100.0.. => format!("{:.1}x", 1.0 + percent / 100.0),
            _ => format!("{percent:.1} %"),
        }
    }
}

/// The differences between the rows of contenders that were measured twice, for each metric. Metrics of the spread of rounds
/// are left out.
pub fn controls<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Vec<Control> {
    let rows: Vec<&Row> = rows.into_iter().collect();
    let mut found: Vec<(&Row, &str, Vec<f64>)> = Vec::new();
    let is_of_rounds =
        |metric: &str| ["_least", "_most", "_q1", "_q3"].iter().any(|end| metric.ends_with(end));
    for again in rows.iter().filter(|row| row.is_control()) {
        let is_first = |row: &&&Row| {
            row.contender == contender(&again.contender)
                && (&row.experiment, &row.scenario, &row.params)
                    == (&again.experiment, &again.scenario, &again.params)
        };
        let Some(&first) = rows.iter().find(is_first) else { continue };
        for metric in again.metrics.keys().filter(|metric| !is_of_rounds(metric)) {
            let Some((one, other)) = first.metric(metric).zip(again.metric(metric)) else { continue };
            let (apart, least) = ((one - other).abs(), one.abs().min(other.abs()));
            let is_share = metric.ends_with("_percent") || one == other;
            if !is_share && least == 0.0 {
                continue; // nothing is a multiple of 0
            }
            let percent = if is_share { apart } else { apart * 100.0 / least };
            let same = |(row, of, _): &&mut (&Row, &str, Vec<f64>)| {
                (&row.experiment, &row.contender, *of) == (&first.experiment, &first.contender, metric)
            };
            match found.iter_mut().find(same) {
                Some((_, _, percents)) => percents.push(percent),
                None => found.push((first, metric, vec![percent])),
            }
        }
    }
    let round = |percent: f64| (percent * 100.0).round() / 100.0;
    let control = |(row, metric, percents): (&Row, &str, Vec<f64>)| Control {
        experiment: row.experiment.clone().into_owned(),
        contender: row.contender.clone(),
        metric: metric.to_owned(),
        settings: percents.len(),
        percent_max: round(percents.iter().copied().fold(0.0, f64::max)),
        percent_p50: round(median(percents)),
    };
    found.into_iter().map(control).collect()
}

/// Prints a table of those whose metric is `shown`; nothing when there are none.
pub fn show(controls: &[Control], shown: impl Fn(&str) -> bool) {
    let controls: Vec<&Control> = controls.iter().filter(|control| shown(&control.metric)).collect();
    let Some(first) = controls.first() else { return };
    let line = |control: &&Control| {
        [
            control.contender.clone(),
            control.metric.clone(),
            control.settings.to_string(),
            control.difference(control.percent_p50),
            control.difference(control.percent_max),
        ]
    };
    let caption = format!("Control of {}: the same contender measured twice", first.experiment);
    let header = ["contender", "metric", "settings", "difference, median", "largest"];
    table::of_lines(&caption, &header, 2, controls.iter().map(line));
    say("A difference between two contenders that is smaller than this means nothing.");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(contender: &str, entries: u64, rate: f64) -> Row {
        let mut row = Row::new("table", "uniform", contender).with("entries", entries);
        row.put("lookups_per_s", rate, 0);
        row.put("lookups_per_s_most", rate * 3.0, 0);
        row.put("loss_percent", rate / 1000.0, 3);
        row
    }

    #[test]
    fn the_first_contender_takes_part_twice() {
        let names = with_control(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(names, ["a", "b", "a (again)"]);
        assert_eq!(names.iter().map(|name| contender(name)).collect::<Vec<_>>(), ["a", "b", "a"]);
        assert!(with_control(Vec::new()).is_empty());
        let named = named_with_control(&["a", "b"], |name| *name);
        assert_eq!(named.last(), Some(&("a (again)".to_owned(), &"a")));
        assert_eq!(named.len(), 3);
    }

    #[test]
    fn a_contender_is_compared_with_itself_in_the_same_setting() {
        let again = |entries, rate| row("a (again)", entries, rate);
        let rows =
            [row("a", 8, 90.0), row("a", 64, 100.0), row("b", 8, 1.0), again(64, 100.0), again(8, 99.0)];
        let found = controls(&rows);
        let [rate, loss] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((rate.contender.as_str(), rate.metric.as_str()), ("a", "lookups_per_s"));
        assert_eq!((rate.settings, rate.percent_p50, rate.percent_max), (2, 5.0, 10.0));
        assert_eq!(
            (rate.difference(10.0), rate.difference(54_900.0)),
            ("10.0 %".to_owned(), "550.0x".to_owned())
        );
        assert_eq!(
            (loss.metric.as_str(), loss.percent_max),
            ("loss_percent", 0.01),
            "points, not a share of a share"
        );
        assert!(controls(&rows[..3]).is_empty());
    }
}
