//! The tables of guests in the book are made from the results.

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
    for (kernel, name) in [("Debian's, which preempts", "postmark"), ("without preemption", "postmark-none")]
    {
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
    // Those of our regions in the other mode differ little.
    let shown = |row: &&Row| row.contender != "stillpoint/guard" || row.params["mode"] == "symmetric";
    for row in rows().filter(|row| row.params["workload"] == "swap").filter(shown) {
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

/// `STILLPOINT_WRITE_PAGE=1` writes the tables.
#[test]
fn the_laboratory_has_the_figures_of_the_results() {
    let page = docs().join("guide/laboratory.md");
    let found = fs::read_to_string(&page).unwrap();
    let mut text = found.clone();
    for (name, table) in [("postmark", postmark()), ("pressure", pressure())] {
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
