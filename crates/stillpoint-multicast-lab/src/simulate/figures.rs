//! The figures as SVG.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::ShapeStyle;
use stillpoint_harness::error::Stop;
use stillpoint_harness::output::json::Row;

use super::contender::CONTENDERS;
use super::machine::Machine;
use super::rows::{INITIATORS, RECEIVERS, SYNCHRONIZE};
use super::sensitivity::SENSITIVITY;

/// One figure.
struct Figure {
    file: &'static str,
    scenario: &'static str,
    parameter: &'static str,
    metric: &'static str,
    title: &'static str,
    x: &'static str,
    y: &'static str,
    /// Contenders whose lines say nothing here.
    without: &'static [&'static str],
    /// Contenders whose jitter is shown.
    banded: &'static [&'static str],
    /// Whether the second threads of the cores are marked: what jumps there was put in.
    marked: bool,
    logarithmic: (bool, bool),
}

const FIGURES: [Figure; 4] = [
    Figure {
        file: "receivers.svg",
        scenario: RECEIVERS,
        parameter: RECEIVERS,
        metric: "latency_us_p50",
        title: "Latency of a barrier",
        x: "receivers",
        y: "median latency in µs",
        // Alone, an initiator waits for no mutex, and its order is nobody else's.
        without: &["flat+mutex", "flat+every", "tree+mutex", "tree+same-order"],
        banded: &[],
        marked: true,
        logarithmic: (false, false),
    },
    Figure {
        file: "initiators.svg",
        scenario: INITIATORS,
        parameter: INITIATORS,
        metric: "latency_us_p50",
        title: "Latency of a barrier among others",
        x: "concurrent initiators",
        y: "median latency in µs",
        without: &[],
        banded: &["flat", "tree"],
        marked: false,
        logarithmic: (true, true),
    },
    Figure {
        file: "synchronize.svg",
        scenario: SYNCHRONIZE,
        parameter: REACHED,
        metric: "reader_throughput_percent",
        title: "Throughput of RCU readers",
        x: "grace periods a second",
        y: "% of that without grace periods",
        without: &["flat+mutex", "tree+mutex", "tree+same-order"],
        banded: &[],
        marked: false,
        logarithmic: (true, false),
    },
    Figure {
        file: "synchronize-beside-flat.svg",
        scenario: SYNCHRONIZE,
        parameter: REACHED,
        metric: "reader_loss_beside_flat_percent",
        title: "The same beside flat at the same frequency",
        x: "grace periods a second",
        y: "reader throughput lost in %",
        without: &["flat", "flat+mutex", "tree+mutex", "tree+same-order"],
        banded: &[],
        marked: false,
        logarithmic: (true, false),
    },
];

/// A metric in the place of the parameter: how often was reached, not what was asked for.
const REACHED: &str = "reached_hertz";
/// Asking for more than can be done reaches the same frequency over and over.
const SAME: f64 = 1.01;

/// The figure of the sensitivity analysis.
const CONCLUSIONS: &str = "sensitivity.svg";

const SIZE: (u32, u32) = (900, 560);
const FONT: &str = "sans-serif";
/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito, 2008), and some more; by the place of
/// the contender in the list, so that it has the same one in each figure.
const COLOURS: [RGBColor; 12] = [
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(160, 160, 0),
    RGBColor(120, 120, 120),
    RGBColor(0, 158, 115),
    RGBColor(0, 114, 178),
    RGBColor(120, 60, 0),
    RGBColor(90, 0, 90),
    RGBColor(180, 200, 0),
];
/// The hybrid lies on the line of one of the others: a thin line on a wide one.
const THIN: &str = "hybrid";

fn style(name: &str) -> ShapeStyle {
    let place = CONTENDERS.iter().position(|contender| contender.name == name).unwrap_or(0);
    COLOURS[place % COLOURS.len()].stroke_width(if name == THIN { 1 } else { 3 })
}

/// A number at an axis, without a fraction that says nothing.
fn tick(value: &f64) -> String {
    ((value * 1e3).round() / 1e3).to_string()
}

/// The line of a contender.
struct Series<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
    /// Between which the middle four fifths of the operations lie.
    band: Vec<(f64, f64, f64)>,
}

/// The figures of the rows that there are: file names and contents.
///
/// # Errors
/// When a figure cannot be drawn.
pub(super) fn draw(machine: &Machine, rows: &[Row]) -> Result<Vec<(&'static str, String)>, Stop> {
    let mut drawn = Vec::new();
    for figure in &FIGURES {
        let series = series(figure, rows);
        if series.iter().any(|series| series.points.len() > 1) {
            let text = one(figure, machine, &series)
                .map_err(|error| Stop::Failed(format!("{} cannot be drawn: {error}", figure.file)))?;
            drawn.push((figure.file, text));
        }
    }
    let text = conclusions(machine, rows)
        .map_err(|error| Stop::Failed(format!("{CONCLUSIONS} cannot be drawn: {error}")))?;
    drawn.extend(text.map(|text| (CONCLUSIONS, text)));
    Ok(drawn)
}

