//! Runs one guest to its end: starts QEMU on the chosen CPUs, collects the guest's output, and limits the time.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::Accel;
use super::console::has_said;
use crate::interrupt::{self, AtTheEnd};
use crate::machine::cpus;
use crate::output;

/// Memory of a usual guest in MiB: the program, and the arrays of the contenders.
pub const MEMORY: usize = 512;
/// The most console output that is kept: a kernel may print messages without end.
const MOST_OUTPUT: u64 = 4 << 20;
/// Time until the program in a guest has begun, enough for software emulation on a busy machine.
pub const START: Duration = Duration::from_secs(120);
/// How often the host checks whether QEMU has ended.
const LOOK: Duration = Duration::from_millis(100);

/// The parameters of the guest's kernel. Its errors (levels below 4) are shown, and a panic ends the machine. The
/// watchdogs are off. They would report stalled processors, which the experiment causes, and would mark the time
/// stamp counter as unstable; the next best clock is an emulated device, for which all processors queue. The
/// arguments of the first process follow the two dashes.
const KERNEL_PARAMETERS: &str = "console=ttyS0 loglevel=4 panic=-1 nowatchdog tsc=reliable \
                                 rcupdate.rcu_cpu_stall_suppress=1 rdinit=/init --";

/// The purpose of a guest.
#[derive(Debug, Clone)]
pub struct Purpose {
    /// Arguments of its first process.
    pub arguments: String,
    /// The console shows this when the first process has begun, and `ends` when its output is complete.
    pub begins: &'static str,
    /// See `begins`.
    pub ends: &'static str,
}

/// One guest.
#[derive(Debug)]
pub struct Guest<'a> {
    /// QEMU's program.
    pub qemu: &'a Path,
    /// The image of its kernel.
    pub kernel: &'a Path,
    /// The first file system.
    pub files: &'a Path,
    /// Its purpose.
    pub purpose: &'a Purpose,
    /// What runs its instructions.
    pub accel: Accel,
    /// Its virtual CPUs.
    pub vcpus: usize,
    /// Its memory in MiB.
    pub memory: usize,
    /// For a guest with a balloon: where the files NAME.in, with commands of QEMU's monitor, and NAME.out, for its answers, are.
    /// QEMU reads them when it starts; the balloon's driver comes later.
    pub monitor: Option<&'a Path>,
    /// CPUs of the host that it runs on.
    pub host_cpus: &'a [usize],
    /// Time limit for all of it.
    pub limit: Duration,
    /// Time limit until the program in the guest has begun.
    pub start_limit: Duration,
}

/// How a guest ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// QEMU ended by itself: the guest was switched off, or QEMU could not go on.
    Exit(ExitStatus),
    /// This time limit had passed.
    Limit(Duration),
    /// Ctrl-C.
    Interrupted,
}

/// A guest that has ended.
#[derive(Debug)]
pub struct Session {
    /// How it ended.
    pub ending: Ending,
    /// The output of the guest.
    pub console: Vec<u8>,
    /// The output of QEMU on standard error.
    pub complaints: String,
    /// The time of the whole session.
    pub wall: Duration,
    /// From the beginning to the end of the program in the guest, by the host's clock; as exact as the reads of the
    /// console were frequent.
    pub measured: Option<Duration>,
    /// The time that QEMU's threads were ready to run but did not, summed; `None` if the kernel does not count it.
    pub waited: Option<Duration>,
}

