//! stillpoint's own operations, through its public interface.

use std::hint::black_box;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use stillpoint::rcu::{self, Domain, RcuCell, Reclaimer, RetireError};
use stillpoint::table::Table;
use stillpoint_harness::machine::cpus;

use super::Operation;

/// Objects retired between two polls, which share a grace period and its fence.
const BATCH: u64 = 64;

/// An object of one cache line, as large as those that the peers retire.
type Object = [u64; 8];

/// The control of `retire`: only the memory, which is allocated, written, and freed in batches.
pub(super) const MALLOC: &str = "malloc";

/// The operations of stillpoint's readers and writers. `retire` of `protected` pays for the fences that a domain
/// with readers of objects needs.
pub(super) fn operations() -> Vec<Operation> {
    let of = |contender, name, run: fn(u64)| Operation::whole(contender, name, run);
    vec![
        of("stillpoint/qsbr", "quiescent", quiescent),
        of("stillpoint/guard", "pin", pin),
        of("stillpoint/protected", "protect", protect),
        of("stillpoint/owned", "protect", protect_owned),
        of("stillpoint/default", "pin", pin_default),
        of("stillpoint/default", "protect", get),
        of("stillpoint/default", "retire", set),
        of("stillpoint/default", "keep", keep),
        of("stillpoint/qsbr", "start", start),
        of("stillpoint/qsbr", "check", check),
        of("stillpoint/qsbr", "retire", retire_beside_qsbr),
        of("stillpoint/protected", "retire", retire_beside_protected),
        of("stillpoint/protected", "heavy", heavy),
        of(MALLOC, "retire", allocate),
    ]
}

/// Operations of two threads at the same time, the second on `other_cpu`: each does all iterations, in one domain.
pub(super) fn of_two(other_cpu: usize) -> Vec<Operation> {
    let of = |contender, run: fn(&Domain, u64)| {
        Operation::whole(contender, "retire-2", move |iterations| {
            let domain = Domain::new();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // If that fails, both threads share a CPU, which the figure shows.
                    let _ = cpus::pin(other_cpu);
                    run(&domain, iterations);
                });
                run(&domain, iterations);
            });
        })
    };
    vec![
        of("stillpoint/qsbr", |domain, iterations| {
            let mut reader = domain.qsbr_reader();
            retire(domain, iterations, || reader.quiescent());
        }),
        of("stillpoint/protected", |domain, iterations| {
            let _reader = domain.reader();
            retire(domain, iterations, || {});
        }),
        of(MALLOC, |_, iterations| allocate(iterations)),
        waiting("stillpoint/qsbr", other_cpu, |domain, stop, begun| {
            let mut reader = domain.qsbr_reader();
            until(stop, begun, || {
                reader.quiescent();
                // As in `quiescent`.
                compiler_fence(Ordering::SeqCst);
            });
        }),
        waiting("stillpoint/guard", other_cpu, |domain, stop, begun| {
            let reader = domain.reader();
            until(stop, begun, || drop(black_box(reader.pin())));
        }),
        waiting("stillpoint/protected", other_cpu, |domain, stop, begun| {
            let (reader, cell) = (domain.reader(), domain.cell::<Object>([7; 8]));
            until(stop, begun, || drop(black_box(cell.protect(&reader))));
        }),
    ]
}

/// A writer that waits for grace periods of a domain beside a reader.
fn waiting(contender: &'static str, cpu: usize, read: fn(&Domain, &AtomicBool, &AtomicBool)) -> Operation {
    let domain = Domain::new();
    let of_reader = domain.clone();
    let wait = move |iterations| {
        for _ in 0..iterations {
            domain.synchronize().expect("this thread has no open region");
        }
    };
    super::waiting(contender, cpu, wait, move |stop, begun| read(&of_reader, stop, begun))
}

/// Reads until it has to stop.
fn until(stop: &AtomicBool, begun: &AtomicBool, mut read: impl FnMut()) {
    // Release: pairs with the writer's acquire.
    begun.store(true, Ordering::Release);
    // Relaxed: nothing is published with it.
    while !stop.load(Ordering::Relaxed) {
        read();
    }
}

fn quiescent(iterations: u64) {
    let domain = Domain::new();
    let mut reader = domain.qsbr_reader();
    for _ in 0..iterations {
        reader.quiescent();
        // Has the effect of the empty assembly in the peers' loops: the compiler moves nothing from one iteration to
        // the next.
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

/// A protected object that is bound to no thread.
fn protect_owned(iterations: u64) {
    let domain = Domain::new();
    let cell = domain.cell::<Object>([7; 8]);
    for _ in 0..iterations {
        drop(black_box(cell.protect_owned()));
    }
}

/// In the default domain, by the reader of the thread.
fn pin_default(iterations: u64) {
    for _ in 0..iterations {
        drop(black_box(rcu::pin()));
    }
}

fn get(iterations: u64) {
    let cell = RcuCell::<Object>::new([7; 8]);
    for _ in 0..iterations {
        drop(black_box(cell.get()));
    }
}

/// An entry of a table, by [`Table::get_owned`].
fn keep(iterations: u64) {
    static TABLE: LazyLock<Table<u64, u64>> = LazyLock::new(|| (0..1_000).map(|key| (key, key)).collect());
    for iteration in 0..iterations {
        black_box(&TABLE.get_owned(&(iteration * 7 % 1_000)));
    }
}

/// Replaces and retires in one call, which polls now and then.
fn set(iterations: u64) {
    let cell = RcuCell::<Object>::new([7; 8]);
    for iteration in 0..iterations {
        cell.set(black_box([iteration; 8]));
    }
}

fn start(iterations: u64) {
    let domain = Domain::new();
    let _reader = domain.qsbr_reader();
    for _ in 0..iterations {
        domain.start();
        // As in `quiescent`. The peers' loops keep no token either: a store of it would have to be complete before the next addition.
        compiler_fence(Ordering::SeqCst);
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

/// Replaces and retires, and polls once a batch, which frees what earlier batches retired.
fn retire(domain: &Domain, iterations: u64, mut pass: impl FnMut()) {
    let cell = domain.cell::<Object>([0; 8]);
    let mut reclaimer: Reclaimer = domain.reclaimer_builder().batch(BATCH as usize).build();
    for number in 0..iterations {
        let mut unlinked = cell.swap(black_box(Some(Box::new([number; 8]))));
        while let Some(old) = unlinked.take() {
            // The queue is full only while the other thread does not run.
            unlinked = reclaimer.retire(old).err().map(RetireError::into_inner);
            if unlinked.is_some() {
                pass();
                reclaimer.poll();
                std::thread::yield_now();
            }
        }
        if number % BATCH == BATCH - 1 {
            pass();
            reclaimer.poll();
        }
    }
}

/// As [`retire`], without readers to wait for: a batch is freed when the next one is complete.
fn allocate(iterations: u64) {
    let mut batches = [Vec::with_capacity(BATCH as usize), Vec::with_capacity(BATCH as usize)];
    for number in 0..iterations {
        batches[0].push(black_box(Box::<Object>::new([number; 8])));
        if number % BATCH == BATCH - 1 {
            batches.swap(0, 1);
            batches[0].clear();
        }
    }
}

/// Beside a reader of this thread that holds nothing, as the threads of the others are registered.
fn heavy(iterations: u64) {
    let domain = Domain::new();
    let cell = domain.cell::<Object>([7; 8]);
    let reader = domain.reader();
    drop(black_box(cell.protect(&reader)));
    for _ in 0..iterations {
        domain
            .synchronize()
            .unwrap_or_else(|error| panic!("the wait failed, although nobody is waited for: {error}"));
    }
}
