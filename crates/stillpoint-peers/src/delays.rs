use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// The bit that marks the stamp of a probe. Times do not reach it for 292 years.
const PROBE: u64 = 1 << 63;

/// A record of the elements that were freed: the delay of each from unlink to free, recorded by the thread that frees it, and the
/// number of bytes freed.
///
/// One element at a time may be a *probe*. Its delay is the length of a grace period, which is also kept in a separate list.
#[derive(Debug)]
pub struct Delays {
    origin: Instant,
    delays: Samples,
    graces: Samples,
    freed_bytes: AtomicUsize,
    /// Whether the next element that is unlinked becomes a probe.
    probe_armed: AtomicBool,
    /// Whether a probe was sent, and has not been freed yet. It may not have been unlinked yet.
    probe_out: AtomicBool,
}

/// A list of numbers that any thread adds to.
#[derive(Debug)]
struct Samples {
    samples: Box<[AtomicU64]>,
    count: AtomicUsize,
    /// One sample in 2^`sparseness` is kept.
    sparseness: u32,
    most: AtomicU64,
}

impl Samples {
    fn new(capacity: usize, sparseness: u32) -> Self {
        Self {
            samples: (0..capacity).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicUsize::new(0),
            sparseness,
            most: AtomicU64::new(0),
        }
    }

