//! What a thread that waits holds up itself: for that, it would wait for ever.
//!
//! A region of the thread holds up every object without a token, and every later token. Counters tell which lists have nothing
//! else. For protected loads, the addresses must be compared, and nobody has both sides: the thread knows what its own slots
//! hold, and the owner of a list knows what is retired. So the thread *asks*: it publishes the addresses of its slots. Each poll
//! that passes over a pinned object answers those that hold it.
//!
//! An answer may come late, and it stays true as long as the thread waits. The thread changes neither its region nor its slots
//! meanwhile, and an object that a slot holds is not freed, so its address is not used again. So no error that follows from
//! answers is premature. The counters are not read at one moment, and others may make room between the attempt that failed and
//! the look. So an error follows from them only if the next attempt fails as well, and the look after it finds the same.
//!
//! After a look that was true, an attempt can fail only for objects that the thread holds up, if room is given back before the counters
//! of its list stop counting the object. Whoever blocks all of a channel's list, while no handle has its turn, looks for room once more.
//! Some things remain: a poll lowers its count of pinned objects just before that of all objects, and an attempt that the domain, or the
//! limit of bytes, refuses has the room of one object until then. A thread that is preempted there from before the first look until after
//! the second one may cause an early error, for an object that fits. So may the drop of a table, which destroys its entries without a grace
//! period, and makes room one by one.
//!
//! Only protections that are bound to the thread count: another thread may end the others. Zero-sized objects at one
//! address count as one: a thread that protects one and fills a limit with others may wait until a time limit.

// Not modelled: a hint. Who misses it is asked again with the next poll.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::counters::{Counters, Pinned};
use crate::rcu::engine::core::registry::{Claim, Registry};
use crate::rcu::engine::Core;
use stillpoint_sys::sync::TryLock;

/// The questions of all threads that wait.
pub(crate) struct Questions {
    /// By address.
    places: Registry<TryLock<Vec<Load>>>,
    number: AtomicUsize,
}

/// A protected load of a thread that asks.
struct Load {
    address: usize,
    answer: Option<Pinned>,
}

impl Questions {
    pub(crate) fn new() -> Self {
        Self { places: Registry::new(), number: AtomicUsize::new(0) }
    }

    /// In the child of a `fork`: the parent's other threads do not ask any more.
    pub(crate) fn reset_after_fork(&self) {
        // Relaxed: a hint.
        self.number.store(0, Ordering::Relaxed);
    }
}

impl Core {
    /// Whether a thread asks which objects it holds.
    pub(crate) fn is_asked(&self) -> bool {
        // Relaxed: a hint.
        self.questions.number.load(Ordering::Relaxed) > 0
    }

    /// Answers those who ask for the object at `address`. Skips a question that another thread uses: the next poll answers it.
    pub(crate) fn tell_who_asks(&self, address: usize, pinned: Pinned) {
        for mut loads in self.questions.places.iter().filter_map(TryLock::try_lock) {
            if let Ok(place) = loads.binary_search_by_key(&address, |load| load.address) {
                loads[place].answer = Some(pinned);
            }
        }
    }
}

/// How long a thread waits for room that a list keeps.
const KEPT: Duration = Duration::from_millis(500);

/// What the calling thread holds up, from the first look to the end of its wait.
pub(crate) struct OwnHolds<'c> {
    core: &'c Core,
    /// The oldest state of its regions.
    region: Option<u64>,
    loads: Loads,
    /// Age of the domain at the first look at room that a list keeps.
    kept: Option<Duration>,
}

enum Loads {
    None,
    /// The addresses, sorted.
    Unasked(Vec<usize>),
    Asked(Claim<TryLock<Vec<Load>>>),
}

impl<'c> OwnHolds<'c> {
    pub(crate) fn of_caller(core: &'c Core) -> Self {
        let mut own = core.protocol.hazards_of_caller();
        own.sort_unstable();
        own.dedup();
        let loads = if own.is_empty() { Loads::None } else { Loads::Unasked(own) };
        Self { core, region: core.protocol.region_of_caller(), loads, kept: None }
    }

