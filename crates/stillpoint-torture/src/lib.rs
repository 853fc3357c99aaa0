//! Correctness of the library under stress, in the manner of the Linux kernel's rcutorture: `stillpoint torture`.
//!
//! A run repeats a cycle of parts (`part`, `plan`) until its time is up or something is found.
//!
//! - `mixed`: two domains, in two different fence modes if the machine has more than one, and more threads than CPUs.
//!   Readers of every kind: nested, overlapping, sleeping, forgotten, registered for a short or a long time (`reader`).
//!   Writers with every primitive (`writer`).
//! - `races`: two or a few threads that do one thing as fast as they can. Each race provokes one fault whose window is
//!   too short to be met by chance.
//! - `flood`: retirements as fast as possible while readers come and go.
//! - `table`: the hash table, with a mixed part and races.
//! - `forks`: children that reset their domain and continue.
//!
//! Meanwhile, readers of three more domains are `parked` in a signal handler for whole cycles.
//!
//! A run checks:
//!
//! - Nothing is destroyed while a reader holds it. Each object stands for a record that is never freed (`arena`). So a
//!   fault shows in the record, and does not depend on the contents of freed memory. The objects lie between canaries, in
//!   memory that is freed and used again.
//! - No region reader holds an object whose grace period is over. Unlinked objects *age* with each grace period
//!   (`writer`), and each look is counted by age.
//! - When a token, a wait or a callback says that a grace period is over, every section that began before it has ended
//!   (`actor`). Inside a section, a token that was started there is not over. Without readers, every token is over.
//! - At the end of each part every object has been destroyed, once, and every callback was called.
//! - Threads that must be refused are refused, and no thread is stuck (`findings`).
//! - Enough of everything was tried (`counts`): a run that tried too little fails.
//!
//! The broken variants of the library (`findings`) show that the checks can fail. They run the same parts for the same
//! times.

mod actor;
mod arena;
mod counts;
mod findings;
mod flood;
mod forks;
mod mixed;
mod parked;
mod part;
mod plan;
mod races;
mod reader;
mod table;
mod trouble;
mod writer;

use std::collections::BTreeMap;

use clap::Args;
use clap::builder::PossibleValuesParser;
use stillpoint_harness::error::Stop;
use stillpoint_harness::flags::ResultFlags;
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::Machine;
use stillpoint_harness::output::json::Nothing;
use stillpoint_harness::results::{self, Results};

use self::arena::Context;
use self::findings::{Broken, Findings, Watchdog};
use self::plan::{Course, Plan};

pub use self::findings::check_environment;
pub use self::plan::FIGURES;

/// The flags of `stillpoint torture`.
#[derive(Debug, Args)]
pub struct Options {
    /// How long to run, in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,

    /// Seed of the threads' choices; their timing differs from run to run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Threads of the parts that need more threads than CPUs [default: four for each CPU, from 6 to 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(4..=256))]
    threads: Option<u16>,

    /// Run a deliberately broken variant of the library, which must be caught
    #[arg(long, value_name = "NAME", hide_possible_values = true,
          value_parser = PossibleValuesParser::new(Broken::all().map(|broken| broken.to_string())))]
    busted: Option<String>,

    #[command(flatten)]
    results: ResultFlags,

    /// List the broken variants and the checker that catches each
    #[arg(long, exclusive = true)]
    list_busted: bool,
}

/// Runs for the given time, or until something is found. `peers` are those that were built into the program.
pub fn run(options: &Options, peers: BTreeMap<String, String>) -> Result<(), Stop> {
    if options.list_busted {
        findings::list_variants();
        return Ok(());
    }
    let broken = options.busted.as_deref().map(Broken::select).transpose()?;
    let results = Results::open(&options.results)?;
    if results.takes_stdout() {
        return Err(Stop::usage("torture prints on standard output: give --json the name of a file"));
    }
    let plan = Plan::new(options.seconds, options.seed, options.threads);
    plan::introduce(&plan, broken);
    interrupt::listen();
    let findings = Findings::leak();
    let context = Context::leak(plan.threads + 1, findings);
    let course = Course::follow(context, plan.duration);
    let run = plan.run(context, &Watchdog::start(findings, broken))?;
    plan::show(context, &run);
    let written = results.write(&Machine::look(peers), &course.rows(), Nothing {}, FIGURES);
    // What was found is told even if the results cannot be written.
    results::conclude(plan::judge(context, &run, broken), written)
}
