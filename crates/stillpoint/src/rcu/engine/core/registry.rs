//! A set of padded slots that are claimed and released without locks, and never move.
//!
//! ```text
//!   chunks: [0]                  [1]                  [2] ...     1 word, 1 word, 2, 4, and so on
//!            words: bits, slots   words: bits, slots
//!            groups: count                            for each 64 words of a large chunk
//! ```
//!
//! A word has a bit for each claimed slot, and the block with these slots, which is allocated when one of them is claimed first.
//! Chunks, and blocks, are freed only with the registry. So a pointer to a slot stays valid as long as the registry, whichever
//! thread holds the slot meanwhile (type-stable memory).
//!
//! A walk over the claimed slots reads words in place of slots that are not claimed, and the count of a group in place of words
//! that are 0. So it takes time in proportion to what is claimed, after any crowd. The lowest slot that is free is claimed first,
//! so the first chunks, which are small, are the ones in use. The argument is step 45 in `docs/design/rcu.md`.

#[cfg(not(stillpoint_loom))]
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::slice;
// Not modelled: a hint.
use std::sync::atomic::AtomicUsize as PlainUsize;

use crossbeam_utils::CachePadded;

use crate::busted::{self, Variant};
use crate::rcu::orders;
use stillpoint_sys::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use stillpoint_sys::work;

/// Slots of a word.
const BITS: usize = if cfg!(stillpoint_loom) { 2 } else { 64 };
/// Slots of the first word, which has a chunk of its own.
const FIRST: usize = if cfg!(stillpoint_loom) { 2 } else { 8 };
/// Words of a group.
const GROUP: usize = if cfg!(stillpoint_loom) { 1 } else { 64 };
/// A chunk with fewer words has no groups: a walk reads its words.
const LARGE: usize = if cfg!(stillpoint_loom) { 1 } else { 16 };
/// The most chunks: more slots than an address space has room for.
const CHUNKS: usize = if cfg!(stillpoint_loom) { 4 } else { 32 };

pub(crate) struct Registry<T> {
    /// Null from the first chunk on that is not made yet.
    chunks: [AtomicPtr<Chunk<T>>; CHUNKS],
    /// No earlier word has a free slot, as far as is known. Claims begin to look here.
    hint: PlainUsize,
}

struct Chunk<T> {
    /// Number of words in the chunks before.
    begin: usize,
    words: Box<[Word<T>]>,
    /// The number of claimed slots in each group of words. Empty if the chunk is small.
    groups: Box<[AtomicUsize]>,
}

struct Word<T> {
    /// Bit i is set while slot i is claimed.
    claimed: AtomicU64,
    /// The slots; null until one is claimed.
    block: AtomicPtr<CachePadded<T>>,
}

/// A claimed slot. It must be given back to its registry, and must not outlive the registry.
pub(crate) struct Claim<T> {
    chunk: NonNull<Chunk<T>>,
    /// Number of the slot in its chunk.
    index: usize,
    slot: NonNull<T>,
}

#[cfg(not(stillpoint_loom))]
impl<T> Registry<T> {
    /// For debuggers.
    pub(crate) const LAYOUT: [usize; 10] = [
        offset_of!(Self, chunks),
        CHUNKS,
        offset_of!(Chunk<T>, begin),
        offset_of!(Chunk<T>, words),
        size_of::<Word<T>>(),
        offset_of!(Word<T>, claimed),
        offset_of!(Word<T>, block),
        BITS,
        FIRST,
        size_of::<CachePadded<T>>(),
    ];
}

