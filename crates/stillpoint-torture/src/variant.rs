//! The controls: broken variants of the library, and the checkers that catch each.

use std::fmt;

use stillpoint::busted::{self as rcu, Variant as Rcu};
use stillpoint::table::busted::{self as table, Variant as Table};
use stillpoint_harness::error::Stop;
use stillpoint_harness::output::say;

/// A broken variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    Rcu(Rcu),
    Table(Table),
}

/// A line for each list of variants, whose names are behind its last colon and space.
///
/// - `torture`: a run catches them on x86-64 with two CPUs, within seconds. The models in `loom` catch them, too.
/// - `mix`: the library's test `mix` catches them, too.
/// - `not`, and the reason: only the models in `loom` catch them.
const LISTS: &str = include_str!("variants.txt");

/// The lists: what begins the line, and the names.
fn lists() -> impl Iterator<Item = (&'static str, impl Iterator<Item = &'static str> + Clone)> {
    let split = LISTS.lines().filter_map(|line| line.rsplit_once(": "));
    split.map(|(what, names)| (what, names.split(' ')))
}

impl Broken {
    /// All variants.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let of_rcu = Rcu::ALL.iter().copied().map(Self::Rcu);
        of_rcu.chain(Table::ALL.iter().copied().map(Self::Table))
    }

    /// Breaks the library of this process with the variant of this name. Refuses one that only models catch.
    pub(crate) fn select(name: &str) -> Result<Self, Stop> {
        let broken = Self::all().find(|broken| broken.to_string() == name);
        let broken = broken
            .ok_or_else(|| Stop::usage(format!("there is no broken variant '{name}': see --list-busted")))?;
        if let Some(reason) = broken.reason() {
            return Err(Stop::usage(format!(
                "torture does not catch {broken}: {reason}. Only the models under loom do: CONTRIBUTING.md has their commands"
            )));
        }
        let selected = match broken {
            Self::Rcu(variant) => rcu::select(variant),
            Self::Table(variant) => table::select(variant),
        };
        if selected {
            Ok(broken)
        } else {
            Err(Stop::usage(format!(
                "this build has no broken variants; build one in a separate folder with RUSTFLAGS='--cfg stillpoint_busted' \
                 CARGO_TARGET_DIR=target/busted cargo run --release -- torture --busted {name}"
            )))
        }
    }

    /// A description of the variant, in one sentence.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Rcu(variant) => variant.describe(),
            Self::Table(variant) => variant.describe(),
        }
    }

    /// What begins the lists that have the variant.
    fn lists(self) -> impl Iterator<Item = &'static str> {
        let name = self.name();
        lists().filter(move |(_, names)| names.clone().any(|listed| listed == name)).map(|(what, _)| what)
    }

    /// The checkers that catch the variant.
    fn checkers(self) -> &'static str {
        let is_in = |list| self.lists().any(|what| what == list);
        match (is_in("torture"), is_in("mix")) {
            (true, true) => "torture, mix, loom",
            (true, false) => "torture, loom",
            (false, true) => "mix, loom",
            (false, false) => "only loom",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rcu(variant) => variant.name(),
            Self::Table(variant) => variant.name(),
        }
    }

    /// The last sentence of a run that caught the variant.
    pub(crate) fn caught(self) -> String {
        format!("Torture caught the broken variant {self}, as it should.")
    }

    /// The reason if torture does not catch the variant.
    fn reason(self) -> Option<&'static str> {
        self.lists().find_map(|what| what.strip_prefix("not, "))
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// In a build with broken variants, refuses an environment that names none of the variants that programs may choose.
pub fn check_environment() -> Result<(), Stop> {
    if !cfg!(stillpoint_busted) {
        return Ok(());
    }
    let of_rcu = rcu::from_environment().map_err(Stop::usage)?;
    let of_table = table::from_environment().map_err(Stop::usage)?;
    match std::env::var_os("STILLPOINT_BUSTED") {
        Some(_) if of_rcu.is_none() && of_table.is_none() => {
            Err(Stop::usage("STILLPOINT_BUSTED: this program has only the variants of rcu and table"))
        }
        _ => Ok(()),
    }
}

/// Prints the broken variants, the checkers that catch each, and why torture does not catch some.
pub(crate) fn list() {
    for broken in Broken::all() {
        let reason = broken.reason().map_or(String::new(), |reason| format!(" Not by torture: {reason}."));
        let name = broken.to_string();
        say(format!("{name:<28} {:<19} {}{reason}", broken.checkers(), broken.describe()));
    }
    say("");
    say(
        "torture: torture --busted NAME. mix: the library's test `mix`. loom: the library's models. CONTRIBUTING.md has their commands.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_one_place_in_the_lists() {
        let mut listed: Vec<&str> =
            lists().filter(|(what, _)| *what != "mix").flat_map(|list| list.1).collect();
        let mut all: Vec<&str> = Broken::all().map(Broken::name).collect();
        listed.sort_unstable();
        all.sort_unstable();
        assert_eq!(listed, all);
        let of_mix = lists().filter(|(what, _)| *what == "mix").flat_map(|list| list.1);
        assert!(of_mix.inspect(|name| assert!(all.contains(name), "{name}")).count() > 0);
    }

    #[test]
    fn the_test_mix_has_the_variants_that_it_catches() {
        let test = include_str!("../../stillpoint/tests/mix/controls.rs");
        let (_, list) = test.split_once("const VARIANTS: &[&str] = &[").unwrap();
        let list = list.split(']').next().unwrap();
        let names = lists()
            .filter(|(what, _)| *what == "mix")
            .flat_map(|list| list.1)
            .map(|name| format!("\"{name}\""));
        assert_eq!(list.split(", ").collect::<Vec<_>>(), names.collect::<Vec<_>>());
    }

    #[test]
    fn no_two_variants_have_the_same_name() {
        let mut names: Vec<String> = Broken::all().map(|broken| broken.to_string()).collect();
        names.sort();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
