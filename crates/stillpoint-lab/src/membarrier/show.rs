//! The tables of the experiment.

use super::CONTENDERS;
use crate::output::json::Row;
use crate::output::{format, say, table};

/// Prints a table for each setting of threads, and one for the readers.
pub(super) fn tables(rows: &[Row]) {
    let setting = |row: &Row| {
        (row.scenario != "readers").then(|| {
            (row.params["threads"].clone(), row.params["initiators"].clone(), row.params["state"].clone())
        })
    };
    let mut settings: Vec<_> = rows.iter().filter_map(setting).collect();
    settings.dedup();
    let bold = anstyle::Style::new().bold();
    for wanted in settings {
        let of: Vec<&Row> = rows.iter().filter(|row| setting(row).as_ref() == Some(&wanted)).collect();
        let (threads, initiators, state) = wanted;
        let state = state.as_str().unwrap_or_default();
        say(format!("\n{bold}Barriers: {threads} threads, {state}; initiators: {initiators}{bold:#}"));
        say(table::text(&barriers(&of)));
    }
    let readers: Vec<&Row> = rows.iter().filter(|row| row.scenario == "readers").collect();
    if !readers.is_empty() {
        say(format!(
            "\n{bold}Readers: sections a second while a writer synchronizes, on a CPU of its own{bold:#}"
        ));
        say(table::text(&of_readers(&readers)));
        say(
            "Loss: of a window in which the writer synchronizes, against the windows before and after, in which it sleeps: \
             median, and first and third quartile. Below the syscall: what is left, against mode/asymmetric.",
        );
    }
    say(
        "Medians of rounds. Send: until the initiator's last message, before it waits. Helped: messages that it sent \
         in place of threads that had not come to it.",
    );
    say(
        "syscall and mprotect interrupt the CPUs that run a thread; signals wake every thread, and wait until each \
         has been given a CPU.",
    );
}

fn barriers(rows: &[&Row]) -> comfy_table::Table {
    let header = ["contender", "median", "of rounds", "p99", "send", "helped", "all initiators"];
    let mut table = table::of_figures(&header, 1);
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| CONTENDERS.iter().position(|name| *name == row.contender));
    for row in rows {
        let cell = |name: &str, show: fn(f64) -> String| row.metric(name).map(show).unwrap_or_default();
        let spread = row
            .metric("latency_us_least")
            .zip(row.metric("latency_us_most"))
            .map(|(least, most)| format!("{} … {}", format::micros(least), format::micros(most)));
        table.add_row([
            row.contender.clone(),
            row.void.clone().unwrap_or_else(|| cell("latency_us_p50", format::micros)),
            spread.unwrap_or_default(),
            cell("latency_us_p99", format::micros),
            cell("send_us_p50", format::micros),
            if row.metric("send_us_p50").is_some() {
                cell("helped", |helped| format!("{helped:.0}"))
            } else {
                String::new()
            },
            cell("ops_per_s", format::rate),
        ]);
    }
    table
}

fn of_readers(rows: &[&Row]) -> comfy_table::Table {
    let header = ["mode", "asked", "synchronized", "sections", "loss", "of windows", "below the syscall"];
    let mut table = table::of_figures(&header, 1);
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| CONTENDERS.iter().position(|name| *name == row.contender));
    for row in rows {
        let cell = |name: &str, show: fn(f64) -> String| row.metric(name).map(show).unwrap_or_default();
        let asked = match &row.params["synchronize_per_s"] {
            serde_json::Value::String(most) => most.clone(),
            number => format!("{number}/s"),
        };
        table.add_row([
            row.contender.clone(),
            asked,
            cell("synchronized_per_s", format::rate),
            cell("sections_per_s", format::rate),
            cell("reader_loss_percent", |loss| format!("{loss:.1} %")),
            row.metric("reader_loss_percent_q1")
                .zip(row.metric("reader_loss_percent_q3"))
                .map(|(least, most)| format!("{least:.1} … {most:.1} %"))
                .unwrap_or_default(),
            cell("below_syscall_percent", |loss| format!("{loss:.1} %")),
        ]);
    }
    table
}
