//! Callbacks in the user's own objects. Any thread pushes; one thread at a time serves.
//!
//! ```text
//!   push --> lane --take, stamp--> segments [ token 7 | token 9 | ... ] --over--> called
//!                                                                 \--held--> passed over, looked at again
//! ```
//!
//! There are two lanes: one for callbacks that keep their order and wait only for regions, and one for callbacks that know the
//! address of an object, and wait for its protected loads as well. All state is here, none in the serving thread. That
//! thread may end, pause, or be lost in a `fork`, and another one goes on. The argument is in `docs/design/rcu.md`.

pub(crate) mod node;
mod segments;
pub(crate) mod serve;
mod turn;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use self::node::{Callback, Chain, Function, Gap, Lane, Node, ObjectCallback};
use self::segments::{Segment, Segments, LANES, OBJECTS, ORDERED};
use self::turn::Turn;
use super::line::{Line, Obstacle};
use super::retire_list::{Pace, SHARE};
use crate::busted::{self, Variant};
use crate::fence::FenceError;
use crate::frames::{self, Foreign};
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::core::grace::{Terms, ANY};
use crate::rcu::engine::core::registry::Claim;
use crate::rcu::engine::wait::counters::Counters;
use crate::rcu::engine::wait::counters::Pinned;
use crate::rcu::engine::wait::park::Event;
use crate::rcu::engine::wait::report::Behind;
use crate::rcu::engine::Core;
use stillpoint_sys::panics::{self, Panic};
use stillpoint_sys::sync::atomic::{AtomicBool, AtomicUsize};
use stillpoint_sys::sync::UnsafeCell;
use stillpoint_sys::{probe, tsan, work};

/// A queue of callbacks.
pub(crate) struct Callbacks {
    core: Arc<Core>,
    counters: Claim<Counters>,
    lanes: [CachePadded<Lane>; LANES],
    turn: Turn,
    /// Used only by the thread that has the turn.
    state: UnsafeCell<State>,
    /// Serving threads that have nothing to do sleep on it, and so do threads that wait for the end of a turn.
    /// Padded: each push looks at it, and the thread that has the turn writes beside it.
    event: CachePadded<Event>,
    /// Number of threads that serve until they are stopped.
    servers: AtomicUsize,
    /// Whether these threads should return.
    is_stopped: AtomicBool,
    /// Upper half: how many looks were refused the fence. Lower half: the error, if the last one was, or 0. Not modelled: for reports.
    refusals: AtomicU64,
    /// After a `fork`: the value that [`Counters::removed`] would have if all callbacks in the state, and no others, had been
    /// called. Not modelled.
    removed_by_state: AtomicU64,
    /// Called on the serving thread: with true before the first callback of a turn, with false after the last one.
    frame: Option<fn(bool)>,
}

/// The callbacks that were taken from the lanes.
struct State {
    segments: Segments,
    line: Line,
    /// Callbacks past their grace period that a hazard slot held when they were last looked at.
    held: Option<Chain>,
    number_held: usize,
    /// The number of forks after which the state was last mended.
    forks: u64,
}

impl State {
    fn new(forks: u64) -> Self {
        Self { segments: Segments::default(), line: Line::default(), held: None, number_held: 0, forks }
    }
}

// SAFETY: only the thread that has the turn uses the state, one thread at a time; any thread may use what it holds. The claim
// points into the core, which the queue keeps alive.
unsafe impl Send for Callbacks {}
// SAFETY: threads share atomics, and the state, which only the thread that has the turn uses.
unsafe impl Sync for Callbacks {}

/// What a turn has done, and what is in the way of more callbacks.
pub(crate) struct Outcome<'c> {
    pub(crate) called: usize,
    pub(crate) next: Obstacle<'c>,
    /// How many callbacks to look at in the next turn, by a thread that has time: a share, or as many as slots were scanned.
    share: usize,
    panic: Option<Panic>,
}

