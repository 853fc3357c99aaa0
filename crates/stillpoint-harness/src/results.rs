//! Where the results of a command go beside the terminal: JSON, CSV, and figures.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::Stop;
use crate::flags::ResultFlags;
use crate::interrupt;
use crate::output::figures::{self, Figure, Ground};
use crate::output::format::number_of;
use crate::output::json::{self, Place, Row, Target, cannot_write};
use crate::output::{csv, leave_out, tell};

/// The places that were asked for. All were checked before the work began, so that no result is lost in the end.
#[derive(Debug)]
pub struct Results {
    json: Target,
    csv: Option<Place>,
    figures: Option<PathBuf>,
}

impl Results {
    /// The places that the flags name. A folder for figures is made.
    ///
    /// # Errors
    /// When nothing can be written to one of them.
    pub fn open(flags: &ResultFlags) -> Result<Self, Stop> {
        let csv = flags.csv.as_deref().map(Place::open).transpose()?;
        if let Some(folder) = &flags.figures {
            open_folder(folder)?;
        }
        let json = Target::open(flags.json.as_deref())?;
        if let (Target::File(json), Some(csv)) = (&json, &csv)
            && json.path() == csv.path()
        {
            let file = csv.path().display();
            return Err(Stop::usage(format!("--json and --csv name the same file: {file}")));
        }
        Ok(Self { json, csv, figures: flags.figures.clone() })
    }

    /// Whether standard output belongs to the JSON, so that nothing else may be printed there.
    pub fn takes_stdout(&self) -> bool {
        self.json.takes_stdout()
    }

    /// Writes the results of a command; `extra` holds the fields that only its JSON has.
    ///
    /// # Errors
    /// When something cannot be written.
    pub fn write(
        &self,
        machine: &impl Serialize,
        rows: &[Row],
        extra: impl Serialize,
        figures: &[&'static Figure],
    ) -> Result<(), Stop> {
        self.json.write(machine, rows, extra)?;
        if let Some(place) = &self.csv {
            place.write(csv::text(rows)?.as_bytes())?;
        }
        if let Some(folder) = &self.figures {
            let charts = figures::charts(figures, rows);
            for chart in &charts {
                for (ground, suffix) in [(Ground::Light, ""), (Ground::Dark, "-dark")] {
                    let file = folder.join(format!("{}{suffix}.svg", chart.file()));
                    write(&file, figures::svg(chart, ground)?.as_bytes())?;
                }
            }
            tell(format!("{} in {}", number_of(charts.len() as u64, "figure"), folder.display()));
        }
        Ok(())
    }
}

/// How a command ends whose findings were judged, and whose results were written: with the judgement's error first. If there are two, the
/// other one is told.
///
/// # Errors
/// One of the two.
pub fn conclude(judged: Result<(), Stop>, written: Result<(), Stop>) -> Result<(), Stop> {
    if let (Err(_), Err(stop)) = (&judged, &written) {
        tell(stop);
    }
    judged.and(written)
}

/// The first word of the line that says so in results.
pub const INTERRUPTED: &str = "interrupted";

/// After an interrupt: says how many rows there are, also in the results.
///
/// # Errors
/// When there are none, so that nothing is worth writing.
pub fn check_interrupt(rows: &[Row]) -> Result<(), Stop> {
    match rows.len() {
        _ if !interrupt::requested() => Ok(()),
        0 => Err(Stop::Failed("interrupted before a row was measured: nothing is written".to_owned())),
        count => {
            leave_out(format!(
                "{INTERRUPTED}: {} measured, and the others are missing",
                number_of(count as u64, "row")
            ));
            Ok(())
        }
    }
}

/// Makes the folder if it does not exist, and checks whether files can be written into it.
///
/// # Errors
/// When one of the two fails.
pub fn open_folder(folder: &Path) -> Result<(), Stop> {
    fs::create_dir_all(folder)
        .and_then(|()| json::probe(&folder.join("probe")).map(drop))
        .map_err(|error| Stop::usage(format!("cannot write into {}: {error}", folder.display())))
}

/// Writes a file as a whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write(file: &Path, bytes: &[u8]) -> Result<(), Stop> {
    json::store(file, bytes).map_err(|error| cannot_write(file, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::figures::{Across, Better, Number, Up};
    use crate::output::json::Nothing;

    static FIGURE: Figure = Figure {
        name: "line",
        experiment: "test",
        scenarios: &["all"],
        title: "A line",
        across: Across::Numbers { of: Number::Param("x"), title: "x", logarithmic: false },
        up: Up { metric: "y", band: None, title: "y", logarithmic: false, better: Better::More },
        ..Figure::PLAIN
    };

    #[test]
    fn all_that_was_asked_for_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let inside = |name: &str| folder.path().join(name);
        let flags = ResultFlags {
            json: Some(inside("a.json").display().to_string()),
            csv: Some(inside("a.csv")),
            figures: Some(inside("made/here")),
        };
        let results = Results::open(&flags).unwrap();
        let row = |x: u32| Row {
            metrics: [("y".to_owned(), 2.into())].into_iter().collect(),
            ..Row::new("test", "all", "a").with("x", x)
        };
        results.write(&"machine", &[row(1), row(2)], Nothing {}, &[&FIGURE]).unwrap();
        for name in ["a.json", "a.csv", "made/here/line.svg", "made/here/line-dark.svg"] {
            assert!(inside(name).metadata().is_ok_and(|file| file.len() > 50), "{name}");
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_to_is_found_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let nothing = || ResultFlags { json: None, csv: None, figures: None };
        for flags in [
            ResultFlags { figures: Some(file.join("below")), ..nothing() },
            ResultFlags { csv: Some(file.join("below")), ..nothing() },
        ] {
            let stop = Results::open(&flags).unwrap_err().to_string();
            assert!(stop.contains("cannot write") && stop.contains("below"), "{stop}");
        }
    }
}
