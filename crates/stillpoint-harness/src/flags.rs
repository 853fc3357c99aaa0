//! Flags that several commands have.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::machine::cpus;

/// Where results for tools go.
#[derive(Debug, Args)]
pub struct JsonFlag {
    /// Write the result as JSON to FILE, or to standard output in place of the tables
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<String>,
}

/// Where results go beside the terminal.
#[derive(Debug, Args)]
pub struct ResultFlags {
    /// Write the result as JSON to FILE, or to standard output in place of the tables
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<String>,

    /// Write the rows as CSV to FILE
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Draw the figures into FOLDER, as SVG, each on a light and on a dark background
    #[arg(long, value_name = "FOLDER")]
    pub figures: Option<PathBuf>,
}

/// How long to measure.
#[derive(Debug, Args)]
pub struct LengthFlags {
    /// Measure only the contenders and settings that a bar of .ci/bars compares
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,

    /// Measure everything, in more rounds; delays and grace periods for ten seconds a row
    #[arg(long)]
    pub full: bool,

    /// Time to measure for each row, over all its rounds, such as 2s or 500ms
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// Rounds for each row; their median counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
}

impl LengthFlags {
    /// The value for a short, a usual or a full run.
    pub fn pick<T>(&self, quick: T, usual: T, full: T) -> T {
        match (self.quick, self.full) {
            (true, _) => quick,
            (_, true) => full,
            _ => usual,
        }
    }

    /// The values that were asked for, or else those of a full or a usual run.
    pub fn asked_or<T: Clone>(&self, asked: &[T], usual: &[T], full: &[T]) -> Vec<T> {
        match asked {
            [] if self.full => full.to_vec(),
            [] => usual.to_vec(),
            asked => asked.to_vec(),
        }
    }

    /// The rounds asked for, or those of [`pick`](Self::pick).
    pub fn rounds_or(&self, quick: u32, usual: u32, full: u32) -> u32 {
        self.rounds.unwrap_or(self.pick(quick, usual, full))
    }

    /// The time of one round of a row with this many rounds; `usual` unless it was given.
    pub fn slice(&self, rounds: u32, usual: Duration) -> Duration {
        self.duration.map_or(usual, |row| row / rounds)
    }
}

/// Gives a `ValueEnum` a method `name`: its values are named alike on the command line and in rows.
#[macro_export]
macro_rules! named {
    ($visibility:vis $type:ty) => {
        impl $type {
            /// The name in rows.
            $visibility fn name(self) -> String {
                let value = clap::ValueEnum::to_possible_value(&self);
                value.map_or_else(String::new, |value| value.get_name().to_owned())
            }
        }
    };
}

/// A list of CPUs; a separate type, since clap reads a bare `Vec` as one value for each occurrence.
#[derive(Debug, Clone)]
pub struct CpuList(pub Vec<usize>);

/// Reads the value of `--cpus`.
pub fn parse_cpus(text: &str) -> Result<CpuList, String> {
    cpus::parse_list(text).map(CpuList)
}

/// Reads a time from 1ms to 1h, in seconds unless it has a unit.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (shortest, longest) = (Duration::from_millis(1), Duration::from_secs(3600));
    let duration = match text.trim().parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?,
        Err(_) => humantime::parse_duration(text.trim()).map_err(|error| error.to_string())?,
    };
    if duration < shortest || duration > longest {
        return Err("must be from 1ms to 1h".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_unless_they_have_a_unit() {
        assert_eq!(parse_duration("1.5").unwrap(), Duration::from_millis(1500));
        assert_eq!(parse_duration("250ms").unwrap(), Duration::from_millis(250));
        for text in ["0", "-1", "2h", "soon", "inf", "nan"] {
            assert!(parse_duration(text).is_err(), "{text:?} was accepted");
        }
    }
}