    pub(crate) fn region(&self) -> Option<u64> {
        self.region
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.region.is_none() && matches!(self.loads, Loads::None)
    }

    /// What was answered so far. The first call asks, and wakes those who may answer.
    pub(crate) fn pinned(&mut self) -> Vec<Pinned> {
        let questions = &self.core.questions;
        if let Loads::Unasked(addresses) = &mut self.loads {
            let mut claim = questions.places.claim();
            let mut passed = Vec::new();
            let mut loads = loop {
                // SAFETY: the core is borrowed, and owns the registry.
                match unsafe { claim.slot() }.try_lock() {
                    Some(loads) => break loads,
                    // A thread still looks at what the last one has asked here; or did so in the parent, at a `fork`.
                    None => passed.push(std::mem::replace(&mut claim, questions.places.claim())),
                }
            };
            passed.iter().for_each(|claim| questions.places.release(claim));
            *loads =
                std::mem::take(addresses).into_iter().map(|address| Load { address, answer: None }).collect();
            drop(loads);
            // Relaxed: a hint.
            questions.number.fetch_add(1, Ordering::Relaxed);
            self.loads = Loads::Asked(claim);
            self.core.event().notify();
        }
        let Loads::Asked(claim) = &self.loads else { return Vec::new() };
        // SAFETY: the core is borrowed, and owns the registry.
        let loads = unsafe { claim.slot() }.try_lock();
        loads.map_or(Vec::new(), |loads| loads.iter().filter_map(|load| load.answer).collect())
    }

    /// Whether the domain has no room for an object even if everything is freed that the calling thread does not hold up. Also
    /// true if its region is in the way of all that waits.
    pub(crate) fn fill_domain(&mut self, bytes: usize) -> bool {
        let pinned = self.pinned();
        let taken = (pinned.len(), sum_of_bytes(pinned.iter()));
        self.core.account().is_some_and(|account| account.limits().is_full_with(taken.0, taken.1, bytes))
            || (self.core.all_counters().all(|counters| self.is_in_the_way_of(counters, &pinned))
                && !self.is_room_kept())
    }

    /// Whether a list keeps room that no object takes up: its next poll, or its end, gives that back. Looks at all counters. Not after
    /// [`KEPT`]: it may be the list of this thread, or of one that does nothing.
    fn is_room_kept(&mut self) -> bool {
        let now = self.core.age();
        let begun = *self.kept.get_or_insert(now);
        let Some(account) = self.core.account().filter(|_| now - begun < KEPT) else { return false };
        let waiting = self.core.all_pending();
        let is_more = |taken: Option<usize>, waiting: u64| taken.is_some_and(|taken| taken as u64 > waiting);
        is_more(account.objects.taken(), waiting.objects) || is_more(account.bytes.taken(), waiting.bytes)
    }

    /// Whether nothing in the list can be freed while the calling thread waits.
    pub(crate) fn is_in_the_way_of(&self, counters: &Counters, pinned: &[Pinned]) -> bool {
        let list = counters.address();
        let own = pinned.iter().filter(|pinned| pinned.list == list).count();
        self.region.is_some_and(|state| counters.is_blocked(state, own as u64))
    }
}

pub(crate) fn sum_of_bytes<'p>(pinned: impl Iterator<Item = &'p Pinned>) -> usize {
    pinned.map(|pinned| pinned.bytes).fold(0, usize::saturating_add)
}

impl Drop for OwnHolds<'_> {
    fn drop(&mut self) {
        if let Loads::Asked(claim) = &self.loads {
            let questions = &self.core.questions;
            // Relaxed: a hint. It is 0 in the child of a `fork` that a hook has made during the wait.
            let _ = questions
                .number
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |number| number.checked_sub(1));
            // SAFETY: the core is borrowed, and owns the registry. A question that another thread uses just now stays there; the
            // next thread that gets the place replaces it.
            if let Some(mut loads) = unsafe { claim.slot() }.try_lock() {
                loads.clear();
            }
            questions.places.release(claim);
        }
    }
}
