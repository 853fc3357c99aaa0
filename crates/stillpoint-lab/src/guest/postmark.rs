//! Postmark, the program with which the paper loaded its guests: one for each virtual CPU, on a file system in memory. The files that it
//! creates and deletes are freed by the RCU of the guest's kernel, whose grace periods are timed.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use stillpoint_harness::machine::proc;
use stillpoint_harness::qemu::program::{in_path, libraries};

use super::contenders::KERNEL;
use super::kernel::{self, Samples, Trace, beside, figures, traced};
use super::wire::{Load, Measured, Measurement};
use crate::experiment::asked_for;

/// The program on the host, and Debian's package with it.
const PROGRAM: &str = "postmark";
/// What the guest finds: the program, its loader, and its only library.
const FILES: [&str; 3] = [PROGRAM, "ld.so", "libc.so.6"];
/// Where the guest has the files of Postmark.
const FOLDER: &str = "/files";
/// Files of all programs together before their transactions: as many in each guest, however many virtual CPUs it has.
const NUMBER: usize = 16_000;
/// More transactions than a run has time for.
const TRANSACTIONS: u64 = 1_000_000_000;
/// How often the kernel's memory is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long the files may take to be there.
const PATIENCE: Duration = Duration::from_secs(120);

/// The files that a guest needs, with their names there.
///
/// # Errors
/// When the program is not installed, or its libraries are not known.
pub(super) fn files() -> Result<Vec<(String, Vec<u8>)>, String> {
    let program = in_path(PROGRAM, std::env::var_os("PATH").as_deref())
        .ok_or_else(|| format!("{PROGRAM} is not in PATH: apt-get install {PROGRAM}"))?;
    let [library, loader] = only_of_c(libraries(&program)?)
        .ok_or_else(|| format!("{} needs other libraries than that of C", program.display()))?;
    let read = |(name, path): (&'static str, PathBuf)| {
        let bytes = fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Ok((name.to_owned(), bytes))
    };
    let [of_program, of_loader, of_library] = FILES;
    [(of_program, program), (of_loader, loader), (of_library, library)].into_iter().map(read).collect()
}

/// The library of C and the loader, if there are no others.
fn only_of_c(libraries: Vec<PathBuf>) -> Option<[PathBuf; 2]> {
    let found: [PathBuf; 2] = libraries.try_into().ok()?;
    found[0].ends_with(FILES[2]).then_some(found)
}

/// Its row, if it was asked for.
pub(super) fn run(
    order: &Measurement,
    cpus: &[usize],
    tracing: Option<&Path>,
) -> Result<Vec<Measured>, String> {
    if !asked_for(KERNEL, &order.contenders) {
        return Ok(Vec::new());
    }
    let trace = Trace::open(tracing);
    let row = kernel::row(order, cpus, Load::Postmark, "files", kernel::by(&trace));
    let rounds = trace.and_then(|trace| rounds(order, cpus, &trace));
    Ok(vec![Measured::of(row.measured(rounds, |row, rounds| figures(row, &rounds)))])
}