    fn add(&self, value: u64) {
        // Relaxed throughout: each sample has one writer, and `take` is called when no thread adds samples.
        let at = self.count.fetch_add(1, Ordering::Relaxed);
        let place = at >> self.sparseness;
        let kept = self.samples.get(place).filter(|_| place << self.sparseness == at);
        if let Some(sample) = kept {
            sample.store(value, Ordering::Relaxed);
        }
        // The largest sample is always kept. It rarely changes: reading it first avoids a write to the cache line.
        if self.sparseness > 0 && self.most.load(Ordering::Relaxed) < value {
            self.most.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// As [`Delays::lock`].
    fn lock(&self) {
        let (start, bytes) = (self.samples.as_ptr(), size_of_val(&*self.samples));
        // SAFETY: the memory belongs to this value. Locking it changes nothing that a program sees.
        unsafe { libc::mlock(start.cast(), bytes) };
    }

    fn count(&self) -> usize {
        // Relaxed: a count for progress and statistics; it orders nothing.
        self.count.load(Ordering::Relaxed)
    }

    fn take(&self) -> Vec<u64> {
        // Relaxed: the caller has waited for the threads that add samples, and that wait ordered their stores before these loads.
        let kept =
            self.count.swap(0, Ordering::Relaxed).div_ceil(1 << self.sparseness).min(self.samples.len());
        let mut taken: Vec<u64> =
            self.samples[..kept].iter().map(|sample| sample.load(Ordering::Relaxed)).collect();
        let most = self.most.swap(0, Ordering::Relaxed);
        if let Some(last) = taken.last_mut().filter(|_| most > 0) {
            *last = most;
        }
        taken
    }
}

impl Delays {
    /// A record with room for `capacity` samples; later ones are counted but not kept.
    pub fn new(capacity: usize) -> Self {
        Self::sparse(capacity, 0)
    }

    /// A record with room for `capacity` samples. One sample in 2^`sparseness` is kept. In the result, the largest of all
    /// samples replaces the last one that was kept.
    pub fn sparse(capacity: usize, sparseness: u32) -> Self {
        Self {
            origin: Instant::now(),
            delays: Samples::new(capacity, sparseness),
            graces: Samples::new(capacity, 0),
            freed_bytes: AtomicUsize::new(0),
            probe_armed: AtomicBool::new(false),
            probe_out: AtomicBool::new(false),
        }
    }

    /// Keeps the record in memory, where that is allowed: a machine that swaps then swaps what is measured.
    pub fn lock(&self) {
        self.delays.lock();
        self.graces.lock();
    }

    /// Nanoseconds since this record was made.
    #[inline]
    pub fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// The time of an unlink, never 0, with the mark of a probe if the element becomes one.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        let now = self.now().max(1);
        // Relaxed: the thread that unlinks, which is this one, also sets the flag.
        if self.probe_armed.load(Ordering::Relaxed) {
            self.probe_armed.store(false, Ordering::Relaxed);
            return now | PROBE;
        }
        now
    }

    pub(crate) fn record_freed(&self, stamp: u64, bytes: usize) {
        let delay = self.now() - (stamp & !PROBE);
        self.delays.add(delay);
        // Relaxed: a sum for statistics.
        self.freed_bytes.fetch_add(bytes, Ordering::Relaxed);
        if stamp & PROBE != 0 {
            self.graces.add(delay);
            // Release pairs with the acquire load in `probe_is_out`: a thread that sees `false` also sees the probe's sample.
            self.probe_out.store(false, Ordering::Release);
        }
    }

    /// Makes the next element that is unlinked a probe. Only the thread that unlinks may call it, while there is
    /// [no other probe](Delays::probe_is_out).
    pub fn send_probe(&self) {
        // Relaxed: this thread also unlinks the probe, and the scheme orders the unlink before the free, which clears the flag.
        self.probe_out.store(true, Ordering::Relaxed);
        self.probe_armed.store(true, Ordering::Relaxed);
    }

    /// Whether a probe has been sent but not been freed yet.
    pub fn probe_is_out(&self) -> bool {
        // Acquire pairs with the release store in `record_freed`.
        self.probe_out.load(Ordering::Acquire)
    }

    /// Records a grace period that was not measured by a probe, in nanoseconds.
    pub fn record_grace(&self, nanoseconds: u64) {
        self.graces.add(nanoseconds);
    }

    /// Number of grace periods measured since the last [`take_graces`](Delays::take_graces).
    pub fn graces(&self) -> usize {
        self.graces.count()
    }

    /// Number of elements freed since the last [`take`](Delays::take).
    pub fn freed(&self) -> usize {
        self.delays.count()
    }

    /// Bytes of the elements freed so far, with their bodies.
    pub fn freed_bytes(&self) -> usize {
        // Relaxed: a sum for statistics.
        self.freed_bytes.load(Ordering::Relaxed)
    }

    /// Takes all samples, in nanoseconds, and empties the record. Call it while no element is being freed.
    pub fn take(&self) -> Vec<u64> {
        self.delays.take()
    }

    /// Takes the lengths of all grace periods, in nanoseconds. Call it while no element is being freed.
    pub fn take_graces(&self) -> Vec<u64> {
        self.graces.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Element;

    fn unlinked(delays: &'static Delays) -> Element {
        let element = Element::with_body(7, 3, delays);
        element.stamp_unlinked();
        element
    }

    #[test]
    fn a_probe_is_one_element_and_counts_twice() {
        let delays: &'static Delays = Box::leak(Box::new(Delays::new(10)));
        drop(unlinked(delays));
        delays.send_probe();
        let (probe, other) = (unlinked(delays), unlinked(delays));
        drop(other);
        assert!(delays.probe_is_out() && delays.graces() == 0);
        drop(probe);
        assert!(!delays.probe_is_out());
        let graces = delays.take_graces();
        assert_eq!((graces.len(), delays.freed()), (1, 3));
        assert_eq!(delays.take()[2], graces[0]);
        assert_eq!(delays.freed_bytes(), 3 * Element::bytes_with_body(3));
    }

    #[test]
    fn a_sparse_record_counts_all_and_keeps_the_largest() {
        let samples = Samples::new(10, 2);
        for value in [5, 90, 5, 5, 5, 5, 5, 5, 5] {
            samples.add(value);
        }
        assert_eq!(samples.count(), 9);
        assert_eq!(samples.take(), [5, 5, 90]);
        assert!(samples.take().is_empty());
    }
}
