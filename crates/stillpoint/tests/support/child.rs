//! Tests that need their own process, since they may crash it, or change it for good.

use std::env;
use std::io::Write;
use std::process::Command;

const CHILD: &str = "STILLPOINT_TEST_CHILD";
/// The most seconds that a child takes. What it has said is shown only at its end.
const LONGEST: libc::c_uint = 1800;
/// The beginning of lines that are shown even if the test passes.
const NOTE: &str = "note: ";
/// The beginning of the lines that `skip.rs` prints.
const SKIPPED: &str = "skipped: ";

/// Prints a line even if the test passes, where the test harness would hide it.
#[allow(dead_code, reason = "not every test that has children has something to say")]
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{NOTE}{text}");
}

/// Runs `body`, which is the whole test `name`, in a child process, and fails if the child does.
///
/// The child is the same test program, told to run only this test. There the body is called.
pub(crate) fn in_child(name: &str, body: impl FnOnce()) {
    if env::var_os(CHILD).is_some_and(|child| child == name) {
        // SAFETY: no pointers are passed. A child that hangs is ended by the signal.
        unsafe { libc::alarm(LONGEST) };
        return body();
    }
    let program = env::current_exe().expect("a process can find its program");
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
