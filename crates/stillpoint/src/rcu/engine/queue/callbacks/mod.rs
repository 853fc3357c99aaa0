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

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use self::node::{Callback, Chain, Function, Gap, Lane, Node, ObjectCallback};
use self::segments::{Segment, Segments, LANES, OBJECTS, ORDERED};
use self::turn::Turn;
use super::retire_list::Pace;
use crate::busted::{self, Variant};
use crate::fence::FenceError;
use crate::rcu::engine::boost::Booster;
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::core::grace::{Grace, Looks, Outlook, Terms, ANY};
use crate::rcu::engine::core::record::Record;
use crate::rcu::engine::core::registry::Claim;
use crate::rcu::engine::wait::counters::Counters;
use crate::rcu::engine::wait::counters::Pinned;
use crate::rcu::engine::wait::freeing::Freeing;
use crate::rcu::engine::wait::park::Event;
use crate::rcu::engine::wait::report::Behind;
use crate::rcu::engine::Core;
use stillpoint_sys::panics::{self, Panic};
use stillpoint_sys::sync::atomic::{AtomicBool, AtomicUsize};
use stillpoint_sys::sync::UnsafeCell;
use stillpoint_sys::{tsan, work};

/// A queue of callbacks.
#[derive(Debug)]
pub(crate) struct Callbacks {
    core: Arc<Core>,
    counters: Claim<Counters>,
    lanes: [CachePadded<Lane>; LANES],
    turn: Turn,
    /// Used only by the thread that has the turn.
    state: UnsafeCell<State>,
    /// Serving threads that have nothing to do sleep on it, and so do threads that wait for the end of a turn.
    event: Event,
    /// Number of threads that serve until they are stopped.
    servers: AtomicUsize,
    /// Whether these threads should return.
    is_stopped: AtomicBool,
    /// After a `fork`: the value that [`Counters::settled`] would have if all callbacks in the state, and no others, had been
    /// called. Not modelled.
    settled_by_state: AtomicU64,
    /// Called on the serving thread: with true before the first callback of a turn, with false after the last one.
    frame: Option<fn(bool)>,
}

/// The callbacks that were taken from the lanes.
#[derive(Debug)]
struct State {
    segments: Segments,
    /// Age of the domain when a token was last started.
    started: Option<Duration>,
    /// Why the last fence was refused.
    refused: Option<FenceError>,
    /// While a reader is silent: when polls look at it again.
    looks: Looks,
    /// Callbacks past their grace period that a hazard slot held when they were last looked at.
    held: Option<Chain>,
    number_held: usize,
    /// Whether the larger half of an odd limit is for held callbacks in the next poll. Changes with each poll.
    favours_held: bool,
    booster: Booster,
    /// Scratch memory of a poll.
    hazards: Vec<usize>,
    /// The number of forks after which the state was last mended.
    forks: u64,
}

impl State {
    fn new(forks: u64) -> Self {
        Self {
            segments: Segments::default(),
            started: None,
            refused: None,
            looks: Looks::default(),
            held: None,
            number_held: 0,
            favours_held: false,
            booster: Booster::new(),
            hazards: Vec::new(),
            forks,
        }
    }
}

// SAFETY: only the thread that has the turn uses the state, one thread at a time; any thread may use what it holds. The claim
// points into the core, which the queue keeps alive.
unsafe impl Send for Callbacks {}
// SAFETY: threads share atomics, and the state, which only the thread that has the turn uses.
unsafe impl Sync for Callbacks {}

/// What a turn has done, and what is in the way of more callbacks.
#[derive(Debug)]
pub(crate) struct Outcome<'c> {
    pub(crate) called: usize,
    pub(crate) next: Hindrance<'c>,
    panic: Option<Panic>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Hindrance<'c> {
    /// The call has reached its limit.
    Limit,
    /// There is nothing left.
    Empty,
    /// A region reader, which has been waited for since this age of the domain.
    Reader(&'c Record, Duration),
    /// Protected loads hold everything that is left.
    Hazards,
    /// It is too early, for a token or for a fence, until this age of the domain.
    Pace(Duration),
    /// A push that is not complete; a refused fence; the turn of another thread; or a pause.
    Other,
}

