//! Which guests are run, and what they are asked to measure.

use clap::ValueEnum;
use std::time::Duration;

use stillpoint_harness::output::json::{Row, number};

use super::contenders::{CONTENDERS, KERNEL, of_stores};
use super::density::Density;
use super::lab::Ran;
use super::options::Options;
use super::wire::{Bursts, Load, Measured, Measurement};
use crate::experiment::asked_for;
use crate::preempt::round::Moment;

/// Every virtual CPU can have a CPU of the host.
pub(super) const BASELINE: &str = "baseline";
/// Virtual CPUs share the host's CPUs with each other, or with threads of the host.
pub(super) const OVERCOMMIT: &str = "overcommit";

/// Slots of the readers' arrays: enough that lookups miss the nearest cache, and small for an emulated machine.
const ELEMENTS: usize = 1 << 14;
/// A virtual CPU for the writer and one for a reader.
const LEAST_VCPUS: usize = 2;
/// The most virtual CPUs that QEMU's machine has room for.
const MOST_VCPUS: usize = 255;
/// Shorter rounds have hardly any grace periods.
const LEAST_ROUND: Duration = Duration::from_millis(2);
/// The time that a round of mail or memory takes beside its measured time, under emulation: for a process, and a
/// store that is filled and freed.
const STORE_OVERHEAD: Duration = Duration::from_secs(3);
/// Virtual CPUs of each guest, and CPUs of the host, where there are two guests.
const OF_TWO_GUESTS: usize = 2;

/// Rows of what went on over time.
pub(super) const OVER_TIME: &str = "over-time";

/// A load of a neighbour that comes and goes: each part lasts several time slices of the host's scheduler.
const BURSTS: Bursts = Bursts { busy: Duration::from_millis(200), idle: Duration::from_millis(200) };

/// One guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) vcpus: usize,
    pub(super) host_cpus: usize,
    /// Whether a thread of the host spins on each of its CPUs.
    pub(super) hogs: bool,
    pub(super) neighbour: Neighbour,
    /// If there are several such guests with a fixed memory.
    pub(super) density: Option<Density>,
}

/// A second guest on the same CPUs, with as many virtual ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Neighbour {
    None,
    /// It does nothing.
    Idle,
    /// It has a load that comes and goes.
    Bursts,
}

stillpoint_harness::named!(pub(super) Neighbour);

impl Neighbour {
    /// What it does, if it is there.
    pub(super) fn bursts(self) -> Option<Bursts> {
        match self {
            Self::None => None,
            Self::Idle => Some(Bursts { busy: Duration::ZERO, ..BURSTS }),
            Self::Bursts => Some(BURSTS),
        }
    }
}

impl Setting {
    pub(super) fn scenario(&self) -> &'static str {
        let shares = self.hogs || self.neighbour == Neighbour::Bursts;
        if self.vcpus * self.guests() <= self.host_cpus && !shares { BASELINE } else { OVERCOMMIT }
    }

    /// The number of guests that are measured at once.
    pub(super) fn guests(&self) -> usize {
        self.density.map_or(1, |density| density.guests)
    }

    /// The number of threads that spin on the host.
    pub(super) fn hogs(&self) -> usize {
        if self.hogs { self.host_cpus } else { 0 }
    }

    /// The setting in words.
    pub(super) fn title(&self) -> String {
        let hogs = if self.hogs { ", each shared with a thread that spins" } else { "" };
        let neighbour = match self.neighbour {
            Neighbour::None => "",
            Neighbour::Idle => ", beside an idle guest",
            Neighbour::Bursts => ", beside a guest whose load comes and goes",
        };
        let density = self.density.map_or_else(String::new, |Density { guests, contender }| {
            format!(", {contender} in {guests} at once")
        });
        let Self { vcpus, host_cpus, .. } = self;
        format!(
            "{}: {vcpus} virtual CPUs on {host_cpus} of the host{hogs}{neighbour}{density}",
            self.scenario()
        )
    }

    /// The rows of what was measured in the guest: its own, and one for each moment of its course.
    pub(super) fn rows(&self, Measured { row, course }: Measured, ran: &Ran) -> Vec<Row> {
        let row = self.row(row, ran);
        let moment = |moment: &Moment| {
            let second = (moment.second * 1e3).round() / 1e3;
            let mut at = Row::new("guest", OVER_TIME, row.contender.clone());
            for name in ["workload", "mode", "accel"] {
                at.params.extend(row.params.get(name).map(|value| (name.to_owned(), value.clone())));
            }
            let mut at = at.with("guest", short(&row)).with("second", number(second));
            if let Some(delay) = moment.delay_us_max {
                at.put("delay_us_max", delay, 3);
            }
            at.put("pending_bytes", moment.pending_bytes as f64, 0);
            at
        };
        let moments: Vec<Row> = course.iter().map(moment).collect();
        [row].into_iter().chain(moments).collect()
    }

    /// A row of the guest, with what the host knows.
    fn row(&self, row: Row, ran: &Ran) -> Row {
        let row = match self.density {
            Some(density) => row.with("guests", density.guests).with("memory_mib", density.memory()),
            None => row,
        };
        Row { scenario: self.scenario().to_owned(), ..row }
            .with("vcpus", self.vcpus)
            .with("host_cpus", self.host_cpus)
            .with("hogs", self.hogs())
            .with("neighbour", self.neighbour.name())
            .with("accel", ran.accel.as_str())
            .with("clock", ran.clock.as_str())
    }
}

