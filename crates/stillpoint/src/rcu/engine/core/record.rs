//! What a reader publishes: its region state and its hazard slots.
//!
//! One record per reader. Only the reader writes it, except for `attention` and the boost state; scans read it.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};
// Not modelled: only the owner uses it.
use std::sync::atomic::{AtomicPtr as OwnPtr, AtomicUsize as OwnUsize};

use crate::busted::{self, Variant};
use crate::fence::ReaderFence;
use crate::rcu::engine::boost::BoostState;
use crate::rcu::orders;
use stillpoint_sys::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use stillpoint_sys::{tsan, work};

// The word of a record:
//
//   t          a region is open since token t; or a QSBR reader has reported t
//   t | IDLE   no region is open, and the reader has acquired token t: it *vouches* for every token up to t
//   IDLE       the reader comes back: it vouches for nothing
//   AWAY       the reader loads nothing before it has come back
//   0          no region is open: stored only by readers in other languages, which vouch for nothing
//
// As signed numbers, open regions are positive, and all idle words but AWAY (-1) and 0 are less than -1.

/// In the word of a reader without a region.
pub(crate) const IDLE: u64 = 1 << 63;
/// The word of a reader that holds no region up, and needs no fence: it comes back before it loads anything.
pub(crate) const AWAY: u64 = u64::MAX;

/// Whether the word is that of an open region, or of a QSBR reader that is online.
#[inline(always)]
pub(crate) fn is_open(word: u64) -> bool {
    word as i64 > 0
}

/// Whether a region may begin, or a token be reported, without a further step: the reader is idle, and not away.
#[inline(always)]
pub(crate) fn is_here(word: u64) -> bool {
    (word as i64) < AWAY as i64
}

/// The newest token for which an idle reader vouches. The word is neither open nor [`AWAY`].
#[inline(always)]
pub(crate) fn vouched(word: u64) -> u64 {
    word & !IDLE
}

/// Whether the word vouches for the token: it is `token | IDLE`, which takes two instructions more to compare.
#[inline(always)]
pub(crate) fn vouches_for(word: u64, token: u64) -> bool {
    token.wrapping_sub(word) == IDLE
}

/// Hazard slots for whoever has exclusive use of the reader: as many as a lookup in a table needs.
const EXCLUSIVE_HAZARDS: usize = 3;
/// Free slots in the record itself in addition to the first one: as many as fill its 128 bytes.
const INLINE_HAZARDS: usize = if cfg!(stillpoint_loom) { 0 } else { 2 };
/// Hazard slots of each further block.
const BLOCK_HAZARDS: usize = if cfg!(stillpoint_loom) { 1 } else { 7 };

/// In `attention`: a thread waits for the record to change.
const AWAITED: u32 = 1;
/// In `attention`: the thread is being boosted, or was some time ago (`boost/state.rs`).
const BOOSTED: u32 = 2;
/// In `attention`: a future waits for the record to change. Unlike a thread, a future does not look again on its own.
const FUTURE: u32 = 4;
/// In `attention`, for this holder of the record: a full fence must come before the look at the other bits.
const FENCES: u32 = 8;

/// A hazard slot: null, or the address of an object that must not be freed.
pub(crate) type Hazard = AtomicPtr<()>;

/// How a reader blocks grace periods, or keeps objects alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u32)]
pub enum ReaderKind {
    /// A [`Reader`](crate::rcu::Reader) that holds a guard.
    Guard = 0,
    /// A [`QsbrReader`](crate::rcu::QsbrReader) that has not reported a quiescent state.
    Qsbr = 1,
    /// A [`Protected`](crate::rcu::Protected) or an [`OwnedProtected`](crate::rcu::OwnedProtected), which keeps one object alive. In a
    /// [`Stall`](crate::rcu::wait::Stall) only if it is [silent](crate::rcu::wait::Stall::missed), and a slot that belongs to no thread.
    ProtectedLoad = 4,
}

/// In `thread`: the record belongs to no thread. No thread has this handle.
const NOBODY: usize = usize::MAX;

/// In `thread`: the record's slot was lent, and the thread that has lent it has ended. No thread has this handle.
const LEFT: usize = usize::MAX - 1;

/// In `kind`: the holder announces itself by light fences.
const LIGHT: u32 = 2;

