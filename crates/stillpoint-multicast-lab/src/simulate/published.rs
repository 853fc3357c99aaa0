//! What the poster on tree multicast says about its figures, compared with what the model gives.
//!
//! The flat order comes first, because most is known about it. A model that does not reproduce its curve cannot give
//! times for anything that is compared with it.

use stillpoint_harness::output::format::{micros, rate};
use stillpoint_harness::output::json::Row;

use super::contender;
use super::experiment::{GracePeriods, Operations, Setup};
use super::machine::{Machine, Rcu, Times};

/// The scenario of its rows.
pub(super) const PUBLISHED: &str = "published";

/// How the model's figure compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Agrees,
    Differs,
    /// The figure was put in, so it cannot disagree.
    Input,
    /// The figure is below a bound that any small figure would meet.
    Bound,
}

impl Verdict {
    fn name(self) -> &'static str {
        ["agrees", "differs", "is an input", "within the bound"][self as usize]
    }
}

/// What the poster says: `flat`, if it is about the flat order, or `tree`; the statement; the model's figure for it; and
/// why. Figures of the model stand for the braces.
const POSTER: &str = include_str!("published.txt");

/// A published statement, and the model's figure for it.
#[derive(Debug, Clone)]
pub(super) struct Beside {
    /// Whether it is about the flat order.
    flat: bool,
    verdict: Verdict,
    pub(super) row: Row,
}

impl Beside {
    /// A line of [`POSTER`], with these figures in place of its braces.
    fn of(line: &'static str, value: f64, verdict: Verdict, figures: &[String]) -> Self {
        let [about, theirs, ours, why]: [&str; 4] = std::array::from_fn({
            let mut fields = line.split(" | ");
            move |_| fields.next().unwrap_or_default()
        });
        let mut figures = figures.iter();
        let mut fill = |text: &str| {
            let mut parts = text.split("{}");
            let first = parts.next().unwrap_or_default().to_owned();
            parts.fold(first, |text, part| text + figures.next().map_or("", String::as_str) + part)
        };
        let ours = fill(ours);
        Self::new(about == "flat", theirs, ours, value, verdict, &fill(why))
    }

    fn new(flat: bool, theirs: &str, ours: String, value: f64, verdict: Verdict, why: &str) -> Self {
        let row = Row::new("simulate", PUBLISHED, theirs).with("ours", ours);
        let mut row = row.with("verdict", verdict.name()).with("why", why);
        row.put("value", value, 4);
        Self { flat, verdict, row }
    }
}

/// Operations of each CPU, and grace periods, for these figures.
const OPERATIONS: usize = 30;
/// A curve looks straight in a figure if no point is farther from the line than this share of the highest point.
const STRAIGHT: f64 = 0.1;
/// A latency grows with the initiators if it is at least this many times as long for all CPUs as for one.
const GROWS: f64 = 2.0;
/// A curve is robust to hyperthreads and sockets if no step, from eight receivers to eight more, is above this share.
const SMOOTH: f64 = 0.15;
/// The poster's flat order: it sends an interrupt to every receiver.
const FLAT: &str = "flat+every";
/// What the poster's text implies for the highest frequency of the flat order, in grace periods a second.
const FLAT_HERTZ: f64 = 10_000.0;
/// The most that readers lose, compared with flat at the same frequency: up to 10 kHz, at flat's highest frequency,
/// and at the tree's.
const LOSSES: [f64; 3] = [0.0125, 0.10, 0.15];
/// The latency of the call in the kernel's benchmark, in nanoseconds: to one receiver, to 79, and to 79 in cluster
/// mode.
const KVM: [(&str, usize, f64, &str); 3] = [
    ("flat", 1, 2530.0, "one receiver: 2.51 to 2.55 µs"),
    ("flat", 79, 198_500.0, "79 receivers: 198.5 µs"),
    ("cluster", 79, 92_800.0, "79 receivers in cluster mode: 92.8 µs"),
];

/// The comparison for a machine that comes with the program. It is empty for other machines, about which nothing is
/// published.
pub(super) fn compare(machine: &Machine, base: &str, seed: u64) -> Vec<Beside> {
    let known = Machine::load(base)
        .is_ok_and(|known| known == Machine { multicast: known.multicast, ..machine.clone() });
    match base {
        "seed" if known => poster(machine, seed),
        "kvm" if known => guest(machine, seed),
        _ => Vec::new(),
    }
}

fn setup<'m>(machine: &'m Machine, name: &str, seed: u64) -> Option<Setup<'m>> {
    Some(Setup { machine, contender: contender::find(name)?, count: OPERATIONS, seed })
}

fn receivers(machine: &Machine, name: &str, count: usize, seed: u64) -> f64 {
    setup(machine, name, seed).map_or(f64::NAN, |setup| setup.receivers(count).quantile(0.5))
}

