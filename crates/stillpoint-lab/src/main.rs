//! The program `stillpoint`: examines a machine, and measures stillpoint's memory reclamation beside its peers.

mod bench;
mod capi;
mod cli;
mod doctor;
mod experiment;
mod guest;
mod membarrier;
mod micro;
mod names;
mod peers;
mod pool;
mod preempt;
mod reclaim;
mod report;
mod structures;
mod table;
mod timer;

use std::process::ExitCode;

use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::child;
use stillpoint_harness::output;
use stillpoint_harness::output::figures::Figure;
use stillpoint_multicast_lab::{module, simulate};

use crate::cli::Command;
use crate::experiment::OnHugePages;

/// The figures of all commands.
fn figures() -> Vec<&'static Figure> {
    [
        bench::figures(),
        guest::FIGURES.to_vec(),
        stillpoint_torture::FIGURES.to_vec(),
        simulate::FIGURES.to_vec(),
    ]
    .concat()
}

/// Prints a panic in one line, as all errors. With `RUST_BACKTRACE` set, panics keep Rust's form.
fn tell_of_panics() {
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        std::panic::set_hook(Box::new(|panic| {
            let text = panic.payload();
            let text =
                text.downcast_ref::<&str>().copied().or(text.downcast_ref::<String>().map(String::as_str));
            let place = panic.location().map_or_else(String::new, |place| format!(" ({place})"));
            output::tell(format!("error: {}{place}", text.unwrap_or("a thread panicked")));
        }));
    }
}

fn run(command: &Command) -> Result<(), Stop> {
    match command {
        Command::Doctor(args) => doctor::run(args),
        Command::Bench(bench::Asked(args)) => {
            child::on_huge_pages();
            bench::run(args)
        }
        Command::Guest(options) => guest::run(options),
        Command::GuestInit => guest::inside::run(),
        Command::Module(options) => module::run(options, peers::versions()),
        Command::ModuleInside(inside) => module::inside::run(inside),
        Command::Torture(options) => stillpoint_torture::run(options, peers::versions()),
        Command::Simulate(options) => simulate::run(options, peers::versions()),
        Command::Report(options) => report::run(options, &figures()),
        Command::Completions(args) => {
            cli::completions(args);
            Ok(())
        }
        Command::Man(args) => cli::man(args),
    }
}

fn main() -> ExitCode {
    tell_of_panics();
    let children = [
        child::run_if_child::<OnHugePages<table::Plan>>,
        child::run_if_child::<table::Single>,
        child::run_if_child::<preempt::Round>,
        child::run_if_child::<membarrier::Plan>,
        child::run_if_child::<timer::Plan>,
        child::run_if_child::<pool::child::Order>,
    ];
    if let Some(code) = children.iter().find_map(|run_if_child| run_if_child()) {
        return code;
    }
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let result = stillpoint_torture::check_environment().and_then(|()| run(&cli.command));
    match result.and_then(|()| output::complete()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            match &stop {
                Stop::Caught(_) => output::say(&stop),
                _ => output::tell(format!("error: {stop}")),
            }
            stop.exit_code()
        }
    }
}
