//! Readers that load vouch for themselves: writers issue heavy fences only for readers of other threads that are silent.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{mpsc, Arc};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::rcu::link::{Atomic, ProtectedLink};
use stillpoint::rcu::raw::{self, Slot};
use stillpoint::rcu::{Domain, RcuArray, Reclaimer, Retired};
use stillpoint::table::Table;

use super::fences::with_heavy_fences;
use super::retire_one;
use crate::census::Census;
use crate::ending::Ending;
use crate::other::{silent, Other, Turns};
use crate::{eager, LONG};

/// As a fence interval: no test lasts as long.
const NEVER: Duration = Duration::from_secs(1000);

fn retired(domain: &Domain) -> Retired<i32> {
    domain.cell(1).take().expect("it was full")
}

/// A reclaimer that issues one heavy fence of a domain in which there was none yet, for batches that are not full.
fn patient(domain: &Domain) -> Reclaimer {
    domain.reclaimer_builder().batch(usize::MAX).fence_interval(NEVER).build()
}

fn retire_and_poll(domain: &Domain, reclaimer: &mut Reclaimer) -> usize {
    reclaimer.retire(retired(domain)).expect("there is room");
    reclaimer.poll()
}

/// Polls until everything is freed, and calls `meanwhile` before each poll.
fn poll_until_free(reclaimer: &mut Reclaimer, meanwhile: impl Fn()) {
    let begun = Instant::now();
    while reclaimer.pending() > 0 {
        assert!(begun.elapsed() < LONG, "nothing is in the way");
        meanwhile();
        reclaimer.poll();
    }
}

/// A reader that does something in each of its turns.
type Body = fn(&Domain, Turns);

const BODIES: [(&str, Body); 14] = [
    ("a cell", |domain, turns| {
        let (reader, cell) = (domain.reader(), domain.cell(1));
        turns.for_each(|()| drop(cell.protect(&reader).expect("it is full")));
    }),
    ("a cell that is empty", |domain, turns| {
        let (reader, cell) = (domain.reader(), domain.cell(1));
        drop(cell.take());
        turns.for_each(|()| assert!(cell.protect(&reader).is_none()));
    }),
    ("a cell, held from turn to turn", |domain, turns| {
        let (reader, cell) = (domain.reader(), domain.cell(1));
        let mut held = cell.protect(&reader);
        turns.for_each(|()| held = cell.protect(&reader));
        drop(held);
    }),
    ("a guard", |domain, turns| {
        let (reader, cell) = (domain.reader(), domain.cell(1));
        turns.for_each(|()| _ = cell.load(&reader.pin()));
    }),
    ("an array", |domain, turns| {
        let (reader, array) = (domain.reader(), array(domain));
        turns.for_each(|()| drop(array.protect(0, &reader).expect("it is full")));
    }),
    ("a bound array", |domain, turns| {
        let (mut reader, array) = (domain.reader(), array(domain));
        let mut bound = array.bind(&mut reader);
        turns.for_each(|()| drop(bound.protect(0).expect("it is full")));
    }),
    ("a guard of a bound array", |domain, turns| {
        let (mut reader, array) = (domain.reader(), array(domain));
        let mut bound = array.bind(&mut reader);
        turns.for_each(|()| _ = bound.pin().load(0));
    }),
    ("a typed link", |domain, turns| {
        let (reader, link) = (domain.reader(), Atomic::new(1));
        turns.for_each(|()| drop(link.protect(&reader)));
        // SAFETY: no other thread has it.
        drop(unsafe { link.into_owned() });
    }),
    ("a typed link, loaded again", |domain, turns| {
        let (reader, link) = (domain.reader(), Atomic::new(1));
        let mut protected = ProtectedLink::null(&reader);
        turns.for_each(|()| {
            protected.load(&link);
        });
        drop(protected);
        // SAFETY: no other thread has it.
        drop(unsafe { link.into_owned() });
    }),
    ("raw::protect", |domain, turns| {
        let (reader, mut object) = (domain.reader(), 1);
        let link = AtomicPtr::new(&raw mut object);
        turns.for_each(|()| {
            let (_, slot) = raw::protect(&reader, &link).expect("it is not null");
            // SAFETY: this is the reader's thread, and the slot is not used any more.
            unsafe { slot.release() };
        });
    }),
    ("a table, with the key", |domain, turns| {
        let (mut reader, table) = (domain.reader(), table(domain));
        let mut lookup = table.reader(&mut reader);
        turns.for_each(|()| drop(lookup.get(&1).expect("it is there")));
    }),
    ("a table, without the key", |domain, turns| {
        let (mut reader, table) = (domain.reader(), table(domain));
        let mut lookup = table.reader(&mut reader);
        turns.for_each(|()| assert!(lookup.get(&2).is_none()));
    }),
    ("a guard of a table", |domain, turns| {
        let (mut reader, table) = (domain.reader(), table(domain));
        let mut lookup = table.reader(&mut reader);
        turns.for_each(|()| assert!(lookup.pin().get(&2).is_none()));
    }),
    ("a reader that goes offline", |domain, turns| {
        let (reader, cell) = (domain.reader(), domain.cell(1));
        turns.for_each(|()| {
            drop(cell.protect(&reader));
            assert!(reader.offline());
        });
    }),
];

