//! The command line: every flag with its help, and errors in one line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use stillpoint_harness::error::Stop;
use stillpoint_harness::output::{say, tell};
use stillpoint_multicast_lab::{module, simulate};

use crate::{bench, doctor, guest, report};

/// Measures and tests stillpoint (reclamation, tables, timers, pools, fences) beside liburcu, DPDK and others
///
/// Exit code: 0 if all went well, 1 if a check failed or nothing was measured before Ctrl-C, 2 if the request cannot be carried out.
/// Ctrl-C or SIGTERM ends a measurement early and prints the results so far; a second one ends the program at once.
#[derive(Debug, Parser)]
#[command(name = "stillpoint", version, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what this machine offers, and what each missing feature costs
    Doctor(doctor::Options),
    /// Measure an experiment and print its tables
    #[command(subcommand)]
    Bench(bench::Asked),
    /// Test the library under stress, or show that a broken variant of it is caught
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
    /// Simulate barriers on machines that you do not have
    Simulate(simulate::Options),
    /// Make one page from the results of experiments: verdict, figures, machines, commands
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
    /// The folder; it is made if it does not exist
    pub(crate) folder: PathBuf,
}

/// Parses the arguments; the first one is the name of the program.
pub(crate) fn read<T: Into<OsString> + Clone>(
    arguments: impl IntoIterator<Item = T>,
) -> Result<Cli, clap::Error> {
    let mut command = Cli::command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    if let Some((name, given)) = matches.subcommand_matches("bench").and_then(ArgMatches::subcommand)
        && let Err(stop) = bench::check_options(name, given)
    {
        let path = ["bench", name];
        let asked = path.iter().try_fold(&mut command, |command, name| command.find_subcommand_mut(name));
        return Err(asked.expect("the arguments have it").error(ErrorKind::ArgumentConflict, stop));
    }
    Cli::from_arg_matches(&matches)
}

/// Reads the command line. Help goes to standard output with exit code 0, an error in one line to standard
/// error with exit code 2.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    read(std::env::args_os()).map_err(|error| {
        if error.use_stderr()
            && error.kind() != clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        {
            tell(one_line(&error));
        } else {
            // If the help cannot be printed, nothing else can.
            let _ = error.print();
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
    })
}

/// A clap error in one line: its message, then the valid values or else the command that lists them, then what was meant. Other
/// tips are left out, because they take an unknown flag for a value.
fn one_line(error: &clap::Error) -> String {
    let meant = [ContextKind::SuggestedValue, ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand];
    let meant = meant.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(name) => Some(name.clone()),
        // The closest one is the last.
        ContextValue::Strings(names) => names.last().cloned(),
        _ => None,
    });
    let is_unknown = error.kind() == ErrorKind::InvalidSubcommand;
    let error = error.to_string();
    let mut line = error
        .lines()
        .map(str::trim)
        .take_while(|line| {
            !["Usage:", "For more information", "tip:"].iter().any(|end| line.starts_with(end))
        })
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
        .replace("invalid digit found in string", "not a whole number");
    if let Some((message, (least, most))) =
        line.split_once(" is not in ").and_then(|(message, range)| Some((message, range.split_once("..=")?)))
    {
        line = format!("{message} is not from {least} to {most}");
    }
    let usage = error.lines().find_map(|line| line.trim().strip_prefix("Usage: "));
    if let Some(usage) = usage.filter(|_| !line.contains("[possible values")) {
        let path: Vec<&str> =
            usage.split(' ').take_while(|word| !word.starts_with(['[', '<', '-'])).collect();
        if is_unknown {
            let all = Cli::command();
            let here = path.iter().skip(1).try_fold(&all, |command, name| command.find_subcommand(name));
            let names = here.into_iter().flat_map(clap::Command::get_subcommands);
            let names = names.filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
            line += &format!(" [possible names: {}]", names.collect::<Vec<_>>().join(", "));
        }
        line += &format!(" (see `{} --help`)", path.join(" "));
    }
    if let Some(meant) = meant {
        line += &format!("; did you mean '{meant}'?");
    }
    line
}

/// Prints the completions for a shell.
pub(crate) fn completions(args: &CompletionsArgs) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "stillpoint", &mut script);
    say(String::from_utf8_lossy(&script).trim_end());
}