fn initiators(machine: &Machine, name: &str, count: usize, seed: u64) -> Option<Operations> {
    Some(setup(machine, name, seed)?.initiators(count))
}

fn grace_periods(machine: &Machine, name: &str, hertz: f64, seed: u64) -> Option<GracePeriods> {
    Some(setup(machine, name, seed)?.grace_periods(hertz))
}

/// The distance of the farthest point from the straight line that fits best, as a share of the highest point.
fn bend(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>()
        / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>();
    let highest = points.iter().map(|point| point.1).fold(0.0, f64::max);
    points.iter().map(|point| (y + slope * (point.0 - x) - point.1).abs() / highest).fold(0.0, f64::max)
}

fn poster(machine: &Machine, seed: u64) -> Vec<Beside> {
    let (first_threads, all) = (machine.cpus() / machine.topology.threads_per_core, machine.cpus() - 1);
    let mut texts = POSTER.lines();
    let mut line = |value: f64, verdict: Verdict, figures: &[String]| {
        Beside::of(texts.next().unwrap_or_default(), value, verdict, figures)
    };
    let agrees = |holds: bool| if holds { Verdict::Agrees } else { Verdict::Differs };
    let percent = |share: f64| format!("{:.0}", share * 100.0);
    let (tenths, hundredths) = (|number: f64| format!("{number:.1}"), |number: f64| format!("{number:.2}"));

    let flat: Vec<(f64, f64)> = (8..first_threads)
        .step_by(8)
        .map(|count| (count as f64, receivers(machine, FLAT, count, seed)))
        .collect();
    let bent = bend(&flat);
    let linear = line(bent, agrees(bent <= STRAIGHT), &[percent(bent), (first_threads - 8).to_string()]);
    let jump = machine.noise.busy_sibling;
    let jumps = line(jump, Verdict::Input, &[first_threads.to_string(), jump.to_string()]);

    let growth = |name: &str| {
        let quarter = machine.cpus() / 4;
        let points = [1, quarter, 2 * quarter, 3 * quarter, machine.cpus()].map(|count| {
            let outcome = initiators(machine, name, count, seed);
            (count as f64, outcome.map_or(f64::NAN, |outcome| outcome.quantile(0.5)))
        });
        (points[4].1 / points[0].1, bend(&points))
    };
    let growths = [FLAT, "flat", "flat+mutex"].map(growth);
    let (grows, bent) = growths[0];
    let says: Vec<String> =
        growths.iter().flat_map(|&(times, bent)| [tenths(times), percent(bent)]).collect();
    let initiators_grow = line(grows, agrees(grows >= GROWS && bent <= STRAIGHT), &says);

    let highest = |machine: &Machine, name| {
        grace_periods(machine, name, 0.0, seed).map_or(f64::NAN, |found| found.hertz)
    };
    let (of_flat, of_tree) = (highest(machine, FLAT), highest(machine, "tree"));
    let once = Machine { rcu: Rcu { barriers_per_grace_period: 1, ..machine.rcu }, ..machine.clone() };
    let overlapped = |machine: &Machine| Machine {
        nanoseconds: Times { read: machine.nanoseconds.read.map(|time| time / 4.0), ..machine.nanoseconds },
        ..machine.clone()
    };
    let others = [
        highest(machine, "cluster"),
        highest(&once, FLAT),
        highest(&overlapped(machine), FLAT),
        highest(&overlapped(&once), "cluster"),
    ];
    let figures: Vec<String> = [of_flat].into_iter().chain(others).map(rate).collect();
    let frequency = line(of_flat, agrees(of_flat > FLAT_HERTZ), &figures);

    let (few, many) = (receivers(machine, "tree", 16, seed), receivers(machine, "tree", all, seed));
    let (times, logarithm) = (many / few, (machine.cpus() as f64).log2() / 17f64.log2());
    let figures = [micros(many / 1e3), all.to_string(), hundredths(times), hundredths(logarithm)];
    let logarithmic = line(times, agrees(times < 2.0 * logarithm), &figures);

    let step = |name: &str, count| {
        receivers(machine, name, count, seed) / receivers(machine, name, count - 8, seed) - 1.0
    };
    let steps = (24..=all).step_by(8).map(|count| (count, step("tree", count)));
    let (at, steepest) = steps.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((0, f64::NAN));
    let [of_steps, of_first, of_flat_first] =
        [steepest, step("tree", first_threads), step(FLAT, first_threads)].map(percent);
    let figures = [of_steps, at.to_string(), first_threads.to_string(), of_first, of_flat_first];
    let robust = line(steepest, agrees(steepest <= SMOOTH), &figures);

    let [jitter, flat_jitter] = ["tree", FLAT].map(|name| {
        let spread = |outcome: Operations| outcome.quantile(0.9) / outcome.quantile(0.1);
        initiators(machine, name, machine.cpus() / 2, seed).map_or(f64::NAN, spread)
    });
    let jitters = line(jitter, agrees(jitter > flat_jitter), &[tenths(jitter), tenths(flat_jitter)]);
    let raised = of_tree / of_flat;
    let raises = line(raised, agrees(raised > 2.0), &[rate(of_tree), tenths(raised)]);

    let losses = LOSSES.into_iter().zip([FLAT_HERTZ, of_flat, 0.0]).map(|(bound, hertz)| {
        let tree = grace_periods(machine, "tree", hertz, seed);
        let plain = tree.as_ref().map_or(f64::NAN, |found| 1.0 - found.reading);
        let loss = tree.zip(grace_periods(machine, FLAT, hertz, seed));
        let loss = loss.and_then(|(tree, flat)| tree.loss_beside(&flat)).unwrap_or(f64::NAN);
        let verdict = if loss < bound { Verdict::Bound } else { Verdict::Differs };
        line(loss, verdict, &[tenths(loss * 100.0), tenths(plain * 100.0)])
    });
    let losses: Vec<Beside> = losses.collect();
    let all = [linear, jumps, initiators_grow, frequency, logarithmic, robust, jitters, raises];
    all.into_iter().chain(losses).collect()
}