impl Guest<'_> {
    /// The arguments of QEMU.
    fn arguments(&self) -> Vec<String> {
        let (accel, cpu) = match self.accel {
            Accel::Kvm => ("kvm", "host"),
            Accel::Auto | Accel::Tcg => ("tcg,thread=multi", "max"),
        };
        let (memory, vcpus) = (self.memory.to_string(), self.vcpus.to_string());
        let monitor = self.monitor.into_iter().flat_map(|files| {
            let pipe = format!("pipe,id=monitor,path={}", files.display());
            // The guest takes memory back from the balloon before it kills a process.
            let balloon = "virtio-balloon-pci,deflate-on-oom=on".to_owned();
            let monitor = "chardev=monitor".to_owned();
            [("-device", balloon), ("-chardev", pipe), ("-mon", monitor)]
                .map(|(flag, value)| [flag.to_owned(), value])
        });
        let fixed = ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"];
        let chosen = ["-machine", "pc", "-accel", accel, "-cpu", cpu, "-smp", &vcpus, "-m", &memory];
        let parameters = format!("{KERNEL_PARAMETERS} {}", self.purpose.arguments);
        let booted = ["-append", &parameters];
        fixed.into_iter().chain(chosen).chain(booted).map(str::to_owned).chain(monitor.flatten()).collect()
    }

    /// Runs the guest until it is switched off, or its time is over.
    ///
    /// # Errors
    /// When QEMU cannot be started, or not on these CPUs.
    pub fn run(&self) -> Result<Session, String> {
        let begin = Instant::now();
        let (mut qemu, console, complaints) = self.open()?;
        let mut waiting = Waiting::of(qemu.0.id());
        let (mut began, mut ended) = (None, None);
        let ending = loop {
            match qemu.0.try_wait() {
                Ok(Some(status)) => break Ending::Exit(status),
                Ok(None) => {}
                Err(error) => return Err(format!("cannot wait for QEMU: {error}")),
            }
            waiting.look();
            if interrupt::requested() {
                break Ending::Interrupted;
            }
            let elapsed = begin.elapsed();
            if began.is_none() && console.with(|said| has_said(said, self.purpose.begins)) {
                began = Some(elapsed);
            }
            if ended.is_none() && began.is_some() && console.with(|said| has_said(said, self.purpose.ends)) {
                ended = Some(elapsed);
            }
            let late = elapsed >= self.start_limit && began.is_none();
            if late || elapsed >= self.limit {
                break Ending::Limit(if late { self.start_limit } else { self.limit });
            }
            thread::sleep(LOOK);
        };
        drop(qemu);
        let wall = begin.elapsed();
        let complaints = String::from_utf8_lossy(&complaints.whole()).trim().to_owned();
        // The machine may be off before the host has seen the end of the program.
        let measured = began.map(|began| ended.unwrap_or(wall) - began);
        Ok(Session { ending, console: console.whole(), complaints, wall, measured, waited: waiting.sum() })
    }

    /// As [`run`](Self::run), but starts a guest once more if its program has not begun by `start_limit`, and says so on standard
    /// error. Under software emulation, 1 start in 60 hung in the guest's kernel, before anything was tested.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_or_start_again(&self) -> Result<Session, String> {
        let first = self.run()?;
        if first.measured.is_some() || !matches!(first.ending, Ending::Limit(_)) {
            return Ok(first);
        }
        self.tell_that_it_starts_again();
        self.run()
    }

    /// Starts the guest, does `work` once the program in it has begun, and ends it.
    ///
    /// # Errors
    /// As [`run`](Self::run), and when the program has not begun by `start_limit` in two starts, or the guest has ended
    /// by itself before the work was done.
    pub fn beside<T>(&self, work: impl FnOnce() -> T) -> Result<T, String> {
        let (mut qemu, _console, complaints) = match self.begun()? {
            Some(begun) => begun,
            None => {
                self.tell_that_it_starts_again();
                self.begun()?.ok_or("the guest beside the measured one did not start")?
            }
        };
        let done = work();
        match qemu.0.try_wait() {
            Ok(None) => Ok(done),
            _ => Err(ended_by_itself(qemu, complaints)),
        }
    }

    /// The guest once its program has begun; `None` when it has not by `start_limit`.
    fn begun(&self) -> Result<Option<(Running, Collected, Collected)>, String> {
        let begin = Instant::now();
        let (mut qemu, console, complaints) = self.open()?;
        while begin.elapsed() < self.start_limit && !interrupt::requested() {
            if console.with(|said| has_said(said, self.purpose.begins)) {
                return Ok(Some((qemu, console, complaints)));
            }
            if !matches!(qemu.0.try_wait(), Ok(None)) {
                return Err(ended_by_itself(qemu, complaints));
            }
            thread::sleep(LOOK);
        }
        match interrupt::requested() {
            true => Err("interrupted".to_owned()),
            false => Ok(None),
        }
    }

    fn tell_that_it_starts_again(&self) {
        let limit = humantime::format_duration(self.start_limit);
        output::tell(format!(
            "the guest's program had not begun after {limit}: starting the guest once more"
        ));
    }

    /// Starts QEMU; also returns its standard output and standard error.
    fn open(&self) -> Result<(Running, Collected, Collected), String> {
        let mut qemu = Running::from(self.start()?);
        let console = Collected::from(qemu.0.stdout.take());
        let complaints = Collected::from(qemu.0.stderr.take());
        Ok((qemu, console, complaints))
    }

    /// Starts it from a thread that runs only on the chosen CPUs: QEMU's threads inherit the affinity.
    fn start(&self) -> Result<Child, String> {
        let mut command = Command::new(self.qemu);
        command
            .args(self.arguments())
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.files)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        thread::scope(|scope| {
            let starter = scope.spawn(|| {
                cpus::run_on(self.host_cpus)?;
                command.spawn().map_err(|error| format!("cannot start {}: {error}", self.qemu.display()))
            });
            starter.join().unwrap_or_else(|_| Err("the thread that starts QEMU panicked".to_owned()))
        })
    }
}