/// Writes `stillpoint.1` and a page for each command.
pub(crate) fn man(args: &ManArgs) -> Result<(), Stop> {
    let folder = args.folder.display();
    std::fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &args.folder))
        .map_err(|error| Stop::usage(format!("cannot write the manual pages to {folder}: {error}")))?;
    say(format!("the manual pages are in {folder}: man -l {folder}/stillpoint.1"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// README, CONTRIBUTING, and the pages of the book.
    fn pages() -> Vec<std::path::PathBuf> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folders = ["", "docs/guide", "docs/design"].map(|folder| root.join(folder));
        let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let paths = files.map(|file| file.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect()
    }

    /// The commands of this program in a page: in its code, and in its blocks, where they come after a prompt or `cargo run`.
    fn commands_of(page: &str) -> Vec<String> {
        let page = page.replace("\\\n", " ");
        let all = Cli::command();
        let mut in_block = false;
        let mut spans = Vec::new();
        for line in page.lines() {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
            } else if in_block {
                spans.push(line);
            } else {
                spans.extend(line.split('`').skip(1).step_by(2));
            }
        }
        let command = |span: &str| {
            let span = span.trim().trim_start_matches("$ ");
            let starts = ["cargo run --release -- ", "target/release/stillpoint ", "stillpoint "];
            let words = starts.iter().find_map(|start| span.strip_prefix(start)).unwrap_or(span);
            let words = words.split(" #").next().unwrap_or_default().trim();
            let is_one = words.split(' ').next().is_some_and(|first| all.find_subcommand(first).is_some());
            // Words in capitals stand for others.
            let stands =
                |word: &str| word.len() > 2 && word.chars().all(|letter| letter.is_ascii_uppercase());
            (is_one && words.contains(' ') && !words.split(' ').any(stands)).then(|| words.to_owned())
        };
        spans.into_iter().filter_map(command).collect()
    }

    #[test]
    fn commands_that_the_pages_name_are_read() {
        let page = "`bench micro --seed 1`, `stillpoint bench`, `bench EXPERIMENT`\n```console\n$ cargo run --release -- guest \\\n--quick # so\n```\n";
        assert_eq!(commands_of(page), ["bench micro --seed 1", "guest  --quick"]);
        let mut found = 0;
        for path in pages() {
            for words in commands_of(&std::fs::read_to_string(&path).unwrap()) {
                if let Err(error) = read(["stillpoint"].into_iter().chain(words.split_whitespace())) {
                    panic!("{}: {words}: {error}", path.display());
                }
                found += 1;
            }
        }
        assert!(found > 100, "{found}: commands are not found as they are written");
    }

    #[test]
    fn errors_take_one_line() {
        let line = |words: &str| {
            let line = one_line(&read(["stillpoint"].into_iter().chain(words.split(' '))).unwrap_err());
            assert!(!line.contains('\n'), "{line}");
            line
        };
        let unknown = line("bench nothing");
        assert!(unknown.contains("'nothing'") && unknown.contains("reclaim"), "{unknown}");
        let flag = line("bench micro --nothing");
        assert_eq!(
            flag,
            "error: unexpected argument '--nothing' found (see `stillpoint bench micro --help`)"
        );
        let dance = line("dance");
        assert!(
            dance.starts_with("error: unrecognized subcommand 'dance' [possible names: doctor, bench, "),
            "{dance}"
        );
        assert!(dance.ends_with("] (see `stillpoint --help`)") && !dance.contains("inside"), "{dance}");
        for (words, meant) in [
            ("bench reclam", "'reclaim'?"),
            ("bench reclaim --scenarios own-cor", "'own-core'?"),
            ("bench reclaim --contenders stilpoint/guard", "'stillpoint/guard'?"),
            ("bench reclaim --readrs 4", "'--readers'?"),
            ("benhc reclaim", "'bench'?"),
            ("torture --busted rcu:no-heavi", "'rcu:no-heavy'?"),
        ] {
            assert!(line(words).ends_with(&format!("; did you mean {meant}")), "{}", line(words));
        }
        assert!(
            read(["stillpoint", "bench", "membarrier", "--report", "table", "--initiators", "2"]).is_ok()
        );
        assert_eq!(
            line("bench reclaim --initiators 2"),
            "error: reclaim has no --initiators, which is an option of membarrier (see `stillpoint bench reclaim --help`)"
        );
        assert!(line("bench micro --rounds 0").ends_with("0 is not from 1 to 1000"));
        assert!(line("bench micro --seed x").ends_with("not a whole number"));
    }

    #[test]
    fn quick_and_full_runs_of_guests_have_their_own_help() {
        let help = read(["stillpoint", "guest", "--help"]).unwrap_err().to_string();
        assert!(help.contains("the largest overcommit") && !help.contains(".ci/bars"), "{help}");
        assert!(help.contains("each row for ten seconds") && !help.contains("grace periods"), "{help}");
        let help = read(["stillpoint", "bench", "pool", "--help"]).unwrap_err().to_string();
        assert!(help.contains("in more rounds") && !help.contains("each row for ten seconds"), "{help}");
    }

    #[test]
    fn the_help_of_an_experiment_has_its_own_options_scenarios_and_contenders() {
        let help =
            |experiment: &str| read(["stillpoint", "bench", experiment, "--help"]).unwrap_err().to_string();
        let (reclaim, timer, all) = (help("reclaim"), help("timer"), help("all"));
        for (of_all, text) in [(true, &all), (true, &reclaim), (false, &timer)] {
            for part in ["--structure", "--deletes", "own-core"] {
                assert_eq!(text.contains(part), of_all, "{part} in {text}");
            }
        }
        for part in ["--connections", "steady", "nexus-timer", "--seed", "--report"] {
            assert!(timer.contains(part), "{part} in {timer}");
        }
        assert!(timer.starts_with("Timer wheels: ") && !timer.contains("capi"), "{timer}");
        // A time to measure is for those that measure for a time.
        let (table, duration) = (help("table"), "--duration");
        assert!(!timer.contains(duration) && all.contains("table (service)"), "{all}");
        assert!(table.contains(duration) && table.contains("for each row of service"), "{table}");
        let words = crate::names::words("own-core").unwrap();
        assert!(reclaim.contains(words) && !reclaim.contains("--connections"), "{reclaim}");
    }
}
