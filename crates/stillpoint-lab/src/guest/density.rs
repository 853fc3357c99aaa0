//! Density: several guests at once, which share CPUs and a fixed memory. Each runs the memory workload with the same contender. What is freed
//! late is missing in a guest, so fewer guests fit.

use std::io;
use std::path::Path;
use std::process::Command;

use stillpoint_harness::output::json::{Row, number};
use tempfile::NamedTempFile;

use super::console::Report;
use super::contenders::of_stores;
use super::lab::Ran;
use super::settings::{Setting, of_two_guests};
use super::wire::{About, Load, Measured};

/// The memory of all guests together, in MiB. With a quarter of it, Debian's kernel starts, and the load runs if it frees what it unlinks at
/// once: with 82 MiB, each load was killed.
const MEMORY: usize = 340;
/// The most guests at once.
const MOST_GUESTS: usize = 4;
/// The contenders unless others are asked for.
const CONTENDERS: [&str; 4] = ["stillpoint/protected", "stillpoint/guard", "liburcu/memb", "liburcu/qsbr"];
/// Why the row of a guest that ran out of memory does not count.
const OUT_OF_MEMORY: &str = "out of memory";
/// How the error of a round ends if the guest's kernel has killed a process for want of memory meanwhile.
pub(super) const KILLED: &str = "memory of the guest ran out";
/// The only figure of a row of which less is worse.
const CHANGES: &str = "changes_per_s";
/// The figures of a row.
const FIGURES: [&str; 5] = ["gp_us_mean", "gp_us_max", "cpu_us_per_gp", "peak_pending_bytes", CHANGES];

/// The guests of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Density {
    pub(super) guests: usize,
    /// Each contender has guests of its own: one whose memory runs out can take the others of its guest with it.
    pub(super) contender: &'static str,
}

/// The CPUs of the host, and the settings: each contender in one guest, then in two, and so on.
pub(super) fn settings(host_cpus: &[usize], asked: &[String]) -> (Vec<usize>, Vec<Setting>) {
    let (host_cpus, settings) = of_two_guests(host_cpus);
    let mut names: Vec<&str> = of_stores(asked, false).iter().map(|entry| entry.name).collect();
    names.dedup();
    names.retain(|name| !asked.is_empty() || CONTENDERS.contains(name));
    let of_all = |guests| names.iter().map(move |&contender| Density { guests, contender });
    let setting = |density| Setting { density: Some(density), ..settings[0].clone() };
    (host_cpus, (1..=MOST_GUESTS).flat_map(of_all).map(setting).collect())
}

/// The first file system, compressed: else a guest would need more memory to unpack it than for the load.
pub(super) fn compressed(files: &Path) -> Result<NamedTempFile, String> {
    let compress = || {
        let compressed = tempfile::Builder::new().prefix("stillpoint-guest-").tempfile()?;
        let gzip = Command::new("gzip").arg("-c").arg(files).stdout(compressed.reopen()?).status()?;
        gzip.success().then_some(compressed).ok_or_else(|| io::Error::other(gzip.to_string()))
    };
    compress().map_err(|error| format!("cannot compress the guest's files by gzip: {error}"))
}

impl Density {
    /// The memory of a guest in MiB.
    pub(super) fn memory(self) -> usize {
        MEMORY / self.guests
    }

    /// The report in the place of that of a guest whose kernel had too little memory to go on.
    pub(super) fn out_of_memory(self) -> Report {
        let row = |mode| {
            Row::new("guest", "", self.contender).with("workload", Load::Memory.name()).with("mode", mode)
        };
        let void = |mode| Measured::of(Row { void: Some(OUT_OF_MEMORY.to_owned()), ..row(mode) });
        let entries = of_stores(&[self.contender.to_owned()], false);
        let rows = entries.into_iter().map(|entry| void(entry.mode)).collect();
        Report { about: About::default(), rows, seconds: 0.0 }
    }
}

