//! `stillpoint bench`: everything is checked, then measured, then written.

use crate::cli::{BenchArgs, Experiment};
use crate::error::Stop;
use crate::machine::{Machine, cpus};
use crate::output::json::{Nothing, Row, Target};
use crate::{interrupt, membarrier, micro, output, pool, preempt, reclaim, table, timer};

/// Runs the experiments asked for.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Stop> {
    let cpus = cpus::choose(args.cpus.as_ref().map(|list| list.0.as_slice()))?;
    let reclaim = plan_reclaim(args, &cpus)?;
    let preempt = plan_preempt(args, &cpus)?;
    let micro = plan_micro(args, &cpus)?;
    let table = plan_table(args, &cpus)?;
    let membarrier = plan_membarrier(args, &cpus)?;
    let timer = plan_timer(args, &cpus)?;
    let pool = plan_pool(args, &cpus)?;
    let target = Target::open(args.json.json.as_deref())?;
    let silent = target.takes_stdout();

    let machine = Machine::look();
    interrupt::listen();
    if !silent {
        output::say(machine.summary());
        output::say(peers_line(&machine));
    }
    let mut rows = Vec::new();
    if let Some(plan) = reclaim {
        rows.extend(reclaim::run(&plan, silent)?);
    }
    if let Some(plan) = preempt.filter(|_| !interrupt::requested()) {
        rows.extend(preempt::run(&plan, silent)?);
    }
    if let Some(plan) = micro.filter(|_| !interrupt::requested()) {
        rows.extend(micro::run(&plan, silent)?);
    }
    if let Some(plan) = table.filter(|_| !interrupt::requested()) {
        rows.extend(table::run(&plan, silent)?);
    }
    if let Some(plan) = membarrier.filter(|_| !interrupt::requested()) {
        rows.extend(membarrier::run(&plan, silent)?);
    }
    if let Some(plan) = timer.filter(|_| !interrupt::requested()) {
        rows.extend(timer::run(&plan, silent)?);
    }
    if let Some(plan) = pool.filter(|_| !interrupt::requested()) {
        rows.extend(pool::run(&plan, silent)?);
    }
    target.write(&machine, &rows, Nothing {})?;
    if interrupt::requested() {
        output::tell(format!("interrupted: {} rows were measured", rows.len()));
    }
    judge(&rows)
}

fn peers_line(machine: &Machine) -> String {
    let peers: Vec<String> =
        machine.peers.iter().map(|(name, version)| format!("{name} {version}")).collect();
    format!("Peers: {}", peers.join(", "))
}

fn plan_reclaim(args: &BenchArgs, cpus: &[usize]) -> Result<Option<reclaim::Plan>, Stop> {
    if !matches!(args.experiment, Experiment::Reclaim | Experiment::All) {
        return Ok(None);
    }
    match reclaim::own_scenarios(&args.scenarios) {
        Some(scenarios) => reclaim::Plan::new(args, cpus, &scenarios).map(Some),
        None if args.experiment == Experiment::All => Ok(None),
        None => Err(not_a_scenario("reclaim", &args.scenarios, reclaim::names::SCENARIOS)),
    }
}

fn plan_preempt(args: &BenchArgs, cpus: &[usize]) -> Result<Option<preempt::Plan>, Stop> {
    let all = args.experiment == Experiment::All;
    if !(all && preempt::has_contender(&args.contenders)) && args.experiment != Experiment::Preempt {
        return Ok(None);
    }
    match preempt::own_scenarios(&args.scenarios) {
        Some(scenarios) => preempt::Plan::new(args, cpus, &scenarios).map(Some),
        None if all => Ok(None),
        None => Err(not_a_scenario("preempt", &args.scenarios, preempt::SCENARIOS)),
    }
}

fn plan_micro(args: &BenchArgs, cpus: &[usize]) -> Result<Option<micro::Plan>, Stop> {
    if !matches!(args.experiment, Experiment::Micro | Experiment::All) {
        return Ok(None);
    }
    match micro::own_operations(&args.scenarios) {
        Some(operations) => micro::Plan::new(args, cpus, &operations).map(Some),
        None if args.experiment == Experiment::All => Ok(None),
        None => Err(not_a_scenario("micro", &args.scenarios, micro::OPERATIONS)),
    }
}

