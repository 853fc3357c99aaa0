//! The figures.

use plotters::prelude::*;
use stillpoint_harness::error::Stop;
use stillpoint_harness::output::figures::{Across, Better, Figure, Number, Up, bring_letters};
use stillpoint_harness::output::json::Row;

use super::machine::Machine;
use super::rows::{HERTZ, INITIATORS, RECEIVERS, SYNCHRONIZE};
use super::sensitivity::SENSITIVITY;

const LATENCY: Up = Up {
    metric: "latency_us_p50",
    band: None,
    title: "median latency, in µs",
    logarithmic: false,
    better: Better::Neither,
};
/// The frequency that was reached, not the one that was asked for.
const REACHED: Across = Across::Numbers {
    of: Number::Metric("reached_hertz"),
    title: "grace periods a second",
    logarithmic: true,
};
const COMMON: Figure = Figure { experiment: "simulate", ..Figure::PLAIN };

/// What is drawn of the rows. No contender is ours or another library's: all are ways to multicast.
pub const FIGURES: &[&Figure] = &[
    &Figure {
        name: "simulated-receivers",
        scenarios: &[RECEIVERS],
        title: "Simulated: latency of a barrier",
        across: Across::Numbers { of: Number::Param(RECEIVERS), title: "receivers", logarithmic: false },
        up: LATENCY,
        // A single initiator waits for no mutex, and no other initiator has the same order.
        without: &["flat+mutex", "flat+every", "tree+mutex", "tree+same-order"],
        words: "The poster's figure 1. The jump where the second threads of the cores begin is an input, not a result.",
        ..COMMON
    },
    &Figure {
        name: "simulated-initiators",
        scenarios: &[INITIATORS],
        title: "Simulated: latency of a barrier among others",
        across: Across::Numbers {
            of: Number::Param(INITIATORS),
            title: "concurrent initiators",
            logarithmic: true,
        },
        up: Up { logarithmic: true, ..LATENCY },
        words: "The poster's figure 2.",
        ..COMMON
    },
    &Figure {
        name: "simulated-jitter",
        scenarios: &[INITIATORS],
        title: "Simulated: jitter among others",
        across: Across::Numbers {
            of: Number::Param(INITIATORS),
            title: "concurrent initiators",
            logarithmic: true,
        },
        up: Up { logarithmic: true, ..LATENCY.between("latency_us_p10", "latency_us_p90") },
        without: &[
            "flat+mutex",
            "flat+every",
            "tree+mutex",
            "tree+same-order",
            "cluster",
            "tree+flat-ack",
            "split",
            "hybrid",
            "mprotect",
            "mprotect+tree",
        ],
        words: "The poster's figure 2: the tree has visible jitter. The band holds the middle four fifths of the operations.",
        ..COMMON
    },
    &Figure {
        name: "simulated-synchronize",
        scenarios: &[SYNCHRONIZE],
        title: "Simulated: throughput of RCU readers",
        across: REACHED,
        up: Up {
            metric: "reader_throughput_percent",
            title: "% of the throughput without grace periods",
            ..LATENCY
        },
        beside: &[HERTZ],
        without: &["flat+mutex", "tree+mutex", "tree+same-order"],
        words: "The poster's figure 3.",
        ..COMMON
    },
    &Figure {
        name: "simulated-synchronize-beside-flat",
        scenarios: &[SYNCHRONIZE],
        title: "Simulated: the same beside flat at the same frequency",
        across: REACHED,
        up: Up {
            metric: "reader_loss_beside_flat_percent",
            title: "reader throughput lost, in %",
            ..LATENCY
        },
        beside: &[HERTZ],
        without: &["flat", "flat+mutex", "tree+mutex", "tree+same-order"],
        words: "The poster's figure 3, normalised: under 1.25 % lost up to 10 kHz, under 10 % at flat's highest frequency, under 15 % at the tree's.",
        ..COMMON
    },
];

