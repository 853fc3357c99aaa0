//! The RCU of the guest's own kernel, which is what the paper measured: the latency of `synchronize_rcu`.
//!
//! `membarrier(MEMBARRIER_CMD_GLOBAL)` calls it, where more than one CPU is online and none is `nohz_full`
//! (`kernel/sched/membarrier.c` of Linux). A call that finds a grace period running waits for the next one too, so the latency
//! of a call is not the length of a grace period. Grace periods are timed by a tracepoint, where the kernel has it, or by
//! probes at the two functions of its thread that begin and end one. System calls that read under RCU keep every virtual CPU
//! busy, since a grace period does not wait for idle CPUs.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};
use stillpoint_harness::experiment::threads::as_writer;
use stillpoint_harness::machine::{load, proc};
use stillpoint_harness::output::json::{Row, number};

use super::contenders::{KERNEL, NONE};
use super::deletes::put_samples;
use super::evaluate::places;
use super::hog;
use super::wire::{Load, Measured, Measurement};
use crate::experiment::asked_for;

/// If a virtual CPU was idle for a larger share of the time, grace periods ended early.
const MOST_IDLE: f64 = 0.2;

/// The measurements of a round.
#[derive(Debug)]
pub(super) struct Samples {
    /// How long each call took, in nanoseconds.
    calls: Vec<u64>,
    /// How long each grace period took, in nanoseconds.
    pub(super) graces: Vec<u64>,
    /// CPU time of the kernel's thread.
    cpu: Option<Duration>,
    /// The most memory that the kernel had for its own objects, in bytes, if that was watched.
    pub(super) slab: Option<u64>,
}

/// The beginning of a row of the kernel's RCU under a load.
pub(super) fn row(order: &Measurement, cpus: &[usize], load: Load, policy: &str, by: String) -> Row {
    Row::new("guest", "", KERNEL)
        .with("workload", load.name())
        .with("mode", NONE)
        .with("readers", cpus.len())
        .with("policy", policy)
        .with("grace_periods_by", by)
        .with("rounds", order.rounds)
        .with("round_s", number(order.round.as_secs_f64()))
}

/// Its row, if it was asked for.
pub(super) fn run(
    order: &Measurement,
    cpus: &[usize],
    tracing: Option<&Path>,
) -> Result<Vec<Measured>, String> {
    if !asked_for(KERNEL, &order.contenders) {
        return Ok(Vec::new());
    }
    let (_, caller) = places(cpus)?;
    let read = |path: &str| proc::line(path);
    let trace = Trace::open(tracing);
    let rounds = obstacle(membarrier_query(), read).map_or(Ok(()), Err).and_then(|()| {
        (0..order.rounds).map(|_| measure(cpus, caller, order.round, trace.as_ref().ok())).collect()
    });
    let row = row(order, cpus, Load::Kernel, "synchronize", by(&trace))
        .measured(rounds, |row, rounds: Vec<Samples>| figures(row, &rounds));
    Ok(vec![Measured::of(row)])
}

/// What times the grace periods, or why nothing does.
pub(super) fn by(trace: &Result<Trace<'_>, String>) -> String {
    match trace {
        Ok(trace) => trace.by.to_owned(),
        Err(reason) => format!("none: {reason}"),
    }
}

/// Why calls would not wait for normal grace periods, if that is so.
fn obstacle(commands: MembarrierQuery, read: impl Fn(&str) -> Option<String>) -> Option<String> {
    if !commands.contains_command(MembarrierCommand::Global) {
        return Some("the kernel has no membarrier(MEMBARRIER_CMD_GLOBAL), or a CPU is nohz_full".to_owned());
    }
    let command_line = read("/proc/cmdline").unwrap_or_default();
    let without_tick = read("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    if command_line.contains("nohz_full") || !["", "(null)"].contains(&without_tick.as_str()) {
        return Some(format!("a CPU is nohz_full: {without_tick}"));
    }
    let expedited = ["/sys/kernel/rcu_expedited", "/sys/module/rcupdate/parameters/rcu_expedited"]
        .map(|path| (path, read(path)));
    expedited.into_iter().find_map(|(path, value)| match value.as_deref() {
        Some("0") => None,
        Some(_) => Some(format!("grace periods are expedited, as {path} says")),
        None => Some(format!("{path} does not say whether grace periods are expedited")),
    })
}

