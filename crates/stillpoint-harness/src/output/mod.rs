//! How results reach people and tools.

pub mod chart;
pub mod csv;
pub mod figures;
pub mod format;
pub mod json;
pub mod progress;
pub mod table;

use std::io::Write;

/// Prints one line of the result on standard output, without colours where they are not wanted.
///
/// A reader that went away, such as `head`, is no error.
pub fn say(line: impl std::fmt::Display) {
    let _ = writeln!(anstream::stdout(), "{line}");
}

/// Prints the heading of a table or a chart, after an empty line.
pub fn heading(text: impl std::fmt::Display) {
    let bold = anstyle::Style::new().bold();
    say(format!("\n{bold}{text}{bold:#}"));
}

/// Prints one line about the run on standard error.
pub fn tell(line: impl std::fmt::Display) {
    let _ = writeln!(anstream::stderr(), "{line}");
}
