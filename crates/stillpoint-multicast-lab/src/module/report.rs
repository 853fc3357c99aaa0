//! Reads what the module's test program wrote on the console.

use serde::Serialize;
use stillpoint_harness::qemu::console::last;

/// What each line of the test program begins with; a verb follows.
const MARK: &str = "@module ";
/// Its first line, and its last.
pub(super) const BEGINS: &str = "@module begin ";
pub(super) const ENDS: &str = "@module end ";

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Pass,
    Fail,
    Skip,
}

impl Outcome {
    pub(super) fn name(self) -> &'static str {
        ["pass", "FAIL", "skip"][self as usize]
    }
}

/// One promise that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) promise: String,
    pub(super) outcome: Outcome,
    pub(super) detail: String,
}

/// The readers of liburcu beside a writer of some frequency. Only the shape is a result: the ratios of a strategy's rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Rate {
    pub(super) strategy: String,
    /// Grace periods a second: those asked for, and those that the writer reached.
    pub(super) asked_per_s: f64,
    pub(super) reached_per_s: f64,
    sections: f64,
    seconds: f64,
    /// Sections a second, divided by those of the strategy's first row, whose writer does nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
    /// Why there is no ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) void: Option<String>,
}

/// The writer reaches a frequency if it has at least this share of it.
const REACHED: f64 = 0.9;

/// "flat 100 147 123456 1.503": strategy, frequency, grace periods, sections, seconds. `before` are the rows before it; the
/// first of a strategy must be without a writer.
fn rate(line: &str, before: &[Rate]) -> Option<Rate> {
    let (strategy, rest) = line.split_once(' ')?;
    let numbers: Vec<f64> = rest.split(' ').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let &[asked_per_s, periods, sections, seconds] = numbers.as_slice() else { return None };
    let base = before.iter().find(|rate| rate.strategy == strategy);
    let base = match base {
        Some(rate) => rate.sections / rate.seconds,
        None => Some(sections / seconds).filter(|_| asked_per_s == 0.0)?,
    };
    let rounded = |value: f64| (value * 1e3).round() / 1e3;
    let reached_per_s = rounded(periods / seconds);
    let late = reached_per_s < REACHED * asked_per_s;
    let ratio = Some(rounded(sections / seconds / base)).filter(|ratio| !late && ratio.is_finite());
    let reason = if late { "the writer did not reach the frequency" } else { "the readers did nothing" };
    let void = ratio.is_none().then(|| reason.to_owned());
    Some(Rate { strategy: strategy.to_owned(), asked_per_s, reached_per_s, sections, seconds, ratio, void })
}

/// The whole result of a machine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Report {
    pub(super) kernel: String,
    pub(super) cpus: usize,
    pub(super) checks: Vec<Check>,
    pub(super) rates: Vec<Rate>,
}

/// Reads the result from the console; an error if a line of it is missing.
pub(super) fn read(console: &[u8]) -> Result<Report, String> {
    let text = String::from_utf8_lossy(console);
    let (mut begun, mut checks, mut rates, mut ended) = (None, Vec::new(), Vec::new(), None);
    for line in text.lines().filter_map(|line| Some(&line[line.find(MARK)? + MARK.len()..])) {
        let (verb, rest) = line.trim_end().split_once(' ').unwrap_or((line, ""));
        match verb {
            "begin" => begun = about(rest),
            "pass" => checks.push(check(Outcome::Pass, rest)),
            "fail" => checks.push(check(Outcome::Fail, rest)),
            "skip" => checks.push(check(Outcome::Skip, rest)),
            "rate" => match rate(rest, &rates) {
                Some(rate) => rates.push(rate),
                None => return Err(format!("a row of the tests cannot be read: {rest}")),
            },
            "end" => ended = Some(sums(rest)),
            _ => return Err(format!("a line of the tests cannot be read: {verb} {rest}")),
        }
    }
    let Some((kernel, cpus)) = begun else {
        return Err(format!("the guest did not start the tests; {}", last(&text)));
    };
    let Some(ended) = ended else {
        return Err(format!("the tests' output breaks off after {} lines; {}", checks.len(), last(&text)));
    };
    let count = |outcome| checks.iter().filter(|check| check.outcome == outcome).count();
    let [passed, failed, skipped] = [Outcome::Pass, Outcome::Fail, Outcome::Skip].map(count);
    if ended != [passed, failed, skipped, rates.len()].map(Some) {
        return Err(format!(
            "lines of the tests are lost: {} checks and {} rates arrived, which do not match the last line: {ended:?}",
            checks.len(),
            rates.len()
        ));
    }
    if count(Outcome::Pass) == 0 {
        return Err("nothing was checked".to_owned());
    }
    Ok(Report { kernel, cpus, checks, rates })
}

