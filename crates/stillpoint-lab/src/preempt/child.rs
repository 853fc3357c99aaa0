//! One round in a separate process, so that the memory it leaves does not count in the next round.

use std::sync::Arc;

use stillpoint::fence::Mode;
use stillpoint_harness::experiment::child::{self, OnInterrupt};
use stillpoint_peers::{Contender, Delays, Slots, catalogue};

use crate::preempt::round::{self, Outcome, Round};
use crate::reclaim::ours;
use crate::reclaim::plan::is_ours;

/// The most samples that are kept. Of more, only every second one is kept, then every fourth, and so on.
const MOST_SAMPLES: usize = 1 << 18;

/// Runs a round in a child process: a scheme that frees too early may crash it. The error says why the round does not
/// count; Ctrl-C is one reason.
pub(crate) fn run(round: &Round) -> Result<Outcome, String> {
    match child::ask(round) {
        Ok(Some(outcome)) => outcome,
        Ok(None) => Err("interrupted".to_owned()),
        Err(stop) => Err(stop.to_string()),
    }
}

impl child::Order for Round {
    const VARIABLE: &'static str = "STILLPOINT_BENCH_PREEMPT";
    const WORK: &'static str = "measures a round";
    const ON_INTERRUPT: OnInterrupt = OnInterrupt::End;
    const ENVIRONMENT: &'static [(&'static str, &'static str)] = child::MALLOC_ON_SMALL_PAGES;

    type Answer = Result<Outcome, String>;

    fn obey(self) -> Result<Self::Answer, String> {
        Ok(obey(&self))
    }
}

/// Runs a round in this process.
pub(crate) fn obey(round: &Round) -> Result<Outcome, String> {
    let workload = round.setting.workload;
    let most = (round.duration.as_secs_f64() * workload.spec().most_changes_per_s as f64) as usize + 1024;
    let sparseness = most.div_ceil(MOST_SAMPLES).next_power_of_two().trailing_zeros();
    let delays: &'static Delays = Box::leak(Box::new(Delays::sparse(most >> sparseness, sparseness)));
    delays.lock();
    let (name, slots) = (round.contender.as_str(), workload.spec().slots);
    let made = if is_ours(name) {
        ours::alone(name, slots, round.symmetric.then_some(Mode::Symmetric), delays)
    } else {
        let entry = catalogue().into_iter().find(|entry| entry.name == name);
        entry.map(|entry| entry.make(&Arc::new(Slots::empty(slots, delays)), round.reader_cpus.len()))
    };
    let contender: Box<dyn Contender> = made.ok_or_else(|| format!("there is no contender {name}"))?;
    round::run(contender.as_ref(), round, delays)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiment::Inside;
    use crate::preempt::plan::{CONTENDERS, Setting};
    use crate::preempt::workload::Workload;
    use crate::reclaim::plan::contenders;
    use clap::ValueEnum;
    use stillpoint_harness::machine::cpus;

    /// Every contender in every workload, with readers of every kind; all on one CPU, so that any machine can run it.
    #[test]
    fn every_contender_comes_through_every_workload() {
        let cpu = cpus::allowed()[0];
        for entry in contenders(CONTENDERS, &[]).unwrap().0 {
            for (&workload, inside) in
                Workload::value_variants().iter().zip([Inside::Always, Inside::Half, Inside::Blocked])
            {
                let round = Round {
                    contender: entry.name.to_owned(),
                    symmetric: false,
                    setting: Setting { workload, section_us: 10.0, inside },
                    steps_per_us: 100.0,
                    reader_cpus: vec![cpu; 2],
                    writer_cpu: cpu,
                    duration: Duration::from_millis(10),
                    seed: 5,
                };
                let outcome =
                    obey(&round).unwrap_or_else(|why| panic!("{} in {workload:?}: {why}", entry.name));
                assert!(outcome.freed > 0 && outcome.graces > 0, "{}: {outcome:?}", entry.name);
                assert!(outcome.peak_pending_bytes > 0, "{}: {outcome:?}", entry.name);
            }
        }
    }
}
