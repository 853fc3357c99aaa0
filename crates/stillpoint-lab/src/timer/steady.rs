//! Timeouts of one length that are renewed for ever: a timer that fires is added again. Measures how long single
//! polls take, and how late timers are.
//!
//! The time is set by the caller, so a millisecond takes only as long as its poll. Nothing counts until each timer
//! has fired once. By then all timers were added with the same delay, and lie in the wheel as in a server that has
//! run for a long time.

use std::collections::VecDeque;
use std::time::Duration;

use stillpoint_harness::experiment::control::contender;
use stillpoint_harness::machine::tsc;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::progress::Progress;
use stillpoint_harness::random::Random;
use stillpoint_peers::timer::{Nexus, TimerContender};

use super::Plan;
use super::cycles::Bracket;
use super::measure::{self, Figures};
use super::ours::{Instants, Ours, Ticks};

pub(super) const TIMERS: [usize; 2] = [100_000, 1_000_000];
/// The timeout, in milliseconds, and the number of polls until each timer has fired once.
const TIMEOUT: u64 = 300_000;
/// The most timers that a poll of ours fires, and the most that it moves on each level.
const LIMIT: usize = 64;

/// Rounds of this scenario: each has hundreds of thousands of polls.
pub(super) fn rounds(plan: &Plan) -> u32 {
    if plan.has("steady") { plan.rounds.min(5) } else { 0 }
}

pub(super) fn run(plan: &Plan, progress: &Progress) -> Vec<Row> {
    let (bracket, tsc_hz) = (Bracket::new(), tsc::frequency());
    let of_number = |timers: usize| {
        progress.stage(&format!("timer: {timers} timeouts"));
        let mut random = Random::new(plan.seed);
        // The first deadlines: random times within the timeout, in order.
        let first = || {
            let mut first: Vec<u64> = (0..timers).map(|_| 1 + random.draw() % TIMEOUT).collect();
            first.sort_unstable();
            first
        };
        let measure = |name: &str, first: &Vec<u64>| match make(name, timers)? {
            Some(mut contender) => polls(contender.as_mut(), first, bracket, tsc_hz),
            None => Ok(Figures::new()),
        };
        measure::measured(plan, ("steady", timers), rounds(plan), progress, first, measure)
    };
    plan.steady.iter().copied().flat_map(of_number).collect()
}

fn make(name: &str, timers: usize) -> Result<Option<Box<dyn TimerContender>>, String> {
    Ok(Some(match contender(name) {
        "stillpoint/wheel" => Box::new(Ours::<Ticks>::new(timers).within(LIMIT)),
        "stillpoint/wheel+instant" => Box::new(Ours::<Instants>::new(timers).within(LIMIT)),
        // With ticks of 1 µs, these timeouts would lie beyond the wheel's reach, and each poll of a slot would pass over all of them.
        "nexus-timer" => Box::new(Nexus::new(timers, false, Duration::from_millis(1))?),
        other => return measure::make(other, timers),
    }))
}

/// Polls for twice the timeout; only the second half counts.
fn polls(
    contender: &mut dyn TimerContender,
    first: &[u64],
    bracket: Bracket,
    tsc_hz: Option<u64>,
) -> Result<Figures, String> {
    let Some(millisecond) = contender.millisecond() else { return Ok(Figures::new()) };
    for deadline in first {
        contender.renew(deadline * millisecond, 1)?;
    }
    // The deadlines in milliseconds, in order: a renewed timer is due after all others.
    let mut deadlines: VecDeque<u64> = first.iter().copied().collect();
    let mut cycles = Vec::with_capacity(TIMEOUT as usize);
    let (mut most, mut latest) = (0, 0);
    for now in 1..=2 * TIMEOUT {
        let (taken, fired) = bracket.time(|| contender.expire(millisecond));
        contender.renew(TIMEOUT * millisecond, fired)?;
        for _ in 0..fired {
            match deadlines.pop_front() {
                Some(deadline) if deadline <= now => deadlines.push_back(now + TIMEOUT),
                _ => return Err(format!("a timer has fired before its deadline, after {now} ms")),
            }
        }
        if now <= TIMEOUT {
            continue;
        }
        cycles.push(taken);
        most = most.max(fired);
        // A due timer that has not fired fires in the next poll at the earliest.
        if let Some(oldest) = deadlines.front() {
            latest = latest.max((now + 1).saturating_sub(*oldest));
        }
    }
    cycles.sort_by(f64::total_cmp);
    let at = |of_thousand: usize| cycles[cycles.len() * of_thousand / 1_000];
    Ok(Figures::from([
        ("poll_cycles", cycles.iter().sum::<f64>() / cycles.len() as f64),
        ("poll_cycles_p50", at(500)),
        ("poll_cycles_p99", at(990)),
        ("poll_cycles_p999", at(999)),
        ("poll_cycles_max", cycles[cycles.len() - 1]),
        // Without a time stamp counter, cycles are nanoseconds.
        ("poll_us_p999", at(999) * 1e6 / tsc_hz.unwrap_or(1_000_000_000) as f64),
        ("most_fired", most as f64),
        ("latest_ms", latest as f64),
    ]))
}
