//! Address space that is reserved as a whole and filled with memory piece by piece: `mmap(2)`, `mprotect(2)`,
//! `madvise(2)`, `mbind(2)`.
//!
//! A mapping at a fixed address first unmaps what is there, and may fail after that. The kernel may then place another thread's
//! mapping there. So huge pages are first requested elsewhere, and ordinary pages need no new mapping. Addresses
//! that may have been lost nevertheless are never accessed again.

use std::io::{self, BufRead, BufReader};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::pages::{addresses_given_back, addresses_taken, map, ACCESS, SMALL};
use super::super::{outcome, Uncancelled};
use super::{Made, Refusal, Want};

/// The size of a huge page on x86-64, and on aarch64 with small pages of 4 KiB.
pub const HUGE: usize = 2 << 20;

/// Address space that only its owner uses. Unmapped when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    whole: NonNull<u8>,
    whole_bytes: usize,
    /// Aligned as requested.
    start: NonNull<u8>,
    /// From this offset on, addresses may belong to another mapping.
    lost_from: AtomicUsize,
}

// SAFETY: it owns its addresses, and gives no access to what is there.
unsafe impl Send for Reservation {}
// SAFETY: a shared reservation gives no access to its memory; `fill` and `empty` are `unsafe`.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves addresses. `align` is a power of two. The addresses cannot be read or written yet.
    pub fn new(bytes: usize, align: usize) -> io::Result<Self> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let align = align.max(HUGE);
        let bytes = bytes.checked_next_multiple_of(HUGE).ok_or_else(too_large)?;
        let whole_bytes = bytes.checked_add(align).ok_or_else(too_large)?;
        // Address space without access is not accounted for. Each part is accounted for when it is filled, and the kernel may
        // refuse it then.
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let raw = unsafe { map(ptr::null_mut(), whole_bytes, libc::PROT_NONE, 0) }
            .map_err(io::Error::from_raw_os_error)?;
        addresses_taken();
        let whole = NonNull::new(raw).ok_or_else(too_large)?;
        // SAFETY: within the mapping, which has `align` bytes to spare.
        let start = unsafe { whole.add(whole.as_ptr().align_offset(align)) };
        Ok(Self { whole, whole_bytes, start, lost_from: AtomicUsize::new(usize::MAX) })
    }

    /// The first address.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Fills an unfilled part with memory. It is zeroed, unless the part was emptied and shares a reserved huge page with the one before. From
    /// Linux 5.14 on, its pages are present when the call returns; before, no part has reserved pages of a certain node.
    ///
    /// # Safety
    /// The part lies within the reservation, has not been filled before (or was refused), and begins at a multiple of
    /// the size of a page.
    pub unsafe fn fill(&self, offset: usize, bytes: usize, want: Want) -> Result<Made, Refusal> {
        // Relaxed: one thread at a time fills a part; the caller orders these threads.
        if offset >= self.lost_from.load(Ordering::Relaxed) {
            return Err(Refusal::Lost);
        }
        // SAFETY: within the reservation, and empty, by the caller's promise; the reservation ends at a multiple of a huge page.
        let answer = unsafe { fill(self.start.add(offset), bytes, want) };
        if matches!(answer, Err(Refusal::Lost)) {
            // Relaxed: the caller orders the threads that fill this part.
            self.lost_from.store(offset, Ordering::Relaxed);
        }
        answer
    }

    /// Removes the memory of a part.
    ///
    /// # Safety
    /// Nothing refers to the part.
    pub unsafe fn empty(&self, offset: usize, bytes: usize, made: Made) {
        let unit = if made == Made::Reserved { HUGE } else { SMALL };
        // SAFETY: within the reservation; nothing refers to the part, by the caller's promise.
        let is_back =
            unsafe { withdraw(self.start.add(offset), bytes.next_multiple_of(unit), made == Made::Reserved) };
        if !is_back {
            // Relaxed: as in `fill`.
            self.lost_from.fetch_min(offset, Ordering::Relaxed);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let head = self.start.as_ptr().addr() - self.whole.as_ptr().addr();
        let bytes = self.whole_bytes.min(self.lost_from.get_mut().saturating_add(head));
        addresses_given_back();
        // SAFETY: no other code uses these addresses, and their owner is gone. A failure leaves them mapped.
        unsafe { libc::munmap(self.whole.as_ptr().cast(), bytes) };
    }
}

fn memory(errno: i32) -> Refusal {
    Refusal::Memory(io::Error::from_raw_os_error(errno))
}

