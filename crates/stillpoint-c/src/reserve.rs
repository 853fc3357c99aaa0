//! The library's allocator: that of the C library, and a small reserve of static memory for when it fails, as the C++ runtime has one for
//! exceptions.
//!
//! Much of what Rust allocates cannot be refused (`Arc`, `Box`): without memory, the process would end. Here such a request gets memory
//! from the reserve, and [`kept`] gives it back by undoing the call. So calls end well or with `ENOMEM`. Requests that may be refused, for
//! memory that stays in use, get nothing from the reserve: see [`closed`]. If the reserve has no room either, the process ends.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::border::Refusal;
use crate::own;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

struct Allocator;

/// How many requests have got memory that they have not given back.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// For what is allocated often: nodes, seats of threads, names.
static SMALL: Shelf<64, 8> = Shelf::new();
/// For chunks of readers and of handles, and for the parts of a table or pool that do not grow with it.
static LARGE: Shelf<1024, 4> = Shelf::new();

/// Notes of a thread. A thread that has no block yet allocates it: that may take from the reserve, and stays.
pub(crate) struct Notes {
    /// Whether the thread has taken memory from the reserve since [`kept`] began.
    has_taken: Cell<bool>,
    /// Whether the thread's requests may be refused: see [`closed`].
    is_closed: Cell<bool>,
}

impl Notes {
    pub(crate) const fn new() -> Self {
        Self { has_taken: Cell::new(false), is_closed: Cell::new(false) }
    }
}

/// `ROWS` rows of 64 units of `UNIT` bytes. A request gets units of one row, side by side.
///
/// Lock-free, because a child of `fork` would find a lock held, and because signal handlers register threads.
#[repr(C, align(1024))]
struct Shelf<const UNIT: usize, const ROWS: usize> {
    units: UnsafeCell<[[[u8; UNIT]; 64]; ROWS]>,
    /// A bit for each unit that is in use.
    used: [AtomicU64; ROWS],
}

// SAFETY: only whoever has set the bits of units uses them.
unsafe impl<const UNIT: usize, const ROWS: usize> Sync for Shelf<UNIT, ROWS> {}

impl<const UNIT: usize, const ROWS: usize> Shelf<UNIT, ROWS> {
    const fn new() -> Self {
        Self { units: UnsafeCell::new([[[0; UNIT]; 64]; ROWS]), used: [const { AtomicU64::new(0) }; ROWS] }
    }

    /// The bits of as many units as the size takes, from bit 0. `None` if a row has fewer.
    fn bits(size: usize) -> Option<u64> {
        match size.div_ceil(UNIT) {
            count @ 1..=64 => Some(u64::MAX >> (64 - count)),
            _ => None,
        }
    }

    fn take(&self, layout: Layout) -> Option<*mut u8> {
        let bits = Self::bits(layout.size()).filter(|_| layout.align() <= UNIT)?;
        let last = bits.leading_zeros();
        for (row, used) in self.used.iter().enumerate() {
            let place = |used: u64| (0..=last).find(|place| used & bits << place == 0);
            // Acquire: pairs with the release in `give_back`. Relaxed on failure, and for the load: only the bits matter.
            let claim = |used| place(used).map(|place| used | bits << place);
            if let Ok(before) = used.fetch_update(Ordering::Acquire, Ordering::Relaxed, claim) {
                let unit = row * 64 + place(before)? as usize;
                return Some(self.units.get().cast::<u8>().wrapping_add(unit * UNIT));
            }
        }
        None
    }

    /// The number of the unit that begins at this address. `None` if it is elsewhere.
    #[inline]
    fn unit(&self, address: *mut u8) -> Option<usize> {
        let unit = address.addr().wrapping_sub(self.units.get().addr()) / UNIT;
        (unit < 64 * ROWS).then_some(unit)
    }

    #[cold]
    fn give_back(&self, unit: usize, size: usize) {
        let bits = Self::bits(size).unwrap_or(0);
        // Release: pairs with the acquire in `take`.
        self.used[unit / 64].fetch_and(!(bits << (unit % 64)), Ordering::Release);
    }
}

#[cold]
fn take(layout: Layout) -> *mut u8 {
    let own = own::find();
    if own.is_some_and(|own| own.notes.is_closed.get()) {
        return ptr::null_mut();
    }
    let Some(taken) = SMALL.take(layout).or_else(|| LARGE.take(layout)) else { return ptr::null_mut() };
    // Relaxed: a hint.
    TAKEN.fetch_add(1, Ordering::Relaxed);
    if let Some(own) = own {
        own.notes.has_taken.set(true);
    }
    taken
}

