//! Contenders that hang: the measuring thread reports what it begins, and another thread watches it.
//!
//! DPDK's bucket driver frees into a ring of the bucket's owner. If the ring is full, it waits, if need be for ever.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use stillpoint_harness::output::each_once;
use stillpoint_harness::output::json::Row;

use super::child::Answer;
use super::plan::Plan;

/// What the measuring thread reports.
pub(super) enum Report {
    /// A slice begins: the number of the setting, and the contender's row, still without figures.
    Begins(usize, Row),
    /// A setting was measured: its rows, and a sentence about each pool.
    Measured(Vec<Row>, Vec<String>),
    /// All is measured, or there was an error.
    Ends(Result<(), String>),
}

/// How long a slice may take: many times its planned time.
pub(super) fn limit(plan: &Plan) -> Duration {
    Duration::from_secs(5) + 20 * plan.slice
}

/// The longest time that may pass until all pools are made.
const LONGEST_PREPARATION: Duration = Duration::from_secs(60);

/// Runs `work` on a separate thread. If a slice takes longer than the limit, returns the rows so far; the caller must
/// then end the process, because the thread still hangs.
pub(super) fn over(
    limit: Duration,
    work: impl FnOnce(&Sender<Report>) -> Result<(), String> + Send + 'static,
) -> Result<Answer, String> {
    let (report, reports) = channel();
    std::thread::spawn(move || {
        let result = work(&report);
        // After the limit, the receiver is gone.
        let _ = report.send(Report::Ends(result));
    });
    let mut answer = Answer { rows: Vec::new(), notes: Vec::new(), unfinished: None };
    let mut current = None;
    loop {
        match reports.recv_timeout(if current.is_some() { limit } else { limit.max(LONGEST_PREPARATION) }) {
            Ok(Report::Begins(setting, row)) => current = Some((setting, row)),
            Ok(Report::Measured(rows, notes)) => {
                current = None;
                answer.rows.extend(rows);
                answer.notes = each_once(answer.notes.into_iter().chain(notes));
            }
            Ok(Report::Ends(result)) => return result.map(|()| answer),
            Err(RecvTimeoutError::Timeout) => {
                let (_, row) = current.as_mut().ok_or("the pools were not ready in time")?;
                let reason = format!("did not end in {} s", limit.as_secs());
                if row.contender.starts_with("stillpoint") {
                    row.void = Some(reason);
                } else {
                    row.metrics.insert("unfinished".to_owned(), reason.into());
                }
                answer.unfinished = current;
                return Ok(answer);
            }
            Err(RecvTimeoutError::Disconnected) => return Err("the measuring thread panicked".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(contender: &str) -> Row {
        Row::new("pool", "producer-consumer", contender)
    }

    #[test]
    fn who_does_not_end_is_named_and_what_was_measured_is_kept() {
        let hang = |name: &'static str| {
            over(Duration::from_secs(1), move |report| {
                let say = |what| report.send(what).map_err(|error| error.to_string());
                say(Report::Begins(6, row("quick")))?;
                say(Report::Measured(vec![row("quick")], vec!["a note".to_owned()]))?;
                // This is longer than a slice may take, but here the next pools are being made.
                std::thread::sleep(Duration::from_millis(1500));
                say(Report::Begins(7, row(name)))?;
                loop {
                    std::thread::park();
                }
            })
            .unwrap()
        };
        let answer = hang("slow");
        assert_eq!((answer.rows[0].contender.as_str(), answer.notes.len()), ("quick", 1));
        let (setting, slow) = answer.unfinished.unwrap();
        assert_eq!((setting, slow.contender.as_str()), (7, "slow"));
        assert!(slow.metrics["unfinished"].as_str().unwrap().contains("did not end") && slow.void.is_none());
        let (_, ours) = hang("stillpoint/pool").unfinished.unwrap();
        assert!(
            ours.void.is_some_and(|why| why.contains("did not end")),
            "a pool of ours that hangs must have a void row"
        );
    }

    #[test]
    fn errors_and_ends_are_passed_on() {
        let limit = Duration::from_secs(60);
        assert!(over(limit, |_| Ok(())).unwrap().unfinished.is_none());
        assert!(over(limit, |_| Err("no memory".to_owned())).is_err_and(|error| error == "no memory"));
    }
}
