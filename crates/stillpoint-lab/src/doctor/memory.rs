//! Huge pages, NUMA, and physical frame numbers.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use stillpoint_harness::machine::{Machine, proc};
use stillpoint_harness::output::format::bytes;

use crate::doctor::Finding;

pub(crate) fn findings(machine: &Machine) -> Vec<Finding> {
    vec![reserved_pages(), transparent_pages(), numa(machine), frames()]
}

fn reserved_pages() -> Finding {
    let mut sizes = Vec::new();
    for entry in fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(kib) = name.strip_prefix("hugepages-").and_then(|name| name.strip_suffix("kB")) else {
            continue;
        };
        let count =
            |file: &str| proc::line(entry.path().join(file)).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        if let Ok(kib) = kib.parse::<u64>() {
            sizes.push((kib * 1024, count("nr_hugepages"), count("free_hugepages")));
        }
    }
    sizes.sort_unstable();
    let text: Vec<String> = sizes
        .iter()
        .map(|&(size, total, free)| format!("{} each: {total} reserved, {free} free", bytes(size)))
        .collect();
    if sizes.iter().any(|&(_, total, _)| total > 0) {
        Finding::present("huge pages", text.join("; "))
    } else {
        Finding::absent(
            "huge pages",
            if text.is_empty() { "not supported by this kernel".to_owned() } else { text.join("; ") },
            "random lookups in millions of elements miss the TLB, and DPDK's tables are in small pages",
            "as root: sysctl vm.nr_hugepages=1024",
        )
    }
}

fn transparent_pages() -> Finding {
    let modes = proc::line("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = modes.split(['[', ']']).nth(1).unwrap_or("not supported").to_owned();
    match chosen.as_str() {
        "always" | "madvise" => Finding::present("transparent huge pages", chosen),
        _ => Finding::absent(
            "transparent huge pages",
            chosen,
            "huge pages have to be reserved in advance: the kernel gives none on request",
            "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
    }
}

fn numa(machine: &Machine) -> Finding {
    match machine.numa_nodes {
        0 | 1 => Finding::absent(
            "numa",
            "1 node",
            "the cost of memory on another node cannot be measured here",
            "nothing, unless your programs will run on several nodes: then measure there",
        ),
        nodes => Finding::present("numa", format!("{nodes} nodes")),
    }
}

fn frames() -> Finding {
    const COST: &str = "whether blocks are contiguous in physical memory cannot be checked";
    const REMEDY: &str = "run as root";
    match frame_of_own_page() {
        Ok(Some(_)) => Finding::present("frame numbers", "/proc/self/pagemap shows them"),
        Ok(None) => {
            Finding::absent("frame numbers", "/proc/self/pagemap hides them from this process", COST, REMEDY)
        }
        Err(error) => Finding::absent("frame numbers", format!("/proc/self/pagemap: {error}"), COST, REMEDY),
    }
}

/// The physical frame of a page of this process; `None` where the kernel shows zeros instead.
fn frame_of_own_page() -> io::Result<Option<u64>> {
    const FRAME: u64 = (1 << 55) - 1;
    let page = Box::new(1u8);
    let number = std::ptr::from_ref(&*page).addr() / rustix::param::page_size();
    let mut entry = [0; 8];
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, number as u64 * 8)?;
    let frame = u64::from_ne_bytes(entry) & FRAME;
    Ok((frame != 0).then_some(frame))
}
