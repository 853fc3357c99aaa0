//! The plan of the run, which is made and checked before anything runs.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::rounds;
use stillpoint_harness::experiment::timing::Budget;
use stillpoint_harness::machine::cpus::format_list;
use stillpoint_harness::output::figures::Figure;
use stillpoint_peers::Work;

use crate::experiment::{self, BenchArgs, Experiment, Inside, MAX_READERS, Measured};
use crate::preempt::workload::{SCENARIOS, Workload};
use crate::reclaim::names::{Entry, Policy, Quick, entry};
use crate::reclaim::plan::contenders;

/// All contenders, in the order of the tables. A short run has only those with a bar. Writers without a hidden worker free
/// at each change, and sleep between two changes.
pub(crate) const CONTENDERS: &[Entry] = &[
    entry("stillpoint/protected", Policy::Delete, Quick::Always),
    entry("stillpoint/guard", Policy::Delete, Quick::Always),
    entry("stillpoint/guard+boost", Policy::Delete, Quick::Always),
    entry("stillpoint/guard+migrate", Policy::Delete, Quick::Always),
    entry("stillpoint/qsbr", Policy::Delete, Quick::Never),
    entry("liburcu/qsbr", Policy::Background, Quick::Always),
    entry("liburcu/memb", Policy::Background, Quick::Never),
    entry("dpdk/rcu", Policy::Delete, Quick::Always),
    entry("ck/epoch", Policy::Delete, Quick::Never),
    entry("crossbeam-epoch", Policy::Delete, Quick::Never),
    entry("seize", Policy::Delete, Quick::Never),
    entry("haphazard", Policy::Delete, Quick::Always),
];

/// Readers on each core in the baseline, which overcommit is compared with.
pub(crate) const BASELINE: usize = 1;
/// Readers on each core under overcommit, in the rows with a bar.
pub(crate) const BOOSTED: usize = 8;
pub(crate) const CROWDED: usize = 16;

const ALL_PER_CORE: [usize; 5] = [BASELINE, 2, 4, BOOSTED, CROWDED];
const ALL_SECTIONS: [f64; 4] = [0.2, 5.0, 50.0, 500.0];
/// The default length of a section: longer than any entry and exit, far shorter than a time slice.
pub(crate) const USUAL_SECTION: f64 = 5.0;

const BUDGET: Budget = Budget {
    set_up: Duration::from_secs(2),
    // A process to start, a store to fill, and the last grace periods of the slowest contender.
    round_overhead: Duration::from_millis(220),
    usual_row: Duration::from_millis(2_400),
    quick_row: Duration::from_millis(3_600),
};

/// What the readers and the writer do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setting {
    pub(crate) workload: Workload,
    pub(crate) section_us: f64,
    pub(crate) inside: Inside,
}

impl Setting {
    /// A reader's work in a section, and between two: the same number of steps for every kind of reader.
    pub(crate) fn work(&self, steps_per_us: f64) -> Work {
        let steps = |microseconds: f64| (microseconds * steps_per_us).round() as u64;
        let whole = Work { inside: steps(self.section_us), sleep: Duration::ZERO, outside: 0 };
        match self.inside {
            Inside::Always => whole,
            Inside::Half => Work { outside: whole.inside.max(1), ..whole },
            Inside::Blocked => Work {
                inside: steps(self.section_us / 2.0),
                sleep: Duration::from_secs_f64(self.section_us / 2e6).max(Duration::from_nanos(1)),
                ..whole
            },
        }
    }
}

pub(crate) type Part = rounds::Part<Setting, Cell>;

/// A row: a contender with this many readers on each core.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) entry: &'static Entry,
    pub(crate) per_core: usize,
}

/// The whole run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) parts: Vec<Part>,
    pub(crate) rounds: u32,
    /// Time of one round.
    pub(crate) round: Duration,
    pub(crate) seed: u64,
    /// The CPUs of the readers.
    pub(crate) cores: Vec<usize>,
    pub(crate) writer_cpu: usize,
    /// What the run leaves out, and why; a line each.
    pub(crate) left_out: Vec<String>,
}

