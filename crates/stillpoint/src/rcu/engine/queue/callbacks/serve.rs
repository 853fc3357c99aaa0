//! Threads that serve a queue, and threads that wait for it.

use std::borrow::Borrow;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::node::{Callback, Chain, ObjectCallback};
use super::segments::{LANES, OBJECTS};
use super::{Callbacks, Called, Outcome, Serving, State};
use crate::busted::{self, Variant};
use crate::frames::{self, is_foreign};
use crate::rcu::engine::core::grace::ANY;
use crate::rcu::engine::queue::line::Obstacle;
use crate::rcu::engine::queue::retire_list::SHARE;
use crate::rcu::engine::wait::error::SynchronizeError;
use crate::rcu::engine::wait::park::{earliest, Event, Next, Patience, LONGEST_SLEEP};
use stillpoint_sys::panics::{self, Panic};
use stillpoint_sys::sync::atomic::{AtomicBool, Ordering};
use stillpoint_sys::tsan;

/// The least time of a turn that has called something, for a thread that serves. Each turn takes the lines to which other threads push,
/// so it doubles while turns follow each other, up to [`LONGEST_GATHER`].
const FIRST_GATHER: Duration = Duration::from_micros(2);
const LONGEST_GATHER: Duration = Duration::from_micros(16);

/// Counts a thread as a server, as long as this value exists.
pub(crate) struct Server<Q: Borrow<Callbacks>> {
    queue: Q,
    /// The number of forks when the thread was counted. The child of a later fork has discarded that count.
    forks: Cell<u64>,
}

impl<Q: Borrow<Callbacks>> Server<Q> {
    pub(crate) fn of(queue: Q) -> Self {
        let server = Self { forks: Cell::new(queue.borrow().turn.forks()), queue };
        // Relaxed: a thread that looks for servers looks again.
        server.queue.borrow().servers.fetch_add(1, Ordering::Relaxed);
        server
    }

