//! Readers that come and go while a writer waits.

use std::mem;
use std::sync::mpsc;
use std::thread;

use super::holding::{Holder, Kind};
use super::{noticing, retire_one};
use crate::census::Census;
use crate::modes::{in_each_mode, modes};
use crate::{eager, with_cell, LONG};

#[test]
fn a_reader_that_unregisters_while_a_writer_waits_lets_the_writer_go() {
    for mode in modes() {
        for kind in [Kind::Guard, Kind::Qsbr] {
            let (registered, is_registered) = mpsc::channel();
            let (domain, is_noticed) = noticing(mode);
            thread::scope(|scope| {
                let domain = &domain;
                scope.spawn(move || {
                    let (reader, qsbr) = match kind {
                        Kind::Qsbr => (None, Some(domain.qsbr_reader())),
                        _ => (Some(domain.reader()), None),
                    };
                    if let Some(reader) = &reader {
                        mem::forget(reader.pin());
                    }
                    registered.send(()).expect("the test waits for it");
                    is_noticed.recv().expect("the writer finds it in its way");
                    drop((reader, qsbr));
                });
                is_registered.recv().expect("the reader registers");
                let token = domain.start();
                assert!(!domain.check(token), "{kind:?}");
                assert_eq!(domain.wait_timeout(token, LONG), Ok(()), "{mode:?}, {kind:?}");
            });
        }
    }
}

#[test]
fn a_reader_that_registers_while_a_writer_waits_does_not_hold_it_up() {
    in_each_mode(|domain| {
        let cell = domain.cell(Census::default().object());
        let domain = &domain;
        thread::scope(|scope| {
            let early = Holder::start(scope, domain, &cell, Kind::Guard);
            let token = domain.start();
            assert!(!domain.check(token));
            let waits = scope.spawn(move || domain.wait_timeout(token, LONG));
            let late = Kind::REGIONS.map(|kind| Holder::start(scope, domain, &cell, kind));
            assert!(!waits.is_finished(), "the first one holds it up");
            early.release();
            assert_eq!(waits.join().expect("it does not panic"), Ok(()));
            late.iter().for_each(Holder::release);
        });
    });
}

/// Slots are used again, and the next owner starts with a clean one.
#[test]
fn a_new_reader_inherits_nothing() {
    in_each_mode(|domain| {
        let (census, cell, mut reclaimer) = with_cell(&domain);
        for _ in 0..20 {
            let reader = domain.reader();
            mem::forget(reader.pin());
            mem::forget(cell.protect(&reader));
            drop(reader);
            let _reader = domain.reader();
            retire_one(&cell, &census, &mut reclaimer);
            assert_eq!(reclaimer.poll(), 1);
            let qsbr = domain.qsbr_reader();
            retire_one(&cell, &census, &mut reclaimer);
            assert_eq!(reclaimer.poll(), 0);
            drop(qsbr);
            assert_eq!(reclaimer.poll(), 1);
        }
        assert_eq!(domain.stats().readers, 0);
    });
}

#[test]
fn readers_come_and_go_while_writers_wait() {
    let rounds = if cfg!(miri) { 5 } else { 500 };
    in_each_mode(|domain| {
        let census = Census::default();
        let cell = domain.cell(census.object());
        thread::scope(|scope| {
            for number in 0..3 {
                let (domain, cell) = (&domain, &cell);
                scope.spawn(move || {
                    for _ in 0..rounds {
                        if number == 0 {
                            cell.load(&domain.qsbr_reader()).expect("never empty").verify();
                        } else {
                            let reader = domain.reader();
                            cell.protect(&reader).expect("never empty").verify();
                            cell.load(&reader.pin()).expect("never empty").verify();
                        }
                    }
                });
            }
            for _ in 0..rounds {
                let old = cell.replace(census.object()).expect("never empty");
                domain.synchronize().expect("every reader leaves");
                drop(old);
            }
        });
        let mut reclaimer = eager(&domain);
        while reclaimer.poll() > 0 {}
        assert_eq!((census.freed(), domain.stats().readers), (rounds, 0));
    });
}
