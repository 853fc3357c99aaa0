//! The protocol: readers announce themselves; the writer starts tokens, fences, and looks at the readers.
//!
//! All that correctness needs is here. A call that changes a reader's state returns whether the reader's record wants attention.
//! The layers above decide what the reader does then.

pub(crate) mod garbage;
pub(crate) mod grace;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod registry;

use std::ptr::NonNull;
use std::time::Instant;

use crossbeam_utils::CachePadded;

use self::grace::Progress;
use self::record::{ReaderKind, Record};
use self::registry::Registry;
use crate::fence::Mode;
use crate::rcu::engine::boost::BoostState;
use stillpoint_sys::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What the readers and writers of a domain share.
pub(crate) struct Protocol {
    pub(crate) mode: Mode,
    pub(crate) made: Instant,
    /// Whether readers may be boosted, and notified of it.
    boosts: bool,
    /// The current token. Changed only by read-modify-writes: see `start`.
    token: CachePadded<AtomicU64>,
    progress: CachePadded<Progress>,
    /// Number of registered readers that rely on light fences, and so on the heavy fences of writers: guards and protected
    /// loads. Readers that no heavy fence of the domain reaches fence themselves and are not included.
    light_readers: CachePadded<AtomicUsize>,
    /// Number of records that are left lent by threads that have ended, or more.
    left: AtomicUsize,
    /// The number from which the next look for such a record begins.
    look_for_left: AtomicUsize,
    pub(crate) records: Registry<Record>,
}

/// The token before the first one that is started. It is not 0, which is no token.
const FIRST_TOKEN: u64 = 1;

#[cfg(not(stillpoint_loom))]
impl Protocol {
    /// For debuggers.
    pub(crate) const LAYOUT: [usize; 2] =
        [std::mem::offset_of!(Self, token), std::mem::offset_of!(Self, records)];
}

impl Protocol {
    pub(crate) fn new(mode: Mode, boosts: bool) -> Self {
        Self {
            mode,
            made: Instant::now(),
            boosts,
            token: CachePadded::new(AtomicU64::new(FIRST_TOKEN)),
            progress: CachePadded::new(Progress::new(FIRST_TOKEN)),
            light_readers: CachePadded::new(AtomicUsize::new(0)),
            left: AtomicUsize::new(0),
            look_for_left: AtomicUsize::new(0),
            records: Registry::new(),
        }
    }

    /// The address of the current token, for readers in another language, which load it.
    pub(crate) fn token_address(&self) -> NonNull<u64> {
        NonNull::from(&*self.token).cast()
    }

    /// In the child of a `fork`: releases every record that another thread of the parent held. `abandoned` receives what these
    /// threads kept for boosters.
    ///
    /// # Safety
    /// The calling thread is the only one of the process, and uses no reference that was borrowed through a reader of
    /// another thread: the objects behind such references may be freed from now on.
    pub(crate) unsafe fn reset_after_fork(&self, abandoned: impl Fn(&'static BoostState)) {
        for record in self.records.iter_all() {
            // SAFETY: the caller is the only thread of the process.
            unsafe { record.reset_after_fork() };
        }
        let mut light_readers = 0;
        for (record, claim) in self.records.claims() {
            if record.is_nobodys() {
                // It belongs to no thread, and the caller may hold it. It does not count as a light reader.
            } else if record.kind() == ReaderKind::ProtectedLoad {
                // It belongs to no thread, either. A slot that is set again and again may count as a light reader.
                light_readers += usize::from(record.is_light());
                // Relaxed: there is no other thread.
                self.left.fetch_add(usize::from(record.lose_lender()), Ordering::Relaxed);
            } else if record.is_mine() {
                light_readers += usize::from(record.is_light());
                record.refresh();
            } else {
                record.leave();
                record.abandon().map(&abandoned);
                self.records.release(&claim);
            }
        }
        // Relaxed: there is no other thread.
        self.light_readers.store(light_readers, Ordering::Relaxed);
    }
}
