//! Frames of physical memory: `/proc/self/pagemap`, see `Documentation/admin-guide/mm/pagemap.rst` of the kernel.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The physical address behind `address`, as long as the kernel does not move the page. `None` if the page is not in
/// memory, or if the kernel hides frame numbers from this process by showing zeros.
pub fn physical(address: usize) -> Option<u64> {
    // SAFETY: no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let mut entry = [0; 8];
    let map = File::open("/proc/self/pagemap").ok()?;
    map.read_exact_at(&mut entry, (address / page * 8) as u64).ok()?;
    decoded(u64::from_ne_bytes(entry), address, page)
}

/// The physical address behind `address`, by the entry of its page.
fn decoded(entry: u64, address: usize, page: usize) -> Option<u64> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let frame = entry & FRAME;
    (entry & PRESENT != 0 && frame != 0).then(|| frame * page as u64 + (address % page) as u64)
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn an_entry_gives_a_frame_if_its_page_is_in_memory_and_the_kernel_shows_it() {
        let page = 4096;
        let present = 1 << 63;
        assert_eq!(decoded(present | 5, 0x7000_0123, page), Some(5 * 4096 + 0x123));
        // The kernel's other flags are above the frame number.
        assert_eq!(decoded(present | (0xff << 55) | 5, 4095, page), Some(5 * 4096 + 4095));
        assert_eq!(decoded(present | ((1 << 40) - 1), 0, page), Some(((1 << 40) - 1) * 4096));
        assert_eq!(decoded(present, 0x123, page), None, "hidden");
        assert_eq!(decoded((1 << 62) | 5, 0x123, page), None, "swapped out");
        assert_eq!(decoded(present | 5, 0x1_2345, 65_536), Some(5 * 65_536 + 0x2345));
    }
}
