//! The CPUs of the machine, those that this process may use, and pinning to them.

use rustix::thread::{CpuSet, Pid};

use crate::error::Stop;
use crate::machine::proc;

/// The CPUs that are online, in order.
pub fn online() -> Vec<usize> {
    proc::line("/sys/devices/system/cpu/online")
        .and_then(|list| parse_list(&list).ok())
        .unwrap_or_else(allowed)
}

/// The CPUs that the calling thread may run on, in order.
pub fn allowed() -> Vec<usize> {
    of(None).unwrap_or_else(|_| vec![0])
}

/// The CPUs that a thread may run on, in order.
pub(crate) fn of(thread: Option<Pid>) -> rustix::io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(thread)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Pins the calling thread to one CPU.
pub fn pin(cpu: usize) -> Result<(), String> {
    run_on(&[cpu])
}

/// Lets the calling thread, and those that it starts, run on any of these CPUs.
pub fn run_on(cpus: &[usize]) -> Result<(), String> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| format!("cannot run on CPU {}: {error}", format_list(cpus)))
}

/// Reads a list such as `0,2-5`, in the order given, as Linux writes them.
pub(crate) fn parse_list(list: &str) -> Result<Vec<usize>, String> {
    let number = |text: &str| {
        text.trim()
            .parse::<usize>()
            .ok()
            .filter(|&cpu| cpu < CpuSet::MAX_CPU)
            .ok_or_else(|| format!("'{list}' is not a list of CPUs such as 0,2-5"))
    };
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last {
            return Err(format!("'{part}' is not a range of CPUs: the first one is above the last"));
        }
        for cpu in first..=last {
            if cpus.contains(&cpu) {
                return Err(format!("CPU {cpu} is given twice in '{list}'"));
            }
            cpus.push(cpu);
        }
    }
    Ok(cpus)
}

/// Writes a list of CPUs as Linux does: `0-3,8`.
pub fn format_list(cpus: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let texts: Vec<String> = runs
        .iter()
        .map(|&(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    texts.join(",")
}

/// The CPUs to measure on: those asked for, or else all that are allowed.
pub fn choose(asked: Option<&[usize]>) -> Result<Vec<usize>, Stop> {
    let (online, allowed) = (online(), allowed());
    let Some(asked) = asked else { return Ok(allowed) };
    for cpu in asked {
        if !online.contains(cpu) {
            let online = format_list(&online);
            return Err(Stop::usage(format!("CPU {cpu} does not exist: this machine has CPUs {online}")));
        }
        if !allowed.contains(cpu) {
            let allowed = format_list(&allowed);
            return Err(Stop::usage(format!(
                "this process may not use CPU {cpu}; it may use CPUs {allowed}"
            )));
        }
    }
    Ok(asked.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_linux_does() {
        assert_eq!(parse_list("0,2-5").unwrap(), [0, 2, 3, 4, 5]);
        assert_eq!(parse_list("3,1").unwrap(), [3, 1]);
        assert_eq!(format_list(&[0, 2, 3, 4, 5, 9]), "0,2-5,9");
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        for list in ["", "a", "0,", "5-2", "1,1", "0-2,1", "-1", "0-99999999"] {
            assert!(parse_list(list).is_err(), "{list:?} was accepted");
        }
    }

    #[test]
    fn a_pinned_thread_may_run_on_its_cpu_alone() {
        let cpu = *allowed().last().unwrap();
        std::thread::spawn(move || {
            pin(cpu).unwrap();
            assert_eq!(allowed(), [cpu]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_named() {
        let missing = online().last().unwrap() + 1;
        let message = choose(Some(&[missing])).unwrap_err().to_string();
        assert!(message.contains(&format!("CPU {missing} does not exist")), "{message}");
    }
}