/// Measures the calls of one thread for this long, while each CPU is busy.
fn measure(
    cpus: &[usize],
    caller: usize,
    duration: Duration,
    trace: Option<&Trace<'_>>,
) -> Result<Samples, String> {
    // The system call enters a read-side section of the kernel's RCU, and does little else.
    let read = || _ = rustix::process::getppid();
    let work = || hog::beside(cpus, &read, || as_writer(caller, || call_beside(cpus, duration)))?;
    let (calls, samples) = traced(trace, work)?;
    Ok(Samples { calls, ..samples })
}

/// Does the work, and measures the grace periods meanwhile.
pub(super) fn traced<T>(
    trace: Option<&Trace<'_>>,
    work: impl FnOnce() -> Result<T, String>,
) -> Result<(T, Samples), String> {
    trace.map_or(Ok(()), Trace::clear)?;
    let cpu_before = cpu_time();
    let done = work()?;
    let cpu = cpu_time().zip(cpu_before).map(|(now, before)| now.saturating_sub(before));
    let graces = trace.map_or(Ok(Vec::new()), Trace::graces)?;
    Ok((done, Samples { calls: Vec::new(), graces, cpu, slab: None }))
}

/// Calls repeatedly, while no CPU is idle; returns how long each call took, in nanoseconds.
fn call_beside(cpus: &[usize], duration: Duration) -> Result<Vec<u64>, String> {
    beside(cpus, || call(duration))
}

/// Does the work, and checks that no CPU was idle meanwhile.
pub(super) fn beside<T>(cpus: &[usize], work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let idle = || cpus.iter().map(|&cpu| load::idle(cpu)).collect::<Option<Vec<Duration>>>();
    let (begin, before) = (Instant::now(), idle());
    let done = work()?;
    let (elapsed, after) = (begin.elapsed(), idle());
    let (before, after) = before.zip(after).ok_or("/proc/stat does not say how long CPUs were idle")?;
    let idle: Vec<Duration> =
        before.iter().zip(after).map(|(&before, after)| after.saturating_sub(before)).collect();
    are_busy(&idle, elapsed).map(|()| done)
}

fn call(duration: Duration) -> Result<Vec<u64>, String> {
    let begin = Instant::now();
    let mut calls = Vec::new();
    loop {
        let before = Instant::now();
        membarrier(MembarrierCommand::Global).map_err(|error| format!("membarrier refused: {error}"))?;
        calls.push(before.elapsed().as_nanos() as u64);
        if begin.elapsed() >= duration {
            return Ok(calls);
        }
    }
}

/// Checks that CPUs with these idle times were busy for most of the time.
fn are_busy(idle: &[Duration], elapsed: Duration) -> Result<(), String> {
    let share = |idle: &Duration| idle.as_secs_f64() / elapsed.as_secs_f64();
    match idle.iter().map(share).fold(0.0, f64::max) {
        most if most > MOST_IDLE => {
            Err(format!("a virtual CPU was idle for {:.0} % of the time", most * 100.0))
        }
        _ => Ok(()),
    }
}

/// CPU time of the kernel's thread that runs grace periods; `None` where there is no such thread, or no such figure.
fn cpu_time() -> Option<Duration> {
    let thread = fs::read_dir("/proc").ok()?.flatten().find(|process| {
        let name = proc::line(process.path().join("comm"));
        name.is_some_and(|name| ["rcu_preempt", "rcu_sched"].contains(&name.as_str()))
    })?;
    let figures = proc::line(thread.path().join("schedstat"))?;
    Some(Duration::from_nanos(figures.split_whitespace().next()?.parse().ok()?))
}

