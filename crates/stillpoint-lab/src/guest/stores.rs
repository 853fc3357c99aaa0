//! The mail and memory workloads of `bench preempt` inside a guest: the same writer, with one reader on each virtual CPU but
//! the last, and a process of its own for each round.

use stillpoint_harness::experiment::rounds::{Rounds, in_turns};
use stillpoint_harness::output::json::{Row, number};

use super::contenders::{Entry, SYMMETRIC, of_stores};
use super::evaluate::places;
use super::pressure;
use super::wire::{Load, Measured, Measurement};
use crate::experiment::Inside;
use crate::preempt;
use crate::preempt::plan::{Setting, USUAL_SECTION};
use crate::preempt::round::{Moment, Outcome};
use crate::preempt::workload::Workload;
use crate::reclaim::names::Policy;

/// The course of a round has at most this many points: a console is slow.
const POINTS: usize = 40;

/// Figures of the guest in a round, beside those of the load.
pub(super) type Figures = Vec<(&'static str, f64)>;

/// Runs a round.
pub(super) type Measure = dyn Fn(&preempt::Round) -> Result<(Outcome, Figures), String>;

/// A row for each contender that was asked for and is available.
pub(super) fn run(
    order: &Measurement,
    load: Load,
    cpus: &[usize],
    round: &Measure,
) -> Result<Vec<Measured>, String> {
    let (reader_cpus, writer_cpu) = places(cpus)?;
    let entries = of_stores(&order.contenders, order.short);
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let workload = if load == Load::Mail { Workload::Mail } else { Workload::Memory };
    let setting = Setting { workload, section_us: USUAL_SECTION, inside: Inside::Always };
    let steps_per_us = preempt::calibrate(reader_cpus[0]).map_err(|stop| stop.to_string())?;
    let rounds = in_turns(
        &entries,
        order.store_rounds(),
        |number| order.seed.wrapping_add(number as u64),
        |entry, &seed| {
            round(&preempt::Round {
                contender: entry.name.to_owned(),
                symmetric: entry.mode == SYMMETRIC,
                setting,
                steps_per_us,
                reader_cpus: reader_cpus.to_vec(),
                writer_cpu,
                duration: order.round,
                seed,
            })
        },
    );
    let row = |(entry, rounds): (&&Entry, Rounds<(Outcome, Figures)>)| {
        measured(entry, load, &setting, reader_cpus.len(), order, rounds)
    };
    Ok(rounds.into_iter().map(row).collect())
}

fn measured(
    entry: &Entry,
    load: Load,
    setting: &Setting,
    readers: usize,
    order: &Measurement,
    rounds: Rounds<(Outcome, Figures)>,
) -> Measured {
    // All contenders except liburcu's free at each change.
    let policy = if entry.policy == Policy::Background { entry.policy } else { Policy::Delete };
    let row = Row::new("guest", "", entry.name)
        .with("workload", load.name())
        .with("mode", entry.mode)
        .with("readers", readers)
        .with("policy", policy.name())
        .with("elements", setting.workload.spec().slots)
        .with("section_us", number(setting.section_us))
        .with("rounds", rounds.as_ref().map_or(order.store_rounds() as usize, Vec::len))
        .with("round_s", number(order.round.as_secs_f64()));
    let parameter = pressure::parameter(load);
    let row = parameter.into_iter().fold(row, |row, (name, bytes)| row.with(name, bytes));
    // Under pressure, the figures of the guest are for the whole round.
    let course = rounds.as_ref().ok().and_then(|rounds| rounds.last()).filter(|_| parameter.is_none());
    let course = course.map(|(round, _)| thinned(&round.course));
    let row = row.measured(rounds, |row, rounds| {
        let (outcomes, figures): (Vec<Outcome>, Vec<Figures>) = rounds.into_iter().unzip();
        preempt::figures(row, &outcomes);
        // The longest of all rounds, as for the other workloads.
        let mut put_most =
            |name, of: fn(&Outcome) -> f64| row.put(name, outcomes.iter().map(of).fold(0.0, f64::max), 3);
        put_most("gp_us_max", |outcome| outcome.grace.max);
        put_most("delay_us_max", |outcome| outcome.delay.max);
        for (at, &(name, _)) in figures.first().into_iter().flatten().enumerate() {
            row.put_median(name, 1, &figures, |figures| figures[at].1);
        }
    });
    Measured { course: course.unwrap_or_default(), ..Measured::of(row) }
}

/// The same course, with fewer moments.
fn thinned(course: &[Moment]) -> Vec<Moment> {
    let together = |moments: &[Moment]| {
        let delays = moments.iter().filter_map(|moment| moment.delay_us_max);
        Some(Moment {
            second: moments.last()?.second,
            delay_us_max: delays.reduce(f64::max),
            pending_bytes: moments.iter().map(|moment| moment.pending_bytes).max()?,
        })
    };
    course.chunks(course.len().div_ceil(POINTS).max(1)).filter_map(together).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stillpoint_harness::machine::cpus;

    #[test]
    fn readers_have_the_fences_of_their_row_and_the_writer_the_last_cpu() {
        let order = Measurement {
            contenders: vec!["stillpoint/guard".to_owned()],
            loads: Vec::new(),
            short: false,
            rounds: 1,
            round: std::time::Duration::from_millis(1),
            elements: 256,
            seed: 3,
        };
        let told = |round: &preempt::Round| {
            Err(format!("{} {:?} {}", round.symmetric, round.reader_cpus, round.writer_cpu))
        };
        let here = cpus::allowed()[0];
        let rows = run(&order, Load::Mail, &[here, 98, 99], &told).unwrap();
        let told: Vec<(&str, Option<String>)> =
            rows.iter().map(|row| (row.row.params["mode"].as_str().unwrap(), row.row.void.clone())).collect();
        let expected = |symmetric| Some(format!("{symmetric} [{here}, 98] 99"));
        assert_eq!(told, [("asymmetric", expected(false)), ("symmetric", expected(true))]);
    }

    #[test]
    fn a_course_in_fewer_moments_keeps_its_peaks() {
        let moment = |at: usize| Moment {
            second: at as f64,
            delay_us_max: (at % 7 == 3).then_some(at as f64),
            pending_bytes: if at == 501 { 9_999 } else { at },
        };
        let course: Vec<Moment> = (1..=1_000).map(moment).collect();
        let thin = thinned(&course);
        assert_eq!((thin.len(), thin.last().unwrap().second), (POINTS, 1_000.0));
        assert!(thin.iter().any(|moment| moment.pending_bytes == 9_999));
        assert_eq!(thin[1].delay_us_max, Some(45.0));
        assert_eq!(thinned(&course[..2]), course[..2]);
        assert_eq!(thinned(&[]), []);
    }
}
