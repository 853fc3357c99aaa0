//! Memory from the kernel: `mmap(2)`, `madvise(2)`.

use std::ptr::{self, NonNull};
// Not modelled: this only repeats an order that the kernel ensures.
use std::sync::atomic::{AtomicUsize, Ordering};

use super::outcome;

/// Large mappings begin at a multiple of this: the size of a huge page on x86-64, and on aarch64 with small pages of
/// 4 KiB.
const HUGE: usize = 2 << 20;
/// All mappings begin at a multiple of this size, and consist of whole pages of it.
pub const SMALL: usize = 4096;

/// Memory that may be read and written.
pub(super) const ACCESS: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// `void *mmap(void *addr, size_t length, int prot, int flags, -1, 0)`, for private memory behind which is no file.
///
/// # Safety
/// If `flags` has `MAP_FIXED`, nothing refers to what is mapped at these addresses.
pub(super) unsafe fn map(
    wanted: *mut u8,
    bytes: usize,
    access: libc::c_int,
    flags: libc::c_int,
) -> Result<*mut u8, i32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: without `MAP_FIXED` the kernel replaces no mapping, and with it the caller promises that nothing refers to one.
    let place = unsafe { libc::mmap(wanted.cast(), bytes, access, flags, -1, 0) };
    outcome(place != libc::MAP_FAILED)?;
    Ok(place.cast())
}

/// Counts pieces of address space that were given back. The kernel hands their addresses out again, to any thread. What the
/// last owner did there comes before that, but no access of the program expresses this order, and ThreadSanitizer sees it only
/// where it intercepts the system calls.
static GIVEN_BACK: AtomicUsize = AtomicUsize::new(0);

/// Called by a thread that has just got addresses from the kernel.
pub(super) fn addresses_taken() {
    // Acquire: pairs with the release below, of the thread that had these addresses before.
    GIVEN_BACK.load(Ordering::Acquire);
}

/// Called by a thread that is about to give addresses back to the kernel. The next owner calls [`addresses_taken`].
pub(super) fn addresses_given_back() {
    // Release: pairs with the acquire above.
    GIVEN_BACK.fetch_add(1, Ordering::Release);
}

/// Anonymous memory, which is unmapped when this is dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    /// A multiple of [`SMALL`].
    bytes: usize,
}

// SAFETY: it owns its memory, and gives no access to it.
unsafe impl Send for Mapping {}
// SAFETY: a shared mapping gives no access to its memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory; `None` if the kernel refuses. With `now`, its pages are present when the call returns, as huge pages
    /// as far as the kernel has some.
    pub fn new(bytes: usize, now: bool) -> Option<Self> {
        let bytes = rounded(bytes)?;
        let spare = if bytes >= HUGE { HUGE } else { 0 };
        let whole = bytes.checked_add(spare)?;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let raw = unsafe { map(ptr::null_mut(), whole, ACCESS, 0) }.ok()?;
        addresses_taken();
        let mut mapping = Self { start: NonNull::new(raw)?, bytes: whole };
        if spare > 0 {
            let head = raw.align_offset(HUGE);
            mapping.release_end(spare - head);
            mapping.bytes -= head;
            // SAFETY: within the mapping, which does not begin at null.
            mapping.start = unsafe { mapping.start.add(head) };
            unmap(raw, head);
        }
        if now {
            allow_huge(mapping.start, mapping.bytes);
            if !populate(mapping.start, mapping.bytes) {
                return None;
            }
        }
        Some(mapping)
    }

    /// The start of the memory. The memory is unmapped only after [`from_start`](Mapping::from_start) makes a mapping of it
    /// again.
    pub fn into_start(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).start
    }

    /// # Safety
    /// `start` came from [`into_start`](Mapping::into_start) of a mapping of `bytes`, is used once, and nothing refers to the
    /// memory.
    pub unsafe fn from_start(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes: rounded(bytes).expect("there was such a mapping") }
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives back up to `bytes` at the end, a multiple of [`SMALL`].
    pub fn release_end(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        unmap(self.start.as_ptr().wrapping_add(self.bytes), bytes);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.release_end(self.bytes);
    }
}

/// Unmaps pages that a mapping owned exclusively and has given up.
fn unmap(start: *mut u8, bytes: usize) {
    if bytes > 0 {
        addresses_given_back();
        // SAFETY: nothing refers to the pages. A failure leaves them mapped.
        unsafe { libc::munmap(start.cast(), bytes) };
    }
}

/// Allows huge pages from now on.
pub fn allow_huge(start: NonNull<u8>, bytes: usize) {
    let Some(bytes) = rounded(bytes) else { return };
    // SAFETY: the advice changes no contents. A kernel without huge pages refuses it, which does no harm.
    unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
}

/// Gives the memory of pages back. They stay mapped, and hold zeroes.
///
/// # Safety
/// `start` is aligned to [`SMALL`]. The pages, of which the last one is taken as a whole, are of a [`Mapping`], and nothing refers to their
/// contents.
pub unsafe fn discard(start: NonNull<u8>, bytes: usize) {
    // SAFETY: by the caller's promise. If the kernel refuses, as for locked pages, they keep their memory.
    unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTNEED) };
}

/// Asks for all pages at once. False if the kernel has no memory for them: touching one might hang, or raise a signal.
fn populate(start: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the advice changes no contents.
    match outcome(unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) } == 0) {
        Ok(()) => return true,
        Err(libc::ENOMEM | libc::EFAULT | libc::EHWPOISON) => return false,
        // Linux before 5.14 does not know the advice: touch the pages.
        Err(_) => (),
    }
    for offset in (0..bytes).step_by(SMALL) {
        // SAFETY: within the mapping, which is not shared yet, and holds zeroes.
        unsafe { start.as_ptr().add(offset).write_volatile(0) };
    }
    true
}

/// Rounds up to whole pages, since only they can be given back.
fn rounded(bytes: usize) -> Option<usize> {
    let page = if cfg!(target_arch = "x86_64") {
        SMALL
    } else {
        // SAFETY: the function has no preconditions.
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(SMALL).max(SMALL)
    };
    bytes.checked_next_multiple_of(page)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn pages_that_the_kernel_cannot_make_are_not_touched() {
        let memory = Mapping::new(SMALL, false).unwrap();
        // SAFETY: the advice changes no contents.
        if unsafe { libc::madvise(memory.start.as_ptr().cast(), SMALL, libc::MADV_POPULATE_WRITE) } != 0 {
            return; // Linux before 5.14 touches all pages
        }
        // Past the end of an empty file there is nothing: a touch raises a signal.
        // SAFETY: the name ends with zero.
        let file = unsafe { libc::memfd_create(c"empty".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(file >= 0);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let raw = unsafe { libc::mmap(ptr::null_mut(), SMALL, ACCESS, libc::MAP_PRIVATE, file, 0) };
        assert!(raw != libc::MAP_FAILED && !populate(NonNull::new(raw).unwrap().cast(), SMALL));
        unmap(raw.cast(), SMALL);
        // SAFETY: only this test has the file.
        unsafe { libc::close(file) };
    }
}
