//! The writer's protocol: tokens and scans.
//!
//! A token is a number. `start` makes a new one. A reader publishes the number that was current when it
//! entered. Once a fence has been issued after the start, a reader that is passive, or has published this
//! token or a later one, cannot hold anything that was unlinked before the start.

use std::ptr;
use std::sync::atomic::AtomicU64 as PlainU64;
use std::time::Duration;

use super::record::{ReaderKind, Record, PASSIVE};
use super::{Protocol, FIRST_TOKEN};
use crate::busted::{self, Variant};
use crate::fence::{self, FenceError, Mode};
use crate::rcu::orders;
use stillpoint_sys::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use stillpoint_sys::{tsan, work};

/// After a heavy fence, writers with full batches wait this many times as long as it took, and share the next one.
const BETWEEN_HEAVY: u32 = 32;
/// The limit of that wait: a thread that is preempted in its fence measures a long fence.
const LONGEST_BETWEEN: Duration = Duration::from_millis(1);

/// How far the domain has come. The tokens only increase.
#[derive(Debug)]
pub(crate) struct Progress {
    /// For every token up to this one, a fence has begun after its start, and has completed.
    fenced: AtomicU64,
    /// Every token up to this one is over.
    completed: AtomicU64,
    /// The record that held up the last check: the next check looks at it first.
    laggard: AtomicPtr<Record>,
    /// Heavy fences issued.
    heavy_fences: AtomicU64,
    /// Why the last heavy fence failed; 0 if it succeeded.
    errno: AtomicI32,
    /// Age of the domain in nanoseconds at the first refusal of a fence after the last one that succeeded, without the lowest bit,
    /// which tells whether that was reported; 0 if none was refused since. Not modelled: for reports.
    refused: PlainU64,
    /// Age of the domain in nanoseconds at which a full batch may cause a heavy fence again. Not modelled: a pace.
    next_heavy: PlainU64,
}

impl Progress {
    pub(crate) fn new(first: u64) -> Self {
        Self {
            fenced: AtomicU64::new(first),
            completed: AtomicU64::new(first),
            laggard: AtomicPtr::new(ptr::null_mut()),
            heavy_fences: AtomicU64::new(0),
            errno: AtomicI32::new(0),
            refused: PlainU64::new(0),
            next_heavy: PlainU64::new(0),
        }
    }
}

/// The answer to a check.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Grace<'c> {
    /// Every region reader has passed.
    Over,
    /// This reader has not passed.
    HeldUp(&'c Record),
}

/// One of 64 bits, by which objects that are held are distinguished, at a look, from most of those that are not.
pub(crate) fn bit_of(address: usize) -> u64 {
    1 << ((address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58)
}

/// All bits: of objects whose addresses were not noted.
pub(crate) const ANY: u64 = u64::MAX;

/// What readers hold, as found by a look without a fence.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Holders {
    /// The oldest state of a region reader that is not passive.
    pub(crate) oldest: Option<u64>,
    /// The [bits](bit_of) of all addresses in hazard slots.
    pub(crate) bits: u64,
}

impl Holders {
    /// Whether a region reader is in the way of this token.
    pub(crate) fn block(&self, token: u64) -> bool {
        self.oldest.is_some_and(|state| state < token)
    }
}

impl Protocol {
    /// Starts a grace period for everything that was unlinked by the caller, or by threads that handed objects to it.
    #[inline]
    pub(crate) fn start(&self) -> u64 {
        if busted::is(Variant::TokenByStore) {
            let token = self.token.load(Ordering::Acquire) + 1;
            self.token.store(token, Ordering::Release);
            return token;
        }
        self.token.fetch_add(1, orders::start()) + 1
    }

    /// Whether this number is that of a token.
    pub(crate) fn was_started(&self, number: u64) -> bool {
        // The second load is a read-modify-write, which reads the newest number no matter what the first one reads. Relaxed,
        // both: the check of the token orders the unlinks.
        number >= FIRST_TOKEN
            && (number <= self.token.load(Ordering::Relaxed)
                || number <= self.token.fetch_add(0, Ordering::Relaxed))
    }

    /// Number of tokens started.
    pub(crate) fn started(&self) -> u64 {
        // Relaxed: for statistics.
        self.token.load(Ordering::Relaxed) - FIRST_TOKEN
    }

