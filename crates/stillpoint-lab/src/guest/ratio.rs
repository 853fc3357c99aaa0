//! Ratios within one run: the only figures of an emulated machine that apply to other machines.

use stillpoint_harness::output::json::{Row, number};

use super::contenders::{ASYMMETRIC, SYMMETRIC};
use super::settings::{BASELINE, OVERCOMMIT};

/// Each metric with the name of its ratio to the same contender's in the baseline.
pub(super) const TO_BASELINE: [(&str, &str); 6] = [
    ("gp_us_mean", "gp_mean_to_baseline"),
    ("gp_us_max", "gp_max_to_baseline"),
    ("delay_us_mean", "delay_mean_to_baseline"),
    ("delay_us_max", "delay_max_to_baseline"),
    ("cpu_us_per_gp", "cpu_per_gp_to_baseline"),
    ("peak_pending_bytes", "peak_pending_to_baseline"),
];

/// The same for the RCU of the guest's own kernel.
pub(super) const KERNEL_TO_BASELINE: [(&str, &str); 3] = [
    ("synchronize_rcu_us_mean", "synchronize_rcu_mean_to_baseline"),
    ("synchronize_rcu_us_max", "synchronize_rcu_max_to_baseline"),
    ("slab_bytes_most", "slab_to_baseline"),
];

/// Each metric with the name of its ratio to the same contender's with symmetric fences, in the same guest.
pub(super) const TO_SYMMETRIC: [(&str, &str); 4] = [
    ("gp_us_mean", "gp_mean_to_symmetric"),
    ("gp_us_max", "gp_max_to_symmetric"),
    ("delay_us_mean", "delay_mean_to_symmetric"),
    ("lookups_per_s", "lookups_to_symmetric"),
];

/// Adds the ratios to the metrics of the rows that have a row to compare with.
pub(super) fn insert(rows: &mut [Row]) {
    let all = rows.to_vec();
    for row in rows {
        let partner = |wanted: &dyn Fn(&Row) -> bool| {
            let same = |other: &&Row| other.contender == row.contender && workload(other) == workload(row);
            all.iter().filter(same).filter(|other| wanted(other)).max_by_key(|other| vcpus(other))
        };
        let mode = |row: &Row| row.params.get("mode").cloned();
        let baseline = partner(&|other| other.scenario == BASELINE && mode(other) == mode(row))
            .filter(|_| row.scenario == OVERCOMMIT);
        let symmetric = partner(&|other| same_guest(other, row) && mode(other) == Some(SYMMETRIC.into()))
            .filter(|_| mode(row) == Some(ASYMMETRIC.into()));
        let kinds: [(&[_], _); 3] =
            [(&TO_BASELINE, baseline), (&KERNEL_TO_BASELINE, baseline), (&TO_SYMMETRIC, symmetric)];
        let ratios: Vec<(&str, f64)> = kinds
            .into_iter()
            .filter_map(|(names, partner)| Some((names, partner?)))
            .flat_map(|(names, partner)| names.iter().map(move |&(of, name)| (name, of, partner)))
            .map(|(name, of, partner)| (name, ratio(row, partner, of)))
            .filter_map(|(name, ratio)| Some((name, ratio?)))
            .collect();
        for (name, ratio) in ratios {
            row.metrics.insert(name.to_owned(), number((ratio * 1e3).round() / 1e3));
        }
    }
}

/// The largest of several guests is compared with, not one with fewer readers.
fn vcpus(row: &Row) -> Option<u64> {
    row.params.get("vcpus")?.as_u64()
}

/// The load in the guest of a row.
pub(super) fn workload(row: &Row) -> Option<&str> {
    row.params.get("workload")?.as_str()
}

/// Whether two rows come from the same guest.
pub(super) fn same_guest(one: &Row, other: &Row) -> bool {
    one.scenario == other.scenario
        && ["vcpus", "hogs", "neighbour", "guests"]
            .iter()
            .all(|name| one.params.get(*name) == other.params.get(*name))
}

fn ratio(row: &Row, partner: &Row, metric: &str) -> Option<f64> {
    let below = partner.metric(metric).filter(|below| *below > 0.0)?;
    Some(row.metric(metric)? / below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value};

    fn row(scenario: &str, vcpus: usize, contender: &str, mode: &str, gp: Option<f64>) -> Row {
        let params: [(&str, Value); 3] = [("vcpus", vcpus.into()), ("hogs", 0.into()), ("mode", mode.into())];
        Row {
            experiment: "guest".into(),
            scenario: scenario.to_owned(),
            contender: contender.to_owned(),
            params: params.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            metrics: gp.into_iter().map(|gp| ("gp_us_mean".to_owned(), number(gp))).collect(),
            void: None,
        }
    }

    #[test]
    fn each_row_is_compared_with_its_own_kind() {
        let mut rows = [
            row(BASELINE, 2, "a", ASYMMETRIC, Some(10.0)),
            row(BASELINE, 2, "a", SYMMETRIC, Some(2.0)),
            row(OVERCOMMIT, 8, "a", ASYMMETRIC, Some(5_000.0)),
            row(OVERCOMMIT, 8, "a", SYMMETRIC, Some(4.0)),
            row(OVERCOMMIT, 8, "b", ASYMMETRIC, Some(1.0)),
        ];
        insert(&mut rows);
        let found = rows.each_ref().map(|row| {
            (row.metric("gp_mean_to_baseline"), row.metric("gp_mean_to_symmetric"), row.metrics.len())
        });
        assert_eq!(
            found,
            [
                (None, Some(5.0), 2),
                (None, None, 1),
                (Some(500.0), Some(1_250.0), 3),
                (Some(2.0), None, 2),
                (None, None, 1),
            ]
        );
    }

    #[test]
    fn a_row_is_not_compared_with_another_workload() {
        let with = |scenario, gp, workload: &str| {
            row(scenario, 2, "a", ASYMMETRIC, Some(gp)).with("workload", workload)
        };
        let mut rows = [
            with(BASELINE, 10.0, "deletes"),
            with(BASELINE, 2.0, "mail"),
            with(OVERCOMMIT, 30.0, "mail"),
            with(OVERCOMMIT, 30.0, "memory"),
        ];
        rows[1].put("synchronize_rcu_us_mean", 4.0, 0);
        rows[2].put("synchronize_rcu_us_mean", 8.0, 0);
        insert(&mut rows);
        let found = rows.each_ref().map(|row| row.metric("gp_mean_to_baseline"));
        assert_eq!(found, [None, None, Some(15.0), None]);
        assert_eq!(rows[2].metric("synchronize_rcu_mean_to_baseline"), Some(2.0));
    }

    #[test]
    fn nothing_is_divided_by_a_row_that_does_not_count() {
        let mut rows = [
            row(BASELINE, 2, "a", SYMMETRIC, None),
            row(OVERCOMMIT, 8, "a", SYMMETRIC, Some(4.0)),
            row(BASELINE, 2, "c", SYMMETRIC, Some(0.0)),
            row(OVERCOMMIT, 8, "c", SYMMETRIC, Some(4.0)),
        ];
        rows[0].metrics = Map::new();
        insert(&mut rows);
        assert!(rows.iter().all(|row| row.metrics.len() <= 1), "{rows:?}");
    }
}
