//! The content of the page: its charts by experiment, and who is ahead in them.

use clap::ValueEnum;
use stillpoint_harness::experiment::control::{self, Control};
use stillpoint_harness::experiment::show::disturbance;
use stillpoint_harness::output::each_once;
use stillpoint_harness::output::figures::{self, Chart, Figure, Verdict};
use stillpoint_harness::output::json::{Read, Row};
use stillpoint_multicast_lab::simulate::{self, Table};

use crate::names;
use crate::peers::group;

/// Two figures whose ratio is below this count as even. If the control of the run differs by more, more counts as even.
pub(super) const EVEN: f64 = 1.05;

/// The charts of one experiment of one result.
pub(super) struct Section<'r> {
    pub(super) read: &'r Read,
    pub(super) experiment: String,
    pub(super) charts: Vec<Shown>,
    /// What has no figure: the inputs and conclusions of a simulation, and its comparison with published figures.
    pub(super) tables: Vec<Table>,
    /// What the run left out, and why; with the last experiment of a run.
    pub(super) left_out: &'r [String],
    /// Rows that do not count: scenario, contender, and why.
    pub(super) void: Vec<(String, String)>,
}

/// What figures are compared with, as their words and their published numbers name it.
const SOURCES: [&str; 4] = ["the talk", "the paper", "the poster", "RFC"];

impl Section<'_> {
    /// The names in this section that have words, and these words.
    pub(super) fn names(&self) -> Vec<(&str, &'static str)> {
        let figures: Vec<&Figure> = self.charts.iter().map(|shown| shown.chart.figure).collect();
        let says = |text: &str, source: &str| text.to_lowercase().contains(&source.to_lowercase());
        let is_named = |source: &&str| {
            figures.iter().any(|figure| {
                says(figure.words, source) || figure.published.iter().any(|it| says(it.name, source))
            })
        };
        let sources = SOURCES.into_iter().filter(is_named);
        let of_this: Vec<&Row> =
            self.read.rows.iter().filter(|row| row.experiment == self.experiment).collect();
        sources.filter_map(|name| Some((name, names::words(name)?))).chain(names::of_rows(of_this)).collect()
    }
}

/// A chart, and the verdicts in it.
pub(super) struct Shown {
    pub(super) chart: Chart,
    pub(super) verdicts: Vec<Verdict>,
    /// By how much a contender differs from itself, of the metric of the chart that differs most.
    pub(super) control: Option<Control>,
    /// The places where other programs disturbed a figure, and so nothing is decided.
    pub(super) disturbed: Vec<String>,
    /// Its unique name in links.
    pub(super) id: String,
}

/// All verdicts of a chart together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Standing {
    /// The others are ahead somewhere.
    Behind,
    /// Neither side is ahead anywhere.
    Even,
    /// We are ahead somewhere, and the others nowhere.
    Ahead,
    /// Disturbed everywhere: the run does not tell.
    Undecided,
}

stillpoint_harness::named!(pub(super) Standing);

impl Shown {
    /// A chart by itself, which decides nothing.
    pub(super) fn of(chart: Chart) -> Self {
        let id = chart.file();
        Self { chart, verdicts: Vec::new(), control: None, disturbed: Vec::new(), id }
    }

    /// Two figures whose ratio is below this count as even.
    fn even(&self) -> f64 {
        self.control.as_ref().map_or(EVEN, |control| EVEN.max(1.0 + control.percent_p50 / 100.0))
    }

    /// The noise of the run, and what follows from it, in words.
    pub(super) fn noise(&self) -> Option<String> {
        let control = self.control.as_ref()?;
        let median = control.difference(control.percent_p50);
        let settings = match control.settings {
            1 => format!("by {median}"),
            settings => format!(
                "by {median} (median of {settings} settings; at most {})",
                control.difference(control.percent_max)
            ),
        };
        let even = if self.even() > EVEN {
            format!("figures within {median} count as even")
        } else {
            "within 5 %, figures count as even".to_owned()
        };
        Some(format!(
            "Control: {}, measured twice in this run, differed from itself {settings}; {even}.",
            control.contender
        ))
    }

    /// The standing by one verdict.
    pub(super) fn standing_of(&self, verdict: &Verdict) -> Standing {
        match verdict.factor {
            _ if self.disturbed.contains(&verdict.at) => Standing::Undecided,
            factor if factor > self.even() => Standing::Ahead,
            factor if factor < 1.0 / self.even() => Standing::Behind,
            _ => Standing::Even,
        }
    }

    /// The worst and the best verdict of those that are decided.
    pub(super) fn ends(&self) -> Option<(&Verdict, &Verdict)> {
        let order = |one: &&Verdict, other: &&Verdict| one.factor.total_cmp(&other.factor);
        let decided =
            || self.verdicts.iter().filter(|verdict| self.standing_of(verdict) != Standing::Undecided);
        decided().min_by(order).zip(decided().max_by(order))
    }

