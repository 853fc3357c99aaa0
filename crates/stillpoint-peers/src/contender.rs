use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::{Element, Slots, Work};

/// What one reader thread has to do.
#[derive(Debug)]
pub struct ReadJob<'a> {
    /// The reader's number, from 0 to one less than the `max_readers` for which the contender was made. Readers that are registered at
    /// the same time have different numbers.
    pub index: usize,
    /// Seed of the reader's random keys; never 0.
    pub seed: u64,
    /// The reader ends soon after this becomes true.
    pub stop: &'a AtomicBool,
    /// The work in the read-side section of each lookup, and between two sections; `None` to look up only. With it, slots may be empty.
    pub work: Option<&'a Work>,
}

/// What one reader thread did.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Number of lookups.
    pub lookups: u64,
    /// Lookups that found a poisoned element, or one whose key is not the index: it was freed while the reader used it. If this is
    /// not 0, the row is void.
    pub mismatches: u64,
}

/// A scheme of memory reclamation under test: how it reads, and how it frees.
///
/// One thread at a time writes (it holds the [`Writer`]); any number of threads read.
pub trait Contender: Send + Sync {
    /// Registers the calling thread as a reader, calls `ready`, and looks up random keys, one after the other, until
    /// [`stop`](ReadJob::stop) is set; then unregisters the thread. If the job has [`work`](ReadJob::work), there is a read-side section
    /// around all of it for each lookup. `ready` may sleep, and delays no other thread.
    ///
    /// # Panics
    /// If the reader's number is out of range, or in use.
    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome;

    /// Whether [`synchronize`](Contender::synchronize) waits. It does in schemes where a grace period can end before the destructors
    /// of its objects run.
    fn has_synchronize(&self) -> bool {
        false
    }

    /// Waits for one grace period. Any thread that is not a reader may call it.
    fn synchronize(&self) {}

    /// The writing side. It is made, used and dropped on the same thread. Dropping it [drains](Writer::drain) it. A hidden worker of
    /// the peer (`call_rcu`) gets the CPU affinity that the calling thread has at this call.
    ///
    /// # Panics
    /// If the contender has a writer already, and its scheme allows only one.
    fn writer(&self) -> Box<dyn Writer + '_>;

    /// How many heavy fences its writers have issued so far, which interrupt readers. `None` in schemes that have none, or do not count
    /// them.
    fn heavy_fences(&self) -> Option<u64> {
        None
    }

    /// Runs the contender's background reclaimer on the calling thread until `stop`, or returns at once
    /// if it has none. The contender's own hidden threads (such as `call_rcu` workers) do not count.
    fn background(&self, _stop: &AtomicBool) {}

    /// Whether [`background`](Contender::background) needs a thread.
    fn needs_background(&self) -> bool {
        false
    }
}

/// A contender with its stable name in tables and JSON, such as `dpdk/rcu`.
pub type Named = (&'static str, Box<dyn Contender>);

/// The writing side of a [`Contender`].
pub trait Writer {
    /// Replaces the element at `index` by a new one of the same key, stamps the old one with the time of the
    /// unlink, and hands it to the scheme, which frees it when no reader can hold it any more.
    fn replace(&mut self, index: usize);

    /// Links `new` at `index`, or leaves the slot empty. The element that was there is stamped and handed over as by
    /// [`replace`](Writer::replace). The call itself frees nothing. The scheme may free elements during the call.
    fn publish(&mut self, index: usize, new: Option<Box<Element>>);

    /// Frees what is ready, without waiting for a reader.
    fn poll(&mut self);

    /// Waits until all elements that were replaced so far are freed. It is called when no reader is registered any more.
    fn drain(&mut self);

    /// CPU time of the contender's own hidden worker since it began; zero if it has none.
    fn worker_cpu_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// How a scheme takes over the elements that its writer unlinks from an array.
pub(crate) trait Retire {
    /// Whether the writer frees what is ready at each replacement.
    fn polls_at_replacement(&self) -> bool {
        false
    }

    /// The array.
    fn slots(&self) -> &Slots;

    /// Takes over an element that was unlinked just now. It is handed over once.
    fn retire(&mut self, old: *mut Element);

    /// As [`Writer::poll`].
    fn poll(&mut self) {}

    /// As [`Writer::drain`].
    fn drain(&mut self) {
        self.poll();
    }
}

/// The writer of such a scheme.
pub(crate) struct Retiring<R: Retire>(pub(crate) R);

impl<R: Retire> Writer for Retiring<R> {
    fn replace(&mut self, index: usize) {
        let old = self.0.slots().replace(index);
        self.0.retire(old);
        if self.0.polls_at_replacement() {
            self.0.poll();
        }
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        if let Some(old) = self.0.slots().publish(index, new) {
            self.0.retire(old);
        }
    }

    fn poll(&mut self) {
        self.0.poll();
    }

    fn drain(&mut self) {
        self.0.drain();
    }
}

impl<R: Retire> Drop for Retiring<R> {
    fn drop(&mut self) {
        self.0.drain();
    }
}
