//! The figures as SVG.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::ShapeStyle;
use stillpoint_harness::error::Stop;
use stillpoint_harness::output::json::Row;

use super::contender::CONTENDERS;
use super::machine::Machine;
use super::rows::{INITIATORS, RECEIVERS, SYNCHRONIZE};

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
        without: &["flat+mutex", "tree+mutex", "tree+same-order"],
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
        logarithmic: (true, false),
    },
];

/// A metric in the place of the parameter: how often was reached, not what was asked for.
const REACHED: &str = "reached_hertz";
/// Asking for more than can be done reaches the same frequency over and over.
const SAME: f64 = 1.01;

const SIZE: (u32, u32) = (900, 560);
const FONT: &str = "sans-serif";
/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito, 2008), and one more; by the place of
/// the contender in the list, so that it has the same one in each figure.
const COLOURS: [RGBColor; 9] = [
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(160, 160, 0),
    RGBColor(120, 120, 120),
    RGBColor(0, 158, 115),
    RGBColor(0, 114, 178),
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
            all.push(Series { name: &row.contender, points: Vec::new() });
        }
        let Some(series) = all.last_mut() else { continue };
        let again = |&(last, _): &(f64, f64)| figure.parameter == REACHED && x < last * SAME;
        if !series.points.last().is_some_and(again) {
            series.points.push((x, y));
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
