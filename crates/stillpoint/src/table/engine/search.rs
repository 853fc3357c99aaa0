//! The readers' protocol.

use std::cell::OnceCell;
use std::mem::{self, ManuallyDrop};
use std::ptr::{self, NonNull};

use equivalent::Equivalent;

use super::arena::{Arena, Lens, Pair};
use super::array::{Array, View};
use super::bucket::{tag_of, Bucket, END, MOVED, NO_ENTRY};
use super::Inner;
use crate::fence::ReaderFence;
use crate::rcu::default_domain::lend_in;
use crate::rcu::engine::core::read::protect_from;
use crate::rcu::engine::core::record::{clear_hazard, set_hazard, Hazard, Record, Slot};
use crate::rcu::engine::core::Protocol;
use crate::rcu::owned::Hold;
use crate::rcu::Reader;
use crate::table::busted::{self, Variant};
use crate::table::orders;
use stillpoint_sys::sync::atomic::Ordering;
use stillpoint_sys::sync::prefetch;

/// A pair that a hazard slot holds. Dropping this gives the slot back.
///
/// Two words, so that a function returns it in registers.
pub(crate) struct Held<'a, K, V> {
    pair: NonNull<Pair<K, V>>,
    slot: Slot<'a>,
}

/// What a lookup finds: a pair that a hazard slot holds, and where it is.
pub(crate) struct Located<'a, K, V> {
    held: Held<'a, K, V>,
    /// The entry's index.
    pub(crate) entry: u32,
    /// Where the entry was found, if that is in the array that the reader keeps pinned between searches.
    pub(crate) found: Option<Place>,
}

/// A slot of a bucket, by its address.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) bucket: NonNull<Bucket>,
    pub(crate) slot: usize,
}

impl<K, V> Held<'_, K, V> {
    #[inline(always)]
    pub(crate) fn get(&self) -> &Pair<K, V> {
        // SAFETY: the hazard slot protects the pair, by the contract of `Located::new`.
        unsafe { self.pair.as_ref() }
    }
}

impl<'a, K, V> Located<'a, K, V> {
    /// # Safety
    /// The hazard slot holds the address of the entry's pair. It was set while the pair was linked, or before the pair
    /// was linked. The caller owns its record, and gives the slot to this value.
    #[inline(always)]
    pub(crate) unsafe fn new(lens: Lens<'_, K, V>, entry: u32, slot: Slot<'a>) -> Self {
        Self { held: Held { pair: lens.pair(entry), slot }, entry, found: None }
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> &Pair<K, V> {
        self.held.get()
    }

    pub(crate) fn key_value(&self) -> (&K, &V) {
        (&self.get().key, &self.get().value)
    }
}

impl<'a, K, V> From<Located<'a, K, V>> for Held<'a, K, V> {
    #[inline(always)]
    fn from(located: Located<'a, K, V>) -> Self {
        located.held
    }
}

impl<K, V> Drop for Held<'_, K, V> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the slot belongs to this value, which stays on the thread of its reader.
        unsafe { self.slot.release() };
    }
}

/// Pins the entry in a slot of a bucket. When there is none, clears the hazard slot and returns `None`.
///
/// A mover and every remover overwrite the word before the entry can be retired. So if the reload finds the same index,
/// the entry was still linked after the hazard slot was set.
#[inline(always)]
fn protect<'a, K, V>(
    pair_of: impl Fn(u32) -> NonNull<Pair<K, V>>,
    bucket: &Bucket,
    slot: usize,
    fence: ReaderFence,
    hazard: Slot<'a>,
) -> Option<Located<'a, K, V>> {
    let word = bucket.word(slot);
    let mut candidate = word.load(orders::candidate());
    while candidate != NO_ENTRY {
        let pair = pair_of(candidate);
        set_hazard(&hazard, pair.as_ptr().cast());
        if !busted::is(Variant::NoLight) {
            fence.issue();
        }
        let is_reloaded = !busted::is(Variant::NoReload);
        let current = if is_reloaded { word.load(orders::confirm()) } else { candidate };
        if current == candidate {
            let found = Some(Place { bucket: NonNull::from(bucket), slot });
            return Some(Located { held: Held { pair, slot: hazard }, entry: candidate, found });
        }
        candidate = current;
    }
    clear_hazard(&hazard);
    None
}