impl experiment::Plan for Plan {
    const EXPERIMENT: Experiment = Experiment::Preempt;
    const SCENARIOS: &'static [&'static str] = SCENARIOS;
    const OPTIONS: &'static [&'static str] = &["readers", "sections", "inside"];
    const FIGURES: &'static [&'static Figure] = super::figures::FIGURES;

    fn contenders() -> Vec<&'static str> {
        CONTENDERS.iter().map(|entry| entry.name).collect()
    }

    fn new(args: &BenchArgs, cpus: &[usize], scenarios: &[String]) -> Result<Self, Stop> {
        let (quick, full) = (args.length.quick, args.length.full);
        let (present, mut left_out) = contenders(CONTENDERS, &args.contenders)?;
        let by_name = !args.contenders.is_empty();
        let present: Vec<&Entry> =
            present.into_iter().filter(|entry| !quick || by_name || entry.quick == Quick::Always).collect();

        let named = |workload: Workload| scenarios.iter().any(|scenario| *scenario == workload.name());
        let workloads: Vec<Workload> = Workload::value_variants()
            .iter()
            .copied()
            .filter(|&workload| match scenarios {
                [] => full || workload != Workload::MemoryMax,
                _ => named(workload),
            })
            .collect();
        let length = &args.length;
        let sections = length.asked_or(&args.sections, &[USUAL_SECTION], &ALL_SECTIONS);
        let insides = [Inside::Always, Inside::Half, Inside::Blocked];
        let insides = length.asked_or(&args.inside, &insides[..1], &insides);
        let per_core = |workload: Workload| {
            let usual: &[usize] = match workload {
                Workload::Mail => &[BASELINE, BOOSTED, CROWDED],
                _ => &[BASELINE, CROWDED],
            };
            length.asked_or(&args.readers, usual, &ALL_PER_CORE)
        };

        let mut parts = Vec::new();
        for &workload in &workloads {
            for &section_us in &sections {
                for &inside in &insides {
                    let setting = Setting { workload, section_us, inside };
                    let counts = per_core(workload);
                    // Unless the micro-benchmark was asked for, the contenders with a bar are enough.
                    let short = !full && !by_name && workload != Workload::Mail && scenarios.is_empty();
                    let contenders = present
                        .iter()
                        .filter(|entry| !short || entry.quick == Quick::Always)
                        .flat_map(|&entry| counts.iter().map(move |&per_core| Cell { entry, per_core }))
                        .collect();
                    parts.push(Part { setting, contenders });
                }
            }
        }
        let (cores, writer_cpu) = places(cpus, &parts)?;
        if cores.contains(&writer_cpu) {
            left_out
                .push("the writer shares the only CPU with the readers, and is preempted itself".to_owned());
        }
        left_out.extend(not_asked_for(args, full));
        let (rounds, round) = BUDGET.timing(&args.length, rounds::rows(&parts));
        Ok(Self { parts, rounds, round, seed: args.seed, cores, writer_cpu, left_out })
    }

    fn run(&self) -> Result<Measured, Stop> {
        super::run(self)
    }
}

impl Plan {
    /// The places of the threads in words.
    pub(crate) fn places(&self) -> String {
        let cpus = if self.cores.len() == 1 { "CPU" } else { "CPUs" };
        format!("readers on {cpus} {}, the writer on CPU {}", format_list(&self.cores), self.writer_cpu)
    }
}

/// The CPUs of the readers, and that of the writer: the last one, which it has to itself where there are two or more.
fn places(cpus: &[usize], parts: &[Part]) -> Result<(Vec<usize>, usize), Stop> {
    let Some((&writer, others)) = cpus.split_last() else {
        return Err(Stop::usage("no CPU was chosen to measure on"));
    };
    let cores = if others.is_empty() { cpus } else { others };
    let most = parts.iter().flat_map(|part| &part.contenders).map(|cell| cell.per_core).max().unwrap_or(1);
    if most * cores.len() > MAX_READERS {
        return Err(Stop::usage(format!(
            "{most} readers on each of {} CPUs are more than {MAX_READERS} threads: give --cpus fewer CPUs",
            cores.len()
        )));
    }
    Ok((cores.to_vec(), writer))
}

