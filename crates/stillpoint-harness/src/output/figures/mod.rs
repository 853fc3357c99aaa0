//! Figures of rows: which rows are drawn, how, and beside which published figures.
//!
//! A [`Figure`] says what to draw, for all runs. [`charts`] finds the rows of a run for it. A [`Chart`] is drawn as SVG
//! on a light or dark background. It is also a table, and a verdict: who is ahead, and by how much.

mod draw;
mod verdict;

use serde_json::Value;

use super::format::{number, of_metric, plain};
use super::json::Row;

pub use self::draw::{Ground, svg};
pub use self::verdict::Verdict;

/// What to draw, from which rows.
#[derive(Debug)]
pub struct Figure {
    /// The name of its files, to which the setting is added.
    pub name: &'static str,
    /// The experiment of its rows.
    pub experiment: &'static str,
    /// Their scenarios.
    pub scenarios: &'static [&'static str],
    /// What it shows.
    pub title: &'static str,
    /// Along the horizontal axis.
    pub across: Across,
    /// Along the vertical one.
    pub up: Up,
    /// Parameters that follow from the contender or from the setting, `scenario` among them. Every other parameter has a chart
    /// for each of its values.
    pub beside: &'static [&'static str],
    /// Parameters that belong to a contender's name: it is drawn once for each of their values.
    pub named: &'static [&'static str],
    /// Whether each contender has its own chart, whose curves have the values of `named` as names.
    pub apart: bool,
    /// Contenders that are not drawn.
    pub without: &'static [&'static str],
    /// The numbers that its authors published. Drawn where names are across, and no numbers.
    pub published: &'static [Published],
    /// What the authors said without numbers, and what is different here.
    pub words: &'static str,
}

impl Figure {
    /// The defaults: bars on a logarithmic scale, lower is better, nothing published.
    pub const PLAIN: Self = Self {
        name: "",
        experiment: "",
        scenarios: &[],
        title: "",
        across: Across::Scenarios,
        up: Up { metric: "", band: None, title: "", logarithmic: true, better: Better::Less },
        beside: &[],
        named: &[],
        apart: false,
        without: &[],
        published: &[],
        words: "",
    };
}

impl Figure {
    /// A value of its metric, with the unit of that. Several metrics in one figure have the same unit.
    pub fn amount(&self, value: f64) -> String {
        let metric = match self.across {
            Across::Metrics([(metric, _), ..]) => metric,
            _ => self.up.metric,
        };
        of_metric(metric, value)
    }

    /// Whether it shows a metric.
    pub fn shows(&self, metric: &str) -> bool {
        match self.across {
            Across::Metrics(metrics) => metrics.iter().any(|(shown, _)| *shown == metric),
            _ => self.up.metric == metric,
        }
    }

    /// The title of the vertical axis; each value there has a unit that fits it.
    pub fn up_title(&self) -> &'static str {
        self.up.title.strip_suffix(MICROS).unwrap_or(self.up.title)
    }
}

/// The end of a title that names a unit.
const MICROS: &str = ", in µs";

impl Up {
    /// A metric on a logarithmic scale; less is better.
    pub const fn less(metric: &'static str, title: &'static str) -> Self {
        Self { metric, band: None, title, logarithmic: true, better: Better::Less }
    }

    /// A metric on a scale that begins at 0; more is better.
    pub const fn more(metric: &'static str, title: &'static str) -> Self {
        Self { metric, band: None, title, logarithmic: false, better: Better::More }
    }

    /// The same, with a band between two metrics.
    pub const fn between(self, from: &'static str, to: &'static str) -> Self {
        Self { band: Some((from, to)), ..self }
    }
}

impl Across {
    /// Values of a parameter, on a logarithmic scale.
    pub const fn param(name: &'static str, title: &'static str) -> Self {
        Self::Numbers { of: Number::Param(name), title, logarithmic: true }
    }
}

