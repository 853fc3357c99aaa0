//! In the child process: slices of every contender in turn, with the same threads.

use std::sync::Barrier as StartingLine;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::CpuSet;
use serde_json::{Map, Value};

use super::barriers::{Barrier, Timed};
use super::{Plan, Setting, State, crowd, readers};
use crate::interrupt;
use crate::output::json::{Row, number};
use crate::output::progress::Progress;
use crate::stats::{Distribution, median};

/// A slice has so many barriers at least: some take longer than a slice.
const LEAST: usize = 2;

pub(super) fn run(plan: &Plan) -> Result<Vec<Row>, String> {
    let mut cpus = CpuSet::new();
    plan.cpus.iter().for_each(|&cpu| cpus.set(cpu));
    rustix::thread::sched_setaffinity(None, &cpus).map_err(|error| format!("the CPUs: {error}"))?;
    let progress = Progress::new(plan.settings.len());
    let mut rows = Vec::new();
    for setting in plan.settings.iter().take_while(|_| !interrupt::requested()) {
        match *setting {
            Setting::Barriers { threads, initiators, state } => {
                progress.stage(&format!(
                    "membarrier: {threads} threads {}, {initiators} initiators",
                    state.name()
                ));
                rows.extend(barriers(plan, threads, initiators, state)?);
            }
            Setting::Readers { per_second } => {
                let asked = if per_second == u32::MAX { "all".to_owned() } else { per_second.to_string() };
                progress.stage(&format!("membarrier: readers, {asked} synchronizations a second"));
                rows.extend(readers::measure(plan, per_second)?);
            }
        }
        progress.step();
    }
    readers::relate(&mut rows);
    Ok(rows)
}

/// What the rounds of one contender gave.
#[derive(Debug, Default)]
struct Rounds {
    p50: Vec<f64>,
    p99: Vec<f64>,
    sent: Vec<f64>,
    helped: Vec<f64>,
    rate: Vec<f64>,
    void: Option<String>,
}

impl Rounds {
    fn take(&mut self, slice: Result<(Vec<Timed>, Duration), String>) {
        let (timed, took) = match slice {
            Ok(slice) => slice,
            Err(error) => return self.void = Some(error),
        };
        let nanoseconds: Vec<u64> = timed.iter().map(|timed| timed.latency.as_nanos() as u64).collect();
        let Some(latency) = Distribution::of(&nanoseconds) else { return };
        self.p50.push(latency.p50);
        self.p99.push(latency.p99);
        self.rate.push(timed.len() as f64 / took.as_secs_f64());
        self.helped.push(timed.iter().map(|timed| timed.helped as f64).sum::<f64>() / timed.len() as f64);
        let sent: Option<Vec<f64>> =
            timed.iter().map(|timed| Some(timed.sent_in?.as_nanos() as f64 / 1e3)).collect();
        self.sent.extend(sent.map(median));
    }
}

fn barriers(plan: &Plan, threads: usize, initiators: usize, state: State) -> Result<Vec<Row>, String> {
    let names: Vec<&String> = plan.contenders.iter().filter(|name| !name.starts_with("mode/")).collect();
    let scenario = if initiators == 1 { "receivers" } else { "initiators" };
    let mut rounds: Vec<Rounds> = names.iter().map(|_| Rounds::default()).collect();
    crowd::with(threads, state, || {
        for round in 0..plan.rounds as usize {
            for turn in 0..names.len() {
                let at = (turn + round) % names.len();
                if interrupt::requested() {
                    return Ok(());
                }
                if rounds[at].void.is_none() {
                    rounds[at].take(slice(names[at], threads, initiators, plan.slice));
                }
            }
        }
        Ok(())
    })?;
    Ok(names
        .into_iter()
        .zip(rounds)
        .filter(|(_, rounds)| rounds.void.is_some() || !rounds.p50.is_empty())
        .map(|(name, rounds)| {
            let params = [
                ("threads", Value::from(threads)),
                ("initiators", initiators.into()),
                ("state", state.name().into()),
                ("rounds", rounds.p50.len().into()),
            ];
            row(scenario, name, params.into_iter(), rounds)
        })
        .collect())
}

fn row<'a>(
    scenario: &str,
    name: &str,
    params: impl Iterator<Item = (&'a str, Value)>,
    rounds: Rounds,
) -> Row {
    let mut metrics = Map::new();
    let figures = [
        ("latency_us_p50", &rounds.p50),
        ("latency_us_p99", &rounds.p99),
        ("send_us_p50", &rounds.sent),
        ("helped", &rounds.helped),
        ("ops_per_s", &rounds.rate),
    ];
    for (metric, values) in
        figures.into_iter().filter(|(_, values)| rounds.void.is_none() && !values.is_empty())
    {
        metrics.insert(metric.to_owned(), rounded(median(values.clone())));
    }
    if rounds.void.is_none() {
        let least = rounds.p50.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rounds.p50.iter().copied().fold(0.0, f64::max);
        metrics.insert("latency_us_least".to_owned(), rounded(least));
        metrics.insert("latency_us_most".to_owned(), rounded(most));
    }
    Row {
        experiment: "membarrier".into(),
        scenario: scenario.to_owned(),
        contender: name.to_owned(),
        params: params.map(|(name, value)| (name.to_owned(), value)).collect(),
        metrics,
        void: rounds.void,
    }
}

/// Three digits after the point.
pub(super) fn rounded(value: f64) -> Value {
    number((value * 1000.0).round() / 1000.0)
}

/// One slice: every initiator fences for that long.
fn slice(
    name: &str,
    threads: usize,
    initiators: usize,
    length: Duration,
) -> Result<(Vec<Timed>, Duration), String> {
    let made: Result<Vec<Option<Barrier>>, String> = (0..initiators).map(|_| Barrier::of(name)).collect();
    let made: Vec<Barrier> = made?.into_iter().flatten().collect();
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
