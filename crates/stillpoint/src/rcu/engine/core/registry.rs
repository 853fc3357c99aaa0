//! A set of padded slots that are claimed and released without locks, and never move.
//!
//! Slots live in chunks. A chunk is appended when all slots are claimed, and freed only with the registry. So a
//! pointer to a slot stays valid as long as the registry, whichever thread holds the slot meanwhile (type-stable
//! memory). Each chunk has one word with a bit for each claimed slot. A scan reads the word instead of the slots
//! that are not claimed.

use std::ptr::{self, NonNull};

use crossbeam_utils::CachePadded;

use crate::rcu::orders;
use stillpoint_sys::bits::bits;
use stillpoint_sys::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use stillpoint_sys::work;

/// Slots of the first chunk. Each further chunk has twice as many, up to the number of bits in a word.
const FIRST_CHUNK: usize = if cfg!(stillpoint_loom) { 2 } else { 8 };
const LARGEST_CHUNK: usize = 64;

#[derive(Debug)]
pub(crate) struct Registry<T> {
    newest: AtomicPtr<Chunk<T>>,
}

#[derive(Debug)]
struct Chunk<T> {
    /// Bit i is set while slot i is claimed.
    claimed: CachePadded<AtomicU64>,
    slots: Box<[CachePadded<T>]>,
    older: *mut Chunk<T>,
}

/// A claimed slot. It must be given back to its registry, and must not outlive the registry.
#[derive(Debug)]
pub(crate) struct Claim<T> {
    chunk: NonNull<Chunk<T>>,
    index: usize,
    /// A slot of the chunk.
    slot: NonNull<T>,
}

impl<T: Default> Registry<T> {
    #[cfg(not(stillpoint_loom))]
    pub(crate) const fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Loom's atomics have no constant constructors.
    #[cfg(stillpoint_loom)]
    pub(crate) fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Claims a slot, as its last holder left it. Lock-free; allocates if all slots are claimed.
    pub(crate) fn claim(&self) -> Claim<T> {
        loop {
            // Acquire: pairs with the release in the exchange below, as the chunk is accessed.
            let newest = self.newest.load(Ordering::Acquire);
            if let Some(claim) = self.chunks_from(newest).find_map(Chunk::try_claim) {
                return claim;
            }
            let slots = self
                .chunks_from(newest)
                .next()
                .map_or(FIRST_CHUNK, |chunk| (chunk.slots.len() * 2).min(LARGEST_CHUNK));
            let chunk = Box::into_raw(Box::new(Chunk::new(slots, newest)));
            // Release: publishes the chunk. On failure, the next iteration acquires.
            if self.newest.compare_exchange(newest, chunk, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                // Another thread has appended a chunk meanwhile: try that one.
                // SAFETY: `chunk` came from `Box::into_raw` above and was not published.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
    }

    /// Gives a slot back. Everything that the holder did happens before what a scan does after it no longer sees the slot
    /// claimed.
    pub(crate) fn release(&self, claim: &Claim<T>) {
        // SAFETY: chunks live as long as the registry, which `claim` does not outlive.
        let chunk = unsafe { claim.chunk.as_ref() };
        chunk.claimed.fetch_and(!(1 << claim.index), orders::release());
    }

    /// The claim of the slot that contains this address, for the holder. Takes time in proportion to the number of chunks.
    #[cfg(not(stillpoint_loom))]
    pub(crate) fn claim_at(&self, address: usize) -> Option<Claim<T>> {
        // Acquire: as in `iter`.
        self.chunks_from(self.newest.load(Ordering::Acquire)).find_map(|chunk| {
            let offset = address.checked_sub(chunk.slots.as_ptr().addr())?;
            let index = offset / size_of::<CachePadded<T>>();
            (index < chunk.slots.len()).then(|| Claim::new(chunk, index))
        })
    }

    /// Every slot that is claimed while the iterator passes it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        // Acquire: pairs with the release in `claim` that published the chunk.
        self.chunks_from(self.newest.load(Ordering::Acquire)).flat_map(|chunk| {
            bits(chunk.claimed.load(orders::claimed()))
                .inspect(|_| work::step())
                .map(|index| &*chunk.slots[index as usize])
        })
    }

    /// As [`iter`](Registry::iter), with the claims: for a caller that may release what others hold.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&T, Claim<T>)> {
        // Acquire, both: as in `iter`.
        self.chunks_from(self.newest.load(Ordering::Acquire)).flat_map(|chunk| {
            bits(chunk.claimed.load(Ordering::Acquire)).map(move |index| {
                let claim = Claim::new(chunk, index as usize);
                (&*chunk.slots[claim.index], claim)
            })
        })
    }

    /// Every slot there is, claimed or not.
    pub(crate) fn iter_all(&self) -> impl Iterator<Item = &T> {
        // Acquire: pairs with the release in `claim` that published the chunk.
        let newest = self.newest.load(Ordering::Acquire);
        self.chunks_from(newest)
            .flat_map(|chunk| chunk.slots.iter().inspect(|_| work::step()).map(|slot| &**slot))
    }

