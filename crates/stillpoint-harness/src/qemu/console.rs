//! What guests print on their consoles, as errors show it.

/// How many of the last lines an error shows.
const SHOWN_LINES: usize = 4;
/// How much of a line an error shows.
const SHOWN_CHARACTERS: usize = 160;

/// Whether these words are on the console.
pub fn has_said(console: &[u8], said: &str) -> bool {
    console.windows(said.len()).any(|window| window == said.as_bytes())
}

/// The last lines that are not empty.
pub fn last(text: &str) -> String {
    let said: Vec<String> = text.lines().map(shortened).filter(|line| !line.trim().is_empty()).collect();
    match said.as_slice() {
        [] => "it printed nothing".to_owned(),
        said => format!("it printed last: {}", said[said.len().saturating_sub(SHOWN_LINES)..].join(" / ")),
    }
}

/// The beginning of a line, without control characters.
pub fn shortened(line: &str) -> String {
    let mut shown: String = line.chars().filter(|c| !c.is_control()).take(SHOWN_CHARACTERS + 1).collect();
    if shown.chars().count() > SHOWN_CHARACTERS {
        shown.pop();
        shown.push('…');
    }
    shown
}
