//! `stillpoint bench`: everything is checked, then measured, then written.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand, ValueEnum};
use serde::Serialize;
use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::control::{self, Control};
use stillpoint_harness::experiment::show::disturbance;
use stillpoint_harness::flags::ResultFlags;
use stillpoint_harness::machine::{Machine, cpus};
use stillpoint_harness::output::figures::{self, Figure};
use stillpoint_harness::output::json::{self, Read, Row};
use stillpoint_harness::output::table;
use stillpoint_harness::results::{self, Results};
use stillpoint_harness::{interrupt, output};

use crate::experiment::{
    self, BenchArgs, Experiment, Measured, NOTHING, Plan, in_scenario, names_and_groups,
};
use crate::{capi, membarrier, micro, names, peers, pool, preempt, reclaim, report, structures, timer};

/// The error of a run that has no rows: `report` would refuse its result.
const NO_ROWS: &str = "nothing was measured, and nothing is written: either these contenders take no part in these scenarios, or the \
     scenarios need more CPUs (`stillpoint bench EXPERIMENT --help` lists the choices)";

/// A planned experiment.
type Planned = Box<dyn FnOnce() -> Result<Measured, Stop>>;

/// Plans an experiment if it was asked for.
type Planner = fn(&BenchArgs, &[usize]) -> Result<Option<Planned>, Stop>;

/// An experiment: how it is planned, and the names that the command line takes for it.
struct Offer {
    experiment: Experiment,
    plan: Planner,
    contenders: fn() -> Vec<&'static str>,
    scenarios: &'static [&'static str],
    timed: &'static [&'static str],
    options: &'static [&'static str],
    figures: &'static [&'static Figure],
}

/// All experiments, in their order.
const EXPERIMENTS: [Offer; 9] = [
    offer::<reclaim::Plan>(),
    offer::<preempt::Plan>(),
    offer::<micro::Plan>(),
    offer::<crate::table::Plan>(),
    offer::<membarrier::Plan>(),
    offer::<timer::Plan>(),
    offer::<pool::Plan>(),
    offer::<structures::Plan>(),
    offer::<capi::Plan>(),
];

const fn offer<P: Plan + 'static>() -> Offer {
    Offer {
        experiment: P::EXPERIMENT,
        plan: planned::<P>,
        contenders: P::contenders,
        scenarios: P::SCENARIOS,
        timed: P::TIMED,
        options: P::OPTIONS,
        figures: P::FIGURES,
    }
}

/// The fields of this command's result beside the rows.
#[derive(Serialize)]
struct Beside {
    controls: Vec<Control>,
    left_out: Vec<String>,
}

impl Beside {
    fn rows(controls: &[Control]) -> Self {
        Self { controls: controls.to_vec(), left_out: output::left_out() }
    }
}

/// The experiments that are asked for: one, or all.
fn offers(asked: Experiment) -> impl Iterator<Item = &'static Offer> {
    EXPERIMENTS.iter().filter(move |offer| [offer.experiment, Experiment::All].contains(&asked))
}

/// What `stillpoint bench` is asked for: a subcommand for each experiment.
#[derive(Debug)]
pub(crate) struct Asked(pub(crate) BenchArgs);

