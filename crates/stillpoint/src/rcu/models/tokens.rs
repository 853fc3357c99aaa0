//! Tokens, and the results of checks that are kept.

use std::sync::Arc;

use loom::thread::JoinHandle;

use super::{explore, race, spawn, spawn_away, spawn_reader, Object, Shared, EVERY};
use crate::rcu::wait::Token;
use crate::rcu::Reader;

/// One writer checks a token, which `begin` starts, while another one unlinks an object, starts the next token, and checks that one.
/// `begin` also spawns a reader.
fn two_writers(begin: impl Fn(&Arc<Shared<1>>) -> (Token, JoinHandle<()>) + Send + Sync + 'static) {
    explore(2, move || {
        let shared = Shared::<1>::new();
        let (token, reader) = begin(&shared);
        let other = spawn(&shared, |shared| drop(shared.cells[0].take().expect("never empty").try_free()));
        shared.domain.check(token);
        reader.join().unwrap();
        other.join().unwrap();
    });
}

fn pin_and_read(shared: &Shared<1>, reader: Reader) {
    shared.read_in(&reader.pin(), 0);
}

/// Each writer's fence and scan serve the other writer's token, or must not. The reader is silent.
#[test]
fn two_writers_share_what_they_found_out() {
    two_writers(|shared| {
        let reader = spawn_reader(shared, pin_and_read);
        (shared.domain.start(), reader)
    });
}

/// The reader was away. It comes back after a fence that serves no token that was started after it.
#[test]
fn a_fence_does_not_serve_a_token_started_meanwhile() {
    two_writers(|shared| {
        let reader = spawn_away(shared, pin_and_read);
        (shared.domain.start(), reader)
    });
}

/// The reader vouches for the first token, and for no later one.
#[test]
fn a_check_serves_no_token_for_which_a_reader_does_not_vouch() {
    two_writers(|shared| {
        let token = shared.domain.start();
        (token, spawn_reader(shared, |shared, reader| shared.protect_and_read(&reader, 0)))
    });
}

/// The second token needs its own fence.
#[test]
fn a_fence_serves_older_tokens_alone() {
    let write = |shared: &Shared<1>| {
        shared.domain.check(shared.domain.start());
        shared.retire(0, 1);
    };
    race(3, |shared| pin_and_read(shared, shared.domain.reader()), write);
}

/// A section that carries a token started by another writer has seen what was unlinked before *every* earlier
/// one.
#[test]
fn a_newer_token_includes_the_older_ones() {
    explore(3, || {
        let shared = Shared::<1>::new();
        let other = spawn(&shared, |shared| _ = shared.domain.start());
        let reader = spawn(&shared, |shared| pin_and_read(shared, shared.domain.reader()));
        shared.retire(0, 1);
        other.join().unwrap();
        reader.join().unwrap();
    });
}

/// A scan for another token must not start at the laggard of the first one and leave out the readers before it.
#[test]
fn the_scan_goes_full_circle() {
    explore(EVERY, || {
        let shared = Shared::<1>::new();
        let (one, two) = (shared.domain.reader(), shared.domain.reader());
        // The reader that comes later in the scan blocks the first token; the other reader holds the object.
        for (late, early) in [(&one, &two), (&two, &one)] {
            let laggard = late.pin();
            let first = shared.domain.start();
            assert!(!shared.domain.check(first));
            let guard = early.pin();
            let object = shared.cells[0].load(&guard).expect("never empty");
            let mut reclaimer = shared.domain.reclaimer();
            reclaimer.retire(shared.cells[0].replace(Object::new()).unwrap()).unwrap();
            drop(laggard);
            reclaimer.poll();
            object.read();
            drop(guard);
            reclaimer.flush().unwrap();
        }
    });
}
