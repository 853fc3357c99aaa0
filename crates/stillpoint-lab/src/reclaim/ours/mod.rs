//! stillpoint's own contenders, which use only its public and safe interface.

mod array;
mod contender;
mod table;

use stillpoint::fence::Mode;
use stillpoint::rcu::{Boost, BuildError, Domain};
use stillpoint_harness::output::each_once;
use stillpoint_peers::{Contender, Delays, Element, Named, Recipe};

use self::array::Cells;
use self::contender::over;
use self::table::OfTable;
use crate::experiment::Structure;

/// How the readers of a contender protect what they read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    Protected,
    /// As `Protected`, but the reader is bound to nothing.
    Unbound,
    Guard,
    Qsbr,
}

/// How the domain of a contender boosts preempted readers, by its name.
pub(super) fn boost_of(name: &str) -> Boost {
    match name {
        "stillpoint/guard+boost" => Boost::Realtime,
        "stillpoint/guard+migrate" => Boost::Migrate,
        _ => Boost::Off,
    }
}

/// Why this process cannot run the contender, if it cannot, and what to do.
pub(crate) fn refusal(name: &str) -> Option<String> {
    let error = Domain::builder().boost(boost_of(name)).build().err()?;
    Some(match error {
        // The library's own text also names a call for programs.
        BuildError::Boost { errno, .. } => format!(
            "the kernel does not let this process boost readers ({}): run as root, or allow real-time priorities (`ulimit -r`, \
             and in the control group)",
            std::io::Error::from_raw_os_error(errno)
        ),
        error => error.to_string(),
    })
}

/// The contenders that are wanted over this structure, which has all elements.
pub(crate) fn contenders(
    structure: Structure,
    elements: usize,
    recipe: Recipe,
    wanted: impl Fn(&str) -> bool,
) -> Vec<Named> {
    match structure {
        Structure::Array => {
            over(|boost| Cells::new(boosting(boost), elements, filled(recipe), recipe), wanted)
        }
        Structure::Table => over(|boost| OfTable::new(boosting(boost), elements, recipe), wanted),
    }
}

/// Those over an array, all of them in this domain.
pub(crate) fn contenders_of(
    domain: &Domain,
    elements: usize,
    delays: &'static Delays,
    wanted: impl Fn(&str) -> bool,
) -> Vec<Named> {
    let recipe = Recipe::plain(delays);
    over(|_| Cells::new(domain.clone(), elements, filled(recipe), recipe), wanted)
}

/// The contender of this name, over an array of empty cells, with the library's usual fences unless others are asked for;
/// `None` if there is no such name.
pub(crate) fn alone(
    name: &str,
    cells: usize,
    fences: Option<Mode>,
    delays: &'static Delays,
) -> Option<Box<dyn Contender>> {
    let domain = |boost| fences.map_or_else(|| boosting(boost), |mode| fenced(boost, mode));
    over(|boost| Cells::new(domain(boost), cells, |_| None, Recipe::plain(delays)), |of| of == name)
        .pop()
        .map(|(_, contender)| contender)
}

fn filled(recipe: Recipe) -> impl Fn(usize) -> Option<Box<Element>> {
    move |key| Some(Box::new(recipe.element(key as u64)))
}

/// The contenders, and how they read.
pub(super) const CONTENDERS: [(&str, Reading); 8] = [
    ("stillpoint/protected", Reading::Protected),
    ("stillpoint/get", Reading::Unbound),
    ("stillpoint/guard", Reading::Guard),
    ("stillpoint/guard+boost", Reading::Guard),
    ("stillpoint/guard+migrate", Reading::Guard),
    ("stillpoint/qsbr", Reading::Qsbr),
    ("stillpoint/qsbr+poll", Reading::Qsbr),
    (BACKGROUND, Reading::Qsbr),
];

/// A domain with this way to boost.
///
/// # Panics
/// If this process may not: see [`refusal`].
pub(super) fn boosting(boost: Boost) -> Domain {
    Domain::builder().boost(boost).build().expect("the plan leaves out what is refused")
}

/// The same with fences of this mode.
fn fenced(boost: Boost, mode: Mode) -> Domain {
    Domain::builder().boost(boost).fence(mode).build().expect("the plan leaves out what is refused")
}

/// Number of structures that the contenders among `names` need.
pub(crate) fn structures<'n>(names: impl Iterator<Item = &'n str>) -> usize {
    each_once(names.filter(|name| name.starts_with("stillpoint/")).map(boost_of)).len()
}

pub(super) const BACKGROUND: &str = "stillpoint/qsbr+background";

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;

    use stillpoint_peers::ReadJob;

    #[test]
    fn every_contender_frees_all_that_it_replaced() {
        let delays: &'static Delays = Box::leak(Box::new(Delays::new(1000)));
        let recipe = Recipe { words: 3, delays };
        for structure in [Structure::Array, Structure::Table] {
            check(contenders(structure, 256, recipe, |name| refusal(name).is_none()), delays);
        }
    }

    /// Each contender reads, replaces and frees everything it replaced, three times in a row.
    fn check(contenders: Vec<Named>, delays: &'static Delays) {
        for (name, contender) in contenders {
            let mut lookups = 0;
            for _ in 0..3 {
                let (stop, stop_background) = (AtomicBool::new(false), AtomicBool::new(false));
                let (ready, is_ready) = channel();
                let outcome = thread::scope(|scope| {
                    let reader = scope.spawn({
                        let (contender, stop) = (&contender, &stop);
                        let ready = move || ready.send(()).unwrap();
                        move || contender.read(&ReadJob { index: 0, seed: 9, stop, work: None }, &ready)
                    });
                    if contender.needs_background() {
                        scope.spawn(|| contender.background(&stop_background));
                    }
                    is_ready.recv().unwrap();
                    let mut writer = contender.writer();
                    for index in 0..500 {
                        writer.replace(index & 255);
                        if index % 16 == 0 {
                            thread::yield_now();
                        }
                    }
                    // Relaxed: nothing is published with it.
                    stop.store(true, Ordering::Relaxed);
                    let outcome = reader.join().unwrap();
                    writer.drain();
                    outcome
                });
                assert_eq!(delays.freed(), 500, "{name}");
                assert_eq!(delays.take().len(), 500);
                assert_eq!(delays.freed_bytes() % Element::bytes_with_body(3), 0);
                assert_eq!(outcome.mismatches, 0, "{name}");
                lookups += outcome.lookups;
            }
            assert!(lookups > 0, "{name} never read");
        }
    }
}