fn array(domain: &Domain) -> RcuArray<i32> {
    RcuArray::new_in(domain, 1, |_| Some(Box::new(1)))
}

fn table(domain: &Domain) -> Table<i32, i32> {
    let table = Table::new_in(domain);
    table.insert(1, 1).expect("there is room");
    table
}

#[test]
fn whatever_a_reader_loads_it_vouches() {
    for (name, body) in BODIES {
        with_heavy_fences(|domain| {
            let own = domain.clone();
            let other = Other::start(move |turns| body(&own, turns));
            let (only, mut reclaimer) = (silent(&domain), patient(&domain));
            assert!(retire_and_poll(&domain, &mut reclaimer) > 0, "the first fence has none before it");
            drop(only);
            let fences = domain.stats().heavy_fences;
            assert_eq!(fences, 1);
            for turn in 0..3 {
                other.turn();
                reclaimer.retire(retired(&domain)).expect("there is room");
                if name != "a reader that goes offline" {
                    while domain.stats().silent == 0 {
                        assert_eq!(reclaimer.poll(), 0, "{name}: it is silent in turn {turn}");
                    }
                    assert!((0..100).all(|_| reclaimer.poll() == 0), "{name}: it is silent in turn {turn}");
                }
                poll_until_free(&mut reclaimer, || other.turn());
            }
            assert_eq!(domain.stats().heavy_fences, fences, "{name}");
            assert!(domain.stats().vouched >= 3, "{name}: {:?}", domain.stats());
        });
    }
}

/// A reader that is always running, not only between two polls.
#[test]
fn a_running_reader_costs_no_fence() {
    with_heavy_fences(|domain| {
        let (census, is_over) = (Census::default(), AtomicBool::new(false));
        let cell = domain.cell(census.object());
        let mut reclaimer = patient(&domain);
        thread::scope(|scope| {
            let _ending = Ending(|| is_over.store(true, Ordering::Relaxed));
            let (is_running, running) = mpsc::channel();
            let (cell, domain, is_over) = (&cell, &domain, &is_over);
            scope.spawn(move || {
                let reader = domain.reader();
                cell.protect(&reader).expect("never empty").verify();
                is_running.send(()).expect("the test waits for it");
                while !is_over.load(Ordering::Relaxed) {
                    cell.protect(&reader).expect("never empty").verify();
                }
            });
            running.recv().expect("the reader has loaded");
            for _ in 0..100 {
                retire_one(cell, &census, &mut reclaimer);
                poll_until_free(&mut reclaimer, thread::yield_now);
            }
            assert!(domain.stats().heavy_fences <= 1, "{:?}", domain.stats());
            // A wait does not depend on the interval, and may find the reader preempted.
            let before = domain.stats().heavy_fences;
            assert_eq!(domain.synchronize(), Ok(()));
            assert!(domain.stats().heavy_fences <= before + 1);
        });
    });
}

