//! The flags of `stillpoint guest`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use stillpoint_harness::flags::{CpuList, LengthFlags, ResultFlags, parse_cpus, parse_duration};
use stillpoint_harness::qemu::Accel;

use super::contenders;
use super::wire::Load;

/// The help of `--quick`, which has another meaning here than in `bench`.
const QUICK: &str = "Measure for a shorter time: only the baseline and the largest overcommit, and fewer contenders under mail and memory";

/// The help of `--full`: here, all rows take as long.
const FULL: &str = "Measure everything, and each row for ten seconds";

/// The flags of `stillpoint guest`.
#[derive(Debug, Args)]
#[command(mut_arg("quick", |arg| arg.help(QUICK)), mut_arg("full", |arg| arg.help(FULL)))]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) length: LengthFlags,

    /// Numbers of virtual CPUs, such as 2,4,8: more than the number of host CPUs is overcommit
    /// [default: as many as host CPUs, twice and four times as many]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(2..=255))]
    pub(super) vcpus: Vec<u16>,

    /// The loads in the guests, one after the other [default: deletes,mail,kernel; with --full, memory too]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    pub(super) workloads: Vec<Load>,

    /// Run a second guest beside the measured one, two virtual CPUs each on two CPUs of the host: idle, then with a load that
    /// comes and goes
    #[arg(long, conflicts_with = "vcpus")]
    pub(super) neighbour: bool,

    /// Run the load memory in one to four guests of two virtual CPUs at once, which share two CPUs of the host and a fixed memory: with
    /// how many does memory run out?
    #[arg(long, conflicts_with_all = ["vcpus", "neighbour", "workloads"])]
    pub(super) density: bool,

    /// CPUs of the host that the guests run on, two or more, such as 0,2-5 [default: all allowed, at most 4]
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub(super) cpus: Option<CpuList>,

    /// Contenders, or groups of them such as `liburcu` [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(contenders::names()))]
    pub(super) contenders: Vec<String>,

    /// What runs the guest's instructions
    #[arg(long, value_enum, default_value_t = Accel::Auto)]
    pub(super) accel: Accel,

    /// End a guest that takes longer than this, its start included [default: two minutes, plus four times the time to
    /// measure]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) limit: Option<Duration>,

    /// The program to run as the guest's first process: this one, linked statically [default: this program if it is
    /// static; otherwise cargo builds it]
    #[arg(long, value_name = "FILE")]
    pub(super) init: Option<PathBuf>,

    /// The guest's kernel, a file such as /boot/vmlinuz-... [default: the newest in /boot, a cloud kernel first]
    #[arg(long, value_name = "FILE")]
    pub(super) kernel: Option<PathBuf>,

    /// QEMU [default: qemu-system-x86_64 in PATH]
    #[arg(long, value_name = "FILE")]
    pub(super) qemu: Option<PathBuf>,

    /// Write what the guests print on their consoles to FILE
    #[arg(long, value_name = "FILE")]
    pub(super) console: Option<PathBuf>,

    /// Seed of the random keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// Print every metric, too
    #[arg(long)]
    pub(super) verbose: bool,

    #[command(flatten)]
    pub(super) results: ResultFlags,
}
