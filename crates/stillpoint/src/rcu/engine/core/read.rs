//! The readers' protocols.

use std::ptr::NonNull;

use super::record::{
    clear_hazard, is_here, is_open, set_hazard, vouches_for, Hazard, ReaderKind, Record, Slot, AWAY, IDLE,
};
use super::registry::Claim;
use super::Protocol;
use crate::busted::{self, Variant};
use crate::fence::{self, Mode, ReaderFence};
use crate::rcu::engine::boost::BoostState;
use crate::rcu::orders;
use stillpoint_sys::sync::atomic::{fence as atomic_fence, AtomicPtr, Ordering};

/// The most records that a thread looks at for one that another thread has left lent.
const LOOKS_FOR_LEFT: usize = 64;

/// A call that changes a reader's state returns whether its record wants attention: because a thread or a future waits for the
/// change, or because the reader was boosted. Then the reader has to answer.
impl Protocol {
    /// Registers the calling thread as a reader, with what it keeps for boosters, in a record that the caller has claimed. Returns how
    /// the reader must fence, and whether its record wants attention. Allocates nothing and takes no lock.
    pub(crate) fn register_in(
        &self,
        record: &Record,
        kind: ReaderKind,
        boost_state: Option<&'static BoostState>,
    ) -> (ReaderFence, bool) {
        let fence = self.reader_fence();
        record.adopt(kind, fence, boost_state);
        let wants_attention = self.count_in(record, || kind == ReaderKind::Qsbr && self.report(record));
        (fence, wants_attention)
    }

    /// Claims a record that belongs to no thread until a thread registers in it.
    pub(crate) fn reserve(&self) -> Claim<Record> {
        let claim = self.records.claim();
        // SAFETY: the registry is alive.
        unsafe { claim.slot() }.belong_to_nobody();
        claim
    }

    /// Counts a record that has a new holder, then publishes its first state.
    fn count_in<R>(&self, record: &Record, first_state: impl FnOnce() -> R) -> R {
        if record.is_light() {
            // Relaxed: made visible by the fence below.
            self.light_readers.fetch_add(1, Ordering::Relaxed);
        }
        let answer = first_state();
        if !busted::is(Variant::RegisterNoFence) {
            // SeqCst: pairs with the fence in `Protocol::order`. Either that writer sees the claim, the count and
            // the state, or everything this reader loads from now on is newer than what the writer unlinked.
            atomic_fence(Ordering::SeqCst);
        }
        answer
    }

    /// Gives up everything that a reader holds, at its end. Its record wants attention for the last time.
    pub(crate) fn sign_off(&self, record: &Record) -> bool {
        if !busted::is(Variant::LeaveForgotten) {
            record.leave();
        }
        if record.is_light() {
            self.light_readers.fetch_sub(1, orders::light_reader_gone());
        }
        self.wants_attention(record)
    }

    /// Protects what `source` points to, by a record that is bound to no thread. The object is not freed until the record is
    /// [released](Protocol::release_owned). `None` if `source` holds null.
    #[inline]
    pub(crate) fn protect_owned<T>(&self, source: &AtomicPtr<T>) -> Option<(NonNull<T>, Claim<Record>)> {
        // Relaxed: this address is not followed.
        let candidate = NonNull::new(source.load(Ordering::Relaxed))?;
        let claim = self.claim_owned();
        // It makes claim, kind and slot visible at once, and pairs with the fence in `Protocol::order`.
        let fence = if busted::is(Variant::OwnedLight) { ReaderFence::Light } else { ReaderFence::Full };
        // SAFETY: the registry is alive.
        let record: &Record = unsafe { claim.slot() };
        let object = protect_from(fence, source, candidate, &record.first_hazard());
        if object.is_none() {
            self.records.release(&claim);
        }
        object.map(|object| (object, claim))
    }

