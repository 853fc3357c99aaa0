//! Frames of physical memory: `/proc/self/pagemap`, see `Documentation/admin-guide/mm/pagemap.rst` of the kernel.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The physical address behind `address`, as long as the kernel does not move the page. `None` if the page is not in
/// memory, or if the kernel hides frame numbers from this process by showing zeros.
pub fn physical(address: usize) -> Option<u64> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    // Uses libc: rustix finds the page size on its own, which a checker like Valgrind hides.
    // SAFETY: no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let mut entry = [0; 8];
    let map = File::open("/proc/self/pagemap").ok()?;
    map.read_exact_at(&mut entry, (address / page * 8) as u64).ok()?;
    let entry = u64::from_ne_bytes(entry);
    let frame = entry & FRAME;
    (entry & PRESENT != 0 && frame != 0).then(|| frame * page as u64 + (address % page) as u64)
}
