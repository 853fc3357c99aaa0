//! Contenders in turns: each measures as many rounds as the others, in an order that rotates, so that what changes on the
//! machine meanwhile meets all of them.

use crate::interrupt;
use crate::output::json::Row;
use crate::output::progress::Progress;

/// What a contender's rounds gave, or why they do not count.
pub type Rounds<T> = Result<Vec<T>, String>;

/// The order of a round: each of `count` once, beginning with another one than the round before.
pub fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| (turn + round) % count)
}

/// Measures the rounds of all contenders, of which those that have begun come back.
///
/// `begin` is given the number of each round, and prepares what all contenders measure in it. An error voids its
/// contender, which is not measured again. After an interrupt it only ends the rounds: a round that was cut short is not
/// like the others, and says so by an error.
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
    /// What they are measured in.
    pub setting: S,
    /// Who is measured.
    pub contenders: Vec<C>,
}

/// The number of rows of all parts, a [control](super::control) in each.
pub fn rows<S, C>(parts: &[Part<S, C>]) -> usize {
    parts.iter().map(|part| part.contenders.len() + 1).sum()
}

/// Measures part after part until it is interrupted, and calls `show` with the rows of each as soon as they are complete,
/// unless told to be `silent`.
pub fn in_parts<S, C>(
    parts: &[Part<S, C>],
    progress: &Progress,
    silent: bool,
    measure: impl Fn(&Part<S, C>) -> Vec<Row>,
    show: impl Fn(&S, &[Row]),
) -> Vec<Row> {
    let mut rows = Vec::new();
    for part in parts.iter().take_while(|_| !interrupt::requested()) {
        let of_part = measure(part);
        if !silent && !of_part.is_empty() {
            progress.pause(|| show(&part.setting, &of_part));
        }
        rows.extend(of_part);
    }
    rows
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
