//! The writer of a round, and what it records.

use std::thread;
use std::time::{Duration, Instant};

use stillpoint_harness::experiment::threads::thread_cpu_time;
use stillpoint_harness::machine::proc;
use stillpoint_peers::{Contender, Delays, Element, Writer};

use crate::preempt::round::Round;
use crate::preempt::workload::{Change, Store, Workload};

/// How often the resident memory is read.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How long the readers go on after the last change, so that the last grace periods count in full.
const TAIL: Duration = Duration::from_secs(1);
/// The writer waits while more than this is unlinked and not freed: a workload without a pause has no other bound.
const PENDING_LIMIT: usize = 64 << 20;

/// Resident bytes of this process; 0 if the kernel does not report them.
pub(super) fn resident_bytes() -> usize {
    proc::resident_bytes().unwrap_or(0)
}

/// A sample of a round, taken from time to time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    /// Since the first change.
    pub(super) at: Duration,
    pub(super) freed: usize,
    /// The most since the previous sample.
    pub(super) pending_bytes: usize,
}

pub(super) struct Writing<'a> {
    round: &'a Round,
    delays: &'static Delays,
    pub(super) writer: Box<dyn Writer + 'a>,
    pub(super) store: Store,
    /// Whether grace periods are measured by probes.
    probes: bool,
    /// Changes after which the next one may be sent.
    next_probe: usize,
    begin: Instant,
    next_look: Instant,
    pub(super) looks: Vec<Look>,
    recent_peak_bytes: usize,
    burst: Vec<(Change, Option<Box<Element>>)>,
    pub(super) changes: usize,
    pub(super) unlinked: usize,
    unlinked_bytes: usize,
    /// CPU time inside the scheme.
    pub(super) cpu: Duration,
    /// How long the writer wrote.
    pub(super) written: Duration,
    pub(super) peak_pending_bytes: usize,
    pub(super) resident_before: usize,
    pub(super) peak_resident_bytes: usize,
    pub(super) used_at_peak_bytes: usize,
}

impl<'a> Writing<'a> {
    pub(super) fn new(contender: &'a dyn Contender, round: &'a Round, delays: &'static Delays) -> Self {
        let now = Instant::now();
        Self {
            round,
            delays,
            writer: contender.writer(),
            store: Store::new(round.setting.workload, round.seed),
            probes: !contender.has_synchronize(),
            next_probe: 0,
            begin: now,
            next_look: now,
            looks: Vec::new(),
            recent_peak_bytes: 0,
            burst: Vec::with_capacity(round.setting.workload.spec().burst),
            changes: 0,
            unlinked: 0,
            unlinked_bytes: 0,
            cpu: Duration::ZERO,
            written: Duration::ZERO,
            peak_pending_bytes: 0,
            resident_before: resident_bytes(),
            peak_resident_bytes: 0,
            used_at_peak_bytes: 0,
        }
    }

    fn object(&self, change: &Change) -> Option<Box<Element>> {
        let key = change.slot as u64;
        change.words.map(|words| Box::new(Element::with_body(key, words, self.delays)))
    }

    pub(super) fn fill(&mut self) {
        for change in self.store.fill() {
            let object = self.object(&change);
            self.writer.publish(change.slot, object);
        }
    }

    /// Changes the store on schedule until the round's time is over. A writer that was held up catches up, so that every
    /// contender has the same number of changes to make.
    pub(super) fn write(&mut self, begin: Instant) {
        let end = begin + self.round.duration;
        self.begin = begin;
        let mut next = begin;
        // At least one object is unlinked, even if starting the threads took all of a very short round.
        while Instant::now() < end || self.unlinked == 0 {
            self.burst();
            while self.pending_bytes() > PENDING_LIMIT && Instant::now() < end {
                self.poll();
                thread::yield_now();
            }
            next += self.round.setting.workload.spec().interval;
            thread::sleep(next.min(end).saturating_duration_since(Instant::now()));
        }
        self.written = begin.elapsed();
    }

    /// Makes the new objects, then hands the old ones to the scheme, and lets it free what is ready.
    fn burst(&mut self) {
        for _ in 0..self.round.setting.workload.spec().burst {
            let change = self.store.next();
            let object = self.object(&change);
            self.burst.push((change, object));
        }
        let now = Instant::now();
        if self.probes && self.changes >= self.next_probe && !self.delays.probe_is_out() {
            self.delays.send_probe();
            self.next_probe = self.changes + self.round.setting.workload.spec().changes_per_probe;
        }

        let before = thread_cpu_time();
        for (change, object) in self.burst.drain(..) {
            // Before the call: some schemes free during it.
            let freed = self.delays.freed_bytes();
            self.writer.publish(change.slot, object);
            self.changes += 1;
            self.unlinked += usize::from(change.unlinked > 0);
            self.unlinked_bytes += change.unlinked;
            self.recent_peak_bytes = self.recent_peak_bytes.max(self.unlinked_bytes - freed);
        }
        self.writer.poll();
        self.cpu += thread_cpu_time() - before;
        self.peak_pending_bytes = self.peak_pending_bytes.max(self.recent_peak_bytes);

        if now >= self.next_look {
            self.look();
        }
    }

    fn poll(&mut self) {
        let before = thread_cpu_time();
        self.writer.poll();
        self.cpu += thread_cpu_time() - before;
    }

    fn pending_bytes(&self) -> usize {
        self.unlinked_bytes.saturating_sub(self.delays.freed_bytes())
    }

    fn look(&mut self) {
        self.note();
        let resident = resident_bytes().saturating_sub(self.resident_before);
        if resident > self.peak_resident_bytes {
            self.peak_resident_bytes = resident;
            self.used_at_peak_bytes = self.store.live_bytes() + self.pending_bytes();
        }
    }

    fn note(&mut self) {
        let pending_bytes = std::mem::take(&mut self.recent_peak_bytes).max(self.pending_bytes());
        self.looks.push(Look { at: self.begin.elapsed(), freed: self.delays.freed(), pending_bytes });
        self.next_look = Instant::now() + LOOK_INTERVAL;
    }

    /// Goes on as between two bursts until everything is freed, or until a time limit.
    pub(super) fn finish(&mut self) {
        let end = Instant::now() + TAIL;
        self.look();
        while self.delays.freed() < self.unlinked && Instant::now() < end {
            self.poll();
            if Instant::now() >= self.next_look {
                self.note();
            }
            thread::sleep(self.round.setting.workload.spec().interval.max(Workload::Mail.spec().interval));
        }
        self.note();
    }
}
