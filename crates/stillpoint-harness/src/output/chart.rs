//! A bar chart on a logarithmic scale, for a terminal.

use anstyle::{AnsiColor, Style};

/// One bar.
#[derive(Debug)]
pub struct Bar<'a> {
    /// Shown before the bar.
    pub label: &'a str,
    /// The length of the bar, shown behind it.
    pub value: f64,
    /// Whether it has a colour that stands out, where there are colours.
    pub ours: bool,
}

const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
const OURS: Style = AnsiColor::Green.on_default();
const THEIRS: Style = AnsiColor::Blue.on_default();
const WIDTH: usize = 60;

/// Draws the bars, one a line, above an axis with a mark at each power of ten; `show` writes the values.
///
/// A value that is not above 0 has no place on a logarithmic scale, and gets no bar.
pub fn logarithmic(bars: &[Bar<'_>], show: impl Fn(f64) -> String) -> String {
    let values = || bars.iter().map(|bar| bar.value).filter(|value| *value > 0.0 && value.is_finite());
    let (Some(least), Some(most)) = (values().min_by(f64::total_cmp), values().max_by(f64::total_cmp)) else {
        return String::new();
    };
    let first = least.log10().floor();
    let decades = (most.log10().ceil() - first).max(1.0);
    let column = WIDTH as f64 / decades;
    let margin = bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);

    let mut text = String::new();
    for bar in bars {
        let eighths = match bar.value {
            value if value > 0.0 => ((value.log10() - first) * column * 8.0).round().max(1.0) as usize,
            _ => 0,
        };
        let style = if bar.ours { OURS } else { THEIRS };
        let length = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
        let (label, value) = (bar.label, show(bar.value));
        text += &format!("{label:>margin$} │{style}{length}{style:#} {value}\n");
    }

    let (mut marks, mut names) = (String::new(), String::new());
    for decade in 0..=decades as usize {
        let at = (decade as f64 * column).round() as usize;
        marks.extend(std::iter::repeat_n('─', at.saturating_sub(marks.chars().count())));
        marks.push('┴');
        names.extend(std::iter::repeat_n(' ', at.saturating_sub(names.chars().count())));
        names += &show(10f64.powf(first + decade as f64));
        names.push(' ');
    }
    text + &format!("{:margin$} {marks}\n{:margin$} {}\n", "", "", names.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(bars: &[Bar<'_>]) -> Vec<String> {
        let text = logarithmic(bars, |value| format!("{value}"));
        anstream::adapter::strip_str(&text).to_string().lines().map(str::to_owned).collect()
    }

    fn blocks(line: &str) -> usize {
        line.chars().filter(|&c| c == '█').count()
    }

    #[test]
    fn each_decade_is_as_wide_as_the_other() {
        let lines = plain(&[
            Bar { label: "ten", value: 10.0, ours: true },
            Bar { label: "hundred", value: 100.0, ours: false },
            Bar { label: "thousand", value: 1000.0, ours: false },
        ]);
        assert_eq!(lines.len(), 5);
        assert_eq!((blocks(&lines[1]), blocks(&lines[2])), (WIDTH / 2, WIDTH));
        assert!(lines[0].starts_with("     ten │▏ 10"), "{}", lines[0]);
        assert!(lines[4].trim_start().starts_with("10 ") && lines[4].ends_with("1000"), "{}", lines[4]);
    }

    #[test]
    fn equal_values_fill_one_decade_or_less() {
        let lines =
            plain(&[Bar { label: "a", value: 5.0, ours: true }, Bar { label: "b", value: 5.0, ours: false }]);
        assert_eq!(blocks(&lines[0]), blocks(&lines[1]));
        assert!(blocks(&lines[0]) > WIDTH / 2);
    }

    #[test]
    fn what_cannot_be_drawn_is_not_drawn() {
        assert_eq!(logarithmic(&[], |value| value.to_string()), "");
        assert_eq!(logarithmic(&[Bar { label: "a", value: 0.0, ours: true }], |value| value.to_string()), "");
        let lines =
            plain(&[Bar { label: "a", value: 0.0, ours: true }, Bar { label: "b", value: 2.0, ours: true }]);
        assert_eq!(lines[0], "a │ 0");
    }
}