impl FromArgMatches for Asked {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let named = |(name, matches)| Some((Experiment::from_str(name, false).ok()?, matches));
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (experiment, matches) = matches.subcommand().and_then(named).ok_or_else(missing)?;
        Ok(Self(BenchArgs { experiment, ..BenchArgs::from_arg_matches(matches)? }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Asked {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        command
            .arg_required_else_help(false)
            .subcommand_value_name("EXPERIMENT")
            .subcommand_help_heading("Experiments")
            .subcommands(Experiment::value_variants().iter().copied().map(arguments))
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Experiment::from_str(name, false).is_ok()
    }
}

#[cfg(test)]
impl BenchArgs {
    /// Reads the arguments that follow `stillpoint bench`.
    pub(crate) fn read(line: &str) -> Self {
        let command = Asked::augment_subcommands(clap::Command::new("bench"));
        let arguments = std::iter::once("bench").chain(line.split_whitespace());
        Asked::from_arg_matches(&command.get_matches_from(arguments)).unwrap().0
    }
}

/// The command for an experiment, with its scenarios, its contenders, and the options that it has.
fn arguments(shown: Experiment) -> clap::Command {
    let contenders = |asked| names_and_groups(offers(asked).flat_map(|offer| (offer.contenders)()));
    let scenarios = |asked| offers(asked).flat_map(|offer| offer.scenarios).copied().collect::<Vec<_>>();
    let options = |asked| offers(asked).flat_map(|offer| offer.options).copied().collect::<Vec<_>>();
    // Names of other experiments are read, too: their refusal says what this experiment has.
    let values = |all: Vec<&'static str>, here: Vec<&'static str>| {
        let value = |name| {
            let value = PossibleValue::new(name).hide(!here.contains(&name));
            names::words(name).into_iter().fold(value, PossibleValue::help)
        };
        PossibleValuesParser::new(all.into_iter().map(value))
    };
    let is_one = shown != Experiment::All;
    let value = shown.to_possible_value().expect("no experiment is skipped");
    let command = BenchArgs::augment_args(clap::Command::new(shown.name()))
        .about(value.get_help().cloned().unwrap_or_default())
        .mut_arg("contenders", |arg| {
            let values = values(contenders(Experiment::All), contenders(shown));
            arg.value_parser(values).hide_possible_values(!is_one)
        })
        .mut_arg("scenarios", |arg| {
            let arg = arg.value_parser(values(scenarios(Experiment::All), scenarios(shown)));
            if is_one { arg.help("Scenarios, or operations to measure [default: all]") } else { arg }
        });
    let time =
        |of: &str| format!("Time to measure for each row of {of}, over all its rounds, such as 2s or 500ms");
    let command = command.mut_arg("duration", |arg| match offers(shown).next() {
        Some(offer) if is_one && offer.timed.is_empty() => arg.hide(true),
        Some(offer) if is_one && offer.timed != offer.scenarios => arg.help(time(&offer.timed.join(", "))),
        _ if is_one => arg,
        _ => arg.help(time(&timed())),
    });
    let others = options(Experiment::All).into_iter().filter(|option| !options(shown).contains(option));
    others.fold(command, |command, option| command.mut_arg(option, |arg| arg.hide(true)))
}

/// An error if an option belongs to other experiments only.
pub(crate) fn check_options(experiment: &str, given: &ArgMatches) -> Result<(), Stop> {
    let experiment = Experiment::from_str(experiment, false).map_err(Stop::usage)?;
    let is_given = |option: &str| given.value_source(option) == Some(ValueSource::CommandLine);
    let here: Vec<&str> = offers(experiment).flat_map(|offer| offer.options).copied().collect();
    let mut others =
        EXPERIMENTS.iter().flat_map(|offer| offer.options).filter(|option| !here.contains(option));
    let Some(option) = others.find(|option| is_given(option)) else { return Ok(()) };
    let with: Vec<String> = EXPERIMENTS
        .iter()
        .filter(|offer| offer.options.contains(option))
        .map(|offer| offer.experiment.name())
        .collect();
    Err(Stop::usage(format!(
        "{} has no --{option}, which is an option of {}",
        experiment.name(),
        with.join(", ")
    )))
}

/// The experiments that take `--duration`, each with its scenarios that do if others do not.
fn timed() -> String {
    let of = |offer: &Offer| match offer.timed {
        timed if timed == offer.scenarios => offer.experiment.name(),
        timed => format!("{} ({})", offer.experiment.name(), timed.join(", ")),
    };
    EXPERIMENTS.iter().filter(|offer| !offer.timed.is_empty()).map(of).collect::<Vec<_>>().join(", ")
}

/// An error if none of the scenarios that were asked for measures for the time of `--duration`.
fn check_duration(experiment: Experiment, asked: &[String]) -> Result<(), Stop> {
    let chosen = |names: &[&str]| names.iter().any(|name| in_scenario(name, asked));
    if offers(experiment).any(|offer| chosen(offer.timed)) {
        return Ok(());
    }
    let scenarios = if asked.is_empty() { String::new() } else { format!(" in {}", asked.join(", ")) };
    Err(Stop::usage(format!(
        "{} has no --duration{scenarios}, which is an option of {}",
        experiment.name(),
        timed()
    )))
}

/// The figures of all experiments.
pub(crate) fn figures() -> Vec<&'static Figure> {
    EXPERIMENTS.iter().flat_map(|offer| offer.figures).copied().collect()
}

fn planned<P: Plan + 'static>(args: &BenchArgs, cpus: &[usize]) -> Result<Option<Planned>, Stop> {
    let plan = experiment::plan::<P>(args, cpus)?;
    Ok(plan.map(|plan| Box::new(move || plan.run()) as Planned))
}