fn series<'a>(figure: &Figure, rows: &'a [Row]) -> Vec<Series<'a>> {
    let mut all: Vec<Series<'a>> = Vec::new();
    let of_figure =
        |row: &&Row| row.scenario == figure.scenario && !figure.without.contains(&row.contender.as_str());
    for row in rows.iter().filter(of_figure) {
        let x = match figure.parameter {
            REACHED => row.metric(REACHED),
            parameter => row.params.get(parameter).and_then(serde_json::Value::as_f64),
        };
        let (Some(x), Some(y)) = (x, row.metric(figure.metric)) else { continue };
        if !drawable(figure, (x, y)) {
            continue;
        }
        if all.last().is_none_or(|series| series.name != row.contender) {
            all.push(Series { name: &row.contender, points: Vec::new(), band: Vec::new() });
        }
        let Some(series) = all.last_mut() else { continue };
        let again = |&(last, _): &(f64, f64)| figure.parameter == REACHED && x < last * SAME;
        if !series.points.last().is_some_and(again) {
            series.points.push((x, y));
            let ends = (row.metric("latency_us_p10"), row.metric("latency_us_p90"));
            if let (true, (Some(from), Some(to))) = (figure.banded.contains(&series.name), ends) {
                series.band.push((x, from, to));
            }
        }
    }
    all
}

/// Whether a point has a place: a logarithmic axis ends above 0.
fn drawable(figure: &Figure, (x, y): (f64, f64)) -> bool {
    let fits = |value: f64, logarithmic: bool| value.is_finite() && (value > 0.0 || !logarithmic);
    fits(x, figure.logarithmic.0) && fits(y, figure.logarithmic.1)
}

