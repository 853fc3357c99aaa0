//! How the rows came about: the structures, their memory, and the price of a fence.

use stillpoint_harness::experiment::child;
use stillpoint_harness::machine::proc;
use stillpoint_harness::output::format::{bytes, micros};
use stillpoint_harness::output::json::Row;

use crate::experiment::Structure;
use crate::peers;
use crate::reclaim::Plan;

/// The lines. `fence`: how long a heavy fence takes beside a running thread, in nanoseconds.
pub(super) fn of(plan: &Plan, rows: &[Row], huge_pages: bool, fence: Option<f64>) -> Vec<String> {
    let resident = proc::resident_bytes()
        .map_or_else(String::new, |all| format!("; the process has {}", bytes(all as u64)));
    let Plan { elements, bytes: size, structure, deletes_per_s, .. } = plan;
    let what = format!(
        "{elements} elements of {size} bytes in each {}, filled once{resident}; {deletes_per_s} deletes a second.",
        structure.name()
    );
    let fence = fence.map(|fence| {
        let time = micros(fence / 1000.0);
        format!("A heavy fence of our writers takes {time} beside a thread that runs (median).")
    });
    let has = |group: &str| rows.iter().any(|row| peers::group(&row.contender) == group);
    let tables = (*structure == Structure::Table && !rows.is_empty())
        .then(|| tables(has, huge_pages, child::malloc_asks_for_huge_pages()));
    [Some(what), tables, fence].into_iter().flatten().collect()
}

/// The hash tables of the groups that have rows, and where their memory is from. `huge_pages`: whether DPDK has reserved ones.
/// `malloc_asks`: whether `malloc` asks for transparent ones.
fn tables(has: impl Fn(&str) -> bool, huge_pages: bool, malloc_asks: bool) -> String {
    let of = |all: &[(&str, &'static str)]| {
        all.iter().filter(|(group, _)| has(group)).map(|&(_, words)| words).collect::<Vec<_>>()
    };
    let tables = of(&[
        ("stillpoint", "stillpoint::table"),
        (
            "liburcu",
            "liburcu's cds_lfht, a bucket for each element and no resizing, written in read-side sections",
        ),
        ("dpdk", "DPDK's rte_hash, lock-free"),
        ("papaya", "papaya"),
    ]);
    let on_large_pages = of(&[
        ("stillpoint", "stillpoint::table asks for transparent huge pages"),
        (
            "dpdk",
            if huge_pages {
                "rte_hash has reserved huge pages"
            } else {
                "rte_hash has small pages: none were reserved for it"
            },
        ),
    ]);
    let from_malloc = of(&[
        ("liburcu", "liburcu's table"),
        ("dpdk", "the elements of rte_hash"),
        ("papaya", "papaya's table"),
    ]);
    let mut text = format!("Tables: {}.", tables.join("; "));
    if !on_large_pages.is_empty() {
        text += &format!(" Memory: {}.", on_large_pages.join(", "));
    }
    if !from_malloc.is_empty() {
        let pages = if malloc_asks { "which also asks for huge pages" } else { "with small pages" };
        text += &format!(" From malloc, {pages}: {}.", from_malloc.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tables_that_have_rows_are_explained() {
        assert_eq!(
            tables(|group| ["stillpoint", "papaya"].contains(&group), false, false),
            "Tables: stillpoint::table; papaya. Memory: stillpoint::table asks for transparent huge pages. \
             From malloc, with small pages: papaya's table."
        );
    }
}
