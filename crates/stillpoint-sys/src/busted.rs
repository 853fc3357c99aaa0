//! Deliberately broken variants of the protocols: controls for the checkers.
//!
//! A checker that has never failed proves nothing. Every ordering that an argument in `docs/design` relies on has a variant
//! that breaks just this ordering. The variants exist only in builds with `--cfg stillpoint_busted`; in other builds the check
//! is a constant `false` and the compiler removes it. `select` or an environment variable chooses one variant, once per
//! process.

/// Declares the variants of a module. The environment variable chooses one; `for programs` also lets a program
/// list them and choose one.
#[doc(hidden)]
#[macro_export]
macro_rules! variants {
    (for models, $variable:literal; $($variant:ident = $name:literal: $text:literal,)*) => {
        $crate::variants! { @common pub(crate), $variable; $($variant = $name: $text,)* }
    };
    (for programs, $variable:literal; $($variant:ident = $name:literal: $text:literal,)*) => {
        $crate::variants! { @common pub, $variable; $($variant = $name: $text,)* }

        impl Variant {
            /// What is broken, in one sentence.
            pub fn describe(self) -> &'static str {
                match self { $(Variant::$variant => $text,)* }
            }
        }

        /// Chooses the variant of this process. Returns whether this build has variants and none was chosen before.
        pub fn select(variant: Variant) -> bool {
            cfg!(stillpoint_busted) && CHOSEN.set(Some(variant)).is_ok()
        }
    };
    (@common $vis:vis, $variable:literal; $($variant:ident = $name:literal: $text:literal,)*) => {
        /// A deliberately broken variant of the engine.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum Variant { $(#[doc = $text] $variant,)* }

        impl Variant {
            /// Every variant.
            $vis const ALL: &'static [Variant] = &[$(Variant::$variant,)*];

            /// The name on the command line and in the environment.
            $vis fn name(self) -> &'static str {
                match self { $(Variant::$variant => $name,)* }
            }
        }

        static CHOSEN: std::sync::OnceLock<Option<Variant>> = std::sync::OnceLock::new();

        /// Whether `variant` was chosen.
        #[inline(always)]
        pub(crate) fn is(variant: Variant) -> bool {
            cfg!(stillpoint_busted) && chosen() == Some(variant)
        }

        fn chosen() -> Option<Variant> {
            let mut unknown = None;
            let chosen = CHOSEN.get_or_init(|| {
                from_environment().unwrap_or_else(|why| {
                    unknown = Some(why);
                    None
                })
            });
            // Only the first caller panics: a destructor that runs meanwhile may ask, too.
            if let Some(why) = unknown {
                panic!("{why}");
            }
            *chosen
        }

        /// The variant that the environment names, or what is wrong with its name.
        $vis fn from_environment() -> Result<Option<Variant>, String> {
            let Ok(name) = std::env::var($variable) else { return Ok(None) };
            let variant = Variant::ALL.iter().copied().find(|variant| variant.name() == name);
            let unknown = || format!("{}: there is no broken variant '{name}'", $variable);
            variant.map(Some).ok_or_else(unknown)
        }

        /// Asserts that every variant is caught by a model: runs each of these models of `module` with its variant, and
        /// looks for one of the signs in its output.
        #[cfg(all(test, loom, stillpoint_busted))]
        pub(crate) fn assert_caught<'a>(
            module: &str,
            models: impl IntoIterator<Item = (Variant, &'a str, Vec<&'a str>)>,
        ) {
            let (mut listed, mut missed) = (Vec::new(), Vec::new());
            for (variant, model, signs) in models {
                let path = format!("{module}::{model}");
                if !$crate::busted::is_caught($variable, variant.name(), &path, &signs) {
                    missed.push((variant, model));
                }
                listed.push(variant);
            }
            assert!(missed.is_empty(), "not caught: {missed:?}");
            for variant in Variant::ALL {
                assert!(listed.contains(variant), "{variant:?} has no model");
            }
        }
    };
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

        #[cfg(all(test, not(any(loom, miri))))]
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

/// Runs one model with the variant in another process, and looks for a sign in its output.
#[cfg(all(loom, stillpoint_busted))]
pub fn is_caught(variable: &str, variant: &str, model: &str, signs: &[&str]) -> bool {
    let output = std::process::Command::new(std::env::current_exe().expect("the test program has a path"))
        .args(["--exact", model, "--nocapture"])
        .env(variable, variant)
        .output()
        .expect("the test program starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("running 1 test"), "there is no model `{model}`");
    let caught = !output.status.success() && signs.iter().any(|sign| text.contains(sign));
    println!("{variant:24} {model:72} {}", if caught { "caught" } else { "MISSED" });
    if !caught {
        println!("{text}");
    }
    caught
}
