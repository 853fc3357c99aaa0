//! stillpoint's own operations, through its public interface.

use std::hint::black_box;
use std::sync::atomic::{Ordering, compiler_fence};

use stillpoint::fence;
use stillpoint::rcu::{Domain, Reclaimer};
use stillpoint_peers::Micro;

/// Objects retired between two polls, which share a grace period and its fence.
const BATCH: u64 = 64;

/// An object of one cache line, as large as those that the peers retire.
type Object = [u64; 8];

/// The operations of stillpoint's readers and writers. `retire` of `protected` pays for the fences that a domain
/// with readers of objects needs.
pub(crate) fn operations() -> Vec<Micro> {
    let micro = |contender, operation, run| Micro { contender, operation, run };
    vec![
        micro("stillpoint/qsbr", "quiescent", quiescent),
        micro("stillpoint/guard", "pin", pin),
        micro("stillpoint/protected", "protect", protect),
        micro("stillpoint/qsbr", "start", start),
        micro("stillpoint/qsbr", "check", check),
        micro("stillpoint/qsbr", "retire", retire_beside_qsbr),
        micro("stillpoint/protected", "retire", retire_beside_protected),
        micro("stillpoint/protected", "heavy", heavy),
    ]
}

fn quiescent(iterations: u64) {
    let domain = Domain::new();
    let mut reader = domain.qsbr_reader();
    for _ in 0..iterations {
        reader.quiescent();
        // As the empty assembly in the peers' loops: nothing moves from one iteration to the next.
        compiler_fence(Ordering::SeqCst);
    }
}

fn pin(iterations: u64) {
    let domain = Domain::new();
    let reader = domain.reader();
    for _ in 0..iterations {
        drop(black_box(reader.pin()));
    }
}

fn protect(iterations: u64) {
    let domain = Domain::new();
    let cell = domain.cell::<Object>([7; 8]);
    let reader = domain.reader();
    for _ in 0..iterations {
        drop(black_box(cell.protect(&reader)));
    }
}

fn start(iterations: u64) {
    let domain = Domain::new();
    let _reader = domain.qsbr_reader();
    for _ in 0..iterations {
        black_box(domain.start());
    }
}

fn check(iterations: u64) {
    let domain = Domain::new();
    let mut reader = domain.qsbr_reader();
    let token = domain.start();
    reader.quiescent();
    for _ in 0..iterations {
        black_box(domain.check(black_box(token)));
    }
}

fn retire_beside_qsbr(iterations: u64) {
    let domain = Domain::new();
    let mut reader = domain.qsbr_reader();
    retire(&domain, iterations, || reader.quiescent());
}

fn retire_beside_protected(iterations: u64) {
    let domain = Domain::new();
    let _reader = domain.reader();
    retire(&domain, iterations, || {});
}

/// Replaces and retires, and polls once a batch: what is freed then is what earlier batches retired.
fn retire(domain: &Domain, iterations: u64, mut pass: impl FnMut()) {
    let cell = domain.cell::<Object>([0; 8]);
    let mut reclaimer: Reclaimer = domain.reclaimer_builder().batch(BATCH as usize).build();
    for number in 0..iterations {
        let old = cell.swap(black_box(Some(Box::new([number; 8]))));
        if let Some(old) = old {
            reclaimer.retire(old).unwrap_or_else(|error| panic!("a polled reclaimer is never full: {error}"));
        }
        if number % BATCH == BATCH - 1 {
            pass();
            reclaimer.poll();
        }
    }
}

fn heavy(iterations: u64) {
    for _ in 0..iterations {
        fence::heavy().unwrap_or_else(|error| panic!("the fence worked when it was tried: {error}"));
    }
}