#[test]
fn a_silent_reader_costs_the_whole_domain_one_fence_in_an_interval() {
    with_heavy_fences(|domain| {
        let silent = silent(&domain);
        let mut reclaimers: [Reclaimer; 20] = std::array::from_fn(|_| patient(&domain));
        for _ in 0..100 {
            for reclaimer in &mut reclaimers {
                retire_and_poll(&domain, reclaimer);
            }
        }
        assert_eq!(domain.stats().heavy_fences, 1);
        assert!(domain.stats().freed < 100, "{:?}", domain.stats());
        drop(silent);
        for reclaimer in &mut reclaimers {
            poll_until_free(reclaimer, || ());
        }
        assert_eq!(domain.stats().heavy_fences, 1);
    });
}

#[test]
fn no_fence_is_issued_for_readers_of_the_same_thread_and_for_those_that_have_loaded_nothing() {
    with_heavy_fences(|domain| {
        let (own, unused) = (domain.reader(), domain.clone());
        let other = Other::start(move |turns| {
            let readers = [(); 3].map(|()| unused.reader());
            turns.for_each(|()| drop(readers[0].pin()));
        });
        let (cell, mut reclaimer) = (domain.cell(1), eager(&domain));
        for _ in 0..100 {
            drop(cell.protect(&own).expect("it is full"));
            assert_eq!(retire_and_poll(&domain, &mut reclaimer), 1);
            drop(own.pin());
            assert_eq!(domain.synchronize(), Ok(()));
        }
        assert_eq!((domain.stats().heavy_fences, domain.stats().silent), (0, 0));
        other.turn();
        assert_eq!(retire_and_poll(&domain, &mut reclaimer), 1);
        assert_eq!(domain.stats().heavy_fences, 1, "it has loaded something now");
    });
}

#[test]
fn no_fence_is_issued_for_threads_that_sleep_offline() {
    const THREADS: usize = 64;
    with_heavy_fences(|domain| {
        let cell = Arc::new(domain.cell(1));
        let sleepers: Vec<_> = (0..THREADS)
            .map(|_| {
                let (domain, cell) = (domain.clone(), Arc::clone(&cell));
                Other::start(move |turns| {
                    let reader = domain.reader();
                    drop(cell.protect(&reader).expect("never empty"));
                    assert!(reader.offline() && !reader.offline());
                    turns.for_each(|()| drop(cell.protect(&reader).expect("never empty")));
                })
            })
            .collect();
        let mut reclaimer = eager(&domain);
        for value in 0..1000 {
            let old = cell.replace(value).expect("never empty");
            reclaimer.retire(old).expect("there is room");
            assert_eq!(reclaimer.poll(), 1);
            assert_eq!(domain.synchronize(), Ok(()));
        }
        assert_eq!((domain.stats().heavy_fences, domain.stats().silent), (0, 0));
        // One that has come back, and sleeps without a word, costs one each time.
        sleepers[THREADS / 2].turn();
        for fences in 1..=3 {
            assert_eq!(retire_and_poll(&domain, &mut reclaimer), 1);
            assert_eq!((domain.stats().heavy_fences, domain.stats().silent), (fences, 1));
        }
    });
}

#[test]
fn a_reader_does_not_go_offline_under_a_guard() {
    with_heavy_fences(|domain| {
        let (census, reader, mut reclaimer) = (Census::default(), domain.reader(), eager(&domain));
        let cell = domain.cell(census.object());
        assert!(!reader.offline(), "it has loaded nothing yet");
        let guard = reader.pin();
        let object = cell.load(&guard).expect("never empty");
        let inner = reader.pin();
        assert!(!reader.offline());
        drop(inner);
        assert!(!reader.offline());
        retire_one(&cell, &census, &mut reclaimer);
        assert_eq!((reclaimer.poll(), census.freed()), (0, 0));
        object.verify();
        drop(guard);
        assert!(reader.offline());
        assert_eq!((reclaimer.poll(), census.freed()), (1, 1));
        // A guard brings it back.
        let guard = reader.pin();
        let object = cell.load(&guard).expect("never empty");
        assert!(!reader.offline());
        retire_one(&cell, &census, &mut reclaimer);
        assert_eq!((reclaimer.poll(), census.freed()), (0, 1));
        object.verify();
    });
}

