//! The test finds the errors that it is meant to find: broken variants of the protocols. Each variant runs in its own
//! process, since reading freed memory may end in any way.

use std::process::{Command, Stdio};

const TEST: &str = "whatever_is_done_in_whatever_order_nothing_is_freed_too_early_or_twice_or_never";
/// The variants that fail on any machine, however it orders memory accesses.
const VARIANTS: &[&str] = &["rcu:nested-leave", "rcu:ignore-regions", "rcu:ignore-hazards"];
const ROUNDS: &str = "200";

#[test]
fn broken_variants_are_caught() {
    let program = std::env::current_exe().expect("a process can find its program");
    for variant in VARIANTS {
        let status = Command::new(&program)
            .args([TEST, "--exact"])
            .env("STILLPOINT_BUSTED", variant)
            .env("STILLPOINT_MIX_ROUNDS", ROUNDS)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("the test program runs");
        assert!(!status.success(), "{variant} is not caught in {ROUNDS} rounds");
    }
}