fn check(outcome: Outcome, line: &str) -> Check {
    let (promise, detail) = line.split_once(": ").unwrap_or((line, ""));
    Check { promise: promise.to_owned(), outcome, detail: detail.to_owned() }
}

/// "6.1.0, 8 CPUs"
fn about(line: &str) -> Option<(String, usize)> {
    let (kernel, cpus) = line.split_once(", ")?;
    Some((kernel.to_owned(), cpus.split(' ').next()?.parse().ok()?))
}

/// "3 passed, 0 failed, 1 skipped, 10 rates"
fn sums(line: &str) -> [Option<usize>; 4] {
    let mut parts = line.split(", ").map(|part| part.split(' ').next()?.parse().ok());
    [(); 4].map(|()| parts.next().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "SeaBIOS\r\n@module begin 6.1.0, 8 CPUs\r\n@module pass counters: 70 operations\r\n\
                         [    9.1] something\r\n@module skip liburcu: was not built\r\n\
                         @module fail litmus: tree: 3 violations\r\n\
                         @module pass readers: tree: 9 sections, by 3 barriers of 7.00 interrupts\r\n\
                         @module rate tree 0 0 4000 2.000\r\n@module rate tree 10 20 3000 2.000\r\n\
                         @module end 2 passed, 1 failed, 1 skipped, 2 rates\r\n";

    #[test]
    fn each_promise_has_its_outcome() {
        let report = read(WHOLE.as_bytes()).unwrap();
        assert_eq!((report.kernel.as_str(), report.cpus), ("6.1.0", 8));
        let found: Vec<_> =
            report.checks.iter().map(|c| (c.promise.as_str(), c.outcome, c.detail.as_str())).collect();
        assert_eq!(
            found,
            [
                ("counters", Outcome::Pass, "70 operations"),
                ("liburcu", Outcome::Skip, "was not built"),
                ("litmus", Outcome::Fail, "tree: 3 violations"),
                ("readers", Outcome::Pass, "tree: 9 sections, by 3 barriers of 7.00 interrupts"),
            ]
        );
    }

    #[test]
    fn a_result_that_misses_a_line_is_none() {
        let lines: Vec<&str> = WHOLE.split_inclusive("\r\n").collect();
        for missing in [1, 2, 4, 5, 6, 7, 8, 9] {
            let mut rest = lines.clone();
            rest.remove(missing);
            assert!(read(rest.concat().as_bytes()).is_err(), "without {}", lines[missing]);
        }
        assert!(read(b"Kernel panic - not syncing: oops").unwrap_err().contains("not syncing: oops"));
        assert!(
            read(b"@module begin 6.1.0, 8 CPUs\n@module end 0 passed, 0 failed, 0 skipped, 0 rates\n")
                .is_err()
        );
        assert!(read(b"@module dance\n").is_err());
    }
    #[test]
    fn readers_are_compared_with_those_of_the_same_strategy_without_a_writer() {
        let mut rates = Vec::new();
        for (line, expected) in [
            ("flat 0 0 8000 2.0", Some(1.0)),
            ("tree 0 0 1000 1.0", Some(1.0)),
            ("tree 100 90 1500 1.0", Some(1.5)),
            ("tree 100 89 1500 1.0", None),
            ("split 0 0 0 1.0", None),
        ] {
            let found = rate(line, &rates).unwrap();
            assert_eq!((found.ratio, found.void.is_none()), (expected, expected.is_some()), "{line}");
            rates.push(found);
        }
        for wrong in ["hybrid 10 10 9 1.0", "tree 0 0 10", "tree 0 0 10 x", "tree 0 0 10 1.0 2", ""] {
            assert!(rate(wrong, &rates).is_none(), "{wrong}");
        }
    }
}
