//! Figures for people: three significant digits and a unit.

use serde_json::Value;

/// Three significant digits.
fn significant(value: f64) -> String {
    match value.abs() {
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A duration given in microseconds.
pub fn micros(micros: f64) -> String {
    match micros {
        us if us < 999.5 => format!("{} µs", significant(us)),
        us if us < 999_500.0 => format!("{} ms", significant(us / 1e3)),
        us => format!("{} s", significant(us / 1e6)),
    }
}

/// A rate a second.
pub fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate < 999.5 => format!("{}/s", significant(rate)),
        rate if rate < 999_500.0 => format!("{}k/s", significant(rate / 1e3)),
        rate => format!("{}M/s", significant(rate / 1e6)),
    }
}

/// A number of things, each called `noun`.
pub fn number_of(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A frequency.
pub fn hertz(hz: u64) -> String {
    format!("{:.3} GHz", hz as f64 / 1e9)
}

/// An amount of memory.
pub fn bytes(bytes: u64) -> String {
    match bytes as f64 {
        size if size < 1024.0 * 1024.0 => format!("{} KiB", significant(size / 1024.0)),
        size if size < 1024.0 * 1024.0 * 1024.0 => format!("{} MiB", significant(size / 1024.0 / 1024.0)),
        size => format!("{} GiB", significant(size / 1024.0 / 1024.0 / 1024.0)),
    }
}

/// A figure of a metric, with the unit that the metric's name has.
pub fn of_metric(name: &str, value: f64) -> String {
    let has = |unit: &str| name.split('_').any(|word| word == unit);
    let text = match value {
        _ if has("us") => micros(value),
        _ if has("ns") && value < 999.5 => format!("{} ns", significant(value)),
        _ if has("ns") => micros(value / 1e3),
        _ if has("ms") => micros(value * 1e3),
        _ if name.contains("per_s") => rate(value),
        _ if has("bytes") && value < 1024.0 => format!("{} B", significant(value)),
        _ if has("bytes") => bytes(value as u64),
        _ if has("percent") => format!("{} %", significant(value)),
        _ if has("to") => return format!("{value:.2}x"),
        _ if value >= 999_500.0 => format!("{} million", significant(value / 1e6)),
        _ => return number(value),
    };
    let unit = text.find(|c: char| !c.is_ascii_digit() && !".-".contains(c)).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit);
    let digits =
        if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    digits.to_owned() + unit
}

/// A number for readers: four significant digits, or all digits before the point.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size == 0.0 || size >= 1e3 => 0,
        size => (3 - size.log10().floor() as i32).clamp(0, 6) as usize,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The value of a parameter as text.
pub fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        assert_eq!(
            [0, 1, 2].map(|number| number_of(number, "thread")),
            ["0 threads", "1 thread", "2 threads"]
        );
    }

    #[test]
    fn durations_have_three_digits_and_the_right_unit() {
        assert_eq!(micros(0.123), "0.12 µs");
        assert_eq!(micros(13.44), "13.4 µs");
        assert_eq!(micros(171.2), "171 µs");
        assert_eq!(micros(999.7), "1.00 ms");
        assert_eq!(micros(44_065.0), "44.1 ms");
        assert_eq!(micros(1_250_000.0), "1.25 s");
    }

    #[test]
    fn rates_and_sizes_have_units() {
        assert_eq!(rate(27_010_000.0), "27.0M/s");
        assert_eq!(rate(5_000.0), "5.00k/s");
        assert_eq!(bytes(3 << 29), "1.50 GiB");
        assert_eq!(hertz(2_596_000_000), "2.596 GHz");
    }

    #[test]
    fn the_name_of_a_metric_has_its_unit() {
        for (name, value, text) in [
            ("delay_us_p999", 1_250_000.0, "1.25 s"),
            ("cpu_us_per_gp", 10.0, "10 µs"),
            ("ns_per_op", 2.0, "2 ns"),
            ("insert_ns_max", 44_065_000.0, "44.1 ms"),
            ("latest_ms", 0.5, "500 µs"),
            ("packets_per_s", 27_010_000.0, "27M/s"),
            ("bytes_per_entry", 61.25, "61.2 B"),
            ("peak_pending_bytes", f64::from(3 << 19), "1.5 MiB"),
            ("loss_percent", 1.5, "1.5 %"),
            ("gp_mean_to_baseline", 16.0, "16.00x"),
            ("waiting", 2_000_000.0, "2 million"),
            ("poll_cycles", 13.44, "13.44"),
        ] {
            assert_eq!(of_metric(name, value), text, "{name}");
        }
    }
}
