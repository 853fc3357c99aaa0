//! The tables of the guests: figures of each, then the ratios between them.

use stillpoint_harness::output::format::{bytes, micros, number_of, rate};
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::table::Column;
use stillpoint_harness::output::{say, table};

use super::contenders::{ASYMMETRIC, CONTENDERS, KERNEL};
use super::lab::Ran;
use super::ratio::{self, KERNEL_TO_BASELINE, TO_BASELINE, TO_SYMMETRIC, workload};
use super::settings::{OVER_TIME, OVERCOMMIT, short};
use super::wire::Load;

/// The virtual CPUs of a baseline may wait for this share of the time, since QEMU itself needs some of it.
const UNDISTURBED: f64 = 0.1;

const DELETES: &[Column<'_>] = &[
    ("contender", &|row| row.contender.clone()),
    ("fences", &fences),
    ("grace period", &|row| row.shown_or_failed("gp_us_mean", micros)),
    ("p99", &|row| row.shown("gp_us_p99", micros)),
    ("max", &|row| row.shown("gp_us_max", micros)),
    ("CPU/GP", &|row| row.shown("cpu_us_per_gp", micros)),
    ("fence", &|row| row.shown("fence_us_mean", micros)),
    ("max", &|row| row.shown("fence_us_max", micros)),
    ("delay", &|row| row.shown("delay_us_mean", micros)),
    ("p99", &|row| row.shown("delay_us_p99", micros)),
    ("max", &|row| row.shown("delay_us_max", micros)),
    ("peak pending", &peak_pending),
    ("lookups", &|row| row.shown("lookups_per_s", rate)),
];

const STORES: &[Column<'_>] = &[
    ("contender", &|row| row.contender.clone()),
    ("fences", &fences),
    ("grace period", &|row| row.shown_or_failed("gp_us_mean", micros)),
    ("p99", &|row| row.shown("gp_us_p99", micros)),
    ("max", &|row| row.shown("gp_us_max", micros)),
    ("CPU/GP", &|row| row.shown("cpu_us_per_gp", micros)),
    ("delay", &|row| row.shown("delay_us_mean", micros)),
    ("p99", &|row| row.shown("delay_us_p99", micros)),
    ("max", &|row| row.shown("delay_us_max", micros)),
    ("peak pending", &peak_pending),
    ("changes", &|row| row.shown("changes_per_s", rate)),
    ("sections", &|row| row.shown("sections_per_s", rate)),
];

const KERNELS: &[Column<'_>] = &[
    ("contender", &|row| row.contender.clone()),
    ("call", &|row| row.shown_or_failed("synchronize_rcu_us_mean", micros)),
    ("p50", &|row| row.shown("synchronize_rcu_us_p50", micros)),
    ("p99", &|row| row.shown("synchronize_rcu_us_p99", micros)),
    ("max", &|row| row.shown("synchronize_rcu_us_max", micros)),
    ("grace period", &|row| row.shown("gp_us_mean", micros)),
    ("max", &|row| row.shown("gp_us_max", micros)),
    ("CPU/GP", &|row| row.shown("cpu_us_per_gp", micros)),
];

