//! The command `guest`: delays and grace periods inside virtual machines whose virtual CPUs the host preempts.
//!
//! The literature on preempted readers is about readers whose virtual CPU loses the host's CPU in the middle of a
//! read. Here, QEMU runs a distribution's kernel with this program, linked statically, as its first and only process.
//! In `baseline`, a guest has a CPU of the host for each virtual CPU. In `overcommit`, it has more virtual CPUs, or other
//! work or a busy second guest runs on the same CPUs. What the guests print comes back as rows.

mod console;
mod contenders;
mod deletes;
mod density;
mod evaluate;
mod figures;
mod hog;
pub(crate) mod inside;
mod kernel;
mod lab;
mod options;
mod postmark;
mod pressure;
mod ratio;
mod settings;
mod stores;
mod wire;

use serde::Serialize;
use stillpoint_harness::error::Stop;
use stillpoint_harness::machine::{Machine, cpus};
use stillpoint_harness::output::json::{self, Row};
use stillpoint_harness::output::table;
use stillpoint_harness::qemu::needs::{self, Needs};
use stillpoint_harness::qemu::{self, Accel};
use stillpoint_harness::results::{self, Results};
use stillpoint_harness::{interrupt, output};

use self::contenders::{CONTENDERS, KERNEL};
use self::lab::{Lab, Ran};
use crate::peers;

pub(crate) use self::figures::FIGURES;

pub(crate) use self::options::Options;

/// Host CPUs that are used unless told otherwise: overcommit multiplies them.
const MOST_HOST_CPUS: usize = 4;

/// What the JSON says about the guests.
#[derive(Debug, Serialize)]
struct Extra {
    /// Why nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
    guests: Vec<Ran>,
}

/// Runs the guests and prints their tables. If this machine lacks what guests need, says so, and succeeds.
pub(crate) fn run(options: &Options) -> Result<(), Stop> {
    let host_cpus = match &options.cpus {
        Some(list) => cpus::choose(Some(&list.0))?,
        None => cpus::choose(None)?.into_iter().take(MOST_HOST_CPUS).collect(),
    };
    let (host_cpus, settings) = if options.density {
        density::settings(&host_cpus, &options.contenders)
    } else if options.neighbour {
        settings::of_two_guests(&host_cpus)
    } else {
        let settings = settings::choose(host_cpus.len(), &options.vcpus, options.length.quick);
        (host_cpus, settings)
    };
    if options.accel == Accel::Kvm && !needs::has_kvm() {
        return Err(Stop::usage(
            "/dev/kvm cannot be opened: leave --accel out, or let this user read and write it",
        ));
    }
    let needs = Needs::find(options.qemu.as_deref(), options.kernel.as_deref(), options.init.as_deref())?;
    let results = Results::open(&options.results)?;
    let silent = results.takes_stdout();
    let machine = Machine::look(peers::versions());
    let needs = match needs {
        Ok(needs) => needs,
        Err(missing) => {
            output::tell(format!("skipped: no guest can be run here: {missing}"));
            let extra = Extra { skipped: Some(missing), guests: Vec::new() };
            return results.write(&machine, &[], extra, FIGURES);
        }
    };
    let transcript = qemu::transcript(options.console.as_deref())?;
    interrupt::listen();
    let mut lab = Lab::new(options, needs, host_cpus, transcript)?;
    if !silent {
        output::say(machine.summary());
    }
    let (rows, guests, failures) = lab.run_all(&settings);
    if !silent {
        guests.iter().for_each(|guest| output::say(guest.about()));
        output::figures::print(FIGURES, &rows, options.verbose);
        notes(&rows, &guests).iter().for_each(output::say_text);
        if options.verbose {
            table::of_everything(&rows);
        }
    }
    results::check_interrupt(&rows)?;
    results.write(&machine, &rows, Extra { skipped: None, guests }, FIGURES)?;
    let failed: Vec<Row> = rows.into_iter().filter(|row| !density::is_out_of_memory(row)).collect();
    match failures.as_slice() {
        [] => json::judge(&failed),
        failures => Err(Stop::Failed(failures.join("; "))),
    }
}

/// The virtual CPUs of a baseline may wait for this share of the time, since QEMU itself needs some of it.
const UNDISTURBED: f64 = 0.1;

/// What spoils the figures, and what is left out; a line each.
fn notes(rows: &[Row], guests: &[Ran]) -> Vec<String> {
    let mut notes = density::notes(rows);
    let by = |row: &Row| Some(row.params.get("grace_periods_by")?.as_str()?.to_owned());
    if let Some(by) = rows.iter().filter(|row| row.contender == KERNEL).find_map(by) {
        notes.push(format!("{KERNEL}: every virtual CPU is busy. Grace periods are timed by: {by}."));
    }
    if rows.iter().any(|row| row.metric("calls").is_some()) {
        notes.push(format!("{KERNEL}: a call that finds a grace period running waits for the next one too."));
    }
    let is_disturbed =
        |guest: &&Ran| guest.baseline && guest.waiting_share.is_some_and(|share| share > UNDISTURBED);
    if let Some(guest) = guests.iter().find(is_disturbed) {
        notes.push(format!(
            "Other programs took CPU time from this guest ({}). Ratios to it are smaller than they should be.",
            guest.title
        ));
    }
    if guests.iter().any(|guest| guest.accel == "tcg") {
        let why = "Every instruction, interrupt and fence is emulated.";
        notes.push(format!("Software emulation: compare only within this run. {why}"));
    }
    if guests.iter().all(|guest| !guest.peers.contains_key("liburcu")) {
        let names: Vec<&str> =
            CONTENDERS.iter().map(|entry| entry.name).filter(|name| name.starts_with("liburcu")).collect();
        let names = names.join(", ");
        notes.push(format!("{names} left out: install liburcu-dev, then build the guest's program again"));
    }
    let why = "a static program could contain its libraries only together with all of its drivers.";
    notes.push(format!("DPDK is left out: {why}"));
    notes
}

