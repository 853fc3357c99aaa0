//! What the experiments of `stillpoint bench` have in common.

mod args;
pub(crate) mod readers;

use serde::{Deserialize, Serialize};
use stillpoint_harness::error::Stop;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::output;
use stillpoint_harness::output::figures::Figure;
use stillpoint_harness::output::format::bytes;
use stillpoint_harness::output::json::Row;

use crate::peers::{self, group};

use args::LEAST_ELEMENTS;
pub(crate) use args::{BenchArgs, ELEMENTS, Experiment, Inside, MAX_READERS, Structure};

/// The error of a request that leaves nothing to measure.
pub(crate) const NOTHING: &str = "none of these contenders takes part in any of these scenarios: `stillpoint bench EXPERIMENT --help` lists both";

/// The rows of an experiment, and lines that say how they came about.
pub(crate) type Measured = (Vec<Row>, Vec<String>);

/// An experiment, planned from the command line. All are planned before the first one runs.
pub(crate) trait Plan: Sized {
    const EXPERIMENT: Experiment;
    /// Their names.
    const SCENARIOS: &'static [&'static str];
    /// Those that measure for the time of `--duration`; the others have a fixed amount of work.
    const TIMED: &'static [&'static str] = Self::SCENARIOS;
    /// The options that not every experiment has, by their names on the command line.
    const OPTIONS: &'static [&'static str];
    /// The figures of its rows.
    const FIGURES: &'static [&'static Figure];

    /// The names of the contenders, in the order of the tables.
    const CONTENDERS: &'static [&'static str] = &[];

    /// The names of all contenders, if they depend on the build.
    fn contenders() -> Vec<&'static str> {
        Self::CONTENDERS.to_vec()
    }

    /// The plan for what was asked for. `scenarios` holds those of this experiment; all of them if it is empty.
    fn new(args: &BenchArgs, cpus: &[usize], scenarios: &[String]) -> Result<Self, Stop>;

    /// Measures.
    fn run(&self) -> Result<Measured, Stop>;
}

/// The plan of an experiment; `None` when it was not asked for.
pub(crate) fn plan<P: Plan>(args: &BenchArgs, cpus: &[usize]) -> Result<Option<P>, Stop> {
    let all = args.experiment == Experiment::All;
    if !all && args.experiment != P::EXPERIMENT {
        return Ok(None);
    }
    let scenarios: Vec<String> =
        args.scenarios.iter().filter(|asked| P::SCENARIOS.contains(&asked.as_str())).cloned().collect();
    let refusal = if !P::contenders().iter().any(|name| asked_for(name, &args.contenders)) {
        let has = P::contenders().join(", ");
        Some(format!("{} has none of these contenders: it has {has}", P::EXPERIMENT.name()))
    } else if scenarios.is_empty() && !args.scenarios.is_empty() {
        let (asked, has) = (args.scenarios.join(", "), P::SCENARIOS.join(", "));
        Some(format!("{} has no scenario {asked}: it has {has}", P::EXPERIMENT.name()))
    } else {
        None
    };
    match refusal {
        None => P::new(args, cpus, &scenarios).map(Some),
        Some(_) if all => Ok(None),
        Some(why) => Err(Stop::usage(why)),
    }
}

/// Those of `names` that were asked for and are here; and how to get the others, each way once. `missing` says so of a name that is not here.
///
/// # Errors
/// When one that is not here was asked for by its name.
pub(crate) fn present(
    names: impl IntoIterator<Item = &'static str>,
    asked: &[String],
    missing: impl Fn(&str) -> Option<String>,
) -> Result<(Vec<&'static str>, Vec<String>), Stop> {
    let (mut here, mut hints) = (Vec::new(), Vec::new());
    for name in names.into_iter().filter(|name| asked_for(name, asked)) {
        match missing(name) {
            None => here.push(name),
            Some(hint) if asked.iter().any(|asked| asked == name) => return Err(Stop::usage(hint)),
            Some(hint) => hints.push(hint),
        }
    }
    hints.dedup();
    Ok((here, hints))
}

/// The contenders of an experiment that were asked for and are here; the run leaves out the others.
///
/// # Errors
/// As for [`present`], and when none is here.
pub(crate) fn contenders<P: Plan>(
    asked: &[String],
    missing: impl Fn(&str) -> Option<String>,
) -> Result<Vec<String>, Stop> {
    let (here, hints) = present(P::contenders(), asked, missing)?;
    if here.is_empty() {
        return Err(Stop::usage(hints.join("; ")));
    }
    hints.into_iter().for_each(output::leave_out);
    Ok(here.into_iter().map(str::to_owned).collect())
}

