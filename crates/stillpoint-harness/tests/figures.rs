//! Figures of rows: what is drawn, where published numbers stand, verdicts, and whole pictures.

use stillpoint_harness::output::figures::*;
use stillpoint_harness::output::format::number;
use stillpoint_harness::output::json::Row;

const READERS: Across = Across::Numbers { of: Number::Param("readers"), title: "readers", logarithmic: true };

const fn up(better: Better) -> Up {
    Up { metric: "delay_us", band: Some(("q1", "q3")), title: "delay, in µs", logarithmic: true, better }
}

static DELAYS: Figure = Figure {
    name: "delays",
    experiment: "reclaim",
    scenarios: &["one-core"],
    title: "Delays",
    across: READERS,
    up: up(Better::Less),
    beside: &["policy"],
    named: &["cache"],
    apart: false,
    without: &["nobody"],
    published: &[],
    words: "",
};

static COSTS: Figure = Figure {
    name: "costs",
    experiment: "timer",
    scenarios: &["plain"],
    title: "Costs",
    across: Across::Metrics(&[("add", "add"), ("cancel", "cancel & forget")]),
    up: Up { metric: "", band: None, title: "cycles", logarithmic: false, better: Better::Less },
    beside: &[],
    named: &[],
    apart: false,
    without: &[],
    published: &[
        Published::at_names("the RFC", &[], &[("add", 26.0), ("something else", 1.0)]),
        Published::at_names("the talk", &[("structure", "table")], &[("add", 1000.0)]),
    ],
    words: "",
};

fn delay(contender: &str, readers: u32, structure: &str, delay: f64) -> Row {
    let mut row = Row::new("reclaim", "one-core", contender)
        .with("readers", readers)
        .with("structure", structure)
        .with("policy", contender);
    row.put("delay_us", delay, 3);
    row.put("q1", delay / 2.0, 3);
    row.put("q3", delay * 2.0, 3);
    row
}

fn cost(contender: &str, add: f64, cancel: f64) -> Row {
    let mut row = Row::new("timer", "plain", contender);
    row.put("add", add, 3);
    row.put("cancel", cancel, 3);
    row
}

fn delays() -> Vec<Row> {
    vec![
        delay("stillpoint/a", 8, "table", 20.0),
        delay("stillpoint/a", 1, "table", 10.0),
        delay("dpdk/rcu", 1, "table", 5.0),
        delay("dpdk/rcu", 8, "table", 400.0),
        delay("nobody", 8, "table", 1.0),
        delay("dpdk/rcu", 1, "array", 3.0),
        delay("dpdk/rcu", 2, "array", 4.0),
    ]
}

#[test]
fn each_setting_has_a_chart() {
    let charts = charts(&[&DELAYS], &delays());
    let files: Vec<String> = charts.iter().map(Chart::file).collect();
    assert_eq!(files, ["delays-structure-table", "delays-structure-array"]);
    assert_eq!(charts[0].title(), "Delays (structure table)");
    let names = |chart: &Chart| match &chart.content {
        Content::Curves(curves) => curves.iter().map(|curve| curve.name.clone()).collect::<Vec<_>>(),
        _ => panic!("no curves"),
    };
    assert_eq!(names(&charts[0]), ["stillpoint/a", "dpdk/rcu"]);
    assert_eq!(names(&charts[1]), ["dpdk/rcu"]);
    let (header, lines) = charts[0].table();
    assert_eq!(header, ["readers", "stillpoint/a", "dpdk/rcu"]);
    assert_eq!(lines, [["1", "10", "5"], ["8", "20", "400"]]);
}

#[test]
fn a_verdict_says_by_how_much() {
    let charts = charts(&[&DELAYS], &delays());
    let verdicts = charts[0].verdicts(&["stillpoint/a"], is_ours);
    let factors: Vec<(String, f64)> =
        verdicts.into_iter().map(|verdict| (verdict.at, verdict.factor)).collect();
    assert_eq!(factors, [("readers: 1".to_owned(), 0.5), ("readers: 8".to_owned(), 20.0)]);
    assert!(charts[1].verdicts(&["stillpoint/a"], is_ours).is_empty(), "there is none of ours");
}

fn is_ours(name: &str) -> bool {
    name.starts_with("stillpoint")
}

/// A program has one of our contenders, not the best of them at each place.
#[test]
fn a_verdict_is_about_one_contender_of_ours() {
    let mut rows = delays();
    rows.extend([delay("stillpoint/b", 1, "table", 1.0), delay("stillpoint/b", 8, "table", 1_000.0)]);
    let charts = charts(&[&DELAYS], &rows);
    let ours = |defaults: &[&str]| -> Vec<(String, f64)> {
        charts[0].verdicts(defaults, is_ours).into_iter().map(|verdict| verdict.ours).collect()
    };
    let of = |name: &str, figures: [f64; 2]| figures.map(|figure| (name.to_owned(), figure));
    assert_eq!(ours(&["stillpoint/a", "stillpoint/b"]), of("stillpoint/a", [10.0, 20.0]));
    assert_eq!(ours(&["stillpoint/c", "stillpoint/b"]), of("stillpoint/b", [1.0, 1_000.0]));
    assert!(ours(&[]).is_empty());
}