/// The tables of guests in the book are made from the results.
#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use stillpoint_harness::output::json::Row;

    fn docs() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
    }

    /// The rows of a result of the laboratory's page.
    fn rows(name: &str) -> Vec<Row> {
        let text = fs::read_to_string(docs().join(format!("laboratory/{name}.json"))).unwrap();
        let result: serde_json::Value = serde_json::from_str(&text).unwrap();
        serde_json::from_value(result["rows"].clone()).unwrap()
    }

    fn postmark() -> String {
        let mut table = String::from(
            "| kernel | virtual CPUs on 2 CPUs | mean grace period | longest | CPU time per grace period | slab memory |\n\
             |---|---|---|---|---|---|\n",
        );
        for (kernel, name) in [("Debian's", "postmark"), ("without preemption", "postmark-none")] {
            for row in rows(name).iter().filter(|row| row.scenario == "overcommit") {
                let guest = match row.params["hogs"].as_u64() {
                    Some(0) => row.params["vcpus"].to_string(),
                    _ => format!("{}, shared", row.params["vcpus"]),
                };
                let cells = ["gp_mean", "gp_max", "cpu_per_gp", "slab"].map(|name| {
                    format!("{:.2}", row.metric(&format!("{name}_to_baseline")).expect("a ratio of each"))
                });
                table.push_str(&format!("| {kernel} | {guest} | {} |\n", cells.join(" | ")));
            }
        }
        table + "| the paper's | more than CPUs | 2.18 | 26.37 | 2.9 | |\n"
    }

    /// Our regions have similar figures in the other mode.
    fn is_shown(row: &&Row) -> bool {
        row.contender != "stillpoint/guard" || row.params["mode"] == "symmetric"
    }

    fn pressure() -> String {
        let rows = rows("pressure");
        let rows = || rows.iter().filter(|row| row.scenario == "overcommit");
        let of = |row: &Row, load: &str, metric: &str| {
            let same = |other: &&Row| {
                other.contender == row.contender
                    && other.params["mode"] == row.params["mode"]
                    && other.params["workload"] == load
            };
            rows().find(same).and_then(|row| row.metric(metric)).expect("a figure of each")
        };
        let mut table = String::from(
            "| | fences | swap: changes/s | KiB out | balloon: changes/s | MiB waiting | MiB yielded |\n\
             |---|---|---|---|---|---|---|\n",
        );
        for row in rows().filter(|row| row.params["workload"] == "swap").filter(is_shown) {
            let cell = |(load, metric, unit, digits): (&str, &str, f64, usize)| {
                format!("{:.digits$}", of(row, load, metric) / unit)
            };
            let (kib, mib) = (1024.0, (1 << 20) as f64);
            let cells = [
                ("swap", "changes_per_s", 1.0, 0),
                ("swap", "swapped_out_bytes", kib, 0),
                ("balloon", "changes_per_s", 1.0, 0),
                ("balloon", "peak_pending_bytes", mib, 2),
                ("balloon", "yielded_bytes", mib, 0),
            ];
            let (contender, mode) = (&row.contender, row.params["mode"].as_str().expect("a name"));
            table.push_str(&format!("| `{contender}` | {mode} | {} |\n", cells.map(cell).join(" | ")));
        }
        table
    }

    fn density() -> String {
        let rows = rows("density");
        let mut table = String::from("| | fences | 1 guest | 2 | 3 | 4 |\n|---|---|---|---|---|---|\n");
        for first in rows.iter().filter(|row| row.params["guests"] == 1).filter(is_shown) {
            let same =
                |row: &&Row| row.contender == first.contender && row.params["mode"] == first.params["mode"];
            let cell = |row: &Row| match ["gp_us_mean", "peak_pending_bytes", "changes_per_s"]
                .map(|name| row.metric(name))
            {
                [Some(mean), Some(bytes), Some(changes)] => {
                    format!("{:.2}, {:.2}, {changes:.0}", mean / 1e3, bytes / (1 << 20) as f64)
                }
                _ => row.void.clone().expect("figures, or why there are none"),
            };
            let cells: Vec<String> = rows.iter().filter(same).map(cell).collect();
            let mode = first.params["mode"].as_str().expect("a name");
            table.push_str(&format!("| `{}` | {mode} | {} |\n", first.contender, cells.join(" | ")));
        }
        table
    }

    /// `STILLPOINT_WRITE_PAGE=1` writes the tables.
    #[test]
    fn the_laboratory_has_the_figures_of_the_results() {
        let page = docs().join("guide/laboratory.md");
        let found = fs::read_to_string(&page).unwrap();
        let mut text = found.clone();
        for (name, table) in [("postmark", postmark()), ("density", density()), ("pressure", pressure())] {
            let mark = format!("<!-- {name} -->\n");
            let [before, _, after] = text.split(&mark).collect::<Vec<_>>().try_into().expect("two marks");
            text = format!("{before}{mark}{table}{mark}{after}");
        }
        if std::env::var_os("STILLPOINT_WRITE_PAGE").is_some() {
            fs::write(&page, text).unwrap();
        } else {
            assert!(found == text, "STILLPOINT_WRITE_PAGE=1 writes the tables: {text}");
        }
    }
}