    /// Claims a record that is bound to no thread. Its holder sets the slot, and fences then: fully, or as a reader that has vouched.
    #[inline]
    pub(crate) fn claim_owned(&self) -> Claim<Record> {
        let claim = self.records.claim();
        // SAFETY: the registry is alive.
        let record: &Record = unsafe { claim.slot() };
        record.adopt_owned();
        claim
    }

    /// The record whose slot the calling thread lends from now on, until it [ends](Protocol::end_lending). If threads have ended whose
    /// slots were lent, looks at some records for one of theirs; scans [release](Protocol::release_left) them, too.
    pub(crate) fn begin_lending(&self) -> Claim<Record> {
        // Relaxed: a hint. The exchange decides.
        if self.left.load(Ordering::Relaxed) > 0 {
            // From where the last look has found one, or has ended: there may be more, and each record has its turn. Relaxed, both: any
            // number will do.
            let from = self.look_for_left.load(Ordering::Relaxed);
            let mut last = from;
            let mut looks = self.records.circle_from(from).take(LOOKS_FOR_LEFT);
            let taken = looks.find(|(record, claim)| {
                stillpoint_sys::work::step();
                last = claim.number();
                record.take_left()
            });
            self.look_for_left.store(last, Ordering::Relaxed);
            if let Some((record, claim)) = taken {
                self.left.fetch_sub(1, Ordering::Relaxed);
                record.lend();
                return claim;
            }
        }
        let claim = self.claim_owned();
        // SAFETY: the registry is alive.
        unsafe { claim.slot() }.lend();
        claim
    }

    /// Releases the records that threads have left lent, and whose slots are clear by now.
    #[cold]
    pub(crate) fn release_left(&self) {
        for (record, claim) in self.records.claims() {
            if record.take_left() {
                // Relaxed: a hint.
                self.left.fetch_sub(1, Ordering::Relaxed);
                self.records.release(&claim);
            }
        }
    }

    /// Ends what [`begin_lending`](Protocol::begin_lending) began. A slot that is lent stays so.
    pub(crate) fn end_lending(&self, claim: &Claim<Record>) {
        // SAFETY: the registry is alive.
        let record: &Record = unsafe { claim.slot() };
        if record.unlent().is_some() {
            record.abandon();
            self.records.release(claim);
        } else {
            // Relaxed: a hint.
            self.left.fetch_add(1, Ordering::Relaxed);
            record.leave_lent();
        }
    }

    /// Releases what [`protect_owned`](Protocol::protect_owned) has protected. Any thread may call this.
    pub(crate) fn release_owned(&self, claim: &Claim<Record>) {
        // SAFETY: the registry is alive.
        let record: &Record = unsafe { claim.slot() };
        clear_hazard(&record.first_hazard());
        self.records.release(claim);
    }

    /// Claims a record for a slot that belongs to no thread: the [first one](Record::first_hazard). Its holder sets it again
    /// and again, and may hand it over to another thread. The holder fences as [readers do](Protocol::reader_fence). The slot
    /// ends as a reader does: [`sign_off`](Protocol::sign_off), then [`release`](Protocol::release).
    pub(crate) fn claim_slot(&self) -> Claim<Record> {
        let claim = self.records.claim();
        // SAFETY: the registry is alive.
        let record: &Record = unsafe { claim.slot() };
        let is_light = record.adopt_slot(self.reader_fence());
        if is_light && busted::is(Variant::SlotUncounted) {
            return claim;
        }
        // Comes back with the fence that it needs anyway: a slot is claimed to be set. The three steps are those of `come_back`.
        self.count_in(record, || record.publish(IDLE, orders::vouch()));
        self.vouch(record);
        claim
    }

    /// How readers of the domain fence, and holders of slots that belong to no thread.
    #[inline(always)]
    pub(crate) fn reader_fence(&self) -> ReaderFence {
        self.mode.of_readers()
    }

    /// Begins a section of a guard. The reader must be [here](is_here).
    #[inline(always)]
    pub(crate) fn enter(&self, fence: ReaderFence, record: &Record) {
        self.announce(record);
        if !busted::is(Variant::PinNoLight) {
            fence.issue();
        }
    }

