//! One owner's objects that wait for their grace period, in the order in which they were retired.
//!
//! ```text
//!   queue:   [ batch: token 7 | batch: token 9 | open ]      held: objects that a hazard slot pinned
//! ```
//!
//! New objects join the *open* end. A poll starts a token for all that is open, unless the last start was too
//! short a time ago: so a burst of retirements shares one token and one fence. Objects whose token is over are
//! compared with the hazard slots, gathered once for all of them; those that are pinned move to `held` and
//! are compared again at each later poll.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::garbage::{self, Garbage, Panic};
use super::grace::Grace;
use super::ledger::Ledger;
use super::record::Record;
use super::registry::Claim;
use super::stack::Taken;
use super::Core;
use crate::busted::{self, Variant};
use crate::fence::FenceError;

/// Orphans of the domain that one poll adopts at the most.
const ADOPTED_PER_POLL: usize = 64;

/// When a poll starts a token for what is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// At once when so many objects are open.
    pub(crate) batch: usize,
    /// Otherwise when the last start was so long ago.
    pub(crate) interval: Duration,
}

impl Pace {
    /// At most one small batch every 50 µs: a heavy fence takes some 10 µs, so less than a quarter of the time.
    pub(crate) const DEFAULT: Self =
        Self { batch: 128, interval: if cfg!(loom) { Duration::ZERO } else { Duration::from_micros(50) } };
}

#[derive(Debug)]
pub(crate) struct Backlog {
    core: Arc<Core>,
    ledger: Claim<Ledger>,
    pace: Pace,
    queue: VecDeque<Garbage>,
    /// The front of the queue, in groups with one token each.
    batches: VecDeque<Batch>,
    /// Objects at the back of the queue that have no token yet.
    open: usize,
    held: Vec<Garbage>,
    bytes: usize,
    started: Option<Instant>,
    adopted: Taken,
    /// Scratch memory of a poll.
    hazards: Vec<usize>,
}

#[derive(Debug)]
struct Batch {
    token: u64,
    objects: usize,
    started: Duration,
}

/// What holds the oldest objects up.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Obstacle<'c> {
    Nothing,
    Reader(&'c Record),
    Hazard,
    Pace(Instant),
}

// SAFETY: the claim points into the core, which the backlog keeps alive, and everything else is `Send`; nothing
// is bound to the thread.
unsafe impl Send for Backlog {}

