//! In the child process: slices of each contender in turn.

use std::collections::BTreeMap;

use serde_json::Map;
use stillpoint::timer::Clock;
use stillpoint_peers::timer::{Ability, DelayQueues, HashWheel, Nexus, TimerContender, rte_timer};

use super::cycles::Bracket;
use super::floor::Floor;
use super::ours::Ours;
use super::{HOUR, Plan, SPAN, remote, steady};
use crate::interrupt;
use crate::machine::cpus;
use crate::output::json::{Row, number};
use crate::output::progress::Progress;
use crate::random::Random;
use crate::stats::median;

/// Operations of a slice at least.
const LEAST: usize = 10_000;
/// Delays of timers that are not to fire: 34 seconds in nanoseconds, a year in milliseconds.
const FAR: u64 = 1 << 35;
const POLLS: usize = 1_000;
/// Ticks of one step of the scenario in which time goes on in small steps.
const STEP: u64 = 64;

/// Cycles of each metric, one for each round.
pub(super) type Figures = BTreeMap<&'static str, Vec<f64>>;

pub(super) fn run(plan: &Plan) -> Result<Vec<Row>, String> {
    let cpu = *plan.cpus.first().ok_or("no CPU was chosen to measure on")?;
    if plan.contenders.iter().any(|name| name.starts_with("dpdk")) {
        stillpoint_peers::table::initialise_dpdk(64, false, cpu)?;
    }
    cpus::pin(cpu)?;
    let steady = steady::TIMERS.len() * steady::rounds(plan) as usize;
    let progress = Progress::new(plan.timers.len() * plan.rounds as usize + steady);
    let mut rows = Vec::new();
    if plan.scenarios.iter().any(|name| name == "own") {
        for &timers in &plan.timers {
            progress.stage(&format!("timer: {timers} timers"));
            rows.extend(own(plan, timers, &progress));
        }
    }
    if plan.scenarios.iter().any(|name| name == "steady") && !interrupt::requested() {
        rows.extend(steady::run(plan, &progress));
    }
    if plan.scenarios.iter().any(|name| name == "remote") && !interrupt::requested() {
        progress.stage("timer: two threads");
        rows.extend(remote::run(plan)?);
    }
    Ok(rows)
}

pub(super) fn make(name: &str, timers: usize) -> Result<Box<dyn TimerContender>, String> {
    Ok(match name {
        "stillpoint/wheel" => Box::new(Ours::new(timers, None)),
        "stillpoint/wheel+clock" => Box::new(Ours::new(timers, Some(Clock::new()))),
        "floor" => Box::new(Floor::new(timers)),
        "dpdk/rte_timer" => rte_timer(timers)?,
        "nexus-timer" => Box::new(Nexus::new(timers)?),
        "tokio-util" => Box::new(DelayQueues::new(timers)?),
        "hierarchical_hash_wheel_timer" => Box::new(HashWheel::new()),
        _ => return Err(format!("there is no contender {name}")),
    })
}

fn own(plan: &Plan, timers: usize, progress: &Progress) -> Vec<Row> {
    let (bracket, mut random) = (Bracket::new(), Random::new(plan.seed));
    let measure = |name: &str, work: &Work, figures: &mut Figures| {
        // Made anew in each round: so every one begins with its memory in order.
        slices(make(name, timers)?.as_mut(), work, bracket, figures)
    };
    in_turns(plan, ("own", timers), plan.rounds, progress, || Work::new(timers, &mut random), measure)
}

/// Each contender measures the work of each round, in rotated order. Those that have nothing to measure have no row.
pub(super) fn in_turns<W>(
    plan: &Plan,
    setting: (&str, usize),
    rounds: u32,
    progress: &Progress,
    mut work: impl FnMut() -> W,
    mut measure: impl FnMut(&str, &W, &mut Figures) -> Result<(), String>,
) -> Vec<Row> {
    let mut contenders: Vec<(&str, Figures, Option<String>)> =
        plan.contenders.iter().map(|name| (name.as_str(), Figures::new(), None)).collect();
    for round in 0..rounds as usize {
        let (work, count) = (work(), contenders.len());
        for turn in 0..count {
            let (name, figures, void) = &mut contenders[(turn + round) % count];
            if void.is_none() && !interrupt::requested() {
                *void = measure(name, &work, figures).err();
            }
        }
        contenders.retain(|(_, figures, void)| !figures.is_empty() || void.is_some());
        if contenders.is_empty() || interrupt::requested() {
            break;
        }
        progress.step();
    }
    contenders.into_iter().map(|(name, figures, void)| row(setting, rounds, name, figures, void)).collect()
}

/// The same for every contender.
struct Work {
    delays: Vec<u64>,
    later: Vec<u64>,
    far: Vec<u64>,
    in_order: Vec<u32>,
    shuffled: Vec<u32>,
    repeats: usize,
}

impl Work {
    fn new(timers: usize, random: &mut Random) -> Self {
        let mut delays = || (0..timers).map(|_| 1 + random.next() % SPAN).collect::<Vec<u64>>();
        let (delays, later) = (delays(), delays());
        let mut shuffled: Vec<u32> = (0..timers as u32).collect();
        for last in (1..timers).rev() {
            shuffled.swap(last, (random.next() % (last as u64 + 1)) as usize);
        }
        Self {
            far: delays.iter().map(|delay| delay + FAR).collect(),
            delays,
            later,
            in_order: (0..timers as u32).collect(),
            shuffled,
            repeats: (LEAST / timers).max(1),
        }
    }
}

