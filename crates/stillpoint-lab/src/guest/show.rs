//! The tables of the guests: figures of each, then the ratios between them.

use stillpoint_harness::output::format::{micros, rate};
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::{say, table};

use super::contenders::{ASYMMETRIC, CONTENDERS};
use super::lab::Ran;
use super::ratio::{self, TO_BASELINE, TO_SYMMETRIC};
use super::settings::OVERCOMMIT;

/// The share of time for which the virtual CPUs of a baseline may wait, as QEMU itself needs some of it.
const UNDISTURBED: f64 = 0.1;

const HEADER: [&str; 11] =
    ["contender", "fences", "grace period", "p99", "max", "fence", "max", "delay", "p99", "max", "lookups"];

/// Prints everything.
pub(super) fn tables(rows: &[Row], guests: &[Ran]) {
    let mut rest = rows;
    for guest in guests {
        let count = rest.iter().take_while(|row| ratio::same_guest(row, &rest[0])).count();
        let (own, others) = rest.split_at(count);
        one_guest(own, guest);
        rest = others;
    }
    ratios(rows, "Ratio to the baseline", &TO_BASELINE, "to_baseline", &|row| row.scenario == OVERCOMMIT);
    ratios(rows, "Ratio of asymmetric to symmetric fences", &TO_SYMMETRIC, "to_symmetric", &|row| {
        row.params["mode"] == ASYMMETRIC
    });
    if !rows.is_empty() {
        notes(rows, guests);
    }
}

fn one_guest(rows: &[Row], guest: &Ran) {
    let mut table = table::of_figures(&HEADER, 2);
    for row in rows {
        table.add_row(cells(row));
    }
    let bold = anstyle::Style::new().bold();
    let waited = guest.waiting_share.map_or_else(String::new, |share| {
        format!("; its virtual CPUs waited for the host {:.0} % of the time", share * 100.0)
    });
    say(format!("\n{bold}Guest, {}{bold:#}", guest.title));
    let clock = match guest.clock_rate {
        Some(rate) => format!("clock {} at {rate:.2} of the host's", guest.clock),
        None => format!("clock {}", guest.clock),
    };
    say(format!("{}, {}, {clock}, {:.0} s{waited}", guest.kernel, guest.accel, guest.wall_s));
    say(table::text(&table));
    for (row, reason) in rows.iter().filter_map(|row| Some((row, row.void.as_ref()?))) {
        say(format!("{} ({}) failed: {reason}", row.contender, fences(row)));
    }
}

fn fences(row: &Row) -> String {
    row.params["mode"].as_str().unwrap_or_default().to_owned()
}

fn cells(row: &Row) -> Vec<String> {
    let mut cells = vec![row.contender.clone(), fences(row)];
    if row.void.is_some() {
        cells.push("failed".to_owned());
        return cells;
    }
    let times = [
        "gp_us_mean",
        "gp_us_p99",
        "gp_us_max",
        "fence_us_mean",
        "fence_us_max",
        "delay_us_mean",
        "delay_us_p99",
        "delay_us_max",
    ];
    cells.extend(times.map(|name| row.metric(name).map(micros).unwrap_or_default()));
    cells.push(row.metric("lookups_per_s").map(rate).unwrap_or_default());
    cells
}

/// A table of the ratios whose names end with `suffix`, if any row has one.
fn ratios(rows: &[Row], caption: &str, names: &[(&str, &str)], suffix: &str, wanted: &dyn Fn(&Row) -> bool) {
    let rows: Vec<&Row> = rows
        .iter()
        .filter(|row| wanted(row) && names.iter().any(|(_, name)| row.metric(name).is_some()))
        .collect();
    if rows.is_empty() {
        return;
    }
    let columns: Vec<String> = names
        .iter()
        .map(|(_, name)| name.trim_end_matches(suffix).trim_end_matches('_').replace('_', " "))
        .collect();
    let header: Vec<&str> =
        ["contender", "fences", "guest"].into_iter().chain(columns.iter().map(String::as_str)).collect();
    let mut table = table::of_figures(&header, 3);
    for row in rows {
        let cell = |name: &str| row.metric(name).map(|ratio| format!("{ratio:.2}x")).unwrap_or_default();
        let guest = guest(row);
        let cells = [row.contender.clone(), fences(row), guest];
        table.add_row(cells.into_iter().chain(names.iter().map(|(_, name)| cell(name))).collect::<Vec<_>>());
    }
    let bold = anstyle::Style::new().bold();
    say(format!("\n{bold}{caption}{bold:#}"));
    say(table::text(&table));
}

/// The guest in a few characters.
fn guest(row: &Row) -> String {
    let hogs = if row.params["hogs"] == 0 { "" } else { ", shared" };
    format!("{} on {}{hogs}", row.params["vcpus"], row.params["host_cpus"])
}

fn notes(rows: &[Row], guests: &[Ran]) {
    let some = &rows[0].params;
    let (rounds, round) = (some["rounds"].as_u64().unwrap_or(0), some["round_s"].as_f64().unwrap_or(0.0));
    say("");
    say(format!(
        "All samples of {rounds} rounds of {round} s. Grace period: the writer waits for the readers; of protected \
         loads, which hold single objects, for the fence."
    ));
    say(
        "Fence: the writer's alone. Delay: from unlink to free. Each reader has a virtual CPU, the writer the last one.",
    );
    let disturbed =
        |guest: &&Ran| guest.baseline && guest.waiting_share.is_some_and(|share| share > UNDISTURBED);
    if let Some(guest) = guests.iter().find(disturbed) {
        say(format!(
            "Other programs took CPUs from the guest of the {}: ratios to it are smaller than they should be.",
            guest.title
        ));
    }
    if guests.iter().any(|guest| guest.accel == "tcg") {
        say(
            "Software emulation: compare within this run alone. Every instruction, interrupt and fence is emulated.",
        );
    }
    let missing: Vec<&str> = CONTENDERS
        .iter()
        .map(|entry| entry.name)
        .filter(|name| {
            name.starts_with("liburcu") && guests.iter().all(|guest| !guest.peers.contains_key("liburcu"))
        })
        .collect();
    if !missing.is_empty() {
        say(format!("{} left out: install liburcu-dev, then run again", missing.join(", ")));
    }
    say("DPDK is left out: its libraries cannot be part of a static program without all of its drivers.");
}
