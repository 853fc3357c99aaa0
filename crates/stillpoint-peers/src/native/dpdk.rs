//! DPDK's `rte_rcu_qsbr`: readers report quiescent states, and the user keeps the queue of tokens.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{hint, thread};

use self::raw::{Pending, Qsbr, Ring};
use crate::contender::{Retire, Retiring};
use crate::{Contender, Element, Entry, ReadJob, ReadOutcome, Slots, Writer};

pub(crate) mod raw;

pub(crate) use self::raw::{MICRO, WAITS};

const PEER: &str = "dpdk";
const NAME: &str = "dpdk/rcu";
const NAME_POLL: &str = "dpdk/rcu+poll";
const NAME_BACKGROUND: &str = "dpdk/rcu+background";

pub(crate) const ENTRIES: &[Entry] = &[
    Entry { name: NAME, peer: PEER, make: |slots, readers| Box::new(Fifo::new(slots, readers, true)) },
    Entry { name: NAME_POLL, peer: PEER, make: |slots, readers| Box::new(Fifo::new(slots, readers, false)) },
    Entry {
        name: NAME_BACKGROUND,
        peer: PEER,
        make: |slots, readers| Box::new(Background::new(slots, readers)),
    },
];

/// The writer itself keeps the queue.
struct Fifo {
    slots: Arc<Slots>,
    qsbr: Qsbr,
    polls_at_replacement: bool,
}

impl Fifo {
    fn new(slots: &Arc<Slots>, max_readers: usize, polls_at_replacement: bool) -> Self {
        Self { slots: Arc::clone(slots), qsbr: Qsbr::new(max_readers), polls_at_replacement }
    }
}

impl Contender for Fifo {
    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let reader = self.qsbr.reader(job.index);
        ready();
        reader.read(&self.slots, job)
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        Box::new(Retiring(FifoWriter { fifo: self, pending: VecDeque::with_capacity(1024) }))
    }
}

struct FifoWriter<'a> {
    fifo: &'a Fifo,
    /// Oldest first; tokens only grow.
    pending: VecDeque<Pending>,
}

impl Retire for FifoWriter<'_> {
    fn polls_at_replacement(&self) -> bool {
        self.fifo.polls_at_replacement
    }

    fn slots(&self) -> &Slots {
        &self.fifo.slots
    }

    fn retire(&mut self, old: *mut Element) {
        // SAFETY: `old` has just been unlinked from the slots, whose readers all report to this contender's one variable.
        self.pending.push_back(unsafe { self.fifo.qsbr.start(old) });
    }

    fn poll(&mut self) {
        while let Some(oldest) = self.pending.pop_front() {
            // SAFETY: `oldest` came from `start` of this contender's one variable.
            if let Err(oldest) = unsafe { self.fifo.qsbr.try_free(oldest) } {
                self.pending.push_front(oldest);
                break;
            }
        }
    }

    fn drain(&mut self) {
        while !self.pending.is_empty() {
            self.poll();
            thread::yield_now();
        }
    }
}

/// The writer sends element and token over a ring to a thread that checks and frees.
struct Background {
    slots: Arc<Slots>,
    qsbr: Qsbr,
    ring: Ring,
    /// Held by the writer: the ring has one producer.
    producer: Mutex<()>,
    /// Held by the thread that takes from the ring, which has one consumer. It contains the entry that was taken last, while its token
    /// is not complete.
    consumer: Mutex<Option<Pending>>,
    freed: AtomicUsize,
}

impl Background {
    /// Room for 13 seconds of deletes, at 5,000 a second. A power of two.
    const RING_ENTRIES: u32 = 1 << 16;

    fn new(slots: &Arc<Slots>, max_readers: usize) -> Self {
        Self {
            slots: Arc::clone(slots),
            qsbr: Qsbr::new(max_readers),
            ring: Ring::new(Self::RING_ENTRIES),
            producer: Mutex::new(()),
            consumer: Mutex::new(None),
            freed: AtomicUsize::new(0),
        }
    }

    /// Frees the oldest element if its token is complete.
    fn step(&self, held: &mut Option<Pending>) -> bool {
        // SAFETY: the caller holds the consumer's mutex, which contains `held`.
        let Some(oldest) = held.take().or_else(|| unsafe { self.ring.pop() }) else { return false };
        // SAFETY: `oldest` came from `start` of this contender's one variable.
        match unsafe { self.qsbr.try_free(oldest) } {
            Ok(()) => {
                // Release pairs with the acquire load in `drain`.
                self.freed.fetch_add(1, Ordering::Release);
                true
            }
            Err(oldest) => {
                *held = Some(oldest);
                false
            }
        }
    }

    /// The writer calls this while it waits: without a background thread, the writer frees.
    fn help(&self) {
        if let Ok(mut held) = self.consumer.try_lock()
            && self.step(&mut held)
        {
            return;
        }
        thread::yield_now();
    }
}

impl Contender for Background {
    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let reader = self.qsbr.reader(job.index);
        ready();
        reader.read(&self.slots, job)
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        let producer = self.producer.try_lock().expect("dpdk/rcu+background has a writer already");
        // Relaxed: the last writer waited for this count, and the mutex orders the writers.
        let pushed = self.freed.load(Ordering::Relaxed);
        Box::new(Retiring(BackgroundWriter { background: self, pushed, _producer: producer }))
    }

    fn background(&self, stop: &AtomicBool) {
        let mut held = self.consumer.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: the flag carries no data.
        while !stop.load(Ordering::Relaxed) {
            if !self.step(&mut held) {
                hint::spin_loop();
            }
        }
    }

    fn needs_background(&self) -> bool {
        true
    }
}

struct BackgroundWriter<'a> {
    background: &'a Background,
    pushed: usize,
    _producer: MutexGuard<'a, ()>,
}

impl Retire for BackgroundWriter<'_> {
    fn slots(&self) -> &Slots {
        &self.background.slots
    }

    fn retire(&mut self, old: *mut Element) {
        // SAFETY: `old` has just been unlinked from the slots, whose readers all report to this contender's one variable.
        let mut pending = unsafe { self.background.qsbr.start(old) };
        self.pushed += 1;
        // SAFETY: this writer holds the producer's mutex.
        while let Err(refused) = unsafe { self.background.ring.push(pending) } {
            pending = refused;
            self.background.help();
        }
    }

    fn drain(&mut self) {
        // Acquire pairs with the count in `step`: the free has happened.
        while self.background.freed.load(Ordering::Acquire) != self.pushed {
            self.background.help();
        }
    }
}
