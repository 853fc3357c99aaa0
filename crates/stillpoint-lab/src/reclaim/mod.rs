//! The experiment `reclaim`: how long after its unlink an object is freed.
//!
//! The elements, four million, are in a lock-free hash table or an array. Readers look up random keys, one after the other. A
//! writer replaces random elements, 5,000 times a second, and hands the old ones to the scheme under test. Every contender has
//! the same loops, keys, CPUs and schedule, in rounds, in an order that rotates.

mod answer;
mod figures;
pub(crate) mod names;
mod notes;
pub(crate) mod ours;
pub(crate) mod plan;
pub(crate) mod round;
pub(crate) mod setting;

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use stillpoint::fence;
use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::rounds::Turns;
use stillpoint_harness::experiment::threads::{StopOnDrop, on_each};
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::machine::huge_pages::HugePages;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::stats::{Distribution, median};
use stillpoint_peers::table::make_reclaiming;
use stillpoint_peers::{Contender, Delays, Named, Slots, catalogue};

use crate::experiment::{Measured, Structure};
use crate::reclaim::names::{Entry, SPREAD};
use crate::reclaim::plan::is_ours;
use crate::reclaim::round::{Outcome, Round};
use crate::reclaim::setting::{Setting, Slow};

pub(crate) use answer::{QUESTION, answer, of_libraries, table};
pub(crate) use figures::BEST;
pub(crate) use plan::Plan;

/// Runs the experiment.
pub(crate) fn run(plan: &Plan) -> Result<Measured, Stop> {
    plan.left_out.iter().for_each(stillpoint_harness::output::leave_out);
    if plan.parts.is_empty() {
        return Ok(Default::default()); // a run of all experiments, with nothing for this one
    }
    let turns = Turns { rounds: plan.rounds, round: plan.round, seed: plan.seed };
    let progress = turns.progress(&plan.parts);
    let building = format!("building {}s of {} elements", plan.structure.name(), plan.elements);
    progress.stage(&building);
    progress.begin(building);
    let huge_pages = initialise_dpdk(plan)?;
    let field = Field::build(plan)?;

    let stage = |setting: &Setting| {
        let cpus =
            if setting.scenario == SPREAD { format!(", CPUs {}", setting.cores) } else { String::new() };
        let slow =
            setting.slow.map(|slow| format!(", a slow one in the {}", slow.name())).unwrap_or_default();
        format!("{}, readers {}{slow}{cpus}", setting.scenario, setting.readers())
    };
    let measure = |setting: &Setting, entry: &&Entry, seed| {
        let contender = field.contender(entry.name).ok_or("this contender was not built")?;
        let Plan { elements, deletes_per_s, round: duration, .. } = *plan;
        let (policy, delays) = (entry.policy, field.delays);
        let slow = match setting.slow {
            None => None,
            Some(Slow::Same) => Some((contender, setting.readers())),
            Some(Slow::Other) => Some((field.other(entry.name).ok_or("its second group was not built")?, 0)),
        };
        let round = Round { policy, setting, slow, elements, deletes_per_s, duration, seed, delays };
        let outcome = round::run(contender, &round);
        if interrupt::requested() { Err("it was cut short".to_owned()) } else { outcome }
    };
    let row = |setting: &Setting, entry: &&Entry| row(plan, setting, entry);
    let rows = turns.measure(&plan.parts, &progress, stage, measure, row, figures);
    let notes = notes::of(plan, &rows, huge_pages.is_some(), fence_beside_a_thread());
    Ok((rows, notes))
}

