//! Threads that come and go leak no memory, and neither do mailboxes and timers.
//!
//! A separate program, because it counts all allocations.

#![cfg(not(any(stillpoint_loom, miri)))]

#[path = "support/allocated.rs"]
mod allocated;
#[path = "support/child.rs"]
mod child;
#[path = "support/forked.rs"]
mod forked;

use std::cell::RefCell;
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::{Barrier, OnceLock};
use std::thread;

use stillpoint::pool::memory::Pages;
use stillpoint::pool::raw::RawPool;
use stillpoint::rcu::{self, Boost, Domain, RcuCell, Reader};
use stillpoint::table::Table;
use stillpoint::timer::shared::{Outcome, TimerService};
use stillpoint::timer::Limit;

use allocated::allocated;
use child::in_child;
use forked::in_fork;

const THREADS: usize = 5000;
/// The number of threads at a time. They end at the same moment.
const CROWD: usize = 50;

thread_local! {
    /// Dropped by the thread's end, in an order that the tests choose by the first use.
    static KEPT: RefCell<Vec<Reader>> = const { RefCell::new(Vec::new()) };
}

/// Makes the thread's readers be destroyed after every thread-local that it uses later.
fn keep_last() {
    KEPT.with_borrow_mut(|_| ());
}

fn keep(reader: Reader) {
    KEPT.with_borrow_mut(|kept| kept.push(reader));
}

/// A domain that boosts, so that it keeps data for each thread.
fn boosting() -> Domain {
    Domain::builder().boost(Boost::Migrate).build().expect("every process may move its threads")
}

/// Runs `body` on `THREADS` threads. Asserts that no more memory is allocated afterwards than was after the first threads,
/// except for slots: there are as many of them as were ever used at a time.
fn assert_no_leak(name: &str, body: impl Fn() + Sync) {
    let crowd = || {
        // All threads have started before the first one ends.
        let all = Barrier::new(CROWD);
        thread::scope(|scope| {
            let start = |_| {
                let builder = thread::Builder::new().stack_size(64 << 10);
                let started = builder.spawn_scoped(scope, || {
                    body();
                    all.wait();
                });
                started.expect("there is memory for a thread")
            };
            let threads: Vec<_> = (0..CROWD).map(start).collect();
            // The scope itself would not wait for the destructors of thread-locals.
            threads.into_iter().for_each(|thread| thread.join().expect("the body does not panic"));
        });
    };
    (0..4).for_each(|_| crowd());
    let before = allocated();
    (0..THREADS / CROWD).for_each(|_| crowd());
    let leaked = allocated() - before;
    assert!(leaked < 10 * THREADS as isize, "{name}: {THREADS} threads left {leaked} bytes behind");
    println!("{name}: {leaked} bytes more after {THREADS} threads");
}

/// Runs `round` a few times, and then `rounds` times. Asserts that no more memory is allocated afterwards than was in between.
fn assert_steady(what: &str, rounds: usize, mut round: impl FnMut()) {
    (0..10).for_each(|_| round());
    let before = allocated();
    (0..rounds).for_each(|_| round());
    let leaked = allocated() - before;
    assert!(leaked < 10 * rounds as isize, "{rounds} {what} left {leaked} bytes behind");
}

/// The thread-local data for boosts is destroyed before the readers in thread-locals, or after them.
#[test]
fn threads_that_come_and_go_leave_no_memory_behind() {
    in_child("threads_that_come_and_go_leave_no_memory_behind", || {
        let (boosting, other) = (boosting(), boosting());
        let bodies: [(&str, &(dyn Fn() + Sync)); 3] = [
            ("without thread-locals", &|| {
                drop((boosting.reader(), other.reader(), boosting.qsbr_reader()));
            }),
            ("the readers end last", &|| {
                keep_last();
                keep(boosting.reader());
                keep(other.reader());
            }),
            ("the readers end first", &|| {
                let reader = boosting.reader();
                keep_last();
                keep(reader);
            }),
        ];
        for (name, body) in bodies {
            assert_no_leak(name, body);
            assert_eq!((boosting.stats().readers, other.stats().readers), (0, 0), "{name}");
        }
    });
}

/// Everything else that a thread may use in a domain: chained hazard slots, a queue, a future, a wait, orphans.
#[test]
fn threads_that_use_everything_leave_no_memory_behind() {
    in_child("threads_that_use_everything_leave_no_memory_behind", || {
        let domain = boosting();
        assert_no_leak("everything", || {
            let (reader, cell) = (domain.reader(), domain.cell([0_u8; 100]));
            let many: Vec<_> = (0..40).map(|_| cell.protect(&reader)).collect();
            let mut reclaimer = domain.reclaimer();
            reclaimer.retire(cell.replace([1; 100]).expect("never empty")).expect("there is room");
            drop(cell.replace([2; 100]));
            drop(many);
            reclaimer.poll();
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let over = std::pin::pin!(domain.grace_period(domain.start()));
            let _ = std::future::Future::poll(over, &mut context);
            let background = domain.background();
            let handle = background.retire_handle();
            handle.retire(cell.replace([3; 100]).expect("never empty")).expect("there is room");
            drop((reclaimer, background));
            keep_last();
            keep(reader);
            // Frees what all of them have left to the domain.
            let _ = domain.synchronize();
        });
        domain.synchronize().expect("nobody reads");
        assert_eq!(domain.stats().pending, 0);
    });
}