fn plan_table(args: &BenchArgs, cpus: &[usize]) -> Result<Option<table::Plan>, Stop> {
    let all = args.experiment == Experiment::All;
    if !(all && table::has_contender(&args.contenders)) && args.experiment != Experiment::Table {
        return Ok(None);
    }
    match table::own_scenarios(&args.scenarios) {
        Some(scenarios) => table::Plan::new(args, cpus, &scenarios).map(Some),
        None if all => Ok(None),
        None => Err(not_a_scenario("table", &args.scenarios, table::SCENARIOS)),
    }
}

fn plan_membarrier(args: &BenchArgs, cpus: &[usize]) -> Result<Option<membarrier::Plan>, Stop> {
    let all = args.experiment == Experiment::All;
    if !(all && membarrier::has_contender(&args.contenders)) && args.experiment != Experiment::Membarrier {
        return Ok(None);
    }
    match membarrier::own_scenarios(&args.scenarios) {
        Some(scenarios) => membarrier::Plan::new(args, cpus, &scenarios).map(Some),
        None if all => Ok(None),
        None => Err(not_a_scenario("membarrier", &args.scenarios, membarrier::SCENARIOS)),
    }
}

fn plan_timer(args: &BenchArgs, cpus: &[usize]) -> Result<Option<timer::Plan>, Stop> {
    let all = args.experiment == Experiment::All;
    if !(all && timer::has_contender(&args.contenders)) && args.experiment != Experiment::Timer {
        return Ok(None);
    }
    match timer::own_scenarios(&args.scenarios) {
        Some(scenarios) => timer::Plan::new(args, cpus, &scenarios).map(Some),
        None if all => Ok(None),
        None => Err(not_a_scenario("timer", &args.scenarios, timer::SCENARIOS)),
    }
}

fn plan_pool(args: &BenchArgs, cpus: &[usize]) -> Result<Option<pool::Plan>, Stop> {
    let all = args.experiment == Experiment::All;
    if !(all && pool::has_contender(&args.contenders)) && args.experiment != Experiment::Pool {
        return Ok(None);
    }
    match pool::own_scenarios(&args.scenarios) {
        Some(scenarios) => pool::Plan::new(args, cpus, &scenarios).map(Some),
        None if all => Ok(None),
        None => Err(not_a_scenario("pool", &args.scenarios, pool::SCENARIOS)),
    }
}

fn not_a_scenario(experiment: &str, asked: &[String], valid: &[&str]) -> Stop {
    let (asked, valid) = (asked.join(", "), valid.join(", "));
    Stop::usage(format!("{experiment} has no scenario {asked}: it has {valid}"))
}

/// An error that names the rows that do not count, if there are any.
pub(crate) fn judge(rows: &[Row]) -> Result<(), Stop> {
    let void: Vec<String> = rows
        .iter()
        .filter_map(|row| Some(format!("{} {} ({})", row.scenario, row.contender, row.void.as_ref()?)))
        .collect();
    match void.as_slice() {
        [] => Ok(()),
        void => {
            Err(Stop::Failed(format!("{} of {} rows failed: {}", void.len(), rows.len(), void.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_void_row_fails_the_run_and_is_named() {
        let row = |contender: &str, void: Option<&str>| Row {
            experiment: "reclaim",
            scenario: "spread".to_owned(),
            contender: contender.to_owned(),
            params: serde_json::Map::new(),
            metrics: serde_json::Map::new(),
            void: void.map(str::to_owned),
        };
        assert!(judge(&[row("seize", None)]).is_ok());
        let stop = judge(&[row("seize", None), row("ck/epoch", Some("3 lookups"))]).unwrap_err();
        assert!(
            matches!(&stop, Stop::Failed(message) if message.contains("spread ck/epoch (3 lookups)")),
            "{stop}"
        );
    }
}