/// The median time of a heavy fence in nanoseconds, beside a thread that runs on another CPU. `None` if there is no such CPU, or no fence.
fn fence_beside_a_thread() -> Option<f64> {
    const FENCES: usize = 200;
    let [beside, .., writer] = cpus::allowed()[..] else { return None };
    fence::asymmetric_supported().ok()?;
    let (runs, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let measured = on_each(&[beside, writer], |index, barrier| {
        barrier.wait();
        // Relaxed, all: nothing is published with the flags.
        if index == 0 {
            runs.store(true, Ordering::Relaxed);
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            return None;
        }
        let _stop = StopOnDrop(&is_over);
        // The other thread may still be waking up from the barrier: then its CPU needs no interrupt.
        while !runs.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        let fence = |_| {
            let begin = Instant::now();
            fence::heavy().ok()?;
            Some(begin.elapsed().as_nanos() as f64)
        };
        (0..FENCES).map(fence).collect::<Option<Vec<_>>>()
    });
    measured.ok()?.pop()?.map(median)
}

/// Initialises DPDK's memory for rte_hash, in huge pages if they are available. The memory stays until the process
/// ends.
fn initialise_dpdk(plan: &Plan) -> Result<Option<HugePages>, Stop> {
    let tables = plan.tables_of_dpdk();
    let (Some(&cpu), true) = (cpus::allowed().first(), tables > 0) else { return Ok(None) };
    // As much for each table as in the experiment `table`.
    let megabytes = ((plan.elements * 96 * tables) >> 20) + 64 * tables;
    let pages = HugePages::reserve(megabytes);
    if pages.is_none() {
        stillpoint_harness::output::tell(
            "warning: rte_hash runs without huge pages: run as root, or reserve them in vm.nr_hugepages",
        );
    }
    // A separate thread, since DPDK pins the thread that initialises it.
    let answer = thread::scope(|scope| {
        let initialise = || stillpoint_peers::table::initialise_dpdk(megabytes, pages.is_some(), cpu);
        scope.spawn(initialise).join()
    });
    answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(Stop::Failed)?;
    Ok(pages)
}

/// The data, and the contenders on it. Kept until the process ends: freeing millions of elements would take a second and
/// measure nothing.
struct Field {
    delays: &'static Delays,
    contenders: ManuallyDrop<Vec<Named>>,
    /// The second groups, over small structures.
    others: ManuallyDrop<Vec<Named>>,
}

/// Elements of the structure of a second group.
const ELEMENTS_OF_OTHERS: usize = 1 << 10;

impl Field {
    fn build(plan: &Plan) -> Result<Self, Stop> {
        let capacity = (plan.round.as_secs_f64() * f64::from(plan.deletes_per_s)) as usize + 1024;
        let delays: &'static Delays = Box::leak(Box::new(Delays::new(capacity)));
        let contenders =
            Self::contenders(plan, plan.elements, delays, |name| plan.has(|entry| entry == name))?;
        let has_other =
            |name: &str| plan.of_groups().any(|part| part.contenders.iter().any(|entry| entry.name == name));
        let others = Self::contenders(plan, ELEMENTS_OF_OTHERS, delays, has_other)?;
        Ok(Self { delays, contenders: ManuallyDrop::new(contenders), others: ManuallyDrop::new(others) })
    }

    /// The contenders that are wanted, over structures with this many elements.
    fn contenders(
        plan: &Plan,
        elements: usize,
        delays: &'static Delays,
        wanted: impl Fn(&str) -> bool + Copy + Sync,
    ) -> Result<Vec<Named>, Stop> {
        let (readers, recipe) = (plan.most_readers(), plan.recipe(delays));
        let has = |of_this_kind: fn(&str) -> bool| plan.has(|name| of_this_kind(name) && wanted(name));
        // Built in parallel, each on its own thread, so that every structure has a fresh heap of the same kind.
        let (ours, theirs) = thread::scope(|scope| {
            let ours = has(is_ours).then(|| {
                let contenders = || Ok(ours::contenders(plan.structure, elements, recipe, wanted));
                scope.spawn(contenders)
            });
            let theirs = has(|name| !is_ours(name)).then(|| {
                scope.spawn(|| {
                    if plan.structure == Structure::Table {
                        return make_reclaiming(wanted, elements, recipe, readers);
                    }
                    let slots = Arc::new(Slots::made_by(elements, recipe));
                    let wanted = catalogue().into_iter().filter(|entry| wanted(entry.name));
                    Ok(wanted.map(|entry| (entry.name, entry.make(&slots, readers))).collect())
                })
            });
            let join = |builder: Option<thread::ScopedJoinHandle<'_, _>>| match builder.map(|b| b.join()) {
                Some(Ok(contenders)) => contenders,
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                None => Ok(Vec::new()),
            };
            (join(ours), join(theirs))
        });
        let mut contenders: Vec<Named> = ours.map_err(Stop::Failed)?;
        contenders.extend(theirs.map_err(Stop::Failed)?);
        Ok(contenders)
    }

    fn contender(&self, name: &str) -> Option<&dyn Contender> {
        find(&self.contenders, name)
    }

    fn other(&self, name: &str) -> Option<&dyn Contender> {
        find(&self.others, name)
    }
}

