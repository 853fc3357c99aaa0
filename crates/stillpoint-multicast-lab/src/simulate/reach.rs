//! Which value of one input, or of two, would let the flat order reach the frequency that the poster implies.
//!
//! The model's flat order has fewer grace periods a second. For each input, this searches the values that are valid for one with
//! which it has as many. The search assumes that the frequency rises or falls all the way with an input.

use stillpoint_harness::interrupt;
use stillpoint_harness::output::json::Row;

use super::experiment::{self, Setup};
use super::inputs::{self, Input};
use super::machine::Machine;
use super::{contender, rows};

/// The scenario of its rows.
pub(super) const REACH: &str = "reach";

/// The frequency to reach, in grace periods a second.
const HERTZ: f64 = 10_000.0;
/// Grace periods of each simulation.
const COUNT: usize = 10;
/// The exponent of a factor so far from 1 that every input comes to an end of what is valid.
const FARTHEST: f64 = 60.0;
/// Halvings of the range of factors. What is left of it is below the digits that are shown.
const HALVINGS: u32 = 40;
/// In the place of a value: flat reaches it already, and no value is enough.
const PRESENT: &str = "the present value";
const NONE: &str = "no value";

/// The grace periods a second of the flat order, when its writer waits for one after the other; 0 if the simulation broke.
fn hertz(machine: &Machine, seed: u64) -> f64 {
    let setup = |contender| Setup { machine, contender, count: COUNT, seed };
    let found = contender::find(rows::BASE).map(|flat| setup(flat).grace_periods(0.0));
    found.filter(|found| found.broken.is_none()).map_or(0.0, |found| found.hertz)
}

/// Between 0, where it does not hold, and `far`, where it does: a point where it holds, nearly the closest to 0.
fn first(far: f64, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut not, mut does) = (0.0, far);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(not, does);
        if holds(middle) {
            does = middle;
        } else {
            not = middle;
        }
    }
    does
}

