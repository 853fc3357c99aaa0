//! The conclusions from the model, and which of them stand when its inputs change.
//!
//! Each conclusion is a ratio that is above 1 if the conclusion holds. It is computed again with each input halved
//! and doubled, and with all inputs drawn at random between half and double, because several guesses may be wrong at
//! once.

use std::sync::{LazyLock, Mutex};

use serde_json::Value;
use stillpoint_harness::interrupt;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::progress::Progress;
use stillpoint_harness::random::Random;

use super::contender::{self, Contender};
use super::experiment::{self, Comparison, Setup};
use super::inputs;
use super::machine::Machine;

/// The scenarios of its rows.
pub(super) const SENSITIVITY: &str = "sensitivity";
pub(super) const CONCLUSIONS: &str = "conclusions";
pub(super) const THRESHOLDS: &str = "thresholds";

/// The parameter of its rows that says what was changed, in one or two words.
pub(super) const CHANGED: &str = "changed";

/// Operations of a single initiator, and of each of many initiators, whose rates are sustained.
const OPERATIONS: usize = 10;
const OF_MANY: usize = 30;
/// The number of machines with all inputs drawn.
const DRAWS: u64 = 20;
/// A conclusion stands if no single change turns it, and no more than this share of the draws.
const TURNED: f64 = 0.05;
/// A small number of receivers.
const FEW: usize = 8;
/// The frequency up to which the poster states the loss, and the loss.
const HERTZ: f64 = 10_000.0;
const LOSS: f64 = 0.0125;
/// The thresholds of a hybrid that are compared.
const COMPARED: [u32; 9] = [0, 4, 8, 10, 12, 14, 16, 24, 32];

/// What the conclusions are: a name, what it says, and what is compared. A conclusion holds if the figure of the first
/// contender is above that of the second one. The figures are:
///
/// - `latency` and `few`: the latency to all CPUs, and to a few
/// - `half` and `all`: operations a second, of half of the CPUs and of all CPUs at once
/// - `hertz`: grace periods a second
/// - `loss`: what readers lose to the first contender compared with the second one, below [`LOSS`]
const CONCLUDED: &str = include_str!("conclusions.txt");

/// A conclusion: its name, what it says, the figure that is compared, and the two contenders.
type Conclusion = (&'static str, &'static str, &'static str, [Contender; 2]);

/// All of them.
static ALL: LazyLock<Vec<Conclusion>> = LazyLock::new(|| {
    let conclusion = |line: &'static str| {
        let (name, rest) = line.split_once(" | ")?;
        let (says, compared) = rest.split_once(" | ")?;
        let [figure, one, other] = compared.split(' ').collect::<Vec<_>>().try_into().ok()?;
        Some((name, says, figure, [contender::find(one)?, contender::find(other)?]))
    };
    CONCLUDED.lines().filter_map(conclusion).collect()
});

/// The figures of a machine.
#[derive(Debug)]
struct Figures {
    /// The ratio of each conclusion, above 1 if it holds.
    ratios: Vec<f64>,
    comparison: Comparison,
}

/// Rates that were simulated before, by machine, contender, and number of initiators. Most inputs affect only some of
/// them.
type Rates = Mutex<Vec<(Machine, &'static str, usize, f64)>>;

impl Figures {
    /// `None` after Ctrl-C.
    fn of(machine: &Machine, seed: u64, rates: &Rates) -> Option<Self> {
        let cpus = machine.cpus();
        let setup = |contender| Setup { machine, contender, count: OPERATIONS, seed };
        let latency = |contender, count| setup(contender).receivers(count).quantile(0.5);
        let rate = |contender: Contender, count| {
            let seen = contender.seen(machine);
            let known = rates.lock().ok()?.iter().find_map(|(machine, of, initiators, rate)| {
                ((machine, *of, *initiators) == (&seen, contender.name, count)).then_some(*rate)
            });
            if known.is_some() {
                return known;
            }
            let rate = Setup { machine: &seen, contender, count: OF_MANY, seed }.rate(count);
            rates.lock().ok()?.push((seen, contender.name, count, rate));
            Some(rate)
        };
        let periods = |contender, hertz| setup(contender).grace_periods(hertz);
        let mut known: Vec<(&str, Contender, f64)> = Vec::new();
        let mut figure = |figure: &'static str, contender: Contender| {
            let found = known.iter().find(|of| (of.0, of.1) == (figure, contender));
            if let Some(&(.., value)) = found {
                return Some(value);
            }
            let value = match figure {
                "latency" => latency(contender, cpus - 1),
                "few" => latency(contender, FEW.min(cpus - 1)),
                "half" => rate(contender, cpus / 2)?,
                "all" => rate(contender, cpus)?,
                "hertz" => periods(contender, 0.0).hertz,
                _ => f64::NAN,
            };
            known.push((figure, contender, value));
            Some(value)
        };
        let ratio = |&(_, _, of, [one, other]): &Conclusion| {
            if of != "loss" {
                return Some(figure(of, one)? / figure(of, other)?);
            }
            let [one, other] = [one, other].map(|contender| periods(contender, HERTZ));
            Some(LOSS / one.loss_beside(&other).map_or(f64::NAN, |loss| loss.max(1e-6)))
        };
        let ratios = ALL.iter().map(ratio).collect::<Option<_>>()?;
        let figures = Self { ratios, comparison: Comparison::of(machine)? };
        (!interrupt::requested()).then_some(figures)
    }
}