#[repr(C)]
pub(crate) struct Record {
    /// The region, or what the reader vouches for: see [`IDLE`].
    state: AtomicU64,
    /// What the reader must look at when it changes its state: [`AWAITED`], [`FUTURE`], [`BOOSTED`], [`FENCES`].
    attention: AtomicU32,
    /// The holder's [`ReaderKind`], without regard to its protected loads, and [`LIGHT`] if it relies on light fences.
    kind: AtomicU32,
    /// The thread's id for reports.
    tid: AtomicU32,
    /// The lower half of the state of the last section that was reported to the stall hook; 0 if none of this holder was.
    reported: AtomicU32,
    /// The thread's handle, which survives `fork`: by it a thread recognises its own records.
    thread: AtomicUsize,
    /// The newest of the blocks in use: these are it and all older ones. Null until the first block is made.
    more: AtomicPtr<HazardBlock>,
    /// What the thread keeps for boosters, in domains that boost.
    boost_state: AtomicPtr<BoostState>,
    /// The owner's list of free slots, without the first one.
    free: OwnPtr<Further>,
    first: Hazard,
    further: [Further; INLINE_HAZARDS],
    /// The slots of whoever has exclusive use of the reader. Never free ones, which a caller of `raw` may keep meanwhile.
    exclusive: [Hazard; EXCLUSIVE_HAZARDS],
}

/// The blocks of a record form a chain, whose order never changes, since a scan may pass a block while it is given back. The oldest
/// block, and a number of the next ones, are in use; the others are kept for later.
struct HazardBlock {
    further: [Further; BLOCK_HAZARDS],
    /// The next older block and the oldest one; null in the oldest one. Written before the block is published.
    older: *mut HazardBlock,
    oldest: *mut HazardBlock,
    /// The next newer block, in use or not. Used only by the owner.
    newer: OwnPtr<HazardBlock>,
    /// In the oldest block: how many slots of all blocks are taken. Used only by the owner.
    taken: OwnUsize,
}

/// A slot of the list of free ones. These are distinguished by address from those that are in no list: the first one, and the
/// [exclusive](Record::exclusive_hazard) one.
#[derive(Default)]
#[repr(C, align(16))]
struct Further {
    hazard: Hazard,
    /// While the slot is free, the next free one. While it is in use, the record.
    link: OwnPtr<()>,
}

#[cfg(not(stillpoint_loom))]
impl Record {
    /// Offsets of `state`, `attention` and the first hazard slot in bytes, for readers' code in other languages.
    pub(crate) const OFFSETS: [usize; 3] = [
        std::mem::offset_of!(Self, state),
        std::mem::offset_of!(Self, attention),
        std::mem::offset_of!(Self, first),
    ];

    /// For debuggers.
    pub(crate) const LAYOUT: [usize; 13] = [
        std::mem::offset_of!(Self, state),
        std::mem::offset_of!(Self, kind),
        std::mem::offset_of!(Self, tid),
        std::mem::offset_of!(Self, first),
        std::mem::offset_of!(Self, further),
        INLINE_HAZARDS,
        size_of::<Further>(),
        std::mem::offset_of!(Self, exclusive),
        EXCLUSIVE_HAZARDS,
        std::mem::offset_of!(Self, more),
        std::mem::offset_of!(HazardBlock, further),
        BLOCK_HAZARDS,
        std::mem::offset_of!(HazardBlock, older),
    ];
}

#[cfg(not(stillpoint_loom))]
const _: () = {
    let exclusive = std::mem::offset_of!(Record, exclusive) + size_of::<Hazard>();
    assert!(std::mem::offset_of!(Record, first) % align_of::<Further>() != 0);
    assert!(exclusive % align_of::<Further>() != 0);
};

/// A hazard slot that its holder gives back.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'r> {
    /// For a further slot, made from a reference to the whole `Further`.
    hazard: NonNull<Hazard>,
    #[cfg(stillpoint_loom)]
    is_further: bool,
    _record: PhantomData<&'r Record>,
}

impl<'r> Slot<'r> {
    /// A slot in no list.
    #[inline(always)]
    fn single(hazard: &'r Hazard) -> Self {
        Self {
            hazard: NonNull::from(hazard),
            #[cfg(stillpoint_loom)]
            is_further: false,
            _record: PhantomData,
        }
    }

