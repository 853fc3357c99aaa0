//! What handles, guards and clones of a collector share: the lists that were handed on, and how a round serves them.
//!
//! Steps in comments are those of `docs/design/epoch.md`.

use std::sync::atomic::{AtomicUsize, Ordering};

use stillpoint::rcu::{Domain, Reclaimer};
use stillpoint_sys::panics::{self, Panic};
use stillpoint_sys::sync::Place;

use crate::lists::List;

/// The most functions that a round runs, as long as no more wait from round to round ([`Shared::share`]).
const SHARE: usize = 512;
/// A list that is served counts as at least this number of functions, since its poll scans the readers.
const LOOK: usize = 64;
/// Lists that are handed on are joined until they have this number of functions.
const FULL: usize = 512;

/// The state that the handles, guards and clones of a collector share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Lists that any thread may serve, as a chain, the oldest first. A thread takes the chain for some instructions only, in
    /// which it neither copies nor allocates.
    handed: Place<List>,
    /// A list that is not full yet. It follows those of the chain.
    newest: Place<List>,
    /// As [`SHARE`], or more while rounds run their whole shares, and more and more functions wait nevertheless.
    share: AtomicUsize,
    /// How many functions waited before the last round that ran its whole share.
    waited: AtomicUsize,
    /// Dropped last, since a dropped list leaves its functions to the domain.
    domain: Domain,
}

impl Shared {
    pub(crate) fn new(domain: Domain) -> Self {
        let (share, waited) = (AtomicUsize::new(SHARE), AtomicUsize::new(0));
        Self { handed: Place::new(), newest: Place::new(), share, waited, domain }
    }

    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(crate) fn list(&self) -> Box<List> {
        List::new(self.domain.reclaimer_builder().max_pending(usize::MAX).build())
    }

    /// Puts a chain, or a list, in front of what is there.
    fn put(&self, lists: Box<List>) {
        self.handed.put(lists, |lists, newer| lists.append(newer));
    }

    /// Lets any thread serve a list. Never waits: while another thread has the newest list, this one takes its place. Keeps
    /// the first panic, which can only be that of a stall hook.
    pub(crate) fn hand_on(&self, mut list: Box<List>, panic: &mut Option<Panic>) {
        if list.reclaimer.pending() < FULL {
            if let Some(mut newest) = self.newest.take() {
                newest.reclaimer.take_over(&mut list.reclaimer);
                list = newest;
            }
        }
        // Starts a token for functions that no round has seen, such as those that functions have deferred. Otherwise it would
        // be started when the list is the first, so that each grace period would free one list. A thread that unwinds must not
        // panic again.
        if !std::thread::panicking() {
            panics::keeping(panic, || list.reclaimer.poll_at_most(0));
        }
        if list.reclaimer.pending() < FULL {
            self.join(list);
        } else {
            match self.handed.take() {
                Some(mut lists) => {
                    lists.append(list);
                    self.put(lists);
                }
                None => self.put(list),
            }
        }
    }

    /// Joins a list with the newest one, or makes it the newest one.
    fn join(&self, list: Box<List>) {
        self.newest.put(list, |list, mut other| list.reclaimer.take_over(&mut other.reclaimer));
    }

    /// The number of lists, and of the functions in them, except those that other threads have at this moment.
    fn waiting(&self) -> (usize, usize) {
        let (mut lists, mut functions, newest) = (0, 0, self.newest.take());
        if let Some(chain) = self.handed.take() {
            (lists, functions) = (chain.number(), chain.functions());
            self.put(chain);
        }
        if let Some(newest) = newest {
            (lists, functions) = (lists + 1, functions + newest.functions());
            self.join(newest);
        }
        (lists, functions)
    }

    /// Runs a share of the functions that are ready: first those of the caller's list, then those that were handed on. `count` is
    /// twice the number of functions that were deferred since the last round, or a little more. If all of the share was run, so
    /// that more may be ready, returns the share. Also returns the first panic.
    pub(crate) fn round(
        &self,
        own: &mut List,
        count: usize,
        is_flush: bool,
    ) -> (Option<usize>, Option<Panic>) {
        // Only the lists that exist now: functions may defer themselves again.
        let (lists, waiting) = self.waiting();
        let share = self.share(count, waiting);
        let mut round = Round { is_flush, left: share, panic: None };
        round.poll(&mut own.reclaimer);
        self.serve(lists, &mut round);
        let ran_all = round.left == 0;
        self.adapt(ran_all, waiting);
        (ran_all.then_some(share), round.panic)
    }

