//! How results reach people and tools.

pub(crate) mod chart;
pub(crate) mod format;
pub(crate) mod json;
pub(crate) mod progress;
pub(crate) mod table;

use std::io::Write;

/// Prints one line of the result on standard output, without colours where they are not wanted.
///
/// A reader that went away, such as `head`, is no error.
pub(crate) fn say(line: impl std::fmt::Display) {
    let _ = writeln!(anstream::stdout(), "{line}");
}

/// Prints the heading of a table or a chart, after an empty line.
pub(crate) fn heading(text: impl std::fmt::Display) {
    let bold = anstyle::Style::new().bold();
    say(format!("\n{bold}{text}{bold:#}"));
}

/// Prints one line about the run on standard error.
pub(crate) fn tell(line: impl std::fmt::Display) {
    let _ = writeln!(anstream::stderr(), "{line}");
}
