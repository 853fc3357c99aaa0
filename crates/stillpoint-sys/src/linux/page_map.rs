//! Frames of physical memory: `/proc/self/pagemap`, see `Documentation/admin-guide/mm/pagemap.rst` of the kernel.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The physical address behind `address`, as long as the kernel does not move the page. `None` when the page is not in
/// memory, or the kernel hides frame numbers from this process: it shows zeroes then.
pub fn physical(address: usize) -> Option<u64> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    // By libc: rustix looks for the page size by itself, where a checker like Valgrind hides it.
    // SAFETY: no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let mut entry = [0; 8];
    let map = File::open("/proc/self/pagemap").ok()?;
    map.read_exact_at(&mut entry, (address / page * 8) as u64).ok()?;
    let entry = u64::from_ne_bytes(entry);
    let frame = entry & FRAME;
    (entry & PRESENT != 0 && frame != 0).then(|| frame * page as u64 + (address % page) as u64)
}