/// A list of figures. Of each: its name, its title, and other fields; those that it does not name are as in the figure behind the last `..`.
#[macro_export]
macro_rules! figures {
    ($(..$base:ident; $($name:literal: $title:literal { $($field:ident: $value:expr),* $(,)? })*)*) => {
        &[$($(&$crate::output::figures::Figure { name: $name, title: $title, $($field: $value,)* ..$base },)*)*]
    };
}

/// The horizontal axis.
#[derive(Debug)]
pub enum Across {
    /// Numbers; each contender has a curve.
    Numbers {
        /// The source of the numbers.
        of: Number,
        /// Their name.
        title: &'static str,
        /// Whether equal ratios have equal lengths.
        logarithmic: bool,
    },
    /// Metrics, with their titles: at each of them, each contender has a bar.
    Metrics(&'static [(&'static str, &'static str)]),
    /// Scenarios: a bar of each contender at each.
    Scenarios,
    /// Sets of values of these parameters: a bar of each contender at each.
    Params(&'static [&'static str]),
    /// The metric itself, as a ratio. Contenders are one below the other, and each row is a dot, whose colour and marker are
    /// those of its value of the parameter `by`. A line marks 1.
    Ratios {
        /// The parameter.
        by: &'static str,
    },
}

/// The source of a number.
#[derive(Debug, Clone, Copy)]
pub enum Number {
    /// A parameter of this name.
    Param(&'static str),
    /// A metric of this name.
    Metric(&'static str),
}

/// The vertical axis; of [`Across::Ratios`], the horizontal one.
#[derive(Debug)]
pub struct Up {
    /// The metric; ignored if metrics are along the other axis.
    pub metric: &'static str,
    /// Two metrics between which most of the samples lie.
    pub band: Option<(&'static str, &'static str)>,
    /// What it is, with its unit.
    pub title: &'static str,
    /// Whether equal ratios have equal lengths.
    pub logarithmic: bool,
    /// Which of two values is better.
    pub better: Better,
}

/// Which of two figures is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// The smaller one.
    Less,
    /// The larger one.
    More,
    /// Neither is.
    Neither,
}

/// Numbers that the authors of an experiment published.
#[derive(Debug)]
pub struct Published {
    /// The authors, and the contender.
    pub name: &'static str,
    /// Parameters that a chart must have to show these numbers.
    pub setting: &'static [(&'static str, &'static str)],
    /// The numbers, each at a name along the axis.
    pub points: &'static [(&'static str, f64)],
}

impl Published {
    /// Numbers at names.
    pub const fn at_names(
        name: &'static str,
        setting: &'static [(&'static str, &'static str)],
        points: &'static [(&'static str, f64)],
    ) -> Self {
        Self { name, setting, points }
    }
}

/// A figure of one run, in one setting.
#[derive(Debug)]
pub struct Chart {
    /// What is drawn.
    pub figure: &'static Figure,
    /// The setting: parameters and their values.
    pub setting: Vec<(String, String)>,
    /// What it shows.
    pub content: Content,
}

/// The numbers of a chart.
#[derive(Debug)]
pub enum Content {
    /// Curves along numbers.
    Curves(Vec<Curve>),
    /// Bars at names.
    Bars {
        /// The names.
        names: Vec<String>,
        /// The bars.
        bars: Vec<Bars>,
    },
    /// Dots beside names, which are one below the other.
    Dots {
        /// The names.
        names: Vec<String>,
        /// The dots.
        dots: Vec<Dots>,
    },
}

/// A curve.
#[derive(Debug, PartialEq)]
pub struct Curve {
    /// The contender.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
    /// The band: at each point, from, to.
    pub band: Vec<(f64, f64, f64)>,
}

/// The bars of a contender, at each name.
#[derive(Debug, PartialEq)]
pub struct Bars {
    /// The contender.
    pub name: String,
    /// Their heights.
    pub values: Vec<Option<f64>>,
    /// Whether others have published them.
    pub published: bool,
}

/// The dots of one kind.
#[derive(Debug, PartialEq)]
pub struct Dots {
    /// The kind.
    pub name: String,
    /// The number of a name, and the value there. A name may have several.
    pub points: Vec<(usize, f64)>,
}

