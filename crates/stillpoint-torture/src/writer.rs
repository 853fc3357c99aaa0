//! Writers: every way to unlink, retire and wait.
//!
//! Unlinked objects go through the [`Pipe`], where they age with each grace period. The pipe starts a token for each age.
//! When the token is over, the object is one grace period older, and no region reader may still look at it as before. Some
//! objects are retired when they enter, and disappear when the library frees them. Others stay in the pipe until its end, so
//! that every age is reached.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::rcu::wait::{SynchronizeError, Token};
use stillpoint::rcu::{Domain, Reclaimer, Retired};

use crate::actor::{Actor, Snapshot, block_on, poll_and_drop};
use crate::arena::{Context, Handle, Identity};
use crate::counts::{Count, GRACE, OLDEST, SYNCHRONIZE};
use crate::findings::PATIENCE;
use crate::part::{World, when_full};

/// The objects in the pipe of one writer.
const LENGTH: usize = 64;

/// The pipe of one writer.
#[derive(Default)]
pub(crate) struct Pipe {
    objects: Vec<Aging>,
}

struct Aging {
    identity: Identity,
    /// When it is over, the object is a grace period older.
    token: Token,
    /// The object itself, unless it is retired.
    kept: Option<Retired<Handle>>,
}

impl Pipe {
    pub(crate) fn has_room(&self) -> bool {
        self.objects.len() < LENGTH
    }

    /// Adds an object that was just unlinked, or only its identity if it is retired at the same time.
    pub(crate) fn enter(&mut self, domain: &Domain, identity: Identity, kept: Option<Retired<Handle>>) {
        self.objects.push(Aging { identity, token: domain.start(), kept });
    }

    /// Ages every object whose grace period is over.
    pub(crate) fn advance(&mut self, context: &Context, domain: &Domain, actor: &mut Actor<'_>) {
        self.objects.retain_mut(|Aging { identity, token, kept }| {
            if !domain.check(*token) {
                return true;
            }
            actor.tally.count(Count::Aged);
            *token = domain.start();
            let age = context.grow_older(*identity);
            let Some(object) = kept.take_if(|_| age == Some(OLDEST)) else {
                return age.is_some_and(|age| age < OLDEST);
            };
            match object.try_free() {
                Ok(()) => actor.tally.count(Count::Piped),
                // A protected load holds it.
                Err(object) => *kept = Some(object),
            }
            kept.is_some()
        });
    }
}

/// The most objects, and the most tokens, that a writer keeps.
const MOST_KEPT: usize = 64;

/// One thread's writing side of one world.
pub(crate) struct Writer<'w> {
    world: &'w World,
    reclaimer: Reclaimer,
    /// Objects that the writer frees one by one.
    kept: Vec<Retired<Handle>>,
    tokens: Vec<Promise>,
    pipe: Pipe,
}

/// A token, and the sections that must have ended when it is over.
struct Promise {
    token: Token,
    inside: Snapshot,
    started: Instant,
}

impl<'w> Writer<'w> {
    pub(crate) fn new(world: &'w World, rng: &mut Rng) -> Self {
        let reclaimer = reclaimer(&world.domain, rng);
        Self { world, reclaimer, kept: Vec::new(), tokens: Vec::new(), pipe: Pipe::default() }
    }

    /// Does one random thing.
    pub(crate) fn turn(&mut self, actor: &mut Actor<'_>) {
        match actor.rng.u32(0..1000) {
            0..500 => self.replace(actor),
            500..560 => self.exchange(actor),
            560..600 => self.start(actor),
            600..800 => {
                self.reclaimer.poll();
            }
            800..830 => {
                self.reclaimer.poll_at_most(actor.rng.usize(0..8));
            }
            830..840 => self.defer(actor),
            840..850 => self.free(actor),
            850..865 => self.synchronize(actor),
            865..885 => self.synchronize_for(actor),
            885..893 => self.flush(actor),
            893..895 => self.wait_as_future(actor),
            895..899 => self.flood(actor),
            899..910 => self.change_reclaimer(actor),
            _ => actor.pause(),
        }
        self.check_tokens(actor);
        self.pipe.advance(self.world.context, &self.world.domain, actor);
        self.try_free(actor);
    }

    fn replace(&mut self, actor: &mut Actor<'_>) {
        let cell = self.world.cell(&mut actor.rng);
        let new = if actor.once_in(16) { None } else { actor.maker.make() };
        if let Some(old) = cell.swap(new) {
            self.dispose(actor, old);
        }
    }