/// An allocator that reads uses the default domain in the middle of the thread's first use of it.
#[test]
fn an_allocator_that_reads_leaves_no_reader_behind() {
    in_child("an_allocator_that_reads_leaves_no_reader_behind", || {
        assert_no_leak("an allocator that reads", || {
            allocated::set_hook(Some(|| drop(rcu::pin())));
            drop(rcu::pin());
            allocated::set_hook(None);
        });
        assert_eq!(rcu::default_domain().stats().readers, 0);
    });
}

/// The same for an allocator that writes, in the middle of the thread's first write.
#[test]
fn an_allocator_that_writes_in_the_first_write_of_a_thread() {
    in_child("an_allocator_that_writes_in_the_first_write_of_a_thread", || {
        static CELL: OnceLock<[RcuCell<u64>; 2]> = OnceLock::new();
        let [own, _] = CELL.get_or_init(|| [RcuCell::new(0), RcuCell::new(0)]);
        for round in 1..4 {
            std::thread::spawn(move || {
                drop(rcu::pin());
                allocated::set_hook(Some(|| CELL.get().expect("it is there")[1].set(1)));
                own.set(round);
                allocated::set_hook(None);
            })
            .join()
            .expect("the first write is whole");
        }
        rcu::barrier().expect("nobody reads");
        assert_eq!((own.get().as_deref(), rcu::default_domain().stats().pending), (Some(&3), 0));
    });
}

/// What is unlinked names its domain, also after the domain's end, and does not keep the memory of the domain.
#[test]
fn domains_that_come_and_go_leave_no_memory_behind() {
    in_child("domains_that_come_and_go_leave_no_memory_behind", || {
        assert_steady("domains", 200, || {
            let domain = Domain::new();
            let (unlinked, reader) = (domain.cell(1).take(), domain.reader());
            drop((domain, reader));
            drop(unlinked);
        });
    });
}

/// Mailboxes of a service that stays, and timers of services that are dropped. Some of these services have not taken all
/// their messages.
#[test]
fn mailboxes_and_timers_that_come_and_go_leave_no_memory_behind() {
    in_child("mailboxes_and_timers_that_come_and_go_leave_no_memory_behind", || {
        let mut service = TimerService::new(0);
        let remote = service.remote();
        let mut now = 0;
        assert_steady("rounds", THREADS, || {
            for sent in 0..3 {
                let mut mailbox = remote.mailbox(4);
                for cancelled in 0..sent {
                    let timer = remote.timer();
                    mailbox.add(&timer, now, 1).expect("there is room");
                    assert!(cancelled == 0 || timer.cancel().is_cancelled());
                }
            }
            now += 1;
            assert_eq!(service.run(now, Limit::NONE, |_, _| {}).expired(), 2);
            // A burst outlives its service: its messages end with it.
            let other = TimerService::new(0);
            let timers = [(); 3].map(|()| other.remote().timer());
            let mut mailbox = other.remote().mailbox(4);
            let mut burst = mailbox.burst();
            for timer in &timers {
                burst.add(timer, 10, 1).expect("there is room");
            }
            drop(other);
            drop(burst);
            assert!(timers.iter().all(|timer| timer.cancel() == Outcome::Gone));
        });
    });
}

/// Each child forks again, and has copies of its parent's threads, which never end.
#[test]
fn children_of_children_leave_no_memory_behind() {
    fn generation(domain: &Domain, left: usize, before: isize) {
        if left == 0 {
            let leaked = allocated() - before;
            assert!(leaked < 36_000, "{leaked} bytes are left of threads of the generations before");
            return;
        }
        let (begun, end) = (Barrier::new(11), Barrier::new(11));
        thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    let _reader = domain.reader();
                    begun.wait();
                    end.wait();
                });
            }
            begun.wait();
            let answer = catch_unwind(AssertUnwindSafe(|| {
                in_fork(|| {
                    // SAFETY: this is the only thread of the child, and it has borrowed nothing from the others.
                    unsafe { domain.reset_after_fork() };
                    // The stacks and names of the parent's threads are lost. They do not belong to the library.
                    let before = if left == 20 { allocated() } else { before };
                    generation(domain, left - 1, before);
                })
            }));
            end.wait();
            answer.unwrap_or_else(|panic| resume_unwind(panic));
        });
    }
    in_child("children_of_children_leave_no_memory_behind", || generation(&boosting(), 20, 0));
}