/// Pins the entry in a slot of a bucket, if it has the key. Otherwise the hazard slot is clear, and `Eq` may have taken the reader away.
///
/// The key is compared after the load is confirmed: only then is the entry known to be alive.
///
/// # Safety
/// The slots belong to a reader of the table's domain, and are used for nothing else during `'a`. The reader has vouched. The bucket's
/// array is pinned.
#[inline(always)]
unsafe fn protect_in_slot<'a, K, V, Q: Equivalent<K> + ?Sized>(
    pair_of: impl Fn(u32) -> NonNull<Pair<K, V>>,
    bucket: &Bucket,
    slot: usize,
    key: &Q,
    slots: Slots<'a>,
) -> Option<Located<'a, K, V>> {
    if busted::is(Variant::CompareFirst) {
        let entry = bucket.word(slot).load(Ordering::Acquire);
        // SAFETY: unsound on purpose. The entry may be freed already, which is the defect of this broken variant.
        if entry == NO_ENTRY || !key.equivalent(&unsafe { pair_of(entry).as_ref() }.key) {
            return None;
        }
    }
    let located = ManuallyDrop::new(protect(pair_of, bucket, slot, slots.fence, slots.entry)?);
    // The slot is cleared, also if `Eq` panics, and stays lent.
    let clear = ClearLater(slots.entry.hazard());
    if !key.equivalent(&located.get().key) {
        return None;
    }
    mem::forget(clear);
    Some(ManuallyDrop::into_inner(located))
}

/// Looks a key up in one bucket, and pins the entry.
///
/// # Safety
/// As for [`protect_in_slot`].
#[inline(always)]
unsafe fn search_bucket_protected<'a, K, V, Q: Equivalent<K> + ?Sized>(
    lens: Lens<'_, K, V>,
    bucket: &Bucket,
    tag: u16,
    key: &Q,
    slots: Slots<'a>,
) -> Option<Located<'a, K, V>> {
    // A loop, here and below: the compiler may turn `find_map` into a function call.
    for slot in bucket.matching(tag) {
        // SAFETY: by the caller's promise.
        let located = unsafe { protect_in_slot(|entry| lens.pair(entry), bucket, slot, key, slots) };
        if located.is_some() {
            return located;
        }
        // `Eq` may have taken the reader away.
        if !busted::is(Variant::VouchedOnce) {
            slots.vouch();
        }
    }
    None
}

/// The pair in a slot of a bucket, if it has the key; for a caller in a region.
///
/// # Safety
/// The caller is in a region of the table's domain as long as it uses the pair.
#[inline(always)]
unsafe fn look_in_slot<'g, K, V, Q: Equivalent<K> + ?Sized>(
    pair_of: impl Fn(u32) -> NonNull<Pair<K, V>>,
    bucket: &Bucket,
    slot: usize,
    key: &Q,
) -> Option<&'g Pair<K, V>> {
    let entry = bucket.entry(slot);
    if entry == NO_ENTRY {
        return None;
    }
    // SAFETY: the entry was linked while the caller was in its region, so it is alive until the region ends.
    let pair: &'g Pair<K, V> = unsafe { pair_of(entry).as_ref() };
    key.equivalent(&pair.key).then_some(pair)
}

/// Looks a key up in an array and the arrays after it, for a caller in a region.
///
/// Most keys are the first with their tag in the first bucket of their chain, or not in the table. The rest of the work is in another
/// function.
/// So a loop of lookups is short, and the processor has more of its cache misses in flight.
///
/// # Safety
/// The array comes from [`Inner::view_in_region`], and the region lasts as long as the pair is used.
#[inline(always)]
pub(crate) unsafe fn search<'g, K, V, Q: Equivalent<K> + ?Sized>(
    lens: Lens<'g, K, V>,
    view: View<'g>,
    hash: u64,
    key: &Q,
) -> Option<&'g Pair<K, V>> {
    // SAFETY: the array comes from `view_in_region`, and the region lasts as long as the pair is used, by the caller's
    // promise.
    unsafe {
        let settled = glance(|entry| lens.pair(entry), view, hash, key);
        settled.unwrap_or_else(|| search_on(lens.arena(), view.array, hash, key))
    }
}

/// The first step of [`search`]. `None` if it does not tell whether the table has the key. `pair_of` is that of a [`Lens`], or, for one
/// lookup, of the arena.
///
/// # Safety
/// As for [`search`].
#[inline(always)]
pub(crate) unsafe fn glance<'g, K, V, Q: Equivalent<K> + ?Sized>(
    pair_of: impl Fn(u32) -> NonNull<Pair<K, V>>,
    view: View<'g>,
    hash: u64,
    key: &Q,
) -> Option<Option<&'g Pair<K, V>>> {
    let bucket = view.bucket(hash);
    match bucket.matching(tag_of(hash)).next() {
        // SAFETY: the caller is in a region as long as it uses the pair, by its promise.
        Some(slot) => unsafe { look_in_slot(pair_of, bucket, slot, key) }.map(Some),
        None => (bucket.link() == END).then_some(None),
    }
}

