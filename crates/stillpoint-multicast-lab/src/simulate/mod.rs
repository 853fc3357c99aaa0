//! The command `simulate`: multicasts on machines that you do not have.
//!
//! A discrete-event model of what an acknowledged multicast by inter-processor interrupts costs, in the manner of the
//! postal model (Bar-Noy and Kipnis, 1992) and LogP (Culler et al., 1993), with interrupt handlers, hyperthreads and
//! contended cache lines. Its parameters come from a file. The command draws the three figures of the poster on tree
//! multicast.
//!
//! Inputs (`inputs`) are kept apart from results (`rows`). The results are compared with the poster's (`published`),
//! and the conclusions from them are computed again with other inputs (`sensitivity`). `reach` searches for the inputs
//! that would give a figure of the poster's.

mod contender;
mod experiment;
mod figures;
mod inputs;
mod machine;
mod operation;
mod page;
mod published;
mod reach;
mod rows;
mod sensitivity;
mod show;
mod task;
mod world;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde::Serialize;
use stillpoint_harness::error::Stop;
use stillpoint_harness::flags::ResultFlags;
use stillpoint_harness::machine::Machine;
use stillpoint_harness::output::json::{self, Place};
use stillpoint_harness::results::{self, Results};
use stillpoint_harness::{interrupt, output};

use self::contender::HYBRID;
pub use self::figures::FIGURES;
use self::machine::Machine as Simulated;
pub use self::page::{Table, tables};

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    /// A barrier on all CPUs, by inter-processor interrupts
    Membarrier,
}

/// The flags of `stillpoint simulate`.
#[derive(Debug, Args)]
pub struct Options {
    /// What to simulate
    subject: Subject,

    /// The machine: `seed` (4 sockets x 18 cores x 2 threads), `kvm` (a guest with 80 virtual CPUs), or a parameter
    /// file
    #[arg(long, value_name = "NAME|FILE", default_value = "seed")]
    machine: String,

    /// Scenarios; `sensitivity` computes the model's conclusions again with changed inputs, and finds the inputs with
    /// which flat reaches 10,000 grace periods a second [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(rows::SCENARIOS))]
    scenarios: Vec<String>,

    /// Contenders [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(contender::names()))]
    contenders: Vec<String>,

    /// Numbers of receivers, such as 1,16,143 [default: 1 to all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    receivers: Vec<u32>,

    /// Numbers of concurrent initiators [default: 1 to all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    initiators: Vec<u32>,

    /// Grace periods a second [default: 100 to 30000, and as many as possible]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_frequency)]
    frequencies: Vec<f64>,

    /// Operations of each initiator for each point, or grace periods [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    operations: Option<u32>,

    /// Seed of the noise
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Write the parameters that were used to FILE
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,

    #[command(flatten)]
    results: ResultFlags,
}

fn parse_frequency(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(hertz) if (1.0..=1e7).contains(&hertz) => Ok(hertz),
        _ => Err("not a number of grace periods a second from 1 to 10000000".to_owned()),
    }
}

/// The fields of the JSON beside the rows.
#[derive(Debug, Serialize)]
struct Extra<'a> {
    simulated: &'a Simulated,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
}

/// Simulates, prints the tables, and writes the files that were asked for. `peers` are those that the program was
/// built with.
pub fn run(options: &Options, peers: BTreeMap<String, String>) -> Result<(), Stop> {
    let Subject::Membarrier = options.subject;
    interrupt::listen();
    let here = Machine::look(peers);
    let mut simulated = Simulated::load(&options.machine)?;
    let base = if options.machine == "kvm" { "kvm" } else { "seed" };
    let plan = rows::Plan::new(options, &simulated)?;
    let results = Results::open(&options.results)?;
    // Checked before the work begins, as the results.
    let parameters = options.write.as_deref().map(Place::open).transpose()?;
    let needs_threshold = plan.has(HYBRID) || options.write.is_some();
    if simulated.multicast.hybrid_threshold.is_none() && needs_threshold {
        // After Ctrl-C there is no crossover, and there are no rows.
        simulated.multicast.hybrid_threshold = experiment::crossover(&simulated);
    }
    let mut published = published::compare(&simulated, base, options.seed);
    if interrupt::requested() {
        // Of figures that are not whole.
        published.clear();
    }
    let mut rows = plan.run(&simulated);
    let analysis = plan.analyse(&simulated);
    rows.extend(inputs::rows(&simulated, base, &options.machine));
    rows.extend(published.iter().map(|line| line.row.clone()));
    rows.extend(analysis.iter().flat_map(|analysis| analysis.rows(0)));
    rows.extend(plan.reach(&simulated));
    if !results.takes_stdout() {
        show::all(&simulated, &published, &rows, analysis.as_ref());
    }
    results::check_interrupt(&rows)?;
    if let Some(place) = parameters {
        place.write(simulated.text()?.as_bytes())?;
    }
    results.write(&here, &rows, Extra { simulated: &simulated, left_out: output::left_out() }, FIGURES)?;
    json::judge(&rows)
}
