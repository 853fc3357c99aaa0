//! Results for tools: one JSON object with flat rows, written as a whole or not at all.

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::{Map, Value};

use crate::error::Stop;
use crate::stats::{Distribution, median};

/// The version of the format; it changes only when a tool that reads the old one would be misled.
const SCHEMA: u32 = 1;

/// The end of a contender's name in its second measurement.
pub const AGAIN: &str = " (again)";

/// One measured row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The experiment.
    pub experiment: Cow<'static, str>,
    /// The scenario.
    pub scenario: String,
    /// The contender.
    pub contender: String,
    /// The parameters.
    pub params: Map<String, Value>,
    /// The figures.
    pub metrics: Map<String, Value>,
    /// Why the row does not count; its metrics are empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
}

impl Row {
    /// A row that has no parameters and no figures yet.
    pub fn new(experiment: &'static str, scenario: impl Into<String>, contender: impl Into<String>) -> Self {
        Self {
            experiment: experiment.into(),
            scenario: scenario.into(),
            contender: contender.into(),
            params: Map::new(),
            metrics: Map::new(),
            void: None,
        }
    }

    /// The same row with one more parameter.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.params.insert(name.to_owned(), value.into());
        self
    }

    /// The same row with the figures of its measurement; the error says why it does not count.
    pub fn measured<T>(mut self, outcome: Result<T, String>, figures: impl FnOnce(&mut Self, T)) -> Self {
        match outcome {
            Ok(outcome) => figures(&mut self, outcome),
            Err(reason) => self.void = Some(reason),
        }
        self
    }

    /// Adds a metric with this many digits after the point: more would be noise.
    pub fn put(&mut self, name: impl Into<String>, value: f64, digits: i32) {
        self.metrics.insert(name.into(), rounded(value, digits));
    }

    /// Adds the median of a figure over the rounds.
    pub fn put_median<T>(&mut self, name: &str, digits: i32, rounds: &[T], of: impl Fn(&T) -> f64) {
        self.put(name, median(rounds.iter().map(of).collect()), digits);
    }

    /// Adds the medians over the rounds of the figures of a distribution in microseconds.
    pub fn put_distribution(&mut self, prefix: &str, rounds: &[Distribution]) {
        let mut put = |name, figure: fn(&Distribution) -> f64| {
            self.put_median(&format!("{prefix}_{name}"), 3, rounds, figure);
        };
        put("mean", |round| round.mean);
        put("p50", |round| round.p50);
        put("p99", |round| round.p99);
        put("p999", |round| round.p999);
        put("max", |round| round.max);
    }

    /// Adds the least and the most of the rounds, as `{name}_least` and `{name}_most`.
    pub fn put_spread(&mut self, name: &str, rounds: impl Iterator<Item = f64> + Clone) {
        self.put(format!("{name}_least"), rounds.clone().fold(f64::INFINITY, f64::min), 3);
        self.put(format!("{name}_most"), rounds.fold(0.0, f64::max), 3);
    }

    /// The metric `name`, unless the row is void.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.get(name)?.as_f64()
    }

    /// The metric `name` for people; blank if there is none.
    pub fn shown(&self, name: &str, show: impl FnOnce(f64) -> String) -> String {
        self.metric(name).map(show).unwrap_or_default()
    }

    /// Whether the row is a control: the second measurement of its contender.
    pub fn is_control(&self) -> bool {
        self.contender.ends_with(AGAIN)
    }

    /// A parameter that is a number.
    pub fn param(&self, name: &str) -> Option<u64> {
        self.params.get(name)?.as_u64()
    }
}

/// An error that names the rows that do not count, if there are any.
pub fn judge(rows: &[Row]) -> Result<(), Stop> {
    let void: Vec<String> = rows
        .iter()
        .filter_map(|row| Some(format!("{} {} ({})", row.scenario, row.contender, row.void.as_ref()?)))
        .collect();
    match void.as_slice() {
        [] => Ok(()),
        void => {
            Err(Stop::Failed(format!("{} of {} rows failed: {}", void.len(), rows.len(), void.join(", "))))
        }
    }
}

/// A figure as JSON: whole numbers without a fraction.
pub fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 2f64.powi(53) {
        Value::from(value as i64)
    } else {
        Value::from(value)
    }
}

/// A figure with this many digits after the point.
pub fn rounded(value: f64, digits: i32) -> Value {
    let scale = 10f64.powi(digits);
    number((value * scale).round() / scale)
}

/// The whole result of a command; `extra` holds the fields that only this command has.
#[derive(Debug, Serialize)]
struct Report<'a, M: Serialize, E: Serialize> {
    schema: u32,
    command: String,
    machine: &'a M,
    rows: &'a [Row],
    #[serde(flatten)]
    extra: E,
}

