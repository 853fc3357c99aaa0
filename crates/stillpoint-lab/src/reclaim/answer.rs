//! The answer of the experiment in words: whether preempted readers hold up memory on this machine.

use stillpoint_harness::experiment::show::disturbance;
use stillpoint_harness::output::format::{micros, number_of, of_metric};
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::table;

use crate::peers;
use crate::reclaim::names::{ONE_CORE, OWN_CORE, PROTECTED};
use crate::reclaim::plan::is_ours;

/// Readers that share a CPU hold up memory if the delay is this many times as long as with one reader that has a CPU of its
/// own, ...
const TIMES: f64 = 3.0;
/// ... and this much longer, in microseconds: time slices take milliseconds.
const LONGER: f64 = 1_000.0;

/// A library's least mean delays.
struct Delays<'r> {
    library: &'r str,
    shared: &'r Row,
    /// With one reader that has a CPU of its own, if that was measured.
    alone: Option<&'r Row>,
}

impl Delays<'_> {
    fn is_stalled(&self) -> bool {
        let shared = mean(self.shared);
        self.alone.map(mean).is_some_and(|alone| shared > TIMES * alone && shared > alone + LONGER)
    }

    fn shown(&self) -> String {
        let (library, shared) = (self.library, micros(mean(self.shared)));
        match self.alone.map(mean) {
            Some(alone) => {
                let times = match mean(self.shared) / alone {
                    times @ 100.0.. => format!("{times:.0}"),
                    times => format!("{times:.2}"),
                };
                format!("{library} {times} times ({} to {shared})", micros(alone))
            }
            None => format!("{library} {shared}"),
        }
    }
}

fn mean(row: &Row) -> f64 {
    row.metric("delay_us_mean").unwrap_or(f64::INFINITY)
}

/// The mean delay, without the time that other programs took: a row that they disturbed may only seem to be worse than another.
fn hopeful(row: &Row) -> f64 {
    let foreign = disturbance([row]).and_then(|_| row.metric("foreign_cpus")).unwrap_or(0.0);
    mean(row) * (1.0 - foreign).max(0.0)
}

/// The rows that answer the question: those with the most readers that share a CPU, and those with one reader.
struct Rows<'r> {
    readers: u64,
    shared: Vec<&'r Row>,
    alone: Vec<&'r Row>,
}

impl<'r> Rows<'r> {
    /// `None` if no readers share a CPU.
    fn of(rows: &'r [Row]) -> Option<Self> {
        let is_here = |row: &&Row| {
            let is_counted = row.void.is_none() && row.metric("delay_us_mean").is_some();
            row.experiment == "reclaim" && is_counted && !row.is_control()
        };
        let of = |scenario: &str, readers: u64| -> Vec<&Row> {
            let is_one = |row: &&Row| row.scenario == scenario && row.param("readers") == Some(readers);
            rows.iter().filter(is_here).filter(is_one).collect()
        };
        let crowds = rows.iter().filter(is_here).filter(|row| row.scenario == ONE_CORE);
        let readers = crowds.filter_map(|row| row.param("readers")).filter(|&readers| readers > 1).max()?;
        let own_core = of(OWN_CORE, 1);
        let alone = if own_core.is_empty() { of(ONE_CORE, 1) } else { own_core };
        Some(Self { readers, shared: of(ONE_CORE, readers), alone })
    }

    /// The best of each library; of ours, the contender that a user gets who chooses nothing.
    fn libraries(&self) -> Vec<Delays<'r>> {
        let mut all: Vec<Delays<'_>> = Vec::new();
        let best = |rows: &[&'r Row], is_one: &dyn Fn(&str) -> bool| {
            let of_library = rows.iter().copied().filter(|row| is_one(&row.contender));
            of_library.min_by(|one, other| hopeful(one).total_cmp(&hopeful(other)))
        };
        let of = |library: &'r str, is_one: &dyn Fn(&str) -> bool| {
            Some(Delays { library, shared: best(&self.shared, is_one)?, alone: best(&self.alone, is_one) })
        };
        for row in self.shared.iter().filter(|row| !is_ours(&row.contender)) {
            let library = peers::group(&row.contender);
            if all.iter().all(|known| known.library != library) {
                all.extend(of(library, &|name| peers::group(name) == library));
            }
        }
        all.extend(of("stillpoint with protected loads", &|name| name == PROTECTED));
        all
    }
}

/// The question that the experiment answers.
pub(crate) const QUESTION: &str = "Do preempted readers stall memory here?";

/// The answer of these rows, in words; `None` if they have none.
pub(crate) fn answer(rows: &[Row]) -> Option<String> {
    let rows = Rows::of(rows)?;
    let all = rows.libraries();
    if all.is_empty() {
        return None;
    }
    let used = all.iter().flat_map(|delays| [Some(delays.shared), delays.alone]).flatten();
    let stalled = all.iter().filter(|delays| delays.is_stalled());
    let stalled: Vec<&str> =
        stalled.map(|delays| delays.library.split(' ').next().unwrap_or_default()).collect();
    let verdict = match stalled.split_last() {
        _ if disturbance(used).is_some() => {
            "This run does not tell, since other programs ran on these CPUs: repeat it on quiet CPUs."
                .to_owned()
        }
        _ if rows.alone.is_empty() => {
            "This run does not tell: the scenario own-core would tell whether preempted readers cause this."
                .to_owned()
        }
        None => "Not in this run.".to_owned(),
        Some((last, [])) => format!("Yes, that of {last}."),
        Some((last, before)) => format!("Yes, that of {} and {last}.", before.join(", ")),
    };
    let beside = if rows.alone.is_empty() { "" } else { ", beside one reader on a CPU of its own" };
    let shown: Vec<String> = all.iter().map(Delays::shown).collect();
    let readers = rows.readers;
    Some(format!(
        "{verdict} Mean delay until memory is freed, with {readers} readers on one CPU{beside}: {}.",
        shown.join(", ")
    ))
}

