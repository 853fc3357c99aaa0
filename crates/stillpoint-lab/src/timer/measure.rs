//! In the child process: slices of each contender in turn.

use std::collections::BTreeMap;

use stillpoint_harness::experiment::control::{contender, with_control};
use stillpoint_harness::experiment::rounds::{Rounds, in_turns};
use stillpoint_harness::interrupt;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::progress::Progress;
use stillpoint_harness::random::Random;
use stillpoint_harness::stats::median;
use stillpoint_peers::timer::{Ability, DelayQueues, HashWheel, Nexus, TimerContender, htimer, rte_timer};

use super::cycles::Bracket;
use super::ours::{Clocked, Instants, Ours, Ticks};
use super::{DELAY_QUEUE, HOUR, HTIMER, Plan, SPAN, connections, queues, remote, steady, time};
use crate::experiment::prepare_child;

/// The fewest operations of a slice.
const LEAST: usize = 10_000;
/// The least delay of timers that must not fire: 34 seconds in nanoseconds, or a year in milliseconds.
const FAR: u64 = 1 << 35;
const POLLS: usize = 1_000;
/// Ticks of one step, where time goes on in small steps.
const STEP: u64 = 64;

/// Cycles of each metric in one round.
pub(super) type Figures = BTreeMap<&'static str, f64>;

pub(super) fn run(plan: &Plan) -> Result<Vec<Row>, String> {
    prepare_child(&plan.contenders, &plan.cpus, 64, false)?;
    let steady = plan.steady.len() * steady::rounds(plan) as usize;
    let application = connections::CHOICES * connections::rounds(plan) as usize;
    let single = if plan.has("own") { plan.timers.len() * plan.rounds as usize } else { 0 };
    let rounds = single + steady + application;
    let rounds = rounds + queues::stages(plan) * queues::rounds(plan) as usize;
    let progress = Progress::new(rounds * with_control(plan.contenders.clone()).len());
    let mut rows = Vec::new();
    if plan.has("own") {
        for &timers in &plan.timers {
            progress.stage(&format!("timer: {timers} timers"));
            rows.extend(own(plan, timers, &progress));
        }
    }
    if plan.has("steady") && !interrupt::requested() {
        rows.extend(steady::run(plan, &progress));
    }
    if plan.has("remote") && !interrupt::requested() {
        progress.stage("timer: two threads");
        rows.extend(remote::run(plan)?);
    }
    if plan.has("connections") && !interrupt::requested() {
        rows.extend(connections::run(plan, &progress));
    }
    if plan.has("queues") && !interrupt::requested() {
        rows.extend(queues::run(plan, &progress));
    }
    Ok(rows)
}

/// `None` for one that takes part only in `queues`.
pub(super) fn make(name: &str, timers: usize) -> Result<Option<Box<dyn TimerContender>>, String> {
    Ok(Some(match contender(name) {
        "stillpoint/wheel" => Box::new(Ours::<Ticks>::new(timers)),
        "stillpoint/wheel+instant" => Box::new(Ours::<Instants>::new(timers)),
        "stillpoint/wheel+clock" => Box::new(Ours::<Clocked>::new(timers)),
        HTIMER => htimer(timers)?,
        "dpdk/rte_timer" => rte_timer(timers, false)?,
        "drop-in/rte_timer" => rte_timer(timers, true)?,
        "nexus-timer" => Box::new(Nexus::new(timers, false, Nexus::TICK)?),
        "nexus-timer+clock" => Box::new(Nexus::new(timers, true, Nexus::TICK)?),
        "tokio-util" => Box::new(DelayQueues::new(timers)?),
        "hierarchical_hash_wheel_timer" => Box::new(HashWheel::new()),
        DELAY_QUEUE => return Ok(None),
        _ => return Err(format!("there is no contender {name}")),
    }))
}

fn own(plan: &Plan, timers: usize, progress: &Progress) -> Vec<Row> {
    let (bracket, mut random) = (Bracket::new(), Random::new(plan.seed));
    // Contenders are made anew in each round, so that each begins with its memory in order.
    let measure = |name: &str, work: &Work| match make(name, timers)? {
        Some(mut contender) => slices(name, contender.as_mut(), work, bracket),
        None => Ok(Figures::new()),
    };
    measured(plan, ("own", timers), plan.rounds, progress, || Work::new(timers, &mut random), measure)
}

/// Measures the rounds of each contender, with the work that `work` makes for each round. Contenders that have
/// nothing to measure have no row.
pub(super) fn measured<W>(
    plan: &Plan,
    (scenario, timers): (&str, usize),
    rounds: u32,
    progress: &Progress,
    mut work: impl FnMut() -> W,
    measure: impl Fn(&str, &W) -> Result<Figures, String>,
) -> Vec<Row> {
    let measure = |name: &String, work: &W| {
        let figures = measure(name, work);
        progress.step();
        figures
    };
    let contenders = with_control(plan.contenders.clone());
    let measured = in_turns(&contenders, rounds, |_| work(), measure);
    let any = |rounds: &Rounds<Figures>| !rounds.as_ref().is_ok_and(|all| all.iter().all(Figures::is_empty));
    let row = |(name, measured): (&String, Rounds<Figures>)| {
        let row = Row::new("timer", scenario, name);
        let row = row.with("timers", timers).with("time", time(name)).with("rounds", rounds);
        with_quartiles(row, measured)
    };
    measured.into_iter().filter(|(_, rounds)| any(rounds)).map(row).collect()
}