impl Callbacks {
    pub(crate) fn new(core: Arc<Core>, frame: Option<fn(bool)>) -> Self {
        Self {
            counters: core.counters.claim(),
            core,
            lanes: std::array::from_fn(|_| CachePadded::new(Lane::new())),
            turn: Turn::new(),
            state: UnsafeCell::new(State::new(0)),
            event: Event::new(Duration::MAX),
            servers: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
            settled_by_state: AtomicU64::new(0),
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
            return Outcome { called: 0, next: Hindrance::Other, panic: None };
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
        self.core.tend_boost();
        self.mend_after_fork(state);
        let early = self.take_in(state);
        let mut called = Called::new(self);
        self.call_held(state, limit, &mut called);
        let mut next = self.call_ready(state, limit, &mut called);
        if matches!(next, Hindrance::Empty) {
            state.booster.end(&self.core);
            if let Some(due) = early {
                next = Hindrance::Pace(due);
            } else if self.lanes.iter().any(|lane| !lane.is_empty()) {
                next = Hindrance::Other;
            } else if state.held.is_some() {
                next = Hindrance::Hazards;
            }
        }
        let counters = self.counters();
        counters.set_pinned(state.number_held, ANY, None);
        counters.set_under_way(state.segments.under_way());
        // The callbacks in a segment are not counted.
        counters.set_dated(0, state.segments.iter().last().map(|segment| segment.token));
        self.report_stall(state, &mut called);
        Outcome { called: called.number, next, panic: called.panic.take() }
    }

    /// Takes what was pushed, and starts a token for it. If it is too early for a token, returns when it is not.
    fn take_in(&self, state: &mut State) -> Option<Duration> {
        if self.lanes.iter().all(|lane| lane.is_empty()) {
            return None;
        }
        let protocol = &self.core.protocol;
        if protocol.needs_heavy() && !protocol.may_start(self.core.age(), state.started, true) {
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
            let started = self.core.age();
            state.started = Some(started);
            state.segments.push(Segment { token, started, chains });
        }
        None
    }

    /// Calls what is past its grace period, unless a hazard slot holds it. Returns what is in the way of more.
    fn call_ready(&self, state: &mut State, limit: usize, called: &mut Called<'_>) -> Hindrance<'_> {
        loop {
            let Some((token, started)) = state.segments.under_way() else { return Hindrance::Empty };
            if called.looked >= limit {
                return Hindrance::Limit;
            }
            if state.looks.are_put_off() {
                if let Some(due) = state.looks.later(self.core.age()) {
                    return Hindrance::Pace(due);
                }
            }
            let answer = self.look(&mut state.booster, token, started);
            state.refused = answer.err();
            if !matches!(answer, Ok(Outlook::Silent(_))) {
                state.looks = Looks::default();
            }
            match answer {
                Ok(Outlook::Silent(due)) => {
                    return Hindrance::Pace(state.looks.put_off(self.core.age(), due))
                }
                Ok(Outlook::Known(Grace::HeldUp(record))) => return Hindrance::Reader(record, started),
                Ok(Outlook::Known(Grace::Over)) => {}
                Err(_) => return Hindrance::Other,
            }
            let segment = state.segments.oldest().expect("it is under way");
            let [ordered, objects] = &mut segment.chains;
            if objects.is_some() {
                // Comes after the check of the token.
                self.core.protocol.gather_hazards(&mut state.hazards);
            }
            let answer = each(ordered, limit, called, |node, called| called.call(node)).and_then(|()| {
                each(objects, limit, called, |node, called| {
                    // SAFETY: every node in this lane was made by `prepare_object`.
                    if state.hazards.binary_search(&unsafe { node.object() }.addr()).is_ok() {
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
                return Hindrance::Other;
            }
            if segment.chains.iter().all(Option::is_none) {
                state.segments.pop_oldest();
            }
        }
    }

    /// Looks at held callbacks, at most half of the limit; the next call goes on from there.
    fn call_held(&self, state: &mut State, limit: usize, called: &mut Called<'_>) {
        let share = limit / 2 + if state.favours_held { limit % 2 } else { 0 };
        state.favours_held = !state.favours_held;
        let number = state.number_held.min(share);
        if number == 0 {
            return;
        }
        self.core.protocol.gather_hazards(&mut state.hazards);
        for _ in 0..number {
            let Some(Ok((node, rest))) = state.held.map(Chain::pop) else { return };
            state.held = rest;
            called.look();
            // SAFETY: only nodes made by `prepare_object` are held.
            if state.hazards.binary_search(&unsafe { node.object() }.addr()).is_ok() {
                // SAFETY: only nodes made by `prepare_object` are held.
                self.answer(unsafe { node.object() });
                join(&mut state.held, Chain::of(node));
            } else {
                state.number_held -= 1;
                called.call(node);
            }
        }
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

    fn look(&self, booster: &mut Booster, token: u64, started: Duration) -> Result<Outlook<'_>, FenceError> {
        let interval = Pace::DEFAULT.interval;
        let terms = Terms { begun: started, interval, gathers: false, earliest: Duration::ZERO };
        let terms = (!interval.is_zero()).then_some(terms);
        let answer = self.core.protocol.look(token, terms)?;
        let is_held_up = matches!(answer, Outlook::Known(Grace::HeldUp(_)));
        if is_held_up && booster.boost(&self.core, token, started) {
            return self.core.protocol.look(token, terms);
        }
        Ok(answer)
    }

    /// Reports the reader in the way to the stall hook, if it has been there for long, or the refusal of the fence.
    fn report_stall(&self, state: &State, called: &mut Called<'_>) {
        let Some((token, started)) = state.segments.under_way() else { return };
        if !self.core.may_be_stalled(started) {
            return;
        }
        let behind = || Behind { objects: self.pending(), bytes: 0 };
        let report = || match (self.core.protocol.in_the_way(token), state.refused) {
            (Some(record), _) => self.core.report_stall(record, token, started, behind),
            (None, Some(error)) => self.core.report_refusal(error, behind),
            (None, None) => {}
        };
        // Unwind safety: the hook changes nothing of the queue.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(report)) {
            panics::keep_first(&mut called.panic, panic);
        }
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
    mark: Option<Freeing>,
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
            self.mark = Some(Freeing::begin_callback());
        }
        self.number += 1;
        // Comes before the callback, which may be a barrier's.
        self.queue.counters().count_called();
        // Unwind safety: the node is in no chain any more.
        // SAFETY: its token is over, so every region reader has passed. If it knows an object, the object's address was in no
        // hazard slot gathered after that.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| unsafe { node.call() })) {
            panics::keep_first(&mut self.panic, panic);
        }
        // Pairs with the acquire of a barrier.
        tsan::release(self.queue);
        self.queue.core.give_room_back(0);
    }
}

impl Called<'_> {
    /// A frame may make the thread an online reader. That reader holds up nothing that the turn looks at: the turn's tokens were
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
        state.booster.end(&self.core);
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
                self.counters().settle(1);
                // SAFETY: the queue had the node, and the thread that pushed it has promised that it may be called. The context
                // is the node, which stays until then.
                unsafe { Garbage::in_context(address, 0, node.as_ptr().as_ptr().cast_const().cast(), call) }
            })
            .collect();
        if !garbage.is_empty() {
            self.core.add_orphans(garbage.into_iter());
        }
        let counters = self.counters();
        counters.set_pinned(0, 0, None);
        counters.set_under_way(None);
        counters.set_dated(0, None);
        self.core.counters.release(&self.counters);
    }
}