fn rounds(order: &Measurement, cpus: &[usize], trace: &Trace<'_>) -> Result<Vec<Samples>, String> {
    // It ends after the programs.
    let _files = Files::mount()?;
    let (mut all, number) = (Postmarks(Vec::new()), NUMBER / cpus.len());
    let folders: Vec<PathBuf> = cpus.iter().map(|cpu| Path::new(FOLDER).join(cpu.to_string())).collect();
    for (folder, seed) in folders.iter().zip(1..) {
        fs::create_dir(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        all.0.push(start(folder, seed, number)?);
    }
    all.wait_for_files(&folders, number)?;
    (0..order.rounds).map(|_| round(&mut all, cpus, order.round, trace)).collect()
}

/// Starts one, which works in `folder` until it is killed.
fn start(folder: &Path, seed: u32, number: usize) -> Result<Child, String> {
    let [program, loader, _] = FILES;
    let said = |error| format!("cannot start {PROGRAM}: {error}");
    let mut child = Command::new(format!("/{loader}"))
        .args(["--library-path", "/"])
        .arg(format!("/{program}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(said)?;
    let orders = format!(
        "set location {}\nset number {number}\nset transactions {TRANSACTIONS}\nset seed {seed}\nrun\n",
        folder.display()
    );
    match child.stdin.take() {
        Some(mut input) => input.write_all(orders.as_bytes()).map_err(said)?,
        None => return Err(format!("{PROGRAM} has no input")),
    }
    Ok(child)
}

/// The programs, which end with this value.
struct Postmarks(Vec<Child>);

impl Postmarks {
    /// Until each has made its files.
    fn wait_for_files(&mut self, folders: &[PathBuf], number: usize) -> Result<(), String> {
        let begin = Instant::now();
        for folder in folders {
            // Transactions delete files, too: some are always missing.
            while fs::read_dir(folder).map_or(0, Iterator::count) < number * 9 / 10 {
                self.are_alive()?;
                if begin.elapsed() > PATIENCE {
                    return Err(format!("{PROGRAM} has not made its files in {} s", PATIENCE.as_secs()));
                }
                thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    fn are_alive(&mut self) -> Result<(), String> {
        let ended = self.0.iter_mut().find_map(|child| child.try_wait().transpose());
        ended.map_or(Ok(()), |how| Err(format!("{PROGRAM} has ended: {how:?}")))
    }
}

impl Drop for Postmarks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The files' own file system, which goes with this value: the loads that follow have its memory again.
struct Files;

impl Files {
    fn mount() -> Result<Self, String> {
        let cannot = |what: &str, error: &dyn std::fmt::Display| format!("cannot {what} {FOLDER}: {error}");
        fs::create_dir(FOLDER).map_err(|error| cannot("make", &error))?;
        mount("files", FOLDER, "tmpfs", MountFlags::empty(), None)
            .map_err(|error| cannot("mount on", &error))?;
        Ok(Self)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // If it fails, there is less memory for the loads that follow.
        let _ = unmount(FOLDER, UnmountFlags::DETACH);
        let _ = fs::remove_dir(FOLDER);
    }
}

fn round(
    all: &mut Postmarks,
    cpus: &[usize],
    duration: Duration,
    trace: &Trace<'_>,
) -> Result<Samples, String> {
    let watch = || {
        let (begin, mut most) = (Instant::now(), 0);
        while begin.elapsed() < duration {
            most = most.max(slab()?);
            thread::sleep(LOOK);
        }
        Ok(most)
    };
    let (slab, mut samples) = traced(Some(trace), || beside(cpus, watch))?;
    all.are_alive()?;
    if samples.graces.is_empty() {
        return Err("no grace period began and ended".to_owned());
    }
    samples.slab = Some(slab);
    Ok(samples)
}

/// The memory that the kernel has for its own objects, in bytes.
fn slab() -> Result<u64, String> {
    proc::memory("Slab").ok_or_else(|| "/proc/meminfo does not say how much slab memory there is".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_other_libraries_is_refused() {
        let of = |paths: &[&str]| only_of_c(paths.iter().map(PathBuf::from).collect());
        let (libc, loader) = ("/lib/x/libc.so.6", "/lib64/ld-linux-x86-64.so.2");
        assert_eq!(of(&[libc, loader]), Some([libc, loader].map(PathBuf::from)));
        for others in [&[libc, "/lib/x/libm.so.6", loader][..], &["/lib/x/libm.so.6", loader], &[]] {
            assert_eq!(of(others), None, "{others:?}");
        }
    }

    #[test]
    fn the_kernel_says_how_much_memory_it_has_for_its_own_objects() {
        assert!(slab().unwrap() > 1 << 20);
    }

    /// A program that ends early spoils the round.
    #[test]
    fn a_program_that_has_ended_is_noticed() {
        let child = Command::new("true").spawn().unwrap();
        let mut all = Postmarks(vec![child]);
        while all.are_alive().is_ok() {
            thread::yield_now();
        }
        assert!(all.are_alive().unwrap_err().contains("has ended"));
    }
}
