//! Output for the terminal and for tools.

pub mod chart;
pub mod csv;
pub mod figures;
pub mod format;
pub mod json;
pub mod progress;
pub mod table;

use std::io::{self, Write};
use std::sync::OnceLock;

use crate::error::Stop;

/// The first error of standard output.
static LOST: OnceLock<String> = OnceLock::new();

/// Prints one line of the result on standard output, without colours where they are not wanted.
///
/// A reader that went away, such as `head`, is not an error. [`complete`] reports others.
pub fn say(line: impl std::fmt::Display) {
    if let Err(error) = writeln!(anstream::stdout(), "{line}")
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        LOST.get_or_init(|| error.to_string());
    }
}

/// Whether all lines of the result were printed.
///
/// # Errors
/// When standard output did not take a line, as on a full disk.
pub fn complete() -> Result<(), Stop> {
    match LOST.get() {
        Some(error) => Err(Stop::usage(format!("cannot write to standard output: {error}"))),
        None => Ok(()),
    }
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
