//! Parameters from measurements.
//!
//! The measurements are the times of the system call that interrupts other CPUs, for several numbers of CPUs. Two
//! numbers follow from them: the time of the call itself, and a factor for everything that passes between CPUs. The
//! measurements do not show how much of the latter is due to the sender, the wire and the receiver. So the times of
//! these three keep the proportions of the machine that is scaled.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};
use serde_json::{Map, Value};
use stillpoint_harness::error::Stop;
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::{self as here, cpus, proc};
use stillpoint_harness::output;
use stillpoint_harness::output::json::{self, Row, number};
use stillpoint_harness::stats::median;

use super::contender;
use super::experiment;
use super::machine::{Machine, Times, Topology};

/// The scenario of the rows that this program has measured.
pub(super) const MEASURED: &str = "measured";
const SYSTEM_CALL: &str = "syscall";
/// The experiments whose rows can calibrate a machine.
const KNOWN: [&str; 2] = ["membarrier", "simulate"];
const METRIC: &str = "latency_us_p50";
/// Barriers for each number of receivers.
const BARRIERS: usize = 2000;
/// Numbers of receivers that are measured, at most.
const MOST_POINTS: usize = 12;
/// If the model is off by more than this share at any point, it does not describe the machine.
const FARTHEST: f64 = 0.5;

/// A number of receivers, and the median latency in nanoseconds.
type Point = (usize, f64);

/// The machine that this program runs on, the machine that it was scaled from, and the measured rows.
///
/// # Errors
/// If there is only one CPU, or membarrier is refused.
pub(super) fn here(found: &here::Machine) -> Result<(Machine, &'static str, Vec<Row>), Stop> {
    let base = if found.virtual_machine { "kvm" } else { "seed" };
    let mut machine = Machine::load(base)?;
    machine.name.clone_from(&found.model);
    machine.topology = topology(&found.cpus_allowed);
    if machine.cpus() < 2 {
        return Err(Stop::usage(
            "this process may use only one CPU, so it cannot interrupt another: --machine this needs two",
        ));
    }
    let points = measure(&found.cpus_allowed)?;
    let rows = points.iter().map(|&(receivers, nanoseconds)| {
        let us = (nanoseconds / 10.0).round() / 100.0;
        Row {
            experiment: "simulate".into(),
            scenario: MEASURED.to_owned(),
            contender: SYSTEM_CALL.to_owned(),
            params: Map::from_iter([("receivers".to_owned(), receivers.into())]),
            metrics: Map::from_iter([(METRIC.to_owned(), number(us))]),
            void: None,
        }
    });
    Ok((fit(&machine, &points)?, base, rows.collect()))
}

/// The machine, scaled to the rows in a file.
///
/// # Errors
/// When the file cannot be read, or has too few such rows.
pub(super) fn from_file(machine: &Machine, file: &Path) -> Result<Machine, Stop> {
    let refused = |reason: String| Stop::usage(format!("{}: {reason}", file.display()));
    let text = fs::read_to_string(file)
        .map_err(|error| Stop::usage(format!("cannot read {}: {error}", file.display())))?;
    let result: Value = serde_json::from_str(&text).map_err(|error| refused(json::not_ours(&error)))?;
    let points = points(&result).map_err(refused)?;
    fit(machine, &points).map_err(|stop| refused(stop.to_string()))
}

/// The points in a result of this program.
fn points(result: &Value) -> Result<Vec<Point>, String> {
    let rows =
        result["rows"].as_array().ok_or("it has no list `rows`, so it is not a result of this program")?;
    let experiments: BTreeSet<&str> = rows.iter().filter_map(|row| row["experiment"].as_str()).collect();
    if !rows.is_empty() && !KNOWN.iter().any(|known| experiments.contains(known)) {
        let found: Vec<&str> = experiments.into_iter().collect();
        return Err(format!(
            "its rows are of {}: it takes the JSON of `bench membarrier`, or of `simulate membarrier --machine this`",
            if found.is_empty() { "no experiment".to_owned() } else { found.join(", ") }
        ));
    }
    let cpus = result["machine"]["cpus_allowed"].as_array().map_or(0, Vec::len);
    let of_call = |row: &&Value| {
        row["contender"] == SYSTEM_CALL && (row["scenario"] == "receivers" || row["scenario"] == MEASURED)
    };
    let mut points: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for row in rows.iter().filter(of_call) {
        let Some(receivers) = interrupted(&row["params"], cpus)? else { continue };
        let latency = &row["metrics"][METRIC];
        let latency = latency
            .as_f64()
            .filter(|us| us.is_finite() && *us > 0.0)
            .ok_or_else(|| format!("metrics.{METRIC} is {latency}, not a time"))?;
        points.entry(receivers).or_default().push(latency * 1e3);
    }
    Ok(points.into_iter().map(|(receivers, latencies)| (receivers, median(latencies))).collect())
}

