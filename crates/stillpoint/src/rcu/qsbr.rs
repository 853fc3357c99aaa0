use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::domain::Domain;
use super::engine::core::record::{ReaderKind, Record};
use super::engine::core::registry::Claim;
use super::engine::wait::error::SynchronizeError;
use super::engine::Core;
use super::on_thread::OnThread;
use super::region::{sealed::Sealed, Region};

/// A reader whose loads cost nothing extra. From time to time it reports that it holds no reference: quiescent-state-based
/// reclamation.
///
/// For run-to-completion loops on dedicated cores. Everything retired waits for the *next* quiescent state
/// of every such reader, even if the reader is preempted meanwhile. A reader that blocks must do so
/// [`offline`](QsbrReader::offline).
///
/// ```
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let route = domain.cell(7);
/// let mut reader = domain.qsbr_reader();
/// for packet in [1, 2, 3] {
///     let next_hop = route.load(&reader).unwrap();
///     assert_eq!(next_hop + packet, 7 + packet);
///     reader.quiescent(); // a reference kept across this line would not compile
/// }
/// reader.synchronize()?; // waits for the other readers of the domain: this one holds nothing
/// # Ok::<(), stillpoint::rcu::wait::SynchronizeError>(())
/// ```
///
/// ```compile_fail,E0502
/// # let domain = stillpoint::rcu::Domain::new();
/// # let cell = domain.cell(1);
/// let mut reader = domain.qsbr_reader();
/// let object = cell.load(&reader);
/// reader.quiescent();
/// assert_eq!(object, Some(&1)); // kept across a quiescent state
/// ```
pub struct QsbrReader {
    record: OnThread<NonNull<Record>>,
    core: Arc<Core>,
    claim: OnThread<Claim<Record>>,
}

impl QsbrReader {
    #[inline(always)]
    pub(super) fn record(&self) -> &Record {
        // SAFETY: the record lives as long as the core, which the reader holds.
        unsafe { self.record.as_ref() }
    }

    /// Reports a quiescent state: the thread holds no reference. Costs three loads, and a store if a grace period was started
    /// since the last report; no fence.
    #[inline(always)]
    pub fn quiescent(&mut self) {
        self.core.report(self.record());
    }

    /// Runs `function` in an extended quiescent state: grace periods do not wait for this reader meanwhile.
    ///
    /// For code that blocks. Coming back online costs a full fence. The reader also comes back if `function` panics.
    ///
    /// ```
    /// let domain = stillpoint::rcu::Domain::new();
    /// let cell = domain.cell(1);
    /// let mut reader = domain.qsbr_reader();
    /// let received = reader.offline(|| "blocking read");
    /// assert_eq!(cell.load(&reader), Some(&1));
    /// # assert_eq!(received, "blocking read");
    /// ```
    pub fn offline<R>(&mut self, function: impl FnOnce() -> R) -> R {
        self.core.while_offline(self.record(), function)
    }

    /// Begins an extended quiescent state that ends in another function: see [`OfflineReader`].
    pub fn go_offline(self) -> OfflineReader {
        self.core.offline(self.record());
        OfflineReader { reader: self }
    }

    /// Waits for a grace period. The reader itself counts as quiescent.
    ///
    /// # Errors
    /// As [`Domain::synchronize`](super::Domain::synchronize).
    pub fn synchronize(&mut self) -> Result<(), SynchronizeError> {
        let core = Arc::clone(&self.core);
        self.offline(|| Core::synchronize(&core, None))
    }
}

impl Domain {
    /// Registers the calling thread as a reader that reports quiescent states. It is online at once.
    /// Lock-free; the number of readers has no limit.
    pub fn qsbr_reader(&self) -> QsbrReader {
        let core = Arc::clone(self.core());
        let (claim, _) = core.register(ReaderKind::Qsbr);
        // SAFETY: the core is alive, as the reader holds it.
        let record = OnThread::new(NonNull::from(unsafe { claim.slot() }));
        QsbrReader { record, core, claim: OnThread::new(claim) }
    }
}

impl Drop for QsbrReader {
    fn drop(&mut self) {
        self.core.unregister(&self.claim);
    }
}

impl Region for QsbrReader {}

// SAFETY: the record publishes the token of the last quiescent state, or of the registration. `quiescent` and
// `offline` take the reader exclusively, so no borrow extends across them.
unsafe impl Sealed for QsbrReader {
    #[inline(always)]
    fn core(&self) -> &Core {
        &self.core
    }
}

stillpoint_sys::debug!(|this| QsbrReader { domain: this.core.name(), .. });

/// A [`QsbrReader`] in an extended quiescent state: grace periods do not wait for it, and nothing can be loaded with it.
///
/// For threads that go to sleep in one callback and wake up in another, as the workers of an executor do. If both
/// are in one place, [`QsbrReader::offline`] is simpler.
///
/// ```
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let cell = domain.cell(1);
/// let reader = domain.qsbr_reader();
/// assert_eq!(cell.load(&reader), Some(&1));
///
/// let offline = reader.go_offline();
/// domain.synchronize()?; // does not wait for the reader of this thread
/// let reader = offline.go_online();
/// assert_eq!(cell.load(&reader), Some(&1));
/// # Ok::<(), stillpoint::rcu::wait::SynchronizeError>(())
/// ```
///
/// No reference is kept while the reader is offline:
///
/// ```compile_fail,E0505
/// # let domain = stillpoint::rcu::Domain::new();
/// # let cell = domain.cell(1);
/// let reader = domain.qsbr_reader();
/// let object = cell.load(&reader);
/// let offline = reader.go_offline();
/// assert_eq!(object, Some(&1)); // kept across
/// ```
pub struct OfflineReader {
    reader: QsbrReader,
}

impl OfflineReader {
    /// Comes back online. Costs a full fence.
    pub fn go_online(self) -> QsbrReader {
        self.reader.core.online(self.reader.record());
        self.reader
    }
}

impl fmt::Debug for OfflineReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OfflineReader").field(&self.reader).finish()
    }
}
