//! The bars that the rows should meet, and whether they do.

use stillpoint_harness::experiment::control::contender;
use stillpoint_harness::output::json::Row;

use super::WORKERS;
use crate::reclaim::names::{ONE_CORE, OWN_CORE};

/// A limit on `metric` of `ours` in one scenario, compared with `other`'s.
struct Bar {
    what: &'static str,
    scenario: &'static str,
    metric: &'static str,
    ours: &'static str,
    other: &'static str,
    limit: Limit,
}

#[derive(Debug, Clone, Copy)]
enum Limit {
    /// At most this multiple of the other's.
    Times(f64),
    /// At most this much more than the other's.
    More(f64),
    /// At most this, whatever the other's is.
    Of(f64),
}

const fn ns(
    what: &'static str,
    operation: &'static str,
    ours: &'static str,
    other: &'static str,
    limit: Limit,
) -> Bar {
    Bar { what, scenario: operation, metric: "ns_per_op", ours, other, limit }
}

const fn delay(
    what: &'static str,
    scenario: &'static str,
    ours: &'static str,
    other: &'static str,
    limit: f64,
) -> Bar {
    Bar { what, scenario, metric: "delay_us_mean", ours, other, limit: Limit::Times(limit) }
}

const fn cycles(what: &'static str, metric: &'static str, limit: f64) -> Bar {
    Bar {
        what,
        scenario: "own",
        metric,
        ours: "drop-in/rte_timer",
        other: "dpdk/rte_timer",
        limit: Limit::Times(limit),
    }
}

const RUST: Limit = Limit::Times(1.05);
/// Lookups at 0.9 of Rust's rate.
const LOOKUPS: Limit = Limit::Times(1.0 / 0.9);

const BARS: &[Bar] = &[
    ns("quiescent", "quiescent", "c/qsbr", "stillpoint/qsbr", RUST),
    ns("quiescent", "quiescent", "c/qsbr", "dpdk/rcu", RUST),
    ns("pin and unpin", "pin", "c/guard", "stillpoint/guard", RUST),
    ns("protect and release", "protect", "c/protected", "stillpoint/protected", RUST),
    ns("rte_rcu_qsbr_quiescent", "quiescent", "drop-in/rte_rcu_qsbr", "dpdk/rcu", RUST),
    ns("urcu_qsbr_quiescent_state", "quiescent", "drop-in/urcu-qsbr", "liburcu/qsbr", Limit::Times(1.2)),
    ns("rte_rcu_qsbr_check, when over", "check", "drop-in/rte_rcu_qsbr", "dpdk/rcu", Limit::More(1.0)),
    ns("memb lock and unlock, inline", "pin", "drop-in/urcu-memb", "liburcu/memb", Limit::Times(1.15)),
    ns("memb lock and unlock, linked", "pin-linked", "drop-in/urcu-memb", "liburcu/memb", Limit::Times(0.6)),
    ns("a call of call_rcu", "call", "drop-in/urcu-memb", "liburcu/memb", Limit::Times(1.1)),
    ns("lookup", "lookup", "c/qsbr", "stillpoint/qsbr", LOOKUPS),
    ns("lookup, a million keys", "lookup-1m", "c/qsbr", "stillpoint/qsbr", LOOKUPS),
    ns("lookup in a burst, a million keys", "burst-1m", "c/qsbr", "stillpoint/qsbr", LOOKUPS),
    ns("lookup in a burst", "burst", "c/qsbr", "stillpoint/qsbr", LOOKUPS),
    delay("unlink to free, 1 reader", OWN_CORE, "c/protected", "stillpoint/protected", 1.1),
    delay("unlink to free, 1 reader", OWN_CORE, "c/guard", "stillpoint/guard", 1.1),
    delay("unlink to free, 1 reader", OWN_CORE, "c/qsbr", "stillpoint/qsbr+poll", 1.1),
    delay("unlink to free, 8 on a core", ONE_CORE, "c/protected", "stillpoint/protected", 1.1),
    delay("unlink to free, 8 on a core", ONE_CORE, "c/guard", "stillpoint/guard", 1.1),
    delay("unlink to free, 8 on a core", ONE_CORE, "c/qsbr", "stillpoint/qsbr+poll", 1.1),
    delay("call_rcu to callback, 1 reader", OWN_CORE, "drop-in/urcu-memb", "liburcu/memb", 1.0 / 50.0),
    delay("call_rcu to callback, 8 on a core", ONE_CORE, "drop-in/urcu-memb", "liburcu/memb", 0.7),
    delay("call_rcu to callback, 8, boosted", ONE_CORE, "drop-in/urcu-mb+boost", "liburcu/memb", 1.0 / 20.0),
    Bar {
        what: "the end of 64 idle workers, ms",
        scenario: WORKERS,
        metric: "ms",
        ours: "drop-in/urcu-memb",
        other: "liburcu/memb",
        limit: Limit::Of(20.0),
    },
    cycles("rte_timer, add", "add_cycles", 0.6),
    cycles("rte_timer, reset", "reset_cycles", 0.35),
];