/// Looks a key up in its whole chain, and in the next arrays.
///
/// The arguments fit into registers. A lens or a view would have to be stored to memory for each call.
///
/// # Safety
/// As for [`search`].
#[cold]
#[inline(never)]
unsafe fn search_on<'g, K, V, Q: Equivalent<K> + ?Sized>(
    arena: &'g Arena<K, V>,
    mut array: &'g Array,
    hash: u64,
    key: &Q,
) -> Option<&'g Pair<K, V>> {
    let lens = Lens::new(arena);
    let mut bucket = array.view().bucket(hash);
    loop {
        for slot in bucket.matching(tag_of(hash)) {
            // SAFETY: the caller is in a region as long as it uses the pair, by its promise.
            let pair = unsafe { look_in_slot(|entry| lens.pair(entry), bucket, slot, key) };
            if pair.is_some() {
                return pair;
            }
        }
        match bucket.link() {
            END => return None,
            MOVED if busted::is(Variant::IgnoreMark) => return None,
            MOVED => {
                // The next array is retired after this one, so the region covers its buckets, too.
                array = array.next().expect("a moved bucket has a next array");
                bucket = array.view().bucket(hash);
            }
            link => bucket = array.overflow(link),
        }
    }
}

/// Looks several keys up in three passes, so that the cache misses of a pass overlap. The first pass prefetches the
/// buckets, the second the first entry with a matching tag in each bucket; the third compares the keys, and passes what it
/// finds to `found`.
///
/// # Safety
/// As for [`search`].
#[inline]
pub(crate) unsafe fn search_many<'g, 'k, K, V, Q: Equivalent<K> + ?Sized + 'k, const N: usize>(
    lens: Lens<'g, K, V>,
    view: View<'g>,
    hashes: [u64; N],
    key: impl Fn(usize) -> &'k Q,
    mut found: impl FnMut(usize, Option<&'g Pair<K, V>>),
) {
    hashes.iter().for_each(|hash| prefetch(view.bucket(*hash)));
    let candidates: [u32; N] = std::array::from_fn(|at| prefetch_entry(lens, view, hashes[at]));
    // A loop: in `from_fn`, the compiler calls a function for each key.
    for at in 0..N {
        if candidates[at] != NO_ENTRY {
            // SAFETY: the entry was linked while the caller was in its region, so it is alive.
            let pair = unsafe { lens.pair(candidates[at]).as_ref() };
            if key(at).equivalent(&pair.key) {
                found(at, Some(pair));
                continue;
            }
        }
        // Another key has the same tag, the entry has just been replaced, or the key is not in the table.
        // SAFETY: the array comes from `view_in_region`, and the region lasts as long as the pair is used, by the
        // caller's promise.
        found(at, unsafe { search_on(lens.arena(), view.array, hashes[at], key(at)) });
    }
}

/// Prefetches the first entry with a matching tag in a bucket, and returns its index, or [`NO_ENTRY`].
#[inline(always)]
fn prefetch_entry<K, V>(lens: Lens<'_, K, V>, view: View<'_>, hash: u64) -> u32 {
    let bucket = view.bucket(hash);
    let entry = bucket.matching(tag_of(hash)).next().map_or(NO_ENTRY, |slot| bucket.entry(slot));
    // `NO_ENTRY` has an address, too, so it needs no branch. The entry may be gone already: only its address is used, which is that of a
    // slot as long as the table exists.
    prefetch(lens.pair(entry).as_ptr());
    entry
}

impl<K, V, S> Inner<K, V, S> {
    /// The array where lookups begin, for a caller in a region.
    ///
    /// # Safety
    /// The caller is in a region of the table's domain during `'g`.
    #[inline(always)]
    pub(crate) unsafe fn view_in_region<'g>(&self) -> View<'g> {
        // Acquire: pairs with the release in `finish`. SAFETY: every array stays as long as the table. This one was
        // current while the caller was in its region, so the region covers its buckets.
        unsafe { &*self.current.load(Ordering::Acquire) }.view()
    }

    #[inline(always)]
    pub(crate) fn lens(&self) -> Lens<'_, K, V> {
        Lens::new(self.arena())
    }
}

/// The hazard slots of a lookup. They are set and cleared only through this value.
#[derive(Clone, Copy)]
pub(crate) struct Slots<'a> {
    pub(crate) entry: Slot<'a>,
    current: &'a Hazard,
    next: &'a Hazard,
    fence: ReaderFence,
    record: &'a Record,
    protocol: &'a Protocol,
}

/// The state that a bound reader keeps between lookups: its hazard slots, and the array that it has pinned, where
/// lookups begin.
///
/// The fields are small and passed by value, so that they stay in registers from one lookup to the next.
pub(crate) struct Pins<'a> {
    pub(crate) slots: Slots<'a>,
    view: View<'a>,
    /// If set, it always has the array of the view, which the drop leaves pinned.
    home: Option<&'a mut Home>,
}

