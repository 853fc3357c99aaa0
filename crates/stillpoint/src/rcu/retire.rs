//! How an object is retired: the same for a reclaimer's own queue and for the inbox of a background reclaimer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::core::garbage::Garbage;
use super::engine::queue::retire_list::Full;
use super::engine::wait::park::Patience;
use super::engine::Core;
use super::error::{RetireError, RetireErrorKind};
use super::limits::WhenFull;
use super::retired::{Parts, Retired};

/// What takes retired objects in.
pub(super) trait Queue {
    fn core(&self) -> &Arc<Core>;

    /// Whether nobody looks after what is handed in.
    fn is_closed(&self) -> bool;

    /// Takes up room for one object; where there is none, after what can be done about that at once.
    ///
    /// # Panics
    /// With the panic of a destructor.
    fn reserve(&mut self, bytes: usize) -> Result<(), Full>;

    /// Takes in an object for which there is room.
    fn push(&mut self, garbage: Garbage);

    fn when_full(&self) -> WhenFull;

    /// Waits a little for whatever is in the way.
    fn pause(&self, patience: &mut Patience, deadline: Option<Instant>);

    fn count_wait(&self);

    fn count_handed_back(&self);
}

/// Retires an object that was not taken in at once: waits for room as long as the queue was told.
#[cold]
#[inline(never)]
pub(super) fn retire<T: Send + Sync + 'static>(
    queue: &mut impl Queue,
    parts: Parts<T>,
) -> Result<(), RetireError<T>> {
    let retired = Retired::from_parts(parts);
    if let WhenFull::Wait(limit) = queue.when_full() {
        return retire_timeout(queue, retired, limit);
    }
    let answer = attempt(queue, retired);
    if answer.as_ref().is_err_and(|error| error.kind().is_full()) {
        queue.count_handed_back();
    }
    answer
}

/// Retires an object, and waits for room, for `limit` at the longest.
pub(super) fn retire_timeout<T: Send + Sync + 'static>(
    queue: &mut impl Queue,
    retired: Retired<T>,
    limit: Duration,
) -> Result<(), RetireError<T>> {
    let begun = Instant::now();
    let Err(mut error) = attempt(queue, retired) else { return Ok(()) };
    if !error.kind().is_full() {
        return Err(error);
    }
    // Without a deadline where the clock cannot tell it.
    let deadline = begun.checked_add(limit);
    let is_early = || deadline.is_none_or(|deadline| Instant::now() < deadline);
    if is_early() {
        queue.count_wait();
    }
    let mut patience = Patience::new();
    while is_early() {
        queue.pause(&mut patience, deadline);
        match attempt(queue, error.into_inner()) {
            Err(again) if again.kind().is_full() => error = again,
            answer => return answer,
        }
    }
    queue.count_handed_back();
    Err(error)
}

fn attempt<T: Send + Sync + 'static>(
    queue: &mut impl Queue,
    retired: Retired<T>,
) -> Result<(), RetireError<T>> {
    let kind = if !retired.parts().is_of(queue.core()) {
        RetireErrorKind::ForeignDomain
    } else if queue.is_closed() {
        RetireErrorKind::Closed
    } else if let Err(full) = queue.reserve(size_of::<T>()) {
        full.into()
    } else {
        queue.push(retired.into_parts().into_garbage());
        return Ok(());
    };
    Err(RetireError { retired, kind })
}
