//! The command line of `stillpoint torture`.

use clap::Args;
use clap::builder::PossibleValuesParser;
use stillpoint_harness::flags::ResultFlags;

use crate::variant::Broken;

/// The flags of `stillpoint torture`.
#[derive(Debug, Args)]
pub struct Options {
    /// How long to run, in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,

    /// Seed of the threads' choices; their timing differs from run to run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Threads of the parts that need more threads than CPUs [default: four for each CPU, from 6 to 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(4..=256))]
    pub(crate) threads: Option<u16>,

    /// Run a deliberately broken variant of the library, which must be caught
    #[arg(long, value_name = "NAME", hide_possible_values = true,
          value_parser = PossibleValuesParser::new(Broken::all().map(|broken| broken.to_string())))]
    pub(crate) busted: Option<String>,

    #[command(flatten)]
    pub(crate) results: ResultFlags,

    /// List the broken variants and the checker that catches each
    #[arg(long, exclusive = true)]
    pub(crate) list_busted: bool,
}