/// The array that a reader keeps pinned from one of its [`Pins`] to the next.
#[derive(Debug, Default)]
pub(crate) struct Home(Option<NonNull<Array>>);

impl Home {
    fn keep(&mut self, array: &Array) {
        self.0 = Some(NonNull::from(array));
    }
}

// SAFETY: arrays are `Sync`. They are used only through a reader, which stays on its thread.
unsafe impl Send for Home {}
// SAFETY: a shared `Home` gives access to nothing: it is used only by `&mut`.
unsafe impl Sync for Home {}

impl<'a> Pins<'a> {
    /// Pins the current array, or continues with the array that `home` has pinned, if there is one.
    ///
    /// # Safety
    /// The record is that of a reader of the table's domain, whose fence is `fence`. Its exclusive slots are used for nothing else
    /// during `'a`, or, with `home`, until that is gone: it belongs to this record and this table. The table outlives `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new<K, V, S>(
        inner: &'a Inner<K, V, S>,
        record: &'a Record,
        fence: ReaderFence,
        mut home: Option<&'a mut Home>,
    ) -> Self {
        let slots = Slots::of(record, fence, &inner.core().protocol);
        let array = match home.as_ref().and_then(|home| home.0) {
            // SAFETY: every array stays as long as the table. The slot pins the buckets of this one: `home` is changed whenever the slot
            // pins another, so this holds even if an earlier value was forgotten.
            Some(array) => unsafe { array.as_ref() },
            None => {
                let array = pin_current(slots, inner);
                home.iter_mut().for_each(|home| home.keep(array));
                array
            }
        };
        Self { slots, view: array.view(), home }
    }

    /// Looks a key up, and pins its entry.
    ///
    /// Most lookups find the slots [ready](Slots::are_ready), and what settles them in the first bucket. The rest is in another function, as
    /// for the function [`search`]. It does not get this value: so a `Pins` that is made for one lookup stays in registers.
    #[inline(always)]
    pub(crate) fn search<K, V, S, Q: Equivalent<K> + ?Sized>(
        &mut self,
        inner: &Inner<K, V, S>,
        lens: &Lens<'_, K, V>,
        hash: u64,
        key: &Q,
    ) -> Option<Located<'a, K, V>> {
        let slots = self.slots;
        if slots.are_ready() {
            let bucket = self.view.bucket(hash);
            match bucket.matching(tag_of(hash)).next() {
                Some(slot) => {
                    // SAFETY: the slots are as `new` demands, the reader has vouched, and the view's array is pinned.
                    let located =
                        unsafe { protect_in_slot(|entry| lens.pair(entry), bucket, slot, key, slots) };
                    if located.is_some() {
                        return located;
                    }
                }
                None if bucket.link() == END => return None,
                None => {}
            }
        }
        loop {
            match search_on_protected(slots.record, slots.protocol, inner, self.view.array, hash, key) {
                Ok(located) => return located,
                // Stored before keys are compared again, which may panic: the next lookup begins with this view.
                Err(array) => {
                    self.view = array.view();
                    self.home.iter_mut().for_each(|home| home.keep(array));
                }
            }
        }
    }
}

/// The whole of [`Pins::search`], in the array that is pinned. `Err` as for [`search_chains`].
#[cold]
#[inline(never)]
fn search_on_protected<'a, K, V, S, Q: Equivalent<K> + ?Sized>(
    record: &'a Record,
    protocol: &'a Protocol,
    inner: &Inner<K, V, S>,
    array: &'a Array,
    hash: u64,
    key: &Q,
) -> Result<Option<Located<'a, K, V>>, &'a Array> {
    let slots = Slots::of(record, protocol.reader_fence(), protocol);
    // `Eq` may have taken the reader away.
    slots.vouch();
    search_chains(slots, inner, array, hash, key)
}

/// Pins the current array, in place of the one pinned before.
#[inline(never)]
fn pin_current<'a, K, V, S>(slots: Slots<'a>, inner: &Inner<K, V, S>) -> &'a Array {
    slots.vouch();
    slots.pin_current(inner)
}

impl<'a> Slots<'a> {
    #[inline(always)]
    fn of(record: &'a Record, fence: ReaderFence, protocol: &'a Protocol) -> Self {
        let [current, _, next] = record.exclusive_hazards();
        Self { entry: record.exclusive_hazard(), current, next, fence, record, protocol }
    }

    /// Comes before a slot is set: see [`Protocol::vouch`].
    #[inline(always)]
    fn vouch(self) {
        self.protocol.vouch(self.record);
    }

    /// Whether the slots may be set without a further step: the reader has vouched, and its fences are light.
    #[inline(always)]
    fn are_ready(self) -> bool {
        self.fence == ReaderFence::Light && self.protocol.has_vouched(self.record)
    }