impl<T: Default> Registry<T> {
    #[cfg(not(stillpoint_loom))]
    pub(crate) const fn new() -> Self {
        Self { chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS], hint: PlainUsize::new(0) }
    }

    /// Loom's atomics have no constant constructors.
    #[cfg(stillpoint_loom)]
    pub(crate) fn new() -> Self {
        Self { chunks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())), hint: PlainUsize::new(0) }
    }

    /// Claims a slot, as its last holder left it. Lock-free; allocates if all slots are claimed.
    ///
    /// Nearly always, the word of the hint has a free slot. Only this case is inlined into callers, so that the claim stays in
    /// registers.
    #[inline]
    pub(crate) fn claim(&self) -> Claim<T> {
        // Relaxed: a hint.
        let hint = self.hint.load(Ordering::Relaxed);
        let chunk = self.chunk(number_of(hint));
        match chunk.and_then(|chunk| chunk.try_claim(hint - chunk.begin)) {
            Some(claim) => claim,
            None => self.claim_elsewhere(hint),
        }
    }

    #[cold]
    #[inline(never)]
    fn claim_elsewhere(&self, hint: usize) -> Claim<T> {
        loop {
            // The hint may be too high.
            let claim = self.try_claim(hint, usize::MAX).or_else(|| self.try_claim(0, hint));
            match claim {
                Some(claim) => return claim,
                None => self.append(),
            }
        }
    }

    /// Claims a slot of one of the words with the numbers from `begin` on, and below `end`.
    fn try_claim(&self, begin: usize, end: usize) -> Option<Claim<T>> {
        for chunk in self.chunks() {
            let last = chunk.words.len().min(end.saturating_sub(chunk.begin));
            for word in begin.saturating_sub(chunk.begin)..last {
                if let Some(claim) = chunk.try_claim(word) {
                    let number = chunk.begin + word;
                    if number != begin {
                        // Relaxed: a hint. All words from the last hint on were full.
                        self.hint.store(number, Ordering::Relaxed);
                    }
                    return Some(claim);
                }
            }
        }
        None
    }

    /// Appends a chunk, or another thread does.
    fn append(&self) {
        let number = self.chunks().count();
        let begin = if number > 0 { 1 << (number - 1) } else { 0 };
        let chunk = Box::into_raw(Box::new(Chunk::new(begin)));
        // Release: publishes the chunk, for the acquire in `chunk`. Relaxed on failure: the next walk acquires.
        if self.chunks[number]
            .compare_exchange(ptr::null_mut(), chunk, Ordering::Release, Ordering::Relaxed)
            .is_err()
        {
            // SAFETY: `chunk` came from `Box::into_raw` above and was not published.
            drop(unsafe { Box::from_raw(chunk) });
        }
    }

    /// Gives a slot back. Everything that the holder did happens before what a scan does after it no longer sees the slot
    /// claimed.
    pub(crate) fn release(&self, claim: &Claim<T>) {
        // SAFETY: chunks live as long as the registry, which `claim` does not outlive.
        let chunk = unsafe { claim.chunk.as_ref() };
        let word = claim.index / BITS;
        chunk.words[word].claimed.fetch_and(!(1 << (claim.index % BITS)), orders::release());
        if let Some(count) = chunk.groups.get(word / GROUP) {
            if !busted::is(Variant::GroupCleared) {
                count.fetch_sub(1, orders::group_left());
            } else if chunk.words[word].claimed.load(Ordering::Acquire) == 0 {
                count.store(0, Ordering::Release);
            }
        }
        let number = chunk.begin + word;
        // Relaxed, both: a hint.
        if number < self.hint.load(Ordering::Relaxed) {
            self.hint.store(number, Ordering::Relaxed);
        }
    }

    /// The claim of the slot that contains this address, for the holder. Compares one address for each block of slots that was ever
    /// made.
    #[cfg(not(stillpoint_loom))]
    pub(crate) fn claim_at(&self, address: usize) -> Option<Claim<T>> {
        self.chunks().find_map(|chunk| {
            (0..chunk.words.len()).find_map(|word| {
                work::step();
                let block = chunk.block(word)?;
                let offset = address.checked_sub(block.as_ptr().addr())?;
                let index = offset / size_of::<CachePadded<T>>();
                (index < block.len()).then(|| Claim::new(chunk, word * BITS + index))
            })
        })
    }

    /// Every slot that is claimed while the iterator passes it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.claimed_from(0).inspect(|_| work::step()).map(|(chunk, index)| chunk.slot(index))
    }

    /// As [`iter`](Registry::iter), with the claims: for a caller that may release what others hold.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&T, Claim<T>)> {
        self.circle_from(0)
    }

    /// As [`claims`](Registry::claims), in a circle from this number on.
    pub(crate) fn circle_from(&self, from: usize) -> impl Iterator<Item = (&T, Claim<T>)> {
        let rest = self.claimed_from(0).take_while(move |(chunk, index)| chunk.begin * BITS + index < from);
        let claimed = self.claimed_from(from).chain(rest);
        claimed.map(|(chunk, index)| (chunk.slot(index), Claim::new(chunk, index)))
    }

    /// A claimed slot whose number is not below `from`, in a circle, if there is one in the next two words; and the number to go on
    /// from. Callers that each take a look come to every slot.
    #[inline]
    pub(crate) fn look_from(&self, from: usize) -> (Option<(&T, Claim<T>)>, usize) {
        let mut claimed = self.claimed_from(from);
        if claimed.bits == 0 && !claimed.step() {
            claimed = self.claimed_from(0);
        }
        match claimed.in_word() {
            Some((chunk, index)) => {
                let claim = Claim::new(chunk, index);
                let next = claim.number() + 1;
                (Some((chunk.slot(index), claim)), next)
            }
            None => (None, claimed.chunk.map_or(0, |chunk| (chunk.begin + claimed.word) * BITS)),
        }
    }

    /// Every slot that was ever claimed.
    pub(crate) fn iter_all(&self) -> impl Iterator<Item = &T> {
        let blocks =
            self.chunks().flat_map(|chunk| (0..chunk.words.len()).filter_map(|word| chunk.block(word)));
        blocks.flat_map(|block| block.iter().inspect(|_| work::step()).map(|slot| &**slot))
    }

    /// The claimed slots from this number on.
    #[inline]
    fn claimed_from(&self, slot: usize) -> Claimed<'_, T> {
        let word = slot / BITS;
        let number = number_of(word);
        let mut claimed =
            Claimed { chunks: &self.chunks, number, chunk: self.chunk(number), word: 0, bits: 0 };
        if let Some(chunk) = claimed.chunk {
            claimed.word = word - chunk.begin;
            claimed.bits = chunk.bits(claimed.word) & (u64::MAX << (slot % BITS));
            claimed.word += 1;
        }
        claimed
    }

    fn chunks(&self) -> impl Iterator<Item = &Chunk<T>> {
        (0..CHUNKS).map_while(|number| self.chunk(number))
    }

    #[inline]
    fn chunk(&self, number: usize) -> Option<&Chunk<T>> {
        chunk_at(&self.chunks, number)
    }
}

