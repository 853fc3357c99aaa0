//! The conclusions from the model, and which of them stand when its inputs change.
//!
//! Each conclusion is a ratio that is above 1 if the conclusion holds. It is computed again with each input halved
//! and doubled, and with all inputs drawn at random between half and double, because several guesses may be wrong at
//! once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::Value;
use stillpoint_harness::interrupt;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::progress::Progress;
use stillpoint_harness::random::Random;

use super::contender;
use super::experiment::{self, Comparison};
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
const DRAWS: usize = 20;
/// A conclusion stands if no single change turns it, and no more than this share of the draws.
const TURNED: f64 = 0.05;
/// A small number of receivers.
const FEW: usize = 8;
/// The frequency up to which the poster states the loss, and the loss.
const HERTZ: f64 = 10_000.0;
const LOSS: f64 = 0.0125;
/// The thresholds of a hybrid that are compared.
pub(super) const COMPARED: [u32; 9] = [0, 4, 8, 10, 12, 14, 16, 24, 32];

/// A conclusion.
#[derive(Debug)]
pub(super) struct Conclusion {
    pub(super) name: &'static str,
    pub(super) says: &'static str,
    /// Above 1 if the conclusion holds.
    ratio: fn(&Figures) -> f64,
}

/// All of them.
pub(super) const ALL: &[Conclusion] = &[
    Conclusion {
        name: "tree",
        says: "to all CPUs, the tree is faster than flat",
        ratio: |of| of.latency("flat") / of.latency("tree"),
    },
    Conclusion {
        name: "tree, cluster",
        says: "to all CPUs, the tree is faster than flat in cluster mode",
        ratio: |of| of.latency("cluster") / of.latency("tree"),
    },
    Conclusion {
        name: "split",
        says: "to all CPUs, delegating less than half is faster than delegating half",
        ratio: |of| of.latency("tree") / of.latency("split"),
    },
    Conclusion {
        name: "combining",
        says: "to all CPUs, acknowledgements that combine are faster than one counter",
        ratio: |of| of.latency("tree+flat-ack") / of.latency("tree"),
    },
    Conclusion { name: "few", says: "to 8 receivers, flat is faster than the tree", ratio: |of| of.few },
    Conclusion {
        name: "half at once",
        says: "half of the CPUs at once do more operations a second along the tree than flat",
        ratio: |of| of.half("tree") / of.half("flat"),
    },
    Conclusion {
        name: "half, cluster",
        says: "half of the CPUs at once do more operations a second along the tree than in cluster mode",
        ratio: |of| of.half("tree") / of.half("cluster"),
    },
    Conclusion {
        name: "rotation",
        says: "half of the CPUs at once do more operations a second if each has its own order",
        ratio: |of| of.half("tree") / of.half("tree+same-order"),
    },
    Conclusion {
        name: "all at once",
        says: "all CPUs at once do fewer operations a second along the tree than flat",
        ratio: |of| of.all[0] / of.all[1],
    },
    Conclusion {
        name: "frequency",
        says: "the tree allows more grace periods a second than flat",
        ratio: |of| of.hertz[1] / of.hertz[0],
    },
    Conclusion {
        name: "frequency, cluster",
        says: "the tree allows more grace periods a second than flat in cluster mode",
        ratio: |of| of.hertz[1] / of.hertz[2],
    },
    Conclusion {
        name: "readers",
        says: "readers lose under 1.25 % to the tree, compared with flat, up to 10 kHz",
        ratio: |of| LOSS / of.loss.max(1e-6),
    },
];