/// The result of a command as it is read again.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Read {
    schema: u32,
    /// The command that wrote it.
    pub command: String,
    /// The machine that it was measured on.
    pub machine: Map<String, Value>,
    /// The measured rows.
    pub rows: Vec<Row>,
    /// What the run left out, and why.
    #[serde(default)]
    pub left_out: Vec<String>,
}

impl Read {
    /// The result of this command, as if it had been read.
    ///
    /// # Errors
    /// When the machine cannot be written as JSON, which is a defect.
    pub fn of(machine: &impl Serialize, rows: Vec<Row>, left_out: Vec<String>) -> Result<Self, Stop> {
        match serde_json::to_value(machine) {
            Ok(Value::Object(machine)) => {
                Ok(Self { schema: SCHEMA, command: command_line(), machine, rows, left_out })
            }
            _ => Err(Stop::Failed("the machine cannot be written as JSON".to_owned())),
        }
    }

    /// The result in a file that `--json` wrote.
    ///
    /// # Errors
    /// When the file cannot be read, or is not such a result.
    pub fn from(file: &Path) -> Result<Self, Stop> {
        let refused =
            |why: String| Stop::usage(format!("{} is not a result that --json wrote: {why}", file.display()));
        let text = fs::read_to_string(file)
            .map_err(|error| Stop::usage(format!("cannot read {}: {error}", file.display())))?;
        let read: Self = serde_json::from_str(&text).map_err(|error| refused(not_ours(&error)))?;
        match read.schema {
            SCHEMA if read.rows.is_empty() => Err(Stop::usage(format!("{} has no rows", file.display()))),
            SCHEMA => Ok(read),
            schema => Err(refused(format!("its format is {schema}, and this program reads format {SCHEMA}"))),
        }
    }
}

/// Why a text is not a result.
pub fn not_ours(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Eof => format!("it breaks off in line {}", error.line()),
        Category::Syntax => format!("it is not JSON (line {}, column {})", error.line(), error.column()),
        Category::Data | Category::Io => error.to_string(),
    }
}

/// No further fields.
#[derive(Debug, Serialize)]
pub struct Nothing {}

/// Where the JSON goes.
#[derive(Debug)]
pub enum Target {
    /// No JSON is written.
    Nowhere,
    /// Standard output.
    Stdout,
    /// A file.
    File(Place),
}

impl Target {
    /// The value of `--json`: a file, or `-` for standard output. The file is checked now, so that a long run
    /// does not end with a result that cannot be kept.
    pub fn open(flag: Option<&str>) -> Result<Self, Stop> {
        match flag {
            None => Ok(Self::Nowhere),
            Some("-") => Ok(Self::Stdout),
            Some(path) => Place::open(Path::new(path)).map(Self::File),
        }
    }

    /// Whether standard output belongs to the JSON, so that nothing else may be printed there.
    pub fn takes_stdout(&self) -> bool {
        matches!(self, Self::Stdout)
    }

    /// Writes the result of a command.
    pub fn write(&self, machine: &impl Serialize, rows: &[Row], extra: impl Serialize) -> Result<(), Stop> {
        let report = Report { schema: SCHEMA, command: command_line(), machine, rows, extra };
        let mut text = serde_json::to_string_pretty(&report)
            .map_err(|error| Stop::usage(format!("the result cannot be written as JSON: {error}")))?;
        text.push('\n');
        match self {
            Self::Nowhere => Ok(()),
            Self::Stdout => match io::stdout().write_all(text.as_bytes()) {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    Err(Stop::usage(format!("cannot write to standard output: {error}")))
                }
                _ => Ok(()),
            },
            Self::File(place) => place.write(text.as_bytes()),
        }
    }
}

/// A file that a result will be written to. A device or a pipe stays open from the check on: the reader of a named pipe takes it for
/// the end of the result if it is closed in between.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    special: Option<File>,
}

impl Place {
    /// Checks whether a file can be written here.
    ///
    /// # Errors
    /// When it cannot.
    pub fn open(path: &Path) -> Result<Self, Stop> {
        let special = probe(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Self { path: path.to_owned(), special })
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file as a whole or not at all, and to a device or a pipe what it takes.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, text: &[u8]) -> Result<(), Stop> {
        let written = match &self.special {
            Some(special) => (&*special).write_all(text),
            None => store(&self.path, text),
        };
        written.map_err(|error| cannot_write(&self.path, &error))
    }
}

/// The error of a result that cannot be kept.
pub fn cannot_write(path: &Path, error: &io::Error) -> Stop {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => ": its folder must exist and take files",
        _ => "",
    };
    Stop::usage(format!("cannot write {}: {error}{hint}", path.display()))
}

