//! Contenders in turns: all are measured for the same number of rounds, in an order that rotates, so that changes of the
//! machine during the run affect all of them.

use std::time::Duration;

use super::control::named_with_control;
use crate::interrupt;
use crate::output::json::{Row, number};
use crate::output::progress::Progress;

/// The results of a contender's rounds, or why they do not count.
pub type Rounds<T> = Result<Vec<T>, String>;

/// The order of the contenders in a round: each of the `count` once. Each round begins one contender later than the
/// round before.
pub fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| (turn + round) % count)
}

/// Measures the rounds of all contenders. Returns the contenders that have a result or an error.
///
/// `begin` gets the number of each round, and prepares the work of all contenders in it. An error voids its
/// contender, which is not measured again. After an interrupt, an error voids nothing: a round that was cut short
/// returns an error.
pub fn in_turns<'c, C, W, T>(
    contenders: &'c [C],
    rounds: u32,
    mut begin: impl FnMut(usize) -> W,
    mut measure: impl FnMut(&'c C, &W) -> Result<T, String>,
) -> Vec<(&'c C, Rounds<T>)> {
    let mut results: Vec<Rounds<T>> = contenders.iter().map(|_| Ok(Vec::new())).collect();
    'rounds: for round in (0..rounds as usize).take_while(|_| !interrupt::requested()) {
        let work = begin(round);
        for at in turns(round, contenders.len()) {
            let Ok(measured) = &mut results[at] else { continue };
            match measure(&contenders[at], &work) {
                Ok(outcome) => measured.push(outcome),
                Err(reason) if !interrupt::requested() => results[at] = Err(reason),
                Err(_) => {}
            }
            if interrupt::requested() {
                break 'rounds;
            }
        }
    }
    let begun = |rounds: &Rounds<T>| !rounds.as_ref().is_ok_and(Vec::is_empty);
    contenders.iter().zip(results).filter(|(_, rounds)| begun(rounds)).collect()
}

/// A setting, and the contenders that are measured in it.
#[derive(Debug)]
pub struct Part<S, C> {
    /// The setting.
    pub setting: S,
    /// The contenders.
    pub contenders: Vec<C>,
}

/// The number of rows of all parts, with a [control](super::control) in each.
pub fn rows<S, C>(parts: &[Part<S, C>]) -> usize {
    parts.iter().map(|part| part.contenders.len() + 1).sum()
}

/// Measures part after part until an interrupt.
pub fn in_parts<S, C>(parts: &[Part<S, C>], measure: impl FnMut(&Part<S, C>) -> Vec<Row>) -> Vec<Row> {
    parts.iter().take_while(|_| !interrupt::requested()).flat_map(measure).collect()
}

/// The rounds of an experiment.
#[derive(Debug)]
pub struct Turns {
    /// How many there are.
    pub rounds: u32,
    /// The time of each.
    pub round: Duration,
    /// The seed of the first one.
    pub seed: u64,
}

impl Turns {
    /// Progress over all rounds of these parts.
    pub fn progress<S, C>(&self, parts: &[Part<S, C>]) -> Progress {
        Progress::new(rows(parts) * self.rounds as usize)
    }

    /// Measures all contenders of all parts in turns, with a [control](super::control) in each part; a row for each contender that
    /// completed a round, or that does not count. `stage` names a setting for people. `measure` gets the
    /// seed of the round, and `row` makes a row without the parameters of rounds and without `figures`.
    pub fn measure<S, C, T>(
        &self,
        parts: &[Part<S, C>],
        progress: &Progress,
        stage: impl Fn(&S) -> String,
        measure: impl Fn(&S, &C, u64) -> Result<T, String>,
        row: impl Fn(&S, &C) -> Row,
        figures: impl Fn(&mut Row, &[T]),
    ) -> Vec<Row> {
        in_parts(parts, |Part { setting, contenders }| {
            let stage = stage(setting);
            let begin = |round: usize| {
                progress.stage(&format!("{stage}, round {} of {}", round + 1, self.rounds));
                self.seed.wrapping_add(round as u64)
            };
            let measure = |(name, contender): &(String, &C), &seed: &u64| {
                progress.begin(format!("{stage}, {name}"));
                let outcome = measure(setting, contender, seed);
                progress.step();
                outcome
            };
            let of_contender = |((name, contender), rounds): (&(String, &C), Rounds<T>)| {
                let row = Row { contender: name.clone(), ..row(setting, contender) };
                row.with("rounds", rounds.as_ref().map_or(self.rounds as usize, Vec::len))
                    .with("round_s", number(self.round.as_secs_f64()))
                    .measured(rounds, |row, rounds| figures(row, &rounds))
            };
            let contenders = named_with_control(contenders, |contender| row(setting, contender).contender);
            in_turns(&contenders, self.rounds, begin, measure).into_iter().map(of_contender).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_begins_once_and_an_error_ends_its_own_rounds_only() {
        let mut order = String::new();
        let rounds = in_turns(
            &["a", "b", "c", "d"],
            3,
            |round| round,
            |&name, &round| {
                order += name;
                if (name, round) == ("b", 1) { Err("as asked".to_owned()) } else { Ok(round) }
            },
        );
        assert_eq!(order, "abcdbcdacda");
        let (all, void) = (Ok(vec![0, 1, 2]), Err("as asked".to_owned()));
        assert_eq!(rounds, [(&"a", all.clone()), (&"b", void), (&"c", all.clone()), (&"d", all)]);
        assert!(in_turns(&["a"], 0, |_| (), |_, ()| Ok(())).is_empty(), "none has begun");
    }
}
