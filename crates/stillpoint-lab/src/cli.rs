//! The command line: every flag with its help, and errors in one line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use stillpoint_multicast_lab::{module, simulate};

use crate::experiment::BenchArgs;
use crate::{bench, doctor, guest, report};

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
    Doctor(doctor::Options),
    /// Measure an experiment and print its tables
    Bench(BenchArgs),
    /// Check the library under stress, or see that a broken variant of it is caught
    Torture(stillpoint_torture::Options),
    /// Measure in virtual machines with more virtual CPUs than the host has CPUs
    Guest(guest::Options),
    /// The first process of such a virtual machine
    #[command(hide = true)]
    GuestInit,
    /// Build the kernel module and test it in virtual machines
    Module(module::Options),
    /// The library on that module, inside such a virtual machine
    #[command(hide = true)]
    ModuleInside(module::inside::Inside),
    /// Simulate barriers on machines that are not here
    Simulate(simulate::Options),
    /// Make one page of the results of experiments: verdict, figures, machines, commands
    Report(report::Options),
    /// Print the completions for a shell
    Completions(CompletionsArgs),
    /// Write the manual pages into a folder
    Man(ManArgs),
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

/// The command line, with the names of all contenders and scenarios.
fn command() -> clap::Command {
    Cli::command().mut_subcommand("bench", |command| {
        command
            .mut_arg("contenders", |arg| {
                arg.value_parser(PossibleValuesParser::new(bench::contender_names()))
            })
            .mut_arg("scenarios", |arg| arg.value_parser(PossibleValuesParser::new(bench::scenario_names())))
    })
}

/// What the arguments say; the first one is the program.
pub(crate) fn read<T: Into<OsString> + Clone>(
    arguments: impl IntoIterator<Item = T>,
) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches_from(arguments)?)
}

/// Reads the command line. Help goes to standard output with exit code 0, an error in one line to standard
/// error with exit code 2.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    read(std::env::args_os()).map_err(|error| {
        if error.use_stderr()
            && error.kind() != clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        {
            stillpoint_harness::output::tell(one_line(&error.to_string()));
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
    clap_complete::generate(args.shell, &mut command(), "stillpoint", &mut std::io::stdout());
}

/// Writes `stillpoint.1` and a page for each command.
pub(crate) fn man(args: &ManArgs) -> Result<(), stillpoint_harness::error::Stop> {
    clap_mangen::generate_to(command(), &args.folder).map_err(|error| {
        stillpoint_harness::error::Stop::usage(format!(
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
        command().debug_assert();
    }

    #[test]
    fn commands_that_the_book_names_are_read() {
        let page = include_str!("../../../docs/guide/published-works.md");
        let all = command();
        let is_command =
            |words: &&str| words.split(' ').next().is_some_and(|first| all.find_subcommand(first).is_some());
        let commands: Vec<&str> = page.split('`').skip(1).step_by(2).filter(is_command).collect();
        assert!(commands.len() > 30, "commands are not found as they are written: {commands:?}");
        for words in commands {
            if let Err(error) = read(["stillpoint"].into_iter().chain(words.split(' '))) {
                panic!("{words}: {error}");
            }
        }
    }

    #[test]
    fn errors_take_one_line() {
        let message = read(["stillpoint", "bench", "nothing"]).unwrap_err().to_string();
        let line = one_line(&message);
        assert!(!line.contains('\n') && line.contains("'nothing'") && line.contains("reclaim"), "{line}");
    }
}
