//! Deliberately broken variants of the protocols: controls for the checkers.
//!
//! A checker that has never failed proves nothing. Every ordering that the argument in `docs/design/rcu.md`
//! relies on has a variant here that breaks just this ordering. The variants exist only in builds with
//! `--cfg stillpoint_busted`; elsewhere the question is a constant `false` and the compiler removes them.
//! One variant at a time is chosen, once per process, by [`select`] or by the environment variable
//! `STILLPOINT_BUSTED`.

/// Declares the variants of a module, one of which the environment variable chooses; `for programs` also lets a program
/// list them, and choose one itself.
macro_rules! variants {
    (for models, $variable:literal; $($variant:ident = $name:literal: $text:literal,)*) => {
        $crate::busted::variants! { @common pub(crate), $variable; $($variant = $name: $text,)* }
    };
    (for programs, $variable:literal; $($variant:ident = $name:literal: $text:literal,)*) => {
        $crate::busted::variants! { @common pub, $variable; $($variant = $name: $text,)* }

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
pub(crate) use variants;

/// Runs one model with the variant in a process of its own, and looks for a sign in what it prints.
#[cfg(all(test, loom, stillpoint_busted))]
pub(crate) fn is_caught(variable: &str, variant: &str, model: &str, signs: &[&str]) -> bool {
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

variants! {
    for programs, "STILLPOINT_BUSTED";
    EnterRelaxed = "enter-relaxed": "A guard's entry store is relaxed, not release.",
    LeaveRelaxed = "leave-relaxed": "A guard's exit store is relaxed, not release.",
    PinTokenRelaxed = "pin-token-relaxed": "A guard loads the token relaxed, not acquire.",
    PinNoLight = "pin-no-light": "A guard has no light fence after its entry store.",
    NestedLeave = "nested-leave": "The first of two nested guards to be dropped ends the section.",
    FoundRelaxed = "found-relaxed": "A compare-and-exchange that fails follows what it found by a relaxed load.",
    HazardSetRelaxed = "hazard-set-relaxed": "The store that sets a hazard slot is relaxed, not release.",
    HazardClearRelaxed = "hazard-clear-relaxed": "The store that clears a hazard slot is relaxed, not release.",
    ProtectNoReload = "protect-no-reload": "A protected load does not load its source a second time.",
    ProtectNoLight = "protect-no-light": "A protected load has no light fence between slot and reload.",
    ProtectReloadRelaxed = "protect-reload-relaxed": "A protected load confirms with a relaxed reload.",
    QsbrLoadRelaxed = "qsbr-load-relaxed": "A quiescent state loads the token relaxed, not acquire.",
    QsbrStoreRelaxed = "qsbr-store-relaxed": "A quiescent state stores its report relaxed, not release.",
    OnlineNoFence = "online-no-fence": "A QSBR reader comes online without a full fence.",
    OfflineRelaxed = "offline-relaxed": "A QSBR reader goes offline with a relaxed store.",
    RegisterNoFence = "register-no-fence": "A reader registers without a full fence.",
    UnregisterRelaxed = "unregister-relaxed": "A reader unregisters with relaxed operations.",
    LeaveForgotten = "leave-forgotten": "A reader that unregisters does not give its state up.",
    ClaimRelaxed = "claim-relaxed": "A reader claims its record with a relaxed operation.",
    CountRelaxed = "count-relaxed": "The writer loads the number of light readers relaxed, not acquire.",
    StartRelaxed = "start-relaxed": "A token is started by a relaxed read-modify-write.",
    FencedRelaxed = "fenced-relaxed": "The fenced token is published and read relaxed.",
    WriterNoFence = "writer-no-fence": "The writer leaves its sequentially consistent fence out.",
    StopAfterCheck = "stop-after-check": "The background reclaimer looks at the phase again before it sleeps, and takes a stop for old news.",
    LastSubmitterRelaxed = "last-submitter-relaxed": "A submitter that goes is counted, and looked for, by relaxed operations.",
    TokenByStore = "token-by-store": "A token is started by a load and a store, not by a read-modify-write.",
    TokenTooEarly = "token-too-early": "A reader that entered one token earlier counts as passed.",
    NoFence = "no-fence": "The writer issues no fence between unlink and scan.",
    NoHeavy = "no-heavy": "The writer's fence is its own only: no heavy fence.",
    FenceFromBefore = "fence-from-before": "A fence that was issued for an earlier token is taken to serve this one.",
    SkipWhenQuiet = "skip-when-quiet": "The heavy fence is skipped when no slot is active at the moment.",
    CounterAfterFence = "counter-after-fence": "The counter is loaded after the fence, so that tokens pass whose unlink the fence did not order.",
    ScanRelaxed = "scan-relaxed": "The scan loads the readers' states relaxed, not acquire.",
    HazardScanRelaxed = "hazard-scan-relaxed": "The scan loads the hazard slots relaxed, not acquire.",
    CompletedRelaxed = "completed-relaxed": "The completed token is published and read relaxed.",
    CursorForAll = "cursor-for-all": "The cursor of the last laggard is used for another token: readers before it are not looked at.",
    IgnoreRegions = "ignore-regions": "Objects are freed without a look at the region readers.",
    IgnoreHazards = "ignore-hazards": "Objects are freed without a look at the hazard slots.",
    HazardsFirst = "hazards-first": "The hazard slots are gathered before the regions are checked.",
    HandoverRelaxed = "handover-relaxed": "An object is handed over to another thread with relaxed operations.",
    LineRelaxed = "line-relaxed": "The line of objects that nobody looks after is handed around by relaxed operations.",
    TakeUnseen = "take-unseen": "Who finds a stack empty does not see what its taker did before: taking is acquire, not acquire and release.",
    RoomByLoad = "room-by-load": "Room in a domain is reserved by a load and a store, not by a read-modify-write.",
    RoomRelaxed = "room-relaxed": "Room in a domain is given back and reserved by relaxed operations.",
    RoomBeforeFree = "room-before-free": "Room in a domain is given back before the destructor has run.",
    TallyRelaxed = "tally-relaxed": "What is submitted, and what the background reclaimer has, is counted by relaxed operations.",
    CountedLate = "counted-late": "What the background reclaimer takes in is no longer counted as submitted before it is counted in its backlog.",
    SleepAssisted = "sleep-assisted": "The background reclaimer that is to stop sleeps without a limit although a submitter assists.",
    ClosedUnseen = "closed-unseen": "A submitter that has assisted looks without a fence whether the background reclaimer is gone.",
    ExitNoLight = "exit-no-light": "A reader looks for requests of futures without a light fence after its state.",
    AnswerUnseen = "answer-unseen": "Who leaves a waker after a reader has looked for wakers does not see what the reader did before: the look is acquire, not acquire and release.",
    RequestNoHeavy = "request-no-heavy": "A future asks a reader without a heavy fence after the request.",
    RequestNotPassedOn = "request-not-passed-on": "A future that finds its request missed does not wake the others.",
    WakerAfterCheck = "waker-after-check": "A future leaves its waker after its last look at the reader.",
    AdoptByStore = "adopt-by-store": "A reader that takes over a record forgets what was asked of the last one.",
    WordLost = "word-lost": "Whoever has the lock of the futures' wakers ignores that a reader has left meanwhile.",
    ShareNotPassedOn = "share-not-passed-on": "A future that was woken does not wake the next ones.",
    ReportByStore = "report-by-store": "Whoever tells the stall hook of a section notes it by a store, not by an exchange.",
    DropFrees = "drop-frees": "A dropped reclaimer frees what is pending instead of passing it to the domain.",
    HelpNoSecondRestore = "help-no-second-restore": "A helper does not look whether the help was ended while it raised.",
    HelpNoRecheck = "help-no-recheck": "A helper does not look whether the section had ended before the reader was told.",
    HelpNoHeavy = "help-no-heavy": "A helper has no heavy fence between telling the reader and looking at it again.",
    HelpCloseHasty = "help-close-hasty": "A thread that ends or forks does not wait for those who help it.",
    HelpWordRelaxed = "help-word-relaxed": "The word that says who helps a reader changes hands by relaxed operations.",
}
