//! Deliberately broken variants of the protocols: controls for the checkers.
//!
//! A checker that has never failed proves nothing. Every ordering that an argument in `docs/design` relies on has a variant
//! that breaks just this ordering. The variants exist only in builds with `--cfg stillpoint_busted`; elsewhere the question
//! is a constant `false` and the compiler removes them. One variant at a time is chosen, once per process, by `select` or by
//! an environment variable.

/// Declares the variants of a module, one of which the environment variable chooses; `for programs` also lets a program
/// list them, and choose one itself.
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
            /// Every variant there is.
            $vis const ALL: &'static [Variant] = &[$(Variant::$variant,)*];

            /// The name on the command line and in the environment.
            $vis fn name(self) -> &'static str {
                match self { $(Variant::$variant => $name,)* }
            }
        }

        static CHOSEN: std::sync::OnceLock<Option<Variant>> = std::sync::OnceLock::new();

        /// Whether `variant` is the one chosen.
        #[inline(always)]
        pub(crate) fn is(variant: Variant) -> bool {
            cfg!(stillpoint_busted) && chosen() == Some(variant)
        }

        /// The ordering that the protocol asks for, or relaxed if `variant` is the one chosen.
        #[inline(always)]
        pub(crate) fn order(
            variant: Variant,
            right: $crate::sync::atomic::Ordering,
        ) -> $crate::sync::atomic::Ordering {
            if is(variant) {
                $crate::sync::atomic::Ordering::Relaxed
            } else {
                right
            }
        }

        fn chosen() -> Option<Variant> {
            *CHOSEN.get_or_init(|| {
                let name = std::env::var($variable).ok()?;
                let variant = Variant::ALL.iter().copied().find(|variant| variant.name() == name);
                Some(variant.unwrap_or_else(|| panic!("{}: there is no variant `{name}`", $variable)))
            })
        }

        /// Asserts that every variant is caught by a model: runs each of these models of `module` with its variant, and
        /// looks for one of the signs.
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
/// Runs one model with the variant in a process of its own, and looks for a sign in what it prints.
#[cfg(all(loom, stillpoint_busted))]
pub fn is_caught(variable: &str, variant: &str, model: &str, signs: &[&str]) -> bool {
    let output = std::process::Command::new(std::env::current_exe().expect("a test knows its program"))
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