/// How many CPUs a row interrupted. If no parameter says so, it is one for each spinning thread, and none if the
/// threads sleep. `None` if threads share CPUs: then the number is unknown.
fn interrupted(params: &Value, cpus: usize) -> Result<Option<usize>, String> {
    let count = |name: &str| {
        let count = &params[name];
        let number = count.as_u64().and_then(|count| usize::try_from(count).ok());
        number.ok_or_else(|| format!("params.{name} is {count}, not a number of CPUs"))
    };
    if params.get("threads").is_none() || params.get("receivers").is_some() {
        return count("receivers").map(Some);
    }
    let threads = count("threads")?;
    Ok(match params["state"].as_str() {
        Some("spinning") if threads < cpus => Some(threads),
        Some("paused") => Some(0),
        _ => None,
    })
}

/// The usual cause of a bad fit, and what to do.
const BUSY: &str = "If other programs ran during the measurement, repeat it without them";

/// The machine with the call's own time, and the factor for the rest, that fit best by least squares.
fn fit(machine: &Machine, points: &[Point]) -> Result<Machine, Stop> {
    let (least, most) = match (points.first(), points.last()) {
        (Some(first), Some(last)) if first.0 != last.0 => (first, last),
        _ => {
            return Err(Stop::usage(format!(
                "it needs rows of {SYSTEM_CALL} with at least two numbers of receivers, and has {} (threads count as \
                receivers if they spin, and leave a CPU to the initiator)",
                points.len()
            )));
        }
    };
    if let Some(point) = points.iter().find(|point| point.0 >= machine.cpus()) {
        return Err(Stop::usage(format!(
            "{} receivers were measured, and {} has only {} CPUs: take a larger --machine",
            point.0,
            machine.name,
            machine.cpus()
        )));
    }
    let (system_call, factor) =
        solve(&points.iter().map(|&point| Equation::of(machine, point)).collect::<Vec<_>>());
    if interrupt::requested() {
        return Err(Stop::Failed("interrupted".to_owned()));
    }
    if factor.is_nan() || factor <= 0.0 {
        return Err(Stop::usage(format!(
            "the times do not grow with the receivers: {:.2} µs for {}, {:.2} µs for {}. {BUSY}",
            least.1 / 1e3,
            least.0,
            most.1 / 1e3,
            most.0
        )));
    }
    let scaled = Times { system_call, ..machine.nanoseconds.scaled(factor) };
    let fitted = Machine { nanoseconds: scaled, ..machine.clone() };
    fitted.check().map_err(|reason| Stop::usage(format!("the times fit no machine: {reason}. {BUSY}")))?;
    let apart = points
        .iter()
        .map(|&(receivers, time)| (model(&fitted, receivers) / time - 1.0).abs())
        .fold(0.0, f64::max);
    if apart > FARTHEST {
        return Err(Stop::usage(format!(
            "the model is up to {:.0} % from the points, and at most {:.0} % is allowed: take a --machine that is more \
            like the measured one. {BUSY}",
            apart * 100.0,
            FARTHEST * 100.0
        )));
    }
    output::tell(format!(
        "calibrated from {} points: the call takes {system_call:.0} ns, and everything between CPUs {factor:.2} times as long \
        as in the parameters; the model is at most {:.1} % from the points{}. Not measured, and unchanged: the \
        proportions between CPUs, the scan, noise, and what readers lose",
        points.len(),
        apart * 100.0,
        if points.len() > 2 { "" } else { ", as two points are always fitted exactly" }
    ));
    Ok(fitted)
}

/// The median latency of the kernel's way, without noise.
fn model(machine: &Machine, receivers: usize) -> f64 {
    let Some(flat) = contender::find(super::rows::BASE) else { return f64::NAN };
    experiment::receivers(&machine.noiseless(), flat, receivers, 1, 1).quantile(0.5)
}

/// The equation of a point: its time is `call` times that of the system call, plus `between` times the factor.
struct Equation {
    call: f64,
    between: f64,
    time: f64,
}

impl Equation {
    fn of(machine: &Machine, (receivers, time): Point) -> Self {
        let with = |nanoseconds: Times| model(&Machine { nanoseconds, ..machine.clone() }, receivers);
        let times = machine.nanoseconds;
        // Nothing passes between CPUs here. A call takes longer on a core that is shared.
        let scan = with(Times { system_call: 0.0, ..times.scaled(0.0) });
        let call = with(Times { system_call: 1.0, ..times.scaled(0.0) }) - scan;
        Self { call, between: with(times) - scan - call * times.system_call, time: time - scan }
    }
}