impl Callbacks {
    pub(crate) fn new(core: Arc<Core>, frame: Option<fn(bool)>) -> Self {
        Self {
            counters: core.counters.claim(),
            core,
            lanes: Default::default(),
            turn: Turn::default(),
            state: UnsafeCell::new(State::new(0)),
            event: CachePadded::new(Event::new(Duration::MAX)),
            servers: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
            refusals: AtomicU64::new(0),
            removed_by_state: AtomicU64::new(0),
            frame,
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    fn counters(&self) -> &Counters {
        // SAFETY: the core is alive.
        unsafe { self.counters.slot() }
    }

    pub(crate) fn is_served_here(&self) -> bool {
        self.turn.is_mine()
    }

    /// Number of callbacks that were pushed and not called.
    pub(crate) fn pending(&self) -> u64 {
        self.counters().in_queue()
    }

    /// # Safety
    /// The memory belongs to the caller until the callback is called, which any thread may do after a grace period.
    #[inline]
    pub(crate) unsafe fn push(&self, callback: NonNull<Callback>, function: Function) {
        // SAFETY: the memory belongs to the caller.
        self.push_to(ORDERED, unsafe { Node::prepare(callback, function) });
    }

    /// # Safety
    /// As for [`push`](Callbacks::push).
    #[inline]
    pub(crate) unsafe fn push_object(
        &self,
        callback: NonNull<ObjectCallback>,
        object: *const (),
        function: Function,
    ) {
        // SAFETY: the memory belongs to the caller.
        self.push_to(OBJECTS, unsafe { Node::prepare_object(callback, object, function) });
    }

    #[inline]
    fn push_to(&self, lane: usize, node: Node) {
        self.core.charge(0);
        // Comes before the callback can be called, which lowers the count.
        self.counters().count_pushed();
        self.lanes[lane].push(node);
        if !busted::is(Variant::PushUntold) {
            self.event.notify();
        }
    }

    /// Takes the turn and calls what is ready, at most `limit` callbacks. Never waits for a reader.
    pub(crate) fn attempt(&self, limit: usize) -> Outcome<'_> {
        if !self.turn.try_take() {
            return Outcome { called: 0, next: Obstacle::Other, share: SHARE, panic: None };
        }
        // What callbacks of earlier turns did comes before.
        tsan::acquire(self);
        let serving = Serving(self);
        // SAFETY: this call has the turn.
        let outcome = self.state.with_mut(|state| self.serve(unsafe { &mut *state }, limit));
        drop(serving);
        outcome
    }

    /// As [`attempt`](Callbacks::attempt). Returns the number of callbacks called.
    ///
    /// # Panics
    /// With the first panic of a callback, or of the stall hook.
    pub(crate) fn poll(&self, limit: usize) -> usize {
        let outcome = self.attempt(limit);
        panics::resume(outcome.panic);
        outcome.called
    }

    fn serve(&self, state: &mut State, limit: usize) -> Outcome<'_> {
        Line::poll_boosts(&self.core);
        self.mend_after_fork(state);
        let early = self.take_in(state);
        let mut called = Called::new(self);
        self.call_held(state, limit, &mut called);
        let mut next = self.call_ready(state, limit, &mut called);
        if matches!(next, Obstacle::Empty) {
            state.line.end_boost(&self.core);
            if let Some(due) = early {
                next = Obstacle::Pace(due);
            } else if self.lanes.iter().any(|lane| !lane.is_empty()) {
                next = Obstacle::Other;
            } else if state.held.is_some() {
                next = Obstacle::Hazard;
            }
        }
        let counters = self.counters();
        counters.set_pinned(state.number_held, ANY, None);
        counters.set_under_way(state.segments.under_way());
        // The callbacks in a segment are not counted.
        counters.set_dated(0, state.segments.iter().last().map(|segment| segment.token));
        self.report_stall(state, &mut called);
        let share = state.line.scanned().max(SHARE);
        Outcome { called: called.number, next, share, panic: called.panic.take() }
    }

    /// Takes what was pushed, and starts a token for it. If it is too early for a token, returns when it is not.
    fn take_in(&self, state: &mut State) -> Option<Duration> {
        if self.lanes.iter().all(|lane| lane.is_empty()) {
            return None;
        }
        let protocol = &self.core.protocol;
        if protocol.needs_heavy() && !protocol.may_start(self.core.protocol.age(), state.line.started, true) {
            return Some(protocol.next_start());
        }
        if state.segments.under_way().is_none() {
            // Comes before the token: see `Protocol::region_of_caller`.
            self.counters().set_starting();
        }
        let early = busted::is(Variant::StampedEarly).then(|| self.core.protocol.start());
        let chains = std::array::from_fn(|lane| self.lanes[lane].take());
        if chains.iter().any(Option::is_some) {
            let token = early.unwrap_or_else(|| self.core.protocol.start());
            let started = self.core.protocol.age();
            state.line.started = Some(started);
            state.segments.push(Segment { token, started, chains });
        }
        None
    }

