//! Tests that need a process of their own: one that may crash, or that must never be the same again.

use std::env;
use std::io::Write;
use std::process::Command;

const CHILD: &str = "STILLPOINT_TEST_CHILD";
/// What lines begin with that are shown also when the test passes.
const NOTE: &str = "note: ";
/// What the lines of `skip.rs` begin with.
const SKIPPED: &str = "skipped: ";

/// Says something although the test passes, which the test harness would keep to itself.
#[allow(dead_code, reason = "not every test that has children has something to say")]
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{NOTE}{text}");
}

/// Runs `body`, the whole of the test `name`, in a child process, and fails as the child does.
///
/// The child is this very test program, told to run the same test alone; there the body is called.
pub(crate) fn in_child(name: &str, body: impl FnOnce()) {
    if env::var_os(CHILD).is_some_and(|child| child == name) {
        return body();
    }
    let program = env::current_exe().expect("a process knows its program");
    let output = Command::new(program)
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, name)
        .output()
        .expect("the test program runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the child ended with {}:\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "the child ran no test: is `{name}` its name?\n{out}");
    for line in err.lines().filter(|line| [NOTE, SKIPPED].iter().any(|begin| line.starts_with(begin))) {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}
