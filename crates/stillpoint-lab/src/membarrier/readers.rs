//! What readers lose when a writer synchronizes at a given rate, in the modes of the library.
//!
//! Over seconds, the speed of readers drifts by more than the loss that is measured. So windows in which the writer
//! synchronizes alternate with windows in which it sleeps, with the same readers, and each of the former is compared with the
//! two around it.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use stillpoint::fence::Mode;
use stillpoint::rcu::Domain;
use stillpoint_harness::experiment::control::contender;
use stillpoint_harness::experiment::rounds::in_turns;
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::stats::median;
use stillpoint_multicast_lab::device::{self, Device, Info};
use stillpoint_peers::{ReadJob, ReadOutcome};

use super::Plan;
use super::barriers::way_of;
use crate::experiment::readers::beside_readers;

/// Sections between two looks at the end: short beside a slice.
const BURST: u64 = 256;
/// A slice of these rows is this many times as long as one of barriers, since a loss is only a few percent.
const LONGER: u32 = 6;
/// Long compared with an interrupt, and short compared with the drift of the readers' speed.
pub(super) const WINDOW: Duration = Duration::from_millis(20);
/// The fewest windows in a slice in which the writer works.
const LEAST: usize = 3;

/// The contender whose readers have fences of their own, so that no heavy fence is needed.
pub(super) const SYMMETRIC: &str = "symmetric";

/// The mode of the readers of a contender, if it takes part: the module's ways where the module is the back end, the others elsewhere.
pub(super) fn mode_of(name: &str, on_module: bool) -> Option<Mode> {
    match (contender(name), on_module) {
        ("syscall", false) => Some(Mode::Asymmetric),
        (SYMMETRIC, false) => Some(Mode::Symmetric),
        (name, true) => way_of(name).map(|_| Mode::Asymmetric),
        _ => None,
    }
}

/// The measurements of the windows of a slice.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Sections of all readers a second, while the writer synchronizes.
    pub(super) sections: Vec<f64>,
    /// The same, as a ratio to the mean of the windows before and after.
    pub(super) kept: Vec<f64>,
    /// Synchronizations, or fences, a second.
    pub(super) synchronizations: Vec<f64>,
    /// The counts of all windows in which the writer works.
    counts: Counts,
}

/// How often readers and writer did their work.
#[derive(Debug, Default)]
struct Counts {
    sections: u64,
    synchronizations: u64,
    /// Heavy fences of the domain: where readers report for themselves, fewer than synchronizations.
    fences: u64,
    /// The module's counters, where it is the back end; they include all its users.
    module: Info,
}

impl Counts {
    fn add(&mut self, more: &Self) {
        self.sections += more.sections;
        self.synchronizations += more.synchronizations;
        self.fences += more.fences;
        let (sum, more) = (&mut self.module, &more.module);
        sum.operations += more.operations;
        sum.interrupts += more.interrupts;
        sum.counted += more.counted;
        sum.depths += more.depths;
    }

    fn put(&self, row: &mut Row) {
        row.put("sections", self.sections as f64, 0);
        row.put("synchronizations", self.synchronizations as f64, 0);
        row.put("heavy_fences", self.fences as f64, 0);
        let module = &self.module;
        if module.operations > 0 {
            row.put("module_barriers", module.operations as f64, 0);
            row.put("interrupts_per_barrier", module.interrupts as f64 / module.operations as f64, 3);
        }
        // Counted when the module's parameter count_all is set.
        if module.counted > 0 {
            row.put("barrier_depth", module.depths as f64 / module.counted as f64, 3);
        }
    }
}

impl Windows {
    pub(super) fn extend(&mut self, more: Self) {
        self.sections.extend(more.sections);
        self.kept.extend(more.kept);
        self.synchronizations.extend(more.synchronizations);
        self.counts.add(&more.counts);
    }
}

pub(super) fn measure(plan: &Plan, names: &[String], per_second: u32) -> Result<Vec<Row>, String> {
    let modes: Vec<(&String, Mode)> =
        names.iter().filter_map(|name| Some((name, mode_of(name, plan.on_module)?))).collect();
    let work = |domain: &Domain, begin| synchronize(domain, per_second, begin);
    let slice = |&(name, mode): &(&String, Mode), _: &()| {
        let Some(way) = way_of(name) else { return slice(mode, plan, work) };
        device::prefer(way);
        let told = || Device::open().and_then(|device| device.info()).map_err(|error| error.to_string());
        let before = told()?;
        let mut windows = slice(mode, plan, work)?;
        let after = told()?;
        windows.counts.module = Info {
            operations: after.operations - before.operations,
            interrupts: after.interrupts - before.interrupts,
            counted: after.counted - before.counted,
            depths: after.depths - before.depths,
            ..after
        };
        Ok(windows)
    };
    let row = |(&(name, _), slices): (&(&String, Mode), Result<Vec<Windows>, String>)| {
        let mut windows = Windows::default();
        slices?.into_iter().for_each(|slice| windows.extend(slice));
        let wanted = if per_second == u32::MAX { "most".into() } else { Value::from(per_second) };
        let mut row = Row::new("membarrier", "readers", name)
            .with("synchronize_per_s", wanted)
            .with("readers", places(plan).0.len())
            .with("rounds", plan.rounds)
            .with("windows", windows.kept.len());
        row.put("sections_per_s", median(windows.sections), 0);
        row.put("synchronized_per_s", median(windows.synchronizations), 0);
        put_loss(&mut row, windows.kept);
        windows.counts.put(&mut row);
        Ok(row)
    };
    in_turns(&modes, plan.rounds, |_| (), slice).into_iter().map(row).collect()
}