    /// Calls what is past its grace period, unless a hazard slot holds it. Returns what is in the way of more.
    fn call_ready(&self, state: &mut State, limit: usize, called: &mut Called<'_>) -> Obstacle<'_> {
        loop {
            let Some(oldest) = state.segments.under_way() else { return Obstacle::Empty };
            if called.looked >= limit {
                return Obstacle::Nothing;
            }
            if state.line.looks.are_put_off() {
                if let Some(due) = state.line.looks.later(self.core.protocol.age()) {
                    return Obstacle::Pace(due);
                }
            }
            let interval = Pace::DEFAULT.interval;
            let terms = Terms {
                begun: oldest.1,
                interval,
                gathers: false,
                earliest: state.line.next_attempt().unwrap_or_default(),
            };
            let obstacle = state.line.look(&self.core, oldest, (!interval.is_zero()).then_some(terms));
            self.note_refusal(&obstacle);
            if !matches!(obstacle, Obstacle::Nothing) {
                return obstacle;
            }
            let segment = state.segments.oldest().expect("it is under way");
            let [ordered, objects] = &mut segment.chains;
            if objects.is_some() {
                // Comes after the check of the token.
                state.line.gather(&self.core, 0);
            }
            let answer = each(ordered, limit, called, |node, called| called.call(node)).and_then(|()| {
                each(objects, limit, called, |node, called| {
                    // SAFETY: every node in this lane was made by `prepare_object`.
                    if state.line.is_pinned(unsafe { node.object() }.addr()) {
                        // SAFETY: every node in this lane was made by `prepare_object`.
                        self.answer(unsafe { node.object() });
                        state.number_held += 1;
                        join(&mut state.held, Chain::of(node));
                    } else {
                        called.call(node);
                    }
                })
            });
            if let Err(Gap) = answer {
                return Obstacle::Other;
            }
            if segment.chains.iter().all(Option::is_none) {
                state.segments.pop_oldest();
            }
        }
    }

    /// Looks at held callbacks, at most half of the limit; the next call goes on from there.
    fn call_held(&self, state: &mut State, limit: usize, called: &mut Called<'_>) {
        let (number, _) = state.line.share(limit, state.number_held, usize::MAX);
        if number == 0 {
            return;
        }
        state.line.gather(&self.core, 0);
        for _ in 0..number {
            let Some(Ok((node, rest))) = state.held.map(Chain::pop) else { return };
            state.held = rest;
            called.look();
            // SAFETY: only nodes made by `prepare_object` are held.
            if state.line.is_pinned(unsafe { node.object() }.addr()) {
                // SAFETY: only nodes made by `prepare_object` are held.
                self.answer(unsafe { node.object() });
                join(&mut state.held, Chain::of(node));
            } else {
                state.number_held -= 1;
                called.call(node);
            }
        }
    }

    /// Notes whether the last look was refused the fence. Only the thread that has the turn calls this.
    fn note_refusal(&self, obstacle: &Obstacle<'_>) {
        // Relaxed, both: for reports.
        let before = self.refusals.load(Ordering::Relaxed);
        let count = before >> 32 << 32;
        let now = match obstacle {
            Obstacle::Refused(error) => count.wrapping_add(1 << 32) | u64::from(error.raw_os_error() as u32),
            // Too early for another fence: the last one was refused.
            Obstacle::Pace(_) => before,
            _ => count,
        };
        if now != before {
            self.refusals.store(now, Ordering::Relaxed);
        }
    }

    /// How many looks were refused the fence so far, and the error, if the last one was.
    fn refusals(&self) -> (u32, Option<FenceError>) {
        // Relaxed: for reports.
        let refusals = self.refusals.load(Ordering::Relaxed);
        let errno = refusals as u32 as i32;
        ((refusals >> 32) as u32, (errno != 0).then(|| FenceError::new(errno)))
    }

    /// Tells those who ask that a callback waits for the end of all protected loads of this object.
    fn answer(&self, object: *const ()) {
        if self.core.is_asked() {
            let list = self.counters().address();
            // A barrier of the domain does not wait for callbacks, so the age does not matter.
            let pinned = Pinned { bytes: 0, list, queue: list, started: Duration::ZERO };
            self.core.tell_who_asks(object.addr(), pinned);
        }
    }

    /// Reports the reader in the way to the stall hook, if it has been there for long, or the refusal of the fence.
    fn report_stall(&self, state: &State, called: &mut Called<'_>) {
        let behind = || Behind { objects: self.pending(), bytes: 0 };
        let report = || state.line.report_stall(&self.core, state.segments.under_way(), behind);
        // Unwind safety: the hook changes nothing of the queue.
        frames::keeping(&mut called.panic, report);
    }
}

/// Takes the nodes of a chain one by one, up to the limit.
fn each(
    chain: &mut Option<Chain>,
    limit: usize,
    called: &mut Called<'_>,
    mut take: impl FnMut(Node, &mut Called<'_>),
) -> Result<(), Gap> {
    while let Some(nodes) = chain.filter(|_| called.looked < limit) {
        let (node, rest) = nodes.pop()?;
        *chain = rest;
        called.look();
        take(node, called);
    }
    Ok(())
}

/// Appends newer nodes to a chain that may be empty.
fn join(chain: &mut Option<Chain>, newer: Chain) {
    match chain {
        Some(chain) => chain.extend(newer),
        None => *chain = Some(newer),
    }
}

/// The callbacks of one turn.
struct Called<'q> {
    queue: &'q Callbacks,
    number: usize,
    looked: usize,
    panic: Option<Panic>,
    /// From the first callback to the last one.
    mark: Option<Foreign>,
}

impl<'q> Called<'q> {
    fn new(queue: &'q Callbacks) -> Self {
        Self { queue, number: 0, looked: 0, panic: None, mark: None }
    }