/// From the least to the most of all points, with 0 where the axis is not logarithmic, and some room.
fn range(series: &[Series<'_>], logarithmic: bool, of: fn(&(f64, f64)) -> f64) -> (f64, f64) {
    let values = || series.iter().flat_map(|series| &series.points).map(of);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    if logarithmic {
        return (least * 0.9, most * 1.1);
    }
    let (least, most) = (least.min(0.0) * 1.05, most * 1.05);
    // An axis has some length even if all is 0.
    (least, if most > least { most } else { 1.0 })
}

fn highest(series: &[Series<'_>]) -> f64 {
    series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(0.0, f64::max)
}

/// How many receivers take up the first threads of all cores; `None` where each core has one.
fn second_threads(machine: &Machine) -> Option<f64> {
    let threads = machine.topology.threads_per_core;
    (threads > 1).then(|| (machine.cpus() / threads) as f64)
}

/// What stands when the inputs change: for each conclusion the ratios of all changed machines. None where there are no
/// such rows.
fn conclusions(machine: &Machine, rows: &[Row]) -> Result<Option<String>, String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let of = |row: &Row| row.metric("ratio").filter(|ratio| *ratio > 0.0 && ratio.is_finite());
    let mut names: Vec<&str> = Vec::new();
    let mut points: Vec<(f64, f64, Colour)> = Vec::new();
    for row in rows.iter().filter(|row| row.scenario == SENSITIVITY) {
        let Some(ratio) = of(row) else { continue };
        if names.last() != Some(&row.contender.as_str()) {
            names.push(&row.contender);
        }
        let colour = match row.params.get("factor") {
            _ if row.params["input"] == "nothing" => Colour::Base,
            Some(factor) if factor.is_string() => Colour::Draw,
            _ => Colour::Single,
        };
        points.push((ratio, names.len() as f64 - 1.0, colour));
    }
    if names.is_empty() {
        return Ok(None);
    }
    let least = points.iter().map(|point| point.0).fold(0.5, f64::min) * 0.9;
    let most = points.iter().map(|point| point.0).fold(2.0, f64::max) * 1.1;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(|error| failed(&error))?;
        let label = |place: &f64| {
            let whole = (place - place.round()).abs() < 1e-6;
            names
                .get(place.round() as usize)
                .filter(|_| whole && *place >= 0.0)
                .map_or_else(String::new, |&name| name.to_owned())
        };
        let mut chart = ChartBuilder::on(&area)
            .caption(format!("What stands when inputs change (simulated: {})", machine.name), (FONT, 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(150)
            .build_cartesian_2d((least..most).log_scale(), (names.len() as f64 - 0.5)..-0.5)
            .map_err(|error| failed(&error))?;
        chart
            .configure_mesh()
            .x_desc("ratio: above 1 the conclusion holds; black: the inputs as they are, orange: one halved or doubled, blue: all drawn")
            .x_label_formatter(&tick)
            .y_labels(2 * names.len())
            .y_label_formatter(&label)
            .light_line_style(WHITE)
            .draw()
            .map_err(|error| failed(&error))?;
        chart
            .draw_series([PathElement::new(
                [(1.0, -0.5), (1.0, names.len() as f64 - 0.5)],
                BLACK.stroke_width(2),
            )])
            .map_err(|error| failed(&error))?;
        for kind in [Colour::Draw, Colour::Single, Colour::Base] {
            let (colour, lower, size) = match kind {
                Colour::Base => (BLACK, 0.0, 5),
                Colour::Single => (COLOURS[1], -0.12, 3),
                Colour::Draw => (COLOURS[3], 0.12, 3),
            };
            let dots = points.iter().filter(|point| point.2 == kind);
            chart
                .draw_series(dots.map(|&(x, y, _)| Circle::new((x, y + lower), size, colour.filled())))
                .map_err(|error| failed(&error))?;
        }
        area.present().map_err(|error| failed(&error))?;
    }
    Ok(Some(text))
}

/// What a point is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colour {
    Base,
    Single,
    Draw,
}

fn one(figure: &Figure, machine: &Machine, series: &[Series<'_>]) -> Result<String, String> {
    let (x, y) = (
        range(series, figure.logarithmic.0, |point| point.0),
        range(series, figure.logarithmic.1, |point| point.1),
    );
    // The axes have a type for each scale.
    match figure.logarithmic {
        (true, true) => plot(figure, machine, series, (x.0..x.1).log_scale(), (y.0..y.1).log_scale()),
        (true, false) => plot(figure, machine, series, (x.0..x.1).log_scale(), y.0..y.1),
        (false, true) => plot(figure, machine, series, x.0..x.1, (y.0..y.1).log_scale()),
        (false, false) => plot(figure, machine, series, x.0..x.1, y.0..y.1),
    }
}

fn plot<X, Y>(figure: &Figure, machine: &Machine, series: &[Series<'_>], x: X, y: Y) -> Result<String, String>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(|error| failed(&error))?;
        let mut chart = ChartBuilder::on(&area)
            .caption(format!("{} (simulated: {})", figure.title, machine.name), (FONT, 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)
            .map_err(|error| failed(&error))?;
        chart
            .configure_mesh()
            .x_desc(figure.x)
            .y_desc(figure.y)
            .x_label_formatter(&tick)
            .y_label_formatter(&tick)
            .light_line_style(WHITE)
            .draw()
            .map_err(|error| failed(&error))?;
        if let (true, Some(begin)) = (figure.marked, second_threads(machine)) {
            let (from, to) = (range(series, figure.logarithmic.1, |point| point.1).0, highest(series));
            let grey = RGBColor(120, 120, 120);
            chart
                .draw_series([PathElement::new([(begin, from), (begin, to)], grey.stroke_width(1))])
                .map_err(|error| failed(&error))?;
            let says = format!("second threads: a factor that was put in, {}", machine.noise.busy_sibling);
            chart
                .draw_series([Text::new(says, (begin, to), (FONT, 13).into_font().color(&grey))])
                .map_err(|error| failed(&error))?;
        }
        for series in series.iter().filter(|series| series.band.len() > 1) {
            let forth = series.band.iter().map(|&(x, from, _)| (x, from));
            let back = series.band.iter().rev().map(|&(x, _, to)| (x, to));
            let colour = style(series.name).color.mix(0.25);
            chart
                .draw_series([Polygon::new(forth.chain(back).collect::<Vec<_>>(), colour.filled())])
                .map_err(|error| failed(&error))?;
        }
        for series in series {
            let style = style(series.name);
            chart
                .draw_series(LineSeries::new(series.points.iter().copied(), style).point_size(2))
                .map_err(|error| failed(&error))?
                .label(series.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()
            .map_err(|error| failed(&error))?;
        area.present().map_err(|error| failed(&error))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::rows::HERTZ;
    use super::*;
    use serde_json::Map;

    fn row(scenario: &str, contender: &str, x: (&str, f64), metrics: &[(&str, f64)]) -> Row {
        Row {
            experiment: "simulate".into(),
            scenario: scenario.to_owned(),
            contender: contender.to_owned(),
            params: Map::from_iter([(x.0.to_owned(), x.1.into())]),
            metrics: metrics.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect(),
            void: None,
        }
    }

    #[test]
    fn a_figure_names_its_machine_its_axes_and_its_lines() {
        let machine = Machine::load("seed").unwrap();
        let at = |contender, x, y| row(RECEIVERS, contender, (RECEIVERS, x), &[("latency_us_p50", y)]);
        let rows =
            [at("flat", 1.0, 2.0), at("flat", 143.0, 100.0), at("tree", 1.0, 2.0), at("tree", 143.0, 17.0)];
        let drawn = draw(&machine, &rows).unwrap();
        let [("receivers.svg", text)] = drawn.as_slice() else { panic!("{} figures", drawn.len()) };
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for part in ["4 sockets", "receivers", "median latency in µs", "flat", "tree"] {
            assert!(text.contains(part), "'{part}' is missing");
        }
    }

    #[test]
    fn what_has_no_place_on_an_axis_is_left_out() {
        let machine = Machine::load("seed").unwrap();
        let at = |x, y| row(INITIATORS, "flat", (INITIATORS, x), &[("latency_us_p50", y)]);
        let rows = [at(1.0, 0.0), at(2.0, 3.0), at(4.0, -1.0), at(8.0, f64::INFINITY), at(16.0, 5.0)];
        let series = series(&FIGURES[1], &rows);
        assert_eq!(series[0].points, [(2.0, 3.0), (16.0, 5.0)]);
        assert_eq!(draw(&machine, &rows).unwrap().len(), 1);
        assert!(draw(&machine, &[at(1.0, 0.0), at(2.0, 0.0)]).unwrap().is_empty());
        let linear = |x| row(RECEIVERS, "flat", (RECEIVERS, x), &[("latency_us_p50", 0.0)]);
        assert_eq!(draw(&machine, &[linear(1.0), linear(2.0)]).unwrap().len(), 1);
    }

    #[test]
    fn every_contender_has_a_colour_of_its_own() {
        assert!(CONTENDERS.len() <= COLOURS.len());
    }

    #[test]
    fn the_band_of_jitter_is_drawn_and_the_jump_is_called_an_input() {
        let machine = Machine::load("seed").unwrap();
        let metrics =
            |y: f64| [("latency_us_p10", y / 2.0), ("latency_us_p50", y), ("latency_us_p90", 2.0 * y)];
        let rows = [1.0, 72.0, 144.0].map(|x| row(INITIATORS, "tree", (INITIATORS, x), &metrics(x)));
        assert_eq!(
            series(&FIGURES[1], &rows)[0].band,
            [(1.0, 0.5, 2.0), (72.0, 36.0, 144.0), (144.0, 72.0, 288.0)]
        );
        assert!(draw(&machine, &rows).unwrap()[0].1.contains("<polygon"));
        let rows = [1.0, 143.0].map(|x| row(RECEIVERS, "tree", (RECEIVERS, x), &metrics(x)));
        assert!(draw(&machine, &rows).unwrap()[0].1.contains("a factor that was put in, 1.35"));
    }

    #[test]
    fn the_sensitivity_analysis_is_drawn_with_the_names_of_its_conclusions() {
        let machine = Machine::load("seed").unwrap();
        let of = |name: &str, input: &str, factor: serde_json::Value, ratio: f64| {
            let mut row = Row::new("simulate", SENSITIVITY, name).with("input", input).with("factor", factor);
            row.put("ratio", ratio, 3);
            row
        };
        let rows = [
            of("tree", "nothing", 1.into(), 6.0),
            of("tree", "noise.jitter", 0.5.into(), 5.0),
            of("split", "nothing", 1.into(), 1.3),
            of("split", "draw 1", "drawn".into(), 0.9),
        ];
        let drawn = draw(&machine, &rows).unwrap();
        let [(CONCLUSIONS, text)] = drawn.as_slice() else { panic!("{} figures", drawn.len()) };
        assert_eq!(text.matches("<circle").count(), rows.len());
        for name in ["tree", "split"] {
            assert!(text.lines().any(|line| line.trim() == name), "{name} is no label");
        }
    }

    #[test]
    fn a_frequency_that_was_reached_before_is_drawn_once() {
        let at = |asked, reached| {
            let metrics = [(REACHED, reached), ("reader_throughput_percent", 1.0)];
            row(SYNCHRONIZE, "flat", (HERTZ, asked), &metrics)
        };
        let rows = [at(1e3, 1e3), at(1e4, 3.8e3), at(3e4, 3.8e3), at(0.0, 3.81e3)];
        let series = series(&FIGURES[2], &rows);
        let reached: Vec<f64> = series[0].points.iter().map(|point| point.0).collect();
        assert_eq!(reached, [1e3, 3.8e3]);
    }
}
