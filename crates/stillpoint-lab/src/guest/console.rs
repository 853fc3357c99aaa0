//! Reads what a guest wrote on its console: rows, an error, a panic of its kernel, or something cut off.

use stillpoint_harness::qemu::Purpose;
use stillpoint_harness::qemu::console::{has_said, last, shortened};

use super::wire::{self, About, BEGIN, Closing, END, ERROR, MARK, Measured, ROW};

/// How the kernel begins its message when it panics.
const PANIC: &str = "Kernel panic - not syncing:";

/// The whole result of a guest.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Report {
    pub(super) about: About,
    pub(super) rows: Vec<Measured>,
    /// From the beginning to the end of the program, by the guest's clock.
    pub(super) seconds: f64,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("the program in the guest failed: {0}")]
    Program(String),
    #[error("the guest's kernel panicked: {0}")]
    Panic(String),
    #[error("the guest did not start the program; {0}")]
    NeverBegan(String),
    #[error("the guest's output breaks off after {rows} rows; {last}")]
    BreaksOff { rows: usize, last: String },
    #[error("a line of the guest cannot be read: {0}")]
    Unreadable(String),
    #[error("the guest sent {sent} rows, of which {arrived} arrived")]
    RowsLost { sent: usize, arrived: usize },
}

/// The first and the last line of the program in the guest.
pub(super) const BEGINS: &str = "@stillpoint begin ";
const ENDS: &str = "@stillpoint end ";

/// A guest that measures: this program is its first process.
pub(super) fn purpose() -> Purpose {
    Purpose { arguments: "guest-init".to_owned(), begins: BEGINS, ends: ENDS }
}

/// Whether the program in the guest has begun.
pub(super) fn has_begun(console: &[u8]) -> bool {
    has_said(console, BEGINS)
}

/// How the reason of a kernel's panic begins if memory has run out.
const OUT_OF_MEMORY: [&str; 2] = ["System is deadlocked on memory", "Out of memory"];

/// Whether the kernel has panicked because memory ran out.
pub(super) fn has_run_out_of_memory(console: &[u8]) -> bool {
    let text = String::from_utf8_lossy(console);
    let why = panic(&text.lines().collect::<Vec<_>>());
    why.is_some_and(|why| OUT_OF_MEMORY.iter().any(|begin| why.starts_with(begin)))
}

/// The result that a guest wrote on its console.
pub(super) fn read(console: &[u8]) -> Result<Report, Failure> {
    let text = String::from_utf8_lossy(console);
    let lines: Vec<&str> = text.lines().map(|line| line.trim_end_matches('\r')).collect();
    // A line without its end was cut off. It is left out, and is not an error.
    let whole = if text.ends_with('\n') { lines.len() } else { lines.len().saturating_sub(1) };
    let (mut about, mut rows, mut unreadable) = (None, Vec::new(), None);
    let mut sent: Option<Closing> = None;
    // The firmware leaves its own characters before the first line.
    for line in lines[..whole].iter().filter_map(|line| line.find(MARK).map(|at| &line[at..])) {
        let understood = match wire::parse(line) {
            Some((BEGIN, value)) => serde_json::from_str(value).map(|value| about = Some(value)).is_ok(),
            Some((ROW, value)) => serde_json::from_str(value).map(|row| rows.push(row)).is_ok(),
            Some((END, value)) => serde_json::from_str(value).map(|closing| sent = Some(closing)).is_ok(),
            Some((ERROR, value)) => match serde_json::from_str(value) {
                Ok(reason) => return Err(Failure::Program(reason)),
                Err(_) => false,
            },
            _ => false,
        };
        if !understood && unreadable.is_none() {
            unreadable = Some(Failure::Unreadable(shortened(line)));
        }
    }

    match (about, sent, unreadable) {
        // A garbled row also makes the number of rows wrong: report the row.
        (_, Some(_), Some(unreadable)) => Err(unreadable),
        (Some(about), Some(Closing { rows: sent, seconds }), None) if sent == rows.len() => {
            Ok(Report { about, rows, seconds })
        }
        (Some(_), Some(sent), None) => Err(Failure::RowsLost { sent: sent.rows, arrived: rows.len() }),
        (about, _, unreadable) => Err(match (panic(&lines), about, unreadable) {
            (Some(reason), ..) => Failure::Panic(reason),
            (None, _, Some(unreadable)) => unreadable,
            (None, None, None) => Failure::NeverBegan(last(&text)),
            (None, Some(_), None) => Failure::BreaksOff { rows: rows.len(), last: last(&text) },
        }),
    }
}

/// Why the kernel panicked, if it did.
fn panic(lines: &[&str]) -> Option<String> {
    lines.iter().find_map(|line| Some(shortened(line[line.find(PANIC)? + PANIC.len()..].trim())))
}

#[cfg(test)]
mod tests {
    use super::super::wire::line;
    use super::*;
    use crate::preempt::round::Moment;
    use stillpoint_harness::output::json::Row;

    fn about() -> About {
        About {
            kernel: "Linux 6.1".to_owned(),
            vcpus: 4,
            clock: "tsc".to_owned(),
            peers: [("liburcu".to_owned(), "0.13.2".to_owned())].into(),
        }
    }

