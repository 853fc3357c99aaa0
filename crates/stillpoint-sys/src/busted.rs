//! Deliberately broken variants of the protocols: controls for the checkers.
//!
//! A checker that has never failed proves nothing. Every ordering in a table of [`orders`](crate::orders) has a variant that
//! breaks just this ordering. The variants exist only in builds with `--cfg stillpoint_busted`; in other builds the check
//! is a constant `false` and the compiler removes it. `select` or the environment variable `STILLPOINT_BUSTED` chooses one
//! variant, once per process. The name of a variant begins with its module: `rcu:leave-relaxed`.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};

/// The environment variable that chooses a broken variant.
const VARIABLE: &str = "STILLPOINT_BUSTED";

/// The modules that have broken variants.
const MODULES: &[&str] = &[
    "rcu",
    "table",
    "timer",
    "pool",
    "structures",
    "multicast",
    "door",
    "place",
    "inbox",
    "lock",
    "parking",
];

/// Declares the variants of a module, which [`MODULES`] lists. The environment chooses one; `for programs` also lets a program
/// list them and choose one.
#[doc(hidden)]
#[macro_export]
macro_rules! variants {
    (for models, $module:literal; $($variant:ident = $name:literal: $text:literal,)*) => {
        $crate::variants! { @common pub(crate), $module; $($variant = $name: $text,)* }
    };
    (for programs, $module:literal; $($variant:ident = $name:literal: $text:literal,)*) => {
        $crate::variants! { @common pub, $module; $($variant = $name: $text,)* }

        impl Variant {
            /// What is broken, in one sentence.
            pub fn describe(self) -> &'static str {
                match self { $(Variant::$variant => $text,)* }
            }
        }

        /// Chooses the variant of this process. Returns whether this build has variants and none was chosen before.
        pub fn select(variant: Variant) -> bool {
            cfg!(stillpoint_busted) && CHOSEN.set(Ok(Some(variant))).is_ok()
        }
    };
    (@common $vis:vis, $module:literal; $($variant:ident = $name:literal: $text:literal,)*) => {
        /// A deliberately broken variant of the engine.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum Variant { $(#[doc = $text] $variant,)* }

        impl Variant {
            /// Every variant.
            $vis const ALL: &'static [Variant] = &[$(Variant::$variant,)*];

            /// The name on the command line and in the environment.
            $vis fn name(self) -> &'static str {
                match self { $(Variant::$variant => concat!($module, ":", $name),)* }
            }
        }

        static CHOSEN: std::sync::OnceLock<Result<Option<Variant>, String>> = std::sync::OnceLock::new();

        /// Whether `variant` was chosen.
        #[inline(always)]
        pub(crate) fn is(variant: Variant) -> bool {
            cfg!(stillpoint_busted) && chosen() == Some(variant) && $crate::busted::reached()
        }

        fn chosen() -> Option<Variant> {
            match CHOSEN.get_or_init(from_environment) {
                Ok(chosen) => *chosen,
                // A destructor that runs meanwhile may ask, too.
                Err(_) if std::thread::panicking() => None,
                Err(why) => panic!("{why}"),
            }
        }

        /// The variant that the environment names, or what is wrong with its name.
        $vis fn from_environment() -> Result<Option<Variant>, String> {
            let names: Vec<_> = Variant::ALL.iter().map(|variant| variant.name()).collect();
            let chosen = $crate::busted::chosen($module, &names, std::env::vars_os())?;
            Ok(chosen.map(|index| Variant::ALL[index]))
        }

        /// Asserts that every variant, or the one that the environment chooses, is caught by a model: runs each of these models
        /// of `module` with its variant, and looks for one of the signs in its output.
        #[cfg(all(test, stillpoint_loom, stillpoint_busted))]
        pub(crate) fn assert_caught<'a>(
            module: &str,
            models: impl IntoIterator<Item = (Variant, &'a str, Vec<&'a str>)>,
        ) {
            let only = from_environment().unwrap_or_else(|why| panic!("{why}"));
            let is_asked = |variant: Variant| match only {
                Some(only) => variant == only,
                None => !$crate::busted::is_chosen(),
            };
            let (mut listed, mut missed) = (Vec::new(), Vec::new());
            for (variant, model, signs) in models {
                listed.push(variant);
                let path = format!("{module}::{model}");
                if is_asked(variant) && !$crate::busted::is_caught(variant.name(), &path, &signs, only.is_some()) {
                    missed.push((variant, model));
                }
            }
            assert!(missed.is_empty(), "not caught: {missed:?}");
            for variant in Variant::ALL {
                assert!(listed.contains(variant), "{variant:?} has no model");
            }
            assert!(listed.into_iter().any(is_asked), "the chosen variant is not one of {module}");
        }
    };
}

