//! The writer's protocol: tokens and scans.
//!
//! A token is a number. `start` makes a new one. A reader publishes the number that was current when it
//! entered a region, or, outside regions, when it last loaded something. A reader that has published this token or a later one,
//! and a reader that is away, cannot load anything that was unlinked before the start. A reader that has published an older token
//! outside regions is *silent*: it may be about to load, so the writer waits a little, and then issues a heavy fence.

use std::ptr;
use std::sync::atomic::AtomicU64 as PlainU64;
use std::time::Duration;

use super::record::{blocks, is_open, vouched, Hazard, ReaderKind, Record, AWAY};
use super::{Protocol, FIRST_TOKEN};
use crate::busted::{self, Variant};
use crate::fence::{self, FenceError, Mode};
use crate::rcu::orders;
use stillpoint_sys::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use stillpoint_sys::{probe, tsan, work};

/// After a heavy fence, writers with full batches wait this many times as long as it took, and share the next one.
const BETWEEN_HEAVY: u32 = 32;
/// The limit of that wait: a thread that is preempted in its fence measures a long fence.
const LONGEST_BETWEEN: Duration = Duration::from_millis(1);

/// Time between two starts in a domain that may need heavy fences, unless a list is long. Each start costs each running reader three
/// cache misses, for the token, its word and its slots, which the writer looks at: less than 2 % of its time.
const BETWEEN_STARTS: Duration = Duration::from_micros(20);
/// A list that has started no token for so long may start one, however many others do.
const LONGEST_BETWEEN_STARTS: Duration = Duration::from_micros(50);
/// In the age of the next start: at the last walk, every reader of another thread was away.
const ALL_AWAY: u64 = 1;
/// The most that a writer waits for a silent reader before it issues a heavy fence.
const LONGEST_PATIENCE: Duration = Duration::from_micros(200);
/// Number of heavy fences whose times are kept.
const TIMED: usize = 8;

/// How far the domain has come. The tokens only increase.
#[derive(Default)]
pub(crate) struct Progress {
    /// For every token up to this one, a thread has issued a `seq_cst` fence after its start.
    ordered: AtomicU64,
    /// For every token up to this one, a heavy fence has begun after its start, and has completed.
    fenced: AtomicU64,
    /// Every token up to this one is over.
    completed: AtomicU64,
    /// The record that blocked the last check: the next check looks at it first.
    laggard: AtomicPtr<Record>,
    /// Heavy fences issued.
    heavy_fences: AtomicU64,
    /// Walks that found a token over without a heavy fence, although readers rely on such fences. Not modelled: for statistics.
    vouched: PlainU64,
    /// Why the last heavy fence failed; 0 if it succeeded.
    errno: AtomicI32,
    /// Age of the domain in nanoseconds at the first refusal of a fence after the last one that succeeded, without the lowest bit,
    /// which tells whether that was reported; 0 if none was refused since. Not modelled: for reports.
    refused: PlainU64,
    /// Paces, which are not modelled. The rest are ages of the domain in nanoseconds: when a full batch may cause a heavy fence again;
    next_heavy: PlainU64,
    /// when the last heavy fence has ended;
    last_heavy: PlainU64,
    /// when a small batch may start a token, with [`ALL_AWAY`].
    next_start: PlainU64,
    /// The bound of the last heavy fence. A reader that vouches for less has not run since.
    last_bound: PlainU64,
    /// How long the last heavy fences took, in nanoseconds.
    times: [PlainU64; TIMED],
}

/// When a caller that can wait has a heavy fence issued.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// Age of the domain at the start of the token.
    pub(crate) begun: Duration,
    /// Least time between two heavy fences of the domain.
    pub(crate) interval: Duration,
    /// Whether full batches gather for the fence.
    pub(crate) gathers: bool,
    /// Not before this age of the domain.
    pub(crate) earliest: Duration,
}

