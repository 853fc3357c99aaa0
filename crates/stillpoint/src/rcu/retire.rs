//! How an object is retired: common to a reclaimer's own queue and the channel of a background reclaimer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::core::garbage::Garbage;
use super::engine::wait::own_holds::OwnHolds;
use super::engine::wait::park::{Next, Patience};
use super::engine::Core;
use super::limits::{RetireErrorKind, WhenFull};
use super::retired::{Parts, RetireError, Retired};
use crate::frames::is_foreign;

/// A place that takes retired objects in.
pub(super) trait Queue {
    fn core(&self) -> &Arc<Core>;

    /// Takes up room for one object of the queue's domain. If there is none, first does what can make room at once.
    ///
    /// # Panics
    /// With the panic of a destructor.
    fn reserve(&mut self, bytes: usize) -> Result<(), RetireErrorKind>;

    /// Takes in an object for which there is room.
    fn push(&mut self, garbage: Garbage);

    fn when_full(&self) -> WhenFull;

    /// Waits a little for the obstacle to pass.
    fn pause(&self, patience: &mut Patience, deadline: Option<Instant>) {
        patience.wait(self.core().event(), Next::News, deadline, || false);
    }

    /// Whether the queue's own limit leaves no room for an object of this size until the calling thread lets go of what it holds up
    /// itself.
    fn is_full_of_own(&self, own: &mut OwnHolds<'_>, bytes: usize) -> bool;
}

/// Retires an object that was not taken in at once: waits for room for at most `limit`; without a limit, as long as the queue's
/// [`WhenFull`] says.
#[cold]
#[inline(never)]
pub(super) fn retire<T: Send + Sync + 'static>(
    queue: &mut impl Queue,
    parts: Parts<T>,
    limit: Option<Duration>,
) -> Result<(), RetireError<T>> {
    let retired = Retired { parts };
    if !retired.parts.is_of(queue.core()) {
        return Err(RetireError { retired, cause: RetireErrorKind::ForeignDomain });
    }
    // A panic of a destructor drops `retired`, which leaves the object to its domain.
    match room(queue, size_of::<T>(), limit) {
        Ok(()) => {
            queue.push(retired.into_parts().into_garbage());
            Ok(())
        }
        Err(cause) => Err(RetireError { retired, cause }),
    }
}

/// An object that its drop leaves to the domain, unless it was taken out.
pub(super) struct Kept(Option<Garbage>, Arc<Core>);

impl Kept {
    pub(super) fn new(garbage: Garbage, core: &Arc<Core>) -> Self {
        Self(Some(garbage), Arc::clone(core))
    }

    pub(super) fn take(mut self) -> Garbage {
        self.0.take().expect("only this call takes it")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(garbage) = self.0.take() {
            self.1.retire_orphan(garbage);
        }
    }
}

/// Takes up room for one object. Waits for it for at most `limit`; without a limit, as long as the queue's [`WhenFull`] says.
///
/// # Panics
/// With the panic of a destructor; then no room is taken up.
pub(super) fn room(
    queue: &mut impl Queue,
    bytes: usize,
    limit: Option<Duration>,
) -> Result<(), RetireErrorKind> {
    let begun = limit.map(|_| Instant::now());
    let mut answer = queue.reserve(bytes);
    let limit = match (limit, queue.when_full()) {
        (None, WhenFull::Wait(limit)) => Some(limit),
        (limit, _) => limit,
    };
    if let Some(limit) = limit.filter(|_| answer.is_err_and(RetireErrorKind::is_full)) {
        // There is no deadline if the clock cannot represent it.
        let deadline = begun.unwrap_or_else(Instant::now).checked_add(limit);
        let core = Arc::clone(queue.core());
        let is_early = || deadline.is_none_or(|deadline| Instant::now() < deadline);
        if is_early() {
            if is_foreign() {
                // What gives room may wait for the end of the foreign code, or be the very object that is being destroyed.
                core.count_handed_back();
                return Err(RetireErrorKind::WouldDeadlock);
            }
            core.shared_counters().count_wait();
        }
        let (mut patience, mut own) = (Patience::new(), None);
        // The limit for which the last look found that only the caller is in the way.
        let mut own_before = None;
        while answer.is_err_and(RetireErrorKind::is_full) && is_early() {
            if deadline.is_none() && patience.is_about_to_sleep() {
                let own = own.get_or_insert_with(|| OwnHolds::of_caller(&core));
                let is_own = !own.is_nothing()
                    && match answer {
                        Err(RetireErrorKind::DomainFull) => own.fill_domain(bytes),
                        _ => queue.is_full_of_own(own, bytes),
                    };
                // Others may have made room between the last attempt and this look, which is not one moment either. So the caller
                // waits once more, and the attempt and the look after that must say the same.
                let found = answer.err().filter(|_| is_own);
                if found.is_some() && found == own_before {
                    core.count_handed_back();
                    return Err(RetireErrorKind::WouldDeadlock);
                }
                own_before = found;
            }
            queue.pause(&mut patience, deadline);
            answer = queue.reserve(bytes);
        }
    }
    if answer.is_err_and(|kind| kind.is_full() || kind == RetireErrorKind::TooLarge) {
        queue.core().count_handed_back();
    }
    answer
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use std::cell::Cell;

    use super::super::Domain;
    use super::*;

    /// A queue that seems full of what the caller holds up, and has room after that many looks at that.
    struct Late {
        domain: Domain,
        looks: Cell<usize>,
        enough: usize,
    }

    impl Queue for Late {
        fn core(&self) -> &Arc<Core> {
            self.domain.core()
        }

        fn reserve(&mut self, _: usize) -> Result<(), RetireErrorKind> {
            if self.looks.get() < self.enough {
                Err(RetireErrorKind::Full)
            } else {
                Ok(())
            }
        }

        fn push(&mut self, _: Garbage) {
            unreachable!("no object is retired");
        }

        fn when_full(&self) -> WhenFull {
            WhenFull::Wait(Duration::MAX)
        }

        fn is_full_of_own(&self, _: &mut OwnHolds<'_>, _: usize) -> bool {
            self.looks.set(self.looks.get() + 1);
            true
        }
    }

    /// Others may make room between the attempt and the look, which then finds only what the caller holds up.
    #[test]
    fn a_wait_fails_only_if_there_is_no_room_after_the_look() {
        for (enough, answer) in [(1, Ok(())), (usize::MAX, Err(RetireErrorKind::WouldDeadlock))] {
            let domain = Domain::new();
            let reader = domain.reader();
            let _guard = reader.pin();
            let mut queue = Late { domain: domain.clone(), looks: Cell::new(0), enough };
            assert_eq!(room(&mut queue, 8, None), answer);
            assert!(queue.looks.get() <= 2, "{} looks", queue.looks.get());
        }
    }
}