/// Takes memory back, if it is of the reserve.
#[inline]
fn give_back(address: *mut u8, size: usize) -> bool {
    match (SMALL.unit(address), LARGE.unit(address)) {
        (None, None) => return false,
        (Some(unit), _) => SMALL.give_back(unit, size),
        (_, Some(unit)) => LARGE.give_back(unit, size),
    }
    // Relaxed: a hint.
    TAKEN.fetch_sub(1, Ordering::Relaxed);
    true
}

// SAFETY: memory is that of the system's allocator, or units of a shelf, which nobody else has until they are given back. No function
// unwinds. A thread's notes are only looked for.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let given = unsafe { System.alloc(layout) };
        if given.is_null() {
            take(layout)
        } else {
            given
        }
    }

    /// Gets nothing from the reserve: the library asks for zeros where it can be refused.
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        if !give_back(address, layout.size()) {
            // SAFETY: the caller has the memory from the system's allocator, with this layout, and does not use it any more.
            unsafe { System.dealloc(address, layout) }
        }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if SMALL.unit(address).is_none() && LARGE.unit(address).is_none() {
            // SAFETY: the caller has the memory from the system's allocator.
            let given = unsafe { System.realloc(address, layout, size) };
            if !given.is_null() {
                return given;
            }
        }
        // SAFETY: the caller passes a size that a layout may have. Both places have the bytes that are copied, and are different ones.
        unsafe {
            let given = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !given.is_null() {
                ptr::copy_nonoverlapping(address, given, size.min(layout.size()));
                self.dealloc(address, layout);
            }
            given
        }
    }
}

const NOTHING: Refusal = Refusal::no_memory(c"there is no memory for this");

/// Makes something that stays in use. If it took memory from the reserve, drops it again, and fails.
pub(crate) fn kept<T>(make: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    let Notes { has_taken, .. } = &own::try_own().ok_or(NOTHING)?.notes;
    let before = has_taken.replace(false);
    let made = make();
    match has_taken.replace(before) {
        false => made,
        true => {
            drop(made?);
            Err(NOTHING)
        }
    }
}

/// Before something small is allocated that stays in use, and that cannot be given back: fails if others need the reserve, and there is no
/// memory. So such requests do not use it up.
#[inline]
pub(crate) fn spare() -> Result<(), Refusal> {
    // Relaxed: a hint.
    match TAKEN.load(Ordering::Relaxed) {
        0 => Ok(()),
        _ => probe(),
    }
}

#[cold]
fn probe() -> Result<(), Refusal> {
    let mut memory = Vec::<u64>::new();
    closed(|| memory.try_reserve_exact(16)).map_err(|_| NOTHING)
}

/// Runs `request` without the reserve, unless not even the thread's block has room in the reserve. All its requests may be refused.
pub(crate) fn closed<A>(request: impl FnOnce() -> A) -> A {
    let Some(Notes { is_closed, .. }) = own::try_own().map(|own| &own.notes) else { return request() };
    let before = is_closed.replace(true);
    let answer = request();
    is_closed.set(before);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shelf as small as can be.
    type Small = Shelf<64, 2>;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).unwrap()
    }

    #[test]
    fn units_are_given_once_until_they_come_back() {
        let shelf = Small::new();
        let one: Vec<_> = (0..128).map(|_| shelf.take(layout(64)).unwrap()).collect();
        let mut units: Vec<_> = one.iter().map(|address| shelf.unit(*address).unwrap()).collect();
        units.sort_unstable();
        assert_eq!(units, (0..128).collect::<Vec<_>>());
        assert_eq!(shelf.take(layout(1)), None);
        shelf.give_back(5, 1);
        shelf.give_back(7, 64);
        assert_eq!(shelf.take(layout(65)), None, "units 5 and 7 are not side by side");
        shelf.give_back(6, 1);
        let three = shelf.take(layout(129)).unwrap();
        assert_eq!((shelf.unit(three), shelf.take(layout(1))), (Some(5), None));
        assert_eq!(shelf.unit(three.wrapping_add(63)), Some(5));
        assert_eq!(shelf.unit(ptr::from_ref(&shelf).cast::<u8>().cast_mut().wrapping_sub(1)), None);
    }

    #[test]
    fn a_request_takes_units_of_one_row() {
        let shelf = Small::new();
        assert_eq!(shelf.take(layout(64 * 64 + 1)), None);
        let row = shelf.take(layout(64 * 64)).unwrap();
        assert_eq!(shelf.unit(row), Some(0));
        shelf.take(layout(64 * 60)).unwrap();
        assert_eq!(shelf.take(layout(64 * 5)), None);
        assert_eq!(shelf.take(layout(64 * 4)).and_then(|address| shelf.unit(address)), Some(124));
        assert_eq!(shelf.take(Layout::from_size_align(1, 128).unwrap()), None);
    }
}
