//! Which thread reports a section to the stall hook.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use super::{explore, EVERY, MODE};
use crate::rcu::engine::core::grace::Grace;
use crate::rcu::engine::wait::report::Behind;
use crate::rcu::Domain;

/// Two threads find the same reader in their way: exactly one of them reports it.
#[test]
fn a_section_is_told_of_once() {
    explore(EVERY, || {
        // Not modelled: it counts, and orders nothing.
        let told = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&told);
        let domain = Domain::builder().fence(MODE.get()).stall_hook(Duration::ZERO, move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let domain = domain.build().expect("no fence mode is refused in a model");
        let reader = domain.reader();
        let guard = reader.pin();
        let token = domain.core().protocol.start();
        let finds = move |domain: &Domain| {
            let core = domain.core();
            let Ok(Grace::Blocked(laggard)) = core.protocol.check(token) else {
                panic!("the guard is in the way")
            };
            core.report_stall(laggard, token, Duration::ZERO, Behind::default);
        };
        let other = domain.clone();
        let thread = loom::thread::spawn(move || finds(&other));
        finds(&domain);
        thread.join().unwrap();
        assert_eq!(told.load(Ordering::Relaxed), 1, "a section was not reported exactly once");
        drop(guard);
    });
}