/// The two unknowns by least squares (the normal equations). A call cannot take less than no time: where a negative
/// time would fit best, it is 0, and only the factor is fitted.
fn solve(equations: &[Equation]) -> (f64, f64) {
    let sum = |of: fn(&Equation) -> f64| equations.iter().map(of).sum::<f64>();
    let (aa, ab, bb) =
        (sum(|e| e.call * e.call), sum(|e| e.call * e.between), sum(|e| e.between * e.between));
    let (at, bt) = (sum(|e| e.call * e.time), sum(|e| e.between * e.time));
    let determinant = aa * bb - ab * ab;
    let (call, factor) = ((at * bb - bt * ab) / determinant, (bt * aa - at * ab) / determinant);
    if call < 0.0 && factor > 0.0 { (0.0, bt / bb) } else { (call, factor) }
}

/// Times the system call while other CPUs run the process, for several numbers of CPUs.
fn measure(allowed: &[usize]) -> Result<Vec<Point>, Stop> {
    membarrier(MembarrierCommand::RegisterPrivateExpedited).map_err(refused)?;
    let others = allowed.len() - 1;
    let step = others.div_ceil(MOST_POINTS).max(1);
    let mut counts: Vec<usize> = (0..=others).step_by(step).collect();
    if counts.last() != Some(&others) {
        counts.push(others);
    }
    counts.into_iter().map(|count| Ok((count, one_point(allowed, count)?))).collect()
}

fn refused(error: rustix::io::Errno) -> Stop {
    Stop::usage(format!("cannot measure this machine, as membarrier is refused: {error}"))
}