    fn look(&mut self) {
        work::step();
        self.looked += 1;
    }

    fn call(&mut self, node: Node) {
        if self.number == 0 {
            self.frame(true);
            self.mark = Some(Foreign::begin_callback());
        }
        self.number += 1;
        probe!("free", self.queue.core.protocol.address(), 1, 0);
        // Comes before the callback, which may be a barrier's.
        self.queue.counters().count_called();
        // Unwind safety: the node is in no chain any more.
        // SAFETY: its token is over, so every region reader has passed. If it knows an object, the object's address was in no
        // hazard slot gathered after that.
        frames::keeping(&mut self.panic, || unsafe { node.call() });
        // Pairs with the acquire of a barrier.
        tsan::release(self.queue);
        self.queue.core.give_room_back(0);
    }
}

impl Called<'_> {
    /// A frame may make the thread an online reader. That reader blocks nothing that the turn looks at: the turn's tokens were
    /// started before.
    fn frame(&self, begins: bool) {
        if let Some(frame) = self.queue.frame {
            frame(begins);
        }
    }
}

impl Drop for Called<'_> {
    fn drop(&mut self) {
        if self.mark.take().is_some() {
            self.frame(false);
            // Others may wait for the room.
            if self.queue.core.account().is_some() {
                self.queue.core.event().notify();
            }
        }
    }
}

/// A turn.
struct Serving<'q>(&'q Callbacks);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        tsan::release(self.0);
        if self.0.turn.end() {
            // Wakes a thread that pauses the queue.
            self.0.event.notify();
        }
    }
}

/// Passes what is left to the domain, in order.
impl Drop for Callbacks {
    fn drop(&mut self) {
        unsafe extern "C-unwind" fn call(_: NonNull<()>, callback: *const ()) {
            // SAFETY: the pointer is the address of a callback that the queue had.
            let callback = unsafe { NonNull::new_unchecked(callback.cast_mut().cast::<Callback>()) };
            // SAFETY: the callback was prepared, and is in no chain.
            unsafe { Node::of(callback).call() };
        }

        let lanes: [Option<Chain>; LANES] = std::array::from_fn(|lane| self.lanes[lane].take());
        // SAFETY: the queue is being dropped, so no thread has the turn.
        let state = self.state.with_mut(|state| unsafe { &mut *state });
        self.mend_after_fork(state);
        state.line.end_boost(&self.core);
        let segments = std::iter::from_fn(|| state.segments.pop_oldest()).map(|segment| segment.chains);
        let chains: Vec<_> = segments.chain([lanes, [None, state.held.take()]]).collect();
        let nodes = |lane: usize| chains.iter().filter_map(move |chains| chains[lane]).flat_map(Chain::nodes);
        let ordered = nodes(ORDERED).map(|node| (node, node.as_ptr().cast()));
        let objects = nodes(OBJECTS).map(|node| {
            // SAFETY: every node in this lane was made by `prepare_object`.
            let address = unsafe { node.object() };
            (node, NonNull::new(address.cast_mut()).unwrap_or(NonNull::dangling()))
        });
        let garbage: Vec<_> = ordered
            .chain(objects)
            .map(|(node, address)| {
                self.counters().count_removed(1);
                // SAFETY: the queue had the node, and the thread that pushed it has promised that it may be called. The context
                // is the node, which stays until then.
                unsafe { Garbage::in_context(address, 0, node.as_ptr().as_ptr().cast_const().cast(), call) }
            })
            .collect();
        if !garbage.is_empty() {
            self.core.add_orphans(garbage.into_iter());
        }
        self.counters().set_idle();
        self.core.counters.release(&self.counters);
    }
}
