//! What readers lose when a writer synchronizes so many times a second, in the modes of the library.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use stillpoint::fence::Mode;
use stillpoint::rcu::Domain;

use super::Plan;
use super::measure::rounded;
use crate::gate::Gate;
use crate::interrupt;
use crate::machine::cpus;
use crate::output::json::Row;
use crate::stats::median;

/// Sections between two looks at the end: short beside a slice.
const BURST: u64 = 256;
/// A slice of these rows is so many times as long as one of barriers: what is looked for are some percent.
const LONGER: u32 = 6;

fn mode_of(name: &str) -> Option<Mode> {
    match name {
        "mode/asymmetric" => Some(Mode::Asymmetric),
        "mode/signals" => Some(Mode::Signals),
        "mode/symmetric" => Some(Mode::Symmetric),
        _ => None,
    }
}

/// Sections of all readers, and synchronizations, a second.
#[derive(Debug, Clone, Copy)]
struct Rates {
    sections: f64,
    synchronizations: f64,
}

pub(super) fn measure(plan: &Plan, per_second: u32) -> Result<Vec<Row>, String> {
    let modes: Vec<(&String, Mode)> =
        plan.contenders.iter().filter_map(|name| Some((name, mode_of(name)?))).collect();
    let mut rates: Vec<Vec<Rates>> = modes.iter().map(|_| Vec::new()).collect();
    for round in 0..plan.rounds as usize {
        for turn in 0..modes.len() {
            if interrupt::requested() {
                break;
            }
            let at = (turn + round) % modes.len();
            rates[at].push(slice(modes[at].1, per_second, plan)?);
        }
    }
    let row = |(&(name, _), rates): (&(&String, Mode), Vec<Rates>)| {
        let of = |value: fn(&Rates) -> f64| rounded(median(rates.iter().map(value).collect()).round());
        let wanted = if per_second == u32::MAX { "most".into() } else { Value::from(per_second) };
        let mut params = Map::new();
        params.insert("synchronize_per_s".to_owned(), wanted);
        params.insert("readers".to_owned(), places(plan).0.len().into());
        params.insert("rounds".to_owned(), rates.len().into());
        let mut metrics = Map::new();
        metrics.insert("sections_per_s".to_owned(), of(|rates| rates.sections));
        metrics.insert("synchronized_per_s".to_owned(), of(|rates| rates.synchronizations));
        Row {
            experiment: "membarrier".into(),
            scenario: "readers".to_owned(),
            contender: name.clone(),
            params,
            metrics,
            void: None,
        }
    };
    Ok(modes.iter().zip(rates).filter(|(_, rates)| !rates.is_empty()).map(row).collect())
}

/// Adds to each row how much its readers lose: against the same mode without a writer, and against the mode that uses the
/// system call at the same frequency.
pub(super) fn relate(rows: &mut [Row]) {
    let sections = |row: &Row| row.metric("sections_per_s");
    let alone: Vec<(String, f64)> = rows
        .iter()
        .filter(|row| row.scenario == "readers" && row.params["synchronize_per_s"] == 0)
        .filter_map(|row| Some((row.contender.clone(), sections(row)?)))
        .collect();
    let standard: Vec<(Value, f64)> = rows
        .iter()
        .filter(|row| row.contender == "mode/asymmetric")
        .filter_map(|row| Some((row.params["synchronize_per_s"].clone(), sections(row)?)))
        .collect();
    for row in rows.iter_mut().filter(|row| row.scenario == "readers") {
        let base = alone.iter().find(|(contender, _)| *contender == row.contender);
        if let Some((&(_, base), now)) = base.zip(sections(row)) {
            row.metrics.insert("reader_loss_percent".to_owned(), rounded((1.0 - now / base) * 100.0));
        }
        let base = standard.iter().find(|(frequency, _)| *frequency == row.params["synchronize_per_s"]);
        if let Some((&(_, base), now)) = base.zip(sections(row)) {
            row.metrics.insert("below_syscall_percent".to_owned(), rounded((1.0 - now / base) * 100.0));
        }
    }
}

/// The CPUs of the readers, and that of the writer: the last one, apart from them if there is more than one.
fn places(plan: &Plan) -> (&[usize], usize) {
    match plan.cpus.as_slice() {
        [readers @ .., writer] if !readers.is_empty() => (readers, *writer),
        all => (all, all.first().copied().unwrap_or_default()),
    }
}

/// A reader on each CPU, and a writer beside them.
fn slice(mode: Mode, per_second: u32, plan: &Plan) -> Result<Rates, String> {
    let domain = Domain::builder().fence(mode).build().map_err(|error| error.to_string())?;
    let cell = domain.cell(7u64);
    let (gate, done, sections) = (Gate::default(), AtomicBool::new(false), AtomicU64::new(0));
    let length = plan.slice * LONGER;
    let (readers, writer) = places(plan);
    let answer = thread::scope(|scope| {
        for &cpu in readers {
            let (domain, cell, gate, done, sections) = (&domain, &cell, &gate, &done, &sections);
            scope.spawn(move || {
                if cpus::pin(cpu).is_err() {
                    return gate.fail();
                }
                let reader = domain.reader();
                gate.pass();
                let mut own = 0;
                // Relaxed, both: a flag, and a sum that is read after the threads have ended.
                while !done.load(Ordering::Relaxed) {
                    for _ in 0..BURST {
                        black_box(cell.load(&reader.pin()));
                    }
                    own += BURST;
                }
                sections.fetch_add(own, Ordering::Relaxed);
            });
        }
        let is_whole = cpus::pin(writer).is_ok() && gate.gathered(readers.len());
        gate.open();
        let begin = Instant::now();
        let answer = if is_whole { synchronize(&domain, per_second, begin, length) } else { Ok(0) };
        let took = begin.elapsed().as_secs_f64();
        done.store(true, Ordering::Relaxed);
        Ok::<_, String>((answer?, took, is_whole))
    });
    let (synchronizations, took, is_whole) = answer?;
    if !is_whole {
        return Err("a thread could not be pinned".to_owned());
    }
    let sections = sections.into_inner() as f64 / took;
    Ok(Rates { sections, synchronizations: synchronizations as f64 / took })
}

/// Synchronizes at that rate, if it can be had, and sleeps in between. Returns how often.
fn synchronize(domain: &Domain, per_second: u32, begin: Instant, length: Duration) -> Result<u64, String> {
    if per_second == 0 {
        thread::sleep(length);
        return Ok(0);
    }
    let interval = Duration::from_secs(1) / per_second;
    let mut count = 0;
    while begin.elapsed() < length {
        domain.synchronize().map_err(|error| error.to_string())?;
        count += 1;
        if per_second != u32::MAX {
            let due = interval.mul_f64(count as f64);
            thread::sleep(due.saturating_sub(begin.elapsed()));
        }
    }
    Ok(count)
}