    /// As [`pin_current`](self::pin_current), for a reader that has vouched.
    #[inline(always)]
    fn pin_current<K, V, S>(self, inner: &Inner<K, V, S>) -> &'a Array {
        // Relaxed: this address is not followed.
        let now = NonNull::new(inner.current.load(Ordering::Relaxed));
        let pinned = now.and_then(|now| protect_from(self.fence, &inner.current, now, self.current));
        let array = pinned.expect("a table has an array");
        // SAFETY: every array stays as long as the table. Its buckets are pinned until the slot is set again; its user then has another
        // array.
        unsafe { array.as_ref() }
    }

    /// As [`pin_current`](Slots::pin_current), for a reader that is not bound.
    #[inline(always)]
    fn pin_for_now<K, V, S>(self, inner: &Inner<K, V, S>) -> &'a Array {
        if busted::is(Variant::ArrayNotPinned) {
            // SAFETY: every array stays as long as the table. Its buckets may go, which is the defect of this broken variant.
            return unsafe { &*inner.current.load(Ordering::Acquire) };
        }
        self.pin_current(inner)
    }

    /// Pins the array that the pinned one moves to. `None` when the pinned array is not current any more.
    fn pin_next<K, V, S>(self, inner: &Inner<K, V, S>, pinned: View<'a>) -> Option<View<'a>> {
        let next = pinned.array.next().expect("a moved bucket has a next array");
        if !busted::is(Variant::NextNotPinned) {
            set_hazard(self.next, ptr::from_ref(next).cast_mut().cast());
            self.fence.issue();
        }
        // Acquire: pairs with the release in `finish`. While the pinned array is current, the next one is not retired,
        // and this load proves that it is current. It is enough to compare addresses: every array stays as long as the
        // table, so no two have the same address.
        let is_current = ptr::eq(inner.current.load(Ordering::Acquire), pinned.array);
        is_current.then(|| next.view())
    }
}

/// A protected lookup in a whole chain, and in the chain that it has moved to. `Err` when the array is not current any
/// more: the current array has been pinned in its place, and the lookup begins again there.
#[inline(always)]
fn search_chains<'a, K, V, S, Q: Equivalent<K> + ?Sized>(
    slots: Slots<'a>,
    inner: &Inner<K, V, S>,
    array: &'a Array,
    hash: u64,
    key: &Q,
) -> Result<Option<Located<'a, K, V>>, &'a Array> {
    // The next array is unpinned at the end of this call, even if `Eq` panics: an idle reader may keep alive only one
    // array.
    let _pinned_next = ClearLater(slots.next);
    let mut held = search_pinned(slots, inner, array, hash, key)?;
    if let Some(held) = &mut held {
        // The place may be in the next array, which is unpinned when this call returns.
        held.found = None;
    }
    Ok(held)
}

/// As [`search_chains`]. The array in which the entry was found stays pinned: the next one until the caller clears its slot.
fn search_pinned<'a, K, V, S, Q: Equivalent<K> + ?Sized>(
    slots: Slots<'a>,
    inner: &Inner<K, V, S>,
    array: &'a Array,
    hash: u64,
    key: &Q,
) -> Result<Option<Located<'a, K, V>>, &'a Array> {
    let pinned = array.view();
    let (mut view, mut bucket) = (pinned, pinned.bucket(hash));
    loop {
        // SAFETY: the slots are as `Pins::new` demands, and the array is pinned in one of the two.
        let held = unsafe { search_bucket_protected(inner.lens(), bucket, tag_of(hash), key, slots) };
        if held.is_some() {
            return Ok(held);
        }
        match bucket.link() {
            END => return Ok(None),
            MOVED if busted::is(Variant::IgnoreMark) => return Ok(None),
            MOVED => {
                // Relaxed: compared, not followed.
                let is_current = ptr::eq(inner.current.load(Ordering::Relaxed), pinned.array);
                let following = if is_current { slots.pin_next(inner, pinned) } else { None };
                let Some(following) = following else { return Err(pin_current(slots, inner)) };
                (view, bucket) = (following, following.bucket(hash));
            }
            link => bucket = view.array.overflow(link),
        }
    }
}

