//! Boosting of region readers that block a token because they wait for a CPU: which readers to boost, and when to end it.
//!
//! A booster makes the scheduler run the reader: it raises the reader to a real-time policy, or moves it to the booster's CPU.
//! The reader ends the boost at the end of its section, where it reads a word of its own cache line anyway. Everything else
//! keeps one promise: *no thread stays raised or moved*. The first of these to come ends the boost:
//!
//! - the reader, at the end of its section;
//! - the booster, if it finds the section over;
//! - any reclaimer or waiting thread of the domain, when the time limit has passed;
//! - the reclaimer or the wait that gave the boost, at its own end, or when it has nothing left to wait for;
//! - the thread itself, when it ends or forks.
//!
//! `state.rs` describes how these exclude each other; the argument is in `docs/design/rcu.md`.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::state::{self, BoostState, Given};
use crate::busted::{self, Variant};
use crate::rcu::engine::core::record::blocks;
use crate::rcu::engine::core::record::Record;
use crate::rcu::engine::Core;
use stillpoint_sys::linux::sched::{Finding, Way};

/// The longest time that a thread stays raised or moved, provided that a thread polls or waits.
pub(crate) const LIMIT: Duration =
    if cfg!(stillpoint_loom) { Duration::from_secs(3600) } else { Duration::from_millis(2) };

/// Most threads that one poll inspects.
const LOOKS: usize = 16;

/// What a domain does about preempted readers.
pub(crate) struct Boosting {
    pub(crate) way: Way,
    /// How long a token is blocked before readers are boosted.
    after: Duration,
    /// Most threads of the process that are boosted at a time: one fewer than there are CPUs, but at least one. With more, long
    /// sections of raised threads could keep all other threads from running, and from ending the boost.
    most: u32,
    boosted: AtomicU64,
    refused: AtomicU64,
}

impl Boosting {
    pub(crate) fn new(way: Way, after: Duration) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        let most = if cfg!(stillpoint_loom) { u32::MAX } else { (cpus - 1).max(1) };
        Self { way, after, most, boosted: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }

    /// How often readers were boosted, and how often a boost was not possible.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.boosted.load(RELAXED), self.refused.load(RELAXED))
    }
}

/// Only for statistics.
const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

/// A booster. It must end the boosts that it gives.
pub(crate) struct Booster {
    number: u64,
    has_given: bool,
}

impl Default for Booster {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { number: NEXT.fetch_add(1, RELAXED), has_given: false }
    }
}

impl Booster {
    /// Boosts the readers that block `token`, if it was started long enough ago: when the domain had the age
    /// `started`. Returns whether any reader was boosted.
    #[inline]
    pub(crate) fn boost(&mut self, core: &Core, token: u64, started: Duration) -> bool {
        let boosted =
            core.boost.as_ref().is_some_and(|boosting| core.boost_by(boosting, self.number, token, started));
        self.has_given |= boosted;
        boosted
    }

    /// Ends what remains of the boosts. A booster that will not look at the readers for a while must not leave them boosted.
    pub(crate) fn end(&mut self, core: &Core) {
        if std::mem::take(&mut self.has_given) {
            core.end_boost_if(|boost_state| boost_state.is_given_by(self.number));
        }
    }
}

impl Core {
    pub(crate) fn boosting(&self) -> Option<&Boosting> {
        self.boost.as_ref()
    }

    #[cold]
    fn boost_by(&self, boosting: &Boosting, booster: u64, token: u64, started: Duration) -> bool {
        if self.protocol.age().saturating_sub(started) < boosting.after {
            return false;
        }
        let now = state::now();
        self.end_overdue_boost(now);
        let mut boosted: Vec<(&Record, &BoostState)> = Vec::new();
        let mut gives_way = boosting.way == Way::Migrate;
        let mut looks = 0;
        // The calling thread runs, and does not boost itself: a signal handler would find its word taken by what it has interrupted.
        let is_another = |record: &&Record| !record.is_mine() && blocks(record.observe(), token);
        for record in self.protocol.records.iter().filter(is_another) {
            let Some(boost_state) = record.boost_state() else { continue };
            if looks == LOOKS || state::under_way() >= boosting.most {
                break;
            }
            if boost_state.start(now) {
                looks += 1;
                let given = Given {
                    record: address(record),
                    booster,
                    begun: now,
                    until: now + LIMIT.as_nanos() as u64,
                };
                match self.boost_one(boosting, record, boost_state, token, given) {
                    Some(true) => boosted.push((record, boost_state)),
                    Some(false) => gives_way = true,
                    None => {}
                }
            }
        }
        if !boosted.is_empty() {
            self.end_missed_boost(token, &boosted);
        }
        if gives_way {
            stillpoint_sys::os::yield_cpu();
        }
        !boosted.is_empty()
    }