    /// The first half of [`enter`](Protocol::enter): stores the state. The reader may load nothing before the fence.
    #[inline(always)]
    pub(crate) fn announce(&self, record: &Record) {
        let token = self.token.load(orders::enter_token());
        record.publish(token, orders::enter());
    }

    /// Ends a section of a guard, and vouches for the token of this moment.
    #[inline(always)]
    pub(crate) fn leave(&self, record: &Record) -> bool {
        let token = self.token.load(orders::vouch_token());
        record.publish(token | IDLE, orders::leave());
        self.wants_attention(record)
    }

    /// The reader vouches for the token of this moment, unless it is in a region: whatever it loads from now on is newer than what was
    /// unlinked before that token was started, and its slots are set. So writers need no fence for it.
    ///
    /// Every protected load outside a region comes after such a call. Costs a load and a compare, as long as the token has not moved.
    #[inline(always)]
    pub(crate) fn vouch(&self, record: &Record) {
        let token = self.token.load(orders::vouch_token());
        let word = record.state();
        if !vouches_for(word, token) {
            rare();
            if is_here(word) {
                record.publish(token | IDLE, orders::vouch());
            } else {
                self.vouch_from(record, word);
            }
        }
    }

    /// Whether [`vouch`](Protocol::vouch) would change nothing.
    #[inline(always)]
    pub(crate) fn has_vouched(&self, record: &Record) -> bool {
        let token = self.token.load(orders::vouch_token());
        let word = record.state();
        vouches_for(word, token) || (is_open(word) && !busted::is(Variant::VouchInRegion))
    }

    #[cold]
    #[inline(never)]
    fn vouch_from(&self, record: &Record, word: u64) {
        if is_open(word) && !busted::is(Variant::VouchInRegion) {
            // The region keeps alive more than the reader could vouch for.
            return;
        }
        self.come_back(record);
        let token = self.token.load(orders::vouch_token());
        record.publish(token | IDLE, orders::vouch());
    }

    /// Makes an idle reader one that writers look at again. From then on writers issue fences for it, until it has vouched.
    #[cold]
    #[inline(never)]
    pub(crate) fn come_back(&self, record: &Record) {
        if busted::is(Variant::BackAtOnce) {
            return;
        }
        self.begin_return(record);
        // SeqCst: pairs with the fence in `Protocol::order`, as in `count_in`. Either that writer sees that the reader is back, or
        // everything that the reader loads from now on is newer than what the writer unlinked.
        atomic_fence(Ordering::SeqCst);
    }

    /// The first step of [`come_back`](Protocol::come_back): stores a word that vouches for nothing. A word with a token must not come
    /// before the fence: a signal handler that finds it there would load without a fence.
    #[inline(always)]
    pub(crate) fn begin_return(&self, record: &Record) {
        let is_early = busted::is(Variant::TokenBeforeFence);
        let token = if is_early { self.token.load(orders::vouch_token()) } else { 0 };
        record.publish(token | IDLE, orders::vouch());
    }

    /// Lets writers ignore the reader until its next load or region. What it protects stays protected. Returns false, and does nothing,
    /// in a region, or if the reader is away already.
    pub(crate) fn go_away(&self, record: &Record) -> bool {
        let word = record.state();
        if word == AWAY || (is_open(word) && !busted::is(Variant::OfflineInRegion)) {
            return false;
        }
        record.publish(AWAY, orders::offline());
        true
    }

    /// Reports a quiescent state of a QSBR reader, or the first state of a reader that comes online.
    ///
    /// No fence is needed: a state that a scan lets pass carries a token that the reader got by an acquire load, so the reader has
    /// seen the unlink. Until then the old state blocks. Does nothing while the token has not moved: the section then goes
    /// on in the same state, and a thread that asked for attention waits for its end.
    #[inline(always)]
    pub(crate) fn report(&self, record: &Record) -> bool {
        let token = self.token.load(orders::report_token());
        let state = record.state();
        let is_kept = state == token || (state == AWAY && busted::is(Variant::PassiveKept));
        if is_kept {
            return false;
        }
        rare();
        record.publish(token, orders::report());
        self.wants_attention(record)
    }

