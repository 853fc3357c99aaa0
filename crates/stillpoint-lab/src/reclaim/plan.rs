//! What will be run, decided and checked before anything is.

use std::time::Duration;

use crate::cli::{BenchArgs, LengthFlags};
use crate::error::Stop;
use crate::machine::proc;
use crate::output::format::bytes;
use crate::peers;
use crate::reclaim::names::{self, CONTENDERS, Entry, ONE_CORE, OWN_CORE, Quick, SCENARIOS};
use crate::reclaim::ours;
use crate::reclaim::setting::{Extent, Setting, settings};

/// Time in which a usual run has to end, set-up and the ends of rounds included.
const USUAL_BUDGET: Duration = Duration::from_secs(105);
/// The same for a short run.
const QUICK_BUDGET: Duration = Duration::from_secs(78);
/// What a round takes beside its own time, at most: starting and ending up to 16 threads on one CPU, and the
/// last delays of the slowest contender.
const ROUND_OVERHEAD: Duration = Duration::from_millis(120);
const SET_UP: Duration = Duration::from_secs(6);
/// No round of a usual run is shorter, however many rows there are.
const SHORTEST_ROUND: Duration = Duration::from_millis(50);
/// Some deletes fit into any round.
const LEAST_ROUND: Duration = Duration::from_millis(1);

/// Bytes of one element with its share of the allocator's memory, and of the pointer to it: an object of one
/// aligned cache line takes up to three of them in the C library's allocator.
const BYTES_PER_ELEMENT: u64 = 208;

/// A setting with the contenders that run in it.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) setting: Setting,
    pub(crate) contenders: Vec<&'static Entry>,
}

/// The whole run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) parts: Vec<Part>,
    pub(crate) rounds: u32,
    /// Time of one round.
    pub(crate) round: Duration,
    pub(crate) elements: usize,
    pub(crate) seed: u64,
    /// What is not part of the run, and why; a line each.
    pub(crate) left_out: Vec<String>,
}

impl Plan {
    /// The plan for what was asked for; `scenarios` are those of this experiment among them.
    pub(crate) fn new(args: &BenchArgs, cpus: &[usize], scenarios: &[String]) -> Result<Self, Stop> {
        let (present, mut left_out) = contenders(&args.contenders)?;
        let extent = if args.length.full { Extent::Full } else { Extent::Usual };
        let (settings, too_large) = settings(cpus, scenarios, &args.readers, extent)?;
        left_out.extend(too_large.into_iter().map(|reason| format!("left out: {reason}")));

        let whole = !args.length.quick || !args.contenders.is_empty();
        let takes_part = |entry: &Entry, setting: &Setting| match entry.quick {
            Quick::Always => true,
            Quick::OwnCore => whole || setting.scenario == OWN_CORE,
            Quick::OneCore => whole || setting.scenario == ONE_CORE,
            Quick::Never => whole,
        };
        let parts: Vec<Part> = settings
            .into_iter()
            .map(|setting| Part {
                contenders: present.iter().copied().filter(|entry| takes_part(entry, &setting)).collect(),
                setting,
            })
            .collect();
        let rows = parts.iter().map(|part| part.contenders.len()).sum();
        let (rounds, round) = timing(&args.length, rows);
        let plan = Self { parts, rounds, round, elements: args.elements, seed: args.seed, left_out };
        plan.check_memory()?;
        Ok(plan)
    }

    /// Number of rounds of all rows together.
    pub(crate) fn steps(&self) -> usize {
        self.parts.iter().map(|part| part.contenders.len()).sum::<usize>() * self.rounds as usize
    }

    pub(crate) fn has(&self, of_this_kind: impl Fn(&str) -> bool) -> bool {
        self.parts.iter().flat_map(|part| &part.contenders).any(|entry| of_this_kind(entry.name))
    }

    /// The largest number of readers in any setting.
    pub(crate) fn most_readers(&self) -> usize {
        self.parts.iter().map(|part| part.setting.readers()).max().unwrap_or(1)
    }

    fn check_memory(&self) -> Result<(), Stop> {
        let names = self.parts.iter().flat_map(|part| &part.contenders).map(|entry| entry.name);
        let arrays = ours::arrays(names) as u64 + u64::from(self.has(|name| !is_ours(name)));
        let needed = arrays * self.elements as u64 * BYTES_PER_ELEMENT;
        match proc::memory("MemAvailable") {
            Some(available) if needed > available => Err(Stop::usage(format!(
                "{} elements need {} of memory and {} are available: give --elements a smaller number",
                self.elements,
                bytes(needed),
                bytes(available),
            ))),
            _ => Ok(()),
        }
    }
}

