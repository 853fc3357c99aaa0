//! Lookups and deletes, as in `bench reclaim`: delays from unlink to free, then waits for grace periods, then fences.
//!
//! All samples of a contender count, since the delays that matter are rare.

use std::time::{Duration, Instant};

use stillpoint_harness::experiment::rounds::in_turns;
use stillpoint_harness::experiment::threads::{as_writer, thread_cpu_time};
use stillpoint_harness::output::json::{Row, number};
use stillpoint_harness::stats::Distribution;
use stillpoint_peers::{Delays, Element, ReadJob};

use super::contenders::{Subject, make};
use super::evaluate::places;
use super::wire::{Load, Measured, Measurement};
use crate::experiment::readers::{beside_readers, check};
use crate::reclaim::names::OWN_CORE;
use crate::reclaim::round::{self, Round};
use crate::reclaim::setting::Setting;

/// Between two waits the writer computes for this long, as between two deletes.
const PAUSE: Duration = Duration::from_micros(200);

/// The measurements of one contender in a round.
#[derive(Debug)]
struct Samples {
    delays: Vec<u64>,
    grace_periods: Waits,
    fences: Waits,
    lookups_per_s: f64,
    peak_pending: usize,
}

/// Waits of the writer.
#[derive(Debug, Default)]
struct Waits {
    /// How long each took, in nanoseconds.
    times: Vec<u64>,
    /// The CPU time that all of them took.
    cpu: Duration,
}

/// A row for each contender that was asked for and is available.
pub(super) fn run(order: &Measurement, cpus: &[usize]) -> Result<Vec<Measured>, String> {
    let (readers, writer_cpu) = places(cpus)?;
    let (reader_cpus, cores) = (readers.to_vec(), readers.len());
    let setting = Setting { scenario: OWN_CORE, reader_cpus, writer_cpu, cores, slow: None };
    // The other half is for grace periods and fences.
    let duration = order.round / 2;
    let capacity = (duration.as_secs_f64() * f64::from(round::RATE)) as usize + 1024;
    let delays: &'static Delays = Box::leak(Box::new(Delays::new(capacity)));
    let subjects = make(&order.contenders, order.elements, setting.readers(), delays)?;
    let rounds = in_turns(
        &subjects,
        order.rounds,
        |number| order.seed.wrapping_add(number as u64),
        |subject, &seed| {
            let policy = subject.entry.policy;
            let (elements, deletes_per_s) = (order.elements, round::RATE);
            let round = Round {
                policy,
                setting: &setting,
                slow: None,
                elements,
                deletes_per_s,
                duration,
                seed,
                delays,
            };
            measure(subject, &round)
        },
    );
    Ok(rounds.into_iter().map(|(subject, rounds)| measured(subject, &setting, order, rounds)).collect())
}

/// One round of one contender: delays of deletes, then waits for grace periods, then fences.
fn measure(subject: &Subject, round: &Round<'_>) -> Result<Samples, String> {
    let outcome = round::run(&**subject.contender, round)?;
    let half = round.duration / 2;
    let grace_periods = waits(subject, round, half, &|| subject.wait_for_readers())?;
    let fences =
        subject.fence().map_or_else(|| Ok(Waits::default()), |fence| waits(subject, round, half, &fence))?;
    Ok(Samples {
        delays: outcome.delays,
        grace_periods,
        fences,
        lookups_per_s: outcome.lookups_per_s,
        peak_pending: outcome.peak_pending,
    })
}

/// Waits of the writer, while the readers read.
fn waits(
    subject: &Subject,
    round: &Round<'_>,
    duration: Duration,
    wait: &(dyn Fn() -> Result<(), String> + Sync),
) -> Result<Waits, String> {
    let Setting { reader_cpus, writer_cpu, .. } = round.setting;
    let read = |job: &ReadJob<'_>, ready: &dyn Fn()| Ok(subject.contender.read(job, ready));
    let (samples, outcomes) = beside_readers(reader_cpus, round.seed, None, read, |go| {
        if go() { as_writer(*writer_cpu, || repeat(duration, wait)) } else { Ok(Waits::default()) }
    });
    check(&outcomes?, 0, 0)?;
    samples
}

/// Waits repeatedly. It runs on another thread, since the calling thread must not be pinned.
fn repeat(duration: Duration, wait: &dyn Fn() -> Result<(), String>) -> Result<Waits, String> {
    let begin = Instant::now();
    let mut waits = Waits::default();
    loop {
        let (before, cpu_before) = (Instant::now(), thread_cpu_time());
        wait()?;
        let after = Instant::now();
        waits.cpu += thread_cpu_time() - cpu_before;
        waits.times.push((after - before).as_nanos() as u64);
        if begin.elapsed() >= duration {
            return Ok(waits);
        }
        while after.elapsed() < PAUSE {
            std::hint::spin_loop();
        }
    }
}

fn measured(
    subject: &Subject,
    setting: &Setting,
    order: &Measurement,
    rounds: Result<Vec<Samples>, String>,
) -> Measured {
    let round_s = order.round.as_secs_f64() / 2.0;
    let row = Row::new("guest", "", subject.entry.name)
        .with("workload", Load::Deletes.name())
        .with("mode", subject.entry.mode)
        .with("readers", setting.readers())
        .with("policy", subject.entry.policy.name())
        .with("elements", order.elements)
        .with("rounds", order.rounds)
        .with("round_s", number(round_s))
        .measured(rounds, |row, rounds| figures(row, &rounds, round_s));
    Measured::of(row)
}

/// Puts the distribution of samples in nanoseconds, if there are any.
pub(super) fn put_samples(row: &mut Row, name: &str, nanoseconds: &[u64]) {
    let Some(of) = Distribution::of(nanoseconds) else { return };
    for (figure, value) in [("mean", of.mean), ("p50", of.p50), ("p99", of.p99), ("max", of.max)] {
        row.put(format!("{name}_us_{figure}"), value, 3);
    }
}

fn figures(row: &mut Row, rounds: &[Samples], round_s: f64) {
    let all = |of: fn(&Samples) -> &Vec<u64>| rounds.iter().flat_map(of).copied().collect::<Vec<u64>>();
    let (grace_periods, delays) = (all(|round| &round.grace_periods.times), all(|round| &round.delays));
    let fences = all(|round| &round.fences.times);
    for (name, nanoseconds) in [("gp", &grace_periods), ("delay", &delays), ("fence", &fences)] {
        put_samples(row, name, nanoseconds);
    }
    let count = rounds.len().max(1) as f64;
    row.put("grace_periods", grace_periods.len() as f64, 0);
    let cpu: Duration = rounds.iter().map(|round| round.grace_periods.cpu).sum();
    row.put("cpu_us_per_gp", cpu.as_secs_f64() * 1e6 / grace_periods.len().max(1) as f64, 3);
    row.put("deletes_per_s", delays.len() as f64 / (round_s * count), 3);
    let lookups = rounds.iter().map(|round| round.lookups_per_s).sum::<f64>() / count;
    row.put("lookups_per_s", lookups, 0);
    let peak_pending = rounds.iter().map(|round| round.peak_pending).max().unwrap_or(0);
    row.put("peak_pending", peak_pending as f64, 0);
    row.put("peak_pending_bytes", (peak_pending * Element::bytes_with_body(0)) as f64, 0);
}
