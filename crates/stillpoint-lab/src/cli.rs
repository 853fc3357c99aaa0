//! The command line: every flag with its help, and errors in one line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::Serialize;

use crate::experiment::{Plan, names_and_groups};
use crate::machine::cpus;
use crate::{guest, membarrier, micro, pool, preempt, reclaim, simulate, table, timer, torture};

/// Measures and examines memory reclamation: stillpoint beside liburcu, DPDK and others.
///
/// Exit code: 0 when all went well, 1 when a check failed, 2 when the request cannot be carried out.
/// Ctrl-C, or SIGTERM, ends a measurement early and prints what there is; a second one ends the program.
#[derive(Debug, Parser)]
#[command(name = "stillpoint", version, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what this machine offers, and what each absence costs
    Doctor(DoctorArgs),
    /// Measure an experiment and print its tables
    Bench(BenchArgs),
    /// Check the library under stress, or see that a broken variant of it is caught
    Torture(torture::Options),
    /// Measure in virtual machines with more virtual CPUs than the host has CPUs
    Guest(guest::Options),
    /// The first process of such a virtual machine
    #[command(hide = true)]
    GuestInit,
    /// Build the kernel module and test it in virtual machines
    Module(guest::module::Options),
    /// The library on that module, inside such a virtual machine
    #[command(hide = true)]
    ModuleInside(guest::module::inside::Inside),
    /// Simulate barriers on machines that are not here
    Simulate(simulate::Options),
    /// Print the completions for a shell
    Completions(CompletionsArgs),
    /// Write the manual pages into a folder
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder; it must exist
    pub(crate) folder: PathBuf,
}

/// Where results for tools go.
#[derive(Debug, Args)]
pub(crate) struct JsonFlag {
    /// Write the result as JSON to FILE, or to standard output in place of the tables
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<String>,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Experiment {
    /// Delay from unlink to free, under a writer with 5,000 deletes a second
    Reclaim,
    /// What preempted readers do to grace periods, CPU time and memory
    Preempt,
    /// Costs of single operations
    Micro,
    /// Hash tables: lookups, bursts, insertions and removals, growth, memory
    Table,
    /// Barriers on every thread: system call, signals, kernel module, and what they cost readers
    Membarrier,
    /// Timer wheels: additions, cancellations, expiries, and timers of another thread
    Timer,
    /// Object pools: objects and blocks out and back, alone and across threads
    Pool,
    /// All of them, one after the other
    All,
}

impl Experiment {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reclaim => reclaim::Plan::NAME,
            Self::Preempt => preempt::Plan::NAME,
            Self::Micro => micro::Plan::NAME,
            Self::Table => table::Plan::NAME,
            Self::Membarrier => membarrier::Plan::NAME,
            Self::Timer => timer::Plan::NAME,
            Self::Pool => pool::Plan::NAME,
            Self::All => "all",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure
    pub(crate) experiment: Experiment,

    #[command(flatten)]
    pub(crate) length: LengthFlags,

    /// CPUs to use, such as 0,2-5: readers from the first on, the writer on the last [default: all allowed]
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub(crate) cpus: Option<CpuList>,

    /// Numbers of reader threads in `reclaim`, on each core in `preempt`, and of receivers in `membarrier`, such as
    /// 1,8,16 [default: those of each scenario]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_readers)]
    pub(crate) readers: Vec<usize>,

    /// Contenders, or groups of them such as `stillpoint` or `dpdk` [default: all that are built in]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(contender_names()),
          hide_possible_values = true)]
    pub(crate) contenders: Vec<String>,

    /// Scenarios of `reclaim`, `preempt`, `table`, `membarrier`, `timer` or `pool`, or operations of `micro` [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(scenario_names()))]
    pub(crate) scenarios: Vec<String>,

    /// Lengths of the readers' sections in `preempt`, in microseconds, such as 0.2,50 [default: 5]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_section)]
    pub(crate) sections: Vec<f64>,

    /// Where the readers of `preempt` spend their time [default: always]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) inside: Vec<Inside>,

    /// Number of elements in the array of `reclaim`, and of entries in `table`, a power of two
    #[arg(long, value_name = "N", default_value_t = reclaim::ELEMENTS, value_parser = parse_elements)]
    pub(crate) elements: usize,

    /// What the readers of `reclaim` look up in
    #[arg(long, value_enum, default_value_t = reclaim::names::Structure::Array)]
    pub(crate) structure: reclaim::names::Structure,

    /// Seed of the random keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// How much of its time a reader is inside of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
pub(crate) enum Inside {
    /// One section after the other
    Always,
    /// Half of the time; the other half it does the same work outside
    Half,
    /// Always; it sleeps there for half of each section
    Blocked,
}