    /// The share of a round. What is deferred counts twice: so rounds run functions faster than they are deferred, once as many
    /// wait.
    fn share(&self, count: usize, waiting: usize) -> usize {
        // Relaxed: only the number of functions that a round runs depends on it.
        self.share.load(Ordering::Relaxed).max(count).min(waiting).max(SHARE)
    }

    /// Doubles the share if this round has run all of its own, and more functions waited before this round than before the last
    /// one like that. Lowers it to the number that waits.
    fn adapt(&self, ran_all: bool, waiting: usize) {
        // Relaxed, all: as in `share`.
        let share = self.share.load(Ordering::Relaxed);
        // If nothing waited then, one region may have deferred everything, and no other will.
        let grows = ran_all && (1..waiting).contains(&self.waited.swap(waiting, Ordering::Relaxed));
        let next = if grows { 2 * share } else { share }.min(waiting).max(SHARE);
        if next != share {
            self.share.store(next, Ordering::Relaxed);
        }
    }

    /// Takes the oldest list.
    fn oldest(&self) -> Option<Box<List>> {
        let Some(lists) = self.handed.take() else { return self.newest.take() };
        let (oldest, others) = lists.split();
        if let Some(others) = others {
            self.put(others);
        }
        Some(oldest)
    }

    /// Serves up to `number` of the lists that were handed on, the oldest first, until the share is done, or a list waits for
    /// readers: then the newer ones behind it do, too.
    fn serve(&self, number: usize, round: &mut Round) {
        for _ in 0..number {
            if round.left == 0 {
                return;
            }
            let Some(mut list) = self.oldest() else { return };
            let ran = round.poll(&mut list.reclaimer);
            round.left = round.left.saturating_sub(LOOK.saturating_sub(ran));
            // What only protected loads hold says nothing about the lists behind it.
            let awaits_readers = list.reclaimer.pending() > list.reclaimer.held();
            match list.reclaimer.pending() {
                0 => drop(list),
                _ if round.left == 0 || (ran == 0 && awaits_readers) => return self.put(list),
                // What is left is newer than what has run.
                _ => self.hand_on(list, &mut round.panic),
            }
        }
    }
}

/// The drop of the last handle, guard or clone of the collector runs what is left. This is not left to the drop of the
/// domain: within a function that the drop of another domain runs, this domain would leave its functions to that other
/// drop (step 9).
impl Drop for Shared {
    fn drop(&mut self) {
        // Dropped lists leave their functions to the domain.
        drop((self.handed.take(), self.newest.take()));
        let mut round = Round { is_flush: true, left: usize::MAX, panic: None };
        round.poll(&mut self.list().reclaimer);
        panics::resume(round.panic);
    }
}

/// One search for functions that are ready.
struct Round {
    is_flush: bool,
    /// How many more functions it may run.
    left: usize,
    /// The first panic.
    panic: Option<Panic>,
}

