//! Figures for people: three significant digits and a unit.

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

/// `value` in multiples of `base`; below a tenth of it, as a fraction.
pub fn multiple(value: f64, base: f64) -> String {
    match value / base {
        ratio if ratio < 0.1 => format!("1/{:.0}", 1.0 / ratio),
        ratio => format!("{}x", significant(ratio)),
    }
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
    fn multiples_below_a_tenth_are_fractions() {
        assert_eq!(multiple(13.4, 44_065.0), "1/3288");
        assert_eq!(multiple(1_500.0, 6_600.0), "0.23x");
        assert_eq!(multiple(300.0, 10.0), "30.0x");
    }
}
