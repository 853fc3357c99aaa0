//! What a pace of heavy fences costs readers, and how late objects are freed. The writer retires objects at a set
//! rate, and polls all the time. In one row it retires without a pause; another one has only the fence, at the rate of the others.

use std::cell::RefCell;
use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stillpoint::fence::{self, Mode};
use stillpoint::rcu::Domain;
use stillpoint_harness::experiment::control::{contender, with_control};
use stillpoint_harness::experiment::rounds::in_turns;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::stats::{Distribution, median};

use super::Plan;
use super::readers::{WINDOW, Windows, put_loss, slice};

/// Objects retired a second, or fences.
const PER_SECOND: u32 = 10_000;
/// Of the objects that are retired without a pause, one in this number is timed.
const TIMED: usize = 64;
/// How long a writer without a pause waits for room at most. While a reader is preempted, it fills any queue.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
enum Pace {
    /// Only fences.
    Fence,
    /// Retirements by a reclaimer with this time between two fences.
    Interval(Duration),
    /// The same, with the default interval, and without a pause between two retirements.
    Busy,
}

fn pace_of(name: &str) -> Option<Pace> {
    Some(match contender(name) {
        "pace/fence" => Pace::Fence,
        "pace/0us" => Pace::Interval(Duration::ZERO),
        "pace/50us" => Pace::Interval(DEFAULT),
        "pace/200us" => Pace::Interval(Duration::from_micros(200)),
        "pace/1000us" => Pace::Interval(Duration::from_millis(1)),
        "pace/busy" => Pace::Busy,
        _ => return None,
    })
}

const DEFAULT: Duration = Duration::from_micros(50);

thread_local! {
    /// The writer's measurements, in nanoseconds: each from unlink to free, or the length of a fence.
    static TIMES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Nanoseconds since the first call.
fn now() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Records how late it is freed.
#[derive(Default)]
struct Object {
    unlinked: AtomicU64,
}

impl Drop for Object {
    fn drop(&mut self) {
        // Relaxed: the same thread stored it. An object that was never unlinked is not measured.
        let unlinked = self.unlinked.load(Ordering::Relaxed);
        if unlinked > 0 {
            TIMES.with_borrow_mut(|times| times.push(now() - unlinked));
        }
    }
}

/// The windows of a round, and the writer's measurements in it.
type Slice = (Windows, Vec<u64>);

pub(super) fn measure(plan: &Plan) -> Result<Vec<Row>, String> {
    let names = plan.contenders.iter().filter(|name| pace_of(name).is_some());
    let names = with_control(names.cloned().collect());
    let measure = |name: &String, (): &()| {
        let pace = pace_of(name).ok_or("not a pace")?;
        TIMES.take(); // a round that failed may have left some
        let windows = slice(Mode::Asymmetric, plan, |domain, begin| match pace {
            Pace::Interval(interval) => retire(domain, interval, begin),
            Pace::Busy => retire_busily(domain, begin),
            Pace::Fence => fences(begin),
        })?;
        Ok::<_, String>((windows, TIMES.take()))
    };
    let row = |(name, slices): (&String, Result<Vec<Slice>, String>)| {
        let (mut windows, mut times) = (Windows::default(), Vec::new());
        for (more, delays) in slices? {
            windows.extend(more);
            times.extend(delays);
        }
        let mut row = Row::new("membarrier", "paces", name.as_str());
        if !matches!(pace_of(name), Some(Pace::Busy)) {
            row = row.with("retired_per_s", PER_SECOND);
        }
        let mut row = row.with("rounds", plan.rounds).with("windows", windows.kept.len());
        if let Some(times) = Distribution::of(&times) {
            row.put("delay_us_p50", times.p50, 3);
            row.put("delay_us_p99", times.p99, 3);
        }
        row.put("fences_per_s", median(windows.synchronizations), 0);
        put_loss(&mut row, windows.kept);
        Ok(row)
    };
    in_turns(&names, plan.rounds, |_| (), measure).into_iter().map(row).collect()
}

/// Calls `work` at the rate for a window, and `between` all the time. Stops early if `work` fails.
fn at_rate(
    begin: Instant,
    mut work: impl FnMut() -> Result<(), String>,
    mut between: impl FnMut(),
) -> Result<(), String> {
    let interval = Duration::from_secs(1) / PER_SECOND;
    let mut due = Duration::ZERO;
    loop {
        let elapsed = begin.elapsed();
        if elapsed >= WINDOW {
            return Ok(());
        }
        if elapsed >= due {
            // Overdue work is left out: a writer that catches up would measure a burst.
            due = elapsed.max(due + interval);
            work()?;
        }
        between();
    }
}

/// Returns the number of heavy fences.
fn retire(domain: &Domain, interval: Duration, begin: Instant) -> Result<u64, String> {
    let before = domain.stats().heavy_fences;
    let cell = domain.cell(Object::default());
    let reclaimer = RefCell::new(domain.reclaimer_builder().fence_interval(interval).build());
    at_rate(
        begin,
        || {
            let old = cell.replace(Object::default()).ok_or("the cell is never empty")?;
            // Relaxed: read by the same thread.
            old.unlinked.store(now(), Ordering::Relaxed);
            reclaimer.borrow_mut().retire(old).map_err(|error| error.to_string())
        },
        || {
            reclaimer.borrow_mut().poll();
        },
    )?;
    let fences = domain.stats().heavy_fences - before;
    reclaimer.borrow_mut().flush().map_err(|error| error.to_string())?;
    Ok(fences)
}

/// As [`retire`], without a pause.
fn retire_busily(domain: &Domain, begin: Instant) -> Result<u64, String> {
    let before = domain.stats().heavy_fences;
    let cell = domain.cell(Object::default());
    let mut reclaimer = domain.reclaimer_builder().fence_interval(DEFAULT).build();
    while begin.elapsed() < WINDOW {
        for number in 0..TIMED {
            let old = cell.replace(Object::default()).ok_or("the cell is never empty")?;
            if number == 0 {
                // Relaxed: read by the same thread.
                old.unlinked.store(now(), Ordering::Relaxed);
            }
            reclaimer.retire_timeout(old, LONGEST_WAIT).map_err(|error| error.to_string())?;
        }
        reclaimer.poll();
    }
    let fences = domain.stats().heavy_fences - before;
    reclaimer.flush().map_err(|error| error.to_string())?;
    Ok(fences)
}

fn fences(begin: Instant) -> Result<u64, String> {
    let mut count = 0;
    let fence = || {
        let start = now();
        fence::heavy().map_err(|error| error.to_string())?;
        TIMES.with_borrow_mut(|times| times.push(now() - start));
        count += 1;
        Ok(())
    };
    at_rate(begin, fence, spin_loop)?;
    Ok(count)
}