/// Puts the share of sections that readers lose, given the share that they kept in each window.
pub(super) fn put_loss(row: &mut Row, kept: Vec<f64>) {
    let [least, middle, most] = quartiles(kept).map(|kept| (1.0 - kept) * 100.0);
    row.put("reader_loss_percent", middle, 3);
    row.put("reader_loss_percent_q1", most, 3);
    row.put("reader_loss_percent_q3", least, 3);
}

/// The first quartile, the median and the third one.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    [at(0.25), median(values.clone()), at(0.75)]
}

/// Adds to each row how much more its readers lose than those beside the system call, at the same frequency.
pub(super) fn relate(rows: &mut [Row]) {
    let kept = |row: &Row| Some(1.0 - row.metric("reader_loss_percent")? / 100.0);
    let standard: Vec<(Value, f64)> = rows
        .iter()
        .filter(|row| row.scenario == "readers" && row.contender == "syscall")
        .filter_map(|row| Some((row.params["synchronize_per_s"].clone(), kept(row)?)))
        .collect();
    for row in rows.iter_mut().filter(|row| row.scenario == "readers") {
        let base = standard.iter().find(|(frequency, _)| *frequency == row.params["synchronize_per_s"]);
        if let Some((&(_, base), now)) = base.zip(kept(row)) {
            row.put("below_syscall_percent", (1.0 - now / base) * 100.0, 3);
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

/// A count that only its reader writes.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLine(AtomicU64);

/// A reader on each CPU, and a writer beside them, which does its `work` for a window at a time and returns how often.
pub(super) fn slice(
    mode: Mode,
    plan: &Plan,
    work: impl Fn(&Domain, Instant) -> Result<u64, String>,
) -> Result<Windows, String> {
    let domain = Domain::builder().fence(mode).build().map_err(|error| error.to_string())?;
    let cell = domain.cell(7u64);
    let (cpus, writer) = places(plan);
    let sections: Vec<OwnLine> = cpus.iter().map(|_| OwnLine::default()).collect();
    let read = |job: &ReadJob<'_>, ready: &dyn Fn()| {
        let (done, sections) = (job.stop, &sections[job.index]);
        let reader = domain.reader();
        ready();
        let mut own = 0;
        // Relaxed, both: a flag, and a count that is sampled.
        while !done.load(Ordering::Relaxed) {
            for _ in 0..BURST {
                black_box(cell.load(&reader.pin()));
            }
            own += BURST;
            sections.0.store(own, Ordering::Relaxed);
        }
        Ok(ReadOutcome::default())
    };
    let (answer, readers) = beside_readers(cpus, 1, None, read, |go| {
        cpus::pin(writer)?;
        if !go() {
            return Ok(Windows::default());
        }
        // Relaxed: see above.
        let count = || sections.iter().map(|own| own.0.load(Ordering::Relaxed)).sum::<u64>();
        let mut windows = windows(plan.slice * LONGER, count, |begin| work(&domain, begin))?;
        windows.counts.fences = domain.stats().heavy_fences;
        Ok(windows)
    });
    readers.and(answer)
}

/// Windows without and with the writer's work in turn, the first and the last one without.
fn windows(
    length: Duration,
    count: impl Fn() -> u64,
    work: impl Fn(Instant) -> Result<u64, String>,
) -> Result<Windows, String> {
    let pairs = (length.as_secs_f64() / WINDOW.as_secs_f64() / 2.0) as usize;
    // What was done, and the time it took.
    let window = |works| {
        let (before, begin) = (count(), Instant::now());
        let synchronizations = if works { work(begin)? } else { rest() };
        let (sections, took) = (count() - before, begin.elapsed().as_secs_f64());
        Ok::<_, String>((Counts { sections, synchronizations, ..Counts::default() }, took))
    };
    let without = || window(false).map(|(done, took)| done.sections as f64 / took);
    let (mut windows, mut alone) = (Windows::default(), without()?);
    // On a busy machine the readers may get no CPU for a while.
    let is_idle = |sections: &[f64]| sections.is_empty() || median(sections.to_vec()) == 0.0;
    while (windows.kept.len() < pairs.max(LEAST) || is_idle(&windows.sections)) && !interrupt::requested() {
        let (done, took) = window(true)?;
        let after = without()?;
        if alone + after > 0.0 {
            let sections = done.sections as f64 / took;
            windows.sections.push(sections);
            windows.kept.push(sections / ((alone + after) / 2.0));
            windows.synchronizations.push(done.synchronizations as f64 / took);
            windows.counts.add(&done);
        }
        alone = after;
    }
    if windows.kept.is_empty() { Err("it was cut short".to_owned()) } else { Ok(windows) }
}

fn rest() -> u64 {
    thread::sleep(WINDOW);
    0
}

/// Synchronizes at this rate, if possible, and sleeps in between. Returns how often.
fn synchronize(domain: &Domain, per_second: u32, begin: Instant) -> Result<u64, String> {
    if per_second == 0 {
        return Ok(rest());
    }
    let interval = Duration::from_secs(1) / per_second;
    let mut count = 0;
    while begin.elapsed() < WINDOW {
        domain.synchronize().map_err(|error| error.to_string())?;
        count += 1;
        if per_second != u32::MAX {
            let due = interval.mul_f64(count as f64);
            thread::sleep(due.saturating_sub(begin.elapsed()));
        }
    }
    Ok(count)
}
