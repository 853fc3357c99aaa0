//! The readers' protocol.

use std::borrow::Borrow;
use std::ptr::{self, NonNull};

use super::arena::{Arena, Lens, Pair};
use super::array::{Array, View};
use super::bucket::{tag_of, Bucket, END, MOVED, NO_ENTRY};
use super::Inner;
use crate::fence::ReaderFence;
use crate::rcu::engine::core::read::protect_from;
use crate::rcu::engine::core::record::{clear_hazard, set_hazard, Hazard, Record};
use crate::table::busted::{self, Variant};
use crate::table::orders;
use stillpoint_sys::sync::atomic::Ordering;

/// What the search of one chain found out.
pub(crate) enum Found<T> {
    Entry(T),
    Absent,
    /// The chain's entries are in the next array.
    Moved,
}

/// An entry that a hazard slot holds, which is cleared when this is dropped.
pub(crate) struct Held<'a, K, V> {
    pair: NonNull<Pair<K, V>>,
    /// Its index.
    pub(crate) entry: u32,
    /// Where it was found, if that is in the array which the reader has pinned for longer than one search.
    pub(crate) found: Option<Place>,
    hazard: &'a Hazard,
}

/// A slot of a bucket, by its address.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) bucket: NonNull<Bucket>,
    pub(crate) slot: usize,
}

impl<'a, K, V> Held<'a, K, V> {
    /// # Safety
    /// The hazard slot holds the address of the entry's pair, and did so when the pair was linked, or before.
    #[inline(always)]
    pub(crate) unsafe fn new(lens: Lens<'_, K, V>, entry: u32, hazard: &'a Hazard) -> Self {
        Self { pair: lens.pair(entry), entry, found: None, hazard }
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> &Pair<K, V> {
        // SAFETY: the slot holds it, by the promise of `new`.
        unsafe { self.pair.as_ref() }
    }
}

impl<K, V> Drop for Held<'_, K, V> {
    #[inline(always)]
    fn drop(&mut self) {
        clear_hazard(self.hazard);
    }
}

/// Pins the entry in a slot of a bucket. `None`, and a clear hazard slot, when there is none.
///
/// The word that is loaded again is the one that the mover and every remover overwrite before the entry can be
/// retired, so the reload proves that the entry was linked after the hazard slot was set.
#[inline(always)]
fn protect<'a, K, V>(
    lens: Lens<'_, K, V>,
    bucket: &Bucket,
    slot: usize,
    fence: ReaderFence,
    hazard: &'a Hazard,
) -> Option<Held<'a, K, V>> {
    let word = bucket.word(slot);
    let mut candidate = word.load(orders::candidate());
    while candidate != NO_ENTRY {
        let pair = lens.pair(candidate);
        set_hazard(hazard, pair.as_ptr().cast());
        if !busted::is(Variant::NoLight) {
            fence.issue();
        }
        let is_reloaded = !busted::is(Variant::NoReload);
        let current = if is_reloaded { word.load(orders::confirm()) } else { candidate };
        if current == candidate {
            let found = Some(Place { bucket: NonNull::from(bucket), slot });
            return Some(Held { pair, entry: candidate, found, hazard });
        }
        candidate = current;
    }
    clear_hazard(hazard);
    None
}

/// Looks a key up in one bucket, and pins the entry.
///
/// The key is compared after the load is confirmed: only then is the entry known to be alive.
///
/// # Safety
/// The hazard slot is one of a reader of the table's domain, in `mode`, and used for nothing else during `'a`. The
/// bucket's array is pinned.
#[inline(always)]
unsafe fn search_bucket_protected<'a, K: Borrow<Q>, V, Q: Eq + ?Sized>(
    lens: Lens<'_, K, V>,
    bucket: &Bucket,
    tag: u16,
    key: &Q,
    fence: ReaderFence,
    hazard: &'a Hazard,
) -> Option<Held<'a, K, V>> {
    // A loop, here and below: `find_map` may become a call.
    for slot in bucket.matching(tag) {
        if busted::is(Variant::CompareFirst) {
            let entry = bucket.word(slot).load(Ordering::Acquire);
            // SAFETY: none; this is what the broken variant is about.
            if entry == NO_ENTRY || unsafe { lens.pair(entry).as_ref() }.key.borrow() != key {
                continue;
            }
        }
        if let Some(held) = protect(lens, bucket, slot, fence, hazard) {
            if held.get().key.borrow() == key {
                return Some(held);
            }
        }
    }
    None
}