/// A lookup by a reader that is not bound to the table: it pins the array for this call only. The result is a [`Located`], or a part of it:
/// what the caller does not ask for is not stored.
impl<K, V, S> Inner<K, V, S> {
    /// Looks a key up, and pins its entry. The reader is of the table's domain.
    ///
    /// Most lookups find the slots free and [ready](Slots::are_ready), and what settles them in the first bucket. The rest is in another
    /// function, as for the function [`search`].
    #[inline(always)]
    pub(crate) fn search_unbound<'a, Q: Equivalent<K> + ?Sized, R: From<Located<'a, K, V>>>(
        &'a self,
        reader: &'a Reader,
        hash: u64,
        key: &Q,
    ) -> Option<R> {
        let slots =
            self.free_slots(reader).and_then(|slots| Some(slots(reader.record().free_first_hazard()?)));
        if let Some(slots) = slots.filter(|slots| slots.are_ready()) {
            let _pinned = ClearLater(slots.current);
            let bucket = slots.pin_for_now(self).view().bucket(hash);
            match bucket.matching(tag_of(hash)).next() {
                Some(slot) => {
                    let pair_of = |entry| self.arena().pair(entry);
                    // SAFETY: the slots were free, and belong to this call until it returns. They are ready, and the array is pinned.
                    let located = unsafe { protect_in_slot(pair_of, bucket, slot, key, slots) };
                    if let Some(located) = located {
                        // The array is not pinned for longer.
                        return Some(Located { found: None, ..located }.into());
                    }
                }
                None if bucket.link() == END => return None,
                None => {}
            }
        }
        self.search_unbound_on(reader, hash, key)
    }

    /// The whole of [`search_unbound`](Inner::search_unbound). The arguments fit into registers, as the result of most callers does.
    #[cold]
    #[inline(never)]
    fn search_unbound_on<'a, Q: Equivalent<K> + ?Sized, R: From<Located<'a, K, V>>>(
        &'a self,
        reader: &'a Reader,
        hash: u64,
        key: &Q,
    ) -> Option<R> {
        // SAFETY: the slot is the reader's, and free.
        unsafe { self.search_into(reader, || reader.free_hazard(), hash, key) }
    }

    /// What a lookup by a reader that is not bound needs besides a slot for the entry; `None` if it is in use.
    ///
    /// Nobody has exclusive use of the reader, which is shared: these slots are free, unless this is called by `Eq` within another lookup, or
    /// the last user was forgotten.
    #[inline(always)]
    fn free_slots<'a>(&'a self, reader: &'a Reader) -> Option<impl FnOnce(Slot<'a>) -> Slots<'a>> {
        let (record, protocol) = (reader.record(), &self.core().protocol);
        let [current, _, next] = record.exclusive_hazards();
        // Relaxed: the owner reads its own stores.
        let are_free = current.load(Ordering::Relaxed).is_null();
        are_free.then_some(move |entry| Slots {
            entry,
            current,
            next,
            fence: reader.fence(),
            record,
            protocol,
        })
    }

    /// As [`search_unbound`](Inner::search_unbound), into a slot of the caller. `entry` is called last: what it calls may look up entries itself.
    ///
    /// # Safety
    /// The slot is one of the table's domain, and clear. Nothing else uses it until the result is dropped.
    unsafe fn search_into<'a, Q: Equivalent<K> + ?Sized, R: From<Located<'a, K, V>>>(
        &'a self,
        reader: &'a Reader,
        entry: impl FnOnce() -> Slot<'a>,
        hash: u64,
        key: &Q,
    ) -> Option<R> {
        let Some(slots) = self.free_slots(reader) else {
            return self.search_in_further_arrays(reader, entry, hash, key);
        };
        let lent = Lent(entry());
        let slots = slots(lent.0);
        // After `entry`, which may allocate: the allocator may have taken the reader away.
        slots.vouch();
        let _pinned = ClearLater(slots.current);
        let found = self.search_from(slots, slots.pin_for_now(self), hash, key);
        if found.is_some() {
            mem::forget(lent);
        }
        found
    }

    /// As [`search_unbound`](Inner::search_unbound), into a slot that is bound to no thread.
    #[inline(always)]
    pub(crate) fn search_owned<Q: Equivalent<K> + ?Sized>(
        &self,
        reader: &Reader,
        hash: u64,
        key: &Q,
    ) -> Option<(NonNull<Pair<K, V>>, Hold)> {
        let core = self.core();
        let hold = OnceCell::new();
        let entry = || {
            let made = lend_in(core).map_or_else(|| Hold::claim(core), Hold::Lent);
            hold.get_or_init(|| made).slot()
        };
        // SAFETY: the slot is of the table's domain, was clear, and belongs to `hold`.
        let held: ManuallyDrop<Held<'_, K, V>> =
            ManuallyDrop::new(unsafe { self.search_into(reader, entry, hash, key) }?);
        let pair = held.pair;
        Some((pair, hold.into_inner()?))
    }

    /// As [`search_unbound`](Inner::search_unbound), when the usual slots of arrays are taken.
    #[cold]
    #[inline(never)]
    fn search_in_further_arrays<'a, Q: Equivalent<K> + ?Sized, R: From<Located<'a, K, V>>>(
        &'a self,
        reader: &'a Reader,
        entry: impl FnOnce() -> Slot<'a>,
        hash: u64,
        key: &Q,
    ) -> Option<R> {
        let (current, next) = (Lent(reader.further_hazard()), Lent(reader.further_hazard()));
        // Last: until it is set, a lookup by the allocator may take the same slot.
        let entry = Lent(entry());
        // As in `search_into`.
        reader.vouch();
        let slots = Slots {
            entry: entry.0,
            current: current.0.hazard(),
            next: next.0.hazard(),
            fence: reader.fence(),
            record: reader.record(),
            protocol: &self.core().protocol,
        };
        let found = self.search_from(slots, slots.pin_current(self), hash, key);
        if found.is_some() {
            mem::forget(entry);
        }
        found
    }

    /// Looks a key up in an array that is pinned, or in a later one. The slot of the entry belongs to the result, if there is one.
    fn search_from<'a, Q: Equivalent<K> + ?Sized, R: From<Located<'a, K, V>>>(
        &self,
        slots: Slots<'a>,
        mut array: &'a Array,
        hash: u64,
        key: &Q,
    ) -> Option<R> {
        loop {
            match search_chains(slots, self, array, hash, key) {
                Ok(found) => return found.map(R::from),
                Err(current) => array = current,
            }
        }
    }
}

