//! The memory workload where memory is short: under a limit beyond which the guest swaps, and while the host takes memory back by a
//! balloon. What a scheme frees late is swapped out, or missing in the balloon.
//!
//! The swap is compressed memory of the guest (`zram`), and the limit that of a control group around the process of the load. The host's
//! wish stands when the guest starts; the guest loads the balloon's driver before each round, and unloads it afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::system::{delete_module, init_module};
use stillpoint_harness::error::Stop;
use stillpoint_harness::qemu::modules::{self, Module};

use super::stores::Measure;
use super::wire::Load;
use crate::preempt;
use crate::preempt::round::Outcome;

/// Runs a round of the load, without any pressure.
pub(super) type Round = fn(&preempt::Round) -> Result<Outcome, String>;

/// Memory of the process of the load before it swaps, in bytes: some more than it needs if everything is freed at once.
const LIMIT: usize = 13 << 20;
/// Size of the swap, in bytes: more than the load ever needs.
const SWAP: usize = 256 << 20;
/// Memory of a guest with a balloon, in MiB.
pub(super) const WITH_BALLOON: usize = 256;
/// Memory that the host wants to leave to it, in MiB: less than it needs.
const LEFT: usize = 96;
/// What the host asks for, in bytes.
const ASKED: usize = (WITH_BALLOON - LEFT) << 20;
/// How long the guest may take to give it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a page of x86-64.
const PAGE: usize = 4096;
/// How often the balloon is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Where the guest has its control groups.
const GROUPS: &str = "/sys/fs/cgroup";
/// That of the load.
const GROUP: &str = "/sys/fs/cgroup/load";
/// The modules for the swap, beside those that they need: the kernel cannot ask for the compressor in a guest without programs.
const ZRAM: [&str; 2] = ["lzo_rle", "zram"];
/// The modules for the balloon.
const BALLOON: [&str; 2] = ["virtio_pci", "virtio_balloon"];

/// The files of QEMU's monitor, without what distinguishes them, in the folder that [`monitor`] makes.
pub(super) const MONITOR: &str = "monitor";

/// The parameter of a load that puts memory under pressure, with its value.
pub(super) fn parameter(load: Load) -> Option<(&'static str, usize)> {
    match load {
        Load::Swap => Some(("limit_bytes", LIMIT)),
        Load::Balloon => Some(("asked_bytes", ASKED)),
        _ => None,
    }
}

/// What QEMU's monitor is told before a guest starts that has a balloon, and a place for its answer.
pub(super) fn monitor() -> Result<tempfile::TempDir, Stop> {
    let failed = |error| Stop::Failed(format!("cannot write temporary files: {error}"));
    let folder = tempfile::Builder::new().prefix("stillpoint-monitor-").tempdir().map_err(failed)?;
    for (end, contents) in [("in", format!("balloon {LEFT}\n")), ("out", String::new())] {
        fs::write(folder.path().join(MONITOR).with_extension(end), contents).map_err(failed)?;
    }
    Ok(folder)
}

/// The modules that a guest with this load needs, as files in the load's folder, in the order in which it loads them.
pub(super) fn files(load: Load, kernel: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let modules = modules::with_needed(kernel, if load == Load::Swap { &ZRAM } else { &BALLOON })?;
    let file =
        |(at, module): (usize, Module)| (format!("{}/{at:02}-{}.ko", load.name(), module.name), module.bytes);
    Ok(modules.into_iter().enumerate().map(file).collect())
}

/// Loads the modules that the guest has for this load, unless they are loaded.
fn insert(load: Load) -> Result<(), String> {
    if std::process::id() != 1 {
        return Err("modules are loaded only in a guest".to_owned());
    }
    let folder = format!("/{}", load.name());
    let entries = fs::read_dir(&folder).map_err(|error| format!("cannot read {folder}: {error}"))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        let module = fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        match init_module(&module, c"") {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(format!("cannot load {}: {error}", file.display())),
        }
    }
    Ok(())
}

/// Writes a file of the kernel.
fn write(path: &str, contents: impl AsRef<[u8]>) -> Result<(), String> {
    fs::write(path, contents).map_err(|error| format!("cannot write {path}: {error}"))
}

/// A round under the limit, with what was swapped.
pub(super) fn swapping(round: Round) -> Box<Measure> {
    let swap = Swap::open();
    Box::new(move |asked| {
        let _swap = swap.as_ref().map_err(String::clone)?;
        let _group = Group::enter()?;
        let before = [counted("pswpout")?, counted("pswpin")?];
        let outcome = round(asked)?;
        let bytes = |name, before| Ok::<f64, String>(((counted(name)? - before) * PAGE) as f64);
        let swapped = vec![
            ("swapped_out_bytes", bytes("pswpout", before[0])?),
            ("swapped_in_bytes", bytes("pswpin", before[1])?),
        ];
        Ok((outcome, swapped))
    })
}

