//! Cores, time stamp counter, and limits on CPU time.

use std::fs;

use stillpoint_harness::machine::cpus::format_list;
use stillpoint_harness::machine::{Machine, proc};
use stillpoint_harness::output::format::hertz;

use crate::doctor::Finding;

pub(crate) fn findings(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![cores(machine), tsc(machine)];
    findings.extend(quota());
    findings
}

fn cores(machine: &Machine) -> Finding {
    let (online, allowed) = (&machine.cpus_online, &machine.cpus_allowed);
    let found = format!(
        "{} online ({}), {} open to this process ({})",
        online.len(),
        format_list(online),
        allowed.len(),
        format_list(allowed)
    );
    match allowed.len() {
        0 | 1 => Finding::absent(
            "cores",
            found,
            "with one CPU, only the scenario spread can run: the writer has no CPU apart from the readers",
        ),
        count @ 2..9 => Finding {
            cost: Some(format!(
                "the talk's figures go up to 8 cores; here own-core has room for {} of its readers, and spread uses {} CPUs",
                count - 1,
                1 << count.ilog2(),
            )),
            ..Finding::present("cores", found)
        },
        _ => Finding::present("cores", found),
    }
}

fn tsc(machine: &Machine) -> Finding {
    let Some(hz) = machine.tsc_hz else {
        return Finding::absent(
            "tsc",
            format!("not used on {}", machine.arch),
            "costs are given only in nanoseconds of the system's clock",
        );
    };
    let source = proc::line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let source = source.unwrap_or_else(|| "unknown".to_owned());
    let found = format!("{}, clock source {source}", hertz(hz));
    if machine.tsc_invariant {
        Finding::present("tsc", format!("invariant (constant_tsc, nonstop_tsc), {found}"))
    } else {
        Finding::absent(
            "tsc",
            format!("not invariant, {found}"),
            "its ticks are no measure of time when the clock rate changes: use nanoseconds only",
        )
    }
}

/// The limit of the control group, if this process is in one that has a limit.
fn quota() -> Option<Finding> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let limit = proc::line(format!("/sys/fs/cgroup{path}/cpu.max"))?;
    let (quota, period) = limit.split_once(' ')?;
    Some(match quota {
        "max" => Finding::present("cpu quota", "none: the control group does not limit CPU time"),
        quota => Finding::absent(
            "cpu quota",
            format!("the control group may run for {quota} µs in each {period} µs"),
            "once the quota is spent, all threads stop, which shows as delays of tens of milliseconds",
        ),
    })
}
