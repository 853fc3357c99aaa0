//! The experiment `reclaim`: how long after its unlink an object is freed.
//!
//! An array of four million elements; readers look random keys up, one after the other; a writer replaces
//! random elements, 5,000 times a second, and hands the old ones to the scheme under test. The same loops, keys,
//! CPUs and schedule for every contender, in rounds, in an order that rotates.

pub(crate) mod names;
pub(crate) mod ours;
pub(crate) mod plan;
pub(crate) mod round;
pub(crate) mod setting;
mod show;

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use stillpoint_peers::table::rte_hash_reclaiming;
use stillpoint_peers::{Contender, Delays, Slots, catalogue};

use crate::error::Stop;
use crate::experiment::Structure;
use crate::interrupt;
use crate::machine::cpus;
use crate::machine::huge_pages::HugePages;
use crate::output::json::{Row, number};
use crate::output::progress::Progress;
use crate::reclaim::names::Entry;
use crate::reclaim::plan::{Part, is_ours};
use crate::reclaim::round::{Outcome, Round};
use crate::stats::{Distribution, median};

pub(crate) use plan::Plan;

/// Runs the experiment and prints each table as soon as it is complete, unless told to be `silent`.
fn run(plan: &Plan, silent: bool) -> Result<Vec<Row>, Stop> {
    for line in &plan.left_out {
        crate::output::tell(line);
    }
    let progress = Progress::new(plan.steps());
    let building = format!("building {}s of {} elements", plan.structure.name(), plan.elements);
    progress.stage(&building);
    progress.begin(building);
    let _huge_pages = initialise_dpdk(plan)?;
    let field = Field::build(plan)?;

    let mut rows = Vec::new();
    for part in &plan.parts {
        if interrupt::requested() {
            break;
        }
        let part_rows = run_part(plan, part, &field, &progress);
        if !silent {
            progress.pause(|| show::part(&part.setting, plan.structure, &part_rows));
        }
        rows.extend(part_rows);
    }
    drop(progress);
    if !silent {
        show::notes(&field.contenders);
    }
    Ok(rows)
}

/// For rte_hash: DPDK's memory, of huge pages where they can be had. It belongs to the process from then on.
fn initialise_dpdk(plan: &Plan) -> Result<Option<(HugePages, interrupt::AtTheEnd)>, Stop> {
    let tables = plan.of_dpdk().count();
    let (Some(&cpu), true) = (cpus::allowed().first(), tables > 0) else { return Ok(None) };
    // As for the experiment `table`, for each of them.
    let megabytes = ((plan.elements * 96 * tables) >> 20) + 64 * tables;
    let pages = HugePages::reserve(megabytes);
    if pages.is_none() {
        crate::output::tell(
            "rte_hash runs without huge pages: run as root, or reserve them in vm.nr_hugepages",
        );
    }
    // A thread of its own, which the layer pins.
    let answer = thread::scope(|scope| {
        let initialise = || stillpoint_peers::table::initialise_dpdk(megabytes, pages.is_some(), cpu);
        scope.spawn(initialise).join()
    });
    answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(Stop::Failed)?;
    Ok(pages.map(|pages| {
        let restore = interrupt::at_the_end(pages.restorer());
        (pages, restore)
    }))
}

/// The data, and the contenders on it. Kept until the process ends: freeing millions of elements takes a second
/// and shows nothing.
struct Field {
    delays: &'static Delays,
    contenders: ManuallyDrop<Vec<Box<dyn Contender>>>,
}

impl Field {
    fn build(plan: &Plan) -> Result<Self, Stop> {
        let capacity = (plan.round.as_secs_f64() * f64::from(round::RATE)) as usize + 1024;
        let delays: &'static Delays = Box::leak(Box::new(Delays::new(capacity)));
        let readers = plan.most_readers();
        let takes_part = |name: &str| plan.has(|entry| entry == name);
        // Side by side, in threads of their own, so that both arrays come from fresh heaps of the same kind.
        let (ours, theirs) = thread::scope(|scope| {
            let ours = plan.has(is_ours).then(|| {
                scope.spawn(|| {
                    Ok(match plan.structure {
                        Structure::Array => ours::contenders(plan.elements, delays, takes_part),
                        Structure::Table => ours::contenders_on_table(plan.elements, delays, takes_part),
                    })
                })
            });
            let theirs = plan.has(|name| !is_ours(name)).then(|| {
                scope.spawn(|| {
                    if plan.structure == Structure::Table {
                        let make = |name| rte_hash_reclaiming(name, plan.elements, delays, readers);
                        return plan.of_dpdk().map(make).collect();
                    }
                    let slots = Arc::new(Slots::new(plan.elements, delays));
                    let wanted = catalogue().into_iter().filter(|entry| takes_part(entry.name));
                    Ok(wanted.map(|entry| entry.make(&slots, readers)).collect())
                })
            });
            let join = |builder: Option<thread::ScopedJoinHandle<'_, _>>| match builder.map(|b| b.join()) {
                Some(Ok(contenders)) => contenders,
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                None => Ok(Vec::new()),
            };
            (join(ours), join(theirs))
        });
        let mut contenders: Vec<Box<dyn Contender>> = ours.map_err(Stop::Failed)?;
        contenders.extend(theirs.map_err(Stop::Failed)?);
        Ok(Self { delays, contenders: ManuallyDrop::new(contenders) })
    }

    fn contender(&self, name: &str) -> Option<&dyn Contender> {
        self.contenders.iter().find(|contender| contender.name() == name).map(|contender| &**contender)
    }
}

