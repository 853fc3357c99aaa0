//! The measurement inside the guest: one reader on each virtual CPU but the last, the writer on that one.
//!
//! Whatever the host takes a virtual CPU away for happens to a reader, or to the writer, of its own. The rounds of the
//! contenders follow each other in rotated order, and all samples of a contender count, since what matters here is
//! rare.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use stillpoint_harness::experiment::rounds::in_turns;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::output::json::{number, rounded};
use stillpoint_harness::stats::Distribution;
use stillpoint_peers::{Delays, ReadJob};

use super::contenders::{Subject, make};
use super::wire::{Measured, Order};
use crate::experiment::readers::{beside_readers, mismatches};
use crate::reclaim::names::OWN_CORE;
use crate::reclaim::round::{self, Round};
use crate::reclaim::setting::Setting;

/// Between two waits the writer computes for this long, as between two deletes.
const PAUSE: Duration = Duration::from_micros(200);

/// What was seen of one contender in a round.
#[derive(Debug)]
struct Samples {
    delays: Vec<u64>,
    grace_periods: Vec<u64>,
    fences: Vec<u64>,
    lookups_per_s: f64,
    peak_pending: usize,
}

/// Measures what was ordered on the CPUs of this machine.
pub(super) fn run(order: &Order) -> Result<Vec<Measured>, String> {
    let cpus = cpus::allowed();
    let setting = setting(&cpus)?;
    let duration = Duration::from_micros(order.round_micros);
    let capacity = (duration.as_secs_f64() * f64::from(round::RATE)) as usize + 1024;
    let delays: &'static Delays = Box::leak(Box::new(Delays::new(capacity)));
    let subjects = make(&order.contenders, order.elements, setting.readers(), delays)?;
    if subjects.is_empty() {
        return Err("the program in the guest was built without these contenders".to_owned());
    }

    let rounds = in_turns(
        &subjects,
        order.rounds,
        |number| order.seed.wrapping_add(number as u64),
        |subject, &seed| {
            let policy = subject.entry.policy;
            let (elements, deletes_per_s) = (order.elements, round::RATE);
            let round = Round { policy, setting: &setting, elements, deletes_per_s, duration, seed, delays };
            measure(subject, &round)
        },
    );
    Ok(rounds.into_iter().map(|(subject, rounds)| measured(subject, &setting, order, rounds)).collect())
}

fn setting(cpus: &[usize]) -> Result<Setting, String> {
    match cpus.split_last() {
        Some((&writer_cpu, readers)) if !readers.is_empty() => Ok(Setting {
            scenario: OWN_CORE,
            reader_cpus: readers.to_vec(),
            writer_cpu,
            cores: readers.len(),
        }),
        _ => Err("one reader and one writer need 2 virtual CPUs".to_owned()),
    }
}

/// One round of one contender: delays of deletes, then waits for grace periods, then fences.
fn measure(subject: &Subject, round: &Round<'_>) -> Result<Samples, String> {
    let outcome = round::run(&**subject.contender, round)?;
    let half = round.duration / 2;
    let grace_periods = waits(subject, round, half, &|| subject.wait_for_readers())?;
    let fences = subject.fence().map_or(Ok(Vec::new()), |fence| waits(subject, round, half, &fence))?;
    Ok(Samples {
        delays: outcome.delays,
        grace_periods,
        fences,
        lookups_per_s: outcome.lookups_per_s,
        peak_pending: outcome.peak_pending,
    })
}

/// The time that each `wait` of the writer takes, in nanoseconds, while the readers read.
fn waits(
    subject: &Subject,
    round: &Round<'_>,
    duration: Duration,
    wait: &(dyn Fn() -> Result<(), String> + Sync),
) -> Result<Vec<u64>, String> {
    let Setting { reader_cpus, writer_cpu, .. } = round.setting;
    let read = |job: &ReadJob<'_>, ready: &dyn Fn()| Ok(subject.contender.read(job, ready));
    let (samples, outcomes) = beside_readers(reader_cpus, round.seed, read, |go| {
        if go() { write(*writer_cpu, duration, wait) } else { Ok(Vec::new()) }
    });
    if mismatches(&outcomes?) > 0 {
        return Err("a reader found an element that was freed".to_owned());
    }
    samples
}

/// Waits again and again on a thread of its own, as the calling one is not to be pinned.
fn write(
    cpu: usize,
    duration: Duration,
    wait: &(dyn Fn() -> Result<(), String> + Sync),
) -> Result<Vec<u64>, String> {
    thread::scope(|scope| {
        let writer = scope.spawn(|| cpus::pin(cpu).and_then(|()| repeat(duration, wait)));
        writer.join().unwrap_or_else(|_| Err("the writer panicked".to_owned()))
    })
}