    /// Replaces an object that it has read.
    fn exchange(&mut self, actor: &mut Actor<'_>) {
        let reader = self.world.domain.reader();
        let cell = self.world.cell(&mut actor.rng);
        let answer = if actor.rng.bool() {
            let guard = reader.pin();
            let current = cell.load(&guard);
            actor.pause();
            cell.compare_exchange(current, actor.maker.make())
        } else {
            let current = cell.protect(&reader);
            actor.pause();
            cell.compare_exchange(current.as_deref(), actor.maker.make())
        };
        if let Ok(old) = answer {
            actor.tally.count(Count::Exchanged);
            if let Some(old) = old {
                self.dispose(actor, old);
            }
        }
    }

    /// Retires an unlinked object in a random way.
    fn dispose(&mut self, actor: &mut Actor<'_>, old: Retired<Handle>) {
        let Some(identity) = old.identity() else {
            self.world.context.find(|| "an object was destroyed before it was retired".to_owned());
            return;
        };
        self.world.context.unlink(identity);
        if self.pipe.has_room() && actor.once_in(4) {
            if actor.once_in(4) {
                return self.pipe.enter(&self.world.domain, identity, Some(old));
            }
            self.pipe.enter(&self.world.domain, identity, None);
        }
        match actor.rng.u32(0..10) {
            kind @ 0..7 => self.retire(actor, old, kind >= 4),
            7..9 if self.kept.len() < MOST_KEPT => self.kept.push(old),
            _ => {
                actor.tally.count(Count::Orphaned);
                drop(old);
            }
        }
    }

    /// Retires to the reclaimer, or submits to the background thread.
    fn retire(&mut self, actor: &mut Actor<'_>, old: Retired<Handle>, is_submitted: bool) {
        let limit = if actor.once_in(32) { Some(short(actor)) } else { None };
        let (reclaimer, handle) = (&mut self.reclaimer, &self.world.handle);
        let answer = match (is_submitted, limit) {
            (false, None) => reclaimer.retire(old),
            (false, Some(limit)) => reclaimer.retire_timeout(old, limit),
            (true, None) => handle.retire(old),
            (true, Some(limit)) => handle.retire_timeout(old, limit),
        };
        match answer {
            Ok(()) => actor.tally.count(if is_submitted { Count::Submitted } else { Count::Retired }),
            Err(error) => {
                actor.tally.count(Count::Full);
                let kind = error.kind();
                if !kind.is_full() {
                    self.world.context.find(|| format!("a retirement was refused: {kind:?}"));
                }
                // A dropped object is left to the domain.
                if !is_submitted && self.kept.len() < MOST_KEPT {
                    self.kept.push(error.into_inner());
                }
            }
        }
    }

    fn try_free(&mut self, actor: &mut Actor<'_>) {
        if self.kept.is_empty() || actor.rng.bool() {
            return;
        }
        match self.kept.swap_remove(actor.rng.usize(0..self.kept.len())).try_free() {
            Ok(()) => actor.tally.count(Count::TriedFree),
            Err(retired) => {
                actor.tally.count(Count::TriedInVain);
                self.kept.push(retired);
            }
        }
    }

    /// Waits for the readers of one object.
    fn free(&mut self, actor: &mut Actor<'_>) {
        let Some(old) = self.kept.pop() else { return };
        match old.free_timeout(short(actor)) {
            Ok(()) => actor.tally.count(Count::WaitedFor),
            Err(error)
                if matches!(
                    error.cause(),
                    SynchronizeError::Stalled(_) | SynchronizeError::Pinned { .. }
                ) =>
            {
                actor.tally.count(Count::WaitedInVain);
                self.kept.push(error.into_inner());
            }
            Err(error) => self.world.context.find(|| format!("a wait for an object failed: {error}")),
        }
    }

    fn start(&mut self, actor: &mut Actor<'_>) {
        if self.tokens.len() < MOST_KEPT {
            let inside = self.world.sections.now();
            self.tokens.push(Promise { token: self.world.domain.start(), inside, started: Instant::now() });
            if actor.rng.bool() {
                actor.pause();
            }
        }
    }

    fn check_tokens(&mut self, actor: &mut Actor<'_>) {
        let World { context, domain, sections, .. } = self.world;
        self.tokens.retain(|Promise { token, inside, started }| {
            if domain.check(*token) {
                inside.verify(sections, context, "a token");
                if !domain.check(*token) {
                    context.find(|| "a token that was over is not over any more".to_owned());
                }
                actor.tally.count(Count::Tokens);
                actor.tally.times[GRACE].add(started.elapsed());
                return false;
            }
            if started.elapsed() > PATIENCE {
                context.find(|| format!("a token is not over after {PATIENCE:?}: {:?}", domain.stats()));
            }
            true
        });
    }