    /// The slot with this number, modulo the number of slots, claimed or not. `None` if there are no slots. Takes time in
    /// proportion to the number of chunks.
    pub(crate) fn any(&self, number: usize) -> Option<&T> {
        // Acquire: as in `iter_all`.
        let newest = self.newest.load(Ordering::Acquire);
        let slots = self.chunks_from(newest).map(|chunk| chunk.slots.len()).sum::<usize>();
        let mut at = number.checked_rem(slots)?;
        for chunk in self.chunks_from(newest) {
            match chunk.slots.get(at) {
                Some(slot) => return Some(slot),
                None => at -= chunk.slots.len(),
            }
        }
        None
    }

    fn chunks_from(&self, mut next: *mut Chunk<T>) -> impl Iterator<Item = &Chunk<T>> {
        std::iter::from_fn(move || {
            // SAFETY: null, or a chunk that `claim` published and an acquire load read. Chunks are freed
            // only with the registry, which is borrowed.
            let chunk = unsafe { next.as_ref() }?;
            work::step();
            next = chunk.older;
            Some(chunk)
        })
    }
}

impl<T: Default> Chunk<T> {
    fn new(slots: usize, older: *mut Self) -> Self {
        Self {
            claimed: CachePadded::new(AtomicU64::new(0)),
            slots: (0..slots).map(|_| CachePadded::new(T::default())).collect(),
            older,
        }
    }

    fn try_claim(&self) -> Option<Claim<T>> {
        // Relaxed: only a hint where to try first.
        let mut claimed = self.claimed.load(Ordering::Relaxed);
        loop {
            let index = claimed.trailing_ones() as usize;
            if index >= self.slots.len() {
                return None;
            }
            match self.claimed.compare_exchange_weak(
                claimed,
                claimed | 1 << index,
                orders::claim(),
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(Claim::new(self, index)),
                Err(now) => claimed = now,
            }
        }
    }
}

impl<T> Claim<T> {
    fn new(chunk: &Chunk<T>, index: usize) -> Self {
        Self { chunk: NonNull::from(chunk), index, slot: NonNull::from(&*chunk.slots[index]) }
    }

    /// The slot.
    ///
    /// # Safety
    /// The registry is alive for as long as `'r`.
    #[inline(always)]
    pub(crate) unsafe fn slot<'r>(&self) -> &'r T {
        // SAFETY: chunks and their slots live as long as the registry, which is alive for `'r` by the caller's promise.
        unsafe { self.slot.as_ref() }
    }
}

impl<T> Drop for Registry<T> {
    fn drop(&mut self) {
        // Acquire: pairs with the release in `claim`, although the drop has the registry exclusively.
        let mut next = self.newest.load(Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: each chunk came from `Box::into_raw` and is in the list once; nothing refers to it, as
            // the registry is dropped.
            let chunk = unsafe { Box::from_raw(next) };
            next = chunk.older;
        }
    }
}

// SAFETY: the registry owns its chunks and hands out shared references to slots, to any thread.
unsafe impl<T: Send + Sync> Send for Registry<T> {}
// SAFETY: all mutation goes through atomics, and slots are `Sync`.
unsafe impl<T: Send + Sync> Sync for Registry<T> {}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn there_is_no_upper_limit_and_slots_are_reused() {
        let registry = Registry::<AtomicUsize>::new();
        let claims: Vec<_> = (0..1000).map(|_| registry.claim()).collect();
        for (value, claim) in claims.iter().enumerate() {
            // SAFETY: the registry is alive.
            unsafe { claim.slot() }.store(value, Ordering::Relaxed);
        }
        let mut seen: Vec<_> = registry.iter().map(|slot| slot.load(Ordering::Relaxed)).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());

        let slots = registry.iter_all().count();
        claims.iter().for_each(|claim| registry.release(claim));
        assert_eq!(registry.iter().count(), 0);
        let again: Vec<_> = (0..1000).map(|_| registry.claim()).collect();
        assert_eq!(again.len(), 1000);
        assert_eq!(registry.iter_all().count(), slots, "released slots are claimed again");
    }

    #[test]
    fn a_claim_is_found_by_any_address_in_its_slot() {
        let registry = Registry::<AtomicUsize>::new();
        assert!(registry.claim_at(4096).is_none());
        let claims: Vec<_> = (0..100).map(|_| registry.claim()).collect();
        for claim in &claims {
            let address = claim.slot.addr().get();
            for address in [address, address + 1, address + size_of::<CachePadded<AtomicUsize>>() - 1] {
                let found = registry.claim_at(address).expect("it is one of the registry's");
                assert_eq!((found.chunk, found.index, found.slot), (claim.chunk, claim.index, claim.slot));
            }
        }
        assert!(registry.claim_at(usize::MAX).is_none());
    }

    #[test]
    fn no_slot_has_two_holders() {
        let registry = Registry::<AtomicUsize>::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let claim = registry.claim();
                        // SAFETY: the registry is alive.
                        let slot = unsafe { claim.slot() };
                        assert_eq!(slot.fetch_add(1, Ordering::Relaxed), 0);
                        assert_eq!(slot.fetch_sub(1, Ordering::Relaxed), 1);
                        registry.release(&claim);
                    }
                });
            }
        });
        assert_eq!(registry.iter().count(), 0);
    }
}