impl Inside {
    /// The name in rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Half => "half",
            Self::Blocked => "blocked",
        }
    }

    /// For the captions of tables.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Always => "always inside",
            Self::Half => "half of the time inside",
            Self::Blocked => "blocked inside",
        }
    }
}

/// How long to measure.
#[derive(Debug, Args)]
pub(crate) struct LengthFlags {
    /// Only the contenders and settings whose figures have a bar to reach
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,

    /// Everything, ten seconds a row
    #[arg(long)]
    pub(crate) full: bool,

    /// Time to measure for each row, over all its rounds, such as 2s or 500ms
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,

    /// Rounds for each row; their median counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
}

/// A list of CPUs; a type of its own, as clap takes a bare `Vec` for one value each.
#[derive(Debug, Clone)]
pub(crate) struct CpuList(pub(crate) Vec<usize>);

fn contender_names() -> Vec<&'static str> {
    let of_rcu = [reclaim::Plan::contenders(), preempt::Plan::contenders(), micro::Plan::contenders()];
    let of_others = [
        table::Plan::contenders(),
        membarrier::Plan::contenders(),
        timer::Plan::contenders(),
        pool::Plan::contenders(),
    ];
    names_and_groups(of_rcu.concat().into_iter().chain(of_others.concat()))
}

fn scenario_names() -> Vec<&'static str> {
    [
        reclaim::Plan::SCENARIOS,
        preempt::Plan::SCENARIOS,
        micro::Plan::SCENARIOS,
        table::Plan::SCENARIOS,
        membarrier::Plan::SCENARIOS,
        timer::Plan::SCENARIOS,
        pool::Plan::SCENARIOS,
    ]
    .concat()
}

pub(crate) fn parse_cpus(text: &str) -> Result<CpuList, String> {
    cpus::parse_list(text).map(CpuList)
}

fn parse_readers(text: &str) -> Result<usize, String> {
    match text.trim().parse::<usize>() {
        Ok(readers @ 1..=reclaim::MAX_READERS) => Ok(readers),
        Ok(0) => Err("a measurement needs at least 1 reader".to_owned()),
        Ok(_) => Err(format!("more than {} readers make no sense here", reclaim::MAX_READERS)),
        Err(_) => Err("not a number of readers".to_owned()),
    }
}

fn parse_section(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(section) if (0.1..=1_000_000.0).contains(&section) => Ok(section),
        _ => Err("not a number of microseconds from 0.1 to 1000000".to_owned()),
    }
}

fn parse_elements(text: &str) -> Result<usize, String> {
    let elements = text.trim().parse::<usize>().map_err(|_| "not a number".to_owned())?;
    let least = reclaim::LEAST_ELEMENTS;
    if elements.is_power_of_two() && elements >= least && elements <= 1 << 40 {
        Ok(elements)
    } else {
        Err(format!("not a power of two from {least} to 2^40"))
    }
}

pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (shortest, longest) = (Duration::from_millis(1), Duration::from_secs(3600));
    let duration = match text.trim().parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?,
        Err(_) => humantime::parse_duration(text.trim()).map_err(|error| error.to_string())?,
    };
    if duration < shortest || duration > longest {
        return Err("must be from 1ms to 1h".to_owned());
    }
    Ok(duration)
}

/// Reads the command line. Help goes to standard output with exit code 0, an error in one line to standard
/// error with exit code 2.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|error| {
        if error.use_stderr()
            && error.kind() != clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        {
            crate::output::tell(one_line(&error.to_string()));
        } else {
            // Nothing is left to do when the help cannot be printed.
            let _ = error.print();
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
    })
}

/// The message, the valid values and the hint of an error of clap's, without the repeated usage.
fn one_line(error: &str) -> String {
    error
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Prints the completions for a shell.
pub(crate) fn completions(args: &CompletionsArgs) {
    clap_complete::generate(args.shell, &mut Cli::command(), "stillpoint", &mut std::io::stdout());
}

/// Writes `stillpoint.1` and a page for each command.
pub(crate) fn man(args: &ManArgs) -> Result<(), crate::error::Stop> {
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(|error| {
        crate::error::Stop::usage(format!(
            "cannot write the manual pages to {}: {error}",
            args.folder.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_are_seconds_unless_they_have_a_unit() {
        assert_eq!(parse_duration("1.5").unwrap(), Duration::from_millis(1500));
        assert_eq!(parse_duration("250ms").unwrap(), Duration::from_millis(250));
        for text in ["0", "-1", "2h", "soon", "inf", "nan"] {
            assert!(parse_duration(text).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn errors_take_one_line() {
        let message = Cli::try_parse_from(["stillpoint", "bench", "nothing"]).unwrap_err().to_string();
        let line = one_line(&message);
        assert!(!line.contains('\n') && line.contains("'nothing'") && line.contains("reclaim"), "{line}");
    }
}
