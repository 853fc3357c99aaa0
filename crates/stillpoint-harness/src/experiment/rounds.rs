//! Contenders in turns: all are measured for the same number of rounds, in an order that rotates, so that changes of the
//! machine during the run affect all of them.

use crate::interrupt;
use crate::output::json::Row;

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
