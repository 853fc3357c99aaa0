//! The figures.

use stillpoint_harness::figures;
use stillpoint_harness::output::figures::{Across, Better, Figure, Number, Up};

use super::rows::{HERTZ, INITIATORS, RECEIVERS, SYNCHRONIZE};
use super::sensitivity::{CHANGED, SENSITIVITY};

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
const TOGETHER: Across =
    Across::Numbers { of: Number::Param(INITIATORS), title: "concurrent initiators", logarithmic: true };
const COMMON: Figure = Figure { experiment: "simulate", ..Figure::PLAIN };

/// What is drawn of the rows. No contender is ours or another library's: all are ways to multicast.
pub const FIGURES: &[&Figure] = figures! {
    ..COMMON;
    "simulated-receivers": "Simulated: latency of a barrier" {
        scenarios: &[RECEIVERS],
        across: Across::Numbers { of: Number::Param(RECEIVERS), title: "receivers", logarithmic: false },
        up: LATENCY,
        // A single initiator waits for no mutex, and no other initiator has the same order.
        without: &["flat+mutex", "flat+every", "tree+mutex", "tree+same-order"],
        words: "The poster's figure 1. The jump where the second threads of the cores begin is an input, not a result.",
    }
    "simulated-initiators": "Simulated: latency of a barrier among others" {
        scenarios: &[INITIATORS], across: TOGETHER, up: Up { logarithmic: true, ..LATENCY },
        words: "The poster's figure 2.",
    }
    "simulated-jitter": "Simulated: jitter among others" {
        scenarios: &[INITIATORS], across: TOGETHER,
        up: Up { logarithmic: true, ..LATENCY.between("latency_us_p10", "latency_us_p90") },
        without: &[
            "flat+mutex",
            "tree+mutex",
            "tree+same-order",
            "cluster",
            "shorthand",
            "tree+flat-ack",
            "split",
            "hybrid",
            "mprotect",
            "mprotect+tree",
        ],
        words: "The poster's figure 2: the tree has visible jitter. The band holds the middle four fifths of the operations.",
    }
    "simulated-synchronize": "Simulated: throughput of RCU readers" {
        scenarios: &[SYNCHRONIZE], across: REACHED,
        up: Up {
            metric: "reader_throughput_percent",
            title: "% of the throughput without grace periods",
            ..LATENCY
        },
        beside: &[HERTZ], without: &["flat+mutex", "tree+mutex", "tree+same-order"],
        words: "The poster's figure 3.",
    }
    "simulated-synchronize-beside-flat": "Simulated: the same beside flat at the same frequency" {
        scenarios: &[SYNCHRONIZE], across: REACHED,
        up: Up {
            metric: "reader_loss_beside_flat_percent",
            title: "reader throughput lost, in %",
            ..LATENCY
        },
        beside: &[HERTZ], without: &["flat", "flat+mutex", "tree+mutex", "tree+same-order"],
        words: "The poster's figure 3, normalised: under 1.25 % lost up to 10 kHz, under 10 % at flat's highest frequency, under 15 % at the tree's.",
    }
    "sensitivity": "Simulated: what stands when inputs change" {
        scenarios: &[SENSITIVITY], across: Across::Ratios { by: CHANGED },
        up: Up {
            metric: "ratio",
            title: "ratio: above 1, the conclusion holds",
            logarithmic: true,
            ..LATENCY
        },
        beside: &["input", "factor"],
        words: "Each dot is a changed machine. The kinds are what was changed: nothing; one input, which is halved or doubled; or all inputs, \
                drawn between half and double.",
    }
};

#[cfg(test)]
mod tests {
    use super::*;
    use stillpoint_harness::output::figures::{Content, charts};
    use stillpoint_harness::output::json::Row;

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
        let of = |name: &str, input: &str, changed: &str, ratio: f64| {
            let row = Row::new("simulate", SENSITIVITY, name).with("input", input).with("factor", 1);
            let mut row = row.with(CHANGED, changed);
            row.put("ratio", ratio, 3);
            row
        };
        let rows = [
            of("tree", "nothing", "nothing", 6.0),
            of("tree", "noise.jitter", "one input", 5.0),
            of("split", "nothing", "nothing", 1.3),
            of("split", "draw 1", "all inputs", 0.9),
        ];
        let charts = charts(FIGURES, &rows);
        let [chart] = charts.as_slice() else { panic!("{charts:?}") };
        assert_eq!(chart.file(), "sensitivity");
        let (header, lines) = chart.table();
        assert_eq!(header, ["", "nothing", "one input", "all inputs"]);
        assert_eq!(lines, [["tree", "6", "5", ""], ["split", "1.3", "", "0.9"]]);
    }
}