/// The figures from which the conclusions are drawn.
#[derive(Debug)]
pub(super) struct Figures {
    latencies: Vec<(&'static str, f64)>,
    few: f64,
    half: Vec<(&'static str, f64)>,
    all: [f64; 2],
    hertz: [f64; 3],
    loss: f64,
    comparison: Comparison,
}

/// Rates that were simulated before, by machine, contender, and number of initiators. Most inputs affect only some of
/// them.
type Rates = Mutex<Vec<(Machine, &'static str, usize, f64)>>;

impl Figures {
    /// `None` after Ctrl-C.
    fn of(machine: &Machine, seed: u64, rates: &Rates) -> Option<Self> {
        let cpus = machine.cpus();
        let latency = |name, count| {
            let outcome = experiment::receivers(machine, contender::find(name)?, count, OPERATIONS, seed);
            Some(outcome.quantile(0.5))
        };
        let rate = |name, count| {
            let contender = contender::find(name)?;
            let seen = contender.seen(machine);
            let known = rates.lock().ok()?.iter().find_map(|(machine, of, initiators, rate)| {
                ((machine, *of, *initiators) == (&seen, name, count)).then_some(*rate)
            });
            if known.is_some() {
                return known;
            }
            let rate = experiment::rate(&seen, contender, count, OF_MANY, seed);
            rates.lock().ok()?.push((seen, name, count, rate));
            Some(rate)
        };
        let named = |names: &[&'static str], figure: &dyn Fn(&'static str) -> Option<f64>| {
            names.iter().map(|&name| Some((name, figure(name)?))).collect::<Option<Vec<_>>>()
        };
        let periods = |name, apart| {
            Some(experiment::grace_periods(machine, contender::find(name)?, apart, OPERATIONS, seed))
        };
        let few = FEW.min(cpus - 1);
        let apart = 1e9 / HERTZ;
        let figures = Self {
            latencies: named(&["flat", "cluster", "tree", "split", "tree+flat-ack"], &|name| {
                latency(name, cpus - 1)
            })?,
            few: latency("tree", few)? / latency("flat", few)?,
            half: named(&["flat", "cluster", "tree", "tree+same-order"], &|name| rate(name, cpus / 2))?,
            all: [rate("flat", cpus)?, rate("tree", cpus)?],
            hertz: [periods("flat", 0.0)?.hertz, periods("tree", 0.0)?.hertz, periods("cluster", 0.0)?.hertz],
            loss: periods("tree", apart)?.loss_beside(&periods("flat", apart)?),
            comparison: Comparison::of(machine)?,
        };
        (!interrupt::requested()).then_some(figures)
    }

    fn latency(&self, name: &str) -> f64 {
        find(&self.latencies, name)
    }

    fn half(&self, name: &str) -> f64 {
        find(&self.half, name)
    }
}

fn find(figures: &[(&'static str, f64)], name: &str) -> f64 {
    figures.iter().find(|(known, _)| *known == name).map_or(f64::NAN, |(_, figure)| *figure)
}

/// How a machine differs from the unchanged one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Change {
    Nothing,
    /// The input of this number, and the factor.
    Input(usize, f64),
    /// All inputs, by the draw with this number.
    Draw(usize),
}

impl Change {
    /// What kind of change it is.
    fn kind(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Input(..) => "one input",
            Self::Draw(_) => "all inputs",
        }
    }

    /// What was changed, in words.
    pub(super) fn name(self) -> String {
        match self {
            Self::Nothing => "nothing".to_owned(),
            Self::Input(input, factor) => {
                format!("{} {}", inputs::ALL[input].name, if factor < 1.0 { "halved" } else { "doubled" })
            }
            Self::Draw(number) => format!("draw {}", number + 1),
        }
    }

    fn of(self, machine: &Machine, seed: u64) -> Option<Machine> {
        match self {
            Self::Nothing => Some(machine.clone()),
            Self::Input(input, factor) => inputs::ALL[input].scaled(machine, factor),
            Self::Draw(number) => {
                let mut random = Random::new(seed.wrapping_add(number as u64 + 1));
                let mut share = || (random.draw() >> 11) as f64 / (1u64 << 53) as f64;
                let change = |machine: Machine, input: &inputs::Input| {
                    let factor = 2f64.powf(2.0 * share() - 1.0);
                    input.scaled(&machine, factor).unwrap_or(machine)
                };
                Some(inputs::ALL.iter().fold(machine.clone(), change))
            }
        }
    }
}

/// The analysis of a machine.
#[derive(Debug)]
pub(super) struct Analysis {
    /// Each changed machine with its figures; the unchanged one first.
    points: Vec<(Change, Figures)>,
}

/// What changed inputs do to a conclusion.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fate {
    pub(super) name: &'static str,
    pub(super) says: &'static str,
    pub(super) ratio: f64,
    /// The least and the largest ratio of all single changes.
    pub(super) least: f64,
    pub(super) most: f64,
    /// The single changes that turn it.
    pub(super) turned_by: Vec<Change>,
    /// The share of the draws in which it holds.
    pub(super) drawn: f64,
}

impl Fate {
    pub(super) fn stands(&self) -> bool {
        self.ratio > 1.0 && self.turned_by.is_empty() && self.drawn >= 1.0 - TURNED
    }

    /// Whether it stands, in a word or two.
    pub(super) fn word(&self) -> &'static str {
        if self.stands() {
            "stands"
        } else if self.ratio > 1.0 {
            "withdrawn"
        } else {
            "does not hold"
        }
    }
}

/// What a threshold loses to the better order at the worst number of receivers, as a share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Threshold {
    pub(super) threshold: u32,
    /// With the inputs as they are.
    pub(super) loss: f64,
    /// With the worst of all changes and draws.
    pub(super) worst: f64,
}

