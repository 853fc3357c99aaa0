//! `stillpoint bench`: everything is checked, then measured, then written.

use crate::cli::BenchArgs;
use crate::error::Stop;
use crate::experiment::{self, Plan};
use crate::machine::{Machine, cpus};
use crate::output::json::{Nothing, Row, Target};
use crate::{interrupt, membarrier, micro, output, pool, preempt, reclaim, table, timer};

/// An experiment that was planned; it is told whether to be silent.
type Planned = Box<dyn FnOnce(bool) -> Result<Vec<Row>, Stop>>;

/// Plans an experiment if it is asked for.
type Planner = fn(&BenchArgs, &[usize]) -> Result<Option<Planned>, Stop>;

/// All experiments, in their order.
const EXPERIMENTS: [Planner; 7] = [
    planned::<reclaim::Plan>,
    planned::<preempt::Plan>,
    planned::<micro::Plan>,
    planned::<table::Plan>,
    planned::<membarrier::Plan>,
    planned::<timer::Plan>,
    planned::<pool::Plan>,
];

fn planned<P: Plan + 'static>(args: &BenchArgs, cpus: &[usize]) -> Result<Option<Planned>, Stop> {
    let plan = experiment::plan::<P>(args, cpus)?;
    Ok(plan.map(|plan| Box::new(move |silent| plan.run(silent)) as Planned))
}

/// Runs the experiments asked for.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Stop> {
    let cpus = cpus::choose(args.cpus.as_ref().map(|list| list.0.as_slice()))?;
    let all: Vec<Planned> =
        EXPERIMENTS.iter().filter_map(|plan| plan(args, &cpus).transpose()).collect::<Result<_, _>>()?;
    if all.is_empty() {
        return Err(Stop::usage("no experiment has one of these contenders in one of these scenarios"));
    }
    let target = Target::open(args.json.json.as_deref())?;
    let silent = target.takes_stdout();

    let machine = Machine::look();
    interrupt::listen();
    if !silent {
        output::say(machine.summary());
        output::say(peers_line(&machine));
    }
    let mut rows = Vec::new();
    for run in all {
        if interrupt::requested() {
            break;
        }
        rows.extend(run(silent)?);
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
            experiment: "reclaim".into(),
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
