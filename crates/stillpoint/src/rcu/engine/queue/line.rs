//! A line: what waits for grace periods in order, and for the hazard slots at its end. The queue of a retire list is one, and so are
//! the segments of callbacks.
//!
//! ```text
//!   token 9, token 7  --grace period over-->  in a hazard slot?  --no-->  freed, or called
//!                                                      \--yes-->  held at the side, looked at again
//! ```
//!
//! This is what both know of the domain: when the oldest token is over, what is in its way, and how much to look at. It knows neither
//! objects nor callbacks.

use std::time::{Duration, Instant};

use crate::fence::FenceError;
use crate::rcu::engine::boost::Booster;
use crate::rcu::engine::core::grace::{Grace, Outlook, Terms};
use crate::rcu::engine::core::record::Record;
use crate::rcu::engine::wait::park::{Looks, Next};
use crate::rcu::engine::wait::report::Behind;
use crate::rcu::engine::Core;

/// What is in the way of the next object or callback.
#[derive(Clone, Copy)]
pub(crate) enum Obstacle<'c> {
    /// There is none.
    Nothing,
    /// There is nothing left.
    Empty,
    /// A region reader, which has been waited for since this age of the domain.
    Reader(&'c Record, Duration),
    /// Protected loads hold everything that is left.
    Hazard,
    /// It is too early, for a token or for a fence, until this age of the domain.
    Pace(Duration),
    /// The kernel has refused the fence.
    Refused(FenceError),
    /// A push that is not complete; the turn of another thread; or a pause.
    Other,
}

impl<'c> Obstacle<'c> {
    /// What a thread that waits for its end sleeps for, and until when at most, if that is known.
    pub(crate) fn next(self, core: &Core) -> (Next<'c>, Option<Instant>) {
        match self {
            Self::Reader(record, since) => (Next::Passage(record), core.stall_is_due(Some(since))),
            Self::Hazard => (Next::Release, None),
            Self::Pace(due) => (Next::News, core.protocol.made.checked_add(due)),
            _ => (Next::News, None),
        }
    }
}

/// With more slots in use than this, a scan serves several sweeps, and the pace of tokens follows their number. In models, with any.
const FEW_SLOTS: usize = if cfg!(stillpoint_loom) { 0 } else { 64 };
/// A scan takes some 30 ns for each slot in use: a fifth of a thread's time, if it does nothing else than retire. Models know no time.
const PER_SLOT: Duration = Duration::from_nanos(if cfg!(stillpoint_loom) { 0 } else { 150 });
/// This many open objects for each slot in use pay for a scan at once.
const ENOUGH_PER_SLOT: usize = 3;

#[derive(Default)]
pub(crate) struct Line {
    /// Age of the domain when a token was last started.
    pub(crate) started: Option<Duration>,
    /// While a reader is silent.
    pub(crate) looks: Looks,
    /// Why the last fence was refused, and the age of the domain at which to ask for it again. Each line keeps its own: filters are
    /// per thread, so another thread's fence may succeed.
    refused: Option<(FenceError, Duration)>,
    /// Whether the larger half of an odd limit is for what is ready, at the next sweep. Changes with each.
    favours_ready: bool,
    /// Boosts readers that are in the way.
    booster: Booster,
    /// The addresses in hazard slots at the last scan.
    hazards: Vec<usize>,
    /// The newest token that was known to be over when the last scan began.
    gathered: u64,
    /// How many of the held objects were compared with the last scan.
    compared: usize,
    /// Age of the domain at the end of that scan, if it was costly.
    costly: Option<Duration>,
    /// The same of the last scan for what a token had made ready.
    for_new: Option<Duration>,
}