/// The rows of the best contender of each library, for a figure with a line for each.
pub(crate) fn of_libraries(rows: &[Row]) -> Vec<Row> {
    let best = Rows::of(rows).map(|rows| rows.libraries()).unwrap_or_default();
    let is_best = |row: &&Row| best.iter().any(|delays| delays.shared.contender == row.contender);
    rows.iter().filter(|row| row.experiment == "reclaim").filter(is_best).cloned().collect()
}

/// Prints a line for each contender, those first that free soonest beside preempted readers. Returns whether there were any.
pub(crate) fn table(rows: &[Row]) -> bool {
    let Some(mut rows) = Rows::of(rows) else { return false };
    rows.shared.sort_by(|one, other| mean(one).total_cmp(&mean(other)));
    let delay = |row: Option<&&Row>| row.map(|row| micros(mean(row))).unwrap_or_default();
    let line = |row: &&Row| {
        let alone = rows.alone.iter().find(|alone| alone.contender == row.contender);
        let size = row.param("bytes").unwrap_or_default() as f64;
        let waits = row.shown("peak_pending", |pending| of_metric("bytes", pending * size));
        let lookups = row.shown("lookups_per_s", |rate| of_metric("lookups_per_s", rate));
        [row.contender.clone(), delay(alone), delay(Some(row)), waits, lookups]
    };
    let readers = format!("{} on one CPU", number_of(rows.readers, "reader"));
    let header = ["contender", "1 reader", &readers, "waits at most", "lookups"];
    table::of_lines(
        "Mean delay from unlink to free, and what waits meanwhile",
        &header,
        1,
        rows.shared.iter().map(line),
    );
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scenario: &str, readers: u64, contender: &str, delay: f64) -> Row {
        let mut row = Row::new("reclaim", scenario, contender).with("readers", readers).with("round_s", 1.0);
        row.put("delay_us_mean", delay, 3);
        row
    }

    fn shared() -> Vec<Row> {
        vec![
            row(ONE_CORE, 8, PROTECTED, 110.0),
            row(ONE_CORE, 8, "dpdk/rcu", 27_600.0),
            row(ONE_CORE, 8, "dpdk/rcu+background", 26_000.0),
            row(ONE_CORE, 8, "liburcu/qsbr", 12_000.0),
            row(ONE_CORE, 2, "dpdk/rcu", 120.0),
        ]
    }

    fn all() -> Vec<Row> {
        let mut rows = shared();
        rows.extend([
            row(OWN_CORE, 1, PROTECTED, 100.0),
            row(OWN_CORE, 1, "dpdk/rcu", 120.0),
            row(OWN_CORE, 1, "liburcu/qsbr", 8_300.0),
        ]);
        rows
    }

    #[test]
    fn the_answer_names_the_best_of_each_library_and_who_is_held_up() {
        assert_eq!(
            answer(&all()).unwrap(),
            "Yes, that of dpdk. Mean delay until memory is freed, with 8 readers on one CPU, beside one reader on a CPU of its \
             own: dpdk 217 times (120 µs to 26.0 ms), liburcu 1.45 times (8.30 ms to 12.0 ms), stillpoint with protected loads \
             1.10 times (100 µs to 110 µs)."
        );
        let best: Vec<Row> = of_libraries(&all());
        let names: Vec<&str> = best.iter().map(|row| row.contender.as_str()).collect();
        assert!(names.contains(&"dpdk/rcu+background") && !names.contains(&"dpdk/rcu"), "{names:?}");
    }

    #[test]
    fn what_does_not_tell_is_not_told() {
        let mut short = all();
        short.retain(|row| !row.contender.starts_with("dpdk"));
        let said = answer(&short).unwrap();
        assert!(said.starts_with("Not in this run."), "a thread that batches: {said}");
        let said = answer(&shared()).unwrap();
        assert!(said.contains("tell whether preempted readers cause this."), "{said}");
        // The best of its library, and one that is worse.
        for disturbed in [2, 1] {
            let mut busy = all();
            assert!(busy[disturbed].contender.starts_with("dpdk"));
            busy[disturbed].put("foreign_cpus", 0.4, 3);
            let said = answer(&busy).unwrap();
            assert!(said.contains("quiet CPUs") && !said.contains("Yes"), "{said}");
        }
        let without_ours = answer(&all()[1..]).unwrap();
        assert!(
            !without_ours.contains("stillpoint") && without_ours.starts_with("Yes, that of dpdk."),
            "{without_ours}"
        );
        let mut void = all();
        void[2].void = Some("it does not count".to_owned());
        assert!(answer(&void).unwrap().contains("dpdk 230 times (120 µs to 27.6 ms)"));
        let mut ours = all();
        ours[0].put("delay_us_mean", 50_000.0, 3);
        assert!(answer(&ours).unwrap().starts_with("Yes, that of dpdk and stillpoint."));
        assert_eq!(answer(&all()[5..]), None, "no readers share a CPU");
    }
}
