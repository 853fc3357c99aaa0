//! In the child process: slices of every contender in turn, with the same threads.

use std::sync::Barrier as StartingLine;
use std::thread;
use std::time::{Duration, Instant};

use stillpoint_harness::experiment::control::with_control;
use stillpoint_harness::experiment::rounds::in_turns;
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::output::format::number_of;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::progress::Progress;
use stillpoint_harness::stats::{Distribution, median};
use stillpoint_multicast_lab::device;

use super::barriers::{Barrier, Timed};
use super::{Plan, Setting, State, crowd, readers};

/// The fewest barriers in a slice: some take longer than a slice.
const LEAST: usize = 2;

pub(super) fn run(plan: &Plan) -> Result<Vec<Row>, String> {
    cpus::run_on(&plan.cpus)?;
    if plan.on_module {
        device::take_over()?;
    }
    let progress = Progress::new(plan.settings.len());
    let mut rows = Vec::new();
    for setting in plan.settings.iter().take_while(|_| !interrupt::requested()) {
        let here = plan.contenders.iter().filter(|name| setting.has(name, plan.on_module));
        let names = with_control(here.cloned().collect());
        match *setting {
            Setting::Barriers { threads, initiators, state } => {
                progress.stage(&format!(
                    "membarrier: {} {}, {}",
                    number_of(threads as u64, "thread"),
                    state.name(),
                    number_of(initiators as u64, "initiator")
                ));
                rows.extend(barriers(plan, &names, threads, initiators, state)?);
            }
            Setting::Readers { per_second } => {
                let asked =
                    if per_second == u32::MAX { "all possible".to_owned() } else { per_second.to_string() };
                progress.stage(&format!("membarrier: readers, {asked} synchronizations a second"));
                rows.extend(readers::measure(plan, &names, per_second)?);
            }
        }
        progress.step();
    }
    Ok(rows)
}

/// The measurements of one contender in a slice, in microseconds.
#[derive(Debug)]
struct Round {
    p50: f64,
    p99: f64,
    /// For contenders that report it.
    sent: Option<f64>,
    helped: f64,
    /// Barriers a second, of all initiators.
    rate: f64,
}

impl Round {
    fn of(timed: &[Timed], took: Duration) -> Option<Self> {
        let nanoseconds: Vec<u64> = timed.iter().map(|timed| timed.latency.as_nanos() as u64).collect();
        let latency = Distribution::of(&nanoseconds)?;
        let sent: Option<Vec<f64>> =
            timed.iter().map(|timed| Some(timed.sent_in?.as_nanos() as f64 / 1e3)).collect();
        Some(Self {
            p50: latency.p50,
            p99: latency.p99,
            sent: sent.map(median),
            helped: timed.iter().map(|timed| timed.helped as f64).sum::<f64>() / timed.len() as f64,
            rate: timed.len() as f64 / took.as_secs_f64(),
        })
    }
}

fn barriers(
    plan: &Plan,
    names: &[String],
    threads: usize,
    initiators: usize,
    state: State,
) -> Result<Vec<Row>, String> {
    let scenario = if initiators == 1 { "receivers" } else { "initiators" };
    let measure = |name: &String, (): &()| {
        let (timed, took) = slice(name, threads, initiators, plan.slice)?;
        Round::of(&timed, took).ok_or_else(|| "nothing was measured".to_owned())
    };
    let rounds = crowd::with(threads, state, || Ok(in_turns(names, plan.rounds, |_| (), measure)))?;
    let row = |(name, rounds): (&String, Result<Vec<Round>, String>)| {
        Row::new("membarrier", scenario, name.as_str())
            .with("threads", threads)
            .with("initiators", initiators)
            .with("state", state.name())
            .with("rounds", rounds.as_ref().map_or(0, Vec::len))
            .measured(rounds, |row, rounds| {
                row.put_median("latency_us_p50", 3, &rounds, |round| round.p50);
                row.put_median("latency_us_p99", 3, &rounds, |round| round.p99);
                let sent: Vec<f64> = rounds.iter().filter_map(|round| round.sent).collect();
                if !sent.is_empty() {
                    row.put("send_us_p50", median(sent), 3);
                }
                row.put_median("helped", 3, &rounds, |round| round.helped);
                row.put_median("ops_per_s", 3, &rounds, |round| round.rate);
                row.put_spread("latency_us", rounds.iter().map(|round| round.p50));
            })
    };
    Ok(rounds.into_iter().map(row).collect())
}

/// One slice: every initiator fences for this long.
fn slice(
    name: &str,
    threads: usize,
    initiators: usize,
    length: Duration,
) -> Result<(Vec<Timed>, Duration), String> {
    let made = (0..initiators).map(|_| Barrier::of(name)).collect::<Result<Vec<_>, _>>()?;
    let (line, begin) = (StartingLine::new(initiators), Instant::now());
    let work = |barrier: Barrier| {
        line.wait();
        let mut timed = Vec::new();
        while begin.elapsed() < length || timed.len() < LEAST {
            timed.push(barrier.fence(threads)?);
        }
        Ok::<_, String>(timed)
    };
    let work = &work;
    let timed = match <[Barrier; 1]>::try_from(made) {
        Ok([one]) => work(one),
        Err(many) => thread::scope(|scope| {
            let started: Vec<_> =
                many.into_iter().map(|barrier| scope.spawn(move || work(barrier))).collect();
            let all = started
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            all.collect::<Result<Vec<_>, _>>().map(|timed| timed.concat())
        }),
    };
    Ok((timed?, begin.elapsed()))
}