    /// Where we stand in this chart; `None` if it compares nothing.
    pub(super) fn standing(&self) -> Option<Standing> {
        let ends = self.ends().map(|(worst, best)| (self.standing_of(worst), self.standing_of(best)));
        match ends {
            None if self.verdicts.is_empty() => None,
            None => Some(Standing::Undecided),
            Some((Standing::Behind, _)) => Some(Standing::Behind),
            Some((_, Standing::Ahead)) => Some(Standing::Ahead),
            Some(_) => Some(Standing::Even),
        }
    }

    /// The places where nothing is decided, in words.
    pub(super) fn undecided(&self) -> Option<String> {
        let is_one = |verdict: &&Verdict| self.standing_of(verdict) == Standing::Undecided;
        let places: Vec<&str> =
            self.verdicts.iter().filter(is_one).map(|verdict| verdict.at.as_str()).collect();
        (!places.is_empty()).then(|| {
            format!("Undecided, since other programs ran on the CPUs meanwhile: {}.", places.join("; "))
        })
    }
}

/// Whether a contender is of this library.
pub(super) fn is_ours(name: &str) -> bool {
    ["stillpoint", "signal", "module", "symmetric", "c", "drop-in"].contains(&group(name))
}

/// Our contenders that are compared with the others: what a user of the library gets who chooses nothing. If there are
/// several, they are for different operations, and the first one that has a figure counts.
fn defaults(experiment: &str) -> &'static [&'static str] {
    match experiment {
        "reclaim" | "preempt" | "guest" | "structures" => &["stillpoint/protected"],
        "micro" => &["stillpoint/protected", "stillpoint/guard", "stillpoint/qsbr"],
        "table" => &["stillpoint/table"],
        "timer" => &["stillpoint/wheel", "stillpoint/wheel, burst 1"],
        "pool" => &["stillpoint/pool", "stillpoint/pool, cache 512"],
        "membarrier" => &["signal/tree"],
        "capi" => &["c/protected", "c/guard", "c/qsbr", "drop-in/urcu-memb", "drop-in/rte_timer"],
        _ => &[],
    }
}

/// The sections of results, in their order.
pub(super) fn of<'r>(results: &'r [Read], figures: &[&'static Figure]) -> Vec<Section<'r>> {
    let mut sections: Vec<Section<'r>> = Vec::new();
    for (number, read) in results.iter().enumerate() {
        let experiments = each_once(read.rows.iter().map(|row| &*row.experiment));
        let last = experiments.last().copied();
        for experiment in experiments {
            let wanted: Vec<&'static Figure> =
                figures.iter().copied().filter(|figure| figure.experiment == experiment).collect();
            // A disturbed row is worse than it should be, so a place without it shows another picture.
            let is_quiet = |row: &&Row| disturbance([*row]).is_none();
            let shown = |chart: Chart| {
                let covered = read.rows.iter().filter(|row| row.void.is_none() && chart.covers(row));
                let controls = control::controls(covered);
                let verdicts = chart.verdicts(defaults(experiment), is_ours);
                let quiet = read.rows.iter().filter(is_quiet).filter(|row| chart.is_of(row));
                let quiet = figures::charts(&[chart.figure], &quiet.cloned().collect::<Vec<_>>());
                let quiet_figures = quiet.first().map(Chart::measured).unwrap_or_default();
                let differ = |place: &(String, _)| !quiet_figures.contains(place);
                let disturbed = chart.measured().into_iter().filter(differ).map(|(at, _)| at).collect();
                let id = format!("{}-{}", chart.file(), number + 1);
                Shown { control: control_of(&controls, chart.figure), chart, verdicts, disturbed, id }
            };
            let charts = figures::charts(&wanted, &read.rows).into_iter().map(shown).collect();
            let of_this = read.rows.iter().filter(|row| row.experiment == experiment);
            let void = of_this
                .filter_map(|row| Some((format!("{}, {}", row.scenario, row.contender), row.void.clone()?)))
                .collect();
            let tables = if experiment == "simulate" { simulate::tables(&read.rows) } else { Vec::new() };
            let left_out: &[String] = if Some(&experiment) == last.as_ref() { &read.left_out } else { &[] };
            sections.push(Section {
                read,
                experiment: experiment.to_owned(),
                charts,
                tables,
                left_out,
                void,
            });
        }
    }
    sections
}

/// The control of the metric of a figure that differs most.
fn control_of(controls: &[Control], figure: &Figure) -> Option<Control> {
    let order = |one: &&Control, other: &&Control| one.percent_p50.total_cmp(&other.percent_p50);
    controls.iter().filter(|control| figure.shows(&control.metric)).max_by(order).cloned()
}
