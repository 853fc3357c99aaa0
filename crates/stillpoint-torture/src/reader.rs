//! Readers of every kind: long and short, nested and overlapping, ended in any order.

use std::time::Duration;

use stillpoint::rcu::wait::{ReaderKind, SynchronizeError};
use stillpoint::rcu::{Protected, Reader, Region};

use crate::actor::Actor;
use crate::arena::{Handle, Identity};
use crate::counts::{Count, Kind};
use crate::findings::PATIENCE;
use crate::part::World;

/// The most protected loads that one reader holds at a time: more than the slots in a reader's record.
const MOST_HELD: usize = 24;
/// The most slots in the record itself.
const INLINE: usize = 12;

/// Registers as a reader of some kind and reads for a while. In `other`, if given, a guard is held meanwhile.
pub(crate) fn visit(actor: &mut Actor<'_>, world: &World, other: Option<&World>) {
    let Some(other) = other else {
        return match actor.rng.u32(0..4) {
            0 => visit_quiescent(actor, world, true),
            _ => visit_as_reader(actor, world, true),
        };
    };
    let reader = other.domain.reader();
    let guard = reader.pin();
    let since = actor.begin(&other.sections);
    actor.tally.count(Count::Both);
    let met = load(actor, other, Kind::Guard, &guard);
    match actor.rng.u32(0..4) {
        // A wait for this world inside a section of the other world could deadlock.
        0 => visit_quiescent(actor, world, false),
        _ => visit_as_reader(actor, world, false),
    }
    meet_again(actor, other, Kind::Guard, met);
    actor.end(&other.sections, since);
    drop(guard);
}

/// `may_wait`: the thread has no other open section.
fn visit_as_reader(actor: &mut Actor<'_>, world: &World, may_wait: bool) {
    let reader = world.domain.reader();
    actor.tally.count(Count::Registered);
    for _ in 0..actor.rng.u32(1..=64) {
        if actor.is_stopped() {
            break;
        }
        match actor.rng.u32(0..9) {
            8 if actor.once_in(2) => doze(actor, world, &reader),
            0..3 => protect_many(actor, world, &reader),
            3..5 => guard(actor, world, &reader),
            5 => nest(actor, world, &reader),
            6 => overlap(actor, world, &reader),
            7 if may_wait && actor.once_in(4) => expect_promise(actor, world, &reader),
            _ => protect_under_guard(actor, world, &reader),
        }
    }
    if actor.once_in(8) {
        // Holds up later retirements until the reader is dropped.
        std::mem::forget(reader.pin());
        std::mem::forget(world.cell(&mut actor.rng).protect(&reader));
        actor.tally.count(Count::Forgotten);
        actor.pause();
    }
}

/// A reference to an object, and its identity.
type Met<'a> = Option<(&'a Handle, Identity)>;

fn meet<'a>(actor: &mut Actor<'_>, world: &World, kind: Kind, handle: Option<&'a Handle>) -> Met<'a> {
    let handle = handle?;
    Some((handle, world.context.meet(handle, world.hold(kind), &mut actor.tally.looks)?))
}

/// Loads an object in a section.
fn load<'g>(actor: &mut Actor<'_>, world: &'g World, kind: Kind, section: &'g impl Region) -> Met<'g> {
    let object = world.cell(&mut actor.rng).load(section);
    meet(actor, world, kind, object)
}

fn meet_again(actor: &mut Actor<'_>, world: &World, kind: Kind, met: Met<'_>) {
    if let Some((handle, identity)) = met {
        world.context.meet_again(handle, identity, world.hold(kind), &mut actor.tally.looks);
    }
}

