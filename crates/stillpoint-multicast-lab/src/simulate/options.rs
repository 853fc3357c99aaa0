//! The flags of `stillpoint simulate`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use stillpoint_harness::error::Stop;
use stillpoint_harness::flags::ResultFlags;
use stillpoint_harness::output::json;

use super::{contender, rows};

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
    pub(super) subject: Subject,

    /// The machine: `seed` (4 sockets x 18 cores x 2 threads), `kvm` (a guest with 80 virtual CPUs), or a parameter
    /// file
    #[arg(long, value_name = "NAME|FILE", default_value = "seed")]
    pub(super) machine: String,

    /// Scenarios; `sensitivity` computes the model's conclusions again with changed inputs [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(rows::SCENARIOS))]
    pub(super) scenarios: Vec<String>,

    /// Contenders [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(contender::names()))]
    pub(super) contenders: Vec<String>,

    /// Numbers of receivers, such as 1,16,143 [default: 1 to all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) receivers: Vec<u32>,

    /// Numbers of concurrent initiators [default: 1 to all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) initiators: Vec<u32>,

    /// Grace periods a second [default: 100 to 30000, and as many as possible]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_frequency)]
    pub(super) frequencies: Vec<f64>,

    /// Operations of each initiator for each point, or grace periods [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) operations: Option<u32>,

    /// Seed of the noise
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// Write the parameters that were used to FILE
    #[arg(long, value_name = "FILE")]
    pub(super) write: Option<PathBuf>,

    #[command(flatten)]
    pub(super) results: ResultFlags,
}

impl Options {
    /// Checks that the parameters can be written, before the work begins.
    pub(super) fn check_outputs(&self) -> Result<(), Stop> {
        self.write
            .iter()
            .try_for_each(|file| json::probe(file).map_err(|error| json::cannot_write(file, &error)))
    }
}

fn parse_frequency(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(hertz) if (1.0..=1e7).contains(&hertz) => Ok(hertz),
        _ => Err("not a number of grace periods a second from 1 to 10000000".to_owned()),
    }
}
