//! What the experiments of `stillpoint bench` have in common.

use crate::cli::{BenchArgs, Experiment};
use crate::error::Stop;
use crate::output;
use crate::output::json::Row;

/// An experiment, planned from the command line. All are planned before the first one runs.
pub(crate) trait Plan: Sized {
    /// Its name on the command line, and in rows.
    const NAME: &'static str;
    /// Their names.
    const SCENARIOS: &'static [&'static str];

    /// The names of all contenders, in the order of the tables.
    fn contenders() -> Vec<&'static str>;

    /// The plan for what was asked for; `scenarios` are those of this experiment among it, all when there are none.
    fn new(args: &BenchArgs, cpus: &[usize], scenarios: &[String]) -> Result<Self, Stop>;

    /// Measures, and prints the tables unless told to be `silent`.
    fn run(&self, silent: bool) -> Result<Vec<Row>, Stop>;
}

/// The plan of an experiment; `None` when it was not asked for.
pub(crate) fn plan<P: Plan>(args: &BenchArgs, cpus: &[usize]) -> Result<Option<P>, Stop> {
    let all = args.experiment == Experiment::All;
    if !all && args.experiment.name() != P::NAME {
        return Ok(None);
    }
    let scenarios: Vec<String> =
        args.scenarios.iter().filter(|asked| P::SCENARIOS.contains(&asked.as_str())).cloned().collect();
    let refusal = if !P::contenders().iter().any(|name| asked_for(name, &args.contenders)) {
        let has = P::contenders().join(", ");
        Some(format!("{} has none of these contenders: it has {has}", P::NAME))
    } else if scenarios.is_empty() && !args.scenarios.is_empty() {
        let (asked, has) = (args.scenarios.join(", "), P::SCENARIOS.join(", "));
        Some(format!("{} has no scenario {asked}: it has {has}", P::NAME))
    } else {
        None
    };
    match refusal {
        None => P::new(args, cpus, &scenarios).map(Some),
        Some(_) if all => Ok(None),
        Some(why) => Err(Stop::usage(why)),
    }
}

/// The contenders of an experiment that were asked for and are here. `missing` says what to do about one that is not.
pub(crate) fn contenders<P: Plan>(
    asked: &[String],
    missing: impl Fn(&str) -> Option<String>,
) -> Result<Vec<String>, Stop> {
    let (mut here, mut hints) = (Vec::new(), Vec::new());
    for name in P::contenders().into_iter().filter(|name| asked_for(name, asked)) {
        match missing(name) {
            None => here.push(name.to_owned()),
            Some(hint) if asked.iter().any(|asked| asked == name) => return Err(Stop::usage(hint)),
            Some(hint) => hints.push(hint),
        }
    }
    hints.dedup();
    if here.is_empty() {
        return Err(Stop::usage(hints.join("; ")));
    }
    hints.into_iter().for_each(output::tell);
    Ok(here)
}

/// Whether the contender `name` is among those asked for, or its group; it is when nothing was asked for.
pub(crate) fn asked_for(name: &str, asked: &[String]) -> bool {
    asked.is_empty() || asked.iter().any(|asked| asked == name || asked == group(name))
}

/// The part of a contender's name before the slash: all of a kind.
pub(crate) fn group(name: &str) -> &str {
    name.split_once('/').map_or(name, |(group, _)| group)
}

/// What can be asked for where there are these contenders: their names and their groups, each once.
pub(crate) fn names_and_groups(names: impl IntoIterator<Item = &'static str>) -> Vec<&'static str> {
    let mut values: Vec<&str> = Vec::new();
    for name in names {
        for value in [group(name), name] {
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::{micro, reclaim};

    fn args(line: &str) -> BenchArgs {
        let arguments = ["stillpoint", "bench"].into_iter().chain(line.split_whitespace());
        let Command::Bench(args) = Cli::parse_from(arguments).command else { panic!("bench") };
        args
    }

    #[test]
    fn a_group_stands_for_all_of_its_contenders() {
        let asked = ["dpdk".to_owned(), "seize".to_owned()];
        let names = reclaim::Plan::contenders();
        let chosen: Vec<_> = names.iter().copied().filter(|name| asked_for(name, &asked)).collect();
        assert_eq!(chosen, ["dpdk/rcu", "dpdk/rcu+poll", "dpdk/rcu+background", "seize"]);
        assert_eq!(names_and_groups(["a/x", "a/y", "b"]), ["a", "a/x", "a/y", "b"]);
    }

    #[test]
    fn what_belongs_to_other_experiments_is_left_to_them_in_a_run_of_all_and_an_error_alone() {
        let of = |line: &str| plan::<micro::Plan>(&args(line), &[0]).map(|plan| plan.is_some());
        assert!(!of("reclaim --scenarios spread").unwrap() && of("micro").unwrap());
        assert!(of("all --scenarios pin,spread").unwrap() && !of("all --scenarios spread").unwrap());
        assert!(!of("all --contenders dashmap").unwrap());
        for line in ["micro --scenarios spread", "micro --contenders dashmap"] {
            let stop = of(line).unwrap_err().to_string();
            assert!(stop.contains("micro has no") && stop.contains("it has"), "{stop}");
        }
    }

    #[test]
    fn a_contender_that_is_missing_is_left_out_unless_it_was_asked_for_by_name() {
        let missing = |name: &str| name.starts_with("dpdk").then(|| "install it".to_owned());
        let of = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|&name| name.to_owned()).collect();
            contenders::<reclaim::Plan>(&asked, missing).map_err(|stop| stop.to_string())
        };
        assert!(of(&[]).unwrap().iter().all(|name| !name.starts_with("dpdk")));
        assert_eq!(of(&["dpdk", "seize"]).unwrap(), ["seize"]);
        assert!(of(&["dpdk"]).unwrap_err().contains("install it"));
        assert!(of(&["dpdk/rcu", "seize"]).unwrap_err().contains("install it"));
    }
}
