//! Tests that cannot run on this machine say so, because a test that returns early counts as passed.

use std::io::Write;
use std::panic::Location;

/// Prints one line, `skipped: <test>: <reason>`, to the standard error, which the harness does not capture. `.ci/run` counts
/// these lines, and compares them with the list in `.ci/skips`.
///
/// The test is the name of the calling thread. Without one (threads that a test starts, or `--test-threads=1`) it is the
/// place of the call.
#[track_caller]
pub(crate) fn skipped(reason: &str) {
    let thread = std::thread::current();
    let place = Location::caller();
    let test = match thread.name() {
        None | Some("main") => format!("{}:{}", place.file(), place.line()),
        Some(name) => name.to_owned(),
    };
    // One write, so that the lines of several tests do not mix. If it fails, there is nowhere to report that.
    let line = format!("skipped: {test}: {}\n", reason.replace('\n', " "));
    let _ = std::io::stderr().write_all(line.as_bytes());
}