impl Analysis {
    /// Computes the analysis, on as many threads as there are CPUs; `None` after Ctrl-C.
    pub(super) fn of(machine: &Machine, seed: u64) -> Option<Self> {
        let changes: Vec<Change> = std::iter::once(Change::Nothing)
            .chain(
                (0..inputs::ALL.len())
                    .flat_map(|input| [0.5, 2.0].map(|factor| Change::Input(input, factor))),
            )
            .chain((0..DRAWS).map(Change::Draw))
            .collect();
        let (next, rates) = (AtomicUsize::new(0), Rates::default());
        let progress = Progress::new(changes.len());
        progress.stage(&format!("simulating {} machines with changed inputs", changes.len() - 1));
        let work = || {
            let mut done = Vec::new();
            // Relaxed: the counter only hands out numbers.
            while let Some(&change) = changes.get(next.fetch_add(1, Ordering::Relaxed)) {
                progress.begin(change.name());
                if let Some(changed) = change.of(machine, seed) {
                    done.push((change, Figures::of(&changed, seed, &rates)?));
                }
                progress.step();
            }
            Some(done)
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let parts: Option<Vec<Vec<_>>> = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(|worker| worker.join().ok().flatten()).collect()
        });
        let mut points: Vec<(Change, Figures)> = parts?.into_iter().flatten().collect();
        points.sort_by_key(|(change, _)| changes.iter().position(|known| known == change));
        Some(Self { points })
    }

    /// What changed inputs do to each conclusion.
    pub(super) fn fates(&self) -> Vec<Fate> {
        let fate = |conclusion: &Conclusion| {
            let ratios: Vec<(Change, f64)> =
                self.points.iter().map(|(change, figures)| (*change, (conclusion.ratio)(figures))).collect();
            let single = || ratios.iter().filter(|(change, _)| !matches!(change, Change::Draw(_)));
            let draws: Vec<f64> = ratios
                .iter()
                .filter(|(change, _)| matches!(change, Change::Draw(_)))
                .map(|(_, ratio)| *ratio)
                .collect();
            let ratio = ratios.first().map_or(f64::NAN, |(_, ratio)| *ratio);
            // A ratio that is not a number does not hold.
            let holds = |ratio: f64| ratio > 1.0;
            Fate {
                name: conclusion.name,
                says: conclusion.says,
                ratio,
                least: single().map(|(_, ratio)| *ratio).fold(f64::INFINITY, f64::min),
                most: single().map(|(_, ratio)| *ratio).fold(0.0, f64::max),
                turned_by: single()
                    .filter(|(_, changed)| holds(*changed) != holds(ratio))
                    .map(|(change, _)| *change)
                    .collect(),
                drawn: draws.iter().filter(|ratio| holds(**ratio)).count() as f64 / draws.len() as f64,
            }
        };
        ALL.iter().map(fate).collect()
    }

    /// What each of the compared thresholds loses.
    pub(super) fn thresholds(&self) -> Vec<Threshold> {
        let of = |threshold| {
            let worst = |(_, figures): &(Change, Figures)| figures.comparison.worst(threshold);
            Threshold {
                threshold,
                loss: self.points.first().map_or(f64::NAN, worst),
                worst: self.points.iter().map(worst).fold(0.0, f64::max),
            }
        };
        COMPARED.map(of).to_vec()
    }

    /// The crossovers of all single changes and draws: the least and the most.
    pub(super) fn crossovers(&self) -> (u32, u32) {
        let all = || self.points.iter().map(|(_, figures)| figures.comparison.best());
        (all().min().unwrap_or(0), all().max().unwrap_or(0))
    }

    /// The analysis as rows: one for each conclusion and change, one for each conclusion, and one for each threshold.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for conclusion in ALL {
            for (change, figures) in &self.points {
                let (input, factor) = match change {
                    Change::Nothing => ("nothing".to_owned(), Value::from(1)),
                    Change::Input(input, factor) => {
                        (inputs::ALL[*input].name.to_owned(), Value::from(*factor))
                    }
                    Change::Draw(_) => (change.name(), Value::from("drawn")),
                };
                let mut row = Row::new("simulate", SENSITIVITY, conclusion.name)
                    .with("input", input)
                    .with("factor", factor)
                    .with(CHANGED, change.kind());
                row.put("ratio", (conclusion.ratio)(figures), 3);
                rows.push(row);
            }
        }
        for fate in self.fates() {
            let turned: Vec<String> = fate.turned_by.iter().map(|change| change.name()).collect();
            let mut row = Row::new("simulate", CONCLUSIONS, fate.name)
                .with("says", fate.says)
                .with("fate", fate.word())
                .with("turned_by", turned);
            row.put("ratio", fate.ratio, 3);
            row.put("ratio_least", fate.least, 3);
            row.put("ratio_most", fate.most, 3);
            row.put("draws_that_hold_percent", fate.drawn * 100.0, 1);
            rows.push(row);
        }
        let (least, most) = self.crossovers();
        for of in self.thresholds() {
            let mut row = Row::new("simulate", THRESHOLDS, "hybrid").with("threshold", of.threshold);
            row.put("loss_percent", of.loss * 100.0, 1);
            row.put("loss_percent_worst", of.worst * 100.0, 1);
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
        let single = analysis.points.iter().filter(|(change, _)| matches!(change, Change::Input(..))).count();
        // `interrupt_each` is 0 there.
        assert_eq!(single, 2 * (inputs::ALL.len() - 1));
        assert_eq!(analysis.points[0].0, Change::Nothing);
        let machines: Vec<Machine> = (0..DRAWS).filter_map(|nth| Change::Draw(nth).of(&small(), 1)).collect();
        assert_eq!(machines.len(), DRAWS);
        assert!(machines.windows(2).all(|pair| pair[0] != pair[1] && pair[0].check().is_ok()));
        let rows = analysis.rows();
        let of = |scenario: &str| rows.iter().filter(|row| row.scenario == scenario).count();
        assert_eq!(of(SENSITIVITY), ALL.len() * analysis.points.len());
        assert_eq!((of(CONCLUSIONS), of(THRESHOLDS)), (ALL.len(), COMPARED.len()));
    }

    #[test]
    fn the_same_seed_gives_the_same_fates() {
        let fates = |seed| Analysis::of(&small(), seed).unwrap().fates();
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
    }

    #[test]
    fn a_conclusion_stands_only_if_nothing_turns_it() {
        let fate =
            Fate { name: "", says: "", ratio: 2.0, least: 1.5, most: 3.0, turned_by: Vec::new(), drawn: 1.0 };
        assert_eq!(fate.word(), "stands");
        assert_eq!(Fate { turned_by: vec![Change::Input(0, 0.5)], ..fate.clone() }.word(), "withdrawn");
        assert_eq!(Fate { drawn: 0.9, ..fate.clone() }.word(), "withdrawn");
        assert_eq!(Fate { ratio: 0.9, ..fate.clone() }.word(), "does not hold");
        assert!(!Fate { ratio: f64::NAN, ..fate }.stands());
    }
}