    fn defer(&mut self, actor: &mut Actor<'_>) {
        actor.tally.count(Count::Deferred);
        let call = callback(self.world);
        if actor.rng.bool() {
            self.reclaimer.defer(call);
        } else {
            self.world.handle.defer(call);
        }
    }

    fn synchronize(&mut self, actor: &mut Actor<'_>) {
        let World { context, domain, sections, .. } = self.world;
        let (inside, begun) = (sections.now(), Instant::now());
        let answer = if actor.rng.bool() { domain.synchronize() } else { domain.wait(domain.start()) };
        match answer {
            Ok(()) => {
                inside.verify(sections, context, "a wait");
                actor.tally.count(Count::Synchronized);
                actor.tally.times[SYNCHRONIZE].add(begun.elapsed());
            }
            Err(error) => context.find(|| format!("a wait without a limit failed: {error}")),
        }
    }

    fn synchronize_for(&mut self, actor: &mut Actor<'_>) {
        let World { context, domain, sections, .. } = self.world;
        let inside = sections.now();
        match domain.synchronize_timeout(short(actor)) {
            Ok(()) => {
                inside.verify(sections, context, "a timed wait");
                actor.tally.count(Count::TimedWaits);
            }
            Err(SynchronizeError::Stalled(_)) => actor.tally.count(Count::TimedOut),
            Err(error) => context.find(|| format!("a timed wait failed: {error}")),
        }
    }

    /// Waits for a grace period as a future, or drops the future early.
    fn wait_as_future(&mut self, actor: &mut Actor<'_>) {
        let World { context, domain, sections, .. } = self.world;
        let inside = sections.now();
        let future = domain.grace_period(domain.start());
        if actor.rng.u32(0..4) == 0 {
            actor.tally.count(Count::Unawaited);
            if poll_and_drop(future, actor.rng.u32(0..3)).is_some() {
                inside.verify(sections, context, "a future");
            }
            return;
        }
        match block_on(future, PATIENCE) {
            Some(Ok(())) => {
                inside.verify(sections, context, "a future");
                actor.tally.count(Count::Awaited);
            }
            Some(Err(error)) => context.find(|| format!("a future failed: {error}")),
            None => context.find(|| format!("a future was not woken within {PATIENCE:?}")),
        }
    }

    fn flush(&mut self, actor: &mut Actor<'_>) {
        actor.tally.count(Count::Flushed);
        match self.reclaimer.flush_timeout(short(actor)) {
            Ok(()) if self.reclaimer.pending() != 0 => {
                self.world.context.find(|| "a flush that succeeded has left objects behind".to_owned());
            }
            Ok(()) | Err(SynchronizeError::Stalled(_) | SynchronizeError::Pinned { .. }) => {}
            Err(error) => self.world.context.find(|| format!("a timed flush failed: {error}")),
        }
    }

    fn flood(&mut self, actor: &mut Actor<'_>) {
        actor.tally.count(Count::Floods);
        for _ in 0..actor.rng.u32(100..2000) {
            self.replace(actor);
        }
    }

    /// Replaces the reclaimer, which leaves its pending objects to the domain.
    fn change_reclaimer(&mut self, actor: &mut Actor<'_>) {
        if self.reclaimer.pending() != 0 {
            actor.tally.count(Count::DroppedReclaimers);
        }
        self.reclaimer = reclaimer(&self.world.domain, &mut actor.rng);
    }
}

/// A reclaimer with a random limit, which is often too small.
fn reclaimer(domain: &Domain, rng: &mut Rng) -> Reclaimer {
    domain
        .reclaimer_builder()
        .max_pending(1 << rng.u32(0..14))
        .batch(1 << rng.u32(0..9))
        .when_full(when_full(rng))
        .fence_interval(Duration::from_micros(if rng.bool() { 0 } else { rng.u64(1..200) }))
        .build()
}

/// A time limit that is often too short.
fn short(actor: &mut Actor<'_>) -> Duration {
    Duration::from_micros(actor.rng.u64(0..2000))
}

/// A callback that must not be called before all sections that are open now have ended.
fn callback(world: &World) -> impl FnOnce() + Send + 'static {
    let (inside, sections) = (world.sections.now(), Arc::clone(&world.sections));
    let context: &'static Context = world.context;
    move || {
        inside.verify(&sections, context, "the grace period of a callback");
        // Relaxed: a count, read when all threads are joined.
        context.called.fetch_add(1, Ordering::Relaxed);
    }
}
