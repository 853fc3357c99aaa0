//! Memory from the kernel: `mmap(2)`, `madvise(2)`.

use std::ptr::{self, NonNull};

use rustix::mm::{madvise, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};

/// Mappings begin at a multiple of this: the size of a huge page on x86-64, and on aarch64 with small pages of 4 KiB.
pub(crate) const ALIGNMENT: usize = 2 << 20;

/// Zeroed memory; `None` when the kernel refuses. With `now`, its pages are there when the call returns, huge ones
/// as far as the kernel has some.
pub(crate) fn map(bytes: usize, now: bool) -> Option<NonNull<u8>> {
    let bytes = rounded(bytes)?;
    let whole = bytes.checked_add(ALIGNMENT)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, wherever the kernel likes.
    let raw = unsafe { mmap_anonymous(ptr::null_mut(), whole, access, MapFlags::PRIVATE) }.ok()?;
    let raw = raw.cast::<u8>();
    let head = raw.align_offset(ALIGNMENT);
    let start = raw.wrapping_add(head);
    // SAFETY: both ends belong to the mapping of above, and nothing refers to them. A failure leaves address space
    // unused.
    let _ = unsafe {
        (
            head == 0 || munmap(raw.cast(), head).is_ok(),
            munmap(start.wrapping_add(bytes).cast(), whole - head - bytes),
        )
    };
    let start = NonNull::new(start)?;
    if now {
        allow_huge(start, bytes);
        populate(start, bytes);
    }
    Some(start)
}

/// Allows huge pages from now on.
pub(crate) fn allow_huge(start: NonNull<u8>, bytes: usize) {
    let Some(bytes) = rounded(bytes) else { return };
    // SAFETY: the advice changes no contents. A kernel without huge pages refuses it, which does no harm.
    let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
}

/// Asks for all pages at once.
fn populate(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the advice changes no contents.
    if unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) }.is_ok() {
        return;
    }
    // Linux before 5.14.
    for offset in (0..bytes).step_by(4096) {
        // SAFETY: within the mapping, which is not shared yet, and holds zeroes.
        unsafe { start.as_ptr().add(offset).write_volatile(0) };
    }
}

/// # Safety
/// `start` came from [`map`] with the same size, and nothing refers to the memory.
pub(crate) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    let Some(bytes) = rounded(bytes) else { return };
    // SAFETY: the caller's promise. A failure leaves the memory mapped.
    let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
}

/// Whole small pages.
fn rounded(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(4096)
}