impl Backlog {
    pub(crate) fn new(core: Arc<Core>, pace: Pace) -> Self {
        Self {
            ledger: core.ledgers.claim(),
            core,
            pace,
            queue: VecDeque::new(),
            batches: VecDeque::new(),
            open: 0,
            held: Vec::new(),
            bytes: 0,
            started: None,
            adopted: Taken::none(),
            hazards: Vec::new(),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.held.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn ledger(&self) -> &Ledger {
        // SAFETY: the core is alive, as the backlog holds it.
        unsafe { self.ledger.slot() }
    }

    /// Takes in an object that was retired just now.
    pub(crate) fn retire(&mut self, garbage: Garbage) {
        self.ledger().count_retired();
        self.push(garbage);
        self.ledger().set_pending(self.len(), self.bytes);
    }

    /// Takes in an object that was counted before.
    fn push(&mut self, garbage: Garbage) {
        self.bytes += garbage.bytes();
        self.queue.push_back(garbage);
        self.open += 1;
    }

    /// Frees what is ready, `limit` objects at the most, and returns their number. Never waits for a reader.
    ///
    /// # Panics
    /// With the first panic of a destructor, after all that was ready has been freed.
    pub(crate) fn poll(&mut self, limit: usize) -> Result<usize, FenceError> {
        self.adopt_orphans();
        let ready = self.ready(limit)?;
        Ok(self.sweep(ready, limit))
    }

    /// Starts a token for what is open, if it is time, and counts the objects at the front whose token is over,
    /// until there are `limit` or more.
    fn ready(&mut self, limit: usize) -> Result<usize, FenceError> {
        if busted::is(Variant::HazardsFirst) {
            self.core.gather_hazards(&mut self.hazards);
        }
        if self.open > 0 && self.is_time() {
            self.start();
        }
        // The fence for the newest token serves the older ones as well.
        if let Some(newest) = self.batches.back() {
            self.core.ensure_fenced(newest.token)?;
        }
        let mut ready = 0;
        for batch in &self.batches {
            if ready >= limit {
                break;
            }
            match self.core.check(batch.token)? {
                Grace::HeldUp(_) if !busted::is(Variant::IgnoreRegions) => break,
                _ => {}
            }
            ready += batch.objects;
        }
        Ok(ready)
    }

    fn is_time(&self) -> bool {
        let due = || self.started.is_none_or(|started| started.elapsed() >= self.pace.interval);
        self.open >= self.pace.batch || self.pace.interval.is_zero() || !self.core.needs_heavy() || due()
    }

    fn start(&mut self) {
        let token = self.core.start();
        let started = self.core.age();
        self.started = Some(Instant::now());
        self.batches.push_back(Batch { token, objects: self.open, started });
        self.open = 0;
    }

    /// Frees the first `ready` objects of the queue, and what is held, as far as no hazard slot holds them.
    fn sweep(&mut self, ready: usize, limit: usize) -> usize {
        if ready == 0 && self.held.is_empty() {
            return 0;
        }
        if busted::is(Variant::IgnoreHazards) {
            self.hazards.clear();
        } else if !busted::is(Variant::HazardsFirst) {
            self.core.gather_hazards(&mut self.hazards);
        }
        let mut freed = Freed::default();
        for index in (0..self.held.len()).rev() {
            if freed.objects < limit && !self.is_pinned(&self.held[index]) {
                let garbage = self.held.swap_remove(index);
                self.free(garbage, &mut freed);
            }
        }
        for _ in 0..ready.min(limit - freed.objects) {
            let garbage = self.pop_ready();
            if self.is_pinned(&garbage) {
                self.held.push(garbage);
            } else {
                self.free(garbage, &mut freed);
            }
        }
        self.account(freed.objects);
        garbage::resume(freed.panic);
        freed.objects
    }

    /// The object at the front, whose batch is over.
    fn pop_ready(&mut self) -> Garbage {
        let batch = self.batches.front_mut().expect("ready objects belong to a batch");
        batch.objects -= 1;
        if batch.objects == 0 {
            self.batches.pop_front();
        }
        self.queue.pop_front().expect("batches count the objects of the queue")
    }

    fn is_pinned(&self, garbage: &Garbage) -> bool {
        self.hazards.binary_search(&garbage.address()).is_ok()
    }

    fn free(&mut self, garbage: Garbage, freed: &mut Freed) {
        self.bytes -= garbage.bytes();
        freed.objects += 1;
        // SAFETY: the object's token is over, so every region reader has passed; its address was in no hazard
        // slot gathered after that.
        if let Err(panic) = unsafe { garbage.free() } {
            freed.panic.get_or_insert(panic);
        }
    }

    fn account(&self, freed: usize) {
        let ledger = self.ledger();
        ledger.count_freed(freed);
        ledger.set_pending(self.len(), self.bytes);
        ledger.set_oldest(self.batches.front().map(|batch| batch.started));
    }

    /// Takes a bounded share of the objects that nobody looks after.
    fn adopt_orphans(&mut self) {
        if self.adopted.is_empty() {
            if !self.core.has_orphans() {
                return;
            }
            self.adopted = self.core.take_orphans();
        }
        for _ in 0..ADOPTED_PER_POLL {
            let Some(garbage) = self.adopted.next() else { break };
            self.core.forget_orphan(&garbage);
            self.push(garbage);
        }
        self.ledger().set_pending(self.len(), self.bytes);
    }

    /// What is in the way of the oldest object.
    pub(crate) fn obstacle(&self) -> Result<Obstacle<'_>, FenceError> {
        if let Some(batch) = self.batches.front() {
            return Ok(match self.core.check(batch.token)? {
                Grace::HeldUp(record) => Obstacle::Reader(record),
                Grace::Over => Obstacle::Nothing,
            });
        }
        Ok(if self.open > 0 {
            self.started.map_or(Obstacle::Nothing, |started| Obstacle::Pace(started + self.pace.interval))
        } else if !self.held.is_empty() {
            Obstacle::Hazard
        } else {
            Obstacle::Nothing
        })
    }

    /// The token that the newest object waits for, started now if there is none yet.
    pub(crate) fn close(&mut self) -> Option<u64> {
        while !self.adopted.is_empty() {
            self.adopt_orphans();
        }
        if self.open > 0 {
            self.start();
        }
        self.batches.back().map(|batch| batch.token)
    }
}

#[derive(Default)]
struct Freed {
    objects: usize,
    panic: Option<Panic>,
}

/// What is pending passes to the domain.
impl Drop for Backlog {
    fn drop(&mut self) {
        let pending = self.held.drain(..).chain(self.queue.drain(..));
        for garbage in pending {
            if busted::is(Variant::DropFrees) {
                // SAFETY: none; this is what the broken variant is about.
                drop(unsafe { garbage.free() });
            } else {
                self.core.add_orphan(garbage);
            }
        }
        for garbage in &mut self.adopted {
            self.core.forget_orphan(&garbage);
            self.core.add_orphan(garbage);
        }
        let ledger = self.ledger();
        ledger.set_pending(0, 0);
        ledger.set_oldest(None);
        self.core.ledgers.release(&self.ledger);
    }
}
