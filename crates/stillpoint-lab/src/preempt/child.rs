//! One round in a process of its own, so that what it leaves in memory is none of the next one's.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stillpoint_peers::{Contender, Delays, Slots, Work, catalogue};

use crate::child::{self, OnInterrupt};
use crate::preempt::round::{self, Outcome, Round};
use crate::preempt::workload::Workload;
use crate::reclaim::ours;
use crate::reclaim::plan::is_ours;

/// Samples that are kept at the most; of more, every second, fourth, ... is.
const MOST_SAMPLES: usize = 1 << 18;

/// A round of one contender.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(super) contender: String,
    pub(super) workload: Workload,
    pub(super) inside_steps: u64,
    pub(super) sleep_ns: u64,
    pub(super) outside_steps: u64,
    pub(super) reader_cpus: Vec<usize>,
    pub(super) writer_cpu: usize,
    pub(super) duration_us: u64,
    pub(super) seed: u64,
}

/// Runs a round in a child. `None` when Ctrl-C has ended it. An error says why it does not count: a scheme that has freed
/// too much may end its process.
pub(super) fn run(order: &Order) -> Option<Result<Outcome, String>> {
    child::ask(order).unwrap_or_else(|stop| Some(Err(stop.to_string())))
}

impl child::Order for Order {
    const VARIABLE: &'static str = "STILLPOINT_BENCH_PREEMPT";
    const WORK: &'static str = "measures a round";
    const ON_INTERRUPT: OnInterrupt = OnInterrupt::End;

    type Answer = Result<Outcome, String>;

    fn obey(self) -> Result<Self::Answer, String> {
        Ok(obey(&self))
    }
}

fn obey(order: &Order) -> Result<Outcome, String> {
    let duration = Duration::from_micros(order.duration_us);
    let most = (duration.as_secs_f64() * order.workload.most_changes_per_s() as f64) as usize + 1024;
    let sparseness = most.div_ceil(MOST_SAMPLES).next_power_of_two().trailing_zeros();
    let delays: &'static Delays = Box::leak(Box::new(Delays::sparse(most >> sparseness, sparseness)));
    let contender = make(&order.contender, order.workload.slots(), order.reader_cpus.len(), delays)?;
    let round = Round {
        workload: order.workload,
        work: Work {
            inside: order.inside_steps,
            sleep: Duration::from_nanos(order.sleep_ns),
            outside: order.outside_steps,
        },
        reader_cpus: &order.reader_cpus,
        writer_cpu: order.writer_cpu,
        duration,
        seed: order.seed,
        delays,
    };
    round::run(contender.as_ref(), &round)
}

fn make(
    name: &str,
    slots: usize,
    readers: usize,
    delays: &'static Delays,
) -> Result<Box<dyn Contender>, String> {
    let made = if is_ours(name) {
        ours::alone(name, slots, delays)
    } else {
        let entry = catalogue().into_iter().find(|entry| entry.name == name);
        entry.map(|entry| entry.make(&Arc::new(Slots::empty(slots, delays)), readers))
    };
    made.ok_or_else(|| format!("there is no contender {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::cpus;
    use crate::preempt::plan::CONTENDERS;
    use crate::preempt::workload::WORKLOADS;
    use crate::reclaim::plan::contenders;

    /// Every contender in every workload, with readers of every kind; all on one CPU, as any machine has one.
    #[test]
    fn every_contender_comes_through_every_workload() {
        let cpu = cpus::allowed()[0];
        for entry in contenders(CONTENDERS, &[]).unwrap().0 {
            for (workload, (sleep_ns, outside_steps)) in
                WORKLOADS.into_iter().zip([(0, 0), (0, 1_000), (20_000, 0)])
            {
                let order = Order {
                    contender: entry.name.to_owned(),
                    workload,
                    inside_steps: 1_000,
                    sleep_ns,
                    outside_steps,
                    reader_cpus: vec![cpu; 2],
                    writer_cpu: cpu,
                    duration_us: 10_000,
                    seed: 5,
                };
                let outcome =
                    obey(&order).unwrap_or_else(|why| panic!("{} in {workload:?}: {why}", entry.name));
                assert!(outcome.freed > 0 && outcome.graces > 0, "{}: {outcome:?}", entry.name);
                assert!(outcome.peak_pending_bytes > 0, "{}: {outcome:?}", entry.name);
            }
        }
    }
}