    /// Takes a QSBR reader offline: it promises not to read until [`online`](Protocol::online).
    pub(crate) fn offline(&self, record: &Record) -> bool {
        record.publish(AWAY, orders::offline());
        self.wants_attention(record)
    }

    /// Brings a QSBR reader back online.
    pub(crate) fn online(&self, record: &Record) -> bool {
        let wants_attention = self.report(record);
        if !busted::is(Variant::OnlineNoFence) {
            // SeqCst: pairs with the fence in `Protocol::order`, as in `count_in`.
            atomic_fence(Ordering::SeqCst);
        }
        wants_attention
    }

    /// Whether the record wants attention, after its state was published.
    #[inline(always)]
    fn wants_attention(&self, record: &Record) -> bool {
        // Pairs with the heavy fences in `end_missed_boost` and in `fence_request`. In a symmetric domain, a reader that can be
        // boosted has `FENCES` set, and fences itself before it answers. Models execute the fence only where it is needed.
        let is_needed = fence::has_requests() || (self.boosts && self.mode != Mode::Symmetric);
        if is_needed && !busted::is(Variant::ExitNoLight) {
            fence::light();
        }
        record.wants_attention()
    }
}

/// Tells the compiler that the caller's branch is rare: it moves the code after this call out of the common path.
#[cold]
#[inline]
fn rare() {}

/// Loads `source` and protects what it points to, by a free slot: the object is not freed until the slot is given back.
/// `None` if `source` holds null.
///
/// # Safety
/// The caller owns the record of the slot. Nothing else uses the slot, and it may be [released](Slot::release).
#[inline(always)]
pub(crate) unsafe fn protect<'r, T>(
    fence: ReaderFence,
    source: &AtomicPtr<T>,
    slot: impl FnOnce() -> Slot<'r>,
) -> Option<(NonNull<T>, Slot<'r>)> {
    // Relaxed: this address is not followed.
    let candidate = NonNull::new(source.load(Ordering::Relaxed))?;
    let slot = slot();
    let object = protect_from(fence, source, candidate, &slot);
    if object.is_none() {
        // SAFETY: nothing else uses the slot, by the caller's promise.
        unsafe { slot.release() };
    }
    object.map(|object| (object, slot))
}

/// Protects what `source` points to, which was `candidate` a moment ago, by a slot of the caller. `None`, with the slot clear,
/// if `source` holds null.
#[inline(always)]
pub(crate) fn protect_from<T>(
    fence: ReaderFence,
    source: &AtomicPtr<T>,
    candidate: NonNull<T>,
    hazard: &Hazard,
) -> Option<NonNull<T>> {
    NonNull::new(protect_word(fence, source, candidate.as_ptr(), hazard, |word| word))
}

/// As [`protect_from`], for a source whose words may have tags: `address` removes the tag. Returns the confirmed
/// word, with its tag. The slot holds the word's address, and is clear if that is null. The address of `word` is not null.
///
/// A reload that finds the same word proves that the object was linked *after* the slot was set, so a
/// writer that unlinks it later sees the slot. It need not be the object of the first load: that object may have
/// been freed and its address reused, so only the reload counts. The whole word is compared: a tag
/// that was set meanwhile may mean that the object that contains the source is unlinked. An address found there proves nothing.
#[inline(always)]
pub(crate) fn protect_word<T>(
    fence: ReaderFence,
    source: &AtomicPtr<T>,
    mut word: *mut T,
    hazard: &Hazard,
    address: impl Fn(*mut T) -> *mut T,
) -> *mut T {
    loop {
        let object = if busted::is(Variant::LinkTagInSlot) { word } else { address(word) };
        set_hazard(hazard, object.cast());
        if !busted::is(Variant::ProtectNoLight) {
            fence.issue();
        }
        let is_reloaded = !busted::is(Variant::ProtectNoReload);
        let current = if is_reloaded { source.load(orders::confirm()) } else { word };
        if current == word {
            return current;
        }
        if busted::is(Variant::LinkTagIgnored) && address(current) == address(word) {
            return word;
        }
        if address(current).is_null() {
            clear_hazard(hazard);
            return current;
        }
        word = current;
    }
}