/// An input, and the end of its range at which flat has the most grace periods: -1 the least value, 1 the largest, 0 the present one.
type Lever = (&'static Input, f64);

/// The machine with each of these inputs changed towards its end.
fn pulled(machine: &Machine, levers: &[Lever], exponent: f64) -> Machine {
    // By the exponent: from the least value to the largest are many orders of magnitude.
    let pull =
        |machine: Machine, &(input, end): &Lever| input.scaled_within(&machine, (end * exponent).exp2());
    levers.iter().fold(machine.clone(), pull)
}

/// A row for each input that changes the frequency: its value, the value with which flat reaches [`HERTZ`], and the most that
/// it reaches with any. Then, if one input is not enough, a row for each two that are enough if both are changed by one factor.
/// Empty after Ctrl-C.
pub(super) fn rows(machine: &Machine, seed: u64) -> Vec<Row> {
    let present = hertz(machine, seed);
    let inputs: Vec<&Input> = inputs::ALL.iter().collect();
    let levers = experiment::in_parallel(&inputs, |input| lever(input, machine, seed, present));
    let levers: Vec<Lever> = levers.into_iter().flatten().collect();
    let of = |sets: &[Vec<Lever>]| experiment::in_parallel(sets, |set| row(set, machine, seed, present));
    let mut rows = of(&levers.iter().map(|&one| vec![one]).collect::<Vec<_>>());
    let is_enough = |row: &Row| row.params["needed"] != NONE;
    if !rows.iter().any(is_enough) {
        let useful: Vec<Lever> = levers.into_iter().filter(|lever| lever.1 != 0.0).collect();
        let others = |at: usize| useful[at + 1..].iter().map(move |&other| (at, other));
        let pairs = (0..useful.len()).flat_map(others).map(|(at, other)| vec![useful[at], other]);
        rows.extend(of(&pairs.collect::<Vec<_>>()).into_iter().filter(is_enough));
    }
    if interrupt::requested() { Vec::new() } else { rows }
}

/// Which end of an input is the better one; `None` if it changes nothing.
fn lever(input: &'static Input, machine: &Machine, seed: u64, present: f64) -> Option<Lever> {
    let ends = [-1.0, 1.0].map(|end| (end, hertz(&pulled(machine, &[(input, end)], FARTHEST), seed)));
    if ends.iter().all(|end| end.1 == present) {
        return None;
    }
    let best = ends.into_iter().chain([(0.0, present)]).max_by(|one, other| one.1.total_cmp(&other.1))?;
    Some((input, best.0))
}

/// The row of one input, or of two.
fn row(levers: &[Lever], machine: &Machine, seed: u64, present: f64) -> Row {
    let at = |exponent| hertz(&pulled(machine, levers, exponent), seed);
    let joined = |of: &dyn Fn(&Input) -> String, between| {
        levers.iter().map(|lever| of(lever.0)).collect::<Vec<_>>().join(between)
    };
    let value = |machine: &Machine| joined(&|input| input.value(machine), "; ");
    let most = at(FARTHEST);
    let needed = if present >= HERTZ {
        PRESENT.to_owned()
    } else if most >= HERTZ {
        let enough = |exponent| interrupt::requested() || at(exponent) >= HERTZ;
        value(&pulled(machine, levers, first(FARTHEST, enough)))
    } else {
        NONE.to_owned()
    };
    let mut row = Row::new("simulate", REACH, joined(&|input| input.name.to_owned(), " and "))
        .with("shown", value(machine))
        .with("needed", needed)
        .with("best", value(&pulled(machine, levers, FARTHEST)));
    row.put("present_hertz", present, 1);
    row.put("most_hertz", most, 1);
    row
}

#[cfg(test)]
mod tests {
    use super::super::machine::{Rcu, Topology};
    use super::*;

    const SEED: u64 = 1;

    fn seed() -> Machine {
        Machine::load("seed").unwrap()
    }

    fn input(name: &str) -> &'static Input {
        inputs::ALL.iter().find(|input| input.name == name).unwrap()
    }

    /// The row of one of these machines, and whether the model reaches the frequency with and just before the values in it.
    fn found(machine: &Machine, name: &str) -> (Row, bool, bool) {
        let row = rows(machine, SEED).into_iter().find(|row| row.contender == name).unwrap();
        let levers: Vec<Lever> = name.split(" and ").map(|name| (input(name), -1.0)).collect();
        let reaches = |exponent| hertz(&pulled(machine, &levers, exponent), SEED) >= HERTZ;
        let at = first(FARTHEST, reaches);
        let values = pulled(machine, &levers, at);
        let values: Vec<String> = levers.iter().map(|lever| lever.0.value(&values)).collect();
        assert_eq!(row.params["needed"], values.join("; "));
        (row, reaches(at), reaches(at - 0.01))
    }

    #[test]
    fn no_input_of_the_posters_machine_is_enough_and_two_are() {
        let machine = seed();
        let rows = rows(&machine, SEED);
        assert_eq!(rows, super::rows(&machine, SEED), "the same seed gave other values");
        let single = |row: &&Row| !row.contender.contains(" and ");
        assert!(rows.iter().filter(single).all(|row| {
            row.params["needed"] == NONE && row.metric("most_hertz").is_some_and(|most| most < HERTZ)
        }));
        let sibling = rows.iter().find(|row| row.contender == "noise.busy_sibling").unwrap();
        assert_eq!(sibling.params["best"], "1");
        // Flat sends one interrupt at a time, and no tree, mutex or flush is part of it.
        for name in ["interrupt_each", "nanoseconds.flush", "mutex_handover", "cluster", "split_percent"] {
            assert!(!rows.iter().any(|row| row.contender.contains(name)), "{name}");
        }
        let (row, reaches, before) = found(&machine, "nanoseconds.push and nanoseconds.read");
        assert!(reaches && !before && row.metric("most_hertz").unwrap() > HERTZ, "{row:?}");
    }

    #[test]
    fn where_one_input_is_enough_its_value_is_just_enough() {
        let machine = Machine { rcu: Rcu { barriers_per_grace_period: 1, ..seed().rcu }, ..seed() };
        let (row, reaches, before) = found(&machine, "nanoseconds.read");
        assert!(reaches && !before, "{row:?}");
        assert!(rows(&machine, SEED).iter().all(|row| !row.contender.contains(" and ")));
    }

    #[test]
    fn a_machine_that_reaches_it_needs_no_other_value() {
        let few = Topology { sockets: 1, cores_per_socket: 4, threads_per_core: 1 };
        let rows = rows(&Machine { topology: few, ..seed() }, SEED);
        assert!(!rows.is_empty() && rows.iter().all(|row| row.params["needed"] == PRESENT));
    }
}
