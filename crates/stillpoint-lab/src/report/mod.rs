//! The command `report`: one page from the results of all experiments.
//!
//! The page needs no other file and no network. The verdict comes first, then each figure with the published figures beside it,
//! the machine, and the command that repeats it. The page contains the rows as JSON.

mod markdown;
mod page;
mod sections;
mod tasks;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use stillpoint_harness::error::Stop;
use stillpoint_harness::output::figures::Figure;
use stillpoint_harness::output::format::number_of;
use stillpoint_harness::output::json::{Place, Read};
use stillpoint_harness::output::{say, tell};
use stillpoint_harness::results;

/// The flags of `stillpoint report`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Results of bench, guest, simulate or torture, as written by `--json`, or folders with such files
    #[arg(value_name = "FILE|FOLDER", required = true)]
    files: Vec<PathBuf>,

    /// The page to write, or `-` for standard output
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,

    /// Write a page of Markdown instead, or `-`: the answer, and a line for each thing that a user does
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    markdown: Option<PathBuf>,
}

/// Reads the results and writes the page.
pub(crate) fn run(options: &Options, figures: &[&'static Figure]) -> Result<(), Stop> {
    let output = options.markdown.as_deref().unwrap_or(&options.output);
    let place = if output == Path::new("-") { None } else { Some(Place::open(output)?) };
    let (mut read, mut seen) = (Vec::new(), Vec::new());
    for place in &options.files {
        // The same result may be in two files, or a file be named twice.
        for result in results_in(place, &mut seen)? {
            if !read.contains(&result) {
                read.push(result);
            }
        }
    }
    if fs::canonicalize(output).is_ok_and(|output| seen.contains(&output)) {
        return Err(Stop::usage(format!("{} is one of the results: name another file", output.display())));
    }
    let text = match options.markdown {
        Some(_) => markdown::text(&read),
        None => page::text(&read, figures)?,
    };
    let Some(place) = place else {
        say(text.trim_end());
        return Ok(());
    };
    place.write(text.as_bytes())?;
    let rows: usize = read.iter().map(|read| read.rows.len()).sum();
    say(format!("{}: {}", output.display(), number_of(rows as u64, "row")));
    Ok(())
}

/// The result in a file, or all results in a folder, without its other files. Adds the files that it looks at to `seen`.
fn results_in(place: &Path, seen: &mut Vec<PathBuf>) -> Result<Vec<Read>, Stop> {
    if !place.is_dir() {
        seen.extend(fs::canonicalize(place));
        return Ok(vec![Read::from(place)?]);
    }
    let refused = |why: String| {
        Stop::usage(format!("{}: {why}; name a folder with files that --json wrote", place.display()))
    };
    let entries = fs::read_dir(place).map_err(|error| refused(error.to_string()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut read = Vec::new();
    for file in files {
        seen.extend(fs::canonicalize(&file));
        match Read::from(&file) {
            Ok(result) => read.push(result),
            Err(why) => tell(format!("left out: {why}")),
        }
    }
    if read.is_empty() { Err(refused("there are no results in it".to_owned())) } else { Ok(read) }
}

/// Writes the page of results.
pub(crate) fn write(file: &Path, read: &[Read], figures: &[&'static Figure]) -> Result<(), Stop> {
    results::write(file, page::text(read, figures)?.as_bytes())
}