#[test]
fn what_is_protected_stays_so_while_its_reader_is_offline() {
    with_heavy_fences(|domain| {
        let census = Census::default();
        let cell = Arc::new(domain.cell(census.object()));
        let (own, its_cell) = (domain.clone(), Arc::clone(&cell));
        let other = Other::start(move |mut turns| {
            let reader = own.reader();
            let first = its_cell.protect(&reader).expect("never empty");
            assert!(reader.offline());
            turns.next();
            first.verify();
            let second = its_cell.protect(&reader).expect("never empty");
            assert!(reader.offline());
            turns.next();
            first.verify();
            second.verify();
            drop(first);
            turns.for_each(|()| second.verify());
        });
        let mut reclaimer = eager(&domain);
        retire_one(&cell, &census, &mut reclaimer);
        assert_eq!((reclaimer.poll(), domain.stats().pinned), (0, 1));
        other.turn();
        retire_one(&cell, &census, &mut reclaimer);
        assert_eq!((reclaimer.poll(), domain.stats().pinned), (0, 2));
        other.turn();
        assert_eq!((reclaimer.poll(), domain.stats().pinned), (1, 1));
        assert_eq!(domain.stats().heavy_fences, 0);
        other.turn();
        drop(other);
        assert_eq!((reclaimer.poll(), census.freed()), (1, 2));
    });
}

#[test]
fn waits_fence_for_a_silent_reader_and_end() {
    with_heavy_fences(|domain| {
        let (_silent, mut reclaimer) = (silent(&domain), patient(&domain));
        let mut before = 0;
        let mut is_fenced = || {
            let fences = domain.stats().heavy_fences;
            std::mem::replace(&mut before, fences) < fences
        };
        for _ in 0..3 {
            assert!(domain.synchronize().is_ok() && is_fenced());
            assert!(domain.synchronize_timeout(LONG).is_ok() && is_fenced());
            reclaimer.retire(retired(&domain)).expect("there is room");
            assert!(reclaimer.flush().is_ok() && reclaimer.pending() == 0 && is_fenced());
            drop(retired(&domain)); // left to the domain
            assert!(domain.barrier().is_ok() && domain.stats().pending == 0 && is_fenced());
            assert!(retired(&domain).free().is_ok() && is_fenced());
            // These may be called once, and wait for nothing.
            assert!(domain.check(domain.start()) && is_fenced());
            assert!(retired(&domain).try_free().is_ok() && is_fenced());
            let future = pin!(domain.grace_period(domain.start()));
            assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_ready() && is_fenced());
        }
    });
}

/// Such a slot does not vouch, and belongs to no thread: writers fence for it from its first load on.
#[test]
fn a_slot_of_nobody_is_silent() {
    with_heavy_fences(|domain| {
        let mut reclaimer = eager(&domain);
        let slot = Slot::of_nobody(&domain);
        let mut object = 1;
        let link = AtomicPtr::new(&raw mut object);
        let mut before = domain.stats().heavy_fences;
        for _ in 0..3 {
            // SAFETY: this thread has the slot.
            assert!(unsafe { slot.load(&domain, &link) }.is_some());
            assert_eq!(retire_and_poll(&domain, &mut reclaimer), 1);
            let fences = u64::from(!Slot::needs_full_fence(&domain));
            assert_eq!(domain.stats().heavy_fences, before + fences);
            before += fences;
        }
        // SAFETY: as above, and this is the last use.
        unsafe { slot.give_back(&domain) };
        assert_eq!(retire_and_poll(&domain, &mut reclaimer), 1);
        assert_eq!(domain.stats().heavy_fences, before);
    });
}
