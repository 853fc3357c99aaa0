//! The experiment `preempt`: what preempted readers do to grace periods and memory.
//!
//! This repeats the evaluation of "The RCU-Reader Preemption Problem in VMs" (Prasad, Gopinath, McKenney; USENIX ATC 2017)
//! one level up: threads on cores in place of virtual CPUs on hosts. A baseline of one reader on each core is compared with
//! overcommit, several readers on each. Every round runs in a separate process.

pub(crate) mod child;
mod figures;
pub(crate) mod plan;
mod policy;
pub(crate) mod round;
pub(crate) mod workload;
mod writing;

use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::rounds::Turns;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::output::json::{Row, number};
use stillpoint_harness::stats::Distribution;
use stillpoint_peers::Work;

use crate::experiment::Measured;
use crate::preempt::plan::{Cell, Setting};
use crate::preempt::round::Outcome;

pub(crate) use plan::Plan;
pub(crate) use round::Round;

/// What the figures do not say.
const HOW_TO_READ: &str = "Median of rounds, each in a separate process. A grace period is from the unlink of a probe, one at a time, to its free; for \
    liburcu, a call of synchronize_rcu, as call_rcu collects callbacks for 10 ms; a call in the middle of the worker's grace \
    period waits for the next, and so does the worker for such a call: liburcu's memory, delay and CPU time include that. CPU time: the scheme's calls on the writer's side, and its hidden worker; crossbeam-epoch and \
    seize also free on the readers' threads, which is not in it. stillpoint/protected and haphazard protect only the object that a \
    section reads, the others all objects. The paper's figures are of Linux's own RCU in overcommitted guests, as published; they \
    were not measured here.";

/// Runs the experiment.
fn run(plan: &Plan) -> Result<Measured, Stop> {
    plan.left_out.iter().for_each(stillpoint_harness::output::leave_out);
    let steps_per_us = calibrate(plan.cores[0])?;
    let turns = Turns { rounds: plan.rounds, round: plan.round, seed: plan.seed };
    let stage = |Setting { workload, section_us, inside }: &Setting| {
        format!("{}, sections of {section_us} µs, {}", workload.name(), inside.name())
    };
    let measure = |&setting: &Setting, cell: &Cell, seed| {
        child::run(&Round {
            contender: cell.entry.name.to_owned(),
            symmetric: false,
            setting,
            steps_per_us,
            reader_cpus: plan.cores.iter().copied().cycle().take(cell.per_core * plan.cores.len()).collect(),
            writer_cpu: plan.writer_cpu,
            duration: plan.round,
            seed,
        })
    };
    let progress = turns.progress(&plan.parts);
    let row = |setting: &Setting, cell: &Cell| row(plan, setting, cell);
    let rows = turns.measure(&plan.parts, &progress, stage, measure, row, figures);
    Ok((rows, vec![plan.places(), HOW_TO_READ.to_owned()]))
}

/// Measures the work of a microsecond on a reader's CPU: every contender gets the same number of steps.
pub(crate) fn calibrate(cpu: usize) -> Result<f64, Stop> {
    std::thread::spawn(move || cpus::pin(cpu).map(|()| Work::steps_per_microsecond()))
        .join()
        .unwrap_or_else(|_| Err("cannot calibrate the readers' work: the thread panicked".to_owned()))
        .map_err(Stop::usage)
}

fn row(plan: &Plan, setting: &Setting, cell: &Cell) -> Row {
    let scenario = if cell.per_core == plan::BASELINE { "baseline" } else { "overcommit" };
    Row::new("preempt", scenario, cell.entry.name)
        .with("workload", setting.workload.name())
        .with("readers_per_core", cell.per_core)
        .with("section_us", number(setting.section_us))
        .with("presence", setting.inside.name())
        .with("policy", cell.entry.policy.name())
        .with("cores", plan.cores.len())
}

/// The median of each metric over the rounds, and the longest grace period of all rounds.
pub(crate) fn figures(row: &mut Row, rounds: &[Outcome]) {
    let all = |of: fn(&Outcome) -> Distribution| rounds.iter().map(of).collect::<Vec<Distribution>>();
    row.put_distribution("gp_us", &all(|o| o.grace));
    row.put_distribution("delay_us", &all(|o| o.delay));
    row.put("gp_us_max_most", rounds.iter().map(|o| o.grace.max).fold(0.0, f64::max), 3);
    let mut put = |name: &str, digits, of: &dyn Fn(&Outcome) -> f64| row.put_median(name, digits, rounds, of);
    put("grace_periods", 0, &|o| o.graces as f64);
    put("cpu_us_per_gp", 3, &|o| o.scheme_cpu_s * 1e6 / o.graces as f64);
    put("cpu_us_per_free", 3, &|o| o.scheme_cpu_s * 1e6 / o.freed as f64);
    put("unlinked", 0, &|o| o.unlinked as f64);
    put("freed", 0, &|o| o.freed as f64);
    put("changes_per_s", 0, &|o| o.changes_per_s);
    put("peak_pending_bytes", 0, &|o| o.peak_pending_bytes as f64);
    put("live_bytes", 0, &|o| o.live_bytes as f64);
    put("peak_resident_bytes", 0, &|o| o.peak_resident_bytes as f64);
    let share = |resident: usize, used: usize| resident as f64 / used.max(1) as f64;
    put("resident_per_used", 3, &|o| share(o.peak_resident_bytes, o.used_at_peak_bytes));
    put("resident_per_live_after", 3, &|o| share(o.end_resident_bytes, o.live_bytes));
    put("sections_per_s", 0, &|o| o.sections_per_s);
    put("foreign_cpus", 3, &|o| o.foreign_cpus);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(grace: u64, cpu_s: f64) -> Outcome {
        let distribution = Distribution::of(&[grace * 1_000]).unwrap();
        Outcome {
            grace: distribution,
            graces: 100,
            delay: distribution,
            unlinked: 1_000,
            freed: 1_000,
            scheme_cpu_s: cpu_s,
            peak_pending_bytes: 4_096,
            live_bytes: 1 << 20,
            peak_resident_bytes: 3 << 20,
            used_at_peak_bytes: 2 << 20,
            end_resident_bytes: 2 << 20,
            sections_per_s: 1e6,
            changes_per_s: 1e4,
            foreign_cpus: 0.0,
            course: Vec::new(),
        }
    }

    #[test]
    fn a_row_is_the_median_of_its_rounds() {
        let mut row = Row::new("preempt", "baseline", "seize");
        figures(&mut row, &[outcome(10, 0.1), outcome(90, 0.3), outcome(12, 0.2)]);
        let metrics = ["gp_us_mean", "gp_us_max_most", "cpu_us_per_gp", "cpu_us_per_free"];
        assert_eq!(metrics.map(|name| row.metric(name).unwrap()), [12.0, 90.0, 2_000.0, 200.0]);
        assert_eq!(row.metric("resident_per_used"), Some(1.5));
        assert_eq!(row.metric("resident_per_live_after"), Some(2.0));
    }
}
