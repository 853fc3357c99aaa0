//! What travels between the host and the guest: an order in the guest's first file system, results on its console.
//!
//! The kernel writes on the same console. So each line of the program begins with [`MARK`] and the length of its value,
//! and the last line has the number of rows: a lost line, or foreign text inside a line, is an error and never a
//! different result.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stillpoint_harness::output::json::Row;

use crate::preempt::round::Moment;

/// Where the guest finds its [`Order`].
pub(super) const ORDER: &str = "order.json";
/// What each line of the program in the guest begins with. A verb, the number of bytes of a value, and the value as JSON
/// follow, each after a space.
pub(super) const MARK: &str = "@stillpoint";
/// The program runs; its value is [`About`].
pub(super) const BEGIN: &str = "begin";
/// A row; its value is a [`Measured`].
pub(super) const ROW: &str = "row";
/// Why there is no result; its value is a text.
pub(super) const ERROR: &str = "error";
/// The result is complete; its value is [`Closing`].
pub(super) const END: &str = "end";

/// What a guest is asked to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// To measure, and to be switched off.
    Measure(Measurement),
    /// To be a neighbour of a guest that measures, until it is ended.
    Disturb(Bursts),
}

/// A load that comes and goes, on each virtual CPU at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bursts {
    /// How long they compute; zero for not at all.
    pub(super) busy: Duration,
    /// How long they rest.
    pub(super) idle: Duration,
}

/// The load in a guest while grace periods are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Load {
    /// Lookups, and 5,000 deletes a second, as in `bench reclaim`
    Deletes,
    /// The mail server's mix of `bench preempt`
    Mail,
    /// The micro-benchmark of `bench preempt`
    Memory,
    /// System calls that read under the RCU of the guest's own kernel: the latency of its synchronize_rcu
    Kernel,
    /// Postmark itself (the package postmark), one for each virtual CPU: grace periods of the guest's own kernel
    Postmark,
    /// Memory under a limit, in a guest that swaps: what is written out and read back
    Swap,
    /// Memory, while the host takes memory back by a balloon: what the guest yields. All guests of the run have 256 MiB
    Balloon,
}

stillpoint_harness::named!(pub(super) Load);

/// What the guest is asked to measure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Measurement {
    /// Contenders and groups of them; all when there are none.
    pub(super) contenders: Vec<String>,
    /// The loads, which follow each other.
    pub(super) loads: Vec<Load>,
    /// Whether mail, memory, swap and balloon have only the contenders of a short run, and one round.
    pub(super) short: bool,
    pub(super) rounds: u32,
    /// Time of one contender in one round.
    pub(super) round: Duration,
    pub(super) elements: usize,
    pub(super) seed: u64,
}

impl Measurement {
    /// The rounds of mail, memory, swap and balloon.
    pub(super) fn store_rounds(&self) -> u32 {
        if self.short { 1 } else { self.rounds }
    }
}

/// The facts about the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) kernel: String,
    pub(super) vcpus: usize,
    /// The kernel's source of time.
    pub(super) clock: String,
    /// Peers of the program in the guest, with their versions.
    pub(super) peers: std::collections::BTreeMap<String, String>,
}

/// A row, without the facts that only the host knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    #[serde(flatten)]
    pub(super) row: Row,
    /// How one of its rounds went.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) course: Vec<Moment>,
}

impl Measured {
    /// The part of a row that the guest knows.
    pub(super) fn of(row: Row) -> Self {
        Self { row, course: Vec::new() }
    }
}

/// The last line of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Closing {
    /// The number of rows.
    pub(super) rows: usize,
    /// The time since [`BEGIN`] by the guest's clock, which the host compares with its own.
    pub(super) seconds: f64,
}

/// A line of the program in the guest.
pub(super) fn line(verb: &str, value: &impl Serialize) -> String {
    // The values of this module have a form in JSON, which is one line.
    let value =
        serde_json::to_string(value).unwrap_or_else(|error| Value::from(error.to_string()).to_string());
    format!("{MARK} {verb} {} {value}", value.len())
}

/// The verb and the value of a line that begins with [`MARK`]; `None` when it is not as it was written.
pub(super) fn parse(line: &str) -> Option<(&str, &str)> {
    let (verb, rest) = line.strip_prefix(MARK)?.strip_prefix(' ')?.split_once(' ')?;
    let (length, value) = rest.split_once(' ')?;
    (length.parse() == Ok(value.len())).then_some((verb, value))
}