/// The chunk with this number, if it was made.
#[inline]
fn chunk_at<T>(chunks: &[AtomicPtr<Chunk<T>>; CHUNKS], number: usize) -> Option<&Chunk<T>> {
    // Acquire: pairs with the release in `append`.
    // SAFETY: null, or a chunk that `append` has published. Chunks are freed only with the registry, which is borrowed.
    let chunk = unsafe { chunks.get(number)?.load(Ordering::Acquire).as_ref() };
    chunk.inspect(|_| work::step())
}

/// The number of the chunk that has this word: each chunk but the first has as many words as there are before it.
fn number_of(word: usize) -> usize {
    (usize::BITS - word.leading_zeros()) as usize
}

/// The chunks and indices of the slots that are claimed when the iterator passes them.
struct Claimed<'r, T> {
    chunks: &'r [AtomicPtr<Chunk<T>>; CHUNKS],
    /// Number of the chunk.
    number: usize,
    chunk: Option<&'r Chunk<T>>,
    /// The next word of the chunk.
    word: usize,
    /// The slots of the word before that are still to come.
    bits: u64,
}

impl<'r, T> Claimed<'r, T> {
    /// The next slot of the word.
    #[inline]
    fn in_word(&mut self) -> Option<(&'r Chunk<T>, usize)> {
        let chunk = self.chunk.filter(|_| self.bits != 0)?;
        let bit = self.bits.trailing_zeros() as usize;
        self.bits &= self.bits - 1;
        Some((chunk, (self.word - 1) * BITS + bit))
    }

    /// Goes on to the next word, or past a group that is free. False at the end.
    #[inline]
    fn step(&mut self) -> bool {
        let Some(mut chunk) = self.chunk else { return false };
        if self.word >= chunk.words.len() {
            self.number += 1;
            self.chunk = chunk_at(self.chunks, self.number);
            let Some(next) = self.chunk else { return false };
            (chunk, self.word) = (next, 0);
        }
        if self.word % GROUP == 0 && chunk.is_free(self.word / GROUP) {
            self.word += GROUP;
        } else {
            self.bits = chunk.bits(self.word);
            self.word += 1;
        }
        true
    }
}