fn find<'a>(contenders: &'a [Named], name: &str) -> Option<&'a dyn Contender> {
    contenders.iter().find(|(of, _)| *of == name).map(|(_, contender)| &**contender)
}

fn row(plan: &Plan, setting: &Setting, entry: &Entry) -> Row {
    let row = Row::new("reclaim", setting.scenario, entry.name);
    let row = match setting.slow {
        None => row,
        Some(slow) => row.with("slow_reader", slow.name()),
    };
    row.with("readers", setting.readers())
        .with("policy", entry.policy.name())
        .with("cores", setting.cores)
        .with("structure", plan.structure.name())
        .with("elements", plan.elements)
        .with("bytes", plan.bytes)
        .with("deletes_per_s", plan.deletes_per_s)
}

/// The median of each metric over the rounds, and the spread of the mean delay.
fn figures(row: &mut Row, rounds: &[Outcome]) {
    let delays: Vec<Distribution> =
        rounds.iter().filter_map(|outcome| Distribution::of(&outcome.delays)).collect();
    row.put_distribution("delay_us", &delays);
    row.put_spread("delay_us_mean", delays.iter().map(|delays| delays.mean));
    let mut put = |name: &str, digits, of: &dyn Fn(&Outcome) -> f64| row.put_median(name, digits, rounds, of);
    put("deletes", 0, &|o| o.deletes as f64);
    put("freed", 0, &|o| o.freed as f64);
    put("lookups_per_s", 0, &|o| o.lookups_per_s);
    put("peak_pending", 0, &|o| o.peak_pending as f64);
    put("cpu_s", 4, &|o| o.used.own.as_secs_f64());
    put("cpus", 3, &|o| o.used.cpus);
    put("foreign_cpus", 3, &|o| o.used.foreign_cpus);
    let fences: Option<Vec<f64>> = rounds.iter().map(|outcome| outcome.fences_per_s).collect();
    if let Some(fences) = fences {
        row.put("fences_per_s", median(fences), 1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stillpoint_harness::experiment::threads::Used;

    use super::*;

    fn outcome(delay: u64, deletes: usize) -> Outcome {
        Outcome {
            delays: vec![delay; deletes],
            deletes,
            freed: deletes,
            lookups_per_s: 1e6,
            peak_pending: 1,
            fences_per_s: (delay == 90_000).then_some(7.0),
            used: Used { own: Duration::from_millis(500), cpus: 0.5, foreign_cpus: 0.0 },
        }
    }

    #[test]
    fn a_row_is_the_median_of_its_rounds() {
        let mut row = Row::new("reclaim", "spread", "seize");
        figures(&mut row, &[outcome(10_000, 100), outcome(12_000, 100), outcome(90_000, 97)]);
        assert_eq!(row.metric("delay_us_mean"), Some(12.0));
        assert_eq!(row.metric("delay_us_mean_least"), Some(10.0));
        assert_eq!(row.metric("delay_us_mean_most"), Some(90.0));
        assert_eq!(row.metrics["deletes"].to_string(), "100");
        assert_eq!(row.metric("fences_per_s"), None, "not all rounds have it");
        figures(&mut row, &[outcome(90_000, 97)]);
        assert_eq!(row.metric("fences_per_s"), Some(7.0));
    }
}