    fn further(further: &'r Further) -> Self {
        Self {
            hazard: NonNull::from(further).cast(),
            #[cfg(stillpoint_loom)]
            is_further: true,
            _record: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn hazard(self) -> &'r Hazard {
        // SAFETY: it was made from a reference with this lifetime.
        unsafe { self.hazard.as_ref() }
    }

    /// The slot's address, for [`from_raw`](Slot::from_raw).
    #[cfg(not(stillpoint_loom))]
    #[inline(always)]
    pub(crate) fn into_raw(self) -> NonNull<()> {
        self.hazard.cast()
    }

    /// The slot with this address.
    ///
    /// # Safety
    /// It came from [`into_raw`](Slot::into_raw), and the record outlives `'r`.
    #[cfg(not(stillpoint_loom))]
    #[inline(always)]
    pub(crate) unsafe fn from_raw(address: NonNull<()>) -> Self {
        Self { hazard: address.cast(), _record: PhantomData }
    }

    #[cfg(not(stillpoint_loom))]
    #[inline(always)]
    fn is_further(self) -> bool {
        self.hazard.cast::<Further>().is_aligned()
    }

    #[cfg(stillpoint_loom)]
    fn is_further(self) -> bool {
        self.is_further
    }

    /// Clears the slot, which may then be handed out again. Constant time.
    ///
    /// # Safety
    /// The caller is the record's owner, got the slot from one of its methods, and does not use it any more.
    #[inline(always)]
    pub(crate) unsafe fn release(self) {
        clear_hazard(&self);
        if self.is_further() {
            // SAFETY: the caller does not use the slot any more, and it is a further one.
            unsafe { self.free() };
        }
    }

    /// # Safety
    /// As for [`release`](Slot::release), and the slot is a further one.
    #[cold]
    unsafe fn free(self) {
        // SAFETY: the slot was made from a reference to the whole `Further`, which outlives this value.
        let further = unsafe { self.hazard.cast::<Further>().as_ref() };
        // Relaxed, all: only the owner uses links.
        let record = further.link.load(Ordering::Relaxed).cast::<Record>();
        // SAFETY: `next_free_hazard` stored the record's address, and the record outlives its slots.
        unsafe { &*record }.take_back(further);
    }
}

impl Deref for Slot<'_> {
    type Target = Hazard;

    #[inline(always)]
    fn deref(&self) -> &Hazard {
        self.hazard()
    }
}

impl Default for HazardBlock {
    fn default() -> Self {
        Self {
            further: std::array::from_fn(|_| Further::default()),
            older: ptr::null_mut(),
            oldest: ptr::null_mut(),
            newer: OwnPtr::default(),
            taken: OwnUsize::new(0),
        }
    }
}

impl Default for Record {
    fn default() -> Self {
        Self {
            state: AtomicU64::new(AWAY),
            attention: AtomicU32::new(0),
            kind: AtomicU32::new(ReaderKind::Guard as u32),
            tid: AtomicU32::new(0),
            reported: AtomicU32::new(0),
            thread: AtomicUsize::new(0),
            more: AtomicPtr::new(ptr::null_mut()),
            boost_state: AtomicPtr::new(ptr::null_mut()),
            free: OwnPtr::default(),
            first: Hazard::default(),
            further: std::array::from_fn(|_| Further::default()),
            exclusive: Default::default(),
        }
    }
}

/// The owner's side: called only by the reader's thread.
impl Record {
    /// Records the new holder, and what its thread keeps for boosters.
    pub(crate) fn adopt(
        &self,
        kind: ReaderKind,
        fence: ReaderFence,
        boost_state: Option<&'static BoostState>,
    ) {
        // Release: pairs with the acquire load in `kind`: a scan that sees the new holder's kind comes after
        // everything the old holder did.
        let light = if kind == ReaderKind::Guard { LIGHT } else { 0 };
        self.kind.store(kind as u32 | light, Ordering::Release);
        // Relaxed: for reports.
        self.tid.store(stillpoint_sys::os::thread_id(), Ordering::Relaxed);
        self.thread.store(stillpoint_sys::os::thread_handle(), Ordering::Relaxed);
        // Relaxed: at worst, the last holder's report is taken for one of a new section with the same token.
        self.reported.store(0, Ordering::Relaxed);
        let attention = if boost_state.is_some() && fence == ReaderFence::Full { FENCES } else { 0 };
        // Clears the last holder's bit. Relaxed: the bit is the holder's own.
        self.attention.fetch_and(!FENCES, Ordering::Relaxed);
        if busted::is(Variant::AdoptByStore) {
            self.attention.store(attention, Ordering::Relaxed);
        } else {
            // Requests to the last holder stay, and this one answers them: a future may have mistaken this holder's state
            // for that of the section that it waits for. Relaxed, as all requests; the bit is the holder's own.
            self.attention.fetch_or(attention, Ordering::Relaxed);
        }
        if tsan::is_there() {
            // The new holder's stores also cover those of the last one.
            tsan::acquire(self);
            self.hazards().for_each(|hazard| tsan::acquire(hazard));
        }
        self.list_free(|_| true);
        // Release: pairs with the acquire load in `boost_state`.
        self.boost_state.store(
            boost_state.map_or(ptr::null_mut(), |boost_state| ptr::from_ref(boost_state).cast_mut()),
            Ordering::Release,
        );
    }