impl<'r, T> Iterator for Claimed<'r, T> {
    type Item = (&'r Chunk<T>, usize);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.bits == 0 {
            if !self.step() {
                return None;
            }
        }
        self.in_word()
    }
}

impl<T> Chunk<T> {
    /// Number of slots in each block.
    fn block_len(&self) -> usize {
        if self.begin == 0 {
            FIRST
        } else {
            BITS
        }
    }

    /// Whether no slot of this group is claimed. False if the chunk has no groups.
    fn is_free(&self, group: usize) -> bool {
        self.groups.get(group).is_some_and(|count| {
            work::step();
            count.load(orders::group()) == 0
        })
    }

    /// The claimed slots of a word.
    #[inline]
    fn bits(&self, word: usize) -> u64 {
        work::step();
        self.words[word].claimed.load(orders::claimed())
    }

    /// The slots of a word; `None` if none of them was ever claimed.
    #[inline]
    fn block(&self, word: usize) -> Option<&[CachePadded<T>]> {
        // Acquire: pairs with the release in `make_block`.
        let block = NonNull::new(self.words[word].block.load(Ordering::Acquire))?;
        // SAFETY: `make_block` has published a block of this length, which is freed with the chunk.
        Some(unsafe { slice::from_raw_parts(block.as_ptr(), self.block_len()) })
    }

    /// A slot that is or was claimed.
    #[inline]
    fn slot(&self, index: usize) -> &T {
        let block = self.block(index / BITS);
        &block.expect("a claimed slot was made before")[index % BITS]
    }
}