/// The work of a round, the same for every contender.
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
        let mut delays = || (0..timers).map(|_| 1 + random.draw() % SPAN).collect::<Vec<u64>>();
        let (delays, later) = (delays(), delays());
        let shuffled = random.shuffled(timers);
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

/// Measures each operation once. Every timer that was added must fire or be cancelled.
fn slices(
    name: &str,
    contender: &mut dyn TimerContender,
    work: &Work,
    bracket: Bracket,
) -> Result<Figures, String> {
    let timers = work.delays.len() as u64;
    let all = |what: &str, found: u64| match found == timers {
        true => Ok(()),
        false => Err(format!("{what}: {found} of {timers} timers")),
    };
    // Works once without measuring, because caches and branch predictors are cold after another contender.
    contender.add(&work.delays)?;
    all("cancelled", contender.cancel(&work.in_order))?;
    contender.forget();
    let mut figures = Figures::new();
    for _ in 0..work.repeats {
        let mut count = |metric, cycles: f64| *figures.entry(metric).or_default() += cycles;

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
            // After a shuffled cancellation, the wheel reuses its timers in a mixed order, as an old wheel does.
            contender.add(&work.delays)?;
            contender.wait(SPAN);
            let (cycles, fired) = bracket.time(|| contender.expire(SPAN));
            all("fired", fired)?;
            count("expire_cycles", cycles);
            contender.forget();

            let most = &work.shuffled[..work.shuffled.len() * 9 / 10];
            let (adding, result) = bracket.time(|| contender.add(&work.delays));
            result?;
            // Some timers may have become due meanwhile, and have not fired.
            let (cancelling, cancelled) = bracket.time(|| contender.cancel(most));
            contender.wait(SPAN);
            let (expiring, fired) = bracket.time(|| contender.expire(SPAN));
            all("fired and cancelled", fired + cancelled)?;
            count("mixed_cycles", adding + cancelling + expiring);
            contender.forget();
        }
    }
    figures.values_mut().for_each(|cycles| *cycles /= timers as f64 * work.repeats as f64);
    if contender.can(Ability::Idle) {
        contender.add(&work.far)?;
        let (cycles, fired) = bracket.time(|| contender.idle(POLLS));
        if fired != 0 {
            return Err(format!("{fired} timers have fired although none was due"));
        }
        figures.insert("manage_idle_cycles", cycles / POLLS as f64);
        all("cancelled", contender.cancel(&work.in_order))?;
        contender.forget();
    }
    // For contenders whose time cannot be set, these would take hours.
    if contender.can(Ability::Expire) && !name.contains("/rte_timer") {
        figures.extend(in_steps(contender, work, bracket)?);
    }
    if name.starts_with("stillpoint") {
        let hours: Vec<u64> = work.delays.iter().map(|delay| delay * (HOUR / SPAN)).collect();
        contender.add(&hours)?;
        let (cycles, fired) = bracket.time(|| contender.expire(HOUR));
        all("fired in an hour's jump", fired)?;
        figures.insert("jump_cycles", cycles / timers as f64);
        contender.forget();
    }
    Ok(figures)
}

/// Measures the distribution of single polls, while time goes on in small steps until all timers have fired.
fn in_steps(contender: &mut dyn TimerContender, work: &Work, bracket: Bracket) -> Result<Figures, String> {
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
    Ok(Figures::from([
        ("step_cycles", polls.iter().sum::<f64>() / timers),
        ("step_cycles_p999", polls[polls.len() * 999 / 1_000]),
        ("step_cycles_max", polls[polls.len() - 1]),
    ]))
}

/// Adds the median of each figure, and its quartiles, to the row.
pub(super) fn with_quartiles(row: Row, rounds: Rounds<Figures>) -> Row {
    row.measured(rounds, |row, rounds| {
        let mut figures = BTreeMap::<&str, Vec<f64>>::new();
        for (metric, cycles) in rounds.into_iter().flatten() {
            figures.entry(metric).or_default().push(cycles);
        }
        for (metric, mut rounds) in figures {
            rounds.sort_by(f64::total_cmp);
            let quartile = |of: usize| rounds[(rounds.len() - 1) * of / 4];
            row.put(format!("{metric}_q1"), quartile(1), 2);
            row.put(format!("{metric}_q3"), quartile(3), 2);
            row.put(metric, median(rounds), 2);
        }
    })
}
