//! What can be asked of `stillpoint bench`.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use stillpoint_harness::flags::{CpuList, LengthFlags, ResultFlags, parse_cpus};
use stillpoint_peers::Element;

use crate::peers::{self, group};

/// The usual number of elements.
pub(crate) const ELEMENTS: usize = 1 << 22;
/// With fewer, almost every lookup would find an element that was just replaced.
pub(crate) const LEAST_ELEMENTS: usize = 1 << 8;
/// The writer works for 20 µs before each delete, so more than this many a second are out of reach.
const MOST_DELETES: u32 = 40_000;
/// The smallest object: the header of an object of the lab, without a body.
const LEAST_BYTES: usize = size_of::<Element>();
/// More threads than this measure only the machine's scheduler.
pub(crate) const MAX_READERS: usize = 1024;

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Experiment {
    /// Delay from unlink to free, under a writer with 5,000 deletes a second
    Reclaim,
    /// What preempted readers do to grace periods, CPU time and memory
    Preempt,
    /// Costs of single operations
    Micro,
    /// Hash tables: lookups, writes, growth, memory, the mixes of bustle and conc-map-bench, and a web service's map
    Table,
    /// Barriers on every thread: system call, signals, kernel module, and what they cost readers
    Membarrier,
    /// Timer wheels: additions, cancellations, expiries, and timers of another thread
    Timer,
    /// Object pools: objects and blocks out and back, on one thread and across threads
    Pool,
    /// A stack, a queue and a list: calls by one and two threads, and what a stalled reader holds up
    Structures,
    /// The C interface beside Rust's, and the drop-ins beside the libraries they replace
    Capi,
    /// All experiments, one after the other
    All,
}

stillpoint_harness::named!(pub(crate) Experiment);

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure: the name of the subcommand
    #[arg(skip = Experiment::All)]
    pub(crate) experiment: Experiment,

    #[command(flatten)]
    pub(crate) length: LengthFlags,

    /// CPUs to use, such as 0,2-5: readers from the first on, the writer on the last [default: all allowed]
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub(crate) cpus: Option<CpuList>,

    /// Numbers of reader threads in `reclaim`, of reader threads on each core in `preempt`, and of receivers in
    /// `membarrier`, such as 1,8,16 [default: those of each scenario]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_threads)]
    pub(crate) readers: Vec<usize>,

    /// Numbers of concurrent initiators in `membarrier` [default: 1,2,4,8,16]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_threads)]
    pub(crate) initiators: Vec<usize>,

    /// Numbers of threads in `table` and `structures`, at most one for each CPU; in the scenario `service` of `table` any
    /// [default: 1,2; in `service` 2,16]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_threads)]
    pub(crate) threads: Vec<usize>,

    /// Contenders, or groups of them such as `stillpoint` or `dpdk` [default: all that are built in]
    // The names are those of all experiments: the command line adds them.
    #[arg(long, value_name = "LIST", value_delimiter = ',', hide_possible_values = true)]
    pub(crate) contenders: Vec<String>,

    /// Scenarios of `reclaim`, `preempt`, `table`, `membarrier`, `timer`, `pool`, `structures` or `capi`, or operations of `micro` [default: all]
    // The command line adds the names here, too.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) scenarios: Vec<String>,

    /// Lengths of the readers' sections in `preempt`, in microseconds, such as 0.2,50 [default: 5]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_section)]
    pub(crate) sections: Vec<f64>,

    /// Where the readers of `preempt` spend their time [default: always]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) inside: Vec<Inside>,

    /// Number of elements in the structures of `reclaim`, and of entries in `table`, a power of two [default: 4194304; in `reclaim` fewer
    /// if there is not enough memory]
    #[arg(long, value_name = "N", value_parser = parse_elements)]
    pub(crate) elements: Option<usize>,

    /// Number of connections in the scenario `connections` of `timer` [default: 1,000,000; with --quick 100,000]
    #[arg(long, value_name = "N", value_parser = parse_connections)]
    pub(crate) connections: Option<usize>,

    /// The data structure that the readers of `reclaim` look keys up in
    #[arg(long, value_enum, default_value_t = Structure::Table)]
    pub(crate) structure: Structure,

    /// Deletes a second in `reclaim`
    #[arg(long, visible_alias = "rate", value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_DELETES)))]
    pub(crate) deletes: u32,

    /// Size of an object in `reclaim` in bytes, a multiple of 8; the bytes beyond 64 are in a separate allocation
    #[arg(long, value_name = "N", default_value_t = LEAST_BYTES, value_parser = parse_bytes)]
    pub(crate) bytes: usize,

    /// Seed of the random keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Write a page of all results into FOLDER, with its figures, JSON and CSV, after each experiment
    #[arg(long, value_name = "FOLDER")]
    pub(crate) report: Option<PathBuf>,

    /// Print every figure, metric and name, not only the answer and its table
    #[arg(long)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) results: ResultFlags,
}

/// How much of its time a reader is inside a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Inside {
    /// One section after the other
    Always,
    /// Half of the time; for the other half, the reader does the same work outside
    Half,
    /// Always inside; the reader sleeps for half of each section
    Blocked,
}

stillpoint_harness::named!(pub(crate) Inside);

/// The structure in which readers look up elements, and the writer replaces them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Structure {
    /// A lock-free hash table: stillpoint's, liburcu's cds_lfht, DPDK's rte_hash, papaya
    Table,
    /// A plain array of pointers, which peers without a table also have
    Array,
}

stillpoint_harness::named!(pub(crate) Structure);

impl Structure {
    /// The other structure.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Array => Self::Table,
            Self::Table => Self::Array,
        }
    }

    /// Whether a contender that is built in can work on it.
    pub(crate) fn has(self, contender: &str) -> bool {
        let of_peers = match self {
            Self::Array => peers::has_array,
            Self::Table => peers::has_table,
        };
        group(contender) == "stillpoint" || of_peers(contender)
    }
}

/// A value that fits; `what` says what does.
fn value<T: FromStr>(text: &str, fits: impl Fn(&T) -> bool, what: impl Display) -> Result<T, String> {
    text.trim().parse().ok().filter(fits).ok_or_else(|| format!("not {what}"))
}

fn parse_threads(text: &str) -> Result<usize, String> {
    let fits = |threads: &usize| (1..=MAX_READERS).contains(threads);
    value(text, fits, format_args!("a number from 1 to {MAX_READERS}"))
}

fn parse_connections(text: &str) -> Result<usize, String> {
    let fits = |connections: &usize| (1_000..=100_000_000).contains(connections);
    value(text, fits, "a number of connections from 1000 to 100000000")
}

fn parse_section(text: &str) -> Result<f64, String> {
    let fits = |section: &f64| (0.1..=1_000_000.0).contains(section);
    value(text, fits, "a number of microseconds from 0.1 to 1000000")
}

fn parse_bytes(text: &str) -> Result<usize, String> {
    let fits = |bytes: &usize| bytes.is_multiple_of(8) && (LEAST_BYTES..=1 << 20).contains(bytes);
    value(text, fits, format_args!("a multiple of 8 from {LEAST_BYTES} to {}", 1 << 20))
}

fn parse_elements(text: &str) -> Result<usize, String> {
    let fits = |elements: &usize| elements.is_power_of_two() && (LEAST_ELEMENTS..=1 << 40).contains(elements);
    value(text, fits, format_args!("a power of two from {LEAST_ELEMENTS} to 2^40"))
}
