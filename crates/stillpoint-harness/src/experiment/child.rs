//! Measures in a child process: the same program, started again with an order in its environment.

use std::fmt::Display;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Stop;
use crate::{interrupt, output};

/// How often the parent checks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// What happens to the child when this process is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnInterrupt {
    /// It is interrupted too, and answers with its results so far.
    Wait,
    /// It is killed: a partial answer would be useless.
    End,
}

/// What glibc reads when a program starts; other C libraries ignore it.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// By this tunable, `malloc` asks for transparent huge pages.
const HUGE_PAGES: &str = "glibc.malloc.hugetlb";
/// Set in a program that has started itself anew: of a program with capabilities, glibc takes the tunable away.
const ANEW: &str = "STILLPOINT_STARTED_ANEW";
/// The environment of a child whose `malloc` has small pages, in an experiment about how much memory there is.
pub const MALLOC_ON_SMALL_PAGES: &[(&str, &str)] = &[(TUNABLES, "")];

/// Whether glibc's `malloc` was told to ask for huge pages when this program started, and knows what that means.
pub fn malloc_asks_for_huge_pages() -> bool {
    let tunables = std::env::var(TUNABLES).unwrap_or_default();
    let is_told =
        |tunable: &str| tunable.strip_prefix(HUGE_PAGES).is_some_and(|value| ["=1", "=2"].contains(&value));
    glibc_knows_of_them() && tunables.split(':').any(is_told)
}

#[cfg(target_env = "gnu")]
fn glibc_knows_of_them() -> bool {
    // SAFETY: the function returns a string that stays.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy();
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(2), Some(35))
}

#[cfg(not(target_env = "gnu"))]
fn glibc_knows_of_them() -> bool {
    false
}

/// Starts this program anew in this process, so that glibc's `malloc` asks for transparent huge pages, for every contender alike: our tables
/// and pools do so by themselves. Returns if that was done, if the environment says already what `malloc` does, or if it fails.
pub fn on_huge_pages() {
    let mut tunables = std::env::var_os(TUNABLES).unwrap_or_default();
    if !glibc_knows_of_them()
        || std::env::var_os(ANEW).is_some()
        || tunables.to_string_lossy().contains(HUGE_PAGES)
    {
        return;
    }
    if !tunables.is_empty() {
        tunables.push(":");
    }
    tunables.push(format!("{HUGE_PAGES}=1"));
    let (mut arguments, Ok(program)) = (std::env::args_os(), std::env::current_exe()) else { return };
    let name = arguments.next().unwrap_or_else(|| program.clone().into());
    // It returns only if it fails: then everybody's memory from `malloc` is in small pages.
    let _ = Command::new(program).arg0(name).args(arguments).env(TUNABLES, tunables).env(ANEW, "1").exec();
}

/// What a child process is asked to do.
pub trait Order: Serialize + DeserializeOwned {
    /// The environment variable with the order; set only in the child.
    const VARIABLE: &'static str;
    /// What the child does, for errors.
    const WORK: &'static str;
    /// What happens to the child when this process is interrupted.
    const ON_INTERRUPT: OnInterrupt = OnInterrupt::Wait;
    /// More variables of the child's environment, for what libraries read when they are loaded.
    const ENVIRONMENT: &'static [(&'static str, &'static str)] = &[];

    /// What the child answers.
    type Answer: Serialize + DeserializeOwned;

    /// Carries out the order, in the child.
    fn obey(self) -> Result<Self::Answer, String>;
}

/// Runs this program with the order in its environment, and returns its answer; `None` if an interrupt ended it.
pub fn ask<O: Order>(order: &O) -> Result<Option<O::Answer>, Stop> {
    let failed = |why: &str, error: &dyn Display| Stop::Failed(format!("{why}: {error}"));
    let order = serde_json::to_string(order)
        .map_err(|error| failed("cannot write the order of the child process", &error))?;
    let program =
        std::env::current_exe().map_err(|error| failed("cannot find the file of this program", &error))?;
    let mut child = Command::new(program)
        .env(O::VARIABLE, order)
        .envs(O::ENVIRONMENT.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Only this process receives Ctrl-C, and passes it on once: a second one would end the child.
        .process_group(0)
        .spawn()
        .map_err(|error| failed("cannot start a child process", &error))?;
    let process = Pid::from_child(&child);
    // The call fails only if the child has already ended.
    let _last = interrupt::at_the_end(move || _ = kill_process(process, Signal::KILL));
    let (send, answer) = channel();
    let pipe = child.stdout.take();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // An answer that was cut short is not valid JSON, and is reported below.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        let _ = send.send(bytes);
    });
    let mut told = false;
    let bytes = loop {
        match answer.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout)
                if O::ON_INTERRUPT == OnInterrupt::End && interrupt::requested() =>
            {
                // The child may have ended already.
                let _ = child.kill();
                let _ = child.wait();
                return Ok(None);
            }
            Err(RecvTimeoutError::Timeout) if !told && interrupt::requested() => {
                let _ = kill_process(process, Signal::INT);
                told = true;
            }
            Err(RecvTimeoutError::Timeout) => {}
            answer => break answer.unwrap_or_default(),
        }
    };
    let status = child.wait().map_err(|error| failed("cannot wait for the child process", &error))?;
    let ended = O::ON_INTERRUPT == OnInterrupt::End || !status.success();
    if ended && interrupt::requested() {
        return Ok(None);
    }
    if !status.success() {
        let hint = match status.signal() {
            Some(aborted) if aborted == Signal::ABORT.as_raw() => ": if it ran out of memory, ask for less",
            Some(killed) if killed == Signal::KILL.as_raw() => {
                ": the kernel does this if memory runs out; ask for less"
            }
            _ => "",
        };
        return Err(Stop::Failed(format!("the child process that {} ended with {status}{hint}", O::WORK)));
    }
    // Output of libraries precedes the last line.
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).map(Some).map_err(|error| {
        failed(&format!("cannot read the answer of the child process that {}", O::WORK), &error)
    })
}

/// Carries out the order, in the child. `None` in a process that is not such a child.
pub fn run_if_child<O: Order>() -> Option<ExitCode> {
    let order = std::env::var(O::VARIABLE).ok()?;
    interrupt::listen_and(|| ());
    // The kernel ends the child with its parent, because nothing else reads the answer. If the call fails, the child
    // only finishes work that nothing reads.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    let answer = serde_json::from_str::<O>(&order)
        .map_err(|error| {
            format!("unset the environment variable {}, which only this program sets: {error}", O::VARIABLE)
        })
        .and_then(O::obey)
        .and_then(|answer| serde_json::to_string(&answer).map_err(|error| error.to_string()));
    Some(match answer {
        Ok(text) => {
            output::say(text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            output::tell(format!("error: {error}"));
            ExitCode::FAILURE
        }
    })
}
