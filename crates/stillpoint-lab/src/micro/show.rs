//! The table of the experiment: operations by contenders.

use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::{say, table};

use crate::micro::order;

/// Prints the costs, a line for each contender and a column for each operation.
pub(super) fn table(rows: &[Row], operations: &[&str], order_of: &[&str], cpu: usize) {
    let operations: Vec<&str> = operations
        .iter()
        .copied()
        .filter(|operation| rows.iter().any(|row| row.scenario == *operation))
        .collect();
    let mut contenders: Vec<&str> = rows.iter().map(|row| row.contender.as_str()).collect();
    contenders.sort_by_key(|contender| order(contender, order_of));
    contenders.dedup();

    let header: Vec<&str> = std::iter::once("contender").chain(operations.iter().copied()).collect();
    let line = |contender: &str| {
        let of = |operation| rows.iter().find(|row| row.contender == contender && row.scenario == operation);
        let cost =
            |operation| of(operation).map(|row| row.shown("ns_per_op", nanoseconds)).unwrap_or_default();
        let costs = operations.iter().map(|&operation| cost(operation));
        std::iter::once(contender.to_owned()).chain(costs).collect::<Vec<String>>()
    };
    let caption = format!("Nanoseconds for one operation, on CPU {cpu}");
    table::of_lines(&caption, &header, 1, contenders.into_iter().map(line));
    say("Median of rounds; the loop is included, set-up is not. pin and protect include unpin and release.");
}

fn nanoseconds(cost: f64) -> String {
    if cost < 100.0 { format!("{cost:.2}") } else { format!("{cost:.0}") }
}