pub(super) fn figures(row: &mut Row, rounds: &[Samples]) {
    let all = |of: fn(&Samples) -> &Vec<u64>| rounds.iter().flat_map(of).copied().collect::<Vec<u64>>();
    let (calls, graces) = (all(|round| &round.calls), all(|round| &round.graces));
    put_samples(row, "synchronize_rcu", &calls);
    put_samples(row, "gp", &graces);
    if !calls.is_empty() {
        row.put("calls", calls.len() as f64, 0);
    }
    if let Some(slab) = rounds.iter().filter_map(|round| round.slab).max() {
        row.put("slab_bytes_most", slab as f64, 0);
    }
    if graces.is_empty() {
        return;
    }
    row.put("grace_periods", graces.len() as f64, 0);
    if let Some(cpu) = rounds.iter().map(|round| round.cpu).sum::<Option<Duration>>() {
        row.put("cpu_us_per_gp", cpu.as_secs_f64() * 1e6 / graces.len() as f64, 3);
    }
}

/// The kernel's trace of its grace periods.
#[derive(Debug)]
pub(super) struct Trace<'a> {
    folder: &'a Path,
    /// What is traced, as in `params.grace_periods_by`.
    by: &'static str,
}

/// The event that some kernels have (`CONFIG_RCU_TRACE`).
const TRACEPOINT: &str = "rcu_grace_period";
/// Probes at the functions between which a grace period lies. Neither is inlined (`kernel/rcu/tree.c`).
const BEGIN: &str = "stillpoint_begin";
const END: &str = "stillpoint_end";

impl<'a> Trace<'a> {
    /// Begins to trace, with the clock that programs see.
    pub(super) fn open(folder: Option<&'a Path>) -> Result<Self, String> {
        let folder = folder.ok_or("tracefs cannot be mounted")?;
        let write = |name: &str, text: &str| {
            fs::write(folder.join(name), text)
                .map_err(|error| format!("cannot write {name} of tracefs: {error}"))
        };
        let enable = |group: &str| write(&format!("events/{group}/enable"), "1");
        if !folder.join("trace").exists() {
            return Err("the kernel has no tracefs".to_owned());
        }
        write("trace_clock", "mono")?;
        let by = if folder.join("events/rcu").join(TRACEPOINT).exists() {
            enable(&format!("rcu/{TRACEPOINT}")).map(|()| "tracepoint")
        } else {
            let probes = format!("p:stillpoint/{BEGIN} rcu_gp_init\nr:stillpoint/{END} rcu_gp_cleanup\n");
            write("kprobe_events", &probes)
                .and_then(|()| enable("stillpoint"))
                .map(|()| "kprobes")
                .map_err(|error| format!("the kernel has no event {TRACEPOINT}, and no kprobes: {error}"))
        }?;
        write("tracing_on", "1")?;
        Ok(Self { folder, by })
    }

    fn clear(&self) -> Result<(), String> {
        fs::write(self.folder.join("trace"), "").map_err(|error| format!("cannot clear the trace: {error}"))
    }

    /// How long each grace period took that began and ended since it was cleared, in nanoseconds.
    fn graces(&self) -> Result<Vec<u64>, String> {
        let text = fs::read_to_string(self.folder.join("trace"))
            .map_err(|error| format!("cannot read the trace: {error}"))?;
        Ok(graces(&text))
    }
}

/// The kernel refuses new probes while the old ones are in use.
impl Drop for Trace<'_> {
    fn drop(&mut self) {
        // If it fails, the next trace cannot be opened, and says so.
        let _ = fs::write(self.folder.join("events/enable"), "0");
    }
}

fn graces(trace: &str) -> Vec<u64> {
    let (mut began, mut graces) = (None, Vec::new());
    for (second, begins) in trace.lines().filter_map(event) {
        if begins {
            // The function that begins one returns early if there is nothing to do: its last call counts.
            began = Some(second);
        } else if let Some(began) = began.take() {
            graces.push(((second - began) * 1e9).round() as u64);
        }
    }
    graces
}