fn guest(machine: &Machine, seed: u64) -> Vec<Beside> {
    // The benchmark calls from inside the kernel, and every CPU is a receiver.
    let inside = Times { system_call: 0.0, scan_per_cpu: 0.0, ..machine.nanoseconds };
    let machine = Machine { nanoseconds: inside, ..machine.clone() };
    let line = |(name, count, published, theirs): (&str, usize, f64, &'static str)| {
        let found = receivers(&machine, name, count, seed);
        let verdict = if (found / published - 1.0).abs() < 0.1 { Verdict::Input } else { Verdict::Differs };
        let why = "sending, flight and entry were fitted to this figure";
        Beside::new(true, theirs, micros(found / 1e3), found, verdict, why)
    };
    KVM.map(line).to_vec()
}

/// What the check of the flat order means for all other results; `None` if nothing is published.
pub(super) fn judgement(lines: &[Beside]) -> Option<String> {
    let of_flat: Vec<&Beside> =
        lines.iter().filter(|line| line.flat && line.verdict != Verdict::Input).collect();
    let differ = of_flat.iter().filter(|line| line.verdict == Verdict::Differs).count();
    match (lines.is_empty(), of_flat.len(), differ) {
        (true, ..) => None,
        (_, 0, _) => {
            Some("The flat order was fitted, so its agreement says nothing about the model.".to_owned())
        }
        (_, _, 0) => Some("The flat order has the published curve.".to_owned()),
        (_, all, differ) => Some(format!(
            "The flat order differs from the published figures in {differ} of {all} points. So no time, rate or frequency below \
             is a figure of that machine. Only comparisons can be relied on, and only those that stand when inputs change."
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_is_straight_and_a_bent_one_is_not() {
        assert!(bend(&[(1.0, 3.0), (2.0, 5.0), (7.0, 15.0)]) < 1e-12);
        assert!(bend(&[(1.0, 1.0), (2.0, 2.0), (3.0, 9.0)]) > STRAIGHT);
    }

    #[test]
    fn the_flat_order_is_checked_before_anything_else() {
        let lines = compare(&Machine::load("seed").unwrap(), "seed", 1);
        let last_flat = lines.iter().rposition(|line| line.flat).unwrap();
        assert!(lines[..=last_flat].iter().all(|line| line.flat) && lines.len() > last_flat + 1);
        let jump = lines.iter().find(|line| line.row.contender.contains("second hyperthread")).unwrap();
        assert_eq!(jump.verdict, Verdict::Input, "an input counts as a result");
    }

    /// If somebody tunes the model until the curve agrees, this test fails: the texts have to change with the model.
    #[test]
    fn where_the_flat_order_differs_it_is_said() {
        let lines = compare(&Machine::load("seed").unwrap(), "seed", 1);
        let differ: Vec<_> = lines
            .iter()
            .filter(|line| line.verdict == Verdict::Differs)
            .map(|line| line.row.contender.as_str())
            .collect();
        assert_eq!(differ, ["figure 3: flat's highest frequency is above 10 kHz, by the text"]);
        assert!(judgement(&lines).unwrap().contains("in 1 of 3 points"));
        let kvm = compare(&Machine::load("kvm").unwrap(), "kvm", 1);
        assert!(kvm.iter().all(|line| line.verdict == Verdict::Input), "{kvm:?}");
        assert!(judgement(&kvm).unwrap().contains("fitted"));
    }

    #[test]
    fn nothing_is_published_of_other_machines() {
        let mut machine = Machine::load("seed").unwrap();
        machine.nanoseconds.barrier += 1.0;
        assert!(compare(&machine, "seed", 1).is_empty() && judgement(&[]).is_none());
    }
}