    /// Boosts one reader, for whose thread the caller is `STARTING`. `Some(false)`: the reader waits for the caller's own CPU.
    fn boost_one(
        &self,
        boosting: &Boosting,
        record: &Record,
        boost_state: &BoostState,
        token: u64,
        given: Given,
    ) -> Option<bool> {
        // Loads the state first: its acquire makes the holder that published it visible. Then the boost state is looked up again,
        // so that it is this holder's.
        let is_the_one = blocks(record.observe(), token)
            && record.boost_state().is_some_and(|its| std::ptr::eq(its, boost_state));
        let finding = if is_the_one {
            // SAFETY: the caller is `STARTING` for this boost state.
            unsafe { boost_state.examine(boosting.way) }
        } else {
            Ok(Finding::NoNeed)
        };
        match finding {
            Ok(Finding::Boost(before)) if state::reserve(boosting.most) => {
                // SAFETY: the caller is `STARTING` for this boost state.
                let (settled, refused) =
                    unsafe { boost_state.raise(before, given, || record.tell_boosted()) };
                boosting.boosted.fetch_add(u64::from(!refused), RELAXED);
                boosting.refused.fetch_add(u64::from(refused), RELAXED);
                settled.then_some(true)
            }
            other => {
                boost_state.abandon(given.begun + boosting.after.as_nanos() as u64);
                boosting.refused.fetch_add(u64::from(other.is_err()), RELAXED);
                matches!(other, Ok(Finding::GiveWay)).then_some(false)
            }
        }
    }

    /// Ends boosts that their readers have not noticed, because they had left their sections a moment before.
    fn end_missed_boost(&self, token: u64, boosted: &[(&Record, &BoostState)]) {
        // Pairs with the fence in `wants_attention`: either the reader sees that it was boosted, or its section is seen to be
        // over. If the kernel refuses the fence, the reader's next section or the time limit ends the boost.
        if !busted::is(Variant::BoostNoHeavy) {
            let _ = self.protocol.mode.heavy();
        }
        for &(record, boost_state) in boosted {
            let is_over = !blocks(record.observe(), token);
            let has_changed_hands = !record.boost_state().is_some_and(|its| std::ptr::eq(its, boost_state));
            if is_over || has_changed_hands {
                boost_state.end(address(record));
            }
        }
    }

    /// Called by every poll: ends each boost that has lasted too long, and yields to readers that were moved here.
    #[inline]
    pub(crate) fn poll_boosts(&self) {
        if let Some(boosting) = self.boost.as_ref().filter(|_| state::given() != 0) {
            self.poll_boosts_by(boosting);
        }
    }

    #[cold]
    fn poll_boosts_by(&self, boosting: &Boosting) {
        self.end_overdue_boost(state::now());
        if boosting.way == Way::Migrate {
            stillpoint_sys::os::yield_cpu();
        }
    }

    fn end_overdue_boost(&self, now: u64) {
        self.end_boost_if(|boost_state| boost_state.is_overdue(now));
    }

    fn end_boost_if(&self, condition: impl Fn(&BoostState) -> bool) {
        if state::given() == 0 {
            return;
        }
        for record in self.protocol.records.iter() {
            let Some(boost_state) = record.boost_state().filter(|boost_state| condition(boost_state)) else {
                continue;
            };
            if !record.is_mine() {
                boost_state.end(address(record));
            } else if boost_state.end_own() {
                record.tell_boosted();
            }
        }
    }

    /// Called at the end of a reader's section: restores its thread, if the reader was notified of a boost.
    pub(crate) fn end_own_boost(&self, record: &Record) {
        if !record.take_told() {
            return;
        }
        if record.boost_state().is_some_and(BoostState::end_own) {
            record.tell_boosted();
        }
    }
}

fn address(record: &Record) -> usize {
    std::ptr::from_ref(record).addr()
}