/// The time of a line of the trace in seconds, and whether a grace period begins there; `None` for any other line.
fn event(line: &str) -> Option<(f64, bool)> {
    // `thread-number [CPU] flags time: event: what it says`
    let (head, said) = line.split_once(": ")?;
    let second: f64 = head.split_whitespace().last()?.parse().ok()?;
    let (event, said) = said.split_once(':')?;
    match (event.trim(), said.split_whitespace().last()) {
        (BEGIN, _) | (TRACEPOINT, Some("start")) => Some((second, true)),
        (END, _) | (TRACEPOINT, Some("end")) => Some((second, false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stillpoint_harness::machine::cpus;

    #[test]
    fn grace_periods_lie_between_their_events() {
        let kprobes = "# tracer: nop\n#\n\
            \x20    rcu_preempt-15      [001] .....     3.500000: stillpoint_end: (rcu_gp_kthread+0x1b8/0x220 <- rcu_gp_cleanup)\n\
            \x20    rcu_preempt-15      [001] .....     4.000000: stillpoint_begin: (rcu_gp_init+0x0/0x480)\n\
            \x20    rcu_preempt-15      [001] .....     4.100000: stillpoint_begin: (rcu_gp_init+0x0/0x480)\n\
            \x20    rcu_preempt-15      [000] .....     4.112000: stillpoint_end: (rcu_gp_kthread+0x1b8/0x220 <- rcu_gp_cleanup)\n\
            \x20    rcu_preempt-15      [000] .....     5.000000: stillpoint_begin: (rcu_gp_init+0x0/0x480)\n";
        assert_eq!(graces(kprobes), [12_000_000]);
        let tracepoint = "\
            \x20 rcu_preempt-15 [001] d..1. 7.000100: rcu_grace_period: rcu_preempt 2345 start\n\
            \x20 <idle>-0       [000] d.h1. 7.001000: rcu_grace_period: rcu_preempt 2345 cpustart\n\
            \x20 a: start-77    [000] d.h1. 7.002000: rcu_utilization: Start scheduler-tick\n\
            \x20 rcu_preempt-15 [001] d..1. 7.004100: rcu_grace_period: rcu_preempt 2345 end\n";
        assert_eq!(graces(tracepoint), [4_000_000]);
        assert!(graces("").is_empty());
    }

    #[test]
    fn what_would_make_a_call_something_else_is_found() {
        let commands = membarrier_query();
        if !commands.contains_command(MembarrierCommand::Global) {
            return assert!(obstacle(commands, |_| None).is_some());
        }
        let with = |path: &'static str, value: Option<&'static str>| {
            obstacle(commands, move |asked: &str| match asked {
                asked if asked == path => value.map(str::to_owned),
                "/proc/cmdline" => Some("console=ttyS0".to_owned()),
                "/sys/devices/system/cpu/nohz_full" => Some("(null)".to_owned()),
                _ => Some("0".to_owned()),
            })
        };
        assert_eq!(with("", None), None);
        assert_eq!(with("/sys/devices/system/cpu/nohz_full", Some("")), None);
        for (path, value, why) in [
            ("/proc/cmdline", Some("quiet nohz_full=1"), "nohz_full"),
            ("/sys/devices/system/cpu/nohz_full", Some("1-3"), "nohz_full: 1-3"),
            ("/sys/kernel/rcu_expedited", Some("1"), "are expedited"),
            ("/sys/kernel/rcu_expedited", None, "does not say"),
            ("/sys/module/rcupdate/parameters/rcu_expedited", Some("1"), "are expedited"),
        ] {
            assert!(with(path, value).is_some_and(|reason| reason.contains(why)), "{path}");
        }
    }

    #[test]
    fn a_cpu_that_was_idle_is_noticed() {
        let ms = Duration::from_millis;
        assert_eq!(are_busy(&[ms(10), ms(0)], ms(100)), Ok(()));
        assert!(are_busy(&[ms(10), ms(90)], ms(100)).unwrap_err().contains("idle for 90 % of the time"));
        assert!(load::idle(cpus::allowed()[0]).is_some());
    }

    #[test]
    fn a_kernel_without_a_trace_says_so() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Trace::open(Some(folder.path())).unwrap_err().contains("no tracefs"));
        fs::write(folder.path().join("trace"), "").unwrap();
        let without = Trace::open(Some(folder.path())).unwrap_err();
        assert!(without.contains("no event rcu_grace_period, and no kprobes"), "{without}");
    }
}