/// The figure of the sensitivity analysis.
const CONCLUSIONS: &str = "sensitivity.svg";

const SIZE: (u32, u32) = (900, 560);
const FONT: &str = "sans-serif";
/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito, 2008).
const ORANGE: RGBColor = RGBColor(230, 159, 0);
const BLUE: RGBColor = RGBColor(86, 180, 233);

/// A number at an axis, without needless digits.
fn tick(value: &f64) -> String {
    ((value * 1e3).round() / 1e3).to_string()
}

/// The figure that only this command has, if there are rows for it: its file name and content.
///
/// # Errors
/// When it cannot be drawn.
pub(super) fn draw(machine: &Machine, rows: &[Row]) -> Result<Option<(&'static str, String)>, Stop> {
    let text = conclusions(machine, rows)
        .map_err(|error| Stop::Failed(format!("cannot draw {CONCLUSIONS}: {error}")))?;
    Ok(text.map(|text| (CONCLUSIONS, text)))
}

/// The picture of what stands when the inputs change: for each conclusion, the ratios of all changed machines. `None`
/// if there are no such rows.
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
    bring_letters();
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
                Colour::Single => (ORANGE, -0.12, 3),
                Colour::Draw => (BLUE, 0.12, 3),
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

/// What a point shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colour {
    Base,
    Single,
    Draw,
}

#[cfg(test)]
mod tests {
    use super::*;
    use stillpoint_harness::output::figures::{Content, charts};

    fn row(scenario: &str, contender: &str, x: (&str, f64), metrics: &[(&str, f64)]) -> Row {
        let mut row = Row::new("simulate", scenario, contender).with(x.0, x.1);
        metrics.iter().for_each(|&(name, value)| row.put(name, value, 3));
        row
    }

    #[test]
    fn the_band_of_jitter_is_there_and_the_jump_is_called_an_input() {
        let metrics =
            |y: f64| [("latency_us_p10", y / 2.0), ("latency_us_p50", y), ("latency_us_p90", 2.0 * y)];
        let mut rows: Vec<Row> =
            [1.0, 72.0, 144.0].map(|x| row(INITIATORS, "tree", (INITIATORS, x), &metrics(x))).into();
        rows.extend([1.0, 143.0].map(|x| row(RECEIVERS, "tree", (RECEIVERS, x), &metrics(x))));
        let charts = charts(FIGURES, &rows);
        let files: Vec<String> = charts.iter().map(|chart| chart.file()).collect();
        assert_eq!(files, ["simulated-receivers", "simulated-initiators", "simulated-jitter"]);
        let Content::Curves(curves) = &charts[2].content else { panic!("bars") };
        assert_eq!(curves[0].band, [(1.0, 0.5, 2.0), (72.0, 36.0, 144.0), (144.0, 72.0, 288.0)]);
        assert!(charts[0].figure.words.contains("is an input"));
    }

    #[test]
    fn a_frequency_that_was_reached_before_is_drawn_once() {
        let at = |asked, reached| {
            let metrics = [("reached_hertz", reached), ("reader_throughput_percent", 1.0)];
            row(SYNCHRONIZE, "flat", (HERTZ, asked), &metrics)
        };
        let rows = [at(1e3, 1e3), at(1e4, 3.8e3), at(3e4, 3.8e3), at(0.0, 3.81e3)];
        let charts = charts(FIGURES, &rows);
        let Content::Curves(curves) = &charts[0].content else { panic!("bars") };
        let reached: Vec<f64> = curves[0].points.iter().map(|point| point.0).collect();
        assert_eq!(reached, [1e3, 3.8e3]);
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
        let Some((CONCLUSIONS, text)) = drawn else { panic!("nothing is drawn") };
        assert_eq!(text.matches("<circle").count(), rows.len());
        for name in ["tree", "split"] {
            assert!(text.lines().any(|line| line.trim() == name), "the picture has no label {name}");
        }
    }
}