fn repeat(duration: Duration, wait: &dyn Fn() -> Result<(), String>) -> Result<Vec<u64>, String> {
    let begin = Instant::now();
    let mut samples = Vec::new();
    loop {
        let before = Instant::now();
        wait()?;
        let after = Instant::now();
        samples.push((after - before).as_nanos() as u64);
        if begin.elapsed() >= duration {
            return Ok(samples);
        }
        while after.elapsed() < PAUSE {
            std::hint::spin_loop();
        }
    }
}

fn measured(
    subject: &Subject,
    setting: &Setting,
    order: &Order,
    rounds: Result<Vec<Samples>, String>,
) -> Measured {
    let mut params = Map::new();
    let round_s = order.round_micros as f64 / 1e6;
    params.insert("mode".into(), subject.entry.mode.into());
    params.insert("readers".into(), setting.readers().into());
    params.insert("policy".into(), subject.entry.policy.name().into());
    params.insert("elements".into(), order.elements.into());
    params.insert("rounds".into(), order.rounds.into());
    params.insert("round_s".into(), number(round_s));
    let (metrics, void) = match rounds {
        Ok(rounds) => (metrics(&rounds, round_s), None),
        Err(reason) => (Map::new(), Some(reason)),
    };
    Measured { contender: subject.entry.name.to_owned(), params, metrics, void }
}

fn metrics(rounds: &[Samples], round_s: f64) -> Map<String, Value> {
    let mut metrics = Map::new();
    let all = |of: fn(&Samples) -> &Vec<u64>| rounds.iter().flat_map(of).copied().collect::<Vec<u64>>();
    let (grace_periods, delays) = (all(|round| &round.grace_periods), all(|round| &round.delays));
    let fences = all(|round| &round.fences);
    for (name, nanoseconds) in [("gp", &grace_periods), ("delay", &delays), ("fence", &fences)] {
        let Some(of) = Distribution::of(nanoseconds) else { continue };
        for (figure, value) in [("mean", of.mean), ("p50", of.p50), ("p99", of.p99), ("max", of.max)] {
            metrics.insert(format!("{name}_us_{figure}"), rounded(value, 3));
        }
    }
    let count = rounds.len().max(1) as f64;
    metrics.insert("grace_periods".into(), grace_periods.len().into());
    metrics.insert("deletes_per_s".into(), rounded(delays.len() as f64 / (round_s * count), 3));
    let lookups = rounds.iter().map(|round| round.lookups_per_s).sum::<f64>() / count;
    metrics.insert("lookups_per_s".into(), number(lookups.round()));
    let peak_pending = rounds.iter().map(|round| round.peak_pending).max().unwrap_or(0);
    metrics.insert("peak_pending".into(), peak_pending.into());
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_has_a_row_with_all_its_metrics() {
        let order = Order { contenders: Vec::new(), rounds: 2, round_micros: 5_000, elements: 256, seed: 3 };
        if cpus::allowed().len() < 2 {
            assert!(run(&order).unwrap_err().contains("2 virtual CPUs"));
            return;
        }
        let rows = run(&order).unwrap();
        assert!(rows.len() >= 6, "{rows:?}");
        for row in rows {
            assert_eq!(row.void, None, "{row:?}");
            for name in ["gp_us_mean", "gp_us_max", "delay_us_mean", "delay_us_p99", "lookups_per_s"] {
                assert!(row.metrics[name].as_f64().is_some_and(|value| value > 0.0), "{name}: {row:?}");
            }
            assert_eq!(row.metrics.contains_key("fence_us_mean"), row.contender == "stillpoint/protected");
        }
    }

    #[test]
    fn a_contender_that_is_not_built_in_is_an_error() {
        let contenders = vec!["nobody".to_owned()];
        let order = Order { contenders, rounds: 1, round_micros: 1_000, elements: 256, seed: 3 };
        if cpus::allowed().len() >= 2 {
            assert!(run(&order).unwrap_err().contains("without these contenders"));
        }
    }

    #[test]
    fn one_cpu_is_too_few() {
        assert!(setting(&[0]).is_err() && setting(&[]).is_err());
        let setting = setting(&[0, 1, 2, 3]).unwrap();
        assert_eq!((setting.reader_cpus, setting.writer_cpu), (vec![0, 1, 2], 3));
    }
}
