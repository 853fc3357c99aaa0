//! The pipe: unlinked objects, which age with each grace period, and are freed at its end.
//!
//! The pipe starts a token for each age. When the token is over, the object is one grace period older, and no region reader may
//! still look at it as before. Some objects are retired when they enter, and disappear when the library frees them. Others stay in
//! the pipe until its end, so that every age is reached.

use stillpoint::rcu::wait::Token;
use stillpoint::rcu::{Domain, Retired};

use super::actor::Actor;
use super::arena::{Context, Handle, Identity};
use super::looks::OLDEST;
use super::tally::Count;

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
