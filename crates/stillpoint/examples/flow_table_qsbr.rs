//! A run-to-completion loop, as in a packet processor: readers that pay nothing for a lookup.
//!
//! Each worker takes a burst of packets, looks their flows up, and reports after the burst that it holds nothing any
//! more: one quiescent state for many packets. The writer removes flows. A flow also owns a counter in an array of
//! plain memory, which may go to another flow only when no worker can still count for the old one. For this the writer
//! keeps *tokens*: it starts a grace period, goes on with other work, and checks from time to time whether the grace
//! period is over.
//!
//! Run it with `cargo run --example flow_table_qsbr`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use stillpoint::rcu::wait::{SynchronizeError, Token};
use stillpoint::rcu::{Domain, RcuArray};

const WORKERS: usize = 2;
const FLOWS: usize = 64;
const COUNTERS: usize = FLOWS + 32;
const BURST: usize = 32;

struct Flow {
    counter: usize,
}

fn work(
    domain: &Domain,
    table: &RcuArray<Flow>,
    counters: &[AtomicU64],
    started: &Barrier,
    done: &AtomicBool,
) {
    let mut reader = domain.qsbr_reader();
    started.wait();
    let mut packet = 0_usize;
    while !done.load(Ordering::Relaxed) {
        for _ in 0..BURST {
            packet = packet.wrapping_add(7);
            // A lookup is a plain load; the reference may be kept to the end of the burst ...
            if let Some(flow) = table.load(packet % FLOWS, &reader) {
                counters[flow.counter].fetch_add(1, Ordering::Relaxed);
            }
        }
        // ... and not across this: it would not compile.
        reader.quiescent();
        if packet % 1000 < BURST {
            // Blocking calls belong here: no writer waits for this thread meanwhile.
            reader.offline(|| thread::sleep(Duration::from_micros(50)));
        }
    }
}

/// Ends the workers, also if the writer panics.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A counter that workers may still use, and that must not be read, until the grace period of the token is over.
struct Quarantined {
    counter: usize,
    token: Token,
}

pub(crate) fn main() -> Result<(), SynchronizeError> {
    const REPLACED: usize = 2000;
    let domain = Domain::builder().name("flows").build().expect("the default mode is always available");
    let counters: Vec<_> = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
    let table = RcuArray::new_in(&domain, FLOWS, |counter| Some(Box::new(Flow { counter })));
    let mut free: Vec<usize> = (FLOWS..COUNTERS).collect();
    let mut quarantine = VecDeque::new();
    let mut reclaimer = domain.reclaimer();
    let (started, done) = (Barrier::new(WORKERS + 1), AtomicBool::new(false));
    let (mut packets, mut replaced, mut other_work) = (0, 0, 0_u64);

    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| work(&domain, &table, &counters, &started, &done));
        }
        let _done = Done(&done);
        started.wait();
        while replaced < REPLACED {
            // Grace periods end in the order in which they started, so it is enough to check the oldest token.
            while quarantine.front().is_some_and(|oldest: &Quarantined| domain.check(oldest.token)) {
                // No worker counts here any more: the number is final.
                let Quarantined { counter, .. } = quarantine.pop_front().expect("it was just looked at");
                packets += counters[counter].swap(0, Ordering::Relaxed);
                free.push(counter);
            }
            if let Some(counter) = free.pop() {
                let old = table.swap(replaced % FLOWS, Some(Box::new(Flow { counter })));
                let old = old.expect("every slot of the table is in use");
                quarantine.push_back(Quarantined { counter: old.counter, token: domain.start() });
                // The flow itself is an object, so the reclaimer frees it.
                reclaimer.retire(old).expect("there is room for thousands");
                replaced += 1;
            } else {
                // All unused counters are in quarantine. The writer does other work here; otherwise it could only wait
                // for the slowest worker.
                other_work += 1;
                thread::yield_now();
            }
            reclaimer.poll();
        }
    });

    reclaimer.flush()?;
    // The workers are gone, and with them whoever may still count.
    packets += quarantine.iter().map(|last| counters[last.counter].load(Ordering::Relaxed)).sum::<u64>();
    assert_eq!((domain.stats().freed, domain.stats().pending), (REPLACED as u64, 0));
    assert_eq!(domain.stats().heavy_fences, 0, "QSBR readers need none");
    println!("{packets} packets in {replaced} flows that ended; {other_work} turns of other work meanwhile");
    Ok(())
}