    fn measured(contender: &str) -> Measured {
        let mut row = Row::new("guest", "", contender);
        row.put("gp_us_mean", 1.5, 1);
        let moment = Moment { second: 0.25, delay_us_max: None, pending_bytes: 256 };
        let course = if contender == "liburcu/mb" { vec![moment] } else { Vec::new() };
        Measured { row, course }
    }

    const CLOSING: Closing = Closing { rows: 2, seconds: 8.5 };

    /// The lines of a guest that went well, with two rows, as a serial console shows them.
    fn lines() -> Vec<String> {
        vec![
            "\x1bc\x1b[?7l\x1b[2JSeaBIOS (version 1.16)".to_owned(),
            "[    0.000000] Linux version 6.1.0".to_owned(),
            format!("\x1b[0m{}", line(BEGIN, &about())),
            line(ROW, &measured("stillpoint/protected")),
            "[    9.000000] clocksource: timekeeping watchdog".to_owned(),
            line(ROW, &measured("liburcu/mb")),
            line(END, &CLOSING),
            "[   10.000000] reboot: Power down".to_owned(),
        ]
    }

    fn read_lines(lines: &[String]) -> Result<Report, Failure> {
        read(lines.iter().map(|line| format!("{line}\r\n")).collect::<String>().as_bytes())
    }

    #[test]
    fn rows_are_found_among_what_the_kernel_says() {
        let report = read_lines(&lines()).unwrap();
        assert_eq!((report.about, report.seconds), (about(), CLOSING.seconds));
        assert_eq!(report.rows, [measured("stillpoint/protected"), measured("liburcu/mb")]);
    }

    #[test]
    fn an_output_that_is_cut_off_anywhere_is_no_result() {
        let whole = lines().iter().map(|line| format!("{line}\r\n")).collect::<String>();
        let end = whole.find(&line(END, &CLOSING)).unwrap() + line(END, &CLOSING).len();
        for cut in 0..end {
            let failure = read(&whole.as_bytes()[..cut]).unwrap_err();
            assert!(
                matches!(failure, Failure::NeverBegan(_) | Failure::BreaksOff { .. }),
                "cut at {cut}: {failure:?}"
            );
        }
        assert!(
            read(&whole.as_bytes()[..end + 2]).is_ok(),
            "a complete console was refused, so the check above proves nothing"
        );
    }

    #[test]
    fn a_row_that_was_lost_is_missed() {
        let mut lines = lines();
        lines.remove(5);
        assert_eq!(read_lines(&lines), Err(Failure::RowsLost { sent: 2, arrived: 1 }));
    }

    #[test]
    fn a_row_with_a_kernel_message_inside_is_unreadable() {
        let mut lines = lines();
        // Anywhere, strings of the JSON included.
        let row = lines[3].clone();
        for at in MARK.len()..row.len() {
            lines[3] = row.clone();
            lines[3].insert_str(at, "[    9.1] watchdog: BUG");
            let failure = read_lines(&lines).unwrap_err();
            assert!(
                matches!(&failure, Failure::Unreadable(line) if line.contains("watchdog")),
                "{at}: {failure:?}"
            );
        }
        lines[3] = line("dance", &1);
        assert!(matches!(read_lines(&lines), Err(Failure::Unreadable(line)) if line.contains("dance")));
    }

    #[test]
    fn the_error_of_the_program_is_told_before_anything_that_follows_from_it() {
        let mut lines = lines();
        lines.insert(4, line(ERROR, &"cannot mount \"/proc\""));
        lines.push("[ 1.0] Kernel panic - not syncing: Attempted to kill init!".to_owned());
        assert_eq!(read_lines(&lines), Err(Failure::Program("cannot mount \"/proc\"".to_owned())));
    }

    #[test]
    fn a_panic_of_the_kernel_is_told_with_its_reason() {
        let panic = "[    1.5] Kernel panic - not syncing: No working init found.".to_owned();
        let reason = Err(Failure::Panic("No working init found.".to_owned()));
        for before in [0, 2, 3, 4] {
            let mut lines = lines();
            lines.truncate(before);
            lines.push(panic.clone());
            assert_eq!(read_lines(&lines), reason, "after {before} lines");
        }
        let mut lines = lines();
        lines.push(panic);
        assert!(read_lines(&lines).is_ok(), "the result was whole when the power went off");
    }

    #[test]
    fn garbage_is_no_result_and_is_shown_without_control_characters() {
        assert_eq!(read(b""), Err(Failure::NeverBegan("it printed nothing".to_owned())));
        let noise: Vec<u8> = (0..4096u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let Err(Failure::NeverBegan(said)) = read(&noise) else { panic!("a result of noise") };
        assert!(!said.contains(char::is_control) && said.chars().count() < 1000, "{said:?}");
        let text = format!("{MARK}\n");
        assert!(matches!(read(text.as_bytes()), Err(Failure::Unreadable(_))));
    }

    #[test]
    fn the_beginning_is_seen_as_soon_as_it_is_there() {
        let text = line(BEGIN, &about());
        assert!(has_begun(text.as_bytes()));
        assert!(!has_begun(&text.as_bytes()[1..]) && !has_begun(b"") && !has_said(text.as_bytes(), ENDS));
        assert!(has_said(line(END, &CLOSING).as_bytes(), ENDS));
        assert!(BEGINS.starts_with(MARK) && ENDS.starts_with(MARK));
        assert_eq!(purpose().arguments, "guest-init");
    }
}