/// What a lookup of an object has found: the address that is the entry's value, and the slot that holds it. `None` if the
/// address is null.
pub(crate) type Address<'r> = Option<(NonNull<()>, Slot<'r>)>;

/// Lookups whose result is held by something else than the entry's slot: see "What a value points to" in `docs/design/table.md`.
impl<K, V, S> Inner<K, V, S> {
    /// Looks keys up by their hashes, and calls `found` with each one's number and what was found. `address` is the address
    /// that a value consists of. The reader is of the table's domain.
    #[inline(always)]
    pub(crate) fn search_objects<'r, 'k, Q: Equivalent<K> + ?Sized + 'k>(
        &self,
        reader: &'r Reader,
        hashes: &[u64],
        key: impl Fn(usize) -> &'k Q,
        address: impl Fn(&V) -> *mut () + Copy,
        mut found: impl FnMut(usize, Option<Address<'r>>),
    ) {
        let hold = |pair: &Pair<K, V>| {
            let object = NonNull::new(address(&pair.value))?;
            let slot = Lent(reader.free_hazard());
            set_hazard(&slot.0, object.as_ptr());
            if !busted::is(Variant::NoLight) {
                reader.fence().issue();
            }
            Some((object, slot))
        };
        self.with_slots(reader, |slots| {
            slots.vouch();
            let mut array = slots.pin_current(self);
            if hashes.len() > 1 {
                // As the first two passes of `search_many`.
                let (lens, view) = (self.lens(), array.view());
                hashes.iter().for_each(|hash| prefetch(view.bucket(*hash)));
                hashes.iter().for_each(|hash| _ = prefetch_entry(lens, view, *hash));
            }
            for (at, hash) in hashes.iter().enumerate() {
                let held = self.search_and_hold(slots, &mut array, *hash, key(at), hold);
                found(at, held.map(|held| held.map(|(object, slot)| (object, slot.keep()))));
            }
        });
    }

    /// Looks a key up, and passes its entry to `hold`, which sets a slot outside of `slots`, and fences. If the entry is still linked then,
    /// the slot was set in time, for the entry and for what it keeps alive as long as it is linked. Otherwise the result of `hold` is
    /// dropped, and the search begins again. `Some(None)` if `hold` returns `None`.
    ///
    /// `array` is pinned in the slot `current`, and stays so; if it is not current any more, it is replaced.
    #[inline(always)]
    fn search_and_hold<'a, Q: Equivalent<K> + ?Sized, H>(
        &self,
        slots: Slots<'a>,
        array: &mut &'a Array,
        hash: u64,
        key: &Q,
        hold: impl Fn(&Pair<K, V>) -> Option<H>,
    ) -> Option<Option<H>> {
        loop {
            slots.vouch();
            // The word is in the array where the entry was found, which may be the next one.
            let _pinned_next = ClearLater(slots.next);
            let held = match search_pinned(slots, self, array, hash, key) {
                Ok(held) => held?,
                Err(current) => {
                    *array = current;
                    continue;
                }
            };
            // The entry's slot is cleared at the end of this turn, and stays lent.
            let (_clear, held) = (ClearLater(slots.entry.hazard()), ManuallyDrop::new(held));
            // `Eq` may have taken the reader away.
            slots.vouch();
            let Some(holder) = hold(held.get()) else { return Some(None) };
            let place = held.found.expect("the search says where it has found an entry");
            // SAFETY: the bucket is in one of the two arrays, which are pinned.
            let word = unsafe { place.bucket.as_ref() }.word(place.slot);
            if busted::is(Variant::ValueNotConfirmed) || word.load(orders::confirm()) == held.entry {
                return Some(Some(holder));
            }
        }
    }

    /// Calls `action` with slots for lookups of a reader that is not bound to the table. It may pin arrays in them, which are
    /// unpinned when it returns.
    #[inline(always)]
    fn with_slots<A>(&self, reader: &Reader, action: impl FnOnce(Slots<'_>) -> A) -> A {
        let (record, protocol) = (reader.record(), &self.core().protocol);
        let [current, entry, next] = record.exclusive_hazards();
        // As in `search_unbound`. The slot of entries is of no use to others while nobody has exclusive use of the reader.
        // Relaxed: the owner reads its own stores.
        let are_free = [current, entry].iter().all(|slot| slot.load(Ordering::Relaxed).is_null());
        let lent = (!are_free).then(|| [(); 3].map(|()| Lent(reader.further_hazard())));
        let (current, entry, next) = match &lent {
            None => (current, record.exclusive_hazard(), next),
            Some([current, entry, next]) => (current.0.hazard(), entry.0, next.0.hazard()),
        };
        let _pinned = ClearLater(current);
        action(Slots { entry, current, next, fence: reader.fence(), record, protocol })
    }
}