    /// Ensures that a fence has been issued since `token` was started. Returns a token, this one or a later one, up to which the same
    /// is true.
    pub(crate) fn ensure_fenced(&self, token: u64) -> Result<u64, FenceError> {
        let fenced = self.progress.fenced.load(orders::fenced());
        if fenced >= token || (busted::is(Variant::FenceFromBefore) && fenced > FIRST_TOKEN) {
            return Ok(fenced.max(token));
        }
        // *Before* the fence, which then orders what was unlinked before any token up to this one. Acquire: pairs with the release in
        // `start`. Not modelled: the fence that follows would make a relaxed load acquire; ThreadSanitizer does not know fences.
        let mut bound = self.token.load(Ordering::Acquire);
        self.fence()?;
        if busted::is(Variant::CounterAfterFence) {
            bound = self.token.load(Ordering::Acquire);
        }
        raise(&self.progress.fenced, bound, orders::raise_fenced());
        Ok(bound)
    }

    /// Whether every region reader has passed `token`. Never waits. Caches the newest token that is over.
    #[inline]
    pub(crate) fn check(&self, token: u64) -> Result<Grace<'_>, FenceError> {
        if self.progress.completed.load(orders::completed()) >= token {
            tsan::acquire(&self.progress.completed);
            Ok(Grace::Over)
        } else {
            self.scan(token)
        }
    }

    /// Looks at every region reader, first at the one that held up the last check.
    fn scan(&self, token: u64) -> Result<Grace<'_>, FenceError> {
        let bound = self.ensure_fenced(token)?;

        // Acquire: pairs with the release below, as the record is accessed. The choice of the record is only a hint.
        let hint = self.progress.laggard.load(Ordering::Acquire);
        // SAFETY: null, or a record of this core's registry, which frees none as long as the core lives.
        let laggard = unsafe { hint.as_ref() };
        if let Some(laggard) = laggard.filter(|laggard| blocks(laggard.observe(), token)) {
            return Ok(Grace::HeldUp(laggard));
        }

        // The hint may be for another token, so the scan covers all records.
        let mut over = bound;
        let skipped = busted::is(Variant::CursorForAll) && !hint.is_null();
        for record in self.records.iter().skip_while(|&record| skipped && !ptr::eq(record, hint)) {
            let state = record.observe();
            if blocks(state, token) {
                // Release: pairs with the acquire load above.
                self.progress.laggard.store(ptr::from_ref(record).cast_mut(), Ordering::Release);
                return Ok(Grace::HeldUp(record));
            }
            if state != PASSIVE {
                over = over.min(state);
            }
        }
        if tsan::is_there() {
            // Includes records that have been released.
            self.records.iter_all().for_each(|record| tsan::acquire(record));
            tsan::release(&self.progress.completed);
        }
        raise(&self.progress.completed, over, orders::raise_completed());
        Ok(Grace::Over)
    }

    /// What readers hold now. For reports, since it issues no fence: it may miss what a reader has taken within the last microseconds.
    pub(crate) fn holders(&self) -> Holders {
        let mut holders = Holders::default();
        for record in self.records.iter() {
            let state = record.observe();
            if state != PASSIVE {
                holders.oldest = Some(holders.oldest.map_or(state, |oldest| oldest.min(state)));
            }
            // Relaxed: nothing is freed by this look.
            let set = record
                .hazards()
                .inspect(|_| work::step())
                .map(|hazard| hazard.load(Ordering::Relaxed).addr());
            holders.bits =
                set.filter(|&address| address != 0).map(bit_of).fold(holders.bits, |bits, bit| bits | bit);
        }
        holders
    }

    /// Every region reader that has not passed the newest token, with its state.
    pub(crate) fn laggards(&self) -> impl Iterator<Item = (&Record, u64)> {
        // Relaxed: for reports, which need not include a token that is started meanwhile.
        let newest = self.token.load(Ordering::Relaxed);
        let states = self.records.iter().map(|record| (record, record.observe()));
        states.filter(move |&(_, state)| state != PASSIVE && state < newest)
    }

    /// The record of the calling thread that holds up `token`, if there is one: the thread would wait for itself for ever.
    pub(crate) fn held_up_by_caller(&self, token: u64) -> Option<&Record> {
        let tid = stillpoint_sys::os::thread_id();
        // Loads the state first: its acquire makes the holder that published it visible.
        self.records.iter().find(|record| blocks(record.observe(), token) && record.is_of_caller(tid))
    }

    /// The oldest state of the calling thread's regions. What a list's owner has announced before it started a token is visible
    /// afterwards, if the region is not older than that token.
    pub(crate) fn region_of_caller(&self) -> Option<u64> {
        let tid = stillpoint_sys::os::thread_id();
        let own =
            self.records.iter().filter(|record| record.observe() != PASSIVE && record.is_of_caller(tid));
        let state = own.map(Record::state).min();
        // Acquire: pairs with the release in `start`. It reads the token of the region, or a later one.
        self.token.load(Ordering::Acquire);
        state
    }

    /// The addresses in the hazard slots of the calling thread: it would wait for ever for one of these objects.
    pub(crate) fn hazards_of_caller(&self) -> Vec<usize> {
        let tid = stillpoint_sys::os::thread_id();
        let own = self
            .records
            .iter()
            .filter(|record| record.kind() == ReaderKind::Guard && record.is_of_caller(tid));
        // Relaxed: the thread reads its own stores.
        let set = own.flat_map(Record::hazards).map(|hazard| hazard.load(Ordering::Relaxed).addr());
        set.filter(|&address| address != 0).collect()
    }

    /// Collects the addresses in all hazard slots that are set into `addresses`, sorted.
    ///
    /// Must be called after [`check`](Protocol::check) has found the objects' token over. The fence of the
    /// check orders their unlinks with the slots' stores. A slot that a reader set under a guard is
    /// seen here if the check saw the guard end.
    pub(crate) fn gather_hazards(&self, addresses: &mut Vec<usize>) {
        addresses.clear();
        for record in self.records.iter().filter(|record| record.kind() != ReaderKind::Qsbr) {
            let slots = record.hazards().inspect(|_| work::step());
            addresses.extend(
                slots.map(|hazard| hazard.load(orders::hazards()).addr()).filter(|&address| address != 0),
            );
        }
        if tsan::is_there() {
            self.records.iter_all().flat_map(Record::hazards).for_each(|hazard| tsan::acquire(hazard));
        }
        addresses.sort_unstable();
    }

    /// The fence between unlink and scan.
    fn fence(&self) -> Result<(), FenceError> {
        if busted::is(Variant::NoFence) || (busted::is(Variant::SkipWhenQuiet) && self.is_quiet()) {
            return Ok(());
        }
        // SeqCst: pairs with the fences in `count_in` and `online`, and with the full fences of readers, in
        // `ReaderFence::issue_more` and outside the library (`raw/parts.rs`).
        if !busted::is(Variant::WriterNoFence) {
            stillpoint_sys::sync::atomic::fence(Ordering::SeqCst);
        }
        // If no reader relies on light fences, the fence above is enough: a reader that registers now comes after it, and
        // sees what was unlinked.
        if self.mode == Mode::Symmetric || self.light_readers.load(orders::light_readers()) == 0 {
            self.end_refusal();
            return Ok(());
        }
        if busted::is(Variant::NoHeavy) {
            return Ok(());
        }
        let begun = self.age();
        let answer = self.mode.heavy();
        let ended = self.age();
        let pause = ended.saturating_sub(begun).saturating_mul(BETWEEN_HEAVY).min(LONGEST_BETWEEN);
        // Relaxed: only a pace.
        self.progress.next_heavy.store((ended + pause).as_nanos() as u64, Ordering::Relaxed);
        // Relaxed, both: statistics.
        self.progress.heavy_fences.fetch_add(u64::from(answer.is_ok()), Ordering::Relaxed);
        let errno = answer.err().map_or(0, FenceError::raw_os_error);
        self.progress.errno.store(errno, Ordering::Relaxed);
        if answer.is_ok() {
            self.end_refusal();
        } else {
            let now = (ended.as_nanos() as u64 | 2) & !1;
            // Relaxed, both: for reports. Fails if an earlier one was refused.
            let _ = self.progress.refused.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
        answer
    }

    /// Notes that a fence has succeeded, or that none is needed.
    fn end_refusal(&self) {
        // Relaxed, both: for reports.
        if self.progress.refused.load(Ordering::Relaxed) != 0 {
            self.progress.refused.store(0, Ordering::Relaxed);
        }
    }

    /// Since when every fence of the domain has been refused, if that is `threshold` or longer, and no other call reports it.
    pub(crate) fn begin_refusal_report(&self, threshold: Duration) -> Option<Duration> {
        let refused = &self.progress.refused;
        // Relaxed, all: the report says what the caller's own fence has met.
        let since = refused.load(Ordering::Relaxed);
        let waited = self.age().saturating_sub(Duration::from_nanos(since));
        let is_news = since != 0 && since & 1 == 0 && waited >= threshold;
        let begin = || refused.compare_exchange(since, since | 1, Ordering::Relaxed, Ordering::Relaxed);
        (is_news && begin().is_ok()).then_some(waited)
    }

    /// The age of the domain at which a list whose fence was just refused may ask again.
    pub(crate) fn next_attempt(&self) -> Duration {
        // Relaxed: only a pace.
        Duration::from_nanos(self.progress.next_heavy.load(Ordering::Relaxed))
    }

    /// The fence after a reader was asked to wake futures. Pairs with the light fence in `wants_attention`, in every mode and for
    /// every kind of reader.
    pub(crate) fn fence_request(&self) -> Result<(), FenceError> {
        if busted::is(Variant::RequestNoHeavy) {
            return Ok(());
        }
        if self.mode != Mode::Symmetric {
            self.mode.heavy()?;
        } else {
            fence::asymmetric_supported()?;
            fence::heavy()?;
        }
        // Relaxed: statistics.
        self.progress.heavy_fences.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// For a broken variant: whether no slot is active at the moment, which proves nothing.
    fn is_quiet(&self) -> bool {
        self.records.iter().all(|record| {
            record.observe() == PASSIVE
                && record.hazards().all(|hazard| hazard.load(Ordering::Acquire).is_null())
        })
    }

    pub(crate) fn heavy_fences(&self) -> u64 {
        // Relaxed: for statistics.
        self.progress.heavy_fences.load(Ordering::Relaxed)
    }

    pub(crate) fn fence_error(&self) -> Option<FenceError> {
        // Relaxed: for statistics.
        let errno = self.progress.errno.load(Ordering::Relaxed);
        (errno != 0).then(|| FenceError::new(self.mode.backend(), errno))
    }

    /// Numbers of registered readers, and of protected loads that belong to no reader.
    pub(crate) fn readers(&self) -> (usize, usize) {
        let mut numbers = (0, 0);
        for record in self.records.iter() {
            *(if record.kind() == ReaderKind::ProtectedLoad { &mut numbers.1 } else { &mut numbers.0 }) += 1;
        }
        numbers
    }

    /// The age of the domain at which to look again at a full batch that waits for `token`, if the token still needs a heavy fence.
    /// `None` if the kernel refuses the fence: callers that wait handle the refusal.
    pub(crate) fn due(&self, token: u64) -> Option<Duration> {
        // Relaxed, all: an old value only changes when the batch is looked at again, and the check orders that look.
        let is_fenced = self.progress.fenced.load(Ordering::Relaxed) >= token;
        let is_refused = self.progress.errno.load(Ordering::Relaxed) != 0;
        (!is_fenced && !is_refused && self.needs_heavy())
            .then(|| Duration::from_nanos(self.progress.next_heavy.load(Ordering::Relaxed)))
    }

    /// For tests: postpones the next heavy fence for ever, so that no full batch is due.
    #[cfg(all(test, not(stillpoint_loom)))]
    pub(crate) fn put_off_heavy(&self) {
        self.progress.next_heavy.store(u64::MAX, Ordering::Relaxed);
    }

    /// Whether the next fence is a heavy one.
    pub(crate) fn needs_heavy(&self) -> bool {
        // Relaxed: a hint for the rate of starts.
        self.mode != Mode::Symmetric && self.light_readers.load(Ordering::Relaxed) != 0
    }
}

/// Raises a number to `value`, unless another thread has raised it as far. It uses exchanges in place of `fetch_max`: on most
/// processors `fetch_max` is a loop of exchanges, too, and ThreadSanitizer does not see it. In models, whose thread switches are
/// bounded, this is a single step.
fn raise(number: &AtomicU64, value: u64, order: Ordering) {
    if cfg!(stillpoint_loom) {
        number.fetch_max(value, order);
        return;
    }
    // Relaxed on failure: a caller that finds a greater number relies on nothing.
    let _ = number.fetch_update(order, Ordering::Relaxed, |now| (now < value).then_some(value));
}

/// Whether a reader in this state may hold what was unlinked before `token`.
#[inline]
pub(crate) fn blocks(state: u64, token: u64) -> bool {
    if busted::is(Variant::TokenTooEarly) {
        return state != PASSIVE && state + 1 < token;
    }
    state != PASSIVE && state < token
}