/// A line for each bar whose rows were all measured.
pub(super) fn verdicts(rows: &[Row]) -> Vec<String> {
    let metric = |bar: &Bar, name: &str| {
        let row = rows.iter().find(|row| row.contender == name && row.scenario == bar.scenario);
        row.filter(|row| row.void.is_none() && contender(&row.contender) == row.contender)?.metric(bar.metric)
    };
    let verdict = |bar: &Bar| {
        let (ours, other) = (metric(bar, bar.ours)?, metric(bar, bar.other)?);
        let (what, name, beside) = (bar.what, bar.ours, bar.other);
        let (is_met, limit) = match bar.limit {
            Limit::Times(times) => (ours <= times * other, format!("at most {times:.3}")),
            Limit::Of(most) => (ours <= most, format!("{name} at most {most}")),
            Limit::More(more) => (ours <= other + more, format!("{name} at most {more} more")),
        };
        let is_met = if is_met { "met" } else { "missed" };
        Some(format!(
            "{is_met:>6}: {what}: {name} {ours:.2}, {beside} {other:.2}, ratio {:.3}; bar: {limit}",
            ours / other
        ))
    };
    BARS.iter().filter_map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scenario: &str, contender: &str, metric: &str, value: f64) -> Row {
        let mut row = Row::new("capi", scenario, contender);
        row.put(metric, value, 3);
        row
    }

    #[test]
    fn a_bar_is_met_or_missed_by_its_own_figures() {
        let of = |ours| {
            verdicts(&[
                row("pin", "c/guard", "ns_per_op", ours),
                row("pin", "stillpoint/guard", "ns_per_op", 1.0),
                row("check", "drop-in/rte_rcu_qsbr", "ns_per_op", ours),
                row("check", "dpdk/rcu", "ns_per_op", 0.2),
            ])
        };
        let is_met = |ours| of(ours).iter().map(|line| line.starts_with("   met")).collect::<Vec<_>>();
        assert_eq!(is_met(1.04), [true, true]);
        assert_eq!(is_met(1.1), [false, true]);
        assert_eq!(is_met(1.3), [false, false]);
    }

    #[test]
    fn rows_that_are_missing_or_void_give_no_verdict() {
        let ours = row("pin", "c/guard", "ns_per_op", 1.0);
        assert!(verdicts(std::slice::from_ref(&ours)).is_empty());
        let mut other = row("pin", "stillpoint/guard", "ns_per_op", 1.0);
        other.void = Some("it was cut short".to_owned());
        assert!(verdicts(&[ours, other]).is_empty());
    }

    #[test]
    fn a_bar_is_about_contenders_and_operations_that_there_are() {
        use crate::experiment::Plan as _;
        let names = super::super::Plan::contenders();
        for bar in BARS {
            assert!(names.contains(&bar.ours) && names.contains(&bar.other), "{} {}", bar.ours, bar.other);
            let is_operation = super::super::OPERATIONS.contains(&bar.scenario);
            assert_eq!(is_operation, bar.metric == "ns_per_op", "{}", bar.what);
        }
    }
}