/// A machine with changed inputs.
#[derive(Debug)]
struct Change {
    /// What kind of change it is.
    kind: &'static str,
    /// What was changed, in words.
    name: String,
    /// The input that was changed, or the draw, and the factor.
    input: String,
    factor: Value,
    machine: Machine,
}

const NOTHING: &str = "nothing";
const ONE: &str = "one input";
const DRAWN: &str = "all inputs";

/// The machine itself; the same with each input halved and doubled, if that changes it; and with all inputs drawn.
fn changes(machine: &Machine, seed: u64) -> Vec<Change> {
    let change = |kind, name: String, input: &str, factor, machine| Change {
        kind,
        name,
        input: input.to_owned(),
        factor,
        machine,
    };
    let mut changes = vec![change(NOTHING, NOTHING.to_owned(), NOTHING, 1.into(), machine.clone())];
    for input in inputs::ALL {
        for (factor, word) in [(0.5, "halved"), (2.0, "doubled")] {
            let scaled = input.scaled(machine, factor);
            let name = format!("{} {word}", input.name);
            changes.extend(scaled.map(|machine| change(ONE, name, input.name, factor.into(), machine)));
        }
    }
    for number in 1..=DRAWS {
        let mut random = Random::new(seed.wrapping_add(number));
        let mut share = || (random.draw() >> 11) as f64 / (1u64 << 53) as f64;
        let drawn = inputs::ALL.iter().fold(machine.clone(), |machine, input| {
            let factor = 2f64.powf(2.0 * share() - 1.0);
            input.scaled(&machine, factor).unwrap_or(machine)
        });
        let name = format!("draw {number}");
        changes.push(change(DRAWN, name.clone(), &name, "drawn".into(), drawn));
    }
    changes
}

/// The analysis of a machine.
#[derive(Debug)]
pub(super) struct Analysis {
    /// Each changed machine with its figures; the unchanged one first.
    points: Vec<(Change, Figures)>,
}

/// Whether a conclusion with this ratio stands, in a word or two: whether a single change turns it, and the share of the draws
/// in which it holds.
fn fate(ratio: f64, is_turned: bool, drawn: f64) -> &'static str {
    if ratio > 1.0 && !is_turned && drawn >= 1.0 - TURNED {
        "stands"
    } else if ratio > 1.0 {
        "withdrawn"
    } else {
        "does not hold"
    }
}

impl Analysis {
    /// Computes the analysis, on as many threads as there are CPUs; `None` after Ctrl-C.
    pub(super) fn of(machine: &Machine, seed: u64) -> Option<Self> {
        let (changes, rates) = (changes(machine, seed), Rates::default());
        let progress = Progress::new(changes.len());
        progress.stage(&format!("simulating {} machines with changed inputs", changes.len() - 1));
        let figures = |change: &Change| {
            progress.begin(change.name.clone());
            let figures = Figures::of(&change.machine, seed, &rates);
            progress.step();
            figures
        };
        // All is left out after Ctrl-C.
        let figures = experiment::in_parallel(&changes, figures).into_iter().collect::<Option<Vec<_>>>()?;
        Some(Self { points: changes.into_iter().zip(figures).collect() })
    }

    /// What changed inputs do to a conclusion: its ratio, the least and the largest ratio of all single changes, those that
    /// turn it, and the share of the draws in which it holds.
    fn concluded(&self, number: usize, (name, says, ..): Conclusion, more: i32) -> Row {
        let ratios = || self.points.iter().map(|(change, figures)| (change, figures.ratios[number]));
        let single = || ratios().filter(|(change, _)| change.kind != DRAWN);
        let draws: Vec<f64> =
            ratios().filter(|(change, _)| change.kind == DRAWN).map(|(_, ratio)| ratio).collect();
        let ratio = ratios().next().map_or(f64::NAN, |(_, ratio)| ratio);
        // A ratio that is not a number does not hold.
        let holds = |ratio: f64| ratio > 1.0;
        let turned = single().filter(|&(_, changed)| holds(changed) != holds(ratio));
        let turned_by: Vec<&str> = turned.map(|(change, _)| change.name.as_str()).collect();
        let drawn = draws.iter().filter(|&&ratio| holds(ratio)).count() as f64 / draws.len() as f64;
        let mut row = Row::new("simulate", CONCLUSIONS, name)
            .with("says", says)
            .with("fate", fate(ratio, !turned_by.is_empty(), drawn))
            .with("turned_by", turned_by);
        row.put("ratio", ratio, 3 + more);
        row.put("ratio_least", single().map(|(_, ratio)| ratio).fold(f64::INFINITY, f64::min), 3 + more);
        row.put("ratio_most", single().map(|(_, ratio)| ratio).fold(0.0, f64::max), 3 + more);
        row.put("draws_that_hold_percent", drawn * 100.0, 1 + more);
        row
    }