impl Progress {
    pub(crate) fn new(first: u64) -> Self {
        Self {
            ordered: AtomicU64::new(first),
            fenced: AtomicU64::new(first),
            completed: AtomicU64::new(first),
            ..Self::default()
        }
    }
}

/// The answer to a check.
#[derive(Clone, Copy)]
pub(crate) enum Grace<'c> {
    /// Every region reader has passed.
    Over,
    /// This reader has not passed.
    Blocked(&'c Record),
}

/// The answer to a [look](Protocol::look).
#[derive(Clone, Copy)]
pub(crate) enum Outlook<'c> {
    Known(Grace<'c>),
    /// No region is in the way, but a reader is silent. A heavy fence for it is due at this age of the domain.
    Silent(Duration),
}

/// One of 64 bits, by which objects that are held are distinguished, at a look, from most of those that are not.
pub(crate) fn bit_of(address: usize) -> u64 {
    1 << ((address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58)
}

/// All bits: of objects whose addresses were not noted.
pub(crate) const ANY: u64 = u64::MAX;

/// What readers hold, as found by a look without a fence.
#[derive(Default, Clone, Copy)]
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
    /// Time since the domain was made.
    pub(crate) fn age(&self) -> Duration {
        self.made.elapsed()
    }

    /// Starts a grace period for everything that was unlinked by the caller, or by threads that handed objects to it.
    #[inline]
    pub(crate) fn start(&self) -> u64 {
        if busted::is(Variant::TokenByStore) {
            let token = self.token.load(Ordering::Acquire) + 1;
            self.token.store(token, Ordering::Release);
            return token;
        }
        let token = self.token.fetch_add(1, orders::start()) + 1;
        probe!("grace_start", self.address(), token);
        token
    }

    /// By which the probes name the domain.
    #[inline(always)]
    pub(crate) fn address(&self) -> u64 {
        ptr::from_ref(self).addr() as u64
    }

    /// Whether this number is that of a token.
    #[inline]
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

    /// Ensures that a `seq_cst` fence has been issued since `token` was started. Returns a token, this one or a later one, up to
    /// which the same is true.
    fn order(&self, token: u64) -> u64 {
        let ordered = self.progress.ordered.load(orders::ordered());
        if ordered >= token || (busted::is(Variant::FenceFromBefore) && ordered > FIRST_TOKEN) {
            return ordered.max(token);
        }
        // *Before* the fence, which then orders what was unlinked before any token up to this one. Acquire: pairs with the release in
        // `start`. Not modelled: the fence that follows would make a relaxed load acquire; ThreadSanitizer does not know fences.
        let mut bound = self.token.load(Ordering::Acquire);
        if !busted::is(Variant::WriterNoFence) {
            // SeqCst: pairs with the fences in `count_in`, `come_back` and `online`, and with the full fences of readers, in
            // `ReaderFence::issue_full` and outside the library (`raw/parts.rs`).
            stillpoint_sys::sync::atomic::fence(Ordering::SeqCst);
        }
        if busted::is(Variant::CounterAfterFence) {
            bound = self.token.load(Ordering::Acquire);
        }
        raise(&self.progress.ordered, bound, orders::raise_ordered());
        bound
    }

    /// Whether every reader has passed `token`. Never waits, and issues a heavy fence if a reader is silent. Caches the newest token
    /// that is over.
    #[inline]
    pub(crate) fn check(&self, token: u64) -> Result<Grace<'_>, FenceError> {
        if self.is_over(token) {
            return Ok(Grace::Over);
        }
        self.check_records(token)
    }

    /// Not inlined: a caller that finds the token over would save registers for it.
    #[inline(never)]
    fn check_records(&self, token: u64) -> Result<Grace<'_>, FenceError> {
        match self.scan(token, |_| None)? {
            Outlook::Known(grace) => Ok(grace),
            Outlook::Silent(_) => unreachable!("the fence was not put off"),
        }
    }

    /// As [`check`](Protocol::check), for a caller that looks again: puts the heavy fence off on these terms, if there are any.
    #[inline]
    pub(crate) fn look(&self, token: u64, terms: Option<Terms>) -> Result<Outlook<'_>, FenceError> {
        if self.is_over(token) {
            return Ok(Outlook::Known(Grace::Over));
        }
        self.scan(token, |vouched| self.put_off(vouched, terms?))
    }

    /// A region reader that is in the way of `token`, if there is one; first the one that was in the way of the last check. A silent reader,
    /// whose fence may be put off for long, hides none.
    pub(crate) fn in_the_way(&self, token: u64) -> Option<&Record> {
        if self.is_over(token) {
            return None;
        }
        self.laggard().into_iter().chain(self.records.iter()).find(|record| blocks(record.observe(), token))
    }

    /// Whether this is the number of a token that is known to be over. One that is over was started.
    #[inline(always)]
    pub(crate) fn is_known_over(&self, number: u64) -> bool {
        number >= FIRST_TOKEN && self.is_over(number)
    }

    /// Whether the token is known to be over.
    #[inline]
    fn is_over(&self, token: u64) -> bool {
        let is_over = self.newest_over() >= token;
        if is_over {
            tsan::acquire(&self.progress.completed);
        }
        is_over
    }

    /// The newest token that is known to be over.
    #[inline]
    pub(crate) fn newest_over(&self) -> u64 {
        self.progress.completed.load(orders::completed())
    }

    /// Looks at every reader, first at the one that was in the way of the last check. `put_off` returns until when a heavy fence is put
    /// off for a silent reader, which vouches for the token that it receives.
    fn scan(&self, token: u64, put_off: impl Fn(u64) -> Option<Duration>) -> Result<Outlook<'_>, FenceError> {
        if busted::is(Variant::SkipWhenQuiet) && self.is_quiet() {
            return Ok(self.walk(token, token, true).map_or_else(Outlook::Known, |_| unreachable!()));
        }
        let fenced = self.progress.fenced.load(orders::fenced());
        let mut is_fenced = fenced >= token;
        let mut bound = if is_fenced { fenced } else { self.order(token) };
        // If no reader relies on light fences, the fence in `order` is enough: a reader that registers now comes after it, and
        // sees what was unlinked.
        if !is_fenced
            && (self.mode == Mode::Symmetric || self.light_readers.load(orders::light_readers()) == 0)
        {
            self.end_refusal();
            is_fenced = true;
        }
        is_fenced |= busted::is(Variant::NoHeavy);

        if let Some(laggard) = self.laggard() {
            let word = laggard.observe();
            if blocks(word, token) {
                return Ok(Outlook::Known(Grace::Blocked(laggard)));
            }
            if !is_fenced && laggard.is_silent(word, token) {
                if let Some(due) = put_off(vouched(word)) {
                    return Ok(Outlook::Silent(due));
                }
                bound = self.heavy()?;
                is_fenced = true;
            }
        }
        loop {
            let silent = match self.walk(token, bound, is_fenced) {
                Err(grace) => return Ok(Outlook::Known(grace)),
                Ok(silent) => silent,
            };
            if let Some(due) = put_off(silent) {
                return Ok(Outlook::Silent(due));
            }
            // No region is in the way: a reader whose older region ends later vouches at that end.
            bound = self.heavy()?;
            is_fenced = true;
        }
    }

    /// Looks at every reader. `Err` with the answer, or `Ok` if no region is in the way, and a reader is silent that only
    /// vouches for this token. Tokens up to `bound` have been ordered, and, if `is_fenced`, a heavy fence was issued for them.
    fn walk(&self, token: u64, bound: u64, is_fenced: bool) -> Result<u64, Grace<'_>> {
        let hint = self.progress.laggard.load(Ordering::Relaxed);
        let skipped = busted::is(Variant::CursorForAll) && !hint.is_null();
        let mut over = bound;
        let (mut silent, mut is_here) = (None, false);
        // The hint may be for another token, so this covers all records.
        for record in self.records.iter().skip_while(|&record| skipped && !ptr::eq(record, hint)) {
            let word = record.observe();
            is_here = is_here || (word != AWAY && !record.is_mine());
            if is_open(word) {
                if busted::is(Variant::SilentOwn) && record.is_mine() {
                    continue;
                }
                if blocks(word, token) {
                    probe!("blocked", self.address(), token, ptr::from_ref(record).addr() as u64);
                    self.note_laggard(record);
                    if busted::is(Variant::FencedWhenBlocked) {
                        raise(&self.progress.fenced, bound, orders::raise_fenced());
                    }
                    return Err(Grace::Blocked(record));
                }
                over = over.min(word);
            } else if !is_fenced && word != AWAY {
                if record.is_silent(word, token) {
                    silent = Some((record, word));
                } else if !busted::is(Variant::CompletedPastVouched) && record.is_light() && !record.is_mine()
                {
                    // It vouches for `token`, and for later ones only up to this.
                    over = over.min(vouched(word));
                }
            }
        }
        if let Some((record, word)) = silent {
            self.note_laggard(record);
            return Ok(vouched(word));
        }
        if tsan::is_there() {
            // Includes records that have been released.
            self.records.iter_all().for_each(|record| tsan::acquire(record));
            tsan::release(&self.progress.completed);
        }
        raise(&self.progress.completed, over, orders::raise_completed());
        probe!("grace_end", self.address(), over);
        if !is_here {
            // Relaxed, both: a pace. No other thread has paid for this start.
            let next = &self.progress.next_start;
            let when = next.load(Ordering::Relaxed);
            if when & ALL_AWAY == 0 {
                next.store(when | ALL_AWAY, Ordering::Relaxed);
            }
        }
        if !is_fenced {
            // Relaxed, all: for statistics. Without a fence, memory is freed as well: a refusal before this is over.
            self.progress.vouched.fetch_add(1, Ordering::Relaxed);
            self.end_refusal();
        }
        Err(Grace::Over)
    }

    /// The reader that was in the way of the last check. Only a hint.
    fn laggard(&self) -> Option<&Record> {
        // Acquire: pairs with the release in `note_laggard`, as the record is accessed.
        let hint = self.progress.laggard.load(Ordering::Acquire);
        // SAFETY: null, or a record of this core's registry, which frees none as long as the core lives.
        unsafe { hint.as_ref() }
    }

    fn note_laggard(&self, record: &Record) {
        // Release: pairs with the acquire load in `laggard`.
        self.progress.laggard.store(ptr::from_ref(record).cast_mut(), Ordering::Release);
    }

    /// Until which age of the domain the heavy fence is put off for a reader that is silent and vouches for this token; `None` if it
    /// is due.
    fn put_off(&self, vouched: u64, terms: Terms) -> Option<Duration> {
        let progress = &self.progress;
        let age = |age: &PlainU64| Duration::from_nanos(age.load(Ordering::Relaxed));
        // Relaxed, all: a pace.
        let last = age(&progress.last_heavy);
        let mut due = terms.earliest;
        if !last.is_zero() {
            due = due.max(last.saturating_add(terms.interval));
        }
        // After a refusal, `next_heavy` is not that of a fence.
        if terms.gathers && progress.errno.load(Ordering::Relaxed) == 0 {
            due = due.max(age(&progress.next_heavy));
        }
        // One that has not run since the last heavy fence does not run, or does not read. Another one is likely to vouch soon.
        if vouched >= progress.last_bound.load(Ordering::Relaxed) {
            let shortest = progress.times.iter().map(age).min().unwrap_or_default();
            due = due.max(terms.begun.saturating_add(shortest.min(LONGEST_PATIENCE)));
        }
        let now = self.age();
        if now < due {
            return Some(due);
        }
        // Of several callers that find the fence due, one issues it.
        let is_claimed = progress
            .last_heavy
            .compare_exchange(
                last.as_nanos() as u64,
                now.as_nanos() as u64,
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok();
        (!is_claimed).then(|| now + Duration::from_micros(1))
    }

    /// Whether a small batch may start a token at this age of the domain, for a caller that has last started one at another age. If so,
    /// the next one waits for a while. A caller whose last start is long ago need not wait for the others' pace. `has_enough`: it may
    /// also start one without a pace if no other thread pays for it. Always, in models, which know no time.
    pub(crate) fn may_start(&self, now: Duration, last: Option<Duration>, has_enough: bool) -> bool {
        // Relaxed, both: a pace.
        let next = &self.progress.next_start;
        let when = next.load(Ordering::Relaxed);
        let is_time = cfg!(stillpoint_loom)
            || now.as_nanos() as u64 >= when
            || (has_enough && when & ALL_AWAY != 0)
            || last.is_none_or(|last| now.saturating_sub(last) >= LONGEST_BETWEEN_STARTS);
        if is_time {
            next.store((now + BETWEEN_STARTS).as_nanos() as u64 & !ALL_AWAY, Ordering::Relaxed);
        }
        is_time
    }

    /// The age of the domain at which a small batch may start a token.
    pub(crate) fn next_start(&self) -> Duration {
        // Relaxed: a pace.
        Duration::from_nanos(self.progress.next_start.load(Ordering::Relaxed))
    }

    /// What readers hold now. For reports, since it issues no fence: it may miss what a reader has taken within the last microseconds.
    pub(crate) fn holders(&self) -> Holders {
        let mut holders = Holders::default();
        for record in self.records.iter() {
            let state = record.observe();
            if is_open(state) {
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
        states.filter(move |&(_, state)| is_open(state) && state < newest)
    }

    /// The record of the calling thread that blocks `token`, if there is one: the thread would wait for itself for ever.
    pub(crate) fn blocked_by_caller(&self, token: u64) -> Option<&Record> {
        let tid = stillpoint_sys::os::thread_id();
        // Loads the state first: its acquire makes the holder that published it visible.
        self.records.iter().find(|record| blocks(record.observe(), token) && record.is_of_caller(tid))
    }

    /// The oldest state of the calling thread's regions. What a list's owner has announced before it started a token is visible
    /// afterwards, if the region is not older than that token.
    pub(crate) fn region_of_caller(&self) -> Option<u64> {
        let tid = stillpoint_sys::os::thread_id();
        let own = self.records.iter().filter(|record| is_open(record.observe()) && record.is_of_caller(tid));
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
        let mut look = |hazard: &Hazard| {
            work::step();
            let address = hazard.load(orders::hazards()).addr();
            if address != 0 {
                addresses.push(address);
            }
        };
        let mut has_left = false;
        for record in self.records.iter() {
            // A slot that is seen here was set after the kind, which is then seen, too.
            match record.kind() {
                ReaderKind::Qsbr => {}
                ReaderKind::ProtectedLoad => {
                    look(&record.first_hazard());
                    has_left |= record.is_left();
                }
                ReaderKind::Guard => record.hazards().for_each(&mut look),
            }
        }
        if tsan::is_there() {
            self.records.iter_all().flat_map(Record::hazards).for_each(|hazard| tsan::acquire(hazard));
        }
        addresses.sort_unstable();
        if has_left {
            self.release_left();
        }
    }

    /// The fence between unlink and scan, for readers that do not vouch for themselves. It serves all tokens that have been started:
    /// returns the newest one.
    fn heavy(&self) -> Result<u64, FenceError> {
        // Relaxed: `order` may have returned an older one. It comes before the fence.
        let bound = self.order(self.token.load(Ordering::Relaxed));
        probe!("fence_start", self.address());
        let begun = self.age();
        let answer = self.mode.heavy();
        let ended = self.age();
        let took = ended.saturating_sub(begun);
        probe!("fence_end", self.address(), answer.is_err().into());
        let progress = &self.progress;
        let pause = took.saturating_mul(BETWEEN_HEAVY).min(LONGEST_BETWEEN);
        // Relaxed, all: paces and statistics.
        progress.next_heavy.store((ended + pause).as_nanos() as u64, Ordering::Relaxed);
        progress.errno.store(answer.err().map_or(0, FenceError::raw_os_error), Ordering::Relaxed);
        if answer.is_ok() {
            let number = progress.heavy_fences.fetch_add(1, Ordering::Relaxed);
            progress.times[number as usize % TIMED].store(took.as_nanos() as u64, Ordering::Relaxed);
            progress.last_heavy.store(ended.as_nanos() as u64, Ordering::Relaxed);
            progress.last_bound.store(bound, Ordering::Relaxed);
            self.end_refusal();
            raise(&progress.fenced, bound, orders::raise_fenced());
        } else {
            let now = (ended.as_nanos() as u64 | 2) & !1;
            // Relaxed, both: for reports. Fails if an earlier one was refused.
            let _ = progress.refused.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            // It was none: a thread that may fence need not wait an interval for it. The list that was refused has a pace of its own.
            progress.last_heavy.store(0, Ordering::Relaxed);
        }
        answer.map(|()| bound)
    }

    /// Notes that a fence has succeeded, or that none is needed.
    fn end_refusal(&self) {
        // Relaxed, all: for reports.
        if self.progress.errno.load(Ordering::Relaxed) != 0 {
            self.progress.errno.store(0, Ordering::Relaxed);
        }
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
        if self.mode == Mode::Symmetric {
            fence::asymmetric_supported()?;
        }
        probe!("fence_start", self.address());
        let answer = fence::heavy();
        probe!("fence_end", self.address(), answer.is_err().into());
        answer?;
        // Relaxed: statistics.
        self.progress.heavy_fences.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// For a broken variant: whether no slot is active at the moment, which proves nothing.
    fn is_quiet(&self) -> bool {
        self.records.iter().all(|record| {
            !is_open(record.observe())
                && record.hazards().all(|hazard| hazard.load(Ordering::Acquire).is_null())
        })
    }

    pub(crate) fn heavy_fences(&self) -> u64 {
        // Relaxed: for statistics.
        self.progress.heavy_fences.load(Ordering::Relaxed)
    }

    /// How often all readers had vouched for a token.
    pub(crate) fn vouched(&self) -> u64 {
        // Relaxed: for statistics.
        self.progress.vouched.load(Ordering::Relaxed)
    }

    /// The readers of other threads that do not vouch for the newest token, each with the number of tokens that it does not vouch for.
    /// None in a symmetric domain, where no reader needs a heavy fence.
    pub(crate) fn silent(&self) -> impl Iterator<Item = (&Record, u64)> {
        // Relaxed: for statistics and reports.
        let newest = self.token.load(Ordering::Relaxed);
        let records = (self.mode != Mode::Symmetric).then(|| self.records.iter()).into_iter().flatten();
        records.filter_map(move |record| {
            let word = record.observe();
            record.is_silent(word, newest).then(|| (record, newest - vouched(word).max(FIRST_TOKEN)))
        })
    }

    pub(crate) fn fence_error(&self) -> Option<FenceError> {
        // Relaxed: for statistics.
        let errno = self.progress.errno.load(Ordering::Relaxed);
        (errno != 0).then(|| FenceError::new(errno))
    }

    /// Numbers of registered readers, and of protected loads that belong to no reader.
    pub(crate) fn readers(&self) -> (usize, usize) {
        let mut numbers = (0, 0);
        for record in self.records.iter() {
            match record.kind() {
                ReaderKind::ProtectedLoad => numbers.1 += usize::from(!record.is_spare()),
                _ => numbers.0 += 1,
            }
        }
        numbers
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