/// Tables with overflowing chains, which grow, and are dropped while one of their entries still waits in a reclaimer.
#[test]
fn tables_that_come_and_go_leave_no_memory_behind() {
    in_child("tables_that_come_and_go_leave_no_memory_behind", || {
        /// All keys are in one chain.
        #[derive(Default)]
        struct Constant;

        impl Hasher for Constant {
            fn finish(&self) -> u64 {
                1 << 50
            }
            fn write(&mut self, _: &[u8]) {}
        }

        let domain = Domain::new();
        let mut reclaimer = domain.reclaimer();
        assert_steady("tables", 100, || {
            let hasher = BuildHasherDefault::<Constant>::default();
            let table = Table::builder_in(&domain).hasher(hasher).build().expect("there is memory");
            for key in 0..600 {
                table.insert(key, Box::new(key)).expect("there is memory");
            }
            table.reserve(table.capacity()).expect("there is memory");
            for key in 0..300 {
                table.remove(&key);
            }
            let removed = table.remove(&400).expect("it was inserted");
            removed.retire_to(&mut reclaimer).expect("there is room");
            drop(table);
            reclaimer.flush().expect("nothing is in the way");
        });
    });
}

/// The allocator looks something up itself, while a lookup takes another block of slots: no block is lost, in which a scan would not see
/// what protects an entry.
#[test]
fn the_allocator_may_look_up() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::OnceLock;

    const HELD: u64 = 40;
    static TABLE: OnceLock<Table<u64, Value>> = OnceLock::new();
    static DROPPED: AtomicUsize = AtomicUsize::new(0);

    #[derive(Debug)]
    struct Value;

    impl Drop for Value {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }

    let table = TABLE.get_or_init(Table::new);
    (0..=HELD).for_each(|key| drop(table.insert(key, Value).expect("there is memory")));
    let (mut held, mut owned) = (Vec::with_capacity(HELD as usize), Vec::with_capacity(HELD as usize));
    allocated::set_hook(Some(|| {
        let table = TABLE.get().expect("it is there");
        assert!(table.contains_key(&HELD) && table.get_owned(&HELD).is_some());
        stillpoint::rcu::offline();
    }));
    for key in 0..HELD {
        match key % 2 {
            0 => held.push(table.get(&key).expect("it is there")),
            _ => owned.push(table.get_owned(&key).expect("it is there")),
        }
    }
    allocated::set_hook(None);
    table.clear();
    while DROPPED.load(Ordering::Relaxed) < 1 {
        table.poll();
    }
    stillpoint::rcu::barrier_timeout(std::time::Duration::from_millis(50)).expect_err("entries are held");
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1, "only what is not held");
    drop((held, owned));
    while DROPPED.load(Ordering::Relaxed) <= HELD as usize {
        table.poll();
    }
}

/// The allocator asks a pool, and makes it grow, while its caller asks the pool: what the caller holds meanwhile, it would also hold if it
/// were preempted, or if another thread forked.
#[test]
fn the_allocator_may_ask_a_pool() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    in_child("the_allocator_may_ask_a_pool", || {
        static POOL: OnceLock<RawPool> = OnceLock::new();
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        // If a call waits for its own thread, then for ever. SAFETY: no pointers are passed.
        unsafe { libc::alarm(60) };
        let pool = POOL.get_or_init(|| {
            let builder = RawPool::builder(8, 64, 64).bucket_bytes(512).cache(0).high_water(1);
            builder.max_objects(1 << 10).growth_step(8).pages(Pages::Small).build().expect("there is memory")
        });
        let local = pool.local().expect("there are few");
        let block = local.alloc_block().expect("the pool is new");
        allocated::set_hook(Some(|| {
            let pool = POOL.get().expect("it is there");
            let before = pool.info().memory.len();
            let block = pool.local().expect("there are few").alloc_block().expect("the pool may grow");
            assert!(pool.owns(block.start().as_ptr()) && pool.iova(block.start()).is_none());
            assert_eq!(pool.info().memory.len(), before + 1);
            ASKED.fetch_add(1, Ordering::Relaxed);
        }));
        let asked = |what: &str, call: &dyn Fn()| {
            let before = ASKED.load(Ordering::Relaxed);
            call();
            let times = ASKED.load(Ordering::Relaxed) - before;
            println!("{what}: {times} allocations");
            times
        };
        let found = asked("iova", &|| assert!(pool.iova(block.start()).is_none()));
        let told = asked("physically_contiguous", &|| assert!(pool.physically_contiguous(&block).is_none()));
        let info = asked("info", &|| assert!(pool.info().memory.len() <= 1 << 7));
        let audit = asked("audit", &|| _ = pool.audit());
        allocated::set_hook(None);
        assert!(found == 0 && told == 0 && info > 0 && audit > 0, "{found} {told} {info} {audit}");
        pool.audit().expect("it is whole");
    });
}

/// Its 16 buckets and stripes, 129 slots, and the heads of its lists.
#[test]
fn a_table_of_ten_entries_takes_eight_kib() {
    in_child("a_table_of_ten_entries_takes_eight_kib", || {
        let domain = Domain::new();
        let before = allocated();
        let table = Table::<u64, u64>::new_in(&domain);
        for key in 0..10 {
            assert!(table.insert(key, key).is_ok_and(|old| old.is_none()));
        }
        let taken = allocated() - before;
        assert!((2_048..=8_192).contains(&taken), "{taken} bytes");
    });
}
