//! Readers on their own threads, which hold what they have read until they are asked to release it.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use stillpoint::rcu::{Domain, RcuCell};

use super::retire_one;
use crate::census::Object;
use crate::with_cell;

/// How a thread holds an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Protected,
    Guard,
    /// A guard within a guard. The outer one is dropped first.
    Nested,
    Qsbr,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Protected, Kind::Guard, Kind::Nested, Kind::Qsbr];
    pub(crate) const REGIONS: [Kind; 3] = [Kind::Guard, Kind::Nested, Kind::Qsbr];
}

/// Another thread that holds the object of a cell. It keeps its reader until the end of the test.
pub(crate) struct Holder {
    release: Sender<()>,
    released: Receiver<()>,
}

impl Holder {
    /// Starts a thread that reads `cell`, and returns once it holds the object.
    pub(crate) fn start<'s>(
        scope: &'s thread::Scope<'s, '_>,
        domain: &'s Domain,
        cell: &'s RcuCell<Object>,
        kind: Kind,
    ) -> Self {
        let (held, is_held) = mpsc::channel();
        let (release, to_release) = mpsc::channel();
        let (let_go, released) = mpsc::channel();
        // The first message, or the end of a failed test, is the request to release the object.
        let holds = move || {
            held.send(()).expect("the test waits for it");
            let _ = to_release.recv();
            to_release
        };
        // Keeps the reader until the end of the test: `recv` fails when the holder is dropped.
        let has_let_go = move |to_release: Receiver<()>| {
            let _ = let_go.send(());
            let _ = to_release.recv();
        };
        scope.spawn(move || match kind {
            Kind::Protected => {
                let reader = domain.reader();
                let object = cell.protect(&reader).expect("never empty here");
                let to_release = holds();
                object.verify();
                drop(object);
                has_let_go(to_release);
            }
            Kind::Guard => {
                let reader = domain.reader();
                let guard = reader.pin();
                let object = cell.load(&guard).expect("never empty here");
                let to_release = holds();
                object.verify();
                drop(guard);
                has_let_go(to_release);
            }
            Kind::Nested => {
                let reader = domain.reader();
                let outer = reader.pin();
                let inner = reader.pin();
                let object = cell.load(&inner).expect("never empty here");
                drop(outer);
                let to_release = holds();
                object.verify();
                drop(inner);
                has_let_go(to_release);
            }
            Kind::Qsbr => {
                let mut reader = domain.qsbr_reader();
                let object = cell.load(&reader).expect("never empty here");
                let to_release = holds();
                object.verify();
                reader.quiescent();
                reader.offline(|| has_let_go(to_release));
            }
        });
        is_held.recv().expect("the thread reads");
        Self { release, released }
    }

    /// Makes the thread release the object, and returns when that is done.
    pub(crate) fn release(&self) {
        self.release.send(()).expect("the thread waits for it");
        self.released.recv().expect("the object was alive");
    }
}

/// Several threads hold an object, each in a different way, and release it one after the other. It is freed after the
/// last one.
pub(crate) fn each_holds(domain: &Domain, kinds: &[Kind]) {
    let (census, cell, mut reclaimer) = with_cell(domain);
    thread::scope(|scope| {
        let holders: Vec<_> = kinds.iter().map(|&kind| Holder::start(scope, domain, &cell, kind)).collect();
        retire_one(&cell, &census, &mut reclaimer);
        for holder in holders {
            assert_eq!(reclaimer.poll(), 0);
            holder.release();
        }
        assert_eq!(reclaimer.poll(), 1);
    });
}
