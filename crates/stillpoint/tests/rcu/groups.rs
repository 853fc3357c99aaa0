//! Domains are independent: a slow reader of one never delays another.

use std::sync::mpsc;
use std::thread;

use stillpoint::fence::Mode;
use stillpoint::rcu::wait::SynchronizeError;
use stillpoint::rcu::{Domain, RcuCell, Reclaimer};

use crate::{census, eager, LONG, SHORT};
use census::{Census, Object};

fn retire_one(cell: &RcuCell<Object>, census: &Census, reclaimer: &mut Reclaimer) {
    reclaimer.retire(cell.replace(census.object()).expect("never empty")).expect("there is room");
}

#[test]
fn a_slow_reader_of_one_domain_never_delays_another_with_the_same_thread_in_both() {
    let (slow, quick) = (Domain::new(), Domain::new());
    let (slow_census, census) = (Census::default(), Census::default());
    let (slow_cell, cell) = (slow.cell(slow_census.object()), quick.cell(census.object()));
    let (held, is_held) = mpsc::channel();
    let (turn, turns) = mpsc::channel::<()>();
    let (passed, has_passed) = mpsc::channel();

    thread::scope(|scope| {
        let (slow, quick, slow_cell, cell) = (&slow, &quick, &slow_cell, &cell);
        scope.spawn(move || {
            // Every kind of read, slow in one domain and quick in the other.
            let (slow_reader, slow_qsbr) = (slow.reader(), slow.qsbr_reader());
            let slow_guard = slow_reader.pin();
            let objects =
                (slow_cell.protect(&slow_reader), slow_cell.load(&slow_guard), slow_cell.load(&slow_qsbr));
            let (reader, mut qsbr) = (quick.reader(), quick.qsbr_reader());
            held.send(()).expect("the writer waits for it");
            for () in turns {
                cell.protect(&reader).expect("never empty").verify();
                cell.load(&reader.pin()).expect("never empty").verify();
                cell.load(&qsbr).expect("never empty").verify();
                qsbr.quiescent();
                passed.send(()).expect("the writer waits for it");
            }
            objects.0.expect("never empty").verify();
            objects.1.expect("never empty").verify();
            objects.2.expect("never empty").verify();
        });
        is_held.recv().expect("the reader runs");

        let mut slow_reclaimer = eager(slow);
        let mut reclaimer = eager(quick);
        for _ in 0..100 {
            retire_one(slow_cell, &slow_census, &mut slow_reclaimer);
            retire_one(cell, &census, &mut reclaimer);
            assert_eq!((slow_reclaimer.poll(), reclaimer.poll()), (0, 0), "both have an online reader");
            turn.send(()).expect("the reader waits for it");
            has_passed.recv().expect("the reader takes its turn");
            assert_eq!((slow_reclaimer.poll(), reclaimer.poll()), (0, 1));
        }
        let token = quick.start();
        turn.send(()).expect("the reader waits for it");
        assert_eq!(quick.wait_timeout(token, LONG), Ok(()));
        assert!(matches!(slow.synchronize_timeout(SHORT), Err(SynchronizeError::Stalled(_))));
        assert_eq!((slow_census.freed(), census.freed()), (0, 100));

        drop(turn);
        assert_eq!(slow.synchronize_timeout(LONG), Ok(()));
        assert_eq!(slow_reclaimer.poll(), 100);
    });
}

/// Readers of one thread delay each of many domains in turn, and none of the others.
#[test]
fn many_domains_are_held_up_one_by_one() {
    let count = if cfg!(miri) { 5 } else { 100 };
    let census = Census::default();
    let modes = [Mode::best(), Mode::Symmetric];
    let domains: Vec<_> = (0..count)
        .map(|number| Domain::builder().fence(modes[number % 2]).build().expect("the mode was probed"))
        .collect();
    let cells: Vec<_> = domains.iter().map(|domain| domain.cell(census.object())).collect();
    let readers: Vec<_> = domains.iter().map(Domain::reader).collect();
    let mut reclaimers: Vec<_> = domains.iter().map(eager).collect();

    for held in 0..count {
        let guard = readers[held].pin();
        for (cell, reclaimer) in cells.iter().zip(&mut reclaimers) {
            retire_one(cell, &census, reclaimer);
        }
        for (number, reclaimer) in reclaimers.iter_mut().enumerate() {
            assert_eq!(reclaimer.poll(), usize::from(number != held), "domain {number} while {held} is held");
        }
        drop(guard);
        assert_eq!(reclaimers[held].poll(), 1);
    }
    assert_eq!((census.freed(), census.alive()), (count * count, count));
}

#[test]
fn domains_have_names_and_numbers_of_their_own() {
    let domains: Vec<_> = (0..100).map(|_| Domain::new()).collect();
    let names: std::collections::HashSet<_> = domains.iter().map(|domain| domain.name().to_owned()).collect();
    let numbers: std::collections::HashSet<_> = domains.iter().map(Domain::id).collect();
    assert_eq!((names.len(), numbers.len()), (100, 100));
    assert_eq!(domains[0].clone().id(), domains[0].id(), "a handle is no other domain");
}

/// An object that goes through two domains is freed by the second one.
#[test]
fn a_writer_may_wait_for_two_domains() {
    let census = Census::default();
    let (first, second) = (Domain::new(), Domain::new());
    let cell = first.cell(census.object());
    let (reader, other_reader) = (first.reader(), second.reader());
    let mut outer = eager(&second);
    let object = cell.protect(&reader).expect("never empty");
    let other_guard = other_reader.pin();

    // Deferred in the second domain, the object is then retired to the first.
    let old = cell.replace(census.object()).expect("never empty");
    let (passed_on, passed) = mpsc::channel();
    outer.defer(move || passed_on.send(old).expect("the receiver is alive"));
    assert_eq!(outer.poll(), 0);
    drop(other_guard);
    assert_eq!(outer.poll(), 1);
    let old = passed.try_recv().expect("it was called").try_free().expect_err("it is protected");
    drop(object);
    assert!(old.try_free().is_ok());
}
