//! The load of the CPUs that are measured on.

use std::fs;
use std::time::Duration;

/// The time that CPUs were busy since the machine started: with this process, with others, or because the host ran
/// something else.
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

/// The share of the CPU time since the machine started that its host gave to others, by the kernel's count of steal time.
pub fn steal() -> Option<f64> {
    steal_share(&fs::read_to_string("/proc/stat").ok()?)
}

fn steal_share(stat: &str) -> Option<f64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // As in `ticks`.
    let fields: Vec<u64> = all.split_whitespace().take(8).filter_map(|field| field.parse().ok()).collect();
    let total: u64 = fields.iter().sum();
    (total > 0).then_some(*fields.get(7)? as f64 / total as f64)
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
    fn stolen_time_is_a_share_of_all_time() {
        assert_eq!(steal_share("cpu  10 10 10 50 10 0 5 5 77 88\ncpu0 1 1 1 1 1 1 1 100\n"), Some(0.05));
        assert_eq!(steal_share("cpu  10 10 10 50\n"), None, "an old kernel");
        assert!(steal().is_none_or(|share| (0.0..=1.0).contains(&share)));
    }

    #[test]
    fn idle_time_does_not_count() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 1 2 3 1000 1000 4 5 6 77 88\ncpu10 7 0 0 0 0 0 0 0 0 0\n";
        assert_eq!((busy_ticks(stat, 1), ticks(stat, 1)), (Some(21), Some([21, 2000])));
        assert_eq!(busy_ticks(stat, 10), Some(7));
        assert_eq!(busy_ticks(stat, 2), None);
    }
}
