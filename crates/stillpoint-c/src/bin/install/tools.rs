//! Files and commands.

use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

pub(crate) fn make_folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| failed(path, &error))
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    // Not `fs::copy`, which copies the rights, too.
    let bytes = fs::read(from).map_err(|error| failed(from, &error))?;
    write(to, bytes)
}

/// Copies a folder and everything below it.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> Result<(), String> {
    make_folder(to)?;
    for entry in fs::read_dir(from).map_err(|error| failed(from, &error))? {
        let from = entry.map_err(|error| failed(from, &error))?.path();
        let to = to.join(from.file_name().expect("an entry of a folder has a name"));
        match from.is_dir() {
            true => copy_folder(&from, &to)?,
            false => copy(&from, &to)?,
        }
    }
    Ok(())
}

pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), String> {
    // It may be there from an earlier installation, with other rights.
    let _ = fs::remove_file(path);
    fs::write(path, bytes).map_err(|error| failed(path, &error))
}

/// The command in a variable, which may have arguments, as in `ccache gcc`.
pub(crate) fn tool(variable: &str, usual: &str) -> Command {
    let words = std::env::var(variable).unwrap_or_default();
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or(usual));
    command.args(words);
    command
}

/// The C compiler, with the flags that packages set.
pub(crate) fn compiler() -> Command {
    let mut command = tool("CC", "cc");
    command.arg("-O2");
    for flags in ["CPPFLAGS", "CFLAGS", "LDFLAGS"] {
        command.args(std::env::var(flags).unwrap_or_default().split_whitespace());
    }
    command
}

/// Runs a command, which must succeed. `task` says what for, as in `link the library`.
pub(crate) fn run(command: &mut Command, task: &str) -> Result<(), String> {
    let status = command.status();
    let program = command.get_program().to_string_lossy();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} could not {task}: {status}")),
        Err(error) => Err(format!("{program}, which is to {task}, could not be run: {error}")),
    }
}

/// The output of a command that succeeds.
pub(crate) fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether a program names the folder among those that it prints.
pub(crate) fn names(program: &str, arguments: &[&str], folder: &Path) -> bool {
    // Without rights, `ldconfig` prints what it is asked for, and fails.
    let Ok(output) = Command::new(program).args(arguments).output() else { return false };
    let printed = String::from_utf8_lossy(&output.stdout);
    // Both are resolved: `/lib` and `/usr/lib` are often the same.
    let folder = fs::canonicalize(folder).ok();
    let is_folder = |path: &str| folder.is_some() && fs::canonicalize(path).ok() == folder;
    printed.split([':', '\n']).filter(|path| path.starts_with('/')).any(is_folder)
}