/// All rounds of one setting; a row for each contender that completed at least one.
fn run_part(plan: &Plan, part: &Part, field: &Field, progress: &Progress) -> Vec<Row> {
    let mut results: Vec<Vec<Result<Outcome, String>>> = part.contenders.iter().map(|_| Vec::new()).collect();
    'rounds: for round in 0..plan.rounds as usize {
        let (scenario, readers) = (part.setting.scenario, part.setting.readers());
        progress.stage(&format!("{scenario}, readers {readers}, round {} of {}", round + 1, plan.rounds));
        for turn in 0..part.contenders.len() {
            let at = (turn + round) % part.contenders.len();
            let entry = part.contenders[at];
            progress.begin(format!("{scenario} {readers} {}", entry.name));
            let Some(contender) = field.contender(entry.name) else { continue };
            let result = round::run(
                contender,
                &Round {
                    policy: entry.policy,
                    setting: &part.setting,
                    elements: plan.elements,
                    duration: plan.round,
                    seed: plan.seed.wrapping_add(round as u64),
                    delays: field.delays,
                },
            );
            // A round that was cut short is not like the others.
            if interrupt::requested() {
                break 'rounds;
            }
            results[at].push(result);
            progress.step();
        }
    }
    part.contenders
        .iter()
        .zip(results)
        .filter(|(_, results)| !results.is_empty())
        .map(|(entry, results)| row(plan, part, entry, results))
        .collect()
}

fn row(plan: &Plan, part: &Part, entry: &Entry, results: Vec<Result<Outcome, String>>) -> Row {
    let rounds = results.len();
    let mut params = serde_json::Map::new();
    params.insert("readers".into(), part.setting.readers().into());
    params.insert("policy".into(), entry.policy.name().into());
    params.insert("cores".into(), part.setting.cores.into());
    params.insert("structure".into(), plan.structure.name().into());
    params.insert("elements".into(), plan.elements.into());
    params.insert("rounds".into(), rounds.into());
    params.insert("round_s".into(), number(plan.round.as_secs_f64()));

    let mut row = Row {
        experiment: "reclaim".into(),
        scenario: part.setting.scenario.to_owned(),
        contender: entry.name.to_owned(),
        params,
        metrics: serde_json::Map::new(),
        void: None,
    };
    match results.into_iter().collect::<Result<Vec<_>, _>>() {
        Ok(outcomes) => row.metrics = metrics(&outcomes, plan.round),
        Err(reason) => row.void = Some(reason),
    }
    row
}

/// The median over the rounds of each metric, and the spread of the mean delay.
fn metrics(outcomes: &[Outcome], round: Duration) -> serde_json::Map<String, serde_json::Value> {
    let distributions: Vec<Distribution> =
        outcomes.iter().filter_map(|outcome| Distribution::of(&outcome.delays)).collect();
    let delay = |of: fn(&Distribution) -> f64| median(distributions.iter().map(of).collect());
    let plain = |of: fn(&Outcome) -> f64| median(outcomes.iter().map(of).collect());
    let means = || distributions.iter().map(|distribution| distribution.mean);
    // A thousandth of a microsecond, and one lookup: what lies below is noise in the text.
    let rounded = |value: f64, digits: i32| number((value * 10f64.powi(digits)).round() / 10f64.powi(digits));

    let mut metrics = serde_json::Map::new();
    let mut put = |name: &str, value| metrics.insert(name.to_owned(), value);
    put("delay_us_mean", rounded(delay(|d| d.mean), 3));
    put("delay_us_p50", rounded(delay(|d| d.p50), 3));
    put("delay_us_p99", rounded(delay(|d| d.p99), 3));
    put("delay_us_p999", rounded(delay(|d| d.p999), 3));
    put("delay_us_max", rounded(delay(|d| d.max), 3));
    put("delay_us_mean_least", rounded(means().fold(f64::INFINITY, f64::min), 3));
    put("delay_us_mean_most", rounded(means().fold(0.0, f64::max), 3));
    put("deletes", rounded(plain(|o| o.deletes as f64), 0));
    put("freed", rounded(plain(|o| o.freed as f64), 0));
    put("lookups_per_s", rounded(plain(|o| o.lookups_per_s), 0));
    put("peak_pending", rounded(plain(|o| o.peak_pending as f64), 0));
    put("cpu_s", rounded(plain(|o| o.cpu_s), 4));
    put("cpus", rounded(plain(|o| o.cpu_s) / round.as_secs_f64(), 3));
    put("foreign_cpus", rounded(plain(|o| o.foreign_cpu_s) / round.as_secs_f64(), 3));
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(delay: u64, deletes: usize) -> Outcome {
        Outcome {
            delays: vec![delay; deletes],
            deletes,
            freed: deletes,
            lookups_per_s: 1e6,
            peak_pending: 1,
            cpu_s: 0.5,
            foreign_cpu_s: 0.0,
        }
    }

    #[test]
    fn a_row_is_the_median_of_its_rounds() {
        let metrics = metrics(
            &[outcome(10_000, 100), outcome(12_000, 100), outcome(90_000, 97)],
            Duration::from_secs(1),
        );
        assert_eq!(metrics["delay_us_mean"].as_f64(), Some(12.0));
        assert_eq!(metrics["delay_us_mean_least"].as_f64(), Some(10.0));
        assert_eq!(metrics["delay_us_mean_most"].as_f64(), Some(90.0));
        assert_eq!(metrics["deletes"].to_string(), "100");
    }
}
