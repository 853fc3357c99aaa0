//! A panic for misuse points at the caller's line.

use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Once};

use stillpoint::pool::Pool;
use stillpoint::rcu::link::Atomic;
use stillpoint::rcu::raw::CallbackQueue;
use stillpoint::rcu::{Domain, RcuArray, RcuCell};
use stillpoint::table::Table;
use stillpoint::timer::shared::TimerService;
use stillpoint::timer::{Clock, Wheel};

thread_local! {
    /// Where the thread has panicked last.
    static PLACE: Cell<Option<(String, u32)>> = const { Cell::new(None) };
}

fn place_of<R>(misuse: impl FnOnce() -> R) -> Option<(String, u32)> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PLACE.set(info.location().map(|place| (place.file().to_owned(), place.line())));
            before(info);
        }));
    });
    assert!(catch_unwind(AssertUnwindSafe(misuse)).is_err(), "no panic");
    PLACE.take()
}

/// Each expression panics with the place where it stands.
macro_rules! point_here {
    ($($misuse:expr;)*) => {$({
        let (file, line) = place_of(|| { std::hint::black_box(Some($misuse)); }).expect("a panic has a place");
        let words = |text: &str| text.split_whitespace().collect::<String>();
        let there = words(include_str!("callers.rs").lines().nth(line as usize - 1).unwrap_or_default());
        let is_here = file.ends_with(file!()) && there.contains(&words(stringify!($misuse)));
        assert!(is_here, "{}: {file}:{line}", stringify!($misuse));
    })*};
}

#[test]
fn readers_and_tokens_of_other_domains_point_at_the_caller() {
    let (here, there) = (Domain::new(), Domain::new());
    let (cell, array) = (here.cell(1), RcuArray::new_in(&here, 1, |_| Some(Box::new(1))));
    let (reader, mut other, mut qsbr) = (there.reader(), there.reader(), there.qsbr_reader());
    let guard = reader.pin();
    point_here! {
        cell.protect(&reader);
        cell.load(&guard);
        cell.load(&qsbr);
        cell.compare_exchange_in(&guard, None, None);
        cell.get();
        cell.set(2);
        cell.clear();
        cell.update(|value| *value);
        array.protect(0, &reader);
        array.load(0, &guard);
        array.compare_exchange_in(0, &guard, None, None);
        array.get(0);
        array.set(0, None);
        array.bind(&mut other);
        array.bind_qsbr(&mut qsbr);
        reader.verify(&here);
        stillpoint::rcu::Region::verify(&guard, &here);
        there.reclaimer().verify(&here);
        here.reclaimer().take_over(&mut there.reclaimer());
        here.check(there.start());
        here.wait(there.start());
        here.wait_timeout(there.start(), std::time::Duration::ZERO);
        here.grace_period(there.start());
        here.cell(1).take().unwrap().token(&there);
        there.background().run();
    }
}

#[test]
fn indices_and_lost_domains_point_at_the_caller() {
    let domain = Domain::new();
    let array = Arc::new(RcuArray::new_in(&domain, 1, |_| Some(Box::new(1))));
    let (mut reader, mut qsbr, guards) = (domain.reader(), domain.qsbr_reader(), domain.reader());
    point_here! {
        array.protect(9, &guards);
        array.load(9, &qsbr);
        array.swap(9, None);
        array.compare_exchange(9, None, None);
        array.bind(&mut reader).protect(9);
        array.bind(&mut reader).pin().load(9);
        array.bind_qsbr(&mut qsbr).load(9);
        RcuArray::new(1, |_| Some(Box::new(1))).get_mut(9);
    }
    let cell = Arc::new(RcuCell::new_in(&Domain::new(), 1));
    point_here! {
        cell.protect_owned();
        cell.protect_arc();
    }
}

#[test]
fn queues_point_at_the_caller() {
    let (domain, other) = (Domain::new(), Domain::new());
    let (queue, foreign) = (CallbackQueue::new(&domain), CallbackQueue::new(&other));
    let reader = domain.reader();
    let guard = reader.pin();
    point_here! {
        queue.run();
        queue.run_while(|| true);
        queue.pass_to(&foreign);
        queue.pass_to(&queue);
    }
    let empty = Atomic::<u64>::null();
    let link = empty.load(std::sync::atomic::Ordering::Acquire, &guard);
    // SAFETY: it panics.
    point_here! { unsafe { link.into_retired(&domain) }; }
}

#[test]
fn tables_pools_and_timers_point_at_the_caller() {
    let (here, there) = (Domain::new(), Domain::new());
    let table: Table<u64, u64> = Table::new_in(&here);
    table.insert(1, 1).expect("there is room");
    let mut reader = there.reader();
    let qsbr = there.qsbr_reader();
    let background = there.background();
    let (pool, foreign) = (Pool::new(8, || 0_u64).unwrap(), Pool::new(8, || 0_u64).unwrap());
    let (local, other) = (pool.local().unwrap(), foreign.local().unwrap());
    let object = other.alloc().unwrap();
    point_here! {
        table.reader(&mut reader);
        table.within(&qsbr);
        table.pin();
        table.remove(&1).unwrap().retire_to(&mut there.reclaimer());
        Table::<u64, u64>::builder_in(&here).attach(background.retire_handle());
        pool.retire(object, &mut there.reclaimer());
        local.alloc_bulk(1, &mut other.bulk(1));
        TimerService::<u64>::new(0).sleep(std::thread::current());
        Wheel::<u64>::with_capacity(0, usize::MAX);
        Wheel::<u64>::with_max_len(0, usize::MAX);
        Clock::of_ticks(64);
    }
    #[cfg(feature = "delay-queue")]
    {
        use stillpoint::timer::delay_queue::DelayQueue;
        let queue = DelayQueue::new();
        queue.insert(1, std::time::Duration::MAX).expect("there is memory");
        point_here! {
            DelayQueue::<u64>::with_capacity(usize::MAX);
            DelayQueue::<u64>::with_max_len(usize::MAX);
            queue.timed_by(std::time::Instant::now);
        }
    }
    let service = TimerService::<u64>::new(0);
    let remote = service.remote();
    point_here! { remote.mailbox(usize::MAX); }
    point_here! { service.sleeping(); }
}