impl Session {
    /// QEMU's output on standard error, in one line.
    fn complaints(&self) -> String {
        self.complaints.lines().map(str::trim).collect::<Vec<_>>().join(" / ")
    }

    /// How a guest ended that has no result, for this reason, and whose program says `begins` first.
    pub fn without_result(&self, begins: &str, reason: impl Display) -> String {
        match &self.ending {
            Ending::Interrupted => "interrupted".to_owned(),
            Ending::Limit(limit) => {
                let limit = humantime::format_duration(*limit);
                let longer = if has_said(&self.console, begins) { ", --limit allows more" } else { "" };
                format!("ended after {limit} without a result{longer}: {reason}")
            }
            Ending::Exit(status) if status.success() => reason.to_string(),
            Ending::Exit(status) if self.complaints.is_empty() => {
                format!("QEMU ended with {status}: {reason}")
            }
            Ending::Exit(status) => format!("QEMU ended with {status}: {}; {reason}", self.complaints()),
        }
    }

    /// Adds what the guest printed to a transcript, if there is one.
    pub fn keep(&self, transcript: Option<&mut File>) -> Result<(), String> {
        transcript
            .map_or(Ok(()), |transcript| transcript.write_all(&self.console))
            .map_err(|error| format!("cannot write what the guest printed: {error}"))
    }
}

/// Why the guest beside the measured one ended.
fn ended_by_itself(qemu: Running, complaints: Collected) -> String {
    // This closes its pipes, and those of the processes that it has started.
    drop(qemu);
    let complaints = String::from_utf8_lossy(&complaints.whole()).trim().replace('\n', " / ");
    format!("the guest beside the measured one ended by itself: {complaints}")
}

/// A process, which is killed together with its children when this value is dropped.
///
/// It has a process group of its own, so Ctrl-C does not reach it: a second Ctrl-C, which ends this program at once, kills it, too.
struct Running(Child, Option<AtTheEnd>);

impl From<Child> for Running {
    fn from(qemu: Child) -> Self {
        let group = Pid::from_child(&qemu);
        Self(qemu, Some(interrupt::at_the_end(move || kill_group(group))))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        kill_group(Pid::from_child(&self.0));
        // Before the process is waited for, after which its number may be another's.
        self.1 = None;
        let _ = self.0.wait();
    }
}

/// Kills the whole process group, since a script may have started QEMU. The id belongs to the group while a member lives, even if the
/// script has ended. Without a member the call fails, which does no harm.
fn kill_group(group: Pid) {
    let _ = kill_process_group(group, Signal::KILL);
}