#[test]
fn what_does_not_count_or_has_no_place_is_not_drawn() {
    let mut rows =
        vec![delay("a", 1, "table", 0.0), delay("a", 2, "table", f64::INFINITY), delay("a", 3, "table", 3.0)];
    let single = charts(&[&DELAYS], &rows);
    let Content::Bars { names, bars } = &single[0].content else { panic!("a single point is no curve") };
    assert_eq!(
        (names.as_slice(), bars[0].values.as_slice()),
        (&["readers: 3".to_owned()][..], &[Some(3.0)][..])
    );
    rows[2].void = Some("it failed".to_owned());
    assert!(charts(&[&DELAYS], &rows).is_empty());
    rows.push(delay("a (again)", 4, "table", 4.0));
    assert!(charts(&[&DELAYS], &rows).is_empty(), "a control is no contender");
}

#[test]
fn a_contender_that_was_measured_in_two_ways_is_drawn_twice() {
    let rows = [0, 512].map(|cache| delay("dpdk/ring", 1, "table", 4.0).with("cache", cache));
    let charts = charts(&[&DELAYS], &rows);
    let (header, lines) = charts[0].table();
    assert_eq!(header[1..], ["dpdk/ring, cache 0", "dpdk/ring, cache 512"]);
    assert_eq!(lines.len(), 1);
}

#[test]
fn contenders_that_are_drawn_apart_have_curves_of_what_is_named() {
    static APART: Figure = Figure {
        experiment: "reclaim",
        scenarios: &["one-core"],
        across: READERS,
        up: up(Better::Less),
        beside: &["policy", "structure"],
        named: &["cache"],
        apart: true,
        ..Figure::PLAIN
    };
    let row = |contender, cache: u32| delay(contender, cache + 1, "table", 4.0).with("cache", cache);
    let rows = [row("a", 0), row("b", 0), row("a", 1), row("a", 1).with("readers", 4)];
    let charts = charts(&[&APART], &rows);
    assert_eq!(charts.iter().map(Chart::title).collect::<Vec<_>>(), [" (contender a)", " (contender b)"]);
    assert_eq!(charts[0].table().0[1..], ["cache 0", "cache 1"]);
}

#[test]
fn bars_stand_at_names_and_published_ones_only_where_something_was_measured() {
    let rows = [cost("stillpoint/wheel", 27.0, 11.0), cost("dpdk/rte_timer", 253.0, 412.0)];
    let of = |structure: &str| rows.clone().map(|row| row.with("structure", structure));
    let charts = charts(&[&COSTS], &[of("table"), of("array")].concat());
    let published = |chart: &Chart| {
        let Content::Bars { names, bars } = &chart.content else { panic!("curves") };
        assert_eq!(names, &["add", "cancel & forget"]);
        let published = bars.iter().filter(|bars| bars.published);
        published.map(|bars| (bars.name.clone(), bars.values.clone())).collect::<Vec<_>>()
    };
    let [table, array] = charts.as_slice() else { panic!("{} charts", charts.len()) };
    let (rfc, talk) =
        (("the RFC".to_owned(), vec![Some(26.0), None]), ("the talk".to_owned(), vec![Some(1000.0), None]));
    assert_eq!(published(table), [rfc.clone(), talk]);
    assert_eq!(published(array), [rfc], "the talk had no array");
    // A verdict leaves out what was published.
    let verdicts = table.verdicts(&["stillpoint/wheel"], is_ours);
    assert_eq!(verdicts.len(), 2);
    assert!(verdicts.iter().all(|verdict| verdict.theirs.0 == "dpdk/rte_timer"), "{verdicts:?}");
}

#[test]
fn pictures_are_whole_on_both_grounds_and_say_what_they_show() {
    let mut rows = delays();
    rows.extend([cost("stillpoint/wheel", 27.0, 11.0), cost("dpdk/rte_timer", 253.0, 412.0)]);
    for chart in charts(&[&DELAYS, &COSTS], &rows) {
        let light = svg(&chart, Ground::Light).unwrap();
        assert!(light.starts_with("<svg") && light.trim_end().ends_with("</svg>"), "{}", chart.file());
        let up = chart.figure.up.title.trim_end_matches(", in µs");
        for part in [chart.title().as_str(), "dpdk/", up] {
            assert!(light.contains(part), "'{part}' is missing in {}", chart.file());
        }
        let dark = svg(&chart, Ground::Dark).unwrap();
        let grounds = [&light, &dark].map(|svg| svg.lines().find(|line| line.starts_with("<rect")).unwrap());
        assert!(grounds[0].contains("fill=\"#FFFFFF\""), "{grounds:?}");
        assert_ne!(grounds[0], grounds[1], "both grounds are the same");
        // Besides the ground: a mark or bar for each figure, and one beside the name of each contender.
        let marks: usize =
            ["<polygon", "<rect", "<circle"].iter().map(|kind| light.matches(kind).count()).sum();
        let (header, lines) = chart.table();
        let figures = lines.iter().flat_map(|line| &line[1..]).filter(|cell| !cell.is_empty()).count();
        assert!(marks > figures + header.len() - 1, "{marks} marks in {}", chart.file());
    }
}

