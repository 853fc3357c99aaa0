//! A configuration that is replaced while worker threads read it.
//!
//! Workers load the configuration for each request, and hold it until the request is done. Meanwhile they delay nothing
//! but the freeing of that one configuration. So protected loads suit code that may take long, sleep or be preempted.
//!
//! Run it with `cargo run --example config_snapshot`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use stillpoint::rcu::wait::SynchronizeError;
use stillpoint::rcu::{Domain, RcuCell};

/// Replaced as a whole: a reader never sees a limit of one version with the routes of another.
struct Config {
    version: u64,
    limit: u64,
    routes: Vec<u64>,
}

impl Config {
    fn new(version: u64) -> Self {
        Self { version, limit: 10 * version, routes: vec![version; 8] }
    }
}

/// Ends the workers, also if the writer panics.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the number of requests that were served.
fn serve(domain: &Domain, config: &RcuCell<Config>, done: &AtomicBool) -> u64 {
    // One reader per thread, made once, so that a request does not pay for it.
    let reader = domain.reader();
    let (mut served, mut newest) = (0, 0);
    loop {
        let config = config.protect(&reader).expect("there always is a configuration");
        assert_eq!(config.limit, 10 * config.version);
        assert!(config.routes.iter().all(|&route| route == config.version));
        assert!(config.version >= newest, "time does not go back");
        newest = config.version;
        served += 1;
        if done.load(Ordering::Relaxed) {
            return served;
        }
        // `config` is dropped here: the next request loads it again.
    }
}

pub(crate) fn main() -> Result<(), SynchronizeError> {
    const VERSIONS: u64 = 500;
    let domain = Domain::builder().name("config").build().expect("the default mode is always available");
    let config = domain.cell(Config::new(0));
    let done = AtomicBool::new(false);
    // The writer polls its own queue, so that reclamation needs no thread.
    let mut reclaimer = domain.reclaimer();

    let served: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(|| serve(&domain, &config, &done))).collect();
        let writing = Done(&done);
        for version in 1..=VERSIONS {
            let old = config.replace(Config::new(version)).expect("there always is a configuration");
            // Unlinked, but not freed yet: a worker may still read it. A full queue would hand it back.
            reclaimer.retire(old).expect("three workers hold up three configurations at the most");
            // Frees what no worker holds any more, without waiting.
            reclaimer.poll();
            thread::sleep(Duration::from_micros(20));
        }
        drop(writing);
        workers.into_iter().map(|worker| worker.join().expect("no worker panics")).sum()
    });

    reclaimer.flush()?;
    let stats = domain.stats();
    println!("served {served} requests with {VERSIONS} configurations, of which {} are freed", stats.freed);
    assert_eq!((stats.freed, stats.pending), (VERSIONS, 0));
    Ok(())
}