/// The parts of a guest's rows, each with its caption and columns.
const PARTS: [(&str, &str, &[Column<'_>], usize); 4] = [
    ("deletes", "Lookups, and 5,000 deletes a second", DELETES, 2),
    ("mail", "Mail: 10,000 changes a second to some 16,000 messages", STORES, 2),
    ("memory", "Memory: 50,000 updates a second", STORES, 2),
    ("kernel", "The guest kernel's own RCU: latency of synchronize_rcu", KERNELS, 1),
];

/// Prints everything.
pub(super) fn tables(rows: &[Row], guests: &[Ran]) {
    let rows: Vec<Row> = rows.iter().filter(|row| row.scenario != OVER_TIME).cloned().collect();
    let mut rest = rows.as_slice();
    for guest in guests {
        let count = rest.iter().take_while(|row| ratio::same_guest(row, &rest[0])).count();
        let (own, others) = rest.split_at(count);
        one_guest(own, guest);
        rest = others;
    }
    let overcommit = |row: &Row| row.scenario == OVERCOMMIT;
    for (load, caption, _, _) in PARTS {
        let of_it = |row: &Row| overcommit(row) && workload(row) == Some(load);
        let caption = format!("Ratio to the baseline. {caption}");
        let names: Vec<(&str, &str)> = match load == Load::Kernel.name() {
            true => KERNEL_TO_BASELINE.into_iter().chain(TO_BASELINE).collect(),
            false => TO_BASELINE.to_vec(),
        };
        ratios(&rows, &caption, &names, "to_baseline", &of_it);
    }
    for (load, caption, _, _) in PARTS {
        let of_it = |row: &Row| row.params["mode"] == ASYMMETRIC && workload(row) == Some(load);
        let caption = format!("Ratio of asymmetric to symmetric fences. {caption}");
        ratios(&rows, &caption, &TO_SYMMETRIC, "to_symmetric", &of_it);
    }
    if !rows.is_empty() {
        notes(&rows, guests);
    }
}

fn one_guest(rows: &[Row], guest: &Ran) {
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
    for (load, caption, columns, left) in PARTS {
        let of_it: Vec<&Row> = rows.iter().filter(|row| workload(row) == Some(load)).collect();
        if !of_it.is_empty() {
            table::of_rows(caption, columns, left, of_it);
        }
    }
    for (row, reason) in rows.iter().filter_map(|row| Some((row, row.void.as_ref()?))) {
        say(format!("{} ({}) failed: {reason}", row.contender, fences(row)));
    }
}

fn fences(row: &Row) -> String {
    row.params["mode"].as_str().unwrap_or_default().to_owned()
}

fn peak_pending(row: &Row) -> String {
    row.shown("peak_pending_bytes", |size| bytes(size as u64))
}

/// A table of the ratios whose names end with `suffix`, if any row has one.
fn ratios(rows: &[Row], caption: &str, names: &[(&str, &str)], suffix: &str, wanted: &dyn Fn(&Row) -> bool) {
    let names: Vec<&(&str, &str)> = names
        .iter()
        .filter(|(_, name)| rows.iter().any(|row| wanted(row) && row.metric(name).is_some()))
        .collect();
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
        let guest = short(row);
        let cells = [row.contender.clone(), fences(row), guest];
        table.add_row(cells.into_iter().chain(names.iter().map(|(_, name)| cell(name))).collect::<Vec<_>>());
    }
    let bold = anstyle::Style::new().bold();
    say(format!("\n{bold}{caption}{bold:#}"));
    say(table::text(&table));
}

fn notes(rows: &[Row], guests: &[Ran]) {
    let time = |load: Load| {
        let some = &rows.iter().find(|row| workload(row) == Some(load.name()))?.params;
        let (rounds, round) = (some["rounds"].as_u64()?, some["round_s"].as_f64()?);
        Some(format!("{} of {round} s", number_of(rounds, "round")))
    };
    say("");
    if let Some(time) = time(Load::Deletes) {
        say(format!(
            "Deletes: all samples of {time}. Grace period: the writer waits for the readers; for protected loads, which hold \
            single objects, only for its fence. Fence: only the writer's fence."
        ));
    }
    if let Some(time) = time(Load::Mail).or_else(|| time(Load::Memory)) {
        say(format!(
            "Mail and memory: medians of {time}, each in a separate process. Grace period: as in `bench preempt`, from the \
             unlink of a probe to its free; for liburcu, a call of synchronize_rcu."
        ));
    }
    say(
        "Delay: from unlink to free. CPU/GP: CPU time of the writer's side for each grace period, by the guest's clock. Each reader has a virtual CPU, the \
         writer the last one.",
    );
    for row in rows.iter().filter(|row| row.contender == KERNEL).take(1) {
        let by = row.params.get("grace_periods_by").and_then(|by| by.as_str()).unwrap_or_default();
        say(format!(
            "{KERNEL}: a call that finds a grace period running waits for the next one too. Every virtual CPU is busy. \
            Grace periods are timed by: {by}."
        ));
    }
    let disturbed =
        |guest: &&Ran| guest.baseline && guest.waiting_share.is_some_and(|share| share > UNDISTURBED);
    if let Some(guest) = guests.iter().find(disturbed) {
        say(format!(
            "Other programs took CPU time from this guest ({}). Ratios to it are smaller than they should be.",
            guest.title
        ));
    }
    if guests.iter().any(|guest| guest.accel == "tcg") {
        say(
            "Software emulation: compare only within this run. Every instruction, interrupt and fence is emulated.",
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
        say(format!(
            "{} left out: install liburcu-dev, then build the guest's program again",
            missing.join(", ")
        ));
    }
    say(
        "DPDK is left out: a static program could contain its libraries only together with all of its drivers.",
    );
}