#[cfg(all(test, target_os = "linux", not(any(stillpoint_loom, stillpoint_portable))))]
mod tests {
    use std::ptr::{self, NonNull};
    use std::time::{Duration, Instant};

    use super::{clear_hazard, set_hazard, Claim, Record};
    use crate::fence::{fault, Mode};
    use crate::rcu::other::silent;
    use crate::rcu::raw::{Callback, CallbackQueue};
    use crate::rcu::wait::SynchronizeError;
    use crate::rcu::Domain;

    fn asymmetric() -> Domain {
        Domain::builder().fence(Mode::Asymmetric).build().expect("tests have membarrier")
    }

    /// What a thread leaves lent at its end is the next thread's, or released by a scan, when the slot is clear.
    #[test]
    fn a_slot_outlives_its_lender() {
        let domain = Domain::new();
        let protocol = &domain.core().protocol;
        let mut object = 7;
        let record_of = |claim: &Claim<Record>| {
            // SAFETY: the domain is alive.
            let record: &Record = unsafe { claim.slot() };
            record
        };
        let mut lend_and_end = || {
            let claim = protocol.begin_lending();
            let slot = record_of(&claim).unlent().expect("it is clear");
            assert_eq!(domain.stats().owned, 0);
            set_hazard(&slot, (&raw mut object).cast());
            protocol.end_lending(&claim);
            record_of(&claim)
        };
        let record = lend_and_end();
        assert_eq!(domain.stats().owned, 1);
        let next = protocol.begin_lending();
        assert!(!ptr::eq(record_of(&next), record), "it is still lent");
        protocol.end_lending(&next);
        clear_hazard(&record.first_hazard());
        assert_eq!(domain.stats().owned, 0);
        let [next, other] = [(); 2].map(|()| protocol.begin_lending());
        assert!(ptr::eq(record_of(&next), record) && !ptr::eq(record_of(&other), record), "it is taken once");
        protocol.end_lending(&other);
        protocol.end_lending(&next);
        assert_eq!(protocol.records.iter().count(), 0);

        let record = lend_and_end();
        protocol.gather_hazards(&mut Vec::new());
        assert_eq!(protocol.records.iter().count(), 1, "it is still lent");
        clear_hazard(&record.first_hazard());
        protocol.gather_hazards(&mut Vec::new());
        assert_eq!(protocol.records.iter().count(), 0);
    }

    /// A thread that begins to lend looks at a part of the records, the next one at the next part: so without scans, too, what is left is
    /// found, and records do not become more.
    #[test]
    fn what_is_left_lent_is_found_beside_many_records() {
        let domain = Domain::new();
        let protocol = &domain.core().protocol;
        let _others: Vec<_> = (0..3 * super::LOOKS_FOR_LEFT).map(|_| protocol.reserve()).collect();
        let mut object = 7;
        let mut most = 0;
        for _ in 0..200 {
            let (steps, claim) = stillpoint_sys::work::steps_of(|| protocol.begin_lending());
            assert!(steps <= super::LOOKS_FOR_LEFT + 16, "{steps} steps");
            // SAFETY: the domain is alive.
            let record: &Record = unsafe { claim.slot() };
            set_hazard(&record.unlent().expect("it is clear"), (&raw mut object).cast());
            protocol.end_lending(&claim);
            clear_hazard(&record.first_hazard());
            most = most.max(protocol.records.iter().count());
        }
        assert!(most <= 3 * super::LOOKS_FOR_LEFT + 5, "{most} records");
    }