/// # Safety
/// As [`Reservation::fill`], for the part that begins here; a huge page more than `bytes` belongs to the reservation.
unsafe fn fill(begin: NonNull<u8>, bytes: usize, want: Want) -> Result<Made, Refusal> {
    let mut refusal = Refusal::Memory(io::ErrorKind::OutOfMemory.into());
    if want.reserved {
        // SAFETY: as the caller promises.
        match unsafe { fill_reserved(begin, bytes.next_multiple_of(HUGE), want.node) } {
            Ok(()) => return Ok(Made::Reserved),
            Err(Refusal::Memory(error)) => refusal = Refusal::Reserved(error),
            Err(other) => return Err(other),
        }
    }
    if want.transparent || want.small {
        // SAFETY: as the caller promises.
        return unsafe { fill_ordinary(begin, bytes.next_multiple_of(SMALL), want) };
    }
    Err(refusal)
}

/// # Safety
/// As [`Reservation::fill`]; `bytes` is a multiple of a huge page.
unsafe fn fill_reserved(begin: NonNull<u8>, bytes: usize, node: Option<u32>) -> Result<(), Refusal> {
    if begin.as_ptr().addr() % HUGE != 0 {
        return Err(Refusal::Memory(io::ErrorKind::InvalidInput.into()));
    }
    let flags = libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
    // Maps elsewhere first: if the mapping below were refused, it would leave a hole.
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let elsewhere = unsafe { map(ptr::null_mut(), bytes, ACCESS, flags) }.map_err(memory)?;
    // SAFETY: it was made just now, and nothing uses it.
    outcome(unsafe { libc::munmap(elsewhere.cast(), bytes) } == 0).map_err(memory)?;
    // SAFETY: the addresses belong to the reservation, and are empty by the caller's promise.
    let here = unsafe { map(begin.as_ptr(), bytes, ACCESS, flags | libc::MAP_FIXED) };
    if let Err(error) = here {
        // If the hole cannot be closed, something is mapped there: the mapping from before, or another thread's. The kernel does
        // not tell which, so the addresses count as lost.
        let is_closed = close_hole(begin, bytes, libc::MAP_FIXED_NOREPLACE);
        return Err(if is_closed { memory(error) } else { Refusal::Lost });
    }
    let answer = bind(begin, bytes, node).and_then(|()| match populate(begin, bytes) {
        // Then the kernel has only counted the pages, those of all nodes together. The first write to one that this node lacks would be a
        // signal.
        Ok(false) if node.is_some() => Err(memory(libc::EOPNOTSUPP)),
        answer => answer.map(drop).map_err(memory),
    });
    // SAFETY: filled just now, and nothing uses it.
    if answer.is_err() && !unsafe { withdraw(begin, bytes, true) } {
        return Err(Refusal::Lost);
    }
    answer
}

/// Maps the addresses without access, unless something is mapped there. Returns whether it did. `keep` is
/// `MAP_FIXED_NOREPLACE`. Linux before 4.17 ignores this flag, and takes the address as a hint: if something is mapped
/// there, it maps elsewhere. Tests leave the flag out to get the same.
fn close_hole(begin: NonNull<u8>, bytes: usize, keep: libc::c_int) -> bool {
    debug_assert!(keep & libc::MAP_FIXED == 0, "that would replace what is there");
    let wanted = begin.as_ptr();
    // SAFETY: a new mapping, which replaces no other one.
    match unsafe { map(wanted, bytes, libc::PROT_NONE, keep) } {
        Ok(place) if place == wanted => true,
        Ok(elsewhere) => {
            // SAFETY: it was made just now, and nothing uses it.
            unsafe { libc::munmap(elsewhere.cast(), bytes) };
            false
        }
        Err(_) => false,
    }
}

/// # Safety
/// As [`Reservation::fill`]; `bytes` is a multiple of a small page.
unsafe fn fill_ordinary(begin: NonNull<u8>, bytes: usize, want: Want) -> Result<Made, Refusal> {
    // SAFETY: the addresses belong to the reservation, by the caller's promise.
    outcome(unsafe { libc::mprotect(begin.as_ptr().cast(), bytes, ACCESS) } == 0).map_err(memory)?;
    let advised = want.transparent && bytes >= HUGE && {
        // SAFETY: the advice changes no contents.
        unsafe { libc::madvise(begin.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) == 0 }
    };
    let answer = bind(begin, bytes, want.node).and_then(|()| {
        // The kernel may have made one mapping of this part and the one before it.
        let before = if advised { huge_kib(begin) } else { 0 };
        populate(begin, bytes).map_err(memory)?;
        Ok(advised && huge_kib(begin) > before)
    });
    // SAFETY: filled just now, and nothing uses it.
    if answer.is_err() && !unsafe { withdraw(begin, bytes, false) } {
        return Err(Refusal::Lost);
    }
    answer.map(|is_huge| if is_huge { Made::Transparent } else { Made::Small })
}

