//! The bars that the rows should meet, and whether they do.

use stillpoint_harness::output::json::Row;

use crate::experiment::Inside;
use crate::preempt::plan::{BASELINE, BOOSTED, CROWDED};

/// A bar with its figures, and whether they meet it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    pub(super) met: bool,
    pub(super) text: String,
}

/// The verdicts that the rows of one setting allow: a bar with a row that is missing or void has none.
///
/// The bars are for readers that are preempted inside sections. Readers that sleep there, or are outside for half of the
/// time, have no bars: the former delay grace periods without preemption, and the latter leave less to wait for.
pub(super) fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    if rows.iter().any(|row| row.params["presence"] != Inside::Always.name()) {
        return Vec::new();
    }
    let find = |contender: &str, per_core: usize| {
        rows.iter().find(|row| {
            row.contender == contender && row.params["readers_per_core"] == per_core && row.void.is_none()
        })
    };
    let metric = |contender, per_core, name: &str| find(contender, per_core)?.metric(name);
    let ratio = |(above, crowded), (below, base), name| {
        Some(metric(above, crowded, name)? / metric(below, base, name)?)
    };
    let at_most = |value: Option<f64>, bar: f64, what: String| {
        value.map(|value| Verdict {
            met: value <= bar,
            text: format!("{what}: {}, at most {bar}", times(value)),
        })
    };
    let at_least = |value: Option<f64>, bar: f64, what: String| {
        value.map(|value| Verdict {
            met: value >= bar,
            text: format!("{what}: {}, at least {bar}", times(value)),
        })
    };

    let ours = "stillpoint/protected";
    let overcommit = |contender, name| ratio((contender, CROWDED), (contender, BASELINE), name);
    let mut verdicts = vec![
        at_most(overcommit(ours, "gp_us_mean"), 1.5, format!("{ours}, {CROWDED} a core, mean grace period")),
        at_most(
            overcommit(ours, "peak_pending_bytes"),
            2.0,
            format!("{ours}, {CROWDED} a core, peak pending"),
        ),
        at_most(
            overcommit(ours, "cpu_us_per_gp"),
            1.5,
            format!("{ours}, {CROWDED} a core, CPU time a grace period"),
        ),
    ];
    for peer in ["liburcu/qsbr", "dpdk/rcu"] {
        let what = format!("{peer}, {CROWDED} a core, mean grace period");
        verdicts.push(at_least(overcommit(peer, "gp_us_mean"), 100.0, what));
    }
    for (boosted, share) in [("stillpoint/guard+boost", 50.0), ("stillpoint/guard+migrate", 5.0)] {
        let value = ratio((boosted, BOOSTED), ("dpdk/rcu", BOOSTED), "gp_us_mean");
        let what = format!("{boosted}, {BOOSTED} a core, mean grace period of dpdk/rcu's");
        verdicts.push(value.map(|value| Verdict {
            met: value <= 1.0 / share,
            text: format!("{what}: {value:.4}, at most 1/{share}"),
        }));
    }
    let boost = "stillpoint/guard+boost";
    verdicts.push(metric(boost, BOOSTED, "gp_us_max").map(|max| Verdict {
        met: max < 20_000.0,
        text: format!("{boost}, {BOOSTED} a core, longest grace period: {:.1} ms, under 20 ms", max / 1e3),
    }));
    let share = ratio((boost, BASELINE), ("stillpoint/guard", BASELINE), "sections_per_s");
    verdicts.push(share.map(|share| Verdict {
        met: share >= 0.99,
        text: format!(
            "{boost} with {BASELINE} reader a core: {share:.2} of stillpoint/guard's sections; at least 0.99"
        ),
    }));
    verdicts.into_iter().flatten().collect()
}

/// A ratio as the paper has it.
pub(super) fn times(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 99.995 => format!("{ratio:.2}x"),
        ratio => format!("{ratio:.0}x"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(contender: &str, per_core: usize, gp: f64, cpu: f64) -> Row {
        let mut row = Row::new("preempt", "overcommit", contender)
            .with("readers_per_core", per_core)
            .with("presence", Inside::Always.name());
        let figures = [
            ("gp_us_mean", gp),
            ("gp_us_max", gp * 10.0),
            ("cpu_us_per_gp", cpu),
            ("peak_pending_bytes", 1000.0),
            ("sections_per_s", 1e6),
        ];
        figures.into_iter().for_each(|(name, value)| row.put(name, value, 3));
        row
    }

    fn met(rows: &[Row]) -> Vec<bool> {
        verdicts(rows).iter().map(|verdict| verdict.met).collect()
    }

    #[test]
    fn a_bar_is_met_or_missed_by_its_own_figures() {
        let ours =
            |mean| [row("stillpoint/protected", 1, 10.0, 1.0), row("stillpoint/protected", 16, mean, 1.6)];
        assert_eq!(met(&ours(14.0)), [true, true, false]);
        assert_eq!(met(&ours(16.0)), [false, true, false]);
        assert!(verdicts(&ours(14.0))[0].text.contains("1.40x, at most 1.5"));
    }

    #[test]
    fn boost_is_compared_to_dpdk_and_to_itself() {
        let rows = |boost| {
            [
                row("dpdk/rcu", 8, 26_000.0, 1.0),
                row("stillpoint/guard+boost", 8, boost, 1.0),
                row("stillpoint/guard+migrate", 8, boost, 1.0),
            ]
        };
        assert_eq!(met(&rows(500.0)), [true, true, true]);
        assert_eq!(met(&rows(2_600.0)), [false, true, false]);
    }

    #[test]
    fn rows_that_are_missing_or_void_give_no_verdict() {
        let mut rows = [row("dpdk/rcu", 1, 100.0, 1.0), row("dpdk/rcu", 16, 59_000.0, 1.0)];
        assert_eq!(met(&rows), [true]);
        rows[1].void = Some("3 sections".to_owned());
        assert_eq!(met(&rows), Vec::<bool>::new());
        assert_eq!(met(&rows[..1]), Vec::<bool>::new());
    }
}
