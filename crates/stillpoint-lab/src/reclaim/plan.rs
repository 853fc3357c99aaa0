//! The plan of the run, which is made and checked before anything runs.

use std::time::Duration;

use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::rounds;
use stillpoint_harness::experiment::timing::Budget;
use stillpoint_harness::machine::proc::available_memory;
use stillpoint_harness::output::figures::Figure;
use stillpoint_peers::{Delays, Element, Recipe};

use crate::experiment;
use crate::experiment::{BenchArgs, Experiment, Measured, Structure};
use crate::peers;
use crate::reclaim::names::{CONTENDERS, Entry, ONE_CORE, OWN_CORE, Quick, SCENARIOS};
use crate::reclaim::ours;
use crate::reclaim::setting::{Setting, Slow, settings};

pub(crate) const BUDGET: Budget = Budget {
    // Up to ten tables are filled.
    set_up: Duration::from_secs(15),
    // To start and end up to 16 threads on one CPU, and the last delays of the slowest contender.
    round_overhead: Duration::from_millis(120),
    usual_row: Duration::from_millis(1_200),
    quick_row: Duration::from_millis(2_400),
};

/// Bytes of one element with its share of the allocator's memory, and of the pointer or bucket that leads to it: an object of
/// one aligned cache line takes up to three of them in the C library's allocator.
const BYTES_PER_ELEMENT: u64 = 208;

pub(crate) type Part = rounds::Part<Setting, &'static Entry>;

/// The whole run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) parts: Vec<Part>,
    pub(crate) rounds: u32,
    /// Time of one round.
    pub(crate) round: Duration,
    pub(crate) elements: usize,
    /// Of each object.
    pub(crate) bytes: usize,
    pub(crate) deletes_per_s: u32,
    pub(crate) seed: u64,
    pub(crate) structure: Structure,
    /// What the run leaves out, and why; a line each.
    pub(crate) left_out: Vec<String>,
}

impl experiment::Plan for Plan {
    const EXPERIMENT: Experiment = Experiment::Reclaim;
    const SCENARIOS: &'static [&'static str] = SCENARIOS;
    const OPTIONS: &'static [&'static str] = &["readers", "elements", "structure", "deletes", "bytes"];
    const FIGURES: &'static [&'static Figure] = super::figures::FIGURES;

    fn contenders() -> Vec<&'static str> {
        CONTENDERS.iter().map(|entry| entry.name).collect()
    }

    fn new(args: &BenchArgs, cpus: &[usize], scenarios: &[String]) -> Result<Self, Stop> {
        let (mut present, mut left_out) = contenders(CONTENDERS, &args.contenders)?;
        let (structure, asked) = (args.structure, &args.contenders);
        let unfit: Vec<&str> =
            present.iter().map(|entry| entry.name).filter(|name| !structure.has(name)).collect();
        if !unfit.is_empty() {
            let (names, here, other) = (unfit.join(", "), structure.name(), structure.other().name());
            let reason = format!("left out of --structure {here}: {names} (--structure {other} has them)");
            // In a run of all experiments, another experiment may have them.
            let is_named = unfit.iter().any(|name| asked.iter().any(|asked| asked == name));
            if args.experiment != Experiment::All && (is_named || unfit.len() == present.len()) {
                return Err(Stop::usage(reason));
            }
            left_out.push(reason);
        }
        present.retain(|entry| structure.has(entry.name));
        let (settings, too_large) = settings(cpus, scenarios, &args.readers, &args.length)?;
        left_out.extend(too_large.into_iter().map(|reason| format!("left out: {reason}")));

        let whole = !args.length.quick || !args.contenders.is_empty();
        let takes_part = |entry: &Entry, setting: &Setting| match entry.quick {
            Quick::Always => true,
            Quick::OwnCore => whole || setting.scenario == OWN_CORE,
            Quick::OneCore => whole || setting.scenario == ONE_CORE,
            Quick::Never => whole,
        };
        let parts: Vec<Part> = settings
            .into_iter()
            .map(|setting| Part {
                contenders: present.iter().copied().filter(|entry| takes_part(entry, &setting)).collect(),
                setting,
            })
            .filter(|part: &Part| !part.contenders.is_empty())
            .collect();
        let timing = BUDGET.timing(&args.length, rounds::rows(&parts));
        Self::of(args, structure, parts, timing, left_out)
    }

    fn run(&self) -> Result<Measured, Stop> {
        super::run(self)
    }
}

impl Plan {
    /// A plan of these parts, with the other settings of `args`; without a number of elements, with as many as there is memory for.
    ///
    /// # Errors
    /// When there is too little memory.
    pub(crate) fn of(
        args: &BenchArgs,
        structure: Structure,
        parts: Vec<Part>,
        (rounds, round): (u32, Duration),
        left_out: Vec<String>,
    ) -> Result<Self, Stop> {
        let BenchArgs { bytes, deletes: deletes_per_s, seed, .. } = *args;
        let mut plan =
            Self { parts, rounds, round, elements: 0, bytes, deletes_per_s, seed, structure, left_out };
        let (elements, fewer) =
            experiment::elements_within(available_memory(), args.elements, |elements| plan.memory(elements))?;
        plan.elements = elements;
        plan.left_out.extend(fewer);
        Ok(plan)
    }