/// Turns the part into addresses without memory again. If it cannot, the part is lost: returns false.
///
/// # Safety
/// The addresses belong to a reservation, and nothing refers to them.
unsafe fn withdraw(begin: NonNull<u8>, bytes: usize, is_reserved: bool) -> bool {
    // In place, where the kernel does it: not with locked pages, and not with reserved ones. A kernel with strict accounting
    // (`vm.overcommit_memory=2`) goes on counting pages that were touched.
    // SAFETY: nothing refers to the addresses.
    let is_done = !is_reserved
        && unsafe {
            libc::madvise(begin.as_ptr().cast(), bytes, libc::MADV_DONTNEED) == 0
                && libc::mprotect(begin.as_ptr().cast(), bytes, libc::PROT_NONE) == 0
        };
    if is_done {
        return true;
    }
    // SAFETY: nothing refers to the addresses.
    match unsafe { map(begin.as_ptr(), bytes, libc::PROT_NONE, libc::MAP_FIXED) } {
        // The part begins in a reserved huge page of the one before, as it may if other pages are allowed, too. It stays there, with what was
        // written to it, and can be filled again.
        Ok(_) | Err(libc::EINVAL) => true,
        // A mapping that is refused may leave a hole.
        Err(_) => close_hole(begin, bytes, libc::MAP_FIXED_NOREPLACE),
    }
}

/// Makes all pages present at once, so that a lack of memory is an error here instead of a signal later. Returns whether the kernel can: Linux
/// before 5.14 does not know the advice, and the pages become present when they are touched.
fn populate(begin: NonNull<u8>, bytes: usize) -> Result<bool, i32> {
    // SAFETY: the advice changes no contents.
    match outcome(unsafe { libc::madvise(begin.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) } == 0) {
        Err(libc::EINVAL) => Ok(false),
        answer => answer.map(|()| true),
    }
}

/// `long mbind(void *addr, unsigned long len, int mode, const unsigned long *nodemask, unsigned long maxnode, unsigned)`
fn bind(begin: NonNull<u8>, bytes: usize, node: Option<u32>) -> Result<(), Refusal> {
    /// `linux/mempolicy.h`
    const MPOL_BIND: libc::c_int = 2;
    const BITS: usize = usize::BITS as usize;
    /// The kernel has at most 1,024 nodes.
    const WORDS: usize = 1024 / BITS;
    let Some(node) = node else { return Ok(()) };
    let mut mask = [0usize; WORDS];
    let Some(word) = mask.get_mut(node as usize / BITS) else { return Err(Refusal::Node(node)) };
    *word = 1 << (node as usize % BITS);
    // SAFETY: the mask has the number of bits that is passed (the kernel counts one more), and the call changes no contents.
    let answer = unsafe {
        libc::syscall(libc::SYS_mbind, begin.as_ptr(), bytes, MPOL_BIND, mask.as_ptr(), WORDS * BITS + 1, 0)
    };
    match outcome(answer == 0) {
        Err(libc::EINVAL) => Err(Refusal::Node(node)),
        // A kernel without NUMA has one node.
        Err(libc::ENOSYS) if node == 0 => Ok(()),
        Err(libc::ENOSYS) => Err(Refusal::Node(node)),
        answer => answer.map_err(memory),
    }
}

