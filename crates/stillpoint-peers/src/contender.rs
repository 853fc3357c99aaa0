use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::{Element, Work};

/// What one reader thread has to do.
#[derive(Debug)]
pub struct ReadJob<'a> {
    /// Number of the reader, from 0; below the `max_readers` the contender was made for, and no two readers
    /// that are registered at the same time have the same.
    pub index: usize,
    /// Seed of the reader's random keys; never 0.
    pub seed: u64,
    /// The reader ends soon after this becomes true.
    pub stop: &'a AtomicBool,
}

/// What one reader thread did.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Number of lookups.
    pub lookups: u64,
    /// Lookups that found an element with another key than the index it was looked up at, or a poisoned one:
    /// the element was freed under the reader. Anything but 0 voids the row.
    pub mismatches: u64,
}

/// A scheme of memory reclamation under test: how to read, how to free.
///
/// One thread at a time writes (it holds the [`Writer`]); any number of threads read.
pub trait Contender: Send + Sync {
    /// The stable name in tables and JSON, such as `dpdk/rcu`.
    fn name(&self) -> &'static str;

    /// Registers the calling thread as a reader, calls `ready`, and looks up random keys, one after the other, until told to
    /// stop; then unregisters. `ready` may sleep: it delays nothing else.
    ///
    /// # Panics
    /// If the reader's number is out of range, or in use.
    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome;

    /// As [`read`](Contender::read), with a read-side section around all of `work` for each lookup. Slots may be empty.
    fn read_sections(&self, job: &ReadJob<'_>, work: &Work, ready: &dyn Fn()) -> ReadOutcome;

    /// Whether [`synchronize`](Contender::synchronize) waits: for schemes in which a grace period can end before its
    /// destructors are called.
    fn has_synchronize(&self) -> bool {
        false
    }

    /// Waits for one grace period, on any thread that is not a reader.
    fn synchronize(&self) {}

    /// The writing side. It is made, used and dropped on the same thread, and dropping it
    /// [drains](Writer::drain) it. A hidden worker of the peer (`call_rcu`) gets the CPU affinity that this
    /// thread has when it calls this.
    ///
    /// # Panics
    /// If the contender has a writer already, and its scheme allows only one.
    fn writer(&self) -> Box<dyn Writer + '_>;

    /// Runs the contender's background reclaimer on the calling thread until `stop`, or returns at once
    /// if it has none. The contender's own hidden threads (such as `call_rcu` workers) do not count.
    fn background(&self, _stop: &AtomicBool) {}

    /// Whether [`background`](Contender::background) needs a thread.
    fn needs_background(&self) -> bool {
        false
    }
}

/// The writing side of a [`Contender`].
pub trait Writer {
    /// Replaces the element at `index` by a new one of the same key, stamps the old one with the time of the
    /// unlink, and hands it to the scheme, which frees it when no reader can hold it any more.
    fn replace(&mut self, index: usize);

    /// Links `new` at `index`, or leaves the slot empty. The element that was there is stamped and handed over as by
    /// [`replace`](Writer::replace). Nothing is freed yet, unless the scheme does so by itself.
    fn publish(&mut self, index: usize, new: Option<Box<Element>>);

    /// Frees what is ready, without waiting for a reader.
    fn poll(&mut self);

    /// Waits until everything replaced so far is freed. Called when no reader is registered any more.
    fn drain(&mut self);

    /// CPU time of the contender's own hidden worker since it began; zero if it has none.
    fn worker_cpu_time(&self) -> Duration {
        Duration::ZERO
    }
}
