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
        let ended = Command::new(&program)
            .args([TEST, "--exact", "--nocapture"])
            .env("STILLPOINT_BUSTED", variant)
            .env("STILLPOINT_MIX_ROUNDS", ROUNDS)
            .stdin(Stdio::null())
            .output()
            .expect("the test program runs");
        assert!(!ended.status.success(), "{variant} is not caught in {ROUNDS} rounds");
        // A variant whose code did not run, or that does not exist, fails as well, and so would prove nothing.
        let said = String::from_utf8_lossy(&ended.stderr);
        for fault in ["nothing that has run here is broken by it", "there is no broken variant"] {
            assert!(!said.contains(fault), "{variant}: {said}");
        }
    }
}
