//! Inside the virtual machine, beside the module's own tests: the library, with the module as its back end; and `bench
//! membarrier` with the module loaded, as a user would start it: what its readers and its barriers did. Only counts are
//! checked: times in the guest mean nothing.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;
use stillpoint::fence::{self, Mode};
use stillpoint::rcu::Domain;
use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::control::contender;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::output::say;
use stillpoint_multicast::{Share, Strategy};

use crate::device::{self, Device, PERCENT, THRESHOLD, Way};

/// Turns of a loop that the slow side stays inside.
const STAY: u32 = 200;
/// The value of an object while it is alive, and after its destructor.
const ALIVE: u32 = 0x5711_a11f;
const DEAD: u32 = 0xdead_0bed;

/// The arguments of the hidden command.
#[derive(Debug, Args)]
pub struct Inside {
    /// How long each of the two parts takes
    #[arg(default_value_t = 1.0, value_parser = super::parse_seconds)]
    seconds: f64,

    /// How the module sends; if left out, runs the scenarios `readers`, `receivers` and `initiators` of `bench
    /// membarrier` in each of the module's ways
    #[arg(value_parser = parse_way)]
    way: Option<Way>,
}

fn parse_way(text: &str) -> Result<Way, String> {
    Way::ALL.into_iter().find(|way| way.name() == text).ok_or_else(|| "not a way of the module".to_owned())
}

/// Checks, and prints what was done in one line, or in one for each way.
///
/// # Errors
/// When a check fails, or cannot be made.
pub fn run(inside: &Inside) -> Result<(), Stop> {
    let failed =
        |reason: String| Stop::Failed(format!("the test of the library on the module failed: {reason}"));
    device::take_over().map_err(failed)?;
    let Some(way) = inside.way else {
        return bench().map(|lines| lines.into_iter().for_each(say)).map_err(failed);
    };
    device::prefer(way);
    let device = Device::open().map_err(|error| failed(error.to_string()))?;
    let counted = || device.info().map(|info| info.operations).map_err(|error| failed(error.to_string()));
    let before = counted()?;
    let length = Duration::from_secs_f64(inside.seconds);
    let (entries, violations) = entrance(length).map_err(failed)?;
    let (freed, fences) = reclaim(length).map_err(failed)?;
    // Each entry of the slow side came behind a fence, and the domain has counted its own.
    let (operations, issued) = (counted()? - before, u64::from(entries) + fences);
    if operations < issued {
        return Err(failed(format!(
            "the module did only {operations} operations for at least {issued} fences"
        )));
    }
    drop(device);
    reopen().map_err(failed)?;
    say(format!(
        "{violations} violations in {entries} entries between light and heavy fences; {freed} objects freed behind guards \
         and protected loads, {fences} heavy fences of their domain"
    ));
    if violations > 0 || entries == 0 || freed == 0 || fences == 0 {
        return Err(failed("see the line above".to_owned()));
    }
    Ok(())
}

/// Fences in a process that knows the number of the device's file, but has no such file. The child of a `fork` may be such a process.
fn reopen() -> Result<(), String> {
    let mut closed = 0;
    for entry in fs::read_dir("/proc/self/fd").map_err(|error| error.to_string())?.flatten() {
        let is_device = fs::read_link(entry.path()).is_ok_and(|file| file == Path::new(device::DEVICE));
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|_| is_device) {
            // SAFETY: only the fences have this file, in a value that is never dropped.
            unsafe { rustix::io::close(number) };
            closed += 1;
        }
    }
    if closed != 1 {
        return Err(format!("the fences have {closed} open files of the device, not one"));
    }
    fence::heavy().map_err(|error| format!("after the file of the device was closed: {error}"))
}

/// Flags on separate cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Word(AtomicU32);