    /// In the child of a `fork` by a callback: counts the thread, which still serves, again.
    fn count_again(&self) {
        let queue = self.queue.borrow();
        if self.forks.replace(queue.turn.forks()) != queue.turn.forks() {
            // Relaxed: a thread that looks for servers looks again.
            queue.servers.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<Q: Borrow<Callbacks>> Drop for Server<Q> {
    fn drop(&mut self) {
        let queue = self.queue.borrow();
        if self.forks.get() == queue.turn.forks() {
            // Relaxed: a thread that looks for servers looks again.
            queue.servers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Callbacks {
    /// Serves until a call [stops](Callbacks::stop) it and everything was called, or until `goes_on` returns false. It calls
    /// `goes_on` between turns and, after [`wake`](Callbacks::wake), while it sleeps. Returns the first panic of a callback.
    pub(crate) fn run_while(&self, goes_on: impl Fn() -> bool) -> Option<Panic> {
        let server = Server::of(self);
        // Acquire: pairs with the release in `stop`, so that what was pushed before it is seen.
        let is_to_stop = || self.is_stopped.load(Ordering::Acquire);
        let (mut patience, mut first, mut share) = (Patience::new(), None, SHARE);
        let (mut was_empty, mut gather) = (false, FIRST_GATHER);
        loop {
            server.count_again();
            let is_stopped = is_to_stop();
            if !goes_on() {
                return first;
            }
            let begun = self.core.protocol.age();
            let outcome = self.attempt(share);
            share = outcome.share;
            if let Some(panic) = outcome.panic {
                frames::keep_first(&mut first, panic);
            }
            if is_stopped && matches!(outcome.next, Obstacle::Empty) {
                return first;
            }
            let is_empty = matches!(outcome.next, Obstacle::Empty);
            if outcome.called > 0 || (is_empty && !was_empty) {
                patience = Patience::new();
            }
            was_empty = is_empty;
            if outcome.called > 0 {
                if !matches!(outcome.next, Obstacle::Nothing) {
                    self.let_gather(begun, gather);
                    gather = LONGEST_GATHER.min(gather * 2);
                }
                continue;
            }
            gather = FIRST_GATHER;
            if is_empty {
                let is_pushed = self.lanes.iter().any(|lane| !lane.is_empty());
                if !is_pushed && self.has_work() {
                    // A push that has begun, or what another call has taken in since: see `has_work`.
                    self.wait(Obstacle::Other, &mut patience, None, || is_to_stop() || !goes_on());
                } else {
                    self.event.sleep_unless(None, || self.has_work() || is_to_stop() || !goes_on());
                }
            } else if self.turn.is_paused() {
                self.event.sleep_unless(None, || !self.turn.is_paused() || !goes_on());
            } else {
                self.wait(outcome.next, &mut patience, None, || is_to_stop() != is_stopped || !goes_on());
            }
        }
    }

    /// Waits for this time since the age of the domain at which a turn has begun: if threads push all the time, the next turn finds several
    /// callbacks. Keeps the processor: a thread that yields would not be woken before others that run.
    fn let_gather(&self, begun: Duration, time: Duration) {
        while !cfg!(stillpoint_loom) && self.core.protocol.age().saturating_sub(begun) < time {
            std::hint::spin_loop();
        }
    }

    /// Whether there is something to call, now or later. By the count, since a [poll](Callbacks::poll) of another thread may have taken in
    /// what was pushed, and left it: then the lanes are empty, and nobody is told when it can be called.
    fn has_work(&self) -> bool {
        // Relaxed: the fences of the sleep and of the push's notification order the count.
        self.counters().in_queue() > 0
    }

    /// Waits a little for the obstacle to pass. A push does not end the sleep, which is no longer than the time already waited.
    fn wait(
        &self,
        obstacle: Obstacle<'_>,
        patience: &mut Patience,
        deadline: Option<Instant>,
        changed: impl FnOnce() -> bool,
    ) {
        if !matches!(obstacle, Obstacle::Nothing) {
            let (next, due) = obstacle.next(&self.core);
            patience.wait(self.core.event(), next, earliest(due, deadline), changed);
        }
    }

    /// Lets every current and later [run](Callbacks::run_while) return when everything was called.
    pub(crate) fn stop(&self) {
        // Release: pairs with the acquire loads in `run_while`.
        self.is_stopped.store(true, Ordering::Release);
        self.wake();
    }

    /// Lets the serving threads check again whether to go on.
    pub(crate) fn wake(&self) {
        self.event.notify();
        self.core.event().notify();
    }

    /// Moves everything to another queue of the domain, in order, as if it were pushed there now. Waits for the turn, for the end
    /// of pauses, and for incomplete pushes.
    pub(crate) fn pass_to(&self, other: &Self) {
        assert!(
            !is_foreign(),
            "a destructor, a callback or a stall hook cannot pass on a queue: it could wait for itself"
        );
        let mut patience = Patience::new();
        loop {
            if self.turn.try_take() {
                let serving = Serving(self);
                let is_empty = self.state.with_mut(|state| {
                    // SAFETY: this call has the turn.
                    let state = unsafe { &mut *state };
                    self.mend_after_fork(state);
                    self.pass_all(state, other)
                });
                drop(serving);
                // What was moved before a gap also needs a serving thread.
                other.event.notify();
                if is_empty {
                    return;
                }
            }
            patience.wait(self.core.event(), Next::News, None, || false);
        }
    }

    /// Moves everything up to a gap. Returns whether nothing is left.
    fn pass_all(&self, state: &mut State, other: &Self) -> bool {
        loop {
            let pass = |chain: &mut Option<Chain>, lane: usize| {
                while let Some(nodes) = *chain {
                    let Ok((node, rest)) = nodes.pop() else { return false };
                    *chain = rest;
                    node.renew();
                    other.counters().count_pushed();
                    self.counters().count_passed();
                    other.lanes[lane].push(node);
                }
                true
            };
            if !pass(&mut state.held, OBJECTS) {
                return false;
            }
            state.number_held = 0;
            while let Some(segment) = state.segments.oldest() {
                let is_empty = (0..LANES).all(|lane| pass(&mut segment.chains[lane], lane));
                if !is_empty {
                    return false;
                }
                state.segments.pop_oldest();
            }
            self.counters().set_idle();
            if self.lanes.iter().all(|lane| lane.is_empty()) {
                return true;
            }
            let chains: [Option<Chain>; LANES] = std::array::from_fn(|lane| self.lanes[lane].take());
            if chains.iter().all(Option::is_none) {
                return false;
            }
            // If a gap ends the move here, a server of this queue finds a segment like any other.
            let token = if busted::is(Variant::PassedUnstamped) { 0 } else { self.core.protocol.start() };
            state.segments.push(super::Segment { token, started: self.core.protocol.age(), chains });
        }
    }

    /// Waits for the end of the turn, if a thread has it. No thread takes another turn before [`resume`](Callbacks::resume).
    /// Returns the argument for `resume`.
    ///
    /// # Panics
    /// If foreign code makes the call, such as a callback of any queue.
    #[track_caller]
    pub(crate) fn pause(&self) -> u64 {
        assert!(
            !is_foreign(),
            "a destructor, a callback or a stall hook cannot pause a queue: it could wait for itself"
        );
        let forks = self.turn.begin_pause();
        while self.turn.is_taken() {
            self.event.sleep_unless(None, || !self.turn.is_taken());
        }
        tsan::acquire(self);
        forks
    }

    /// As [`pause`](Callbacks::pause), before a `fork`; a callback may call it, too. Then waits for pushes that other threads
    /// have begun, but not for new ones. It calls `gives_up` whenever the queue is [woken](Callbacks::wake). If that returns
    /// true, it does not wait for the end of the turn: [`reset_after_fork`](Callbacks::reset_after_fork) detects that turn.
    pub(crate) fn pause_to_fork(&self, gives_up: impl Fn() -> bool) -> u64 {
        let forks = self.turn.begin_pause();
        let is_mine = self.turn.is_mine();
        while !is_mine && self.turn.is_taken() {
            if gives_up() {
                return forks;
            }
            self.event.sleep_unless(None, || !self.turn.is_taken() || gives_up());
        }
        tsan::acquire(self);
        // Each push that completes wakes this thread.
        let sleep_until = |is_so: &dyn Fn() -> bool| {
            while !is_so() {
                self.event.sleep_unless(None, is_so);
            }
        };
        let wait_for = |chain: Chain| {
            let rest = Cell::new(chain);
            sleep_until(&|| {
                rest.set(rest.get().up_to_gap());
                rest.get().is_single()
            });
        };
        if !is_mine {
            // SAFETY: no thread has the turn, and none takes it during the pause. Another pause only reads, too.
            let state = self.state.with(|state| unsafe { &*state });
            // If no turn has mended the state since a fork, its gaps are those of threads that do not exist here.
            if state.forks == self.turn.forks() {
                state.segments.iter().flat_map(|segment| segment.chains).flatten().for_each(wait_for);
            }
        }
        for lane in &self.lanes {
            // Pushes from now on are not waited for.
            if let Some(last) = lane.last() {
                sleep_until(&|| lane.first().is_some());
                lane.first().into_iter().for_each(|first| wait_for(Chain::from_to(first, last)));
            }
        }
        forks
    }

    /// For models: accesses what turns use.
    #[cfg(all(test, stillpoint_loom))]
    pub(crate) fn look_at_state(&self) {
        self.state.with_mut(|_| ());
    }

    /// Ends a pause. In the child of a `fork`, pauses from before the fork have ended already.
    pub(crate) fn resume(&self, forks: u64) {
        tsan::release(self);
        self.turn.end_pause(forks);
        self.event.notify();
    }

    /// Waits until everything that was pushed before is called, except callbacks whose objects protected loads hold. Waits for at
    /// most `limit`. Serves the queue itself if no other thread does, and calls what protected loads have released.
    ///
    /// # Panics
    /// With the panic of a callback that this call has called.
    pub(crate) fn barrier(&self, limit: Option<Duration>) -> Result<(), SynchronizeError> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        SynchronizeError::unless_foreign(&self.core)?;
        SynchronizeError::unless_own_region(&self.core, u64::MAX)?;
        let (refusals, _) = self.refusals();
        let markers = [Marker::push(self, false), Marker::push(self, true)];
        let is_over = || markers.iter().all(|marker| marker.is_called());
        let (mut patience, mut share) = (Patience::new(), SHARE);
        loop {
            if is_over() {
                panics::resume(self.call_released(deadline));
                tsan::acquire(self);
                return Ok(());
            }
            // Relaxed: the loop looks again.
            if self.servers.load(Ordering::Relaxed) > 0 {
                let waited_for = markers.iter().find(|marker| !marker.is_called());
                if let Some(marker) = waited_for {
                    patience.wait(&marker.event, Next::News, deadline, || marker.is_called());
                }
            } else {
                let Outcome { called, next, share: next_share, panic } = self.attempt(share);
                share = next_share;
                panics::resume(panic);
                if called > 0 {
                    patience = Patience::new();
                } else if !is_over() {
                    self.wait(next, &mut patience, deadline, is_over);
                }
            }
            if is_over() {
                continue;
            }
            // Refusals of other queues and lists say nothing: filters are per thread. Nor does an earlier one: that reader may be gone.
            if let (now, Some(error)) = self.refusals() {
                if now != refusals {
                    return Err(SynchronizeError::Fence(error));
                }
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                // Reports the reader in the way, if there is one.
                let core = &self.core;
                return core.wait_for(core.protocol.start(), Some(Duration::ZERO)).and(Err(core.busy()));
            }
        }
    }

    /// Calls callbacks that protected loads held at the last look, and no longer hold. If there are any, waits for the turn
    /// until the deadline.
    fn call_released(&self, deadline: Option<Instant>) -> Option<Panic> {
        let mut patience = Patience::new();
        while self.counters().pinned() > 0 {
            if self.turn.try_take() {
                let _serving = Serving(self);
                let mut called = Called::new(self);
                // SAFETY: this call has the turn.
                let state = self.state.with_mut(|state| unsafe { &mut *state });
                self.call_held(state, usize::MAX, &mut called);
                self.counters().set_pinned(state.number_held, ANY, None);
                return called.panic.take();
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return None;
            }
            patience.wait(self.core.event(), Next::News, deadline, || false);
        }
        None
    }

    /// In the child of a `fork`: ends pauses, and the turn of another thread. Incomplete pushes are lost, and what was
    /// pushed behind them. If another thread had the turn, what it had taken is lost as well. A turn of the calling thread goes
    /// on.
    ///
    /// # Safety
    /// There is no other thread.
    pub(crate) unsafe fn reset_after_fork(&self) {
        let is_torn = self.turn.reset();
        self.event.reset();
        // Relaxed, all: there is no other thread.
        self.servers.store(0, Ordering::Relaxed);
        let in_lanes: usize = self.lanes.iter().map(|lane| lane.end_at_gap()).sum();
        let counters = self.counters();
        let in_state = counters.in_queue().saturating_sub(in_lanes as u64);
        self.removed_by_state.store(counters.removed() + in_state, Ordering::Relaxed);
        if self.turn.is_mine() {
            // The calling thread uses the state; its next turn mends it.
            return;
        }
        self.state.with_mut(|state| {
            // SAFETY: there is no other thread. A thread that was lost within a turn may have left the state in any condition:
            // the old state is overwritten, and not read.
            unsafe {
                if is_torn {
                    state.write(State::new(0));
                }
                self.mend(&mut *state);
            }
        });
    }

    /// In the child of a `fork`, once: gives up what is behind a push that no thread completes.
    pub(super) fn mend_after_fork(&self, state: &mut State) {
        if state.forks != self.turn.forks() {
            self.mend(state);
        }
    }

    fn mend(&self, state: &mut State) {
        state.forks = self.turn.forks();
        let mut left = state.number_held;
        for chain in state.segments.iter_mut().flat_map(|segment| segment.chains.iter_mut().flatten()) {
            chain.end_at_gap();
            left += chain.nodes().count();
        }
        // Relaxed: written when there was no other thread.
        let removed_by_state = self.removed_by_state.load(Ordering::Relaxed);
        let lost = removed_by_state.saturating_sub(self.counters().removed() + left as u64);
        self.counters().count_removed(lost);
        (0..lost).for_each(|_| self.core.give_room_back(0));
    }
}

/// A callback of a barrier. It may be called after the barrier has failed.
#[repr(C)]
struct Marker {
    _node: ObjectCallback,
    is_called: AtomicBool,
    event: Event,
}

impl Marker {
    fn push(queue: &Callbacks, is_object: bool) -> Arc<Self> {
        unsafe extern "C-unwind" fn call(callback: NonNull<Callback>) {
            // SAFETY: it is the first field of a marker, which holds a reference count for this call.
            let marker = unsafe { Arc::from_raw(callback.cast::<Marker>().as_ptr().cast_const()) };
            // Release: pairs with the acquire in `is_called`. What other callbacks did comes before.
            marker.is_called.store(true, Ordering::Release);
            marker.event.notify();
        }

        let marker = Arc::new(Self {
            _node: ObjectCallback::default(),
            is_called: AtomicBool::new(false),
            event: Event::new(LONGEST_SLEEP),
        });
        let place = Arc::into_raw(Arc::clone(&marker)).cast_mut();
        // SAFETY: the marker is not null.
        let place = unsafe { NonNull::new_unchecked(place) };
        // SAFETY: only the queue uses the marker's node, and the marker holds a reference count for the call.
        unsafe {
            if is_object {
                queue.push_object(place.cast(), std::ptr::null(), call);
            } else {
                queue.push(place.cast(), call);
            }
        }
        marker
    }

    fn is_called(&self) -> bool {
        // Acquire: pairs with the release above.
        self.is_called.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::time::Instant;

    use super::super::{Callback, Callbacks};
    use super::LONGEST_GATHER;
    use crate::rcu::Domain;

    unsafe extern "C-unwind" fn nothing(_: NonNull<Callback>) {}

    /// A callback that pushes itself again, so that each turn calls one.
    #[repr(C)]
    struct Again {
        callback: Callback,
        queue: Arc<Callbacks>,
        left: u64,
    }

    unsafe extern "C-unwind" fn again(callback: NonNull<Callback>) {
        // SAFETY: the callback is the first field, and the test keeps it until the server has returned.
        let this = unsafe { callback.cast::<Again>().as_mut() };
        match this.left.checked_sub(1) {
            // SAFETY: the callback belongs to the queue until it is called again.
            Some(left) => unsafe {
                this.left = left;
                this.queue.push(callback, again);
            },
            None => this.queue.stop(),
        }
    }

    #[test]
    fn turns_that_follow_each_other_let_pushes_gather() {
        const TURNS: u64 = 50;
        let queue = Arc::new(Callbacks::new(Arc::clone(Domain::new().core()), None));
        let mut one = Again { callback: Callback::new(), queue: Arc::clone(&queue), left: TURNS };
        // SAFETY: the callback stays until the server has returned.
        unsafe { queue.push(NonNull::from(&mut one).cast(), again) };
        let begun = Instant::now();
        assert!(queue.run_while(|| true).is_none());
        assert!(begun.elapsed() > LONGEST_GATHER * TURNS as u32 / 2, "{:?}", begun.elapsed());
    }

    /// A server that has seen nothing does not sleep over it: nobody would wake it when the reader has gone.
    #[test]
    fn what_a_poll_has_taken_in_and_left_is_work() {
        let domain = Domain::new();
        let reader = domain.reader();
        let queue = Callbacks::new(Arc::clone(domain.core()), None);
        assert!(!queue.has_work());
        let guard = reader.pin();
        let mut callback = Callback::new();
        // SAFETY: the callback stays until it is called, at the end.
        unsafe { queue.push(NonNull::from(&mut callback), nothing) };
        assert_eq!(queue.poll(usize::MAX), 0);
        assert!(queue.lanes.iter().all(|lane| lane.is_empty()) && queue.has_work());
        drop(guard);
        assert_eq!(queue.poll(usize::MAX), 1);
        assert!(!queue.has_work());
    }
}
