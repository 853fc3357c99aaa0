//! Help for region readers that hold a token up because they wait for a CPU: whom to help, and when it has to end.
//!
//! A helper gets the reader to run: raised to a real-time policy, or moved to the helper's CPU. The reader lets go of
//! that at the end of its section, where it looks at one word of its own line anyway. Everything else is about one
//! promise: *no thread stays raised or moved*. It is kept by whoever comes first: the reader at the end of its
//! section, the helper that finds the section over, any reclaimer or waiting thread of the domain when the time limit
//! has passed, the end of who gave the help, the end of the thread. How they keep out of each other's way is in
//! `state.rs`, the argument in `docs/design/rcu.md`.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::state::{self, Aid, Given};
use crate::busted::{self, Variant};
use crate::rcu::engine::core::grace::blocks;
use crate::rcu::engine::core::record::Record;
use crate::rcu::engine::Core;
use stillpoint_sys::linux::sched::{Finding, Way};

/// The longest that a thread stays raised or moved, if somebody polls or waits.
pub(crate) const LIMIT: Duration =
    if cfg!(loom) { Duration::from_secs(3600) } else { Duration::from_millis(2) };

/// Threads that are looked at by one poll, at the most.
const LOOKS: usize = 16;

/// What a domain does about preempted readers.
#[derive(Debug)]
pub(crate) struct Helping {
    pub(crate) way: Way,
    /// How long a token is held up before readers are helped.
    after: Duration,
    /// Threads of the process that are helped at a time, at the most: one CPU less than there are, so that long
    /// sections of raised threads do not keep everybody else from running, and from ending the help.
    most: u32,
    helped: AtomicU64,
    refused: AtomicU64,
}

impl Helping {
    pub(crate) fn new(way: Way, after: Duration) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        let most = if cfg!(loom) { u32::MAX } else { (cpus - 1).max(1) };
        Self { way, after, most, helped: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }

    /// How often readers were helped, and how often that was not possible.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.helped.load(RELAXED), self.refused.load(RELAXED))
    }
}

/// For statistics.
const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

/// Somebody who gives help, and has to end it.
#[derive(Debug)]
pub(crate) struct Giver {
    number: u64,
    has_given: bool,
}

impl Giver {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { number: NEXT.fetch_add(1, RELAXED), has_given: false }
    }

    /// Helps the readers that hold up `token`, if it was started when the domain had the age `started`, long enough
    /// ago. Returns whether one was helped.
    #[inline]
    pub(crate) fn help(&mut self, core: &Core, token: u64, started: Duration) -> bool {
        let helped =
            core.help.as_ref().is_some_and(|helping| core.help_by(helping, self.number, token, started));
        self.has_given |= helped;
        helped
    }

    /// Ends what is left of the help: who will not look at the readers for a while cannot leave it as it is.
    pub(crate) fn end(&mut self, core: &Core) {
        if std::mem::take(&mut self.has_given) {
            core.end_help_if(|aid| aid.is_given_by(self.number));
        }
    }
}

impl Core {
    pub(crate) fn helping(&self) -> Option<&Helping> {
        self.help.as_ref()
    }

    #[cold]
    fn help_by(&self, helping: &Helping, giver: u64, token: u64, started: Duration) -> bool {
        if self.age().saturating_sub(started) < helping.after {
            return false;
        }
        let now = state::now();
        self.end_overdue_help(now);
        let mut helped: Vec<(&Record, &Aid)> = Vec::new();
        let mut gives_way = helping.way == Way::Migrate;
        let mut looks = 0;
        for record in self.records.iter().filter(|record| blocks(record.observe(), token)) {
            let Some(aid) = record.aid() else { continue };
            if looks == LOOKS || state::under_way() >= helping.most {
                break;
            }
            if aid.start(now) {
                looks += 1;
                let given = Given {
                    record: address(record),
                    giver,
                    begun: now,
                    until: now + LIMIT.as_nanos() as u64,
                };
                match self.help_one(helping, record, aid, token, given) {
                    Some(true) => helped.push((record, aid)),
                    Some(false) => gives_way = true,
                    None => {}
                }
            }
        }
        if !helped.is_empty() {
            self.end_missed_help(token, &helped);
        }
        if gives_way {
            stillpoint_sys::linux::yield_cpu();
        }
        !helped.is_empty()
    }

    /// Helps one reader, whose thread the caller looks at. `Some(false)`: the caller is in its way.
    fn help_one(
        &self,
        helping: &Helping,
        record: &Record,
        aid: &Aid,
        token: u64,
        given: Given,
    ) -> Option<bool> {
        // The state first: its acquire load makes the holder known that published it, and the aid is looked up again,
        // so that it is the one of that holder.
        let is_the_one =
            blocks(record.observe(), token) && record.aid().is_some_and(|its| std::ptr::eq(its, aid));
        // SAFETY: the caller has started to look at the thread.
        let finding = if is_the_one { unsafe { aid.examine(helping.way) } } else { Ok(Finding::NoNeed) };
        match finding {
            Ok(Finding::Help(before)) => {
                // SAFETY: as above.
                let (settled, refused) = unsafe { aid.raise(before, given, || record.tell_helped()) };
                helping.helped.fetch_add(u64::from(!refused), RELAXED);
                helping.refused.fetch_add(u64::from(refused), RELAXED);
                settled.then_some(true)
            }
            other => {
                aid.abandon(given.begun + helping.after.as_nanos() as u64);
                helping.refused.fetch_add(u64::from(other.is_err()), RELAXED);
                matches!(other, Ok(Finding::GiveWay)).then_some(false)
            }
        }
    }

    /// Ends the help that its readers have not noticed: they had left their sections a moment before.
    fn end_missed_help(&self, token: u64, helped: &[(&Record, &Aid)]) {
        if busted::is(Variant::HelpNoRecheck) {
            return;
        }
        // Pairs with the fence in `notice`: either the reader sees that it was helped, or its section is seen to be
        // over. Where the kernel refuses, its next section or the time limit ends the help.
        if !busted::is(Variant::HelpNoHeavy) {
            let _ = self.mode.heavy();
        }
        for &(record, aid) in helped {
            let is_over = !blocks(record.observe(), token);
            let has_changed_hands = !record.aid().is_some_and(|its| std::ptr::eq(its, aid));
            if is_over || has_changed_hands {
                aid.end(address(record));
            }
        }
    }

    /// What every poll does: ends help that has lasted too long, and gives way to readers that were moved here.
    #[inline]
    pub(crate) fn tend_help(&self) {
        if let Some(helping) = self.help.as_ref().filter(|_| state::given() != 0) {
            self.tend_help_by(helping);
        }
    }

    #[cold]
    fn tend_help_by(&self, helping: &Helping) {
        self.end_overdue_help(state::now());
        if helping.way == Way::Migrate {
            stillpoint_sys::linux::yield_cpu();
        }
    }

    fn end_overdue_help(&self, now: u64) {
        self.end_help_if(|aid| aid.is_overdue(now));
    }

    fn end_help_if(&self, condition: impl Fn(&Aid) -> bool) {
        if state::given() == 0 {
            return;
        }
        for record in self.records.iter() {
            if let Some(aid) = record.aid().filter(|aid| condition(aid)) {
                aid.end(address(record));
            }
        }
    }

    /// The reader has ended its section: restores its thread, if it was told that it is helped.
    pub(crate) fn end_own_help(&self, record: &Record) {
        if !record.take_told() {
            return;
        }
        if record.aid().is_some_and(Aid::end_own) {
            record.tell_helped();
        }
    }
}

fn address(record: &Record) -> usize {
    std::ptr::from_ref(record).addr()
}
