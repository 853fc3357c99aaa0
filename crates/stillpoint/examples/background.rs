//! Reclamation on a thread of its own, fed by several writers.
//!
//! Writers that must not spend time on destructors, or that have no loop in which to poll, hand their unlinked objects
//! to a background reclaimer. You start the thread, so its name, priority and cores are up to you.
//!
//! Run it with `cargo run --example background`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use stillpoint::rcu::limits::RetireErrorKind;
use stillpoint::rcu::{Domain, RcuArray};

const SLOTS: usize = 8;
const WRITERS: u64 = 3;
const UPDATES: u64 = 2000;

/// An object that takes a while to destroy.
struct Session {
    number: u64,
    ended: Arc<AtomicU64>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn main() -> std::io::Result<()> {
    let domain = Domain::builder().name("sessions").build().expect("the default mode is always available");
    let ended = Arc::new(AtomicU64::new(0));
    let session = |number| Some(Box::new(Session { number, ended: Arc::clone(&ended) }));
    let table = RcuArray::new_in(&domain, SLOTS, |_| session(0));

    let mut background = domain
        .reclaimer_builder()
        .max_pending(512) // beyond that, `retire` hands objects back
        .fence_interval(Duration::from_micros(200)) // how long less than a batch waits for a heavy fence
        .build_background();
    let handle = background.retire_handle();
    let reclaims = thread::Builder::new().name("reclaims".into()).spawn(move || background.run())?;

    thread::scope(|scope| {
        for writer in 0..WRITERS {
            // A retire handle is cheap: one for each writer.
            let (handle, table, session) = (handle.clone(), &table, &session);
            scope.spawn(move || {
                for update in 1..=UPDATES {
                    let number = writer * UPDATES + update;
                    let old = table.swap(number as usize % SLOTS, session(number)).expect("no slot is empty");
                    if let Err(error) = handle.retire_timeout(old, Duration::from_millis(10)) {
                        // The writer chooses: wait longer, shed load, or leave it to the domain as here.
                        assert_eq!(error.kind(), RetireErrorKind::Full);
                        drop(error.into_inner());
                    }
                }
            });
        }
        scope.spawn(|| {
            let reader = domain.reader();
            for slot in (0..SLOTS).cycle().take(10_000) {
                let session = table.protect(slot, &reader).expect("no slot is empty");
                assert!(session.number <= WRITERS * UPDATES);
            }
        });
    });

    // Nothing more is accepted from here on: the thread ends when everything is freed.
    handle.stop();
    reclaims.join().expect("no destructor panics");
    println!("{} sessions ended in the background, {} go on", ended.load(Ordering::Relaxed), SLOTS);
    assert_eq!(ended.load(Ordering::Relaxed), WRITERS * UPDATES);
    Ok(())
}