    /// Notes that from now on the record belongs to no thread, but to one protected load.
    pub(crate) fn adopt_owned(&self) {
        // Release: as in `adopt`.
        self.kind.store(ReaderKind::ProtectedLoad as u32, Ordering::Release);
    }

    /// Notes that the calling thread lends the record's slot, again and again. The record is one of [owned](Record::adopt_owned) loads.
    pub(crate) fn lend(&self) {
        // Relaxed: as in `adopt`.
        self.thread.store(stillpoint_sys::os::thread_handle(), Ordering::Relaxed);
    }

    /// The slot, if it is not lent at the moment. Only the lender calls this.
    #[inline(always)]
    pub(crate) fn unlent(&self) -> Option<Slot<'_>> {
        let is_free = busted::is(Variant::LentTwice) || self.first.load(orders::unlent()).is_null();
        is_free.then(|| self.first_hazard())
    }

    /// The lender has ended while the slot is lent. Somebody [takes](Record::take_left) the record when the slot is clear.
    pub(crate) fn leave_lent(&self) {
        // Release: pairs with the acquire in `take_left`, which finds the slot as it is here, or clear.
        self.thread.store(LEFT, Ordering::Release);
    }

    /// Whether the record was left, and its slot is clear by now.
    pub(crate) fn is_left(&self) -> bool {
        // Relaxed, both: a hint. `take_left` decides.
        self.thread.load(Ordering::Relaxed) == LEFT && self.first.load(Ordering::Relaxed).is_null()
    }

    /// Takes a record that was left, and whose slot is clear: it is the caller's, to lend the slot or to release the claim.
    pub(crate) fn take_left(&self) -> bool {
        // Acquire: pairs with the release in `leave_lent`.
        let is_taken = self.is_left()
            && self.thread.compare_exchange(LEFT, 0, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // In between, the record may have been taken, lent, and left again.
        let is_clear = is_taken && self.unlent().is_some();
        if is_taken && !is_clear {
            self.leave_lent();
        }
        is_clear
    }

    /// Whether the record is there to lend its slot, which is free at the moment.
    pub(crate) fn is_spare(&self) -> bool {
        // Relaxed, both: for statistics.
        let thread = self.thread.load(Ordering::Relaxed);
        thread != 0 && thread != NOBODY && self.first.load(Ordering::Relaxed).is_null()
    }

    /// In the child of a `fork`, for a record of owned loads: its lender may not be there any more.
    pub(crate) fn lose_lender(&self) -> bool {
        // Relaxed, both: there is no other thread.
        let thread = self.thread.load(Ordering::Relaxed);
        let is_lost = thread != 0 && thread != NOBODY && thread != LEFT && !self.is_mine();
        if is_lost {
            self.thread.store(LEFT, Ordering::Relaxed);
        }
        is_lost
    }

    /// Notes that from now on the record belongs to no thread, but to a slot that is set again and again. Returns whether
    /// writers must issue heavy fences for it.
    pub(crate) fn adopt_slot(&self, fence: ReaderFence) -> bool {
        let light = if fence == ReaderFence::Light { LIGHT } else { 0 };
        // Release: as in `adopt`.
        self.kind.store(ReaderKind::ProtectedLoad as u32 | light, Ordering::Release);
        // Clears the mark of a spare, which would not count as a light reader, and the last holder's handle: a writer on that thread would
        // take the slot for its own. Relaxed: see `adopt`.
        let is_own = busted::is(Variant::SlotOfThread);
        self.thread.store(if is_own { stillpoint_sys::os::thread_handle() } else { 0 }, Ordering::Relaxed);
        light != 0
    }

    /// Notes that from now on the record belongs to no thread: the owner of its claim may use it, one thread at a time.
    pub(crate) fn belong_to_nobody(&self) {
        // Release: as in `adopt`. A writer that sees no light reader here any more, and so issues no fence, sees what that has left.
        self.kind.store(ReaderKind::Guard as u32, Ordering::Release);
        // Relaxed, both: see `adopt`.
        self.thread.store(NOBODY, Ordering::Relaxed);
        self.tid.store(0, Ordering::Relaxed);
    }

    /// Whether the holder announces itself by light fences, so that writers must issue heavy ones.
    pub(crate) fn is_light(&self) -> bool {
        self.kind.load(orders::light()) & LIGHT != 0
    }

    /// Removes the holder. Returns what its thread kept for boosters, which the record no longer holds.
    pub(crate) fn abandon(&self) -> Option<&'static BoostState> {
        let boost_state = self.boost_state();
        if boost_state.is_some() {
            // Comes before the boost state may belong to another thread. A `fork` may find a claimed record without a holder,
            // which has no boost state. Relaxed: a booster that still sees the old one finds the record passive, or claimed by
            // another thread.
            self.boost_state.store(ptr::null_mut(), Ordering::Relaxed);
        }
        // A `fork` may find the record claimed again and not adopted yet; until then it belongs to no holder. Relaxed: see
        // `adopt`. No model forks.
        if !cfg!(stillpoint_loom) {
            self.thread.store(0, Ordering::Relaxed);
            self.tid.store(0, Ordering::Relaxed);
        }
        boost_state
    }

    fn has(&self, bits: u32) -> bool {
        // Relaxed: a hint, or a bit that the owner has set itself.
        self.attention.load(Ordering::Relaxed) & bits != 0
    }

    /// In the child of a `fork`: stores the thread's new id, and marks its section as not reported.
    pub(crate) fn refresh(&self) {
        // Relaxed, both: see `adopt`.
        self.tid.store(stillpoint_sys::os::thread_id(), Ordering::Relaxed);
        self.reported.store(0, Ordering::Relaxed);
    }

    /// Whether the owner has a guard or a protected load.
    pub(crate) fn is_in_use(&self) -> bool {
        // Relaxed: the owner reads its own stores.
        is_open(self.state()) || self.hazards().any(|hazard| !hazard.load(Ordering::Relaxed).is_null())
    }

    /// The owner's view of its own state.
    #[inline(always)]
    pub(crate) fn state(&self) -> u64 {
        // Relaxed: the owner reads its own stores.
        self.state.load(Ordering::Relaxed)
    }

    /// Publishes a new region state. `order` is release, except in broken variants: what the reader did before this, in its
    /// sections, happens before what a scan does after it has read this state or a later one. It pairs with the acquire load in
    /// [`observe`](Record::observe).
    #[inline(always)]
    pub(crate) fn publish(&self, state: u64, order: Ordering) {
        tsan::release(self);
        self.state.store(state, order);
    }

    /// Whether the record wants attention. Called after the state was published, and after a light fence.
    #[inline(always)]
    pub(crate) fn wants_attention(&self) -> bool {
        // Relaxed: the requester notices if the reader misses the request (`wait/park.rs`, `boost/policy.rs`, `wait/tasks.rs`).
        self.attention.load(Ordering::Relaxed) != 0
    }

    /// Takes the request: whether a thread or future waited for this record to change.
    pub(crate) fn take_request(&self) -> bool {
        // Relaxed: see `wants_attention`.
        self.has(AWAITED | FUTURE)
            && self.attention.fetch_and(!(AWAITED | FUTURE), Ordering::Relaxed) & (AWAITED | FUTURE) != 0
    }

    /// Takes the notice: whether the reader was notified of a boost.
    pub(crate) fn take_told(&self) -> bool {
        // Acquire: pairs with the release in `tell_boosted`. The boost state's word is at least as new.
        self.has(BOOSTED) && self.attention.fetch_and(!BOOSTED, Ordering::Acquire) & BOOSTED != 0
    }

    /// Whether a full fence must come before the look at requests.
    pub(crate) fn fences(&self) -> bool {
        self.has(FENCES)
    }

    /// A hazard slot that is not in use, the first one if possible. Constant time; allocates a block if all are in use.
    #[cfg(test)]
    pub(crate) fn free_hazard(&self) -> Slot<'_> {
        self.free_first_hazard().unwrap_or_else(|| self.next_free_hazard())
    }

    /// The first slot, if it is free.
    #[inline(always)]
    pub(crate) fn free_first_hazard(&self) -> Option<Slot<'_>> {
        // Relaxed: the owner reads its own stores. The branch is predicted, so neither the search
        // for a slot nor its release forms a chain of dependent loads and stores.
        self.first.load(Ordering::Relaxed).is_null().then(|| Slot::single(&self.first))
    }

    /// The first hazard slot, of a record that belongs to no thread.
    #[inline(always)]
    pub(crate) fn first_hazard(&self) -> Slot<'_> {
        Slot::single(&self.first)
    }

    /// The slot of a caller with exclusive use of the reader. What a forgotten protected load has left in it may be overwritten:
    /// no reference to the object exists any more.
    #[inline(always)]
    pub(crate) fn exclusive_hazard(&self) -> Slot<'_> {
        Slot::single(&self.exclusive[1])
    }

    /// All slots of a caller with exclusive use of the reader, as for [`exclusive_hazard`](Record::exclusive_hazard).
    #[inline(always)]
    pub(crate) fn exclusive_hazards(&self) -> [&Hazard; EXCLUSIVE_HAZARDS] {
        self.exclusive.each_ref()
    }

    /// A hazard slot that nobody gets before it is [released](Slot::release), set or not. Allocates a block if all are in use.
    #[cold]
    pub(crate) fn next_free_hazard(&self) -> Slot<'_> {
        work::step();
        // Relaxed, all: only the owner uses the list.
        if self.free.load(Ordering::Relaxed).is_null() {
            self.chain();
        }
        // SAFETY: it is a slot of the record, whose blocks are freed with the record.
        let further = unsafe { &*self.free.load(Ordering::Relaxed) };
        self.free.store(further.link.load(Ordering::Relaxed).cast(), Ordering::Relaxed);
        further.link.store(ptr::from_ref(self).cast_mut().cast(), Ordering::Relaxed);
        if let Some(taken) = self.taken_with(further) {
            taken.store(taken.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        Slot::further(further)
    }

    /// Marks a slot as free. When no slot of a block is taken any more, gives all blocks but one back: neither this thread nor a scan
    /// looks at them until they are needed again.
    fn take_back(&self, further: &Further) {
        // Relaxed, all: used only by the owner.
        further.link.store(self.free.load(Ordering::Relaxed).cast(), Ordering::Relaxed);
        self.free.store(ptr::from_ref(further).cast_mut(), Ordering::Relaxed);
        let Some(taken) = self.taken_with(further) else { return };
        let left = taken.load(Ordering::Relaxed) - 1;
        taken.store(left, Ordering::Relaxed);
        if left == 0 && self.keep_one_block(orders::give_blocks_back()) {
            let own = ptr::from_ref(self);
            self.list_free(|further| !ptr::addr_eq(further.link.load(Ordering::Relaxed), own));
        }
    }

    /// Where the slots that are taken are counted, if this one belongs to a block.
    fn taken_with(&self, further: &Further) -> Option<&OwnUsize> {
        // Usually there is no block, and nothing else to compute.
        self.newest_block()?;
        let is_inline = self.further.as_ptr_range().contains(&ptr::from_ref(further));
        // SAFETY: null, or a block of the record, with which it is freed.
        unsafe { self.oldest_block().as_ref() }.filter(|_| !is_inline).map(|oldest| &oldest.taken)
    }

    /// The newest block in use.
    fn newest_block(&self) -> Option<&HazardBlock> {
        // SAFETY: null, or a block of the record, with which it is freed. Relaxed: the owner reads its own stores.
        unsafe { self.more.load(Ordering::Relaxed).as_ref() }
    }

    /// The oldest block, as `Box` has made it; null if there is none.
    fn oldest_block(&self) -> *mut HazardBlock {
        let newest = self.more.load(Ordering::Relaxed);
        // SAFETY: null, or a block of the record, with which it is freed.
        let oldest = unsafe { newest.as_ref() }.map_or(ptr::null_mut(), |newest| newest.oldest);
        if oldest.is_null() {
            newest
        } else {
            oldest
        }
    }

    /// Takes another block into use, a new one if there is none. All its slots are free. Out of line, so that the usual search for a
    /// slot needs no stack frame.
    #[cold]
    #[inline(never)]
    fn chain(&self) {
        let mut spare = None;
        let block = loop {
            let newest = self.newest_block();
            // Relaxed, all: used only by the owner.
            let block = newest.map_or(ptr::null_mut(), |newest| newest.newer.load(Ordering::Relaxed));
            if !block.is_null() {
                break block;
            }
            let Some(mut new): Option<Box<HazardBlock>> = spare.take() else {
                spare = Some(Box::default());
                // The allocator may have called a load, which came here as well: look again.
                continue;
            };
            (new.older, new.oldest) = (self.more.load(Ordering::Relaxed), self.oldest_block());
            let block = Box::into_raw(new);
            if let Some(newest) = newest {
                newest.newer.store(block, Ordering::Relaxed);
            }
            break block;
        };
        // SAFETY: it is freed with the record.
        for further in unsafe { &(*block).further } {
            if tsan::is_there() {
                // As in `adopt`.
                tsan::acquire(&further.hazard);
            }
            self.add_free(further);
        }
        // Release: pairs with the acquire load in `blocks`.
        self.more.store(block, Ordering::Release);
    }

    /// Gives back all blocks but the oldest one, none of whose slots is taken. Returns whether there were any. `order` is release: a
    /// scan that does not see the blocks any more comes after what their slots protected was used.
    fn keep_one_block(&self, order: Ordering) -> bool {
        let block = self.oldest_block();
        // SAFETY: null, or a block of the record, with which it is freed.
        let Some(oldest) = (unsafe { block.as_ref() }) else { return false };
        // Relaxed, both: used only by the owner.
        oldest.taken.store(0, Ordering::Relaxed);
        let is_more = !ptr::eq(self.more.load(Ordering::Relaxed), block);
        if is_more {
            self.more.store(block, order);
        }
        is_more
    }

    /// Lists the slots in the record and in the blocks in use that are free. Does not list the first one.
    fn list_free(&self, is_free: impl Fn(&Further) -> bool) {
        // Relaxed: only the owner uses the list.
        self.free.store(ptr::null_mut(), Ordering::Relaxed);
        let slots = self.blocks().flatten().chain(&self.further);
        slots.filter(|further| is_free(further)).for_each(|further| self.add_free(further));
    }

    fn add_free(&self, further: &Further) {
        work::step();
        // Relaxed, all: only the owner uses the list.
        further.link.store(self.free.load(Ordering::Relaxed).cast(), Ordering::Relaxed);
        self.free.store(ptr::from_ref(further).cast_mut(), Ordering::Relaxed);
    }

    fn clear_all(&self, order: Ordering) {
        for hazard in self.hazards() {
            // Relaxed: the owner reads its own stores.
            if !hazard.load(Ordering::Relaxed).is_null() {
                tsan::release(hazard);
                // Release: as in `clear_hazard`.
                hazard.store(ptr::null_mut(), order);
            }
        }
        self.keep_one_block(order);
    }

    /// Gives up everything, including forgotten guards and protected loads. Nothing can refer to them any
    /// more: they borrow the reader, which is being dropped.
    pub(crate) fn leave(&self) {
        let order = orders::give_up();
        self.clear_all(order);
        self.publish(AWAY, order);
    }
}