/// Looks a key up in the chain that its hash belongs to, and pins the entry.
///
/// # Safety
/// As for [`search_bucket_protected`], with the view's array.
unsafe fn search_chain_protected<'a, K: Borrow<Q>, V, Q: Eq + ?Sized>(
    lens: Lens<'_, K, V>,
    view: View<'_>,
    hash: u64,
    key: &Q,
    fence: ReaderFence,
    hazard: &'a Hazard,
) -> Found<Held<'a, K, V>> {
    let mut bucket = view.bucket(hash);
    loop {
        // SAFETY: the caller's promise.
        let held = unsafe { search_bucket_protected(lens, bucket, tag_of(hash), key, fence, hazard) };
        if let Some(held) = held {
            return Found::Entry(held);
        }
        match bucket.link() {
            END => return Found::Absent,
            MOVED if busted::is(Variant::IgnoreMark) => return Found::Absent,
            MOVED => return Found::Moved,
            link => bucket = view.array.overflow(link),
        }
    }
}

/// Looks a key up in one bucket, for whoever holds a region.
///
/// # Safety
/// The caller is in a region of the table's domain as long as it uses the pair.
#[inline(always)]
unsafe fn search_bucket<'g, K: Borrow<Q>, V, Q: Eq + ?Sized>(
    lens: Lens<'g, K, V>,
    bucket: &Bucket,
    tag: u16,
    key: &Q,
) -> Option<&'g Pair<K, V>> {
    for slot in bucket.matching(tag) {
        let entry = bucket.entry(slot);
        if entry != NO_ENTRY {
            // SAFETY: linked while the caller was in its region, so alive until the end of that.
            let pair = unsafe { lens.pair(entry).as_ref() };
            if pair.key.borrow() == key {
                return Some(pair);
            }
        }
    }
    None
}

/// Looks a key up from an array on, for whoever holds a region.
///
/// Most keys are in the first bucket of their chain, or nowhere. What else there is to do is out of the way, so that a
/// loop of lookups is short: then the processor has more of their cache misses in flight.
///
/// # Safety
/// The array comes from [`Inner::view_in_region`], and the region lasts as long as the pair is used.
#[inline(always)]
pub(crate) unsafe fn search<'g, K: Borrow<Q>, V, Q: Eq + ?Sized>(
    lens: Lens<'g, K, V>,
    view: View<'g>,
    hash: u64,
    key: &Q,
) -> Option<&'g Pair<K, V>> {
    let bucket = view.bucket(hash);
    // SAFETY: the caller's promise.
    let pair = unsafe { search_bucket(lens, bucket, tag_of(hash), key) };
    if pair.is_some() || bucket.link() == END {
        return pair;
    }
    // SAFETY: the caller's promise.
    unsafe { search_on(lens.arena(), view.array, hash, key) }
}

/// Looks a key up in its whole chain, and in the next arrays.
///
/// Takes what fits into registers: a lens or a view would have to be in memory for the call, in each lookup.
///
/// # Safety
/// As for [`search`].
#[cold]
#[inline(never)]
unsafe fn search_on<'g, K: Borrow<Q>, V, Q: Eq + ?Sized>(
    arena: &'g Arena<K, V>,
    mut array: &'g Array,
    hash: u64,
    key: &Q,
) -> Option<&'g Pair<K, V>> {
    let lens = Lens::new(arena);
    let mut bucket = array.view().bucket(hash);
    loop {
        // SAFETY: the caller's promise.
        let pair = unsafe { search_bucket(lens, bucket, tag_of(hash), key) };
        if pair.is_some() {
            return pair;
        }
        match bucket.link() {
            END => return None,
            MOVED if busted::is(Variant::IgnoreMark) => return None,
            MOVED => {
                // It is retired after this one: the region covers its buckets, too.
                array = array.next().expect("a moved bucket has a next array");
                bucket = array.view().bucket(hash);
            }
            link => bucket = array.overflow(link),
        }
    }
}

/// Looks a burst up, in three passes: the buckets are fetched, then the entries that the tags name first, then the
/// keys are compared. So the cache misses of a pass overlap.
///
/// # Safety
/// As for [`search`].
#[inline]
pub(crate) unsafe fn search_many<'g, 'k, K: Borrow<Q>, V, Q: Eq + ?Sized + 'k, const N: usize>(
    lens: Lens<'g, K, V>,
    view: View<'g>,
    hashes: [u64; N],
    key: impl Fn(usize) -> &'k Q,
) -> [Option<&'g Pair<K, V>>; N] {
    for hash in &hashes {
        prefetch(view.bucket(*hash));
    }
    let candidates: [u32; N] = std::array::from_fn(|at| {
        let bucket = view.bucket(hashes[at]);
        let entry = bucket.matching(tag_of(hashes[at])).next().map_or(NO_ENTRY, |slot| bucket.entry(slot));
        // The index of no entry has a place, too.
        prefetch(lens.pair(entry).as_ptr());
        entry
    });
    std::array::from_fn(|at| {
        if candidates[at] != NO_ENTRY {
            // SAFETY: linked while the caller was in its region.
            let pair = unsafe { lens.pair(candidates[at]).as_ref() };
            if pair.key.borrow() == key(at) {
                return Some(pair);
            }
        }
        // Another key has the same tag, the entry has just been replaced, or the key is not there.
        // SAFETY: the caller's promise.
        unsafe { search_on(lens.arena(), view.array, hashes[at], key(at)) }
    })
}