/// Several protected objects, each held for a random time.
fn protect_many(actor: &mut Actor<'_>, world: &World, reader: &Reader) {
    let hold = world.hold(Kind::Protected);
    let mut held: Vec<(Protected<'_, Handle>, Identity)> = Vec::new();
    let most = actor.rng.usize(1..=MOST_HELD);
    for _ in 0..actor.rng.usize(1..=2 * MOST_HELD) {
        if held.len() < most && actor.rng.u32(0..3) != 0 {
            let Some(object) = world.cell(&mut actor.rng).protect(reader) else { continue };
            actor.tally.count(if held.len() < INLINE { Count::Protected } else { Count::Chained });
            if let Some(identity) = world.context.meet(&object, hold, &mut actor.tally.looks) {
                held.push((object, identity));
            }
        } else if !held.is_empty() {
            let (object, identity) = held.swap_remove(actor.rng.usize(0..held.len()));
            world.context.meet_again(&object, identity, hold, &mut actor.tally.looks);
        }
        actor.pause();
    }
    for (object, identity) in held {
        world.context.meet_again(&object, identity, hold, &mut actor.tally.looks);
    }
}

/// A single guard.
fn guard(actor: &mut Actor<'_>, world: &World, reader: &Reader) {
    let guard = reader.pin();
    let since = actor.begin(&world.sections);
    actor.tally.count(Count::Guards);
    let held: [Met<'_>; 3] = std::array::from_fn(|_| load(actor, world, Kind::Guard, &guard));
    actor.pause();
    if actor.once_in(32) {
        expect_refusal(actor, world);
        if reader.offline() {
            world.context.find(|| "a reader went offline under a guard".to_owned());
        }
    }
    held.into_iter().for_each(|met| meet_again(actor, world, Kind::Guard, met));
    actor.end(&world.sections, since);
    drop(guard);
}

/// A thread that holds a guard must not wait for itself.
fn expect_refusal(actor: &mut Actor<'_>, world: &World) {
    match world.domain.synchronize() {
        Err(SynchronizeError::WouldDeadlock { reader: ReaderKind::Guard, .. }) => {
            actor.tally.count(Count::Refused)
        }
        answer => world.context.find(|| format!("a wait under a guard was not refused: {answer:?}")),
    }
}

/// A token that is started inside a section is not over before the section ends, and is over some time after it.
fn expect_promise(actor: &mut Actor<'_>, world: &World, reader: &Reader) {
    let World { context, domain, .. } = world;
    let guard = reader.pin();
    let since = actor.begin(&world.sections);
    let token = domain.start();
    for _ in 0..actor.rng.u32(1..8) {
        actor.pause();
        if domain.check(token) {
            context.find(|| "a token was over inside a section that began before it".to_owned());
        }
    }
    actor.tally.count(Count::Inside);
    actor.end(&world.sections, since);
    drop(guard);
    match domain.wait_timeout(token, PATIENCE) {
        Ok(()) if domain.check(token) => actor.tally.count(Count::Outside),
        Ok(()) => context.find(|| "a token was not over after a wait for it".to_owned()),
        Err(error) => context.find(|| format!("a token was not over after its section: {error}")),
    }
}

/// Nested guards, the inner ones dropped first.
fn nest(actor: &mut Actor<'_>, world: &World, reader: &Reader) {
    fn inner(actor: &mut Actor<'_>, world: &World, reader: &Reader, depth: u32) {
        let guard = reader.pin();
        let since = (depth == 0).then(|| actor.begin(&world.sections));
        actor.tally.count(Count::Nested);
        let met = load(actor, world, Kind::Guard, &guard);
        actor.pause();
        if depth < 4 && actor.rng.bool() {
            inner(actor, world, reader, depth + 1);
            actor.pause();
        }
        meet_again(actor, world, Kind::Guard, met);
        if let Some(since) = since {
            actor.end(&world.sections, since);
        }
        drop(guard);
    }
    inner(actor, world, reader, 0);
}

/// Overlapping guards, the older ones dropped first: one long section.
fn overlap(actor: &mut Actor<'_>, world: &World, reader: &Reader) {
    let mut guard = reader.pin();
    let since = actor.begin(&world.sections);
    for _ in 0..actor.rng.u32(1..8) {
        let next = reader.pin();
        actor.tally.count(Count::Overlapping);
        let met = load(actor, world, Kind::Guard, &next);
        drop(guard);
        actor.pause();
        meet_again(actor, world, Kind::Guard, met);
        guard = next;
    }
    actor.end(&world.sections, since);
    drop(guard);
}

/// A sleep after a load. Writers issue heavy fences for the reader meanwhile, unless it goes offline. What it protects stays.
fn doze(actor: &mut Actor<'_>, world: &World, reader: &Reader) {
    let hold = world.hold(Kind::Protected);
    let Some(object) = world.cell(&mut actor.rng).protect(reader) else { return };
    let identity = world.context.meet(&object, hold, &mut actor.tally.looks);
    let is_away = actor.rng.bool();
    if is_away && !reader.offline() {
        world.context.find(|| "a reader without a guard did not go offline".to_owned());
    }
    actor.tally.count(if is_away { Count::Away } else { Count::Silent });
    actor.sleep(Duration::from_millis(1));
    if let Some(identity) = identity {
        world.context.meet_again(&object, identity, hold, &mut actor.tally.looks);
    }
}

/// A protected load that is made within a section and kept after it.
fn protect_under_guard(actor: &mut Actor<'_>, world: &World, reader: &Reader) {
    let hold = world.hold(Kind::Protected);
    let guard = reader.pin();
    let since = actor.begin(&world.sections);
    let cell = world.cell(&mut actor.rng);
    let object = cell.load(&guard);
    let met = meet(actor, world, Kind::Guard, object);
    actor.pause();
    let kept = cell.protect(reader);
    meet_again(actor, world, Kind::Guard, met);
    actor.end(&world.sections, since);
    drop(guard);
    actor.tally.count(Count::Promoted);
    if let Some(kept) = kept
        && let Some(identity) = world.context.meet(&kept, hold, &mut actor.tally.looks)
    {
        actor.pause();
        world.context.meet_again(&kept, identity, hold, &mut actor.tally.looks);
    }
}

/// Sections between quiescent states. `may_wait`: the thread has no other open section.
fn visit_quiescent(actor: &mut Actor<'_>, world: &World, may_wait: bool) {
    let mut reader = world.domain.qsbr_reader();
    actor.tally.count(Count::Registered);
    for _ in 0..actor.rng.u32(1..=64) {
        if actor.is_stopped() {
            break;
        }
        let since = actor.begin(&world.sections);
        let held: [Met<'_>; 4] = std::array::from_fn(|_| load(actor, world, Kind::Qsbr, &reader));
        actor.pause();
        held.into_iter().for_each(|met| meet_again(actor, world, Kind::Qsbr, met));
        actor.end(&world.sections, since);
        match actor.rng.u32(0..16) {
            0..3 => {
                actor.tally.count(Count::Offline);
                reader.offline(|| actor.pause());
            }
            3 if may_wait => {
                actor.tally.count(Count::OwnSynchronize);
                if let Err(error) = reader.synchronize() {
                    world.context.find(|| format!("a QSBR reader's own wait failed: {error}"));
                }
            }
            _ => {
                actor.tally.count(Count::Quiescent);
                reader.quiescent();
            }
        }
    }
}
