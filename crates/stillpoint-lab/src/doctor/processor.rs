//! Cores, time stamp counter, and limits on CPU time.

use std::fs;
use std::path::Path;

use stillpoint_harness::machine::cpus::format_list;
use stillpoint_harness::machine::{Machine, load, proc};
use stillpoint_harness::output::format::hertz;

use crate::doctor::Finding;

/// From this load on, a measurement is disturbed.
const BUSY: f64 = 0.5;
/// From this share of stolen time on.
const STOLEN: f64 = 0.01;

pub(crate) fn findings(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![cores(machine), tsc(machine)];
    findings.extend(quota());
    let load = proc::line("/proc/loadavg").and_then(|line| line.split(' ').next()?.parse().ok());
    findings.extend(disturbances(load, load::steal()));
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
            "use a machine with two CPUs or more, or give this process more of them (taskset)",
        ),
        count @ 2..9 => Finding {
            cost: Some(format!(
                "the figures of the talk (docs/guide/published-works.md) go up to 8 cores; here own-core has room for {} of its readers, and spread uses {} CPUs",
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
            "nothing: compare nanoseconds",
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
            "its ticks are no measure of time when the clock rate changes",
            "compare nanoseconds, not cycles",
        )
    }
}

/// Other programs that compete for the CPUs, and a host that does.
pub(super) fn disturbances(load: Option<f64>, steal: Option<f64>) -> Vec<Finding> {
    let load = load.map(|load| {
        let found = format!("load {load:.2} over the last minute");
        if load < BUSY {
            return Finding::present("quiet CPUs", found);
        }
        Finding::absent(
            "quiet CPUs",
            found,
            "other programs run, and make figures worse than they should be",
            "end them, or keep them off the CPUs that you name with --cpus",
        )
    });
    let steal = steal.map(|share| {
        let found =
            format!("the host gave {:.1} % of the CPU time since the start to others (steal)", share * 100.0);
        if share < STOLEN {
            return Finding::present("undivided CPUs", found);
        }
        Finding::absent(
            "undivided CPUs",
            found,
            "the virtual CPUs are preempted, which delays readers and writers alike",
            "measure on a machine of your own or at another hour, and repeat runs",
        )
    });
    load.into_iter().chain(steal).collect()
}

/// The least limit of the control group of this process and of those around it, if any of them can be limited.
fn quota() -> Option<Finding> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let limit = |group: &Path| proc::line(format!("/sys/fs/cgroup{}/cpu.max", group.display()));
    least(Path::new(path).ancestors().filter_map(limit))
}

/// What lines of `cpu.max` say together.
fn least(limits: impl Iterator<Item = String>) -> Option<Finding> {
    let limits = limits
        .filter_map(|line| line.split_once(' ').map(|(quota, period)| (quota.to_owned(), period.to_owned())));
    let share = |(quota, period): &(String, String)| match (quota.parse::<f64>(), period.parse::<f64>()) {
        (Ok(quota), Ok(period)) => quota / period,
        _ => f64::INFINITY,
    };
    let (quota, period) = limits.min_by(|one, other| share(one).total_cmp(&share(other)))?;
    Some(match quota.as_str() {
        "max" => Finding::present("cpu quota", "none: no control group limits the CPU time"),
        quota => Finding::absent(
            "cpu quota",
            format!("the control group may run for {quota} µs in each {period} µs"),
            "once the quota is spent, all threads stop, which shows as delays of tens of milliseconds",
            "raise cpu.max of the control group, or run outside of it",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_quota_of_a_group_and_those_around_it_counts() {
        let told = |lines: &[&str]| {
            least(lines.iter().map(|&line| line.to_owned())).map(|finding| format!("{finding:?}"))
        };
        assert_eq!(told(&[]), None);
        assert!(told(&["max 100000", "max 100000"]).unwrap().contains("none: "));
        let found = told(&["max 100000", "150000 100000", "50000 200000", "400000 100000"]).unwrap();
        assert!(found.contains("for 50000 µs in each 200000 µs"), "{found}");
    }
}