/// Devices and pipes are written to directly; a rename would replace them.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Whether a file can be written here; leaves nothing behind. Returns the device or the pipe that is there.
pub fn probe(path: &Path) -> io::Result<Option<File>> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err(io::Error::from(io::ErrorKind::IsADirectory)),
        Ok(_) => {
            let file = OpenOptions::new().write(true).open(path)?;
            if is_special(path) {
                return Ok(Some(file));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    temporary(path).map(|_| None)
}

/// A file beside `path`, so that renaming it to `path` is atomic; it is gone when dropped.
fn temporary(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // The mode of an ordinary new file, less the caller's umask; temporary files have a stricter one.
    tempfile::Builder::new()
        .prefix(".stillpoint-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(without_path)
}

/// An error of `tempfile` without the name of the temporary file, which the user does not know.
fn without_path(error: io::Error) -> io::Error {
    let text = error.to_string();
    let reason = text.split_once(" at path ").map_or(text.as_str(), |(reason, _)| reason);
    io::Error::new(error.kind(), reason)
}

/// Writes a file as a whole or not at all.
pub fn store(path: &Path, text: &[u8]) -> io::Result<()> {
    if is_special(path) {
        return OpenOptions::new().write(true).open(path)?.write_all(text);
    }
    // A symbolic link stays: the file that it names is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut file = temporary(&path)?;
    file.write_all(text)?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}

/// The command as it was typed, quoted for a shell.
fn command_line() -> String {
    let quote = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    std::iter::once("stillpoint".to_owned())
        .chain(std::env::args_os().skip(1).map(|word| quote(word.to_string_lossy().into_owned())))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn whole_numbers_have_no_fraction() {
        assert_eq!(number(20_000.0).to_string(), "20000");
        assert_eq!(number(13.5).to_string(), "13.5");
    }

    #[test]
    fn an_unwritable_place_is_found_before_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let inside = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        assert!(Target::open(Some(&inside("no/such/folder.json"))).is_err());
        assert!(Target::open(Some(&inside(""))).is_err(), "a folder is no file");
        assert!(Target::open(Some(&inside("new.json"))).is_ok());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the check left something behind");
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_a_device_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, "old").unwrap();
        let link = folder.path().join("link.json");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        store(&link, b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(link.symlink_metadata().unwrap().is_symlink());
        store(Path::new("/dev/null"), b"nothing").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    /// The check and the result are one writer of a named pipe: its reader sees no end in between.
    #[test]
    fn the_reader_of_a_named_pipe_gets_the_whole_result() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (of_writer, of_reader) = (pipe.clone(), pipe);
        let (send, receive) = mpsc::channel();
        thread::spawn(move || send.send(fs::read_to_string(of_reader)));
        // Neither thread is joined: a writer that opens the pipe again would wait for ever.
        thread::spawn(move || {
            let target = Target::open(of_writer.to_str()).unwrap();
            // The work in between, in which the reader would see the end.
            thread::sleep(Duration::from_millis(200));
            let machine = serde_json::json!({ "model": "a processor" });
            target.write(&machine, &[Row::new("micro", "pin", "seize")], Nothing {}).unwrap();
        });
        let text = receive.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
        let read: Read = serde_json::from_str(&text).unwrap();
        assert_eq!(read.rows.len(), 1);
    }

    #[test]
    fn what_was_written_is_read_again_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let mut row = Row::new("reclaim", "spread", "seize").with("readers", 8);
        row.put("delay", 1.25, 2);
        let machine = serde_json::json!({"model": "a processor"});
        Target::File(Place::open(&path).unwrap()).write(&machine, &[row], Nothing {}).unwrap();
        let read = Read::from(&path).unwrap();
        assert_eq!((read.rows[0].metric("delay"), read.rows[0].param("readers")), (Some(1.25), Some(8)));
        assert_eq!(read.machine["model"], "a processor");
        let text = fs::read_to_string(&path).unwrap();
        for (wrong, why) in [
            (text.replace("\"schema\": 1", "\"schema\": 2"), "format is 2"),
            (text.replace("rows", "lines"), "rows"),
            (text[..text.len() - 9].to_owned(), "breaks off in line"),
            ("hello".to_owned(), "not JSON (line 1, column 1)"),
            ("[]".to_owned(), "not a result"),
        ] {
            fs::write(&path, wrong).unwrap();
            let stop = Read::from(&path).unwrap_err().to_string();
            assert!(stop.contains("a.json") && stop.contains(why), "{stop}");
        }
        assert!(Read::from(&folder.path().join("b.json")).unwrap_err().to_string().contains("cannot read"));
    }

    #[test]
    fn one_void_row_fails_the_run_and_is_named() {
        let row = |contender: &str| Row::new("reclaim", "spread", contender);
        let void = row("ck/epoch").measured(Err::<(), _>("3 lookups".to_owned()), |_, ()| ());
        assert!(judge(&[row("seize")]).is_ok());
        let stop = judge(&[row("seize"), void]).unwrap_err();
        assert!(
            matches!(&stop, Stop::Failed(message) if message.contains("spread ck/epoch (3 lookups)")),
            "{stop}"
        );
    }
}
