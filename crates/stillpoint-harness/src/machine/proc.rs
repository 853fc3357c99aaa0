//! Facts read from `/proc` and `/sys`.

use std::fs;
use std::path::Path;

/// The trimmed contents of a file of one line, if there is one.
pub fn line(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The value of `key` in a text of lines such as `key : value`.
pub fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

fn cpuinfo(key: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    field(&text, key).map(str::to_owned)
}

/// The model of the processor.
pub(crate) fn cpu_model() -> String {
    cpuinfo("model name").unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH))
}

/// The processor's feature flags.
pub(crate) fn cpu_flags() -> Vec<String> {
    let flags = cpuinfo("flags").or_else(|| cpuinfo("Features")).unwrap_or_default();
    flags.split_whitespace().map(str::to_owned).collect()
}

/// A field of `/proc/meminfo`, in bytes.
pub fn memory(key: &str) -> Option<u64> {
    bytes("/proc/meminfo", key)
}

/// Bytes that this process can still get: the machine's available memory, or what is left of its limit of address space
/// (`ulimit -v`) if that is less.
pub fn available_memory() -> Option<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    let left =
        limit.zip(bytes("/proc/self/status", "VmSize")).map(|(limit, used)| limit.saturating_sub(used));
    memory("MemAvailable").into_iter().chain(left).min()
}

/// Bytes of this process in transparent huge pages.
pub fn huge_bytes() -> Option<u64> {
    bytes("/proc/self/smaps_rollup", "AnonHugePages")
}

/// A field such as `key: 4 kB` of a file.
fn bytes(path: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let kib = field(&text, key)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    Some(kib * 1024)
}

/// Resident bytes of this process.
pub fn resident_bytes() -> Option<usize> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    Some(resident_pages(&statm)? * rustix::param::page_size())
}

/// The second number: `size resident shared ...`, in pages.
fn resident_pages(statm: &str) -> Option<usize> {
    statm.split_whitespace().nth(1)?.parse().ok()
}

/// The number of NUMA nodes that are online.
pub(crate) fn numa_nodes() -> usize {
    line("/sys/devices/system/node/online")
        .and_then(|list| super::cpus::parse_list(&list).ok())
        .map_or(1, |nodes| nodes.len().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "MemTotal:       24684084 kB\nMem:  1 kB\nmodel name\t: AMD EPYC\n";
        assert_eq!(field(text, "Mem"), Some("1 kB"));
        assert_eq!(field(text, "model name"), Some("AMD EPYC"));
        assert_eq!(field(text, "MemFree"), None);
    }

    #[test]
    fn touched_memory_is_resident() {
        assert_eq!(resident_pages("12345 678 90 1 0 2 0\n"), Some(678));
        let before = resident_bytes().unwrap();
        let touched = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(resident_bytes().unwrap() >= before + (32 << 20), "of {} bytes", touched.len());
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(memory("MemTotal").unwrap() > 1 << 20);
        assert_eq!(memory("NoSuchField"), None);
        assert!(available_memory().is_some_and(|bytes| bytes <= memory("MemTotal").unwrap()));
        assert!(huge_bytes().is_some_and(|bytes| bytes < memory("MemTotal").unwrap()));
    }
}