fn one_point(allowed: &[usize], receivers: usize) -> Result<f64, Stop> {
    let (stop, running) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for &cpu in &allowed[1..=receivers] {
            let (stop, running) = (&stop, &running);
            scope.spawn(move || {
                // If the thread cannot be pinned, the measurement is only less exact.
                let _ = cpus::pin(cpu);
                // Relaxed, both: they order nothing.
                running.fetch_add(1, Ordering::Relaxed);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let initiator = scope.spawn(|| {
            let _ = cpus::pin(allowed[0]);
            while running.load(Ordering::Relaxed) < receivers {
                thread::yield_now();
            }
            let time = || {
                let begin = Instant::now();
                membarrier(MembarrierCommand::PrivateExpedited)?;
                Ok(begin.elapsed())
            };
            let times: Result<Vec<Duration>, rustix::io::Errno> = (0..BARRIERS).map(|_| time()).collect();
            stop.store(true, Ordering::Relaxed);
            times
        });
        let times = initiator.join().map_err(|_| Stop::Failed("the measuring thread panicked".to_owned()))?;
        let times = times.map_err(refused)?;
        Ok(median(times.into_iter().map(|time| time.as_nanos() as f64).collect()))
    })
}

/// The topology of this machine. If it is not regular, one socket of single-threaded cores.
fn topology(allowed: &[usize]) -> Topology {
    let place = |cpu: &usize| {
        let read = |file: &str| {
            proc::line(format!("/sys/devices/system/cpu/cpu{cpu}/topology/{file}"))?
                .trim()
                .parse::<usize>()
                .ok()
        };
        Some((read("physical_package_id")?, read("core_id")?))
    };
    let flat = Topology { sockets: 1, cores_per_socket: allowed.len(), threads_per_core: 1 };
    let Some(places) = allowed.iter().map(place).collect::<Option<Vec<_>>>() else { return flat };
    let (mut cores, mut sockets) = (places.clone(), places.iter().map(|place| place.0).collect::<Vec<_>>());
    cores.sort_unstable();
    cores.dedup();
    sockets.sort_unstable();
    sockets.dedup();
    let regular = Topology {
        sockets: sockets.len(),
        cores_per_socket: cores.len() / sockets.len(),
        threads_per_core: places.len() / cores.len(),
    };
    let all = regular.sockets * regular.cores_per_socket * regular.threads_per_core;
    if all == allowed.len() { regular } else { flat }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seed() -> Machine {
        Machine::load("seed").unwrap()
    }

    #[test]
    fn times_of_the_model_itself_give_its_parameters_back() {
        let machine = seed();
        let points: Vec<Point> = [1, 8, 64, 143].map(|count| (count, model(&machine, count))).to_vec();
        let found = fit(&machine, &points).unwrap().nanoseconds;
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6 * b.max(1.0);
        assert!(close(found.system_call, 200.0) && close(found.interrupt_send, 150.0), "{found:?}");
    }

    #[test]
    fn a_machine_that_is_three_times_as_slow_is_found_to_be() {
        let machine = seed();
        let slow = Machine { nanoseconds: machine.nanoseconds.scaled(3.0), ..machine.clone() };
        let points: Vec<Point> = [0, 2, 100].map(|count| (count, model(&slow, count))).to_vec();
        let found = fit(&machine, &points).unwrap().nanoseconds;
        assert!(
            (found.interrupt_send - 450.0).abs() < 1.0 && (found.atomic[2] - 660.0).abs() < 1.0,
            "{found:?}"
        );
    }

    #[test]
    fn where_the_call_would_take_less_than_no_time_the_factor_is_fitted_alone() {
        let equation = |between, time| Equation { call: 1.0, between, time };
        // By both unknowns: 2 * between - 1.
        let (call, factor) = solve(&[equation(1.0, 1.0), equation(2.0, 3.0), equation(3.0, 5.0)]);
        assert_eq!(call, 0.0);
        // The least squares of factor * between: 22 / 14.
        assert!((factor - 22.0 / 14.0).abs() < 1e-12, "{factor}");
        let (call, factor) = solve(&[equation(1.0, 3.0), equation(2.0, 5.0)]);
        assert!((call - 1.0).abs() < 1e-12 && (factor - 2.0).abs() < 1e-12, "{call} {factor}");
    }

    #[test]
    fn measurements_that_fit_no_machine_are_refused() {
        let refused = |points: &[Point], part: &str| {
            let message = fit(&seed(), points).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        };
        refused(&[], "at least two numbers of receivers, and has 0");
        refused(&[(4, 1e4)], "and has 1 (");
        refused(&[(1, 1e4), (100, 1e3)], "do not grow with the receivers: 10.00 µs for 1, 1.00 µs for 100");
        refused(&[(1, 1e3), (2, 1e5), (143, 1.1e5)], "% from the points");
        refused(&[(1, 1e3), (144, 1e5)], "has only 144 CPUs");
    }

    #[test]
    fn rows_of_the_system_call_are_taken_and_nonsense_is_named() {
        let row = |contender: &str, receivers: Value, latency: Value| {
            json!({"experiment": "membarrier", "scenario": "receivers", "contender": contender,
                   "params": {"receivers": receivers}, "metrics": {"latency_us_p50": latency}})
        };
        let good = json!({"rows": [row("syscall", json!(3), json!(5.5)), row("signal/tree", json!("x"), json!(1)),
                                   row("syscall", json!(1), json!(2)), row("syscall", json!(1), json!(4))]});
        assert_eq!(points(&good), Ok(vec![(1, 3000.0), (3, 5500.0)]));
        let bad = json!({"rows": [row("syscall", json!(-3), json!(5.5))]});
        assert!(points(&bad).unwrap_err().contains("params.receivers is -3"));
        let bad = json!({"rows": [row("syscall", json!(3), json!(null))]});
        assert!(points(&bad).unwrap_err().contains("metrics.latency_us_p50 is null"));
        assert!(points(&json!({})).unwrap_err().contains("rows"));
        let other = points(&json!({"rows": [{"experiment": "timer"}]})).unwrap_err();
        assert!(other.contains("of timer") && other.contains("bench membarrier"), "{other}");
        let row = json!({"experiment": "membarrier", "scenario": "receivers", "contender": "signal/tree"});
        assert_eq!(points(&json!({"rows": [row]})), Ok(Vec::new()), "`fit` says that there are too few");
    }

    #[test]
    fn threads_are_receivers_where_they_spin_on_cpus_of_their_own() {
        let row = |threads: usize, state: &str| {
            json!({"experiment": "membarrier", "scenario": "receivers", "contender": "syscall",
                   "metrics": {"latency_us_p50": threads},
                   "params": {"threads": threads, "initiators": 1, "state": state}})
        };
        let rows = json!([row(2, "spinning"), row(2, "paused"), row(3, "spinning"), row(4, "spinning")]);
        let result = json!({"machine": {"cpus_allowed": [0, 1, 2, 3]}, "rows": rows});
        assert_eq!(
            points(&result),
            Ok(vec![(0, 2000.0), (2, 2000.0), (3, 3000.0)]),
            "sleeping threads count as interrupted"
        );
    }

    #[test]
    fn this_machine_has_as_many_cpus_as_it_allows() {
        let allowed = cpus::allowed();
        let Topology { sockets, cores_per_socket, threads_per_core } = topology(&allowed);
        assert_eq!(sockets * cores_per_socket * threads_per_core, allowed.len());
        assert_eq!(
            topology(&[100_000, 100_001]).cores_per_socket,
            2,
            "CPUs that do not exist count as single-threaded cores of one socket"
        );
    }
}
