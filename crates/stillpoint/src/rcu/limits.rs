use std::time::Duration;

/// What a retirement does that finds no room: neither in its reclaimer nor, if that has limits, in its domain.
///
/// A [`Reclaimer`](super::Reclaimer) has then freed what was ready of its own, as its polls do, and in a full domain a share
/// of what was left to that: whatever was chosen.
///
/// Chosen by [`ReclaimerBuilder::when_full`](super::ReclaimerBuilder::when_full) and
/// [`RetireHandle::when_full`](super::RetireHandle::when_full). Whatever it is, nothing is lost: what is not taken in is
/// handed back.
///
/// ```
/// # use std::time::Duration;
/// use stillpoint::rcu::{Domain, WhenFull};
///
/// let domain = Domain::builder().max_pending(10_000).build()?;
/// let patient = domain.reclaimer_builder().when_full(WhenFull::Wait(Duration::from_millis(5))).build();
/// let helpful = domain.reclaimer_builder().when_full(WhenFull::Reclaim).build();
/// # drop((patient, helpful));
/// # Ok::<(), stillpoint::rcu::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WhenFull {
    /// The object is handed back at once.
    #[default]
    HandBack,
    /// Waits for room, for that long at the longest, as `retire_timeout` does. A thread that holds a guard itself,
    /// or an online QSBR reader, may wait in vain; without an end (`Duration::MAX`), it does not wait for itself
    /// ([`WouldDeadlock`](super::RetireErrorKind::WouldDeadlock)).
    Wait(Duration),
    /// A [`RetireHandle`](super::RetireHandle) frees what others have retired, as far as no reader is in the way, and waits for
    /// nobody; then the object is taken in, or handed back. For a [`Reclaimer`](super::Reclaimer), the same as
    /// [`HandBack`](WhenFull::HandBack).
    ///
    /// It frees what was handed in and not taken by the background reclaimer yet, and in a full domain what was left to
    /// that. Each retirement frees 64 objects of others at the most: so their destructors run on this thread, which should
    /// hold no lock that they take. A retirement from within such a destructor does not do so for the same background
    /// reclaimer again. One retire handle of a reclaimer does it at a time; the others do not wait for it.
    Reclaim,
}