/// Which of `names`, the variants of `module`, the environment chooses; or what is wrong with the environment. A variant of
/// another module is none of these.
pub fn chosen(
    module: &str,
    names: &[&str],
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Option<usize>, String> {
    let mut chosen = None;
    for (variable, value) in environment {
        let (variable, value) = (variable.to_string_lossy(), value.to_string_lossy());
        if variable.starts_with("STILLPOINT_BUSTED_") {
            return Err(format!("{variable}: only {VARIABLE} chooses a broken variant, as MODULE:NAME"));
        }
        if variable != VARIABLE {
            continue;
        }
        let of = value.split(':').next().filter(|of| value.contains(':') && MODULES.contains(of));
        let Some(of) = of else {
            let modules = MODULES.join(", ");
            return Err(format!(
                "{VARIABLE}: '{value}' is not MODULE:NAME with one of the modules {modules}"
            ));
        };
        if of == module {
            let index = names.iter().position(|&name| name == value);
            let unknown =
                || format!("{VARIABLE}: there is no broken variant '{value}', only {}", names.join(", "));
            chosen = Some(index.ok_or_else(unknown)?);
        }
    }
    Ok(chosen)
}

/// Whether code that the chosen variant breaks has run in this process.
static REACHED: AtomicBool = AtomicBool::new(false);

/// Code that the chosen variant breaks is about to run. Returns `true`.
#[doc(hidden)]
pub fn reached() -> bool {
    // Relaxed: orders nothing. The load keeps the cache line shared.
    if !REACHED.load(Ordering::Relaxed) {
        REACHED.store(true, Ordering::Relaxed);
    }
    true
}

/// Whether the environment chooses a variant.
#[doc(hidden)]
pub fn is_chosen() -> bool {
    cfg!(stillpoint_busted) && std::env::var_os(VARIABLE).is_some()
}

/// For the end of a checker. Panics if the environment chooses a variant, and no code that it breaks has run: the checker then
/// says nothing about it. The name may be of another module, or unknown there: only code that runs knows its own names.
#[doc(hidden)]
pub fn assert_reached() {
    // Relaxed: the checker has joined its threads.
    assert!(
        !is_chosen() || REACHED.load(Ordering::Relaxed),
        "{VARIABLE}={:?}: nothing that has run here is broken by it",
        std::env::var_os(VARIABLE).unwrap_or_default()
    );
}

/// `order`, unless a variant makes it relaxed.
#[inline(always)]
pub(crate) fn unless(is_relaxed: bool, order: Ordering) -> Ordering {
    if is_relaxed {
        Ordering::Relaxed
    } else {
        order
    }
}

/// One memory ordering that an argument relies on.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// The name of the access.
    pub name: &'static str,
    /// The ordering that the protocol asks for.
    pub ordering: crate::sync::atomic::Ordering,
    /// Its partners: rows of the same table, and, in quotes, accesses that have no row.
    pub pairs: &'static [&'static str],
    /// The step of the argument, or the heading that contains it.
    pub step: &'static str,
    /// The broken variants that show that the ordering is needed.
    pub shown_by: &'static [&'static str],
}