/// What stands before a name of the legend, but for its place.
fn sign(svg: &str, name: &str) -> String {
    let before = &svg[..svg.find(&format!(">\n{name}\n</text>")).unwrap()];
    let before = &before[..before.rfind("<text").unwrap()];
    let sign = &before[before.rfind("</text>").unwrap()..];
    let words = sign
        .split([' ', '\n'])
        .filter(|word| ["<", "fill=", "stroke=", "opacity="].iter().any(|begin| word.starts_with(begin)));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn contenders_of_the_same_colour_have_other_lines_and_bars() {
    let mut rows = Vec::new();
    for number in 0..20 {
        let name = format!("c{number}");
        rows.extend([1, 8].map(|readers| delay(&name, readers, "array", f64::from(number + 1))));
        rows.push(cost(&name, f64::from(number + 1), 1.0));
    }
    for chart in charts(&[&DELAYS, &COSTS], &rows) {
        for ground in [Ground::Light, Ground::Dark] {
            let svg = svg(&chart, ground).unwrap();
            let signs: Vec<String> = (1..20).map(|number| sign(&svg, &format!("c{number}"))).collect();
            for (at, sign) in signs.iter().enumerate() {
                assert!(!signs[..at].contains(sign), "{}: '{sign}' is there twice", chart.file());
            }
            let (picture, _legend) = svg.split_once(">\nc0\n</text>").unwrap();
            let of_later_turns: &[&str] = match chart.content {
                Content::Curves(_) => &["stroke-width=\"2\" points=\""],
                Content::Bars { .. } => &["opacity=\"0.25\"", "opacity=\"1\" fill=\"none\""],
                Content::Dots { .. } => &[],
            };
            for part in of_later_turns {
                let times = picture.matches(part).count();
                // A whole line is drawn once, and each dash as well; each bar stands at two names.
                assert!(times >= if part.starts_with("op") { 2 * 4 } else { 200 }, "{part} {times} times");
            }
        }
    }
}

#[test]
fn an_axis_of_times_has_units_that_fit() {
    let rows = [(1, 4.0), (8, 3_000_000.0)].map(|(readers, time)| delay("a", readers, "array", time));
    let svg = svg(&charts(&[&DELAYS], &rows)[0], Ground::Light).unwrap();
    let has = |line: &str| svg.lines().any(|other| other == line);
    for line in ["10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "delay"] {
        assert!(has(line), "{line} in {svg}");
    }
}

static RATIOS: Figure = Figure {
    name: "ratios",
    experiment: "model",
    scenarios: &["changes"],
    title: "Ratios",
    across: Across::Ratios { by: "changed" },
    up: Up { metric: "ratio", band: None, title: "ratio", logarithmic: true, better: Better::Less },
    beside: &["input"],
    ..Figure::PLAIN
};

#[test]
fn ratios_are_dots_beside_the_names_of_their_contenders() {
    let row = |contender: &str, changed: &str, input: u32, ratio: f64| {
        let row = Row::new("model", "changes", contender).with("changed", changed).with("input", input);
        Row { metrics: [("ratio".to_owned(), ratio.into())].into_iter().collect(), ..row }
    };
    let rows = [
        row("tree", "nothing", 0, 6.0),
        row("tree", "one", 1, 5.0),
        row("tree", "one", 2, 7.0),
        row("split", "nothing", 0, 1.5),
        // No logarithmic axis has a place for it.
        row("split", "one", 1, 0.0),
    ];
    let charts = charts(&[&RATIOS], &rows);
    let [chart] = charts.as_slice() else { panic!("{charts:?}") };
    let (header, lines) = chart.table();
    assert_eq!(header, ["", "nothing", "one"]);
    assert_eq!(lines, [["tree", "6", "5 to 7"], ["split", "1.5", ""]]);
    assert!(chart.verdicts(&["tree"], |name| name == "tree").is_empty(), "a ratio was compared with another");
    let svg = svg(chart, Ground::Dark).unwrap();
    for name in ["tree", "split", "nothing", "one", "1"] {
        assert!(svg.lines().any(|line| line == name), "{name} in {svg}");
    }
    // Kinds have their own markers: each dot is one, and the legend has one of each.
    assert_eq!(svg.matches("<circle").count(), 2 + 1);
}

#[test]
fn numbers_have_four_digits() {
    let shown = [0.0, 0.28, 13.44, 253.0, 1234.5, 0.001234, 1e6].map(number);
    assert_eq!(shown, ["0", "0.28", "13.44", "253", "1234", "0.001234", "1000000"]);
}

#[test]
fn few_places_each_have_a_tick() {
    let rows = [1, 2, 4, 8, 16, 32].map(|readers| delay("a", readers, "array", 4.0));
    let svg = svg(&charts(&[&DELAYS], &rows)[0], Ground::Light).unwrap();
    let numbers = svg.lines().filter(|line| line.parse::<f64>().is_ok());
    assert_eq!(numbers.collect::<Vec<_>>(), ["1", "2", "4", "8", "16", "32"]);
}