impl Line {
    /// Looks what is in the way of the oldest token, which was started at this age of the domain.
    pub(crate) fn look<'c>(
        &mut self,
        core: &'c Core,
        (token, started): (u64, Duration),
        terms: Option<Terms>,
    ) -> Obstacle<'c> {
        let mut answer = core.protocol.look(token, terms);
        let is_blocked = matches!(answer, Ok(Outlook::Known(Grace::Blocked(_))));
        if is_blocked && self.booster.boost(core, token, started) {
            answer = core.protocol.look(token, terms);
        }
        if let Ok(Outlook::Silent(due)) = answer {
            return Obstacle::Pace(self.looks.put_off(core.protocol.age(), due));
        }
        self.looks = Looks::default();
        self.refused = answer.err().map(|error| (error, core.protocol.next_attempt()));
        self.judge(answer, started)
    }

    /// Ends boosts that have lasted too long, whoever gave them.
    pub(crate) fn poll_boosts(core: &Core) {
        if core.boost.is_some() {
            core.poll_boosts();
        }
    }

    /// Ends what remains of the boosts that readers got for this line.
    pub(crate) fn end_boost(&mut self, core: &Core) {
        if core.boost.is_some() {
            self.booster.end(core);
        }
    }

    /// As [`look`](Line::look), but changes nothing.
    pub(crate) fn obstacle<'c>(
        &self,
        core: &'c Core,
        (token, started): (u64, Duration),
        terms: Option<Terms>,
    ) -> Obstacle<'c> {
        self.judge(core.protocol.look(token, terms), started)
    }

    fn judge<'c>(&self, answer: Result<Outlook<'c>, FenceError>, started: Duration) -> Obstacle<'c> {
        match answer {
            Ok(Outlook::Known(Grace::Over)) => Obstacle::Nothing,
            Ok(Outlook::Known(Grace::Blocked(record))) => Obstacle::Reader(record, started),
            Ok(Outlook::Silent(due)) => self.put_off(due),
            Err(error) => Obstacle::Refused(error),
        }
    }

    /// What is in the way until this age of the domain.
    pub(crate) fn put_off<'c>(&self, due: Duration) -> Obstacle<'c> {
        self.refused.map_or(Obstacle::Pace(due), |(error, _)| Obstacle::Refused(error))
    }

    /// The next look comes at once.
    pub(crate) fn look_soon(&mut self) {
        self.looks = Looks::default();
    }

    /// The age of the domain before which no fence is asked for again, if the last one was refused.
    pub(crate) fn next_attempt(&self) -> Option<Duration> {
        self.refused.map(|(_, again)| again)
    }

    /// How many of the `held` and of the `ready` ones to look at, `limit` in all: half of each kind, and more of one kind if the other has
    /// fewer.
    pub(crate) fn share(&mut self, limit: usize, held: usize, ready: usize) -> (usize, usize) {
        let half = limit / 2 + if self.favours_ready { 0 } else { limit % 2 };
        self.favours_ready = !self.favours_ready;
        let of_held = held.min(half.max(limit.saturating_sub(ready)));
        (of_held, ready.min(limit - of_held))
    }

    /// Reads all hazard slots, for what waited for this token, which is over; with 0, whatever it is for, that has no pace.
    pub(crate) fn gather(&mut self, core: &Core, token: u64) {
        // Comes first: no slot that is set later is validated for what waited for these.
        self.gathered = core.protocol.newest_over();
        core.protocol.gather_hazards(&mut self.hazards);
        self.compared = 0;
        self.costly = (self.scanned() > FEW_SLOTS).then(|| core.protocol.age());
        if token > 0 {
            self.for_new = self.costly;
        }
    }

    /// Whether the last scan serves again: it found so many slots in use that a scan for each sweep would cost more than all else. What waited
    /// for this token or an older one cannot have been protected since, if the token was over then. Until each of the `held` objects was
    /// compared with it once, it serves for eight [pauses](Line::pause), then for one, in which none is compared again. The next scan finds
    /// what was released since.
    pub(crate) fn serves_again(&self, core: &Core, token: u64, held: usize) -> bool {
        let Some(scanned) = self.costly.filter(|_| token <= self.gathered) else { return false };
        let pauses = if self.compared < held { 8 } else { 1 };
        let is_compared = held > 0 && self.compared >= held;
        (cfg!(stillpoint_loom) && !is_compared) || core.protocol.age() < scanned + pauses * self.pause()
    }

    /// How many of the `held` objects were not compared with the last scan.
    pub(crate) fn not_compared(&self, held: usize) -> usize {
        held.saturating_sub(self.compared)
    }

    /// Notes that this number of held objects was compared with the last scan, and that the number of all has changed.
    pub(crate) fn count_compared(&mut self, objects: usize, before: usize, after: usize) {
        self.compared = self.compared + objects + after - before;
    }

    /// The age of the domain before which no token is started for a number of open objects this small, since the scan after it would cost
    /// too much for each: less than [`ENOUGH_PER_SLOT`] for each slot that the last one found in use. Scans for what is held, which polls
    /// may do all the time, do not put it off.
    pub(crate) fn gathers_until(&self, open: usize) -> Option<Duration> {
        let is_costly = self.costly.is_some() && open < ENOUGH_PER_SLOT * self.scanned();
        self.started.max(self.for_new).filter(|_| is_costly).map(|last| last + self.pause())
    }

    /// Time between two costly scans.
    fn pause(&self) -> Duration {
        PER_SLOT * self.scanned() as u32
    }

    /// Number of slots that were found in use by the last scan: to look at fewer objects after the next one costs more for each.
    pub(crate) fn scanned(&self) -> usize {
        self.hazards.len()
    }

    /// Forgets what was gathered.
    pub(crate) fn ignore_hazards(&mut self) {
        self.hazards.clear();
    }

    /// Whether a slot that was gathered held this address.
    #[inline]
    pub(crate) fn is_pinned(&self, address: usize) -> bool {
        self.hazards.binary_search(&address).is_ok()
    }

    /// Reports the reader in the way of the oldest token to the stall hook, if it has been there for long, or the refusal of the fence.
    ///
    /// # Panics
    /// With the panic of the hook.
    pub(crate) fn report_stall(
        &self,
        core: &Core,
        oldest: Option<(u64, Duration)>,
        behind: impl FnOnce() -> Behind,
    ) {
        if let Some((error, _)) = self.refused {
            return core.report_refusal(error, behind);
        }
        let Some((token, started)) = oldest.filter(|&(_, started)| core.may_be_stalled(started)) else {
            return;
        };
        if let Some(record) = core.protocol.in_the_way(token) {
            core.report_stall(record, token, started, behind);
        }
    }
}
