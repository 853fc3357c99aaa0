//! What travels between the host and the guest: an order in the guest's first file system, results on its console.
//!
//! The kernel writes on the same console, so each line of the program begins with [`MARK`] and says how long its value
//! is, and the number of rows is said at the end: a result that lost a line, or has something foreign inside one, is an
//! error and not another result.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
/// Everything was said; its value is [`Closing`].
pub(super) const END: &str = "end";

/// What the guest is asked to measure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    /// Contenders and groups of them; all when there are none.
    pub(super) contenders: Vec<String>,
    pub(super) rounds: u32,
    /// Time for the delays of one contender in one round.
    pub(super) round_micros: u64,
    pub(super) elements: usize,
    pub(super) seed: u64,
}

/// What the guest is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) kernel: String,
    pub(super) vcpus: usize,
    /// The kernel's source of time.
    pub(super) clock: String,
    /// Peers of the program in the guest, with their versions.
    pub(super) peers: std::collections::BTreeMap<String, String>,
}

/// A row without what the host alone knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) contender: String,
    pub(super) params: Map<String, Value>,
    pub(super) metrics: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) void: Option<String>,
}

/// What the guest says last.
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