/// A slot that is given back when this is dropped.
struct Lent<'a>(Slot<'a>);

impl<'a> Lent<'a> {
    /// The slot, which is the caller's from now on.
    #[inline(always)]
    fn keep(self) -> Slot<'a> {
        ManuallyDrop::new(self).0
    }
}

impl Drop for Lent<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the slot belongs to this value, which stays on the thread of its reader.
        unsafe { self.0.release() };
    }
}

/// Clears a hazard slot when dropped.
struct ClearLater<'a>(&'a Hazard);

impl Drop for ClearLater<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        clear_hazard(self.0);
    }
}

impl Drop for Pins<'_> {
    /// Inlined, so that the value stays in registers. The slot of the next array is clear between lookups.
    #[inline(always)]
    fn drop(&mut self) {
        let Slots { entry, current, .. } = self.slots;
        clear_hazard(&entry);
        if self.home.is_none() {
            clear_hazard(current);
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::rcu::Domain;
    use crate::table::Table;

    /// As in `Eq`, or after a bound reader that was forgotten.
    #[test]
    fn a_lookup_within_another_one_leaves_its_slots_alone() {
        let domain = Domain::new();
        let table: Table<u64, u64> = Table::from_iter_in(&domain, [(1, 1)]);
        let reader = domain.reader();
        let [current, entry, next] = reader.record().exclusive_hazards();
        let outer = std::ptr::from_ref(&table).cast_mut().cast();
        set_hazard(current, outer);
        assert_eq!(table.protect(&reader, &1).map(|entry| *entry), Some(1));
        let now = [current, entry, next].map(|slot| slot.load(Ordering::Relaxed));
        assert_eq!(now, [outer, std::ptr::null_mut(), std::ptr::null_mut()]);
        clear_hazard(current);
        assert_eq!(table.protect(&reader, &1).map(|entry| *entry), Some(1));
        assert!(!reader.record().is_in_use());
    }

    /// As in an `Eq` that reads by the same reader, or after a bound reader that was forgotten.
    #[test]
    fn a_lookup_of_an_object_leaves_taken_slots_alone() {
        use crate::table::raw;

        let domain = Domain::new();
        let object = Box::new(7_u64);
        let address = std::ptr::from_ref(&*object).addr();
        let table: Table<u64, usize> = Table::from_iter_in(&domain, [(1, address)]);
        let reader = domain.reader();
        let of = |value: &usize| ptr::without_provenance_mut(*value);
        let [current, entry, next] = reader.record().exclusive_hazards();
        let taken = std::ptr::from_ref(&table).cast_mut().cast();
        for is_taken in [[false, false], [true, false], [false, true], [true, true]] {
            let before = is_taken.map(|is_taken| if is_taken { taken } else { ptr::null_mut() });
            set_hazard(current, before[0]);
            set_hazard(entry, before[1]);
            let held =
                [(); 12].map(|()| raw::protect(&table, &reader, &1, of).flatten().expect("it is there"));
            assert!(raw::protect(&table, &reader, &2, of).is_none());
            let now = [current, entry, next].map(|slot| slot.load(Ordering::Relaxed));
            assert_eq!(now, [before[0], before[1], ptr::null_mut()]);
            let holds = |record: &Record| {
                record.hazards().filter(|slot| slot.load(Ordering::Relaxed).addr() == address).count()
            };
            assert_eq!(holds(reader.record()), held.len());
            for (object, slot) in held {
                assert_eq!(object.addr().get(), address);
                // SAFETY: this is the reader's thread, and each slot is released once.
                unsafe { slot.release() };
            }
            assert_eq!(holds(reader.record()), 0);
            clear_hazard(current);
            clear_hazard(entry);
        }
        assert!(!reader.record().is_in_use());
    }
}