/// Runs the experiments asked for.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Stop> {
    let cpus = cpus::choose(args.cpus.as_ref().map(|list| list.0.as_slice()))?;
    let (all, refusals) = sort(EXPERIMENTS.iter().map(|offer| (offer.plan)(args, &cpus)))?;
    if args.length.duration.is_some() {
        check_duration(args.experiment, &args.scenarios)?;
    }
    let results = Results::open(&args.results)?;
    let report = args.report.as_deref().map(Report::open).transpose()?;
    let silent = results.takes_stdout();

    let machine = Machine::look(peers::versions());
    interrupt::listen();
    refusals.iter().for_each(output::tell);
    if !silent {
        output::say(machine.summary());
        output::say_text(peers_line(&machine));
    }
    let (mut rows, mut controls, mut stopped) = (Vec::new(), Vec::new(), refusals.into_iter().next());
    let (experiments, started, mut reported) = (all.len(), Instant::now(), Ok(()));
    for (done, run) in all.into_iter().enumerate() {
        if interrupt::requested() {
            break;
        }
        if done > 0 {
            output::tell(time_left(done, experiments, started.elapsed()));
        }
        let (measured, notes) = match run() {
            Ok(measured) => measured,
            // The other experiments still run, and their results are kept.
            Err(stop) if experiments > 1 || stopped.is_some() => {
                output::tell(&stop);
                stopped = stopped.or(Some(stop));
                continue;
            }
            Err(stop) => return Err(stop),
        };
        let of_these = control::controls(&measured);
        if !silent {
            show(&measured, &of_these, &notes, args.verbose);
        }
        rows.extend(measured);
        controls.extend(of_these);
        results::check_interrupt(&rows)?;
        if let Some(report) = report.as_ref().filter(|_| !rows.is_empty()) {
            // The other experiments still run, and their results are kept.
            if let Err(stop) = report.write(&machine, &rows, &controls) {
                output::tell(&stop);
                reported = Err(stop);
            }
        }
    }
    results::check_interrupt(&rows)?;
    if rows.is_empty() {
        return Err(stopped.unwrap_or_else(|| Stop::usage(NO_ROWS)));
    }
    let written = results.write(&machine, &rows, Beside::rows(&controls), &figures());
    let judged = stopped.map_or_else(|| json::judge(&rows), Err);
    results::conclude(judged, written).and(reported)
}

/// Prints the answer of an experiment, and the tables of its figures; with `verbose`, everything.
fn show(rows: &[Row], controls: &[Control], notes: &[String], verbose: bool) {
    if let Some(answer) = reclaim::answer(rows) {
        output::say("");
        output::say_text(format!("{} {answer}", reclaim::QUESTION));
    }
    let figures = figures();
    if !reclaim::table(rows) || verbose {
        figures::print(&figures, rows, verbose);
    }
    output::say("");
    notes.iter().cloned().chain(disturbance(rows)).for_each(output::say_text);
    let drawn = |control: &str| {
        figures.iter().any(|figure| rows.iter().any(|row| figure.is_about(row)) && figure.shows(control))
    };
    control::show(controls, |metric| verbose || drawn(metric));
    if verbose {
        table::of_everything(rows);
        names::show(rows);
    }
}

