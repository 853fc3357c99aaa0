//! The measurements inside the guest, one load after the other.
//!
//! Readers run on all virtual CPUs but the last, and the writer on the last. So when the host takes a virtual CPU away, it
//! stops exactly one reader, or the writer. The rounds of the contenders follow each other in rotated order.

use std::path::Path;

use super::pressure::{ballooning, swapping};
use super::wire::{Load, Measured, Measurement};
use super::{deletes, kernel, postmark, stores};
use crate::preempt;
use crate::preempt::round::Outcome;
use stillpoint_harness::machine::cpus;

/// The means of the measurements: in a guest the real ones, and in tests harmless ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Means {
    /// Runs a round of `bench preempt`.
    pub(super) round: fn(&preempt::Round) -> Result<Outcome, String>,
    /// Where tracefs is mounted, if it may be written to.
    pub(super) tracing: Option<&'static Path>,
}

/// Measures what was ordered on the CPUs of this machine.
pub(super) fn run(order: &Measurement, means: Means) -> Result<Vec<Measured>, String> {
    let cpus = cpus::allowed();
    let mut rows = Vec::new();
    for load in &order.loads {
        rows.extend(match load {
            Load::Deletes => deletes::run(order, &cpus)?,
            Load::Mail | Load::Memory => {
                stores::run(order, *load, &cpus, &move |round| Ok(((means.round)(round)?, Vec::new())))?
            }
            Load::Swap => stores::run(order, *load, &cpus, &swapping(means.round))?,
            Load::Balloon => stores::run(order, *load, &cpus, &ballooning(means.round))?,
            Load::Kernel => kernel::run(order, &cpus, means.tracing)?,
            Load::Postmark => postmark::run(order, &cpus, means.tracing)?,
        });
    }
    match rows.is_empty() {
        true => Err("the program in the guest was built without these contenders".to_owned()),
        false => Ok(rows),
    }
}

