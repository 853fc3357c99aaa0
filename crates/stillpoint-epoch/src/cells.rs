//! Memory for small closures. One allocation holds 63.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Words in a cell: the size of the largest closure that fits.
const WORDS: usize = 3;
/// Cells of a block. With the count of cells, a block is just below 1.5 KiB.
const CELLS: usize = 63;

type Memory = UnsafeCell<MaybeUninit<[usize; WORDS]>>;

struct Block {
    /// Cells that were not given up yet. A cell is given up by the thread that has taken its closure, or, if it is
    /// free, by the drop of the local.
    left: AtomicUsize,
    cells: [Memory; CELLS],
}

impl Block {
    fn new() -> NonNull<Self> {
        let block = Box::into_raw(Box::<Self>::new_uninit()).cast::<Self>();
        // SAFETY: the block was allocated just now, and the cells need no contents.
        unsafe { (&raw mut (*block).left).write(AtomicUsize::new(CELLS)) };
        NonNull::new(block).expect("a box is not null")
    }

    /// Gives up `cells` cells, and frees the block after its last one.
    ///
    /// # Safety
    /// The block is alive. The caller owns the cells, and does not use them any more.
    unsafe fn give_up(block: NonNull<Self>, cells: usize) {
        // SAFETY: the block is alive until the count is 0.
        let left = unsafe { &(*block.as_ptr()).left };
        // Release: the decrement comes after all reads of the cells. Acquire: pairs with the releases of all other
        // decrements, which the last decrement reads as one release sequence.
        if left.fetch_sub(cells, Ordering::AcqRel) == cells {
            // SAFETY: the block came from a box of the same layout, and no thread has a cell of it any more.
            drop(unsafe { Box::from_raw(block.as_ptr().cast::<MaybeUninit<Self>>()) });
        }
    }
}

/// The cells of a local.
pub(crate) struct Cells {
    block: Cell<Option<NonNull<Block>>>,
    /// Number of cells of the block that were taken.
    taken: Cell<usize>,
}

/// The place of a closure.
pub(crate) struct Place {
    pub(crate) address: NonNull<()>,
    pub(crate) block: *const (),
}

impl Cells {
    pub(crate) const fn new() -> Self {
        Self { block: Cell::new(None), taken: Cell::new(0) }
    }

    /// Whether a cell has room for such a closure.
    pub(crate) const fn fits<F>() -> bool {
        size_of::<F>() <= size_of::<Memory>() && align_of::<F>() <= align_of::<Memory>()
    }

    /// Puts a closure into a free cell, which [`take`] gives up.
    pub(crate) fn put<F>(&self, function: F) -> Place {
        assert!(Self::fits::<F>(), "the closure is too large for a cell");
        while self.block.get().is_none() {
            let made = Block::new();
            match self.block.get() {
                None => self.block.set(Some(made)),
                // The allocator has put closures into cells itself.
                // SAFETY: this call owns all cells of the block that it has made.
                Some(_) => unsafe { Block::give_up(made, CELLS) },
            }
        }
        let block = self.block.get().expect("there is one now");
        let taken = self.taken.get();
        // SAFETY: the block is alive, since this cell was not given up. No other thread has the cell.
        let cell = unsafe { (&raw mut (*block.as_ptr()).cells[taken]).cast::<F>() };
        // SAFETY: the cell has room for the closure, by the assertion.
        unsafe { cell.write(function) };
        let is_last = taken + 1 == CELLS;
        self.block.set((!is_last).then_some(block));
        self.taken.set(if is_last { 0 } else { taken + 1 });
        Place {
            address: NonNull::new(cell.cast()).expect("a cell is in a block"),
            block: block.as_ptr().cast(),
        }
    }
}

/// Gives up the cells that were not taken.
impl Drop for Cells {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            // SAFETY: this value owns the cells that were not taken. There is at least one, since a full block is not
            // kept.
            unsafe { Block::give_up(block, CELLS - self.taken.get()) };
        }
    }
}

/// Takes the closure out of its cell, and gives the cell up.
///
/// # Safety
/// The place is that of a closure of this type, and is not used again.
pub(crate) unsafe fn take<F>(address: NonNull<()>, block: *const ()) -> F {
    // SAFETY: the place is that of a closure of this type, which is not used again, by the caller's promise.
    let function = unsafe { ptr::read(address.cast::<F>().as_ptr()) };
    let block = NonNull::new(block.cast::<Block>().cast_mut()).expect("a cell has a block");
    // SAFETY: the closure was read, and no other thread has the cell.
    unsafe { Block::give_up(block, 1) };
    function
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Takes a number out of its cell.
    fn number_at(place: &Place) -> usize {
        // SAFETY: the tests put numbers there, and take each once.
        unsafe { take(place.address, place.block) }
    }

    #[test]
    fn what_was_put_into_cells_comes_out() {
        let cells = Cells::new();
        let places: Vec<Place> = (0..4 * CELLS + 5).map(|number| cells.put(number)).collect();
        // The local may be dropped first.
        drop(cells);
        for (number, place) in places.iter().enumerate().rev() {
            assert_eq!(number_at(place), number);
        }
    }

    #[test]
    fn sixty_three_closures_share_a_block() {
        let cells = Cells::new();
        let places: Vec<Place> = (0..CELLS + 1).map(|number| cells.put(number)).collect();
        assert!(places[..CELLS].iter().all(|place| place.block == places[0].block));
        assert_ne!(places[CELLS].block, places[0].block);
        assert_eq!(places.iter().map(number_at).sum::<usize>(), CELLS * (CELLS + 1) / 2);
    }

    #[test]
    fn three_words_fit_and_four_do_not() {
        assert!(Cells::fits::<[usize; 3]>() && Cells::fits::<()>() && Cells::fits::<u8>());
        assert!(!Cells::fits::<[usize; 4]>());
        #[repr(align(16))]
        struct Wide;
        assert!(!Cells::fits::<Wide>());
    }

    /// For Miri and the sanitizers: closures with padding, and threads that give up cells of the same block.
    #[test]
    fn cells_are_given_up_by_any_thread() {
        let cells = Cells::new();
        let owner = Arc::new(());
        let closures = 3 * CELLS;
        let places: Vec<(usize, usize)> = (0..closures)
            .map(|_| {
                let (owner, small) = (Arc::clone(&owner), 1_u8);
                let place = cells.put((owner, small));
                (place.address.as_ptr().expose_provenance(), place.block.expose_provenance())
            })
            .collect();
        drop(cells);
        std::thread::scope(|scope| {
            for share in places.chunks(closures / 3 + 1) {
                scope.spawn(move || {
                    for &(address, block) in share {
                        let address = NonNull::new(ptr::with_exposed_provenance_mut(address)).unwrap();
                        // SAFETY: each closure is taken once, with the type that was put there.
                        drop(unsafe { take::<(Arc<()>, u8)>(address, ptr::with_exposed_provenance(block)) });
                    }
                });
            }
        });
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}