/// Whether the mapping that this line of `smaps` begins contains the address; `None` for a line that begins no mapping.
fn holds(line: &str, address: usize) -> Option<bool> {
    let (from, to) = line.split_whitespace().next()?.split_once('-')?;
    let (from, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
    Some((from..to).contains(&address))
}

/// How much of the mapping at `begin` the kernel has in huge pages, in KiB: `AnonHugePages` in `/proc/self/smaps`. Reads no further, since
/// the kernel walks the pages of each mapping that is read.
fn huge_kib(begin: NonNull<u8>) -> u64 {
    // An allocation of a program in C may come here, and its cancellation would unwind through it.
    let _whole = Uncancelled::new();
    let Ok(file) = std::fs::File::open("/proc/self/smaps") else { return 0 };
    let address = begin.as_ptr().addr();
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    let mut lines = lines.skip_while(|line| holds(line, address) != Some(true));
    let figure = lines.find(|line| line.starts_with("AnonHugePages:"));
    figure.and_then(|figure| figure.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    const ORDINARY: Want = Want { reserved: false, transparent: true, small: true, node: None };

    #[test]
    fn parts_are_filled_one_after_the_other_and_hold_zeroes() {
        let space = Reservation::new(3 * HUGE, 1 << 22).unwrap();
        assert_eq!(space.start().as_ptr().addr() % (1 << 22), 0);
        for part in [0, HUGE] {
            // SAFETY: within the space, once each.
            unsafe { space.fill(part, HUGE, ORDINARY) }.unwrap();
            for offset in [part, part + HUGE - 1] {
                // SAFETY: filled above, within the space.
                let byte = unsafe { space.start().add(offset) };
                // SAFETY: filled above, and nothing else uses it.
                unsafe {
                    assert_eq!(byte.read(), 0);
                    byte.write(7);
                }
            }
        }
    }

    #[test]
    fn what_was_taken_back_can_be_filled_again() {
        let space = Reservation::new(HUGE, SMALL).unwrap();
        // SAFETY: within the space, and emptied in between.
        unsafe {
            let made = space.fill(0, HUGE, ORDINARY).unwrap();
            space.start().write(7);
            space.empty(0, HUGE, made);
            space.fill(0, HUGE, ORDINARY).unwrap();
            assert_eq!(space.start().read(), 0);
        }
    }

    #[test]
    fn a_node_that_does_not_exist_is_refused_and_the_space_stays_usable() {
        let space = Reservation::new(HUGE, SMALL).unwrap();
        for node in [1023, 5000] {
            // SAFETY: within the space, and not filled yet.
            let refusal = unsafe { space.fill(0, SMALL, Want { node: Some(node), ..ORDINARY }) };
            // A kernel that forbids the call refuses it.
            assert!(matches!(&refusal, Err(Refusal::Node(_) | Refusal::Memory(_))), "{refusal:?}");
        }
        // SAFETY: within the space.
        assert!(unsafe { space.fill(0, SMALL, ORDINARY) }.is_ok());
    }

    /// The kernel counts the memory that it has promised, and refuses more than it can provide, unless it is configured
    /// otherwise.
    #[test]
    fn memory_is_accounted_for() {
        let space = Reservation::new(HUGE, SMALL).unwrap();
        // SAFETY: within the space.
        unsafe { space.fill(0, HUGE, Want { transparent: false, ..ORDINARY }) }.unwrap();
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines =
            text.lines().skip_while(|line| holds(line, space.start().as_ptr().addr()) != Some(true));
        let flags = lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
        let has = |flag| flags.split_whitespace().any(|each| each == flag);
        assert!(has("ac") && !has("nr"), "{flags}");
    }

    /// The size of the address space that the process has mapped.
    fn mapped() -> usize {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let figure = text.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        figure.split_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
    }

    /// With the flag, and without it, as in Linux before 4.17.
    #[test]
    fn a_hole_is_closed_only_if_nothing_is_mapped_there() {
        const TIMES: usize = 64;
        const LARGE: usize = 1 << 30;
        for keep in [libc::MAP_FIXED_NOREPLACE, 0] {
            let space = Reservation::new(LARGE, SMALL).unwrap();
            // SAFETY: within the space, once.
            unsafe { space.fill(0, SMALL, ORDINARY) }.unwrap();
            // SAFETY: filled above, and nothing else uses it.
            unsafe { space.start().write(7) };
            let before = mapped();
            assert!((0..TIMES).all(|_| !close_hole(space.start(), LARGE, keep)));
            // SAFETY: filled above.
            assert_eq!(unsafe { space.start().read() }, 7);
            // Other tests map little.
            assert!(mapped() < before + TIMES / 2 * LARGE, "what was mapped elsewhere is still there");

            // Another thread may map something there first, but not each time.
            let is_closed = (0..1000).any(|_| {
                let free = Reservation::new(HUGE, SMALL).unwrap().start();
                let is_closed = close_hole(free, HUGE, keep);
                if is_closed {
                    // SAFETY: it was mapped just now, and nothing uses it.
                    assert_eq!(unsafe { libc::munmap(free.as_ptr().cast(), HUGE) }, 0);
                }
                is_closed
            });
            assert!(is_closed);
        }
    }

    #[test]
    fn too_much_is_an_error() {
        assert!(Reservation::new(usize::MAX - 5, SMALL).is_err());
        assert!(Reservation::new(1 << 60, SMALL).is_err());
    }
}