/// Fetches a cache line ahead of its use. A hint.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no effect but on time, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

impl<K, V, S> Inner<K, V, S> {
    /// The array where lookups begin, for whoever is in a region of the table's domain during `'g`.
    ///
    /// # Safety
    /// As said.
    #[inline(always)]
    pub(crate) unsafe fn view_in_region<'g>(&self) -> View<'g> {
        // Acquire: pairs with the release in `finish`. SAFETY: every array stays as long as the table; and this one was
        // current while the caller was in its region, which so covers its buckets.
        unsafe { &*self.current.load(Ordering::Acquire) }.view()
    }

    #[inline(always)]
    pub(crate) fn lens(&self) -> Lens<'_, K, V> {
        Lens::new(self.arena())
    }
}

/// The hazard slots of a bound reader: they are set and cleared through this alone.
#[derive(Clone, Copy)]
pub(crate) struct Slots<'a> {
    pub(crate) entry: &'a Hazard,
    current: &'a Hazard,
    next: &'a Hazard,
    fence: ReaderFence,
}

/// A lookup of a bound reader: which arrays it has pinned, and where it begins.
///
/// Small values that are passed around, not borrowed, so that they stay in registers from one lookup to the next.
pub(crate) struct Pins<'a> {
    pub(crate) slots: Slots<'a>,
    view: View<'a>,
    /// Where the array is noted at the end; it then stays pinned.
    home: Option<&'a mut Home>,
}

/// The array that a reader keeps pinned from one of its [`Pins`] to the next, and the slots that pin it.
#[derive(Debug, Default)]
pub(crate) struct Home(Option<(NonNull<Array>, [NonNull<Hazard>; 3])>);

// SAFETY: any thread may use what it refers to; in fact only a reader uses it, which stays on its own thread.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}

impl<'a> Pins<'a> {
    /// Pins the current array.
    ///
    /// # Safety
    /// The slots are those of a reader of the table's domain, in `mode`, and used for nothing else during `'a`, which
    /// the table outlives.
    #[inline(always)]
    pub(crate) unsafe fn new<K, V, S>(
        inner: &Inner<K, V, S>,
        [entry, current, next]: [&'a Hazard; 3],
        fence: ReaderFence,
    ) -> Self {
        let slots = Slots { entry, current, next, fence };
        Self { slots, view: pin_current(fence, current, inner).view(), home: None }
    }

    /// Continues with the array that was pinned before, if there is one.
    ///
    /// # Safety
    /// As for [`new`](Pins::new) with the slots of `record`; `home` belongs to this record and this table, and the slots are
    /// used for nothing else until it is gone.
    #[inline(always)]
    pub(crate) unsafe fn resume<K, V, S>(
        inner: &Inner<K, V, S>,
        record: &'a Record,
        fence: ReaderFence,
        home: &'a mut Home,
    ) -> Self {
        // Taken, since a value that is forgotten may have pinned another array.
        let mut pins = match home.0.take() {
            Some((array, hazards)) => {
                // SAFETY: slots of the record, which is there as long as its reader.
                let [entry, current, next] = hazards.map(|hazard| unsafe { hazard.as_ref() });
                // SAFETY: every array stays as long as the table, and the slot has kept its buckets since it was noted.
                let view = unsafe { array.as_ref() }.view();
                Self { slots: Slots { entry, current, next, fence }, view, home: None }
            }
            // SAFETY: the caller's promise.
            None => unsafe { Self::new(inner, record.own_hazards(), fence) },
        };
        pins.home = Some(home);
        pins
    }

    /// Looks a key up, and pins its entry.
    #[inline(always)]
    pub(crate) fn search<K: Borrow<Q>, V, S, Q: Eq + ?Sized>(
        &mut self,
        inner: &Inner<K, V, S>,
        lens: Lens<'_, K, V>,
        hash: u64,
        key: &Q,
    ) -> Option<Held<'a, K, V>> {
        let Slots { fence, entry, current, next } = self.slots;
        loop {
            let bucket = self.view.bucket(hash);
            // SAFETY: `new`'s caller vouches for the slots, and the view's array is pinned.
            let held = unsafe { search_bucket_protected(lens, bucket, tag_of(hash), key, fence, entry) };
            if held.is_some() || bucket.link() == END {
                return held;
            }
            match search_on_protected(entry, current, next, inner, self.view.array, hash, key) {
                Ok(held) => return held,
                // Before keys are compared again, which may panic: the next lookup begins with the view.
                Err(array) => self.view = array.view(),
            }
        }
    }
}

