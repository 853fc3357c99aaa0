//! The experiment `preempt`: what preempted readers do to grace periods and memory.
//!
//! The evaluation of "The RCU-Reader Preemption Problem in VMs" (Prasad, Gopinath, McKenney; USENIX ATC 2017) one level
//! up: threads on cores in place of virtual CPUs on hosts. A baseline of one reader on each core is compared to
//! overcommit, several readers on each. Every round runs in a process of its own.

mod bars;
pub(crate) mod child;
pub(crate) mod plan;
mod policy;
mod resident;
mod round;
mod show;
pub(crate) mod workload;
mod writing;

use std::time::Duration;

use serde_json::{Map, Value};
use stillpoint_peers::Work;

use crate::error::Stop;
use crate::experiment::Inside;
use crate::interrupt;
use crate::machine::cpus;
use crate::output::json::{Row, number};
use crate::output::progress::Progress;
use crate::preempt::child::Order;
use crate::preempt::plan::{Cell, Part, Setting};
use crate::preempt::round::Outcome;
use crate::stats::{Distribution, median};

pub(crate) use plan::Plan;

/// Runs the experiment and prints each table as soon as it is complete, unless told to be `silent`.
fn run(plan: &Plan, silent: bool) -> Result<Vec<Row>, Stop> {
    for line in &plan.left_out {
        crate::output::tell(line);
    }
    let steps_per_us = calibrate(plan.cores[0])?;
    let progress = Progress::new(plan.steps());
    let mut rows = Vec::new();
    for part in &plan.parts {
        if interrupt::requested() {
            break;
        }
        let part_rows = run_part(plan, part, steps_per_us, &progress);
        if !silent {
            progress.pause(|| show::part(plan, &part.setting, &part_rows));
        }
        rows.extend(part_rows);
    }
    drop(progress);
    if !silent {
        show::notes(&rows);
    }
    Ok(rows)
}

/// The work of a microsecond, on a reader's CPU: the same number of steps for every contender.
fn calibrate(cpu: usize) -> Result<f64, Stop> {
    std::thread::spawn(move || cpus::pin(cpu).map(|()| Work::steps_per_microsecond()))
        .join()
        .unwrap_or_else(|_| Err("the readers' work could not be calibrated".to_owned()))
        .map_err(Stop::usage)
}

/// All rounds of one setting; a row for each cell that completed at least one.
fn run_part(plan: &Plan, part: &Part, steps_per_us: f64, progress: &Progress) -> Vec<Row> {
    let mut results: Vec<Vec<Result<Outcome, String>>> = part.cells.iter().map(|_| Vec::new()).collect();
    let name = show::name(&part.setting);
    'rounds: for round in 0..plan.rounds as usize {
        progress.stage(&format!("{name}, round {} of {}", round + 1, plan.rounds));
        for turn in 0..part.cells.len() {
            if interrupt::requested() {
                break 'rounds;
            }
            let at = (turn + round) % part.cells.len();
            let cell = &part.cells[at];
            progress.begin(format!("{name}, {} with {} a core", cell.entry.name, cell.per_core));
            // A round that was cut short is not like the others.
            let Some(result) = child::run(&order(plan, &part.setting, cell, steps_per_us, round)) else {
                break 'rounds;
            };
            results[at].push(result);
            progress.step();
        }
    }
    part.cells
        .iter()
        .zip(results)
        .filter(|(_, results)| !results.is_empty())
        .map(|(cell, results)| row(plan, &part.setting, cell, results))
        .collect()
}

fn order(plan: &Plan, setting: &Setting, cell: &Cell, steps_per_us: f64, round: usize) -> Order {
    let work = work(setting.section_us, setting.inside, steps_per_us);
    let readers = cell.per_core * plan.cores.len();
    Order {
        contender: cell.entry.name.to_owned(),
        workload: setting.workload,
        inside_steps: work.inside,
        sleep_ns: work.sleep.as_nanos() as u64,
        outside_steps: work.outside,
        reader_cpus: plan.cores.iter().copied().cycle().take(readers).collect(),
        writer_cpu: plan.writer_cpu,
        duration_us: plan.round.as_micros() as u64,
        seed: plan.seed.wrapping_add(round as u64),
    }
}

fn work(section_us: f64, inside: Inside, steps_per_us: f64) -> Work {
    let steps = |microseconds: f64| (microseconds * steps_per_us).round() as u64;
    match inside {
        Inside::Always => Work { inside: steps(section_us), sleep: Duration::ZERO, outside: 0 },
        Inside::Half => {
            Work { inside: steps(section_us), sleep: Duration::ZERO, outside: steps(section_us).max(1) }
        }
        Inside::Blocked => Work {
            inside: steps(section_us / 2.0),
            sleep: Duration::from_secs_f64(section_us / 2e6).max(Duration::from_nanos(1)),
            outside: 0,
        },
    }
}