/// The guest of a row in a few characters.
pub(super) fn short(row: &Row) -> String {
    let hogs = if row.params["hogs"] == 0 { "" } else { ", shared" };
    let neighbour = match row.params["neighbour"].as_str() {
        Some("idle") => ", idle neighbour",
        Some("bursts") => ", neighbour",
        _ => "",
    };
    format!("{} on {}{hogs}{neighbour}", row.params["vcpus"], row.params["host_cpus"])
}

/// The guests to run on `host_cpus`: those with the numbers of virtual CPUs asked for, or else the baseline, the same
/// guest on CPUs that it shares, and guests with twice and four times as many virtual CPUs.
pub(super) fn choose(host_cpus: usize, asked: &[u16], quick: bool) -> Vec<Setting> {
    let setting = |vcpus, hogs| Setting { vcpus, host_cpus, hogs, neighbour: Neighbour::None, density: None };
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

/// The CPUs of the host for two guests, and the settings: the measured one without the other, beside it while it is idle, and
/// beside it under a load that comes and goes.
pub(super) fn of_two_guests(host_cpus: &[usize]) -> (Vec<usize>, Vec<Setting>) {
    let host_cpus: Vec<usize> = host_cpus.iter().copied().take(OF_TWO_GUESTS).collect();
    let alone = choose(host_cpus.len(), &[OF_TWO_GUESTS as u16], false);
    let beside = |neighbour| Setting { neighbour, ..alone[0].clone() };
    let settings = [Neighbour::None, Neighbour::Idle, Neighbour::Bursts].map(beside);
    (host_cpus, settings.to_vec())
}

/// What each guest is asked for, and how long it will measure.
pub(super) fn order(options: &Options) -> (Measurement, Duration) {
    let length = &options.length;
    let row = length.duration.unwrap_or_else(|| {
        length.pick(Duration::from_millis(900), Duration::from_millis(1_800), Duration::from_secs(10))
    });
    let rounds = length.rounds_or(3, 3, 5);
    let usual: &[Load] =
        if options.density { &[Load::Memory] } else { &[Load::Deletes, Load::Mail, Load::Kernel] };
    let full = if options.density { usual } else { &[Load::Deletes, Load::Mail, Load::Memory, Load::Kernel] };
    let order = Measurement {
        contenders: options.contenders.clone(),
        loads: length.asked_or(&options.workloads, usual, full),
        short: length.quick && !options.density,
        rounds,
        round: (row / rounds).max(LEAST_ROUND),
        elements: ELEMENTS,
        seed: options.seed,
    };
    let rows_of = |load: &Load| match load {
        Load::Deletes => CONTENDERS.iter().filter(|entry| asked_for(entry.name, &options.contenders)).count(),
        Load::Mail | Load::Memory | Load::Swap | Load::Balloon => {
            of_stores(&options.contenders, order.short).len()
        }
        Load::Kernel | Load::Postmark => usize::from(asked_for(KERNEL, &options.contenders)),
    };
    let time_of = |load: &Load| {
        let of_rows = match load {
            Load::Mail | Load::Memory | Load::Swap | Load::Balloon => {
                (order.round + STORE_OVERHEAD) * order.store_rounds()
            }
            Load::Deletes | Load::Kernel => order.round * rounds,
            Load::Postmark => order.round * rounds + STORE_OVERHEAD,
        };
        of_rows * rows_of(load) as u32
    };
    let measured = order.loads.iter().map(time_of).sum();
    (order, measured)
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

    #[test]
    fn two_guests_have_two_virtual_cpus_each_on_the_same_cpus() {
        let (cpus, settings) = of_two_guests(&[3, 5, 7]);
        assert_eq!(cpus, [3, 5]);
        assert_eq!(shape(&settings), [(BASELINE, 2, 0), (BASELINE, 2, 0), (OVERCOMMIT, 2, 0)]);
        let names = settings.iter().map(|setting| setting.neighbour.name()).collect::<Vec<_>>();
        assert_eq!(names, ["none", "idle", "bursts"]);
        assert!(Neighbour::Idle.bursts().is_some_and(|bursts| bursts.busy.is_zero()));
        let (cpus, settings) = of_two_guests(&[3]);
        assert_eq!((cpus.len(), settings[0].scenario()), (1, OVERCOMMIT), "there is no baseline on one CPU");
    }
}