/// Pins the array that is current now, in place of the one before.
#[inline(never)]
fn pin_current<'a, K, V, S>(fence: ReaderFence, hazard: &'a Hazard, inner: &Inner<K, V, S>) -> &'a Array {
    // Relaxed: this address is not followed.
    let now = NonNull::new(inner.current.load(Ordering::Relaxed));
    let pinned = now.and_then(|now| protect_from(fence, &inner.current, now, hazard));
    let array = pinned.expect("a table has an array");
    // SAFETY: every array stays as long as the table. Its buckets are pinned until the slot is set again, and `Pins` then
    // has another view.
    unsafe { array.as_ref() }
}

impl<'a> Slots<'a> {
    /// Pins the array that the pinned one moves to. `None` when the pinned one is not current any more.
    fn pin_next<K, V, S>(self, inner: &Inner<K, V, S>, pinned: View<'a>) -> Option<View<'a>> {
        let next = pinned.array.next().expect("a moved bucket has a next array");
        if !busted::is(Variant::NextNotPinned) {
            set_hazard(self.next, ptr::from_ref(next).cast_mut().cast());
            self.fence.issue();
        }
        // Acquire: pairs with the release in `finish`. While the pinned array is current, the next one is not retired:
        // this is the load that proves it. The address is not used again, since the array is pinned.
        let is_current = ptr::eq(inner.current.load(Ordering::Acquire), pinned.array);
        is_current.then(|| next.view())
    }
}

/// A protected lookup in a whole chain, and in the one that it is moved to. `Err` when the array is not current any more:
/// the one that is now has been pinned in its place, and the lookup begins again there.
///
/// The slots are passed one by one, in registers, for the same reason as in [`search_on`].
#[cold]
#[inline(never)]
fn search_on_protected<'a, K: Borrow<Q>, V, S, Q: Eq + ?Sized>(
    entry: &'a Hazard,
    current: &'a Hazard,
    next: &'a Hazard,
    inner: &Inner<K, V, S>,
    array: &'a Array,
    hash: u64,
    key: &Q,
) -> Result<Option<Held<'a, K, V>>, &'a Array> {
    let slots = Slots { entry, current, next, fence: inner.core.protocol.mode().of_any_reader() };
    // The next array is pinned for the time of this call, also when `Eq` panics: an idle reader is to hold up one array.
    let _pinned_next = ClearLater(next);
    let pinned = array.view();
    let mut view = pinned;
    loop {
        // SAFETY: as in `Pins::search`; the array is pinned in one of the two slots.
        match unsafe { search_chain_protected(inner.lens(), view, hash, key, slots.fence, entry) } {
            Found::Entry(mut held) => {
                // The next array is not pinned any longer.
                held.found = None;
                return Ok(Some(held));
            }
            Found::Absent => return Ok(None),
            Found::Moved => {}
        }
        // Relaxed: compared, not followed.
        let is_current = ptr::eq(inner.current.load(Ordering::Relaxed), pinned.array);
        let following = if is_current { slots.pin_next(inner, pinned) } else { None };
        let Some(following) = following else { return Err(pin_current(slots.fence, current, inner)) };
        view = following;
    }
}

/// Clears a hazard slot when it is dropped.
struct ClearLater<'a>(&'a Hazard);

impl Drop for ClearLater<'_> {
    fn drop(&mut self) {
        clear_hazard(self.0);
    }
}

impl Drop for Pins<'_> {
    /// Without a call, as everything that is done to a value in registers. The slot of the next array is clear between
    /// lookups.
    #[inline(always)]
    fn drop(&mut self) {
        let Slots { entry, current, next, .. } = self.slots;
        clear_hazard(entry);
        match self.home.take() {
            Some(home) => {
                let hazards = [entry, current, next].map(NonNull::from);
                home.0 = Some((NonNull::from(self.view.array), hazards));
            }
            None => clear_hazard(current),
        }
    }
}
