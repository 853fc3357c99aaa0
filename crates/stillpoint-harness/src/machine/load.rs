//! The load of the CPUs that are measured on.

use std::fs;
use std::time::Duration;

/// The time that CPUs were busy since the machine started: with this process, with others, or with the host.
///
/// The kernel counts it in ticks, usually of 10 ms, so it is useful only over hundreds of milliseconds.
pub(crate) fn busy(cpus: &[usize]) -> Option<Duration> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks = cpus.iter().map(|&cpu| busy_ticks(&text, cpu)).sum::<Option<u64>>()?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// The time that a CPU had nothing to run since the machine started.
///
/// The kernel counts it in ticks, too, but takes the time of an idle CPU from the clock. So for an idle CPU it is
/// exact.
pub fn idle(cpu: usize) -> Option<Duration> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let [_busy, idle] = ticks(&text, cpu)?;
    Some(Duration::from_secs_f64(idle as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// The ticks of one CPU, except those in which it was idle or waited for a disk.
fn busy_ticks(stat: &str, cpu: usize) -> Option<u64> {
    let [busy, _idle] = ticks(stat, cpu)?;
    Some(busy)
}

/// The ticks of one CPU: busy, and idle or waiting for a disk.
fn ticks(stat: &str, cpu: usize) -> Option<[u64; 2]> {
    let name = format!("cpu{cpu}");
    let mut fields = stat.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        (fields.next() == Some(name.as_str())).then_some(fields)
    })?;
    // user nice system idle iowait irq softirq steal; the guests that follow are part of user.
    let mut next = || fields.next()?.parse::<u64>().ok();
    let (user, nice, system) = (next()?, next()?, next()?);
    let (idle, iowait) = (next()?, next()?);
    let (irq, softirq, steal) = (next()?, next()?, next().unwrap_or(0));
    Some([user + nice + system + irq + softirq + steal, idle + iowait])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_does_not_count() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 1 2 3 1000 1000 4 5 6 77 88\ncpu10 7 0 0 0 0 0 0 0 0 0\n";
        assert_eq!((busy_ticks(stat, 1), ticks(stat, 1)), (Some(21), Some([21, 2000])));
        assert_eq!(busy_ticks(stat, 10), Some(7));
        assert_eq!(busy_ticks(stat, 2), None);
    }
}