impl Round {
    /// Runs the functions of a list that are ready, as far as the share goes. Returns their number. If one has panicked,
    /// the whole list counts.
    fn poll(&mut self, list: &mut Reclaimer) -> usize {
        let poll = if self.is_flush { Reclaimer::poll_at_once } else { Reclaimer::poll_at_most };
        let (limit, functions) = (self.left, list.pending());
        let ran = panics::keeping(&mut self.panic, || poll(list, limit)).unwrap_or(functions.min(limit));
        self.left -= ran;
        ran
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round that runs this number of functions of the lists that were handed on.
    fn serve(shared: &Shared, share: usize) {
        let mut round = Round { is_flush: false, left: share, panic: None };
        shared.serve(usize::MAX, &mut round);
    }

    #[test]
    fn a_share_grows_with_what_comes_but_not_beyond_what_waits() {
        let shared = Shared::new(Domain::new());
        assert_eq!(shared.share(2_000_000, 0), SHARE);
        assert_eq!(shared.share(2_000_000, 10_000), 10_000);
        assert_eq!(shared.share(20_000, 1_000_000), 20_000);
        assert_eq!(shared.share(0, 1_000_000), SHARE);
        shared.share.store(40_000, Ordering::Relaxed);
        assert_eq!(shared.share(0, 1_000_000), 40_000);
        assert_eq!(shared.share(0, 30_000), 30_000);
        assert_eq!(shared.share(0, 0), SHARE);
    }

    #[test]
    fn a_share_grows_while_more_and_more_wait() {
        let shared = Shared::new(Domain::new());
        // Whether a round runs its whole share, what waits before it, and the share afterwards.
        for (ran_all, waiting, share) in [
            (true, 0, SHARE),
            (true, 10_000, SHARE),
            (false, 10_001, SHARE),
            (true, 10_001, 1024),
            (true, 10_001, 1024),
            (false, 50_000, 1024),
            (true, 10_002, 2048),
            (true, 8000, 2048),
            (true, 9000, 4096),
            (true, 9001, 8192),
            (true, 9002, 9002),
            (false, 5000, 5000),
            (true, 100, SHARE),
            (true, 1000, 1000),
        ] {
            shared.adapt(ran_all, waiting);
            assert_eq!(shared.share.load(Ordering::Relaxed), share, "{waiting} wait");
        }
    }

    #[test]
    fn a_round_looks_at_few_lists_however_short_they_are() {
        let shared = Shared::new(Domain::new());
        for _ in 0..100 {
            let mut list = shared.list();
            list.reclaimer.defer(|| ());
            shared.put(list);
        }
        for is_flush in [false, true] {
            let (lists, functions) = shared.waiting();
            assert_eq!(lists, functions);
            let (share, _) = shared.round(&mut shared.list(), 0, is_flush);
            assert_eq!((share, shared.waiting().0), (Some(SHARE), lists - SHARE / LOOK));
        }
    }

    /// A thread that is preempted while it has the lists, or the newest one, holds up only these.
    #[test]
    fn others_hand_on_and_serve_while_a_thread_has_the_lists() {
        let shared = Shared::new(Domain::new());
        let hand_on = |functions| {
            let mut list = shared.list();
            (0..functions).for_each(|_| list.reclaimer.defer(|| ()));
            shared.hand_on(list, &mut None);
        };
        let freed = || shared.domain.stats().freed as usize;
        hand_on(FULL);
        hand_on(1);
        let (lists, newest) =
            (shared.handed.take().expect("one is full"), shared.newest.take().expect("one is not"));
        for turn in 1..=3 {
            hand_on(FULL + 1);
            hand_on(2);
            serve(&shared, usize::MAX);
            assert_eq!(freed(), turn * (FULL + 3));
        }
        shared.put(lists);
        shared.hand_on(newest, &mut None);
        serve(&shared, usize::MAX);
        assert_eq!(freed(), 4 * FULL + 10);
    }

    /// What a protected load of the domain holds may be in any list, since polls adopt what was left.
    #[test]
    fn a_list_that_a_protected_load_holds_up_holds_up_no_other() {
        let shared = Shared::new(Domain::new());
        let (cell, reader) = (shared.domain.cell(1), shared.domain.reader());
        let held = cell.protect(&reader);
        let mut list = shared.list();
        list.reclaimer.retire(cell.replace(2).expect("never empty")).expect("there is room");
        while list.reclaimer.held() == 0 {
            list.reclaimer.poll_at_once(usize::MAX);
        }
        shared.put(list);
        for _ in 0..2 {
            let mut list = shared.list();
            (0..FULL).for_each(|_| list.reclaimer.defer(|| ()));
            list.reclaimer.poll_at_once(0);
            shared.hand_on(list, &mut None);
        }
        while shared.domain.stats().freed < 2 * FULL as u64 {
            let waiting = shared.waiting();
            // Without a pace.
            shared.serve(usize::MAX, &mut Round { is_flush: true, left: SHARE, panic: None });
            assert_ne!(shared.waiting(), waiting, "no other list is served");
        }
        drop(held);
        shared.serve(usize::MAX, &mut Round { is_flush: true, left: SHARE, panic: None });
        assert_eq!(shared.domain.stats().pending, 0);
    }

    /// The grace periods of lists that wait are under way at the same time: what was handed on while a reader was in the
    /// way needs no further one afterwards. Lists of functions that functions have deferred were in no round.
    #[test]
    fn lists_wait_at_the_same_time() {
        let symmetric = || crate::domain::builder().build().expect("nothing was chosen that may be refused");
        for (domain, were_in_a_round) in [(Domain::new(), true), (symmetric(), true), (symmetric(), false)] {
            let shared = Shared::new(domain);
            let reader = shared.domain.reader();
            let guard = reader.pin();
            const LISTS: usize = if cfg!(miri) { 20 } else { 100 };
            const FUNCTIONS: usize = 64;
            for _ in 0..LISTS {
                let mut list = shared.list();
                (0..FUNCTIONS).for_each(|_| list.reclaimer.defer(|| ()));
                if were_in_a_round {
                    list.reclaimer.poll();
                }
                shared.hand_on(list, &mut None);
            }
            assert_eq!(
                shared.handed.take().map(|lists| (lists.number(), shared.put(lists)).0),
                Some(LISTS * FUNCTIONS / FULL)
            );
            drop(guard);
            let later = reader.pin();
            while shared.domain.stats().pending > 0 {
                let freed = shared.domain.stats().freed;
                serve(&shared, SHARE);
                assert!(shared.domain.stats().freed > freed, "what is left waits for a later reader");
            }
            drop(later);
        }
    }
}