/// The output of a pipe, collected by a thread, so that the other side never waits.
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Collected {
    fn from(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let thread = pipe.map(|pipe| {
            let bytes = Arc::clone(&bytes);
            thread::spawn(move || collect(pipe, &bytes))
        });
        Self { bytes, thread }
    }

    fn with<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        look(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The whole output, once the other side is closed.
    fn whole(mut self) -> Vec<u8> {
        if let Some(thread) = self.thread.take() {
            // The thread cannot panic: a pipe that cannot be read counts as closed.
            let _ = thread.join();
        }
        self.with(<[u8]>::to_vec)
    }
}

fn collect(mut pipe: impl Read, bytes: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
                if (bytes.len() as u64) < MOST_OUTPUT {
                    bytes.extend_from_slice(&buffer[..count]);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// The time that the threads of a process were ready to run but did not.
struct Waiting {
    tasks: String,
    /// For each thread, in nanoseconds; threads that have ended keep what was seen last.
    nanoseconds: HashMap<String, u64>,
}

impl Waiting {
    fn of(process: u32) -> Self {
        Self { tasks: format!("/proc/{process}/task"), nanoseconds: HashMap::new() }
    }

    fn look(&mut self) {
        for thread in fs::read_dir(&self.tasks).into_iter().flatten().flatten() {
            let figures = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            if let Some(waited) = waited(&figures) {
                self.nanoseconds.insert(thread.file_name().to_string_lossy().into_owned(), waited);
            }
        }
    }

    fn sum(&self) -> Option<Duration> {
        let sum = self.nanoseconds.values().sum();
        (!self.nanoseconds.is_empty()).then(|| Duration::from_nanos(sum))
    }
}

/// The second figure of `schedstat`: the time on a run queue.
fn waited(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Runs a script in the place of QEMU.
    fn with_script(script: &str, limit: Duration, start_limit: Duration) -> Session {
        with_script_by(script, limit, start_limit, |guest| guest.run())
    }

    fn with_script_by(
        script: &str,
        limit: Duration,
        start_limit: Duration,
        run: fn(&Guest<'_>) -> Result<Session, String>,
    ) -> Session {
        with_guest(script, limit, start_limit, run).unwrap()
    }

    fn with_guest<T>(
        script: &str,
        limit: Duration,
        start_limit: Duration,
        run: impl Fn(&Guest<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let folder = tempfile::tempdir().unwrap();
        let qemu = folder.path().join("qemu");
        fs::write(&qemu, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
        let host_cpus = crate::machine::cpus::allowed();
        let guest = Guest {
            qemu: &qemu,
            kernel: Path::new("/boot/kernel"),
            files: Path::new("/tmp/files"),
            purpose: &Purpose {
                arguments: "argument".to_owned(),
                begins: "@test begin ",
                ends: "@test end ",
            },
            accel: Accel::Tcg,
            vcpus: 3,
            memory: MEMORY,
            monitor: None,
            host_cpus: &host_cpus,
            limit,
            start_limit,
        };
        // Another test may be between writing a script of its own and closing it when this one starts a process,
        // which inherits that file and keeps it busy for a moment.
        loop {
            match run(&guest) {
                Err(error) if error.contains("busy") => thread::sleep(Duration::from_millis(10)),
                done => return done,
            }
        }
    }

    const LONG: Duration = Duration::from_secs(120);

    #[test]
    fn what_qemu_says_and_how_it_ends_are_kept() {
        let session = with_script("echo \"$@\"; echo no such machine >&2; exit 3", LONG, LONG);
        let Ending::Exit(status) = session.ending else { panic!("{session:?}") };
        assert_eq!(status.code(), Some(3));
        assert_eq!(session.complaints, "no such machine");
        let arguments = String::from_utf8(session.console).unwrap();
        for part in
            ["-smp 3", "-accel tcg,thread=multi", "-kernel /boot/kernel", "-initrd /tmp/files", "-- argument"]
        {
            assert!(arguments.contains(part), "'{part}' is not in {arguments}");
        }
    }

    #[test]
    fn a_guest_that_never_begins_is_ended() {
        let limit = Duration::from_millis(300);
        let session = with_script("echo booting; sleep 1000; echo never", LONG, limit);
        assert_eq!(session.ending, Ending::Limit(limit));
        assert_eq!(session.console, b"booting\n");
        assert!(session.wall < LONG);
    }

    #[test]
    fn a_guest_that_never_begins_is_started_once_more() {
        let folder = tempfile::tempdir().unwrap();
        let starts = folder.path().join("starts");
        let count = || fs::read_to_string(&starts).unwrap().lines().count();
        let count_start = format!("echo start >> {}", starts.display());
        let short = Duration::from_millis(300);
        let again = |script: &str, start_limit| {
            with_script_by(script, LONG, start_limit, |guest| guest.run_or_start_again())
        };

        let session = again(&format!("{count_start}; exec sleep 1000"), short);
        assert_eq!((session.ending, count()), (Ending::Limit(short), 2));
        fs::remove_file(&starts).unwrap();

        let second = format!(
            "if [ -e {} ]; then echo '@test begin {{}}'; exit 0; fi; {count_start}",
            starts.display()
        );
        let session = again(&format!("{second}; exec sleep 1000"), Duration::from_secs(5));
        assert!(matches!(session.ending, Ending::Exit(status) if status.success()), "{session:?}");
        fs::remove_file(&starts).unwrap();

        again(&format!("{count_start}; exit 3"), LONG);
        assert_eq!(count(), 1, "the guest was started again, although QEMU had ended by itself");
    }

    #[test]
    fn a_guest_beside_the_work_lives_as_long_as_that_and_has_to() {
        let folder = tempfile::tempdir().unwrap();
        let alive = folder.path().join("alive");
        let beside = |script: &str, start_limit, work: fn(&Path) -> bool| {
            let alive = alive.clone();
            with_guest(script, LONG, start_limit, |guest| guest.beside(|| work(&alive)))
        };
        let runs = format!("echo $$ > {}; echo '@test begin {{}}'; exec sleep 1000", alive.display());
        let process = |alive: &Path| Path::new("/proc").join(fs::read_to_string(alive).unwrap().trim());
        assert_eq!(
            beside(&runs, LONG, |alive| {
                let process = fs::read_to_string(alive).unwrap();
                Path::new("/proc").join(process.trim()).exists()
            }),
            Ok(true)
        );
        assert!(!process(&alive).exists(), "QEMU outlived the work beside it");

        let ends = format!(
            "echo $$ > {}; echo '@test begin {{}}'; sleep 1; echo no machine >&2; exit 3",
            alive.display()
        );
        let ends = beside(&ends, LONG, |alive| {
            let process = fs::read_to_string(alive).unwrap();
            let stat = Path::new("/proc").join(process.trim()).join("stat");
            // The process has ended, and its parent has not waited for it yet.
            while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
                thread::sleep(Duration::from_millis(10));
            }
            true
        });
        assert!(ends.as_ref().is_err_and(|error| error.contains("by itself: no machine")), "{ends:?}");
        let refused = beside("echo no machine >&2; exit 3", LONG, |_| true);
        assert!(refused.as_ref().is_err_and(|error| error.contains("by itself: no machine")), "{refused:?}");
        let never = beside("exec sleep 1000", Duration::from_millis(300), |_| true);
        assert!(never.as_ref().is_err_and(|error| error.contains("did not start")), "{never:?}");
    }

    #[test]
    fn a_guest_that_began_has_the_whole_time_and_no_more() {
        let (limit, start) = (Duration::from_secs(2), Duration::from_secs(1));
        let session = with_script("echo '@test begin {}'; exec sleep 1000", limit, start);
        assert_eq!(session.ending, Ending::Limit(limit));
    }

    #[test]
    fn more_output_than_is_kept_holds_nobody_up() {
        let session = with_script("head -c 9000000 /dev/zero", LONG, LONG);
        assert!(matches!(session.ending, Ending::Exit(status) if status.success()));
        assert!((4 << 20..5 << 20).contains(&session.console.len()), "{}", session.console.len());
    }

    #[test]
    fn the_time_on_a_run_queue_is_the_second_figure() {
        assert_eq!(waited("1000 250 7\n"), Some(250));
        assert_eq!(waited(""), None);
        assert_eq!(Waiting::of(u32::MAX).sum(), None);
        let mut own = Waiting::of(std::process::id());
        own.look();
        assert!(own.sum().is_some() || !Path::new("/proc/self/schedstat").exists());
    }
}
