//! The measurement inside the guest: one reader on each virtual CPU but the last, the writer on that one.
//!
//! Whatever the host takes a virtual CPU away for happens to a reader, or to the writer, of its own. The rounds of the
//! contenders follow each other in rotated order, and all samples of a contender count, since what matters here is
//! rare.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use stillpoint_harness::gate::Gate;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::output::json::number;
use stillpoint_harness::stats::Distribution;
use stillpoint_peers::{Delays, ReadJob, ReadOutcome};

use super::contenders::{Subject, make};
use super::wire::{Measured, Order};
use crate::experiment::readers;
use crate::reclaim::names::OWN_CORE;
use crate::reclaim::round::{self, Round};
use crate::reclaim::setting::Setting;

/// Between two waits the writer computes for this long, as between two deletes.
const PAUSE: Duration = Duration::from_micros(200);

/// All that was seen of one contender.
#[derive(Debug, Default)]
struct Samples {
    delays: Vec<u64>,
    grace_periods: Vec<u64>,
    fences: Vec<u64>,
    lookups_per_s: Vec<f64>,
    peak_pending: usize,
    rounds: u32,
    seconds: f64,
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

    let mut results: Vec<Result<Samples, String>> = subjects.iter().map(|_| Ok(Samples::default())).collect();
    for number in 0..order.rounds as usize {
        for turn in 0..subjects.len() {
            let at = (turn + number) % subjects.len();
            let (subject, seed) = (&subjects[at], order.seed.wrapping_add(number as u64));
            let round = Round {
                policy: subject.entry.policy,
                setting: &setting,
                elements: order.elements,
                duration,
                seed,
                delays,
            };
            // One bad round voids the row.
            if let Ok(mut samples) = std::mem::replace(&mut results[at], Err(String::new())) {
                results[at] = measure(subject, &round, &mut samples).map(|()| samples);
            }
        }
    }
    Ok(subjects
        .iter()
        .zip(results)
        .map(|(subject, result)| measured(subject, &setting, order, result))
        .collect())
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
fn measure(subject: &Subject, round: &Round<'_>, samples: &mut Samples) -> Result<(), String> {
    let outcome = round::run(&**subject.contender, round)?;
    samples.delays.extend(outcome.delays);
    samples.lookups_per_s.push(outcome.lookups_per_s);
    samples.peak_pending = samples.peak_pending.max(outcome.peak_pending);
    samples.rounds += 1;
    samples.seconds += round.duration.as_secs_f64();
    let half = round.duration / 2;
    samples.grace_periods.extend(waits(subject, round, half, &|| subject.wait_for_readers())?);
    if let Some(fence) = subject.fence() {
        samples.fences.extend(waits(subject, round, half, &fence)?);
    }
    Ok(())
}

/// The time that each `wait` of the writer takes, in nanoseconds, while the readers read.
fn waits(
    subject: &Subject,
    round: &Round<'_>,
    duration: Duration,
    wait: &(dyn Fn() -> Result<(), String> + Sync),
) -> Result<Vec<u64>, String> {
    let (gate, stop) = (Gate::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let reader_cpus = &round.setting.reader_cpus;
        let readers: Vec<_> = reader_cpus
            .iter()
            .enumerate()
            .map(|(index, &cpu)| {
                let job = ReadJob { index, seed: round.seed.wrapping_add(index as u64).max(1), stop: &stop };
                let gate = &gate;
                scope.spawn(move || {
                    readers::read(&job, cpu, gate, |job, ready| Ok(subject.contender.read(job, ready)))
                })
            })
            .collect();
        let ready = gate.gathered(readers.len());
        gate.open();
        let samples =
            if ready { write(scope, round.setting.writer_cpu, duration, wait) } else { Ok(Vec::new()) };
        // Relaxed: nothing is published with the flag; the joins order the rest.
        stop.store(true, Ordering::Relaxed);
        let outcomes: Vec<Result<ReadOutcome, String>> = readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|_| Err("a reader panicked".to_owned())))
            .collect();
        for outcome in outcomes {
            if outcome?.mismatches > 0 {
                return Err("a reader found an element that was freed".to_owned());
            }
        }
        samples
    })
}

/// Waits again and again on a thread of its own, as the calling one is not to be pinned.
fn write<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    cpu: usize,
    duration: Duration,
    wait: &'scope (dyn Fn() -> Result<(), String> + Sync),
) -> Result<Vec<u64>, String> {
    let writer = scope.spawn(move || {
        cpus::pin(cpu)?;
        repeat(duration, wait)
    });
    writer.join().unwrap_or_else(|_| Err("the writer panicked".to_owned()))
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
    result: Result<Samples, String>,
) -> Measured {
    let mut params = Map::new();
    params.insert("mode".into(), subject.entry.mode.into());
    params.insert("readers".into(), setting.readers().into());
    params.insert("policy".into(), subject.entry.policy.name().into());
    params.insert("elements".into(), order.elements.into());
    params.insert("rounds".into(), order.rounds.into());
    params.insert("round_s".into(), number(order.round_micros as f64 / 1e6));
    let (metrics, void) = match result {
        Ok(samples) => (metrics(&samples), None),
        Err(reason) => (Map::new(), Some(reason)),
    };
    Measured { contender: subject.entry.name.to_owned(), params, metrics, void }
}

fn metrics(samples: &Samples) -> Map<String, Value> {
    let mut metrics = Map::new();
    let rounded = |value: f64| number((value * 1e3).round() / 1e3);
    for (name, nanoseconds) in
        [("gp", &samples.grace_periods), ("delay", &samples.delays), ("fence", &samples.fences)]
    {
        let Some(of) = Distribution::of(nanoseconds) else { continue };
        for (figure, value) in [("mean", of.mean), ("p50", of.p50), ("p99", of.p99), ("max", of.max)] {
            metrics.insert(format!("{name}_us_{figure}"), rounded(value));
        }
    }
    metrics.insert("grace_periods".into(), samples.grace_periods.len().into());
    metrics.insert("deletes_per_s".into(), rounded(samples.delays.len() as f64 / samples.seconds));
    let lookups = samples.lookups_per_s.iter().sum::<f64>() / f64::from(samples.rounds.max(1));
    metrics.insert("lookups_per_s".into(), number(lookups.round()));
    metrics.insert("peak_pending".into(), samples.peak_pending.into());
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