/// What was planned, and why the others cannot be. If nothing was planned, the error says the first reason.
fn sort<T>(plans: impl Iterator<Item = Result<Option<T>, Stop>>) -> Result<(Vec<T>, Vec<Stop>), Stop> {
    let (mut planned, mut refusals) = (Vec::new(), Vec::new());
    for plan in plans {
        match plan {
            Ok(plan) => planned.extend(plan),
            Err(stop) => refusals.push(stop),
        }
    }
    if planned.is_empty() {
        return Err(refusals.into_iter().next().unwrap_or_else(|| Stop::usage(NOTHING)));
    }
    Ok((planned, refusals))
}

/// How far a run of several experiments has come.
fn time_left(done: usize, experiments: usize, elapsed: Duration) -> String {
    let whole = |time: Duration| humantime::format_duration(Duration::from_secs(time.as_secs()));
    let left = elapsed * (experiments - done) as u32 / done as u32;
    format!(
        "{done} of {experiments} experiments after {}; about {} more if the others take as long",
        whole(elapsed),
        whole(left)
    )
}

/// A folder with a page, and the results that it is made from.
struct Report {
    page: PathBuf,
    results: Results,
}

impl Report {
    fn open(folder: &Path) -> Result<Self, Stop> {
        results::open_folder(folder)?;
        let json = folder.join("results.json").into_os_string().into_string();
        let json = json.map_err(|_| Stop::usage("the name of the folder is not UTF-8: choose another"))?;
        let flags = ResultFlags {
            json: Some(json),
            csv: Some(folder.join("results.csv")),
            figures: Some(folder.join("figures")),
        };
        Ok(Self { page: folder.join("index.html"), results: Results::open(&flags)? })
    }

    fn write(&self, machine: &Machine, rows: &[Row], controls: &[Control]) -> Result<(), Stop> {
        self.results.write(machine, rows, Beside::rows(controls), &figures())?;
        report::write(&self.page, &[Read::of(machine, rows.to_vec(), output::left_out())?], &figures())?;
        output::tell(format!("the page of what there is: {}", self.page.display()));
        Ok(())
    }
}

fn peers_line(machine: &Machine) -> String {
    let peers: Vec<String> =
        machine.peers.iter().map(|(name, version)| format!("{name} {version}")).collect();
    format!("Peers in this build: {}", peers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{asked_for, contenders, plan};

    #[test]
    fn figures_of_all_experiments_have_names_of_their_own() {
        let mut names: Vec<&str> = figures().iter().map(|figure| figure.name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn every_contender_and_scenario_has_words() {
        for offer in &EXPERIMENTS {
            for name in (offer.contenders)().iter().chain(offer.scenarios) {
                assert!(names::words(name).is_some(), "{name}");
            }
        }
    }

    #[test]
    fn an_experiment_that_cannot_be_planned_leaves_the_others() {
        let no = |why: &str| Err(Stop::usage(why));
        let (planned, refusals) =
            sort([Ok(Some(1)), no("first"), Ok(None), no("second")].into_iter()).unwrap();
        let why: Vec<String> = refusals.iter().map(Stop::to_string).collect();
        assert_eq!((planned, why), (vec![1], vec!["first".to_owned(), "second".to_owned()]));
        let stop = sort::<u8>([Ok(None), no("first"), no("second")].into_iter()).unwrap_err();
        assert_eq!(stop.to_string(), "first");
        assert!(sort::<u8>([Ok(None)].into_iter()).unwrap_err().to_string().contains("none of these"));
    }

    #[test]
    fn the_time_left_is_that_of_the_others() {
        let line = time_left(2, 6, Duration::from_secs(60));
        assert!(line.starts_with("2 of 6 experiments after 1m") && line.contains("about 2m more"), "{line}");
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
        let of = |line: &str| plan::<micro::Plan>(&BenchArgs::read(line), &[0]).map(|plan| plan.is_some());
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
