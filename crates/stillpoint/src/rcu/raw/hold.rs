use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicPtr;
use std::sync::Arc;

use crate::fence::ReaderFence;
use crate::rcu::domain::Domain;
use crate::rcu::engine::core::read;
use crate::rcu::engine::core::record::{clear_hazard, Record};
use crate::rcu::engine::core::registry::Claim;
use crate::rcu::engine::Core;

/// A hazard slot that belongs to no thread: what it holds stays held when the value is sent to another one.
///
/// It has a record of its own, as a reader does: every scan of the domain looks at it, and in a domain without readers it
/// makes fences heavy. Nothing knows whose it is: who waits for what the same thread holds in one is not told of the
/// deadlock. In [`Mode::Provided`](crate::fence::Mode::Provided) its loads have a full fence each. The child of a `fork` keeps it as it is.
///
/// ```
/// use std::sync::atomic::AtomicPtr;
/// use stillpoint::rcu::{raw::Hold, Domain};
///
/// let domain = Domain::new();
/// let mut object = 7;
/// let link = AtomicPtr::new(&raw mut object);
/// let mut hold = Hold::new(&domain);
/// assert!(hold.protect(&link).is_some());
/// std::thread::spawn(move || drop(hold)).join().unwrap(); // lets go
/// ```
pub struct Hold {
    core: Arc<Core>,
    claim: Claim<Record>,
    fence: ReaderFence,
}

// SAFETY: the record is nobody's, and is used through an exclusive borrow of this value.
unsafe impl Send for Hold {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl Sync for Hold {}

impl Hold {
    /// Claims a record. Lock-free, with a full fence; allocates when all are claimed.
    pub fn new(domain: &Domain) -> Self {
        let core = Arc::clone(domain.core());
        let (claim, fence) = core.protocol.register_nobody();
        Self { core, claim, fence }
    }

    /// Loads `source` and holds what it points to, in place of what was held before: as [`protect`](super::protect), until the next call, or the drop.
    pub fn protect<T>(&mut self, source: &AtomicPtr<T>) -> Option<NonNull<T>> {
        self.release();
        // SAFETY: the value is borrowed exclusively, and with it the record.
        let held = unsafe { read::protect(self.fence, source, || self.record().first_hazard()) };
        held.map(|(object, _)| object)
    }

    /// Lets go of what is held.
    pub fn release(&mut self) {
        clear_hazard(&self.record().first_hazard());
    }

    fn record(&self) -> &Record {
        // SAFETY: the core is alive.
        unsafe { self.claim.slot() }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let record = self.record();
        if self.core.protocol.sign_off(record) {
            self.core.answer(record);
        }
        self.core.protocol.release(&self.claim);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("domain", &self.core.name()).finish_non_exhaustive()
    }
}