/// The number of elements that was asked for, or else the usual one, halved until it takes at most three quarters of the memory that is
/// available; and a line about that.
///
/// # Errors
/// When what was asked for, or the least number, takes more memory than there is.
pub(crate) fn elements_within(
    available: Option<u64>,
    asked: Option<usize>,
    needed: impl Fn(usize) -> u64,
) -> Result<(usize, Option<String>), Stop> {
    let usual = asked.unwrap_or(ELEMENTS);
    let Some(available) = available.filter(|available| needed(usual) > *available) else {
        return Ok((usual, None));
    };
    let there = format!(
        "{usual} elements need {} of memory, and {} are available",
        bytes(needed(usual)),
        bytes(available)
    );
    let mut fewer = std::iter::successors(Some(usual / 2), |elements| Some(elements / 2));
    let fits = |elements: &usize| needed(*elements) <= available / 4 * 3;
    match asked {
        Some(_) => Err(Stop::usage(format!("{there}: give --elements a smaller number"))),
        None => match fewer.find(fits).filter(|&elements| elements >= LEAST_ELEMENTS) {
            Some(elements) => Ok((elements, Some(format!("{there}: this run has {elements}")))),
            None => Err(Stop::usage(format!("{there}, which is too little: name fewer --contenders"))),
        },
    }
}

/// Whether the contender `name` is among those asked for, or its group; it is when nothing was asked for.
pub(crate) fn asked_for(name: &str, asked: &[String]) -> bool {
    asked.is_empty() || asked.iter().any(|asked| asked == name || asked == group(name))
}

/// Whether a scenario is among those asked for; it is when none was asked for.
pub(crate) fn in_scenario(name: &str, asked: &[String]) -> bool {
    asked.is_empty() || asked.iter().any(|asked| asked == name)
}

/// Whether one of the contenders needs DPDK.
pub(crate) fn has_dpdk(contenders: &[String]) -> bool {
    contenders.iter().any(|name| peers::needs_dpdk(name))
}

/// A plan, and the huge pages that its parent has reserved for it.
#[derive(Serialize, Deserialize)]
pub(crate) struct OnHugePages<P> {
    pub(crate) plan: P,
    /// The huge pages that DPDK takes.
    pub(crate) megabytes: usize,
    /// Whether there are any.
    pub(crate) huge_pages: bool,
}

/// In a child process: initialises DPDK if one of the contenders needs it, then pins the calling thread to the first CPU.
pub(crate) fn prepare_child(
    contenders: &[String],
    cpus: &[usize],
    megabytes: usize,
    huge_pages: bool,
) -> Result<(), String> {
    let cpu = *cpus.first().ok_or("no CPU was chosen to measure on")?;
    if has_dpdk(contenders) {
        stillpoint_peers::table::initialise_dpdk(megabytes, huge_pages, cpu)?;
    }
    cpus::pin(cpu)
}

/// Gives free memory back to the system. Otherwise the next objects would reuse it, and the growth of memory would
/// not show.
pub(crate) fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call has no precondition.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The names that `--contenders` takes for these contenders: their own and their groups', each once.
pub(crate) fn names_and_groups(names: impl IntoIterator<Item = &'static str>) -> Vec<&'static str> {
    output::each_once(names.into_iter().flat_map(|name| [group(name), name]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_number_of_elements_follows_the_memory_and_no_other_does() {
        let within = |available: u64, asked| {
            elements_within(Some(available), asked, |elements| 1000 * elements as u64)
        };
        assert_eq!(within(1 << 40, None).unwrap(), (ELEMENTS, None));
        assert_eq!(within(1000 * ELEMENTS as u64, None).unwrap(), (ELEMENTS, None));
        // Half of them would take half of the memory, which is less than three quarters.
        let (elements, line) = within(1000 * ELEMENTS as u64 - 1, None).unwrap();
        assert_eq!(elements, ELEMENTS / 2);
        assert!(line.unwrap().ends_with("are available: this run has 2097152"));
        // A quarter is the most that fits into three quarters of two gigabytes.
        assert_eq!(within(2 << 30, None).unwrap().0, ELEMENTS / 4);
        assert_eq!(within(2 << 30, Some(1 << 20)).unwrap(), (1 << 20, None));
        let reason = within(1 << 30, Some(1 << 21)).unwrap_err().to_string();
        assert!(reason.ends_with("give --elements a smaller number"), "{reason}");
        let reason = within(1000, None).unwrap_err().to_string();
        assert!(reason.ends_with("name fewer --contenders"), "{reason}");
        assert_eq!(elements_within(None, None, |_| u64::MAX).unwrap(), (ELEMENTS, None));
    }
}