impl<T: Default> Chunk<T> {
    /// The chunk that begins with the word of this number: as many words as there are before it.
    fn new(begin: usize) -> Self {
        let words = begin.max(1);
        let groups = if begin > 0 && words >= LARGE { words.div_ceil(GROUP) } else { 0 };
        let free = || Word { claimed: AtomicU64::new(0), block: AtomicPtr::new(ptr::null_mut()) };
        Self {
            begin,
            words: (0..words).map(|_| free()).collect(),
            groups: (0..groups).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// Claims a slot of this word, the lowest one that is free.
    #[inline]
    fn try_claim(&self, number: usize) -> Option<Claim<T>> {
        work::step();
        let word = &self.words[number];
        let len = self.block_len();
        // Relaxed: only a hint where to try first.
        let mut claimed = word.claimed.load(Ordering::Relaxed);
        let is_full = |claimed: u64| claimed.trailing_ones() as usize >= len;
        if is_full(claimed) {
            return None;
        }
        let block = match self.block(number) {
            Some(block) => block,
            None => self.make_block(number),
        };
        let group = self.groups.get(number / GROUP);
        if let Some(count) = group {
            // Relaxed: before the holder's fence, as the bit. A walk that skips the group sees a later change.
            count.fetch_add(1, Ordering::Relaxed);
        }
        while !is_full(claimed) {
            let index = claimed.trailing_ones() as usize;
            match word.claimed.compare_exchange_weak(
                claimed,
                claimed | 1 << index,
                orders::claim(),
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    let (chunk, slot) = (NonNull::from(self), NonNull::from(&*block[index]));
                    return Some(Claim { chunk, index: number * BITS + index, slot });
                }
                Err(now) => claimed = now,
            }
        }
        if let Some(count) = group {
            // Relaxed: it continues the release sequences of earlier changes, and no slot was held.
            count.fetch_sub(1, Ordering::Relaxed);
        }
        None
    }

    /// Makes the slots of a word, or another thread does.
    #[cold]
    fn make_block(&self, number: usize) -> &[CachePadded<T>] {
        let block: Box<[CachePadded<T>]> = (0..self.block_len()).map(|_| CachePadded::default()).collect();
        let block = Box::into_raw(block);
        // Release: publishes the block, for the acquire in `block`. Relaxed on failure: the load below acquires.
        let answer = self.words[number].block.compare_exchange(
            ptr::null_mut(),
            block.cast(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        if answer.is_err() {
            // SAFETY: `block` came from `Box::into_raw` above and was not published.
            drop(unsafe { Box::from_raw(block) });
        }
        self.block(number).expect("it was made just now")
    }
}

impl<T> Claim<T> {
    fn new(chunk: &Chunk<T>, index: usize) -> Self {
        Self { chunk: NonNull::from(chunk), index, slot: NonNull::from(chunk.slot(index)) }
    }

    /// The number of the slot in its registry, which is alive.
    pub(crate) fn number(&self) -> usize {
        // SAFETY: chunks live as long as the registry, which the claim does not outlive.
        unsafe { self.chunk.as_ref() }.begin * BITS + self.index
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

impl<T> Drop for Chunk<T> {
    fn drop(&mut self) {
        let len = self.block_len();
        for word in &self.words {
            // Acquire: pairs with the release in `make_block`, although the drop has the chunk exclusively.
            let block = word.block.load(Ordering::Acquire);
            if !block.is_null() {
                // SAFETY: it came from `Box::into_raw` in `make_block`, with this length, and nothing refers to it.
                drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(block, len)) });
            }
        }
    }
}

impl<T> Drop for Registry<T> {
    fn drop(&mut self) {
        for chunk in &self.chunks {
            // Acquire: pairs with the release in `append`, although the drop has the registry exclusively.
            let chunk = chunk.load(Ordering::Acquire);
            if !chunk.is_null() {
                // SAFETY: it came from `Box::into_raw` in `append`, and nothing refers to it, as the registry is dropped.
                drop(unsafe { Box::from_raw(chunk) });
            }
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
        assert!(slots < 1000 + BITS, "{slots}");
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
    /// The time of a walk and of a claim does not depend on a crowd that has gone, in whichever order.
    #[test]
    fn walks_go_over_what_is_in_use() {
        const CROWD: usize = if cfg!(miri) { 3_000 } else { 100_000 };
        // Chunks, their groups, and the words of small chunks.
        let bound = 2 * LARGE + CROWD / (BITS * GROUP) + 2 * CROWD.ilog2() as usize;
        for is_reversed in [false, true] {
            let registry = Registry::<AtomicUsize>::new();
            let mut steps = 0;
            let mut claims: Vec<_> = (0..CROWD)
                .map(|_| {
                    let (more, claim) = work::steps_of(|| registry.claim());
                    steps += more;
                    claim
                })
                .collect();
            assert!(steps <= CROWD * 20, "{steps} steps for {CROWD} claims");
            assert_eq!(registry.iter().count(), CROWD);
            if is_reversed {
                claims.reverse();
            }
            let last = claims.pop().expect("there is one");
            claims.iter().for_each(|claim| registry.release(claim));
            // The last one of the crowd may be in the largest chunk.
            let (steps, number) = work::steps_of(|| registry.iter().count());
            assert!(number == 1 && steps <= bound + GROUP, "{steps} steps, and at most {bound} are allowed");
            registry.release(&last);
            let (steps, number) = work::steps_of(|| registry.iter().count());
            assert!(number == 0 && steps <= bound, "{steps} steps, and at most {bound} are allowed");
            let (steps, claim) = work::steps_of(|| registry.claim());
            assert!(steps <= 4, "{steps} steps");
            assert_eq!(claim.index, 0, "the lowest slot is claimed first");
            let (steps, ()) = work::steps_of(|| registry.release(&claim));
            assert_eq!(steps, 0);
        }
    }

    /// Whatever is claimed is found from any number on, in a circle, by looks that each go over little.
    #[test]
    fn looks_go_full_circle() {
        let registry = Registry::<AtomicUsize>::new();
        assert!(registry.look_from(0).0.is_none());
        let claims: Vec<_> = (0..3_000).map(|_| registry.claim()).collect();
        let (kept, gone): (Vec<_>, Vec<_>) = claims.iter().partition(|claim| claim.index % 97 == 5);
        gone.iter().for_each(|claim| registry.release(claim));
        let (mut seen, mut from) = (Vec::new(), 0);
        while seen.len() < 2 * kept.len() {
            let (steps, (found, next)) = work::steps_of(|| registry.look_from(from));
            assert!(steps <= 8, "{steps} steps");
            seen.extend(found.map(|(slot, _)| ptr::from_ref(slot)));
            from = next;
        }
        let (once, again) = seen.split_at(kept.len());
        assert_eq!(once, again);
        assert!(kept.iter().all(|claim| once.contains(&claim.slot.as_ptr().cast_const())));
    }
}