/// One report of all guests: each figure is that of the worst guest. A row does not count if that of one guest does not.
pub(super) fn worst(guests: Vec<(Report, Ran)>) -> Option<(Report, Ran)> {
    let (mut worst, ran) = guests.into_iter().reduce(|(mut worst, ran), (report, other)| {
        worst.rows.iter_mut().zip(report.rows).for_each(|(row, other)| worsen(&mut row.row, other.row));
        (worst, if other.wall_s > ran.wall_s { other } else { ran })
    })?;
    for Measured { row, course } in &mut worst.rows {
        // Of one guest only.
        course.clear();
        row.metrics.retain(|name, _| FIGURES.contains(&name.as_str()));
        if row.void.as_ref().is_some_and(|why| why.ends_with(KILLED)) {
            row.void = Some(OUT_OF_MEMORY.to_owned());
        }
    }
    Some((worst, ran))
}

fn worsen(row: &mut Row, other: Row) {
    if row.void.is_none() && other.void.is_some() {
        return *row = other;
    }
    for name in FIGURES {
        if let Some((one, other)) = row.metric(name).zip(other.metric(name)) {
            let worse = if name == CHANGES { one.min(other) } else { one.max(other) };
            row.metrics.insert(name.to_owned(), number(worse));
        }
    }
}

/// Whether this row is void because a guest ran out of memory: a result, and no failure.
pub(super) fn is_out_of_memory(row: &Row) -> bool {
    row.void.as_deref() == Some(OUT_OF_MEMORY)
}

/// For each contender, with how many guests the first one ran out of memory; a line each.
pub(super) fn notes(rows: &[Row]) -> Vec<String> {
    let name = |row: &Row| Some(format!("{}, {}", row.contender, row.params.get("mode")?.as_str()?));
    let of_one = rows.iter().filter(|row| row.param("guests") == Some(1));
    let note = |of: String| {
        let failed = rows.iter().filter(|row| is_out_of_memory(row) && name(row).as_ref() == Some(&of));
        match failed.filter_map(|row| row.param("guests")).min() {
            Some(guests) => format!("{of}: the first guest ran out of memory with {guests} in {MEMORY} MiB."),
            None => format!("{of}: no guest ran out of memory."),
        }
    };
    of_one.filter_map(name).map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::super::settings::BASELINE;
    use super::*;

    #[test]
    fn a_process_killed_for_another_reason_is_a_failure() {
        let void = |why: &str| {
            let row = Row { void: Some(why.to_owned()), ..Row::new("guest", "", "stillpoint/guard") };
            let report = Report { about: About::default(), rows: vec![Measured::of(row)], seconds: 0.0 };
            worst(vec![(report, Ran::default())]).unwrap().0.rows.remove(0).row.void.unwrap()
        };
        let killed = "SIGKILL: the kernel does this if memory runs out; ask for less";
        assert_eq!(void(killed), killed);
        assert_eq!(void(&format!("{killed}; {KILLED}")), OUT_OF_MEMORY);
    }

    #[test]
    fn each_contender_has_one_to_four_guests_that_share_the_memory() {
        let (cpus, all) = settings(&[3, 5, 7], &[]);
        assert_eq!(cpus, [3, 5]);
        let density: Vec<Density> = all.iter().map(|setting| setting.density.unwrap()).collect();
        let present =
            CONTENDERS.into_iter().filter(|name| !of_stores(&[(*name).to_owned()], false).is_empty());
        let expected =
            (1..=4).flat_map(|guests| present.clone().map(move |contender| Density { guests, contender }));
        assert_eq!(density, expected.collect::<Vec<_>>());
        assert!(density.iter().all(|each| each.memory() == MEMORY / each.guests));
        assert!(
            all.iter()
                .all(|setting| setting.vcpus == 2
                    && (setting.scenario() == BASELINE) == (setting.guests() == 1))
        );
        let asked = settings(&[3, 5], &["liburcu/mb".to_owned(), "stillpoint/guard".to_owned()]).1;
        assert_eq!(asked[0].density, Some(Density { guests: 1, contender: "stillpoint/guard" }));
    }
}
