//! Output for the terminal and for tools.

pub mod csv;
pub mod figures;
pub mod format;
pub mod json;
pub mod progress;
pub mod table;

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::error::Stop;

/// The first error of standard output.
static LOST: OnceLock<String> = OnceLock::new();

/// Whether the reader of standard output went away.
static UNREAD: AtomicBool = AtomicBool::new(false);

/// Prints one line of the result on standard output, without colours where they are not wanted.
///
/// A reader that went away, such as `head`, is not an error: it ends the measurement early, as Ctrl-C does. [`complete`]
/// reports errors.
pub fn say(line: impl std::fmt::Display) {
    match writeln!(anstream::stdout(), "{line}") {
        // Relaxed: a flag on its own; nothing is published with it.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => UNREAD.store(true, Ordering::Relaxed),
        Err(error) => drop(LOST.get_or_init(|| error.to_string())),
        Ok(()) => {}
    }
}

/// The most characters of a line of text or of a table.
const WIDTH: usize = 100;

/// Prints text as lines of at most `WIDTH` characters.
pub fn say_text(text: impl AsRef<str>) {
    let mut line = String::new();
    for word in text.as_ref().split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            say(std::mem::take(&mut line));
        }
        line += if line.is_empty() { "" } else { " " };
        line += word;
    }
    say(line);
}

/// The items, each once, in the order in which they come first.
pub fn each_once<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for item in items {
        if !once.contains(&item) {
            once.push(item);
        }
    }
    once
}

/// What the run leaves out, and why; a line each.
static LEFT_OUT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Says on standard error what the run leaves out, and why, and keeps the line, once, for [`left_out`].
pub fn leave_out(line: impl std::fmt::Display) {
    let mut lines = LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    let line = line.to_string();
    if !lines.contains(&line) {
        tell(&line);
        lines.push(line);
    }
}

/// All lines of [`leave_out`] so far.
pub fn left_out() -> Vec<String> {
    LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether nobody reads standard output any more.
pub(crate) fn is_unread() -> bool {
    // Relaxed: see `say`.
    UNREAD.load(Ordering::Relaxed)
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

/// A command of this program, as its user would type it.
pub fn own_command(words: &str) -> String {
    let program = match std::env::var_os("CARGO") {
        Some(_) => "cargo run --release --".to_owned(),
        None => std::env::args().next().unwrap_or_else(|| "stillpoint".to_owned()),
    };
    format!("{program} {words}")
}

/// Prints one line about the run on standard error.
pub fn tell(line: impl std::fmt::Display) {
    let _ = writeln!(anstream::stderr(), "{line}");
}
