//! The findings of the checks, from all threads; and the controls: broken variants of the library, with the checkers that find each.
//!
//! The [`Watchdog`] ends a run that does not end by itself: a thread that waits for ever is a finding, too.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::busted::{self as rcu, Variant as Rcu};
use stillpoint::table::busted::{self as table, Variant as Table};
use stillpoint_harness::error::Stop;
use stillpoint_harness::output::say;

/// The number of findings that are described; further ones are only counted.
const DESCRIBED: u64 = 8;

/// Violations of the library's promises. A clean run has none.
#[derive(Debug)]
pub(crate) struct Findings {
    begun: Instant,
    number: AtomicU64,
    first: OnceLock<Duration>,
    texts: Mutex<Vec<String>>,
    /// The name of the part that is running.
    stage: Mutex<String>,
}

impl Findings {
    /// Lives for the rest of the process, because destructors may run at any time.
    pub(crate) fn leak() -> &'static Self {
        Box::leak(Box::new(Self::new()))
    }

    fn new() -> Self {
        Self {
            begun: Instant::now(),
            number: AtomicU64::new(0),
            first: OnceLock::new(),
            texts: Mutex::new(Vec::new()),
            stage: Mutex::new(String::new()),
        }
    }

    /// Sets the name of the part that runs from now on, for the descriptions.
    pub(crate) fn enter(&self, stage: &str) {
        stage.clone_into(&mut self.stage.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds a finding, which ends the run. `text` is only called for the first findings.
    #[cold]
    pub(crate) fn add(&self, text: impl FnOnce() -> String) {
        self.first.get_or_init(|| self.begun.elapsed());
        // Relaxed: a count, and the flag that ends the run; nothing is published with it.
        if self.number.fetch_add(1, Ordering::Relaxed) < DESCRIBED {
            let text = format!("{}: {}", self.stage.lock().unwrap_or_else(PoisonError::into_inner), text());
            self.texts.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    }

    pub(crate) fn number(&self) -> u64 {
        // Relaxed: see `add`.
        self.number.load(Ordering::Relaxed)
    }

    pub(crate) fn any(&self) -> bool {
        self.number() != 0
    }

    /// Prints the time of the first finding, from the start of the run, and the descriptions of the first findings.
    pub(crate) fn say(&self, broken: Option<Broken>) {
        let after = self.first_after().unwrap_or_default();
        match broken {
            Some(broken) => say(format!("\nCaught: {broken} after {after:.2?}")),
            None => say(format!("\nFAILED after {after:.2?}")),
        }
        for text in self.texts() {
            say(format!("  {text}"));
        }
    }

    fn first_after(&self) -> Option<Duration> {
        self.first.get().copied()
    }

    /// The descriptions of the first findings.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The limit of waits that must end soon. A virtual machine may stand still for seconds while its clock goes on.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How late a part may end. This is longer than the limits of the waits in a part, since a failed wait gives a better
/// message. The longest stay inside a section is some tens of milliseconds.
const GRACE: Duration = PATIENCE.saturating_add(Duration::from_secs(10));
/// How long the threads may take after a finding: they may be waiting for something that never happens.
const AFTER_FINDING: Duration = Duration::from_secs(2);
/// How often the watchdog checks.
const PERIOD: Duration = Duration::from_millis(250);
/// Of the time between two checks, at most this much counts: while the watchdog does not run, because the machine is
/// suspended or starved, the parts do not run either.
const MOST_COUNTED: Duration = Duration::from_millis(1000);
/// The value of `left` while no part runs.
const IDLE: u64 = u64::MAX;

/// Watches on its own thread, which is not joined: when it acts, no thread can be joined.
pub(crate) struct Watchdog {
    /// The time until it acts, in milliseconds.
    left: Arc<AtomicU64>,
}

impl Watchdog {
    pub(crate) fn start(findings: &'static Findings, broken: Option<Broken>) -> Self {
        let left = Arc::new(AtomicU64::new(IDLE));
        let watched = Arc::clone(&left);
        thread::spawn(move || {
            let mut last = Instant::now();
            while watched.load(Ordering::Relaxed) != 0 {
                thread::sleep(PERIOD);
                let passed = millis(last.elapsed().min(MOST_COUNTED));
                last = Instant::now();
                // Relaxed, above and below: the number orders nothing.
                let _ = watched.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    let longest = if findings.any() { millis(AFTER_FINDING) } else { IDLE - 1 };
                    (left != IDLE).then(|| left.min(longest).saturating_sub(passed))
                });
            }
            if !findings.any() {
                findings
                    .add(|| format!("stuck: the part did not end within {GRACE:?} after its time was up"));
            }
            findings.say(broken);
            if let Some(broken) = broken {
                say(broken.caught());
            }
            std::process::exit(1);
        });
        Self { left }
    }

    /// Notes that another part begins, which is planned to take `time`.
    pub(crate) fn expect_end_in(&self, time: Duration) {
        // Relaxed: see `start`.
        self.left.store(millis(time + GRACE), Ordering::Relaxed);
    }
}

/// The run has ended.
impl Drop for Watchdog {
    fn drop(&mut self) {
        // Relaxed: see `start`.
        self.left.store(IDLE, Ordering::Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(IDLE - 1)
}

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
pub(crate) fn list_variants() {
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
    fn the_first_findings_are_described_and_all_are_counted() {
        let findings = Findings::new();
        assert!(!findings.any() && findings.first_after().is_none());
        findings.enter("mixed");
        for number in 0..DESCRIBED + 5 {
            findings.add(|| format!("number {number}"));
        }
        assert_eq!(findings.number(), DESCRIBED + 5);
        assert_eq!(findings.texts().len(), DESCRIBED as usize);
        assert_eq!(findings.texts()[1], "mixed: number 1");
        assert!(findings.any() && findings.first_after().is_some());
    }

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