/// Measures each operation once; what has fired and what was cancelled must be what was added.
fn slices(
    contender: &mut dyn TimerContender,
    work: &Work,
    bracket: Bracket,
    figures: &mut Figures,
) -> Result<(), String> {
    let timers = work.delays.len() as u64;
    let all = |what: &str, found: u64| match found == timers {
        true => Ok(()),
        false => Err(format!("{what}: {found} of {timers} timers")),
    };
    // Once without measuring: caches and branches are cold after another contender.
    contender.add(&work.delays)?;
    all("cancelled", contender.cancel(&work.in_order))?;
    contender.forget();
    let mut sums = BTreeMap::<&'static str, f64>::new();
    for _ in 0..work.repeats {
        let mut count = |metric, cycles: f64| *sums.entry(metric).or_default() += cycles;

        let (cycles, result) = bracket.time(|| contender.add(&work.delays));
        result?;
        count("add_cycles", cycles);
        let (cycles, cancelled) = bracket.time(|| contender.cancel(&work.in_order));
        all("cancelled", cancelled)?;
        count("cancel_cycles", cycles);
        contender.forget();

        contender.add(&work.delays)?;
        if contender.can(Ability::Reset) {
            let (cycles, reset) = bracket.time(|| contender.reset(&work.later));
            all("reset", reset)?;
            count("reset_cycles", cycles);
        }
        let (cycles, cancelled) = bracket.time(|| contender.cancel(&work.shuffled));
        all("cancelled", cancelled)?;
        count("cancel_shuffled_cycles", cycles);
        contender.forget();

        if contender.can(Ability::Expire) {
            // After a shuffled cancellation, the timers are used in the order of an old wheel.
            contender.add(&work.delays)?;
            contender.wait(SPAN);
            let (cycles, fired) = bracket.time(|| contender.expire(SPAN));
            all("fired", fired)?;
            count("expire_cycles", cycles);
            contender.forget();

            let most = &work.shuffled[..work.shuffled.len() * 9 / 10];
            let (adding, result) = bracket.time(|| contender.add(&work.delays));
            result?;
            // Some may have become due meanwhile, and have not fired.
            let (cancelling, cancelled) = bracket.time(|| contender.cancel(most));
            contender.wait(SPAN);
            let (expiring, fired) = bracket.time(|| contender.expire(SPAN));
            all("fired and cancelled", fired + cancelled)?;
            count("mixed_cycles", adding + cancelling + expiring);
            contender.forget();
        }
    }
    for (metric, cycles) in sums {
        figures.entry(metric).or_default().push(cycles / (timers as f64 * work.repeats as f64));
    }
    if contender.can(Ability::Idle) {
        contender.add(&work.far)?;
        let (cycles, fired) = bracket.time(|| contender.idle(POLLS));
        if fired != 0 {
            return Err(format!("{fired} timers have fired although none was due"));
        }
        figures.entry("manage_idle_cycles").or_default().push(cycles / POLLS as f64);
        all("cancelled", contender.cancel(&work.in_order))?;
        contender.forget();
    }
    // In time that passes by itself, these would take hours.
    if contender.can(Ability::Expire) && !contender.name().starts_with("dpdk") {
        in_steps(contender, work, bracket, figures)?;
    }
    if contender.name().starts_with("stillpoint") {
        let hours: Vec<u64> = work.delays.iter().map(|delay| delay * (HOUR / SPAN)).collect();
        contender.add(&hours)?;
        let (cycles, fired) = bracket.time(|| contender.expire(HOUR));
        all("fired in an hour's jump", fired)?;
        figures.entry("jump_cycles").or_default().push(cycles / timers as f64);
        contender.forget();
    }
    Ok(())
}

/// All timers fire while time goes on in small steps: the distribution of single polls.
fn in_steps(
    contender: &mut dyn TimerContender,
    work: &Work,
    bracket: Bracket,
    figures: &mut Figures,
) -> Result<(), String> {
    contender.add(&work.delays)?;
    let mut polls = Vec::with_capacity((SPAN / STEP) as usize + 2);
    let mut fired = 0;
    for _ in 0..=SPAN / STEP {
        let (cycles, now) = bracket.time(|| contender.expire(STEP));
        polls.push(cycles);
        fired += now;
    }
    contender.forget();
    if fired != work.delays.len() as u64 {
        return Err(format!("in steps, {fired} of {} timers have fired", work.delays.len()));
    }
    polls.sort_by(f64::total_cmp);
    let timers = work.delays.len() as f64;
    figures.entry("step_cycles").or_default().push(polls.iter().sum::<f64>() / timers);
    figures.entry("step_cycles_p999").or_default().push(polls[polls.len() * 999 / 1_000]);
    figures.entry("step_cycles_max").or_default().push(polls[polls.len() - 1]);
    Ok(())
}

fn row(
    (scenario, timers): (&str, usize),
    rounds: u32,
    name: &str,
    figures: Figures,
    void: Option<String>,
) -> Row {
    let params = [("timers", timers), ("rounds", rounds as usize)];
    Row {
        experiment: "timer".into(),
        scenario: scenario.to_owned(),
        contender: name.to_owned(),
        params: params.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect(),
        metrics: if void.is_some() { Map::new() } else { metrics(figures) },
        void,
    }
}

/// The median of each figure, and its quartiles.
pub(super) fn metrics(figures: Figures) -> Map<String, serde_json::Value> {
    let mut metrics = Map::new();
    for (metric, mut rounds) in figures {
        rounds.sort_by(f64::total_cmp);
        let quartile = |of: usize| rounds[(rounds.len() - 1) * of / 4];
        let mut insert =
            |name: String, value: f64| metrics.insert(name, number((value * 100.0).round() / 100.0));
        insert(format!("{metric}_q1"), quartile(1));
        insert(format!("{metric}_q3"), quartile(3));
        insert(metric.to_owned(), median(rounds));
    }
    metrics
}
