//! Which guests are run, and what they are asked to measure.

use std::time::Duration;

use stillpoint_harness::output::json::Row;

use super::contenders::CONTENDERS;
use super::lab::Ran;
use super::options::Options;
use super::wire::{Measured, Order};
use crate::experiment::asked_for;

/// Every virtual CPU can have a CPU of the host.
pub(super) const BASELINE: &str = "baseline";
/// Virtual CPUs share the host's CPUs with each other, or with threads of the host.
pub(super) const OVERCOMMIT: &str = "overcommit";

/// Slots of the readers' arrays: enough that lookups miss the nearest cache, and small for an emulated machine.
const ELEMENTS: usize = 1 << 14;
/// A virtual CPU for the writer and one for a reader.
const LEAST_VCPUS: usize = 2;
/// What QEMU's machine has room for.
const MOST_VCPUS: usize = 255;

/// One guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) vcpus: usize,
    pub(super) host_cpus: usize,
    /// Whether a thread of the host spins on each of its CPUs.
    pub(super) hogs: bool,
}

impl Setting {
    pub(super) fn scenario(&self) -> &'static str {
        if self.vcpus <= self.host_cpus && !self.hogs { BASELINE } else { OVERCOMMIT }
    }

    /// The number of threads that spin on the host.
    pub(super) fn hogs(&self) -> usize {
        if self.hogs { self.host_cpus } else { 0 }
    }

    /// The setting in words.
    pub(super) fn title(&self) -> String {
        let hogs = if self.hogs { ", each shared with a thread that spins" } else { "" };
        let Self { vcpus, host_cpus, .. } = self;
        format!("{}: {vcpus} virtual CPUs on {host_cpus} of the host{hogs}", self.scenario())
    }

    /// A row of the guest, with what the host knows.
    pub(super) fn row(&self, measured: Measured, ran: &Ran) -> Row {
        let Measured { contender, mut params, metrics, void } = measured;
        params.insert("vcpus".into(), self.vcpus.into());
        params.insert("host_cpus".into(), self.host_cpus.into());
        params.insert("hogs".into(), self.hogs().into());
        params.insert("accel".into(), ran.accel.into());
        params.insert("clock".into(), ran.clock.as_str().into());
        Row {
            experiment: "guest".into(),
            scenario: self.scenario().to_owned(),
            contender,
            params,
            metrics,
            void,
        }
    }
}

/// The guests to run on `host_cpus`: those with the numbers of virtual CPUs asked for, or else the baseline, the same
/// guest on CPUs that it shares, and guests with twice and four times as many virtual CPUs.
pub(super) fn choose(host_cpus: usize, asked: &[u16], quick: bool) -> Vec<Setting> {
    let setting = |vcpus, hogs| Setting { vcpus, host_cpus, hogs };
    if !asked.is_empty() {
        let mut asked = asked.to_vec();
        asked.sort_unstable();
        asked.dedup();
        return asked.iter().map(|&vcpus| setting(usize::from(vcpus), false)).collect();
    }
    let equal = setting(host_cpus, false);
    let (shared, double, four) =
        (setting(host_cpus, true), setting(host_cpus * 2, false), setting(host_cpus * 4, false));
    let mut settings = if quick { vec![equal, four] } else { vec![equal, shared, double, four] };
    // On one CPU there is no baseline: its only virtual CPU would have to read and to write.
    settings.retain(|setting| (LEAST_VCPUS..=MOST_VCPUS).contains(&setting.vcpus));
    settings
}

/// What each guest is asked for, and how long it will measure.
pub(super) fn order(options: &Options) -> (Order, Duration) {
    let length = &options.length;
    let usual = match (length.quick, length.full) {
        (true, _) => Duration::from_millis(900),
        (_, true) => Duration::from_secs(10),
        _ => Duration::from_millis(1_800),
    };
    let row = length.duration.unwrap_or(usual);
    let rounds = length.rounds.unwrap_or(if length.full { 5 } else { 3 });
    let order = Order {
        contenders: options.contenders.clone(),
        rounds,
        // Half of the time for delays, a quarter for grace periods, a quarter for fences.
        round_micros: u64::try_from((row / rounds / 2).as_micros()).unwrap_or(u64::MAX).max(1_000),
        elements: ELEMENTS,
        seed: options.seed,
    };
    let rows = CONTENDERS.iter().filter(|entry| asked_for(entry.name, &options.contenders)).count();
    (order, row * rows as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(settings: &[Setting]) -> Vec<(&'static str, usize, usize)> {
        settings.iter().map(|setting| (setting.scenario(), setting.vcpus, setting.hogs())).collect()
    }

    #[test]
    fn the_baseline_has_a_host_cpu_for_each_virtual_one() {
        assert_eq!(
            shape(&choose(2, &[], false)),
            [(BASELINE, 2, 0), (OVERCOMMIT, 2, 2), (OVERCOMMIT, 4, 0), (OVERCOMMIT, 8, 0)]
        );
        assert_eq!(shape(&choose(2, &[], true)), [(BASELINE, 2, 0), (OVERCOMMIT, 8, 0)]);
        assert_eq!(
            shape(&choose(4, &[5, 2, 4, 2], false)),
            [(BASELINE, 2, 0), (BASELINE, 4, 0), (OVERCOMMIT, 5, 0)]
        );
    }

    #[test]
    fn one_cpu_has_no_baseline() {
        assert_eq!(shape(&choose(1, &[], false)), [(OVERCOMMIT, 2, 0), (OVERCOMMIT, 4, 0)]);
        assert_eq!(shape(&choose(1, &[], true)), [(OVERCOMMIT, 4, 0)]);
        assert_eq!(shape(&choose(200, &[], false)), [(BASELINE, 200, 0), (OVERCOMMIT, 200, 200)]);
    }
}