/// Sets a hazard slot. Release: a scan that reads this value comes after the reads of the slot's previous object.
/// Pairs with the acquire load in `Protocol::gather_hazards`.
#[inline(always)]
pub(crate) fn set_hazard(hazard: &Hazard, object: *mut ()) {
    hazard.store(object, orders::hazard_set());
}

/// Clears a hazard slot. Release: the reads of the object happen before its free. Pairs with the acquire load
/// in `Protocol::gather_hazards`.
#[inline(always)]
pub(crate) fn clear_hazard(hazard: &Hazard) {
    tsan::release(hazard);
    hazard.store(ptr::null_mut(), orders::hazard_clear());
}

/// The scanner's side: any thread may call it.
impl Record {
    /// The region state. Acquire: pairs with [`publish`](Record::publish). What the reader did in sections
    /// before the state read here happens before what the caller does next.
    #[inline(always)]
    pub(crate) fn observe(&self) -> u64 {
        self.state.load(orders::observe())
    }

    /// Whether a writer that has read this word of an idle reader must fence before it lets `token` pass: the reader does not vouch for
    /// the token, relies on light fences, and is not the caller's own. The caller's loads come after what was unlinked before the
    /// token. A slot that belongs to no thread is nobody's own.
    pub(crate) fn is_silent(&self, word: u64, token: u64) -> bool {
        !is_open(word) && word != AWAY && vouched(word) < token && self.is_light() && !self.is_mine()
    }

