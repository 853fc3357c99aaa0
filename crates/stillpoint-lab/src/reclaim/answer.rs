//! The answer of the experiment in words: whether preempted readers hold up memory on this machine.

use stillpoint_harness::experiment::show::disturbance;
use stillpoint_harness::output::format::micros;
use stillpoint_harness::output::json::Row;

use crate::peers;
use crate::reclaim::names::{ONE_CORE, OWN_CORE, PROTECTED};
use crate::reclaim::plan::is_ours;

/// Readers that share a CPU hold up memory if the delay is this many times as long as with one reader that has a CPU of its
/// own, ...
const TIMES: f64 = 3.0;
/// ... and this much longer, in microseconds: time slices take milliseconds.
const LONGER: f64 = 1_000.0;

/// The rows of a library with the least mean delays.
struct Delays<'r> {
    library: &'r str,
    shared: &'r Row,
    /// With one reader that has a CPU of its own, if that was measured.
    alone: Option<&'r Row>,
}

impl<'r> Delays<'r> {
    /// Of the contenders that `is_one` accepts.
    fn of(
        library: &'r str,
        shared: &[&'r Row],
        alone: &[&'r Row],
        is_one: impl Fn(&str) -> bool,
    ) -> Option<Self> {
        let least = |rows: &[&'r Row]| {
            let of_library = rows.iter().copied().filter(|row| is_one(&row.contender));
            of_library.min_by(|one, other| mean(one).total_cmp(&mean(other)))
        };
        Some(Self { library, shared: least(shared)?, alone: least(alone) })
    }

    fn is_held_up(&self) -> bool {
        let shared = mean(self.shared);
        self.alone.map(mean).is_some_and(|alone| shared > TIMES * alone && shared > alone + LONGER)
    }

    fn shown(&self) -> String {
        let alone = self.alone.map_or_else(String::new, |alone| format!(" ({})", micros(mean(alone))));
        micros(mean(self.shared)) + &alone
    }
}

fn mean(row: &Row) -> f64 {
    row.metric("delay_us_mean").unwrap_or(f64::INFINITY)
}

/// What the largest number of readers that share a CPU does to memory on this machine, in words; `None` if that was not
/// measured.
pub(crate) fn answer(rows: &[Row]) -> Option<String> {
    let is_here = |row: &&Row| {
        let is_counted = row.void.is_none() && row.metric("delay_us_mean").is_some();
        row.experiment == "reclaim" && is_counted && !row.is_control()
    };
    let of = |scenario: &str, readers: u64| -> Vec<&Row> {
        let is_one = |row: &&Row| row.scenario == scenario && row.param("readers") == Some(readers);
        rows.iter().filter(is_here).filter(is_one).collect()
    };
    let crowds = rows.iter().filter(is_here).filter(|row| row.scenario == ONE_CORE);
    let crowd = crowds.filter_map(|row| row.param("readers")).filter(|&readers| readers > 1).max()?;
    let (shared, own_core) = (of(ONE_CORE, crowd), of(OWN_CORE, 1));
    let alone = if own_core.is_empty() { of(ONE_CORE, 1) } else { own_core };

    let mut all: Vec<Delays<'_>> = Vec::new();
    for row in shared.iter().filter(|row| !is_ours(&row.contender)) {
        let library = peers::group(&row.contender);
        if all.iter().all(|known| known.library != library) {
            all.extend(Delays::of(library, &shared, &alone, |name| peers::group(name) == library));
        }
    }
    all.extend(Delays::of("stillpoint with protected loads", &shared, &alone, |name| name == PROTECTED));
    let first = all.first()?;
    let rest = all[1..].iter().map(|other| format!(", {} after {}", other.library, other.shown()));
    let with_one = if alone.is_empty() { "" } else { "; in brackets, with one reader on a CPU of its own" };
    let facts = format!(
        "In words: with {crowd} readers on one CPU, {} frees memory after {} at best{}{with_one}.",
        first.library,
        first.shown(),
        rest.collect::<String>(),
    );
    let used = all.iter().flat_map(|delays| [Some(delays.shared), delays.alone]).flatten();
    let held_up: Vec<&str> = all
        .iter()
        .filter(|delays| delays.is_held_up())
        .map(|delays| delays.library.split(' ').next().unwrap_or_default())
        .collect();
    let verdict = if disturbance(used).is_some() {
        " Other programs ran on these CPUs, so these figures do not tell whether preempted readers hold up memory here: \
         repeat the run on quiet CPUs."
            .to_owned()
    } else if alone.is_empty() {
        " The scenario own-core would tell whether preempted readers cause this.".to_owned()
    } else if held_up.is_empty() {
        " So preempted readers did not hold up memory in this run.".to_owned()
    } else {
        let names = match held_up.split_last() {
            Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
            _ => held_up.concat(),
        };
        format!(" So preempted readers hold up memory on this machine: that of {names}.")
    };
    Some(facts + &verdict)
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
            "In words: with 8 readers on one CPU, dpdk frees memory after 26.0 ms (120 µs) at best, liburcu after 12.0 ms \
             (8.30 ms), stillpoint with protected loads after 110 µs (100 µs); in brackets, with one reader on a CPU of its \
             own. So preempted readers hold up memory on this machine: that of dpdk."
        );
    }

    #[test]
    fn what_does_not_tell_is_not_told() {
        let mut short = all();
        short.retain(|row| !row.contender.starts_with("dpdk"));
        let said = answer(&short).unwrap();
        assert!(said.ends_with("did not hold up memory in this run."), "a thread that batches: {said}");
        let said = answer(&shared()).unwrap();
        assert!(said.ends_with("tell whether preempted readers cause this."), "{said}");
        let mut busy = all();
        busy[2].put("foreign_cpus", 0.4, 3);
        let said = answer(&busy).unwrap();
        assert!(said.contains("quiet CPUs") && !said.contains("hold up memory on"), "{said}");
        let without_ours = answer(&all()[1..]).unwrap();
        assert!(
            !without_ours.contains("stillpoint") && without_ours.ends_with("that of dpdk."),
            "{without_ours}"
        );
        let mut void = all();
        void[2].void = Some("it does not count".to_owned());
        assert!(answer(&void).unwrap().contains("dpdk frees memory after 27.6 ms"));
        let mut ours = all();
        ours[0].put("delay_us_mean", 50_000.0, 3);
        assert!(answer(&ours).unwrap().ends_with("that of dpdk and stillpoint."));
        assert_eq!(answer(&all()[5..]), None, "no readers share a CPU");
    }
}