    /// The crossovers of all single changes and draws: the least and the most.
    pub(super) fn crossovers(&self) -> (u32, u32) {
        let all = || self.points.iter().map(|(_, figures)| figures.comparison.best());
        (all().min().unwrap_or(0), all().max().unwrap_or(0))
    }

    /// The analysis as rows: one for each conclusion and change, one for each conclusion, and one for each threshold.
    /// Tables round once, so they take rows with `more` digits.
    pub(super) fn rows(&self, more: i32) -> Vec<Row> {
        let mut rows = Vec::new();
        for (number, (name, ..)) in ALL.iter().enumerate() {
            for (change, figures) in &self.points {
                let mut row = Row::new("simulate", SENSITIVITY, *name)
                    .with("input", change.input.as_str())
                    .with("factor", change.factor.clone())
                    .with(CHANGED, change.kind);
                row.put("ratio", figures.ratios[number], 3 + more);
                rows.push(row);
            }
        }
        rows.extend(ALL.iter().enumerate().map(|(number, &of)| self.concluded(number, of, more)));
        let (least, most) = self.crossovers();
        for threshold in COMPARED {
            let worst = |(_, figures): &(Change, Figures)| figures.comparison.worst(threshold);
            let mut row = Row::new("simulate", THRESHOLDS, "hybrid").with("threshold", threshold);
            row.put("loss_percent", self.points.first().map_or(f64::NAN, worst) * 100.0, 1 + more);
            let of_all = self.points.iter().map(worst).fold(0.0, f64::max);
            row.put("loss_percent_worst", of_all * 100.0, 1 + more);
            row.put("crossover_least", f64::from(least), 0);
            row.put("crossover_most", f64::from(most), 0);
            rows.push(row);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::Topology;
    use super::*;

    /// A small machine, whose analysis is fast.
    fn small() -> Machine {
        let machine = Machine::load("seed").unwrap();
        Machine { topology: Topology { sockets: 2, cores_per_socket: 3, threads_per_core: 2 }, ..machine }
    }

    #[test]
    fn every_input_is_halved_and_doubled_and_each_draw_is_another_machine() {
        let analysis = Analysis::of(&small(), 1).unwrap();
        let single = analysis.points.iter().filter(|(change, _)| change.kind == ONE).count();
        // `interrupt_each` is 0 there.
        assert_eq!(single, 2 * (inputs::ALL.len() - 1));
        assert_eq!(analysis.points[0].0.kind, NOTHING);
        let draws = changes(&small(), 1).into_iter().filter(|change| change.kind == DRAWN);
        let machines: Vec<Machine> = draws.map(|change| change.machine).collect();
        assert_eq!(machines.len(), DRAWS as usize);
        assert!(machines.windows(2).all(|pair| pair[0] != pair[1] && pair[0].check().is_ok()));
        let rows = analysis.rows(0);
        let of = |scenario: &str| rows.iter().filter(|row| row.scenario == scenario).count();
        assert_eq!(of(SENSITIVITY), ALL.len() * analysis.points.len());
        assert_eq!((of(CONCLUSIONS), of(THRESHOLDS)), (ALL.len(), COMPARED.len()));
    }

    #[test]
    fn every_conclusion_has_figures_of_two_contenders() {
        assert_eq!(ALL.len(), CONCLUDED.lines().count());
        let figures = Figures::of(&small(), 1, &Rates::default()).unwrap();
        assert!(figures.ratios.iter().all(|ratio| ratio.is_finite()), "{:?}", figures.ratios);
    }

    #[test]
    fn the_same_seed_gives_the_same_fates() {
        let fates = |seed| {
            let rows = Analysis::of(&small(), seed).unwrap().rows(9);
            rows.into_iter().filter(|row| row.scenario == CONCLUSIONS).collect::<Vec<_>>()
        };
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
    }

    #[test]
    fn a_conclusion_stands_only_if_nothing_turns_it() {
        assert_eq!(fate(2.0, false, 1.0), "stands");
        assert_eq!(fate(2.0, true, 1.0), "withdrawn");
        assert_eq!(fate(2.0, false, 0.9), "withdrawn");
        assert_eq!(fate(0.9, false, 1.0), "does not hold");
        assert_eq!(fate(f64::NAN, false, 1.0), "does not hold");
    }
}