fn row(plan: &Plan, setting: &Setting, cell: &Cell, results: Vec<Result<Outcome, String>>) -> Row {
    let mut params = Map::new();
    params.insert("workload".into(), setting.workload.name().into());
    params.insert("readers_per_core".into(), cell.per_core.into());
    params.insert("section_us".into(), number(setting.section_us));
    params.insert("presence".into(), setting.inside.name().into());
    params.insert("policy".into(), cell.entry.policy.name().into());
    params.insert("cores".into(), plan.cores.len().into());
    params.insert("rounds".into(), results.len().into());
    params.insert("round_s".into(), number(plan.round.as_secs_f64()));

    let mut row = Row {
        experiment: "preempt".into(),
        scenario: if cell.per_core == plan::BASELINE { "baseline" } else { "overcommit" }.to_owned(),
        contender: cell.entry.name.to_owned(),
        params,
        metrics: Map::new(),
        void: None,
    };
    match results.into_iter().collect::<Result<Vec<_>, _>>() {
        Ok(outcomes) => row.metrics = metrics(&outcomes),
        Err(reason) => row.void = Some(reason),
    }
    row
}

/// The median over the rounds of each metric, and the longest grace period of all of them.
fn metrics(outcomes: &[Outcome]) -> Map<String, Value> {
    let plain = |of: &dyn Fn(&Outcome) -> f64| median(outcomes.iter().map(of).collect());
    // A thousandth of a microsecond, and one byte: what lies below is noise in the text.
    let rounded = |value: f64, digits: i32| number((value * 10f64.powi(digits)).round() / 10f64.powi(digits));
    let longest = outcomes.iter().map(|outcome| outcome.grace.max).fold(0.0, f64::max);

    let mut metrics = Map::new();
    let mut put_all = |prefix: &str, of: fn(&Outcome) -> &Distribution| {
        let mut put = |name: &str, figure: fn(&Distribution) -> f64| {
            metrics.insert(format!("{prefix}_{name}"), rounded(plain(&|o| figure(of(o))), 3));
        };
        put("mean", |d| d.mean);
        put("p50", |d| d.p50);
        put("p99", |d| d.p99);
        put("p999", |d| d.p999);
        put("max", |d| d.max);
    };
    put_all("gp_us", |o| &o.grace);
    put_all("delay_us", |o| &o.delay);
    let mut put = |name: &str, value| metrics.insert(name.to_owned(), value);
    put("gp_us_max_most", rounded(longest, 3));
    put("grace_periods", rounded(plain(&|o| o.graces as f64), 0));
    put("cpu_us_per_gp", rounded(plain(&|o| o.scheme_cpu_s * 1e6 / o.graces as f64), 3));
    put("cpu_us_per_free", rounded(plain(&|o| o.scheme_cpu_s * 1e6 / o.freed as f64), 3));
    put("unlinked", rounded(plain(&|o| o.unlinked as f64), 0));
    put("freed", rounded(plain(&|o| o.freed as f64), 0));
    put("changes_per_s", rounded(plain(&|o| o.changes_per_s), 0));
    put("peak_pending_bytes", rounded(plain(&|o| o.peak_pending_bytes as f64), 0));
    put("live_bytes", rounded(plain(&|o| o.live_bytes as f64), 0));
    put("peak_resident_bytes", rounded(plain(&|o| o.peak_resident_bytes as f64), 0));
    let share = |resident: usize, used: usize| resident as f64 / used.max(1) as f64;
    put("resident_per_used", rounded(plain(&|o| share(o.peak_resident_bytes, o.used_at_peak_bytes)), 3));
    put("resident_per_live_after", rounded(plain(&|o| share(o.end_resident_bytes, o.live_bytes)), 3));
    put("sections_per_s", rounded(plain(&|o| o.sections_per_s), 0));
    put("foreign_cpus", rounded(plain(&|o| o.foreign_cpus), 3));
    metrics
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
        }
    }

    #[test]
    fn a_row_is_the_median_of_its_rounds() {
        let metrics = metrics(&[outcome(10, 0.1), outcome(90, 0.3), outcome(12, 0.2)]);
        assert_eq!((&metrics["gp_us_mean"], &metrics["gp_us_max_most"]), (&12.into(), &90.into()));
        assert_eq!((&metrics["cpu_us_per_gp"], &metrics["cpu_us_per_free"]), (&2_000.into(), &200.into()));
        assert_eq!(metrics["resident_per_used"].as_f64(), Some(1.5));
        assert_eq!(metrics["resident_per_live_after"].as_f64(), Some(2.0));
    }

    #[test]
    fn a_section_has_the_same_length_in_every_kind_but_for_where_it_is_spent() {
        let always = work(50.0, Inside::Always, 300.0);
        assert_eq!(always, Work { inside: 15_000, sleep: Duration::ZERO, outside: 0 });
        assert_eq!(work(50.0, Inside::Half, 300.0), Work { outside: 15_000, ..always });
        let blocked = Work { inside: 7_500, sleep: Duration::from_micros(25), outside: 0 };
        assert_eq!(work(50.0, Inside::Blocked, 300.0), blocked);
    }
}
