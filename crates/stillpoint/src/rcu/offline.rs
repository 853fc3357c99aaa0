use std::fmt;

use super::qsbr::QsbrReader;

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
/// # Ok::<(), stillpoint::rcu::SynchronizeError>(())
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
    pub(super) fn new(reader: QsbrReader) -> Self {
        Self { reader }
    }

    /// Comes back online. Costs a full fence.
    pub fn go_online(self) -> QsbrReader {
        self.reader.come_online();
        self.reader
    }
}

impl fmt::Debug for OfflineReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OfflineReader").field(&self.reader).finish()
    }
}