    /// How its objects are made.
    pub(crate) fn recipe(&self, delays: &'static Delays) -> Recipe {
        Recipe { words: (self.bytes - Element::bytes_with_body(0)) / 8, delays }
    }

    pub(crate) fn has(&self, of_this_kind: impl Fn(&str) -> bool) -> bool {
        self.parts.iter().flat_map(|part| &part.contenders).any(|entry| of_this_kind(entry.name))
    }

    /// The contenders, each once.
    fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> =
            self.parts.iter().flat_map(|part| &part.contenders).map(|entry| entry.name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Number of tables of DPDK.
    pub(crate) fn tables_of_dpdk(&self) -> usize {
        let is_one = |name: &&str| self.structure == Structure::Table && peers::group(name) == "dpdk";
        self.names().iter().filter(|name| is_one(name)).count()
    }

    /// Number of structures, each with all elements.
    fn structures(&self) -> usize {
        let names = self.names();
        let ours = ours::structures(names.iter().copied());
        let theirs = names.iter().filter(|name| !is_ours(name));
        ours + match self.structure {
            Structure::Array => theirs.count().min(1),
            // Each has its own table, but several contenders share one of liburcu/qsbr.
            Structure::Table => theirs.filter(|name| !name.starts_with("liburcu/qsbr+")).count(),
        }
    }

    /// The largest number of readers in any setting.
    pub(crate) fn most_readers(&self) -> usize {
        let all = |setting: &Setting| setting.readers() + usize::from(setting.slow.is_some());
        self.parts.iter().map(|part| all(&part.setting)).max().unwrap_or(1)
    }

    /// The parts whose contenders have a second group.
    pub(crate) fn of_groups(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| part.setting.slow == Some(Slow::Other))
    }

    /// Bytes that the structures take with this number of elements.
    fn memory(&self, elements: usize) -> u64 {
        let body = (self.bytes - Element::bytes_with_body(0)) as u64;
        self.structures() as u64 * elements as u64 * (BYTES_PER_ELEMENT + body)
    }
}

/// Whether a contender is stillpoint's own.
pub(crate) fn is_ours(name: &str) -> bool {
    name.starts_with("stillpoint/")
}

/// The `entries` that were asked for, are built in, and may run in this process; and a line for each that is missing.
pub(crate) fn contenders(
    entries: &'static [Entry],
    asked: &[String],
) -> Result<(Vec<&'static Entry>, Vec<String>), Stop> {
    let missing = |name: &str| {
        if is_ours(name) || peers::is_built_in(name) {
            return ours::refusal(name).map(|error| format!("{name} left out: {error}"));
        }
        let unknown = || format!("{name} left out: it is not part of this build");
        Some(peers::missing_for(name).map_or_else(unknown, peers::how_to_get))
    };
    let (here, lines) = experiment::present(entries.iter().map(|entry| entry.name), asked, missing)?;
    if here.is_empty() {
        return Err(Stop::usage(lines.join("; ")));
    }
    Ok((entries.iter().filter(|entry| here.contains(&entry.name)).collect(), lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_work_on_the_structure_is_an_error_unless_another_experiment_may_have_it() {
        let plan = |line: &str| experiment::plan::<Plan>(&BenchArgs::read(line), &[0, 1]);
        for line in ["reclaim --contenders seize", "reclaim --contenders stillpoint,seize"] {
            let reason = plan(line).unwrap_err().to_string();
            assert!(reason.contains("left out of --structure table: seize (--structure array"), "{reason}");
        }
        assert_eq!(plan("reclaim --contenders seize --structure array").unwrap().unwrap().parts.len(), 5);
        let beside = plan("all --contenders seize").unwrap().unwrap();
        assert!(beside.parts.is_empty() && beside.left_out.len() == 1, "{beside:?}");
        assert!(experiment::Plan::run(&beside).unwrap().0.is_empty());
    }

    #[test]
    fn objects_have_the_size_that_is_asked_for_and_so_has_memory() {
        let plan = |line: &str| experiment::plan::<Plan>(&BenchArgs::read(line), &[0, 1]);
        let delays: &'static Delays = Box::leak(Box::new(Delays::new(1)));
        let recipe = plan("reclaim --bytes 320 --elements 65536").unwrap().unwrap().recipe(delays);
        assert_eq!(Element::bytes_with_body(recipe.words), 320);
        let reason = plan("reclaim --bytes 1048576 --elements 4194304").unwrap_err().to_string();
        assert!(reason.contains("are available: give --elements a smaller number"), "{reason}");
        let fewer = plan("reclaim --bytes 1048576").unwrap().unwrap();
        assert!(fewer.elements < 1 << 22, "{}", fewer.elements);
        let line = fewer.left_out.last().unwrap();
        assert!(line.ends_with(&format!("this run has {}", fewer.elements)), "{line}");
    }

    #[test]
    fn runs_fit_on_two_cpus() {
        assert!(BUDGET.fits(false, 5 * CONTENDERS.len()));
        assert!(BUDGET.fits(true, 14 + 2 * 10 + 9));
    }
}