/// Whether a contender is stillpoint's own.
pub(crate) fn is_ours(name: &str) -> bool {
    name.starts_with("stillpoint/")
}

/// Those of `asked` (a mix of experiments' scenarios) that are scenarios of this experiment. `None`: all of them
/// belong to other experiments.
pub(crate) fn own_scenarios(asked: &[String]) -> Option<Vec<String>> {
    let own: Vec<String> =
        asked.iter().filter(|asked| SCENARIOS.contains(&asked.as_str())).cloned().collect();
    (asked.is_empty() || !own.is_empty()).then_some(own)
}

/// The contenders asked for that were built in, and a line for each package that is missing.
fn contenders(asked: &[String]) -> Result<(Vec<&'static Entry>, Vec<String>), Stop> {
    let (present, absent): (Vec<&Entry>, Vec<&Entry>) = CONTENDERS
        .iter()
        .filter(|entry| names::asked_for(entry.name, asked))
        .partition(|entry| is_ours(entry.name) || peers::is_built_in(entry.name));
    let how_to_get = |entry: &Entry| match peers::missing_for(entry.name) {
        Some(missing) => peers::how_to_get(missing),
        None => format!("{} left out: this build does not have it", entry.name),
    };
    let named = absent.iter().find(|entry| asked.iter().any(|asked| asked == entry.name));
    if let Some(entry) = named.or(absent.first().filter(|_| present.is_empty())) {
        return Err(Stop::usage(how_to_get(entry)));
    }
    let mut lines: Vec<String> = absent.into_iter().map(how_to_get).collect();
    lines.dedup();
    let mut allowed = Vec::new();
    for entry in present {
        match ours::refusal(entry.name) {
            None => allowed.push(entry),
            Some(error) if asked.iter().any(|asked| asked == entry.name) => {
                return Err(Stop::usage(format!("{} cannot run: {error}", entry.name)));
            }
            Some(error) => lines.push(format!("{} left out: {error}", entry.name)),
        }
    }
    Ok((allowed, lines))
}

/// Rounds, and the time of each.
fn timing(length: &LengthFlags, rows: usize) -> (u32, Duration) {
    let rounds = length.rounds.unwrap_or(if length.full { 5 } else { 3 });
    if let Some(row) = length.duration {
        return (rounds, (row / rounds).max(LEAST_ROUND));
    }
    if length.full {
        return (rounds, Duration::from_secs(10) / rounds);
    }
    let (row, budget) = match length.quick {
        true => (Duration::from_millis(2_400), QUICK_BUDGET),
        false => (Duration::from_millis(1_200), USUAL_BUDGET),
    };
    let room = (budget - SET_UP) / (rows.max(1) as u32 * rounds);
    (rounds, (row / rounds).min(room.saturating_sub(ROUND_OVERHEAD)).max(SHORTEST_ROUND))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(quick: bool, full: bool) -> LengthFlags {
        LengthFlags { quick, full, duration: None, rounds: None }
    }

    #[test]
    fn runs_fit_their_budgets_on_two_cpus() {
        let total = |quick, rows: usize| {
            let (rounds, round) = timing(&length(quick, false), rows);
            SET_UP + (round + ROUND_OVERHEAD) * rounds * rows as u32
        };
        assert!(total(false, 4 * CONTENDERS.len()) <= USUAL_BUDGET);
        assert!(total(true, 11 + 3 * 6 + 2) <= QUICK_BUDGET);
    }

    #[test]
    fn a_full_run_measures_ten_seconds_a_row() {
        let (rounds, round) = timing(&length(false, true), 1000);
        assert_eq!(round * rounds, Duration::from_secs(10));
    }

    #[test]
    fn a_given_time_is_shared_by_the_rounds() {
        let flags =
            LengthFlags { duration: Some(Duration::from_secs(1)), rounds: Some(4), ..length(true, false) };
        assert_eq!(timing(&flags, 1000), (4, Duration::from_millis(250)));
    }

    #[test]
    fn scenarios_of_other_experiments_are_not_ours() {
        assert_eq!(own_scenarios(&[]), Some(vec![]));
        assert_eq!(own_scenarios(&["pin".to_owned(), "spread".to_owned()]), Some(vec!["spread".to_owned()]));
        assert_eq!(own_scenarios(&["pin".to_owned()]), None);
    }
}