impl Dots {
    /// The least and the largest value at a name.
    fn ends(&self, at: usize) -> Option<(f64, f64)> {
        let values = || self.points.iter().filter(|point| point.0 == at).map(|point| point.1);
        values().min_by(f64::total_cmp).zip(values().max_by(f64::total_cmp))
    }
}

impl Chart {
    /// Whether a row, or the control of one, belongs to it.
    pub fn covers(&self, row: &Row) -> bool {
        self.agrees(row, |name| name != "contender")
    }

    /// Whether it is drawn from such a row.
    pub fn is_of(&self, row: &Row) -> bool {
        self.agrees(row, |_| true)
    }

    fn agrees(&self, row: &Row, is_asked: impl Fn(&str) -> bool) -> bool {
        let setting = self.figure.setting(row);
        let mut own = self.setting.iter().filter(|(name, _)| is_asked(name));
        self.figure.is_about(row) && own.all(|pair| setting.contains(pair))
    }

    /// The name of its files, without the extension.
    pub fn file(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let setting = self.setting.iter().map(|(name, value)| format!("-{name}-{value}"));
        self.figure.name.to_owned()
            + &setting.flat_map(|part| part.chars().map(plain).collect::<Vec<_>>()).collect::<String>()
    }

    /// The title, with the setting.
    pub fn title(&self) -> String {
        let setting = self.setting.iter().map(|(name, value)| format!("{} {value}", name.replace('_', " ")));
        let setting: Vec<String> = setting.collect();
        match setting.as_slice() {
            [] => self.figure.title.to_owned(),
            setting => format!("{} ({})", self.figure.title, setting.join(", ")),
        }
    }

    /// The same numbers as a table: its header, and a line for each place.
    pub fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        self.by_place(number)
    }

    /// The table with values that `show` writes.
    fn by_place(&self, show: impl Fn(f64) -> String) -> (Vec<String>, Vec<Vec<String>>) {
        let first = match self.figure.across {
            Across::Numbers { title, .. } if matches!(self.content, Content::Curves(_)) => title,
            _ => "",
        };
        let (names, lines): (Vec<&String>, Vec<Vec<String>>) = match &self.content {
            Content::Curves(curves) => {
                let line = |x: f64| {
                    let cell = |curve: &Curve| curve.at(x).map(&show).unwrap_or_default();
                    std::iter::once(number(x)).chain(curves.iter().map(cell)).collect()
                };
                (
                    curves.iter().map(|curve| &curve.name).collect(),
                    places(curves).into_iter().map(line).collect(),
                )
            }
            Content::Bars { names, bars } => {
                let line = |(at, name): (usize, &String)| {
                    let cells = bars.iter().map(|bars| bars.values[at].map(&show).unwrap_or_default());
                    std::iter::once(name.clone()).chain(cells).collect()
                };
                (bars.iter().map(|bars| &bars.name).collect(), names.iter().enumerate().map(line).collect())
            }
            Content::Dots { names, dots } => {
                let cell = |ends: (f64, f64)| match ends {
                    (least, most) if least == most => show(least),
                    (least, most) => format!("{} to {}", show(least), show(most)),
                };
                let line = |(at, name): (usize, &String)| {
                    let cells = dots.iter().map(|dots| dots.ends(at).map(cell).unwrap_or_default());
                    std::iter::once(name.clone()).chain(cells).collect()
                };
                (dots.iter().map(|dots| &dots.name).collect(), names.iter().enumerate().map(line).collect())
            }
        };
        (std::iter::once(first.to_owned()).chain(names.into_iter().cloned()).collect(), lines)
    }

    /// The same table with units, and a line for each contender.
    pub fn by_contender(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let show = |value| self.figure.amount(value);
        if let (Content::Curves(curves), Across::Numbers { of: Number::Metric(metric), title, .. }) =
            (&self.content, &self.figure.across)
        {
            // Each contender has its own places.
            let of_curve = |curve: &Curve| {
                let line = |&(x, y): &(f64, f64)| vec![curve.name.clone(), of_metric(metric, x), show(y)];
                curve.points.iter().map(line).collect::<Vec<_>>()
            };
            let header = ["contender", *title, self.figure.up_title()];
            return (header.map(str::to_owned).to_vec(), curves.iter().flat_map(of_curve).collect());
        }
        let (header, places) = self.by_place(show);
        if matches!(self.content, Content::Dots { .. }) {
            return (header, places);
        }
        let place = |line: &Vec<String>| match header[0].as_str() {
            "" => line[0].clone(),
            title => format!("{title}: {}", line[0]),
        };
        let line = |(at, name): (usize, &String)| {
            std::iter::once(name.clone()).chain(places.iter().map(|line| line[at + 1].clone())).collect()
        };
        let lines = header[1..].iter().enumerate().map(line).collect();
        (std::iter::once("contender".to_owned()).chain(places.iter().map(place)).collect(), lines)
    }
}