/// What a usual run leaves out, in a line.
fn not_asked_for(args: &BenchArgs, full: bool) -> Option<String> {
    let mut left_out = Vec::new();
    if args.sections.is_empty() {
        left_out.push("sections of 0.2, 50 and 500 µs (--sections)");
    }
    if args.inside.is_empty() {
        left_out.push("readers half of the time inside, or blocked inside (--inside)");
    }
    if args.readers.is_empty() {
        left_out.push("2 and 4 readers a core (--readers)");
    }
    if args.scenarios.is_empty() {
        left_out.push("memory-max, and in memory the contenders without a bar (--scenarios)");
    }
    if args.length.quick && args.contenders.is_empty() {
        left_out.push("the contenders without a bar (--contenders)");
    }
    let any = !full && !left_out.is_empty();
    any.then(|| format!("left out unless asked for, by --full or by name: {}", left_out.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(more: &[&str], cpus: &[usize]) -> Result<Plan, Stop> {
        let args = BenchArgs::read(&format!("preempt {}", more.join(" ")));
        experiment::plan(&args, cpus).map(|plan| plan.expect("it was asked for"))
    }

    fn rows(plan: &Plan) -> usize {
        rounds::rows(&plan.parts)
    }

    #[test]
    fn usual_and_short_runs_end_in_time() {
        let (usual, short) = (plan(&[], &[0, 1]).unwrap(), plan(&["--quick"], &[0, 1]).unwrap());
        assert!(BUDGET.fits(false, rows(&usual)) && BUDGET.fits(true, rows(&short)));
        assert!(rows(&short) < rows(&usual));
        // The other contender that protects single objects.
        let protects = |part: &Part| part.contenders.iter().any(|cell| cell.entry.name == "haphazard");
        assert!([&usual, &short].iter().all(|plan| plan.parts.iter().all(protects)));
        assert!(usual.round >= Duration::from_millis(300));
        // Without the peers in C, the usual run has so few rows that its rounds are longer.
        let has = |name: &str| {
            usual.parts.iter().any(|part| part.contenders.iter().any(|cell| cell.entry.name == name))
        };
        let least = if has("liburcu/qsbr") { usual.round } else { Duration::from_millis(300) };
        assert!(short.round >= least, "{:?}, {:?}", short.round, usual.round);
        assert!(usual.left_out.iter().any(|line| line.contains("--sections")));
    }

    #[test]
    fn a_full_run_has_everything() {
        let full = plan(&["--full", "--contenders", "stillpoint/protected"], &[0, 1]).unwrap();
        // Each setting has one more row: the control.
        assert_eq!(rows(&full), 3 * 4 * 3 * (5 + 1));
        assert!(full.left_out.is_empty(), "{:?}", full.left_out);
    }

    #[test]
    fn what_is_asked_for_is_run() {
        let asked = "--scenarios=memory-max --sections=0.2,50 --inside=half,blocked --readers=1,4 \
                     --contenders=seize";
        let plan = plan(&asked.split_whitespace().collect::<Vec<_>>(), &[0, 1, 2]).unwrap();
        assert_eq!(rows(&plan), 2 * 2 * (2 + 1));
        assert!(plan.parts.iter().all(|part| part.setting.workload == Workload::MemoryMax));
        assert!(plan.left_out.is_empty(), "{:?}", plan.left_out);
        assert_eq!((plan.cores.as_slice(), plan.writer_cpu), (&[0, 1][..], 2));
    }

    #[test]
    fn the_writer_shares_a_cpu_only_where_there_is_one() {
        let plan = plan(&["--quick"], &[3]).unwrap();
        assert_eq!((plan.cores.as_slice(), plan.writer_cpu), (&[3][..], 3));
        assert!(plan.left_out.iter().any(|line| line.contains("shares")));
    }

    #[test]
    fn more_threads_than_make_sense_are_refused() {
        let cpus: Vec<usize> = (0..128).collect();
        let stop = plan(&["--quick"], &cpus).unwrap_err().to_string();
        assert!(stop.contains("--cpus"), "{stop}");
    }

    #[test]
    fn a_section_has_the_same_length_in_every_kind_but_for_where_it_is_spent() {
        let work = |inside| Setting { workload: Workload::Mail, section_us: 50.0, inside }.work(300.0);
        let always = work(Inside::Always);
        assert_eq!(always, Work { inside: 15_000, sleep: Duration::ZERO, outside: 0 });
        assert_eq!(work(Inside::Half), Work { outside: 15_000, ..always });
        let blocked = Work { inside: 7_500, sleep: Duration::from_micros(25), outside: 0 };
        assert_eq!(work(Inside::Blocked), blocked);
    }
}