    #[test]
    fn a_refused_fence_is_an_error_of_whoever_waits_for_a_silent_reader() {
        let domain = asymmetric();
        let _reader = silent(&domain);
        let before = fault::fences();
        assert_eq!(domain.synchronize(), Ok(()));
        assert_eq!(fault::fences(), before + 1);
        fault::refuse(true);
        let Err(SynchronizeError::Fence(error)) = domain.synchronize() else {
            panic!("the fence is refused")
        };
        assert_eq!(error.raw_os_error(), libc::EPERM);
    }

    /// Of a queue, too: but not an earlier refusal, for a reader that is gone by now.
    #[test]
    fn a_barrier_of_a_queue_fails_by_a_refusal_that_is_its_own() {
        unsafe extern "C-unwind" fn nothing(_: NonNull<Callback>) {}
        let domain = asymmetric();
        let (queue, mut node) = (CallbackQueue::new(&domain), Callback::new());
        let reader = silent(&domain);
        fault::refuse(true);
        assert!(domain.synchronize().is_err());
        drop(reader);
        assert!(domain.core().protocol.fence_error().is_some());
        // SAFETY: the node stays until the end.
        unsafe { queue.push(NonNull::from(&mut node), nothing) };
        assert_eq!(queue.barrier(), Ok(()));

        let _reader = silent(&domain);
        // SAFETY: as above; it was called.
        unsafe { queue.push(NonNull::from(&mut node), nothing) };
        assert!(matches!(queue.barrier(), Err(SynchronizeError::Fence(_))));
        fault::refuse(false);
        assert_eq!(queue.barrier(), Ok(()));
    }

    /// Threads that wait for a refused fence look again less and less often, as they do without a pace.
    #[test]
    fn nothing_gathers_for_a_fence_that_is_refused() {
        let domain = asymmetric();
        let _reader = silent(&domain);
        let mut reclaimer = domain.reclaimer_builder().batch(1).build();
        let mut retire = || {
            reclaimer.retire(domain.cell(1).take().expect("it is full")).expect("there is room");
            reclaimer.poll()
        };
        assert_eq!(retire(), 1);
        domain.core().protocol.put_off_heavy();
        assert_eq!(retire(), 0, "it gathers");
        fault::refuse(true);
        assert!(domain.synchronize().is_err());
        assert_eq!(retire(), 0);
        fault::refuse(false);
        let mut freed = retire();
        while freed < 3 {
            freed += reclaimer.poll();
        }
        assert_eq!(freed, 3);
    }

    /// Otherwise each write of a thread that was refused would make system calls.
    #[test]
    fn polls_ask_for_a_refused_fence_at_a_pace() {
        let domain = asymmetric();
        let _reader = silent(&domain);
        let mut reclaimer = domain.reclaimer();
        fault::refuse(true);
        fault::slow_down(Duration::from_millis(1));
        reclaimer.retire(domain.cell(1).take().expect("it is full")).expect("there is room");
        let begun = Instant::now();
        while fault::fences() < 3 {
            reclaimer.poll();
        }
        let (polls, least) = (1_000, begun.elapsed());
        assert!(
            least >= Duration::from_millis(3 + 2),
            "{least:?}: three that take a millisecond, and the pauses between"
        );
        let (begun, before) = (Instant::now(), fault::fences());
        (0..polls).for_each(|_| assert_eq!(reclaimer.poll(), 0));
        let asked = fault::fences() - before;
        assert!(asked < 2 + begun.elapsed().as_millis() as usize / 2, "{asked} in {:?}", begun.elapsed());
        let (before, flushed) = (fault::fences(), reclaimer.flush());
        assert!(flushed.is_err() && fault::fences() > before, "a flush asks at once");
        fault::refuse(false);
        assert_eq!(reclaimer.flush(), Ok(()));
    }
}