    /// Every hazard slot of the record, in use or not.
    pub(crate) fn hazards(&self) -> impl Iterator<Item = &Hazard> {
        let further = self.further.iter().chain(self.blocks().flatten());
        std::iter::once(&self.first).chain(&self.exclusive).chain(further.map(|further| &further.hazard))
    }

    /// The slots of the blocks in use.
    fn blocks(&self) -> impl Iterator<Item = &[Further; BLOCK_HAZARDS]> {
        // Acquire: pairs with the releases in `chain` and in `keep_one_block`.
        let mut block = self.more.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: null, or a published block; blocks are freed with the record.
            let next = unsafe { block.as_ref() }?;
            block = next.older;
            Some(&next.further)
        })
    }

    pub(crate) fn kind(&self) -> ReaderKind {
        // Acquire: pairs with the release in `adopt`, `adopt_owned`, `adopt_slot` or `belong_to_nobody`.
        match self.kind.load(Ordering::Acquire) & !LIGHT {
            kind if kind == ReaderKind::Qsbr as u32 => ReaderKind::Qsbr,
            kind if kind == ReaderKind::ProtectedLoad as u32 => ReaderKind::ProtectedLoad,
            _ => ReaderKind::Guard,
        }
    }

    pub(crate) fn tid(&self) -> u32 {
        // Relaxed: see `adopt`.
        self.tid.load(Ordering::Relaxed)
    }

    /// Whether the caller should report the present section to the stall hook. True if the section is in the way of `token`, and no
    /// other call has reported it.
    ///
    /// Exact, except for sections that are 2^32 tokens apart. The caller's exchange succeeds only if no other report came since
    /// its first load, so two callers do not both report one section. If that load reads the report of a later section, the state
    /// that is read after it is at least as new. So a caller that was preempted does not replace that report with one of a
    /// section that is over.
    pub(crate) fn begin_report(&self, token: u64) -> bool {
        // Acquire: pairs with the release of the exchange below.
        let reported = self.reported.load(Ordering::Acquire);
        let state = self.observe();
        if !blocks(state, token) || reported == state as u32 {
            return false;
        }
        if busted::is(Variant::ReportByStore) {
            self.reported.store(state as u32, Ordering::Release);
            return true;
        }
        // Release: pairs with the acquire above, in another caller.
        let answer =
            self.reported.compare_exchange(reported, state as u32, Ordering::Release, Ordering::Relaxed);
        answer.is_ok()
    }

    /// Whether the calling thread holds the record, or, in the child of a `fork`, its copy in the parent does.
    #[inline]
    pub(crate) fn is_mine(&self) -> bool {
        // Relaxed: a thread sees its own store, and no other thread stores its handle.
        self.thread.load(Ordering::Relaxed) == stillpoint_sys::os::thread_handle()
    }

    /// Whether the record belongs to no thread.
    pub(crate) fn is_nobodys(&self) -> bool {
        // Relaxed: for a caller that is the only thread of the process.
        self.thread.load(Ordering::Relaxed) == NOBODY
    }

    /// Whether the calling thread, whose id is `tid`, holds the record. Compares the id as well as the handle: a handle is
    /// reused after its thread has ended, and that thread may have left a reader behind.
    pub(crate) fn is_of_caller(&self, tid: u32) -> bool {
        self.is_mine() && self.tid() == tid
    }

    /// Asks the reader to wake the domain's sleepers when its state changes.
    pub(crate) fn ask_for_attention(&self) {
        // Relaxed: see `wants_attention`.
        self.attention.fetch_or(AWAITED, Ordering::Relaxed);
    }

    /// Notifies the reader of a boost: it looks at its boost state when its state changes.
    pub(crate) fn tell_boosted(&self) {
        // Release: pairs with the acquire in `take_told`.
        self.attention.fetch_or(BOOSTED, Ordering::Release);
    }

    /// What the holder's thread keeps for boosters, in domains that boost.
    pub(crate) fn boost_state(&self) -> Option<&'static BoostState> {
        // Acquire: pairs with the release in `adopt`.
        // SAFETY: null, or a boost state, which lives for ever.
        unsafe { self.boost_state.load(Ordering::Acquire).as_ref() }
    }

    /// In the child of a `fork`, for each record: discards the requests.
    ///
    /// # Safety
    /// There is no other thread.
    pub(crate) unsafe fn reset_after_fork(&self) {
        // Relaxed: there is no other thread.
        self.attention.fetch_and(FENCES, Ordering::Relaxed);
    }

    /// Asks the reader to wake the domain's futures when its state changes. Returns whether this is the first request:
    /// then the caller must issue a fence, on behalf of all later requests, too.
    pub(crate) fn request(&self) -> bool {
        // AcqRel: pairs with itself. A caller that finds an earlier request has seen the state that the earlier caller had seen.
        self.attention.fetch_or(FUTURE, Ordering::AcqRel) & FUTURE == 0
    }

    /// Withdraws the request, since the caller wakes the futures in the reader's place. It does this before it wakes them, so
    /// that the next request issues a fence again.
    pub(crate) fn withdraw_request(&self) {
        // Relaxed: ordered with the wake-ups by the lock of the wakers.
        self.attention.fetch_and(!FUTURE, Ordering::Relaxed);
    }
}

/// Whether a reader in this state may hold what was unlinked before `token`.
#[inline]
pub(crate) fn blocks(state: u64, token: u64) -> bool {
    if busted::is(Variant::TokenTooEarly) {
        return is_open(state) && state + 1 < token;
    }
    is_open(state) && state < token
}

impl Drop for Record {
    fn drop(&mut self) {
        let mut next = self.oldest_block();
        while !next.is_null() {
            // SAFETY: each block came from `Box::into_raw`, is in the chain once, and nothing refers to it.
            let block = unsafe { Box::from_raw(next) };
            next = block.newer.load(Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests;