impl Word {
    // Relaxed, both: only the fences may order them, which is what is tested.
    fn set(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The litmus test of store buffering, as mutual exclusion of two sides: see `kernel/tests/check_litmus.c`. Returns how often
/// the slow side got inside, and how often the fast side was inside as well.
fn entrance(length: Duration) -> Result<(u32, u32), String> {
    let (fast, slow, inside) = (Word::default(), Word::default(), Word::default());
    let (there, done) = (Barrier::new(2), AtomicBool::new(false));
    let cpus = cpus::online();
    thread::scope(|scope| {
        scope.spawn(|| {
            // If pinning is refused, the sides meet less often.
            let _ = cpus::pin(cpus[cpus.len() / 2]);
            there.wait();
            // Relaxed: a flag; the thread is joined.
            while !done.load(Ordering::Relaxed) {
                fast.set(1);
                fence::light();
                if slow.get() == 0 {
                    inside.set(inside.get().wrapping_add(1));
                }
                compiler_fence(Ordering::SeqCst);
                fast.set(0);
                (0..12).for_each(|turn| _ = std::hint::black_box(turn));
            }
        });
        let _ = cpus::pin(cpus[0]);
        there.wait();
        let (mut entries, mut violations, begun) = (0, 0, Instant::now());
        let mut answer = Ok(());
        while answer.is_ok() && begun.elapsed() < length {
            slow.set(1);
            answer = fence::heavy().map_err(|error| error.to_string());
            if fast.get() == 0 {
                let before = inside.get();
                (0..STAY).for_each(|turn| _ = std::hint::black_box(turn));
                entries += 1;
                violations += u32::from(inside.get() != before);
            }
            compiler_fence(Ordering::SeqCst);
            slow.set(0);
        }
        done.store(true, Ordering::Relaxed);
        answer.map(|()| (entries, violations))
    })
}

/// The object in a cell.
struct Object(AtomicU32);

impl Drop for Object {
    fn drop(&mut self) {
        self.0.store(DEAD, Ordering::Relaxed);
    }
}

/// Frees objects beside readers on every CPU but the first. Returns the number of objects, and of fences.
fn reclaim(length: Duration) -> Result<(u64, u64), String> {
    let domain = Domain::new();
    if domain.fence_mode() != Mode::Asymmetric {
        return Err(format!("a domain is {}", domain.fence_mode()));
    }
    let make = || Object(AtomicU32::new(ALIVE));
    let (cell, done, dead) = (domain.cell(make()), AtomicBool::new(false), AtomicU32::new(0));
    let cpus = cpus::online();
    let there = Barrier::new(cpus.len());
    let freed = thread::scope(|scope| {
        for (number, &cpu) in cpus.iter().enumerate().skip(1) {
            let (domain, cell, done, dead, there) = (&domain, &cell, &done, &dead, &there);
            scope.spawn(move || {
                let _ = cpus::pin(cpu);
                let reader = domain.reader();
                there.wait();
                let look = |object: &Object| {
                    let alive = (0..100).all(|_| object.0.load(Ordering::Relaxed) == ALIVE);
                    dead.fetch_add((!alive).into(), Ordering::Relaxed);
                };
                while !done.load(Ordering::Relaxed) {
                    if number % 2 == 0 {
                        cell.load(&reader.pin()).map(look);
                    } else if let Some(object) = cell.protect(&reader) {
                        look(&object);
                    }
                }
            });
        }
        there.wait();
        let (mut reclaimer, mut freed, begun) = (domain.reclaimer(), 0, Instant::now());
        while begun.elapsed() < length {
            if let Some(old) = cell.swap(Some(Box::new(make()))) {
                // A full reclaimer leaves the object to the domain.
                drop(reclaimer.retire(old));
            }
            freed += reclaimer.poll() as u64;
        }
        done.store(true, Ordering::Relaxed);
        freed
    });
    match (dead.into_inner(), domain.stats().fence_error) {
        (0, None) => Ok((freed, domain.stats().heavy_fences)),
        (0, Some(error)) => Err(error.to_string()),
        (dead, _) => Err(format!("{dead} objects were destroyed while a reader held them")),
    }
}

/// Few settings, and short ones; each setting has some windows, however slow the machine is.
const ARGUMENTS: &str = "bench membarrier --scenarios readers,receivers,initiators --readers 4 --initiators 2 --quick \
                         --rounds 1 --duration 100ms --json --contenders module";

/// Runs it, and returns the counts of each way.
pub(super) fn bench() -> Result<Vec<String>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let done = Command::new(program)
        .args(ARGUMENTS.split_whitespace())
        .output()
        .map_err(|error| format!("bench membarrier: {error}"))?;
    if !done.status.success() {
        return Err(format!("bench membarrier: {}: {}", done.status, String::from_utf8_lossy(&done.stderr)));
    }
    let result: Value = serde_json::from_slice(&done.stdout).map_err(|error| error.to_string())?;
    let rows = result["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    Way::ALL.into_iter().map(|way| line(rows, way, cpus::online().len() as u32 - 1)).collect()
}

/// The counts of the rows of a way, on a machine with this many other CPUs.
fn line(rows: &[Value], way: Way, others: u32) -> Result<String, String> {
    let name = way.name();
    let full = format!("module/{name}");
    let of = |scenario| {
        let is_of = |row: &&Value| row["contender"].as_str().map(contender) == Some(&full);
        rows.iter().filter(is_of).filter(move |row| row["scenario"] == scenario)
    };
    let metric = |row: &Value, metric: &str| row["metrics"][metric].as_f64().unwrap_or(0.0);
    let (mut sections, mut synchronizations, mut fences, mut barriers) = (0.0, 0.0, 0.0, 0.0);
    let (mut interrupts, mut depths) = (0.0, 0.0);
    let mut count = 0;
    for row in of("readers") {
        let (read, done) = (metric(row, "sections"), metric(row, "synchronizations"));
        if read == 0.0 || (done > 0.0) != (row["params"]["synchronize_per_s"] != 0) {
            return Err(format!("readers: {name}: {read} sections beside {done} synchronizations: {row}"));
        }
        let own = metric(row, "module_barriers");
        sections += read;
        synchronizations += done;
        fences += metric(row, "heavy_fences");
        barriers += own;
        interrupts += own * metric(row, "interrupts_per_barrier");
        depths += own * metric(row, "barrier_depth");
        count += 1;
    }
    let (interrupts, depth) = (interrupts / barriers, depths / barriers);
    let deepest = f64::from(strategy(way).shape(others).depth);
    let timed = |scenario| of(scenario).filter(|row| metric(row, "latency_us_p50") > 0.0).count();
    let (receivers, initiators) = (timed("receivers"), timed("initiators"));
    let line = format!(
        "{name}: {sections} sections of readers beside {synchronizations} synchronizations in {count} rows, \
         {fences} heavy fences by {barriers} barriers of {interrupts:.2} interrupts and a depth of {depth:.2}; {full} in {receivers} rows of \
         receivers, {initiators} of initiators"
    );
    let is_whole = count > 0 && synchronizations > 0.0 && fences > 0.0 && barriers >= fences;
    let is_plausible = (0.0..=f64::from(others)).contains(&interrupts) && (0.0..=deepest).contains(&depth);
    // Of three receivers, one is reached through another.
    let is_deep = way != Way::Tree || others < 3 || depth > 1.0;
    let is_each = receivers > 0 && initiators > 0 && interrupts > 0.0 && depth > 0.0;
    if is_whole && is_plausible && is_deep && is_each { Ok(line) } else { Err(format!("readers: {line}")) }
}

fn strategy(way: Way) -> Strategy {
    match way {
        Way::SmpCall | Way::Flat => Strategy::Flat,
        Way::Tree => Strategy::Tree,
        Way::Split => Share::percent(PERCENT).map_or(Strategy::Flat, Strategy::Split),
        Way::Hybrid => Strategy::Hybrid(THRESHOLD),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Rows of the tree on 8 CPUs, as the bench writes them.
    fn rows() -> Vec<Value> {
        let readers = |contender: &str, asked: Value, sections: u64, done: u64, depth: f64| {
            let mut row = json!({
                "scenario": "readers", "contender": contender, "params": { "synchronize_per_s": asked },
                "metrics": { "sections": sections, "synchronizations": done },
            });
            if done > 0 {
                row["metrics"]["heavy_fences"] = json!(done / 2);
                row["metrics"]["module_barriers"] = json!(done);
                row["metrics"]["interrupts_per_barrier"] = json!(7.0);
                row["metrics"]["barrier_depth"] = json!(depth);
            }
            row
        };
        let timed = |scenario: &str| json!({ "scenario": scenario, "contender": "module/tree", "metrics": { "latency_us_p50": 3.5 } });
        vec![
            readers("module/tree", 0.into(), 1000, 0, 0.0),
            readers("module/tree", 1000.into(), 2000, 10, 3.0),
            readers("module/tree (again)", "most".into(), 3000, 30, 2.0),
            readers("module/flat", "most".into(), 9000, 90, 1.0),
            timed("receivers"),
            timed("initiators"),
        ]
    }

    #[test]
    fn the_rows_of_a_way_are_summed_up() {
        assert_eq!(
            line(&rows(), Way::Tree, 7).unwrap(),
            "tree: 6000 sections of readers beside 40 synchronizations in 3 rows, 20 heavy fences by 40 barriers of 7.00 \
             interrupts and a depth of 2.25; module/tree in 1 rows of receivers, 1 of initiators"
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |change: &dyn Fn(&mut Vec<Value>), part: &str| {
            let mut rows = rows();
            change(&mut rows);
            let reason = line(&rows, Way::Tree, 7).unwrap_err();
            assert!(reason.contains(part), "'{part}' is not in: {reason}");
        };
        refused(&|rows| rows.clear(), "in 0 rows");
        refused(&|rows| rows.truncate(5), "0 of initiators");
        refused(&|rows| rows[1]["metrics"]["sections"] = 0.into(), "0 sections");
        refused(&|rows| rows[1]["metrics"]["synchronizations"] = 0.into(), "0 synchronizations");
        refused(&|rows| rows[0]["metrics"]["synchronizations"] = 1.into(), "1 synchronizations");
        refused(&|rows| rows[2]["metrics"]["module_barriers"] = 9.into(), "20 heavy fences by 19 barriers");
        refused(
            &|rows| rows[1..3].iter_mut().for_each(|row| row["metrics"]["heavy_fences"] = 0.into()),
            "0 heavy fences",
        );
        refused(&|rows| rows[2]["metrics"]["interrupts_per_barrier"] = 17.into(), "interrupts");
        refused(&|rows| rows[2]["metrics"]["barrier_depth"] = 4.into(), "depth of 3.75");
        let flat = |row: &mut Value| row["metrics"]["barrier_depth"] = 1.into();
        refused(&|rows| rows[1..3].iter_mut().for_each(flat), "depth of 1.00");
        assert!(line(&rows(), Way::Split, 7).is_err(), "a way without a row was accepted");
    }
}