/// The CPUs of the readers, and that of the writer.
pub(super) fn places(cpus: &[usize]) -> Result<(&[usize], usize), String> {
    match cpus.split_last() {
        Some((&writer, readers)) if !readers.is_empty() => Ok((readers, writer)),
        _ => Err("one reader and one writer need 2 virtual CPUs".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::guest::contenders::{KERNEL, NONE};

    const MEANS: Means = Means { round: preempt::child::obey, tracing: None };

    fn order(loads: &[Load], contenders: &[&str]) -> Measurement {
        Measurement {
            contenders: contenders.iter().map(|&name| name.to_owned()).collect(),
            loads: loads.to_vec(),
            short: false,
            rounds: 2,
            round: Duration::from_millis(20),
            elements: 256,
            seed: 3,
        }
    }

    fn has(row: &Measured, names: &[&str]) {
        assert_eq!(row.row.void, None, "{row:?}");
        for name in names {
            let value = row.row.metrics.get(*name).and_then(serde_json::Value::as_f64);
            assert!(value.is_some_and(|value| value > 0.0), "{name}: {row:?}");
        }
    }

    #[test]
    fn every_contender_has_a_row_with_all_its_metrics() {
        if cpus::allowed().len() < 2 {
            return assert!(
                run(&order(&[Load::Deletes], &[]), MEANS).unwrap_err().contains("2 virtual CPUs")
            );
        }
        let rows = run(&order(&[Load::Deletes], &[]), MEANS).unwrap();
        assert!(rows.len() >= 6, "{rows:?}");
        for row in rows {
            has(&row, &["gp_us_mean", "gp_us_max", "delay_us_mean", "delay_us_p99", "lookups_per_s"]);
            has(&row, &["cpu_us_per_gp"]);
            // Protected loads may hold none of the few objects.
            assert!(row.row.metrics.contains_key("peak_pending_bytes"), "{row:?}");
            assert_eq!(row.row.params["workload"], "deletes");
            assert_eq!(
                row.row.metrics.contains_key("fence_us_mean"),
                row.row.contender == "stillpoint/protected"
            );
        }
    }

    #[test]
    fn mail_and_memory_have_the_figures_of_preempt_and_the_course_of_a_round() {
        if cpus::allowed().len() < 2 {
            return;
        }
        let rows = run(&order(&[Load::Mail, Load::Memory], &["stillpoint/protected"]), MEANS).unwrap();
        let of = |row: &Measured| {
            let text = |name| row.row.params[name].as_str().unwrap().to_owned();
            (text("workload"), text("mode"))
        };
        let expected = [("mail", "asymmetric"), ("mail", "symmetric")];
        let expected = expected.into_iter().chain([("memory", "asymmetric"), ("memory", "symmetric")]);
        assert!(
            rows.iter().map(of).eq(expected.map(|(load, mode)| (load.to_owned(), mode.to_owned()))),
            "{rows:?}"
        );
        for row in &rows {
            has(row, &["gp_us_mean", "gp_us_max", "cpu_us_per_gp", "peak_pending_bytes", "delay_us_mean"]);
            assert!(!row.course.is_empty(), "{row:?}");
        }
        let short = Measurement { short: true, ..order(&[Load::Mail], &["stillpoint", "liburcu/qsbr"]) };
        let short = run(&short, MEANS).unwrap();
        let names: Vec<&str> = short.iter().map(|row| row.row.contender.as_str()).collect();
        assert_eq!(names, ["stillpoint/protected"; 2], "a short run has no others of these");
        assert!(short.iter().all(|row| row.row.params["rounds"] == 1), "{short:?}");
    }

    /// Where a kernel's RCU is not what it should be, the row says so, and has no figures.
    #[test]
    fn the_kernels_own_rcu_has_a_row() {
        if cpus::allowed().len() < 2 {
            return;
        }
        let rows = run(&order(&[Load::Kernel], &[]), MEANS).unwrap();
        let [row] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!((row.row.contender.as_str(), &row.row.params["mode"]), (KERNEL, &NONE.into()));
        match &row.row.void {
            None => {
                has(row, &["synchronize_rcu_us_mean", "synchronize_rcu_us_max", "calls"]);
                assert!(
                    row.row.params["grace_periods_by"].as_str().unwrap().starts_with("none: "),
                    "{row:?}"
                );
            }
            Some(_) => assert!(row.row.metrics.is_empty(), "{row:?}"),
        }
        assert!(run(&order(&[Load::Kernel], &["liburcu"]), MEANS).is_err(), "it was not asked for");
    }

    /// Without the kernel's trace, nothing is started, and the row says why.
    #[test]
    fn postmark_has_a_row() {
        let rows = run(&order(&[Load::Postmark], &[]), MEANS).unwrap();
        let [row] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!((row.row.contender.as_str(), &row.row.params["workload"]), (KERNEL, &"postmark".into()));
        assert_eq!(row.row.void.as_deref(), Some("tracefs cannot be mounted"));
        assert!(run(&order(&[Load::Postmark], &["liburcu"]), MEANS).is_err(), "it was not asked for");
    }

    /// Outside a guest, nothing is changed, and the rows say why.
    #[test]
    fn memory_under_pressure_has_rows() {
        if cpus::allowed().len() < 2 {
            return;
        }
        let rows = run(&order(&[Load::Swap, Load::Balloon], &["stillpoint/protected"]), MEANS).unwrap();
        let found: Vec<_> =
            rows.iter().map(|row| (&row.row.params["workload"], row.row.void.as_deref().unwrap())).collect();
        let why = "modules are loaded only in a guest";
        assert!(
            found.iter().map(|&(load, void)| (load.as_str().unwrap(), void)).eq([
                ("swap", why),
                ("swap", why),
                ("balloon", why),
                ("balloon", why)
            ]),
            "{found:?}"
        );
        assert_eq!(rows[0].row.params["limit_bytes"], 13 << 20);
        assert_eq!(rows[3].row.params["asked_bytes"], 160 << 20);
    }

    #[test]
    fn a_contender_that_is_not_built_in_is_an_error() {
        if cpus::allowed().len() >= 2 {
            let all = [Load::Deletes, Load::Mail, Load::Memory, Load::Kernel];
            assert!(run(&order(&all, &["nobody"]), MEANS).unwrap_err().contains("without these contenders"));
        }
    }

    #[test]
    fn one_cpu_is_too_few() {
        assert!(places(&[0]).is_err() && places(&[]).is_err());
        assert_eq!(places(&[0, 1, 2, 3]), Ok((&[0, 1, 2][..], 3)));
    }
}