/// The guest swaps while this value exists: the loads that follow have the usual guest again.
struct Swap;

impl Swap {
    /// Makes the swap, and the control groups.
    fn open() -> Result<Self, String> {
        // First: outside a guest, it fails.
        insert(Load::Swap)?;
        mount("cgroup2", GROUPS, "cgroup2", MountFlags::empty(), None)
            .map_err(|error| format!("cannot mount control groups: {error}"))?;
        write(&format!("{GROUPS}/cgroup.subtree_control"), "+memory")?;
        write("/sys/block/zram0/disksize", SWAP.to_string())?;
        write("/dev/zram0", header(SWAP))?;
        // SAFETY: the path is a string that ends with a zero.
        match unsafe { libc::swapon(c"/dev/zram0".as_ptr(), 0) } {
            0 => Ok(Self),
            _ => Err(format!("cannot swap: {}", std::io::Error::last_os_error())),
        }
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // SAFETY: as above. If it fails, the guest goes on swapping.
        unsafe { libc::swapoff(c"/dev/zram0".as_ptr()) };
    }
}

/// The first page of a swap of this size (`union swap_header` in Linux's `include/linux/swap.h`).
fn header(bytes: usize) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    page[1024] = 1;
    page[1028..1032].copy_from_slice(&((bytes / PAGE - 1) as u32).to_le_bytes());
    page[PAGE - 10..].copy_from_slice(b"SWAPSPACE2");
    page
}

/// The control group of a round, in which this process is, and so are those that it starts.
struct Group;

impl Group {
    /// Makes the group, and moves this process into it.
    fn enter() -> Result<Self, String> {
        fs::create_dir(GROUP).map_err(|error| format!("cannot make {GROUP}: {error}"))?;
        let group = Self;
        write(&format!("{GROUP}/memory.max"), LIMIT.to_string())?;
        write(&format!("{GROUP}/cgroup.procs"), "0")?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // If it fails, the next round cannot make the group, and says so.
        let _ = fs::write(format!("{GROUPS}/cgroup.procs"), "0");
        let _ = fs::remove_dir(GROUP);
    }
}

/// A counter of the kernel's memory management.
pub(super) fn counted(name: &str) -> Result<usize, String> {
    let text =
        fs::read_to_string("/proc/vmstat").map_err(|error| format!("cannot read /proc/vmstat: {error}"))?;
    count(&text, name).ok_or_else(|| format!("/proc/vmstat does not count {name}"))
}

/// The counter in a text of lines such as `name 7`.
fn count(text: &str, name: &str) -> Option<usize> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// A round with the balloon, and what was in it at the end: the guest takes back what it needs, and gives nothing again.
pub(super) fn ballooning(round: Round) -> Box<Measure> {
    Box::new(move |asked| {
        insert(Load::Balloon)?;
        let measured = wait_for_balloon().and_then(|()| {
            let outcome = round(asked)?;
            Ok((outcome, vec![("yielded_bytes", balloon()? as f64)]))
        });
        let unloaded = delete_module(c"virtio_balloon", 0)
            .map_err(|error| format!("cannot unload the balloon's driver: {error}"));
        // The first error counts.
        measured.and_then(|measured| unloaded.map(|()| measured))
    })
}

/// Bytes in the balloon.
fn balloon() -> Result<usize, String> {
    Ok(counted("balloon_inflate")?.saturating_sub(counted("balloon_deflate")?) * PAGE)
}

/// Until the host has all that it asked for.
fn wait_for_balloon() -> Result<(), String> {
    let begin = Instant::now();
    while balloon()? < ASKED {
        if begin.elapsed() > PATIENCE {
            let (given, asked) = (balloon()? >> 20, ASKED >> 20);
            return Err(format!(
                "the guest gave the host only {given} of {asked} MiB in {} s",
                PATIENCE.as_secs()
            ));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_of_a_swap_says_how_many_pages_follow() {
        let page = header(SWAP);
        assert_eq!((page.len(), &page[4086..]), (4096, b"SWAPSPACE2".as_slice()));
        assert_eq!(page[1024..1036], [1, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_counter_has_its_whole_name() {
        let text = "pswpin_other 7\npswpin 12\npswpout 30\nballoon_inflate x\n";
        assert_eq!(
            ["pswpin", "pswpout", "balloon_inflate", "psw"].map(|name| count(text, name)),
            [Some(12), Some(30), None, None]
        );
        assert!(counted("nobody").unwrap_err().contains("does not count nobody"));
    }

    #[test]
    fn the_monitor_is_told_what_the_host_leaves() {
        let folder = monitor().unwrap();
        let read = |end: &str| fs::read_to_string(folder.path().join(MONITOR).with_extension(end)).unwrap();
        assert_eq!((read("in").as_str(), read("out").as_str()), ("balloon 96\n", ""));
    }
}
