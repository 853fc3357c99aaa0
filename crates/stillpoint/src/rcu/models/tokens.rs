//! Tokens, and the results of checks that are kept.

use super::{explore, spawn, Object, Shared, EVERY};

/// Each writer's fence and scan serve the other writer's token, or must not.
#[test]
fn two_writers_share_what_they_found_out() {
    explore(2, || {
        let shared = Shared::<2>::new();
        let reader = spawn(&shared, |shared| {
            let reader = shared.domain.reader();
            if let Some(object) = shared.cells[1].load(&reader.pin()) {
                object.read();
            };
        });
        let other = spawn(&shared, |shared| {
            let token = shared.domain.start();
            shared.domain.check(token);
        });
        let mut reclaimer = shared.domain.reclaimer();
        reclaimer.retire(shared.cells[1].take().unwrap()).unwrap();
        reclaimer.poll();
        reclaimer.poll();
        reader.join().unwrap();
        other.join().unwrap();
    });
}

/// A token is started, and its object unlinked, while another writer issues a fence for an earlier token.
#[test]
fn a_fence_does_not_serve_a_token_started_meanwhile() {
    explore(3, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            let reader = shared.domain.reader();
            if let Some(object) = shared.cells[0].load(&reader.pin()) {
                object.read();
            };
        });
        let other = spawn(&shared, |shared| {
            let token = shared.domain.start();
            shared.domain.check(token);
        });
        drop(shared.cells[0].take().unwrap().try_free());
        reader.join().unwrap();
        other.join().unwrap();
    });
}

/// The second token needs its own fence.
#[test]
fn a_fence_serves_older_tokens_alone() {
    explore(3, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            let reader = shared.domain.reader();
            if let Some(object) = shared.cells[0].load(&reader.pin()) {
                object.read();
            };
        });
        let first = shared.domain.start();
        shared.domain.check(first);
        let mut reclaimer = shared.domain.reclaimer();
        reclaimer.retire(shared.cells[0].take().unwrap()).unwrap();
        reclaimer.poll();
        reader.join().unwrap();
    });
}

/// A section that carries a token started by another writer has seen what was unlinked before *every* earlier
/// one.
#[test]
fn a_newer_token_includes_the_older_ones() {
    explore(3, || {
        let shared = Shared::<1>::new();
        let other = spawn(&shared, |shared| {
            shared.domain.start();
        });
        let reader = spawn(&shared, |shared| {
            let reader = shared.domain.reader();
            if let Some(object) = shared.cells[0].load(&reader.pin()) {
                object.read();
            };
        });
        let mut reclaimer = shared.domain.reclaimer();
        reclaimer.retire(shared.cells[0].take().unwrap()).unwrap();
        reclaimer.poll();
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
        // The reader that comes later in the scan holds up the first token; the other reader holds the object.
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