/// Declares the orderings of a module. Each gets a function that returns the ordering, or a weaker one if the variant that
/// breaks it is chosen: a program chooses its variant at run time, so a constant is not enough. A test checks the whole table
/// against its page in `docs/design`.
///
/// A row: `access: Ordering, [partners], "step of the argument", [broken variants];` A variant makes the access
/// relaxed, or, with `=> Ordering`, weakens it to that.
#[doc(hidden)]
#[macro_export]
macro_rules! orders {
    (as in $page:literal; $(
        $(#[doc = $why:literal])*
        $name:ident: $ordering:ident, [$($pair:tt),*], $step:literal, [$($variant:ident $(=> $weak:ident)?),+];
    )*) => {
        $(
            $(#[doc = $why])*
            #[inline(always)]
            pub(crate) fn $name() -> $crate::sync::atomic::Ordering {
                $(if busted::is(Variant::$variant) {
                    return $crate::orders!(@weak $($weak)?);
                })+
                $crate::sync::atomic::Ordering::$ordering
            }
        )*

        #[cfg(all(test, not(any(stillpoint_loom, miri))))]
        #[test]
        fn partners_steps_and_variants_are_there() {
            let table = [$($crate::busted::Order {
                name: stringify!($name),
                ordering: $crate::sync::atomic::Ordering::$ordering,
                pairs: &[$(stringify!($pair)),*],
                step: $step,
                shown_by: &[$(stringify!($variant)),+],
            },)*];
            let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/", $page);
            let page = std::fs::read_to_string(page).expect("the page is there");
            let variants: Vec<String> = Variant::ALL.iter().map(|variant| format!("{variant:?}")).collect();
            let faults = $crate::busted::find_faults(&table, &variants, &page);
            assert!(faults.is_empty(), "{faults:#?}");
        }
    };
    (@weak) => { $crate::sync::atomic::Ordering::Relaxed };
    (@weak $weak:ident) => { $crate::sync::atomic::Ordering::$weak };
}

/// Finds the faults of a table of orderings: partners that do not name each other, orderings that cannot pair, steps that `page`
/// does not have, and variants that relax an ordering and are not in the table.
pub fn find_faults(table: &[Order], variants: &[String], page: &str) -> Vec<String> {
    use crate::sync::atomic::Ordering::{AcqRel, Acquire, Release};

    let mut faults = Vec::new();
    for row in table {
        for pair in row.pairs.iter().filter(|pair| !pair.starts_with('"')) {
            match table.iter().find(|other| other.name == *pair) {
                None => faults.push(format!("{}: its partner `{pair}` is not in the table", row.name)),
                Some(other) if !other.pairs.contains(&row.name) => {
                    faults.push(format!("{}: its partner `{pair}` does not name it as a partner", row.name));
                }
                Some(other) => match (row.ordering, other.ordering) {
                    (Acquire, Release | AcqRel) | (Release, Acquire | AcqRel) | (AcqRel, _) => {}
                    (mine, its) => faults.push(format!(
                        "{} is {mine:?} and its partner `{pair}` is {its:?}: these do not pair",
                        row.name
                    )),
                },
            }
        }
        if row.pairs.is_empty() {
            faults.push(format!("{} names no partner", row.name));
        }
        let is_there = |line: &str| {
            let line = line.trim_start_matches("- ").trim_start_matches("**");
            line.strip_prefix(row.step).is_some_and(|rest| rest.starts_with('.'))
                || line.trim_start_matches('#').trim_start() == row.step
                || line.trim_start_matches('*').starts_with(row.step) && row.step.contains(' ')
        };
        if !page.lines().any(is_there) {
            faults.push(format!("{}: the page has no step `{}`", row.name, row.step));
        }
    }
    for variant in variants.iter().filter(|variant| variant.ends_with("Relaxed")) {
        if !table.iter().any(|row| row.shown_by.contains(&variant.as_str())) {
            faults.push(format!("no ordering of the table names the variant `{variant}`"));
        }
    }
    faults
}

/// Runs one model with the variant in another process, and looks for a sign in its output, which it prints if the variant is
/// missed, or `in_full`.
#[cfg(all(stillpoint_loom, stillpoint_busted))]
pub fn is_caught(variant: &str, model: &str, signs: &[&str], in_full: bool) -> bool {
    let output = std::process::Command::new(std::env::current_exe().expect("the test program has a path"))
        .args(["--exact", model, "--nocapture"])
        .env(VARIABLE, variant)
        .output()
        .expect("the test program starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("running 1 test"), "there is no model `{model}`");
    let caught = !output.status.success() && signs.iter().any(|sign| text.contains(sign));
    println!("{variant:32} {model:72} {}", if caught { "caught" } else { "MISSED" });
    if in_full || !caught {
        println!("{text}");
    }
    caught
}

#[cfg(all(test, stillpoint_loom, stillpoint_busted))]
mod models {
    use super::*;

    const MODEL: &str = "sync::try_lock::models::one_at_a_time_has_the_value";
    const CONTROLS: &str = "sync::try_lock::models::every_variant_is_caught_by_its_model";

    #[test]
    fn a_run_that_the_chosen_variant_does_not_break_is_refused() {
        // Whatever follows the module: code that does not run cannot know.
        for variant in ["door:open-relaxed", "rcu:open-relaxd"] {
            assert!(is_caught(variant, MODEL, &["nothing that has run here is broken by it"], false));
            assert!(is_caught(
                variant,
                CONTROLS,
                &["the chosen variant is not one of sync::try_lock"],
                false
            ));
        }
        assert!(is_caught("lock:open", CONTROLS, &["there is no broken variant 'lock:open', only"], false));
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_full_name_of_a_variant_is_taken() {
        let chosen = |variable: &str, value: &str| {
            let environment =
                [("PATH", "door:open"), (variable, value)].map(|(name, value)| (name.into(), value.into()));
            chosen("door", &["door:ajar", "door:open"], environment)
        };
        assert_eq!(chosen(VARIABLE, "door:open"), Ok(Some(1)));
        assert_eq!(chosen(VARIABLE, "rcu:open"), Ok(None));
        for (variable, value, said) in [
            (VARIABLE, "door:opened", "no broken variant 'door:opened', only door:ajar, door:open"),
            (VARIABLE, "open", "'open' is not MODULE:NAME with one of the modules rcu, table,"),
            (VARIABLE, "doors:open", "'doors:open' is not MODULE:NAME"),
            (VARIABLE, "door", "'door' is not MODULE:NAME"),
            ("STILLPOINT_BUSTED_DOOR", "open", "only STILLPOINT_BUSTED chooses"),
        ] {
            let why = chosen(variable, value).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }
}
