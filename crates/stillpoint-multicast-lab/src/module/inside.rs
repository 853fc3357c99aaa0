//! Inside the virtual machine, beside the module's own tests: the library, with the module as its back end.

mod readers;

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use stillpoint::fence::{self, Mode};
use stillpoint::rcu::Domain;
use stillpoint_harness::error::Stop;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::output::say;

use crate::device::{self, Way};

/// Turns of a loop that the slow side stays inside.
const STAY: u32 = 200;
/// The value of an object while it is alive, and after its destructor.
const ALIVE: u32 = 0x5711_a11f;
const DEAD: u32 = 0xdead_0bed;

/// The arguments of the hidden command.
#[derive(Debug, Args)]
pub struct Inside {
    /// How long each of the two parts takes
    #[arg(default_value_t = 1.0, value_parser = super::parse_seconds)]
    seconds: f64,

    /// How the module sends; if left out, runs the scenarios `readers`, `receivers` and `initiators` of `bench
    /// membarrier` in each of the module's ways
    #[arg(value_parser = parse_way)]
    way: Option<Way>,
}

fn parse_way(text: &str) -> Result<Way, String> {
    Way::ALL.into_iter().find(|way| way.name() == text).ok_or_else(|| "not a way of the module".to_owned())
}

/// Checks, and prints what was done in one line, or in one for each way.
///
/// # Errors
/// When a check fails, or cannot be made.
pub fn run(inside: &Inside) -> Result<(), Stop> {
    let failed =
        |reason: String| Stop::Failed(format!("the test of the library on the module failed: {reason}"));
    device::take_over().map_err(failed)?;
    let Some(way) = inside.way else {
        return readers::bench().map(|lines| lines.into_iter().for_each(say)).map_err(failed);
    };
    device::prefer(way);
    let length = Duration::from_secs_f64(inside.seconds);
    let (entries, violations) = entrance(length).map_err(failed)?;
    let (freed, fences) = reclaim(length).map_err(failed)?;
    reopen().map_err(failed)?;
    say(format!(
        "{violations} violations in {entries} entries between light and heavy fences; {freed} objects freed behind guards \
         and protected loads, {fences} heavy fences of their domain"
    ));
    if violations > 0 || entries == 0 || freed == 0 || fences == 0 {
        return Err(failed("see the line above".to_owned()));
    }
    Ok(())
}

/// Fences in a process that knows the number of the device's file, but has no such file. The child of a `fork` may be such a process.
fn reopen() -> Result<(), String> {
    let mut closed = 0;
    for entry in fs::read_dir("/proc/self/fd").map_err(|error| error.to_string())?.flatten() {
        let is_device = fs::read_link(entry.path()).is_ok_and(|file| file == Path::new(device::DEVICE));
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|_| is_device) {
            // SAFETY: only the fences have this file, in a value that is never dropped.
            unsafe { rustix::io::close(number) };
            closed += 1;
        }
    }
    if closed != 1 {
        return Err(format!("the fences have {closed} open files of the device, not one"));
    }
    fence::heavy().map_err(|error| format!("after the file of the device was closed: {error}"))
}

/// Flags on separate cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Word(AtomicU32);

impl Word {
    // Relaxed, both: only the fences may order them, which is what is tested.
    fn set(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The litmus test of store buffering, as mutual exclusion of two sides: see `kernel/tests/check_litmus.c`. Returns how often
/// the slow side got inside, and how often the fast side was inside as well.
fn entrance(length: Duration) -> Result<(u32, u32), String> {
    let (fast, slow, inside) = (Word::default(), Word::default(), Word::default());
    let (there, done) = (Barrier::new(2), AtomicBool::new(false));
    let cpus = cpus::online();
    thread::scope(|scope| {
        scope.spawn(|| {
            // If pinning is refused, the sides meet less often.
            let _ = cpus::pin(cpus[cpus.len() / 2]);
            there.wait();
            // Relaxed: a flag; the thread is joined.
            while !done.load(Ordering::Relaxed) {
                fast.set(1);
                fence::light();
                if slow.get() == 0 {
                    inside.set(inside.get().wrapping_add(1));
                }
                compiler_fence(Ordering::SeqCst);
                fast.set(0);
                (0..12).for_each(|turn| _ = std::hint::black_box(turn));
            }
        });
        let _ = cpus::pin(cpus[0]);
        there.wait();
        let (mut entries, mut violations, begun) = (0, 0, Instant::now());
        let mut answer = Ok(());
        while answer.is_ok() && begun.elapsed() < length {
            slow.set(1);
            answer = fence::heavy().map_err(|error| error.to_string());
            if fast.get() == 0 {
                let before = inside.get();
                (0..STAY).for_each(|turn| _ = std::hint::black_box(turn));
                entries += 1;
                violations += u32::from(inside.get() != before);
            }
            compiler_fence(Ordering::SeqCst);
            slow.set(0);
        }
        done.store(true, Ordering::Relaxed);
        answer.map(|()| (entries, violations))
    })
}

/// The object in a cell.
struct Object(AtomicU32);

impl Drop for Object {
    fn drop(&mut self) {
        self.0.store(DEAD, Ordering::Relaxed);
    }
}

/// Frees objects beside readers on every CPU but the first. Returns the number of objects, and of fences.
fn reclaim(length: Duration) -> Result<(u64, u64), String> {
    let domain = Domain::new();
    if domain.fence_mode() != Mode::Asymmetric {
        return Err(format!("a domain is {}", domain.fence_mode()));
    }
    let make = || Object(AtomicU32::new(ALIVE));
    let (cell, done, dead) = (domain.cell(make()), AtomicBool::new(false), AtomicU32::new(0));
    let cpus = cpus::online();
    let there = Barrier::new(cpus.len());
    let freed = thread::scope(|scope| {
        for (number, &cpu) in cpus.iter().enumerate().skip(1) {
            let (domain, cell, done, dead, there) = (&domain, &cell, &done, &dead, &there);
            scope.spawn(move || {
                let _ = cpus::pin(cpu);
                let reader = domain.reader();
                there.wait();
                let look = |object: &Object| {
                    let alive = (0..100).all(|_| object.0.load(Ordering::Relaxed) == ALIVE);
                    dead.fetch_add((!alive).into(), Ordering::Relaxed);
                };
                while !done.load(Ordering::Relaxed) {
                    if number % 2 == 0 {
                        cell.load(&reader.pin()).map(look);
                    } else if let Some(object) = cell.protect(&reader) {
                        look(&object);
                    }
                }
            });
        }
        there.wait();
        let (mut reclaimer, mut freed, begun) = (domain.reclaimer(), 0, Instant::now());
        while begun.elapsed() < length {
            if let Some(old) = cell.swap(Some(Box::new(make()))) {
                // A full reclaimer leaves the object to the domain.
                drop(reclaimer.retire(old));
            }
            freed += reclaimer.poll() as u64;
        }
        done.store(true, Ordering::Relaxed);
        freed
    });
    match (dead.into_inner(), domain.stats().fence_error) {
        (0, None) => Ok((freed, domain.stats().heavy_fences)),
        (0, Some(error)) => Err(error.to_string()),
        (dead, _) => Err(format!("{dead} objects were destroyed while a reader held them")),
    }
}
