//! The first process of the guest: mounts what it needs, measures, prints the results, and switches the machine off.
//!
//! It never returns in a guest: the kernel panics when the first process ends.

use std::fs;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};
use stillpoint_harness::error::Stop;
use stillpoint_harness::machine::{cpus, proc};

use super::evaluate::{self, Means};
use super::wire::{About, BEGIN, Bursts, Closing, END, ERROR, Measured, ORDER, Order, ROW, line};
use super::{density, hog, pressure};
use crate::preempt;
use crate::preempt::round::Outcome;

/// Where the kernel shows what it traces, if it has tracefs.
const TRACING: &str = "/sys/kernel/tracing";
/// How long a neighbour computes between two looks at the time.
const CHUNK: Duration = Duration::from_micros(50);

/// Runs the order of this guest.
///
/// # Errors
/// Outside a guest, where it does nothing.
pub(crate) fn run() -> Result<(), Stop> {
    let order = Path::new("/").join(ORDER);
    if std::process::id() != 1 || !order.is_file() {
        return Err(Stop::usage(
            "guest-init is for the virtual machines that `stillpoint guest` starts: it does nothing elsewhere",
        ));
    }
    let result = catch_unwind(AssertUnwindSafe(|| work(&order))).unwrap_or_else(|panic| Err(reason(&*panic)));
    match result {
        Ok(closing) => say(&line(END, &closing)),
        Err(reason) => say(&line(ERROR, &reason)),
    }
    // Output that is still on its way to the console would be lost with the machine.
    let _ = rustix::termios::tcdrain(io::stdout());
    reboot(RebootCommand::PowerOff)
        .map_err(|error| Stop::Failed(format!("the guest cannot be switched off: {error}")))
}

/// Measures, and prints the rows.
fn work(order: &Path) -> Result<Closing, String> {
    let system = [("proc", c"/proc"), ("sysfs", c"/sys"), ("devtmpfs", c"/dev")];
    for (kind, folder) in system {
        mount(kind, folder, kind, MountFlags::empty(), None)
            .map_err(|error| format!("cannot mount {kind} on {}: {error}", folder.to_string_lossy()))?;
    }
    // From here on the kernel prints only panics: other messages would end up inside our lines.
    fs::write("/proc/sys/kernel/printk", "1")
        .map_err(|error| format!("cannot silence the kernel: {error}"))?;
    let order = fs::read_to_string(order).map_err(|error| format!("cannot read the order: {error}"))?;
    let order: Order =
        serde_json::from_str(&order).map_err(|error| format!("cannot read the order: {error}"))?;
    say(&line(BEGIN, &about()));
    let begin = Instant::now();
    let order = match order {
        Order::Measure(order) => order,
        Order::Disturb(bursts) => return disturb(bursts),
    };
    // Without it, grace periods of the kernel's own RCU cannot be distinguished from calls.
    let traces = mount("tracefs", TRACING, "tracefs", MountFlags::empty(), None).is_ok();
    let tracing = traces.then_some(Path::new(TRACING));
    let rows: Vec<Measured> = evaluate::run(&order, Means { round, tracing })?;
    for row in &rows {
        say(&line(ROW, row));
    }
    Ok(Closing { rows: rows.len(), seconds: begin.elapsed().as_secs_f64() })
}

/// A round. Its error says whether the kernel has killed for want of memory meanwhile, by its own count: SIGKILL may have other reasons.
fn round(round: &preempt::Round) -> Result<Outcome, String> {
    let killed = || pressure::counted("oom_kill");
    let before = killed();
    preempt::child::run(round).map_err(|why| match (before, killed()) {
        (Ok(before), Ok(after)) if after > before => format!("{why}; {}", density::KILLED),
        _ => why,
    })
}

/// Computes on all virtual CPUs at the same time, and rests, until the machine is ended.
fn disturb(bursts: Bursts) -> Result<Closing, String> {
    let begin = Instant::now();
    hog::beside(&cpus::online(), &|| burst(bursts, begin.elapsed()), || -> Closing {
        loop {
            thread::park();
        }
    })
}

/// What one thread does `now`, for a moment or until the next burst.
fn burst(Bursts { busy, idle }: Bursts, now: Duration) {
    let nanos = (busy + idle).as_nanos().max(1);
    let in_turn = Duration::from_nanos(u64::try_from(now.as_nanos() % nanos).unwrap_or(0));
    if in_turn >= busy {
        return thread::sleep(busy + idle - in_turn);
    }
    let begin = Instant::now();
    while begin.elapsed() < CHUNK {
        std::hint::spin_loop();
    }
}

fn about() -> About {
    let clock = proc::line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    About {
        // The version names the model of preemption.
        kernel: format!(
            "Linux {} ({})",
            rustix::system::uname().release().to_string_lossy(),
            rustix::system::uname().version().to_string_lossy()
        ),
        vcpus: cpus::online().len(),
        clock: clock.unwrap_or_else(|| "unknown".to_owned()),
        peers: crate::peers::versions(),
    }
}

/// Prints one line on the console. A failure could be reported nowhere else.
fn say(line: &str) {
    let mut console = io::stdout().lock();
    // Begin a new line, whatever the kernel wrote before.
    let _ = writeln!(console, "\n{line}");
    let _ = console.flush();
}

fn reason(panic: &(dyn std::any::Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| Some(panic.downcast_ref::<String>()?.as_str()));
    format!("it panicked: {}", text.unwrap_or("without a message"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stillpoint_harness::experiment::threads::thread_cpu_time;

    #[test]
    fn a_neighbour_computes_in_its_bursts_and_sleeps_between_them() {
        let bursts = Bursts { busy: Duration::from_millis(10), idle: Duration::from_millis(30) };
        let cost = |now| {
            let (begin, before) = (Instant::now(), thread_cpu_time());
            burst(bursts, now);
            (thread_cpu_time() - before, begin.elapsed())
        };
        for turn in [0, 40, 80] {
            let (busy, _) = cost(Duration::from_millis(turn + 9));
            assert!(busy >= CHUNK / 2, "{busy:?}");
            let (busy, passed) = cost(Duration::from_millis(turn + 15));
            assert!(passed >= Duration::from_millis(25) && busy < passed / 4, "{busy:?} of {passed:?}");
        }
        let never = Bursts { busy: Duration::ZERO, idle: Duration::from_millis(5) };
        let before = thread_cpu_time();
        burst(never, Duration::ZERO);
        assert!(thread_cpu_time() - before < Duration::from_millis(4));
    }
}