impl Curve {
    /// The value at a place.
    fn at(&self, x: f64) -> Option<f64> {
        self.points.iter().find(|point| point.0 == x).map(|point| point.1)
    }
}

/// The places of curves, in order.
fn places<'c>(curves: impl IntoIterator<Item = &'c Curve>) -> Vec<f64> {
    let mut at: Vec<f64> = curves.into_iter().flat_map(|curve| &curve.points).map(|point| point.0).collect();
    at.sort_by(f64::total_cmp);
    at.dedup();
    at
}

/// More places than this are a course over time, which only a picture shows.
const MOST_PLACES: usize = 24;

/// Prints a table for each chart of the rows; with `verbose`, also the words of each figure.
pub fn print(figures: &[&'static Figure], rows: &[Row], verbose: bool) {
    for &figure in figures {
        let tables: Vec<_> =
            of_figure(figure, rows).iter().map(|chart| (chart.title(), chart.by_contender())).collect();
        let is_short = |table: &&(String, (Vec<String>, _))| table.1.0.len() <= MOST_PLACES;
        for (title, (header, lines)) in tables.iter().filter(is_short) {
            let what = figure.up_title();
            let is_said = title.to_lowercase().contains(&what.to_lowercase());
            let caption = if is_said { title.clone() } else { format!("{title}: {what}") };
            super::table::of_lines(&caption, header, 1, lines);
        }
        if verbose && !tables.is_empty() && !figure.words.is_empty() {
            super::say_text(figure.words);
        }
    }
}

/// The charts of the rows. A figure without rows has no chart.
pub fn charts(figures: &[&'static Figure], rows: &[Row]) -> Vec<Chart> {
    figures.iter().flat_map(|figure| of_figure(figure, rows)).collect()
}

/// Parameters and their values.
type Setting = Vec<(String, String)>;

fn of_figure(figure: &'static Figure, rows: &[Row]) -> Vec<Chart> {
    let is_here = |row: &&Row| {
        figure.is_about(row)
            && !figure.without.contains(&row.contender.as_str())
            && row.void.is_none()
            && !row.is_control()
    };
    let mut settings: Vec<(Setting, Vec<&Row>)> = Vec::new();
    for row in rows.iter().filter(is_here) {
        let setting = figure.setting(row);
        match settings.iter_mut().find(|(known, _)| *known == setting) {
            Some((_, rows)) => rows.push(row),
            None => settings.push((setting, vec![row])),
        }
    }
    // A parameter that is the same in all of them is left out.
    let constant: Vec<String> = match settings.as_slice() {
        [(first, _), others @ ..] => {
            let same = |pair: &&(String, String)| others.iter().all(|(setting, _)| setting.contains(pair));
            first.iter().filter(same).map(|(name, _)| name.clone()).collect()
        }
        [] => Vec::new(),
    };
    let chart = |(setting, rows): (Setting, Vec<&Row>)| {
        let content = figure.content(&setting, &rows)?;
        let setting = setting.into_iter().filter(|(name, _)| !constant.contains(name)).collect();
        Some(Chart { figure, setting, content })
    };
    settings.into_iter().filter_map(chart).collect()
}

impl Figure {
    /// Whether the row is of its experiment and of one of its scenarios.
    pub fn is_about(&self, row: &Row) -> bool {
        row.experiment == self.experiment && self.scenarios.contains(&row.scenario.as_str())
    }

    /// The parameters of a row that decide its chart.
    fn setting(&self, row: &Row) -> Setting {
        let is_across = |name: &str| match self.across {
            Across::Numbers { of: Number::Param(param), .. } => name == param,
            Across::Params(params) => params.contains(&name),
            Across::Ratios { by } => name == by,
            _ => false,
        };
        let splits = |name: &str| {
            !is_across(name) && ![self.beside, self.named, &EFFORT].iter().any(|known| known.contains(&name))
        };
        let scenario = match (self.scenarios.len(), &self.across) {
            (1, _) | (_, Across::Scenarios) => None,
            _ if self.beside.contains(&"scenario") => None,
            _ => Some(("scenario".to_owned(), row.scenario.clone())),
        };
        let contender = self.apart.then(|| ("contender".to_owned(), row.contender.clone()));
        let params = row.params.iter().filter(|(name, _)| splits(name));
        scenario
            .into_iter()
            .chain(contender)
            .chain(params.map(|(name, value)| (name.clone(), plain(value))))
            .collect()
    }

    fn content(&self, setting: &[(String, String)], rows: &[&Row]) -> Option<Content> {
        match &self.across {
            Across::Numbers { of, logarithmic, .. } => {
                let curves = self.curves(*of, *logarithmic, rows);
                if curves.iter().all(|curve| curve.points.len() < 2) {
                    return self.as_bars(curves);
                }
                Some(Content::Curves(curves))
            }
            Across::Ratios { by } => self.dots(by, rows),
            across => {
                let (mut names, mut bars): (Vec<String>, Vec<Bars>) = (Vec::new(), Vec::new());
                let mut put = |name: &str, contender: &str, value: f64, published: bool| {
                    let at = names.iter().position(|known| known == name).unwrap_or(names.len());
                    if at == names.len() {
                        if published {
                            return;
                        }
                        names.push(name.to_owned());
                    }
                    let place = bars.iter().position(|bars| bars.name == contender).unwrap_or(bars.len());
                    if place == bars.len() {
                        bars.push(Bars { name: contender.to_owned(), values: Vec::new(), published });
                    }
                    let values = &mut bars[place].values;
                    values.resize(values.len().max(at + 1), None);
                    values[at] = Some(value);
                };
                for row in rows {
                    for (name, value) in self.named(across, row) {
                        if is_drawable(value, self.up.logarithmic) {
                            put(&name, &self.name(row), value, false);
                        }
                    }
                }
                let has = |wanted: &(&str, &str)| {
                    setting.iter().any(|(name, value)| (name.as_str(), value.as_str()) == *wanted)
                };
                for published in self.published.iter().filter(|it| it.setting.iter().all(has)) {
                    published.points.iter().for_each(|&(name, value)| put(name, published.name, value, true));
                }
                bars.iter_mut().for_each(|bars| bars.values.resize(names.len(), None));
                (!bars.is_empty()).then_some(Content::Bars { names, bars })
            }
        }
    }

    fn dots(&self, by: &str, rows: &[&Row]) -> Option<Content> {
        let (mut names, mut dots): (Vec<String>, Vec<Dots>) = (Vec::new(), Vec::new());
        for row in rows {
            let (Some(value), Some(kind)) = (row.metric(self.up.metric), row.params.get(by)) else {
                continue;
            };
            if !is_drawable(value, self.up.logarithmic) {
                continue;
            }
            let (name, kind) = (self.name(row), plain(kind));
            let at = names.iter().position(|known| *known == name).unwrap_or(names.len());
            if at == names.len() {
                names.push(name);
            }
            match dots.iter_mut().find(|dots| dots.name == kind) {
                Some(dots) => dots.points.push((at, value)),
                None => dots.push(Dots { name: kind, points: vec![(at, value)] }),
            }
        }
        (!dots.is_empty()).then_some(Content::Dots { names, dots })
    }

    /// Draws curves of a single point as bars.
    fn as_bars(&self, curves: Vec<Curve>) -> Option<Content> {
        let Across::Numbers { title, .. } = self.across else { return None };
        let at = places(&curves);
        let names: Vec<String> = at.iter().map(|&x| format!("{title}: {}", number(x))).collect();
        let values = |curve: &Curve| at.iter().map(|&x| curve.at(x)).collect();
        let bars = |curve: Curve| Bars { values: values(&curve), name: curve.name, published: false };
        (!names.is_empty()).then(|| Content::Bars { names, bars: curves.into_iter().map(bars).collect() })
    }

    /// The contender's name in the chart, for this row.
    fn name(&self, row: &Row) -> String {
        let value =
            |name: &&str| Some(format!(", {} {}", name.replace('_', " "), plain(row.params.get(*name)?)));
        let named = self.named.iter().filter_map(value).collect::<String>();
        if self.apart { named.trim_start_matches(", ").to_owned() } else { row.contender.clone() + &named }
    }

    /// The bars of a row, with their names along the axis.
    fn named(&self, across: &Across, row: &Row) -> Vec<(String, f64)> {
        let name = match across {
            Across::Metrics(metrics) => {
                let named = |&(metric, name): &(&str, &str)| Some((name.to_owned(), row.metric(metric)?));
                return metrics.iter().filter_map(named).collect();
            }
            Across::Params(params) => {
                let value = |name: &&str| {
                    Some(format!("{} {}", name.replace('_', " "), plain(row.params.get(*name)?)))
                };
                params.iter().filter_map(value).collect::<Vec<_>>().join(", ")
            }
            _ => row.scenario.clone(),
        };
        row.metric(self.up.metric).map(|value| (name, value)).into_iter().collect()
    }

    fn curves(&self, of: Number, logarithmic: bool, rows: &[&Row]) -> Vec<Curve> {
        let mut curves: Vec<Curve> = Vec::new();
        for row in rows {
            let x = match of {
                Number::Param(name) => row.params.get(name).and_then(Value::as_f64),
                Number::Metric(name) => row.metric(name),
            };
            let (Some(x), Some(y)) = (x, row.metric(self.up.metric)) else { continue };
            if !is_drawable(x, logarithmic) || !is_drawable(y, self.up.logarithmic) {
                continue;
            }
            let name = self.name(row);
            let place = curves.iter().position(|curve| curve.name == name).unwrap_or(curves.len());
            if place == curves.len() {
                curves.push(Curve { name, points: Vec::new(), band: Vec::new() });
            }
            let curve = &mut curves[place];
            // A contender that cannot reach what was asked for has the same value in each further row. Only the first of
            // these rows is drawn.
            let again = |&(last, _): &(f64, f64)| matches!(of, Number::Metric(_)) && x < last * SAME;
            if curve.points.last().is_some_and(again) {
                continue;
            }
            curve.points.push((x, y));
            let band = self.up.band.and_then(|(from, to)| row.metric(from).zip(row.metric(to)));
            if let Some((from, to)) = band.filter(|&(from, _)| is_drawable(from, self.up.logarithmic)) {
                curve.band.push((x, from, to));
            }
        }
        for curve in &mut curves {
            curve.points.sort_by(|one, other| one.0.total_cmp(&other.0));
            curve.band.sort_by(|one, other| one.0.total_cmp(&other.0));
        }
        curves
    }
}

/// Parameters of how a row was measured, not of what was measured.
const EFFORT: [&str; 5] = ["rounds", "iterations", "windows", "seed", "operations"];

/// Metrics whose ratio is below this count as the same number along an axis.
const SAME: f64 = 1.01;

/// Whether a number has a place on the axis: a logarithmic axis has only numbers above 0.
fn is_drawable(value: f64, logarithmic: bool) -> bool {
    value.is_finite() && (value > 0.0 || !logarithmic)
}
