use std::sync::Arc;

use crate::rcu::domain::Domain;
use crate::rcu::engine::core::record::{ReaderKind, Record};
use crate::rcu::engine::core::registry::Claim;
use crate::rcu::engine::Core;
use crate::rcu::reader::Reader;

/// A reader's record that was claimed in advance. Making a reader from it needs no allocation, no lock, and no system call except
/// for the thread's id. There is one exception: the drop of the last handle of a domain frees what is left.
///
/// For threads that become readers in a signal handler, or in other code that must not allocate. Any thread may make a spare, and
/// send it to another thread; the reader belongs to the thread that makes it from the spare. A reader that is made from a spare
/// is not [boosted](crate::rcu::Boost). A spare counts as a reader in the statistics.
///
/// ```
/// use stillpoint::rcu::{raw::Spare, Domain};
///
/// let domain = Domain::new();
/// let cell = domain.cell(7);
/// let spare = Spare::new(&domain); // allocates, if need be
/// std::thread::spawn(move || {
///     let reader = spare.into_reader(); // does not allocate
///     assert_eq!(cell.load(&reader.pin()), Some(&7));
///     let _spare = Spare::of_reader(reader); // keep it for the next time
/// });
/// ```
pub struct Spare {
    core: Arc<Core>,
    claim: Claim<Record>,
}

// SAFETY: no reader uses the record; only the owner of this value does, on one thread at a time.
unsafe impl Send for Spare {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl Sync for Spare {}

impl Spare {
    /// Claims a record. Lock-free; allocates if all are claimed.
    pub fn new(domain: &Domain) -> Self {
        let core = Arc::clone(domain.core());
        let claim = core.protocol.reserve();
        Self { core, claim }
    }

    /// Ends a reader, as its drop does, and keeps its record.
    pub fn of_reader(reader: Reader) -> Self {
        let (core, claim) = reader.into_parts();
        // SAFETY: the core is alive.
        core.vacate(unsafe { claim.slot() });
        Self { core, claim }
    }

    /// Registers the calling thread as a reader, as [`Domain::reader`] does.
    pub fn into_reader(self) -> Reader {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: each is read once, as `this` is not dropped.
        let (core, claim) =
            unsafe { (std::ptr::read(&raw const this.core), std::ptr::read(&raw const this.claim)) };
        // SAFETY: the core is alive.
        let fence = core.register_in(unsafe { claim.slot() }, ReaderKind::Guard, None);
        Reader::registered(core, claim, fence)
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.core.protocol.records.release(&self.claim);
    }
}

stillpoint_sys::debug!(|this| Spare { domain: this.core.name(), .. });
